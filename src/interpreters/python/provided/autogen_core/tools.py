"""Function tools of AutoGen."""

from _sekisho_libraries import FunctionTool, without

__all__ = ["FunctionTool"]
__getattr__ = without("autogen_core.tools", __all__)
