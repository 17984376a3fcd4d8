"""The change notifiers of PostgreSQL: one connection of a store listens for the watches of all its owners.

A thread waits on the connection and passes each notification on to the notifiers of its channel; every owner has a
channel of its own. If the connection is lost, the thread replaces it. The thread and the connection exist only while
there are notifiers.

A commit sends NOTIFY only if a watcher is registered for its channel. So a notifier registers first, and scans all
sessions once more a little later: a transaction that was in progress when it registered does not know of it. A replica
does not accept LISTEN; there all sessions are scanned every second.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import psycopg

from recollect.engine.change_notifier import ChangeNotice
from recollect.engine.postgres.adapters import decode_text
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.errors import connection_reason, read_only_error, unavailable_error
from recollect.errors import StoreClosed, StoreReadOnly
from recollect.model.json import escape_nul
from recollect.storage.operation import Row

_SECOND_SCAN_AFTER = 2.0  # seconds. Longer than a usual transaction that began before the watcher was registered
_RENEW = 30.0  # seconds between two renewals of the registration. It lasts 90 seconds (below), so that two may fail
_REPLICA_POLL_INTERVAL = 1.0  # seconds between two scans on a replica, which sends no notifications
_BACKOFF = 0.1  # seconds. Doubled after each failed attempt to reconnect
_MAX_BACKOFF = 5.0  # seconds. A watch continues within this time after a restart of the server
# Changes that wait for a slow watch. Above it, one scan of all sessions costs less memory than the changes.
_MAX_PENDING = 10_000
# Seconds for which closing a watch waits for the removal of its registration. The thread may wait for a server that
# does not answer; the registration then expires.
_CLOSE_TIMEOUT = 2.0
_REGISTER_WATCHER = """
INSERT INTO recollect.watchers (channel, watcher, until)
SELECT channel, %s, extract(epoch FROM clock_timestamp()) * 1000 + 90000 FROM unnest(%s::text[]) AS c (channel)
ON CONFLICT (channel, watcher) DO UPDATE SET until = excluded.until
"""
_UNREGISTER_WATCHER = """
DELETE FROM recollect.watchers
WHERE (watcher = %s AND channel = ANY(%s::text[])) OR until < extract(epoch FROM clock_timestamp()) * 1000
"""


class ServerChangeNotifier:
    """Reports each session of one owner that any connection changed, as the listener receives it."""

    def __init__(self, channel: str, remove: Callable[[ServerChangeNotifier], None]) -> None:
        self.channel = channel
        self._remove = remove
        self._changed = threading.Condition()
        self._rows: list[Row] = []
        self._is_open = True
        self._is_woken = self._needs_scan = self._polls = False
        self._scan_at = float("inf")

    def wait(self, seconds: float) -> ChangeNotice | None:
        """Wait up to `seconds` for a commit by any connection. Return None if there was none."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._is_open and not self._is_woken:
                now = time.monotonic()
                if self._needs_scan or now >= self._scan_at:
                    self._begin_scan(now)
                    return ChangeNotice([], everything=True)
                if self._rows:
                    rows, self._rows = self._rows, []
                    return ChangeNotice(rows)
                if now >= deadline:
                    return None
                self._changed.wait(min(deadline, self._scan_at) - now)
            self._is_woken = False
            return None

    def _begin_scan(self, now: float) -> None:
        """Forget the pending changes, which the scan finds too, and set the time of the next scan."""
        self._needs_scan = False
        self._rows.clear()
        if now >= self._scan_at:
            self._scan_at = now + _REPLICA_POLL_INTERVAL if self._polls else float("inf")

    def receive(self, rows: list[Row]) -> None:
        """Pass on changes to the watch."""
        with self._changed:
            self._rows += rows
            if len(self._rows) > _MAX_PENDING:
                self._rows.clear()
                self._needs_scan = True
            self._changed.notify_all()

    def start(self, *, listens: bool, has_gap: bool) -> None:
        """Begin to report changes, from notifications or by polling. `has_gap`: some may have been missed until now."""
        with self._changed:
            self._polls = not listens
            self._scan_at = time.monotonic() + (_SECOND_SCAN_AFTER if listens else _REPLICA_POLL_INTERVAL)
            self._needs_scan = self._needs_scan or has_gap
            self._changed.notify_all()

    def poll_in_child(self) -> None:
        """Scan all sessions regularly: in a forked child, no thread listens for this notifier."""
        self._changed = threading.Condition()  # a thread of the parent may hold its lock
        self._remove = _remove_nothing
        self.start(listens=False, has_gap=True)

    def notify(self) -> None:
        """Wake the waiting thread."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and remove the registration, so that commits send no more notifications."""
        with self._changed:
            was_open, self._is_open = self._is_open, False
            self._changed.notify_all()
        if was_open:
            self._remove(self)


def _remove_nothing(_: ServerChangeNotifier) -> None:
    """Do nothing."""


class ChangeListener:
    """Opens the change notifiers of a store, which share a connection, also those of different owners."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._thread: _ListenerThread | None = None
        self._is_closed = False

    def open_notifier(self, owner: str) -> ServerChangeNotifier:
        """Return a new notifier for the changes of an owner from now on. Raise an error if the server refuses it."""
        while True:
            thread = self._current_thread()
            notifier = ServerChangeNotifier(_channel_of(owner), thread.remove)
            done = thread.submit(functools.partial(thread.add, notifier))
            if done is not None:
                done.result()
                return notifier

    def _current_thread(self) -> _ListenerThread:
        with self._lock:
            if self._is_closed:
                raise StoreClosed
            if self._thread is None or self._thread.has_ended:
                self._thread = _ListenerThread(self._address)
            return self._thread

    def after_fork_in_child(self) -> list[Any]:
        """Drop the connection without closing it, and return what refers to it: its socket belongs to the parent."""
        self._lock = threading.Lock()
        thread, self._thread = self._thread, None
        if thread is None:
            return []
        for notifier in thread.notifiers():
            notifier.poll_in_child()
        return [thread]

    def close(self) -> None:
        """Close the connection. Notifiers that are still open report nothing more."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.remove_all()


def _channel_of(owner: str) -> str:
    """Return the name of an owner's channel, like the function recollect.channel() of the database."""
    return f"recollect_{hashlib.md5(escape_nul(owner).encode(), usedforsecurity=False).hexdigest()}"


class _Channel:
    """The notifiers of a channel. `on_drop` is called when one of them is collected without being closed."""

    def __init__(self, on_drop: Callable[[object], None]) -> None:
        self._on_drop = on_drop
        self._references: list[weakref.ref[ServerChangeNotifier]] = []

    def add(self, notifier: ServerChangeNotifier) -> None:
        self._references.append(weakref.ref(notifier, self._on_drop))

    def remove(self, notifier: ServerChangeNotifier) -> None:
        self._references = [reference for reference in self._references if reference() not in (None, notifier)]

    def notifiers(self) -> list[ServerChangeNotifier]:
        """Return the notifiers that still exist."""
        return [notifier for reference in self._references if (notifier := reference()) is not None]


class _ListenerThread:
    """A thread with a connection that listens on the channels of its notifiers. It ends when it has none.

    Other threads submit requests. Everything else happens in the thread, which alone uses the connection and the
    channels.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._watcher = random.SystemRandom().getrandbits(62)  # the host program may have seeded the `random` module
        self._lock = threading.Lock()
        self._requests: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._thread: threading.Thread | None = None
        self.has_ended = False
        self._channels: dict[str, _Channel] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._socket = -1
        self._listens = False
        self._notifications: list[tuple[str, str]] = []
        self._renew_at = self._connect_at = 0.0
        self._failures = 0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        for end in (self._wake_receiver, self._wake_sender):
            end.setblocking(False)  # noqa: FBT003  positional only

    # Called by other threads.

    def submit(self, request: Callable[[], None]) -> Future[None] | None:
        """Call a function in the thread. Return None if the thread has ended."""
        done: Future[None] = Future()
        with self._lock:
            if self.has_ended:
                return None
            self._requests.append((request, done))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="recollect-listen", daemon=True)
                self._thread.start()
        self._wake()
        return done

    def _wake(self, _: object = None) -> None:
        """Wake the thread. The garbage collector may call this on any thread, so it takes no lock and never blocks."""
        with contextlib.suppress(OSError):  # full: the thread wakes anyway; closed: it has ended
            self._wake_sender.send(b"\0")

    def remove(self, notifier: ServerChangeNotifier) -> None:
        """Remove a notifier. Wait until its registration is removed, if the server answers soon."""
        self._submit_and_wait(functools.partial(self._remove, notifier))

    def remove_all(self) -> None:
        """Remove all notifiers, which ends the thread."""
        self._submit_and_wait(self._remove_all)

    def _submit_and_wait(self, request: Callable[[], None]) -> None:
        done = self.submit(request)
        if done is not None:
            wait([done], timeout=_CLOSE_TIMEOUT)

    def notifiers(self) -> list[ServerChangeNotifier]:
        """Return all notifiers. In a forked child, where the thread does not run, any thread may call this."""
        return [notifier for channel in self._channels.values() for notifier in channel.notifiers()]

    # Called in the thread.

    def add(self, notifier: ServerChangeNotifier) -> None:
        """Add a notifier. Connect, register the channel and listen on it, unless that has happened."""
        was_connected = self._connection is not None
        if not was_connected:
            self._connect()
        if notifier.channel not in self._channels:
            try:
                self._listen_on([notifier.channel])
            except psycopg.Error as error:
                self._disconnect()
                if not was_connected:
                    raise self._refusal(error) from error
                self._connect()  # the connection may have been lost a while ago
                self._listen_on([notifier.channel])
            self._channels[notifier.channel] = _Channel(self._wake)
        self._channels[notifier.channel].add(notifier)
        notifier.start(listens=self._listens, has_gap=False)

    def _remove(self, notifier: ServerChangeNotifier) -> None:
        channel = self._channels.get(notifier.channel)
        if channel is not None:
            channel.remove(notifier)
            self._unlisten_unused()

    def _remove_all(self) -> None:
        for notifier in self.notifiers():
            self._remove(notifier)

    def _work(self) -> None:
        try:
            while not self._is_unused():
                self._run_requests()
                self._unlisten_unused()
                self._maintain()
                self._dispatch()
                if self._channels and not self._requests:
                    self._wait()
        finally:
            self._end()

    def _is_unused(self) -> bool:
        """Return whether there is nothing to do; the thread then accepts no further requests."""
        with self._lock:
            self.has_ended = not self._requests and not self._channels
            return self.has_ended

    def _run_requests(self) -> None:
        while self._requests:
            request, done = self._requests.popleft()
            try:
                request()
            except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                done.set_exception(error)
            else:
                done.set_result(None)

    def _unlisten_unused(self) -> None:
        """Remove the registration of channels without notifiers."""
        idle = [name for name, channel in self._channels.items() if not channel.notifiers()]
        for name in idle:
            del self._channels[name]
        if idle and self._connection is not None and self._listens:
            try:
                self._connection.execute("; ".join(f'UNLISTEN "{name}"' for name in idle).encode())
                self._connection.execute(_UNREGISTER_WATCHER, (self._watcher, idle))
            except psycopg.Error:
                self._disconnect()  # the registration expires

    def _maintain(self) -> None:
        """Reconnect, or renew the registration, if it is time."""
        now = time.monotonic()
        if not self._channels:
            return
        if self._connection is None:
            if now >= self._connect_at:
                self._reconnect()
        elif now >= self._renew_at:
            try:
                self._renew()
            except psycopg.Error:
                self._disconnect()

    def _reconnect(self) -> None:
        try:
            self._connect()
        except Exception:  # noqa: BLE001  the server is unreachable; if it stays so, the next scan of a watch raises it
            self._failures += 1
            self._connect_at = time.monotonic() + min(_BACKOFF * 2**self._failures, _MAX_BACKOFF)

    def _connect(self) -> None:
        """Connect, and listen on all channels. Everything is scanned after that, now and once more a little later."""
        try:
            self._connection = psycopg.connect(self._address.listen_conninfo, autocommit=True)
        except psycopg.Error as error:
            reason = self._address.without_password(connection_reason(error))
            raise unavailable_error(self._address.display_url, reason) from None
        self._connection.add_notify_handler(self._on_notification)
        self._socket = self._connection.fileno()
        self._selector.register(self._socket, selectors.EVENT_READ)
        try:
            self._listen_on(list(self._channels))
        except psycopg.Error as error:
            self._disconnect()
            raise self._refusal(error) from error
        self._failures = 0
        self._start_all(has_gap=True)

    def _refusal(self, error: psycopg.Error) -> StoreReadOnly:
        return read_only_error(self._address.display_url, connection_reason(error))

    def _listen_on(self, channels: list[str]) -> None:
        """Register and listen.

        In this order: a commit between the two sends a notification that is missed, but the scan that follows sees the
        commit. The name of a channel is a hash, so it needs no escaping.
        """
        if not self._register(channels):
            return
        assert self._connection is not None
        if channels:
            self._connection.execute("; ".join(f'LISTEN "{name}"' for name in channels).encode())

    def _register(self, channels: list[str]) -> bool:
        """Register as a watcher of channels, or renew that. Return False on a replica, which cannot listen."""
        assert self._connection is not None
        self._renew_at = time.monotonic() + _RENEW
        try:
            self._connection.execute(_REGISTER_WATCHER, (self._watcher, channels))
        except psycopg.errors.ReadOnlySqlTransaction:
            self._listens = False
        else:
            self._listens = True
        return self._listens

    def _renew(self) -> None:
        """Renew the registration. A replica that was promoted listens from now on."""
        was_listening = self._listens
        if self._register(list(self._channels)) and not was_listening:
            self._listen_on(list(self._channels))
            self._start_all(has_gap=True)

    def _start_all(self, *, has_gap: bool) -> None:
        for notifier in self.notifiers():
            notifier.start(listens=self._listens, has_gap=has_gap)

    def _wait(self) -> None:
        """Wait for a notification, a request, or the time to reconnect or to renew the registration."""
        due_at = self._connect_at if self._connection is None else self._renew_at
        for key, _ in self._selector.select(max(due_at - time.monotonic(), 0)):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(4096)
            else:
                self._read_notifications()

    def _read_notifications(self) -> None:
        """Read what has arrived, without waiting. A lost connection is replaced later."""
        assert self._connection is not None
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while (notification := pgconn.notifies()) is not None:
                text = notification.extra.decode("utf-8", "replace")
                self._notifications.append((notification.relname.decode("utf-8", "replace"), text))
        except psycopg.Error:
            self._disconnect()

    def _on_notification(self, notification: psycopg.Notify) -> None:
        """Keep a notification that arrived with the reply to a statement."""
        self._notifications.append((notification.channel, notification.payload))

    def _dispatch(self) -> None:
        """Pass the notifications on to the notifiers of their channels."""
        rows: dict[str, list[Row]] = {}
        for name, payload in self._notifications:
            row = _parse_payload(payload)
            if row is not None:
                rows.setdefault(name, []).append(row)
        self._notifications.clear()
        for name, rows_of_channel in rows.items():
            if name in self._channels:
                for notifier in self._channels[name].notifiers():
                    notifier.receive(rows_of_channel)

    def _disconnect(self) -> None:
        """Close the connection. If there are notifiers, it is replaced at once."""
        connection, self._connection = self._connection, None
        self._connect_at = time.monotonic()
        if connection is not None:
            self._selector.unregister(self._socket)
            connection.close()

    def _end(self) -> None:
        """Close the connection. Requests and notifiers are left only after an unexpected error: these then poll."""
        with self._lock:
            self.has_ended = True
        for notifier in self.notifiers():
            notifier.start(listens=False, has_gap=True)
        while self._requests:
            self._requests.popleft()[1].set_exception(StoreClosed())
        self._disconnect()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()


def _parse_payload(payload: str) -> Row | None:
    """Parse `revision key id`. Return None for a payload that another program sent."""
    revision, _, remainder = payload.partition(" ")
    key, _, id = remainder.partition(" ")
    if not key.isdecimal() or not revision.removeprefix("-").isdecimal():
        return None
    return int(key), decode_text(id), int(revision)
