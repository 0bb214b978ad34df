"""Tools of Strands Agents."""

from _sekisho_libraries import tool, without

__all__ = ["tool"]
__getattr__ = without("strands", __all__)
