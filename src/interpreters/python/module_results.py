"""From what a function returns to JSON."""

import base64
import dataclasses
import datetime
import decimal
import enum
import os
import uuid

from _sekisho_errors import clean
from _sekisho_module_names import is_number

MAX_DEPTH = 60
PARSED = (datetime.datetime, datetime.date, datetime.time)


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
        members = {_key(key): plain(item, depth + 1) for key, item in value.items()}
        if len(members) != len(value):
            raise TypeError("the result has two keys with the same text, of which JSON has one: return other keys")
        return members
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    if isinstance(value, PARSED):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(type(value), "model_dump"):
        return plain(value.model_dump(mode="json", by_alias=True), depth + 1)
    return _of_library(value, depth)


def _decimal(value):
    """A number where it has all the digits, and a text elsewhere."""
    if not value.is_finite():
        raise TypeError(f"the result has the number {value}, which JSON does not have: return None or a text instead")
    is_short = value.adjusted() < 20
    if is_short and value == value.to_integral_value() and is_number(int(value)):
        return int(value)
    number = float(value)
    return number if decimal.Decimal(repr(number)) == value else str(value)


def _of_library(value, depth):
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Numbers and arrays of numpy, and columns of pandas.
    if hasattr(value, "tolist"):
        return plain(value.tolist(), depth + 1)
    name = type(value).__qualname__
    instead = 'frame.to_dict("records")' if name == "DataFrame" else "a dict, a list, a text, a number or a dataclass"
    raise TypeError(f"the result has a value of type {name}, which JSON does not have: return {instead}")


def _key(key):
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(int(key))
    if isinstance(key, str):
        return clean(str(key))
    raise TypeError(f"the result has a key of type {type(key).__qualname__}, and keys of JSON are texts: return str(key)")
