"""Tools of LangChain."""

from _sekisho_libraries import BaseTool, FunctionTool, Made, tool, without

StructuredTool = Tool = FunctionTool


class ToolException(Exception):
    pass


class InjectedToolArg(Made):
    pass


__all__ = ["BaseTool", "InjectedToolArg", "StructuredTool", "Tool", "ToolException", "tool"]
__getattr__ = without("langchain_core.tools", __all__)
