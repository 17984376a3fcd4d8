"""Follows the files of other tools as they grow, and imports new messages.

The operating system reports which files changed, so the work is proportional to the changes: the names of all files are
in memory, and only files that changed are opened. A folder that does not exist yet, or disappears, is looked for every
second.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from recollect.errors import RecollectError, StoreClosed, StoreError, StoreUnavailable
from recollect.sources.files import MAX_DOCUMENT_BYTES, FolderTree
from recollect.sources.source import ConversationSource, Transcript
from recollect.store import Store
from recollect.sync.importer import ChangedFile, FileImport, ImportOptions
from recollect.sync.places import Place, linked_places
from recollect.sync.report import ImportReport

_STEP = 40  # milliseconds without a change that end a group of changes. A response of a model is written as a burst.
_DEBOUNCE = 400  # milliseconds, the longest group: a line is in the store within a second, also in a file that grows on
_POLL = 1.0  # seconds between looks for folders that did not exist. A tool creates its folder once.
_RETRY = 5.0  # seconds before a failed write is tried again. A database restart takes seconds.
_SHARED_DELAY = 60.0
"""Seconds before a change of a file that several transcripts share, such as an index of titles, is read.

A tool may write it with every message, and then all of its transcripts count as changed.
"""
_SIDE_SUFFIXES = ("-wal", "-shm", "-journal")


class _ChangedPath(NamedTuple):
    """A change that the operating system reported."""

    path: str
    is_deleted: bool


_Item = set[_ChangedPath] | BaseException | None


class FileWatcher:
    """Imports new messages in places until stop() is called."""

    def __init__(
        self, store: Store, places: Sequence[Place], options: ImportOptions,
        on_report: Callable[[ImportReport], object], on_error: Callable[[RecollectError], object],
    ) -> None:  # fmt: skip
        self._run = FileImport(store, options)
        self._folders = [_WatchedPlace(place, self._run) for place in places]
        self._on_report, self._on_error = on_report, on_error
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._listeners: list[_Listener] = []
        self._next_poll = 0.0

    def stop(self) -> None:
        """End run() after the transcript that it imports. Any thread and a signal handler may call it."""
        self._stopped.set()
        self._queue.put(None)

    def run(self) -> None:
        """Import new messages, then every change, until stop() is called.

        A store that fails is reported, and the import is tried again. Raise StoreUnavailable if the operating system
        cannot watch the folders.
        """
        try:
            while not self._stopped.is_set():
                self._look_for_places()
                self._import()
                self._follow_links()
                self._receive(self._take())
        finally:
            self._close_listeners()

    def _look_for_places(self) -> None:
        """Watch the places that appeared, and forget those that disappeared."""
        if time.monotonic() < self._next_poll:
            return
        self._next_poll = time.monotonic() + _POLL
        new_folders = [folder for folder in self._folders if folder.has_moved() and folder.is_present]
        for listener in [each for each in self._listeners if not each.serves(self._folders)]:
            listener.close()
            self._listeners.remove(listener)
        # The listeners of the other places stay, so that no change is missed.
        folders = [folder.real_path for folder in new_folders if folder.is_folder]
        parents = [os.path.dirname(folder.real_path) for folder in new_folders if not folder.is_folder]
        new = [_Listener(sorted(set(folders)), self._queue, recursive=True)] if folders else []
        new += [_Listener(sorted(set(parents)), self._queue, recursive=False)] if parents else []
        for listener in new:
            listener.wait_until_ready()
        self._listeners += new

    def _import(self) -> None:
        """Import what changed. If the store fails, the changes stay, and the next call tries again."""
        if not any(folder.has_work for folder in self._folders):
            return
        try:
            files = [file for folder in self._folders for file in folder.take_changes()]
            for position, file in enumerate(files):
                if self._stopped.is_set():
                    return  # the next import finds the others
                try:
                    self._run.read(file)
                except StoreError:
                    for remaining in files[position:]:
                        self._folder_of(remaining).put_back(remaining)
                    raise
            report = self._run.finish()
        except StoreClosed:
            raise
        except StoreError as error:
            self._on_error(error)
            self._stopped.wait(_RETRY)
        else:
            if report.has_news:
                self._on_report(report)

    def _follow_links(self) -> None:
        """Add the folders to which new symbolic links lead. They are looked for, and watched, like any other place."""
        for folder in self._folders:  # which grows
            links, folder.links = folder.links, set()
            for place in linked_places(folder.place, links, [each.place for each in self._folders]) if links else ():
                self._folders.append(_WatchedPlace(place, self._run))
                self._next_poll = 0.0

    def _folder_of(self, file: ChangedFile) -> _WatchedPlace:
        return next(folder for folder in self._folders if folder.place.path == file.tree.path)

    def _take(self) -> set[_ChangedPath]:
        """Wait for changes, and return all that have been reported."""
        if any(folder.has_work for folder in self._folders):
            timeout = 0.0  # a write failed
        else:
            due = min([self._next_poll, *(folder.due for folder in self._folders)])
            timeout = max(due - time.monotonic(), 0.0)
        changes: set[_ChangedPath] = set()
        try:
            item = self._queue.get(timeout=timeout)
            while True:
                if isinstance(item, BaseException):
                    raise item
                changes |= item or set()
                item = self._queue.get_nowait()
        except queue.Empty:
            return changes

    def _receive(self, changes: set[_ChangedPath]) -> None:
        for folder in self._folders:
            if folder.is_present and folder.receive(changes):
                self._next_poll = 0.0  # it disappeared: look for it now

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()


class _Listener:
    """A thread that puts what the operating system reports into a queue."""

    def __init__(self, paths: Sequence[str], changes: queue.SimpleQueue[_Item], *, recursive: bool) -> None:
        self._paths, self._queue, self._recursive = paths, changes, recursive
        self._stopped, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="recollect-watch", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        import watchfiles  # noqa: PLC0415  only to watch

        try:
            for changes in watchfiles.watch(
                *self._paths, watch_filter=None, debounce=_DEBOUNCE, step=_STEP, stop_event=self._stopped,
                rust_timeout=_STEP * 5, yield_on_timeout=True, raise_interrupt=False, recursive=self._recursive,
                ignore_permission_denied=True,
            ):  # fmt: skip
                self._ready.set()  # the first item comes, at the latest, after the timeout
                if changes:
                    self._queue.put({_ChangedPath(path, kind == watchfiles.Change.deleted) for kind, path in changes})
        except FileNotFoundError:  # a folder that disappeared since; the watcher looks for all of them again
            self._queue.put({_ChangedPath(path, is_deleted=True) for path in self._paths})
        except OSError as error:
            self._queue.put(_unwatchable(error))
        except Exception as error:  # noqa: BLE001  watchfiles raises a class of its own for errors of the system
            self._queue.put(_unwatchable(error))
        finally:
            self._ready.set()

    def wait_until_ready(self) -> None:
        """Wait until changes are recorded."""
        self._ready.wait()

    def serves(self, folders: Iterable[_WatchedPlace]) -> bool:
        """Return whether one of the places that it watches is present."""
        return any(
            folder.is_present
            and (folder.real_path if folder.is_folder else os.path.dirname(folder.real_path)) in self._paths
            for folder in folders
        )

    def close(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._thread.join()


def _unwatchable(error: Exception) -> StoreUnavailable:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return StoreUnavailable(
        f"The folders cannot be watched: {reason}. Raise the limit of the system (on Linux fs.inotify.max_user_watches "
        f"and max_user_instances), watch fewer sources, or run `recollect sync` at intervals.",
        path="", reason=reason,
    )  # fmt: skip


class _VisibleTree:
    """A folder in which only some files can be read, so that looking for transcripts among all names is cheap."""

    def __init__(self, tree: FolderTree, visible: set[str]) -> None:
        self.path, self.problems = tree.path, tree.problems
        self._tree, self._visible = tree, visible
        self.names, self.stamp, self.local_path = tree.names, tree.stamp, tree.local_path

    def head(self, name: str) -> bytes:
        return self._tree.head(name) if name in self._visible else b""

    def open(self, name: str) -> IO[bytes]:
        return self._tree.open(name)

    def read(self, name: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        return self._tree.read(name, limit)


class _Known(NamedTuple):
    """A transcript of a place."""

    source: ConversationSource
    transcript: Transcript


class _WatchedPlace:
    """The files of a place: their names, the transcripts to which they belong, and the changes to import."""

    def __init__(self, place: Place, run: FileImport) -> None:
        self.place, self._run = place, run
        self.real_path = os.path.realpath(place.path)
        self.is_present = self.is_folder = False
        self.due = float("inf")
        """When the transcripts of a changed shared file are read."""
        self.links: set[str] = set()
        """The names of symbolic links that were found since they were last followed."""
        self._identity: tuple[int, int] | None = None
        self._tree = FolderTree(place.path)
        self._names: set[str] = set()
        self._owners: dict[str, dict[str, _Known]] = {}
        """The transcripts to which a file belongs, by the names of their main files."""
        self._change_names: set[str] = set()
        self._new_names: set[str] = set()
        self._late_names: set[str] = set()
        self._needs_scan = False

    @property
    def has_work(self) -> bool:
        """Whether there is something to import now."""
        return self._needs_scan or bool(self._change_names) or self.due <= time.monotonic()

    def has_moved(self) -> bool:
        """Return whether the place appeared, disappeared or was replaced since the last call."""
        try:
            status = os.stat(self.real_path)
        except OSError:
            status = None
        # A file that its tool replaces stays the same place: its folder is watched.
        is_folder = status is not None and os.path.isdir(self.real_path)
        identity = None if status is None else (status.st_dev, status.st_ino if is_folder else 0)
        if identity == self._identity:
            return False
        self._identity = identity
        self.is_present, self.is_folder = status is not None, is_folder
        self._tree = FolderTree(self.place.path)
        self._needs_scan = self.is_present
        return True

    def receive(self, changes: Iterable[_ChangedPath]) -> bool:
        """Remember changes of the files of the place; return whether the place itself disappeared."""
        for change in changes:
            if not self.is_folder:
                name = _without_side_suffix(change.path)
                self._needs_scan = self._needs_scan or (name == self.real_path and not change.is_deleted)
            elif change.path == self.real_path:
                if change.is_deleted:
                    self._identity, self.is_present = None, False
                    return True
            elif change.path.startswith(os.path.join(self.real_path, "")):
                name = os.path.relpath(change.path, self.real_path).replace(os.sep, "/")
                self._receive_name(name, change)
        return False

    def _receive_name(self, name: str, change: _ChangedPath) -> None:
        if change.is_deleted and not os.path.lexists(change.path):
            old_names = {name} if name in self._names else {each for each in self._names if each.startswith(f"{name}/")}
            self._names -= old_names
            self._change_names |= old_names
            return
        if os.path.islink(change.path):
            self.links.add(name)
            return
        names = {name}
        if os.path.isdir(change.path):  # its files may have been written before it was watched
            names = {f"{name}/{each}" for each in FolderTree(Path(change.path)).names()}
        elif not os.path.isfile(change.path):
            return
        self._new_names |= names - self._names
        self._names |= names
        self._change_names |= names

    def take_changes(self) -> list[ChangedFile]:
        """Return the transcripts that have changed."""
        if self._needs_scan:
            items = self._scan()
        else:
            items = self._take_touched()
            if self.due <= time.monotonic():
                items += [owner for name in self._late_names for owner in self._owners.get(name, {}).values()]
                self._late_names.clear()
                self.due = float("inf")
        unique = {item.transcript.name: item for item in items}
        files = [self._run.stamp(item.source, self._tree, item.transcript) for item in unique.values()]
        return [file for file in files if file is not None and self._run.is_wanted(file)]

    def put_back(self, file: ChangedFile) -> None:
        """Take a transcript again with the next changes."""
        self._change_names.add(file.transcript.name)
        self._needs_scan = self._needs_scan or not self.is_folder

    def _scan(self) -> list[_Known]:
        """Return all transcripts of the place."""
        self._needs_scan = False
        self._names = set(self._tree.names())
        self.links.update(self._tree.links)
        self._owners.clear()
        for changes in (self._change_names, self._new_names, self._late_names):
            changes.clear()
        return self._detect(self._names)

    def _take_touched(self) -> list[_Known]:
        """Return the transcripts of the files that changed, and look for new ones among the others."""
        changes, new_names = self._change_names, self._new_names
        self._change_names, self._new_names = set(), set()
        if not changes:
            return []
        items: list[_Known] = []
        unknown = set(new_names)
        for name in changes:
            owners = self._owners.get(name, {})
            if not owners or name not in self._names:
                unknown.add(name)
                unknown.update(owners)
            elif name in owners or len(owners) == 1:
                items += owners.values()
            else:
                self._late_names.add(name)
                self.due = min(self.due, time.monotonic() + _SHARED_DELAY)
        if unknown:
            items += self._detect(unknown)
            strange_names = {name for name in new_names if name not in self._owners}
            if strange_names:
                items += self._detect(strange_names | self._relatives(strange_names))
        return items

    def _detect(self, visible: set[str]) -> list[_Known]:
        """Return the transcripts whose main files are visible, and remember their files."""
        for name in visible:
            for transcript in [item.transcript for item in self._owners.get(name, {}).values()]:
                if transcript.name in visible:
                    self._forget(transcript)
        tree = _VisibleTree(self._tree, visible)
        items = [_Known(*pair) for pair in self._run.detect(tree, sorted(self._names), self.place.sources)]
        self._run.other_files.clear()
        for item in items:
            for name in (item.transcript.name, *item.transcript.files):
                self._owners.setdefault(name, {})[item.transcript.name] = item
        return items

    def _forget(self, transcript: Transcript) -> None:
        for name in (transcript.name, *transcript.files):
            owners = self._owners.get(name, {})
            owners.pop(transcript.name, None)
            if not owners:
                self._owners.pop(name, None)

    def _relatives(self, names: set[str]) -> set[str]:
        """Return the main files of transcripts to which new files may belong: of the same name, or of several files."""
        stems = {_stem(name) for name in names}
        documents = {
            item.transcript.name
            for owners in self._owners.values()
            for item in owners.values()
            if item.transcript.kind == "document" and item.transcript.files
        }
        return documents | {name for name in self._names if _stem(name) in stems}


def _stem(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.partition('.')[0]}"


def _without_side_suffix(path: str) -> str:
    for suffix in _SIDE_SUFFIXES:
        path = path.removesuffix(suffix)
    return path
