"""Each public function with annotations in this file is a tool: `convert` is NAME__convert.

Functions run in a sandbox, without network and without files of this machine. Each call executes this file in a fresh
interpreter, so nothing is kept between calls. What begins with `_` is no tool.
"""

from typing import Annotated, Literal

from host import tool, tools


def convert(degrees: float, to: Literal["celsius", "fahrenheit"] = "celsius") -> float:
    """Converts a temperature.

    Models choose the tool by this text, and give it arguments by what is said of them. The types are checked before a call,
    and the result after it.

    Args:
        degrees: The temperature in the other unit.
        to: The unit of the result.
    """
    return (degrees - 32) / 1.8 if to == "celsius" else degrees * 1.8 + 32


# The decorator is optional: name, cost_per_use, rate_limit, timeout_seconds, labels, dangerous, and the tools of the gateway that
# the function needs. They are called as whoever calls this one.
@tool(timeout_seconds=10, needs=["calculator"])
def product(factors: Annotated[list[int], "What is multiplied."]) -> int:
    """Multiplies whole numbers."""
    return tools.calculator(expression=" * ".join(map(str, factors)))
