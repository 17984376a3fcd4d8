"""The records of an export, one JSON object each, and their conversion from and to rows of the store.

docs/reference/export.md specifies the records. A record from a file is validated before it becomes a row.
"""

from __future__ import annotations

import base64
import json as standard
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.model import blob, json, session_ids, validation
from recollect.model.message import Count, FormerCallStatus, Part, Role, UnfinishedState, respell_parts, respell_status
from recollect.model.record import check_new_key, check_writable_kind
from recollect.model.session import DATA_SCHEMA_VERSION, TEXT_FIELDS, Relation, SessionInfo, SessionStatus, SnapshotKind
from recollect.model.turn import TurnStatus
from recollect.model.value import LATEST_TIME, format_iso, json_fields, parse_iso
from recollect.storage import sessions
from recollect.storage.messages import MessageParts
from recollect.storage.row_stream import (
    BranchOutline,
    FullCallRow,
    FullCompactionRow,
    FullMessageRow,
    FullRecordRow,
    FullSnapshotRow,
    FullVersionRow,
    TurnRow,
)
from recollect.storage.transfer import IMPORT_HOLDER

FORMAT = "recollect-export"
VERSION = 1  # of the records. Raised when older programs could not read them; an import refuses newer versions.

Time = str | Count
Position = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
Start = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Number = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Name = Annotated[str, msgspec.Meta(max_length=512)] | None
"""A channel or a model: PostgreSQL indexes them."""
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ExportRecord(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """One line of an export."""


class HeaderRecord(ExportRecord, kw_only=True, tag="header"):
    """The first line: the format and its version."""

    format: str = ""
    version: int = 0
    """0 if a document was sorted by key, so that the version comes after the sessions."""
    redacted: bool = False
    deleted: bool = True
    """Whether the file includes deleted messages."""


class SessionIdentity(ExportRecord, kw_only=True):
    """The fields of a session that a caller does not set."""

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


_TEXT_TYPES: dict[str, Any] = {"status": SessionStatus, "channel": Name, "model": Name}
# The text fields are those of the model, so that a new one is exported and imported.
_SessionTexts = cast(
    "type[SessionIdentity]",
    msgspec.defstruct(
        "_SessionTexts",
        [
            (name, _TEXT_TYPES.get(name, str | None), "active" if name == "status" else None)
            for name in SessionInfo.__struct_fields__
            if name in TEXT_FIELDS
        ],
        bases=(SessionIdentity,),
        kw_only=True,
    ),
)


class SessionRecord(_SessionTexts, kw_only=True, tag="session"):
    """The fields of a session. Sessions with the same `tree` share branches."""

    pinned_at: Time | None = None
    archived_at: Time | None = None
    labels: tuple[str, ...] = ()
    metadata: Any = None
    message_count: Count = 0
    token_count: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    data_schema_version: int = DATA_SCHEMA_VERSION


class BranchRecord(ExportRecord, kw_only=True, tag="branch"):
    """A branch of a session.

    If `shared`, it belongs to a session outside the file, which has only the shared messages.
    """

    session: str
    id: Number
    parent: Number | None = None
    fork_at: Start = 0
    last: Start = 0
    shared: bool = False
    created_at: Time


class BlobRecord(ExportRecord, kw_only=True, tag="blob"):
    """A large payload, once per file, before the first message that refers to it."""

    session: str
    hash: Hash
    size: int
    data: Any


class MessageRecord(ExportRecord, kw_only=True, tag="message"):
    """A stored message."""

    session: str
    id: str
    role: Role
    created_at: Time
    turn: Position | None = None
    state: UnfinishedState | Literal["completed"] | None = None
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
    key: str | None = None
    edited_at: Time | None = None


class VersionRecord(ExportRecord, kw_only=True, tag="message_version"):
    """An earlier version of a message: the content that was replaced, after the message in the file."""

    session: str
    message: str
    version: Position
    replaced_at: Time
    role: Role
    state: UnfinishedState | Literal["completed"] | None = None
    completed_at: Time | None = None
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


class TurnRecord(ExportRecord, kw_only=True, tag="turn"):
    """A turn. Its id is that of its first message."""

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


class ToolCallRecord(ExportRecord, kw_only=True, tag="tool_call"):
    """A tool call and its outcome, as seen from `branch`."""

    session: str
    message: str
    part: Start
    branch: Number
    call_id: str
    tool: str
    status: FormerCallStatus
    result: Position | None = None
    result_part: Start | None = None
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None
    latency_ms: Count | None = None
    error_code: str | None = None
    error_message: str | None = None


class CompactionRecord(ExportRecord, kw_only=True, tag="compaction"):
    """A range of positions of a branch, and its summary."""

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


class SnapshotRecord(ExportRecord, kw_only=True, tag="snapshot"):
    """A title, summary or memory, and the last message that it covers."""

    session: str
    kind: SnapshotKind
    message: str
    content: Any
    tokens: Count = 0
    created_at: Time
    updated_at: Time


class KeyedRecord(ExportRecord, kw_only=True, tag="record"):
    """A keyed record of a session: a JSON value, or bytes as base64 in `data`."""

    session: str
    kind: str
    key: str
    revision: Annotated[int, msgspec.Meta(ge=1, le=validation.MAX_INTEGER)]
    value: Any = None
    data: str | None = None
    created_at: Time
    updated_at: Time


AnyRecord = (
    HeaderRecord | SessionRecord | BranchRecord | BlobRecord | MessageRecord | VersionRecord | TurnRecord
    | ToolCallRecord | CompactionRecord | SnapshotRecord | KeyedRecord
)  # fmt: skip
TYPES = frozenset(
    {
        "header", "session", "branch", "blob", "message", "message_version", "turn", "tool_call", "compaction",
        "snapshot", "record",
    }
)  # fmt: skip

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def encode(record: ExportRecord) -> bytes:
    """Return a record as one line of JSON."""
    return _encoder.encode(record)


def decode(text: bytes) -> AnyRecord:
    """Return a record. Raise InvalidValue with the reason if the text is not one."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidValue(describe_validation_error(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return convert_record(parse_json(text))


def parse_json(text: bytes) -> Any:
    """Parse JSON with the standard library, which accepts lone surrogates and explains syntax errors."""
    try:
        return standard.loads(text.decode(), parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        raise InvalidValue("Not valid UTF-8.") from error
    except RecursionError as error:
        raise InvalidValue("Nested too deeply.") from error
    except ValueError as error:
        raise InvalidValue(f"Not valid JSON: {error}.") from error


def convert_record(value: Any) -> AnyRecord:
    """Convert plain data into a record."""
    try:
        return msgspec.convert(value, AnyRecord)
    except msgspec.ValidationError as error:
        raise InvalidValue(describe_validation_error(error)) from error


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not allowed in JSON")


def describe_validation_error(error: msgspec.ValidationError) -> str:
    """Return a sentence that states why a record is invalid."""
    return f"Not a valid record: {str(error).replace('`$.', '`').replace('`$`', 'the record')}."


def format_time(value: int | None) -> Any:
    """Return a time as ISO 8601, or as milliseconds if the year has more than four digits."""
    return value if value is None or value > LATEST_TIME else format_iso(value)


def parse_time(value: Any) -> Any:
    """Return a time in milliseconds. None stays None."""
    if not isinstance(value, str):
        return value
    try:
        milliseconds = parse_iso(value)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            f"{format_value(value)} is not a valid time. Use ISO 8601: 2025-11-16T10:00:00.123Z."
        ) from error
    if milliseconds < 0:
        raise InvalidValue(f"A time must be in 1970 or later, got {format_value(value)}.")
    return milliseconds


def parse_message_id(message_id: str, first: int = 1) -> tuple[int, int]:
    """Return the branch and the position of a message id. A snapshot may have position 0, before the first message."""
    branch, dot, position = message_id.partition(".")
    if dot and branch.isascii() and branch.isdecimal() and position.isascii() and position.isdecimal():
        numbers = int(branch[:11]), int(position[:11])  # longer numbers exceed the limits below in any case
        if 0 < numbers[0] < 1 << 31 and first <= numbers[1] < 1 << 32:
            return numbers
    raise InvalidValue(f"A message id must be a branch and a position, such as '1.17', got {format_value(message_id)}.")


IMPORTED_MODEL = "imported_model"
"""The metadata key under which an import stores the original model of a session."""


def raw_json(text: str | None) -> msgspec.Raw | None:
    """Return stored JSON for a record. Text in the store's own escape form is converted to standard JSON."""
    if text is None:
        return None
    return msgspec.Raw(
        (json.encode_standard(json.decode(text)) if text.startswith("  ") else text.lstrip(" ")).encode()
    )


def session_record(value: SessionInfo, tree: int) -> SessionRecord:
    """Return the record of a session."""
    columns = json_fields(value)
    fields = {name: columns[name] for name in SessionRecord.__struct_fields__ if name in columns}
    fields |= {name: format_time(time) for name, time in fields.items() if name.endswith("_at")}
    if value.metadata is not None:
        fields["metadata"] = raw_json(json.encode(value.metadata))
    return SessionRecord(**fields, tree=tree)


def branch_record(session: str, branch: BranchOutline, parent: int | None, last: int, *, shared: bool) -> BranchRecord:
    """Return the record of a branch."""
    return BranchRecord(
        session=session, id=branch.number, parent=parent, fork_at=branch.fork_at, last=last, shared=shared,
        created_at=format_time(branch.created_at),
    )  # fmt: skip


def message_record(session: str, number: int, row: FullMessageRow) -> MessageRecord:
    """Return the record of a message."""
    (position, turn, role, state, tokens, input_tokens, output_tokens, created, completed, format, model, error,
     metadata, native, blobs, parts, key, edit_time, deleted) = row  # fmt: skip
    return MessageRecord(
        session=session, id=f"{number}.{position}", role=role, created_at=format_time(created), turn=turn, state=state,
        completed_at=format_time(completed), deleted_at=format_time(deleted), tokens=tokens, input_tokens=input_tokens,
        output_tokens=output_tokens, format=format, model=model, error=raw_json(error), metadata=raw_json(metadata),
        native=raw_json(native), blobs=raw_json(blobs), parts=raw_json(parts), key=key,
        edited_at=format_time(edit_time),
    )  # fmt: skip


def version_record(session: str, number: int, row: FullVersionRow) -> VersionRecord:
    """Return the record of an earlier version of a message."""
    fields = row._asdict()
    del fields["position"]
    for name in ("error", "metadata", "native", "blobs", "parts"):
        fields[name] = raw_json(fields[name])
    for name in ("replaced_at", "completed_at"):
        fields[name] = format_time(fields[name])
    return VersionRecord(session=session, message=f"{number}.{row.position}", **fields)


def turn_record(session: str, number: int, row: TurnRow) -> TurnRecord:
    """Return the record of a turn, without the holder of an open one, which is a process of this machine."""
    return TurnRecord(
        session=session, id=f"{number}.{row.position}", status=row.status, started_at=format_time(row.started_at),
        ended_at=format_time(row.ended_at), latency_ms=row.latency_ms, input_tokens=row.input_tokens,
        output_tokens=row.output_tokens, model=row.model, error=raw_json(row.error),
    )  # fmt: skip


def call_record(session: str, number: int, row: FullCallRow, branch: int) -> ToolCallRecord:
    """Return the record of a tool call; `branch` is the number of the branch from which the row sees it."""
    (position, part, _, call_id, tool, status, result, result_part, created, started, completed, latency, code,
     message) = row  # fmt: skip
    return ToolCallRecord(
        session=session, message=f"{number}.{position}", part=part, branch=branch, call_id=call_id, tool=tool,
        status=status, result=result, result_part=result_part, created_at=format_time(created),
        started_at=format_time(started), completed_at=format_time(completed), latency_ms=latency, error_code=code,
        error_message=message,
    )  # fmt: skip


def compaction_record(session: str, branch: int, row: FullCompactionRow) -> CompactionRecord:
    """Return the record of a compaction."""
    fields = {**row._asdict(), "created_at": format_time(row.created_at), "undone_at": format_time(row.undone_at)}
    return CompactionRecord(session=session, branch=branch, **fields)


def snapshot_record(session: str, row: FullSnapshotRow, number: int) -> SnapshotRecord:
    """Return the record of a snapshot."""
    return SnapshotRecord(
        session=session, kind=row.kind, message=f"{number}.{row.position}", content=raw_json(row.content),
        tokens=row.tokens, created_at=format_time(row.created_at), updated_at=format_time(row.updated_at),
    )  # fmt: skip


def keyed_record(session: str, row: FullRecordRow) -> KeyedRecord:
    """Return the record of a keyed record."""
    return KeyedRecord(
        session=session, kind=row.kind, key=row.key.decode(), revision=row.revision, value=raw_json(row.value),
        data=None if row.data is None else base64.b64encode(row.data).decode(),
        created_at=format_time(row.created_at), updated_at=format_time(row.updated_at),
    )  # fmt: skip


def session_columns(record: SessionRecord, latest: int) -> dict[str, Any]:
    """Return the validated columns of a session. An activity time after `latest` is reduced to it."""
    session_ids.check_id(record.id)
    if record.data_schema_version > DATA_SCHEMA_VERSION:
        raise InvalidValue(
            "The session was written by a newer version of Recollect. Upgrade with `pip install -U recollect`."
        )
    texts = {name: getattr(record, name) for name in TEXT_FIELDS}
    columns = sessions.columns_of(_without_model({**texts, "labels": record.labels, "metadata": record.metadata}), 0)
    for name in ("created_at", "updated_at", "last_message_at", "pinned_at", "archived_at"):
        columns[name] = parse_time(getattr(record, name))
    columns["active_at"] = min(parse_time(record.active_at), latest)
    return {
        **columns, "relation": record.relation, "revision": record.revision,
        "data_schema_version": record.data_schema_version,
    }  # fmt: skip


def _without_model(fields: dict[str, Any]) -> dict[str, Any]:
    """Move a callable model into the metadata: a file must not decide which provider is called."""
    model = fields["model"]
    if model is None or not (model == "demo" or ":" in model):
        return fields
    return {**fields, "model": None, "metadata": {**(fields["metadata"] or {}), IMPORTED_MODEL: model}}


def message_row(record: MessageRecord) -> tuple[int, FullMessageRow, Mapping[str, bytes]]:
    """Return the branch number of a message, its row, and the payloads that its parts contained."""
    number, position = parse_message_id(record.id)
    parts, blobs, payloads = _encode_parts(record)
    if record.turn is not None and record.turn > position:
        raise InvalidValue("The turn of a message must not begin after it.")
    state = None if record.state == "completed" else record.state
    row = FullMessageRow(  # by position, in the order of its fields: keywords would take longer
        position, record.turn, record.role, state, record.tokens, record.input_tokens, record.output_tokens,
        parse_time(record.created_at), parse_time(record.completed_at), _storable_text(record.format),
        _storable_text(record.model), _encode_json("error", record.error), _encode_object("metadata", record.metadata),
        _encode_object("native", record.native), blobs, parts,
        None if record.key is None else validation.check_message_key(record.key), parse_time(record.edited_at),
        parse_time(record.deleted_at),
    )  # fmt: skip
    return number, row, payloads


def version_row(record: VersionRecord) -> tuple[int, FullVersionRow, Mapping[str, bytes]]:
    """Return the branch number of the message of a version, its row, and the payloads that its parts contained."""
    number, position = parse_message_id(record.message)
    parts, blobs, payloads = _encode_parts(record)
    row = FullVersionRow(
        position, record.version, parse_time(record.replaced_at), record.role,
        None if record.state == "completed" else record.state, record.tokens, record.input_tokens,
        record.output_tokens, parse_time(record.completed_at), _storable_text(record.format),
        _storable_text(record.model), _encode_json("error", record.error), _encode_object("metadata", record.metadata),
        _encode_object("native", record.native), blobs, parts,
    )  # fmt: skip
    return number, row, payloads


def _encode_parts(record: MessageRecord | VersionRecord) -> tuple[str, str | None, Mapping[str, bytes]]:
    data = respell_parts(json.to_json_data(record.parts, "parts"))
    references = _PayloadNames()
    try:
        with_payloads = data if record.blobs is None else blob.attach_payloads(data, references)
        parts: tuple[Part, ...] = msgspec.convert(with_payloads, MessageParts)
    except msgspec.ValidationError as error:
        raise InvalidValue(describe_validation_error(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidValue("A reference to an attachment in the parts is malformed.") from error
    if record.blobs is not None:
        for name in references.names:
            _check_hash(name)
        return json.encode(data), json.encode(sorted(references.names)), {}
    text = json.encode(data)
    if blob.may_hold_payloads(text):
        without_payloads, payloads = blob.detach_payloads(parts)
        if payloads is not None:
            return json.encode(without_payloads), json.encode(sorted(payloads)), payloads
    return text, None, {}


class _PayloadNames(dict[str, bytes]):
    """Collects the names of the payloads that are looked up in it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __missing__(self, name: str) -> bytes:
        self.names.add(name)
        return b""


def _check_hash(name: Any) -> None:
    if not isinstance(name, str) or len(name) != 64 or not set(name) <= set("0123456789abcdef"):  # noqa: PLR2004
        raise InvalidValue("A reference to an attachment in the parts has no valid hash.")


def _storable_text(text: str | None) -> str | None:
    return None if text is None else json.escape_surrogates(text)


def _encode_json(name: str, value: Any) -> str | None:
    return None if value is None else json.encode(json.to_json_data(value, name))


def _encode_object(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, dict):
        raise InvalidValue(f"{name} must be a JSON object, got {format_value(value)}.")
    return _encode_json(name, value)


def turn_row(record: TurnRecord) -> tuple[int, TurnRow]:
    """Return the branch number of a turn, and its row."""
    number, position = parse_message_id(record.id)
    is_open = record.status == "open"
    return number, TurnRow(
        position=position, status=record.status, started_at=parse_time(record.started_at),
        ended_at=parse_time(record.ended_at), latency_ms=record.latency_ms, input_tokens=record.input_tokens,
        output_tokens=record.output_tokens, model=_storable_text(record.model),
        error=_encode_json("error", record.error),
        holder=IMPORT_HOLDER if is_open else None, lease_until=0 if is_open else None,
    )  # fmt: skip


def call_row(record: ToolCallRecord, branch: int) -> FullCallRow:
    """Return the row of a tool call; `branch` is the key of the branch from which the row sees it."""
    if (record.result is None) != (record.result_part is None):
        raise InvalidValue("result and result_part must be set together.")
    return FullCallRow(
        position=parse_message_id(record.message)[1], part=record.part, branch=branch,
        call_id=json.escape_surrogates(record.call_id), tool=json.escape_surrogates(record.tool),
        status=respell_status(record.status), result=record.result, result_part=record.result_part,
        created_at=parse_time(record.created_at), started_at=parse_time(record.started_at),
        completed_at=parse_time(record.completed_at),
        latency_ms=record.latency_ms, error_code=_storable_text(record.error_code),
        error_message=_storable_text(record.error_message),
    )  # fmt: skip


def compaction_row(record: CompactionRecord) -> FullCompactionRow:
    """Return the row of a compaction."""
    return FullCompactionRow(
        from_position=record.from_position, to_position=record.to_position, round=record.round,
        tokens_before=record.tokens_before, tokens_after=record.tokens_after,
        summary=json.escape_surrogates(record.summary), created_at=parse_time(record.created_at),
        undone_at=parse_time(record.undone_at),
    )  # fmt: skip


def snapshot_row(record: SnapshotRecord, branch: int) -> FullSnapshotRow:
    """Return the row of a snapshot; `branch` is the key of the branch of its message."""
    return FullSnapshotRow(
        kind=record.kind, content=json.encode(json.to_json_data(record.content, "content")), branch=branch,
        position=parse_message_id(record.message, 0)[1], tokens=record.tokens,
        created_at=parse_time(record.created_at), updated_at=parse_time(record.updated_at),
    )  # fmt: skip


def keyed_row(record: KeyedRecord) -> FullRecordRow:
    """Return the row of a keyed record."""
    data = None
    if record.data is not None:
        try:
            data = base64.b64decode(record.data, validate=True)
        except ValueError as error:
            raise InvalidValue("The data of the record is not valid base64.") from error
    return FullRecordRow(
        kind=check_writable_kind(record.kind), key=check_new_key("key", record.key), revision=record.revision,
        created_at=parse_time(record.created_at), updated_at=parse_time(record.updated_at),
        value=None if data is not None else json.encode(json.to_json_data(record.value)), data=data,
    )  # fmt: skip
