"""Transcripts of Claude Code that a program passes on line by line, instead of files.

Each entry is a line of a transcript as a JSON object. The reader of the files reads them, so a conversation has the
same session id, messages and message keys as after an import of its file, and an import changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from recollect.errors import InvalidValue, NotFound, SessionInTrash, SessionNotFound, UnreadableFile, format_value
from recollect.export.pipeline import run_operation_async, scope_of
from recollect.model import json as model_json
from recollect.sources.claude_code import NAME, ClaudeCodeReader
from recollect.sources.claude_code_content import as_id
from recollect.sources.files import FileStamp
from recollect.sources.source import Note, SourceEvent
from recollect.storage import entry_logs, imports
from recollect.storage.entry_logs import LogAddress, LogAppend, LogChanged, LogState, StoredLog
from recollect.storage.imports import ImportBatch, ImportedRecord
from recollect.storage.operation import Operation
from recollect.storage.originals import ENTRIES_KEY, HOLDER_KEY, IMPORT_KIND, LOG_KIND, ORIGINAL_KIND
from recollect.store_async import AsyncStore
from recollect.sync.chunks import MissingBlob, chunk_key, decode_chunk, encode_chunk, references, split
from recollect.sync.conversation_batches import ConversationBatch
from recollect.sync.line_files import Line, parse_line

T = TypeVar("T")
Entry = dict[str, Any]
_AGENT_PATH = re.compile(r"subagents/(?:.*/)?agent-([^/]+)", re.DOTALL)
_KEY_DIGITS = 32  # hexadecimal digits of a digest in the key of a log
_ID_DIGITS = 16  # of a digest in a session id
_ID_BYTES = 8  # random, to tell a log from an earlier one with the same name


class LogName(NamedTuple):
    """The name of a log in the framework: the project, the id of the session, and the path of a sub-agent below it."""

    project: str
    session: str
    path: str | None = None

    def to_prefix(self) -> str:
        """Return the beginning of the keys of the logs of sub-agents of this session."""
        return f"{_project_prefix(self.project)}{_digest(self.session)}/"

    def to_key(self) -> str:
        """Return the key of the log."""
        return self.to_prefix()[:-1] if self.path is None else f"{self.to_prefix()}{_digest(self.path)}"

    def to_address(self) -> LogAddress:
        """Return the address of the log. Its session has the id that an import of the file would use, if it is free."""
        key = self.to_key()
        suffix = _digest(key)[:_ID_DIGITS]
        if self.path is None:
            id = f"{NAME}:{as_id(self.session) or 'transcript'}"
            return LogAddress(key, (id, f"{id}:{suffix}"))
        id = f":agent:{self.agent}"
        return LogAddress(key, (id, f"{id}:{suffix}"), LogName(self.project, self.session).to_address())

    @property
    def agent(self) -> str:
        """The id of the sub-agent."""
        match = _AGENT_PATH.fullmatch(self.path or "")
        return as_id(match[1] if match else self.path) or "agent"


class LogInfo(NamedTuple):
    """A stored log."""

    name: LogName
    session: str
    """The id of its session in the store."""
    updated_at: int
    """The time of the last append in milliseconds since 1970."""
    summary: Any


class EntryLog:
    """A transcript of Claude Code as a growing list of entries.

    It remembers what it has read of the log, so that an append does not read it again. Only one task may use an object
    at a time; any number of objects, in any processes, may append to the same log.
    """

    def __init__(self, store: AsyncStore, name: LogName) -> None:
        self._store, self._name, self._address = store, name, name.to_address()
        self._reading: _Reading | None = None

    async def append(self, entries: Sequence[Entry], fold: Callable[[Any, list[Entry]], Any] | None = None) -> None:
        """Store entries at the end, all or none, and the messages that they contain, in one transaction.

        An entry with the `uuid` of an earlier one is left out. `fold` receives the summary of the log, None at first,
        and the new entries; it returns the new summary. Raise SessionInTrash if the conversation is in the trash, and
        NotFound if content of it was erased.
        """
        lines = [_encode_entry(entry) for entry in entries]  # before anything is written: all must be JSON
        while True:
            reading = await self._catch_up()
            self._reading = None  # what it has read is known to be stored only after the append
            new = reading.select_new(entries, lines)
            if not new or await self._write(reading, new, fold):
                self._reading = reading
                return

    async def _write(
        self, reading: _Reading, new: Sequence[tuple[Entry, bytes]], fold: Callable[[Any, list[Entry]], Any] | None
    ) -> bool:
        """Write new entries; return False if another writer was first."""
        scope, log = scope_of(self._store), reading.log
        lines = [line for _, line in new]
        pieces = list(split(b"".join(lines)))
        state = self._next_state(log.state, scope.now, len(pieces))
        if fold is not None:
            state.summary = fold(state.summary, [entry for entry, _ in new])
        batches, links = reading.read_batches(lines)
        try:
            try:
                await self._run(entry_logs.append(scope, self._make_append(log, state, pieces, batches, links)))
            except InvalidValue:  # a message that the store refuses; its entry is stored
                batches = [ConversationBatch(log.session)]
                await self._run(entry_logs.append(scope, self._make_append(log, state, pieces, batches, links)))
        except LogChanged:
            return False
        reading.log = log._replace(state=state)
        return True

    def _next_state(self, old: LogState | None, now: int, chunks: int) -> LogState:
        name = tuple(part for part in self._name if part is not None)
        if old is None:
            return LogState(self._address.key, os.urandom(_ID_BYTES).hex(), name, chunks, now)
        updated_at = max(now, old.updated_at + 1)
        return msgspec.structs.replace(old, chunks=old.chunks + chunks, updated_at=updated_at)

    def _make_append(
        self,
        log: StoredLog,
        state: LogState,
        pieces: Sequence[bytes],
        batches: Sequence[ConversationBatch],
        links: Mapping[str, str],
    ) -> LogAppend:
        """Return an append, whose last batch has the records of the log."""
        blobs = set[str]().union(*(batch.blobs for batch in batches))
        records = [
            ImportedRecord(ORIGINAL_KIND, chunk_key(ENTRIES_KEY, number), data=encode_chunk(piece, blobs))
            for number, piece in enumerate(pieces, state.chunks - len(pieces))
        ]
        records.append(ImportedRecord(LOG_KIND, entry_logs.STATE_KEY, state.to_json()))
        # The session of a sub-agent whose lines are in the same log names the one with the log.
        holder = ImportedRecord(IMPORT_KIND, f"{HOLDER_KEY}{log.session}", model_json.encode(log.session))
        items: list[ImportBatch] = []
        for batch in batches:
            own = records if batch is batches[-1] else [holder] if batch.messages else ()
            items += batch.take(own, obsolete=(), again=True)
        return LogAppend(self._address, log, items, links)

    async def load(self) -> list[Entry] | None:
        """Return all entries; None if nothing is stored, or if the conversation is in the trash."""
        log = await self._read(None)
        return None if log.state is None else [json.loads(line) for line in await self._decode(log)]

    async def _catch_up(self) -> _Reading:
        """Return the log as read so far, after reading the entries that other writers have stored since."""
        reading = self._reading
        log = await self._read(None if reading is None else reading.log.state)
        if log.is_in_trash:
            raise SessionInTrash(session=log.session)
        if reading is None or not reading.continues_with(log):
            if reading is not None and reading.log.state is not None and log.state is not None:
                log = await self._read(None)  # another log with this name, of which only the end was read
            reading = _Reading(self._name, log)
        if log.chunks:
            reading.add_stored(await self._decode(log))
        reading.log = log._replace(chunks=())
        return reading

    async def _read(self, position: LogState | None) -> StoredLog:
        return await self._run(entry_logs.read(scope_of(self._store), self._address, position))

    async def _run(self, op: Operation[T]) -> T:
        return await run_operation_async(self._store, op)

    async def _decode(self, log: StoredLog) -> list[bytes]:
        """Return the lines of the chunks of a log."""
        pieces: list[bytes] = []
        payloads: dict[str, bytes | None] = {}
        for chunk in log.chunks:
            for name in references(chunk) - payloads.keys():
                payloads[name] = await self._run(imports.read_blob(scope_of(self._store), name))
            try:
                pieces.append(decode_chunk(chunk, payloads.get))
            except MissingBlob:
                raise NotFound(
                    f"The original of session {format_value(log.session)} is not complete: an attachment was erased. "
                    f"Continue it with its messages, or start another session."
                ) from None
        return b"".join(pieces).split(b"\n")[:-1]


class _Reading:
    """What was read of a log, with the reader at its end."""

    def __init__(self, name: LogName, log: StoredLog) -> None:
        self.log = log
        self._tree = _EntryTree()
        main = as_id(name.session) or "transcript"
        self._file = f"{main}.jsonl" if name.path is None else f"{main}/subagents/agent-{name.agent}.jsonl"
        self._reader = ClaudeCodeReader(self._tree, self._file, None, session=log.session, parent=log.parent)
        self._uuids: set[str] = set()
        self._number = 0
        self._is_broken = False
        """Whether the reader has failed. Later entries are stored, but no messages are read from them."""

    def continues_with(self, log: StoredLog) -> bool:
        """Return whether a stored log is the one that was read, with or without new entries."""
        old, new = self.log.state, log.state
        if self.log.session != log.session or self.log.parent != log.parent or new is None:
            return (self.log.session, self.log.parent, old) == (log.session, log.parent, new)
        return old is not None and old.id == new.id and old.chunks <= new.chunks

    def select_new(self, entries: Sequence[Entry], lines: Sequence[bytes]) -> list[tuple[Entry, bytes]]:
        """Return the entries that are not stored yet, each with its line."""
        new: list[tuple[Entry, bytes]] = []
        uuids: set[str] = set()
        for entry, line in zip(entries, lines, strict=True):
            uuid = entry.get("uuid")
            if isinstance(uuid, str):
                if uuid in self._uuids or uuid in uuids:
                    continue
                uuids.add(uuid)
            new.append((entry, line))
        return new

    def add_stored(self, lines: Sequence[bytes]) -> None:
        """Read lines whose messages are stored."""
        for _ in self._read(lines):
            pass

    def read_batches(self, lines: Sequence[bytes]) -> tuple[list[ConversationBatch], dict[str, str]]:
        """Read new lines; return batches, that of the log's session last, and the parents of sub-agents."""
        batches: dict[str, ConversationBatch] = {}
        for event in self._read(lines):
            if not isinstance(event, Note):
                batches.setdefault(event.session, ConversationBatch(event.session)).add(event)
        main = batches.pop(self.log.session, None) or ConversationBatch(self.log.session)
        links = {} if self.log.parent is None else {self.log.session: self.log.parent}
        links |= {batch.session: batch.parent for batch in batches.values() if batch.parent is not None}
        return [*batches.values(), main], links

    def _read(self, lines: Sequence[bytes]) -> Iterator[SourceEvent]:
        if self._reader.session is None:  # the first message: the reader looks for the origin of a fork in its file
            self._tree.lines += lines
        for data in lines:
            value = parse_line(Line(self._number + 1, data), self._file)
            if not isinstance(value, dict):
                continue
            if isinstance(value.get("uuid"), str):
                self._uuids.add(value["uuid"])
            if value.get("type") != "agent_metadata":  # which no file has
                self._number += 1
            yield from self._try_read(value)
        if not self._is_broken:
            yield from self._reader.finish()
        if self._reader.session is not None:
            self._tree.lines.clear()

    def _try_read(self, value: dict[str, Any]) -> Iterable[SourceEvent]:
        """Return the events of an entry. A defect of the reader must not keep entries from being stored."""
        try:
            return () if self._is_broken else self._reader.read_line(self._number, value)
        except Exception:  # noqa: BLE001  as for files
            self._is_broken = True
            return ()


class _EntryTree:
    """The file of a log as its reader sees it. It has no neighbors."""

    path = Path()

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.problems: dict[str, str] = {}

    def names(self) -> Iterator[str]:
        return iter(())

    def stamp(self, name: str) -> FileStamp:
        raise UnreadableFile(f"{name} cannot be read: it is an entry of a log.")

    def open(self, name: str) -> IO[bytes]:  # noqa: ARG002  part of the interface
        return io.BytesIO(b"\n".join(self.lines))

    def head(self, name: str) -> bytes:
        return self.open(name).read()

    def read(self, name: str, limit: int = 0) -> bytes:  # noqa: ARG002
        raise UnreadableFile(f"{name} cannot be read: it is an entry of a log.")

    def local_path(self, name: str) -> Path | None:  # noqa: ARG002
        return None


async def list_logs(store: AsyncStore, project: str, session: str | None = None) -> list[LogInfo]:
    """Return the logs of the conversations of a project, or those of the sub-agents of one of its conversations.

    Logs of conversations in the trash are left out.
    """
    prefix = _project_prefix(project) if session is None else LogName(project, session).to_prefix()
    infos: list[LogInfo] = []
    for log in await run_operation_async(store, entry_logs.list_logs(scope_of(store), prefix)):
        assert log.state is not None, "a log without a state is not listed"
        name = LogName(*log.state.name)
        if session is not None or name.path is None:
            infos.append(LogInfo(name, log.session, log.state.updated_at, log.state.summary))
    return infos


async def erase_log(store: AsyncStore, name: LogName) -> None:
    """Erase the session of a log, also in the trash; without a path, also the sessions of its sub-agents.

    It can be called again after an interruption: the conversation is erased last.
    """
    ids = await run_operation_async(store, entry_logs.list_sessions(scope_of(store), name.to_key()))
    if name.path is None and ids:
        after: str | None = None
        while True:  # sub-agents without a log: from the files, or of early versions
            page = await store.list_sessions(after=after, id_prefix=f"{ids[0]}:agent:", archived=None, delegates=None)
            ids += [info.id for info in page if info.id not in ids]
            after = page.next
            if after is None:
                break
    for id in reversed(ids):
        with suppress(SessionNotFound):  # another process was first
            await store.erase_session(id, forks="keep")


def _project_prefix(project: str) -> str:
    """Return the beginning of the keys of the logs of a project."""
    return f"{_digest(project)}/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGITS]


def _encode_entry(entry: Entry) -> bytes:
    """Return an entry as a line. The standard module encodes every value that it decodes, also NaN."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
