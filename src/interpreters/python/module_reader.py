"""Reads which functions of a module are tools: names, descriptions, and schemas of what they take and return.

By the syntax tree alone: nothing of the module is executed. A function that cannot be a tool is a problem with its line, and
what to write instead; the others are tools all the same.
"""

import ast
import re

from _sekisho_docstring import Docstring
from _sekisho_module_names import Names, Problem, is_number, text_of
from _sekisho_module_types import Types

MAX_TOOLS = 200
MAX_NAME = 60
MAX_LIST = 100
NAME = re.compile(r"[A-Za-z0-9_-]{1,%d}" % MAX_NAME)
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What begins a scope of its own.
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
TOO_DEEP = "it is nested too deep to be read: write it in several steps"


def read(source, file):
    """The tools of a module, and what is wrong: in it as a whole, where a problem names no function."""
    try:
        tree = ast.parse(source.removeprefix("\ufeff"), file)
        return _Reader(tree).found()
    except SyntaxError as error:
        problem = {"line": error.lineno or 1, "message": f"{error.msg}: correct the Python here"}
    except (RecursionError, MemoryError):
        problem = {"line": 1, "message": TOO_DEEP}
    except Problem as error:
        problem = {"line": error.line, "message": error.message}
    except ValueError as error:
        problem = {"line": 1, "message": f"{error}: save it as UTF-8 text"}
    return {"tools": [], "problems": [problem]}


class _Reader:
    def __init__(self, tree):
        self._tree = tree
        self._names = Names(tree)

    def found(self):
        tools, problems, lines = [], [], {}
        public, functions = self._public(), self._functions()
        for node in functions:
            decorator = self._decorator(node)
            if not self._is_tool(node, decorator, public):
                continue
            try:
                same = [other.lineno for other in functions if other.name == node.name]
                if same[0] != node.lineno:
                    raise Problem(node, f"line {same[0]} defines `{node.name}` already: rename one")
                tool = self._tool(node, decorator)
                first = lines.setdefault(tool["name"], node.lineno)
                if first != node.lineno:
                    raise Problem(node, f"line {first} has a tool with the name `{tool['name']}` already: rename one")
                # Python has the last of several functions of one name.
                if len(same) == 1:
                    tools.append(tool)
            except Problem as problem:
                problems.append({"function": node.name, "line": problem.line, "message": problem.message})
            except RecursionError:
                problems.append({"function": node.name, "line": node.lineno, "message": TOO_DEEP})
        if len(tools) > MAX_TOOLS:
            raise Problem(self._tree, f"it has {len(tools)} tools, and a file may have {MAX_TOOLS}: write several files")
        if not tools and not problems:
            raise Problem(self._tree, "it has no function with annotations: write def NAME(x: int) -> int: …")
        return {"tools": tools, "problems": problems}

    def _functions(self):
        return [node for node in self._tree.body if isinstance(node, FUNCTIONS) and not self._is_overload(node)]

    def _is_overload(self, node):
        return any(self._names.of(made) == "typing.overload" for made in node.decorator_list)

    def _public(self):
        """The names of `__all__`; None where there is none."""
        listed = self._names.aliases.get("__all__")
        try:
            names = ast.literal_eval(listed) if listed is not None else None
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise Problem(listed, "`__all__` is not written out: write a list of names") from None
        if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
            raise Problem(listed, "`__all__` is no list of names: write one")
        return names

    def _decorator(self, node):
        """`@tool` or `@tool(…)` of a function."""
        for made in node.decorator_list:
            if self._names.of(made.func if isinstance(made, ast.Call) else made) == "host.tool":
                return made
        return None

    def _is_tool(self, node, decorator, public):
        if decorator is not None:
            return True
        is_public = node.name in public if public is not None else not node.name.startswith("_")
        taken = node.args
        every = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg]
        return is_public and (node.returns is not None or any(one is not None and one.annotation for one in every))

    def _tool(self, node, decorator):
        options = self._options(decorator)
        if node.name.startswith("_"):
            raise Problem(node, f"`{node.name}` is private: call it {node.name.lstrip('_') or 'something'}")
        if _yields(node):
            raise Problem(node, f"`{node.name}` yields, and a tool returns one value: return a list")
        documentation = Docstring(ast.get_docstring(node, clean=False))
        types = Types(self._names)
        parameters = self._parameters(node, types, documentation)
        converts = types.converts
        output = None if node.returns is None else types.schema(node.returns)
        if output is not None and documentation.result:
            output.setdefault("description", documentation.result)
        return {
            "function": node.name,
            "line": node.lineno,
            "description": documentation.description or node.name.replace("_", " ").capitalize(),
            "parameters": parameters,
            "output": output,
            "converts": converts,
            **options,
            "name": options.get("name", node.name),
        }

    def _parameters(self, node, types, documentation):
        taken = node.args
        if taken.posonlyargs:
            raise Problem(node, f"`{node.name}` has parameters before `/`, and arguments have names: leave out the `/`")
        if taken.vararg:
            raise Problem(taken.vararg, f"`*{taken.vararg.arg}` has no name for each value: write {taken.vararg.arg}: list[…]")
        if taken.kwarg:
            raise Problem(taken.kwarg, f"`**{taken.kwarg.arg}` takes any name: write {taken.kwarg.arg}: dict[str, …]")
        properties, required = {}, []
        defaults = [None] * (len(taken.args) - len(taken.defaults)) + taken.defaults + taken.kw_defaults
        for parameter, default in zip([*taken.args, *taken.kwonlyargs], defaults):
            properties[parameter.arg] = self._parameter(parameter, default, types, documentation)
            if default is None:
                required.append(parameter.arg)
        needed = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **needed, "additionalProperties": False}

    def _parameter(self, parameter, default, types, documentation):
        name = parameter.arg
        if parameter.annotation is None:
            raise Problem(parameter, f"`{name}` has no annotation: write {name}: {_type_of(default)}")
        schema = types.schema(parameter.annotation)
        described = documentation.parameters.get(name)
        if described and not _is_annotated(parameter.annotation, self._names):
            schema["description"] = described
        if isinstance(default, ast.Constant) and default.value is None and not _admits_null(schema):
            written = text_of(parameter.annotation)
            raise Problem(parameter, f"`{name}` may be None: write {name}: {written} | None = None")
        value = _literal_or_none(default)
        if value is not None or isinstance(default, ast.Constant) and default.value is None:
            schema["default"] = value
        return schema

    def _options(self, decorator):
        """The arguments of `@tool(…)`."""
        if not isinstance(decorator, ast.Call):
            return {}
        if decorator.args:
            raise Problem(decorator.args[0], f"@tool takes named values: write name={text_of(decorator.args[0])}")
        options = {}
        for word in decorator.keywords:
            if word.arg not in OPTIONS:
                raise Problem(word.value, f"@tool has no `{word.arg}`: it has {', '.join(OPTIONS)}")
            is_valid, what, written = OPTIONS[word.arg]
            value = _literal_or_none(word.value)
            if not is_valid(value):
                raise Problem(word.value, f"`{word.arg}` is {what}, written out: write {word.arg}={written}")
            options[word.arg] = _amount(value) if word.arg == "cost_usd" else value
        return options


def _is_name(value):
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def _is_amount(value):
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    return bool(re.fullmatch(r"\d{1,9}(\.\d{1,12})?", _amount(value)))


def _amount(value):
    """Digits, without an exponent."""
    import decimal

    try:
        return format(decimal.Decimal(str(value)), "f")
    except decimal.InvalidOperation:
        return ""


def _is_count(most):
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_list(form):
    def is_list(value):
        is_one = isinstance(value, (list, tuple)) and len(value) <= MAX_LIST
        return is_one and all(isinstance(text, str) and form.fullmatch(text) for text in value)

    return is_list


OPTIONS = {
    "name": (_is_name, f"a text of at most {MAX_NAME} letters, digits, `_` and `-`", '"lookup"'),
    "cost_usd": (_is_amount, "an amount that is not negative", "0.001"),
    "rate_limit": (_is_count(1_000_000), "a whole number of calls a minute", "60"),
    "timeout_seconds": (_is_count(86_400), "a whole number of seconds", "30"),
    "labels": (_is_list(re.compile(r"\S(.{0,98}\S)?")), "a list of words", '["internal"]'),
    "dangerous": (lambda value: isinstance(value, bool), "True or False", "True"),
    "needs": (_is_list(TOOL_NAME), "a list of names of tools", '["httpbin__get"]'),
}


def _literal_or_none(node):
    """The value of an expression that JSON has too."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if _is_json(value) else None


def _is_json(value):
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_json, value.values()))
    return value is None or isinstance(value, (str, bool)) or is_number(value)


def _type_of(default):
    """What a parameter with this default may be annotated with."""
    value = _literal_or_none(default)
    return "str" if value is None else type(value).__name__


def _is_annotated(node, names):
    return isinstance(node, ast.Subscript) and names.of(node.value) == "typing.Annotated"


def _admits_null(schema):
    kinds = schema.get("type")
    if kinds is None and not {"anyOf", "enum"} & set(schema):
        return True
    listed = kinds if isinstance(kinds, list) else [kinds]
    return "null" in listed or None in schema.get("enum", ()) or any(map(_admits_null, schema.get("anyOf", ())))


def _yields(function):
    """Whether it is a generator: whether it yields outside of inner functions."""
    left = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, SCOPES):
            left.extend(ast.iter_child_nodes(node))
    return False
