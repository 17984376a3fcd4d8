"""A lock that proves that a process is alive, also to processes in other containers.

A process id means nothing in another pid namespace, so a container that starts again cannot know by it whether the
turns of its predecessor are still held. File locks are the kernel's and work across namespaces. So each process that
has a store open holds a lock on one byte, at a random offset, of an empty file next to the database (`-live`). Its
holder name contains the offset: `...:start~inode.offset`. If that byte can be locked, the process is gone.

A lock file that was deleted and created again proves nothing: the inode differs, and only the lease decides, as it does
if no lock could be taken. The last process that closes the store removes the file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from recollect.engine import process
from recollect.engine.sqlite.file_identity import file_id

try:
    import fcntl
except ImportError:  # Windows: the lease decides
    fcntl = None

_OFFSET_SEPARATOR = "~"
_OFFSETS = 1 << 62  # so many that two processes never choose the same. A lock may lie beyond the end of the file
_TRIES = 20  # the file may be removed by its last user between opening and locking it
_PAUSE = 0.002  # seconds until the next try; 20 tries delay opening a store by at most 40 ms

LockFileKey = tuple[int, int]
"""The device and inode of a lock file."""


class _LockFileHandle:
    """The one descriptor that this process has of a lock file: closing a second one would drop the locks of both."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0


_handles: dict[LockFileKey, _LockFileHandle] = {}
_offset: list[int] = []  # the byte that this process locks in every lock file; empty until the first lock
# Reentrant: the garbage collector may run LivenessLock.__del__ while this thread holds it.
_handles_lock = threading.RLock()


def _reset_after_fork() -> None:
    """Reset the state in a forked child: the parent keeps its record locks, also if the child closes the files."""
    global _handles_lock  # noqa: PLW0603  a thread of the parent, which does not exist here, may hold it
    _handles_lock = threading.RLock()
    for handle in _handles.values():
        os.close(handle.descriptor)
    _handles.clear()
    _offset.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class LivenessLock:
    """The lock of one store, and the test whether the lock of another process is free."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-live"
        self._key: LockFileKey | None = None

    def hold(self) -> None:
        """Take the lock, if it is not held yet. Without it, other processes wait until the lease expires."""
        if fcntl is None or self._key in _handles:
            return
        with _handles_lock, contextlib.suppress(OSError):
            for _ in range(_TRIES):
                self._key = _open_and_lock(self._path)
                if self._key is not None:
                    return
                time.sleep(_PAUSE)

    def release(self) -> None:
        """Release the lock with the last store of this process on the file."""
        with _handles_lock:
            handle = None if self._key is None else _handles.get(self._key)
            if handle is not None and self._key is not None:
                handle.users -= 1
                if not handle.users:
                    del _handles[self._key]
                    _close_lock_file(self._path, self._key, handle.descriptor)
            self._key = None

    def __del__(self) -> None:
        """Release the lock of a store that was dropped without being closed."""
        if _handles:
            self.release()

    def name(self) -> str:
        """Return the holder name of this process, with the inode and offset of its lock."""
        key = self._key
        if key is None or key not in _handles:
            return process.holder()
        return f"{process.holder()}{_OFFSET_SEPARATOR}{key[1]}.{_offset[0]}"

    def is_gone(self, name: str) -> bool:
        """Return whether a holder that wrote to this file is gone. False if that cannot be known."""
        if process.is_gone(name, local=True):
            return True
        inode, _, offset = name.rpartition(_OFFSET_SEPARATOR)[2].partition(".")
        if not (inode.isdecimal() and offset.isdecimal() and process.in_another_container(name)):
            return False
        with _handles_lock:
            handle = None if self._key is None else _handles.get(self._key)
            if handle is None or self._key is None or int(inode) != self._key[1] or int(offset) in _offset:
                return False
            return _is_free(handle.descriptor, int(offset))


def _open_and_lock(path: str) -> LockFileKey | None:
    """Open the lock file and lock the byte of this process. None if the file was removed meanwhile: try again."""
    key = file_id(path)
    if key is None or key not in _handles:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        # Locked first, then compared: a file that was removed in between would be invisible to other processes.
        if not _lock_own_byte(descriptor) or file_id(path) != key:
            os.close(descriptor)
            return None
        _handles[key] = _LockFileHandle(descriptor)
    _handles[key].users += 1
    return key


def _lock_own_byte(descriptor: int) -> bool:
    assert fcntl is not None
    if not _offset:
        _offset.append(int.from_bytes(os.urandom(8), "big") % _OFFSETS)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset[0])
    except BlockingIOError:  # its last user holds all bytes and is about to remove it
        return False
    return True


def _is_free(descriptor: int, offset: int) -> bool:
    """Return whether no process holds a byte. A shared lock, so that two tests at once do not block each other."""
    assert fcntl is not None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, offset)
    except OSError:
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)
    return True


def _close_lock_file(path: str, key: LockFileKey, descriptor: int) -> None:
    """Close the lock file, and remove it if nobody else holds a lock in it."""
    assert fcntl is not None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # all bytes: fails while another process holds one
        if file_id(path) == key:
            os.unlink(path)
    except OSError:
        pass
    finally:
        os.close(descriptor)
