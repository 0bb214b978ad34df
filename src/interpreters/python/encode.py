"""Encodes the value of a program's last expression as bounded JSON, with `$type` where JSON has no such type.

JSON values stay as they are. Dates and times are ISO 8601 text; decimals, paths and UUIDs are their text. Any other
value is an object with the key `$type`. `truncated` marks an incomplete value.

The value is untrusted: its methods may raise, recurse, or return wrong results. None of that may end the run, and
no value is too deep or too long.
"""

import base64
import dataclasses
import datetime
import decimal
import itertools
import json
import math
import sys

from _sekisho_errors import clean

MAX_DEPTH = 24
MAX_ITEMS = 50_000
MAX_TEXT = 64 << 10
# How often a value is encoded until it fits, each time less of it.
MAX_ATTEMPTS = 5
MAX_NAME = 200
# Readers that keep numbers as binary64 are exact up to here (RFC 8259, section 6).
SAFE_INTEGER = 1 << 53


def encode(value, max_bytes):
    """`value` as JSON, of at most `max_bytes`."""
    bytes_left = max_bytes
    for _ in range(MAX_ATTEMPTS):
        encoder = _Encoder(bytes_left)
        text = json.dumps(encoder.encode(value, 0))
        if len(text) <= max_bytes:
            break
        # Numbers may be longer than they are counted.
        bytes_left = bytes_left * max_bytes // len(text) * 9 // 10
    else:
        text = json.dumps(encoder.tagged("repr", value=f"<{_type_name(value)[:MAX_NAME]} left out>", truncated=True))
    if encoder.has_replaced:
        message = "the result has lone surrogates, which JSON cannot carry: each is U+FFFD now"
        print(message, file=sys.__stderr__, flush=True)
    return text


class _Encoder:
    def __init__(self, max_bytes):
        self.bytes_left = max_bytes
        self.items_left = MAX_ITEMS
        # Ids of the containers around the current value: one that contains itself is truncated.
        self.around = set()
        # Whether a text had characters that cannot be encoded.
        self.has_replaced = False

    def encode(self, value, depth):
        self.items_left -= 1
        self.bytes_left -= 8
        try:
            for kinds, method in _SCALARS:
                if isinstance(value, kinds):
                    return method(self, value)
            if depth >= MAX_DEPTH or id(value) in self.around:
                return self.tagged("repr", value=f"<{_type_name(value)} left out>", truncated=True)
            self.around.add(id(value))
            try:
                return self.container(value, depth + 1)
            finally:
                self.around.discard(id(value))
        except BaseException as error:
            return self.tagged("unreadable", of=_type_name(value), error=_type_name(error))

    def container(self, value, depth):
        if isinstance(value, dict):
            return self.dictionary(value, depth)
        if isinstance(value, tuple) and hasattr(type(value), "_fields"):
            fields = zip(type(value)._fields, tuple.__iter__(value))
            return self.tagged("namedtuple", name=_type_name(value), fields=self.pairs(fields, depth))
        if isinstance(value, (list, tuple)):
            return self.sequence(value, len(value), depth)
        if isinstance(value, (set, frozenset)):
            return self.tagged("set", items=self.sequence(value, len(value), depth))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            return self.tagged("dataclass", name=_type_name(value), fields=self.pairs(fields, depth))
        numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
        if numpy and isinstance(value, numpy.generic):
            item = value.item()
            return self.representation(value) if isinstance(item, numpy.generic) else self.encode(item, depth)
        if numpy and isinstance(value, numpy.ndarray):
            return self.array(value, depth)
        if pandas and isinstance(value, pandas.DataFrame):
            return self.frame(value, depth)
        if pandas and isinstance(value, pandas.Series):
            return self.series(value, depth)
        if pandas and isinstance(value, pandas.Index):
            return self.tagged("index", items=self.sequence(value, len(value), depth, self.cell))
        if pandas and (value is pandas.NaT or value is pandas.NA):
            return None
        return self.representation(value)

    def tagged(self, kind, **parts):
        self.bytes_left -= 32
        return {"$type": kind, **parts}

    def text(self, value):
        return self.cut(str.__str__(value))

    def cut(self, text):
        cut = text[: max(0, min(MAX_TEXT, self.bytes_left))]
        kept = clean(cut)
        self.has_replaced |= kept is not cut and kept != cut
        cost = len(json.dumps(kept))
        if cost > self.bytes_left:
            # A character is at most twelve bytes of JSON: an escaped pair of surrogates.
            kept = kept[: max(0, self.bytes_left) // 12]
            cost = len(json.dumps(kept))
        self.bytes_left -= cost
        return kept if len(kept) == len(text) else kept + f"… ({len(text)} characters in all)"

    def integer(self, value):
        if -SAFE_INTEGER <= value <= SAFE_INTEGER:
            return int(value)
        if value.bit_length() > 8 * 1024:
            return self.tagged("int", bits=value.bit_length(), truncated=True)
        return self.tagged("int", value=self.cut(str(int(value))))

    def float(self, value):
        if math.isfinite(value):
            return float(value)
        return self.tagged("float", value="NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")

    def bytes(self, value):
        kept = value[: max(0, min(MAX_TEXT, self.bytes_left))]
        self.bytes_left -= len(kept) * 4 // 3
        cut = {"truncated": True, "length": len(value)} if len(kept) < len(value) else {}
        return self.tagged("bytes", base64=base64.b64encode(kept).decode(), **cut)

    def dictionary(self, value, depth):
        items = dict.items(value)
        if all(type(key) is str and key != "$type" for key in dict.keys(value)):
            encoded = self.pairs(items, depth)
            if len(encoded) == len(value):
                return encoded
            return self.tagged("dict", items=encoded, truncated=True, length=len(value))
        pairs = [(key, item) for key, item in itertools.islice(items, self.items_left + 1)]
        return self.tagged("dict", pairs=self.sequence(pairs, len(value), depth))

    def pairs(self, items, depth):
        encoded = {}
        for key, item in items:
            if self.full():
                break
            encoded[self.cut(key)] = self.encode(item, depth)
        return encoded

    def sequence(self, items, length, depth, encode=None):
        encoded = []
        for item in items:
            if self.full():
                return self.tagged("list", items=encoded, truncated=True, length=length)
            encoded.append((encode or self.encode)(item, depth))
        return encoded

    def full(self):
        return self.bytes_left <= 0 or self.items_left <= 0

    def array(self, value, depth):
        shape, kind = list(value.shape), str(value.dtype)
        if value.size > self.items_left:
            # Row by row would copy what is not returned.
            value = value.reshape(-1)[: self.items_left]
            return self.tagged("ndarray", shape=shape, dtype=kind, flat=self.sequence(value.tolist(), len(value), depth),
                               truncated=True)
        data = value.tolist()
        encoded = self.sequence(data, len(data), depth) if isinstance(data, list) else self.encode(data, depth)
        return self.tagged("ndarray", shape=shape, dtype=kind, data=encoded)

    def frame(self, value, depth):
        shape = list(value.shape)
        rows = min(shape[0], self.items_left // max(1, shape[1]))
        shown = value.iloc[:rows, : self.items_left]
        columns = self.sequence(list(shown.columns), shape[1], depth, self.cell)
        index, encoded = [], []
        for label, row in zip(shown.index, shown.itertuples(index=False, name=None)):
            if self.full():
                break
            index.append(self.cell(label, depth))
            encoded.append([self.cell(item, depth) for item in row])
        cut = {"truncated": True} if len(encoded) < shape[0] or shown.shape[1] < shape[1] else {}
        return self.tagged("dataframe", columns=columns, dtypes=[str(kind) for kind in shown.dtypes], index=index,
                           rows=encoded, shape=shape, **cut)

    def series(self, value, depth):
        index, data = [], []
        for label, item in value.items():
            if self.full():
                break
            index.append(self.cell(label, depth))
            data.append(self.cell(item, depth))
        cut = {"truncated": True} if len(data) < len(value) else {}
        return self.tagged("series", name=self.cell(value.name, depth), dtype=str(value.dtype), index=index, data=data,
                           length=len(value), **cut)

    def cell(self, item, depth):
        """A table's missing values are null."""
        pandas = sys.modules.get("pandas")
        if (isinstance(item, float) and item != item) or item is pandas.NaT or item is pandas.NA:
            self.items_left -= 1
            self.bytes_left -= 8
            return None
        return self.encode(item, depth)

    def representation(self, value):
        return self.tagged("repr", value=self.cut(str.__str__(repr(value))), type=_type_name(value))


def _nothing(_encoder, value):
    return value


def _iso(encoder, value):
    # pandas' NaT is a datetime that is not equal to itself.
    return encoder.cut(value.isoformat()) if value == value else None


def _plain_text(encoder, value):
    return encoder.cut(str(value))


def _seconds(encoder, value):
    return encoder.tagged("timedelta", seconds=value.total_seconds())


def _complex(encoder, value):
    return encoder.tagged("complex", real=encoder.float(value.real), imaginary=encoder.float(value.imag))


def _type_name(value):
    kind = type(value)
    return clean(type.__getattribute__(kind, "__qualname__"))


# In this order: a bool is an int.
_SCALARS = [
    ((type(None), bool), _nothing),
    (str, _Encoder.text),
    (int, _Encoder.integer),
    (float, _Encoder.float),
    (complex, _complex),
    ((bytes, bytearray), _Encoder.bytes),
    ((datetime.date, datetime.time), _iso),
    (datetime.timedelta, _seconds),
    (decimal.Decimal, _plain_text),
]
