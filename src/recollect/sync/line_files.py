"""Lines of a file, and how far it was imported.

The state of a file is stored with its messages, in one transaction per batch, so an import that is killed continues
with the next line. A file is recognized by its first line, also after it was moved. If its beginning is not the stored
original, it was rewritten, and is read from the beginning. Messages that it lacks then stay: an import deletes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import msgspec

from recollect.model import json
from recollect.sources.files import FileStamp, FileTree
from recollect.sources.source import ConversationSource, Note, SessionFound, SourceEvent, Transcript
from recollect.storage.imports import ImportedRecord
from recollect.storage.originals import ORIGINAL_KIND
from recollect.sync.chunks import CHUNK_BYTES, chunk_key, encode_chunk, split

MAX_LINE_BYTES = 32 << 20
"""A longer line is kept as it is, but not parsed: its values would take several times its size in memory."""
_FIRST_LINE_BYTES = 65_536  # of a first line, which identify a file: an id or a time is among them
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8; editors on Windows write it
_PROBED_LINES = 200  # in which a reader must have found the id of its conversation


class LineState(msgspec.Struct, omit_defaults=True):
    """How far a file of lines was imported: the JSON text of an import record."""

    path: str
    """The path, or the name in the archive."""
    source: str
    offset: int = 0
    """The number of bytes that were read as lines."""
    lines: int = 0
    lacks_end: bool = False
    """Whether the last line had no end of line yet."""
    stamp: tuple[int, int, int] = (0, 0, 0)
    """The stamp of the file itself, without the files that belong to it."""
    size: int = 0
    """The number of bytes of the original, which may end with a line that is not complete yet."""
    reader: dict[str, Any] = {}
    files: tuple[str, ...] = ()
    """The keys of the records of the store about the file."""
    sidecars: dict[str, tuple[int, int, int]] = {}
    """The stamps of the sidecars whose originals are stored, by their names in the folder of the file."""


MAX_SIDECAR_BYTES = 4 << 20
"""A larger file is not kept. The reader of Claude Code has the same limit for outputs of tools."""


class Sidecar(NamedTuple):
    """A file that belongs to one transcript only: its name begins with that of the transcript."""

    name: str
    """The name in the tree."""
    path: str
    """The name in the folder of the transcript."""
    stamp: FileStamp


def find_sidecars(tree: FileTree, transcript: Transcript) -> list[Sidecar]:
    """Return the sidecars of a transcript; its other files are transcripts themselves, or belong to several."""
    folder = transcript.name[: transcript.name.rfind("/") + 1]
    stem = transcript.name.removesuffix(".zst").removesuffix(".jsonl")
    return [
        Sidecar(name, name.removeprefix(folder), tree.stamp(name))
        for name in transcript.files
        if name.startswith((f"{stem}/", f"{stem}."))
    ]


class Line(NamedTuple):
    """A line of a file with its end of line, or a piece of a line that is too long to be parsed."""

    number: int
    data: bytes
    is_piece: bool = False

    @property
    def is_ended(self) -> bool:
        """Whether the line has its end of line."""
        return self.data.endswith(b"\n")


def file_key(source: str, first_line: bytes) -> str:
    """Return the key of the state of a file, and the beginning of the keys of its original."""
    return "lines:" + hashlib.sha256(source.encode() + b"\0" + first_line.rstrip(b"\r\n")).hexdigest()[:32]


def read_first_line(file: IO[bytes]) -> bytes:
    """Return the first line that is not blank, cut at a length that identifies it."""
    while line := file.readline(_FIRST_LINE_BYTES):
        if line.strip():
            return line
    return b""


def iter_lines(file: IO[bytes], number: int) -> Iterator[Line]:
    """Return the lines from the present position of a file on; `number` is that of the line before it."""
    while data := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(data) <= MAX_LINE_BYTES:
            yield Line(number, data)
            continue
        while data:
            yield Line(number, data, is_piece=True)
            data = b"" if data.endswith(b"\n") else file.readline(CHUNK_BYTES)


def parse_line(line: Line, name: str) -> Any:
    """Return the JSON value of a line, None for a blank line, or a Note if it cannot be parsed."""
    if line.is_piece:
        return Note("skipped", f"{name}:{line.number}", f"A line has more than {MAX_LINE_BYTES >> 20} MiB. It is kept.")
    data = line.data.removeprefix(_BYTE_ORDER_MARK) if line.number == 1 else line.data
    if not data.strip():
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # the standard library accepts what some tools write, such as lone surrogates
        return json.decode(data.decode())
    except (ValueError, TypeError, RecursionError):
        return Note("malformed", f"{name}:{line.number}", "A line is not JSON. It is kept.")


def find_session(
    source: ConversationSource, tree: FileTree, transcript: Transcript, *, needs_folder: bool
) -> tuple[str | None, str | None]:
    """Return the session id of the conversation of a file, and its working directory, as far as its first lines tell.

    Without `needs_folder`, reading stops at the line with the id.
    """
    reader = source.read_lines(tree, transcript, None)
    working_dirs: dict[str, str] = {}
    with tree.open(transcript.name) as file:
        for line in iter_lines(file, 0):
            is_complete = reader.session in working_dirs if needs_folder else reader.session is not None
            if line.number > _PROBED_LINES or is_complete:
                break
            value = parse_line(line, transcript.name)
            if value is not None and not isinstance(value, Note):
                _add_working_dirs(reader.read_line(line.number, value), working_dirs)
    if reader.session is None:
        _add_working_dirs(reader.finish(), working_dirs)
    return reader.session, working_dirs.get(reader.session or "")


def _add_working_dirs(events: Iterable[SourceEvent], working_dirs: dict[str, str]) -> None:
    for event in events:
        if isinstance(event, SessionFound) and event.working_dir is not None:
            working_dirs[event.session] = event.working_dir


def skip_bytes(file: IO[bytes], size: int) -> None:
    """Move a file that is at its beginning to a position. A compressed file is read up to there."""
    if file.seekable():
        file.seek(size)
        return
    while size and (data := file.read(min(size, CHUNK_BYTES))):
        size -= len(data)


class OriginalWriter:
    """Divides the bytes of a file into chunks of a fixed size, and returns the records of those that changed."""

    def __init__(self, key: str, offset: int = 0, first_bytes: bytes = b"", blobs: set[str] | None = None) -> None:
        self._key = key
        self._number, self._data = offset // CHUNK_BYTES, bytearray(first_bytes)
        self._blobs = set(blobs or ())
        self._records: list[ImportedRecord] = []

    def add(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._data += data

    def take(self, blobs: set[str]) -> list[ImportedRecord]:
        """Return the records of the chunks since the last call. `blobs` are hashes to which these may refer."""
        self._blobs |= blobs
        records: list[ImportedRecord] = []
        while len(self._data) >= CHUNK_BYTES:
            records.append(self._record(bytes(self._data[:CHUNK_BYTES])))
            del self._data[:CHUNK_BYTES]
            self._number += 1
        if self._data:
            records.append(self._record(bytes(self._data)))
        if len(records) > 1:
            self._blobs = set(blobs)
        return records

    def _record(self, data: bytes) -> ImportedRecord:
        key = chunk_key(self._key, self._number)
        return ImportedRecord(ORIGINAL_KIND, key, data=encode_chunk(data, self._blobs))


def sidecar_records(key: str, path: str, data: bytes) -> list[ImportedRecord]:
    """Return the records of the original of a sidecar. `key` is that of the state of its transcript."""
    return [
        ImportedRecord(ORIGINAL_KIND, chunk_key(f"{key}/{path}", number), data=encode_chunk(piece, ()))
        for number, piece in enumerate(split(data))
    ]
