"""A lock that proves that a process is alive, also to processes in other containers.

A process id means nothing in another pid namespace, so a container that starts again cannot know by it whether the
turns of its predecessor are still held. File locks are the kernel's and work across namespaces. So each process that
has a store open holds a lock on one byte, at a random offset, of an empty file beside the database (`-live`), and says
in its holder name where: `...:start~inode.offset`. If that byte can be locked, its process is gone.

A lock file that was removed and made again proves nothing: the inode differs, and the lease decides, as it does if no
lock could be taken. The last process that closes the store removes the file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from recollect.engine import process
from recollect.engine.sqlite.place import identity

try:
    import fcntl
except ImportError:  # Windows: the lease decides
    fcntl = None

_MARK = "~"
_OFFSETS = 1 << 62  # two processes never choose the same
_TRIES = 20  # the file may be removed by its last user between opening and locking it
_PAUSE = 0.002  # seconds until the next try

Key = tuple[int, int]


class _Handle:
    """The one descriptor that this process has of a lock file: closing a second one would drop the locks of both."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0


_handles: dict[Key, _Handle] = {}
_offset: list[int] = []
_gate = threading.RLock()  # the garbage collector may release a store in the middle of what another one does


def _forget() -> None:
    """Begin again after fork(): locks stay with the parent, and closing its descriptors here does not drop them."""
    global _gate  # noqa: PLW0603  a thread that is not here may hold it
    _gate = threading.RLock()
    for handle in _handles.values():
        os.close(handle.descriptor)
    _handles.clear()
    _offset.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Liveness:
    """What one store says of its process to others, and knows of theirs."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-live"
        self._key: Key | None = None

    def hold(self) -> None:
        """Hold the lock, if there is none yet. Without one, others wait for the lease."""
        if fcntl is None or self._key in _handles:
            return
        with _gate, contextlib.suppress(OSError):
            for _ in range(_TRIES):
                self._key = _locked(self._path)
                if self._key is not None:
                    return
                time.sleep(_PAUSE)

    def release(self) -> None:
        """Give the lock up with the last store of this process on the file."""
        with _gate:
            handle = None if self._key is None else _handles.get(self._key)
            if handle is not None and self._key is not None:
                handle.users -= 1
                if not handle.users:
                    del _handles[self._key]
                    _close(self._path, self._key, handle.descriptor)
            self._key = None

    def __del__(self) -> None:
        """Give the lock up with a store that was dropped without being closed."""
        if _handles:
            self.release()

    def name(self) -> str:
        """Return the holder name of this process, with the place of its lock."""
        key = self._key
        if key is None or key not in _handles:
            return process.holder()
        return f"{process.holder()}{_MARK}{key[1]}.{_offset[0]}"

    def gone(self, name: str) -> bool:
        """Return whether a holder that wrote to this file is gone. False if that cannot be known."""
        if process.gone(name, local=True):
            return True
        inode, _, offset = name.rpartition(_MARK)[2].partition(".")
        if not (inode.isdecimal() and offset.isdecimal() and process.in_another_container(name)):
            return False
        with _gate:
            handle = None if self._key is None else _handles.get(self._key)
            if handle is None or self._key is None or int(inode) != self._key[1] or int(offset) in _offset:
                return False
            return _is_free(handle.descriptor, int(offset))


def _locked(path: str) -> Key | None:
    """Open the lock file and lock the byte of this process. None if the file was removed meanwhile: try again."""
    key = identity(path)
    if key is None or key not in _handles:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.fstat(descriptor)
        key = found.st_dev, found.st_ino
        if not _take(descriptor) or identity(path) != key:
            os.close(descriptor)
            return None
        _handles[key] = _Handle(descriptor)
    _handles[key].users += 1
    return key


def _take(descriptor: int) -> bool:
    assert fcntl is not None
    if not _offset:
        _offset.append(int.from_bytes(os.urandom(8), "big") % _OFFSETS)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset[0])
    except BlockingIOError:  # its last user is about to remove it
        return False
    return True


def _is_free(descriptor: int, offset: int) -> bool:
    """Return whether nobody holds a byte. The lock is shared, so that two who look do not take each other for it."""
    assert fcntl is not None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, offset)
    except OSError:
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)
    return True


def _close(path: str, key: Key, descriptor: int) -> None:
    """Close the lock file, and remove it if nobody else holds a lock in it."""
    assert fcntl is not None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if identity(path) == key:
            os.unlink(path)
    except OSError:
        pass
    finally:
        os.close(descriptor)
