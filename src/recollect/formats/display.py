"""The parts of a message as people see them: with everything of its remainder that the provider receives.

Keys that are known to hold nothing that a model reads (ids, signatures, cache marks) are hidden, and the rules of each
format name its own; everything else is shown as data after the parts of its message. Hidden keys are never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect import formats  # loads the formats when a message with a remainder is displayed
from recollect.formats.remainder import BLOCK, WHOLE, has_remainder, is_dict, is_list, stored_response, value_at
from recollect.model.message import DataPart, Draft, Message, Part, ToolResultPart

REMAINDER_LABEL = "provider fields"
_HIDDEN_KEYS = frozenset({"type", "id", "status", "detail", "format", "filename"})
_FILE_KEYS = frozenset(
    {"source", "image_url", "input_audio", "file", "file_data", "file_url", "file_id", "title", "name", "media_type"}
    | {"cache_control"}
)
# Common fields inside a block that is stored whole. Writing compares them with the displayed ones.
_COMMON_KEYS = frozenset(
    {"function", "custom", "name", "arguments", "input", "toolCallId", "toolName", "args", "result", "output"}
    | {"toolInvocation", "isError", "state", "step"}
)


def visible_parts(message: Draft | Message) -> Sequence[Part]:
    """Return the parts of a message as they are shown, with its visible remainder as the last part."""
    remainder = visible_remainder(message)
    return (*message.parts, DataPart(data={REMAINDER_LABEL: remainder})) if remainder else message.parts


def visible_remainder(message: Draft | Message) -> Any:
    """Return the remainder that would be sent to the provider and is not hidden; empty if there is none."""
    if not has_remainder(message.parts, message.native) or message.format not in formats.PROVIDERS:
        return {}  # only provider formats send a remainder back
    hidden_keys = _HIDDEN_KEYS | formats.load_rules(message.format).hidden_keys
    remainders = [_without_keys(_remainder_of_message(message.native), hidden_keys)]
    remainders += [_remainder_of_part(part, hidden_keys) for part in message.parts]
    visible = [item for item in remainders if not _is_empty(item)]
    return visible[0] if len(visible) == 1 else visible


def visible_block_fields(block: Any) -> Any:
    """Return the fields of the block of a file except the file itself; empty if there are none."""
    return _without_keys(block, _FILE_KEYS | _HIDDEN_KEYS)


def _remainder_of_message(native: dict[str, Any] | None) -> Any:
    """Return the remainder that is sent with the message itself, without a complete response."""
    if native is None:
        return {}
    items = native.get("items")
    fields = [entry.get("fields") for entry in items if is_dict(entry)] if is_list(items) else []
    return [native.get("fields"), *fields]


def _remainder_of_part(part: Part, hidden_keys: frozenset[str]) -> Any:
    if type(part) is DataPart:
        return {}  # displayed completely
    native = part.native
    if is_dict(native) and BLOCK in native:
        remainder = _without_keys(native[BLOCK], hidden_keys)
    elif is_dict(native) and WHOLE in native:
        remainder = _without_keys(native[WHOLE], hidden_keys | _COMMON_KEYS)
    else:
        remainder = _without_keys(native, hidden_keys)
    if type(part) is not ToolResultPart or part.content is None:
        return remainder
    pieces = [
        piece.native if type(piece) is DataPart else _remainder_of_part(piece, hidden_keys) for piece in part.content
    ]
    content_remainders = [item for item in pieces if not _is_empty(item)]
    return (
        [remainder, *content_remainders]
        if content_remainders and not _is_empty(remainder)
        else content_remainders or remainder
    )


def _without_keys(value: Any, hidden_keys: frozenset[str]) -> Any:
    """Remove hidden keys, nulls and empty values."""
    if is_dict(value):
        fields = {name: _without_keys(item, hidden_keys) for name, item in value.items() if name not in hidden_keys}
        return {name: item for name, item in fields.items() if not _is_empty(item)}
    if is_list(value):
        items = [item for item in (_without_keys(item, hidden_keys) for item in value) if not _is_empty(item)]
        return items[0] if len(items) == 1 and is_dict(items[0]) else items
    return value


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (type(value) in (dict, list) and not value)


TRUNCATED_NOTICE = "The answer reached its length limit and is not complete."


def is_truncated(message: Draft | Message) -> bool:
    """Return whether the provider ended this answer at its length limit."""
    native = message.native
    if native is None or message.role != "assistant":
        return False
    length_stop = formats.load_rules(message.format).length_stop if message.format in formats.PROVIDERS else None
    if length_stop is None:
        return False
    paths, values = length_stop
    # A message that is itself the whole response has its fields directly; earlier versions had no "fields".
    response = stored_response(native) or native.get("fields", native)
    reasons = [value_at(response, path) for path in paths]
    return any(type(reason) is str and reason in values for reason in reasons)
