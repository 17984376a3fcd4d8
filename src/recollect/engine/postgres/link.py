"""A connection as operations use it: statements are sent ahead, and waited for only where their rows are needed.

It speaks through psycopg's libpq wrapper in pipeline mode. The cursors above it would cost a third of an append.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import pq

from recollect.engine.postgres.book import Statement
from recollect.engine.postgres.rows import Rows
from recollect.engine.postgres.text import Value
from recollect.op import Row

_OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC)
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_TUPLES = pq.ExecStatus.TUPLES_OK
_ABORTED = pq.ExecStatus.PIPELINE_ABORTED
_GRACE = 5.0
_MARKS = 100
"""Marks that are written over one another. Where someone holds a snapshot, a server passes all of them for the next."""

BEGIN = Statement("begin", "BEGIN")
BEGIN_READ = Statement("begin_read", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
COMMIT = Statement("commit", "COMMIT")
ROLLBACK = Statement("rollback", "ROLLBACK")

_chance = random.SystemRandom()  # a program may have seeded the other


def fresh_token() -> int:
    """Give a number that nobody else has."""
    return _chance.getrandbits(63)


class Lost(Exception):
    """The connection is gone, and with it what was under way."""


class Connection(psycopg.Connection[Any]):
    """psycopg's connection, with the link on it, and when it was taken out of the pool."""

    link: Link
    taken: float


class Link:
    """Sends statements and reads their results, in order."""

    def __init__(self, connection: Connection, *, prepares: bool, timeout: float) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepares = prepares
        self._timeout = timeout
        self._prepared: set[bytes] = set()
        self._sent: list[tuple[Statement, bool]] = []  # and whether it was only prepared
        self._unconfirmed = False
        self._rows = Rows()
        self._reading = _reading(self._pgconn.socket)
        self._token = self._marks = self._marked = 0
        connection.add_notice_handler(self._noticed)
        self._pgconn.enter_pipeline_mode()

    def next_mark(self, now: int) -> tuple[int, int]:
        """Give a number and a time for another mark. Nobody had both, and no mark of this connection had the time."""
        if self._marks % _MARKS == 0:
            self._token = fresh_token()
        self._marks += 1
        self._marked = max(now, self._marked + 1)
        return self._token, self._marked

    def send(self, statement: Statement, values: list[Value]) -> None:
        """Send a statement without waiting for it."""
        formats = [type(value) is bytearray for value in values] if bytearray in map(type, values) else None
        known = statement.columns
        given = pq.Format.BINARY if known is not None and known.binary else pq.Format.TEXT
        try:
            if not self._prepares:
                self._pgconn.send_query_params(statement.text, values, None, formats, given)
            else:
                if statement.name not in self._prepared:
                    self._pgconn.send_prepare(statement.name, statement.text)
                    self._prepared.add(statement.name)
                    self._sent.append((statement, True))
                self._pgconn.send_query_prepared(statement.name, values, formats, given)
        except psycopg.OperationalError as error:
            raise Lost(str(error)) from error
        self._sent.append((statement, False))

    def receive(self, *, end: bool = False) -> list[list[Row]]:
        """Wait for what was sent and give the rows of each statement; `end` ends what the server takes as one whole."""
        try:
            if end:
                self._pgconn.pipeline_sync()
            else:
                self._pgconn.send_flush_request()
            until = time.monotonic() + self._timeout
            self._push(until)
            found = self._results(until, end=end)
        except psycopg.OperationalError as error:
            if self._pgconn.status == pq.ConnStatus.OK and error.sqlstate is not None:
                raise
            raise Lost(str(error)) from error
        if self._unconfirmed:
            raise Lost("no replica has confirmed the change")
        return found

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        """Notice that a commit stopped waiting for the replicas; the server calls it done, and warns."""
        # By the function, since the sentence is in the server's language and its code is that of any warning.
        self._unconfirmed = self._unconfirmed or notice.source_function == "SyncRepWaitForLSN"

    def _results(self, until: float, *, end: bool) -> list[list[Row]]:
        found: list[list[Row]] = []
        failed: psycopg.Error | None = None
        for result, statement, prepared in self._answers(until):
            if result.status in _OK:
                if not prepared:
                    has = result.status == _TUPLES and statement.returns
                    found.append(self._rows.of(statement, result) if has else [])
            elif failed is None and result.status != _ABORTED:
                failed = psycopg.errors.error_from_result(result)
        if end:
            self._next(until)
        if failed is not None:
            raise failed
        return found

    def _answers(self, until: float) -> Iterator[tuple[pq.abc.PGresult, Statement, bool]]:
        sent, self._sent = self._sent, []
        for statement, prepared in sent:
            result = self._next(until)
            if prepared and result.status not in _OK:
                self._prepared.discard(statement.name)  # it failed, or was passed over after something failed
            yield result, statement, prepared

    def _push(self, until: float) -> None:
        """Hand everything to the network, reading meanwhile, so that neither side waits for the other."""
        while self._pgconn.flush():
            if self._wait(until, writing=True):
                self._pgconn.consume_input()

    def _next(self, until: float) -> pq.abc.PGresult:
        pgconn = self._pgconn
        while True:
            while pgconn.is_busy():
                self._wait(until)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is not None:
                return result
            if pgconn.status != pq.ConnStatus.OK:
                raise Lost(pgconn.get_error_message())

    def _wait(self, until: float, *, writing: bool = False) -> bool:
        """Wait until there is something to read (or room to write); say if there is."""
        left = until - time.monotonic()
        readable, writable = self._ready(max(left, 0), writing=writing)
        if not readable and not writable:
            if left < -_GRACE:
                raise Lost("the server does not answer")
            self._cancel()
            self._ready(_GRACE, writing=writing)
        return readable

    def _ready(self, seconds: float, *, writing: bool) -> tuple[bool, bool]:
        if writing or self._reading is None:
            return _either(self._pgconn.socket, seconds, writing=writing)
        return bool(self._reading.poll(seconds * 1000)), False

    def _cancel(self) -> None:
        try:
            self._connection.cancel_safe(timeout=_GRACE)
        except psycopg.OperationalError as error:
            raise Lost(str(error)) from error

    def rollback(self) -> None:
        """Undo what is under way. A connection that does not take it is of no more use."""
        try:
            if self._sent or self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self._undo()
        except (psycopg.Error, Lost):
            self.abandon()

    def _undo(self) -> None:
        """Leave a failed pipeline, then roll back: what was sent meanwhile is answered first."""
        until = time.monotonic() + _GRACE
        self._pgconn.pipeline_sync()
        self._pgconn.send_query_params(ROLLBACK.text, None)
        self._pgconn.pipeline_sync()
        self._push(until)
        for _ in self._answers(until):
            pass
        syncs = 0
        while syncs < 2:  # noqa: PLR2004
            syncs += self._next(until).status == _SYNC

    def abandon(self) -> None:
        """Close the connection; the pool makes another."""
        self._connection.close()


def _reading(socket: int) -> select.poll | None:
    """Make what waits for something to read, once for a connection; None where the system has no such thing."""
    if not hasattr(select, "poll"):  # Windows
        return None
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return poll


def _either(socket: int, seconds: float, *, writing: bool) -> tuple[bool, bool]:
    """Wait until a socket can be read from, or written to where that is wanted; say which."""
    if not hasattr(select, "poll"):  # Windows
        readable, writable, _ = select.select([socket], [socket] if writing else [], [], seconds)
        return bool(readable), bool(writable)
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
    events = poll.poll(seconds * 1000)
    flags = events[0][1] if events else 0
    return bool(flags & ~select.POLLOUT), bool(flags & select.POLLOUT)
