"""WAL checkpoints.

SQLite's automatic checkpoint runs while other processes write, so under load the WAL is never empty and never
restarts: every commit then moves a few pages, with two fsyncs. Recollect checkpoints while it holds the write lock,
and after a checkpoint that could not complete it waits until the WAL has grown.
"""

from __future__ import annotations

import apsw

from recollect.engine.sqlite.connection import set_lock_timeout

# Seconds to wait for readers of the WAL. Most reads are shorter. The caller of an erasure waits for it, so it is not
# longer: an erasure that a reader delays further is finished by the next write.
TRUNCATE_WAIT = 0.25


def checkpoint_at(connection: apsw.Connection, pages: int, timeout: float) -> None:
    """Run a checkpoint after each commit that leaves at least `pages` pages in the WAL.

    After a checkpoint that readers kept from completing, the next one waits for `pages // 2` more pages.
    """
    threshold = pages

    def after_commit(connection: apsw.Connection, _name: str, wal_pages: int) -> int:
        nonlocal threshold
        if wal_pages < pages:
            threshold = pages
        elif wal_pages >= threshold:
            threshold = pages if run_checkpoint(connection, timeout) else wal_pages + pages // 2
        return apsw.SQLITE_OK

    # This also turns SQLite's automatic checkpoint off, which is itself implemented as the WAL hook of a connection.
    connection.set_wal_hook(after_commit)


def run_checkpoint(
    connection: apsw.Connection, timeout: float, *, wait: float = 0.0, mode: int = apsw.SQLITE_CHECKPOINT_FULL
) -> bool:
    """Run a checkpoint. Return whether it was complete, so that the next writer restarts the WAL from its beginning.

    FULL blocks other writers, so no pages are added meanwhile. `wait` is the time to wait for readers, in seconds.
    Errors are not raised, because the commit before it has succeeded; a persistent one surfaces on the next operation.
    `timeout` is the lock timeout to restore afterwards.
    """
    if wait:
        set_lock_timeout(connection, wait)
    else:
        connection.set_busy_handler(None)  # it follows a commit, whose caller must not wait for a reader
    try:
        wal_pages, checkpointed_pages = connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return False
    finally:
        set_lock_timeout(connection, timeout)
    return wal_pages == checkpointed_pages


def truncate_wal(connection: apsw.Connection, timeout: float) -> bool:
    """Checkpoint the WAL and truncate it to zero bytes. Return False if another connection still reads or writes it."""
    return run_checkpoint(connection, timeout, wait=TRUNCATE_WAIT, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
