"""Calls of tools through the host: one at a time, or several in parallel.

The host sends each through the same checks as any call of the program's caller. What it refuses, and what a tool reports
as its failure, is a `ToolError`.
"""

import collections
import json
import math
import os
import sys

import _host
from _sekisho_effect_values import given

# Calls in parallel; the host refuses more. Others begin when one has ended.
MAX_PARALLEL = 32


class ToolError(Exception):
    """A call that was refused, or that failed.

    `code` is one of the gateway's error codes, `message` says what to do, and `retry_after` is after how many seconds the
    same call may succeed, or None.
    """

    def __init__(self, code, message, retry_after=None, details=(), alternatives=(), approval=None):
        super().__init__("\n".join([f"{code}: {message}", *(f"- {detail['path']}: {detail['message']}" for detail in details)]))
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.details = list(details)
        self.alternatives = list(alternatives)
        # Of `approval_required`: the id, and the page where somebody decides.
        self.approval = approval


class UnknownToolError(ToolError, AttributeError):
    """There is no such tool for this caller."""


class ToolCall:
    """A call that has been started. `result()` waits for its result; it can be awaited, too."""

    def __init__(self, tool, arguments):
        self.tool = tool
        self._arguments = arguments
        self._outcome = None
        self._futures = []
        _calls.begin(self)

    def result(self):
        """The tool's result.

        Raises `ToolError`."""
        while self._outcome is None:
            _calls.wait(None)
        if self._outcome["ok"]:
            return given(self._outcome["value"])
        raise _error_of(self._outcome["error"]) from None

    def done(self):
        """Whether it has ended."""
        return self._outcome is not None

    def __await__(self):
        if self._outcome is None:
            future = sys.modules["asyncio"].get_running_loop().create_future()
            self._futures.append(future)
            yield from future
        return self.result()

    def __repr__(self):
        return f"<call of {self.tool}, {'ended' if self.done() else 'under way'}>"

    def _end(self, outcome):
        self._outcome = outcome
        for future in self._futures:
            # Nobody waits in a loop that is closed.
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)


class _Calls:
    """Those that have not ended."""

    def __init__(self):
        # By the host's id.
        self.under_way = {}
        self.waiting = collections.deque()

    def begin(self, call):
        if self.waiting or not self._start(call):
            # What is no JSON is refused now, and not in the wait for another call.
            _encoded(call._arguments)
            self.waiting.append(call)

    def _start(self, call):
        """False: it begins when another has ended, since the host refuses it beside those under way."""
        if len(self.under_way) >= MAX_PARALLEL:
            return False
        try:
            number = ask("start", tool=call.tool, args=call._arguments)
        except ToolError as error:
            if self.under_way:
                return False
            call._end({"ok": False, "error": error})
        else:
            self.under_way[number] = call
        return True

    def wait(self, seconds):
        """Waits until a call has ended, at most for some seconds."""
        limit = {} if seconds is None else {"timeout_ms": math.ceil(seconds * 1000)}
        ended = ask("wait", ids=list(self.under_way), **limit)
        if ended is None:
            return
        self.under_way.pop(ended["id"])._end(ended)
        while self.waiting and self._start(self.waiting[0]):
            self.waiting.popleft()


_calls = _Calls()


def are_under_way():
    """Whether a call has not ended."""
    return bool(_calls.under_way)


def wait(seconds):
    """For the event loop: waits until a call has ended, at most for some seconds."""
    _calls.wait(seconds)


def abandon():
    """Ends all calls that have not ended: the host has dropped them, and counts anew."""
    error = ToolError("cancelled", "the call of the session that started it has ended; start it again, and wait for it")
    abandoned = [*_calls.under_way.values(), *_calls.waiting]
    _calls.under_way.clear()
    _calls.waiting.clear()
    for call in abandoned:
        call._end({"ok": False, "error": error})


def call(tool, arguments):
    """Calls a tool and waits for its result."""
    return given(ask("call", tool=tool, args=arguments))


async def call_in_coroutine(tool, arguments):
    """The same, while other tasks run."""
    return await ToolCall(tool, arguments)


def ask(operation, **fields):
    """Sends a request to the host, and gives the value of the answer.

    Raises `ToolError`."""
    frame = {"v": 1, "id": 0, "op": operation, **fields}
    answer = json.loads(_host.call(_encoded(frame)))
    if answer["ok"]:
        return answer["value"]
    raise _error_of(answer["error"]) from None


def _encoded(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode()


def _error_of(error):
    if isinstance(error, ToolError):
        return error
    kind, message = error["kind"], error["message"]
    try:
        known = json.loads(message)
        code = known["code"]
    except (ValueError, TypeError, KeyError):
        # Of the interpreter's own host: a text.
        return (UnknownToolError if kind == "unknown_tool" else ToolError)(kind, message)
    wait_ms = known.get("retry_after_ms")
    return (UnknownToolError if code == "unknown_tool" else ToolError)(
        code,
        known["message"],
        None if wait_ms is None else wait_ms / 1000,
        known.get("details", ()),
        known.get("alternatives", ()),
        known.get("approval"),
    )


def _plain(value):
    """What JSON has for a value of another type."""
    # Arrays and numbers of numpy, and columns of pandas.
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    decimal, uuid = sys.modules.get("decimal"), sys.modules.get("uuid")
    if decimal and isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if uuid and isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"a tool cannot get a value of type {type(value).__qualname__}: its arguments are JSON")
