"""SQLite connections: how a new file is initialized and how every connection is configured.

docs/internals/sqlite.md explains the settings that only a new file accepts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import apsw

from recollect.engine.url import MEMORY
from recollect.errors import StoreUnavailable

PAGE_SIZE = 4096  # bytes. The page size of most file systems, so that a page is written in one piece
# Pages in the WAL (4 MB) that trigger a checkpoint. A short WAL is soon overwritten in place, which is faster than
# growing it; a shorter one would be checkpointed, with an fsync of the file, more often.
CHECKPOINT_PAGES = 1_000
GROUP_CHECKPOINT_PAGES = 4_000  # the same with group commit: a page that many batches change is checkpointed once
CHECKSUM_BYTES = 8  # reserved at the end of each page, as the checksum VFS requires
TIMEOUT = 30.0  # seconds that an operation waits for a lock, unless the caller passes another timeout
APPLICATION_ID = 0x52434C54  # "RCLT"

_VFS = "cksmvfs"  # the name that SQLite's extension `cksumvfs` registers; the spelling is SQLite's
_STATEMENT_CACHE_SIZE = 256  # prepared statements; more than there are queries, so that none is prepared twice
# Bytes. A larger WAL, such as that of an import, is truncated to this after a checkpoint.
_WAL_SIZE_LIMIT = 64 * 1024 * 1024
# KiB of page cache of a writer. A transaction that changes more spills pages to the WAL before it commits.
_CACHE_KIB = 8_000
# Waiting for the write lock, in seconds. A single write is over within _FIRST_BACKOFF. If the lock is held after that,
# others write continuously, and handing the lock to another process costs as much as a write (its page cache is
# dropped, another core wakes up). So a waiter backs off for _BACKOFF. Then it polls often, until one of them pauses.
_FIRST_BACKOFF = 0.0005  # seconds. About the duration of one write
_BACKOFF = 0.03  # seconds. One handover of the lock per 30 ms costs the writers little
_POLL_STEP = 0.0001  # seconds. The delay grows by this on each attempt
_POLL_MAX = 50 * _POLL_STEP  # 5 ms. SQLite's own delays grow to 100 ms, during which no process writes
# Seconds between two attempts at an action that SQLite does not wait for. Only opening, migrating and restoring use it.
_RETRY_INTERVAL = 0.01
_vfs_lock = threading.Lock()


def checksum_vfs() -> str | None:
    """Return the name of the VFS that writes and verifies page checksums; None if apsw was built without it.

    It is one of the extensions in apsw's wheels. Loading it makes it the default VFS of the process; this function then
    restores the previous default for other users of apsw.
    """
    with _vfs_lock:
        if _VFS in apsw.vfs_names():
            return _VFS
        folder = os.path.join(os.path.dirname(apsw.__file__), "sqlite_extra_binaries")
        if not os.path.isdir(folder) or not any(name.startswith("cksumvfs.") for name in os.listdir(folder)):
            return None
        default = apsw.vfs_names()[0]  # SQLite lists the default VFS first
        loader = apsw.Connection(MEMORY)
        loader.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
        loader.load_extension(os.path.join(folder, "cksumvfs"))
        loader.close()
        apsw.set_default_vfs(default)
        return _VFS


def connect(path: str, timeout: float) -> apsw.Connection:
    """Open a connection that may write. Each page that it checkpoints into the file gets a checksum.

    Checksums are written but not enforced: a stock SQLite that opens a file after a crash checkpoints its WAL and
    writes pages without a checksum, and the store must still open such a file. connect_verified() enforces them.
    """
    if path == MEMORY:
        connection = apsw.Connection(MEMORY, statementcachesize=_STATEMENT_CACHE_SIZE)
    else:
        name, flags = _open_arguments(path, apsw.SQLITE_OPEN_READWRITE)
        connection = apsw.Connection(name, flags=flags, vfs=checksum_vfs(), statementcachesize=_STATEMENT_CACHE_SIZE)
        disable_checksum_verification(connection)
    return _set_defaults(connection, timeout)


def disable_checksum_verification(connection: apsw.Connection) -> None:
    """Allow reading pages whose checksum does not match. Needed again after a new file got its first checksums."""
    connection.execute("PRAGMA checksum_verification = OFF")


def connect_reader(path: str, timeout: float, *, verify: bool = False) -> apsw.Connection:
    """Open a read-only connection. It never writes a page to the file, so it needs no checksums.

    With `verify`, a page that does not match its checksum is an error. Only one thread at a time may use the
    connection, which the callers ensure: SQLite's own mutex around every column took 5% of the time of a read.
    """
    name, flags = _open_arguments(path, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)
    vfs = checksum_vfs() if verify else None
    connection = apsw.Connection(name, flags=flags, vfs=vfs, statementcachesize=_STATEMENT_CACHE_SIZE)
    if vfs is not None:
        connection.execute("PRAGMA checksum_verification = ON")
    return _set_defaults(connection, timeout)


def connect_verified(path: str, timeout: float) -> apsw.Connection:
    """Open a connection that may write, and on which reading a page with a wrong checksum is an error."""
    name, flags = _open_arguments(path, apsw.SQLITE_OPEN_READWRITE)
    connection = apsw.Connection(name, flags=flags, vfs=checksum_vfs())
    connection.execute("PRAGMA checksum_verification = ON")
    return _set_defaults(connection, timeout)


def is_read_only_mount(path: str) -> bool:
    """Return whether a file is on a file system that is mounted read-only."""
    if path == MEMORY or not hasattr(os, "statvfs"):
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def immutable_state(path: str) -> tuple[int, int, int] | None:
    """Return the state of a file that can be opened as immutable: on a read-only mount, without a WAL. Else None.

    A WAL holds commits that are not in the file yet, or belongs to a process that writes through another mount. If
    such a process begins later, the state (inode, mtime, size) changes.
    """
    real = os.path.realpath(path)
    if not is_read_only_mount(path) or os.path.exists(f"{real}-wal") or os.path.exists(f"{real}-shm"):
        return None
    status = os.stat(real)
    return status.st_ino, status.st_mtime_ns, status.st_size


def _open_arguments(path: str, flags: int) -> tuple[str, int]:
    """Return the name and the flags to open a file with. `immutable` needs no -shm file, which could not be created."""
    if immutable_state(path) is None:
        return path, flags
    from urllib.parse import quote  # noqa: PLC0415  only for files on read-only mounts

    nomutex = flags & apsw.SQLITE_OPEN_NOMUTEX
    return (
        f"file:{quote(os.path.realpath(path))}?immutable=1",
        apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | nomutex,
    )


def _set_defaults(connection: apsw.Connection, timeout: float) -> apsw.Connection:
    set_lock_timeout(connection, timeout)
    # Query planner stability guarantee. Without it, SQLite prepares a statement again whenever a bound value that could
    # change its plan changes, which tripled the time of short statements. Tests check the plans that matter.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # An automatic index is built again on each run of a statement; a plan that needs one lacks a real index.
    connection.execute("PRAGMA automatic_index = OFF")
    return connection


def set_lock_timeout(
    connection: apsw.Connection, seconds: float, on_first_wait: Callable[[], None] | None = None
) -> None:
    """Wait up to `seconds` for a lock, with backoff.

    `on_first_wait` is called once per wait, before its first delay.
    """
    start = 0.0

    def busy_handler(count: int) -> bool:  # SQLite counts the calls for one lock from 0
        nonlocal start
        now = time.monotonic()
        if count == 0:
            start = now
            if on_first_wait is not None:
                on_first_wait()
        elif now - start > seconds:
            return False
        time.sleep(_backoff_delay(count, now - start))
        return True

    connection.set_busy_handler(busy_handler)


def _backoff_delay(count: int, seconds: float) -> float:
    """Return the seconds until the next attempt, with jitter, so that two waiters do not keep waking together.

    The comment at _FIRST_BACKOFF explains the three phases.
    """
    jitter = (time.perf_counter_ns() & 1023) / 1024  # 0 to 1; the module `random` would be an import at start
    if count == 0:
        return _FIRST_BACKOFF * jitter
    if seconds < _BACKOFF:
        return (_BACKOFF - seconds) * (0.5 + jitter)
    return min(_POLL_STEP * count, _POLL_MAX) * jitter


def configure(connection: apsw.Connection) -> None:
    """Set the pragmas for durability and safety. SQLite does not store them in the file, so every writer sets them.

    synchronous=FULL: a commit returns after the fsync of the WAL. secure_delete overwrites deleted rows with zeros.
    """
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE_LIMIT}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def initialize_file(connection: apsw.Connection, path: str) -> None:
    """Set page size, checksums, auto_vacuum and WAL, which only a new, empty file accepts."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.reserve_bytes(reserve=CHECKSUM_BYTES)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    enable_wal(connection, path)


def enable_checksums(copy: apsw.Connection, source: apsw.Connection) -> None:
    """Make every page of a copy get a checksum: pages in the WAL have none yet, and pages in memory never have.

    The VFS reads in page 1 whether the file has checksums. If a copy is larger than the cache, SQLite writes page 1
    last, so it is written here first. A source that is damaged or has another page size is copied unchanged.
    """
    try:
        is_default_page_size = source.execute("PRAGMA page_size").fetchall() == [(PAGE_SIZE,)]
        if is_default_page_size and source.reserve_bytes() == CHECKSUM_BYTES:
            copy.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            copy.reserve_bytes(reserve=CHECKSUM_BYTES)
            copy.execute("PRAGMA user_version = 1")  # any change writes page 1; the copy overwrites it
    except (apsw.CorruptError, apsw.NotADBError):
        return


def enable_wal(connection: apsw.Connection, path: str) -> None:
    """Switch the file to WAL mode. Raise StoreUnavailable if the file system does not support it."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if path != MEMORY and mode != "wal":
        raise StoreUnavailable(path=path, reason=f"the file system does not support WAL mode ({mode})")


def retry_while_locked(action: Callable[[], None], timeout: float) -> None:
    """Repeat an action while the file is locked, up to `timeout` seconds; then raise apsw.BusyError.

    SQLite does not call the busy handler for a change of the journal mode.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            action()
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_INTERVAL)
        else:
            return
