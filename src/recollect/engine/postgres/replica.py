"""A server that follows the first one and answers what is only read, once it has all that this store wrote.

It may be behind what others wrote. Where it does not answer, or is behind this store, the first server is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
import psycopg_pool

from recollect.engine.postgres.book import Statement
from recollect.engine.postgres.link import Link, Lost
from recollect.engine.postgres.near import Pool

T = TypeVar("T")

_REST = 5.0  # seconds that a replica which did not answer is left alone
_LOOK = 0.05  # and how long one that is behind is not asked again
_WAIT = 2.0
_WRITTEN = Statement(
    "replica_written",
    "SELECT pg_current_wal_insert_lsn()::text, (SELECT system_identifier FROM pg_control_system())",
)
_HAS = Statement(
    "replica_has",
    "SELECT pg_last_wal_replay_lsn() >= :lsn::pg_lsn "
    "AND (SELECT system_identifier FROM pg_control_system()) = :system::bigint",
)


class Replica:
    """Knows whether a replica may be read, and reads from it."""

    def __init__(self, make_pool: Callable[[], Pool]) -> None:
        self._make_pool = make_pool
        self._pool: Pool | None = None
        self._gate = threading.Lock()
        self._writes = 1  # before the first look nothing is known of it
        self._reached = 0
        self._not_before = 0.0

    def wrote(self) -> None:
        """Say that the store has written something, which is to be read from then on."""
        self._writes += 1

    def read(self, work: Callable[[Link], T], first: Callable[[Callable[[Link], Any]], Any]) -> tuple[T] | None:
        """Read here; None where the first server is to be asked. `first` does something there."""
        if time.monotonic() < self._not_before:
            return None
        try:
            if self._reached != self._writes and not self._caught_up(first):
                return None
            return (self._done(work),)
        except (Lost, psycopg.Error, psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed):
            self._not_before = time.monotonic() + _REST
            return None

    def _caught_up(self, first: Callable[[Callable[[Link], Any]], Any]) -> bool:
        writes = self._writes
        lsn, system = first(lambda link: _row(link, _WRITTEN, {}))
        (has,) = self._done(lambda link: _row(link, _HAS, {"lsn": lsn, "system": system}))
        if not has:  # NULL where it is no replica, or not any more
            self._not_before = time.monotonic() + (_REST if has is None else _LOOK)
            return False
        self._reached = writes
        return True

    def _done(self, work: Callable[[Link], T]) -> T:
        pool = self._opened()
        connection = pool.getconn(timeout=_WAIT)
        try:
            return work(connection.link)
        except (Lost, psycopg.Error):
            connection.link.abandon()
            raise
        except Exception:
            connection.link.rollback()
            raise
        except BaseException:
            connection.link.abandon()
            raise
        finally:
            pool.putconn(connection)

    def _opened(self) -> Pool:
        with self._gate:
            if self._pool is None:
                self._pool = self._make_pool()
            return self._pool

    def forget(self) -> list[Pool]:
        """Leave its connections to the process that this one was forked from."""
        left = [] if self._pool is None else [self._pool]
        self._pool, self._gate = None, threading.Lock()
        return left

    def close(self) -> None:
        """Close its connections."""
        with self._gate:
            if self._pool is not None:
                self._pool.close()


def _row(link: Link, statement: Statement, params: dict[str, Any]) -> Any:
    link.send(statement, statement.values(params))
    return link.receive(end=True)[0][0]
