"""The records of an export, one JSON object each. docs/export.md describes them as a contract."""

from __future__ import annotations

import json as standard
from typing import Annotated, Any, Literal

import msgspec

from recollect.errors import InvalidValue, displayed
from recollect.model import keys
from recollect.model.message import Count, Role
from recollect.model.part import CallStatus
from recollect.model.session import DATA_SCHEMA_VERSION, Relation, Status
from recollect.model.snapshot import SnapshotKind
from recollect.model.turn import TurnStatus
from recollect.model.value import iso, milliseconds

FORMAT = "recollect-export"
VERSION = 1
LATEST = 253_402_300_799_999
"""The last millisecond that ISO 8601 has four digits of a year for; a later time is written as a number."""

Time = str | Count
Position = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
Start = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Number = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Name = Annotated[str, msgspec.Meta(max_length=keys.LONGEST)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Unfinished = Literal["pending", "streaming", "interrupted", "error"]


class Record(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """One line of an export."""


class Header(Record, kw_only=True, tag="header"):
    """The first line: what follows, and in which version."""

    format: str = ""
    version: int = 0
    """0 where a document was sorted, so that it is not known yet."""
    redacted: bool = False
    deleted: bool = True
    """Whether deleted messages are in it."""


class SessionRecord(Record, kw_only=True, tag="session"):
    """What is known about a session. Sessions with the same `tree` share branches."""

    id: str
    tree: int = 1
    branch: Number = 1
    revision: Count = 0
    created_at: Time
    updated_at: Time
    active_at: Time
    last_message_at: Time | None = None
    parent: str | None = None
    relation: Relation | None = None
    status: Status = "active"
    title: str | None = None
    task: str | None = None
    channel: Name | None = None
    channel_id: str | None = None
    external_id: str | None = None
    provider: str | None = None
    provider_config: str | None = None
    model: Name | None = None
    working_dir: str | None = None
    system_prompt: str | None = None
    color: str | None = None
    pinned_at: Time | None = None
    archived_at: Time | None = None
    metadata: Any = None
    message_count: Count = 0
    token_count: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    data_schema_version: int = DATA_SCHEMA_VERSION


class BranchRecord(Record, kw_only=True, tag="branch"):
    """A branch of a session; `shared` where it belongs to another one, and only what is shared is in the file."""

    session: str
    id: Number
    parent: Number | None = None
    fork_at: Start = 0
    last: Start = 0
    shared: bool = False
    created_at: Time


class BlobRecord(Record, kw_only=True, tag="blob"):
    """A large payload, once in a file, before the first message that refers to it."""

    session: str
    hash: Hash
    size: int
    data: Any


class MessageRecord(Record, kw_only=True, tag="message"):
    """A message as it is stored."""

    session: str
    id: str
    role: Role
    created_at: Time
    turn: Position | None = None
    state: Unfinished | Literal["completed"] | None = None
    completed_at: Time | None = None
    deleted_at: Time | None = None
    tokens: Count = 0
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    format: str | None = None
    model: str | None = None
    error: Any = None
    metadata: Any = None
    native: Any = None
    blobs: Any = None
    parts: Any


class TurnRecord(Record, kw_only=True, tag="turn"):
    """A turn, named after its first message."""

    session: str
    id: str
    status: TurnStatus
    started_at: Time
    ended_at: Time | None = None
    latency_ms: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    model: str | None = None
    error: Any = None


class ToolCallRecord(Record, kw_only=True, tag="tool_call"):
    """A tool call and how it went; `branch` is the one that this record speaks for."""

    session: str
    message: str
    part: Start
    branch: Number
    call_id: str
    tool: str
    status: CallStatus
    result: Position | None = None
    result_part: Start | None = None
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None
    latency_ms: Count | None = None
    error_code: str | None = None
    error_message: str | None = None


class CompactionRecord(Record, kw_only=True, tag="compaction"):
    """A span of a branch and its summary."""

    session: str
    branch: Number
    from_position: Start
    to_position: Start
    round: Count
    tokens_before: Count
    tokens_after: Count
    summary: str
    created_at: Time
    undone_at: Time | None = None


class SnapshotRecord(Record, kw_only=True, tag="snapshot"):
    """A title, summary or memory, and the message that it reaches."""

    session: str
    kind: SnapshotKind
    message: str
    content: Any
    tokens: Count = 0
    created_at: Time
    updated_at: Time


AnyRecord = (
    Header | SessionRecord | BranchRecord | BlobRecord | MessageRecord | TurnRecord | ToolCallRecord | CompactionRecord
    | SnapshotRecord
)  # fmt: skip
TYPES = frozenset({"header", "session", "branch", "blob", "message", "turn", "tool_call", "compaction", "snapshot"})

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def encode(record: Record) -> bytes:
    """Write a record on one line."""
    return _encoder.encode(record)


def decode(text: bytes) -> AnyRecord:
    """Read a record; what is not one is refused with a reason."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidValue(worded(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return converted(plain(text))


def plain(text: bytes) -> Any:
    """Read JSON with the standard module: half a surrogate pair, and words for what is wrong."""
    try:
        return standard.loads(text.decode(), parse_constant=_refused)
    except UnicodeDecodeError as error:
        raise InvalidValue("It is not UTF-8.") from error
    except RecursionError as error:
        raise InvalidValue("It is nested too deep.") from error
    except ValueError as error:
        raise InvalidValue(f"It is not JSON: {error}.") from error


def converted(value: Any) -> AnyRecord:
    """Make a record of plain data."""
    try:
        return msgspec.convert(value, AnyRecord)
    except msgspec.ValidationError as error:
        raise InvalidValue(worded(error)) from error


def _refused(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")


def worded(error: msgspec.ValidationError) -> str:
    """Say in a sentence what is wrong with a record."""
    return f"It is no record of an export: {str(error).replace('`$.', '`').replace('`$`', 'the record')}."


def time(value: int | None) -> Any:
    """Write a time."""
    return value if value is None or value > LATEST else iso(value)


def moment(value: Any) -> Any:
    """Read a time; None stays None."""
    if not isinstance(value, str):
        return value
    try:
        found = milliseconds(value)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"{displayed(value)} is no time. Write it as ISO 8601: 2025-11-16T10:00:00.123Z.") from error
    if found < 0:
        raise InvalidValue(f"{displayed(value)} is before 1970.")
    return found


def place(name: str, first: int = 1) -> tuple[int, int]:
    """Read a message's id. A snapshot may reach to before the first message, which is written as position 0."""
    branch, dot, position = name.partition(".")
    if dot and branch.isascii() and branch.isdecimal() and position.isascii() and position.isdecimal():
        found = int(branch[:11]), int(position[:11])  # more digits are too many anyway
        if 0 < found[0] < 1 << 31 and first <= found[1] < 1 << 32:
            return found
    raise InvalidValue(f"{displayed(name)} is no message id. An id looks like '1.17': branch and position.")
