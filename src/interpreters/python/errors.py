"""Describes how a program failed: the traceback of its own lines, and a note where the text of an exception does not say
what is different in this interpreter."""

import linecache
import os
import re
import sys
import traceback

NAME = "<code>"
# The name of the program that runs: in a session, `<code 1>` and so on; of a module with tools, its file.
program = NAME
# How the names of our own modules begin, and those of the preludes of interpreters.
HARNESS = ("_sekisho_", "<turn ")
MAX_FRAMES = 40
MAX_TRACEBACK = 32 << 10
MAX_MESSAGE = 4 << 10
MAX_TYPE_NAME = 200
MAX_NAMES = 20

# CPython's own advice about a package.
ADVICE = re.compile(r"\. Site initialization is disabled, did you forget to add the site-packages directory to sys\.path.*")
# A builtin of a similar name.
OTHER_THAN_TOOLS = re.compile(r"(name 'tools' is not defined)\. Did you mean: '\w+'\?")
SURROGATES = re.compile("[\ud800-\udfff]")

NO_NETWORK = "there is no network in this interpreter; send data as `files` of the call, or get a page with the tool web_fetch"
NO_PROCESSES = "no other programs can be started here, and so nothing can be installed with pip"
NO_THREADS = (
    "there are no threads here; concurrent.futures.ThreadPoolExecutor and asyncio.to_thread work, one task after the other"
)
NO_CODEC = "JPEG and WebP can be neither read nor written here; use PNG"
READ_ONLY = "write to the working directory, /output"
IMPORT_TOOLS = "tools are called as tools.NAME(...), after `from host import tools`"
NO_LARGE_LENGTHS = (
    "lengths and indices have 32 bits here, at most 2147483647; random.randrange and `in` take larger ranges, numbers any size"
)
NOT_AWAITED = "in code that awaits, a call of a tool is awaited too: `await tools.NAME(...)`"

NETWORK_MODULES = ("_ssl", "ssl", "_socket")
NETWORK_ERRORS = ("urllib.error", "urllib3.exceptions", "requests.exceptions", "http.client")


def describe(error):
    """The exception with only the frames of the program, none of the harness."""
    described = {"kind": "exception", "type": "Exception", "message": "", "traceback": ""}
    try:
        described["type"] = clean(type.__getattribute__(type(error), "__qualname__"))[:MAX_TYPE_NAME]
        own = error.__traceback__
        while own and not is_program(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        summary = traceback.TracebackException(type(error), error, own, limit=-MAX_FRAMES, compact=True)
        _hide_harness(summary)
        described.update(_place(error, summary))
        formatted = OTHER_THAN_TOOLS.sub(r"\1", ADVICE.sub("", "".join(summary.format())))
        described["traceback"] = clean(_bounded(formatted))
        message = (error.msg if isinstance(error, SyntaxError) else str(error))[:MAX_MESSAGE]
        note = _note_or_none(error, message)
        described["message"] = clean(f"{message} ({note})" if note else message)
        described["traceback"] += f"note: {note}\n" if note else ""
    except BaseException as failure:
        # A class whose description raises.
        described["traceback"] = described["traceback"] or f"{described['type']}: <no text>\n"
        described["message"] = f"<no text: {type.__getattribute__(type(failure), '__qualname__')[:MAX_TYPE_NAME]}>"
    return described


def is_program(filename):
    """Whether it names the program, or one of an earlier call of its session."""
    return filename in (NAME, program) or filename.startswith("<code ")


def _hide_harness(summary):
    """Leaves out our own frames below the program: those of a call of a tool."""
    # As many as Python shows of causes.
    for _ in range(MAX_FRAMES):
        summary.stack[:] = [frame for frame in summary.stack if not frame.filename.startswith(HARNESS)]
        summary = summary.__cause__ or summary.__context__
        if summary is None:
            return


def clean(text):
    """A text that can be encoded: each lone surrogate becomes U+FFFD."""
    return text if text.isascii() else SURROGATES.sub("\ufffd", text)


def _place(error, summary):
    """Line and column in the program, from one; columns count characters."""
    if isinstance(error, SyntaxError) and error.filename == program:
        return {"line": error.lineno, "column": error.offset or None}
    for frame in reversed(summary.stack):
        if frame.filename == program:
            line = linecache.getline(program, frame.lineno).encode(errors="replace")
            is_known = line and frame.colno is not None
            column = len(line[: frame.colno].decode(errors="replace")) + 1 if is_known else None
            return {"line": frame.lineno, "column": column}
    return {}


def _bounded(text):
    half = MAX_TRACEBACK // 2
    return text if len(text) <= MAX_TRACEBACK else f"{text[:half]}\n… (shortened)\n{text[-half:]}"


def _note_or_none(error, message):
    try:
        return _note(error, message)
    except Exception:
        # The program changed what the notes are made of, or a file is missing.
        return None


def _note(error, message):
    """What a program's author cannot know from the exception."""
    if isinstance(error, ModuleNotFoundError):
        return IMPORT_TOOLS if error.name == "tools" else _note_of_module(error.name or "")
    if isinstance(error, NameError):
        return _note_of_name(error.name or "")
    if type(error).__module__ in NETWORK_ERRORS or "module '_socket' has no attribute" in message:
        return NO_NETWORK
    if isinstance(error, RuntimeError) and "can't start new thread" in message:
        return NO_THREADS
    if "does not support processes" in message or re.search("module 'os' has no attribute '(system|popen|fork|pipe)'", message):
        return NO_PROCESSES
    if re.search(r"(en|de)coder (jpeg|webp)|unknown file extension: \.(jpe?g|webp)", message, re.IGNORECASE):
        return NO_CODEC
    if isinstance(error, OSError) and "Read-only file system" in message:
        return READ_ONLY
    if isinstance(error, OverflowError) and message.endswith("to C ssize_t"):
        return NO_LARGE_LENGTHS
    if isinstance(error, FileNotFoundError):
        return _note_of_file()
    if isinstance(error, (TypeError, AttributeError)) and "'coroutine' object" in message:
        return NOT_AWAITED
    return None


def _note_of_module(name):
    top = name.partition(".")[0]
    if top in NETWORK_MODULES:
        return NO_NETWORK
    if top in sys.stdlib_module_names or top in sys.modules:
        return None
    found = ", ".join(packages())
    return "nothing can be installed here" + (f"; these packages are there: {found}" if found else "")


def _note_of_name(name):
    """A tool that is called by its bare name."""
    if name in ("tools", "call_tool"):
        return IMPORT_TOOLS
    tools = sys.modules.get("_sekisho_tools")
    called = tools and tools.call_of(name)
    return f"{name!r} is a tool: call it as {called}(...), after `from host import tools`" if called else None


def _note_of_file():
    try:
        names = sorted(os.listdir("."))[:MAX_NAMES]
    except OSError:
        return None
    return f"the working directory has: {', '.join(names)}" if names else None


def packages():
    """Names of the modules that can be imported besides the standard library's."""
    found = set()
    for place in sys.path:
        if place.endswith(".zip") and os.path.isfile(place):
            import zipfile

            entries = zipfile.ZipFile(place).namelist()
        elif "/lib/" in place and os.path.isdir(place):
            entries = [name + "/" for name in os.listdir(place)]
        else:
            continue
        tops = {entry.partition("/")[0] for entry in entries if "/" in entry}
        found |= {top for top in tops if top.isidentifier() and not top.startswith("_")}
    # `host` is the way to call tools, and no package.
    return sorted(found - sys.stdlib_module_names - {"host"})
