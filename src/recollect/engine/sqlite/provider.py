"""The entry point of the SQLite engine."""

from __future__ import annotations

import os
import time

from recollect import sql
from recollect.engine.engine import AsyncEngine, Engine
from recollect.engine.sqlite.sync_engine import SqliteEngine
from recollect.engine.url import MEMORY
from recollect.lazy_imports import import_before_fork
from recollect.model.reports import Backup


class _SqliteFiles:
    """Work on SQLite files. The module of backups is imported on use: most programs restore nothing."""

    def exists(self, path: str) -> bool:
        """Return whether a file exists. One that cannot be examined does: opening it reports the reason."""
        try:
            return path == MEMORY or bool(os.stat(path))
        except OSError as error:
            return not isinstance(error, FileNotFoundError)

    def describe_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> Backup:
        """Read a whole backup, and return a description of its content."""
        from recollect.engine.sqlite import maintenance  # noqa: PLC0415

        return maintenance.describe_backup(backup, path, verify=verify, timeout=timeout)

    def restore_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> str | None:
        """Replace the file at `path` by a backup, and return where the previous file is kept."""
        from recollect.engine.sqlite import maintenance  # noqa: PLC0415

        now = time.time_ns() // 1_000_000
        return maintenance.restore_backup(backup, path, now, verify=verify, timeout=timeout)


files = _SqliteFiles()


def schema_version() -> int:
    """Return the number of the newest migration."""
    return sql.migrations("sqlite")[-1][0]


def open(url: str, *, owner: str, timeout: float, trusted: bool = False) -> Engine:  # noqa: ARG001  for servers
    """Open the file at a path, or `:memory:`."""
    return SqliteEngine(url, timeout=timeout)


def open_async(url: str, *, owner: str, timeout: float) -> AsyncEngine:  # noqa: ARG001  for servers
    """Open the file at a path, or `:memory:`, for concurrent tasks."""
    from recollect.engine.sqlite.async_engine import AsyncSqliteEngine  # noqa: PLC0415  it imports asyncio: 40 ms

    return AsyncSqliteEngine(url, timeout=timeout)


def _load_search() -> None:
    """Import the module that a search imports on first use."""
    __import__("recollect.engine.sqlite.search")


import_before_fork(_load_search)
