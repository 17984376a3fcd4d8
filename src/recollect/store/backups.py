"""Backups brought back, or looked through before: what is done to the file of a store that need not be open."""

from __future__ import annotations

import os
import time

from recollect.engine.sqlite import backup as backups
from recollect.engine.url import target
from recollect.errors import NotSupported
from recollect.model import argument
from recollect.model.space import Backup


def restore(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    timeout: float = 30.0,
) -> str | None:
    """Bring a backup back to a path, or to where open() would look; give the path of the copy kept of what was there.

    Stores that are open on it, here and in other processes, go on with what the backup holds. `verify` says whether
    the checksum of each page of the backup must fit.
    """
    source, place = _ends(backup, path)
    return backups.restore(source, place, time.time_ns() // 1_000_000, verify=verify, timeout=timeout)


def check_backup(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    timeout: float = 30.0,
) -> Backup:
    """Say what a backup holds, and raise what stands against bringing it back with restore(). Nothing is changed."""
    source, place = _ends(backup, path)
    return backups.look(source, place, verify=verify, timeout=timeout)


def _ends(backup: str | os.PathLike[str], path: str | os.PathLike[str] | None) -> tuple[str, str]:
    """Say from where to where a backup is brought back."""
    place = target(path)
    if place.engine != "sqlite":
        raise NotSupported(what="Bringing back a backup")
    return argument.path("A backup", backup), place.path
