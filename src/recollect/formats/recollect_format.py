"""Recollect's own message format as plain dicts: {"role": ..., "parts": [{"kind": "text", "text": ...}]}.

It equals to_dict() without the empty fields. The fields are those of the model, so nothing is translated here, and an
unknown field of a part or message is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.formats import boundaries
from recollect.formats.remainder import is_dict, is_list
from recollect.model import message as parts_of
from recollect.model.json import UNSET
from recollect.model.message import Count, Draft, Message, MessageState, Part, Role, TextPart
from recollect.model.value import format_iso, parse_iso

NAME = "recollect"
RULES = None  # no provider reads it
_FIELDS_BY_KIND: dict[str, frozenset[str]] = {
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


class _RecollectMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a plain message. The store assigns a new position; id, branch, position and turn are ignored."""

    role: Role
    parts: tuple[Part, ...] | msgspec.UnsetType = UNSET
    content: str | msgspec.UnsetType = UNSET
    format: str | None = None
    native: dict[str, Any] | None = None
    model: str | None = None
    tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    state: MessageState = "completed"
    error: Any = None
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    key: str | None = None
    id: Any = None
    branch: Any = None
    position: Any = None
    turn: Any = None
    completed_at: Any = None
    deleted_at: Any = None
    edited_at: Any = None


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one plain message."""
    parts = parts_of.respell_parts(message.get("parts"))
    try:
        plain = msgspec.convert({**message, "parts": parts} if parts else message, _RecollectMessage)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The Recollect message is invalid: {_format_validation_error(error)}.") from error
    if (plain.parts is UNSET) == (plain.content is UNSET):
        raise InvalidValue(
            'A message must have either "parts" (a list of dicts with a "kind") or "content" (a string).'
        )
    _check_part_fields(message.get("parts", ()), "parts")
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
            created_at=None if plain.created_at is None else _parse_created_at(plain.created_at),
            key=plain.key,
        )
    ]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as plain dicts, with their ids and without empty fields."""
    return [_write_message(message) for message in messages]


is_boundary = boundaries.every_message


def write_draft(draft: Draft) -> dict[str, Any]:
    """Write a draft as a plain dict, without the fields that the store sets; read() returns an equal draft."""
    fields = {name: value for name, value in msgspec.to_builtins(draft).items() if value is not None}
    fields["parts"] = parts_of.parts_to_dicts(draft.parts)
    if draft.created_at_ms is not None:
        fields["created_at"] = format_iso(draft.created_at_ms)
    return fields


def _write_message(message: Message) -> dict[str, Any]:
    """Return message.to_dict() without empty fields, built directly, because a history has thousands of them."""
    created_at = format_iso(message.created_at_ms)
    fields: dict[str, Any] = {
        "id": f"{message.branch}.{message.position}",
        "branch": message.branch,
        "position": message.position,
        "role": message.role,
        "parts": parts_of.parts_to_dicts(message.parts),
        "created_at": created_at,
    }
    if message.turn is not None:
        fields["turn"] = message.turn
    fields["tokens"] = message.tokens
    if message.format is not None or message.native is not None or message.model is not None:
        _add_fields(fields, message, "format", "model", "input_tokens", "output_tokens", "native")
    else:
        _add_fields(fields, message, "input_tokens", "output_tokens")
    fields["state"] = message.state
    completed_at = message.completed_at_ms
    if completed_at is not None:
        fields["completed_at"] = created_at if completed_at == message.created_at_ms else format_iso(completed_at)
    if message.deleted_at_ms is not None:
        fields["deleted_at"] = format_iso(message.deleted_at_ms)
    if message.error is not None or message.metadata is not None:
        _add_fields(fields, message, "error", "metadata")
    if message.key is not None:
        fields["key"] = message.key
    if message.edited_at_ms is not None:
        fields["edited_at"] = format_iso(message.edited_at_ms)
    return fields


def _add_fields(fields: dict[str, Any], message: Message, *names: str) -> None:
    for name in names:
        value = getattr(message, name)
        if value is not None:
            fields[name] = msgspec.to_builtins(value)


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: no provider answers in this format."""
    return None


def _check_part_fields(parts: Sequence[dict[str, Any]], path: str) -> None:
    """Raise InvalidValue for unknown fields, which msgspec would drop silently."""
    for index, part in enumerate(parts):
        unknown = part.keys() - _FIELDS_BY_KIND[part["kind"]]
        if unknown:
            names = ", ".join(sorted(unknown))
            raise InvalidValue(
                f"{path}[{index}] must not have the fields {names}. Put your own data into its metadata."
            )
        content = part.get("content")
        if is_list(content) and part["kind"] == "tool_result":
            _check_part_fields([piece for piece in content if is_dict(piece)], f"{path}[{index}].content")


def _format_validation_error(error: msgspec.ValidationError) -> str:
    """Return msgspec's message with paths as people write them: parts[0].text."""
    return str(error).replace("`$.", "`").replace("`$`", "the message")


def _parse_created_at(text: str) -> int:
    try:
        time = parse_iso(text)
    except (ValueError, OverflowError):
        time = -1
    if time < 0:
        raise InvalidValue(
            f"created_at must be ISO 8601 since 1970, such as 2025-11-16T10:00:00.123Z, got {format_value(text)}."
        )
    return time
