"""Another place of FastMCP."""

from fastmcp import Context, FastMCP

__all__ = ["Context", "FastMCP"]
