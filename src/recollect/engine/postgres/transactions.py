"""Transactions of one operation, or of several side by side, with as few round trips as possible.

Statements whose rows an operation does not need are sent without waiting, and COMMIT is sent with the last ones. Many
operations usually end with one statement (a *final statement*, `-- final:` in the SQL files): an append, a whole turn,
opening a session, its last messages. COMMIT is sent along with that one, so the operation takes a single round trip. If
it matched no rows, it has written nothing, and the operation runs again statement by statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import psycopg

from recollect.engine.postgres.connections import BEGIN, BEGIN_READ, COMMIT, ConnectionLost, PipelinedConnection
from recollect.engine.postgres.errors import CONNECTION_ENDED
from recollect.engine.postgres.statements import FinalStatement, PreparedStatement, StatementRegistry
from recollect.engine.postgres.wire_codec import EncodedValue, encode_parameter
from recollect.errors import RecollectError
from recollect.storage.operation import Operation, Row, Steps
from recollect.storage.operation import Statement as Step

T = TypeVar("T")
EarlyLocks = list[tuple[PreparedStatement, list[EncodedValue]]]
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
# Bytes of parameters of one statement. Larger appends send a few rows at a time, because a server holds a statement's
# parameters in memory more than once.
_LARGE_BYTES = 4_000_000


class CommitUnknown(Exception):
    """The connection was lost on COMMIT: nobody knows yet whether the transaction was committed.

    Internal: DatabaseServer looks up the commit token, then returns the results or runs the operations again.
    """

    def __init__(self, runs: Sequence[OperationRun[Any]], exclude: Callable[[int], None] | None) -> None:
        super().__init__("the connection was lost on COMMIT")
        self.runs = runs
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
    """One run of an operation: sends its statements, and passes it their rows when they have arrived."""

    __slots__ = (
        "_first_statement",
        "_pipeline",
        "_registry",
        "_steps",
        "_takes_locks",
        "done",
        "early_locks",
        "error",
        "final",
        "final_missed",
        "params",
        "result",
        "result_index",
    )

    def __init__(
        self,
        op: Operation[T],
        registry: StatementRegistry,
        pipeline: PipelinedConnection,
        *,
        final_missed: bool = False,
    ) -> None:
        self._steps: Steps[T] = op.start()
        self._registry = registry
        self._pipeline = pipeline
        self._takes_locks = op.writes
        self._first_statement: Step | None = None
        self.early_locks: EarlyLocks = []
        self.done = False
        self.final: FinalStatement | None = None
        """The final statement that it waits for, if the last statement is one."""
        self.final_missed = final_missed
        """Whether the final statement is known to match no rows; then it is not sent again."""
        self.params: Any = None
        self.error: RecollectError | None = None
        self.result: Any = None
        self.result_index = 0  # of the awaited statement, among the results of the next receive()

    def begins_with_final_statement(self) -> bool:
        """Return whether the first statement of the operation is a final statement."""
        try:
            self._first_statement = name, _, many = next(self._steps)
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        else:
            return not many and _final_statement(self._registry.statement(name), self._first_statement[1]) is not None
        return False

    def advance(self, rows: list[Row] | None, index: int) -> int:
        """Send statements until the operation needs rows or ends. Return the number of results to expect.

        `rows` are those that it waited for, and `index` is the number of statements already sent since the last
        receive().
        """
        registry, pipeline = self._registry, self._pipeline
        try:
            while True:
                # begins_with_final_statement() may have taken the first statement from the generator already.
                first, self._first_statement = self._first_statement, None
                name, params, many = first or self._steps.send(rows)  # type: ignore[arg-type]
                if many:
                    for statement, values in registry.multi_row(name).split_rows(params):  # type: ignore[arg-type]
                        pipeline.send(statement, values)
                        index += 1
                else:
                    index = self._send_preliminaries(name, params, index)
                    needs_rows = self._send_statement(name, params, index)
                    if needs_rows:
                        return index + 1
                    index += needs_rows is not None  # None: nothing was sent
                rows = []
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return index

    def _send_preliminaries(self, name: str, params: Any, index: int) -> int:
        """Send the lock and the preparing statement that the SQL files name for a statement. Return the new index."""
        lock = self._registry.lock(name) if self._takes_locks else None
        if lock is not None:
            values = lock.values(params)
            self._pipeline.send(lock, values)
            index += 1
            if lock.waiting is not None:
                # This one is NOWAIT, because the transaction already holds other locks. If it fails, the next attempt
                # begins with the waiting form.
                self.early_locks.append((lock.waiting, values))
        before = self._registry.pre_statement(name)
        if before is not None:
            self._pipeline.send(before, before.values(params))
            index += 1
        return index

    def _send_statement(self, name: str, params: Any, index: int) -> bool | None:
        """Send a statement and return whether its rows are needed; None if it is taken to match no rows, unsent."""
        statement = self._registry.statement(name)
        self.final = _final_statement(statement, params)
        if self.final is not None:
            if self.final_missed:
                self.final, self.final_missed = None, False  # another final statement may follow in the operation
                return None
            self.params = params
        statement = statement.variant_for(params)
        values = statement.values(params)
        if self.final is not None and sum([len(value) for value in values if value is not None]) > _LARGE_BYTES:
            self.final = None  # "matches no rows" makes the operation continue with its own, smaller statements
            return None
        self._pipeline.send(statement, values)
        self.result_index = index
        return statement.returns

    def finish(self, rows: list[Row]) -> bool:
        """Pass on the rows of the final statement after the commit. Return False if the operation wants to continue."""
        self.final_missed = not rows
        try:
            self._steps.send(rows)
        except StopIteration as end:
            self.done, self.result = True, end.value
        except RecollectError as error:
            self.done, self.error = True, error
        return self.done


def _final_statement(statement: PreparedStatement, params: Any) -> FinalStatement | None:
    """Return a statement as a final one, unless the operation states (`continues`) that it continues after it."""
    return statement if type(statement) is FinalStatement and "continues" not in params else None


def read(pipeline: PipelinedConnection, registry: StatementRegistry, op: Operation[T], owner: str) -> T:
    """Run an operation that only reads, on one snapshot, and return its result."""
    run, tries = OperationRun(op, registry, pipeline), 0
    while not _read_once(pipeline, run, owner, tries):
        run = OperationRun(op, registry, pipeline, final_missed=run.final_missed and not tries)
        tries += 1
    if run.error is not None:
        raise run.error
    return run.result


def _read_once(pipeline: PipelinedConnection, run: OperationRun[Any], owner: str, tries: int) -> bool:
    """Run an operation up to a final statement. Return False if it wants to continue after that one.

    An operation may have several final statements. The first attempt ends with the first of them; each further attempt
    waits for one more of them inside the transaction.
    """
    # A single statement sees one snapshot without BEGIN, which saves two statements.
    single_statement = not tries and run.begins_with_final_statement()
    awaited_finals = tries - run.final_missed
    index, rows = _set_owner(pipeline, owner) if single_statement else _begin_reading(pipeline, owner), None
    while not run.done:
        run.advance(rows, index)
        if run.done or (run.final is not None and not awaited_finals):
            break
        awaited_finals -= run.final is not None
        index, rows = 0, pipeline.receive()[run.result_index]
    if not single_statement:
        pipeline.send(COMMIT, [])
    results = pipeline.receive(end=True)
    return run.done or run.finish(results[run.result_index])


def _begin_reading(pipeline: PipelinedConnection, owner: str) -> int:
    pipeline.send(BEGIN_READ, [])
    return 1 + _set_owner(pipeline, owner)


def _set_owner(pipeline: PipelinedConnection, owner: str) -> int:
    """Set the owner for this transaction. Without BEGIN, the implicit transaction lasts until Sync."""
    if owner:
        pipeline.send(SET_OWNER, [encode_parameter(owner)])
    return 1 if owner else 0


def write(
    pipeline: PipelinedConnection,
    registry: StatementRegistry,
    ops: Sequence[Operation[Any]],
    owner: str,
    commit_token: CommitToken,
    early_locks: EarlyLocks,
    *,
    exclude: Callable[[int], None] | None = None,
) -> list[Any] | None:
    """Run operations side by side in one transaction and return their results; they are on disk by then.

    If one raises an error, nothing is written: for a single operation the error is raised; of several, `exclude`
    receives the index of each that failed, and None is returned. If several were committed with their final
    statements, `exclude` receives the index of each that wants to continue: it has written nothing, and has no result.

    Raises CommitUnknown if the connection is lost on COMMIT, LockOrderConflict if a lock must be taken earlier.
    """
    runs = [OperationRun(op, registry, pipeline) for op in ops]

    def commit() -> list[list[Row]]:
        return _commit_runs(pipeline, runs, exclude)

    begin_write(pipeline, owner, commit_token)
    for statement, values in early_locks:
        pipeline.send(statement, values)
    try:
        # With early locks the final statement is not committed blindly: the operation needs more than one statement.
        # BEGIN and the commit token are the first two statements.
        committed = _drive_runs(pipeline, runs, 2 + len(early_locks), None if early_locks else commit)
        if committed and exclude is None and not runs[0].done:
            # The final statement matched no rows, so only the token was committed. Run again, statement by statement.
            begin_write(pipeline, owner, commit_token)
            runs[:] = [OperationRun(ops[0], registry, pipeline, final_missed=runs[0].final_missed)]
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
    pipeline: PipelinedConnection, runs: Sequence[OperationRun[Any]], exclude: Callable[[int], None] | None
) -> list[list[Row]]:
    """Commit, and return the rows of the statements that were sent before COMMIT and not waited for."""
    pipeline.send(COMMIT, [])
    try:
        return pipeline.receive(end=True)
    except ConnectionLost as loss:
        raise CommitUnknown(runs, exclude) from loss
    except psycopg.Error as error:
        if error.sqlstate in CONNECTION_ENDED:  # a pooler may report this after the server has committed
            raise CommitUnknown(runs, exclude) from error
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
        assert run.final is not None
        assert run.final.lookup is not None
        assert run.final.probe is not None
        pipeline.send(run.final.lookup, run.final.lookup.values({**run.params, "transaction": transaction}))
        pipeline.send(run.final.probe, run.final.probe.values(run.params))
    pipeline.send(COMMIT, [])
    results = pipeline.receive(end=True)[skip:]
    for run, rows, probe_rows in zip(runs, results[::2], results[1::2], strict=False):
        # strict=False: the answer to COMMIT follows the pairs. If the transaction's own row is gone, a row of the probe
        # means that the operation did write, and others have changed its row since.
        if not run.finish(rows) if rows else probe_rows:
            return False
    return True


def begin_write(pipeline: PipelinedConnection, owner: str, commit_token: CommitToken) -> None:
    """Begin a transaction that writes, for an owner, with a commit token that no other transaction has.

    Owner and token are set in one statement, which saves one.
    """
    pipeline.send(BEGIN, [])
    commit_token.token, commit_token.at = pipeline.next_token(commit_token.at)
    token, at = encode_parameter(commit_token.token), encode_parameter(commit_token.at)
    if owner:
        pipeline.send(WRITE_TOKEN_AS_OWNER, [token, at, encode_parameter(owner)])
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
    If every operation begins with its final statement and `commit` is given, COMMIT is sent with these statements and
    True is returned; an operation that is not done then wants to continue.
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
        if commit is not None and results is None and all(run.final is not None for run in runs):
            results = commit()
            for run in runs:
                run.finish(results[run.result_index])
            return True
        results = pipeline.receive()
        preceding = 0
