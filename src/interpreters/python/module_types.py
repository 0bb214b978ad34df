"""What annotations are in JSON Schema, read from the syntax tree of a module: nothing of it is executed."""

import ast

from _sekisho_module_fields import CONSTRAINED, Fields, constraints_of
from _sekisho_module_names import INSTEAD, PLAIN, SAME, TYPES, UNIONS, UNHASHABLE, USABLE, Problem, enum_members, is_number, text_of

# Schemas within schemas, and schemas in one function: types within types multiply.
MAX_DEPTH = 20
MAX_SCHEMAS = 2_000


class Types:
    """The schemas of annotations of one function, of its parameters or of its result."""

    def __init__(self, names):
        self._names = names
        self._left = MAX_SCHEMAS
        # Names of the classes and aliases around the present one, with their modules.
        self._around = []
        # The same of those that contain themselves.
        self._recursive = set()
        # The schemas of those.
        self.definitions = {}
        # Whether a value of JSON has to become one of another type.
        self.converts = False

    def schema(self, node, depth=0):
        """Raises `Problem`."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise Problem(node, "the type has too many types in it: write dict for a part of it")
        if isinstance(node, ast.Constant):
            return self._constant(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union(_members(node), node, depth)
        if isinstance(node, ast.Subscript):
            return self._generic(node, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        raise Problem(node, f"`{text_of(node)}` is no type: write {USABLE}")

    def _constant(self, node, depth):
        if node.value is None:
            return {"type": "null"}
        if not isinstance(node.value, str):
            raise Problem(node, f"`{node.value!r}` is no type; for a fixed value write Literal[{node.value!r}]")
        try:
            inner = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Problem(node, f"`{node.value[:80]}` is no type: write {USABLE}") from None
        for part in ast.walk(inner):
            part.lineno = node.lineno
        return self.schema(inner, depth + 1)

    def _name(self, node):
        """What a type refers to, by one of several names."""
        first = node
        while isinstance(first, ast.Attribute):
            first = first.value
        if isinstance(first, ast.Name) and first.id in self._names.unexecuted:
            raise Problem(node, f"`{text_of(node)}` is imported for type checkers alone: import it outside of `if TYPE_CHECKING`")
        name = self._names.of(node)
        return SAME.get(name, name)

    def _named(self, node, depth):
        name = self._name(node)
        names, own, defined = self._names.found(name) if name else (None, None, None)
        if isinstance(defined, ast.ClassDef):
            return self._inside(names, own, node, lambda: self._class(defined, depth))
        if defined is not None and name not in self._names.imported:
            return self._inside(names, own, node, lambda: self.schema(defined, depth + 1))
        if name in TYPES:
            self.converts |= name not in PLAIN
            return dict(TYPES[name])
        if name in CONSTRAINED:
            self.converts = True
            kind, constraints = CONSTRAINED[name]
            return {**TYPES[kind], **constraints}
        raise Problem(node, self._advice(node, name))

    def _inside(self, names, name, node, schema):
        """The schema of a class or an alias, in the module that defines it; a reference within itself."""
        key = (names, name)
        definition = f"{names.file.removesuffix('.py').replace('/', '.')}.{name}".lstrip(".")
        reference = {"$ref": f"#/$defs/{definition}"}
        if key in self._around:
            self._recursive.add(key)
            return reference
        outer, self._names = self._names, names
        self._around.append(key)
        try:
            found = schema()
        except Problem as problem:
            if names is outer:
                raise
            raise Problem(node, f"{names.file}:{problem.line}: {problem.message}") from None
        finally:
            self._around.pop()
            self._names = outer
        if key not in self._recursive:
            return found
        if _is_only(found, reference):
            raise Problem(node, f"`{name}` is nothing but itself: write what it has")
        self.definitions[definition] = found
        return reference

    def _called(self, node, depth):
        """Types that are made by a call: `NewType` and the constrained types of pydantic."""
        name = self._names.of(node.func)
        if name == "typing.NewType" and len(node.args) == 2:
            self.converts = True
            return self.schema(node.args[1], depth + 1)
        if name in CONSTRAINED and name.startswith("pydantic.con"):
            self.converts = True
            kind = CONSTRAINED[name][0]
            items = node.args or [word.value for word in node.keywords if word.arg == "item_type"]
            inner = {"items": self.schema(items[0], depth + 1)} if items and kind == "list" else {}
            return constraints_of(node, self._names).added_to({**TYPES[kind], **inner})
        raise Problem(node, f"`{text_of(node)}` is no type: write {USABLE}")

    def _advice(self, node, name):
        text = text_of(node)
        if name in INSTEAD:
            return f"`{text}` has no form in JSON: write {INSTEAD[name]}"
        if name in ("typing.Literal", "typing.Annotated", *UNIONS):
            return f"`{text}` needs what it is of: write {text}[…]"
        if isinstance(node, ast.Name) and node.id not in self._names.all():
            import difflib

            near = difflib.get_close_matches(node.id, self._names.all(), 1)
            return f"`{text}` is not defined in this file" + (f": write {near[0]}" if near else f"; write {USABLE}")
        return f"`{text}` has no form in JSON that is known here: write {USABLE}"

    def _generic(self, node, depth):
        name = self._name(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not parts:
            raise Problem(node, f"`{text_of(node)}` is empty: write what it is of, or list for any list")
        if name == "typing.Literal":
            return {"enum": [_literal(part) for part in parts]}
        if name == "typing.Annotated":
            return self._annotated(node, parts, depth)
        if name == "typing.Optional":
            return self._union([*parts, ast.copy_location(ast.Constant(None), node)], node, depth)
        if name == "typing.Union":
            return self._union(parts, node, depth)
        if name in ("list", "set"):
            self.converts |= name not in PLAIN
            if name == "set" and self._names.of(getattr(parts[0], "value", parts[0])) in UNHASHABLE:
                raise Problem(node, f"a set cannot have what `{text_of(node)}` says: write list[{text_of(parts[0])}]")
            return {**TYPES[name], "items": self._only(node, parts, depth)}
        if name == "dict":
            return self._dict(node, parts, depth)
        if name == "tuple":
            self.converts = True
            return self._tuple(node, parts, depth)
        raise Problem(node, self._advice(node.value, name))

    def _only(self, node, parts, depth):
        if len(parts) != 1:
            raise Problem(node, f"`{text_of(node)}` has one type: write {text_of(node.value)}[…] with one")
        return self.schema(parts[0], depth + 1)

    def _annotated(self, node, parts, depth):
        """Of what is annotated, a text is its description, and `Field(…)` of pydantic says more. The rest is for others."""
        if len(parts) < 2:
            raise Problem(node, f'of Annotated a description is read: write Annotated[{text_of(parts[0])}, "what it is"]')
        schema = self.schema(parts[0], depth + 1)
        for part in parts[1:]:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                schema = {**schema, "description": part.value}
            elif isinstance(part, ast.Call):
                schema = constraints_of(part, self._names).added_to(schema)
                self.converts = True
            else:
                self.converts = True
        return schema

    def _union(self, parts, node, depth):
        schemas = [self.schema(part, depth + 1) for part in parts]
        kinds = [schema["type"] for schema in schemas if set(schema) == {"type"}]
        if len(kinds) == len(schemas) and all(isinstance(kind, str) for kind in kinds):
            return {"type": list(dict.fromkeys(kinds))}
        return {"anyOf": schemas}

    def _dict(self, node, parts, depth):
        if len(parts) != 2:
            raise Problem(node, f"`{text_of(node)}` needs two types: write dict[str, …]")
        key = self.schema(parts[0], depth + 1)
        if key.get("type") == "integer":
            self.converts = True
            return {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"}, **self._values(parts[1], depth)}
        texts = key.get("enum")
        if key.get("type") != "string" and not (texts and all(isinstance(text, str) for text in texts)):
            raise Problem(node, f"`{text_of(node)}` has keys that JSON does not have: write dict[str, …]")
        names = {"propertyNames": {"enum": texts}} if texts else {}
        return {"type": "object", **names, **self._values(parts[1], depth)}

    def _values(self, node, depth):
        value = self.schema(node, depth + 1)
        return {"additionalProperties": value} if value else {}

    def _tuple(self, node, parts, depth):
        if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is Ellipsis:
            return {"type": "array", "items": self.schema(parts[0], depth + 1)}
        items = [self.schema(part, depth + 1) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _class(self, node, depth):
        names = self._names
        if names.is_enum(node):
            self.converts = True
            return {"enum": list(enum_members(names, node).values())}
        fields = Fields(names).of(node)
        if fields is not None:
            self.converts |= fields.converts
            return self._object(node, fields, depth)
        bases = [names.of(base) for base in node.bases]
        if "typing.NamedTuple" in bases:
            return self._named_tuple(node, depth)
        instead = next((INSTEAD[base] for base in bases if base in INSTEAD), "@dataclass above it")
        raise Problem(node, f"the class `{node.name}` has no form in JSON: write {instead}")

    def _named_tuple(self, node, depth):
        self.converts = True
        lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
        items = [self.schema(line.annotation, depth + 1) for line in lines]
        needed = sum(line.value is None for line in lines)
        names = ", ".join(line.target.id for line in lines)
        return {"type": "array", "prefixItems": items, "minItems": needed, "maxItems": len(items), "description": f"{names}."}

    def _object(self, node, fields, depth):
        properties = {name: self._member(field, depth) for name, field in fields.members.items()}
        required = [name for name, field in fields.members.items() if field.is_required]
        documentation = (ast.get_docstring(node) or "").partition("\n\n")[0]
        described = {"description": " ".join(documentation.split())} if documentation else {}
        needed = {"required": required} if required else {}
        closed = {} if fields.takes_others else {"additionalProperties": False}
        return {"type": "object", "properties": properties, **needed, **closed, **described}

    def _member(self, field, depth):
        """The schema of a field, in the module of its class."""
        outer, self._names = self._names, field.names
        try:
            schema = self.schema(field.annotation, depth + 1)
            if field.constraints is not None:
                schema = field.constraints.added_to(schema)
        finally:
            self._names = outer
        return schema if field.default is ... or not is_json(field.default) else {**schema, "default": field.default}


def _members(node):
    """Of `a | b | c`."""
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _literal(node):
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = ...
    if value is not None and not isinstance(value, (str, bool)) and not (isinstance(value, int) and is_number(value)):
        raise Problem(node, f"`{text_of(node)}` is no text, number or boolean: write it as such in Literal[…]")
    return value


def _is_only(schema, reference):
    """Whether a schema is nothing but a reference, or one of several that is."""
    return schema.get("$ref") == reference["$ref"] or any(_is_only(part, reference) for part in schema.get("anyOf", ()))


def is_json(value):
    """Whether JSON has the value too."""
    if isinstance(value, (list, tuple)):
        return all(map(is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(is_json, value.values()))
    return value is None or isinstance(value, (str, bool)) or is_number(value)
