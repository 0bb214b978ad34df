"""Values that packages give to the code of a run: to its program, to files that it imports, to modules with tools, and to
`exec`. Where an interpreter's prelude has conversions by type (`sys._sekisho_conversions`), such values are converted.

The syntax trees of such code are changed for this: the results of calls, and attributes, pass `_sekisho_converted`.
"""

import ast
import builtins
import re
import sys
import types
from importlib import machinery

# Where the standard library and the packages are.
LIBRARIES = "/usr/local/lib/"
# Values inside of values: a table in a tuple in a list.
MAX_DEPTH = 3
# A dictionary or tuple with more is judged by its first value, as a list always is.
MAX_EXAMINED = 64

# Fields of nodes that are no values when a program runs.
UNUSED = frozenset(["annotation", "returns", "pattern", "ctx", "op", "ops"])
# Expressions whose value may be of a package.
VALUES = frozenset([ast.Attribute, ast.Call])
# In code without them nothing is of a package.
IMPORTS = re.compile(r"\b(?:exec|eval|compile)\b|\b(?:from|import)\s+(\w+)")
# What gives no value of a package, and so need not be examined; namespaces must stay what they are.
PLAIN = frozenset(
    "bool bytes callable chr complex delattr enumerate float format globals hasattr hash hex id input int isinstance issubclass"
    " len locals open ord print range repr setattr str super type vars".split()
)

# By type, functions of values, for values of subclasses too. Empty until the packages are imported; None in an interpreter
# whose values need no conversion.
conversions = getattr(sys, "_sekisho_conversions", None)


def converted(value, depth=MAX_DEPTH):
    """What code of a run gets for a value."""
    convert = _by_type.get(type(value), _of_new_type)
    return value if convert is None else convert(value, depth)


def rewrite(tree, text):
    """Changes the syntax tree of code of a run, in place."""
    if conversions is None or not conversions and not _imports_packages(text):
        return
    code = _Code(tree)
    last = tree.body[-1] if isinstance(tree, ast.Module) and tree.body else None
    compiling = []
    for node, field, at, child in code.values:
        if type(child) is ast.Call and type(child.func) is ast.Name and child.func.id not in code.own:
            compiling.append(child)
        is_unused = type(node) is ast.Expr and node is not last
        if not is_unused and _may_be_of_package(node, field, child, code):
            child = _call("_sekisho_converted", [child], child)
            if at is None:
                setattr(node, field, child)
            else:
                getattr(node, field)[at] = child
    # After the values in their arguments, whose positions these change.
    for call in compiling:
        _compile_alike(call)


def _imports_packages(text):
    """Whether code has words that may import packages, or compile such code."""
    text = text if isinstance(text, str) else text.decode(errors="replace")
    return any(name not in sys.stdlib_module_names and name != "host" for name in IMPORTS.findall(text))


class _Code:
    """What there is in a syntax tree. Deep trees are no recursion here."""

    def __init__(self, tree):
        # Calls and attributes, each as its parent, and the field and position there.
        self.values = []
        # Names that the code gives to something, and those of them that are its own functions: their values passed here.
        self.own, self.functions, others = set(), set(), set()
        left = [(tree, False)]
        while left:
            node, is_changed = left.pop()
            kind = type(node)
            if kind is ast.Name:
                if type(node.ctx) is not ast.Load:
                    others.add(node.id)
                continue
            self._name(node, kind, others)
            # `a.b[0] = 1` changes what `a.b` is, and must not change a copy of it.
            is_place = kind is ast.Subscript or kind is ast.Attribute
            changes = is_place and type(node.ctx) is not ast.Load or is_changed and kind is ast.Subscript
            for field in node._fields:
                value = getattr(node, field, None)
                if value is None or field in UNUSED:
                    continue
                is_list = type(value) is list
                for at, child in enumerate(value) if is_list else ((None, value),):
                    if isinstance(child, ast.AST):
                        is_base = changes and field == "value"
                        left.append((child, is_base))
                        if not is_base and type(child) in VALUES:
                            self.values.append((node, field, at, child))
        self.functions -= others
        self.own = self.functions | others

    def _name(self, node, kind, others):
        if kind is ast.FunctionDef and not node.decorator_list:
            self.functions.add(node.name)
        elif kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            others.add(node.name)
        elif kind is ast.ClassDef:
            others.add(node.name)
            others.update(part.name for part in node.body if isinstance(part, ast.FunctionDef))
        elif kind is ast.arg:
            others.add(node.arg)
        elif kind is ast.alias:
            others.add((node.asname or node.name).partition(".")[0])

    def is_plain(self, name):
        return name in self.functions or name in PLAIN and name not in self.own


def _may_be_of_package(node, field, child, code):
    if isinstance(node, ast.Await):
        return False
    if isinstance(child, ast.Call):
        function = child.func
        if isinstance(function, ast.Name):
            return not code.is_plain(function.id)
        return not isinstance(getattr(function, "value", None), (ast.Constant, ast.JoinedStr))
    is_read = isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load)
    is_inner = isinstance(node, ast.Attribute) or isinstance(node, ast.Call) and field == "func"
    return is_read and not is_inner and not (isinstance(child.value, ast.Name) and child.value.id == "self")


def _compile_alike(call):
    """What `exec`, `eval` and `compile` make of a text is code of a run, too."""
    name = call.func.id
    # Names that are given by keyword are not seen here, and may be without our builtins.
    has_names = any(word.arg in ("globals", None) for word in call.keywords)
    if name in ("exec", "eval") and call.args and not has_names:
        arguments = _call("_sekisho_sources", [ast.copy_location(ast.Constant(name), call), *call.args], call)
        call.args = [ast.copy_location(ast.Starred(arguments, ast.Load()), call)]
    elif name == "compile":
        call.func.id = "_sekisho_compile"


def _call(name, arguments, place):
    function = ast.copy_location(ast.Name(name, ast.Load()), place)
    return ast.copy_location(ast.Call(function, arguments, []), place)


def _sources(name, text, *more):
    """The arguments of `exec` or `eval`, with code in place of a text."""
    names = more[0].get("__builtins__", builtins) if more and isinstance(more[0], dict) else builtins
    is_usual = names is builtins or names is vars(builtins)
    if isinstance(text, types.CodeType) and not is_usual and isinstance(names, dict):
        # It was compiled with our names, which the program leaves out with the other builtins.
        more[0]["__builtins__"] = {**OURS, **names}
    # A program that evaluates a text without its builtins leaves ours out as well.
    if isinstance(text, (str, bytes)) and is_usual:
        try:
            text = _compile(text.lstrip() if name == "eval" else text, "<string>", name)
        except (SyntaxError, ValueError):
            # Reported by the function itself.
            pass
    return text, *more


def _compile(source, filename, mode, flags=0, dont_inherit=False, optimize=-1, **named):
    if isinstance(source, (str, bytes)) and not flags & ast.PyCF_ONLY_AST and mode in ("exec", "eval", "single"):
        text, source = source, compile(source, filename, mode, flags | ast.PyCF_ONLY_AST, True)
        rewrite(source, text)
    return compile(source, filename, mode, flags, True, optimize, **named)


def _of_new_type(value, depth):
    kind = type(value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        convert = _named_tuple
    else:
        convert = next((_of_conversion(conversions[base]) for base in kind.__mro__ if base in conversions), None)
    if conversions:
        _by_type[kind] = convert
    return value if convert is None else convert(value, depth)


def _of_conversion(convert):
    return convert and (lambda value, depth: convert(value))


def _tuple(value, depth):
    parts = _parts_of_many(value, depth)
    return value if parts is None else tuple(parts)


def _named_tuple(value, depth):
    parts = _parts_of_many(value, depth)
    try:
        return value if parts is None else type(value)(*parts)
    except TypeError:
        # It has more than its parts.
        return value


def _list(value, depth):
    if not value or _parts(value[:1], depth) is None:
        return value
    return _parts(value, depth)


def _parts_of_many(value, depth):
    return None if len(value) > MAX_EXAMINED and _parts(value[:1], depth) is None else _parts(value, depth)


def _dict(value, depth):
    if len(value) > MAX_EXAMINED and _parts([next(iter(value.values()))], depth) is None:
        return value
    parts = _parts(list(value.values()), depth)
    return value if parts is None else dict(zip(value, parts))


def _parts(values, depth):
    """The parts of a container, or None where none of them changes."""
    if depth == 0:
        return None
    parts = [converted(part, depth - 1) for part in values]
    return None if all(new is old for new, old in zip(parts, values)) else parts


def _map(value, depth):
    function = value.__reduce__()[1][0]
    module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return map(converted, value) if not isinstance(function, type) and _is_package(module) else value


def _generator(value, depth):
    frame = value.gi_frame
    is_of_package = frame is not None and _is_package(frame.f_globals.get("__name__"))
    return (converted(part) for part in value) if is_of_package else value


def _is_package(name):
    top = str(name).partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return top not in sys.stdlib_module_names and file.startswith(LIBRARIES)


# None where values stay as they are.
_by_type = {tuple: _tuple, list: _list, dict: _dict, map: _map, types.GeneratorType: _generator}
_by_type |= dict.fromkeys([bool, bytes, complex, float, int, str, type(None)])

_to_code = machinery.SourceFileLoader.source_to_code


def _source_to_code(self, data, path, *more, **named):
    """The code of a module that is imported."""
    if not str(path).startswith(LIBRARIES):
        try:
            tree = ast.parse(data, path)
            rewrite(tree, data)
            data = tree
        except (SyntaxError, ValueError):
            # Reported by the loader.
            pass
    return _to_code(self, data, path, *more, **named)


# What the changed code names.
OURS = {"_sekisho_converted": converted, "_sekisho_sources": _sources, "_sekisho_compile": _compile}


def install():
    machinery.SourceFileLoader.source_to_code = _source_to_code
    vars(builtins).update(OURS)


if conversions is not None:
    install()
