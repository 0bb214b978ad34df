"""Types that methods of tools of LangChain name."""

from _sekisho_libraries import Made, without


class CallbackManagerForToolRun(Made):
    pass


class AsyncCallbackManagerForToolRun(Made):
    pass


__all__ = ["AsyncCallbackManagerForToolRun", "CallbackManagerForToolRun"]
__getattr__ = without("langchain_core.callbacks", __all__)
