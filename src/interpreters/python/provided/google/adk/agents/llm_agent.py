"""Another place of the agents."""

from _sekisho_libraries import without
from google.adk.agents import Agent, LlmAgent

__all__ = ["Agent", "LlmAgent"]
__getattr__ = without("google.adk.agents.llm_agent", __all__)
