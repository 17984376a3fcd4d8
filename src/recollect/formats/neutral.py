"""What means the same to every provider: a role with text, and a tool's answer as text.

A neutral message needs no format: it is stored with format None and comes back equal wherever text blocks are written
as {"type": "text", "text": ...}. Nothing here knows a provider's own fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats.native import content_of, noted, place_content, role_of
from recollect.model.json import UNSET, encode
from recollect.model.message import Draft, Message, Role
from recollect.model.part import Part, TextPart, ToolResultPart

TEXT_FIELDS = ("type", "text")
MESSAGE_FIELDS = ("role", "content")
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def read_at_once(message: dict[str, Any]) -> Draft | None:
    """Read a role with a string, the most common message by far, before it is looked at more closely."""
    name, content = message.get("role"), message.get("content")
    if type(content) is str and type(name) is str and name in _ROLES and len(message) == len(MESSAGE_FIELDS):
        return Draft(role=_ROLES[name], parts=(TextPart(text=content),))
    return None


def read(message: dict[str, Any]) -> list[Draft]:
    """Read a role with a string or with blocks of nothing but text."""
    role = role_of(message, _ROLES, "Recollect")
    parts, shape = content_of(message, _read_block)
    return [Draft(role=role, parts=parts, native=noted(parts, shape, "null", None))]


def write(message: Message) -> dict[str, Any] | None:
    """Give a message that has no format and nothing but text, for any provider; None if it is not such a message."""
    if message.format is not None:
        return None
    for part in message.parts:
        if type(part) is not TextPart:
            return None
    written: dict[str, Any] = {"role": message.role}
    shape = message.native.get("content") if message.native else None
    if not message.parts and shape is None:
        return None
    place_content(written, message.parts, shape, "null", text_block)
    return written


def text_block(part: TextPart) -> dict[str, Any]:
    """Write a text as the block that the providers share."""
    return {"type": "text", "text": part.text}


def content(blocks: list[dict[str, Any]]) -> Any:
    """Give blocks as content: a single text is a string."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def said(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Write the texts of a message, without those that a provider would refuse for being blank."""
    return [text_block(part) for part in parts if type(part) is TextPart and part.text and not part.text.isspace()]


def answer(part: ToolResultPart) -> str | list[dict[str, Any]]:
    """Give a tool's answer in words that every provider takes."""
    if part.text is not None:
        return part.text
    if part.content is not None:
        return said(part.content) or part.error_message or ""
    if part.data is not UNSET:
        return compact(part.data)
    return part.error_message or ""


def compact(value: Any) -> str:
    """Write a value as JSON text without spaces."""
    return encode(value).lstrip(" ")


def _read_block(block: dict[str, Any]) -> Part:
    text = block.get("text")
    if block.get("type") == "text" and type(text) is str and len(block) == len(TEXT_FIELDS):
        return TextPart(text=text)
    raise InvalidValue(f"A block of type {block.get('type')!r} belongs to a provider's format. Say which: format=...")
