"""Reading what is imported, piece by piece: JSON lines, or a JSON document of any size and layout.

A piece is the text of one JSON value and the line that it begins on. What is damaged is passed over and said: the
pieces after it are read all the same, as far as they can be told apart.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, displayed
from recollect.export.records import FORMAT

_CHUNK = 1 << 16
_SPACE = " \t\r\n"
_STARTS = re.compile(rb'\s*\{\s*"type"\s*:')
_NEAR = 16
_CUT_OFF = "The file ends in the middle of it."


class Piece(NamedTuple):
    """A JSON value: the line it begins on, and its text; or why there is none."""

    line: int
    text: bytes
    reason: str | None = None


Read = Callable[[int], bytes]


def reader(file: Any) -> Read:
    """Give a function that reads bytes from an open file, of bytes or of text."""

    def read(size: int) -> bytes:
        found = file.read(size)
        return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else found

    return read


def pieces(read: Read) -> Iterator[Piece]:
    """Read a file to its end."""
    start = _start(read).removeprefix(codecs.BOM_UTF8)
    again = _again(start, read)
    if _is_document(start):
        yield from Document(again).pieces()
    else:
        yield from _lines(again)


def _start(read: Read) -> bytes:
    """Read the first line, or the beginning of a long one."""
    found = b""
    while b"\n" not in found.lstrip() and len(found) < _CHUNK * 16:
        more = read(_CHUNK)
        if not more:
            break
        found += more
    return found


def _again(start: bytes, read: Read) -> Read:
    held = [start]

    def from_the_start(size: int) -> bytes:
        if not held:
            return read(size)
        first = held[0][:size]
        held[0] = held[0][size:]
        if not held[0]:
            held.clear()
        return first or read(size)

    return from_the_start


def _is_document(start: bytes) -> bool:
    """Whether a file is one JSON document. JSON lines begin with a whole object; ours with its type."""
    told = start.lstrip()
    if not told.startswith((b"{", b"[")):
        return False
    first = told.split(b"\n", 1)[0]
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return not _STARTS.match(told)
    return isinstance(value, list) or isinstance(value.get("sessions"), list)


def _lines(read: Read) -> Iterator[Piece]:
    held: list[bytes] = []
    number = 1
    while more := read(_CHUNK):
        *whole, rest = more.split(b"\n")
        for line in whole:
            text = b"".join([*held, line]).strip()
            held.clear()
            if text:
                yield Piece(number, text)
            number += 1
        held.append(rest)
    text = b"".join(held).strip()
    if text:
        yield Piece(number, text)


class Document:
    """A JSON document, read from the front: no more of it is held than the value in hand."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._values = json.JSONDecoder()
        self._buffer = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def pieces(self) -> Iterator[Piece]:
        """Read an array, or an object with the arrays that hold what is imported."""
        try:
            if self._peek() == "[":
                yield from self._array()
            elif self._peek() == "{":
                yield from self._object()
        except UnicodeDecodeError:
            yield Piece(self._line, b"", "It is not UTF-8; what follows was not read.")
        except InvalidValue as error:
            yield Piece(self._line, b"", str(error))

    def _object(self) -> Iterator[Piece]:
        """Read the top: its fields become a header, its lists are gone through."""
        header: dict[str, Any] = {}
        line = self._line
        told = False
        for key in self._keys():
            if key in ("sessions", "messages") and self._peek() == "[":
                if key == "sessions":
                    header.setdefault("format", FORMAT)
                if header:
                    told = True
                    yield Piece(line, json.dumps({"type": "header", **header}).encode())
                yield from self._groups() if key == "sessions" else self._array()
            else:
                header[key] = json.loads(self._value())
        if not told and header:
            yield Piece(line, json.dumps(header).encode())

    def _groups(self) -> Iterator[Piece]:
        for _ in self._elements():
            if self._peek() != "{":
                yield Piece(self._line, b"", "It is no session.")
                self._value()
                continue
            for key in self._keys():
                if key == "records" and self._peek() == "[":
                    yield from self._array()
                else:
                    self._value()

    def _array(self) -> Iterator[Piece]:
        for line in self._elements():
            try:
                text = self._value()
            except _Damaged as error:
                yield Piece(line, b"", str(error))
                if not self._skip_line():
                    return
            else:
                yield Piece(line, text.encode("utf-8", "surrogatepass"))

    def _elements(self) -> Iterator[int]:
        """Go through an array: at each element, the line."""
        self._take("[")
        while True:
            while self._peek() == ",":
                self._at += 1
            if self._peek() == "]":
                self._at += 1
                return
            if self._peek() == "":
                raise InvalidValue(_CUT_OFF)
            yield self._line

    def _keys(self) -> Iterator[str]:
        self._take("{")
        while True:
            while self._peek() == ",":
                self._at += 1
            if self._peek() == "}":
                self._at += 1
                return
            key = json.loads(self._value())
            self._take(":")
            self._peek()
            yield str(key)

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise InvalidValue(f"There is no {displayed(mark)} where one is needed; what follows was not read.")
        self._at += 1

    def _peek(self) -> str:
        """Pass over space, and give the character that follows; nothing at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in _SPACE:
                self._line += self._buffer[self._at] == "\n"
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more(_CHUNK):
                return ""

    def _more(self, size: int) -> bool:
        if self._ended:
            return False
        chunk = self._read(size)
        self._ended = not chunk
        self._buffer = self._buffer[self._at :] + self._decoder.decode(chunk, final=self._ended)
        self._at = 0
        return not self._ended or bool(self._buffer)

    def _value(self) -> str:
        """Read one value. What is cut off is read on, in steps that double: a large one is tried a few times."""
        self._peek()
        size = _CHUNK
        while True:
            try:
                _, end = self._values.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated string") or error.pos >= len(self._buffer) - _NEAR
                if not cut_off:
                    raise _Damaged(f"It is not JSON: {error.msg}.") from error
                if not self._more(size):
                    raise (InvalidValue if "\n" not in self._buffer[self._at :] else _Damaged)(_CUT_OFF) from error
                size *= 2
            except RecursionError as error:
                raise InvalidValue("It is nested too deep.") from error
            else:
                if end == len(self._buffer) and self._more(size):
                    continue  # a number may go on
                text = self._buffer[self._at : end]
                self._at = end
                self._line += text.count("\n")
                return text

    def _skip_line(self) -> bool:
        """Go to the next line; False at the end."""
        while True:
            end = self._buffer.find("\n", self._at)
            if end >= 0:
                self._at = end
                return True
            self._at = len(self._buffer)
            if not self._more(_CHUNK):
                return False


class _Damaged(InvalidValue):
    """A value that is not JSON, in a document that may go on after it."""
