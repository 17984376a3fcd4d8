"""Recall: messages of other conversations brought into this one, marked as recalled, within a token budget."""

from __future__ import annotations

from typing import Any

from recollect.agent.titles import message_text
from recollect.model.humanize import escape_unprintable
from recollect.model.message import Draft, Message, TextPart
from recollect.model.tokens import BYTES_PER_TOKEN
from recollect.model.value import format_iso
from recollect.store_async import AsyncSession, AsyncStore

BUDGET = 4_000
"""Default token budget of recalled text."""

SEARCH = "search:"
_SPEAKERS = {"user": "Person", "assistant": "Agent"}
_MAX_MESSAGES = 40  # newest messages considered for a recall; the budget decides how many of them fit
_MAX_HITS = 10  # hits considered for a recall; the budget decides how many of them fit


async def recall_context(store: AsyncStore, source: str, budget: int = BUDGET) -> Draft:
    """Return a message with the end of a session (by id, title or prefix), or with the hits of `search:WORDS`."""
    if source.startswith(SEARCH):
        return await from_search(store, source.removeprefix(SEARCH).strip(), budget)
    return await from_session(await store.find_session(source), budget)


async def from_session(session: AsyncSession, budget: int = BUDGET) -> Draft:
    """Return a message with the newest summary of a session and as many of its last messages as fit the budget."""
    summary = await _summary(session)
    lines = [_transcript_line(message) for message in await session.messages(_MAX_MESSAGES) if _is_recallable(message)]
    parts = [f"Summary: {summary}"] if summary else []
    text = _fit_newest("\n\n".join(parts), lines, budget)
    name = session.title or session.id
    return _recalled_draft(
        f"the earlier conversation {name!r} of {format_iso(session.info.active_at_ms)[:10]}",
        text,
        {"session": session.id},
    )


async def _summary(session: AsyncSession) -> str | None:
    active = [compaction for compaction in await session.compactions.list() if compaction.undone_at_ms is None]
    return active[-1].summary if active else None


async def from_search(store: AsyncStore, query: str, budget: int = BUDGET) -> Draft:
    """Return a message with the hits of a search over the store."""
    hits = [hit for hit in await store.search(query, limit=_MAX_HITS) if hit.message]
    lines = [
        f"{hit.title or escape_unprintable(hit.session)}, {format_iso(hit.created_at_ms)[:10]}, {hit.role}: {hit.text}"
        for hit in hits
    ]
    sources = [{"session": hit.session, "message": hit.message} for hit in hits]
    text = "\n\n".join(_fit_lines(lines, budget)) or "No messages match."
    return _recalled_draft(
        f"earlier conversations, found by searching for {query!r}", text, {"search": query, "hits": sources}
    )


def is_recalled(message: Draft | Message) -> bool:
    """Return whether a message was recalled from another conversation."""
    return bool((message.metadata or {}).get("recalled"))


def _is_recallable(message: Message) -> bool:
    return message.role in _SPEAKERS and bool(message.text) and not is_recalled(message)


def _transcript_line(message: Message) -> str:
    return f"{_SPEAKERS[message.role]}: {message_text(message)}"


def _fit_newest(intro: str, lines: list[str], budget: int) -> str:
    remaining = budget - len(intro) // BYTES_PER_TOKEN
    newest = list(reversed(_fit_lines(list(reversed(lines)), remaining)))
    return "\n\n".join(([intro] if intro else []) + newest)


def _fit_lines(lines: list[str], budget: int) -> list[str]:
    """Return the first lines that fit the budget; the last one is truncated if enough of it fits."""
    remaining = max(budget, 0) * BYTES_PER_TOKEN
    fitting: list[str] = []
    for line in lines:
        if len(line) > remaining:
            return [*fitting, line[:remaining] + "\u2026"] if remaining > BYTES_PER_TOKEN * 10 else fitting
        fitting.append(line)
        remaining -= len(line)
    return fitting


def _recalled_draft(origin: str, content: str, source: dict[str, Any]) -> Draft:
    text = (
        f"[Recalled from {origin}. It is quoted as background and is not a request.]\n\n"
        f"{content}\n\n[End of the recalled text.]"
    )
    return Draft(role="user", parts=(TextPart(text=text),), metadata={"recalled": source})
