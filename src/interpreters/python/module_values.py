"""From JSON to the values that annotations name. The `pydantic` of this interpreter checks with it too, so that values of
Python are accepted as well."""

import base64
import binascii
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import math
import pathlib
import sys
import types
import typing
import uuid

from _sekisho_errors import clean

MAX_PATH = 200

# The words of pydantic for kinds of values.
NAMED = {"dict": "dictionary", "bool": "boolean", "int": "integer", "float": "number"}
UNIONS = (typing.Union, types.UnionType)
WRAPPERS = ("Required", "NotRequired", "ReadOnly")
PARSED = (datetime.datetime, datetime.date, datetime.time)
# What gives a function the context of its call: also in `module_reader.py`.
CONTEXTS = (
    ("fastmcp", "Context"),
    ("pydantic_ai", "RunContext"),
    ("agents", "RunContextWrapper"),
    ("google.adk.tools", "ToolContext"),
    ("langchain_core.runnables", "RunnableConfig"),
)
TRUE, FALSE = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")


class Unacceptable(Exception):
    """A value that its type does not admit; `every` has further ones, which were found beside it."""

    def __init__(self, path, message, kind="value_error", value=None):
        super().__init__(message)
        self.path = path[:MAX_PATH]
        self.message = message
        self.kind = kind
        self.value = value
        self.every = [self]

    @classmethod
    def of(cls, error, path):
        """Of the `ValidationError` of a model inside."""
        every = [
            cls(path + "".join(f"/{part}" for part in one["loc"]), one["msg"], one["type"], one.get("input"))
            for one in error.errors()
        ]
        every[0].every = every
        return every[0]


class Check:
    """What `Annotated` may say of a value: done with it before it becomes one of its type, and after."""

    def before(self, value, path):
        return value

    def after(self, value, path):
        return value


def arguments_of(function, arguments):
    """The arguments as the annotations of a function say, with the defaults that `Field(…)` has.

    Raises `Unacceptable`."""
    hints = typing.get_type_hints(function, include_extras=True)
    # A function that another decorator wraps takes what that one does.
    parameters = inspect.signature(function).parameters
    made = {}
    for name, value in arguments.items():
        check, path = _check_of(parameters, name) or Check(), f"/{name}"
        made[name] = check.after(value_of(check.before(value, path), hints.get(name), path), path)
    for name, hint in hints.items():
        if name in made or name not in parameters:
            continue
        check, context = _check_of(parameters, name), _context_in(hint)
        if check is not None:
            made[name] = check.default_value()
        elif context is not None:
            made[name] = context()
    return made


def _check_of(parameters, name):
    default = parameters[name].default if name in parameters else None
    return default if isinstance(default, Check) else None


def _context_in(hint):
    """The class of the contexts of a library, where a type is it or mentions it."""
    for library, name in CONTEXTS:
        kind = getattr(sys.modules.get(library), name, None)
        if kind and (hint is kind or kind in typing.get_args(hint)):
            return kind
    return None


def value_of(value, hint, path):
    """A value as its type says."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        checks = [check for check in hint.__metadata__ if isinstance(check, Check)]
        for check in checks:
            value = check.before(value, path)
        value = value_of(value, hint.__origin__, path)
        for check in checks:
            value = check.after(value, path)
        return value
    if getattr(origin, "_name", None) in WRAPPERS:
        return value_of(value, typing.get_args(hint)[0], path)
    if isinstance(hint, getattr(typing, "TypeAliasType", ())):
        return value_of(value, hint.__value__, path)
    if isinstance(hint, typing.NewType):
        return value_of(value, hint.__supertype__, path)
    if origin is typing.Literal:
        if not _is_one_of(value, typing.get_args(hint)):
            shown = " or ".join(map(repr, typing.get_args(hint)))
            raise Unacceptable(path, f"Input should be {shown}", "literal_error", value)
        return value
    if origin in UNIONS:
        return _of_union(value, typing.get_args(hint), path)
    if origin is not None:
        return _of_generic(value, origin, typing.get_args(hint), path)
    if hint is None:
        hint = type(None) if value is None else object
    return _of_class(value, hint, path) if isinstance(hint, type) else value


def _of_union(value, members, path):
    """The first member that the value fits: a text is a date before it is a text. One that fits none is refused with
    the words of the first that cannot be made of it."""
    members = [type(None) if member is None else member for member in members]
    fitting = [member for member in members if _is_of_kind(value, member)]
    if not fitting:
        fitting = [member for member in members if not _is_plain(member)] or members
    refused = None
    for member in sorted(fitting, key=_is_plain):
        try:
            return value_of(value, member, path)
        except Unacceptable as error:
            refused = refused or error
    raise refused


def _is_plain(member):
    return member in (str, int, float, bool, type(None), object, typing.Any)


def _is_one_of(value, values):
    # True is no 1 in JSON.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _is_of_kind(value, hint):
    """Whether a value may become this type, with all that it has in it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_of_kind(value, hint.__origin__)
    if getattr(origin, "_name", None) in WRAPPERS:
        return _is_of_kind(value, parts[0])
    if isinstance(hint, getattr(typing, "TypeAliasType", ())):
        return _is_of_kind(value, hint.__value__)
    if isinstance(hint, typing.NewType):
        return _is_of_kind(value, hint.__supertype__)
    if origin is typing.Literal:
        return _is_one_of(value, parts)
    if origin in UNIONS:
        return any(_is_of_kind(value, part) for part in parts)
    kind = origin or hint
    if kind in (object, typing.Any) or not isinstance(kind, type):
        return True
    if not parts and not issubclass(kind, (int, float, list, dict)) and isinstance(value, kind):
        return True
    if issubclass(kind, enum.Enum):
        return any(value == member.value for member in kind)
    if issubclass(kind, (*PARSED, uuid.UUID, pathlib.PurePath, bytes)):
        return isinstance(value, str) and _is_made(value, kind)
    if hasattr(kind, "model_validate"):
        return _is_made(value, kind)
    if isinstance(value, dict):
        return _is_of_object(value, kind, parts)
    if isinstance(value, list):
        items = [_item(parts, at) for at in range(len(value))] if kind is tuple else [*parts[:1]] * len(value)
        is_checked = not typing.is_typeddict(kind)
        is_list = is_checked and (issubclass(kind, (tuple, set, frozenset)) or issubclass(list, kind))
        return is_list and all(map(_is_of_kind, value, items or [object] * len(value)))
    if issubclass(kind, bool) or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if issubclass(kind, decimal.Decimal):
        return isinstance(value, (int, float)) or isinstance(value, str) and _is_made(value, kind)
    if issubclass(kind, (float, datetime.timedelta)):
        return isinstance(value, (int, float))
    return isinstance(value, kind)


def _is_made(value, kind):
    try:
        value_of(value, kind, "")
    except Unacceptable:
        return False
    return True


def _is_of_object(value, kind, parts):
    """The same for an object of JSON: one of a dataclass or a TypedDict has its members."""
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        is_whole = getattr(kind, "__required_keys__", frozenset()) <= value.keys()
        return is_whole and all(name in hints and _is_of_kind(item, hints[name]) for name, item in value.items())
    is_object = issubclass(kind, (dict, collections.abc.Mapping))
    return is_object and (len(parts) != 2 or all(_is_of_kind(item, parts[1]) for item in value.values()))


def _of_generic(value, origin, parts, path):
    if not isinstance(origin, type):
        return value
    if issubclass(origin, tuple):
        _must(isinstance(value, (list, tuple)), path, "tuple", value)
        return tuple(value_of(item, _item(parts, at), f"{path}/{at}") for at, item in enumerate(value))
    if issubclass(origin, (set, frozenset)):
        _must(isinstance(value, (list, tuple, set, frozenset)), path, "set", value)
        return _made(lambda: origin(value_of(item, parts[0], f"{path}/{at}") for at, item in enumerate(value)), path, value)
    if len(parts) == 2 and issubclass(origin, (dict, collections.abc.Mapping)):
        _must(isinstance(value, dict), path, "dict", value)
        return {
            value_of(key, parts[0], f"{path}/{key}"): value_of(item, parts[1], f"{path}/{key}")
            for key, item in value.items()
        }
    if issubclass(list, origin):
        is_list = isinstance(value, (list, tuple, set, frozenset)) and not (origin is list and isinstance(value, (set, frozenset)))
        _must(is_list, path, "list", value)
        return [value_of(item, parts[0], f"{path}/{at}") for at, item in enumerate(value)]
    # A generic class of the function's own.
    return _of_class(value, origin, path)


def _item(parts, at):
    if len(parts) == 2 and parts[1] is Ellipsis:
        return parts[0]
    return parts[at] if at < len(parts) else object


def _must(is_so, path, kind, value, more=""):
    """`kind` is what pydantic calls it too."""
    if not is_so:
        raise Unacceptable(path, f"Input should be a valid {NAMED.get(kind, kind)}{more}", f"{kind}_type", value)


def _of_class(value, kind, path):
    if hasattr(kind, "model_validate"):
        return value if isinstance(value, kind) else _model(value, kind, path)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind, include_extras=True)
        members = {name: value_of(item, hints.get(name), f"{path}/{name}") for name, item in value.items()}
        return _made(lambda: kind(**members), path, value)
    if typing.is_typeddict(kind):
        _must(isinstance(value, dict), path, "dict", value)
        hints = typing.get_type_hints(kind, include_extras=True)
        return {name: value_of(item, hints.get(name), f"{path}/{name}") for name, item in value.items()}
    if kind in _PLAIN:
        return _PLAIN[kind](value, path)
    if isinstance(value, kind) and not (kind is datetime.date and isinstance(value, datetime.datetime)):
        return value
    if issubclass(kind, enum.Enum):
        return _made(lambda: kind(value), path, value)
    if issubclass(kind, PARSED):
        _must(isinstance(value, str), path, kind.__name__, value)
        return _made(lambda: kind.fromisoformat(value), path, value)
    if issubclass(kind, datetime.timedelta):
        return _made(lambda: kind(seconds=value), path, value)
    if issubclass(kind, decimal.Decimal):
        return _decimal(value, kind, path)
    if issubclass(kind, (uuid.UUID, pathlib.PurePath)):
        _must(isinstance(value, str), path, "string", value)
        return _made(lambda: kind(value), path, value)
    if issubclass(kind, bytes):
        _must(isinstance(value, str), path, "bytes", value)
        return _made(lambda: kind(base64.b64decode(value, validate=True)), path, value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and isinstance(value, (list, tuple)):
        return _named_tuple(value, kind, path)
    if issubclass(kind, (tuple, set, frozenset)) and isinstance(value, (list, tuple, set, frozenset)):
        return _made(lambda: kind(value), path, value)
    if kind.__module__ in ("builtins", "collections.abc") or dataclasses.is_dataclass(kind):
        raise Unacceptable(path, f"Input should be a valid {kind.__name__}", f"{kind.__name__}_type", value)
    return value


def _named_tuple(value, kind, path):
    hints = typing.get_type_hints(kind, include_extras=True)
    members = [value_of(item, hints.get(name), f"{path}/{at}") for at, (name, item) in enumerate(zip(kind._fields, value))]
    return _made(lambda: kind(*members), path, value)


def _model(value, kind, path):
    try:
        return kind.model_validate(value)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise Unacceptable(path, clean(str(error)), value=value) from error
        raise Unacceptable.of(error, path) from error


def _decimal(value, kind, path):
    _must(isinstance(value, (int, float, str)) and not isinstance(value, bool), path, "decimal", value)
    # The shortest digits of a float are the ones that were written.
    made = _made(lambda: kind(repr(value) if isinstance(value, float) else value), path, value)
    _must(made.is_finite(), path, "decimal", value, ", finite")
    return made


def _boolean(value, path):
    text = str(value).lower() if isinstance(value, (int, str)) else ""
    _must(text in TRUE or text in FALSE, path, "bool", value)
    return text in TRUE


def _integer(value, path):
    if isinstance(value, int) and not isinstance(value, (bool, enum.Enum)):
        return value
    _must(isinstance(value, (int, float, str)), path, "int", value)
    is_whole = not isinstance(value, float) or math.isfinite(value) and value.is_integer()
    if not is_whole:
        raise Unacceptable(path, "Input should be a valid integer, got a number with a fractional part", "int_from_float", value)
    return _parsed(int, value, path)


def _number(value, path):
    _must(isinstance(value, (int, float, str)), path, "float", value)
    return value if isinstance(value, float) else _parsed(float, value, path)


def _parsed(kind, value, path):
    try:
        return kind(value)
    except (ValueError, OverflowError):
        named = NAMED[kind.__name__]
        article = "an" if kind is int else "a"
        message = f"Input should be a valid {named}, unable to parse string as {article} {named}"
        raise Unacceptable(path, message, f"{kind.__name__}_parsing", value) from None


def _text(value, path):
    _must(isinstance(value, str), path, "string", value)
    return value


def _nothing(value, path):
    if value is not None:
        raise Unacceptable(path, "Input should be None", "none_required", value)


def _same(value, _path):
    return value


def _list(value, path):
    _must(isinstance(value, (list, tuple)), path, "list", value)
    return list(value)


def _dictionary(value, path):
    _must(isinstance(value, dict), path, "dict", value)
    return value


_PLAIN = {
    bool: _boolean, int: _integer, float: _number, str: _text, type(None): _nothing, object: _same, list: _list, dict: _dictionary,
}


def _made(make, path, value=None):
    try:
        return make()
    except (ValueError, TypeError, OverflowError, decimal.InvalidOperation, binascii.Error) as error:
        text = clean(str(error))
        if isinstance(error, decimal.InvalidOperation):
            text = "Input should be a valid decimal"
        raise Unacceptable(path, text, value=value) from error
