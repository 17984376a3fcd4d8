"""Response schemas of the API: the store's values as JSON, with times in ISO 8601.

The fields are those of the values, which docs/reference/library.md describes. A test compares the two. A
class name without `Schema` is a component name in docs/openapi.json.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from recollect.model.message import CallStatus, MessageState, Part, RepairKind, Role
from recollect.model.session import SessionInfo, SnapshotKind
from recollect.model.turn import TurnStatus

MessageIdField = Annotated[
    str, Meta(description="The permanent id of a message: branch and position.", examples=["1.17"])
]
Next = Annotated[str | None, Meta(description="Pass it as `after` to read the next page. Null on the last page.")]


class ResponseSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all response schemas. It has no fields."""


def _session_fields() -> list[tuple[str, Any]]:
    """Return the fields of a session as the API returns them: those of the value, with times as datetime."""
    times = {int: datetime, int | None: datetime | None}
    fields: dict[str, Any] = {
        field.encode_name: field.type if field.name == field.encode_name else times[field.type]
        for field in msgspec.structs.fields(SessionInfo)
    }
    fields["id"] = Annotated[str, Meta(examples=["cli:default"])]
    fields["branch"] = Annotated[int, Meta(description="The active branch.")]
    fields["revision"] = Annotated[int, Meta(description="Increases with every change; also the ETag.")]
    fields["running"] = Annotated[bool, Meta(description="Whether a turn runs in it on this server.")]
    return list(fields.items())


if TYPE_CHECKING:

    class SessionSchema(ResponseSchema, frozen=True, kw_only=True):
        """A session. Counts are those of its active path."""

else:
    SessionSchema = msgspec.defstruct(
        "SessionSchema", _session_fields(), bases=(ResponseSchema,), module=__name__, frozen=True, kw_only=True,
        namespace={"__doc__": "A session. Counts are those of its active path."},
    )  # fmt: skip


class SessionsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: list[SessionSchema]
    next: Next


class MessageSchema(ResponseSchema, frozen=True, kw_only=True):
    """A stored message."""

    id: MessageIdField
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
    state: MessageState
    completed_at: datetime | None
    deleted_at: datetime | None
    error: Any
    metadata: dict[str, Any] | None
    key: Annotated[str | None, Meta(description="The caller's key, unique among the messages of a path.")]
    edited_at: Annotated[datetime | None, Meta(description="When its content was last replaced.")]


class MessagesSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of messages, oldest first, with cursors in both directions."""

    messages: list[MessageSchema]
    before: Annotated[str | None, Meta(description="Pass it as `before` to read earlier messages.")]
    next: Annotated[str | None, Meta(description="Pass it as `after` to read later messages.")]
    revision: int


class AppendedSchema(ResponseSchema, frozen=True, kw_only=True):
    """The result of an append."""

    ids: list[str]
    branch: int
    first: int
    count: int
    revision: int
    repeated: Annotated[bool, Meta(description="Whether nothing was stored, because earlier requests stored it.")]


class RepairSchema(ResponseSchema, frozen=True, kw_only=True):
    """A repair: a correction in the history of something that the provider would reject."""

    kind: RepairKind
    message: str
    sentence: str
    call_id: str | None


class HistorySchema(ResponseSchema, frozen=True, kw_only=True):
    """The history to send to a provider, in its format, and the repairs made in it."""

    format: str
    messages: list[Any]
    repairs: list[RepairSchema]
    revision: int


class TurnSchema(ResponseSchema, frozen=True, kw_only=True):
    """A turn. Its id is the id of its first message."""

    id: MessageIdField
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


class TurnsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of turns, oldest first."""

    turns: list[TurnSchema]
    next: Next


class ToolCallSchema(ResponseSchema, frozen=True, kw_only=True):
    """A tool call and its status."""

    message: MessageIdField
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


class ToolCallsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of tool calls, oldest first."""

    tool_calls: list[ToolCallSchema]
    next: Next


class BranchSchema(ResponseSchema, frozen=True, kw_only=True):
    """A branch of a session."""

    id: int
    parent: int | None
    fork_at: int
    last: int
    current: bool
    created_at: datetime


class BranchesSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of branches."""

    branches: list[BranchSchema]
    next: Next


class CompactionSchema(ResponseSchema, frozen=True, kw_only=True):
    """A range of a path, and the summary that replaces it in the history."""

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


class CompactionsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of compactions, oldest first."""

    compactions: list[CompactionSchema]
    next: Next


class SnapshotSchema(ResponseSchema, frozen=True, kw_only=True):
    """A title, summary or memory of a session up to a message."""

    id: int
    kind: SnapshotKind
    content: Any
    message: str | None
    tokens: int
    created_at: datetime
    updated_at: datetime


class SnapshotsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of snapshots, oldest first."""

    snapshots: list[SnapshotSchema]
    next: Next


class RecordSchema(ResponseSchema, frozen=True, kw_only=True):
    """A keyed record: JSON in `value`, or bytes as base64 in `data`. A record of the store has no session."""

    kind: str
    key: str
    revision: Annotated[int, Meta(description="Increases with every change; also the ETag.")]
    value: Any | UnsetType = UNSET
    data: str | UnsetType = UNSET
    session: str | None
    created_at: datetime
    updated_at: datetime


class RecordsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of records, ordered by key."""

    records: list[RecordSchema]
    next: Next


class HitSchema(ResponseSchema, frozen=True, kw_only=True):
    """A search hit."""

    session: str
    title: str | None
    kind: str
    text: str
    marks: Annotated[list[list[int]], Meta(description="The ranges of `text` that match: start, end.")]
    score: float
    created_at: datetime
    message: str | None
    role: str | None
    tool: str | None
    channel: str | None
    archived_at: datetime | None
    deleted_at: datetime | None
    parent: str | None
    snippet: Annotated[str, Meta(description="The text with `<mark>` around each match. Not escaped for HTML.")]


class HitsSchema(ResponseSchema, frozen=True, kw_only=True):
    """A page of hits, best first. `index_error` is the reason why the latest messages were not searched, or null."""

    hits: list[HitSchema]
    next: Next
    index_error: str | None


class RunSchema(ResponseSchema, frozen=True, kw_only=True):
    """A turn that has started. Follow it at `events`, or read its messages when it has ended."""

    session: str
    turn: MessageIdField
    running: bool
    events: Annotated[str, Meta(examples=["/api/v1/sessions/cli%3Adefault/events"])]
