"""Conversion of drafts to messages, as if a store had written and read them."""

from __future__ import annotations

from recollect.model.json import decode, decode_as, encode
from recollect.model.message import Draft, Message, Part


def to_messages(drafts: list[Draft]) -> list[Message]:
    """Convert drafts to messages through the JSON that the store writes."""
    return [
        Message(
            branch=1,
            position=position,
            role=draft.role,
            parts=decode_as(tuple[Part, ...], encode(draft.parts)),
            format=draft.format,
            native=decode(encode(draft.native)),
            created_at_ms=0,
        )
        for position, draft in enumerate(drafts, 1)
    ]
