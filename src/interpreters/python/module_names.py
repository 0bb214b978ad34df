"""What the names of a module stand for, and the types that have a form in JSON."""

import ast
import re

BUILTINS = ("str", "int", "float", "bool", "list", "dict", "tuple", "set", "frozenset", "object", "bytes", "complex", "type")
TYPES = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {},
    "typing.Any": {},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array", "uniqueItems": True},
    "dict": {"type": "object"},
    "datetime.datetime": {"type": "string", "format": "date-time"},
    "datetime.date": {"type": "string", "format": "date"},
    "datetime.time": {"type": "string", "format": "time"},
    "datetime.timedelta": {"type": "number", "description": "Seconds."},
    "decimal.Decimal": {"type": ["number", "string"], "description": "A decimal number, as a text where digits count."},
    "uuid.UUID": {"type": "string", "format": "uuid"},
    "pathlib.Path": {"type": "string", "format": "path"},
    "pathlib.PurePath": {"type": "string", "format": "path"},
    "bytes": {"type": "string", "contentEncoding": "base64", "description": "Base64."},
}
# Other names of those.
SAME = {
    "typing.List": "list",
    "typing.Sequence": "list",
    "collections.abc.Sequence": "list",
    "typing.Dict": "dict",
    "typing.Mapping": "dict",
    "collections.abc.Mapping": "dict",
    "typing.MutableMapping": "dict",
    "collections.abc.MutableMapping": "dict",
    "typing.Iterable": "list",
    "collections.abc.Iterable": "list",
    "typing.Collection": "list",
    "collections.abc.Collection": "list",
    "typing.Tuple": "tuple",
    "typing.Set": "set",
    "typing.FrozenSet": "set",
    "frozenset": "set",
    "typing.Text": "str",
}
# JSON has these types too; a value of any other is made of a value of JSON.
PLAIN = ("str", "int", "float", "bool", "object", "typing.Any", "list", "dict")
# A set has none of these.
UNHASHABLE = ("list", "dict", "set", "typing.List", "typing.Dict", "typing.Set")
INSTEAD = {
    "complex": "tuple[float, float]",
    "fractions.Fraction": "float",
    "pandas.DataFrame": "list[dict]",
    "pandas.Series": "list",
    "numpy.ndarray": "list[float]",
    "typing.Callable": "str, with the name of what is to be done",
    "collections.abc.Callable": "str, with the name of what is to be done",
    "typing.Iterator": "list[…]",
    "collections.abc.Iterator": "list[…]",
    "typing.Generator": "list[…]",
    "collections.abc.Generator": "list[…]",
}
USABLE = (
    "str, int, float, bool, list[…], dict[str, …], tuple[…], Literal[…], an Enum, a dataclass, a TypedDict or a BaseModel of pydantic"
)
ENUMS = ("enum.Enum", "enum.StrEnum", "enum.IntEnum")
UNIONS = ("typing.Union", "typing.Optional")
# Of a tool, beside the name of its file.
MAX_NAME = 60
# Imports of a name from module to module.
MAX_IMPORTS = 20
# Other modules that have them.
SAME_MODULES = {
    "mcp.server.fastmcp.FastMCP": "fastmcp.FastMCP",
    "mcp.server.FastMCP": "fastmcp.FastMCP",
    "mcp.server.fastmcp.Context": "fastmcp.Context",
    "mcp.server.Context": "fastmcp.Context",
    "fastmcp.server.context.Context": "fastmcp.Context",
    "google.adk.tools.tool_context.ToolContext": "google.adk.tools.ToolContext",
    "langchain.tools.BaseTool": "langchain_core.tools.BaseTool",
    "langchain.tools.InjectedToolArg": "langchain_core.tools.InjectedToolArg",
    "langchain.tools.tool": "langchain_core.tools.tool",
    "pydantic.dataclasses.dataclass": "dataclasses.dataclass",
    "pydantic.fields.Field": "pydantic.Field",
    "annotated_doc.Doc": "typing.Doc",
}
# Integers of 64 bits, with a sign or without one.
LEAST_INTEGER = 1 << 63


class Problem(Exception):
    """What is wrong, with the node where it is and what to write instead."""

    def __init__(self, node, message):
        super().__init__(message)
        self.line = getattr(node, "lineno", 1)
        self.message = message


class Modules:
    """The modules of the folder that its files share, by path: parsed when one is first named."""

    def __init__(self, sources):
        self._sources = sources
        self._read = {}

    def file_of(self, name):
        """The path of a module; None for a folder without `__init__.py` too."""
        base = name.replace(".", "/")
        return next((file for file in (f"{base}/__init__.py", f"{base}.py") if file in self._sources), None)

    def named(self, name):
        """The names of a module; None where there is no such module."""
        file = self.file_of(name)
        if file is None:
            return None
        if file not in self._read:
            package = name if file.endswith("/__init__.py") else name.rpartition(".")[0]
            # A module that imports itself, by whatever way, finds no names yet.
            self._read[file] = None
            self._read[file] = Names(_parsed(self._sources[file], file), self, file, package)
        return self._read[file]

    def used_by(self, tree):
        """The paths of the modules that a module imports, and that these import."""
        used, left = set(), [(tree, "")]
        while left:
            tree, package = left.pop()
            for name, node in _imported(tree, package):
                file = self.file_of(name)
                if file is None or file in used:
                    continue
                used.add(file)
                try:
                    inner = _parsed(self._sources[file], file)
                except Problem as problem:
                    raise Problem(node, problem.message) from None
                left.append((inner, name if file.endswith("/__init__.py") else name.rpartition(".")[0]))
        return sorted(used)


def _parsed(source, file):
    try:
        return ast.parse(source.removeprefix("\ufeff"), file)
    except SyntaxError as error:
        raise Problem(None, f"{file}:{error.lineno or 1}: {error.msg}: correct the Python there") from None
    except (RecursionError, MemoryError, ValueError):
        raise Problem(None, f"{file}: it cannot be parsed: write it in several files") from None


def _imported(tree, package):
    """The modules that a module may import, with their packages: name → node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            names = [base, *(f"{base}.{name.name}".lstrip(".") for name in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from ((".".join(parts[: at + 1]), node) for at in range(len(parts)))


def absolute(node, package):
    """The module of a `from … import`. The files of tools, and the modules beside them, are in no package: `.a` is `a` there."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    around = parts[: max(0, len(parts) - (node.level - 1))]
    return ".".join([*around, *([node.module] if node.module else [])])


class Names:
    """What the names of a module stand for."""

    def __init__(self, tree, modules=None, file="", package=""):
        self.modules = modules or Modules({})
        self.file = file
        self._package = package
        self.imported = {}
        self.classes = {}
        self.aliases = {}
        # Imported below `if TYPE_CHECKING:`, which is not executed.
        self.unexecuted = set()
        for statement in tree.body:
            self._add(statement)

    def _add(self, statement):
        if isinstance(statement, ast.Import):
            for name in statement.names:
                top = name.name.partition(".")[0]
                self._import(name.asname or top, name.name if name.asname else top)
        elif isinstance(statement, ast.ImportFrom):
            self._add_imported(statement, absolute(statement, self._package))
        elif isinstance(statement, ast.ClassDef):
            self.classes[statement.name] = statement
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._add_alias(statement.targets[0], statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._add_alias(statement.target, statement.value)
        elif isinstance(statement, getattr(ast, "TypeAlias", ())):
            self._add_alias(statement.name, statement.value)
        elif isinstance(statement, (ast.If, ast.Try)):
            # Such as imports that may fail.
            before = set(self.imported)
            for inner in statement.body:
                self._add(inner)
            if self.of(getattr(statement, "test", None)) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                self.unexecuted |= set(self.imported) - before

    def _add_imported(self, statement, module):
        for name in statement.names:
            if name.name != "*":
                self._import(name.asname or name.name, f"{module}.{name.name}".lstrip("."))
                continue
            for public in self._public_names(module):
                self._import(public, f"{module}.{public}")

    def _public_names(self, module):
        names = self.modules.named(module)
        known = {*names.imported, *names.classes, *names.aliases} if names else ()
        return [name for name in known if not name.startswith("_")]

    def _import(self, name, whole):
        self.imported[name] = whole
        self.unexecuted.discard(name)

    def _add_alias(self, target, value):
        if isinstance(target, ast.Name):
            self.aliases[target.id] = value

    def of(self, node):
        """The whole name of what an expression refers to: `datetime.date`, `str`; of the module's own, its own name."""
        if isinstance(node, ast.Name):
            name = self.imported.get(node.id, node.id)
            return known_name(name)
        if isinstance(node, ast.Attribute):
            base = self.of(node.value)
            return base and known_name(f"{base}.{node.attr}")
        return None

    def found(self, name):
        """The names of the module that defines a name, its name there, and its class or its value; for a name of another
        library None, its whole name, and None."""
        for _ in range(MAX_IMPORTS):
            if "." not in name:
                return self, name, self.classes.get(name) or self.aliases.get(name)
            module, _, last = name.rpartition(".")
            names = self.modules.named(module)
            if names is None:
                return None, name, None
            if last not in names.imported:
                return names, last, names.classes.get(last) or names.aliases.get(last)
            name = names.imported[last]
        return None, name, None

    def defined(self, node):
        """The same for what an expression refers to."""
        name = self.of(node)
        return (None, None, None) if name is None else self.found(name)

    def literal(self, node):
        """The value of an expression that is written out, here or as a constant, or is a member of an Enum; `...` for others."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            pass
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ...
        names, _, value = self.defined(node)
        if isinstance(value, ast.expr) and value is not node:
            try:
                return ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return ...
        if isinstance(node, ast.Attribute) and node.attr != "value":
            names, _, value = self.defined(node.value)
            if isinstance(value, ast.ClassDef) and names.is_enum(value):
                return enum_members(names, value).get(node.attr, ...)
        return ...

    def is_enum(self, node):
        return any(self.of(base) in ENUMS for base in node.bases)

    def all(self):
        return {*self.imported, *self.classes, *self.aliases, *BUILTINS}


def known_name(name):
    """A name as it is in the tables above."""
    return SAME_MODULES.get(name) or name.replace("typing_extensions.", "typing.", 1)


def enum_members(names, node):
    """The values of an Enum, by the names of its members."""
    values = {}
    is_text = any(names.of(base) == "enum.StrEnum" for base in node.bases)
    for line in node.body:
        # An annotation changes nothing: it is a member all the same.
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        is_member = isinstance(line, (ast.Assign, ast.AnnAssign)) and len(targets) == 1 and line.value is not None
        if not is_member or not isinstance(targets[0], ast.Name) or targets[0].id.startswith("_"):
            continue
        name = targets[0].id
        if isinstance(line.value, ast.Call) and names.of(line.value.func) == "enum.auto":
            numbers = [value for value in values.values() if isinstance(value, int)]
            value = name.lower() if is_text else max(numbers, default=0) + 1
        else:
            value = names.literal(line.value)
        if not isinstance(value, str) and not is_number(value):
            raise Problem(line, f"the value of `{name}` is not written out: write a text or a number of JSON")
        values[name] = value
    if not values:
        raise Problem(node, f"the Enum `{node.name}` has no members: write NAME = \"value\" in it")
    return values


def identifier_of(title):
    """A name of a tool, of a title such as "Search the web"; empty where there is nothing to make one of."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", title).strip("_")[:MAX_NAME] if isinstance(title, str) else ""


def is_number(value):
    """Whether it is a number that JSON has, and that every reader of it keeps as it is."""
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, int) and -LEAST_INTEGER <= value < 2 * LEAST_INTEGER


def text_of(node):
    """An expression as it may be written, shortened."""
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        text = "…"
    return text if len(text) <= 80 else text[:80] + "…"
