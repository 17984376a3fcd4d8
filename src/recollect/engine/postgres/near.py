"""A pool of connections of which one is kept at hand: asking the pool each time takes a twentieth of a short read."""

from __future__ import annotations

import threading
import time
from collections import deque

import psycopg_pool

from recollect.engine.postgres.link import Connection

Pool = psycopg_pool.ConnectionPool[Connection]

_KEPT = 1.0
"""Seconds after which a connection goes back to the pool all the same, which sees to how old they become."""


class Near:
    """Gives connections of a pool. The one that came back last, fit for use, is given again without asking the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kept: deque[Connection] = deque()
        self._gate = threading.Lock()
        self._waiting = 0
        self._closed = False

    def take(self, timeout: float) -> Connection:
        """Give a connection, or wait for one."""
        try:
            return self._kept.pop()
        except IndexError:
            pass
        with self._gate:
            self._waiting += 1
        try:  # what was given back before it was known that someone waits, or goes to the pool from now on
            return self._kept.pop()
        except IndexError:
            connection = self._pool.getconn(timeout=timeout)
            connection.taken = time.monotonic()
            return connection
        finally:
            with self._gate:
                self._waiting -= 1

    def give_back(self, connection: Connection, *, fit: bool) -> None:
        """Take a connection back; it is kept if it is `fit` as it is, and nobody waits for one."""
        if fit and not self._kept and time.monotonic() - connection.taken < _KEPT:
            self._kept.append(connection)
            if not self._waiting and not self._closed:
                return
            self._return()
        else:
            self._pool.putconn(connection)

    def _return(self) -> None:
        """Give the pool what is kept."""
        try:
            connection = self._kept.pop()
        except IndexError:  # someone took it
            return
        self._pool.putconn(connection)

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._return()
        self._pool.close()
