"""Room that is kept back for the day that the disk is full: to open a store, to read it, and to delete from it.

Deleting writes to the log before it frees anything, and a reader needs an index of the log; a full disk refuses both.
So a store that is open has a file beside it that is only there to be removed then. It goes when the last one closes
the store, unless the disk is nearly full already: then whoever opens the store next may need it.
"""

from __future__ import annotations

import contextlib
import os

SIZE = 4 * 1024 * 1024
"""What a deletion may write: about as much as the text of the sessions that it erases in one transaction."""

SCARCE = 1024 * 1024 * 1024
_AMPLE = 4
"""Times its own size that must be free, so that the reserve itself does not fill the disk."""


def name(path: str) -> str:
    """Name the file that holds the room."""
    return f"{path}-reserve"


def keep(path: str) -> None:
    """Keep room back, where there is some and none is kept yet."""
    file = name(path)
    if os.path.exists(file):
        return
    with contextlib.suppress(OSError):
        if _free(file) < _AMPLE * SIZE:
            return
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            _allocate(handle)
        except OSError:
            os.unlink(file)
        finally:
            os.close(handle)


def _allocate(handle: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, SIZE)
        return
    block = bytes(65_536)
    for _ in range(0, SIZE, len(block)):
        os.write(handle, block)


def _free(path: str) -> int:
    """Ask how much room the disk of a file has."""
    folder = os.path.dirname(path)
    if hasattr(os, "statvfs"):
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    import shutil  # noqa: PLC0415  it loads every compression there is

    return shutil.disk_usage(folder).free


def release(path: str) -> bool:
    """Give the room back to the disk. False where none was kept."""
    try:
        os.unlink(name(path))
    except OSError:
        return False
    return True


def settle(path: str) -> None:
    """Leave no reserve behind after the last one has closed the store, unless the disk is nearly full."""
    with contextlib.suppress(OSError):
        if not os.path.exists(f"{path}-wal") and _free(path) >= SCARCE:
            release(path)
