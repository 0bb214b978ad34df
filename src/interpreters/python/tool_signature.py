"""What a tool's JSON Schema is in Python: a signature with types, and a docstring."""

import inspect
import keyword
import re

MAX_LITERALS = 12
# Of types within types.
MAX_DEPTH = 4

TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "array": "list",
    "null": "None",
}


class TypeText(str):
    """A type as a signature shows it."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


class Omitted:
    """The default of a parameter that is not sent."""

    def __repr__(self):
        return "..."


OMITTED = Omitted()


class ToolSignature:
    """The parameters of a tool: those that are required first, each with the name of its argument."""

    def __init__(self, description):
        self.tool = description["name"]
        schema = description.get("inputSchema") or {}
        self._definitions = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
        properties = schema.get("properties") or {}
        required = [name for name in schema.get("required") or () if name in properties]
        self._names = _identifiers([*required, *(name for name in properties if name not in required)])
        self._properties, self._required = properties, set(required)
        self._is_open = schema.get("additionalProperties") is not False
        self.documentation = self._documentation(description)
        self.signature = self._signature(description.get("outputSchema"))

    def arguments(self, positional, named):
        """The arguments to be sent."""
        if len(positional) == 1 and not named and self._is_whole(positional[0]):
            return dict(positional[0])
        if len(positional) > len(self._names):
            raise TypeError(f"{self.tool}() has {len(self._names)} parameters, and {len(positional)} values were given")
        sent = dict(zip(self._names.values(), positional))
        for name, value in named.items():
            name = self._names.get(name, name)
            if name in sent:
                raise TypeError(f"{self.tool}() got two values for {name!r}")
            sent[name] = value
        return sent

    def _is_whole(self, value):
        """Whether a single value has all arguments by their names."""
        first = next(iter(self._names.values()), None)
        return isinstance(value, dict) and (first is None or not self._type(self._properties[first]).startswith(("dict", "Any")))

    def _signature(self, output):
        parameters = [
            inspect.Parameter(
                identifier,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                annotation=TypeText(self._type(self._properties[name])),
                default=inspect.Parameter.empty if name in self._required else self._default(name),
            )
            for identifier, name in self._names.items()
        ]
        if self._is_open:
            parameters.append(inspect.Parameter(_free("arguments", self._names), inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(parameters, return_annotation=TypeText(self._type(output)))

    def _default(self, name):
        schema = self._properties[name]
        return schema["default"] if isinstance(schema, dict) and "default" in schema else OMITTED

    def _documentation(self, description):
        lines = [str(description.get("description") or "").strip()]
        if self._names:
            lines += ["", "Arguments:"]
        for identifier, name in self._names.items():
            schema = self._properties[name]
            says = str(schema.get("description") or "").strip() if isinstance(schema, dict) else ""
            optional = "" if name in self._required else ", optional"
            called = "" if identifier == name else f" (sent as {name!r})"
            lines.append(f"    {identifier} ({self._type(schema)}{optional}){called}{': ' + says if says else ''}")
        returned = (description.get("outputSchema") or {}).get("properties")
        if returned:
            lines += ["", "Returns a dict with:"]
            lines += [f"    {name} ({self._type(schema)})" for name, schema in returned.items()]
        return "\n".join(lines).strip()

    def _type(self, schema, depth=0):
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return "Any"
        if "$ref" in schema:
            return self._type(self._definitions.get(str(schema["$ref"]).rpartition("/")[2]), depth + 1)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and 0 < len(values) <= MAX_LITERALS:
            return f"Literal[{', '.join(map(repr, values))}]"
        kinds = schema.get("anyOf") or schema.get("oneOf") or schema.get("type")
        if isinstance(kinds, list):
            named = [TYPES.get(kind, "Any") if isinstance(kind, str) else self._type(kind, depth + 1) for kind in kinds]
            return " | ".join(dict.fromkeys(named)) or "Any"
        if kinds == "array" and isinstance(schema.get("items"), dict):
            return f"list[{self._type(schema['items'], depth + 1)}]"
        return TYPES.get(kinds, "Any") if isinstance(kinds, str) else "Any"


def identifier_of(name):
    """The identifier of a name that may be none."""
    name = re.sub(r"\W", "_", name) or "_"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name


def _identifiers(names):
    """Identifier → name. A name that is none itself, and would be that of another, is left to `**{name: value}`."""
    known = {name: name for name in names if identifier_of(name) == name}
    others = {}
    for name in names:
        identifier = identifier_of(name)
        if identifier not in known:
            others.setdefault(identifier, name)
    by_name = {name: identifier for identifier, name in {**known, **others}.items()}
    return {by_name[name]: name for name in names if name in by_name}


def _free(name, taken):
    while name in taken:
        name += "_"
    return name
