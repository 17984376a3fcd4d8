"""Restoring and checking backups: functions on the file of a SQLite database, which need not be open."""

from __future__ import annotations

import os
import time

from recollect.engine.sqlite import maintenance
from recollect.engine.url import parse_target
from recollect.errors import NotSupported
from recollect.model import validation
from recollect.model.reports import Backup


def restore(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    timeout: float = 30.0,
) -> str | None:
    """Restore a backup to a path, or to the location that open() would use.

    Return the path of the copy of the previous database, or None if there was none. Stores that are open on the file,
    in any process, continue with the data of the backup. `verify` requires a valid checksum on every page of the
    backup; a copy made by another program may have none. `timeout` is the number of seconds to wait for the lock.

    Raise Corrupted for a damaged backup, SchemaTooNew for one of a newer version, NotADatabase for another kind of
    file, and NotSupported if `path` is a PostgreSQL URL; the database is then unchanged.
    """
    source, target = _resolve_paths(backup, path)
    return maintenance.restore_backup(source, target, time.time_ns() // 1_000_000, verify=verify, timeout=timeout)


def check_backup(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    timeout: float = 30.0,
) -> Backup:
    """Read a whole backup, and return a description of its content. Nothing is changed.

    Raise the errors that restore() with the same arguments would raise.
    """
    source, target = _resolve_paths(backup, path)
    return maintenance.describe_backup(source, target, verify=verify, timeout=timeout)


def _resolve_paths(backup: str | os.PathLike[str], path: str | os.PathLike[str] | None) -> tuple[str, str]:
    """Return the paths of the backup and of the database. Raise NotSupported if the location is not a SQLite file."""
    target = parse_target(path)
    if target.engine != "sqlite":
        raise NotSupported(what="Restoring a backup")
    return validation.check_path("backup", backup), target.path
