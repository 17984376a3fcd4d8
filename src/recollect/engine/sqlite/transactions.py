"""Transactions of operations on a connection, with the fast paths of SQLite.

A fast path reads a row and writes the new one in a second statement. One UPDATE with RETURNING does the same in twice
the time: SQLite collects the returned rows in a temporary table. The second statement is in the SQL files, after
`-- then:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import apsw
import msgspec

from recollect import sql
from recollect.engine.sqlite.errors import translate_error
from recollect.errors import Corrupted, IndexDamaged, RecollectError
from recollect.storage.operation import Operation, Row

_OPEN_TURNS_COLUMN = 3  # index in the fragment `session_row`, which session_open and session_ensure select

FastPath = Callable[[apsw.Connection, Mapping[str, Any]], list[Row]]


# Milliseconds. While the order of the list stays, the activity time, and with it a page of the index, is written at
# most once per minute. PostgreSQL has the same number in the fragment `advance_update` of sessions.sql.
_ACTIVITY_RESOLUTION = 60_000


def build_fast_paths(
    queries: Mapping[str, str],
    second_steps: Mapping[str, str],
    alternatives: Mapping[str, str],
    first_steps: Mapping[str, str],
) -> dict[str, FastPath]:
    """Return the fast paths by the names of the queries that they replace."""
    activate = _activate_path(queries["session_activate"], second_steps["session_activate"])
    paths = {"session_activate": activate}
    for name in ("session_open", "session_ensure"):
        paths[name] = _open_path(queries[name], activate, queries["session_by_key"])
    for name in ("session_advance", "session_append", "session_save"):
        paths[name] = _advance_path(queries[name], second_steps["session_advance"], alternatives["session_advance"])
    for name in ("session_append", "session_save"):
        paths[name] = _append_path(
            paths[name], queries["message_insert"], queries["turn_insert"], queries["tool_call_insert"]
        )
    for name, order in (("activity", "activity"), ("creation", "creation"), ("title", "folded_title")):
        query = f"sessions_through_{name}"
        paths[query] = _filtered_list_path(first_steps, queries[query], queries[f"sessions_by_{order}"])
    return paths


def _filtered_list_path(first_steps: Mapping[str, str], keys_query: str, walk_query: str) -> FastPath:
    """Return a fast path for a filtered list: sort the matches of an index if they are few, else walk the whole list.

    In a single statement, SQLite would set up both plans on each run.
    """

    def list_filtered(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        for index in params["indexes"]:
            rows: list[Row] = connection.execute(first_steps[f"sessions_{index}"], params).fetchall()
            if rows:
                keys = rows[0][0]
                return [] if keys == "[]" else connection.execute(keys_query, {**params, "keys": keys}).fetchall()
        return connection.execute(walk_query, params).fetchall()

    return list_filtered


def _activate_path(read_query: str, write_query: str) -> FastPath:
    """Return a fast path that moves a session to the top of the list."""

    def activate(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = connection.execute(read_query, params).fetchall()
        if rows:
            connection.execute(write_query, (rows[0][0], params["session"]))
        return rows

    return activate


def _open_path(read_query: str, activate: FastPath, reread_query: str) -> FastPath:
    """Return a fast path that reads a session and moves it to the top of the list.

    A session with an open turn is only read: the operation recovers the turn first, then activates the session.
    """

    def open_session(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = connection.execute(read_query, params).fetchall()
        if not rows or rows[0][_OPEN_TURNS_COLUMN]:
            return rows
        session_params = {"owner": params["owner"], "now": params["now"], "session": rows[0][0]}
        activate(connection, session_params)
        # Read again: an UPDATE with RETURNING costs more than a second read by the primary key.
        return connection.execute(reread_query, session_params).fetchall()

    return open_session


def _advance_path(read_query: str, update_query: str, activate_query: str) -> FastPath:
    """Return a fast path that counts new messages in the session row and moves the session to the top of the list.

    The row is written once. If the session is at the top already, the index of the list is not changed.
    """

    def advance(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = connection.execute(read_query, (params["owner"], params["id"])).fetchall()
        if not rows:
            return rows
        (
            key, head, last, branch, open_turns, revision, count, tokens, input_tokens, output_tokens,
            updated, active, message_at, order_state,
        ) = rows[0]  # fmt: skip
        messages, now, expected = params["messages"], params["now"], params["expected"]
        if expected is not None and expected != revision:
            return []  # no rows: the operation then finds out why, and raises the conflict
        revision += 1
        count += messages
        tokens += params["tokens"]
        input_tokens += params["input_tokens"]
        output_tokens += params["output_tokens"]
        updated = max(updated, now)
        if message_at is None or message_at < now:
            message_at = now
        row = (last + messages, revision, count, tokens, input_tokens, output_tokens, updated, message_at, key)
        # The lowest bit states whether another session is at the top, the rest its activity time.
        if order_state & 1 or active < now - _ACTIVITY_RESOLUTION:
            active = max(active, now, 1 + (order_state >> 1))
            connection.execute(activate_query, (active, *row))
        else:
            connection.execute(update_query, row)
        return [(
            key, head, last, branch, open_turns, revision, count, tokens, input_tokens, output_tokens,
            updated, active, message_at,
        )]  # fmt: skip

    return advance


def _append_path(advance: FastPath, message_query: str, turn_query: str, call_query: str) -> FastPath:
    """Return a fast path that appends messages, with their turn and tool calls, if `advance` returns a row."""

    def append(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        rows = advance(connection, params)
        if not rows:
            return rows
        _, branch, last, *_ = rows[0]
        first = last + 1
        turn = params.get("turn")
        turn_position = None if turn is None else first
        connection.executemany(
            message_query,
            [(branch, position, turn_position, *columns) for position, columns in enumerate(params["rows"], first)],
        )
        if turn is not None:
            connection.execute(turn_query, (branch, first, *turn, None, None))
        calls = params["calls"]
        if calls:
            connection.executemany(call_query, [_tool_call_row(row, branch, last) for row in calls])
        return rows

    return append


def _tool_call_row(row: Row, branch: int, last: int) -> Row:
    """Return the row of a tool call. The operation counts positions from 1; in the row they follow `last`."""
    _, position, part, _, *columns, _, result, result_part = row[:10]
    result_position = None if result is None else last + result
    return (branch, last + position, part, branch, *columns, branch, result_position, result_part, *row[10:])


T = TypeVar("T")

_MAX_TRIES = 3  # of an operation that reports damage. A transient read error of the disk is gone by then; damage is not
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
_UNEXPECTED_ERRORS = (TypeError, ValueError, LookupError, AttributeError)  # raised by a row that lacks values


class Transactions:
    """Runs operations on connections to one file."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._queries = sql.queries("sqlite")
        self._fast_paths = build_fast_paths(
            self._queries, sql.second_steps("sqlite"), sql.alternative_second_steps("sqlite"), sql.first_steps("sqlite")
        )

    def run(self, begin: str, connection: apsw.Connection, op: Operation[T]) -> T:
        """Run an operation in a transaction, up to three times if it reports damage.

        SQLite reports SQLITE_CORRUPT if the disk fails to read a page, which may be transient.
        """
        for _ in range(_MAX_TRIES - 1):
            try:
                return self._run_once(begin, connection, op)
            except (Corrupted, IndexDamaged) as error:
                if not isinstance(error.__cause__, apsw.CorruptError):
                    raise
        return self._run_once(begin, connection, op)

    def _run_once(self, begin: str, connection: apsw.Connection, op: Operation[T]) -> T:
        try:
            connection.execute(begin)
            try:
                result = self.drive(connection, op)
                connection.execute("COMMIT")
            except BaseException:
                rollback(connection)
                raise
        except (apsw.Error, *_DECODE_ERRORS, *_UNEXPECTED_ERRORS) as error:
            store_error = self.translate_failure(connection, error)
            if store_error is error:
                raise
            raise store_error from error
        return result

    def translate_failure(self, connection: apsw.Connection, error: BaseException) -> BaseException:
        """Translate the error of an operation. An unexpected one is damage if quick_check finds any in the file."""
        if isinstance(error, apsw.Error):
            return self.translate_error(error, connection.system_errno)
        if isinstance(error, RecollectError):
            return error
        if isinstance(error, _DECODE_ERRORS) or (isinstance(error, _UNEXPECTED_ERRORS) and _is_damaged(connection)):
            return Corrupted(path=self._path, reason=f"stored data cannot be decoded ({error})")
        return error

    def drive(self, connection: apsw.Connection, op: Operation[T]) -> T:
        """Run the statements of an operation, send it their rows, and return its result."""
        steps = op.start()
        queries, fast_paths = self._queries, self._fast_paths
        rows: list[Any] | None = None
        try:
            while True:
                name, params, many = steps.send(rows)  # type: ignore[arg-type]
                if many:
                    connection.executemany(queries[name], params)
                    rows = []
                elif name in fast_paths:  # same name, parameters and rows as the query that it replaces
                    rows = fast_paths[name](connection, params)  # type: ignore[arg-type]
                else:
                    rows = connection.execute(queries[name], params).fetchall()
        except StopIteration as end:
            return end.value

    def translate_error(self, error: apsw.Error, number: int = 0) -> RecollectError:
        """Translate an error of the driver; `number` is the errno of the connection."""
        return translate_error(error, self._path, self._timeout, number)


def rollback(connection: apsw.Connection) -> None:
    """Roll back, unless SQLite has done so already, as it does on a full disk."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _is_damaged(connection: apsw.Connection) -> bool:
    try:
        return connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]
    except apsw.Error:
        return True
