"""What functions of tools of LangChain name of its runs."""

from _sekisho_libraries import Made, without


class RunnableConfig(dict):
    """Empty: there is no run of LangChain here."""


class RunnableLambda(Made):
    pass


class RunnablePassthrough(Made):
    pass


__all__ = ["RunnableConfig", "RunnableLambda", "RunnablePassthrough"]
__getattr__ = without("langchain_core.runnables", __all__)
