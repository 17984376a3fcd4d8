"""Paths: branches, the spans of a path, newest branch first, and the message ids and positions on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, MessageNotFound, format_value
from recollect.model.message import Message
from recollect.storage.operation import Query, Steps, fetch_all

MessageId = str | int | Message
"""A message of a session: its id (`"1.2"`), an `int` position on the active path, or a [Message]."""

_MAX_DIGITS = 1_000
"""Digits of a branch number or position in an id. Longer texts are rejected before int(), which is quadratic."""

LAST_POSITION = (1 << 32) - 1  # the key of a SQLite message has 32 bits for the position
MAX_BRANCH_NUMBER = (1 << 31) - 1  # so that (branch << 32) | position is a positive 64-bit integer


class TreeRow(NamedTuple):
    """The key of a new tree."""

    key: int


class BranchNumberRow(NamedTuple):
    """The number of a new branch in its tree."""

    number: int


class BranchKeyRow(NamedTuple):
    """The key of a branch."""

    key: int


class BranchRow(NamedTuple):
    """A branch; `parent` is a key."""

    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int
    last: int
    open_turn: int | None
    created_at: int


class SessionBranchRow(NamedTuple):
    """A branch in the list of its session."""

    key: int
    number: int
    parent_number: int | None
    fork_at: int
    last: int
    created_at: int


class TreeBranchRow(NamedTuple):
    """A branch of a tree; `session` and `parent` are keys."""

    key: int
    number: int
    session: int | None
    parent: int | None
    fork_at: int


class PathSpan(NamedTuple):
    """A span of a path: the positions of one branch after `low`, up to `high`."""

    branch: int
    number: int
    low: int
    high: int


TREE_INSERT = Query("tree_insert", TreeRow)
TREE_BRANCH = Query("tree_branch", BranchNumberRow)
BRANCH_INSERT = Query("branch_insert", BranchKeyRow)
BRANCH_GET = Query("branch_get", BranchRow)
BRANCH_BY_NUMBER = Query("branch_by_number", BranchRow)
BRANCHES_OF_SESSION = Query("branches_of_session", SessionBranchRow)
BRANCHES_OF_TREE = Query("branches_of_tree", TreeBranchRow)
BRANCH_PATH = Query("branch_path", PathSpan)


def read_path(branch: int) -> Steps[list[PathSpan]]:
    """Return the spans of a path, newest first."""
    return fetch_all(BRANCH_PATH, branch=branch)


def reachable_positions(branches: Sequence[TreeBranchRow], sessions: Collection[int | None]) -> dict[int, int | None]:
    """Return up to which position the paths of these sessions reach into each branch of a tree; None: all of it."""
    reachable: dict[int, int | None] = {}
    # A child has a higher key than its parent, so descending order visits children first.
    for branch in sorted(branches, key=lambda item: item.key, reverse=True):
        if branch.session is not None and branch.session in sessions:
            reachable[branch.key] = None
        if branch.key in reachable and branch.parent is not None:
            position = reachable.get(branch.parent, 0)
            reachable[branch.parent] = None if position is None else max(position, branch.fork_at)
    return reachable


def branches_through(branches: Sequence[TreeBranchRow], session: int, branch: int, position: int) -> list[int]:
    """Return the keys of the branches of a session whose paths contain a message, oldest first."""
    through: set[int] = set()
    for row in sorted(branches, key=lambda item: item.key):  # a parent is older than its child
        if row.key == branch or (row.parent in through and position <= row.fork_at):
            through.add(row.key)
    return [
        row.key for row in sorted(branches, key=lambda item: item.key) if row.session == session and row.key in through
    ]


def parse_message_id(name: Any) -> tuple[int | None, int]:
    """Return the branch number and position of a message id; the branch is None for a position on the active path."""
    if isinstance(name, Message):
        return name.branch, name.position
    if type(name) is int and 0 <= name < 10**_MAX_DIGITS:
        return None, name
    if isinstance(name, str) and is_message_id(name):
        branch, _, position = name.partition(".")
        return int(branch), int(position)
    raise InvalidValue(f"{format_value(name)} is not a message id. An id is a branch and a position, such as '1.17'.")


def is_message_id(text: str) -> bool:
    """Return whether a text has the form of a message id."""
    branch, dot, position = text.partition(".")
    return bool(dot) and _is_number(branch) and _is_number(position)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def display_message_id(name: MessageId) -> str | int:
    """Return the id of a message, or an id unchanged, for an error."""
    return name.id if isinstance(name, Message) else name


def find_span(session: str, head: int, session_key: int, name: MessageId) -> Steps[PathSpan]:
    """Return the span that ends with a message, on the active path or on another branch of the session.

    Raise MessageNotFound if the session has no such position.
    """
    return (yield from find_spans(session, head, session_key, [name]))[0]


def find_spans(session: str, head: int, session_key: int, names: Sequence[MessageId]) -> Steps[list[PathSpan]]:
    """Return for each message the span that ends with it, and read the paths only once."""
    spans: list[PathSpan] = []
    head_path: list[PathSpan] | None = None
    other_paths: list[PathSpan] | None = None
    for name in names:
        number, position = parse_message_id(name)
        if position > LAST_POSITION or (number or 0) > MAX_BRANCH_NUMBER:
            raise MessageNotFound(session=session, message=display_message_id(name))
        if head_path is None:
            head_path = yield from read_path(head)
        span = _span_at(number, position, head_path)
        if span is None and number is not None:
            if other_paths is None:
                other_paths = yield from _read_paths_of_session(session_key)
            span = _span_at(number, position, other_paths)
        if span is None:
            raise MessageNotFound(session=session, message=display_message_id(name))
        spans.append(span)
    return spans


def _read_paths_of_session(session_key: int) -> Steps[list[PathSpan]]:
    """Return the spans of the paths of all branches of a session."""
    spans: list[PathSpan] = []
    for branch in (yield from fetch_all(BRANCHES_OF_SESSION, session=session_key)):
        spans += yield from read_path(branch.key)
    return spans


def _span_at(number: int | None, position: int, spans: Sequence[PathSpan]) -> PathSpan | None:
    """Return the span of a path that contains a position, cut off after it."""
    for span in spans:
        if span.low < position <= span.high and number in (None, span.number):
            return PathSpan(span.branch, span.number, span.low, position)
    return None
