"""Runs a module whose functions are tools: all of it once, to see that it can be executed, or one call of one function."""

import json
import os
import random
import sys
import types

import _sekisho_errors
from _sekisho_errors import clean
from _sekisho_module_finder import PROVIDED, SourceFinder
from _sekisho_module_methods import function_of, given_to
from _sekisho_module_reader import read
from _sekisho_module_results import plain
from _sekisho_module_values import Unacceptable, arguments_of
from _sekisho_source import compile_module
from _sekisho_tool_calls import ToolError
from _sekisho_tools import Tools, identifier_of_attribute, install

# No name that a program imports begins so.
PACKAGE = "sekisho_tools."
# The host has packages of the operator there, each in a folder of its own; also in `packages.rs`.
PACKAGES = "/usr/local/lib/tools"


# The module that was tried, and its tools. The host may keep an image of the interpreter then, from which calls go on.
_tried = None


def run(source, task):
    """Does what the host asks for, and gives the result as JSON."""
    global _tried
    ((kind, given),) = task.items()
    if kind == "read":
        return clean(json.dumps(read(source, given["file"], json.loads(given["shared"])), ensure_ascii=False))
    if kind == "try":
        before = _random_states()
        _tried = _executed(source, given)
        settings = json.loads(given["settings"])
        missing = [name for name in given["functions"] if not callable(function_of(_tried[0], name, settings))]
        # A module that seeds or uses them is executed anew for each call, and not kept.
        return json.dumps({"missing": missing, "is_repeatable": _random_states() == before})
    module, tools = _tried or _executed(source, given)
    tools.begin(given)
    return _called(function_of(module, given["function"], json.loads(given["settings"])), given)


def forget():
    """After a rehearsal: a program finds nothing of a module."""
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SourceFinder) or finder is PROVIDED]
    _sekisho_errors.program = _sekisho_errors.NAME
    install()


def tool(function=None, **_options):
    """`@tool` and `@tool(…)`: what it says was read before."""
    return function if function is not None else lambda decorated: decorated


class _NeededTools(Tools):
    """The tools that a function says it needs. The host refuses others too; here the refusal says what to write."""

    def __init__(self):
        super().__init__()
        self.__dict__["_needs"] = {}
        self.__dict__["_may_call"] = False

    def begin(self, given):
        """From now on this function runs."""
        self.__dict__["_caller"] = given["function"]
        self.__dict__["_needs"] = {name: name.replace("-", "_") for name in given["needs"]}
        self.__dict__["_may_call"] = True

    def __getattr__(self, attribute):
        if not attribute.startswith("_"):
            self._check(identifier_of_attribute(attribute), self._needs.values())
        return super().__getattr__(attribute)

    def __getitem__(self, name):
        self._check(name, self._needs)
        return super().__getitem__(name)

    def _check(self, name, needed):
        if not self._may_call:
            message = "tools can be called in functions alone, not while the file is executed: call it in a function"
            raise ToolError("denied", message)
        if name not in needed:
            advice = f'write @tool(needs=["{name}"]) above the function'
            raise ToolError("denied", f"`{self._caller}` does not say that it needs {name}: {advice}")


def _executed(source, given):
    """The module, and its tools."""
    file, tools = given["file"], _NeededTools()
    _sekisho_errors.program = file
    host = sys.modules["host"]
    host.tool, host.tools, host.settings = tool, tools, json.loads(given["settings"])
    sys.modules["host.tools"] = tools
    # After the interpreter's own, which none of them replaces.
    sys.path.extend(_packages())
    # Before what is provided for libraries: a module beside the file may have the name of one.
    sys.meta_path.insert(sys.meta_path.index(PROVIDED), SourceFinder(json.loads(given["shared"])))
    module = types.ModuleType(PACKAGE + file.removesuffix(".py"))
    module.__file__ = file
    sys.modules[module.__name__] = module
    exec(compile_module(source, file), module.__dict__)
    return module, tools


def _random_states():
    """Those of the generators that each call seeds."""
    numpy_random = sys.modules.get("numpy.random")
    state = numpy_random.get_state() if numpy_random else ()
    return [random.getstate(), *(part.tobytes() if hasattr(part, "tobytes") else part for part in state)]


def _packages():
    try:
        return [f"{PACKAGES}/{name}" for name in sorted(os.listdir(PACKAGES))]
    except OSError:
        # There are none.
        return []


def _called(function, given):
    arguments = json.loads(given["arguments"])
    if given["converts"]:
        try:
            arguments = arguments_of(function, arguments)
        except Unacceptable as error:
            return json.dumps({"invalid": {"path": error.path, "message": error.message}})
    value = function(**arguments, **given_to(function, given["function"]))
    if isinstance(value, types.CoroutineType):
        import asyncio

        with asyncio.Runner() as runner:
            value = runner.run(value)
    return json.dumps({"value": plain(value)})
