"""Function tools of the OpenAI Agents SDK."""

from _sekisho_libraries import CallContext, Made, tool, without


class Agent(Made):
    def __class_getitem__(cls, _types):
        return cls


class RunContextWrapper(CallContext):
    pass


class Runner(Made):
    pass


function_tool = tool

__all__ = ["Agent", "RunContextWrapper", "Runner", "function_tool"]
__getattr__ = without("agents", __all__)
