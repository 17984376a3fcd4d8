"""File identity: whether the open database, WAL and shared-memory files are still those under their names.

A process can write to a removed or replaced file as long as it has the file open; the writes are lost when it closes
the file. So the store compares the names with the open files before it acknowledges a write, at most once per interval.
It uses stat() and never opens the file for that: close() would drop the POSIX locks that SQLite holds on it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import NamedTuple

WAL_HEADER_BYTES = 32  # size of a WAL without frames (SQLite file format, section 4.1): nothing to preserve


class FileIdentity(NamedTuple):
    """The names of the database, its WAL and its shared-memory file, and which files these were when opened.

    `ids` are the device and inode of the file, the inode of the WAL and the inode of the shared-memory file.
    """

    file: str
    wal: str
    shm: str
    ids: tuple[int, int, int, int]

    def is_same_file(self) -> bool:
        """Return whether the name still refers to the opened file."""
        return file_id(self.file) == self.ids[:2]

    def is_readable(self) -> bool:
        """Return whether reads see what other processes write. An open WAL stays readable after it was removed.

        The shared-memory file has the locks and the index of the WAL: processes with different ones do not see each
        other.
        """
        return self.is_same_file() and _inode(self.shm) == self.ids[3]

    def is_unchanged(self) -> bool:
        """Return whether all names still refer to the opened files."""
        return _inode(self.wal) == self.ids[2] and self.is_readable()

    def is_split(self) -> bool:
        """Return whether the file is the same, but its shared-memory file is not the one that this process uses."""
        return self.is_same_file() and not self.is_readable()

    def has_replaced_shm(self) -> bool:
        """Return whether another process has created a new shared-memory file since ours was removed."""
        return self.is_same_file() and _inode(self.shm) not in (None, self.ids[3])

    def join(self, other: FileIdentity | None) -> FileIdentity:
        """Return the identity for a second store on a file that is open in this process: SQLite shares one -shm."""
        if other is None or other.ids[:2] != self.ids[:2]:
            return self
        return self._replace(ids=(*self.ids[:3], other.ids[3]))

    def is_name_taken(self) -> bool:
        """Return whether another file has the name, next to our WAL: opened with that WAL, it would be overwritten."""
        return file_id(self.file) not in (None, self.ids[:2]) and _inode(self.wal) == self.ids[2]

    def is_file_missing(self) -> bool:
        """Return whether the file alone was moved or removed, while our WAL is still in place."""
        names = (self.wal, self.shm)
        return file_id(self.file) is None and tuple(_inode(name) for name in names) == self.ids[2:]


def file_id(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _inode(path: str) -> int | None:
    identity = file_id(path)
    return None if identity is None else identity[1]


def identify_files(path: str) -> FileIdentity | None:
    """Return the identity of a store that was just opened; None if it has no WAL yet."""
    wal, shm = f"{path}-wal", f"{path}-shm"
    file, wal_inode, shm_inode = file_id(path), _inode(wal), _inode(shm)
    if file is None or wal_inode is None or shm_inode is None:
        return None
    return FileIdentity(path, wal, shm, (*file, wal_inode, shm_inode))


def set_wal_aside(identity: FileIdentity) -> None:
    """Rename a WAL that does not belong to the file of its name; its content is kept."""
    with contextlib.suppress(OSError):
        _link_aside(identity.wal)
        os.unlink(identity.wal)
        os.unlink(identity.shm)


def preserve_wal(path: str) -> None:
    """Keep a WAL whose file is missing or empty: SQLite would delete it when it creates the new file.

    The WAL gets a second name and keeps the first: by now it may belong to another process that created the file first.
    """
    wal = f"{path}-wal"
    inode = _inode(wal)
    with contextlib.suppress(OSError):
        if inode is None or os.path.getsize(wal) <= WAL_HEADER_BYTES or _is_nonempty(path):
            return
        aside = _link_aside(wal)
        if _inode(aside) != inode:  # another process created the file, and a new WAL, since `inode` was read
            os.unlink(aside)


def _is_nonempty(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0


def _link_aside(wal: str) -> str:
    """Link a WAL under a second name that contains the time, and return the name. Never replace an existing file."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        aside = f"{wal}.{stamp}.kept" if number == 1 else f"{wal}.{stamp}-{number}.kept"
        with contextlib.suppress(FileExistsError):
            os.link(wal, aside)
            return aside
    raise AssertionError  # itertools.count() does not end
