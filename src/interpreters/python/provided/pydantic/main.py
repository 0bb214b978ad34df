"""Models: classes whose values are checked when they are made."""

import abc
import dataclasses
import inspect
import json
import types
import typing

from _sekisho_module_results import plain
from _sekisho_module_values import Unacceptable, value_of

from .errors import ValidationError
from .fields import (
    CONFIG,
    MISSING,
    Computed,
    Decorated,
    FieldInfo,
    FieldSerializer,
    FieldValidator,
    ModelValidator,
    Private,
    checked,
)


class ValidationInfo(types.SimpleNamespace):
    """What a validator may ask for besides the value."""


class ModelMetaclass(abc.ABCMeta):
    def __new__(meta, name, bases, namespace, **options):
        made = super().__new__(meta, name, bases, namespace)
        config = {}
        for base in reversed(bases):
            config |= getattr(base, "model_config", {})
        made.model_config = {**config, **namespace.get("model_config", {}), **options}
        for option in made.model_config:
            if option not in CONFIG:
                raise TypeError(f"the part of pydantic that this interpreter has is without model_config[{option!r}]")
        return made

    @property
    def model_fields(cls):
        return {field.name: field.info for field in fields_of(cls).values()}


class ModelField:
    """A field of a model: its type, and what is said of it."""

    def __init__(self, name, hint, default):
        self.name = name
        self.hint = hint
        annotated = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, FieldInfo)]
        own = default if isinstance(default, FieldInfo) else FieldInfo(default)
        # What `Annotated` has of a value is checked with its type.
        self.own = own if isinstance(default, FieldInfo) else None
        merged = {}
        for one in annotated:
            merged |= one.options
        self.info = FieldInfo(own.default, own.default_factory, **{**merged, **own.options})
        for one in reversed(annotated):
            if self.info.is_required():
                self.info.default, self.info.default_factory = one.default, one.default_factory
        self.info.annotation = getattr(hint, "__origin__", hint) if annotated else hint

    def keys(self, config):
        """The names of its value, the first of which messages show."""
        alias = self.info.alias
        if alias is None:
            return [self.name]
        by_name = config.get("populate_by_name") or config.get("validate_by_name")
        return [alias, self.name] if by_name else [alias]

    def validated(self, cls, value, path, before):
        """The value of the field. `before` has the fields before it."""
        config = cls.model_config
        info = ValidationInfo(data=before, field_name=self.name, context=None, mode="python", config=config)
        validators = [one for one in decorated(cls, FieldValidator) if self.name in one.fields or "*" in one.fields]
        for validator in reversed([one for one in validators if one.mode == "before"]):
            value = checked(_bound(validator, cls, info), value, path)
        replaced = [one for one in validators if one.mode == "plain"]
        for validator in replaced:
            value = checked(_bound(validator, cls, info), value, path)
        if not replaced:
            value = self._of_type(_text(value, config), path)
        for validator in validators:
            if validator.mode == "after":
                value = checked(_bound(validator, cls, info), value, path)
        return value.value if config.get("use_enum_values") and hasattr(type(value), "__members__") else value

    def _of_type(self, value, path):
        if self.own is not None:
            value = self.own.before(value, path)
        value = value_of(value, self.hint, path)
        return value if self.own is None else self.own.after(value, path)


def fields_of(cls):
    """Read when they are first needed: types may name classes that are defined later."""
    found = vars(cls).get("__pydantic_fields__")
    if found is None:
        found = {}
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            is_class = hint is typing.ClassVar or typing.get_origin(hint) is typing.ClassVar
            if not name.startswith("_") and name != "model_config" and not is_class:
                found[name] = field = ModelField(name, hint, _default(cls, name))
                generator = cls.model_config.get("alias_generator")
                if generator is not None and field.info.alias is None:
                    field.info.options["alias"] = generator(name)
        type.__setattr__(cls, "__pydantic_fields__", found)
    return found


def _models(cls):
    return [base for base in cls.__mro__ if isinstance(base, ModelMetaclass) and base is not BaseModel]


def _default(cls, name):
    return next((vars(base)[name] for base in _models(cls) if name in vars(base)), MISSING)


def decorated(cls, kind):
    found = {}
    for base in reversed(_models(cls)):
        found |= {name: value for name, value in vars(base).items() if isinstance(value, (Decorated, Computed))}
    return [value for value in found.values() if isinstance(value, kind)]


def _bound(method, owner, info):
    """A method that is called with the value; and with the info, where it takes one."""
    call = types.MethodType(method.function, owner)
    takes = len(inspect.signature(call).parameters)
    return (lambda value: call(value, info)) if takes > 1 else call


def _text(value, config):
    if isinstance(value, str):
        value = value.strip() if config.get("str_strip_whitespace") else value
        value = value.lower() if config.get("str_to_lower") else value
        value = value.upper() if config.get("str_to_upper") else value
    return value


def _validated(cls, data):
    """The values of the fields, the names of those that were given, and what else was given."""
    config, values, given, known, faults = cls.model_config, {}, set(), set(), []
    for name, field in fields_of(cls).items():
        keys = field.keys(config)
        known.update(keys)
        key = next((key for key in keys if key in data), None)
        try:
            if key is not None:
                given.add(name)
                values[name] = field.validated(cls, data[key], f"/{key}", values)
            elif field.info.is_required():
                raise Unacceptable(f"/{keys[0]}", "Field required", "missing", data)
            elif config.get("validate_default") or field.info.options.get("validate_default"):
                values[name] = field.validated(cls, field.info.default_value(), f"/{name}", values)
            else:
                values[name] = field.info.default_value()
        except Unacceptable as fault:
            faults += fault.every
    others = {key: value for key, value in data.items() if key not in known}
    if others and config.get("extra") == "forbid":
        faults += [Unacceptable(f"/{key}", "Extra inputs are not permitted", "extra_forbidden", others[key]) for key in others]
    if faults:
        raise ValidationError(cls.__name__, faults)
    return values, given, others if config.get("extra") == "allow" else {}


class BaseModel(metaclass=ModelMetaclass):
    __slots__ = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__")
    model_config = {}

    def __init__(self, /, **data):
        cls = type(self)
        for validator in decorated(cls, ModelValidator):
            if validator.mode == "before":
                data = self._checked(_bound(validator, cls, ValidationInfo(context=None, mode="python")), data)
        if not isinstance(data, dict):
            raise ValidationError(cls.__name__, [Unacceptable("", "Input should be a valid dictionary", "model_type", data)])
        self._fill(*_validated(cls, data))
        for validator in decorated(cls, ModelValidator):
            if validator.mode == "after":
                takes_info = len(inspect.signature(validator.function).parameters) > 1
                more = (ValidationInfo(context=None, mode="python"),) if takes_info else ()
                self._checked(lambda model: validator.function(model, *more), self)

    def _checked(self, function, value):
        try:
            return checked(function, value, "")
        except Unacceptable as fault:
            raise ValidationError(type(self).__name__, fault.every) from fault

    def _fill(self, values, given, others):
        object.__setattr__(self, "__dict__", {**values, **others})
        object.__setattr__(self, "__pydantic_fields_set__", given)
        object.__setattr__(self, "__pydantic_extra__", others)
        for base in reversed(_models(type(self))):
            for name, value in vars(base).items():
                if isinstance(value, Private):
                    self.__dict__[name] = value.info.default_value()
        if type(self).model_post_init is not BaseModel.model_post_init:
            self.model_post_init(None)

    def model_post_init(self, context, /):
        """For subclasses."""

    @classmethod
    def model_validate(cls, obj, *, from_attributes=None, **_options):
        if isinstance(obj, cls):
            return obj
        if (from_attributes or cls.model_config.get("from_attributes")) and not isinstance(obj, dict):
            obj = {name: getattr(obj, name) for name in fields_of(cls) if hasattr(obj, name)}
        is_taken = isinstance(obj, dict) or any(one.mode == "before" for one in decorated(cls, ModelValidator))
        if not is_taken:
            message = f"Input should be a valid dictionary or instance of {cls.__name__}"
            raise ValidationError(cls.__name__, [Unacceptable("", message, "model_type", obj)])
        if isinstance(obj, dict) and all(isinstance(key, str) for key in obj):
            return cls(**obj)
        made = cls.__new__(cls)
        for validator in decorated(cls, ModelValidator):
            if validator.mode == "before":
                obj = made._checked(_bound(validator, cls, ValidationInfo(context=None, mode="python")), obj)
        return cls(**obj) if isinstance(obj, dict) else cls.model_validate(dict(obj))

    @classmethod
    def model_validate_json(cls, json_data, **options):
        try:
            obj = json.loads(json_data)
        except ValueError as error:
            raise ValidationError(cls.__name__, [Unacceptable("", f"Invalid JSON: {error}", "json_invalid", json_data)]) from error
        return cls.model_validate(obj, **options)

    @classmethod
    def model_construct(cls, _fields_set=None, **values):
        made = cls.__new__(cls)
        defaults = {name: field.info.default_value() for name, field in fields_of(cls).items() if not field.info.is_required()}
        made._fill({**defaults, **values}, set(values) if _fields_set is None else _fields_set, {})
        return made

    @property
    def model_fields_set(self):
        return self.__pydantic_fields_set__

    @property
    def model_extra(self):
        return self.__pydantic_extra__ if self.model_config.get("extra") == "allow" else None

    def model_copy(self, *, update=None, deep=False):
        import copy

        made = copy.deepcopy(self) if deep else copy.copy(self)
        made.__dict__.update(update or {})
        object.__setattr__(made, "__pydantic_fields_set__", self.model_fields_set | set(update or ()))
        return made

    def model_dump(
        self, *, mode="python", include=None, exclude=None, by_alias=None, exclude_unset=False, exclude_defaults=False,
        exclude_none=False, **_options,
    ):
        if isinstance(exclude, dict) or isinstance(include, dict):
            raise TypeError("the part of pydantic that this interpreter has takes sets of names as include and exclude")
        options = {
            "mode": mode, "by_alias": by_alias, "exclude_unset": exclude_unset, "exclude_defaults": exclude_defaults,
            "exclude_none": exclude_none,
        }
        serializers = decorated(type(self), FieldSerializer)
        dumped = {}
        for name, key, value, info in self._members(by_alias):
            is_left_out = (
                include is not None and name not in include
                or name in (exclude or ())
                or info is not None and info.options.get("exclude")
                or exclude_unset and info is not None and name not in self.model_fields_set
                or exclude_defaults and info is not None and not info.is_required() and value == info.default_value()
                or exclude_none and value is None
            )
            if is_left_out:
                continue
            serializer = next((one for one in serializers if name in one.fields or "*" in one.fields), None)
            if serializer is not None:
                value = _bound(serializer, self, ValidationInfo(mode=mode, field_name=name))(value)
            dumped[key] = _dumped(value, options)
        return dumped

    def _members(self, by_alias):
        for name, field in fields_of(type(self)).items():
            if name in self.__dict__:
                alias = field.info.options.get("serialization_alias") or field.info.options.get("alias")
                yield name, alias if by_alias and alias else name, self.__dict__[name], field.info
        for name, value in (self.__pydantic_extra__ or {}).items():
            yield name, name, value, None
        for base in reversed(_models(type(self))):
            for name, value in vars(base).items():
                if isinstance(value, Computed):
                    yield name, value.alias if by_alias and value.alias else name, getattr(self, name), None

    def model_dump_json(self, *, indent=None, **options):
        separators = None if indent else (",", ":")
        return json.dumps(self.model_dump(mode="json", **options), indent=indent, separators=separators, ensure_ascii=False)

    def __setattr__(self, name, value):
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        config, field = self.model_config, fields_of(type(self)).get(name)
        if config.get("frozen") or field is not None and field.info.options.get("frozen"):
            raise ValidationError(type(self).__name__, [Unacceptable(f"/{name}", "Instance is frozen", "frozen_instance", value)])
        if field is None and config.get("extra") != "allow" and not isinstance(getattr(type(self), name, None), property):
            raise ValueError(f'"{type(self).__name__}" object has no field "{name}"')
        if field is not None and config.get("validate_assignment"):
            try:
                value = field.validated(type(self), value, f"/{name}", dict(self.__dict__))
            except Unacceptable as fault:
                raise ValidationError(type(self).__name__, fault.every) from fault
        object.__setattr__(self, name, value)
        self.__pydantic_fields_set__.add(name)

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self):
        if not self.model_config.get("frozen"):
            raise TypeError(f"unhashable type: '{type(self).__name__}'")
        return hash((type(self), tuple(self.__dict__.values())))

    def __iter__(self):
        yield from self.__dict__.items()

    def __repr_args__(self):
        return [f"{name}={value!r}" for name, _, value, info in self._members(False) if info is None or info.options.get("repr", True)]

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(self.__repr_args__())})"

    def __str__(self):
        return " ".join(self.__repr_args__())


def _dumped(value, options):
    is_json = options["mode"] == "json"
    if isinstance(value, BaseModel):
        return value.model_dump(**options)
    if isinstance(value, dict):
        return {plain(key) if is_json else key: _dumped(item, options) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_dumped(item, options) for item in value]
        return items if is_json or type(value) not in (tuple, set, frozenset) else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _dumped(getattr(value, field.name), options) for field in dataclasses.fields(value)}
    return plain(value) if is_json else value


class TypeAdapter:
    """Checks values of any type."""

    def __init__(self, type, **_options):
        self._type = type

    def validate_python(self, value, **_options):
        try:
            return value_of(value, self._type, "")
        except Unacceptable as fault:
            raise ValidationError(getattr(self._type, "__name__", str(self._type)), fault.every) from fault

    def validate_json(self, data, **_options):
        return self.validate_python(json.loads(data))

    def dump_python(self, value, *, mode="python", **options):
        given = {"mode": mode, "by_alias": None, "exclude_unset": False, "exclude_defaults": False, "exclude_none": False}
        return _dumped(value, {**given, **options})

    def dump_json(self, value, *, indent=None, **options):
        return json.dumps(self.dump_python(value, mode="json", **options), indent=indent).encode()
