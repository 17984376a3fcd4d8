"""The fast paths of PostgreSQL: each does all the work of an operation in one statement.

COMMIT is sent along with the statement, so that the operation takes one round trip; a read needs no BEGIN either. If
the statement matched no rows, it has written nothing, and the operation runs its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from recollect.engine.postgres.adapters import IntegerArray
from recollect.engine.postgres.statements import PreparedStatement, StatementRegistry
from recollect.storage.fast_paths import (
    ACTIVITY_RESOLUTION,
    AdvancedRow,
    AppendRequest,
    EnsureSessionRequest,
    FastPath,
    KeyedAppendRequest,
    LastMessagesRequest,
    ListedSessionRow,
    ListSessionsRequest,
    OpenSessionRequest,
    SaveTurnRequest,
    StoredSessionRow,
)
from recollect.storage.operation import Query, Row

# The statements that only fast paths run, with the class of their rows. Lists and the last messages use the queries of
# the steps.
APPEND = Query("session_append", AdvancedRow)
APPEND_WITH_CALLS = Query("session_append_with_calls", AdvancedRow)
SAVE_TURN = Query("session_save", AdvancedRow)
SAVE_TURN_WITH_CALLS = Query("session_save_with_calls", AdvancedRow)
APPEND_LOOKUP = Query("session_append_lookup", AdvancedRow)
CREATE = Query("session_create", StoredSessionRow)
CREATE_LOOKUP = Query("session_create_lookup", StoredSessionRow)
PINNED_FIRST = Query("sessions_pinned_first", ListedSessionRow)

# Characters in the parameters of one statement. Larger appends run their steps, which send a few rows at a time: a
# server holds a statement's parameters in memory more than once.
_LARGE_TEXT = 4_000_000


class ArrayStatement(PreparedStatement):
    """A statement whose parameters may come from rows: one array per column, or single values.

    `:rows.2::text[]` is the array of the second value of each of `rows`; `:turn.2` is the second value of `turn`.
    """

    __slots__ = ("_parameter_sources",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self._parameter_sources = [_parameter_source(parameter) for parameter in self.names]

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in the order of their numbers."""
        columns: dict[str, list[tuple[Any, ...]]] = {}
        values: list[Any] = []
        for name, index, make_array in self._parameter_sources:
            if index is None:
                values.append(params[name])
            elif make_array is None:
                values.append(params[name][index])
            else:
                if name not in columns:
                    columns[name] = list(zip(*params[name], strict=True))
                column = columns[name][index]
                # An array of NULLs only is sent as NULL, which is shorter: half of an append's arrays.
                values.append(None if column.count(None) == len(column) else make_array(column))
        return values


def _parameter_source(name: str) -> tuple[str, int | None, type[tuple[Any, ...]] | None]:
    """Return where a parameter comes from: its name, the index in each row, and the type of its array."""
    group, _, remainder = name.partition(".")
    number, _, kind = remainder.partition("::")
    make_array = None if not kind else tuple if kind == "text[]" else IntegerArray
    return group, int(number) - 1 if number else None, make_array


def _text_length(values: list[Any]) -> int:
    """Return the number of characters in the texts and the arrays of texts among parameters."""
    length = 0
    for value in values:
        if type(value) is tuple:
            length += sum(map(len, filter(None, value)))
        elif type(value) is str:
            length += len(value)
    return length


class FastStatement(NamedTuple):
    """The statement of a fast path, ready to be sent, and what finds out its result if the reply to COMMIT is lost."""

    statement: PreparedStatement
    params: Mapping[str, Any]
    values: list[Any]
    read: Callable[[list[Row]], Any]
    """Return the answer that the rows hold; None if the statement matched no rows."""
    settings: PreparedStatement | None = None
    lookup: PreparedStatement | None = None
    """Finds the row that the statement wrote in a given transaction. None: the operation may run again."""
    probe: PreparedStatement | None = None
    """Returns a row if the statement may have written anything."""


def _read_advanced(rows: list[Row]) -> AdvancedRow | None:
    return AdvancedRow._make(rows[0]) if rows else None


def _read_sessions(rows: list[Row]) -> list[StoredSessionRow]:
    return list(map(StoredSessionRow._make, rows))


def _read_session(rows: list[Row]) -> StoredSessionRow | None:
    return StoredSessionRow._make(rows[0]) if rows else None


def _read_rows(rows: list[Row]) -> list[Row]:
    return rows


def _read_some_rows(rows: list[Row]) -> list[Row] | None:
    return rows or None


class PostgresFastPaths:
    """Prepares the statements of fast paths. None means not handled."""

    def __init__(self, registry: StatementRegistry) -> None:
        self._registry = registry
        self._arrays: dict[str, ArrayStatement] = {}
        self.handlers: dict[type[FastPath[Any]], Callable[[Any], FastStatement | None]] = {
            AppendRequest: self.append,
            KeyedAppendRequest: lambda _: None,
            SaveTurnRequest: self.save_turn,
            OpenSessionRequest: self.open_session,
            EnsureSessionRequest: self.ensure_session,
            LastMessagesRequest: self.last_messages,
            ListSessionsRequest: self.list_sessions,
        }

    def prepare(self, request: FastPath[Any] | None) -> FastStatement | None:
        """Return the statement of a request, or None."""
        return None if request is None else self.handlers[type(request)](request)

    def append(self, request: AppendRequest) -> FastStatement | None:
        """Append messages with their tool calls."""
        return self._append(APPEND_WITH_CALLS if request.calls else APPEND, request)

    def save_turn(self, request: SaveTurnRequest) -> FastStatement | None:
        """Append the messages of a complete turn, and the turn."""
        return self._append(SAVE_TURN_WITH_CALLS if request.calls else SAVE_TURN, request)

    def _append(self, query: Query[AdvancedRow], request: AppendRequest) -> FastStatement | None:
        params = msgspec.structs.asdict(request)
        params["activity_resolution"] = ACTIVITY_RESOLUTION
        statement = self._array(query.name)
        values = statement.values(params)
        if _text_length(values) > _LARGE_TEXT:
            return None
        lookup, probe = self._array(APPEND_LOOKUP.name), self._array("session_append_probe")
        return FastStatement(statement, params, values, _read_advanced, lookup=lookup, probe=probe)

    def open_session(self, request: OpenSessionRequest) -> FastStatement:
        """Read a session."""
        return self._read("session_get", msgspec.structs.asdict(request), _read_sessions)

    def ensure_session(self, request: EnsureSessionRequest) -> FastStatement:
        """Create a session."""
        params = {
            **request.columns, "owner": request.owner, "id": request.id, "now": request.now, "parent": request.parent
        }  # fmt: skip
        statement, lookup, probe = map(
            self._registry.statement, (CREATE.name, CREATE_LOOKUP.name, "session_create_probe")
        )
        return FastStatement(statement, params, statement.values(params), _read_session, lookup=lookup, probe=probe)

    def last_messages(self, request: LastMessagesRequest) -> FastStatement:
        """Read the last messages of the head branch of a session."""
        return self._read("messages_last", msgspec.structs.asdict(request), _read_rows)

    def list_sessions(self, request: ListSessionsRequest) -> FastStatement:
        """Read a page of a list."""
        if request.query is None:
            return self._read(PINNED_FIRST.name, request.params, _read_some_rows)
        return self._read(request.query, request.params, _read_rows)

    def _read(self, name: str, params: Mapping[str, Any], read: Callable[[list[Row]], Any]) -> FastStatement:
        statement = self._registry.statement(name).variant_for(params)
        return FastStatement(statement, params, statement.values(params), read, self._registry.settings(name))

    def _array(self, name: str) -> ArrayStatement:
        statement = self._arrays.get(name)
        if statement is None:
            statement = self._arrays[name] = ArrayStatement(name, self._registry.text(name))
        return statement
