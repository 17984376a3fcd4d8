"""The PostgreSQL server as both engines use it: pool, retries, commit tokens, and reads from a replica.

A replica answers reads once it has replayed everything that this store wrote; it may lag behind other writers. If it
does not answer or lags behind this store, the primary is asked.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
import psycopg_pool

from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.postgres import transactions
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.change_notifier import ChangeListener
from recollect.engine.postgres.connections import (
    BEGIN,
    COMMIT,
    ConnectionLost,
    PipelinedConnection,
    Pool,
    PooledConnection,
    fresh_token,
)
from recollect.engine.postgres.errors import (
    CONNECTION_ENDED,
    NEEDS_NEW_CONNECTION,
    RETRYABLE,
    connection_reason,
    lock_timeout_error,
    pool_exhausted,
    translate_error,
    unavailable_error,
)
from recollect.engine.postgres.fast_paths import FastStatement, PostgresFastPaths
from recollect.engine.postgres.migrations import BYPASSES_ROW_SECURITY, check_role, prepare_schema
from recollect.engine.postgres.statements import PreparedStatement, StatementRegistry
from recollect.engine.postgres.transactions import CommitToken, CommitUnknown, EarlyLocks, LockOrderConflict
from recollect.errors import Corrupted, RecollectError, StoreClosed, StoreUnavailable
from recollect.storage.operation import Operation

T = TypeVar("T")

# Seconds without a read from a replica that did not answer: each attempt may delay a read by _REPLICA_TIMEOUT. A longer
# time would leave a replica unused after it has returned.
_RETRY_AFTER = 5.0
_RECHECK_AFTER = 0.05  # seconds until a replica that lags is asked again; a healthy one replays within milliseconds
_REPLICA_TIMEOUT = 2.0  # seconds to wait for a connection to the replica before the primary answers the read instead
# The end of the WAL on the primary, and the identity of its cluster.
_PRIMARY_POSITION = PreparedStatement(
    "primary_position",
    "SELECT pg_current_wal_insert_lsn()::text, (SELECT system_identifier FROM pg_control_system())",
)
# Whether a server has replayed the WAL up to a position and belongs to a cluster; NULL if it is not a replica.
_REPLICA_CAUGHT_UP = PreparedStatement(
    "replica_caught_up",
    "SELECT pg_last_wal_replay_lsn() >= :lsn::pg_lsn "
    "AND (SELECT system_identifier FROM pg_control_system()) = :system::bigint",
)


class Replica:
    """A replica that answers reads as soon as it has replayed everything that this store wrote."""

    def __init__(self, make_pool: Callable[[], Pool]) -> None:
        self._make_pool = make_pool
        self._pool: Pool | None = None
        self._lock = threading.Lock()
        self._writes = 1  # more than _replayed_writes, so that the first read compares the positions
        self._replayed_writes = 0
        self._next_try = 0.0

    def record_write(self) -> None:
        """Record that the store wrote something; the replica answers again once it has replayed it."""
        self._writes += 1

    def read(
        self,
        work: Callable[[PipelinedConnection], T],
        on_primary: Callable[[Callable[[PipelinedConnection], Any]], Any],
    ) -> tuple[T] | None:
        """Run `work` on the replica and return its result in a tuple. Return None if the primary must answer.

        `on_primary` runs a function on a connection to the primary.
        """
        if time.monotonic() < self._next_try:
            return None
        try:
            if self._replayed_writes != self._writes and not self._has_caught_up(on_primary):
                return None
            return (self._run(work),)
        except (ConnectionLost, psycopg.Error, psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed):
            self._next_try = time.monotonic() + _RETRY_AFTER
            return None

    def _has_caught_up(self, on_primary: Callable[[Callable[[PipelinedConnection], Any]], Any]) -> bool:
        """Return whether the replica has replayed the current WAL position of the primary: two round trips.

        They are only made after a write of this store. The system identifier shows that both are of one cluster.
        """
        writes = self._writes  # before the position is read: a write in between is not covered by it
        lsn, system = on_primary(lambda pipeline: _query_row(pipeline, _PRIMARY_POSITION, {}))
        (is_current,) = self._run(
            lambda pipeline: _query_row(pipeline, _REPLICA_CAUGHT_UP, {"lsn": lsn, "system": system})
        )
        if not is_current:  # NULL: the server is not in recovery, so it is not a replica or no longer one
            self._next_try = time.monotonic() + (_RETRY_AFTER if is_current is None else _RECHECK_AFTER)
            return False
        self._replayed_writes = writes
        return True

    def _run(self, work: Callable[[PipelinedConnection], T]) -> T:
        pool = self._open_pool()
        connection = pool.getconn(timeout=_REPLICA_TIMEOUT)
        try:
            return work(connection.statement_pipeline)
        except (ConnectionLost, psycopg.Error):
            connection.statement_pipeline.abandon()
            raise
        except Exception:
            connection.statement_pipeline.rollback()
            raise
        except BaseException:
            connection.statement_pipeline.abandon()
            raise
        finally:
            pool.putconn(connection)

    def _open_pool(self) -> Pool:
        with self._lock:
            if self._pool is None:
                self._pool = self._make_pool()
            return self._pool

    def detach(self) -> list[Pool]:
        """Drop the pool without closing it, and return it: after fork() its sockets belong to the parent."""
        pools = [] if self._pool is None else [self._pool]
        self._pool, self._lock = None, threading.Lock()
        return pools

    def close(self) -> None:
        """Close the connections to the replica."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()


def _query_row(pipeline: PipelinedConnection, statement: PreparedStatement, params: dict[str, Any]) -> Any:
    pipeline.send(statement, statement.values(params))
    return pipeline.receive(end=True)[0][0]


_MAX_TRIES = 12  # of an operation that conflicts. With the backoff below, about 5 seconds in all
_BACKOFF = 0.005  # seconds. The first pause, doubled on each attempt: most conflicts are over within milliseconds
_MAX_BACKOFF = 1.0  # seconds. While the server restarts, longer pauses would only delay the first success
_OUTCOME_UNKNOWN = "the last change may or may not have been stored"
_TOKEN_RETENTION = 3_600_000  # milliseconds. Longer than a store retries; deleted earlier, a commit would seem lost
# Commits of this process between two deletions of old tokens: about 20 rows per connection (_TOKEN_REUSES).
_SWEEP_AFTER_COMMITS = 2_000
_SWEEP_INTERVAL = 60_000  # milliseconds between two deletions: each scans the whole table `commits`
_FIRST_CONNECTION_TIMEOUT = 2.0  # seconds that opening a store waits for its first connection.
# Seconds for which psycopg_pool retries one connection. It doubles the pause after each failed attempt, so with its
# default of 5 minutes the pool would notice a completed failover only after as long again as the failover took.
_RECONNECT_TIMEOUT = 1.0
# A fence row makes the late COMMIT of the token's connection fail: WRITE_TOKEN sets `at` to NULL if it finds a fence.
# If the row has the commit's own time, that commit has happened, and the row stays as it is.
_WRITE_FENCE = PreparedStatement(
    "commit_fence",
    "INSERT INTO recollect.commits (token, at, fence) VALUES (:token, :at, true) "
    "ON CONFLICT (token) DO UPDATE SET fence = true WHERE commits.at <> excluded.at",
)
# After _WRITE_FENCE: whether the row is a fence, and if not, the id of the transaction that wrote it.
_READ_TOKEN = PreparedStatement("commit_read", "SELECT fence, xmin::text FROM recollect.commits WHERE token = :token")
# Makes the transaction of the fence one that writes in any case, and so waits for synchronous replicas.
_WRITE_AFTER_FENCE = PreparedStatement(
    "commit_after_fence", "INSERT INTO recollect.commits (token, at, fence) VALUES (:token, :at, true)"
)
_DELETE_OLD_TOKENS = PreparedStatement("commits_delete_old", "DELETE FROM recollect.commits WHERE at < :before")


class DatabaseServer:
    """Runs operations, each in a transaction on a pooled connection. After fork(), each process has its own pool."""

    def __init__(self, url: str, owner: str, timeout: float, *, trusted: bool = False) -> None:
        self.address = Address(url)
        self.timeout = timeout
        self._registry = StatementRegistry()
        self._fast_paths = PostgresFastPaths(self._registry)
        self._closed = self._is_forked = self._connection_failed = False
        self._last_sweep = 0
        # Random, so that processes that start together do not delete old tokens at the same moment.
        self._commits = random.randrange(_SWEEP_AFTER_COMMITS)  # noqa: S311
        # The owner is passed only to check the role: a superuser would bypass row-level security.
        prepare_schema(self.address, "" if trusted else owner, timeout)
        self._is_role_checked = trusted or bool(owner)
        self._listener = ChangeListener(self.address)
        self._pool = self._make_pool()
        self._replica = Replica(lambda: self._make_pool(self.address.replica)) if self.address.replica else None
        _servers.add(self)

    @property
    def path(self) -> str:
        """The URL of the server, without the password."""
        return self.address.display_url

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._closed

    def _make_pool(self, conninfo: str | None = None) -> Pool:
        """Open a pool. That of the primary waits for its first connection, that of a replica does not."""
        pool = self._new_pool(conninfo or self.address.conninfo)
        if conninfo is None:
            try:  # taking a connection before the first one is open would make the pool open a second one
                pool.wait(_FIRST_CONNECTION_TIMEOUT)
            except psycopg_pool.PoolTimeout:  # wait() closed the pool; the server answered a moment ago and may return
                return self._new_pool(self.address.conninfo)
        return pool

    def _new_pool(self, conninfo: str) -> Pool:
        pool = psycopg_pool.ConnectionPool(
            conninfo,
            connection_class=PooledConnection,
            kwargs={"autocommit": True},  # PipelinedConnection sends BEGIN and COMMIT itself
            configure=self._configure,
            min_size=1,  # an idle store holds one connection of the server
            max_size=self.address.pool_size,
            timeout=self.timeout,
            reconnect_timeout=_RECONNECT_TIMEOUT,
            open=False,
        )
        pool.open()
        return pool

    def _configure(self, connection: PooledConnection) -> None:
        connection.statement_pipeline = PipelinedConnection(
            connection, prepares=self.address.prepares, timeout=self.timeout
        )

    def _check_owner(self, owner: str) -> None:
        """Raise StoreUnavailable if the role bypasses row-level security, before the first use by a named owner.

        A store that was opened without an owner may have such a role; one that was opened with an owner was checked.
        """
        if not owner or self._is_role_checked:
            return
        row = self._run_with_retries(lambda pipeline, *_: _query_row(pipeline, BYPASSES_ROW_SECURITY, {}))
        check_role(row, self.path)
        self._is_role_checked = True

    def change_notifier(self, owner: str) -> ChangeNotifier:
        """Return a change notifier for an owner. It blocks until the server is ready to notify it."""
        if self._closed:
            raise StoreClosed
        self._check_owner(owner)
        return self._listener.open_notifier(owner)

    def read(self, op: Operation[T], owner: str) -> T:
        """Run an operation that only reads, on the replica if it has everything that this store wrote."""
        self._check_owner(owner)
        fast = self._fast_paths.prepare(op.fast)
        if self._replica is not None and not op.latest and not self._closed:
            self.after_fork()
            result = self._replica.read(
                lambda pipeline: transactions.read(pipeline, self._registry, op, owner, fast),
                lambda work: self._run_with_retries(lambda pipeline, *_: work(pipeline)),
            )
            if result is not None:
                return result[0]
        return self._run_with_retries(lambda pipeline, *_: transactions.read(pipeline, self._registry, op, owner, fast))

    def write(self, op: Operation[T], owner: str) -> T:
        """Run an operation that writes. It is on the server's disk, exactly once, when this returns."""
        return self._run_write([op], owner, None)[0]

    def write_together(
        self, ops: Sequence[Operation[Any]], owner: str, exclude: Callable[[int], None]
    ) -> list[Any] | None:
        """Run operations of one owner side by side in one transaction. Return None if one was refused: none is written.

        `exclude` receives the index of each operation that has no result; if there are results, these operations have
        written nothing and may run again alone.
        """
        return self._run_write(ops, owner, exclude)

    def _run_write(self, ops: Sequence[Operation[Any]], owner: str, exclude: Callable[[int], None] | None) -> Any:
        """Run a write, and make the replica catch up before its next read, also if the outcome is unknown."""
        self._check_owner(owner)
        statements = [(op, self._fast_paths.prepare(op.fast)) for op in ops]
        try:
            return self._run_with_retries(
                lambda pipeline, commit_token, early_locks: self._write_once(
                    pipeline, statements, owner, commit_token, early_locks, exclude
                )
            )
        finally:
            if self._replica is not None:
                self._replica.record_write()

    def _write_once(
        self,
        pipeline: PipelinedConnection,
        ops: Sequence[tuple[Operation[Any], FastStatement | None]],
        owner: str,
        commit_token: CommitToken,
        early_locks: EarlyLocks,
        exclude: Callable[[int], None] | None,
    ) -> Any:
        results = transactions.write(pipeline, self._registry, ops, owner, commit_token, early_locks, exclude=exclude)
        self._commits += 1
        if self._commits >= _SWEEP_AFTER_COMMITS and commit_token.at - self._last_sweep >= _SWEEP_INTERVAL:
            self._commits, self._last_sweep = 0, commit_token.at
            self._sweep(pipeline, commit_token)
        return results

    def _sweep(self, pipeline: PipelinedConnection, commit_token: CommitToken) -> None:
        """Delete tokens of commits that no store asks about any more. A failure is left to the next sweep."""
        try:
            pipeline.send(_DELETE_OLD_TOKENS, _DELETE_OLD_TOKENS.values({"before": commit_token.at - _TOKEN_RETENTION}))
            pipeline.receive(end=True)
        except (psycopg.Error, ConnectionLost):
            pipeline.rollback()

    def _run_with_retries(self, work: Callable[[PipelinedConnection, CommitToken, EarlyLocks], T]) -> T:
        """Run `work` on a connection, and again after a lost connection or a conflict, until the timeout."""
        deadline = time.monotonic() + self.timeout
        tries = 0
        early_locks: EarlyLocks = []
        while True:
            # Token and time are replaced when the transaction begins; each attempt has its own.
            commit_token = CommitToken(0, time.time_ns() // 1_000_000)
            try:
                with self._connection(deadline) as pipeline:
                    return work(pipeline, commit_token, early_locks)
            except LockOrderConflict as conflict:
                # The next attempt takes the missing locks before anything else and waits for them, in a fixed order.
                early_locks = conflict.early_locks
                if tries >= _MAX_TRIES:
                    raise lock_timeout_error(self.path, self.timeout) from conflict
            except CommitUnknown as unknown:
                # The operation may run again only if its COMMIT can no longer happen.
                transaction = self._resolve_commit(commit_token, deadline)
                results = None if transaction is None else self._recover_results(unknown, transaction, deadline)
                if results is not None:
                    return results  # type: ignore[return-value]
            except (ConnectionLost, psycopg.Error) as error:
                self._raise_if_final(error, tries, deadline)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Corrupted(path=self.path, reason=f"stored data cannot be decoded ({error})") from error
            tries += 1
            _back_off(tries)

    def _raise_if_final(self, error: ConnectionLost | psycopg.Error, tries: int, deadline: float) -> None:
        """Raise the error for the caller, unless another attempt may succeed."""
        late = time.monotonic() > deadline
        # A lost connection is retried until the deadline, because a failover may take as long; a conflict, only
        # _MAX_TRIES times.
        if isinstance(error, ConnectionLost):
            if late:
                raise unavailable_error(self.path, str(error) or "the connection was lost") from error
        elif late or (
            error.sqlstate not in CONNECTION_ENDED and (error.sqlstate not in RETRYABLE or tries >= _MAX_TRIES)
        ):
            raise translate_error(error, self.path, self.timeout) from error

    def _resolve_commit(self, commit_token: CommitToken, deadline: float) -> str | None:
        """Return the id of the transaction of a commit whose answer was lost, or None if it can no longer happen.

        The token's row is turned into a fence, unless it is the row of this very commit. A COMMIT that the server is
        executing holds the row, so this waits for it; a COMMIT that the server has not read yet will fail on the fence.

        A second token is written because only a transaction that writes waits for synchronous replicas, and a
        restarted server shows commits that no replica has: when this commit is acknowledged, the replicas have the
        first one too.
        """

        def read_token(pipeline: PipelinedConnection) -> str | None:
            pipeline.send(BEGIN, [])
            for statement in (_WRITE_FENCE, _READ_TOKEN):
                pipeline.send(statement, statement.values({"token": commit_token.token, "at": commit_token.at}))
            pipeline.send(
                _WRITE_AFTER_FENCE, _WRITE_AFTER_FENCE.values({"token": fresh_token(), "at": commit_token.at})
            )
            pipeline.send(COMMIT, [])
            ((fence, transaction),) = pipeline.receive(end=True)[2]
            return None if fence else transaction

        return self._run_until_deadline(read_token, deadline)

    def _recover_results(self, unknown: CommitUnknown, transaction: str, deadline: float) -> list[Any] | None:
        """Return the results of a commit that happened; None if it is safe to run the operations again."""
        if unknown.results is not None:
            return unknown.results
        runs, exclude = unknown.runs, unknown.exclude
        if any(run.fast is None or run.fast.lookup is None for run in runs):
            return None
        if not self._run_until_deadline(
            lambda pipeline: transactions.recover_results(pipeline, runs, unknown.owner, transaction), deadline
        ):
            raise unavailable_error(
                self.path, f"the reply to a change was lost, and others have changed the row since; {_OUTCOME_UNKNOWN}"
            )
        unfinished = [number for number, run in enumerate(runs) if not run.done]
        if unfinished:
            if exclude is None:
                return None
            for number in unfinished:
                exclude(number)
        return [run.result for run in runs]

    def _run_until_deadline(self, work: Callable[[PipelinedConnection], T], deadline: float) -> T:
        """Run `work`, which looks up a commit with an unknown outcome, with retries until the deadline.

        Only a lost connection is retried; every other error is raised at once.
        """
        tries = 0
        while True:
            try:
                with self._connection(deadline) as pipeline:
                    return work(pipeline)
            except StoreUnavailable as error:
                raise unavailable_error(self.path, f"{error.fields['reason']}; {_OUTCOME_UNKNOWN}") from error
            except (ConnectionLost, psycopg.OperationalError) as error:
                if time.monotonic() > deadline:
                    raise unavailable_error(self.path, f"{error}; {_OUTCOME_UNKNOWN}") from error
                tries += 1
                _back_off(tries)

    def _connection(self, deadline: float) -> _BorrowedConnection:
        """Take a connection for a `with` block; rolled back or closed after an error, it returns to the pool."""
        return _BorrowedConnection(self._take_connection(deadline), self._release)

    def _release(self, connection: PooledConnection, error: BaseException | None) -> None:
        pipeline = connection.statement_pipeline
        try:
            if error is None:
                self._connection_failed = False
            elif isinstance(error, (psycopg.Error, ConnectionLost, CommitUnknown)):
                # A server error leaves a usable connection, except if its prepared statements are unknown or stale.
                if isinstance(error, psycopg.Error) and error.sqlstate not in NEEDS_NEW_CONNECTION | CONNECTION_ENDED:
                    pipeline.rollback()
                else:
                    self._connection_failed = True
                    pipeline.abandon()
            elif isinstance(error, Exception):
                pipeline.rollback()
            else:
                pipeline.abandon()  # a KeyboardInterrupt, for example: nobody knows how much was sent
        finally:
            self._pool.putconn(connection)

    def _take_connection(self, deadline: float) -> PooledConnection:
        if self._closed:
            raise StoreClosed
        self.after_fork()
        while True:
            remaining = max(deadline - time.monotonic(), _BACKOFF)
            # After a lost connection, ask in slices: each new request makes the pool start another attempt to connect.
            try:
                return self._pool.getconn(min(remaining, _RECONNECT_TIMEOUT) if self._connection_failed else remaining)
            except psycopg_pool.PoolTimeout as error:
                if time.monotonic() >= deadline:
                    raise self._exhaustion_error() from error
            except psycopg_pool.PoolClosed as error:
                raise StoreClosed from error

    def _exhaustion_error(self) -> RecollectError:
        """Return why the pool had no connection: the server cannot be reached, or all connections are in use."""
        try:
            psycopg.connect(self.address.conninfo, connect_timeout=2).close()
        except psycopg.Error as error:
            return unavailable_error(self.path, self.address.without_password(connection_reason(error)))
        return pool_exhausted(self.path, self.address.pool_size, self.timeout)

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections open, even if the store is never used here.

        Closing one would send Terminate over the shared socket and end the parent's session.
        """
        self._is_forked = True
        _left_to_parent.append(self._pool)
        _left_to_parent.extend(self._listener.after_fork_in_child())
        if self._replica is not None:
            _left_to_parent.extend(self._replica.detach())

    @property
    def is_forked(self) -> bool:
        """True if this process was forked since the last use of the server and has no connections yet."""
        return self._is_forked

    def after_fork(self) -> bool:
        """Open connections if this process was forked since the last use. Return whether it was."""
        if not self._is_forked:
            return False
        with _reopen_lock:
            if self._is_forked:
                self._pool = self._make_pool()
                self._is_forked = False
                return True
        return False

    def close(self) -> None:
        """Close every connection of this process."""
        self._closed = True
        self._listener.close()
        if not self._is_forked:
            self._pool.close()
            if self._replica is not None:
                self._replica.close()


class _BorrowedConnection:
    """A connection for the time of a `with` block. A class, because a generator costs more on each operation."""

    __slots__ = ("_connection", "_release")

    def __init__(
        self, connection: PooledConnection, release: Callable[[PooledConnection, BaseException | None], None]
    ) -> None:
        self._connection = connection
        self._release = release

    def __enter__(self) -> PipelinedConnection:
        return self._connection.statement_pipeline

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._release(self._connection, error)


def _back_off(tries: int) -> None:
    """Sleep longer on each attempt, with jitter, so that two transactions in conflict do not meet again."""
    time.sleep(min(_BACKOFF * 2**tries, _MAX_BACKOFF) * (0.5 + random.random() / 2))  # noqa: S311


_servers: weakref.WeakSet[DatabaseServer] = weakref.WeakSet()
_left_to_parent: list[Any] = []  # pools of the parent; the reference prevents their finalizers from closing them
_reopen_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _reopen_lock  # noqa: PLW0603  a thread of the parent, which does not exist here, may hold it
    _reopen_lock = threading.Lock()
    for server in list(_servers):
        server.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
