"""What SQLite does quicker in steps: a row is read, and written as it then stands.

One UPDATE with RETURNING does the same, and takes twice as long: SQLite gathers what is returned in a table of its own.
Other engines, where each statement is a journey, have it as one. The second step stands beside the first in the SQL
files, after `-- then:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import apsw

from recollect.op import Row

_OPEN_TURNS = 3  # where the row of a session has them

Procedure = Callable[[apsw.Connection, Mapping[str, Any]], list[Row]]


_FRESH = 60_000
"""Milliseconds after which the moment of the last activity is written anew, though the order of the list stays."""


def procedures(
    first: Mapping[str, str], then: Mapping[str, str], other: Mapping[str, str], looks: Mapping[str, str]
) -> dict[str, Procedure]:
    """Make what runs in two steps, by the names of the queries."""
    activate = _activating(first["session_activate"], then["session_activate"])
    made = {"session_activate": activate}
    for name in ("session_open", "session_ensure"):
        made[name] = _opening(first[name], activate, first["session_by_key"])
    for name in ("session_advance", "session_append", "session_save"):
        made[name] = _advancing(first[name], then["session_advance"], other["session_advance"])
    for name in ("session_append", "session_save"):
        made[name] = _appending(made[name], first["message_insert"], first["turn_insert"], first["tool_call_insert"])
    for name, walk in (("activity", "activity"), ("creation", "creation"), ("title", "folded_title")):
        through = f"sessions_through_{name}"
        made[through] = _narrowing(looks, first[through], first[f"sessions_by_{walk}"])
    return made


def _narrowing(looks: Mapping[str, str], among: str, walk: str) -> Procedure:
    """List sessions through a filter: where an index names few these are put in order, else the list is walked.

    In one statement SQLite would set up both ways.
    """

    def narrow(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        for index in params["indexes"]:
            found: list[Row] = connection.execute(looks[f"sessions_{index}"], params).fetchall()
            if found:
                keys = found[0][0]
                return [] if keys == "[]" else connection.execute(among, {**params, "keys": keys}).fetchall()
        return connection.execute(walk, params).fetchall()

    return narrow


def _activating(look: str, write: str) -> Procedure:
    """Move a session to the top of the list."""

    def activate(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        found: list[Row] = connection.execute(look, params).fetchall()
        if found:
            connection.execute(write, (found[0][0], params["session"]))
        return found

    return activate


def _opening(look: str, activate: Procedure, again: str) -> Procedure:
    """Read a session and move it to the top of the list; where a turn is open in it, there is more to do first."""

    def opened(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        found: list[Row] = connection.execute(look, params).fetchall()
        if not found or found[0][_OPEN_TURNS]:
            return found
        place = {"owner": params["owner"], "now": params["now"], "session": found[0][0]}
        activate(connection, place)
        return connection.execute(again, place).fetchall()

    return opened


def _advancing(look: str, stay: str, rise: str) -> Procedure:
    """Count what is appended to a session; and move it to the top of the list where another one is there.

    Its row is written once. The index of the list is not touched where the session is at the top already.
    """

    def advance(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        found: list[Row] = connection.execute(look, (params["owner"], params["id"])).fetchall()
        if not found:
            return found
        key, head, last, branch, turns, revision, count, tokens, given, taken, updated, active, said, top = found[0]
        messages, now, expected = params["messages"], params["now"], params["expected"]
        if expected is not None and expected != revision:
            return []
        revision += 1
        count += messages
        tokens += params["tokens"]
        given += params["input_tokens"]
        taken += params["output_tokens"]
        updated = max(updated, now)
        if said is None or said < now:
            said = now
        row = (last + messages, revision, count, tokens, given, taken, updated, said, key)
        if top & 1 or active < now - _FRESH:  # the last bit says that another session is at the top
            active = max(active, now, 1 + (top >> 1))
            connection.execute(rise, (active, *row))
        else:
            connection.execute(stay, row)
        return [(key, head, last, branch, turns, revision, count, tokens, given, taken, updated, active, said)]

    return advance


def _appending(advance: Procedure, message: str, turn: str, call: str) -> Procedure:
    """Write messages to the end of a session, with their turn and the calls in them, where it could be advanced."""

    def append(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        found = advance(connection, params)
        if not found:
            return found
        _, branch, last, *_ = found[0]
        first = last + 1
        run = params.get("turn")
        place = None if run is None else first
        connection.executemany(
            message, [(branch, at, place, *columns) for at, columns in enumerate(params["rows"], first)]
        )
        if run is not None:
            connection.execute(turn, (branch, first, *run, None, None))
        calls = params["calls"]
        if calls:
            connection.executemany(call, [_placed(row, branch, last) for row in calls])
        return found

    return append


def _placed(row: Row, branch: int, last: int) -> Row:
    """Give the row of a call, whose places are counted from 1, as it is after a position of a branch."""
    _, at, part, _, *told, _, result, result_part = row[:10]
    place = None if result is None else last + result
    return (branch, last + at, part, branch, *told, branch, place, result_part, *row[10:])
