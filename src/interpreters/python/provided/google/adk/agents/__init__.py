"""Agents of the Agent Development Kit, which a file makes of its functions."""

from _sekisho_libraries import Made, without


class LlmAgent(Made):
    pass


Agent = LoopAgent = ParallelAgent = SequentialAgent = LlmAgent

__all__ = ["Agent", "LlmAgent", "LoopAgent", "ParallelAgent", "SequentialAgent"]
__getattr__ = without("google.adk.agents", __all__)
