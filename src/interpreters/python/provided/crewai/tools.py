"""Tools of CrewAI."""

from _sekisho_libraries import BaseTool, tool, without

__all__ = ["BaseTool", "tool"]
__getattr__ = without("crewai.tools", __all__)
