"""Tools of LangChain."""

from _sekisho_libraries import BaseTool, FunctionTool, tool, without

StructuredTool = Tool = FunctionTool


class ToolException(Exception):
    pass


__all__ = ["BaseTool", "StructuredTool", "Tool", "ToolException", "tool"]
__getattr__ = without("langchain_core.tools", __all__)
