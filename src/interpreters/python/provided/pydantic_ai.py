"""Function tools of Pydantic AI."""

from _sekisho_libraries import CallContext, FunctionTool, Made, tool, without


class ModelRetry(Exception):
    """What a function asks the model to do differently."""


class RunContext(CallContext):
    pass


class FunctionToolset(Made):
    def __class_getitem__(cls, _types):
        return cls

    def tool(self, *positional, **options):
        return tool(*positional, **options)

    tool_plain = tool


class Agent(FunctionToolset):
    def system_prompt(self, *positional, **options):
        return tool(*positional, **options)

    instructions = output_validator = system_prompt


Tool = FunctionTool

__all__ = ["Agent", "FunctionToolset", "ModelRetry", "RunContext", "Tool"]
__getattr__ = without("pydantic_ai", __all__)
