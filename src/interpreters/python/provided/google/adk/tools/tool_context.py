"""Another place of the context."""

from _sekisho_libraries import without
from google.adk.tools import ToolContext

__all__ = ["ToolContext"]
__getattr__ = without("google.adk.tools.tool_context", __all__)
