"""`tools.result("…")`: a stored result as values. Of what is a table, a DataFrame where pandas is imported."""

import csv
import io
import itertools
import sys

from _sekisho_tool_calls import call, call_in_coroutine

# The tool that reads stored results.
READ_RESULT = "read_result"

DELIMITERS = ",;\t"
# Records by which CSV is recognized.
MAX_EXAMINED = 100


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
        return _of_text(result["text"], pandas)
    value = result["value"]
    is_table = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    return pandas.DataFrame(value) if pandas and is_table else value


def _of_text(text, pandas):
    delimiter = pandas and next((delimiter for delimiter in DELIMITERS if _is_csv(text, delimiter)), None)
    try:
        return pandas.read_csv(io.StringIO(text), sep=delimiter) if delimiter else text
    except ValueError:
        # It is no CSV further on.
        return text


def _is_csv(text, delimiter):
    """Whether a text begins with a row of different names, and rows of as many values follow."""
    try:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names, *rows = itertools.islice(filter(None, records), MAX_EXAMINED)
    except (csv.Error, ValueError):
        return False
    is_head = len(names) > 1 and all(name.strip() for name in names) and len(set(names)) == len(names)
    return is_head and bool(rows) and all(len(row) == len(names) for row in rows)
