"""Tools of Strands Agents."""

from _sekisho_libraries import Made, tool, without


class Agent(Made):
    pass


__all__ = ["Agent", "tool"]
__getattr__ = without("strands", __all__)
