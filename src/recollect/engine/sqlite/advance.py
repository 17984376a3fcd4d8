"""Counting what is appended, in two steps: the row is read, and written as it then stands.

One statement with RETURNING does the same, and takes twice as long: SQLite gathers what is returned in a table of its
own. Other engines, where each statement is a journey, have it as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import apsw

from recollect.op import Row

Procedure = Callable[[apsw.Connection, Mapping[str, Any]], list[Row]]


def advancing(look: str, write: str) -> Procedure:
    """Make what runs `session_advance`: a SELECT, and then an UPDATE by key."""

    def advance(connection: apsw.Connection, params: Mapping[str, Any]) -> list[Row]:
        found: list[Row] = connection.execute(look, params).fetchall()
        if not found:
            return found
        key, head, last, branch, behind, turns, revision, count, tokens, given, taken, updated, active, said = found[0]
        messages, now = params["messages"], params["now"]
        revision += 1
        count += messages
        tokens += params["tokens"]
        given += params["input_tokens"]
        taken += params["output_tokens"]
        updated = max(updated, now)
        said = now if said is None or said < now else said
        connection.execute(write, (last + messages, revision, count, tokens, given, taken, updated, said, key))
        return [(key, head, last, branch, behind, turns, revision, count, tokens, given, taken, updated, active, said)]

    return advance
