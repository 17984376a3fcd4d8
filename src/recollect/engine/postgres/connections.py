"""Pipelined connections: statements are sent without waiting, and results are awaited only if an operation needs rows.

psycopg's pipeline makes a system call for each statement, and its cursors and prepared statements have their own costs.
In place of send() and receive(), with the same adapters and a cursor kept per statement, they took more CPU time of the
client: append() 34%, save_turn() 35%, opening a session 68%, the last 50 messages 36%, a list of 50 sessions 27%, 64
tasks 20% (the turns of benchmarks/postgres.py, alternating runs; a load of 10,000 messages took the same). So this
module calls psycopg's libpq wrapper. It uses psycopg's generators for waiting, and its adapters.
"""

from __future__ import annotations

import random
import time
from typing import Any, TypeVar

import psycopg
import psycopg_pool
from psycopg import generators, pq
from psycopg.abc import PQGen, PyFormat
from psycopg.adapt import Transformer

from recollect.engine.postgres.adapters import escaped_columns, register_adapters, remove_escapes
from recollect.engine.postgres.statements import PreparedStatement
from recollect.storage.operation import Row

T = TypeVar("T")

_SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC)
_SYNC = pq.ExecStatus.PIPELINE_SYNC
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
    """psycopg's connection with its pipeline."""

    statement_pipeline: PipelinedConnection


Pool = psycopg_pool.ConnectionPool[PooledConnection]


class PipelinedConnection:
    """Sends statements without waiting and reads their results in the same order.

    Every wait has a deadline; when it passes, the statement is cancelled.
    """

    def __init__(self, connection: PooledConnection, *, prepares: bool, timeout: float) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepares = prepares
        self._timeout = timeout
        self._prepared_names: set[bytes] = set()
        self._pending: list[tuple[PreparedStatement, bool]] = []  # without a result yet; True for the PREPARE
        self._is_synced = True  # nothing was sent since the last Sync; before it, libpq knows of no transaction
        self._replicas_skipped = False
        self._token = self._token_uses = self._last_token_time = 0
        register_adapters(connection.adapters)
        self._transformer = Transformer(connection)
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

    def send(self, statement: PreparedStatement, values: list[Any]) -> None:
        """Send a statement without waiting for its result; it may stay in libpq's buffer until receive().

        Raises ConnectionLost.
        """
        transformer = self._transformer
        data = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        try:
            if not self._prepares:
                self._pgconn.send_query_params(statement.text, data, None, transformer.formats, pq.Format.BINARY)
            else:
                if statement.name not in self._prepared_names:
                    # Pipelined like the statement itself, so preparing costs no round trip. If it fails, the server
                    # skips the statement after it, and _statement_result() forgets the name.
                    self._pgconn.send_prepare(statement.name, statement.text)
                    self._prepared_names.add(statement.name)
                    self._pending.append((statement, True))
                self._pgconn.send_query_prepared(statement.name, data, transformer.formats, pq.Format.BINARY)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error
        self._pending.append((statement, False))
        self._is_synced = False

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
            results = self._wait(self._receive_results(end=end), self._timeout)
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

    def _receive_results(self, *, end: bool) -> PQGen[list[list[Row]]]:
        """Send everything that is buffered, and read the results. The psycopg generators read while they send.

        A server blocks if its answers are not read, and then reads no more: both sides would wait for each other.
        """
        yield from generators.send(self._pgconn)
        rows: list[list[Row]] = []
        error: psycopg.Error | None = None
        pending, self._pending = self._pending, []
        for statement, is_preparation in pending:
            result = yield from self._next_result()
            if result.status in _SUCCESS:
                if not is_preparation:
                    rows.append(self._read_rows(statement, result) if statement.returns else [])
                continue
            if is_preparation:
                self._prepared_names.discard(statement.name)  # it failed, or was skipped after another failure
            # The statements after the failed one report ABORTED; only the first failure is the cause.
            if error is None and result.status != _PIPELINE_ABORT:
                error = psycopg.errors.error_from_result(result)
        if end:
            yield from self._next_result()  # the answer to Sync
            self._is_synced = True
        if error is not None:
            raise error
        return rows

    def _next_result(self) -> PQGen[pq.abc.PGresult]:
        results = yield from generators.fetch_many(self._pgconn)
        if not results:
            raise ConnectionLost(self._pgconn.get_error_message())
        return results[0]  # in pipeline mode, a statement has one result

    def _read_rows(self, statement: PreparedStatement, result: pq.abc.PGresult) -> list[Row]:
        count = result.ntuples
        if not count:
            return []
        if statement.escaped_columns is None:
            statement.escaped_columns = escaped_columns(result)
        self._transformer.set_pgresult(result)
        return remove_escapes(self._transformer.load_rows(0, count, tuple), statement.escaped_columns)

    def _wait(self, results: PQGen[T], seconds: float) -> T:
        """Wait until a psycopg generator has ended, and return its result."""
        return self._connection.wait(self._watch_deadline(results, time.monotonic() + seconds))

    def _watch_deadline(self, results: PQGen[T], deadline: float) -> PQGen[T]:
        """Run a psycopg generator. At the deadline, cancel the statement.

        If no answer follows within _CANCEL_GRACE, raise ConnectionLost. psycopg waits in slices of 0.1 seconds; `ready`
        is 0 if nothing has arrived in one.
        """
        is_cancelled = False
        try:
            event = next(results)
            while True:
                ready = yield event
                if not ready and time.monotonic() > deadline:
                    if is_cancelled:
                        raise ConnectionLost("the server does not answer")
                    self._cancel()
                    is_cancelled, deadline = True, time.monotonic() + _CANCEL_GRACE
                event = results.send(ready)
        except StopIteration as end:
            return end.value

    def _cancel(self) -> None:
        try:
            # Over a second connection to the server, as the protocol requires: this one is busy with the statement.
            self._connection.cancel_safe(timeout=_CANCEL_GRACE)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error

    def rollback(self) -> None:
        """Roll back the transaction in progress. A connection on which that fails is closed."""
        try:
            if not self._is_synced or self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self._abort_transaction()
        except (psycopg.Error, ConnectionLost):
            self.abandon()

    def _abort_transaction(self) -> None:
        """Leave the aborted pipeline with Sync, then roll back. Results of statements already sent are discarded."""
        self._pgconn.pipeline_sync()
        self._pgconn.send_query_params(ROLLBACK.text, None)
        self._pgconn.pipeline_sync()
        self._wait(self._discard_results(), _CANCEL_GRACE)

    def _discard_results(self) -> PQGen[None]:
        yield from generators.send(self._pgconn)
        pending, self._pending = self._pending, []
        for statement, is_preparation in pending:
            result = yield from self._next_result()
            if is_preparation and result.status not in _SUCCESS:
                self._prepared_names.discard(statement.name)
        syncs = 0  # two: one that ends the aborted pipeline, one after ROLLBACK
        while syncs < 2:  # noqa: PLR2004
            result = yield from self._next_result()
            syncs += result.status == _SYNC
        self._is_synced = True

    def abandon(self) -> None:
        """Close the connection; the pool replaces it."""
        self._connection.close()
