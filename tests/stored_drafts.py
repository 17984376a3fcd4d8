"""Drafts as messages that were stored and read again, without a store."""

from __future__ import annotations

from recollect.model.json import decode, decode_as, encode
from recollect.model.message import Draft, Message
from recollect.model.part import Part


def stored(drafts: list[Draft]) -> list[Message]:
    """Take drafts through the JSON that the store writes."""
    return [
        Message(
            branch=1,
            position=place,
            role=draft.role,
            parts=decode_as(tuple[Part, ...], encode(draft.parts)),
            format=draft.format,
            native=decode(encode(draft.native)),
            created_at=0,
        )
        for place, draft in enumerate(drafts, 1)
    ]
