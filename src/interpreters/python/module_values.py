"""From JSON to the values that a function's annotations name, and from what it returns to JSON."""

import collections.abc
import dataclasses
import datetime
import enum
import os
import sys
import types
import typing

from _sekisho_errors import clean
from _sekisho_module_names import is_number

MAX_DEPTH = 60
MAX_PATH = 200

UNIONS = (typing.Union, types.UnionType)
WRAPPERS = ("Required", "NotRequired", "ReadOnly")
PARSED = (datetime.datetime, datetime.date, datetime.time)


class Unacceptable(Exception):
    """An argument that its type does not admit."""

    def __init__(self, path, message):
        super().__init__(message)
        self.path = path[:MAX_PATH]
        self.message = message


def arguments_of(function, arguments):
    """The arguments as the annotations of a function say.

    Raises `Unacceptable`."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {name: value_of(value, hints.get(name), f"/{name}") for name, value in arguments.items()}


def value_of(value, hint, path):
    """A value of JSON as its type says."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return value_of(value, hint.__origin__, path)
    if getattr(origin, "_name", None) in WRAPPERS:
        return value_of(value, typing.get_args(hint)[0], path)
    if isinstance(hint, getattr(typing, "TypeAliasType", ())):
        return value_of(value, hint.__value__, path)
    if origin in UNIONS:
        return _of_union(value, typing.get_args(hint), path)
    if origin is not None:
        return _of_generic(value, origin, typing.get_args(hint), path)
    if isinstance(hint, type):
        return _of_class(value, hint, path)
    return value


def _of_union(value, members, path):
    """The first member that the value fits: a text is a date before it is a text. One that fits none is refused with
    the words of the first that cannot be made of it."""
    fitting = [member for member in members if _is_of_kind(value, member)]
    if not fitting:
        fitting = [member for member in members if not _is_plain(member)]
    refused = None
    for member in sorted(fitting, key=_is_plain):
        try:
            return value_of(value, member, path)
        except Unacceptable as error:
            refused = refused or error
    if refused:
        raise refused
    return value


def _is_plain(member):
    return member in (str, int, float, bool, type(None), object, typing.Any)


def _is_of_kind(value, hint):
    """Whether a value of JSON may become this type, with all that it has in it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_of_kind(value, hint.__origin__)
    if getattr(origin, "_name", None) in WRAPPERS:
        return _is_of_kind(value, parts[0])
    if isinstance(hint, getattr(typing, "TypeAliasType", ())):
        return _is_of_kind(value, hint.__value__)
    if origin is typing.Literal:
        # True is no 1 in JSON.
        return any(value == part and isinstance(value, bool) == isinstance(part, bool) for part in parts)
    if origin in UNIONS:
        return any(_is_of_kind(value, part) for part in parts)
    kind = origin or hint
    if kind in (object, typing.Any) or not isinstance(kind, type):
        return True
    if issubclass(kind, enum.Enum):
        return any(value == member.value for member in kind)
    if issubclass(kind, PARSED):
        return isinstance(value, str)
    if isinstance(value, dict):
        return _is_of_object(value, kind, parts)
    if isinstance(value, list):
        items = [_item(parts, at) for at in range(len(value))] if kind is tuple else [*parts[:1]] * len(value)
        return issubclass(kind, (list, tuple, set, frozenset, collections.abc.Sequence)) and all(
            map(_is_of_kind, value, items or [object] * len(value))
        )
    if issubclass(kind, bool) or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if issubclass(kind, (float, datetime.timedelta)):
        return isinstance(value, (int, float))
    return isinstance(value, kind)


def _is_of_object(value, kind, parts):
    """The same for an object of JSON: one of a dataclass or a TypedDict has its members."""
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        is_whole = getattr(kind, "__required_keys__", frozenset()) <= value.keys()
        return is_whole and all(name in hints and _is_of_kind(item, hints[name]) for name, item in value.items())
    is_object = issubclass(kind, (dict, collections.abc.Mapping))
    return is_object and (len(parts) != 2 or all(_is_of_kind(item, parts[1]) for item in value.values()))


def _of_generic(value, origin, parts, path):
    if isinstance(value, list) and isinstance(origin, type):
        if issubclass(origin, tuple):
            return tuple(value_of(item, _item(parts, at), f"{path}/{at}") for at, item in enumerate(value))
        items = [value_of(item, parts[0], f"{path}/{at}") for at, item in enumerate(value)]
        return origin(items) if issubclass(origin, (set, frozenset)) else items
    if isinstance(value, dict) and len(parts) == 2:
        return {
            value_of(key, parts[0], f"{path}/{key}"): value_of(item, parts[1], f"{path}/{key}")
            for key, item in value.items()
        }
    return value


def _item(parts, at):
    if len(parts) == 2 and parts[1] is Ellipsis:
        return parts[0]
    return parts[at] if at < len(parts) else object


def _of_class(value, kind, path):
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind, include_extras=True)
        members = {name: value_of(item, hints.get(name), f"{path}/{name}") for name, item in value.items()}
        return _made(lambda: kind(**members), path)
    if typing.is_typeddict(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind, include_extras=True)
        return {name: value_of(item, hints.get(name), f"{path}/{name}") for name, item in value.items()}
    if issubclass(kind, enum.Enum):
        return _made(lambda: kind(value), path)
    if issubclass(kind, PARSED) and isinstance(value, str):
        return _made(lambda: kind.fromisoformat(value), path)
    if issubclass(kind, datetime.timedelta):
        return _made(lambda: datetime.timedelta(seconds=value), path)
    if issubclass(kind, (tuple, set, frozenset)) and isinstance(value, list):
        return _made(lambda: kind(value), path)
    return value


def _made(make, path):
    try:
        return make()
    except (ValueError, TypeError, OverflowError) as error:
        raise Unacceptable(path, clean(str(error))) from error


def plain(value, depth=0):
    """What JSON has for a value that a function returned.

    Raises `TypeError` for one that JSON has nothing for."""
    if depth > MAX_DEPTH:
        raise TypeError(f"the result is nested deeper than {MAX_DEPTH} levels: return less of it")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, str):
        return clean(str(value))
    if isinstance(value, (int, float)):
        if not is_number(value):
            shown = f"number {value}" if isinstance(value, float) else f"integer of {value.bit_length()} bits"
            raise TypeError(f"the result has the {shown}, which JSON does not have: return None or a text instead")
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, dict):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    if isinstance(value, PARSED):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return _of_library(value, depth)


def _of_library(value, depth):
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Numbers and arrays of numpy, and columns of pandas.
    if hasattr(value, "tolist"):
        return plain(value.tolist(), depth + 1)
    decimal, uuid = sys.modules.get("decimal"), sys.modules.get("uuid")
    if decimal and isinstance(value, decimal.Decimal):
        return plain(int(value) if value == value.to_integral_value() else float(value), depth)
    if uuid and isinstance(value, uuid.UUID):
        return str(value)
    name = type(value).__qualname__
    instead = 'frame.to_dict("records")' if name == "DataFrame" else "a dict, a list, a text, a number or a dataclass"
    raise TypeError(f"the result has a value of type {name}, which JSON does not have: return {instead}")


def _key(key):
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return clean(str(key))
    raise TypeError(f"the result has a key of type {type(key).__qualname__}, and keys of JSON are texts: return str(key)")
