"""Whether the files that are open are still those that others find under their names.

A file that was removed or replaced can be written to for as long as it is open, and all of it is gone when it is
closed. So the names are looked at again before a write is acknowledged, unless that was a moment ago.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import NamedTuple

_LOG_HEAD = 32
"""Bytes of a log that holds nothing."""


class Place(NamedTuple):
    """The file, its log and the index of the log: the names, and which files these meant when they were opened."""

    file: str
    log: str
    shared: str
    opened: tuple[int, int, int, int]

    def there(self) -> bool:
        """Say if the file is still the same."""
        return identity(self.file) == self.opened[:2]

    def readable(self) -> bool:
        """Say if what is read is what others write. A log that was removed can be read for as long as it is open.

        The index has the locks, and says what the log holds: who has another one knows nothing of us, nor we of them.
        """
        return self.there() and _number(self.shared) == self.opened[3]

    def unchanged(self) -> bool:
        """Say if all names still mean the same files."""
        return _number(self.log) == self.opened[2] and self.readable()

    def split(self) -> bool:
        """Say if the file is there and its index is not ours. SQLite keeps one index of a file for a whole process."""
        return self.there() and not self.readable()

    def rivalled(self) -> bool:
        """Say if someone has opened the file since its index was removed: then what is there now is theirs."""
        return self.there() and _number(self.shared) not in (None, self.opened[3])

    def joining(self, other: Place | None) -> Place:
        """Give the place as it is for who opens a file that another part of this process has open."""
        if other is None or other.opened[:2] != self.opened[:2]:
            return self
        return self._replace(opened=(*self.opened[:3], other.opened[3]))

    def usurped(self) -> bool:
        """Say if another file has the name, with our log beside it: opened with that, it would be overwritten."""
        return identity(self.file) not in (None, self.opened[:2]) and _number(self.log) == self.opened[2]

    def bereft(self) -> bool:
        """Say if no file has the name any more, while our log is there still: the file alone was moved or removed."""
        names = (self.log, self.shared)
        return identity(self.file) is None and tuple(_number(name) for name in names) == self.opened[2:]


def identity(path: str) -> tuple[int, int] | None:
    """Say which file a name means; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _number(path: str) -> int | None:
    found = identity(path)
    return None if found is None else found[1]


def place(path: str) -> Place | None:
    """Look at what is under the names of a store that was just opened; None where it has no log yet."""
    log, shared = f"{path}-wal", f"{path}-shm"
    here, logged, indexed = identity(path), _number(log), _number(shared)
    if here is None or logged is None or indexed is None:
        return None
    return Place(path, log, shared, (*here, logged, indexed))


def set_aside(place: Place) -> None:
    """Put a log beside a file that it does not belong to under another name; what it holds is kept."""
    with contextlib.suppress(OSError):
        _linked_aside(place.log)
        os.unlink(place.log)
        os.unlink(place.shared)


def save_log(path: str) -> None:
    """Keep what a log holds whose file is gone or empty: SQLite removes it when it makes a new file in that place.

    The log gets a second name and keeps the one that it has: by now it may be that of another process, which has been
    quicker to make the file.
    """
    log = f"{path}-wal"
    stale = _number(log)
    with contextlib.suppress(OSError):
        if stale is None or os.path.getsize(log) <= _LOG_HEAD or _holds_something(path):
            return
        kept = _linked_aside(log)
        if _number(kept) != stale:
            os.unlink(kept)


def _holds_something(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0


def _linked_aside(log: str) -> str:
    """Give a log a second name by the time, and return it. An existing name is never replaced: it is another log."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        kept = f"{log}.{stamp}.kept" if number == 1 else f"{log}.{stamp}-{number}.kept"
        with contextlib.suppress(FileExistsError):
            os.link(log, kept)
            return kept
    raise AssertionError
