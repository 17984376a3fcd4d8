"""What SQLite's errors mean, in Recollect's own."""

from __future__ import annotations

import errno
import os

import apsw

from recollect.engine.sqlite.connection import sealed
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

_DATA = apsw.SQLITE_IOERR_DATA  # a page does not match its checksum
_LARGEST = 1_000_000_000  # what SQLite takes as one value, unless it was built otherwise
_LIMITS = {
    "last < 4294967296": ("The number of messages on a branch", 4_294_967_295),
    "key < 2147483648": ("The number of branches in a store", 2_147_483_647),
}


_HINDRANCES = {
    errno.EMFILE: (
        "this process has as many files open as it may. Close some of them, or raise the limit (`ulimit -n`)"
    ),
    errno.ENFILE: "this machine has as many files open as it may. End a program that has many, or raise the limit",
    errno.EFBIG: (
        "it is as large as this process or the file system lets a file be. Raise the limit (`ulimit -f`), or move it "
        "to a file system that takes larger ones"
    ),
}


def hindrance(number: int, path: str) -> StoreUnavailable | None:
    """Say what the system refused and what to do, where the folder and the disk have no part in it."""
    if number not in _HINDRANCES:
        return None
    told = f"{path} can not be used: {_HINDRANCES[number]}. Nothing acknowledged is lost."
    return StoreUnavailable(told, path=path, reason=os.strerror(number))


def _refusal() -> int:
    """Say by its number why the system opens no file at all; 0 where it does. A failed connection does not tell."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno or 0
    return 0


def meaning(error: apsw.Error, path: str, seconds: float, number: int = 0) -> RecollectError:
    """Give the error that the caller is to see; the driver's own becomes its cause. `number` is the system's own."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreLocked(path=path, seconds=seconds)
    # The index of the log is a file of its own, and making room for it is the first thing that a full disk refuses.
    if isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return DiskFull(path=path)
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(path=path, reason="it is not an SQLite file")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreReadOnly(path=path)
    # Our own tables name what failed. Without a name it is inside of the search index, two entries under one key.
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT_VTAB or str(error) == "constraint failed":
        return IndexDamaged(path=path)
    if isinstance(error, apsw.CorruptError) or getattr(error, "extendedresult", 0) == _DATA:
        return Corrupted(path=path, reason=_reason(error))
    if isinstance(error, apsw.IOError | apsw.CantOpenError | apsw.PermissionsError):
        if isinstance(error, apsw.CantOpenError):
            number = _refusal() or number
        return hindrance(number, path) or _unreadable(error, path)
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreClosed()
    return _refused(error, path)


def _unreadable(error: apsw.Error, path: str) -> StoreUnavailable:
    """Say that a file can not be opened or read; where only its log is in the way, what to do about that."""
    if not (isinstance(error, apsw.CantOpenError) and sealed(path) and os.path.exists(f"{os.path.realpath(path)}-wal")):
        return StoreUnavailable(path=path, reason=_reason(error))
    told = (
        f"{path} can not be read where it is: the file system is mounted read-only, and has no index of its log "
        f"({path}-wal). Copy both to a disk that can be written, and open the copy. Nothing acknowledged is lost."
    )
    return StoreUnavailable(told, path=path, reason="the file system is read-only")


def _refused(error: apsw.Error, path: str) -> RecollectError:
    """Say what a statement was refused for."""
    # The tests prepare every statement. Where one can not be, the file has lost tables that it had when it was opened.
    if isinstance(error, apsw.SQLError):
        return Corrupted(path=path, reason=_reason(error))
    if isinstance(error, apsw.TooBigError):
        return InvalidValue(f"This has more than the {_LARGEST:,} bytes that SQLite takes at once. Store less of it.")
    if isinstance(error, apsw.ConstraintError):
        return _limit(error)
    return _fault(error)


def _fault(error: apsw.Error) -> RecollectError:
    return StoreError(f"The database refused an operation: {error}. This is a fault in Recollect; please report it.")


def _reason(error: apsw.Error) -> str:
    if getattr(error, "extendedresult", 0) == _DATA:
        return "a page does not match its checksum"
    return str(error).removesuffix(".") or type(error).__name__


def _limit(error: apsw.Error) -> RecollectError:
    for rule, (what, limit) in _LIMITS.items():
        if rule in str(error):
            return LimitReached(what=what, limit=limit)
    return _fault(error)
