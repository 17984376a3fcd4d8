"""What means the same to every provider: a role with text, a tool's answer as text, the steps of an answer.

A neutral message needs no format: it is stored with format None and comes back equal wherever text blocks are written
as {"type": "text", "text": ...}. Nothing here knows a provider's own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachment
from recollect.formats.native import (
    MALFORMED,
    WriteBlock,
    content_of,
    has_remainder,
    is_dict,
    is_faithful,
    is_wellformed,
    noted,
    overlay,
    place_content,
    role_of,
)
from recollect.model.json import UNSET, decode, exact, standard
from recollect.model.message import Draft, Message, Role
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

TEXT_FIELDS = ("type", "text")
MESSAGE_FIELDS = ("role", "content")
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}

Put = Callable[[list[dict[str, Any]], Role, str | None, Sequence[Part], dict[str, Any] | None], bool]
"""Writes a message at the end of a list, if it needs no translating; whether it did.

It is given the message's role, the format it came in, its parts and its native.
"""

PutParts = Callable[[list[dict[str, Any]], Role, Sequence[Part], dict[str, Any] | None], bool]
"""The same, where the format is known."""


def read_at_once(message: dict[str, Any], format: str | None = None) -> Draft | None:
    """Read a role with a string, the most common message by far, before it is looked at more closely."""
    name, content = message.get("role"), message.get("content")
    if type(content) is str and type(name) is str and name in _ROLES and len(message) == len(MESSAGE_FIELDS):
        return Draft(role=_ROLES[name], parts=(TextPart(text=content),), format=format)
    return None


def read(message: dict[str, Any]) -> list[Draft]:
    """Read a role with a string or with blocks of nothing but text."""
    role = role_of(message, _ROLES, "Recollect")
    parts, shape = content_of(message, _read_block)
    return [Draft(role=role, parts=parts, native=noted(parts, shape, "null", None))]


def putter(name: str, put_own: PutParts, put_neutral: PutParts, *, apart: Role | None = None) -> Put:
    """Give a format its put(), of what writes a message that came in it, and one that came in none.

    A role with a string, the most common message by far, is written at once: this is called for every message of a
    history. One that came in no format is not, where its role is `apart`.
    """

    def put(
        written: list[dict[str, Any]],
        role: Role,
        came: str | None,
        parts: Sequence[Part],
        native: dict[str, Any] | None,
    ) -> bool:
        if came is not None and came != name:
            return False
        if native is None and len(parts) == 1 and role != "tool" and (role != apart or came is not None):
            part = parts[0]  # a tool's text that answers no call is a tool's message nowhere
            if type(part) is TextPart and part.native is None:
                written.append({"role": role, "content": part.text})
                return True
        return (put_neutral if came is None else put_own)(written, role, parts, native)

    return put


def own_putter(block: WriteBlock, read: Callable[[dict[str, Any]], list[Draft]], *, tool: Role) -> PutParts:
    """Return a function that writes a message as it came; `tool` is the role of a tool's message in the format."""

    def own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"role": tool if role == "tool" else role}
        place_content(message, parts, None if native is None else native.get("content"), "blocks", block)
        return [message if native is None else overlay(message, native.get("fields"))]

    return faithful_putter(own, read)


def faithful_putter(
    own: Callable[[Role, Sequence[Part], dict[str, Any] | None], list[dict[str, Any]]],
    read: Callable[[dict[str, Any]], list[Draft]],
) -> PutParts:
    """Return a function that writes a message as it came, unless its remainder contradicts its common fields."""

    def put_own(
        written: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None
    ) -> bool:
        if not has_remainder(parts, native):
            written += own(role, parts, native)
            return True
        try:
            made = own(role, parts, native)
            if not is_wellformed(native) or not is_faithful(
                [draft for message in made for draft in read(message)], role, parts
            ):
                return False
        except MALFORMED:
            return False
        written += made
        return True

    return put_own


def put_nothing(
    _written: list[dict[str, Any]], _role: Role, _parts: Sequence[Part], _native: dict[str, Any] | None
) -> bool:
    """Leave a message that came in no format to be translated."""
    return False


def put(written: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message that has no format, if it has nothing but text, for any provider."""
    if role == "tool" or not all(type(part) is TextPart for part in parts):
        return False
    shape = native.get("content") if native else None
    if not parts and shape is None:
        return False
    message: dict[str, Any] = {"role": role}
    place_content(message, parts, shape, "null", text_block)
    written.append(message)
    return True


def text_block(part: TextPart) -> dict[str, Any]:
    """Write a text as the block that the providers share."""
    return {"type": "text", "text": part.text}


def content(blocks: list[dict[str, Any]]) -> Any:
    """Give blocks as content: a single text is a string."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def said(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Write the texts of a message, without those that a provider would refuse for being blank."""
    return [text_block(part) for part in parts if type(part) is TextPart and is_said(part.text)]


def is_said(text: str) -> bool:
    """Say whether a text is more than blank."""
    return bool(text) and not text.isspace()


def words(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Write texts, and files that are text, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is TextPart and is_said(part.text):
            blocks.append(text_block(part))
        elif type(part) is AttachmentPart:
            found = attachment.file(part)
            if found.text and is_said(found.text):
                blocks.append({"type": "text", "text": attachment.named(found)})
    return blocks


def answer(part: ToolResultPart) -> str | list[dict[str, Any]]:
    """Give a tool's answer in words that every provider takes."""
    if part.text is not None:
        return part.text
    if part.content is not None:
        return words(part.content) or part.error_message or ""
    if part.data is not UNSET:
        return compact(part.data)
    return part.error_message or ""


def arguments(part: ToolCallPart) -> str:
    """Give the arguments of a call as JSON text; what the model wrote stays as it is."""
    if part.arguments_text is not None:
        return part.arguments_text
    return "{}" if part.arguments is UNSET else compact(part.arguments)


def custom_input(part: ToolCallPart) -> str | None:
    """Give what a custom tool of OpenAI's is called with, which is a text and no JSON; None for any other call."""
    kind = part.native.get("type") if is_dict(part.native) else None
    return part.arguments if kind in ("custom", "custom_tool_call") and type(part.arguments) is str else None


def input(part: ToolCallPart) -> dict[str, Any]:
    """Give the arguments of a call as an object."""
    value = part.arguments if part.arguments_text is None else _parsed(part.arguments_text)
    if value is UNSET:
        return {}
    return value if is_dict(value) else {"arguments": value}


def _parsed(text: str) -> Any:
    """Read the arguments that a model wrote; the text itself if it is not JSON, nothing if it is blank."""
    if not is_said(text):
        return UNSET
    try:
        return exact(decode(text))
    except (ValueError, RecursionError, InvalidValue):  # cut off, too deep, or NaN, which Python reads and JSON lacks
        return text


Step = tuple[list[Part], list[ToolResultPart]]


def steps(parts: Iterable[Part]) -> list[Step]:
    """Split an answer that has results in it into steps: what was said and asked, and the results of that."""
    found: list[Step] = []
    for step in stretches(parts):
        results = [part for part in step if type(part) is ToolResultPart]
        found.append(([part for part in step if type(part) is not ToolResultPart] if results else step, results))
    return found


def stretches(parts: Iterable[Part], *, marked: bool = False) -> list[list[Part]]:
    """Give the parts of each step. A mark begins one, and so do words after results, unless only marks count."""
    found: list[list[Part]] = [[]]
    answered = False
    for part in parts:
        if _is_step(part) or (answered and not marked and type(part) in (TextPart, ReasoningPart)):
            found.append([part])
            answered = False
        else:
            found[-1].append(part)
            answered = answered or type(part) is ToolResultPart
    return found


def _is_step(part: Part) -> bool:
    """Say whether this is the mark that the AI SDK puts between steps."""
    return type(part) is DataPart and is_dict(part.native) and part.native.get("type") == "step-start"


def joined(messages: Sequence[Message], pieces: str) -> Sequence[Message]:
    """Make one message of the pieces of an answer that came one by one, as the items of this format do."""
    if pieces not in [message.format for message in messages]:
        return messages
    found: list[Message] = []
    for message in messages:
        before = found[-1] if found else None
        if before is not None and _is_piece(message, pieces) and _is_piece(before, pieces):
            found[-1] = msgspec.structs.replace(before, parts=(*before.parts, *message.parts), native=None)
        else:
            found.append(message)
    return found


def _is_piece(message: Message, format: str) -> bool:
    return message.format == format and message.role == "assistant"


def compact(value: Any) -> str:
    """Write a value as JSON text without spaces."""
    return standard(value)


def _read_block(block: dict[str, Any]) -> Part:
    text = block.get("text")
    if block.get("type") == "text" and type(text) is str and len(block) == len(TEXT_FIELDS):
        return TextPart(text=text)
    raise InvalidValue(f"A block of type {block.get('type')!r} belongs to a provider's format. Say which: format=...")
