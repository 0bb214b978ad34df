"""Types of the protocol that decorators of FastMCP are given."""

from _sekisho_libraries import Made, without


class ToolAnnotations(Made):
    pass


__all__ = ["ToolAnnotations"]
__getattr__ = without("mcp.types", __all__)
