"""`FastMCP` for files that are written for it: its decorated functions are tools here too, without a server of their own."""

import sys

__all__ = ["Context", "FastMCP"]


class Context:
    """What a decorated function may say while it runs: it is printed on standard error. There is no session and no client here."""

    async def log(self, message, level="info", **_options):
        print(f"{level}: {message}", file=sys.stderr)

    async def debug(self, message, **_options):
        await self.log(message, "debug")

    async def info(self, message, **_options):
        await self.log(message, "info")

    async def warning(self, message, **_options):
        await self.log(message, "warning")

    async def error(self, message, **_options):
        await self.log(message, "error")

    async def report_progress(self, progress, total=None, message=None):
        """Nobody waits for it."""

    def __getattr__(self, name):
        raise AttributeError(f"there is no `{name}` of a context here: it has log, debug, info, warning, error and report_progress")


class FastMCP:
    """What a file calls of its server. Only `tool` has a meaning here."""

    def __init__(self, name=None, instructions=None, **_options):
        self.name = name
        self.instructions = instructions

    def tool(self, name_or_function=None, **_options):
        return name_or_function if callable(name_or_function) else _unchanged

    def add_tool(self, function, *_positional, **_options):
        return function

    def resource(self, uri, **_options):
        return _unchanged

    def prompt(self, name_or_function=None, **_options):
        return name_or_function if callable(name_or_function) else _unchanged

    def custom_route(self, path, methods, **_options):
        return _unchanged

    def run(self, *_positional, **_options):
        """The gateway is the server."""

    async def run_async(self, *_positional, **_options):
        """The same."""

    def __getattr__(self, name):
        raise AttributeError(f"there is no `{name}` of a FastMCP here: write @mcp.tool above the functions that are tools")


def _unchanged(function):
    return function


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(f"the part of fastmcp that this interpreter has is without `{name}`: it has FastMCP and Context")
