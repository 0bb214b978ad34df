"""Prints the gold calls of BFCL's multi-turn tasks (PyPI `bfcl-eval`) as JSON: for each task
its calls, [tool, arguments] each. The other categories have the calls of
the first with other conversations around them."""
import ast
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mcp"))
from bfcl_backends import entries, tools  # noqa: E402


def made(text, parameters):
    """A call such as `sort('final_report.pdf')`; positional values are in the order in which the benchmark describes parameters."""
    call = ast.parse(text, mode="eval").body
    positional = [ast.literal_eval(value) for value in call.args]
    named = {argument.arg: ast.literal_eval(argument.value) for argument in call.keywords}
    return [call.func.id, {**dict(zip(parameters[call.func.id], positional)), **named}]


parameters = {tool.name: list(tool.input_schema["properties"]) for tool in tools()}
known = [entry for entry in entries().values() if entry["category"] == "base"]
print(json.dumps([[made(text, parameters) for text in entry["calls"]] for entry in known]))
