"""`tools.result("…")`: a stored result as values. Of what is a table, a DataFrame where pandas is imported.

No value changes on the way. A column has numbers only where all its values are written as numbers are; it is text where
one has a leading zero, or more digits than all readers of numbers keep.
"""

import csv
import io
import itertools
import re
import sys

from _sekisho_tool_calls import call, call_in_coroutine

# The tool that reads stored results.
READ_RESULT = "read_result"

DELIMITERS = ",;\t"
# Records by which CSV is recognized.
MAX_EXAMINED = 100

# A binary64 keeps so many decimal digits.
MAX_DIGITS = 15
INTEGER = re.compile(r"0|-?[1-9][0-9]*")
# An exponent without a sign or a point can be the name of something: 1E5.
DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?")
TRUTHS = {"True": True, "False": False, "true": True, "false": False, "TRUE": True, "FALSE": False}
# Integers up to here have a floating-point number of their own.
SAFE_INTEGER = 1 << 53


def opened(handle):
    """The value of a result."""
    return _value(call(READ_RESULT, _arguments(handle)))


async def opened_in_coroutine(handle):
    """The same, while other tasks run."""
    return _value(await call_in_coroutine(READ_RESULT, _arguments(handle)))


def _arguments(handle):
    return {"handle": handle, "whole": True}


def _value(result):
    # A program that wants tables has imported it, or has it in its profile.
    pandas = sys.modules.get("pandas")
    if "text" in result:
        return _of_text(result["text"], pandas) if pandas else result["text"]
    value = result["value"]
    is_table = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    return _of_rows(value, pandas) if pandas and is_table else value


def _of_rows(rows, pandas):
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    return pandas.DataFrame({name: _column([row.get(name) for row in rows], pandas) for name in names})


def _of_text(text, pandas):
    delimiter = next((delimiter for delimiter in DELIMITERS if _is_csv(text, delimiter)), None)
    if delimiter is None:
        return text
    try:
        names, *rows = _records(text, delimiter)
        columns = zip(*rows, strict=True)
        return pandas.DataFrame({name: _column(_parsed(values), pandas) for name, values in zip(names, columns, strict=True)})
    except (csv.Error, ValueError):
        # It is no CSV further on.
        return text


def _is_csv(text, delimiter):
    """Whether a text begins with a row of different names, and rows of as many values follow."""
    try:
        names, *rows = itertools.islice(_records(text, delimiter), MAX_EXAMINED)
    except (csv.Error, ValueError):
        return False
    is_head = len(names) > 1 and all(name.strip() for name in names) and len(set(names)) == len(names)
    return is_head and bool(rows) and all(len(row) == len(names) for row in rows)


def _records(text, delimiter):
    return filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))


def _parsed(texts):
    """The values of a column of CSV; an empty one is missing where the others are no text."""
    present = [text for text in texts if text]
    if not present:
        return texts
    if all(text in TRUTHS for text in present):
        return [TRUTHS.get(text) for text in texts]
    if all(INTEGER.fullmatch(text) and len(text.lstrip("-")) <= MAX_DIGITS for text in present):
        return [int(text) if text else None for text in texts]
    if all(map(DECIMAL.fullmatch, present)) and (all(map(_is_shortest, present)) or _is_of_one_length(present)):
        return [float(text) if text else None for text in texts]
    return texts


def _is_shortest(text):
    return repr(float(text)) in (text.lower(), text + ".0")


def _is_of_one_length(texts):
    """Whether all have as many digits after the point, as amounts of money have, and as versions (1.9, 1.10) have not."""
    lengths = {len(text.partition(".")[2]) for text in texts}
    are_short = all(sum(map(str.isdigit, text)) <= MAX_DIGITS and "e" not in text.lower() for text in texts)
    return len(lengths) == 1 and are_short


def _column(values, pandas):
    """A column of a table, of a type that holds each of its values as it is, and what is missing as missing."""
    kinds = {type(value) for value in values if value is not None}
    has_missing = any(value is None for value in values)
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in values if value is not None):
        return pandas.array(values, dtype="Int64") if has_missing else values
    if kinds == {bool} and has_missing:
        return pandas.array(values, dtype="boolean")
    if kinds == {int, float} and all(abs(value) <= SAFE_INTEGER for value in values if type(value) is int):
        return values
    is_mixed = len(kinds) > 1 or kinds == {int}
    return pandas.Series(values, dtype=object) if is_mixed else values
