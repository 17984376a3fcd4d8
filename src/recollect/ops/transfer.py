"""Taking sessions out of a store as they are stored: the outline of a tree, and rows in pages of a bounded size.

Bringing them into a store is in arrivals.py. What a file looks like is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recollect.errors import SessionNotFound
from recollect.model import json
from recollect.model.session import Session
from recollect.op import Op, Row, Scope, Steps, one, rows
from recollect.ops import sessions

PAGE_BYTES = 1_000_000
PAGE_ROWS = 256
# Where a row of messages_rows has what.
POSITION, TURN, ROLE, STATE, TOKENS, INPUT, OUTPUT, CREATED, COMPLETED, FORMAT, MODEL = range(11)
ERROR, METADATA, NATIVE, BLOBS, PARTS, DELETED = range(11, 17)


def blobs_of(row: Row) -> list[str]:
    """Name the payloads that a row of messages_rows refers to."""
    return [] if row[BLOBS] is None else json.decode(row[BLOBS])


class Listed(NamedTuple):
    """Sessions in the order in which they were made: id and tree; and where the next page begins."""

    sessions: list[tuple[str, int]]
    more: tuple[int, int] | None


class Branch(NamedTuple):
    """A branch of a tree, by keys and by number."""

    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int
    last: int
    created_at: int


class Tree(NamedTuple):
    """The sessions of a tree that were asked for, by key, and all of its branches, a parent before its child."""

    key: int
    sessions: dict[int, Session]
    branches: list[Branch]


class Page(NamedTuple):
    """A stretch of a branch: rows of messages, turns and tool calls, and where the next one begins."""

    messages: list[Row]
    turns: list[Row]
    calls: list[Row]
    more: int | None


def listed(scope: Scope, after: tuple[int, int] | None) -> Op[Listed]:
    """Read a page of all sessions that are not in the trash, the oldest first."""
    return Op(_listed, scope, after or (-1, -1), writes=False)


def _listed(scope: Scope, after: tuple[int, int]) -> Steps[Listed]:
    found = yield from rows("sessions_from", owner=scope.owner, at=after[0], key=after[1], limit=PAGE_ROWS)
    more = (found[-1][0], found[-1][1]) if len(found) == PAGE_ROWS else None
    return Listed([(row[2], row[3]) for row in found], more)


def trees(scope: Scope, ids: Sequence[str]) -> Op[dict[str, int]]:
    """Say which tree each session is in; one that is not there is an error."""
    return Op(_trees, scope, ids, writes=False)


def _trees(scope: Scope, ids: Sequence[str]) -> Steps[dict[str, int]]:
    found: dict[str, int] = {}
    for id in ids:
        found[id] = (yield from sessions.find(scope, id)).tree
    return found


def tree(key: int, ids: frozenset[str] | None) -> Op[Tree]:
    """Read the outline of a tree, with these of its sessions, or with all that are not in the trash."""
    return Op(_tree, key, ids, writes=False)


def _tree(key: int, ids: frozenset[str] | None) -> Steps[Tree]:
    chosen: dict[int, Session] = {}
    for session, id, _, deleted in (yield from rows("sessions_of_tree", tree=key)):
        if deleted is None and (ids is None or id in ids):
            row = yield from one("session_by_key", session=session)
            assert row is not None
            chosen[session] = sessions.value_of(row)
    return Tree(key, chosen, [Branch(*row) for row in (yield from rows("branches_outline", tree=key))])


def page(session: str, branch: int, low: int, high: int, *, deleted: bool) -> Op[Page]:
    """Read the next stretch of a branch after a position: as many messages as fit a page, at least one."""
    return Op(_page, session, branch, low, high, deleted, writes=False)


def _page(session: str, branch: int, low: int, high: int, deleted: bool) -> Steps[Page]:
    if (yield from one("branch_get", branch=branch)) is None:
        raise SessionNotFound(session=session)
    sizes = yield from rows("messages_sizes", branch=branch, low=low, high=high, limit=PAGE_ROWS, deleted=deleted)
    total, end = 0, high
    for index, (position, size) in enumerate(sizes):
        total += size
        if index == PAGE_ROWS - 1 or total > PAGE_BYTES:
            end = position
            break
    span = {"branch": branch, "low": low, "high": end}
    found = yield from rows("messages_rows", **span, deleted=deleted)
    turns = yield from rows("turns_of_span", **span)
    calls = yield from rows("tool_calls_of_span", **span)
    return Page(found, turns, calls, end if end < high else None)


def message(branch: int, position: int) -> Op[Row | None]:
    """Read one message."""
    return Op(_message, branch, position, writes=False)


def _message(branch: int, position: int) -> Steps[Row | None]:
    return (yield from one("message_row", branch=branch, position=position))


def blob(scope: Scope, name: str) -> Op[bytes | None]:
    """Read a payload, if it is there."""
    return Op(_blob, scope, name, writes=False)


def _blob(scope: Scope, name: str) -> Steps[bytes | None]:
    row = yield from one("blob_get", owner=scope.owner, hash=name)
    return None if row is None else row[0]


def compactions(branch: int, high: int) -> Op[list[Row]]:
    """Read the compactions of a branch up to a position."""
    return Op(_compactions, branch, high, writes=False)


def _compactions(branch: int, high: int) -> Steps[list[Row]]:
    return (yield from rows("compactions_outline", branch=branch, high=high))


def snapshots(session: int) -> Op[list[Row]]:
    """Read the snapshots of a session."""
    return Op(_snapshots, session, writes=False)


def _snapshots(session: int) -> Steps[list[Row]]:
    return (yield from rows("snapshots_outline", session=session))


def holds(scope: Scope, names: Sequence[str]) -> Op[set[str]]:
    """Say which of these payloads the store has."""
    return Op(_holds, scope, names, writes=False)


def _holds(scope: Scope, names: Sequence[str]) -> Steps[set[str]]:
    found: set[str] = set()
    for name in names:
        if (yield from one("blob_size", owner=scope.owner, hash=name)) is not None:
            found.add(name)
    return found
