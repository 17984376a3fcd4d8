"""A draft as the columns of a message row, made before the transaction begins, and a row as a message again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue
from recollect.model import blob, json
from recollect.model.message import ROLES, Draft, Message
from recollect.model.part import Part, ToolCallPart, ToolResultPart
from recollect.op import Row

Parts = tuple[Part, ...]
_Many = list[Parts]
_SPACE = ord(" ")


class Record(NamedTuple):
    """A draft ready to be stored: its columns, the tool calls and results in it, the payloads beside it."""

    columns: dict[str, Any]
    calls: Sequence[tuple[int, ToolCallPart]]
    results: Sequence[tuple[int, ToolResultPart]]
    payloads: Mapping[str, bytes]
    draft: Draft


def record(draft: Draft, now: int) -> Record:
    """Encode a draft."""
    if draft.role not in ROLES:
        raise InvalidValue(f"A message's role is one of {', '.join(ROLES)}; got {draft.role!r}.")
    parts, payloads = blob.detach(draft.parts)
    calls: list[tuple[int, ToolCallPart]] = []
    results: list[tuple[int, ToolResultPart]] = []
    for index, part in enumerate(draft.parts):
        if isinstance(part, ToolCallPart):
            calls.append((index, part))
        elif isinstance(part, ToolResultPart):
            results.append((index, part))
    columns = {
        "role": draft.role,
        "state": None if draft.state == "completed" else draft.state,
        "tokens": draft.tokens or 0,
        "input_tokens": draft.input_tokens,
        "output_tokens": draft.output_tokens,
        "created_at": now if draft.created_at is None else draft.created_at,
        "completed_at": None,
        "format": draft.format,
        "model": draft.model,
        "error": None if draft.error is None else json.encode(draft.error),
        "metadata": None if draft.metadata is None else json.encode(draft.metadata),
        "native": None if draft.native is None else json.encode(draft.native),
        "blobs": None if payloads is None else json.encode(sorted(payloads)),
        "parts": json.encode(parts),
    }
    return Record(columns, calls, results, payloads or {}, draft)


def message(row: Row, branch: int, parts: Parts | None = None) -> Message:
    """Make a message of a row; `branch` is the public number of the branch that it is on."""
    state = row[2] or "completed"
    created = row[7]
    return Message(
        branch=branch,
        position=row[0],
        role=row[1],
        state=state,
        turn=row[3],
        tokens=row[4],
        input_tokens=row[5],
        output_tokens=row[6],
        created_at=created,
        completed_at=row[8] or (created if row[2] is None else None),
        deleted_at=row[9],
        format=row[10],
        model=row[11],
        error=None if row[12] is None else json.decode(row[12]),
        metadata=None if row[13] is None else json.decode(row[13]),
        native=None if row[14] is None else json.decode(row[14]),
        parts=json.decode_as(Parts, row[16]) if parts is None else parts,
    )


def messages(found: list[Row], branch: int) -> list[Message]:
    """Make messages of rows, decoding the parts of all of them at once where that is possible."""
    texts = [row[16] for row in found]
    if any(text[0] == _SPACE for text in texts):  # written by the standard json module, and read by it
        return [message(row, branch) for row in found]
    parts = json.decode_as(_Many, b"[" + b",".join(texts) + b"]")
    return [message(row, branch, parts[index]) for index, row in enumerate(found)]


def blobs_of(row: Row) -> list[str]:
    """Name the payloads that a message row refers to."""
    return [] if row[15] is None else json.decode(row[15])


def attached(row: Row, payloads: Mapping[str, bytes]) -> Parts:
    """Read the parts of a row whose payloads are stored apart."""
    return msgspec.convert(blob.attach(json.decode(row[16]), payloads), Parts)
