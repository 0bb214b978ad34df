"""What annotations are in JSON Schema, read from the syntax tree of a module: nothing of it is executed."""

import ast

from _sekisho_module_names import CONVERTED, ENUMS, INSTEAD, SAME, TYPES, UNIONS, UNHASHABLE, USABLE, Problem, is_number, text_of

# Schemas within schemas, and schemas in one function: types within types multiply.
MAX_DEPTH = 20
MAX_SCHEMAS = 2_000


class Types:
    """The schemas of annotations of one function."""

    def __init__(self, names):
        self._names = names
        self._left = MAX_SCHEMAS
        # Names of the classes and aliases around the present one.
        self._around = []
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
        if name in self._names.classes:
            return self._inside(name, node, lambda: self._class(self._names.classes[name], depth))
        if name in self._names.aliases and name not in self._names.imported:
            return self._inside(name, node, lambda: self.schema(self._names.aliases[name], depth + 1))
        if name in TYPES:
            self.converts |= name in CONVERTED
            return dict(TYPES[name])
        raise Problem(node, self._advice(node, name))

    def _inside(self, name, node, schema):
        if name in self._around:
            raise Problem(node, f"`{name}` contains itself, and the types of a tool must end: write dict for the inner one")
        self._around.append(name)
        try:
            return schema()
        finally:
            self._around.pop()

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
            self.converts |= name in CONVERTED
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
        texts = [part.value for part in parts[1:] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if len(texts) != 1 or len(parts) != 2:
            raise Problem(node, f'of Annotated a description is read: write Annotated[{text_of(parts[0])}, "what it is"]')
        return {**self.schema(parts[0], depth + 1), "description": texts[0]}

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
        texts = key.get("enum")
        if key.get("type") != "string" and not (texts and all(isinstance(text, str) for text in texts)):
            raise Problem(node, f"`{text_of(node)}` has keys that JSON does not have: write dict[str, …]")
        value = self.schema(parts[1], depth + 1)
        names = {"propertyNames": {"enum": texts}} if texts else {}
        return {"type": "object", **names, **({"additionalProperties": value} if value else {})}

    def _tuple(self, node, parts, depth):
        if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is Ellipsis:
            return {"type": "array", "items": self.schema(parts[0], depth + 1)}
        items = [self.schema(part, depth + 1) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _class(self, node, depth):
        bases = [self._names.of(base) for base in node.bases]
        if any(base in ENUMS for base in bases):
            self.converts = True
            return {"enum": _enum_values(node)}
        if self._is_dataclass(node):
            self.converts = True
            return self._object(node, self._dataclass_fields(node), depth)
        if self._is_typed_dict(node):
            return self._object(node, self._typed_dict_fields(node), depth)
        instead = next((INSTEAD[base] for base in bases if base in INSTEAD), "@dataclass above it")
        raise Problem(node, f"the class `{node.name}` has no form in JSON: write {instead}")

    def _object(self, node, fields, depth):
        """Of fields: name → annotation, and whether it is required."""
        properties = {name: self.schema(annotation, depth + 1) for name, (annotation, _) in fields.items()}
        required = [name for name, (_, is_required) in fields.items() if is_required]
        documentation = (ast.get_docstring(node) or "").partition("\n\n")[0]
        described = {"description": " ".join(documentation.split())} if documentation else {}
        needed = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **needed, "additionalProperties": False, **described}

    def _is_dataclass(self, node):
        decorators = [made.func if isinstance(made, ast.Call) else made for made in node.decorator_list]
        return any(self._names.of(decorator) == "dataclasses.dataclass" for decorator in decorators)

    def _is_typed_dict(self, node):
        bases = [self._names.of(base) for base in node.bases]
        known = [self._names.classes[base] for base in bases if base in self._names.classes]
        return "typing.TypedDict" in bases or any(base is not node and self._is_typed_dict(base) for base in known)

    def _dataclass_fields(self, node):
        fields = self._inherited(node, self._is_dataclass, self._dataclass_fields)
        for line in node.body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            kind = line.annotation.value if isinstance(line.annotation, ast.Subscript) else line.annotation
            if self._names.of(kind) in ("typing.ClassVar", "dataclasses.KW_ONLY"):
                continue
            options = self._field_options(line.value)
            if options.get("init") is False:
                continue
            has_default = line.value is not None and not (options and not {"default", "default_factory"} & set(options))
            fields[line.target.id] = (line.annotation, not has_default)
        return fields

    def _field_options(self, node):
        """Of `field(…)`: its keywords, with their values where those are literals."""
        if not isinstance(node, ast.Call) or self._names.of(node.func) != "dataclasses.field":
            return {}
        options = {word.arg: getattr(word.value, "value", word.value) for word in node.keywords}
        return options or {"init": True}

    def _typed_dict_fields(self, node):
        fields = self._inherited(node, self._is_typed_dict, self._typed_dict_fields)
        total = next((getattr(word.value, "value", True) for word in node.keywords if word.arg == "total"), True)
        for line in node.body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            annotation, required = line.annotation, bool(total)
            while isinstance(annotation, ast.Subscript):
                wrapper = self._names.of(annotation.value)
                if wrapper not in ("typing.Required", "typing.NotRequired", "typing.ReadOnly"):
                    break
                required = {"typing.Required": True, "typing.NotRequired": False}.get(wrapper, required)
                annotation = annotation.slice
            fields[line.target.id] = (annotation, required)
        return fields

    def _inherited(self, node, is_kind, fields_of):
        fields = {}
        for base in reversed(node.bases):
            name = self._names.of(base)
            known = self._names.classes.get(name)
            if known is not None and known is not node and is_kind(known):
                fields.update(fields_of(known))
        return fields


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


def _enum_values(node):
    values = []
    for line in node.body:
        # An annotation changes nothing: it is a member all the same.
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        is_member = isinstance(line, (ast.Assign, ast.AnnAssign)) and len(targets) == 1 and line.value is not None
        if not is_member or not isinstance(targets[0], ast.Name) or targets[0].id.startswith("_"):
            continue
        try:
            value = ast.literal_eval(line.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            value = ...
        if not isinstance(value, str) and not is_number(value):
            raise Problem(line, f"the value of `{targets[0].id}` is not written out: write a text or a number of JSON")
        values.append(value)
    if not values:
        raise Problem(node, f"the Enum `{node.name}` has no members: write NAME = \"value\" in it")
    return values
