"""Whether the files that are open are still those that others find under their names.

A file that was removed or replaced can be written to for as long as it is open, and all of it is gone when it is
closed. So the names are looked at again before a write is acknowledged, unless that was a moment ago.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Place(NamedTuple):
    """The file and its log: the names, and which files these meant when they were opened."""

    file: str
    log: str
    opened: tuple[int, int, int]

    def there(self) -> bool:
        """Say if the file is still the same; that is all that a reader needs to know."""
        try:
            found = os.stat(self.file)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.opened[:2]

    def unchanged(self) -> bool:
        """Say if both names still mean the same files."""
        try:
            here, log = os.stat(self.file), os.stat(self.log)
        except OSError:
            return False
        return (here.st_dev, here.st_ino, log.st_ino) == self.opened


def place(path: str) -> Place | None:
    """Look at what is under the names of a store that was just opened; None where it has no log yet."""
    log = f"{path}-wal"
    try:
        here = os.stat(path)
        return Place(path, log, (here.st_dev, here.st_ino, os.stat(log).st_ino))
    except OSError:
        return None
