"""What the names of a module stand for, and the types that have a form in JSON."""

import ast

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
}
# Other names of those.
SAME = {
    "typing.List": "list",
    "typing.Sequence": "list",
    "collections.abc.Sequence": "list",
    "typing.Dict": "dict",
    "typing.Mapping": "dict",
    "collections.abc.Mapping": "dict",
    "typing.Tuple": "tuple",
    "typing.Set": "set",
    "typing.FrozenSet": "set",
    "frozenset": "set",
    "typing.Text": "str",
}
# JSON has a value of another type for these.
CONVERTED = ("tuple", "set", "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta")
# A set has none of these.
UNHASHABLE = ("list", "dict", "set", "typing.List", "typing.Dict", "typing.Set")
INSTEAD = {
    "bytes": "str, with base64 in it",
    "complex": "tuple[float, float]",
    "decimal.Decimal": "float, or str for exact digits",
    "fractions.Fraction": "float",
    "uuid.UUID": "str",
    "pathlib.Path": "str",
    "typing.NamedTuple": "a dataclass",
    "pandas.DataFrame": "list[dict]",
    "pandas.Series": "list",
    "numpy.ndarray": "list[float]",
    "pydantic.BaseModel": "a dataclass or a TypedDict",
    "typing.Callable": "str, with the name of what is to be done",
    "collections.abc.Callable": "str, with the name of what is to be done",
    "typing.Iterator": "list[…]",
    "collections.abc.Iterator": "list[…]",
    "typing.Iterable": "list[…]",
    "collections.abc.Iterable": "list[…]",
    "typing.Generator": "list[…]",
    "collections.abc.Generator": "list[…]",
}
USABLE = "str, int, float, bool, list[…], dict[str, …], tuple[…], Literal[…], an Enum, a dataclass or a TypedDict"
ENUMS = ("enum.Enum", "enum.StrEnum", "enum.IntEnum")
UNIONS = ("typing.Union", "typing.Optional")
# Integers of 64 bits, with a sign or without one.
LEAST_INTEGER = 1 << 63


class Problem(Exception):
    """What is wrong, with the node where it is and what to write instead."""

    def __init__(self, node, message):
        super().__init__(message)
        self.line = getattr(node, "lineno", 1)
        self.message = message


class Names:
    """What the names of a module stand for."""

    def __init__(self, tree):
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
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for name in statement.names:
                self._import(name.asname or name.name, f"{statement.module}.{name.name}")
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
            return name.replace("typing_extensions.", "typing.", 1)
        if isinstance(node, ast.Attribute):
            base = self.of(node.value)
            return base and f"{base}.{node.attr}".replace("typing_extensions.", "typing.", 1)
        return None

    def all(self):
        return {*self.imported, *self.classes, *self.aliases, *BUILTINS}


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
