"""The common fields of all formats: a role with text, tool results as text, and the steps of an answer.

A message that only has common fields needs no format: it is stored with format None and is written back equal in every
format whose text blocks are {"type": "text", "text": ...}. Nothing here depends on a provider's own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachments
from recollect.formats.remainder import (
    MALFORMED,
    WriteBlock,
    has_remainder,
    is_dict,
    is_well_formed,
    matches_common_fields,
    message_remainder,
    overlay,
    read_content,
    read_role,
    set_content,
)
from recollect.model.json import UNSET, decode, encode_standard, to_json_data
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.value import LATEST_TIME, parse_iso

TEXT_FIELDS = ("type", "text")
MESSAGE_FIELDS = ("role", "content")
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}

PutMessage = Callable[[list[dict[str, Any]], Role, str | None, Sequence[Part], dict[str, Any] | None], bool]
"""Appends a message to a list if it needs no translation. Returns whether it did.

The arguments are the list, the role, the source format, the parts and the remainder of the message.
"""

PutParts = Callable[[list[dict[str, Any]], Role, Sequence[Part], dict[str, Any] | None], bool]
"""The same for a known source format."""


def read_fast(message: dict[str, Any], format: str | None = None) -> Draft | None:
    """Read a role with a string, by far the most common message; None if it is another message."""
    name, content = message.get("role"), message.get("content")
    if type(content) is str and type(name) is str and name in _ROLES and len(message) == len(MESSAGE_FIELDS):
        return Draft(role=_ROLES[name], parts=(TextPart(text=content),), format=format)
    return None


def read_common(message: dict[str, Any]) -> list[Draft]:
    """Read a role with a string, or with blocks of text only."""
    role = read_role(message, _ROLES, "Recollect")
    parts, shape = read_content(message, _read_block)
    return [Draft(role=role, parts=parts, native=message_remainder(parts, shape, "null", None))]


def make_put(
    name: str,
    put_own: PutParts,
    put_unformatted: PutParts,
    *,
    separate_role: Role | None = None,
    text_message: Callable[[Role, str], dict[str, Any]] = lambda role, text: {"role": role, "content": text},
) -> PutMessage:
    """Return the put() of a format, from functions for messages of this format and for those without a format.

    put() is called for every message of a history, so it writes a role with a string, by far the most common message,
    directly, as `text_message` writes it. A message without a format is excepted if its role is `separate_role`.
    """

    def put(
        output: list[dict[str, Any]],
        role: Role,
        source_format: str | None,
        parts: Sequence[Part],
        native: dict[str, Any] | None,
    ) -> bool:
        if source_format is not None and source_format != name:
            return False
        if (
            native is None
            and len(parts) == 1
            and role != "tool"
            and (role != separate_role or source_format is not None)
        ):
            part = parts[0]  # a tool message without a tool call id is invalid in every format
            if type(part) is TextPart and part.native is None:
                output.append(text_message(role, part.text))
                return True
        return (put_unformatted if source_format is None else put_own)(output, role, parts, native)

    return put


def make_own_put(block: WriteBlock, read: Callable[[dict[str, Any]], list[Draft]], *, tool: Role) -> PutParts:
    """Return a function that writes a message unchanged; `tool` is the role of a tool message in the format."""

    def write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"role": tool if role == "tool" else role}
        set_content(message, parts, None if native is None else native.get("content"), "blocks", block)
        return [message if native is None else overlay(message, native.get("fields"))]

    return make_verified_put(write_own, read)


def make_verified_put(
    write_own: Callable[[Role, Sequence[Part], dict[str, Any] | None], list[dict[str, Any]]],
    read: Callable[[dict[str, Any]], list[Draft]],
) -> PutParts:
    """Return a function that writes a message unchanged, unless its remainder contradicts its common fields."""

    def put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
        if not has_remainder(parts, native):
            output += write_own(role, parts, native)
            return True
        try:
            messages = write_own(role, parts, native)
            if not is_well_formed(native) or not matches_common_fields(
                [draft for message in messages for draft in read(message)], role, parts
            ):
                return False
        except MALFORMED:
            return False
        output += messages
        return True

    return put_own


def put_nothing(
    _output: list[dict[str, Any]], _role: Role, _parts: Sequence[Part], _native: dict[str, Any] | None
) -> bool:
    """Return False: a message without a format is translated."""
    return False


def put_common(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message without a format if it is only text, for any provider. Return whether it was written."""
    if role == "tool" or not all(type(part) is TextPart for part in parts):
        return False
    shape = native.get("content") if native else None
    if not parts and shape is None:
        return False
    message: dict[str, Any] = {"role": role}
    set_content(message, parts, shape, "null", text_block)
    output.append(message)
    return True


def text_block(part: TextPart) -> dict[str, Any]:
    """Return a text as the block that all providers share."""
    return {"type": "text", "text": part.text}


def collapse_blocks(blocks: list[dict[str, Any]]) -> Any:
    """Return blocks as content: a single text becomes a string."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def text_blocks(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the texts of a message as blocks, without blank ones, which providers reject."""
    return [text_block(part) for part in parts if type(part) is TextPart and is_not_blank(part.text)]


def is_not_blank(text: str) -> bool:
    """Return whether a text has more than whitespace."""
    return bool(text) and not text.isspace()


def readable_blocks(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts, and files that are text, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is TextPart and is_not_blank(part.text):
            blocks.append(text_block(part))
        elif type(part) is AttachmentPart:
            content = attachments.content_of_attachment(part)
            if content.text and is_not_blank(content.text):
                blocks.append({"type": "text", "text": attachments.text_with_name(content)})
    return blocks


def result_content(part: ToolResultPart) -> str | list[dict[str, Any]]:
    """Return the result of a tool as text or text blocks, which every provider accepts."""
    if part.text is not None:
        return part.text
    if part.content is not None:
        return readable_blocks(part.content) or part.error_message or ""
    if part.data is not UNSET:
        return compact_json(part.data)
    return part.error_message or ""


def arguments_json(part: ToolCallPart) -> str:
    """Return the arguments of a call as JSON text; text that the model wrote is unchanged."""
    if part.arguments_text is not None:
        return part.arguments_text
    return "{}" if part.arguments is UNSET else compact_json(part.arguments)


def custom_input(part: ToolCallPart) -> str | None:
    """Return the input of a call of an OpenAI custom tool, which is text and not JSON; None for any other call."""
    kind = part.native.get("type") if is_dict(part.native) else None
    return part.arguments if kind in ("custom", "custom_tool_call") and type(part.arguments) is str else None


def arguments_object(part: ToolCallPart) -> dict[str, Any]:
    """Return the arguments of a call as an object."""
    value = part.arguments if part.arguments_text is None else _parse_arguments(part.arguments_text)
    if value is UNSET:
        return {}
    return value if is_dict(value) else {"arguments": value}


def _parse_arguments(text: str) -> Any:
    """Return the arguments that a model wrote; the text itself if it is not JSON, UNSET if it is blank."""
    if not is_not_blank(text):
        return UNSET
    try:
        return to_json_data(decode(text))
    except (ValueError, RecursionError, InvalidValue):  # truncated, too deep, or NaN, which Python reads but JSON lacks
        return text


Step = tuple[list[Part], list[ToolResultPart]]


def split_steps(parts: Iterable[Part]) -> list[Step]:
    """Split an answer into steps: for each, the parts other than results, and the results."""
    steps: list[Step] = []
    for step in group_by_step(parts):
        results = [part for part in step if type(part) is ToolResultPart]
        steps.append(([part for part in step if type(part) is not ToolResultPart] if results else step, results))
    return steps


def group_by_step(parts: Iterable[Part], *, only_marks: bool = False) -> list[list[Part]]:
    """Return the parts of each step. A step begins at a mark and, unless `only_marks`, at text after results."""
    steps: list[list[Part]] = [[]]
    has_result = False
    for part in parts:
        if _is_step_mark(part) or (has_result and not only_marks and type(part) in (TextPart, ReasoningPart)):
            steps.append([part])
            has_result = False
        else:
            steps[-1].append(part)
            has_result = has_result or type(part) is ToolResultPart
    return steps


def _is_step_mark(part: Part) -> bool:
    """Return whether this is the part that the AI SDK puts between steps."""
    return type(part) is DataPart and is_dict(part.native) and part.native.get("type") == "step-start"


def join_items(messages: Sequence[Message], format: str) -> Sequence[Message]:
    """Join adjacent messages that are single items of an answer in this format."""
    if format not in [message.format for message in messages]:
        return messages
    joined_messages: list[Message] = []
    for message in messages:
        previous = joined_messages[-1] if joined_messages else None
        if previous is not None and _is_answer_item(message, format) and _is_answer_item(previous, format):
            joined_messages[-1] = msgspec.structs.replace(
                previous, parts=(*previous.parts, *message.parts), native=None
            )
        else:
            joined_messages.append(message)
    return joined_messages


def _is_answer_item(message: Message, format: str) -> bool:
    return message.format == format and message.role == "assistant"


def read_time(value: Any) -> int | None:
    """Return a time in ISO 8601 as milliseconds since 1970; None if it is none, or not between 1970 and 9999."""
    try:
        time = parse_iso(value) if type(value) is str else -1
    except (ValueError, OverflowError):
        return None
    return time if 0 <= time <= LATEST_TIME else None


def compact_json(value: Any) -> str:
    """Return a value as JSON text without spaces."""
    return encode_standard(value)


def _read_block(block: dict[str, Any]) -> Part:
    text = block.get("text")
    if block.get("type") == "text" and type(text) is str and len(block) == len(TEXT_FIELDS):
        return TextPart(text=text)
    raise InvalidValue(
        f"A block of type {block.get('type')!r} belongs to a provider's format. Pass its name: format=..."
    )
