"""How large a message is for a model, in tokens, where neither the caller nor the provider says.

It is an estimate: one token for four bytes of UTF-8, and four for the message itself. It is taken at each append, so
it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recollect.model.part import AttachmentPart, DataPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4
PER_ATTACHMENT = 1_000


def estimate(parts: Iterable[Part]) -> int:
    """Estimate the size of a message from its parts."""
    size = 0
    for part in parts:
        size += _bytes(part.text) if isinstance(part, TextPart) else _size(part)
    return PER_MESSAGE - (-size // BYTES_PER_TOKEN)


def _size(part: ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | DataPart) -> int:
    if isinstance(part, ReasoningPart):
        return _bytes(part.text)
    if isinstance(part, ToolCallPart):
        arguments = part.arguments_text
        return _bytes(part.tool) + _bytes(_written(part.arguments) if arguments is None else arguments)
    if isinstance(part, ToolResultPart):
        return _bytes(part.output if part.text is None else part.text)
    if isinstance(part, AttachmentPart):
        if part.text is not None:
            return _bytes(part.text)
        return PER_ATTACHMENT * BYTES_PER_TOKEN
    return _bytes(_written(part.data if part.native is None else part.native))


def _written(value: Any) -> str:
    """Write a value, about as long as its JSON; an integer of too many digits is refused where it is stored."""
    try:
        return str(value)
    except ValueError:
        return ""


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
