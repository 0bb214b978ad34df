"""Tools of smolagents."""

from _sekisho_libraries import BaseTool, tool, without

Tool = BaseTool

__all__ = ["Tool", "tool"]
__getattr__ = without("smolagents", __all__)
