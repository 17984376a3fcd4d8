"""A connection to the database file: how a new file is made, and how every connection is set up.

What only a new file can take is decided here; docs/format.md says why, with the figures.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import apsw

from recollect.engine.url import MEMORY
from recollect.errors import StoreUnavailable

PAGE_SIZE = 4096
CHECKPOINT = 1_000
"""Pages of log after which it is folded into the file. A short log is soon overwritten in place, which is quicker."""

CHECKPOINT_OF_MANY = 4_000
"""The same where many commit together: pages that are written again and again are folded once."""

CHECKSUM_BYTES = 8
TIMEOUT = 30.0
APPLICATION_ID = 0x52434C54  # "RCLT"

_VFS = "cksmvfs"
_STATEMENTS = 256
_LOG_LIMIT = 64 * 1024 * 1024
_CACHE_KIB = 8_000
_BRIEFLY = 0.0005
_TURN = 0.03
_OFTEN = 0.0001
_RARELY = 50 * _OFTEN
_vfs_lock = threading.Lock()


def checksum_vfs() -> str | None:
    """Name the VFS that writes and checks a checksum in each page; None where apsw was built without it.

    It is one of the extensions that apsw's wheels carry. Loading it makes it everybody's default, which is undone:
    other users of apsw in this process keep what they had.
    """
    with _vfs_lock:
        if _VFS in apsw.vfs_names():
            return _VFS
        folder = os.path.join(os.path.dirname(apsw.__file__), "sqlite_extra_binaries")
        if not os.path.isdir(folder) or not any(name.startswith("cksumvfs.") for name in os.listdir(folder)):
            return None
        default = apsw.vfs_names()[0]
        carrier = apsw.Connection(MEMORY)
        carrier.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
        carrier.load_extension(os.path.join(folder, "cksumvfs"))
        carrier.close()
        apsw.set_default_vfs(default)
        return _VFS


def connect(path: str, timeout: float) -> apsw.Connection:
    """Open a connection that may write: each page that it moves into the file gets its checksum.

    Checksums are written but not enforced. A stock SQLite that so much as reads a file whose log was left by a crash
    moves pages without one, and a conversation must not be refused for that; connect_verified() is for who wants to
    know.
    """
    if path == MEMORY:
        connection = apsw.Connection(MEMORY, statementcachesize=_STATEMENTS)
    else:
        name, flags = _opened_as(path, apsw.SQLITE_OPEN_READWRITE)
        connection = apsw.Connection(name, flags=flags, vfs=checksum_vfs(), statementcachesize=_STATEMENTS)
        accept_pages(connection)
    return _prepared(connection, timeout)


def accept_pages(connection: apsw.Connection) -> None:
    """Have pages read that have no fitting checksum. A file that had none yet when it was opened asks for it again."""
    connection.execute("PRAGMA checksum_verification = OFF")


def connect_reader(path: str, timeout: float, *, verify: bool = False) -> apsw.Connection:
    """Open a connection that only reads. It never moves a page into the file, so it needs no checksums.

    With `verify` a page that does not match its checksum is an error. Only one thread at a time may use it, and its
    users see to that: SQLite's own lock around every column of every row took a twentieth of the time of a load.
    """
    name, flags = _opened_as(path, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)
    vfs = checksum_vfs() if verify else None
    connection = apsw.Connection(name, flags=flags, vfs=vfs, statementcachesize=_STATEMENTS)
    if vfs is not None:
        connection.execute("PRAGMA checksum_verification = ON")
    return _prepared(connection, timeout)


def connect_verified(path: str, timeout: float) -> apsw.Connection:
    """Open a connection on which reading a page that does not match its checksum is an error."""
    name, flags = _opened_as(path, apsw.SQLITE_OPEN_READWRITE)
    connection = apsw.Connection(name, flags=flags, vfs=checksum_vfs())
    connection.execute("PRAGMA checksum_verification = ON")
    return _prepared(connection, timeout)


def sealed(path: str) -> bool:
    """Say if a file is on a file system that is mounted read-only."""
    if path == MEMORY or not hasattr(os, "statvfs"):
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def frozen(path: str) -> tuple[int, int, int] | None:
    """Give the state of a file that can only be read: it is sealed, and has no log beside it. None for any other.

    A log that is there holds what is not in the file, or is another process's, which writes through another mount. One
    that begins to do so later is told by the state.
    """
    real = os.path.realpath(path)
    if not sealed(path) or os.path.exists(f"{real}-wal") or os.path.exists(f"{real}-shm"):
        return None
    found = os.stat(real)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _opened_as(path: str, flags: int) -> tuple[str, int]:
    """Give the name and the flags to open a file with. One that can only be read has no index of its log made."""
    if frozen(path) is None:
        return path, flags
    from urllib.parse import quote  # noqa: PLC0415  hardly anyone needs it

    kept = flags & apsw.SQLITE_OPEN_NOMUTEX
    return f"file:{quote(os.path.realpath(path))}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | kept


def _prepared(connection: apsw.Connection, timeout: float) -> apsw.Connection:
    wait_at_most(connection, timeout)
    # Without this, SQLite prepares a statement again whenever a value that could change its plan is bound anew, which
    # tripled the time of short statements. Our plans are checked by tests and hinted where they matter.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("PRAGMA automatic_index = OFF")
    return connection


def wait_at_most(connection: apsw.Connection, seconds: float, first: Callable[[], None] | None = None) -> None:
    """Wait for a lock; SQLite's own steps grow to 100 ms, in which nobody writes.

    `first` is called when a lock is met, before it is waited for.
    """
    begun = 0.0

    def again(count: int) -> bool:
        nonlocal begun
        now = time.monotonic()
        if count == 0:
            begun = now
            if first is not None:
                first()
        elif now - begun > seconds:
            return False
        time.sleep(_pause(count, now - begun))
        return True

    connection.set_busy_handler(again)


def _pause(count: int, waited: float) -> float:
    """Say how long to wait before the next look: by chance, so that two who wait do not wake together for ever.

    A single write is over soon. Where the lock is held after that, others write without a break, and a change of the
    writer costs as much as a write: they have their turn. Then it is looked often, until somebody makes a pause.
    """
    chance = (time.perf_counter_ns() & 1023) / 1024
    if count == 0:
        return _BRIEFLY * chance
    if waited < _TURN:
        return (_TURN - waited) * (0.5 + chance)
    return min(_OFTEN * count, _RARELY) * chance


def configure(connection: apsw.Connection) -> None:
    """Set durability and safety. None of it is kept in the file, so every connection does it."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def shape(connection: apsw.Connection, path: str) -> None:
    """Give a new, empty file what only a new file can take."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.reserve_bytes(reserve=CHECKSUM_BYTES)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    keep_log(connection, path)


def expect_checksums(copy: apsw.Connection, source: apsw.Connection) -> None:
    """Have every page of a copy get its checksum: those of the log have none yet, and none have in memory.

    The VFS reads in the first page that there are any. Where a copy is larger than the cache, SQLite writes that page
    last, so it is there from the start. A source that is damaged or shaped otherwise is copied as it is.
    """
    try:
        shaped = source.execute("PRAGMA page_size").fetchall() == [(PAGE_SIZE,)]
        if shaped and source.reserve_bytes() == CHECKSUM_BYTES:
            copy.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            copy.reserve_bytes(reserve=CHECKSUM_BYTES)
            copy.execute("PRAGMA user_version = 1")
    except (apsw.CorruptError, apsw.NotADBError):
        return


def keep_log(connection: apsw.Connection, path: str) -> None:
    """Have the file keep a write-ahead log."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if path != MEMORY and mode != "wal":
        raise StoreUnavailable(path=path, reason=f"the file system does not take a write-ahead log ({mode})")


def patiently(action: Callable[[], None], timeout: float) -> None:
    """Repeat an action while the file is locked.

    A change of the journal mode does not wait for a lock as other statements do.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            action()
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
