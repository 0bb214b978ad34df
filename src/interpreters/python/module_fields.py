"""The fields of classes whose values are objects of JSON: of dataclasses, of TypedDicts, and of models of pydantic. Read from
the syntax tree, as are the constraints that `Field(…)` sets."""

import ast
import re

from _sekisho_module_names import Problem, text_of

# The types of pydantic: the type, and its constraints in JSON Schema.
CONSTRAINED = {
    "pydantic.PositiveInt": ("int", {"exclusiveMinimum": 0}),
    "pydantic.NonNegativeInt": ("int", {"minimum": 0}),
    "pydantic.NegativeInt": ("int", {"exclusiveMaximum": 0}),
    "pydantic.NonPositiveInt": ("int", {"maximum": 0}),
    "pydantic.PositiveFloat": ("float", {"exclusiveMinimum": 0}),
    "pydantic.NonNegativeFloat": ("float", {"minimum": 0}),
    "pydantic.NegativeFloat": ("float", {"exclusiveMaximum": 0}),
    "pydantic.NonPositiveFloat": ("float", {"maximum": 0}),
    "pydantic.StrictInt": ("int", {}),
    "pydantic.StrictFloat": ("float", {}),
    "pydantic.StrictStr": ("str", {}),
    "pydantic.StrictBool": ("bool", {}),
    "pydantic.EmailStr": ("str", {"format": "email"}),
    "pydantic.HttpUrl": ("str", {"format": "uri"}),
    "pydantic.AnyUrl": ("str", {"format": "uri"}),
    "pydantic.AnyHttpUrl": ("str", {"format": "uri"}),
    "pydantic.UUID4": ("uuid.UUID", {}),
    "pydantic.conint": ("int", {}),
    "pydantic.confloat": ("float", {}),
    "pydantic.constr": ("str", {}),
    "pydantic.conlist": ("list", {}),
}
# What `Field(…)` and its like set, in JSON Schema.
KEYWORDS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "title": "title",
    "description": "description",
    "examples": "examples",
    "deprecated": "deprecated",
}
# The same of `annotated_types`: the name of each constraint's first value.
MARKS = {"Gt": "gt", "Ge": "ge", "Lt": "lt", "Le": "le", "MultipleOf": "multiple_of", "MinLen": "min_length", "MaxLen": "max_length"}
# By the type of the value.
LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}
FIELDS = ("pydantic.Field", "fastmcp.Field")


def to_pascal(name):
    """`first_name` → `FirstName`."""
    return re.sub("([0-9A-Za-z])_(?=[0-9A-Z])", r"\1", name.title())


def to_camel(name):
    """`first_name` → `firstName`; what has that form is kept."""
    if re.fullmatch("[a-z]+[A-Za-z0-9]*", name) and not re.search("[0-9][a-z]", name):
        return name
    return re.sub("^_*[A-Z]", lambda found: found[0].lower(), to_pascal(name))


def to_snake(name):
    """`firstName` → `first_name`."""
    for parts in ("([A-Z]+)([A-Z][a-z])", "([a-z])([A-Z])", "([0-9])([A-Z])", "([a-z])([0-9])"):
        name = re.sub(parts, r"\1_\2", name)
    return name.replace("-", "_").lower()


# Of pydantic, which has the same functions.
ALIAS_GENERATORS = {
    "pydantic.alias_generators.to_camel": to_camel,
    "pydantic.alias_generators.to_pascal": to_pascal,
    "pydantic.alias_generators.to_snake": to_snake,
}


class Constraints:
    """What `Field(…)` says of a value."""

    def __init__(self, keywords, lengths):
        self._keywords = keywords
        self._lengths = lengths

    def added_to(self, schema):
        schema = {**schema, **self._keywords}
        # The text of bytes has another length.
        kinds = _kinds(schema) if "contentEncoding" not in schema else ()
        for bound, value in self._lengths.items():
            schema |= {bound + LENGTHS[kind]: value for kind in kinds if kind in LENGTHS}
        return schema


class Field:
    """One field: its annotation, the names of its module, and its default, `...` where that is not written out."""

    def __init__(self, names, annotation, is_required, default=..., constraints=None):
        self.names = names
        self.annotation = annotation
        self.is_required = is_required
        self.default = default
        self.constraints = constraints


class ClassFields:
    """The fields of a class by their names in JSON."""

    def __init__(self, members, converts, takes_others=False):
        self.members = members
        self.converts = converts
        self.takes_others = takes_others


def constraints_of(call, names):
    """Of a call such as `Field(ge=1)`."""
    keywords, lengths = {}, {}
    if names.of(call.func) == "typing.Doc" and call.args:
        keywords["description"] = names.literal(call.args[0])
    module, _, mark = (names.of(call.func) or "").rpartition(".")
    first = [ast.keyword(MARKS[mark], call.args[0])] if module == "annotated_types" and mark in MARKS and call.args else []
    for word in [*call.keywords, *first]:
        value = names.literal(word.value)
        if isinstance(value, str) and word.arg == "description":
            value = " ".join(value.split())
        if word.arg in KEYWORDS:
            keywords[KEYWORDS[word.arg]] = value
        elif word.arg in ("min_length", "max_length"):
            lengths[word.arg[:3]] = value
    # What is computed is checked by the function's interpreter only.
    known = {name: value for name, value in keywords.items() if value is not ... and value is not None}
    return Constraints(known, {bound: value for bound, value in lengths.items() if isinstance(value, int)})


def field_of(node, names):
    """The call of `Field(…)` that an expression is, or None."""
    is_field = isinstance(node, ast.Call) and names.of(node.func) in FIELDS
    return node if is_field else None


def default_of(call, names):
    """Whether `Field(…)` has a default, and its value: `...` where it is not written out."""
    words = {word.arg: word.value for word in call.keywords}
    if "default_factory" in words:
        made = {"list": [], "dict": {}}.get(names.of(words["default_factory"]), ...)
        return True, made
    given = call.args[0] if call.args else words.get("default")
    if given is None or isinstance(given, ast.Constant) and given.value is ...:
        return False, ...
    return True, names.literal(given)


class Fields:
    """Reads the fields of the classes of a module."""

    def __init__(self, names):
        self._names = names

    def of(self, node):
        """The fields of a class; None where its values are no objects of JSON."""
        if self._is_model(node):
            config = self._config(node)
            return ClassFields(self._model(node, self._generator(node)), True, config.get("extra", "ignore") != "forbid")
        if self._is_dataclass(node):
            return ClassFields(self._dataclass(node), True)
        if self._is_typed_dict(node):
            return ClassFields(self._typed_dict(node), False)
        return None

    def _bases(self, node):
        """The classes that it inherits from, each with the fields of its module; and their names."""
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            names, _, defined = self._names.defined(base)
            is_other = isinstance(defined, ast.ClassDef) and defined is not node
            yield self._names.of(base), Fields(names) if is_other else None, defined

    def _is_model(self, node):
        return any(
            name == "pydantic.BaseModel" or inner is not None and inner._is_model(base) for name, inner, base in self._bases(node)
        )

    def _is_dataclass(self, node):
        decorators = [made.func if isinstance(made, ast.Call) else made for made in node.decorator_list]
        return any(self._names.of(decorator) == "dataclasses.dataclass" for decorator in decorators)

    def _is_typed_dict(self, node):
        return any(
            name == "typing.TypedDict" or inner is not None and inner._is_typed_dict(base)
            for name, inner, base in self._bases(node)
        )

    def _config(self, node):
        """Of `model_config` and of the keywords of the class."""
        config = {}
        for _, inner, base in reversed(list(self._bases(node))):
            config |= inner._config(base) if inner is not None and inner._is_model(base) else {}
        for line in node.body:
            targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
            if getattr(targets[0], "id", None) == "model_config" and line.value is not None:
                config |= self._written_config(line.value)
        return config | self._settings((word.arg, word.value) for word in node.keywords)

    def _written_config(self, value):
        """Of `ConfigDict(…)` or a dict; or of a constant that has one."""
        if isinstance(value, ast.Dict):
            return self._settings((getattr(key, "value", None), given) for key, given in zip(value.keys, value.values))
        names, _, constant = self._names.defined(value)
        if isinstance(constant, (ast.Call, ast.Dict)):
            return Fields(names)._written_config(constant)
        return self._settings((word.arg, word.value) for word in getattr(value, "keywords", ()))

    def _settings(self, written):
        """The values by their names; of functions, the whole names."""
        return {
            name: self._names.of(value) if name == "alias_generator" else self._names.literal(value) for name, value in written
        }

    def _annotations(self, node):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                yield line.target.id, line

    def _inherited(self, node, is_kind, fields_of):
        fields = {}
        for _, inner, base in reversed(list(self._bases(node))):
            if inner is not None and is_kind(inner, base):
                fields.update(fields_of(inner, base))
        return fields

    def _generator(self, node):
        """Makes aliases of the names of the fields that have none."""
        config = self._config(node)
        generator = config.get("alias_generator")
        if "alias_generator" in config and generator not in ALIAS_GENERATORS:
            known = ", ".join(name.rpartition(".")[2] for name in ALIAS_GENERATORS)
            raise Problem(node, f"the alias_generator of `{node.name}` is none of {known}: write Field(alias=…) for each field")
        return ALIAS_GENERATORS.get(generator, str)

    def _model(self, node, alias_of):
        """`alias_of`: of the class whose fields are read, also for those that it inherits."""
        fields = self._inherited(node, Fields._is_model, lambda inner, base: inner._model(base, alias_of))
        for name, line in self._annotations(node):
            kind = line.annotation.value if isinstance(line.annotation, ast.Subscript) else line.annotation
            if name.startswith("_") or name == "model_config" or self._names.of(kind) == "typing.ClassVar":
                continue
            call = field_of(line.value, self._names)
            annotated = self._annotated_field(line.annotation)
            if call is not None:
                has_default, default = default_of(call, self._names)
            elif line.value is not None:
                is_missing = isinstance(line.value, ast.Constant) and line.value.value is ...
                has_default, default = not is_missing, self._names.literal(line.value)
            else:
                has_default, default = default_of(annotated, self._names) if annotated is not None else (False, ...)
            constraints = constraints_of(call, self._names) if call is not None else None
            fields.pop(name, None)
            alias = self._alias(call) or self._alias(annotated) or alias_of(name)
            fields[alias] = Field(self._names, line.annotation, not has_default, default, constraints)
        return fields

    def _annotated_field(self, annotation):
        """`Field(…)` in `Annotated[…]`."""
        if not isinstance(annotation, ast.Subscript) or self._names.of(annotation.value) != "typing.Annotated":
            return None
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        return next((part for part in parts if field_of(part, self._names) is not None), None)

    def _alias(self, call):
        words = {word.arg: word.value for word in call.keywords} if call is not None else {}
        given = next((words[name] for name in ("validation_alias", "alias") if name in words), None)
        if given is None:
            return None
        alias = self._names.literal(given)
        if not isinstance(alias, str):
            raise Problem(given, f"the alias `{text_of(given)}` is not written out: write a text")
        return alias

    def _dataclass(self, node):
        fields = self._inherited(node, Fields._is_dataclass, Fields._dataclass)
        for name, line in self._annotations(node):
            kind = line.annotation.value if isinstance(line.annotation, ast.Subscript) else line.annotation
            if self._names.of(kind) in ("typing.ClassVar", "dataclasses.KW_ONLY"):
                continue
            options = self._field_options(line.value)
            if getattr(options.get("init"), "value", True) is False:
                continue
            has_default, default = line.value is not None, self._names.literal(line.value) if line.value is not None else ...
            if options:
                has_default = bool({"default", "default_factory"} & set(options))
                default = self._field_default(options)
            fields[name] = Field(self._names, line.annotation, not has_default, default)
        return fields

    def _field_options(self, node):
        """The keywords of `field(…)`, or of `Field(…)` in a dataclass of pydantic."""
        if not isinstance(node, ast.Call) or self._names.of(node.func) not in ("dataclasses.field", *FIELDS):
            return {}
        return {word.arg: word.value for word in node.keywords} or {"init": ast.Constant(True)}

    def _field_default(self, options):
        if "default" in options:
            return self._names.literal(options["default"])
        factory = options.get("default_factory")
        return {"list": [], "dict": {}}.get(self._names.of(factory), ...) if factory is not None else ...

    def _typed_dict(self, node):
        fields = self._inherited(node, Fields._is_typed_dict, Fields._typed_dict)
        total = next((getattr(word.value, "value", True) for word in node.keywords if word.arg == "total"), True)
        for name, line in self._annotations(node):
            annotation, required = line.annotation, bool(total)
            while isinstance(annotation, ast.Subscript):
                wrapper = self._names.of(annotation.value)
                if wrapper not in ("typing.Required", "typing.NotRequired", "typing.ReadOnly"):
                    break
                required = {"typing.Required": True, "typing.NotRequired": False}.get(wrapper, required)
                annotation = annotation.slice
            fields[name] = Field(self._names, annotation, required)
        return fields


def _kinds(schema):
    """The types that a schema admits."""
    kinds = schema.get("type", ())
    own = [kinds] if isinstance(kinds, str) else list(kinds)
    return [*own, *(kind for part in schema.get("anyOf", ()) for kind in _kinds(part))]
