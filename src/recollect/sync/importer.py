"""The import of files into a store.

It looks for the transcripts of each source in the given files, skips those that have not changed, and writes the others
in batches. Each batch is one transaction with the state of its file, so an import can be interrupted at any time: the
next one continues.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

from recollect.errors import RecollectError, StoreError, UnreadableFile
from recollect.export.pipeline import run_operation, run_plan, scope_of
from recollect.model import json
from recollect.sources import registry
from recollect.sources.files import (
    MAX_DOCUMENT_BYTES,
    FileStamp,
    FileTree,
    FolderTree,
    ZipTree,
    nested_archives,
    open_tree,
)
from recollect.sources.source import ENTRY_PREFIX, ConversationSource, Transcript
from recollect.storage import imports, search
from recollect.storage.imports import ImportBatch, ImportCounts
from recollect.storage.originals import tombstone_key
from recollect.store import Store
from recollect.sync.places import Place, linked_places
from recollect.sync.report import ImportedConversation, ImportReport, NoteCounter
from recollect.sync.transcript_import import DocumentImport, LineImport, OriginMissing

_MAX_UNINDEXED = 10_000
"""Messages after which the search index is updated, because a search during a long import indexes the others first."""
_JSON_SUFFIXES = (".json", ".jsonl", ".jsonl.zst")  # of the files at which each source looks
_PROBE_BYTES = 256  # of each other file: a folder may have many, and this many blanks do not come first
_BLANKS = b"\xef\xbb\xbf \t\r\n"  # which may come before JSON, with the byte order mark
_TRASH_PAGE = 500  # sessions; a page of a list in one query
_MAX_PROBLEMS = 20  # unreadable files of a tree that are reported by name; a damaged archive has thousands
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


def _may_be_json(tree: FileTree, name: str) -> bool:
    """Return whether a file has not the suffix of JSON files, but begins like one."""
    if name.endswith(_JSON_SUFFIXES):
        return False
    try:
        with closing(tree.open(name)) as file:
            return file.read(_PROBE_BYTES).lstrip(_BLANKS)[:1] in (b"{", b"[")
    except (UnreadableFile, OSError):
        return False


class _SuffixedTree:
    """A tree whose files have another suffix: sources look at the beginnings only of files with a usual name."""

    def __init__(self, tree: FileTree, suffix: str) -> None:
        self.path, self.problems = tree.path, tree.problems
        self._tree, self._suffix = tree, suffix

    def restore(self, transcript: Transcript) -> Transcript:
        """Return a transcript with the names of the tree itself."""
        files = tuple(name.removesuffix(self._suffix) for name in transcript.files)
        return transcript._replace(name=transcript.name.removesuffix(self._suffix), files=files)

    def names(self) -> Iterator[str]:
        """Return the names of all files."""
        return (f"{name}{self._suffix}" for name in self._tree.names())

    def stamp(self, name: str) -> FileStamp:
        """Return the stamp of a file."""
        return self._tree.stamp(name.removesuffix(self._suffix))

    def open(self, name: str) -> IO[bytes]:
        """Open a file."""
        return self._tree.open(name.removesuffix(self._suffix))

    def head(self, name: str) -> bytes:
        """Return the beginning of a file."""
        return self._tree.head(name.removesuffix(self._suffix))

    def read(self, name: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a whole file."""
        return self._tree.read(name.removesuffix(self._suffix), limit)

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file on this machine."""
        return self._tree.local_path(name.removesuffix(self._suffix))


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
        self._places: list[Place] = []
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
            except OriginMissing:
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
        """Update the search index, so that no search has to."""
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
        if tree is None:
            return []
        return self.find_all(tree, self.options.sources, by_content=True)

    def find_all(
        self, tree: FileTree, sources: Sequence[str], *, by_content: bool = False, place: Place | None = None
    ) -> list[ChangedFile]:
        """Return the transcripts of sources in a tree, and in the zip archives in it, that have changed."""
        names = list(tree.names())
        if place is not None and isinstance(tree, FolderTree):
            self._places += linked_places(place, tree.links, self._places)
        archives = dict(nested_archives(tree, names))
        files = self.find_in(tree, [name for name in names if name not in archives], sources, by_content=by_content)
        for name, archive in archives.items():
            if isinstance(archive, UnreadableFile):
                self.notes.add_text("", "failed", str(archive), name)
                continue
            self._note_unsafe_names(archive)
            files += self.find_in(archive, list(archive.names()), sources, by_content=by_content)
        return files

    def _report_problems(self, tree: FileTree, names: Iterable[str]) -> None:
        """Report the files whose beginning could not be read."""
        problems = sorted(tree.problems.keys() & set(names))
        for name in problems[:_MAX_PROBLEMS]:
            path = tree.local_path(name)
            text = tree.problems[name]
            self.notes.add_text("", "failed", text if path is None else text.replace(name, str(path), 1), name)
        if len(problems) > _MAX_PROBLEMS:
            text = f"{len(problems) - _MAX_PROBLEMS:,} further files of {tree.path.name} cannot be read."
            self.notes.add_text("", "failed", text, problems[_MAX_PROBLEMS])

    def find_in_places(self, places: Iterable[Place]) -> list[ChangedFile]:
        """Return the transcripts that have changed in places, and in folders to which links in them lead."""
        changed: list[ChangedFile] = []
        self._places = list(places)
        for place in self._places:  # which grows
            tree = self.open(place.path) if place.path.exists() else None
            if tree is not None:
                changed += self.find_all(tree, place.sources, place=place)
        return changed

    def _report_unreadable(self, tree: FileTree, names: Iterable[str]) -> None:
        """Report the files and folders whose content nobody could look at, and symbolic links that lead elsewhere."""
        if not isinstance(tree, FolderTree):
            return
        unreadable_files = [name for name in names if not os.access(tree.path / name, os.R_OK)]
        for name in [*tree.unreadable_folders, *([] if tree.path.is_file() else unreadable_files)]:
            path = tree.path / name
            self.notes.add_text("", "failed", f"{path} cannot be read: Permission denied.", str(path))
        places = [os.path.realpath(place.path) for place in self._places]
        for name in tree.links:
            if any(Path(os.path.realpath(tree.path / name)).is_relative_to(place) for place in places):
                continue
            self.notes.add_text(
                "", "skipped", "A symbolic link is not followed. Name its target.", str(tree.path / name)
            )

    def open(self, path: Path) -> FileTree | None:
        """Return the files below a path, or None if it cannot be read, which the report mentions."""
        try:
            tree = open_tree(path)
        except UnreadableFile as error:
            self.notes.add_text("", "failed", str(error), str(path))
            return None
        if isinstance(tree, ZipTree):
            self._note_unsafe_names(tree)
        return tree

    def _note_unsafe_names(self, archive: ZipTree) -> None:
        for name in archive.unsafe_names():
            self.notes.add_text("", "skipped", "An entry of the archive is a link or leaves the archive.", name)

    def find_in(
        self, tree: FileTree, names: Sequence[str], sources: Sequence[str], *, by_content: bool = False
    ) -> list[ChangedFile]:
        """Return the transcripts of sources among files of a tree that have changed, as detect() finds them."""
        changed: list[ChangedFile] = []
        other_count = len(self.other_files)
        counts_by_source = {name: FoundFiles(name, tree.path) for name in sources}
        for source, transcript in self.detect(tree, names, sources, by_content=by_content):
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
        self, tree: FileTree, names: Sequence[str], sources: Sequence[str], *, by_content: bool = False
    ) -> Iterator[tuple[ConversationSource, Transcript]]:
        """Yield the transcripts of sources among files of a tree. A file belongs to the first source that claims it.

        With `by_content`, also those without a file extension that their tool would give them.
        """
        remaining = set(names)
        for source, transcript in self._detect(tree, names, sources):
            remaining.difference_update((transcript.name, *transcript.files))
            yield source, transcript
        others = [name for name in names if name in remaining and _may_be_json(tree, name)] if by_content else []
        for suffix in (".jsonl", ".json") if others else ():
            view = _SuffixedTree(tree, suffix)
            candidates = [name + suffix for name in others if name in remaining]
            for source, item in self._detect(view, candidates, sources):
                transcript = view.restore(item)
                remaining.difference_update((transcript.name, *transcript.files))
                yield source, transcript
        self._report_problems(tree, remaining)
        self.other_files += [(tree, name) for name in names if name in remaining and name not in tree.problems]

    def _detect(
        self, tree: FileTree, names: Sequence[str], sources: Sequence[str]
    ) -> Iterator[tuple[ConversationSource, Transcript]]:
        for source in map(registry.get_source, sources if names else ()):
            claims: set[str] = set()
            for transcript in source.detect(tree, names):
                claims.update((transcript.name, *transcript.files))
                yield source, transcript
            names = [name for name in names if name not in claims]

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
                DocumentImport(self, file).run()
            else:
                LineImport(self, file, defers=defers).run()
            if not self.options.dry_run and self.options.project is None:
                self._stamps[file.key] = file.stamps
        except StoreError:
            raise  # nothing more can be written
        except RecollectError as error:
            self.notes.add_text(file.source.name, "failed", str(error), file.transcript.name)
        except OriginMissing:
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
        if outcome == "new" and batch.session.startswith(f"{source.name}:{ENTRY_PREFIX}"):
            outcome = "kept"
        self._results[batch.session] = ImportedConversation(
            session=batch.session, source=source.name, outcome=outcome,
            title=batch.fields.get("title") or (None if old is None else old.title),
            new_messages=counts.new_messages + (0 if old is None else old.new_messages),
            updated_messages=counts.updated_messages + (0 if old is None else old.updated_messages),
        )  # fmt: skip
