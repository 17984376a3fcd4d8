"""Rows of the store as records of an export, and records as rows again, which are checked before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.export.records import (
    BranchRecord,
    CompactionRecord,
    MessageRecord,
    SessionRecord,
    SnapshotRecord,
    ToolCallRecord,
    TurnRecord,
    moment,
    place,
    time,
    worded,
)
from recollect.model import blob, json, keys
from recollect.model.part import Part
from recollect.model.session import DATA_SCHEMA_VERSION, TEXT_FIELDS, Session
from recollect.op import Row
from recollect.ops import fields
from recollect.ops.transfer import Branch

IMPORTED_MODEL = "imported_model"
"""The key in a session's metadata under which an import keeps the model that the session had."""

_Parts = tuple[Part, ...]


def raw(text: str | None) -> msgspec.Raw | None:
    """Give stored JSON as it is, or as other readers understand it where it needs decode()."""
    if text is None:
        return None
    return msgspec.Raw((json.standard(json.decode(text)) if text.startswith("  ") else text.lstrip(" ")).encode())


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


def session_columns(record: SessionRecord, soonest: int) -> dict[str, Any]:
    """Give the columns of a session, checked. Activity is not taken from the future beyond `soonest`."""
    keys.well_formed(record.id)
    if record.data_schema_version > DATA_SCHEMA_VERSION:
        raise InvalidValue("It was written by a newer Recollect. Upgrade with `pip install -U recollect`.")
    given = {name: getattr(record, name) for name in TEXT_FIELDS}
    columns = fields.checked({**given, **_without_model(record)}, 0)
    for name in ("created_at", "updated_at", "last_message_at", "pinned_at", "archived_at"):
        columns[name] = moment(getattr(record, name))
    columns["active_at"] = min(moment(record.active_at), soonest)
    return {
        **columns, "relation": record.relation, "revision": record.revision,
        "data_schema_version": record.data_schema_version,
    }  # fmt: skip


def _without_model(record: SessionRecord) -> dict[str, Any]:
    """Keep a model that can be called as information only: a file must not decide which provider is called."""
    model, metadata = record.model, record.metadata
    if model is None or not (model == "demo" or ":" in model):
        return {"metadata": metadata}
    return {"model": None, "metadata": {**(metadata or {}), IMPORTED_MODEL: model}}


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
        raise InvalidValue(worded(error)) from error
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
