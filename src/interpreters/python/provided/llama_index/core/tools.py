"""Function tools of LlamaIndex."""

from _sekisho_libraries import FunctionTool, without

__all__ = ["FunctionTool"]
__getattr__ = without("llama_index.core.tools", __all__)
