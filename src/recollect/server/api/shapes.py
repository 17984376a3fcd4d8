"""What the API answers with: the values of the store as JSON, times as ISO 8601.

The fields are those of the values, which docs/library.md describes. A test compares the two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from recollect.model.message import Role, State
from recollect.model.part import CallStatus, Part
from recollect.model.repair import RepairKind
from recollect.model.session import Relation, Status
from recollect.model.snapshot import SnapshotKind
from recollect.model.turn import TurnStatus

MessageId = Annotated[str, Meta(description="A message's permanent id: branch and position.", examples=["1.17"])]
Next = Annotated[str | None, Meta(description="Where to go on: give it as `after`. Null: this is the last.")]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer has in common: nothing but its form."""


class Session(Shape, frozen=True, kw_only=True):
    """What is known about a conversation. Counts are those of its active path."""

    id: Annotated[str, Meta(examples=["cli:default"])]
    created_at: datetime
    updated_at: datetime
    active_at: datetime
    last_message_at: datetime | None
    channel: str | None
    channel_id: str | None
    title: str | None
    status: Status
    model: str | None
    branch: Annotated[int, Meta(description="The branch that the session stands on.")]
    revision: Annotated[int, Meta(description="Rises with every change; also the ETag.")]
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    data_schema_version: int
    delegate_count: int
    parent: str | None
    relation: Relation | None
    external_id: str | None
    task: str | None
    provider: str | None
    provider_config: str | None
    working_dir: str | None
    system_prompt: str | None
    color: str | None
    pinned_at: datetime | None
    archived_at: datetime | None
    deleted_at: datetime | None
    metadata: dict[str, Any] | None
    running: Annotated[bool, Meta(description="Whether this server writes an answer in it now.")]


class Sessions(Shape, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: list[Session]
    next: Next


class Message(Shape, frozen=True, kw_only=True):
    """A message in its place."""

    id: MessageId
    branch: int
    position: int
    role: Role
    parts: list[Part]
    created_at: datetime
    turn: Annotated[int | None, Meta(description="The position of the message that opened its turn.")]
    tokens: int
    format: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    native: dict[str, Any] | None
    state: State
    completed_at: datetime | None
    deleted_at: datetime | None
    error: Any
    metadata: dict[str, Any] | None


class Messages(Shape, frozen=True, kw_only=True):
    """A page of messages, the oldest first, and how to go on in either direction."""

    messages: list[Message]
    before: Annotated[str | None, Meta(description="Give it as `before` for the messages before these.")]
    next: Annotated[str | None, Meta(description="Give it as `after` for the messages after these.")]
    revision: int


class Appended(Shape, frozen=True, kw_only=True):
    """What an append made."""

    ids: list[str]
    branch: int
    first: int
    count: int
    revision: int
    repeated: Annotated[bool, Meta(description="Whether the same had been made before, under the same key.")]


class Repair(Shape, frozen=True, kw_only=True):
    """Something that a provider would refuse, mended in the view that is sent."""

    kind: RepairKind
    message: str
    sentence: str
    call_id: str | None


class History(Shape, frozen=True, kw_only=True):
    """What a provider accepts next, in its own form, and what was mended in it."""

    format: str
    messages: list[Any]
    repairs: list[Repair]
    revision: int


class Turn(Shape, frozen=True, kw_only=True):
    """One run. It is named after its first message, which opened it."""

    id: MessageId
    branch: int
    position: int
    status: TurnStatus
    holder: str | None
    lease_until_at: datetime | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: int | None
    error: Any
    started_at: datetime
    ended_at: datetime | None


class Turns(Shape, frozen=True, kw_only=True):
    """A page of turns, the oldest first."""

    turns: list[Turn]
    next: Next


class ToolCall(Shape, frozen=True, kw_only=True):
    """The life of one invocation."""

    message: MessageId
    part: int
    call_id: str
    tool: str
    status: CallStatus
    result_message: str | None
    result_part: int | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    latency_ms: int | None


class ToolCalls(Shape, frozen=True, kw_only=True):
    """A page of tool calls, the oldest first."""

    tool_calls: list[ToolCall]
    next: Next


class Branch(Shape, frozen=True, kw_only=True):
    """A path through the tree of a session."""

    id: int
    parent: int | None
    fork_at: int
    last: int
    current: bool
    created_at: datetime


class Branches(Shape, frozen=True, kw_only=True):
    """A page of branches."""

    branches: list[Branch]
    next: Next


class Compaction(Shape, frozen=True, kw_only=True):
    """A span of a path, and the summary that stands in its place when history is sent."""

    id: int
    branch: int
    from_position: int
    to_position: int
    round: int
    tokens_before: int
    tokens_after: int
    summary: str
    created_at: datetime
    undone_at: datetime | None


class Compactions(Shape, frozen=True, kw_only=True):
    """A page of compactions, the oldest first."""

    compactions: list[Compaction]
    next: Next


class Snapshot(Shape, frozen=True, kw_only=True):
    """A title, summary or memory made from a session up to a message."""

    id: int
    kind: SnapshotKind
    content: Any
    message: str | None
    tokens: int
    created_at: datetime
    updated_at: datetime


class Snapshots(Shape, frozen=True, kw_only=True):
    """A page of snapshots, the oldest first."""

    snapshots: list[Snapshot]
    next: Next


class Hit(Shape, frozen=True, kw_only=True):
    """What a search found, and where."""

    session: str
    title: str | None
    kind: str
    text: str
    marks: Annotated[list[list[int]], Meta(description="Where in `text` the hits are: from, to.")]
    score: float
    created_at: datetime
    message: str | None
    role: str | None
    tool: str | None
    channel: str | None
    archived_at: datetime | None
    deleted_at: datetime | None
    parent: str | None
    snippet: Annotated[str, Meta(description="The text with `<mark>` around each hit. Not escaped for HTML.")]


class Hits(Shape, frozen=True, kw_only=True):
    """A page of hits, the best first. `hindered` says why what was said last was not looked at; null where it was."""

    hits: list[Hit]
    next: Next
    hindered: str | None


class Run(Shape, frozen=True, kw_only=True):
    """A turn that has begun: follow it at `events`, or read what it stored when it has ended."""

    session: str
    turn: MessageId
    running: bool
    events: Annotated[str, Meta(examples=["/api/v1/sessions/cli%3Adefault/events"])]
