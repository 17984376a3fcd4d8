"""The records of an export, one JSON object each: rows of the store as structs, and structs as rows again.

docs/export.md describes them as a contract. What a file says is checked here before anything is stored.
"""

from __future__ import annotations

import json as standard
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from recollect.errors import InvalidValue
from recollect.model import blob, json, keys
from recollect.model.message import Count, Role
from recollect.model.part import CallStatus, Part
from recollect.model.session import DATA_SCHEMA_VERSION, TEXT_FIELDS, Relation, Session, Status
from recollect.model.snapshot import SnapshotKind
from recollect.model.turn import TurnStatus
from recollect.model.value import iso, milliseconds
from recollect.op import Row
from recollect.ops import sessions
from recollect.ops.transfer import BLOBS, Branch

FORMAT = "recollect-export"
VERSION = 1
LATEST = 253_402_300_799_999
"""The last millisecond that ISO 8601 has four digits of a year for; a later time is written as a number."""

Time = str | Count
Position = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
Start = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Number = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Unfinished = Literal["pending", "streaming", "interrupted", "error"]
_Parts = tuple[Part, ...]


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
    channel: str | None = None
    channel_id: str | None = None
    external_id: str | None = None
    provider: str | None = None
    provider_config: str | None = None
    model: str | None = None
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


Any_ = (
    Header | SessionRecord | BranchRecord | BlobRecord | MessageRecord | TurnRecord | ToolCallRecord | CompactionRecord
    | SnapshotRecord
)  # fmt: skip
TYPES = frozenset({"header", "session", "branch", "blob", "message", "turn", "tool_call", "compaction", "snapshot"})

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Any_)


def encode(record: Record) -> bytes:
    """Write a record on one line."""
    return _encoder.encode(record)


def decode(text: bytes) -> Any_:
    """Read a record; what is not one is refused with a reason."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidValue(_plain(error)) from error
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


def converted(value: Any) -> Any_:
    """Make a record of plain data."""
    try:
        return msgspec.convert(value, Any_)
    except msgspec.ValidationError as error:
        raise InvalidValue(_plain(error)) from error


def _refused(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")


def _plain(error: msgspec.ValidationError) -> str:
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
        raise InvalidValue(f"{value!r} is no time. Write it as ISO 8601: 2025-11-16T10:00:00.123Z.") from error
    if found < 0:
        raise InvalidValue(f"{value!r} is before 1970.")
    return found


def raw(text: str | None) -> msgspec.Raw | None:
    """Give stored JSON as it is."""
    return None if text is None else msgspec.Raw(text.lstrip(" ").encode())


def of_session(value: Session, tree: int) -> SessionRecord:
    """Write what is known about a session."""
    fields = {name: getattr(value, name) for name in SessionRecord.__struct_fields__ if hasattr(value, name)}
    fields |= {name: time(found) for name, found in fields.items() if name.endswith("_at")}
    if value.metadata is not None:
        fields["metadata"] = raw(json.encode(value.metadata))
    return SessionRecord(**fields, tree=tree)


def of_branch(session: str, branch: Branch, parent: int | None, last: int, *, shared: bool) -> BranchRecord:
    """Write a branch."""
    return BranchRecord(
        session=session, id=branch.number, parent=parent, fork_at=branch.fork_at, last=last, shared=shared,
        created_at=time(branch.created_at),
    )  # fmt: skip


def of_message(session: str, number: int, row: Row) -> MessageRecord:
    """Write a message."""
    (position, turn, role, state, tokens, given, taken, created, completed, format, model, error, metadata, native,
     blobs, parts, deleted) = row  # fmt: skip
    return MessageRecord(
        session=session, id=f"{number}.{position}", role=role, created_at=time(created), turn=turn, state=state,
        completed_at=time(completed), deleted_at=time(deleted), tokens=tokens, input_tokens=given, output_tokens=taken,
        format=format, model=model, error=raw(error), metadata=raw(metadata), native=raw(native), blobs=raw(blobs),
        parts=raw(parts),
    )  # fmt: skip


def of_turn(session: str, number: int, row: Row) -> TurnRecord:
    """Write a turn. Who holds an open one is left out: it is a process of the machine that wrote it."""
    position, status, started, ended, latency, given, taken, model, error, _, _ = row
    return TurnRecord(
        session=session, id=f"{number}.{position}", status=status, started_at=time(started), ended_at=time(ended),
        latency_ms=latency, input_tokens=given, output_tokens=taken, model=model, error=raw(error),
    )  # fmt: skip


def of_call(session: str, number: int, row: Row, branch: int) -> ToolCallRecord:
    """Write a tool call; `branch` is the number of the branch that the row speaks for."""
    (position, part, _, call_id, tool, status, result, result_part, created, started, completed, latency, code,
     message) = row  # fmt: skip
    return ToolCallRecord(
        session=session, message=f"{number}.{position}", part=part, branch=branch, call_id=call_id, tool=tool,
        status=status, result=result, result_part=result_part, created_at=time(created), started_at=time(started),
        completed_at=time(completed), latency_ms=latency, error_code=code, error_message=message,
    )  # fmt: skip


def of_compaction(session: str, branch: int, row: Row) -> CompactionRecord:
    """Write a compaction."""
    first, last, round_, before, after, summary, created, undone = row
    return CompactionRecord(
        session=session, branch=branch, from_position=first, to_position=last, round=round_, tokens_before=before,
        tokens_after=after, summary=summary, created_at=time(created), undone_at=time(undone),
    )  # fmt: skip


def of_snapshot(session: str, row: Row, number: int) -> SnapshotRecord:
    """Write a snapshot."""
    kind, content, _, position, tokens, created, updated = row
    return SnapshotRecord(
        session=session, kind=kind, message=f"{number}.{position}", content=raw(content), tokens=tokens,
        created_at=time(created), updated_at=time(updated),
    )  # fmt: skip


def place(name: str, first: int = 1) -> tuple[int, int]:
    """Read a message's id. A snapshot may reach to before the first message, which is written as position 0."""
    branch, dot, position = name.partition(".")
    if dot and branch.isascii() and branch.isdecimal() and position.isascii() and position.isdecimal():
        found = int(branch[:11]), int(position[:11])  # more digits are too many anyway
        if 0 < found[0] < 1 << 31 and first <= found[1] < 1 << 32:
            return found
    raise InvalidValue(f"{name!r} is no message id. An id looks like '1.17': branch and position.")


def session_columns(record: SessionRecord, soonest: int) -> dict[str, Any]:
    """Give the columns of a session, checked. Activity is not taken from the future beyond `soonest`."""
    keys.checked(record.id)
    if record.data_schema_version > DATA_SCHEMA_VERSION:
        raise InvalidValue("It was written by a newer Recollect. Upgrade with `pip install -U recollect`.")
    given = {name: getattr(record, name) for name in TEXT_FIELDS}
    columns = sessions.checked_fields({**given, "metadata": record.metadata}, 0)
    for name in ("created_at", "updated_at", "last_message_at", "pinned_at", "archived_at"):
        columns[name] = moment(getattr(record, name))
    columns["active_at"] = min(moment(record.active_at), soonest)
    return {
        **columns, "relation": record.relation, "revision": record.revision,
        "data_schema_version": record.data_schema_version,
    }  # fmt: skip


def message_row(record: MessageRecord) -> tuple[int, Row, Mapping[str, bytes]]:
    """Give the number of a message's branch, its row, and payloads that were inside it."""
    number, position = place(record.id)
    parts, blobs, payloads = _parts(record)
    if record.turn is not None and record.turn > position:
        raise InvalidValue("Its turn begins after it.")
    state = None if record.state == "completed" else record.state
    row = (
        position, record.turn, record.role, state, record.tokens, record.input_tokens, record.output_tokens,
        moment(record.created_at), moment(record.completed_at), _stored(record.format), _stored(record.model),
        _json(record.error), _object(record.metadata), _object(record.native), blobs, parts, moment(record.deleted_at),
    )  # fmt: skip
    return number, row, payloads


def _parts(record: MessageRecord) -> tuple[str, str | None, Mapping[str, bytes]]:
    given = json.exact(record.parts)
    names = _Names()
    try:
        whole = given if record.blobs is None else blob.attach(given, names)
        parts: tuple[Part, ...] = msgspec.convert(whole, _Parts)
    except msgspec.ValidationError as error:
        raise InvalidValue(_plain(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidValue("The mark of an attachment in its parts is malformed.") from error
    if record.blobs is not None:
        for name in names.asked:
            _check_hash(name)
        return json.encode(given), json.encode(sorted(names.asked)), {}
    text = json.encode(given)
    if blob.worth_a_look(text):
        thinned, found = blob.detach(parts)
        if found is not None:
            return json.encode(thinned), json.encode(sorted(found)), found
    return text, None, {}


class _Names(dict[str, bytes]):
    """Takes note of the payloads that are asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __missing__(self, name: str) -> bytes:
        self.asked.add(name)
        return b""


def _check_hash(name: Any) -> None:
    if not isinstance(name, str) or len(name) != 64 or not set(name) <= set("0123456789abcdef"):  # noqa: PLR2004
        raise InvalidValue("The mark of an attachment in its parts has no hash.")


def blobs_of(row: Row) -> list[str]:
    """Name the payloads that a row refers to."""
    return [] if row[BLOBS] is None else json.decode(row[BLOBS])


def _stored(text: str | None) -> str | None:
    return None if text is None else json.storable(text)


def _json(value: Any) -> str | None:
    return None if value is None else json.encode(json.exact(value))


def _object(value: Any) -> str | None:
    if value is not None and not isinstance(value, dict):
        raise InvalidValue("metadata and native are JSON objects.")
    return _json(value)


def turn_columns(record: TurnRecord) -> tuple[int, dict[str, Any]]:
    """Give the number of a turn's branch, and its columns."""
    number, position = place(record.id)
    return number, {
        "position": position, "status": record.status, "started_at": moment(record.started_at),
        "ended_at": moment(record.ended_at), "latency_ms": record.latency_ms, "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens, "model": _stored(record.model), "error": _json(record.error),
    }  # fmt: skip


def call_row(record: ToolCallRecord, branch: int) -> Row:
    """Give the row of a tool call; `branch` is the key of the branch that it speaks for."""
    if (record.result is None) != (record.result_part is None):
        raise InvalidValue("A tool call's result has a position and a part, or neither.")
    return (
        place(record.message)[1], record.part, branch, _stored(record.call_id), _stored(record.tool), record.status,
        record.result, record.result_part, moment(record.created_at), moment(record.started_at),
        moment(record.completed_at), record.latency_ms, _stored(record.error_code), _stored(record.error_message),
    )  # fmt: skip


def compaction_columns(record: CompactionRecord) -> dict[str, Any]:
    """Give the columns of a compaction."""
    names = ("from_position", "to_position", "round", "tokens_before", "tokens_after")
    return {
        **{name: getattr(record, name) for name in names}, "summary": json.storable(record.summary),
        "created_at": moment(record.created_at), "undone_at": moment(record.undone_at),
    }  # fmt: skip


def snapshot_columns(record: SnapshotRecord, branch: int) -> dict[str, Any]:
    """Give the columns of a snapshot; `branch` is the key of the branch of its message."""
    return {
        "kind": record.kind, "content": json.encode(json.exact(record.content)), "branch": branch,
        "position": place(record.message, 0)[1], "tokens": record.tokens, "created_at": moment(record.created_at),
        "updated_at": moment(record.updated_at),
    }  # fmt: skip
