"""The write-ahead log of the file: when it is folded into it.

SQLite folds the log when it has grown to so many pages, beside whoever writes. Where several processes write, more is
written meanwhile, so the log is never empty and never begun anew: then every commit folded a few pages, with two syncs
of the disk. Here nobody else writes while it is folded, and where that could not be, it is not tried again before the
log has grown.
"""

from __future__ import annotations

import apsw

from recollect.engine.sqlite.connection import wait_at_most

TRUNCATE_WAIT = 0.25
"""Seconds to wait for readers of the log. Most reads are shorter; a longer wait would hold up the erasure's caller."""


def fold_at(connection: apsw.Connection, pages: int, timeout: float) -> None:
    """Fold the log of a connection into the file whenever it has so many pages after a commit."""
    due = pages

    def committed(connection: apsw.Connection, _name: str, logged: int) -> int:
        nonlocal due
        if logged < pages:
            due = pages
        elif logged >= due:
            due = pages if folded(connection, timeout) else logged + pages // 2
        return apsw.SQLITE_OK

    connection.set_wal_hook(committed)


def folded(
    connection: apsw.Connection, timeout: float, *, wait: float = 0.0, mode: int = apsw.SQLITE_CHECKPOINT_FULL
) -> bool:
    """Fold the log, waiting so long for others; say if all of it was, so that the next one who writes begins it anew.

    An error is no matter of what it follows: who reads or writes next meets it, if it lasts. `timeout` is how long
    the connection waits for a lock otherwise.
    """
    if wait:
        wait_at_most(connection, wait)
    else:
        connection.set_busy_handler(None)
    try:
        logged, moved = connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return False
    finally:
        wait_at_most(connection, timeout)
    return logged == moved


def truncated(connection: apsw.Connection, timeout: float) -> bool:
    """Checkpoint the log and cut it to zero bytes. Return False if another connection holds it."""
    return folded(connection, timeout, wait=TRUNCATE_WAIT, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
