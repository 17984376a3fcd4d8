"""The change notifier of PostgreSQL: LISTEN on its own connection, which is replaced if it is lost.

A commit sends NOTIFY only if a watcher is registered. So a watcher registers first, and scans all sessions once more a
little later: a transaction that was in progress when it registered does not know of it. A replica does not accept
LISTEN; there all sessions are scanned every second.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg

from recollect.engine.change_notifier import ChangeNotice
from recollect.engine.postgres.adapters import decode_text
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.errors import connection_reason, read_only_error, unavailable_error
from recollect.storage.operation import Row

_WAIT_SLICE = 0.2  # seconds. A thread in libpq cannot be woken: it notices notify() and close() within this time
_SECOND_SCAN_AFTER = 2.0  # seconds. Longer than a usual transaction that began before the watcher was registered
_RENEW = 30.0  # seconds between two renewals of the registration. It lasts 90 seconds (below), so that two may fail
_REPLICA_POLL_INTERVAL = 1.0  # seconds between two scans on a replica, which sends no notifications
_BACKOFF = 0.1  # seconds. Doubled after each failed attempt to reconnect
_MAX_BACKOFF = 5.0  # seconds. A watch continues within this time after a restart of the server
_REGISTER_WATCHER = """
INSERT INTO recollect.watchers (channel, watcher, until)
VALUES (recollect.channel(%s), %s, extract(epoch FROM clock_timestamp()) * 1000 + 90000)
ON CONFLICT (channel, watcher) DO UPDATE SET until = excluded.until
RETURNING channel
"""
_UNREGISTER_WATCHER = (
    "DELETE FROM recollect.watchers WHERE watcher = %s OR until < extract(epoch FROM clock_timestamp()) * 1000"
)


class ServerChangeNotifier:
    """Reports each session that any connection changed, as the server notifies it."""

    def __init__(self, address: Address, owner: str) -> None:
        self._address = address
        self._owner = owner
        self._watcher = random.SystemRandom().getrandbits(62)  # the host program may have seeded the `random` module
        self._wakeup = threading.Event()
        self._open = True
        self._connection: psycopg.Connection[Any] | None = None
        self._can_listen = True
        self._scan_at = self._renew_at = self._connect_at = 0.0
        self._failures = 0
        self._connect()

    def _connect(self) -> None:
        """Register and listen. Everything is scanned after that, now and once more a little later."""
        try:
            connection = psycopg.connect(self._address.listen_conninfo, autocommit=True)
        except psycopg.Error as error:
            reason = self._address.without_password(connection_reason(error))
            raise unavailable_error(self._address.display_url, reason) from None
        try:
            # In this order: a commit between the two sends a notification that is missed, but the scan that follows
            # sees the commit. The name of the channel is a hash of the owner, so it needs no escaping.
            channel = self._register(connection)
            connection.execute(f'LISTEN "{channel}"'.encode())
        except psycopg.errors.ReadOnlySqlTransaction:
            self._can_listen = False
        except psycopg.Error as error:
            connection.close()
            raise read_only_error(self._address.display_url, connection_reason(error)) from error
        self._connection = connection
        self._failures = 0
        self._scan_at = time.monotonic() + (_SECOND_SCAN_AFTER if self._can_listen else _REPLICA_POLL_INTERVAL)

    def _register(self, connection: psycopg.Connection[Any]) -> str:
        row = connection.execute(_REGISTER_WATCHER, (self._owner, self._watcher)).fetchone()
        assert row is not None
        self._renew_at = time.monotonic() + _RENEW
        return row[0]

    def wait(self, seconds: float) -> ChangeNotice | None:
        """Wait up to `seconds` for a commit by any connection. Return None if there was none."""
        deadline = time.monotonic() + seconds
        while self._open and not self._wakeup.is_set():
            now = time.monotonic()
            if self._connection is None:
                if now >= self._connect_at and self._reconnect():
                    return ChangeNotice([], everything=True)
            elif now >= self._scan_at:
                self._scan_at = float("inf") if self._can_listen else now + _REPLICA_POLL_INTERVAL
                return ChangeNotice([], everything=True)
            else:
                rows = self._receive_rows(max(min(deadline - now, self._scan_at - now, _WAIT_SLICE), 0))
                if rows:
                    return ChangeNotice(rows)
            if now >= deadline:
                return None
            if self._connection is None:
                self._wakeup.wait(min(_WAIT_SLICE, max(deadline - now, 0)))
        self._wakeup.clear()
        return None

    def _receive_rows(self, seconds: float) -> list[Row]:
        """Return the sessions of all notifications within `seconds`. A lost connection is replaced later."""
        connection = self._connection
        assert connection is not None
        try:
            if self._can_listen and time.monotonic() >= self._renew_at:
                self._register(connection)
            # The first notification ends the wait; those that arrived with it are read without waiting.
            notices = list(connection.notifies(timeout=seconds, stop_after=1))
            notices += connection.notifies(timeout=0) if notices else []
        except psycopg.Error:
            connection.close()
            self._connection = None
            self._connect_at = time.monotonic()
            return []
        return [row for notice in notices if (row := _parse_payload(notice.payload)) is not None]

    def _reconnect(self) -> bool:
        try:
            self._connect()
        except Exception:  # noqa: BLE001  the server is unreachable; if it stays so, the scan that follows raises it
            self._failures += 1
            self._connect_at = time.monotonic() + min(_BACKOFF * 2**self._failures, _MAX_BACKOFF)
            return False
        return True

    def notify(self) -> None:
        """Wake the waiting thread."""
        self._wakeup.set()

    def close(self) -> None:
        """Stop listening and remove the registration, so that commits send no more notifications."""
        self._open = False
        self._wakeup.set()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._can_listen:
                connection.execute(_UNREGISTER_WATCHER, (self._watcher,))
        except psycopg.Error:
            return  # the registration expires
        finally:
            connection.close()


def _parse_payload(payload: str) -> Row | None:
    """Parse `revision key id`. Return None for a payload that another program sent."""
    revision, _, remainder = payload.partition(" ")
    key, _, id = remainder.partition(" ")
    if not key.isdecimal() or not revision.removeprefix("-").isdecimal():
        return None
    return int(key), decode_text(id), int(revision)
