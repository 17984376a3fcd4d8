"""The wire codec: encodes parameters and decodes columns, as text except for bytes and the numbers of large results.

PostgreSQL's text cannot hold NUL, which ids from a model or a tool may contain. NUL and the escape character are
written as two characters. JSON never contains either of them unescaped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from recollect.errors import InvalidValue

EncodedValue = bytes | bytearray | None
"""An encoded parameter: bytes are sent in text format, a bytearray in binary format."""

_ESCAPE = b"\x10"  # U+0010 (DLE), which hardly any text contains
_NUL, _ESCAPED_NUL, _ESCAPED_ESCAPE = b"\0", b"\x100", b"\x10p"
_HEXADECIMAL = b"\\x"  # prefix of bytea in text format if bytea_output is `hex`, the default
_BYTEA_ESCAPE = re.compile(rb"\\(?:\\|([0-3][0-7]{2}))")  # bytea in text format if bytea_output is `escape`
# An escaped backslash is matched first and skipped, so that the text `\\u0010` is not taken for an escape.
_ESCAPE_IN_JSON = re.compile(rb"\\\\|\\u0010([0p])")

_INTEGERS = (20, 21, 23, 26, 1700)  # OIDs of int8, int2, int4, oid and numeric
_FLOAT = 701  # OID of float8
_ARRAY = struct.Struct("!iiIii")  # dimensions, has NULLs, OID of the elements, length, lower bound
_LENGTH = struct.Struct("!i")
_NULL_LENGTH = _LENGTH.pack(-1)
_DOUBLE = struct.Struct("!d")
_BOOLEAN, BYTES, TEXT, _JSON, RAW = 16, 17, 25, 114, 1043  # OIDs. RAW is varchar: JSON that stays bytes


def encode_parameter(value: Any) -> EncodedValue:
    """Encode a parameter: bytes in binary format, everything else in text format."""
    kind = type(value)
    if kind is str:
        return _encode_text(value)
    if kind is int:
        return b"%d" % value
    if value is None:
        return None
    if kind is bool:
        return b"t" if value else b"f"
    if isinstance(value, str):  # str() of an Enum of strings returns the name of the member, not its value
        return _encode_text(str.__str__(value))
    if isinstance(value, int):
        return b"%d" % value
    return bytearray(value) if kind is bytes else _encode_text(str(value))


def encode_integers(values: Sequence[int | None]) -> EncodedValue:
    """Encode an array of integers; an array of NULLs only is encoded as NULL."""
    if values.count(None) == len(values):
        return None
    return b"{%s}" % b",".join([b"%d" % value if type(value) is int else _quote_element(value) for value in values])


def _quote_element(value: Any) -> bytes:
    """Encode NULL, or a value that is not an integer, as an array element; the server refuses the latter."""
    data = encode_parameter(value)
    return b"NULL" if data is None else b'"%s"' % data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def encode_texts(values: Sequence[str | None]) -> EncodedValue:
    """Encode an array of texts in binary format, in which nothing needs to be quoted."""
    if values.count(None) == len(values):
        return None
    pieces = [_ARRAY.pack(1, None in values, TEXT, len(values), 1)]
    for value in values:
        data = encode_parameter(value)
        if data is None:
            pieces.append(_NULL_LENGTH)
        else:
            pieces += [_LENGTH.pack(len(data)), bytes(data)]
    return bytearray(b"".join(pieces))


def _encode_text(text: str) -> bytes:
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


def _decode_text(data: bytes) -> str:
    if _ESCAPE in data:
        # In the opposite order: an escape character that is followed by a "0" of the text must not become NUL.
        data = data.replace(_ESCAPED_NUL, _NUL).replace(_ESCAPED_ESCAPE, _ESCAPE)
    return data.decode()


def decode_notification_text(text: str) -> str:
    """Decode a text that did not arrive as a column, such as the payload of a notification."""
    return _decode_text(text.encode())


def _decode_json(data: bytes) -> str:
    """Decode a JSON array that the server built from columns; the escape character is itself escaped in it."""
    if b"\\u0010" in data:
        data = _ESCAPE_IN_JSON.sub(
            lambda match: match[0] if match[1] is None else _unescape_json_escape(match[1]), data
        )
    return data.decode()


def _unescape_json_escape(letter: bytes) -> bytes:
    return b"\\u0000" if letter == b"0" else b"\\u0010"


def _decode_json_text(text: str) -> str:
    return _decode_json(text.encode())


escape_marks: dict[int, tuple[str, Callable[[str], str]]] = {
    TEXT: ("\x10", decode_notification_text),
    _JSON: ("\\u0010", _decode_json_text),
}
"""The escape character as it appears in a text of each type, and the function that removes the escapes."""


def _decode_boolean(data: bytes) -> bool:
    return data == b"t"


def _decode_bytes(data: bytes) -> bytes:
    if data.startswith(_HEXADECIMAL):
        return bytes.fromhex(data[2:].decode())
    return _BYTEA_ESCAPE.sub(lambda match: b"\\" if match[1] is None else bytes((int(match[1], 8),)), data)


_TEXT_DECODERS: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys(_INTEGERS, int),
    _FLOAT: float,
    _BOOLEAN: _decode_boolean,
    BYTES: _decode_bytes,
    TEXT: _decode_text,
    _JSON: _decode_json,
}


def _decode_binary_integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _decode_binary_float(data: bytes) -> float:
    return _DOUBLE.unpack(data)[0]


_BINARY_DECODERS: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys((20, 21, 23), _decode_binary_integer),
    _FLOAT: _decode_binary_float,
    _BOOLEAN: any,
    TEXT: _decode_text,
    _JSON: _decode_json,
}


def column_decoder(kind: int, *, binary: bool = False) -> Callable[[bytes], Any] | None:
    """Return the decoder of a column type; None if the column stays bytes (RAW)."""
    if kind == RAW:
        return None
    return _BINARY_DECODERS[kind] if binary else _TEXT_DECODERS.get(kind, _decode_text)
