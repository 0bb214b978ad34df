"""Fields, their constraints, and the decorators of validators."""

import copy
import functools
import re
import types
import typing
import uuid

from _sekisho_module_values import Check, Unacceptable

MISSING = type("Missing", (), {"__repr__": lambda self: "PydanticUndefined"})()
# What changes nothing about values.
NOTES = (
    "title", "description", "examples", "deprecated", "json_schema_extra", "repr", "kw_only", "init", "discriminator",
    "validate_default",
)
BOUNDS = {
    "gt": (lambda value, bound: value > bound, "greater_than", "Input should be greater than {}"),
    "ge": (lambda value, bound: value >= bound, "greater_than_equal", "Input should be greater than or equal to {}"),
    "lt": (lambda value, bound: value < bound, "less_than", "Input should be less than {}"),
    "le": (lambda value, bound: value <= bound, "less_than_equal", "Input should be less than or equal to {}"),
    "multiple_of": (lambda value, of: value % of == 0, "multiple_of", "Input should be a multiple of {}"),
    "min_length": (lambda value, length: len(value) >= length, "too_short", "{name} should have at least {} {unit}{s}"),
    "max_length": (lambda value, length: len(value) <= length, "too_long", "{name} should have at most {} {unit}{s}"),
    "pattern": (lambda value, form: re.search(form, value), "string_pattern_mismatch", "String should match pattern '{}'"),
    "max_digits": (
        lambda value, count: len(value.as_tuple().digits) <= count, "decimal_max_digits", "Decimal should have at most {} digits"
    ),
    "decimal_places": (
        lambda value, count: -value.as_tuple().exponent <= count, "decimal_max_places", "Decimal should have at most {} places"
    ),
}
NAMES = ("alias", "validation_alias", "serialization_alias", "exclude", "frozen")
TEXTS = ("strip_whitespace", "to_lower", "to_upper")
CONFIG = (
    "extra", "frozen", "populate_by_name", "validate_by_name", "str_strip_whitespace", "str_to_lower",
    "str_to_upper", "use_enum_values", "validate_assignment", "validate_default", "from_attributes", "arbitrary_types_allowed",
    "title", "json_schema_extra", "protected_namespaces", "use_attribute_docstrings", "alias_generator",
)


class FieldInfo(Check):
    def __init__(self, default=MISSING, default_factory=None, **options):
        self.default = MISSING if default is ... else default
        self.default_factory = default_factory
        for name in options:
            if name not in (*NOTES, *BOUNDS, *NAMES, *TEXTS):
                raise TypeError(f"the part of pydantic that this interpreter has is without Field({name}=…)")
        self.options = options
        self.description = options.get("description")
        self.annotation = None

    @property
    def alias(self):
        return self.options.get("validation_alias") or self.options.get("alias")

    def is_required(self):
        return self.default is MISSING and self.default_factory is None

    def default_value(self):
        if self.default_factory is not None:
            return self.default_factory()
        return copy.deepcopy(self.default)

    def before(self, value, path):
        if isinstance(value, str):
            value = value.strip() if self.options.get("strip_whitespace") else value
            value = value.lower() if self.options.get("to_lower") else value
            value = value.upper() if self.options.get("to_upper") else value
        return value

    def after(self, value, path):
        for name, (is_within, kind, message) in BOUNDS.items():
            bound = self.options.get(name)
            if bound is None or value is None:
                continue
            try:
                is_valid = is_within(value, bound)
            except (TypeError, AttributeError) as error:
                raise TypeError(f"{name}={bound!r} is no constraint of a {type(value).__name__}") from error
            if not is_valid:
                is_text = isinstance(value, str)
                named = "String" if is_text else type(value).__name__.capitalize()
                unit, plural = "character" if is_text else "item", "" if bound == 1 else "s"
                kind = f"string_{kind}" if is_text and kind.startswith("too_") else kind
                raise Unacceptable(path, message.format(bound, name=named, unit=unit, s=plural), kind, value)
        return value

    def __repr__(self):
        return f"FieldInfo(annotation={self.annotation!r}, required={self.is_required()})"


def Field(default=MISSING, *, default_factory=None, **options):
    return FieldInfo(default, default_factory, **options)


def PrivateAttr(default=MISSING, *, default_factory=None, init=None):
    return Private(default, default_factory)


class Private:
    def __init__(self, default, factory):
        self.info = FieldInfo(default, factory)


def StringConstraints(**options):
    return FieldInfo(**{name: value for name, value in options.items() if value is not None})


def ConfigDict(**options):
    return options


class _Function(Check):
    def __init__(self, function):
        self.function = function


class BeforeValidator(_Function):
    def before(self, value, path):
        return checked(self.function, value, path)


class AfterValidator(_Function):
    def after(self, value, path):
        return checked(self.function, value, path)


class _Strict(Check):
    def __init__(self, kind, named):
        self._kind = kind
        self._named = named

    def before(self, value, path):
        # An integer of JSON is a number, too.
        if type(value) is not self._kind and not (self._kind is float and type(value) is int):
            raise Unacceptable(path, f"Input should be a valid {self._named}", f"{self._named}_type", value)
        return value


def checked(function, value, path):
    """The value that a function of the user's makes of one."""
    try:
        return function(value)
    except AssertionError as error:
        raise Unacceptable(path, f"Assertion failed, {error}", "assertion_error", value) from error
    except ValueError as error:
        if hasattr(error, "errors"):
            raise Unacceptable.of(error, path) from error
        raise Unacceptable(path, f"Value error, {error}", "value_error", value) from error


def conint(**options):
    return typing.Annotated[int, FieldInfo(**options)]


def confloat(**options):
    return typing.Annotated[float, FieldInfo(**options)]


def constr(**options):
    return typing.Annotated[str, FieldInfo(**options)]


def conlist(item_type, **options):
    return typing.Annotated[list[item_type], FieldInfo(**options)]


PositiveInt, NonNegativeInt = conint(gt=0), conint(ge=0)
NegativeInt, NonPositiveInt = conint(lt=0), conint(le=0)
PositiveFloat, NonNegativeFloat = confloat(gt=0), confloat(ge=0)
NegativeFloat, NonPositiveFloat = confloat(lt=0), confloat(le=0)
StrictInt = typing.Annotated[int, _Strict(int, "integer")]
StrictFloat = typing.Annotated[float, _Strict(float, "number")]
StrictStr = typing.Annotated[str, _Strict(str, "string")]
StrictBool = typing.Annotated[bool, _Strict(bool, "boolean")]
EmailStr = constr(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s.]+$")
AnyUrl = constr(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$")
HttpUrl = AnyHttpUrl = constr(pattern=r"^https?://[^\s/]\S*$")
UUID4 = typing.Annotated[uuid.UUID, AfterValidator(lambda value: _of_version_4(value))]


def _of_version_4(value):
    if value.version != 4:
        raise ValueError("UUID version 4 expected")
    return value


class Decorated:
    """A method of a model that validates or serializes."""

    def __init__(self, function, fields, mode):
        self.function = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
        self.fields = fields
        self.mode = mode

    def __get__(self, instance, owner=None):
        return types.MethodType(self.function, instance if instance is not None else owner)


class FieldValidator(Decorated):
    pass


class ModelValidator(Decorated):
    pass


class FieldSerializer(Decorated):
    pass


class Computed(property):
    alias = None


def field_validator(*fields, mode="after", check_fields=None):
    return _decorator(FieldValidator, fields, mode, ("before", "after", "plain"))


def model_validator(*, mode):
    return _decorator(ModelValidator, (), mode, ("before", "after"))


def field_serializer(*fields, mode="plain", when_used="always", **_options):
    return _decorator(FieldSerializer, fields, mode, ("plain",))


def _decorator(kind, fields, mode, modes):
    if mode not in modes:
        raise TypeError(f"the part of pydantic that this interpreter has is without mode={mode!r} here: it has {', '.join(modes)}")
    return functools.partial(kind, fields=fields, mode=mode)


def computed_field(function=None, *, alias=None, **_options):
    def decorate(method):
        found = Computed(method.fget if isinstance(method, property) else method)
        found.alias = alias
        return found

    return decorate(function) if function is not None else decorate
