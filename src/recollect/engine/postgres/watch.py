"""Noticing commits to the database: LISTEN on a connection of its own, which is replaced when it is lost.

A commit notifies only where someone is known to watch. So whoever watches says so first, and looks at everything once
more a little later: a commit that was under way meanwhile did not know yet. A replica takes no LISTEN; there everything
is looked at once a second.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg

from recollect.engine.bell import Rung
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.failure import connection_reason, read_only, unavailable
from recollect.engine.postgres.text import heard
from recollect.op import Row

_SLICE = 0.2
_AGAIN = 2.0
_RENEW = 30.0
_POLL = 1.0
_LONGEST_STEP = 5.0
_SAY = """
INSERT INTO recollect.watchers (channel, watcher, until)
VALUES (recollect.channel(%s), %s, extract(epoch FROM clock_timestamp()) * 1000 + 90000)
ON CONFLICT (channel, watcher) DO UPDATE SET until = excluded.until
RETURNING channel
"""
_FORGET = "DELETE FROM recollect.watchers WHERE watcher = %s OR until < extract(epoch FROM clock_timestamp()) * 1000"


class ServerBell:
    """Rung by the server for each session that anyone changed."""

    def __init__(self, address: Address, owner: str) -> None:
        self._address = address
        self._owner = owner
        self._watcher = random.SystemRandom().getrandbits(62)  # a program may have seeded the other
        self._rung = threading.Event()
        self._open = True
        self._connection: psycopg.Connection[Any] | None = None
        self._listens = True
        self._look_at = self._renew_at = self._connect_at = 0.0
        self._tries = 0
        self._connect()

    def _connect(self) -> None:
        """Listen, and say so; then everything is looked at, now and a little later."""
        try:
            connection = psycopg.connect(self._address.listening, autocommit=True)
        except psycopg.Error as error:
            reason = self._address.without_password(connection_reason(error))
            raise unavailable(self._address.shown, reason) from None
        try:
            channel = self._say(connection)
            connection.execute(f'LISTEN "{channel}"'.encode())
        except psycopg.errors.ReadOnlySqlTransaction:
            self._listens = False
        except psycopg.Error as error:
            connection.close()
            raise read_only(self._address.shown, connection_reason(error)) from error
        self._connection = connection
        self._tries = 0
        self._look_at = time.monotonic() + (_AGAIN if self._listens else _POLL)

    def _say(self, connection: psycopg.Connection[Any]) -> str:
        row = connection.execute(_SAY, (self._owner, self._watcher)).fetchone()
        assert row is not None
        self._renew_at = time.monotonic() + _RENEW
        return row[0]

    def wait(self, seconds: float) -> Rung | None:
        """Wait for a commit by anyone."""
        until = time.monotonic() + seconds
        while self._open and not self._rung.is_set():
            now = time.monotonic()
            if self._connection is None:
                if now >= self._connect_at and self._reconnected():
                    return Rung([], everything=True)
            elif now >= self._look_at:
                self._look_at = float("inf") if self._listens else now + _POLL
                return Rung([], everything=True)
            else:
                told = self._told(max(min(until - now, self._look_at - now, _SLICE), 0))
                if told:
                    return Rung(told)
            if now >= until:
                return None
            if self._connection is None:
                self._rung.wait(min(_SLICE, max(until - now, 0)))
        self._rung.clear()
        return None

    def _told(self, seconds: float) -> list[Row]:
        """Take what the server tells, all that is there; a connection that is lost is replaced later."""
        connection = self._connection
        assert connection is not None
        try:
            if self._listens and time.monotonic() >= self._renew_at:
                self._say(connection)
            told = list(connection.notifies(timeout=seconds, stop_after=1))
            told += connection.notifies(timeout=0) if told else []
        except psycopg.Error:
            connection.close()
            self._connection = None
            self._connect_at = time.monotonic()
            return []
        return [row for notice in told if (row := _row(notice.payload)) is not None]

    def _reconnected(self) -> bool:
        try:
            self._connect()
        except Exception:  # noqa: BLE001  the server is away; the next look says so to who watches, if it stays away
            self._tries += 1
            self._connect_at = time.monotonic() + min(0.1 * 2**self._tries, _LONGEST_STEP)
            return False
        return True

    def ring(self) -> None:
        """Wake who waits."""
        self._rung.set()

    def close(self) -> None:
        """Listen no more, and let the others know."""
        self._open = False
        self._rung.set()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._listens:
                connection.execute(_FORGET, (self._watcher,))
        except psycopg.Error:
            return  # it runs out by itself
        finally:
            connection.close()


def _row(payload: str) -> Row | None:
    """Read `revision key id`; what another program sent on the channel is passed over."""
    revision, _, rest = payload.partition(" ")
    key, _, id = rest.partition(" ")
    if not key.isdecimal() or not revision.removeprefix("-").isdecimal():
        return None
    return int(key), heard(id), int(revision)
