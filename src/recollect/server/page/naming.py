"""What a session is called on the page: its title, else what it is for, else its first words, else that it is new."""

from __future__ import annotations

from recollect import ops
from recollect.agent.titles import from_text
from recollect.errors import SessionNotFound
from recollect.model.session import Session
from recollect.store_async import AsyncStore

UNTITLED = "New chat"
_LONGEST = 200
_FIRST = 4


def line(text: str) -> str:
    """Give a text as one line; what a title of a hundred thousand characters says is clear from its beginning."""
    return " ".join(text[: _LONGEST * 4].split())[:_LONGEST]


def given(session: Session) -> str:
    """Give the title that somebody gave it, or its task; empty where there is neither."""
    return line(session.title or "") or line(session.task or "")


async def called(store: AsyncStore, session: Session) -> str:
    """Name a session; its first words are read where it has no title."""
    name = given(session)
    if not name and session.message_count:
        name = line(await first_words(store, session.id))
    return name or UNTITLED


async def first_words(store: AsyncStore, session: str) -> str:
    """Read what a person said first; a session that is gone meanwhile has none."""
    try:
        page = await store.run(ops.messages.forward(store.scope(), session, limit=_FIRST))
    except SessionNotFound:
        return ""
    said = [message for message in page.messages if message.role == "user"] or page.messages
    return next((text for text in map(from_text, said) if text), "")
