"""The list of sessions as the sidebar shows it: rows, and the groups that they stand in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from recollect.model.amount import count, many
from recollect.model.session import Session
from recollect.server.names import piece
from recollect.server.page.clock import Clock
from recollect.server.page.naming import UNTITLED, given, line

COLORS = ("red", "orange", "yellow", "green", "blue", "purple")
"""The colours that the page offers; others that a program wrote are kept, and shown as grey."""


class Row(NamedTuple):
    """A session as one row: a title, and a grey line of what it is."""

    id: str
    piece: str
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
    delegates_said: str


class Group(NamedTuple):
    """Rows under one heading. `goes_on` says that the heading stands on the page before."""

    key: str
    label: str
    rows: list[Row]
    goes_on: bool


def row(session: Session, clock: Clock, *, messages: int = 0, running: bool = False, first_words: str = "") -> Row:
    """Show a session as a row; `messages` is how many it has without tool steps.

    One without a title is called by its first words, or says that it is new.
    """
    at = session.deleted_at or session.active_at
    title = given(session) or line(first_words)
    key, label = ("pinned", "Pinned") if _on_top(session) else clock.group(at)
    return Row(
        id=session.id, piece=piece(session.id), title=title or UNTITLED, untitled=not title,
        channel=session.channel or "", messages=_messages(messages, session.message_count),
        ago=clock.hour(at) if key == "yesterday" else clock.ago(at), exact=clock.exact(at), at=at,
        group=key, label=label, color=_color(session.color), running=running, pinned=session.pinned_at is not None,
        archived=session.archived_at is not None, deleted=session.deleted_at is not None,
        delegates=session.delegate_count, delegates_said=many(session.delegate_count, "sub-agent"),
    )  # fmt: skip


def groups(rows: Iterable[Row], before: str = "") -> list[Group]:
    """Put rows that follow one another under headings. `before` is the group that the page before ended in."""
    made: list[Group] = []
    for item in rows:
        if not made or made[-1].key != item.group:
            made.append(Group(item.group, item.label, [], not made and item.group == before))
        made[-1].rows.append(item)
    return made


def wanting_words(sessions: Iterable[Session]) -> list[str]:
    """Name the sessions that have messages and nothing to be called by: their first words must be read."""
    return [item.id for item in sessions if item.message_count and not given(item)]


def _messages(number: int, stored: int) -> str:
    return f"{count(number)} {'message' if number == 1 else 'messages'}" if number or stored else "empty"


def _on_top(session: Session) -> bool:
    return session.pinned_at is not None and session.archived_at is None and session.deleted_at is None


def _color(color: str | None) -> str:
    if not color:
        return ""
    return color if color in COLORS else "other"
