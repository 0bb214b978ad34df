"""Another place of LangChain's tools."""

from _sekisho_libraries import without
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, ToolException, tool

__all__ = ["BaseTool", "InjectedToolArg", "StructuredTool", "Tool", "ToolException", "tool"]
__getattr__ = without("langchain.tools", __all__)
