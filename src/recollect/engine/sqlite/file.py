"""The database file as both engines use it: the connections to it, and whether it is still there."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

import apsw

from recollect.engine import process
from recollect.engine.bell import Bell, Signal
from recollect.engine.sqlite import reserve
from recollect.engine.sqlite.connection import accept_pages, configure, connect, connect_reader, frozen
from recollect.engine.sqlite.failure import hindrance
from recollect.engine.sqlite.filesystem import prepare
from recollect.engine.sqlite.fork import Forkable, never_close, see_to
from recollect.engine.sqlite.liveness import Liveness
from recollect.engine.sqlite.log import TRUNCATE_WAIT, fold_at, folded, truncated
from recollect.engine.sqlite.migration import ready
from recollect.engine.sqlite.place import Place, place, set_aside
from recollect.engine.sqlite.ranking import register
from recollect.engine.sqlite.transaction import Transactions
from recollect.engine.sqlite.watch import FileBell
from recollect.engine.url import MEMORY
from recollect.errors import Corrupted, DiskFull, RecollectError, StoreClosed, StoreUnavailable
from recollect.op import Op

T = TypeVar("T")

_IDLE = 8
MOMENT = 0.05
"""Seconds after which it is looked again whether the file is still there."""


class File(Forkable):
    """One writing connection and a stock of reading ones. After fork() each process opens its own."""

    def __init__(self, path: str, timeout: float, checkpoint: int) -> None:
        super().__init__(timeout)
        self.path = path
        self._checkpoint = checkpoint
        self.memory = path == MEMORY
        self.transactions = Transactions(path, timeout)
        self.slack = False  # an erasure left text in page slack: a rewrite of the file is due
        self.unscrubbed = False  # the next write tries again to finish an erasure
        self._idle: list[apsw.Connection] = []
        self.writer: apsw.Connection | None = None
        self._bells: weakref.WeakSet[Bell] = weakref.WeakSet()
        self._listened = False
        self.place: Place | None = None
        self.liveness: Liveness | None = None
        self._former: Place | None = None
        self._look_again = 0.0
        if not self.memory:
            prepare(path)
        self._real = os.path.realpath(path)  # what lies beside the file lies beside what a link leads to
        self.writer = self._open()
        _files.add(self)

    def _open(self) -> apsw.Connection:
        """Open the connection that writes; on a full disk with the room that was kept back."""
        self._frozen = frozen(self.path)
        try:
            connection = self._connected()
        except DiskFull:
            if not reserve.release(self._real):
                raise
            connection = self._connected()
        except Corrupted as error:
            if not isinstance(error.__cause__, apsw.CorruptError):
                raise
            connection = self._connected()  # the disk may have failed for a moment
        if not self.memory:
            self.place = self._found()
            reserve.keep(self._real)
            if self.liveness is None:
                self.liveness = Liveness(self._real)
            self.liveness.hold()
        return connection

    def _found(self) -> Place | None:
        """Look at which files were opened; the index is that of whoever in this process opened the file first."""
        found = place(self._real)
        for other in list(_files):
            if found is not None and other is not self and not other.lapsed:
                found = found.joining(other.place)
        return found

    def _connected(self) -> apsw.Connection:
        """Connect, and bring the file to the schema that this program knows."""
        connection = None
        try:
            connection = connect(self.path, self.timeout)
            ready(connection, self.path, self.timeout)
            accept_pages(connection)
            register(connection)
            fold_at(connection, self._checkpoint, self.timeout)
        except apsw.Error as error:
            meant = self.transactions.meaning(error, 0 if connection is None else connection.system_errno)
            _abandon(connection)  # after it was looked at: closing gives files back that may have been one too many
            raise meant from error
        except OSError as error:
            _abandon(connection)
            told = hindrance(error.errno or 0, self.path)
            raise told or StoreUnavailable(path=self.path, reason=error.strerror or str(error)) from error
        except BaseException:
            _abandon(connection)
            raise
        return connection

    def _open_reader(self) -> apsw.Connection:
        try:
            connection = connect_reader(self.path, self.timeout)
        except apsw.Error as error:
            raise self.transactions.meaning(error) from error
        with contextlib.suppress(apsw.Error):  # a damaged file says so to who reads it
            register(connection)
        return connection

    def let_go(self) -> None:
        """Close the connections; a store in memory has no file to go back to."""
        if self.writer is None or self.memory:
            return
        for connection in [*self._idle, self.writer]:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        self._idle, self.lapsed = [], True

    def leave_to_parent(self) -> None:
        """Give up the connections without closing them, where they could not be closed before the fork."""
        self._former = None
        if not self.memory and not self.lapsed and self.writer is not None:
            never_close([*self._idle, self.writer])
            self._idle, self.lapsed = [], True

    def take_up(self) -> None:
        """Open the file again, or the one that has its name by now."""
        self._disown(self._former)
        self.writer, self._former = self._open(), None

    def _disown(self, place: Place | None) -> None:
        """See to it that no other file, which has the name of ours or will have it, is opened with our log.

        What the log holds goes into the file that it belongs to, wherever that is now; else the log is set aside. Where
        the file alone is gone, it is both: it may have been moved or removed, and a log is not thrown away on a guess.
        """
        if place is None:
            return
        if place.usurped():
            if self.writer is None or not self._emptied():
                set_aside(place)
        elif place.bereft() and self.writer is not None and self._emptied(apsw.SQLITE_CHECKPOINT_FULL):
            set_aside(place)

    def after_fork(self) -> bool:
        """Say if this process was forked since the file was last used."""
        if not self.forked:
            return False
        if self.memory:
            raise StoreClosed("A store in memory stays with the process that opened it: fork() does not share it.")
        self.forked = False
        return True

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads, in a snapshot of its own, beside any writer."""
        self.enter()
        try:
            return self._read(op)
        finally:
            self.leave()

    def _read(self, op: Op[T]) -> T:
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:
            connection = self._open_reader()
        try:
            result = self.transactions.run("BEGIN", connection, op)
            opened = self.place
            if self.displaced(reading=True):
                raise self.left(opened, fold=False)
            if self._frozen is not None and self._frozen != frozen(self.path):
                raise self._thawed()
            return result
        finally:
            if len(idle) < _IDLE and self.writer is not None and idle is self._idle:
                idle.append(connection)
            else:
                connection.close()

    def write(self, op: Op[T]) -> T:
        """Run an operation in a transaction; it is on disk when this returns."""
        self.enter()
        try:
            opened = self.place
            if self.writer is None:
                raise StoreClosed
            if self.displaced():
                raise self.left(opened)
            result = self._written(op, self.writer)
            if opened is not self.place or self.displaced():  # another thread may have found it gone meanwhile
                raise self.left(opened)
            self.finish_erasure(erased=op.scrubs)
            if op.frees and not self.memory:
                reserve.keep(self._real)
        finally:
            self.leave()
        if self._listened:
            self.toll()
        return result

    def _written(self, op: Op[T], writer: apsw.Connection) -> T:
        """Run an operation; on a full disk one that frees space may have the room that was kept back."""
        begin = "BEGIN IMMEDIATE" if op.writes else "BEGIN"
        try:
            return self.transactions.run(begin, writer, op)
        except DiskFull:
            if self.memory or not op.frees or not reserve.release(self._real):
                raise
            return self.transactions.run(begin, writer, op)

    def displaced(self, *, reading: bool = False) -> bool:
        """Say if what is written goes into a file that nobody will find again under its name.

        Looked at before each write, so that nothing of someone else's is written over, and after it. Looked at again
        after a moment only: two looks after each of many writes made them a tenth slower.
        """
        now = time.monotonic()
        if self.place is None or now < self._look_again:
            return False
        gone = not (self.place.readable() if reading else self.place.unchanged())
        self._look_again = 0.0 if gone else now + MOMENT
        return gone

    def left(self, place: Place | None, *, fold: bool = True) -> RecollectError:
        """Let go of files that were removed or replaced; the next operation opens what is there then.

        Where only the log was removed, it is folded into the file first, as long as it is open and nobody else's.
        """
        if place is not None and fold and place.there() and not place.rivalled():
            self._emptied()
        if place is not None and place.split():
            return StoreUnavailable(
                f"{place.shared} was removed while {self.path} was open, and this change was not kept. Close every "
                f"store that this process has open on it, and open it again: nothing acknowledged is lost.",
                path=self.path,
                reason="the index of its log was removed while it was open",
            )
        if place is not None and place is self.place:
            self._former, self.place, self._idle, self.lapsed = place, None, [], True
        return StoreUnavailable(
            f"{self.path} was removed or replaced while it was open, or its log was, and this change was not kept. "
            f"Put the file back, or go on with the one that is there now: what is done next opens it.",
            path=self.path,
            reason="it was removed or replaced while it was open",
        )

    def _thawed(self) -> RecollectError:
        """Let go of a file that was taken for one that does not change; it was read while someone wrote to it."""
        self._idle, self.lapsed = [], True
        return StoreUnavailable(
            f"{self.path} was changed by another program while it was read here, where its file system is mounted "
            f"read-only. Try again.",
            path=self.path,
            reason="it was changed through another mount",
        )

    def bell(self) -> Bell:
        """Give a bell that is rung when anyone commits something."""
        if self.memory:
            bell: Bell = Signal()
        else:
            try:
                bell = FileBell(self._real, self.timeout, self._renewed)
            except apsw.Error as error:
                raise self.transactions.meaning(error) from error
        self._bells.add(bell)
        self._listened = True
        return bell

    def _renewed(self) -> bool:
        """Take up the file that has the name now, where that is another one; say if it could be opened."""
        opened = self.place
        if opened is not None and not opened.there():
            self.left(opened, fold=False)
        try:
            self.enter()
        except RecollectError:
            return False
        self.leave()
        return True

    def toll(self) -> None:
        """Ring every bell: this process has committed something."""
        for bell in list(self._bells):
            bell.ring()

    def finish_erasure(self, *, erased: bool) -> None:
        """Remove what a commit erased from page slack and the log, or try again what an earlier one could not."""
        if erased:
            self.slack = True
        if erased or self.unscrubbed:
            self.scrub()

    def scrub(self) -> None:
        """Remove erased text from page slack and from the log.

        `secure_delete` overwrites the rows that are deleted, but when a page splits, SQLite copies rows to another page
        and leaves the old bytes in unused space, where no row refers to them. Only a rewrite of the file removes those.
        A reader may hold the log; then the next write, or closing the store, tries again.
        """
        if self.memory or self.writer is None:
            return
        rewritten = not self.slack or self._rewritten()
        self.unscrubbed = not self._emptied() or not rewritten

    def rewrite(self) -> None:
        """Write every page of the file again and truncate the log. Other writers wait meanwhile."""
        self.beside(_vacuum)
        if not self.beside(lambda connection: truncated(connection, self.timeout)):
            self.unscrubbed = True  # a reader holds the log: the next write truncates it

    def _rewritten(self) -> bool:
        """Rewrite the file after an erasure. False if another process wrote all the time: try again soon.

        Any other failure, such as a full disk, would meet every following write too. It is left to the next erasure, to
        closing, and to optimize(), which raises it.
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
            _abandon(connection)
        return True

    def _emptied(self, mode: int = apsw.SQLITE_CHECKPOINT_TRUNCATE) -> bool:
        """Fold the log into the file and cut it off, or leave it there (FULL); False where a reader holds it."""
        assert self.writer is not None
        return folded(self.writer, self.timeout, wait=TRUNCATE_WAIT, mode=mode)

    def beside(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something on a connection of its own, beside those that are in use; in memory there is only one."""
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
            raise self.transactions.meaning(error) from error
        finally:
            _abandon(connection)
            self.leave()

    def holder(self) -> str:
        """Return the name of this process as others find it in the file."""
        return process.holder() if self.liveness is None else self.liveness.name()

    def gone(self, name: str) -> bool:
        """Return whether a holder that wrote to the file is gone. False if that cannot be known."""
        return process.gone(name, local=True) if self.liveness is None else self.liveness.gone(name)

    def close(self) -> None:
        """Close every connection; the last one folds the log into the file."""
        try:
            self._close()
        finally:
            if self.liveness is not None:
                self.liveness.release()

    def _close(self) -> None:
        self._disown(self._former if self.lapsed else self.place)
        if self.lapsed:
            self.lapsed, self.writer = False, None
            reserve.settle(self._real)
            return
        if self.unscrubbed or self.slack:
            self.scrub()
        if self.place is not None and self.place.rivalled() and self.writer is not None:
            self.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        writer, self.writer, self.place = self.writer, None, None
        while self._idle:
            self._idle.pop().close()
        if writer is not None:
            try:
                writer.close()
            except apsw.Error as error:
                raise self.transactions.meaning(error) from error
            if not self.memory:
                reserve.settle(self._real)


def _vacuum(connection: apsw.Connection) -> None:
    """Have SQLite write the whole database again, in one transaction: no byte of a deleted row is copied."""
    connection.execute("VACUUM")


def _abandon(connection: apsw.Connection | None) -> None:
    if connection is not None:
        connection.close()


_files: weakref.WeakSet[File] = weakref.WeakSet()
see_to(_files)
