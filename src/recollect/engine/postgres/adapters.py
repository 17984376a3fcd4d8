"""psycopg adapters for parameters and columns: integers sent as text, JSON columns left undecoded, and NUL in texts.

PostgreSQL's text cannot hold NUL, which ids from a model or a tool may contain. NUL and the escape character are
written as two characters. JSON never contains either of them unescaped.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.types.bool import BoolDumper
from psycopg.types.numeric import FloatDumper, Int8Dumper, NumericBinaryLoader
from psycopg.types.string import ByteaBinaryLoader, TextBinaryLoader

from recollect.errors import InvalidValue
from recollect.storage.operation import Row

_ESCAPE = b"\x10"  # U+0010 (DLE), which hardly any text contains
_NUL, _ESCAPED_NUL, _ESCAPED_ESCAPE = b"\0", b"\x100", b"\x10p"
# An escaped backslash is matched first and skipped, so that the text `\\u0010` is not taken for an escape.
_ESCAPE_IN_JSON = re.compile(r"\\\\|\\u0010([0p])")
_INTEGER, _TEXT, _JSON, _INTEGERS, _TEXTS = 20, 25, 114, 1016, 1009  # OIDs of int8, text, json, int8[] and text[]
_ARRAY_HEAD = struct.Struct("!iiIii")  # dimensions, has NULLs, OID of the elements, length, lower bound
_LENGTH = struct.Struct("!i")  # of the next element
_INTEGER_ELEMENT = struct.Struct("!iq")
_NULL_ELEMENT = _LENGTH.pack(-1)


def decode_text(text: str) -> str:
    """Return a text without its escapes."""
    # In the opposite order: an escape character that is followed by a "0" of the text must not become NUL.
    return text.replace("\x100", "\0").replace("\x10p", "\x10")


def decode_json(text: str) -> str:
    """Return a JSON array that the server built from columns, without the escapes, whose character JSON escapes too."""
    return _ESCAPE_IN_JSON.sub(
        lambda match: match[0] if match[1] is None else "\\u0000" if match[1] == "0" else "\\u0010", text
    )


def encode_text(text: str) -> bytes:
    """Return a text in UTF-8, with NUL and the escape character escaped."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            "A text contains an unpaired surrogate, which cannot be stored. Replace or remove it."
        ) from error
    if _NUL in data or _ESCAPE in data:
        # The escape character first: afterwards it would be escaped again where it marks a NUL.
        return data.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_NUL, _ESCAPED_NUL)
    return data


class _TextDumper(Dumper):
    """Dumps a string as text, from which the server infers the type."""

    def dump(self, obj: str) -> bytes:
        """Return the encoded string."""
        return encode_text(obj)


class IntegerArray(tuple[int | None, ...]):
    """A parameter of type `bigint[]`; any other tuple is one of type `text[]`."""

    __slots__ = ()


# Both dump a tuple as an array of one dimension in binary format, in which no element needs to be quoted. psycopg's
# ListBinaryDumper, which looks for types and dimensions and calls a dumper for each element, took 13% more client CPU
# for append() (instructions that callgrind counts).


class _TextArrayDumper(Dumper):
    format = pq.Format.BINARY
    oid = _TEXTS

    def dump(self, obj: tuple[str | None, ...]) -> bytes:
        pieces = [_ARRAY_HEAD.pack(1, None in obj, _TEXT, len(obj), 1)]
        for value in obj:
            if value is None:
                pieces.append(_NULL_ELEMENT)
            else:
                data = encode_text(value)
                pieces += (_LENGTH.pack(len(data)), data)
        return b"".join(pieces)


class _IntegerArrayDumper(Dumper):
    format = pq.Format.BINARY
    oid = _INTEGERS

    def dump(self, obj: IntegerArray) -> bytes:
        head = _ARRAY_HEAD.pack(1, None in obj, _INTEGER, len(obj), 1)
        return head + b"".join([_NULL_ELEMENT if value is None else _INTEGER_ELEMENT.pack(8, value) for value in obj])


class _IntegerLoader(NumericBinaryLoader):
    """Loads a numeric as an integer: the queries only return it from sum()."""

    def load(self, data: Buffer) -> int:  # type: ignore[override]
        return int(super().load(data))


def register_adapters(adapters: AdaptersMap) -> None:
    """Set how a connection dumps parameters and loads columns."""
    # Parameters are sent as text because their type is not sent: the server infers it.
    for kind, dumper in (
        (int, Int8Dumper),
        (float, FloatDumper),
        (bool, BoolDumper),
        (str, _TextDumper),
        (tuple, _TextArrayDumper),
        (IntegerArray, _IntegerArrayDumper),
    ):
        adapters.register_dumper(kind, dumper)
    adapters.register_loader("json", TextBinaryLoader)
    adapters.register_loader("varchar", ByteaBinaryLoader)  # JSON that stays bytes
    adapters.register_loader("numeric", _IntegerLoader)


class EscapedColumn(NamedTuple):
    """A column whose texts may contain escapes."""

    number: int
    get_cell: Callable[[Row], str | None]
    mark: str
    """The escape character as it appears in a text of the column's type."""
    decode: Callable[[str], str]


_ESCAPES: dict[int, tuple[str, Callable[[str], str]]] = {_TEXT: ("\x10", decode_text), _JSON: ("\\u0010", decode_json)}


def escaped_columns(result: pq.abc.PGresult) -> list[EscapedColumn]:
    """Return the columns of a result that may contain escapes."""
    kinds = [result.ftype(number) for number in range(result.nfields)]
    return [
        EscapedColumn(number, operator.itemgetter(number), *_ESCAPES[kind])
        for number, kind in enumerate(kinds)
        if kind in _ESCAPES
    ]


def remove_escapes(rows: list[Row], columns: Sequence[EscapedColumn]) -> list[Row]:
    """Return the rows of a result with the escapes of these columns decoded.

    A psycopg loader in Python, called for each cell, took 40% more client CPU for a list of 50 sessions and 16% more
    for 10,000 messages.
    """
    for number, get_cell, mark, decode in columns:
        # One search in the joined column: nearly no text contains the escape character.
        if mark in "".join(filter(None, map(get_cell, rows))):
            rows = [(*row[:number], row[number] and decode(row[number]), *row[number + 1 :]) for row in rows]
    return rows
