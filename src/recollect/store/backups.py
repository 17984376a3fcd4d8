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
    """Restore a backup to a path, or to the location that [recollect.open()] would use.

    Return the path of the copy of the previous database, or `None` if no database existed. Raise `NotSupported` if
    `path` is a PostgreSQL URL.

    - `backup`: the backup file, which is only read. Raises `Corrupted` if it is damaged, `SchemaTooNew` if a newer
      version wrote it, and `NotADatabase` if it is not a Recollect database; the store is then unchanged. A backup with
      an older schema is migrated.
    - `path`: the location to restore to, as in `recollect.open()`.
    - `verify`: whether the checksum of each page of the backup must be valid. A copy that another program made may have
      no checksums.
    - `timeout`: seconds to wait for the lock.

    The function first copies the previous database to `<file>.<date and time>.kept`, with every acknowledged write. You
    do not need to close stores that are open on the file, in this process or others: they continue with the data of the
    backup. Using a session that is not in the backup raises `SessionNotFound`. End open turns first: after the restore,
    an open turn could write into a different conversation.
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
    """Read the `backup` completely and return a [Backup] that describes its content.

    It takes the arguments of [recollect.restore()] and raises the same errors, but writes nothing.

    - `backup`, `path`, `verify`, `timeout`: as in `restore()`.
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
