"""Transactions of one operation, or of several side by side, with as few round trips as possible.

Statements whose rows an operation does not need are sent without waiting, and COMMIT is sent with the last ones. With
the statement of a fast path, COMMIT is sent along at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import psycopg

from recollect.engine.postgres.connections import BEGIN, BEGIN_READ, COMMIT, ConnectionLost, PipelinedConnection
from recollect.engine.postgres.errors import CONNECTION_ENDED
from recollect.engine.postgres.fast_paths import FastStatement
from recollect.engine.postgres.statements import PreparedStatement, StatementRegistry
from recollect.errors import RecollectError
from recollect.storage.operation import Operation, Row, Steps

T = TypeVar("T")
EarlyLocks = list[tuple[PreparedStatement, list[Any]]]
"""Locks that a transaction takes first, in a fixed order, before anything else."""

# Overwrites the row of the connection's previous commit. `at` is NOT NULL, so the statement fails on a fence.
_ON_TOKEN_CONFLICT = " ON CONFLICT (token) DO UPDATE SET at = CASE WHEN NOT commits.fence THEN excluded.at END"  # noqa: S105
WRITE_TOKEN = PreparedStatement(
    "commit_token", "INSERT INTO recollect.commits (token, at) VALUES (:token, :at)" + _ON_TOKEN_CONFLICT
)
WRITE_TOKEN_AS_OWNER = PreparedStatement(
    "commit_token_as_owner",
    "INSERT INTO recollect.commits (token, at) SELECT :token::bigint, :at::bigint "
    "FROM set_config('recollect.owner', :owner, true)" + _ON_TOKEN_CONFLICT,
)
SET_OWNER = PreparedStatement("owner_set", "SELECT set_config('recollect.owner', :owner, true)")


class CommitUnknown(Exception):
    """The connection was lost on COMMIT: nobody knows yet whether the transaction was committed.

    Internal: DatabaseServer looks up the commit token, then returns the results or runs the operations again.
    """

    def __init__(self, runs: Sequence[OperationRun[Any]], owner: str, exclude: Callable[[int], None] | None) -> None:
        super().__init__("the connection was lost on COMMIT")
        self.runs = runs
        self.owner = owner
        self.exclude = exclude

    @property
    def results(self) -> list[Any] | None:
        """The results, if every operation had finished before COMMIT was sent; else None."""
        return [run.result for run in self.runs] if all(run.done for run in self.runs) else None


class LockOrderConflict(Exception):
    """A lock was not available while others are held: waiting for it could deadlock.

    Internal: DatabaseServer runs the operation again with `early_locks` taken first.
    """

    def __init__(self, early_locks: EarlyLocks) -> None:
        super().__init__("another transaction holds a lock that the operation needs")
        self.early_locks = early_locks


class CommitToken:
    """The row that a transaction writes to `commits`, so that its outcome can be looked up later.

    It overwrites the row of the connection's previous commit, whose outcome is known: a connection whose commit is in
    doubt is not used again.
    """

    __slots__ = ("at", "token")

    def __init__(self, token: int, at: int) -> None:
        self.token = token
        self.at = at


class OperationRun(Generic[T]):
    """One run of an operation: sends its fast path or its statements, and passes on the rows that arrive.

    If its fast path is not handled, the operation continues with its steps.
    """

    __slots__ = (
        "_op", "_pipeline", "_registry", "_steps", "done", "early_locks", "error", "fast", "result", "result_index",
    )  # fmt: skip

    def __init__(
        self,
        op: Operation[T],
        registry: StatementRegistry,
        pipeline: PipelinedConnection,
        fast: FastStatement | None = None,
    ) -> None:
        self._op = op
        self._registry = registry
        self._pipeline = pipeline
        self._steps: Steps[T] | None = None
        self.fast = fast
        """The statement of its fast path that it waits for, or sends first."""
        self.early_locks: EarlyLocks = []
        self.done = False
        self.error: RecollectError | None = None
        self.result: Any = None
        self.result_index = 0  # of the awaited statement, among the results of the next receive()

    def advance(self, rows: list[Row] | None, index: int) -> int:
        """Send statements until the operation needs rows or ends. Return the number of results to expect.

        `rows` are those that it waited for, and `index` is the number of statements already sent since the last
        receive().
        """
        if self.fast is not None:
            if rows is None:
                return self._send_fast(self.fast, index)
            if self.finish(rows):
                return index
            rows = None
        return self._run_steps(rows, index)

    def _send_fast(self, fast: FastStatement, index: int) -> int:
        if fast.settings is not None:
            self._pipeline.send(fast.settings, fast.settings.values(fast.params))
            index += 1
        self._pipeline.send(fast.statement, fast.values)
        self.result_index = index
        return index + 1

    def finish(self, rows: list[Row]) -> bool:
        """Take the rows of the fast path. Return False if it is not handled."""
        fast, self.fast = self.fast, None
        assert fast is not None
        answer = fast.read(rows)
        if answer is not None:
            self.result = self._op.finish(self._op.fast, answer)  # type: ignore[misc]
            self.done = self.result is not None
        return self.done

    def _run_steps(self, rows: list[Row] | None, index: int) -> int:
        registry, pipeline = self._registry, self._pipeline
        if self._steps is None:
            self._steps = self._op.start()
        try:
            while True:
                name, params, many = self._steps.send(rows)  # type: ignore[arg-type]
                if many:
                    for statement, values in registry.multi_row(name).split_rows(params):  # type: ignore[arg-type]
                        pipeline.send(statement, values)
                        index += 1
                else:
                    index = self._send_preliminaries(name, params, index)
                    statement = registry.statement(name).variant_for(params)  # type: ignore[arg-type]
                    pipeline.send(statement, statement.values(params))  # type: ignore[arg-type]
                    self.result_index = index
                    index += 1
                    if statement.returns:
                        return index
                rows = []
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return index

    def _send_preliminaries(self, name: str, params: Any, index: int) -> int:
        """Send the lock and the settings that belong to a statement. Return the new index."""
        lock = self._registry.lock(name) if self._op.writes else None
        if lock is not None:
            values = lock.values(params)
            self._pipeline.send(lock, values)
            index += 1
            if lock.waiting is not None:
                # This one is NOWAIT, because the transaction already holds other locks. If it fails, the next attempt
                # begins with the waiting form.
                self.early_locks.append((lock.waiting, values))
        settings = self._registry.settings(name)
        if settings is not None:
            self._pipeline.send(settings, settings.values(params))
            index += 1
        return index


def read(
    pipeline: PipelinedConnection, registry: StatementRegistry, op: Operation[T], owner: str, fast: FastStatement | None
) -> T:
    """Run an operation that only reads, on one snapshot, and return its result."""
    if fast is not None:
        # A single statement sees one snapshot without BEGIN, which saves two statements.
        run = OperationRun(op, registry, pipeline, fast)
        run.advance(None, _set_owner(pipeline, owner))
        if run.finish(pipeline.receive(end=True)[run.result_index]):
            return run.result
    run = OperationRun(op, registry, pipeline)
    index, rows = _begin_reading(pipeline, owner), None
    while True:
        run.advance(rows, index)
        if run.done:
            break
        index, rows = 0, pipeline.receive()[run.result_index]
    pipeline.send(COMMIT, [])
    pipeline.receive(end=True)
    if run.error is not None:
        raise run.error
    return run.result


def _begin_reading(pipeline: PipelinedConnection, owner: str) -> int:
    pipeline.send(BEGIN_READ, [])
    return 1 + _set_owner(pipeline, owner)


def _set_owner(pipeline: PipelinedConnection, owner: str) -> int:
    """Set the owner for this transaction. Without BEGIN, the implicit transaction lasts until Sync."""
    if owner:
        pipeline.send(SET_OWNER, [owner])
    return 1 if owner else 0


def write(
    pipeline: PipelinedConnection,
    registry: StatementRegistry,
    ops: Sequence[tuple[Operation[Any], FastStatement | None]],
    owner: str,
    commit_token: CommitToken,
    early_locks: EarlyLocks,
    *,
    exclude: Callable[[int], None] | None = None,
) -> list[Any] | None:
    """Run operations of one owner, each with its fast path, side by side in one transaction. Return durable results.

    If one raises an error, nothing is written: for a single operation the error is raised; of several, `exclude`
    receives the index of each that failed, and None is returned. If several were committed with their fast paths,
    `exclude` receives the index of each whose fast path was not handled: it has written nothing, and has no result.

    Raises CommitUnknown if the connection is lost on COMMIT, LockOrderConflict if a lock must be taken earlier.
    """
    runs = [OperationRun(op, registry, pipeline, fast) for op, fast in ops]

    def commit() -> list[list[Row]]:
        return _commit_runs(pipeline, runs, owner, exclude)

    begin_write(pipeline, owner, commit_token)
    for statement, values in early_locks:
        pipeline.send(statement, values)
    try:
        # With early locks a fast path is not committed blindly: the operation needs more than one statement.
        # BEGIN and the commit token are the first two statements.
        committed = _drive_runs(pipeline, runs, 2 + len(early_locks), None if early_locks else commit)
        if committed and exclude is None and not runs[0].done:
            # The fast path was not handled, so only the token was committed. Now run the steps.
            begin_write(pipeline, owner, commit_token)
            committed = _drive_runs(pipeline, runs, 2)
    except psycopg.errors.LockNotAvailable as error:
        raise LockOrderConflict([lock for run in runs for lock in run.early_locks]) from error
    refusals = [number for number, run in enumerate(runs) if run.error is not None or not run.done]
    if refusals:
        pipeline.rollback()
        if exclude is None:
            raise runs[refusals[0]].error or AssertionError
        for number in refusals:
            exclude(number)
        if not committed:
            return None
    if not committed:
        commit()
    return [run.result for run in runs]


def _commit_runs(
    pipeline: PipelinedConnection,
    runs: Sequence[OperationRun[Any]],
    owner: str,
    exclude: Callable[[int], None] | None,
) -> list[list[Row]]:
    """Commit, and return the rows of the statements that were sent before COMMIT and not waited for."""
    pipeline.send(COMMIT, [])
    try:
        return pipeline.receive(end=True)
    except ConnectionLost as loss:
        raise CommitUnknown(runs, owner, exclude) from loss
    except psycopg.Error as error:
        if error.sqlstate in CONNECTION_ENDED:  # a pooler may report this after the server has committed
            raise CommitUnknown(runs, owner, exclude) from error
        raise


def recover_results(
    pipeline: PipelinedConnection, runs: Sequence[OperationRun[Any]], owner: str, transaction: str
) -> bool:
    """Restore the results of committed operations from the rows that they wrote. Return False if these changed since.

    PostgreSQL stores the id of the writing transaction with each row (xmin): the lookup finds the row of this
    transaction, the probe any row that the operation may have written. An operation without either matched no rows;
    it stays without a result and may run again.
    """
    skip = _begin_reading(pipeline, owner)
    for run in runs:
        fast = run.fast
        assert fast is not None
        assert fast.lookup is not None
        assert fast.probe is not None
        pipeline.send(fast.lookup, fast.lookup.values({**fast.params, "transaction": transaction}))
        pipeline.send(fast.probe, fast.probe.values(fast.params))
    pipeline.send(COMMIT, [])
    results = pipeline.receive(end=True)[skip:]
    for run, rows, probe_rows in zip(runs, results[::2], results[1::2], strict=False):
        # strict=False: the answer to COMMIT follows the pairs. If the transaction's own row is gone, a row of the probe
        # shows that the operation did write, and others have changed its row since.
        if not run.finish(rows) if rows else probe_rows:
            return False
    return True


def begin_write(pipeline: PipelinedConnection, owner: str, commit_token: CommitToken) -> None:
    """Begin a transaction that writes, for an owner, with a commit token that no other transaction has.

    Owner and token are set in one statement, which saves one.
    """
    pipeline.send(BEGIN, [])
    commit_token.token, commit_token.at = pipeline.next_token(commit_token.at)
    token, at = commit_token.token, commit_token.at
    if owner:
        pipeline.send(WRITE_TOKEN_AS_OWNER, [token, at, owner])
    else:
        pipeline.send(WRITE_TOKEN, [token, at])


def _drive_runs(
    pipeline: PipelinedConnection,
    runs: Sequence[OperationRun[Any]],
    preceding: int,
    commit: Callable[[], list[list[Row]]] | None = None,
) -> bool:
    """Run all operations in step: send the next statements of each, wait once for all, repeat until all have ended.

    `preceding` is the number of statements that were sent before those of the operations and have no result yet.
    If every operation has a fast path and `commit` is given, COMMIT is sent with these statements and True is returned;
    an operation that is not done then has to run its steps.
    """
    results: list[list[Row]] | None = None
    while True:
        waiting = False
        previous, index = results, preceding
        for run in runs:
            if not run.done:
                index = run.advance(None if previous is None else previous[run.result_index], index)
                waiting = waiting or not run.done
        if not waiting:
            return False
        # Only in the first round: later, some operations have written already.
        if commit is not None and results is None and all(run.fast is not None for run in runs):
            results = commit()
            for run in runs:
                run.finish(results[run.result_index])
            return True
        results = pipeline.receive()
        preceding = 0
