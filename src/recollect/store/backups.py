"""Restoring and checking backups of a database, which need not be open."""

from __future__ import annotations

import os

from recollect.engine.engine import DatabaseFiles
from recollect.engine.registry import find_provider
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
    files, source, target = _resolve_paths(backup, path)
    return files.restore_backup(source, target, verify=verify, timeout=timeout)


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
    files, source, target = _resolve_paths(backup, path)
    return files.describe_backup(source, target, verify=verify, timeout=timeout)


def _resolve_paths(
    backup: str | os.PathLike[str], path: str | os.PathLike[str] | None
) -> tuple[DatabaseFiles, str, str]:
    """Return the functions of the engine, and the paths of the backup and of the database.

    Raise NotSupported if the engine has no files.
    """
    target = parse_target(path)
    files = find_provider(target.engine).files
    if files is None:
        raise NotSupported(what="Restoring a backup")
    return files, validation.check_path("backup", backup), target.path
