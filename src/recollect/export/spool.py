"""What is read from a file, kept beside memory until it is known what to do with it.

A temporary file that only this process can open; small imports stay in memory.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator

from recollect.export.source import Piece

_IN_MEMORY = 8 << 20
_LENGTHS = struct.Struct("<QQ")


class Spool:
    """Pieces, to be gone through again and again."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by close()
        self.count = 0

    def add(self, line: int, text: bytes) -> None:
        """Keep a piece."""
        self._file.seek(0, 2)
        self._file.write(_LENGTHS.pack(line, len(text)))
        self._file.write(text)
        self.count += 1

    def __iter__(self) -> Iterator[Piece]:
        at = 0
        while True:
            self._file.seek(at)
            lengths = self._file.read(_LENGTHS.size)
            if not lengths:
                return
            line, length = _LENGTHS.unpack(lengths)
            yield Piece(line, self._file.read(length))
            at += _LENGTHS.size + length

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class Payloads:
    """Attachments by hash, each once."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by close()
        self._places: dict[bytes, tuple[int, int]] = {}

    def add(self, name: str, payload: bytes) -> None:
        """Keep a payload."""
        if name not in self:
            place = self._file.seek(0, 2)
            self._file.write(payload)
            self._places[bytes.fromhex(name)] = place, len(payload)

    def __contains__(self, name: str) -> bool:
        return bytes.fromhex(name) in self._places

    def __getitem__(self, name: str) -> bytes:
        place, size = self._places[bytes.fromhex(name)]
        self._file.seek(place)
        return self._file.read(size)

    def size(self, name: str) -> int:
        """Say how large a payload is; 0 where it is not there."""
        return self._places.get(bytes.fromhex(name), (0, 0))[1]

    def close(self) -> None:
        """Let go of it."""
        self._file.close()
