"""`from host import tools`: the tools that the caller of the program may use, as functions.

Nothing is listed in advance: a tool is described by the host when it is first used. In a coroutine, and in a program that
awaits something outside of functions, a call gives what is to be awaited; elsewhere its result.
"""

import builtins
import keyword
import sys
import types

import _sekisho_source
from _sekisho_errors import is_program
from _sekisho_stored_results import opened, opened_in_coroutine
from _sekisho_tool_calls import ToolCall, ToolError, UnknownToolError, ask, call, call_in_coroutine
from _sekisho_tool_signature import ToolSignature

# `inspect.CO_COROUTINE` and `CO_ASYNC_GENERATOR`.
AWAITING = 0x80 | 0x200
# Code that belongs to the function around it.
INNER = ("<genexpr>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>")
# What `tools` has besides tools, also in `for_models.rs`: a tool of such a name is `tools["…"]`.
OWN = ("gather", "result", "schema", "search")


class Tools:
    """`tools.NAME(…)` calls a tool, `tools["a-name"]` one whose name is no identifier. `tools.search("…")` finds tools,
    `help(tools.NAME)` explains one, and `tools.gather(tools.a(…), tools.b(…))` runs calls in parallel.
    `tools.result("…")` opens a stored result by its result_handle, and `tools.schema("NAME")` gives the JSON Schemas of a tool."""

    def __init__(self):
        # Functions, by attribute and by name.
        self.__dict__["_by_attribute"] = {}
        self.__dict__["_by_name"] = {}

    def __getattr__(self, attribute):
        # No tool begins with this for a program: Python itself looks for many such attributes.
        if attribute.startswith("_"):
            raise AttributeError(f"there is no tool `{attribute}`; write tools[{attribute!r}] if that is its name")
        if attribute not in self._by_attribute:
            self._by_attribute[attribute] = self._function(ask("describe", identifier=identifier_of_attribute(attribute)))
        return self._by_attribute[attribute]

    def __getitem__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"the name of a tool is a str, not {type(name).__qualname__}")
        if name not in self._by_name:
            return self._function(ask("describe", tool=name))
        return self._by_name[name]

    def __setattr__(self, attribute, value):
        raise AttributeError("tools cannot be replaced")

    def __dir__(self):
        return sorted({*OWN, *self._by_attribute})

    def __repr__(self):
        return "<the tools of this call: tools.search('…') finds some, help(tools.NAME) explains one>"

    def search(self, query, limit=10):
        """The tools that fit a task best: a list of dicts with `name`, `call` (how to call it) and `description`."""
        found = ask("search", query=query, limit=limit)
        return [{"name": tool["name"], "call": _as_call(tool), "description": tool["description"]} for tool in found]

    def schema(self, tool):
        """The JSON Schemas of a tool's arguments and result, by its name or as `tools.NAME`: a dict with `input` and `output`."""
        description = ask("describe", tool=tool if isinstance(tool, str) else tool.__name__)
        return {"input": description["inputSchema"], "output": description.get("outputSchema")}

    def gather(self, *calls, return_exceptions=False):
        """Runs calls in parallel: their results, in the order of the calls. In a coroutine it is to be awaited."""
        if _is_awaiting(sys._getframe(1)):
            import asyncio

            return asyncio.gather(*map(_awaitable, calls), return_exceptions=return_exceptions)
        return [_result(call, return_exceptions) for call in calls]

    def result(self, handle):
        """A result that was too large to be shown, by its `result_handle`: JSON as values, anything else as text. With pandas
        imported, a list of objects and CSV are DataFrames. In a coroutine it is to be awaited."""
        return opened_in_coroutine(handle) if _is_awaiting(sys._getframe(1)) else opened(handle)

    def _function(self, description):
        name = description["name"]
        if name not in self._by_name:
            self._by_name[name] = _function(description)
        return self._by_name[name]


def install():
    """Makes `from host import tools` and `help` work."""
    tools = Tools()
    host = types.ModuleType("host", __doc__)
    host.tools = tools
    for offered in (ToolCall, ToolError, UnknownToolError):
        offered.__module__ = "host"
        setattr(host, offered.__name__, offered)
    sys.modules["host"] = host
    sys.modules["host.tools"] = tools
    builtins.help = _help


def _function(description):
    shape, tool = ToolSignature(description), description["name"]

    def function(*positional, **named):
        arguments = shape.arguments(positional, named)
        if _is_awaiting(sys._getframe(1)):
            return call_in_coroutine(tool, arguments)
        return call(tool, arguments)

    def start(*positional, **named):
        """Starts a call: a `ToolCall`, whose `result()` waits for it."""
        return ToolCall(tool, shape.arguments(positional, named))

    function.__name__ = function.__qualname__ = tool
    function.__module__ = "host"
    function.__doc__ = shape.documentation
    function.__signature__ = shape.signature
    function.start = start
    return function


def _is_awaiting(frame):
    """Whether a call is in code that awaits."""
    while frame and frame.f_code.co_name in INNER:
        frame = frame.f_back
    if frame is None:
        return False
    code = frame.f_code
    is_outermost = code.co_name == "<module>" and is_program(code.co_filename)
    return bool(code.co_flags & AWAITING) or is_outermost and _sekisho_source.awaits


def identifier_of_attribute(attribute):
    """A keyword has an underscore at its end here."""
    return attribute[:-1] if attribute.endswith("_") and keyword.iskeyword(attribute[:-1]) else attribute


def call_of(identifier):
    """How a program calls the tool of an identifier, or None."""
    try:
        name = ask("describe", identifier=identifier)["name"]
    except ToolError:
        return None
    return _as_call({"name": name, "ambiguous": False})


def _as_call(tool):
    name = tool["name"]
    identifier = name.replace("-", "_")
    if tool["ambiguous"] or not identifier.isidentifier() or identifier.startswith("_"):
        return f"tools[{name!r}]"
    return f"tools[{name!r}]" if identifier in OWN else f"tools.{identifier}{'_' if keyword.iskeyword(identifier) else ''}"


def _awaitable(call):
    return call if hasattr(type(call), "__await__") else _given(call)


async def _given(value):
    return value


def _result(call, return_exceptions):
    try:
        return call.result() if isinstance(call, ToolCall) else call
    except ToolError as error:
        if return_exceptions:
            return error
        raise


def _help(*things):
    """`help` of the interactive interpreter, printed at once."""
    for thing in things or (sys.modules["host"].tools,):
        if hasattr(thing, "__signature__"):
            print(f"{thing.__name__}{thing.__signature__}\n\n{thing.__doc__}")
        elif isinstance(thing, Tools):
            print(type(thing).__doc__)
        else:
            import pydoc

            print(pydoc.render_doc(thing, renderer=pydoc.plaintext))
