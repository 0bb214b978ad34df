"""Function tools of the Agent Development Kit."""

from _sekisho_libraries import CallContext, FunctionTool, without


class ToolContext(CallContext):
    pass


__all__ = ["FunctionTool", "ToolContext"]
__getattr__ = without("google.adk.tools", __all__)
