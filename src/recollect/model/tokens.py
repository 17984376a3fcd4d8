"""Token estimates for messages, used if neither the caller nor the provider reports a count.

The estimate is one token per four bytes of UTF-8 plus four per message. It runs on every append, so it must stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

BYTES_PER_TOKEN = 4  # bytes of UTF-8; the usual average for English text
TOKENS_PER_MESSAGE = 4  # tokens for the role and the separators of a message
TOKENS_PER_ATTACHMENT = 1_000  # tokens; the order of magnitude of an image; its size in bytes does not predict it


def estimate_tokens(parts: Iterable[Part]) -> int:
    """Estimate the tokens of a message from its parts."""
    size = 0
    for part in parts:
        size += _utf8_length(part.text) if isinstance(part, TextPart) else _part_bytes(part)
    return TOKENS_PER_MESSAGE - (-size // BYTES_PER_TOKEN)  # rounded up


def _part_bytes(part: ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | DataPart) -> int:
    if isinstance(part, ReasoningPart):
        return _utf8_length(part.text)
    if isinstance(part, ToolCallPart):
        arguments = part.arguments_text
        return _utf8_length(part.tool) + _utf8_length(_value_text(part.arguments) if arguments is None else arguments)
    if isinstance(part, ToolResultPart):
        return _utf8_length(part.output if part.text is None else part.text)
    if isinstance(part, AttachmentPart):
        if part.text is not None:
            return _utf8_length(part.text)
        return TOKENS_PER_ATTACHMENT * BYTES_PER_TOKEN
    return _utf8_length(_value_text(part.data if part.native is None else part.native))


def _value_text(value: Any) -> str:
    """Return a text about as long as the JSON of a value. A huge integer counts as empty; storing it raises later."""
    try:
        return str(value)
    except ValueError:
        return ""


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
