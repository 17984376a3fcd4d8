"""The import of one transcript: its events are written in batches, each with the state of the file.

A document is read as a whole, and each of its conversations is written. A file of lines is read on from where the last
import ended, unless it was rewritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, cast

import msgspec

from recollect.errors import RecollectError, StoreError, UnreadableFile
from recollect.export.pipeline import run_operation, scope_of
from recollect.model import json
from recollect.sources.source import ForkFound, LineReader, Note, ReadFromStart, SourceEvent
from recollect.storage import imports
from recollect.storage.imports import ImportBatch, ImportedRecord
from recollect.storage.originals import ERASED_KEY, HOLDER_KEY, IMPORT_KIND, ORIGINAL_KIND
from recollect.sync.chunks import (
    CHUNK_BYTES,
    MissingBlob,
    chunk_key,
    chunk_prefix,
    decode_chunk,
    encode_chunk,
    references,
    split,
)
from recollect.sync.conversation_batches import MAX_MESSAGES, MAX_SESSIONS, ConversationBatch
from recollect.sync.line_files import (
    MAX_SIDECAR_BYTES,
    Line,
    LineState,
    OriginalWriter,
    Sidecar,
    file_key,
    find_session,
    find_sidecars,
    iter_lines,
    parse_line,
    read_first_line,
    sidecar_records,
    skip_bytes,
)

if TYPE_CHECKING:
    from recollect.sync.importer import ChangedFile, FileImport

_DOCUMENT = "document:"  # the beginning of the keys of the states of documents


class OriginMissing(Exception):
    """Internal: the conversation from which a fork took its past is not stored. FileImport.run() reads it later."""


class DocumentImport:
    """The import of a document, whose conversations come one after another."""

    def __init__(self, run: FileImport, file: ChangedFile) -> None:
        self._run, self._file, self._source = run, file, file.source
        self._fields: list[ImportBatch] = []
        self._missing: set[str] = set()
        self._has_failures = False

    def run(self) -> None:
        """Read the document, and write each of its conversations."""
        batch: ConversationBatch | None = None
        for event in self._source.read(self._file.tree, self._file.transcript, self._select):
            if isinstance(event, Note):
                self._run.notes.add(self._source.name, event)
                continue
            if batch is None or event.session != batch.session:
                if batch is not None:
                    self._try_write(batch)
                batch = ConversationBatch(event.session)
            batch.add(event)
        if batch is not None:
            self._try_write(batch)
        self._write_fields()
        if self._missing:
            self._run.wait_for(self._file, self._missing)
        options = self._run.options
        # Only now: an interrupted import reads the document again. So does one that left conversations out.
        if not options.dry_run and options.project is None and not self._has_failures:
            record = self._file.record(is_complete=not self._missing)
            run_operation(self._run.store, imports.write_files(scope_of(self._run.store), [record]))

    def _select(self, versions: Mapping[str, str]) -> Collection[str]:
        """Return the ids of the conversations whose versions differ from those of the last import."""
        if self._run.options.again:
            return versions.keys()
        unchanged: set[str] = set()
        sessions, store = list(versions), self._run.store
        for start in range(0, len(sessions), MAX_SESSIONS):
            states = run_operation(
                store, imports.read_states_of_sessions(scope_of(store), sessions[start : start + MAX_SESSIONS])
            )
            for session, texts in states.items():
                documents = [json.decode(text) for key, text in texts.items() if key.startswith(_DOCUMENT)]
                if any(state.get("version") == versions[session] for state in documents):
                    unchanged.add(session)
                    self._run.report_unchanged(self._source, session)
        selection = versions.keys() - unchanged
        for session in self._run.find_deleted(self._source, selection):
            self._run.report_deleted(self._source, session)
            selection.discard(session)
        return selection

    def _write_fields(self) -> None:
        """Write the fields of conversations whose messages are in other files."""
        self._missing |= self._run.write_fields(self._source, self._fields)
        self._fields = []

    def _try_write(self, batch: ConversationBatch) -> None:
        """Write a conversation. One that the store refuses is reported, and the others are imported."""
        try:
            self._write(batch)
        except StoreError:
            raise
        except RecollectError as error:
            self._has_failures = True
            text = f"A conversation cannot be imported: {error}"
            self._run.notes.add_text(
                self._source.name, "failed", text, f"{self._file.transcript.name}: {batch.session}"
            )

    def _write(self, batch: ConversationBatch) -> None:
        """Write a conversation, unless its original is the one that was imported, or an older one."""
        if not self._run.has_project(batch.fields.get("working_dir")) and not batch.has_only_fields:
            return
        if batch.has_only_fields:
            self._run.link(batch.session, batch.parent)
            self._fields += batch.take([], obsolete=[], again=self._run.options.again)
            if len(self._fields) >= MAX_SESSIONS:
                self._write_fields()
            return
        digest = hashlib.sha256()
        for original in batch.originals:
            digest.update(f"{original.name}\0{len(original.data)}\0".encode() + original.data)
        key = f"{_DOCUMENT}{batch.originals[0].name}" if batch.originals else _DOCUMENT
        store, again = self._run.store, self._run.options.again
        text = run_operation(store, imports.read_states(scope_of(store), batch.session)).get(key)
        state = {} if text is None else json.decode(text)
        new_state = {
            "source": self._source.name, "path": str(self._file.tree.path), "digest": digest.hexdigest(),
            "updated_at": batch.updated_at, "names": [original.name for original in batch.originals],
            "files": sorted({*state.get("files", ()), self._file.key}), "version": batch.version,
        }  # fmt: skip
        records = [ImportedRecord(IMPORT_KIND, key, json.encode(new_state))]
        if state and not again:
            is_older = batch.updated_at is not None and batch.updated_at < (state["updated_at"] or 0)
            if is_older or state["digest"] == digest.hexdigest():
                is_known = is_older or state.get("version") == batch.version
                self._run.write(self._source, ImportBatch(batch.session, records=() if is_known else records))
                return
        for original in batch.originals:
            for number, piece in enumerate(split(original.data)):
                chunk = encode_chunk(piece, batch.blobs)
                name = chunk_key(f"{key}/{original.name}", number)
                records.append(ImportedRecord(ORIGINAL_KIND, name, data=chunk))
        self._run.link(batch.session, batch.parent)
        for item in batch.take(records, obsolete=[f"{key}/"], again=again):
            self._run.write(self._source, item)


class LineImport:
    """The import of a file of lines."""

    def __init__(self, run: FileImport, file: ChangedFile, *, defers: bool) -> None:
        self._run, self._file, self._source, self._defers = run, file, file.source, defers
        self._batches: dict[str, ConversationBatch] = {}
        self._key = ""
        self._obsolete: list[str] = []
        self._is_whole = False
        self._last_chunk: tuple[int, bytes, set[str]] | None = None

    def run(self) -> None:
        """Read the lines that were added since the last import, or all of them."""
        file, name = self._file, self._file.transcript.name
        has_filter = self._run.options.project is not None
        session, working_dir = find_session(self._source, file.tree, file.transcript, needs_folder=has_filter)
        if session is None:
            self._run.notes.add_text(self._source.name, "skipped", "A file contains no conversation.", name)
            return
        if not self._run.has_project(working_dir):
            self._run.leave_out()
            return
        with file.tree.open(name) as stream:
            self._key = file_key(self._source.name, read_first_line(stream))
        store = self._run.store
        states = run_operation(store, imports.read_states(scope_of(store), session))
        text = states.get(self._key)
        state = None if text is None or self._run.options.again else msgspec.json.decode(text, type=LineState)
        if state is not None and ERASED_KEY not in states:
            try:
                if self._continue(session, state):
                    return
            except ReadFromStart:
                self._batches.clear()
        self._read_whole(session, state)

    def _continue(self, session: str, state: LineState) -> bool:
        """Read the lines that were added; return False if the file was rewritten."""
        if self._file.stamps[0][0] < state.size and self._is_older_copy(session):
            self._run.write(self._source, ImportBatch(session, files=[self._file.record()]))
            return True
        with self._file.tree.open(self._file.transcript.name) as stream:
            if not self._has_same_beginning(session, stream, state):
                return False
            reader = self._source.read_lines(self._file.tree, self._file.transcript, state.reader)
            data, blobs = self._chunk(session, state.offset // CHUNK_BYTES)
            writer = OriginalWriter(self._key, state.offset, data[: state.offset % CHUNK_BYTES], blobs)
            self._read(session, stream, reader, state, writer)
        return True

    def _is_older_copy(self, session: str) -> bool:
        """Return whether the file is the beginning of the original: an older copy, or a file that was cut off."""
        number = 0
        with self._file.tree.open(self._file.transcript.name) as stream:
            while data := stream.read(CHUNK_BYTES):
                original, _ = self._chunk(session, number)
                if not original.startswith(data):
                    return False
                number += 1
        return True

    def _has_same_beginning(self, session: str, stream: IO[bytes], state: LineState) -> bool:
        """Return whether the file begins with the stored original, and move it to where the last import ended.

        A tool that appends does not change earlier bytes, so the last chunk is compared if the file grew in place, and
        otherwise all of them: a program may have written the file again.
        """
        size, _, inode = stamp = tuple(self._file.stamps[0])
        end = -(-state.offset // CHUNK_BYTES)
        start = 0
        if stamp == state.stamp:
            start = end  # only a file that belongs to it has changed
        elif inode == state.stamp[2] != 0 and size > state.stamp[0]:
            start = max(end - 1, 0)
        skip_bytes(stream, min(start * CHUNK_BYTES, state.offset))
        for number in range(start, end):
            original, _ = self._chunk(session, number)
            original = original[: state.offset - number * CHUNK_BYTES]
            if not original or stream.read(len(original)) != original:
                return False
        return True

    def _chunk(self, session: str, number: int) -> tuple[bytes, set[str]]:
        """Return a chunk of the original and the blobs to which it refers; no bytes if it was erased."""
        if self._last_chunk is not None and self._last_chunk[0] == number:
            return self._last_chunk[1:]
        store, key = self._run.store, chunk_key(self._key, number)
        data, blobs = b"", set[str]()
        for _, chunk in run_operation(store, imports.read_chunks(scope_of(store), session, key, "", 1)):
            try:
                data = decode_chunk(chunk, lambda name: run_operation(store, imports.read_blob(scope_of(store), name)))
                blobs = references(chunk)
            except MissingBlob:
                break
        self._last_chunk = (number, data, blobs)
        return data, blobs

    def _read_whole(self, session: str, state: LineState | None) -> None:
        with self._file.tree.open(self._file.transcript.name) as stream:
            reader = self._source.read_lines(self._file.tree, self._file.transcript, None)
            self._obsolete, self._is_whole = [self._key], True
            files = () if state is None else state.files
            new_state = LineState(path=self._path, source=self._source.name, files=files)
            self._read(session, stream, reader, new_state, OriginalWriter(self._key))

    @property
    def _path(self) -> str:
        local = self._file.tree.local_path(self._file.transcript.name)
        return str(local) if local is not None else f"{self._file.tree.path}!{self._file.transcript.name}"

    def _read(
        self, session: str, stream: IO[bytes], reader: LineReader, state: LineState, writer: OriginalWriter
    ) -> None:
        """Read lines to the end of the file, and write them in batches."""
        name = self._file.transcript.name
        state.path, state.size = self._path, state.offset
        state.stamp = cast("tuple[int, int, int]", tuple(self._file.stamps[0]))
        state.files = tuple(sorted({*state.files, self._file.key}))
        pending, continues = 0, state.lacks_end
        for line in iter_lines(stream, state.lines):
            if continues:  # this is the end of the last line, or the line was not complete
                continues = False
                if line.data.strip():
                    raise ReadFromStart
                line = line._replace(number=line.number - 1)  # noqa: PLW2901
            writer.add(line.data)
            state.size += len(line.data)
            value = parse_line(line, name)
            if isinstance(value, Note) and not line.is_ended and not line.is_piece:
                break  # not complete: the tool is still writing it
            self._add(reader, line, value)
            state.offset, state.lines, state.lacks_end = state.size, line.number, not line.is_ended
            pending += len(line.data)
            if pending >= CHUNK_BYTES or sum(len(batch.messages) for batch in self._batches.values()) >= MAX_MESSAGES:
                self._flush(session, reader, state, writer)
                self._run.show_progress(self._file, state.size)
                pending = 0
        for event in reader.finish():
            self._add_event(event)
        self._finish(session, reader, state, writer)

    def _finish(self, session: str, reader: LineReader, state: LineState, writer: OriginalWriter) -> None:
        """Write the sidecars that have changed, and the last events with the state of the file."""
        tree, key = self._file.tree, self._key
        sidecars: list[Sidecar] = []
        for sidecar in find_sidecars(tree, self._file.transcript):
            if sidecar.stamp.size > MAX_SIDECAR_BYTES:
                if self._is_whole:
                    self._note_sidecar(sidecar)
            elif state.sidecars.get(sidecar.path) != sidecar.stamp:
                sidecars.append(sidecar)
        is_large = sum(sidecar.stamp.size for sidecar in sidecars) > CHUNK_BYTES
        if is_large:  # each is a transaction, after the session exists
            self._flush(session, reader, state, writer)
        records: list[ImportedRecord] = []
        for sidecar in sidecars:
            try:
                records += sidecar_records(key, sidecar.path, tree.read(sidecar.name, MAX_SIDECAR_BYTES))
            except UnreadableFile:
                self._note_sidecar(sidecar)
                continue
            self._obsolete.append(chunk_prefix(f"{key}/{sidecar.path}"))
            state.sidecars[sidecar.path] = sidecar.stamp
            if is_large:
                self._run.write(self._source, ImportBatch(session, records=records, obsolete=self._obsolete))
                records, self._obsolete = [], []
        self._flush(session, reader, state, writer, sidecars=records, is_last=True)

    def _note_sidecar(self, sidecar: Sidecar) -> None:
        text = (
            f"A file of a conversation cannot be read, or has more than {MAX_SIDECAR_BYTES >> 20} MiB. It is not kept."
        )
        self._run.notes.add_text(self._source.name, "missing", text, sidecar.name)

    def _add(self, reader: LineReader, line: Line, value: object) -> None:
        if isinstance(value, Note):
            if line.is_ended:
                self._run.notes.add(self._source.name, value)
        elif value is not None:
            for event in reader.read_line(line.number, value):
                self._add_event(event)

    def _add_event(self, event: SourceEvent) -> None:
        if isinstance(event, Note):
            self._run.notes.add(self._source.name, event)
            return
        if isinstance(event, ForkFound) and self._defers and not self._run.has_session(event.origin):
            raise OriginMissing
        if event.session not in self._batches:
            self._batches[event.session] = ConversationBatch(event.session)
        self._batches[event.session].add(event)

    def _flush(
        self, session: str, reader: LineReader, state: LineState, writer: OriginalWriter, *,
        sidecars: Sequence[ImportedRecord] = (), is_last: bool = False,
    ) -> None:  # fmt: skip
        """Write the collected events; the conversation of the file comes last, with the state of the file."""
        main = self._batches.pop(session, None) or ConversationBatch(session)
        again = self._run.options.again
        blobs = set(main.blobs)
        for batch in self._batches.values():
            blobs |= batch.blobs
            self._run.link(batch.session, batch.parent)
            holder = ImportedRecord(IMPORT_KIND, f"{HOLDER_KEY}{session}", json.encode(session))
            for item in batch.take([holder] if batch.messages else [], obsolete=[], again=again):
                self._run.write(self._source, item)
        self._batches.clear()
        self._run.link(session, main.parent)
        state.reader = reader.state()
        records = [*writer.take(blobs), *sidecars]
        records.append(ImportedRecord(IMPORT_KIND, self._key, msgspec.json.encode(state).decode()))
        files = [self._file.record()] if is_last else []
        for item in main.take(records, obsolete=self._obsolete, files=files, again=again):
            self._run.write(self._source, item)
        self._obsolete = []
