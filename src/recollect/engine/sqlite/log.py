"""The write-ahead log of the file: when it is folded into it.

SQLite folds the log when it has grown to so many pages, beside whoever writes. Where several processes write, more is
written meanwhile, so the log is never empty and never begun anew: then every commit folded a few pages, with two syncs
of the disk. Here nobody else writes while it is folded, and where that could not be, it is not tried again before the
log has grown.
"""

from __future__ import annotations

import contextlib

import apsw

from recollect.engine.sqlite.connection import wait_at_most


def fold_at(connection: apsw.Connection, pages: int, timeout: float) -> None:
    """Fold the log of a connection into the file whenever it has so many pages after a commit."""
    due = pages

    def committed(connection: apsw.Connection, _name: str, logged: int) -> int:
        nonlocal due
        if logged < pages:
            due = pages
        elif logged >= due:
            due = pages if _folded(connection, timeout) else logged + pages // 2
        return apsw.SQLITE_OK

    connection.set_wal_hook(committed)


def _folded(connection: apsw.Connection, timeout: float) -> bool:
    """Fold the log without waiting for anyone; say if the next one who writes begins it anew.

    An error is no matter of the commit that it follows: who reads or writes next meets it, if it lasts.
    """
    connection.set_busy_handler(None)
    try:
        with contextlib.suppress(apsw.Error):
            logged, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
            return logged == moved
        return False
    finally:
        wait_at_most(connection, timeout)
