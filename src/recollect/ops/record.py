"""A draft as the columns of a message row, made before the transaction begins, and a row as a message again."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue, displayed
from recollect.model import blob, json
from recollect.model.line import Line
from recollect.model.message import ROLES, Draft, Message
from recollect.model.part import Part, TextPart, ToolCallPart, ToolResultPart
from recollect.model.tokens import estimate
from recollect.op import Row

Parts = tuple[Part, ...]
_BARE_TEXT: tuple[Sequence[Any], Sequence[Any], bool] = ((), (), True)
_NOTHING: Mapping[str, bytes] = types.MappingProxyType({})
_SPACE = ord(" ")

# Where a row that is read has its parts, and what is rare in it.
_PARTS, REST = 0, 11

COLUMNS = (
    "role", "state", "tokens", "input_tokens", "output_tokens", "created_at", "completed_at", "format", "model",
    "error", "metadata", "native", "blobs", "parts",
)  # fmt: skip


class Record(msgspec.Struct, frozen=True, gc=False):
    """A draft ready to be stored: its columns, the tool calls and results in it, the payloads beside it."""

    columns: tuple[Any, ...]
    tokens: int
    created_at: int
    draft: Draft
    alone: bool = False
    """Whether its row is all there is to write: no call, no result, no payload, no pin."""
    calls: Sequence[tuple[int, ToolCallPart]] = ()
    results: Sequence[tuple[int, ToolResultPart]] = ()
    payloads: Mapping[str, bytes] = _NOTHING

    @property
    def stays(self) -> bool:
        """Whether it is in every history: an instruction, or pinned from the start."""
        return _stays(self.draft)


def record(draft: Draft, now: int) -> Record:
    """Encode a draft."""
    if draft.role not in ROLES:
        raise InvalidValue(f"A message's role is one of {', '.join(ROLES)}; got {displayed(draft.role)}.")
    parts = draft.parts
    calls, results, plain = _BARE_TEXT if _is_bare_text(parts) else _looked_through(parts)
    text = json.encode(parts)
    payloads, blobs = _NOTHING, None
    if not plain and blob.worth_a_look(text):
        thinned, found = blob.detach(parts)
        if found is not None:
            text, payloads, blobs = json.encode(thinned), found, json.encode(sorted(found))
    tokens = estimate(parts) if draft.tokens is None else draft.tokens
    created = now if draft.created_at is None else draft.created_at
    columns = (
        draft.role,
        None if draft.state == "completed" else draft.state,
        tokens,
        draft.input_tokens,
        draft.output_tokens,
        created,
        None,
        None if draft.format is None else json.storable(draft.format),
        None if draft.model is None else json.storable(draft.model),
        None if draft.error is None else json.encode(draft.error),
        None if draft.metadata is None else json.encode(draft.metadata),
        None if draft.native is None else json.encode(draft.native),
        blobs,
        text,
    )
    alone = not (calls or results or payloads or _stays(draft))
    return Record(columns, tokens, created, draft, alone, calls, results, payloads)


def _stays(draft: Draft) -> bool:
    return draft.role == "system" or (draft.metadata is not None and draft.metadata.get("pinned") is True)


def _is_bare_text(parts: Parts) -> bool:
    """Whether a message is one text and nothing else, as most are."""
    if len(parts) != 1:
        return False
    part = parts[0]
    return type(part) is TextPart and part.native is None and part.metadata is None


def _looked_through(parts: Parts) -> tuple[Sequence[Any], Sequence[Any], bool]:
    """Find the calls and the results, and whether there is nothing in it that could be stored apart."""
    calls = [(index, part) for index, part in enumerate(parts) if type(part) is ToolCallPart]
    results = [(index, part) for index, part in enumerate(parts) if type(part) is ToolResultPart]
    return calls, results, all(blob.is_plain(part) for part in parts)


def message(row: Row, branch: int, parts: Parts) -> Message:
    """Make a message of a row; `branch` is the public number of the branch that it is on."""
    _, position, role, created, turn, tokens, format, model, given, taken, native, rest = row
    if native is not None:
        native = json.decode(native)
    if rest is None:  # what is rare comes together, as one column
        return Message(
            branch, position, role, parts, created, turn, tokens, format, model, given, taken, native, "completed",
            created,
        )  # fmt: skip
    state, completed, deleted, error, metadata, _ = json.decode(rest)
    return Message(
        branch, position, role, parts, created, turn, tokens, format, model, given, taken, native,
        state or "completed",
        created if completed is None and state is None else completed,
        deleted,
        None if error is None else json.decode(error),
        None if metadata is None else json.decode(metadata),
    )  # fmt: skip


def messages(found: list[Row], branch: int) -> list[Message]:
    """Make messages of rows. Most have only what is usual, and are made here without a call for each."""
    decode = json.decoder(Parts)  # for each row: joining a page's texts to decode them at once costs more than it saves
    return [
        Message(
            branch, position, role, decode(text), created, turn, tokens, format, model, given, taken,
            None if native is None else json.decode(native), "completed", created,
        )
        if rest is None and text[0] != _SPACE
        else message(row, branch, json.decode_as(Parts, text))
        for row in found
        for text, position, role, created, turn, tokens, format, model, given, taken, native, rest in (row,)
    ]  # fmt: skip


def lines(found: list[Row]) -> list[Line]:
    """Make lines of rows that have only what a line needs; of a row that has more, only where it is in the list."""
    decode, plain = json.decoder(Parts), json.decoder(Any)
    return [
        (role, format, decode(text), None if native is None else plain(native), "completed")
        if text[0] != _SPACE and rest is None and (native is None or native[0] != " ")
        else _careful_line(row)
        for row in found
        for text, _, role, format, native, rest in (row,)
    ]


def _careful_line(row: Row) -> Line:
    text, _, role, format, native, rest = row
    parts = json.decode_as(Parts, text) if rest is None else ()
    return role, format, parts, None if native is None else json.decode(native), "completed"


def has_more(row: Row) -> bool:
    """Say whether a row for a line has a state, or payloads stored apart: then it is to be read as a message."""
    return row[-1] is not None


def blobs_of(row: Row) -> list[str] | None:
    """Name the payloads that a message row refers to; None where nothing was taken out of its parts or marked."""
    blobs = None if row[REST] is None else json.decode(row[REST])[-1]
    return None if blobs is None else json.decode(blobs)


def whole(row: Row, branch: int, payloads: Mapping[str, bytes] | None) -> Message:
    """Make a message of a row whose payloads are stored apart, or of one that has none."""
    if payloads is None:
        return message(row, branch, json.decode_as(Parts, row[_PARTS]))
    return message(row, branch, msgspec.convert(blob.attach(json.decode(row[_PARTS]), payloads), Parts))
