"""The fast paths: the six kinds of work that an engine may do in one statement instead of an operation's steps.

An operation may carry one of these requests. The engine answers it, with the same effect as the steps and the result
named below, or does not handle it and has then written nothing; the operation then runs its steps, which also find out
why (a missing session, another revision) and raise the error. An engine needs none of them: they save round trips to a
server, and statements in a file. A test runs every operation with and without them and compares the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from recollect.model import json
from recollect.model.session import SessionCounts
from recollect.storage.operation import Query, Row

R = TypeVar("R")


ACTIVITY_RESOLUTION = 60_000
"""Milliseconds. While the order of the list stays, an append writes the activity time, and with it a page of the index,
at most this often."""


class AdvancedRow(NamedTuple):
    """A session after new messages were counted: its keys, the position before them, and the counts."""

    session: int
    head: int
    last: int
    branch: int
    open_turns: int
    revision: int
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    updated_at: int
    active_at: int
    last_message_at: int

    @property
    def counts(self) -> SessionCounts:
        """The counts and times of the session."""
        return SessionCounts(
            self.revision, self.message_count, self.token_count, self.input_tokens, self.output_tokens,
            self.updated_at, self.active_at, self.last_message_at,
        )  # fmt: skip


class StoredSessionRow(NamedTuple):
    """A session with the keys that operations need. `rare` is a JSON array of the fields that most sessions lack."""

    session: int
    tree: int
    head: int
    open_turns: int
    id: str
    created_at: int
    updated_at: int
    active_at: int
    last_message_at: int | None
    channel: str | None
    channel_id: str | None
    title: str | None
    status: str
    model: str | None
    branch: int
    revision: int
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    delegate_count: int
    rare: str | None


class ListedSessionRow(NamedTuple):
    """A session as lists show it, with its key for the cursor."""

    session: int
    id: str
    created_at: int
    updated_at: int
    active_at: int
    last_message_at: int | None
    channel: str | None
    channel_id: str | None
    title: str | None
    status: str
    model: str | None
    branch: int
    revision: int
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    delegate_count: int
    rare: str | None


class NewestMessageRow(NamedTuple):
    """One of the last messages of a session, with its branch; `rare` holds the columns that most messages lack."""

    parts: bytes
    position: int
    role: str
    created_at: int
    turn: int | None
    tokens: int
    format: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    native: str | None
    rare: str | None
    head: int
    number: int
    last: int
    fork_at: int


MESSAGES_LAST = Query("messages_last", NewestMessageRow)


def encode_keys(keys: Sequence[str]) -> str:
    """Return keys as the queries on several keys take them. JSON cannot carry every character into a text column."""
    return json.encode([key.encode().hex(" ") for key in keys])


class FastPath(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A request for a fast path, whose result has the type R. The fields are the parameters of a statement."""

    owner: str


class AppendRequest(FastPath[AdvancedRow], frozen=True, gc=False):
    """Append messages to the head branch of a session, with their tool calls.

    Not handled: the session is missing, in the trash, or its revision is not `expected`.
    """

    id: str
    now: int
    messages: int
    tokens: int
    input_tokens: int
    output_tokens: int
    expected: int | None
    rows: Sequence[Row]
    """The columns of each message (storage.messages.MESSAGE_COLUMNS)."""
    calls: Sequence[Row]
    """Their tool calls, with positions counted from 1, the first of these messages."""


class KeyedAppendRequest(AppendRequest, frozen=True, gc=False):
    """Append messages of which some have keys, with their tool calls.

    Not handled: as for AppendRequest, or a message has one of the keys, in any session.
    """

    keys: Sequence[str | None]
    """The key of each message."""


class SaveTurnRequest(AppendRequest, frozen=True, gc=False):
    """Append the messages of a complete turn, and the turn.

    Not handled: as for AppendRequest, or a turn is open in the session.
    """

    turn: Row
    """The columns of the turn: from its status to its error, without its position and holder."""


class OpenSessionRequest(FastPath[list[StoredSessionRow]], frozen=True, gc=False):
    """Read a session by its id: its row; none if it is missing or in the trash."""

    id: str


class EnsureSessionRequest(FastPath[StoredSessionRow], frozen=True, gc=False):
    """Create a session with its tree and first branch.

    Not handled: it exists, or the parent is missing.
    """

    id: str
    now: int
    parent: str | None
    """The id of the parent of a new session; `columns` has the relation to it."""
    columns: Mapping[str, Any]
    """The columns of a new session, and the sort key of its title, `folded`."""


class LastMessagesRequest(FastPath[list[NewestMessageRow]], frozen=True, gc=False):
    """Read the last messages of the head branch of a session: the rows of the query messages_last."""

    id: str
    limit: int
    deleted: bool


class ListSessionsRequest(FastPath[list[ListedSessionRow]], frozen=True, gc=False):
    """Read a page of a list that has one stage, or the first page of the list with pinned sessions first.

    Not handled: too many sessions are pinned.
    """

    query: str | None
    """The name of the query, which returns ListedSessionRow. None: pinned sessions first, by a query of the engine."""
    params: Mapping[str, Any]
    """The parameters of the query; `limit` and `sort_limit` if pinned sessions come first."""


FAST_PATHS: tuple[type[FastPath[Any]], ...] = (
    AppendRequest, KeyedAppendRequest, SaveTurnRequest, OpenSessionRequest, EnsureSessionRequest, LastMessagesRequest,
    ListSessionsRequest,
)  # fmt: skip
"""Every fast path that exists."""
