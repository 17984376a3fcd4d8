"""Values on their way to the server and back. Everything travels as text, except bytes, and numbers of many rows.

PostgreSQL's text has no NUL, which ids that come from a model or a tool may have: it is written as two characters, and
so is the one that marks it. JSON never has either of them bare.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from recollect.errors import InvalidValue

Value = bytes | bytearray | None
"""A parameter as it is sent; bytearray is what is sent as it is, not as text."""

_MARK = b"\x10"
_NUL, _MARKED_NUL, _MARKED_MARK = b"\0", b"\x100", b"\x10p"
_HEXADECIMAL = b"\\x"
_ESCAPED = re.compile(rb"\\(?:\\|([0-3][0-7]{2}))")  # how bytes come where bytea_output is `escape`
_IN_JSON = re.compile(rb"\\\\|\\u0010([0p])")

_INTEGERS = (20, 21, 23, 26, 1700)
_FLOAT = 701
_ARRAY = struct.Struct("!iiIii")  # dimensions, whether any is NULL, type, how many, number of the first
_LENGTH = struct.Struct("!i")
_NO_TEXT = _LENGTH.pack(-1)
_DOUBLE = struct.Struct("!d")
_BOOLEAN, BYTES, TEXT, _JSON, RAW = 16, 17, 25, 114, 1043


def written(value: Any) -> Value:
    """Write a parameter."""
    kind = type(value)
    if kind is str:
        return _escaped(value)
    if kind is int:
        return b"%d" % value
    if value is None:
        return None
    if kind is bool:
        return b"t" if value else b"f"
    if isinstance(value, str):  # an Enum whose values are texts says its name where it is asked for a text
        return _escaped(str.__str__(value))
    if isinstance(value, int):
        return b"%d" % value
    return bytearray(value) if kind is bytes else _escaped(str(value))


def integers(values: Sequence[int | None]) -> Value:
    """Write an array of whole numbers; one of nothing but NULL is NULL."""
    if values.count(None) == len(values):
        return None
    return b"{%s}" % b",".join([b"%d" % value if type(value) is int else _quoted(value) for value in values])


def _quoted(value: Any) -> bytes:
    """Write what is no whole number as one value of an array, for the server to refuse it."""
    data = written(value)
    return b"NULL" if data is None else b'"%s"' % data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def texts(values: Sequence[str | None]) -> Value:
    """Write an array of texts as the server has it, in which nothing needs a mark of its own before it."""
    if values.count(None) == len(values):
        return None
    pieces = [_ARRAY.pack(1, None in values, TEXT, len(values), 1)]
    for value in values:
        data = written(value)
        if data is None:
            pieces.append(_NO_TEXT)
        else:
            pieces += [_LENGTH.pack(len(data)), bytes(data)]
    return bytearray(b"".join(pieces))


def _escaped(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            "A text has half of a surrogate pair, which can not be stored. Join them or drop it."
        ) from error
    if _NUL in data or _MARK in data:
        return data.replace(_MARK, _MARKED_MARK).replace(_NUL, _MARKED_NUL)
    return data


def _text(data: bytes) -> str:
    if _MARK in data:
        data = data.replace(_MARKED_NUL, _NUL).replace(_MARKED_MARK, _MARK)
    return data.decode()


def heard(text: str) -> str:
    """Read a text that came another way than as a column."""
    return _text(text.encode())


def _json(data: bytes) -> str:
    """Read an array that the server made of columns, where the mark is written as JSON writes it."""
    if b"\\u0010" in data:
        data = _IN_JSON.sub(lambda found: found[0] if found[1] is None else _meant(found[1]), data)
    return data.decode()


def _meant(letter: bytes) -> bytes:
    return b"\\u0000" if letter == b"0" else b"\\u0010"


def _remade(text: str) -> str:
    return _json(text.encode())


marks: dict[int, tuple[str, Callable[[str], str]]] = {TEXT: ("\x10", heard), _JSON: ("\\u0010", _remade)}
"""What a text of a type has in it where it is not what was meant, and how that is read."""


def _boolean(data: bytes) -> bool:
    return data == b"t"


def _bytes(data: bytes) -> bytes:
    if data.startswith(_HEXADECIMAL):
        return bytes.fromhex(data[2:].decode())
    return _ESCAPED.sub(lambda found: b"\\" if found[1] is None else bytes((int(found[1], 8),)), data)


_READ: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys(_INTEGERS, int),
    _FLOAT: float,
    _BOOLEAN: _boolean,
    BYTES: _bytes,
    TEXT: _text,
    _JSON: _json,
}


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _float(data: bytes) -> float:
    return _DOUBLE.unpack(data)[0]


_READ_BINARY: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys((20, 21, 23), _number),
    _FLOAT: _float,
    _BOOLEAN: any,
    TEXT: _text,
    _JSON: _json,
}


def reader(kind: int, *, binary: bool = False) -> Callable[[bytes], Any] | None:
    """Say how a column of a type is read; None is what stays bytes: varchar, for JSON that is read as bytes."""
    if kind == RAW:
        return None
    return _READ_BINARY[kind] if binary else _READ.get(kind, _text)
