"""Recollect's own messages as plain dicts: {"role": ..., "parts": [{"kind": "text", "text": ...}]}.

This is what to_dict() gives, without the fields that are empty. The fields are the model's own, so nothing is
translated here, and a field that no part or message has is refused rather than dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue, displayed
from recollect.formats.native import is_dict, is_list
from recollect.model import part as parts_of
from recollect.model.json import UNSET
from recollect.model.message import Count, Draft, Message, Role, State
from recollect.model.part import Part, TextPart
from recollect.model.value import iso, milliseconds

NAME = "recollect"
_KINDS: dict[str, frozenset[str]] = {
    str(kind.__struct_config__.tag): frozenset({"kind", *kind.__struct_fields__})
    for kind in (
        parts_of.TextPart,
        parts_of.ReasoningPart,
        parts_of.ToolCallPart,
        parts_of.ToolResultPart,
        parts_of.AttachmentPart,
        parts_of.DataPart,
    )
}


class _Plain(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a plain message may say. Its place (id, branch, position, turn) is read past: the store gives a new one."""

    role: Role
    parts: tuple[Part, ...] | msgspec.UnsetType = UNSET
    content: str | msgspec.UnsetType = UNSET
    format: str | None = None
    native: dict[str, Any] | None = None
    model: str | None = None
    tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    state: State = "completed"
    error: Any = None
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    id: Any = None
    branch: Any = None
    position: Any = None
    turn: Any = None
    completed_at: Any = None
    deleted_at: Any = None


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one plain message."""
    try:
        plain = msgspec.convert(message, _Plain)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"This is not a Recollect message: {_placed(error)}.") from error
    if (plain.parts is UNSET) == (plain.content is UNSET):
        raise InvalidValue('Give either "parts" (a list of dicts with a "kind") or "content" (a string).')
    _refuse_unknown(message.get("parts", ()), "parts")
    return [
        Draft(
            role=plain.role,
            parts=(TextPart(text=plain.content),) if isinstance(plain.content, str) else plain.parts or (),
            format=plain.format,
            native=plain.native,
            model=plain.model,
            tokens=plain.tokens,
            input_tokens=plain.input_tokens,
            output_tokens=plain.output_tokens,
            state=plain.state,
            error=plain.error,
            metadata=plain.metadata,
            created_at=None if plain.created_at is None else _time(plain.created_at),
        )
    ]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as plain dicts, with their ids and without what is empty."""
    return [_written(message) for message in messages]


def _written(message: Message) -> dict[str, Any]:
    """Give message.to_dict() without what is empty, made at once: a history has thousands of them."""
    created = iso(message.created_at)
    written: dict[str, Any] = {
        "id": f"{message.branch}.{message.position}",
        "branch": message.branch,
        "position": message.position,
        "role": message.role,
        "parts": msgspec.to_builtins(message.parts),
        "created_at": created,
    }
    if message.turn is not None:
        written["turn"] = message.turn
    written["tokens"] = message.tokens
    if message.format is not None or message.native is not None or message.model is not None:
        _add(written, message, "format", "model", "input_tokens", "output_tokens", "native")
    else:
        _add(written, message, "input_tokens", "output_tokens")
    written["state"] = message.state
    done = message.completed_at
    if done is not None:
        written["completed_at"] = created if done == message.created_at else iso(done)
    if message.deleted_at is not None:
        written["deleted_at"] = iso(message.deleted_at)
    if message.error is not None or message.metadata is not None:
        _add(written, message, "error", "metadata")
    return written


def _add(written: dict[str, Any], message: Message, *names: str) -> None:
    for name in names:
        value = getattr(message, name)
        if value is not None:
            written[name] = msgspec.to_builtins(value)


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Give None: no provider answers in this format."""
    return None


def _refuse_unknown(parts: Sequence[dict[str, Any]], path: str) -> None:
    """Refuse fields that msgspec would leave out without a word."""
    for place, part in enumerate(parts):
        unknown = part.keys() - _KINDS[part["kind"]]
        if unknown:
            names = ", ".join(sorted(unknown))
            raise InvalidValue(f"{path}[{place}] has no field {names}. Put data of your own into its metadata.")
        content = part.get("content")
        if is_list(content) and part["kind"] == "tool_result":
            _refuse_unknown([piece for piece in content if is_dict(piece)], f"{path}[{place}].content")


def _placed(error: msgspec.ValidationError) -> str:
    """Say msgspec's words with a path as one writes it: parts[0].text."""
    return str(error).replace("`$.", "`").replace("`$`", "the message")


def _time(text: str) -> int:
    try:
        return milliseconds(text)
    except ValueError as error:
        raise InvalidValue(
            f"created_at is {displayed(text)}. Write a time as ISO 8601: 2025-11-16T10:00:00.123Z."
        ) from error
