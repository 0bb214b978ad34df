"""Runs one program inside the interpreter and tells the host how it went.

Everything goes through the door (`_host.call`), nothing through stdout: a program that prints what looks like a
result changes nothing. Frames are JSON objects of ours: `job` asks for the program, `image` hands over a picture,
`done` says how it ended. The host believes them no more than anything else from in here.
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

# Each with the module that it needs beside the built-in ones. A line is specialised when it ran some eight times.
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
    """Fetches the program, runs it, and answers. `encode(value, max_bytes)` makes the result."""
    # Before the program is asked for: an interpreter that waits has done all this.
    sys.displayhook = sys.__displayhook__
    reseed()
    job = _ask({"op": "job"})
    end, value = _execute(job["code"])
    # First, because matplotlib leaves a function for the end that closes them.
    _hand_over_figures()
    end = _run_exit_functions() or end
    unwritten = _flush()
    if unwritten and end == {"kind": "exited", "code": 0}:
        end = unwritten
    result = None if value is None else json.dumps(encode(value, job["result_bytes"]))
    _ask({"op": "done", "end": end, "result": result})


def wait_for_turn(encode):
    """The next value that the interpreter shows runs the program instead."""

    def show(value):
        if value is not None:
            run(encode)

    sys.displayhook = show


def rehearse(encode):
    """Runs small programs with nobody at the door, before a snapshot: what Python makes at a first use and where it
    specialises its code is in the snapshot then, and no call pays for it."""
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
    """Clones of one snapshot would otherwise draw the same numbers."""
    random.seed(os.urandom(32))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random:
        seed = os.urandom(32)
        numpy_random.seed([int.from_bytes(seed[at : at + 4], "little") for at in range(0, 32, 4)])


def _ask(message):
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
    """As the interpreter's own: nothing is 0, a text goes to stderr and is 1, a number's low byte counts."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:
        # What the program put in place of stderr, or the text itself, is broken: the code says enough.
        pass
    return 1


def _describe(error):
    """The exception as the caller should read it: their own lines, and nothing of ours."""
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
        # Of a class that breaks when it is asked to describe itself.
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
    """What the program left for its end, with the same limits as the rest. None when that went well."""
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
    """Why what was printed could not be written, or None."""
    failure = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            failure = failure or _describe(error)
        except Exception:
            # The program closed it, or put something else in its place.
            pass
    return failure


def _hand_over_figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums()[:MAX_FIGURES] if pyplot else ():
        try:
            picture = io.BytesIO()
            pyplot.figure(number).savefig(picture, format="png")
        except Exception as error:
            print(f"figure {number} could not be drawn: {type(error).__qualname__}", file=sys.stderr, flush=True)
        else:
            _ask({"op": "image", "png": base64.b64encode(picture.getvalue()).decode()})
