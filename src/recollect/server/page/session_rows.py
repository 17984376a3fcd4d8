"""Sessions as rows of a list: titles, rows, and the groups that they are shown in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from recollect.agent.titles import title_of
from recollect.errors import SessionNotFound
from recollect.model.humanize import format_count, pluralize
from recollect.model.session import SessionInfo
from recollect.server.page.clock import Clock
from recollect.server.path_segments import encode_path_segment
from recollect.store_async import AsyncSession

UNTITLED = "New chat"
_MAX_TITLE_LENGTH = 200  # characters of a title in the list; more than any row shows
_FIRST_MESSAGES = 4  # messages in which the first user message is searched: instructions may precede it


def single_line(text: str) -> str:
    """Return the first _MAX_TITLE_LENGTH characters of a text on one line."""
    return " ".join(text[: _MAX_TITLE_LENGTH * 4].split())[:_MAX_TITLE_LENGTH]


def stored_title(session: SessionInfo) -> str:
    """Return the title of a session, or its task; empty if it has neither."""
    return single_line(session.title or "") or single_line(session.task or "")


async def session_title(session: AsyncSession) -> str:
    """Return a title to show. Without a stored title, read the first words of the session."""
    name = stored_title(session.info)
    if not name and session.message_count:
        name = single_line(await read_first_words(session))
    return name or UNTITLED


async def read_first_words(session: AsyncSession) -> str:
    """Return the first words of the first user message; empty if the session was deleted meanwhile."""
    try:
        first_messages = await session.messages(limit=_FIRST_MESSAGES)
    except SessionNotFound:
        return ""
    messages = [message for message in first_messages if message.role == "user"] or first_messages
    return next((text for text in map(title_of, messages) if text), "")


COLORS = ("red", "orange", "yellow", "green", "blue", "purple")
"""Colors that the page offers. Other stored colors are kept and shown as gray."""


class SessionRow(NamedTuple):
    """The values of a row: a title, and a gray line with details."""

    id: str
    path_id: str
    title: str
    untitled: bool
    channel: str
    messages: str
    ago: str
    exact: str
    at: int
    group: str
    label: str
    color: str
    running: bool
    pinned: bool
    archived: bool
    deleted: bool
    delegates: int
    delegates_label: str


class RowGroup(NamedTuple):
    """Rows under one heading. With `continues`, the heading is on the previous page."""

    key: str
    label: str
    rows: list[SessionRow]
    continues: bool


def make_row(
    session: SessionInfo, clock: Clock, *, messages: int = 0, running: bool = False, first_words: str = ""
) -> SessionRow:
    """Return the row of a session. `messages` is its number of messages without tool steps.

    Without a title, the row shows the first words, or "New chat".
    """
    at = session.deleted_at_ms or session.active_at_ms
    title = stored_title(session) or single_line(first_words)
    key, label = ("pinned", "Pinned") if _is_pinned(session) else clock.group(at)
    return SessionRow(
        id=session.id, path_id=encode_path_segment(session.id), title=title or UNTITLED, untitled=not title,
        channel=session.channel or "", messages=_message_count(messages, session.message_count),
        ago=clock.hour(at) if key == "yesterday" else clock.ago(at), exact=clock.exact(at), at=at,
        group=key, label=label, color=_color(session.color), running=running, pinned=session.pinned_at_ms is not None,
        archived=session.archived_at_ms is not None, deleted=session.deleted_at_ms is not None,
        delegates=session.delegate_count, delegates_label=pluralize(session.delegate_count, "sub-agent"),
    )  # fmt: skip


def group_rows(rows: Iterable[SessionRow], before: str = "") -> list[RowGroup]:
    """Group consecutive rows under headings. `before` is the last group of the previous page."""
    groups: list[RowGroup] = []
    for row in rows:
        if not groups or groups[-1].key != row.group:
            groups.append(RowGroup(row.group, row.label, [], not groups and row.group == before))
        groups[-1].rows.append(row)
    return groups


def sessions_without_title(sessions: Iterable[AsyncSession]) -> list[AsyncSession]:
    """Return the sessions with messages but no title: their first words must be read."""
    return [session for session in sessions if session.message_count and not stored_title(session.info)]


def _message_count(number: int, stored_count: int) -> str:
    return f"{format_count(number)} {'message' if number == 1 else 'messages'}" if number or stored_count else "empty"


def _is_pinned(session: SessionInfo) -> bool:
    return session.pinned_at_ms is not None and session.archived_at_ms is None and session.deleted_at_ms is None


def _color(color: str | None) -> str:
    if not color:
        return ""
    return color if color in COLORS else "other"
