"""The database file as both engines use it: its connections, fork() support, file identity and secure wipe.

fork(): connections are closed before it and reopened on the next use in parent and child. SQLite keeps its locks in
process memory; a child would inherit the tables without the locks, and the parent's close could checkpoint and delete
a WAL that the child still uses.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

import apsw

from recollect.engine import process
from recollect.engine.change_notifier import ChangeNotifier, LocalChangeNotifier
from recollect.engine.sqlite import filesystem
from recollect.engine.sqlite.change_notifier import FileChangeNotifier
from recollect.engine.sqlite.checkpoint import TRUNCATE_WAIT, checkpoint_at, run_checkpoint, truncate_wal
from recollect.engine.sqlite.connection import (
    configure,
    connect,
    connect_reader,
    disable_checksum_verification,
    immutable_state,
)
from recollect.engine.sqlite.errors import resource_error
from recollect.engine.sqlite.file_identity import FileIdentity, identify_files, set_wal_aside
from recollect.engine.sqlite.filesystem import prepare_file
from recollect.engine.sqlite.liveness import LivenessLock
from recollect.engine.sqlite.migrations import prepare_schema
from recollect.engine.sqlite.ranking import register_ranking
from recollect.engine.sqlite.transactions import Transactions
from recollect.engine.url import MEMORY
from recollect.errors import Corrupted, DiskFull, RecollectError, StoreClosed, StoreUnavailable
from recollect.storage.operation import Deletion, Operation

_FORK_POLL_INTERVAL = 0.001  # seconds between two tests whether all operations have ended. fork() waits meanwhile


class Forkable:
    """Counts the users of the connections to a file, and closes the connections before the process forks."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.needs_reopen = False
        """Whether the connections were closed or abandoned, so that the next user of the file opens it again."""
        self.is_forked = False
        """Whether this process was forked since the file was last used."""
        self._forking = False
        self._lock = threading.Lock()
        self._users: list[None] = []  # one None per user: append() and pop() are atomic, += 1 is not

    def close_connections(self) -> None:
        """Close the connections, which nobody uses now, and set `needs_reopen` if there is a file to reopen."""
        raise NotImplementedError

    def leave_to_parent(self) -> None:
        """Leave the connections open and forget them: they were in use too long to be closed before the fork."""
        raise NotImplementedError

    def reopen(self) -> None:
        """Open the file again."""
        raise NotImplementedError

    def enter(self) -> None:
        """Register as a user of the connections; reopen them after a fork. Raises if the file cannot be opened.

        Lock-free: append to the list first, then read the flag. before_fork() sets the flag first, then waits for the
        list to be empty, so one of the two sees the other. A lock here would cost every operation.
        """
        self._users.append(None)  # before the flags are read: see above
        while self._forking or self.needs_reopen:
            self._reopen_once()

    def _reopen_once(self) -> None:
        self._users.pop()  # while it waits for the lock, it must not keep before_fork() waiting
        with self._lock:
            if self.needs_reopen:
                self.reopen()
                self.needs_reopen = False
        self._users.append(None)

    def leave(self) -> None:
        """Unregister as a user."""
        self._users.pop()

    def before_fork(self) -> None:
        """Close the connections when the operations in progress have ended. The lock is held until after the fork."""
        self._lock.acquire()
        self._forking = True  # operations that begin now wait for the lock in _reopen_once()
        deadline = time.monotonic() + self.timeout
        while self._users and time.monotonic() < deadline:
            time.sleep(_FORK_POLL_INTERVAL)
        # If an operation outlasts the timeout, the fork happens with open connections; leave_to_parent() then keeps
        # the child from using or closing them.
        if not self._users and not self.needs_reopen:
            self.close_connections()

    def after_fork_in_parent(self) -> None:
        """Allow operations again; the next one reopens the file."""
        self._forking = False
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Allow operations in the child. Threads of the parent do not exist here, so its lock and users are dropped."""
        self._lock = threading.Lock()
        self._users, self._forking, self.is_forked = [], False, True
        self.leave_to_parent()


def never_close(connections: list[apsw.Connection]) -> None:
    """Add a reference that is never released, so that the interpreter does not close connections at exit.

    They are the parent's: closing them here would checkpoint its WAL and drop its locks.
    """
    import ctypes  # noqa: PLC0415  only in a forked child whose parent was busy

    for connection in connections:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def register_fork_hooks(files: Iterable[Forkable]) -> None:
    """Call the fork methods of all files at every fork, including files that are added later."""

    def call_all(name: str) -> None:
        for file in list(files):
            getattr(file, name)()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: call_all("before_fork"),
            after_in_parent=lambda: call_all("after_fork_in_parent"),
            after_in_child=lambda: call_all("after_fork_in_child"),
        )


T = TypeVar("T")

# Reader connections that stay open for the next reads. With fewer, a program with many threads opens them again and
# again; each one holds a page cache and prepared statements.
_MAX_IDLE_READERS = 8
# Seconds between two checks of the file identity. Checking around every write made many writes 10% slower; a longer
# interval would acknowledge more writes to a file that was removed.
IDENTITY_CHECK_INTERVAL = 0.05


class DatabaseFile(Forkable):
    """One writer connection and idle reader connections. After fork(), each process opens its own."""

    def __init__(self, path: str, timeout: float, checkpoint: int) -> None:
        super().__init__(timeout)
        self.path = path
        self._checkpoint_pages = checkpoint
        self.memory = path == MEMORY
        self.transactions = Transactions(path, timeout)
        self.slack = False  # an erasure left text in slack space of pages: a rewrite of the file is due
        self.wipe_pending = False  # the next write tries again to finish an erasure
        self._idle: list[apsw.Connection] = []
        self.writer: apsw.Connection | None = None
        self._notifiers: weakref.WeakSet[ChangeNotifier] = weakref.WeakSet()
        self._has_notifiers = False
        self.identity: FileIdentity | None = None
        self.liveness: LivenessLock | None = None
        self._previous_identity: FileIdentity | None = None
        self._next_identity_check = 0.0
        if not self.memory:
            prepare_file(path)
        self._real_path = os.path.realpath(path)  # SQLite puts -wal and -shm next to the target of a symbolic link
        self.writer = self._open()
        _open_files.add(self)

    def _open(self) -> apsw.Connection:
        """Open the writer connection; on a full disk, after releasing the reserve."""
        self._immutable_state = immutable_state(self.path)
        try:
            connection = self._connect_and_migrate()
        except DiskFull:
            if not filesystem.release_reserve(self._real_path):
                raise
            connection = self._connect_and_migrate()
        except Corrupted as error:
            if not isinstance(error.__cause__, apsw.CorruptError):
                raise
            # SQLite also reports a failed read of the disk as damage, and that may be transient.
            connection = self._connect_and_migrate()
        if not self.memory:
            self.identity = self._identify()
            filesystem.keep_reserve(self._real_path)
            if self.liveness is None:
                self.liveness = LivenessLock(self._real_path)
            self.liveness.hold()
        return connection

    def _identify(self) -> FileIdentity | None:
        """Return which files were opened. All connections of a process share the -shm of the first that opened it."""
        identity = identify_files(self._real_path)
        for other in list(_open_files):
            if identity is not None and other is not self and not other.needs_reopen:
                identity = identity.join(other.identity)
        return identity

    def _connect_and_migrate(self) -> apsw.Connection:
        """Connect, and migrate the file to the schema of this version."""
        connection = None
        try:
            connection = connect(self.path, self.timeout)
            prepare_schema(connection, self.path, self.timeout)
            disable_checksum_verification(connection)  # a new file turned it on when it got its first checksums
            register_ranking(connection)
            checkpoint_at(connection, self._checkpoint_pages, self.timeout)
        except apsw.Error as error:
            store_error = self.transactions.translate_error(error, 0 if connection is None else connection.system_errno)
            # Close it after the translation, which tests whether a file can be opened: closing frees a descriptor.
            _close_connection(connection)
            raise store_error from error
        except OSError as error:
            _close_connection(connection)
            resource = resource_error(error.errno or 0, self.path)
            raise resource or StoreUnavailable(path=self.path, reason=error.strerror or str(error)) from error
        except BaseException:
            _close_connection(connection)
            raise
        return connection

    def _open_reader(self) -> apsw.Connection:
        try:
            try:
                connection = connect_reader(self.path, self.timeout)
            except apsw.IOError:  # SQLite reads the header of the file here, and a failed read may be transient
                connection = connect_reader(self.path, self.timeout)
        except apsw.Error as error:
            raise self.transactions.translate_error(error) from error
        with contextlib.suppress(apsw.Error):  # the first read of a damaged file reports it
            register_ranking(connection)
        return connection

    def close_connections(self) -> None:
        """Close the connections, without a checkpoint. An in-memory store keeps its own: it has no file to reopen."""
        if self.writer is None or self.memory:
            return
        for connection in [*self._idle, self.writer]:
            # The next operation continues with the same WAL, and fork() should not wait for a checkpoint.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        self._idle, self.needs_reopen = [], True

    def leave_to_parent(self) -> None:
        """Leave the connections open and forget them, if they could not be closed before the fork."""
        self._previous_identity = None
        if not self.memory and not self.needs_reopen and self.writer is not None:
            never_close([*self._idle, self.writer])
            self._idle, self.needs_reopen = [], True

    def reopen(self) -> None:
        """Open the file again, or the one that has its name by now."""
        self._detach_wal(self._previous_identity)
        self.writer, self._previous_identity = self._open(), None

    def _detach_wal(self, identity: FileIdentity | None) -> None:
        """Ensure that SQLite never opens another file of the same name with our WAL.

        The WAL is checkpointed into its own file, which may have been moved; if that fails, the WAL is renamed. If only
        the database file is missing, both happen: it was moved or deleted, and in the second case the renamed WAL has
        the last copy of its content.
        """
        if identity is None:
            return
        if identity.is_name_taken():
            if self.writer is None or not self._checkpoint_wal():
                set_wal_aside(identity)
        elif (
            identity.is_file_missing() and self.writer is not None and self._checkpoint_wal(apsw.SQLITE_CHECKPOINT_FULL)
        ):
            set_wal_aside(identity)

    def after_fork(self) -> bool:
        """Return whether this process was forked since the file was last used. Raises StoreClosed in memory."""
        if not self.is_forked:
            return False
        if self.memory:
            raise StoreClosed("An in-memory store belongs to the process that opened it; fork() does not share it.")
        self.is_forked = False
        return True

    def read(self, op: Operation[T]) -> T:
        """Run an operation that only reads, on its own snapshot, concurrently with any writer."""
        self.enter()
        try:
            return self._read(op)
        finally:
            self.leave()

    def _read(self, op: Operation[T]) -> T:
        idle = self._idle
        try:
            connection = idle.pop()  # atomic, so no other thread has this connection: readers need no lock
        except IndexError:
            connection = self._open_reader()
        try:
            result = self.transactions.run("BEGIN", connection, op)
            identity = self.identity
            if self.is_displaced(reading=True):
                raise self.displaced_error(identity, checkpoint=False)
            # Tested after the read: its result may mix pages of two versions of the file, and is then discarded.
            if self._immutable_state is not None and self._immutable_state != immutable_state(self.path):
                raise self._changed_error()
            return result
        finally:
            # After a replacement of the file or a fork, self._idle is a new list, and this connection is stale.
            if len(idle) < _MAX_IDLE_READERS and self.writer is not None and idle is self._idle:
                idle.append(connection)
            else:
                connection.close()

    def write(self, op: Operation[T]) -> T:
        """Run an operation in a transaction. Its writes are on disk when this returns."""
        self.enter()
        try:
            identity = self.identity
            if self.writer is None:
                raise StoreClosed
            if self.is_displaced():
                raise self.displaced_error(identity)
            result = self._run_write(op, self.writer)
            if identity is not self.identity or self.is_displaced():  # another thread may have noticed it meanwhile
                raise self.displaced_error(identity)
            self.finish_erasure(has_erased=op.deletion is Deletion.CONTENT)
            if op.deletion is not Deletion.NOTHING and not self.memory:
                filesystem.keep_reserve(self._real_path)
        finally:
            self.leave()
        if self._has_notifiers:
            self.notify_watchers()
        return result

    def _run_write(self, op: Operation[T], writer: apsw.Connection) -> T:
        """Run an operation; on a full disk, an operation that deletes may use the reserve."""
        begin = "BEGIN IMMEDIATE" if op.writes else "BEGIN"
        try:
            return self.transactions.run(begin, writer, op)
        except DiskFull:
            if self.memory or op.deletion is Deletion.NOTHING or not filesystem.release_reserve(self._real_path):
                raise
            return self.transactions.run(begin, writer, op)

    def is_displaced(self, *, reading: bool = False) -> bool:
        """Return whether writes go to a file that is no longer reachable under its name.

        Callers test this before a write, so that it does not overwrite another file, and again before they acknowledge
        it. The names are looked up at most once per IDENTITY_CHECK_INTERVAL; in between, it returns False.
        """
        now = time.monotonic()
        if self.identity is None or now < self._next_identity_check:
            return False
        is_displaced = not (self.identity.is_readable() if reading else self.identity.is_unchanged())
        # A displaced file is checked again at once: every operation must learn of it.
        self._next_identity_check = 0.0 if is_displaced else now + IDENTITY_CHECK_INTERVAL
        return is_displaced

    def displaced_error(self, identity: FileIdentity | None, *, checkpoint: bool = True) -> RecollectError:
        """Return the error for files that were removed or replaced; the next operation opens the new ones.

        If only the WAL was removed, it is checkpointed first, as long as no other process has begun a new one.
        """
        if identity is not None and checkpoint and identity.is_same_file() and not identity.has_replaced_shm():
            self._checkpoint_wal()
        if identity is not None and identity.is_split():
            return StoreUnavailable(
                f"{identity.shm} was removed while {self.path} was open, and this change was not stored. Close every "
                f"store that this process has open on it, and open it again: no acknowledged write is lost.",
                path=self.path,
                reason="the shared-memory file of its WAL was removed while it was open",
            )
        if identity is not None and identity is self.identity:
            self._previous_identity, self.identity, self._idle, self.needs_reopen = identity, None, [], True
        return StoreUnavailable(
            f"{self.path} or its WAL was removed or replaced while it was open, and this change was not stored. "
            f"Put the file back, or continue with the one that is there now: the next operation opens it.",
            path=self.path,
            reason="it was removed or replaced while it was open",
        )

    def _changed_error(self) -> RecollectError:
        """Return the error for a file that was opened as immutable and has changed; it is reopened on the next use."""
        self._idle, self.needs_reopen = [], True
        return StoreUnavailable(
            f"{self.path} was changed by another program during this read, although its file system is mounted "
            f"read-only here. Try again.",
            path=self.path,
            reason="it was changed through another mount",
        )

    def change_notifier(self) -> ChangeNotifier:
        """Return a change notifier, which reports commits of all processes."""
        if self.memory:
            notifier: ChangeNotifier = LocalChangeNotifier()
        else:
            try:
                notifier = FileChangeNotifier(self._real_path, self.timeout, self._follow_replacement)
            except apsw.Error as error:
                raise self.transactions.translate_error(error) from error
        self._notifiers.add(notifier)
        self._has_notifiers = True  # never reset: it only spares stores without a watch the copy of the WeakSet
        return notifier

    def _follow_replacement(self) -> bool:
        """Open the file that has the name now, if that is another one. Return whether it could be opened."""
        identity = self.identity
        if identity is not None and not identity.is_same_file():
            self.displaced_error(identity, checkpoint=False)
        try:
            self.enter()
        except RecollectError:
            return False
        self.leave()
        return True

    def notify_watchers(self) -> None:
        """Wake every change notifier of this store after a commit of this process."""
        for notifier in list(self._notifiers):
            notifier.notify()

    def finish_erasure(self, *, has_erased: bool) -> None:
        """Wipe the text that a commit erased from slack space and the WAL, or retry an earlier wipe."""
        if has_erased:
            self.slack = True
        if has_erased or self.wipe_pending:
            self.wipe_slack()

    def wipe_slack(self) -> None:
        """Wipe erased text from slack space and from the WAL.

        `secure_delete` overwrites deleted rows. But when a page splits, SQLite copies rows to another page and leaves
        the old bytes in unused space, where no row refers to them; only VACUUM removes those. A page wiper of our own
        was faster (0.1 instead of 0.5 seconds for 94 MB), and corrupted the file during a checkpoint. A reader may
        hold the WAL; then the next write, or closing the store, tries again.
        """
        if self.memory or self.writer is None:
            return
        no_slack = not self.slack or self._rewrite_after_erasure()
        self.wipe_pending = not self._checkpoint_wal() or not no_slack

    def rewrite(self) -> None:
        """Rewrite every page of the file and truncate the WAL. Other writers wait meanwhile."""
        self.on_own_connection(_vacuum)
        if not self.on_own_connection(lambda connection: truncate_wal(connection, self.timeout)):
            self.wipe_pending = True  # a reader holds the WAL: the next write truncates it

    def _rewrite_after_erasure(self) -> bool:
        """Rewrite the file after an erasure. Return False if the write lock was not free: the next write tries again.

        Any other failure, such as a full disk, would fail every following write too. It is left to the next erasure,
        to close(), and to optimize(), which raises it.
        """
        connection = None
        try:
            connection = connect(self.path, self.timeout)
            configure(connection)
            _vacuum(connection)
            self.slack = False
        except apsw.BusyError:
            return False
        except apsw.Error:
            return True
        finally:
            _close_connection(connection)
        return True

    def _checkpoint_wal(self, mode: int = apsw.SQLITE_CHECKPOINT_TRUNCATE) -> bool:
        """Checkpoint the WAL, and truncate it in the default mode. Return False if a reader holds it."""
        assert self.writer is not None
        return run_checkpoint(self.writer, self.timeout, wait=TRUNCATE_WAIT, mode=mode)

    def on_own_connection(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on a new connection next to those in use; in memory, on the only connection."""
        self.enter()
        connection = None
        try:
            if self.writer is None:
                raise StoreClosed
            if self.memory:
                return work(self.writer)
            connection = connect(self.path, self.timeout)
            configure(connection)
            return work(connection)
        except apsw.Error as error:
            raise self.transactions.translate_error(error) from error
        finally:
            _close_connection(connection)
            self.leave()

    def holder(self) -> str:
        """Return the holder name of this process, which operations store in the file."""
        return process.holder() if self.liveness is None else self.liveness.name()

    def is_gone(self, name: str) -> bool:
        """Return whether a holder that wrote to the file is gone. False if that cannot be known."""
        return process.is_gone(name, local=True) if self.liveness is None else self.liveness.is_gone(name)

    def close(self) -> None:
        """Close every connection; SQLite checkpoints the WAL when the last one of all processes closes."""
        try:
            self._close()
        finally:
            if self.liveness is not None:
                self.liveness.release()

    def _close(self) -> None:
        self._detach_wal(self._previous_identity if self.needs_reopen else self.identity)
        if self.needs_reopen:
            self.needs_reopen, self.writer = False, None
            filesystem.settle_reserve(self._real_path)
            return
        if self.wipe_pending or self.slack:
            self.wipe_slack()
        # Another process has begun a new -shm after ours was removed: a checkpoint would ignore its locks.
        if self.identity is not None and self.identity.has_replaced_shm() and self.writer is not None:
            self.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        writer, self.writer, self.identity = self.writer, None, None
        while self._idle:
            self._idle.pop().close()
        if writer is not None:
            try:
                writer.close()
            except apsw.Error as error:
                raise self.transactions.translate_error(error) from error
            if not self.memory:
                filesystem.settle_reserve(self._real_path)


def _vacuum(connection: apsw.Connection) -> None:
    """Rewrite the whole database in one transaction; bytes of deleted rows are not copied."""
    connection.execute("VACUUM")


def _close_connection(connection: apsw.Connection | None) -> None:
    if connection is not None:
        connection.close()


_open_files: weakref.WeakSet[DatabaseFile] = weakref.WeakSet()
register_fork_hooks(_open_files)
