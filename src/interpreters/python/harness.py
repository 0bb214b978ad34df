"""Runs one program inside the interpreter and reports the result to the host.

All communication uses host calls (`_host.call`), none uses stdout: a program that prints text like a result
changes nothing. Frames are JSON objects: `job` fetches the program, `image` sends a picture, `done` reports how
it ended. The host trusts them no more than other output of the guest.
"""

import base64
import builtins
import gc
import io
import json
import linecache
import os
import random
import sys
import types

import _host
import _sekisho_errors
from _sekisho_errors import clean, describe
from _sekisho_source import compile_program, run_compiled

# The folder of the program's files, which has those of the call.
WORKING_FOLDER = "/output"
MAX_FIGURES = 16

# Each with the module that it needs. Python specialises a line of code after some eight runs.
REHEARSALS = 12
REHEARSED = [
    (None, "pass"),
    (None, "print(end='')\n[1, 2.5, 'a', {'b': None}]"),
    (None, "def f(x):\n    return 1 / x\nf(0)"),
    (None, "raise SystemExit(0)"),
    ("numpy", "import numpy as np\nnp.arange(6).reshape(2, 3)"),
    (
        "pandas",
        "import pandas as pd\n"
        "frame = pd.DataFrame({'a': [1.5, None], 'b': ['x', 'y']})\n"
        "str(frame.describe()), str(frame.groupby('b').sum())\n"
        "frame",
    ),
]

REHEARSED_MODULE = {
    "code": "from host import tool, tools\n@tool(needs=['x'])\ndef f(x: int = 1) -> dict:\n    return {'x': [x]}",
    "module": {
        "call": {
            "file": "f.py",
            "function": "f",
            "arguments": '{"x": 2}',
            "settings": "{}",
            "shared": "{}",
            "needs": ["x"],
            "converts": False,
        }
    },
}

# None in a command, which ends with its program and has no tools.
_session = sys.modules.get("_sekisho_session")
_module = sys.modules.get("_sekisho_module_run")

NO_PLOTLY = (
    "figures of plotly cannot be shown here: fig.write_html('chart.html', include_plotlyjs='cdn') gives a file, and figures of "
    "matplotlib are returned"
)

# The outer ones first, which write into the inner ones.
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def start():
    """What holds for every program of this interpreter."""
    try:
        os.chdir(WORKING_FOLDER)
    except OSError:
        # Tests run the harness on a machine without that folder.
        pass
    if WORKING_FOLDER not in sys.path:
        sys.path.append(WORKING_FOLDER)
    # A program that is stopped has then shown what it printed.
    sys.stdout.reconfigure(line_buffering=True)
    builtins.display = _display


def run(encode):
    """Fetches the program, runs it, and reports. `encode(value, max_bytes)` encodes the result."""
    # Before the program is fetched, so that a waiting interpreter has done this already.
    sys.displayhook = sys.__displayhook__
    # Random numbers go on from call to call of a session, as in a notebook.
    if _session is None or not _session.has_begun():
        reseed()
    job = _call_host({"op": "job"})["value"]
    # A copy of a session would otherwise have the numbers of the other.
    if job.get("reseed"):
        reseed()
    if job.get("module"):
        _run_module(job)
    elif job.get("session") == "inspect":
        result = json.dumps(_session.variables())
        _call_host({"op": "done", "end": {"kind": "exited", "code": 0}, "result": result})
    elif job.get("session"):
        _run_in_session(job, encode)
    else:
        _run_once(job, encode)


def _run_once(job, encode):
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    end, value = _execute(job["code"], main)
    # First, because matplotlib registers an exit function that closes them.
    _send_figures(job["code"])
    end = _run_exit_functions() or end
    result = None if value is None else encode(value, job["result_bytes"])
    value = None
    _close_files(main)
    _report(end, result)


def _run_module(job):
    """A module whose functions are tools, in place of a program: its files and figures are of no use."""
    end, result = _attempt(lambda: _module.run(job["code"], job["module"]))
    if "try" in job["module"]:
        # Its exit functions are for the calls that go on from here, and its objects live as long as their interpreters.
        gc.collect()
        gc.freeze()
    else:
        end = _run_exit_functions() or end
    _report(end, result)


def _run_in_session(job, encode):
    """The program shares its variables with those before it: nothing is closed, and no exit function runs."""
    end, value = _execute(job["code"], _session.enter())
    try:
        _send_figures(job["code"])
        result = None if value is None else encode(value, job["result_bytes"])
        value = None
        _flush_files()
    finally:
        _session.leave()
    _report(end, result)


def _report(end, result):
    unwritten = _flush()
    if unwritten and end == {"kind": "exited", "code": 0}:
        end = unwritten
    _call_host({"op": "done", "end": end, "result": result})


def wait_for_turn(encode):
    """The next value that the interpreter displays starts the program instead."""

    def show(value):
        if value is not None:
            try:
                run(encode)
            finally:
                # A session has further turns.
                sys.displayhook = show

    sys.displayhook = show


def rehearse(encode):
    """Runs small programs with simulated host calls, before a snapshot: what Python initialises on first use and the
    code it specialises is then in the snapshot, and no call pays for it."""
    global _host
    host, _host = _host, types.SimpleNamespace()
    main, exit_functions = sys.modules["__main__"], sys.modules.pop("atexit", None)
    show = sys.displayhook
    try:
        programs = [{"code": code} for module, code in REHEARSED if module is None or module in sys.modules]
        for _ in range(REHEARSALS):
            for program in [*programs, REHEARSED_MODULE] if _module else programs:
                job = json.dumps({"value": {"result_bytes": 1 << 20, **program}}).encode()
                _host.call = lambda frame: job
                run(encode)
        if _module:
            _module.forget()
    finally:
        _host = host
        sys.modules["__main__"] = main
        sys.displayhook = show
        # What is imported holds no file of a program: a run need not look at it.
        gc.freeze()
        if exit_functions:
            sys.modules["atexit"] = exit_functions


def reseed():
    """Clones of one snapshot would otherwise generate the same random numbers."""
    random.seed(os.urandom(32))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random:
        seed = os.urandom(32)
        numpy_random.seed([int.from_bytes(seed[at : at + 4], "little") for at in range(0, 32, 4)])


def _call_host(message):
    return json.loads(_host.call(json.dumps({"v": 1, "id": 0, **message}).encode()))


def _execute(code, main):
    """How the program ended, and the value of its last expression."""
    name = _sekisho_errors.program
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    return _attempt(lambda: run_compiled(compile_program(code, name, _warn), main.__dict__))


def _attempt(work):
    """How some work ended, and its value."""
    try:
        return {"kind": "exited", "code": 0}, work()
    except SystemExit as stop:
        return {"kind": "exited", "code": _exit_code(stop.code)}, None
    except BaseException as error:
        return describe(error), None


def _exit_code(code):
    """As in CPython: None is 0, a text is printed to stderr and is 1, of a number only the low byte is used."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _warn(code)
    return 1


def _run_exit_functions():
    """Runs the program's exit functions, with the same limits. None when they succeed."""
    atexit = sys.modules.get("atexit")
    try:
        if atexit:
            atexit._run_exitfuncs()
    except SystemExit as stop:
        return {"kind": "exited", "code": _exit_code(stop.code)}
    except BaseException as error:
        return describe(error)
    return None


def _close_files(main):
    """Writes what the program left in open files, as the interpreter does when it exits: buffers, and what objects with a
    finalizer write when they are freed, such as the directory of a `zipfile.ZipFile`."""
    _flush_files()
    namespace = main.__dict__
    # No others: freeing a deep structure, such as a list of a hundred thousand linked nodes, exhausts the stack.
    for name in [name for name, value in namespace.items() if hasattr(type(value), "__del__")]:
        namespace[name] = None
    _flush_files()


def _flush_files():
    try:
        left = [found for found in gc.get_objects() if type(found) in _BUFFERED]
    except MemoryError:
        return
    for kind in _BUFFERED:
        for found in left:
            if type(found) is kind:
                try:
                    found.flush()
                except (OSError, ValueError):
                    # Closed, read-only, or no space is left.
                    pass


def _flush():
    """Why the printed output could not be written, or None."""
    failure = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            failure = failure or describe(error)
        except Exception:
            # The program closed or replaced it.
            pass
    return failure


def _send_figures(code):
    if "plotly.io" in sys.modules and ".show(" in code:
        _warn(NO_PLOTLY)
    pyplot = sys.modules.get("matplotlib.pyplot")
    try:
        numbers = pyplot.get_fignums() if pyplot else []
    except BaseException:
        # The program replaced the modules.
        return
    for number in numbers[:MAX_FIGURES]:
        try:
            picture = io.BytesIO()
            pyplot.figure(number).savefig(picture, format="png")
            png = base64.b64encode(picture.getvalue()).decode()
        except Exception as error:
            _warn(f"figure {number} could not be drawn: {type(error).__qualname__}")
            continue
        answer = _call_host({"op": "image", "png": png})
        if not answer.get("ok"):
            _warn(f"figure {number} was left out: {answer['error']['message']}")
    if len(numbers) > MAX_FIGURES:
        _warn(f"{len(numbers) - MAX_FIGURES} figures were left out: a run returns {MAX_FIGURES}; write them to files")


def _display(*values, **_options):
    """`display` of notebooks: prints the values. Figures are returned anyhow."""
    for value in values:
        if not type(value).__module__.startswith("matplotlib."):
            print(repr(value))


def _warn(text):
    try:
        print(text if not isinstance(text, str) else clean(text), file=sys.stderr, flush=True)
    except Exception:
        # The program replaced stderr, or the text cannot be printed.
        pass
