"""What a tool's JSON Schema is in Python: a signature with types, and a docstring."""

import inspect
import keyword
import re

MAX_LITERALS = 12
# Of types within types.
MAX_DEPTH = 4
# Of a docstring.
MAX_LINES = 200

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
        output = description.get("outputSchema") or {}
        defined = [of.get(name) or {} for of in (output, schema) for name in ("definitions", "$defs")]
        self._definitions = {name: definition for of in defined for name, definition in of.items()}
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
            lines += self._members(schema, 2)
        returned = self._members(description.get("outputSchema"), 1)
        if returned:
            lines += ["", f"Returns {self._type(description['outputSchema'])} with:", *returned]
        return "\n".join(lines[:MAX_LINES]).strip()

    def _members(self, schema, depth):
        """Lines on the members of an object, or of the objects in a list, within each other."""
        schema = self._object(schema, 0)
        if depth > MAX_DEPTH or not schema:
            return []
        lines, required = [], schema.get("required") or ()
        for name, member in schema["properties"].items():
            optional = "" if name in required or depth == 1 else ", optional"
            default = f", {member['default']!r} by default" if isinstance(member, dict) and "default" in member else ""
            lines.append(f"{'    ' * depth}{name} ({self._type(member)}{default or optional})")
            lines += self._members(member, depth + 1)
            if len(lines) > MAX_LINES:
                break
        return lines

    def _object(self, schema, depth):
        """The object in a schema: itself, one of its forms, or an item of its list. None if there is none."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return None
        if "$ref" in schema:
            return self._object(self._definitions.get(str(schema["$ref"]).rpartition("/")[2]), depth + 1)
        if isinstance(schema.get("properties"), dict):
            return schema
        inner = [schema.get("items"), *(schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ())]
        return next(filter(None, (self._object(form, depth + 1) for form in inner[:MAX_LITERALS])), None)

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
