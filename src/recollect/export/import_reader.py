"""The reader of imported files: JSON lines, or a JSON document of any size and layout, as a stream of JSON values.

Each value has the number of the line on which it begins. Damaged values are reported and skipped, and reading continues
if the next value can be recognized. The spools at the end hold values and attachments on disk until the import knows
their target.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.export.records import FORMAT

_CHUNK = 1 << 16  # bytes. A typical record fits into one chunk.
_SPACE = " \t\r\n"
_RECORD_START = re.compile(rb'\s*\{\s*"type"\s*:')
_CUT_OFF_MARGIN = 16  # characters. An error this close to the end of the buffer may be a literal or escape cut in two.
_CUT_OFF = "The file ends inside this value."


class JsonText(NamedTuple):
    """The text of a JSON value and the line on which it begins, or the reason why it could not be read."""

    line: int
    text: bytes
    reason: str | None = None


ReadFunction = Callable[[int], bytes]


def bytes_reader(file: Any) -> ReadFunction:
    """Return a function that reads bytes from an open binary or text file."""

    def read(size: int) -> bytes:
        data = file.read(size)
        return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data

    return read


def read_values(read: ReadFunction) -> Iterator[JsonText]:
    """Yield the JSON values of a file."""
    start = _read_start(read).removeprefix(codecs.BOM_UTF8)
    rewound_read = _prepend(start, read)
    if _is_document(start):
        yield from JsonDocumentReader(rewound_read).values()
    else:
        yield from _read_lines(rewound_read)


def _read_start(read: ReadFunction) -> bytes:
    """Return the first line, or up to 1 MiB of a longer one."""
    data = b""
    while b"\n" not in data.lstrip() and len(data) < _CHUNK * 16:
        chunk = read(_CHUNK)
        if not chunk:
            break
        data += chunk
    return data


def _prepend(start: bytes, read: ReadFunction) -> ReadFunction:
    buffer = [start]

    def read_buffered(size: int) -> bytes:
        if not buffer:
            return read(size)
        first = buffer[0][:size]
        buffer[0] = buffer[0][size:]
        if not buffer[0]:
            buffer.clear()
        return first or read(size)

    return read_buffered


def _is_document(start: bytes) -> bool:
    """Return whether a file is one JSON document. JSON lines begin with a complete object, exports with its `type`."""
    text = start.lstrip()
    if not text.startswith((b"{", b"[")):
        return False
    first_line = text.split(b"\n", 1)[0]
    try:
        value = json.loads(first_line)
    except (ValueError, RecursionError):
        return not _RECORD_START.match(text)
    return isinstance(value, list) or isinstance(value.get("sessions"), list)


def _read_lines(read: ReadFunction) -> Iterator[JsonText]:
    fragments: list[bytes] = []
    number = 1
    while chunk := read(_CHUNK):
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            text = b"".join([*fragments, line]).strip()
            fragments.clear()
            if text:
                yield JsonText(number, text)
            number += 1
        fragments.append(tail)
    text = b"".join(fragments).strip()
    if text:
        yield JsonText(number, text)


class JsonDocumentReader:
    """A streaming reader of a JSON document. Memory holds one value at a time."""

    def __init__(self, read: ReadFunction) -> None:
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json_decoder = json.JSONDecoder()
        self._buffer = ""
        self._offset = 0
        self._line = 1
        self._ended = False

    def values(self) -> Iterator[JsonText]:
        """Yield the elements of an array, or of the `sessions` or `messages` array of an object."""
        try:
            if self._peek() == "[":
                yield from self._array()
            elif self._peek() == "{":
                yield from self._object()
        except UnicodeDecodeError:
            yield JsonText(self._line, b"", "Not valid UTF-8. The rest of the file was not read.")
        except InvalidValue as error:
            yield JsonText(self._line, b"", str(error))

    def _object(self) -> Iterator[JsonText]:
        """Yield the other fields of the top-level object as a header, then the elements of its lists."""
        header: dict[str, Any] = {}
        line = self._line
        header_done = False
        for key in self._keys():
            if key in ("sessions", "messages") and self._peek() == "[":
                if key == "sessions":
                    header.setdefault("format", FORMAT)
                if header:
                    header_done = True
                    yield JsonText(line, json.dumps({"type": "header", **header}).encode())
                yield from self._groups() if key == "sessions" else self._array()
            else:
                header[key] = json.loads(self._value())
        if not header_done and header:
            yield JsonText(line, json.dumps(header).encode())

    def _groups(self) -> Iterator[JsonText]:
        for _ in self._elements():
            if self._peek() != "{":
                yield JsonText(self._line, b"", "Not a session.")
                self._value()
                continue
            for key in self._keys():
                if key == "records" and self._peek() == "[":
                    yield from self._array()
                else:
                    self._value()

    def _array(self) -> Iterator[JsonText]:
        for line in self._elements():
            try:
                text = self._value()
            except _DamagedValue as error:
                yield JsonText(line, b"", str(error))
                if not self._skip_line():
                    return
            else:
                yield JsonText(line, text.encode("utf-8", "surrogatepass"))

    def _elements(self) -> Iterator[int]:
        """Yield the line of each element of an array. The caller reads the element."""
        self._expect("[")
        while True:
            while self._peek() == ",":
                self._offset += 1
            if self._peek() == "]":
                self._offset += 1
                return
            if self._peek() == "":
                raise InvalidValue(_CUT_OFF)
            yield self._line

    def _keys(self) -> Iterator[str]:
        self._expect("{")
        while True:
            while self._peek() == ",":
                self._offset += 1
            if self._peek() == "}":
                self._offset += 1
                return
            key = json.loads(self._value())
            self._expect(":")
            self._peek()
            yield str(key)

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise InvalidValue(f"{format_value(character)} expected. The rest of the file was not read.")
        self._offset += 1

    def _peek(self) -> str:
        """Skip whitespace, and return the next character, or "" at the end."""
        while True:
            while self._offset < len(self._buffer) and self._buffer[self._offset] in _SPACE:
                self._line += self._buffer[self._offset] == "\n"
                self._offset += 1
            if self._offset < len(self._buffer):
                return self._buffer[self._offset]
            if not self._fill(_CHUNK):
                return ""

    def _fill(self, size: int) -> bool:
        if self._ended:
            return False
        chunk = self._read(size)
        self._ended = not chunk
        self._buffer = self._buffer[self._offset :] + self._decoder.decode(chunk, final=self._ended)
        self._offset = 0
        return not self._ended or bool(self._buffer)

    def _value(self) -> str:
        """Return the text of one value.

        If the buffer ends inside the value, read more and parse again. The size of the reads doubles, so that a large
        value is parsed only a few times.
        """
        self._peek()
        size = _CHUNK
        while True:
            try:
                _, end = self._json_decoder.raw_decode(self._buffer, self._offset)
            except json.JSONDecodeError as error:
                cut_off = (
                    error.msg.startswith("Unterminated string") or error.pos >= len(self._buffer) - _CUT_OFF_MARGIN
                )
                if not cut_off:
                    raise _DamagedValue(f"Not valid JSON: {error.msg}.") from error
                if not self._fill(size):  # with a line break left, the values after this one may be readable
                    raise (InvalidValue if "\n" not in self._buffer[self._offset :] else _DamagedValue)(
                        _CUT_OFF
                    ) from error
                size *= 2
            except RecursionError as error:
                raise InvalidValue("Nested too deeply.") from error
            else:
                if end == len(self._buffer) and self._fill(size):
                    continue  # a number may continue in the next chunk
                text = self._buffer[self._offset : end]
                self._offset = end
                self._line += text.count("\n")
                return text

    def _skip_line(self) -> bool:
        """Skip to the next line. Return False at the end."""
        while True:
            end = self._buffer.find("\n", self._offset)
            if end >= 0:
                self._offset = end
                return True
            self._offset = len(self._buffer)
            if not self._fill(_CHUNK):
                return False


class _DamagedValue(InvalidValue):
    """A value that is not JSON, in a document whose next value may be readable."""


_IN_MEMORY = 8 << 20  # bytes. Smaller imports need no temporary file.
_LENGTHS = struct.Struct("<QQ")


class Spool:
    """A temporary file of JSON values that can be read several times. Small ones stay in memory."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by close()
        self.count = 0

    def add(self, line: int, text: bytes) -> None:
        """Append a value."""
        self._file.seek(0, 2)
        self._file.write(_LENGTHS.pack(line, len(text)))
        self._file.write(text)
        self.count += 1

    def __iter__(self) -> Iterator[JsonText]:
        offset = 0
        while True:
            self._file.seek(offset)
            lengths = self._file.read(_LENGTHS.size)
            if not lengths:
                return
            line, length = _LENGTHS.unpack(lengths)
            yield JsonText(line, self._file.read(length))
            offset += _LENGTHS.size + length

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()


class PayloadSpool:
    """A temporary file of attachments, each stored once under its hash."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by close()
        self._spans: dict[bytes, tuple[int, int]] = {}

    def add(self, name: str, payload: bytes) -> None:
        """Store a payload, unless it is stored already."""
        if name not in self:
            offset = self._file.seek(0, 2)
            self._file.write(payload)
            self._spans[bytes.fromhex(name)] = offset, len(payload)

    def __contains__(self, name: str) -> bool:
        return bytes.fromhex(name) in self._spans

    def __getitem__(self, name: str) -> bytes:
        offset, size = self._spans[bytes.fromhex(name)]
        self._file.seek(offset)
        return self._file.read(size)

    def size(self, name: str) -> int:
        """Return the size of a payload in bytes; 0 if it is not stored."""
        return self._spans.get(bytes.fromhex(name), (0, 0))[1]

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()
