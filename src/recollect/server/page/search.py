"""The search dialog: hits while the user types, grouped by session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from litestar import Request, Response, get

from recollect.model.search import Hit
from recollect.server.account import Account
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.session_rows import UNTITLED, session_title
from recollect.server.page.templating import template_response
from recollect.server.path_segments import encode_path_segment

PAGE_SIZE = 30  # hits per page: more than the dialog shows at once
_ROLE_LABELS = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
_KIND_LABELS = {
    "title": "Title", "reasoning": "Reasoning", "tool_call": "Tool call", "tool_result": "Tool result",
    "attachment": "Attachment", "data": "Data",
}  # fmt: skip
_DAYS_AGO = {"1": 0, "7": 6, "30": 29, "90": 89, "365": 364}

RoleFilter = Literal["", "user", "assistant", "tool", "system"]
Since = Literal["", "1", "7", "30", "90", "365"]
Archived = Literal["", "yes", "no"]


class ShownHit(NamedTuple):
    """A hit to show: its label, its text in marked and unmarked pieces, and its time."""

    message: str
    is_title: bool
    label: str
    pieces: Sequence[tuple[str, bool]]
    ago: str
    exact: str


class SessionLabel(NamedTuple):
    """Details of a session that a hit does not contain: its title and its relation to its parent."""

    name: str
    relation: str | None


class SessionHits(NamedTuple):
    """The hits in one session."""

    session: str
    path_id: str
    title: str
    note: str
    hits: list[ShownHit]


def split_at_marks(hit: Hit) -> list[tuple[str, bool]]:
    """Return a hit's text in pieces, with whether each is marked."""
    pieces: list[tuple[str, bool]] = []
    offset = 0
    for start, end in hit.marks:
        pieces += [(hit.text[offset:start], False), (hit.text[start:end], True)]
        offset = end
    pieces.append((hit.text[offset:], False))
    return [(text, is_marked) for text, is_marked in pieces if text]


async def look_up_sessions(account: Account, hits: Sequence[Hit]) -> dict[str, SessionLabel]:
    """Return the labels of sessions that have a parent or no title. Deleted sessions are left out."""
    ids = list(dict.fromkeys(hit.session for hit in hits if hit.parent or not hit.title))
    handles = await asyncio.gather(*(account.store.get_session(id) for id in ids))
    sessions = [session for session in handles if session is not None]
    names = await asyncio.gather(*(session_title(session) for session in sessions))
    return {session.id: SessionLabel(name, session.relation) for session, name in zip(sessions, names, strict=True)}


def group_hits(hits: Sequence[Hit], clock: Clock, labels: Mapping[str, SessionLabel]) -> list[SessionHits]:
    """Group hits by session, in the order of each session's best hit."""
    groups: dict[str, SessionHits] = {}
    for hit in hits:
        if hit.session not in groups:
            name, relation = labels.get(hit.session, SessionLabel(hit.title or UNTITLED, None))
            relation_note = {"fork": "fork", "delegate": "sub-agent"}.get(relation or "", "")
            notes = [hit.channel or "", "archived" if hit.archived_at_ms else "", relation_note]
            note = " · ".join(note for note in notes if note)
            groups[hit.session] = SessionHits(hit.session, encode_path_segment(hit.session), name, note, [])
        groups[hit.session].hits.append(
            ShownHit(
                hit.message or "",
                hit.kind == "title",
                _hit_label(hit),
                split_at_marks(hit),
                clock.ago(hit.created_at_ms),
                clock.exact(hit.created_at_ms),
            )
        )
    return list(groups.values())


def _hit_label(hit: Hit) -> str:
    """Return the label of a hit: the author, or the kind of part."""
    kind = _KIND_LABELS.get(hit.kind)
    if hit.tool and kind:
        return f"{kind}, {hit.tool}"
    return kind or _ROLE_LABELS.get(hit.role or "", hit.role or "")


@get("/page/search", include_in_schema=False)
async def search_hits(
    request: Request[Any, Any, Any],
    account: Account,
    q: str = "",
    after: str | None = None,
    role: RoleFilter = "",
    channel: str = "",
    tool: str = "",
    model: str = "",
    since: Since = "",
    archived: Archived = "",
    delegates: bool = False,
) -> Response[str]:
    """Return a page of hits as HTML."""
    clock = clock_of(request.cookies)
    hits = await account.store.search(
        q, PAGE_SIZE, after=after, role=role or None, channel=channel or None, tool=tool or None, model=model or None,
        since=clock.midnight(_DAYS_AGO[since]) if since else None,
        archived={"": None, "yes": True, "no": False}[archived], delegates=delegates,
    )  # fmt: skip
    more = ""
    if hits.next is not None:
        parameters = {"q": q, "role": role, "channel": channel, "tool": tool, "model": model, "since": since,
                 "archived": archived, "delegates": str(delegates).lower(), "after": hits.next}  # fmt: skip
        more = "/page/search?" + urlencode(parameters)
    return template_response(
        "hits.html",
        groups=group_hits(hits, clock, await look_up_sessions(account, hits)),
        more=more,
        first=after is None,
        query=q,
        index_error=hits.index_error,
    )


ROUTES: list[Any] = [search_hits]
