"""Translation of SQLite's errors to Recollect's."""

from __future__ import annotations

import errno
import os

import apsw

from recollect.engine.sqlite.connection import is_read_only_mount
from recollect.errors import (
    Corrupted,
    DiskFull,
    IndexDamaged,
    InvalidValue,
    LimitReached,
    NotADatabase,
    RecollectError,
    StoreClosed,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)

_CHECKSUM_MISMATCH = apsw.SQLITE_IOERR_DATA  # reported by the checksum VFS
_MAX_VALUE_BYTES = 1_000_000_000  # SQLITE_MAX_LENGTH of a default build, which apsw uses
# By the CHECK constraint: message keys are (branch << 32) | position in 64 bits.
_LIMITS = {
    "last < 4294967296": ("The number of messages on a branch", 4_294_967_295),
    "key < 2147483648": ("The number of branches in a store", 2_147_483_647),
}


_RESOURCE_REASONS = {
    errno.EMFILE: (
        "this process has reached its limit of open files. Close some of them, or raise the limit (`ulimit -n`)"
    ),
    errno.ENFILE: "this machine has reached its limit of open files. End a program that has many, or raise the limit",
    errno.EFBIG: (
        "the file has reached the size limit of this process or of the file system. Raise the limit (`ulimit -f`), or "
        "move it to a file system that allows larger files"
    ),
}


def resource_error(number: int, path: str) -> StoreUnavailable | None:
    """Return the error for an errno that concerns a limit of the process or machine; None for any other."""
    if number not in _RESOURCE_REASONS:
        return None
    message = f"{path} cannot be used: {_RESOURCE_REASONS[number]}. No acknowledged write is lost."
    return StoreUnavailable(message, path=path, reason=os.strerror(number))


def _open_errno() -> int:
    """Return the errno with which opening any file fails now, or 0: apsw does not report that of a failed open."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno or 0
    return 0


def translate_error(error: apsw.Error, path: str, seconds: float, number: int = 0) -> RecollectError:
    """Return the error for the caller; raise it from the driver's error. `number` is the errno, if known."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreLocked(path=path, seconds=seconds)
    # On a full disk, the first failure is often the extension of -shm, a separate file.
    if isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return DiskFull(path=path)
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(path=path, reason="it is not a SQLite file")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreReadOnly(path=path)
    # SQLite names the violated constraint of a table. A message without a name is from FTS5: a rowid is in it twice.
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT_VTAB or str(error) == "constraint failed":
        return IndexDamaged(path=path)
    if isinstance(error, apsw.CorruptError) or getattr(error, "extendedresult", 0) == _CHECKSUM_MISMATCH:
        return Corrupted(path=path, reason=_reason(error))
    if isinstance(error, apsw.IOError | apsw.CantOpenError | apsw.PermissionsError):
        if isinstance(error, apsw.CantOpenError):
            number = _open_errno() or number
        return resource_error(number, path) or _open_error(error, path)
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreClosed()
    return _statement_error(error, path)


def _open_error(error: apsw.Error, path: str) -> StoreUnavailable:
    """Return the error for a file that cannot be opened or read, with advice if only its WAL is the cause."""
    if not (
        isinstance(error, apsw.CantOpenError)
        and is_read_only_mount(path)
        and os.path.exists(f"{os.path.realpath(path)}-wal")
    ):
        return StoreUnavailable(path=path, reason=_reason(error))
    message = (
        f"{path} cannot be read: the file system is mounted read-only, and the WAL ({path}-wal) has no shared-memory "
        f"file. Copy both to a writable disk and open the copy. No acknowledged write is lost."
    )
    return StoreUnavailable(message, path=path, reason="the file system is read-only")


def _statement_error(error: apsw.Error, path: str) -> RecollectError:
    """Return the error for a statement that SQLite refused."""
    # The tests prepare every statement. If one cannot be prepared, tables have disappeared since the file was opened.
    if isinstance(error, apsw.SQLError):
        return Corrupted(path=path, reason=_reason(error))
    if isinstance(error, apsw.TooBigError):
        return InvalidValue(
            f"The value has more than {_MAX_VALUE_BYTES:,} bytes, the limit of SQLite. Store less of it."
        )
    if isinstance(error, apsw.ConstraintError):
        return _limit_error(error)
    return _internal_error(error)


def _internal_error(error: apsw.Error) -> RecollectError:
    return StoreError(f"The database refused an operation: {error}. This is a bug in Recollect; please report it.")


def _reason(error: apsw.Error) -> str:
    if getattr(error, "extendedresult", 0) == _CHECKSUM_MISMATCH:
        return "a page does not match its checksum"
    return str(error).removesuffix(".") or type(error).__name__


def _limit_error(error: apsw.Error) -> RecollectError:
    for rule, (subject, limit) in _LIMITS.items():
        if rule in str(error):
            return LimitReached(what=subject, limit=limit)
    return _internal_error(error)
