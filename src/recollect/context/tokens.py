"""How large a message is for a model, in tokens.

What the provider reported is used where it is known. Elsewhere it is an estimate: one token for four bytes of UTF-8,
rounded up, and four for the message itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4
PER_ATTACHMENT = 1_000


def measured(drafts: Iterable[Draft]) -> list[Draft]:
    """Give every draft its size, where the caller or the provider has not."""
    return [
        draft if draft.tokens is not None else msgspec.structs.replace(draft, tokens=estimate(draft.parts))
        for draft in drafts
    ]


def estimate(parts: Iterable[Part]) -> int:
    """Estimate the size of a message from its parts."""
    return PER_MESSAGE + sum(-(-_size(part) // BYTES_PER_TOKEN) for part in parts)


def _size(part: Part) -> int:
    if isinstance(part, TextPart | ReasoningPart):
        return _bytes(part.text)
    if isinstance(part, ToolCallPart):
        arguments = part.arguments_text
        if arguments is None:
            arguments = str(part.arguments)
        return _bytes(part.tool) + _bytes(arguments)
    if isinstance(part, ToolResultPart):
        return _bytes(part.output)
    if isinstance(part, AttachmentPart):
        return PER_ATTACHMENT * BYTES_PER_TOKEN
    return _bytes(str(part.data if part.native is None else part.native))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
