"""Pipelined connections, their row readers, and the connection cache in front of the pool.

Statements are sent without waiting; the connection waits only if an operation needs rows. It uses psycopg's libpq
wrapper in pipeline mode: the same work through psycopg's cursors took a third longer. psycopg's C implementation reads
large results three times as fast. The cache keeps the last returned connection: going through psycopg_pool costs about
5% of a short read.
"""

from __future__ import annotations

import operator
import random
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import psycopg_pool
from psycopg import abc, pq
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Loader, Transformer

from recollect.engine.postgres.statements import PreparedStatement
from recollect.engine.postgres.wire_codec import BYTES, RAW, TEXT, EncodedValue, column_decoder, escape_marks
from recollect.storage.operation import Row

_COMPILED = pq.__impl__ != "python"  # psycopg was installed with its C implementation
_COMPILED_FROM_ROWS = 8  # rows. With fewer, setting up psycopg's transformer costs more than its C code saves
# OIDs of bool, int8, int2, int4, text, json, float8 and varchar, which psycopg decodes as wire_codec.py does. Not
# numeric: psycopg returns a Decimal.
_COMPILED_TYPES = frozenset({16, 20, 21, 23, 25, 114, 701, RAW})


class _RowAdapters(AdaptersMap):
    """psycopg's loaders, with JSON left as text and varchar (RAW) left as bytes.

    The C implementation has its own loader for binary bytea. A Python loader would be called once per row, which took
    as long as everything else together.
    """

    def __init__(self) -> None:
        super().__init__(psycopg.adapters)
        for format in (pq.Format.TEXT, pq.Format.BINARY):
            self.register_loader("json", self.get_loader(TEXT, format) or Loader)

    def get_loader(self, oid: int, format: pq.Format) -> type[abc.Loader] | None:
        """Return the loader of a type."""
        return super().get_loader(BYTES, pq.Format.BINARY) if oid == RAW else super().get_loader(oid, format)


class _RowContext(AdaptContext):
    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS

    @property
    def connection(self) -> None:
        return None


_ADAPTERS = _RowAdapters()


class ColumnDecoders:
    """How the columns of a statement are decoded; known after its first run.

    `binary` is set when a result first has many rows: from then on numbers arrive in binary format, which psycopg's C
    implementation decodes in half the time of text. Python takes longer for binary than for text, so statements that
    only return a row or two stay with text.
    """

    __slots__ = ("binary", "binary_decoders", "compiled", "decoders", "escapes")

    def __init__(self, result: pq.abc.PGresult) -> None:
        kinds = [result.ftype(number) for number in range(result.nfields)]
        self.decoders = [column_decoder(kind) for kind in kinds]
        self.compiled = _COMPILED and _COMPILED_TYPES.issuperset(kinds)
        self.binary_decoders = [column_decoder(kind, binary=True) for kind in kinds] if self.compiled else []
        self.escapes = [
            (number, operator.itemgetter(number), *escape_marks[kind])
            for number, kind in enumerate(kinds)
            if kind in escape_marks
        ]
        self.binary = False


class RowReader:
    """Decodes the rows of results, one result at a time: psycopg's transformer has the current result as its state."""

    def __init__(self) -> None:
        self._transformer = Transformer(_RowContext())

    def read_rows(self, statement: PreparedStatement, result: pq.abc.PGresult) -> list[Row]:
        """Return the rows of a result."""
        columns: ColumnDecoders | None = statement.columns
        if columns is None:
            columns = statement.columns = ColumnDecoders(result)
        count = result.ntuples
        if not count:
            return []
        if count < _COMPILED_FROM_ROWS or not columns.compiled:
            # A statement may have been sent before `binary` was set, so the result itself states its format.
            if columns.binary and result.fformat(0) == pq.Format.BINARY:
                return _decode_rows(result, columns.binary_decoders)
            return _decode_rows(result, columns.decoders)
        columns.binary = True
        self._transformer.set_pgresult(result)
        rows: list[Row] = self._transformer.load_rows(0, count, tuple)
        for number, get_cell, mark, decode in columns.escapes:
            # One search in the joined column: nearly no text contains the escape character.
            if mark in "".join(filter(None, map(get_cell, rows))):
                rows = [(*row[:number], row[number] and decode(row[number]), *row[number + 1 :]) for row in rows]
        return rows


def _decode_rows(result: pq.abc.PGresult, columns: list[Callable[[bytes], Any] | None]) -> list[Row]:
    count, value = result.ntuples, result.get_value
    if count == 1:
        return [tuple([_decode_cell(value(0, number), read) for number, read in enumerate(columns)])]
    indexes = range(count)  # column by column, which takes half the time of row by row
    return list(
        zip(*[_decode_column([value(row, n) for row in indexes], read) for n, read in enumerate(columns)], strict=True)
    )


def _decode_cell(data: bytes | None, read: Callable[[bytes], Any] | None) -> Any:
    return data if data is None or read is None else read(data)


def _decode_column(cells: list[bytes | None], read: Callable[[bytes], Any] | None) -> list[Any]:
    if read is None or cells.count(None) == len(cells):
        return cells
    return [None if data is None else read(data) for data in cells]


_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC)
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_TUPLES = pq.ExecStatus.TUPLES_OK
_PIPELINE_ABORT = pq.ExecStatus.PIPELINE_ABORTED
_CANCEL_GRACE = 5.0  # seconds that a server has to answer a cancel request before the connection is closed
# Commits that overwrite one token row. Each overwrite leaves a dead version of the row; while another transaction holds
# an old snapshot, the server cannot remove them and passes all of them on the way to the newest.
_TOKEN_REUSES = 100

BEGIN = PreparedStatement("begin", "BEGIN")
BEGIN_READ = PreparedStatement("begin_read", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
COMMIT = PreparedStatement("commit", "COMMIT")
ROLLBACK = PreparedStatement("rollback", "ROLLBACK")

_system_random = random.SystemRandom()  # the host program may have seeded the `random` module


def fresh_token() -> int:
    """Return a number that no other connection uses: 63 random bits."""
    return _system_random.getrandbits(63)


class ConnectionLost(Exception):
    """The connection was lost, and with it the transaction in progress.

    Internal: DatabaseServer retries the operation or raises StoreUnavailable; Replica lets the primary answer. A loss
    during COMMIT becomes CommitUnknown.
    """


class PooledConnection(psycopg.Connection[Any]):
    """psycopg's connection with its pipeline, and the time at which it left the pool."""

    statement_pipeline: PipelinedConnection
    taken_at: float


class PipelinedConnection:
    """Sends statements without waiting and reads their results in the same order.

    The socket is read and written directly, without psycopg's generators. Every wait has a deadline; when it passes,
    the statement is cancelled.
    """

    def __init__(self, connection: PooledConnection, *, prepares: bool, timeout: float) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepares = prepares
        self._timeout = timeout
        self._prepared_names: set[bytes] = set()
        self._pending: list[tuple[PreparedStatement, bool]] = []  # without a result yet; True for the PREPARE
        self._replicas_skipped = False
        self._row_reader = RowReader()
        self._read_poll = _read_poll(self._pgconn.socket)
        self._token = self._token_uses = self._last_token_time = 0
        connection.add_notice_handler(self._on_notice)
        self._pgconn.enter_pipeline_mode()

    def next_token(self, now: int) -> tuple[int, int]:
        """Return number and time for a commit token. The pair is unique, and the time rises on this connection.

        The previous row of the same number may be overwritten: the outcome of its commit is known, because a connection
        whose commit is in doubt is not used again.
        """
        if self._token_uses % _TOKEN_REUSES == 0:
            self._token = fresh_token()
        self._token_uses += 1
        self._last_token_time = max(now, self._last_token_time + 1)
        return self._token, self._last_token_time

    def send(self, statement: PreparedStatement, values: list[EncodedValue]) -> None:
        """Send a statement without waiting for its result; it may stay in libpq's buffer until receive().

        Raises ConnectionLost.
        """
        formats = [type(value) is bytearray for value in values] if bytearray in map(type, values) else None
        columns = statement.columns
        result_format = pq.Format.BINARY if columns is not None and columns.binary else pq.Format.TEXT
        try:
            if not self._prepares:
                self._pgconn.send_query_params(statement.text, values, None, formats, result_format)
            else:
                if statement.name not in self._prepared_names:
                    # Pipelined like the statement itself, so preparing costs no round trip. If it fails, the server
                    # skips the statement after it, and _pending_results() forgets the name.
                    self._pgconn.send_prepare(statement.name, statement.text)
                    self._prepared_names.add(statement.name)
                    self._pending.append((statement, True))
                self._pgconn.send_query_prepared(statement.name, values, formats, result_format)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error
        self._pending.append((statement, False))

    def receive(self, *, end: bool = False) -> list[list[Row]]:
        """Wait for all sent statements and return the rows of each.

        `end` sends Sync, which ends the pipeline's implicit transaction; without it, Flush only asks for the results so
        far. Raises the first error of the server, or ConnectionLost.
        """
        try:
            if end:
                self._pgconn.pipeline_sync()
            else:
                self._pgconn.send_flush_request()
            deadline = time.monotonic() + self._timeout
            self._flush(deadline)
            results = self._receive_results(deadline, end=end)
        except psycopg.OperationalError as error:
            # With a SQLSTATE and an intact connection it is an answer of the server, such as admin_shutdown.
            if self._pgconn.status == pq.ConnStatus.OK and error.sqlstate is not None:
                raise
            raise ConnectionLost(str(error)) from error
        if self._replicas_skipped:
            # Committed on the primary only. Treated as a lost connection: resolving the token waits for the replicas.
            raise ConnectionLost("no replica has confirmed the change")
        return results

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """Record that a commit stopped waiting for synchronous replicas: the server reports success with a warning."""
        # Known by the C function: the text is in the server's language, and the SQLSTATE is that of any warning.
        self._replicas_skipped = self._replicas_skipped or notice.source_function == "SyncRepWaitForLSN"

    def _receive_results(self, deadline: float, *, end: bool) -> list[list[Row]]:
        rows: list[list[Row]] = []
        error: psycopg.Error | None = None
        for result, statement, preparation in self._pending_results(deadline):
            if result.status in _SUCCESS:
                if not preparation:
                    has_rows = result.status == _TUPLES and statement.returns
                    rows.append(self._row_reader.read_rows(statement, result) if has_rows else [])
            # The statements after the failed one report ABORTED; only the first failure is the cause.
            elif error is None and result.status != _PIPELINE_ABORT:
                error = psycopg.errors.error_from_result(result)
        if end:
            self._next_result(deadline)  # the answer to Sync
        if error is not None:
            raise error
        return rows

    def _pending_results(self, deadline: float) -> Iterator[tuple[pq.abc.PGresult, PreparedStatement, bool]]:
        pending, self._pending = self._pending, []
        for statement, preparation in pending:
            result = self._next_result(deadline)
            if preparation and result.status not in _SUCCESS:
                self._prepared_names.discard(statement.name)  # it failed, or was skipped after another failure
            yield result, statement, preparation

    def _flush(self, deadline: float) -> None:
        """Send everything that is buffered, and read meanwhile.

        A server blocks if its answers are not read, and then reads no more: without reading here, both sides would wait
        for each other.
        """
        while self._pgconn.flush():
            if self._wait(deadline, writing=True):
                self._pgconn.consume_input()

    def _next_result(self, deadline: float) -> pq.abc.PGresult:
        pgconn = self._pgconn
        while True:
            while pgconn.is_busy():
                self._wait(deadline)
                pgconn.consume_input()
            result = pgconn.get_result()
            # In pipeline mode, libpq returns None after the results of each statement; it is skipped.
            if result is not None:
                return result
            if pgconn.status != pq.ConnStatus.OK:
                raise ConnectionLost(pgconn.get_error_message())

    def _wait(self, deadline: float, *, writing: bool = False) -> bool:
        """Wait until the socket is readable (or writable, if `writing`). Return whether it is readable.

        At the deadline the statement is cancelled. If no answer follows within _CANCEL_GRACE, raise ConnectionLost.
        """
        remaining = deadline - time.monotonic()
        readable, writable = self._poll(max(remaining, 0), writing=writing)
        if not readable and not writable:
            if remaining < -_CANCEL_GRACE:
                raise ConnectionLost("the server does not answer")
            self._cancel()
            self._poll(_CANCEL_GRACE, writing=writing)
        return readable

    def _poll(self, seconds: float, *, writing: bool) -> tuple[bool, bool]:
        # Nearly every wait is for reading, so the poll object for reading is created once per connection.
        if writing or self._read_poll is None:
            return _poll_socket(self._pgconn.socket, seconds, writing=writing)
        return bool(self._read_poll.poll(seconds * 1000)), False

    def _cancel(self) -> None:
        try:
            # Over a second connection to the server, as the protocol requires: this one is busy with the statement.
            self._connection.cancel_safe(timeout=_CANCEL_GRACE)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error

    def rollback(self) -> None:
        """Roll back the transaction in progress. A connection on which that fails is closed."""
        try:
            if self._pending or self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self._abort_transaction()
        except (psycopg.Error, ConnectionLost):
            self.abandon()

    def _abort_transaction(self) -> None:
        """Leave the aborted pipeline with Sync, then roll back. Results of statements already sent are discarded."""
        deadline = time.monotonic() + _CANCEL_GRACE
        self._pgconn.pipeline_sync()
        self._pgconn.send_query_params(ROLLBACK.text, None)
        self._pgconn.pipeline_sync()
        self._flush(deadline)
        for _ in self._pending_results(deadline):
            pass
        syncs = 0  # two: one that ends the aborted pipeline, one after ROLLBACK
        while syncs < 2:  # noqa: PLR2004
            syncs += self._next_result(deadline).status == _SYNC

    def abandon(self) -> None:
        """Close the connection; the pool replaces it."""
        self._connection.close()


def _read_poll(socket: int) -> select.poll | None:
    """Return a poll object for reading a socket, made once per connection; None if the system has no poll()."""
    if not hasattr(select, "poll"):  # Windows
        return None
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return poll


def _poll_socket(socket: int, seconds: float, *, writing: bool) -> tuple[bool, bool]:
    """Wait until a socket is readable, or writable if `writing`. Return both."""
    if not hasattr(select, "poll"):  # Windows
        readable, writable, _ = select.select([socket], [socket] if writing else [], [], seconds)
        return bool(readable), bool(writable)
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
    events = poll.poll(seconds * 1000)
    flags = events[0][1] if events else 0
    return bool(flags & ~select.POLLOUT), bool(flags & select.POLLOUT)


Pool = psycopg_pool.ConnectionPool[PooledConnection]

# Seconds that a connection may stay out of the pool. The pool enforces the maximum age of connections and replaces
# broken ones, so it must get each one back now and then; a shorter time would go through the pool more often.
_CACHE_SECONDS = 1.0


class ConnectionCache:
    """Hands out connections of a pool; the one that was returned last is handed out again without asking the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._idle: deque[PooledConnection] = deque()
        self._lock = threading.Lock()
        self._waiters = 0
        self._closed = False

    def take(self, timeout: float) -> PooledConnection:
        """Return a connection; wait for one up to `timeout` seconds. Raises PoolTimeout or PoolClosed.

        The fast path is lock-free: deque.pop() is atomic.
        """
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._lock:
            self._waiters += 1
        try:  # once more: put_back() may have cached one before it could see this waiter; from now on it will not
            return self._idle.pop()
        except IndexError:
            connection = self._pool.getconn(timeout=timeout)
            connection.taken_at = time.monotonic()
            return connection
        finally:
            with self._lock:
                self._waiters -= 1

    def put_back(self, connection: PooledConnection, *, reusable: bool) -> None:
        """Return a connection: to the cache if it is `reusable` and nobody waits, else to the pool."""
        if reusable and not self._idle and time.monotonic() - connection.taken_at < _CACHE_SECONDS:
            # Append first, then look for waiters. take() counts itself first, then looks again. So one of the two sees
            # the other, and no waiter stays in the pool's queue while a connection lies in the cache.
            self._idle.append(connection)
            if not self._waiters and not self._closed:
                return
            self._return_to_pool()
        else:
            self._pool.putconn(connection)

    def _return_to_pool(self) -> None:
        """Move the cached connection to the pool."""
        try:
            connection = self._idle.pop()
        except IndexError:  # another thread took it
            return
        self._pool.putconn(connection)

    def close(self) -> None:
        """Close every connection; those in use are closed when they are returned."""
        self._closed = True
        self._return_to_pool()
        self._pool.close()
