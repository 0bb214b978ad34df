"""Runs one program inside the interpreter and reports the result to the host.

All communication uses host calls (`_host.call`), none uses stdout: a program that prints text like a result
changes nothing. Frames are JSON objects: `job` fetches the program, `image` sends a picture, `done` reports how
it ended. The host trusts them no more than other output of the guest.
"""

import ast
import base64
import io
import json
import linecache
import os
import random
import sys
import traceback
import types

import _host

NAME = "<code>"
MAX_FRAMES = 40
MAX_TRACEBACK = 32 << 10
MAX_MESSAGE = 4 << 10
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


def run(encode):
    """Fetches the program, runs it, and reports. `encode(value, max_bytes)` encodes the result."""
    # Before the program is fetched, so that a waiting interpreter has done this already.
    sys.displayhook = sys.__displayhook__
    reseed()
    job = _call_host({"op": "job"})
    end, value = _execute(job["code"])
    # First, because matplotlib registers an exit function that closes them.
    _send_figures()
    end = _run_exit_functions() or end
    unwritten = _flush()
    if unwritten and end == {"kind": "exited", "code": 0}:
        end = unwritten
    result = None if value is None else json.dumps(encode(value, job["result_bytes"]))
    _call_host({"op": "done", "end": end, "result": result})


def wait_for_turn(encode):
    """The next value that the interpreter displays starts the program instead."""

    def show(value):
        if value is not None:
            run(encode)

    sys.displayhook = show


def rehearse(encode):
    """Runs small programs with simulated host calls, before a snapshot: what Python initialises on first use and the
    code it specialises is then in the snapshot, and no call pays for it."""
    global _host
    host, _host = _host, types.SimpleNamespace()
    main, exit_functions = sys.modules["__main__"], sys.modules.pop("atexit", None)
    show = sys.displayhook
    try:
        for _ in range(REHEARSALS):
            for module, code in REHEARSED:
                if module is None or module in sys.modules:
                    job = json.dumps({"value": {"code": code, "result_bytes": 1 << 20}}).encode()
                    _host.call = lambda frame: job
                    run(encode)
    finally:
        _host = host
        sys.modules["__main__"] = main
        sys.displayhook = show
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
    answer = json.loads(_host.call(json.dumps({"v": 1, "id": 0, **message}).encode()))
    return answer.get("value")


def _execute(code):
    """How the program ended, and the value of its last expression."""
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        statements, expression = _compile(code)
        exec(statements, main.__dict__)
        value = eval(expression, main.__dict__) if expression else None
        return {"kind": "exited", "code": 0}, value
    except SystemExit as stop:
        return {"kind": "exited", "code": _exit_code(stop.code)}, None
    except BaseException as error:
        return _describe(error), None


def _compile(code):
    tree = ast.parse(code, NAME)
    expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = compile(ast.Expression(tree.body.pop().value), NAME, "eval", dont_inherit=True)
    return compile(tree, NAME, "exec", dont_inherit=True), expression


def _exit_code(code):
    """As in CPython: None is 0, a text is printed to stderr and is 1, of a number only the low byte is used."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:
        # The program replaced stderr, or the text cannot be printed: the exit code is sufficient.
        pass
    return 1


def _describe(error):
    """The exception with only the frames of the program, none of the harness."""
    described = {"kind": "exception", "type": type(error).__qualname__, "message": "", "traceback": ""}
    try:
        own = error.__traceback__
        while own and own.tb_frame.f_code.co_filename != NAME:
            own = own.tb_next
        summary = traceback.TracebackException(type(error), error, own, limit=-MAX_FRAMES, compact=True)
        described.update(_place(error, summary))
        described["traceback"] = _bounded("".join(summary.format()))
        described["message"] = (error.msg if isinstance(error, SyntaxError) else str(error))[:MAX_MESSAGE]
    except Exception as failure:
        # A class whose description raises.
        described["traceback"] = described["traceback"] or f"{described['type']}: <no text>\n"
        described["message"] = f"<no text: {type(failure).__qualname__}>"
    return described


def _place(error, summary):
    """Line and column in the program, from one; columns count characters."""
    if isinstance(error, SyntaxError) and error.filename == NAME:
        return {"line": error.lineno, "column": error.offset or None}
    for frame in reversed(summary.stack):
        if frame.filename == NAME:
            line = linecache.getline(NAME, frame.lineno).encode()
            column = None if frame.colno is None else len(line[: frame.colno].decode(errors="replace")) + 1
            return {"line": frame.lineno, "column": column}
    return {}


def _bounded(text):
    half = MAX_TRACEBACK // 2
    return text if len(text) <= MAX_TRACEBACK else f"{text[:half]}\n… (shortened)\n{text[-half:]}"


def _run_exit_functions():
    """Runs the program's exit functions, with the same limits. None when they succeed."""
    atexit = sys.modules.get("atexit")
    try:
        if atexit:
            atexit._run_exitfuncs()
    except SystemExit as stop:
        return {"kind": "exited", "code": _exit_code(stop.code)}
    except BaseException as error:
        return _describe(error)
    return None


def _flush():
    """Why the printed output could not be written, or None."""
    failure = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            failure = failure or _describe(error)
        except Exception:
            # The program closed or replaced it.
            pass
    return failure


def _send_figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums()[:MAX_FIGURES] if pyplot else ():
        try:
            picture = io.BytesIO()
            pyplot.figure(number).savefig(picture, format="png")
        except Exception as error:
            print(f"figure {number} could not be drawn: {type(error).__qualname__}", file=sys.stderr, flush=True)
        else:
            _call_host({"op": "image", "png": base64.b64encode(picture.getvalue()).decode()})
