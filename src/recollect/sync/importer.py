"""The import of files into a store.

It looks for the transcripts of each source in the given files, skips those that have not changed, and writes the others
in batches. Each batch is one transaction with the state of its file, so an import can be interrupted at any time: the
next one continues.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import msgspec

from recollect.errors import RecollectError, StoreError, UnreadableFile
from recollect.export.pipeline import run_operation, run_plan, scope_of
from recollect.model import json
from recollect.sources import registry
from recollect.sources.files import FileTree, FolderTree, ZipTree, open_tree
from recollect.sources.source import (
    ConversationSource,
    ForkFound,
    LineReader,
    Note,
    ReadFromStart,
    SourceEvent,
    Transcript,
)
from recollect.storage import imports, search
from recollect.storage.imports import ImportBatch, ImportCounts, ImportedRecord
from recollect.storage.originals import IMPORT_KIND, ORIGINAL_KIND, tombstone_key
from recollect.store import Store
from recollect.sync.chunks import CHUNK_BYTES, MissingBlob, chunk_key, decode_chunk, encode_chunk, references, split
from recollect.sync.conversation_batches import MAX_MESSAGES, MAX_SESSIONS, ConversationBatch
from recollect.sync.line_files import (
    Line,
    LineState,
    OriginalWriter,
    file_key,
    find_session,
    iter_lines,
    parse_line,
    read_first_line,
    read_sidecars,
    skip_bytes,
)
from recollect.sync.report import ImportedConversation, ImportReport, NoteCounter

_MAX_UNINDEXED = 10_000
"""Messages after which the search index is updated, because a search during a long import indexes the others first."""
_TRASH_PAGE = 500  # sessions; a page of a list in one query
_DOCUMENT = "document:"  # the beginning of the keys of the states of documents
Progress = Callable[[str, int, int], object]
"""Receives the name of the file that is read, the bytes that were read, and their total."""


class ImportOptions(NamedTuple):
    """The options of an import."""

    sources: Sequence[str] = registry.NAMES
    since: int | None = None
    """Only files that changed at or after this time, in milliseconds."""
    project: Path | None = None
    """Only conversations whose working directory is this folder or one below it."""
    again: bool = False
    """Also conversations that were deleted in Recollect, and files that have not changed."""
    dry_run: bool = False
    indexes: bool = True
    """Whether to bring the search index up to date at the end."""
    progress: Progress | None = None
    index_progress: Callable[[int], object] | None = None
    """Receives the number of messages that were added to the search index."""


_DEFAULT_OPTIONS = ImportOptions()


def import_files(
    store: Store, paths: Iterable[str | os.PathLike[str]], options: ImportOptions = _DEFAULT_OPTIONS
) -> ImportReport:
    """Import the conversations in files, folders and zip archives, and return what was done.

    A file that has not changed since the last import is not read. Data that cannot be read is a note in the report.
    """
    return FileImport(store, options).run([Path(path) for path in paths])


class ChangedFile(NamedTuple):
    """A transcript that is to be read, and the record of the store that tells whether it has changed."""

    source: ConversationSource
    tree: FileTree
    transcript: Transcript
    key: str
    stamps: list[list[int]]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return sum(stamp[0] for stamp in self.stamps)

    def record(self, *, is_complete: bool = True) -> tuple[str, str]:
        """Return the record of the store. Not complete: it has fields of conversations that are not stored."""
        return self.key, json.encode(self.stamps if is_complete else {"incomplete": self.stamps})


class IncompleteFile(NamedTuple):
    """A document that has fields of conversations which are not stored."""

    file: ChangedFile
    missing: frozenset[str] | None = None
    """Their session ids; None if an earlier import read the document."""


class FoundFiles(NamedTuple):
    """The transcripts of one source below one path, before they are read."""

    source: str
    path: Path
    transcripts: int = 0
    size: int = 0
    """Their size in bytes."""
    changed: int = 0
    """The transcripts that have changed since the last import."""
    changed_size: int = 0


class FileImport:
    """An import: find() returns the transcripts that have changed, read() imports one, and finish() reports.

    It can be used again after finish(): it remembers which files it has read.
    """

    def __init__(self, store: Store, options: ImportOptions) -> None:
        self.store, self.options = store, options
        self._links: dict[str, str] = {}
        self._stamps: dict[str, Any] = (
            {} if options.again else run_operation(store, imports.read_files(scope_of(store)))
        )
        self._incomplete: dict[str, IncompleteFile] = {}
        self._reset()

    def _reset(self) -> None:
        self.notes = NoteCounter()
        self.other_files: list[tuple[FileTree, str]] = []
        """The files that no source recognizes. They may be exports of Recollect."""
        self.findings: list[FoundFiles] = []
        self._results: dict[str, ImportedConversation] = {}
        self._unchanged = self._changed = self._filtered_count = 0
        self._done = self._total = 0
        self._indexed_count = self._unindexed_count = 0

    def run(self, paths: Sequence[Path]) -> ImportReport:
        """Import files and folders."""
        self.read_all([file for path in paths for file in self.find(path)])
        return self.finish()

    def read_all(self, files: Sequence[ChangedFile]) -> None:
        """Import transcripts, with progress."""
        self._total, self._done = sum(file.size for file in files), 0
        waiting: list[ChangedFile] = []
        for file in files:
            self.show_progress(file, 0)
            try:
                self.read(file, defers=True)
                self._done += file.size
            except _OriginMissing:
                waiting.append(file)
        for file in waiting:
            self.read(file)
        if self.options.progress is not None and files:
            self.options.progress("", self._done, self._total)

    def show_progress(self, file: ChangedFile, offset: int) -> None:
        """Report how many bytes of a transcript were read."""
        if self.options.progress is not None:
            self.options.progress(file.transcript.name, self._done + min(offset, file.size), self._total)

    def finish(self) -> ImportReport:
        """Link sub-agents to their parents, bring the search index up to date, and return the report."""
        self._read_incomplete()
        if not self.options.dry_run:
            self._link_delegates()
            self._update_index()  # also if nothing is new: an earlier import may have been interrupted before
        report = ImportReport(
            conversations=tuple(self._results.values()), unchanged_files=self._unchanged, changed_files=self._changed,
            skipped_files=len(self.other_files), filtered_files=self._filtered_count, notes=self.notes.notes(),
            indexed_messages=self._indexed_count, dry_run=self.options.dry_run,
        )  # fmt: skip
        self._reset()
        return report

    def _update_index(self) -> None:
        """Bring the search index up to date, so that no search has to."""
        self._unindexed_count = 0
        if self.options.indexes:
            plan = search.catch_up(scope_of(self.store), self.options.index_progress)
            self._indexed_count += run_plan(self.store, plan)

    def _read_incomplete(self) -> None:
        """Read files again that have fields of conversations which were not stored before, and now are."""
        for key, item in list(self._incomplete.items()):
            source = item.file.source.name
            new = {each.session for each in self._results.values() if each.outcome == "new" and each.source == source}
            if new if item.missing is None else new & item.missing:
                del self._incomplete[key]
                self.read(item.file)

    def _link_delegates(self) -> None:
        """Place sub-agents under their parents. One whose parent is not stored yet waits for it, also in the store."""
        links, self._links = self._links, {}
        if any(item.outcome == "new" for item in self._results.values()):
            stored_links = run_operation(self.store, imports.read_links(scope_of(self.store)))
            links |= {
                session: parent for session, parent in stored_links.items() if {session, parent} & self._results.keys()
            }
        for session, parent in links.items():
            run_operation(self.store, imports.link_delegate(scope_of(self.store), session, parent))

    def find(self, path: Path) -> list[ChangedFile]:
        """Return the transcripts of all sources below a path that have changed."""
        tree = self.open(path)
        return [] if tree is None else self.find_in(tree, list(tree.names()), self.options.sources)

    def _report_unreadable(self, tree: FileTree, names: Iterable[str]) -> None:
        """Report the files and folders whose content nobody could look at, and symbolic links."""
        if not isinstance(tree, FolderTree):
            return
        unreadable_files = [name for name in names if not os.access(tree.path / name, os.R_OK)]
        for name in [*tree.unreadable_folders, *([] if tree.path.is_file() else unreadable_files)]:
            path = tree.path / name
            self.notes.add_text("", "failed", f"{path} cannot be read: Permission denied.", str(path))
        for name in tree.links:
            self.notes.add_text("", "skipped", "A symbolic link is not followed. Name its target.", str(tree.path / name))

    def open(self, path: Path) -> FileTree | None:
        """Return the files below a path, or None if it cannot be read, which the report mentions."""
        try:
            tree = open_tree(path)
        except UnreadableFile as error:
            self.notes.add_text("", "failed", str(error), str(path))
            return None
        if isinstance(tree, ZipTree):
            for name in tree.unsafe_names():
                self.notes.add_text("", "skipped", "An entry of the archive is a link or leaves the archive.", name)
        return tree

    def find_in(self, tree: FileTree, names: Sequence[str], sources: Sequence[str]) -> list[ChangedFile]:
        """Return the transcripts of sources among files of a tree that have changed."""
        changed: list[ChangedFile] = []
        other_count = len(self.other_files)
        counts_by_source = {name: FoundFiles(name, tree.path) for name in sources}
        for source, transcript in self.detect(tree, names, sources):
            file = self.stamp(source, tree, transcript)
            if file is None:
                continue
            counts = counts_by_source[source.name]
            counts = counts._replace(transcripts=counts.transcripts + 1, size=counts.size + file.size)
            if self.is_wanted(file):
                changed.append(file)
                counts = counts._replace(changed=counts.changed + 1, changed_size=counts.changed_size + file.size)
            counts_by_source[source.name] = counts
        self._report_unreadable(tree, [name for _, name in self.other_files[other_count:]])
        self.findings += [counts for counts in counts_by_source.values() if counts.transcripts]
        return changed

    def detect(
        self, tree: FileTree, names: Sequence[str], sources: Sequence[str]
    ) -> Iterator[tuple[ConversationSource, Transcript]]:
        """Yield the transcripts of sources among files of a tree. A file belongs to the first source that claims it."""
        for source in map(registry.get_source, sources):
            claims: set[str] = set()
            for transcript in source.detect(tree, names):
                claims.update((transcript.name, *transcript.files))
                yield source, transcript
            names = [name for name in names if name not in claims]
        self.other_files += [(tree, name) for name in names]

    def stamp(self, source: ConversationSource, tree: FileTree, transcript: Transcript) -> ChangedFile | None:
        """Return a transcript with its stamps, or None if it cannot be read, which the report mentions."""
        try:
            stamps = [list(tree.stamp(name)) for name in (transcript.name, *transcript.files)]
        except UnreadableFile as error:
            self.notes.add_text(source.name, "failed", str(error), transcript.name)
            return None
        place = f"{source.name}\0{os.path.abspath(tree.path)}\0{transcript.name}"
        key = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()
        return ChangedFile(source, tree, transcript, key, stamps)

    def is_wanted(self, file: ChangedFile) -> bool:
        """Return whether a transcript is to be read: it has changed, and is not older than the option `since`."""
        newest = max(stamp[1] for stamp in file.stamps) // 1_000_000
        is_local = file.tree.local_path(file.transcript.name) is not None
        if self.options.since is not None and is_local and newest < self.options.since:
            self._filtered_count += 1
            return False
        earlier_stamps = self._stamps.get(file.key)
        if earlier_stamps == {"incomplete": file.stamps}:
            self._incomplete[file.key] = IncompleteFile(file)
        if earlier_stamps in (file.stamps, {"incomplete": file.stamps}):
            self._unchanged += 1
            return False
        self._changed += 1
        return True

    def has_project(self, working_dir: str | None) -> bool:
        """Return whether a conversation with a working directory is one that the options select."""
        project = self.options.project
        if project is None or working_dir is None:
            return project is None
        return any(Path(working_dir).is_relative_to(folder) for folder in (project, project.resolve()))

    def leave_out(self) -> None:
        """Count a transcript that the options do not select, and that was not read."""
        self._filtered_count += 1
        self._changed -= 1

    def read(self, file: ChangedFile, *, defers: bool = False) -> None:
        """Import a transcript. An error of its data is reported, and the import continues.

        With `defers`, a fork whose origin is not stored is left for later: its file may be among those that follow.
        """
        try:
            if file.transcript.kind == "document":
                _DocumentImport(self, file).run()
            else:
                _LineImport(self, file, defers=defers).run()
            if not self.options.dry_run and self.options.project is None:
                self._stamps[file.key] = file.stamps
        except StoreError:
            raise  # nothing more can be written
        except RecollectError as error:
            self.notes.add_text(file.source.name, "failed", str(error), file.transcript.name)
        except _OriginMissing:
            raise
        except OSError as error:
            text = f"{file.transcript.name} cannot be read: {error.strerror or error}."
            self.notes.add_text(file.source.name, "failed", text, file.transcript.name)
        except Exception as error:  # noqa: BLE001  a defect of one reader must not stop the import of other files
            text = f"The reader failed: {type(error).__name__}: {str(error)[:200]}. Report this file to Recollect."
            self.notes.add_text(file.source.name, "failed", text, file.transcript.name)

    def has_session(self, session: str) -> bool:
        """Return whether the store has a session."""
        return self.store.get_session(session) is not None

    def link(self, session: str, parent: str | None) -> None:
        """Place a sub-agent under its parent at the end of the import, when both are stored."""
        if parent is not None:
            self._links[session] = parent

    def write(self, source: ConversationSource, batch: ImportBatch) -> None:
        """Write a batch, and add it to the report."""
        if self.options.dry_run:
            counts = run_operation(self.store, imports.preview_batch(scope_of(self.store), batch))
        else:
            if source.copies_past and batch.origin is None and batch.messages:
                origin = run_operation(self.store, imports.find_shared_past(scope_of(self.store), batch))
                batch = batch._replace(origin=origin)
            counts = run_operation(self.store, imports.import_batch(scope_of(self.store), batch))
            self._unindexed_count += counts.new_messages
            if self._unindexed_count >= _MAX_UNINDEXED:
                self._update_index()
        self._report(source, batch, counts)

    def write_fields(self, source: ConversationSource, batches: Sequence[ImportBatch]) -> set[str]:
        """Write fields of conversations, and return the session ids of those that are not stored.

        Fields that equal what the last import wrote cost no transaction.
        """
        states = run_operation(
            self.store, imports.read_states_of_sessions(scope_of(self.store), [batch.session for batch in batches])
        )
        changed = [
            batch
            for batch in batches
            if batch.session in states and imports.changes_fields(states[batch.session], batch)
        ]
        counts = {batch.session: ImportCounts("updated") for batch in changed}
        if changed and not self.options.dry_run:
            counts = run_operation(self.store, imports.import_batches(scope_of(self.store), changed))
        for batch in batches:
            if batch.session in states:
                self._report(source, batch, counts.get(batch.session, ImportCounts("unchanged")))
        return {batch.session for batch in batches} - states.keys()

    def find_deleted(self, source: ConversationSource, sessions: Collection[str]) -> set[str]:
        """Return which of these conversations of a source were deleted or erased in Recollect, and are not stored."""
        if not sessions:
            return set()
        tombstones = run_operation(self.store, imports.read_tombstones(scope_of(self.store)))
        deleted = {session for session in sessions if tombstones and tombstone_key(session) in tombstones}
        after: str | None = None
        while True:
            page = self.store.list_sessions(
                _TRASH_PAGE, after=after, deleted=True, archived=None, delegates=None, id_prefix=f"{source.name}:"
            )
            deleted |= {info.id for info in page} & set(sessions)
            after = page.next
            if after is None:
                return {session for session in deleted if not self.has_session(session)}

    def report_deleted(self, source: ConversationSource, session: str) -> None:
        """Add a conversation to the report that was not read because it was deleted in Recollect."""
        self._report(source, ImportBatch(session), ImportCounts("deleted"))

    def report_unchanged(self, source: ConversationSource, session: str) -> None:
        """Add a conversation to the report that was not read because it has not changed."""
        self._report(source, ImportBatch(session), ImportCounts("unchanged"))

    def wait_for(self, file: ChangedFile, missing: set[str]) -> None:
        """Read a document again at the end of the import if a conversation that it names is stored until then."""
        self._incomplete[file.key] = IncompleteFile(file, frozenset(missing))

    def _report(self, source: ConversationSource, batch: ImportBatch, counts: ImportCounts) -> None:
        old = self._results.get(batch.session)
        outcome = counts.outcome
        if old is not None and (old.outcome == "new" or outcome == "unchanged"):
            outcome = old.outcome
        self._results[batch.session] = ImportedConversation(
            session=batch.session, source=source.name, outcome=outcome,
            title=batch.fields.get("title") or (None if old is None else old.title),
            new_messages=counts.new_messages + (0 if old is None else old.new_messages),
            updated_messages=counts.updated_messages + (0 if old is None else old.updated_messages),
        )  # fmt: skip


class _OriginMissing(Exception):
    """Internal: the conversation from which a fork took its past is not stored. FileImport.run() reads it later."""


class _DocumentImport:
    """The import of a document, whose conversations come one after another."""

    def __init__(self, run: FileImport, file: ChangedFile) -> None:
        self._run, self._file, self._source = run, file, file.source
        self._fields: list[ImportBatch] = []
        self._missing: set[str] = set()
        self._has_failures = False

    def run(self) -> None:
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


class _LineImport:
    """The import of a file of lines."""

    def __init__(self, run: FileImport, file: ChangedFile, *, defers: bool) -> None:
        self._run, self._file, self._source, self._defers = run, file, file.source, defers
        self._batches: dict[str, ConversationBatch] = {}
        self._key = ""
        self._obsolete: list[str] = []
        self._last_chunk: tuple[int, bytes, set[str]] | None = None

    def run(self) -> None:
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
        text = run_operation(store, imports.read_states(scope_of(store), session)).get(self._key)
        state = None if text is None or self._run.options.again else msgspec.json.decode(text, type=LineState)
        if state is not None:
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
            self._obsolete = [self._key]
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
        self._flush(session, reader, state, writer, is_last=True)

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
            raise _OriginMissing
        if event.session not in self._batches:
            self._batches[event.session] = ConversationBatch(event.session)
        self._batches[event.session].add(event)

    def _flush(
        self, session: str, reader: LineReader, state: LineState, writer: OriginalWriter, *, is_last: bool = False
    ) -> None:
        """Write the collected events; the conversation of the file comes last, with the state of the file."""
        main = self._batches.pop(session, None) or ConversationBatch(session)
        again = self._run.options.again
        blobs = set(main.blobs)
        for batch in self._batches.values():
            blobs |= batch.blobs
            self._run.link(batch.session, batch.parent)
            for item in batch.take([], obsolete=[], again=again):
                self._run.write(self._source, item)
        self._batches.clear()
        self._run.link(session, main.parent)
        state.reader = reader.state()
        records = writer.take(blobs)
        if is_last:
            sidecars = read_sidecars(self._file.tree, self._file.transcript)
            state.sidecars = tuple(sorted({*state.sidecars, *sidecars}))
            for name, data in sidecars.items():
                chunk_name = chunk_key(f"{self._key}/{name}", 0)
                records.append(ImportedRecord(ORIGINAL_KIND, chunk_name, data=encode_chunk(data, ())))
        records.append(ImportedRecord(IMPORT_KIND, self._key, msgspec.json.encode(state).decode()))
        files = [self._file.record()] if is_last else []
        for item in main.take(records, obsolete=self._obsolete, files=files, again=again):
            self._run.write(self._source, item)
        self._obsolete = []
