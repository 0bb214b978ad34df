"""What a session keeps between its calls, and what can be said of it without running code of its programs."""

import linecache
import sys
import time
import types

import _sekisho_errors
import _sekisho_tool_calls
from _sekisho_errors import NAME, clean

# Sources of earlier calls, which tracebacks show.
MAX_SOURCES = 100

MAX_VARIABLES = 1_000
MAX_NAME = 100
# Our own limit: the host would have to end the session.
MAX_SECONDS = 0.05

# `Py_TPFLAGS_HEAPTYPE`: a class that a program can have made or changed.
HEAP_TYPE = 1 << 9

# No method of a class, or of its class, is called by these.
_name_of = type.__dict__["__qualname__"].__get__
_order_of = type.__dict__["__mro__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_attributes_of = type.__dict__["__dict__"].__get__

# The module of the session's programs; None before the first one.
_main = None
_calls = 0


def has_begun():
    return _main is not None


def enter():
    """The module in which the next program of the session runs."""
    global _main, _calls
    if _main is None:
        _main = types.ModuleType("__main__")
    else:
        _open_stdin()
    sys.modules["__main__"] = _main
    _calls += 1
    # Functions of earlier calls have lines of their own.
    _sekisho_errors.program = f"<code {_calls}>"
    linecache.cache.pop(f"<code {_calls - MAX_SOURCES}>", None)
    return _main


def leave():
    """After a program: calls of tools end with it, and so do its figures, as in a notebook."""
    _sekisho_errors.program = NAME
    _sekisho_tool_calls.abandon()
    pyplot = sys.modules.get("matplotlib.pyplot")
    try:
        if pyplot:
            pyplot.close("all")
    except BaseException:
        # The program replaced the modules.
        pass


def variables():
    """Names, types and sizes of the session's variables. The size is that of the object itself, in bytes, without what it
    refers to."""
    end = time.monotonic() + MAX_SECONDS
    found, is_truncated = [], False
    for name, value in list(dict.items(_main.__dict__)) if _main else ():
        if type(name) is not str or name.startswith("__"):
            continue
        if len(found) == MAX_VARIABLES or time.monotonic() > end:
            is_truncated = True
            break
        kind = clean(_name_of(type(value))[:MAX_NAME])
        found.append({"name": clean(name[:MAX_NAME]), "type": kind, "size_bytes": _size(value)})
    return {"variables": found, "truncated": is_truncated}


def _size(value):
    """By the nearest class of the interpreter itself."""
    for kind in _order_of(type(value)):
        measure = None if _flags_of(kind) & HEAP_TYPE else _attributes_of(kind).get("__sizeof__")
        if measure is not None:
            try:
                return int(measure(value))
            except Exception:
                return None
    return None


def _open_stdin():
    """The input of this call; of that of an earlier one something may be buffered."""
    try:
        old = sys.__stdin__
        sys.stdin = open(0, encoding=old.encoding, errors=old.errors, closefd=False)
    except (AttributeError, OSError):
        # The program closed it.
        pass
