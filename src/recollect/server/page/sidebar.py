"""The sidebar: the list of sessions in pages, and single rows for updates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode

from litestar import Request, Response, get
from litestar.params import QueryParameter

from recollect.model.session import SessionInfo
from recollect.model.times import DAY
from recollect.server.account import Account
from recollect.server.page import templating
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.session_rows import (
    COLORS,
    RowGroup,
    SessionRow,
    group_rows,
    make_row,
    read_first_words,
    sessions_without_title,
)
from recollect.server.page.templating import template_response
from recollect.server.path_segments import decode_path_segment
from recollect.store_async import AsyncSession

PAGE_SIZE = 40
"""Sessions per page of the list: more than fit on a screen."""

WIDTH_COOKIE = "sidebar"
WIDTHS = tuple(range(220, 481, 20))
_DEFAULT_WIDTH = 280  # CSS pixels
_MAX_ROWS = 100  # rows per request; the script asks for at most 50
_MAX_RUNNING = 1_000  # sessions with an open turn that the list marks; more than a server runs at a time
_MAX_SCANNED = 2_000  # sessions that are searched for channels and models of the filters, to bound the time

ListView = Literal["", "archived", "trash"]


class SessionFilter(NamedTuple):
    """The filter of the list."""

    view: ListView = ""
    channel: str = ""
    model: str = ""

    def list_arguments(self) -> dict[str, Any]:
        """Return the arguments for list_sessions()."""
        if self.view == "trash":
            arguments: dict[str, Any] = {"deleted": True, "archived": None, "delegates": True}
        elif self.view == "archived":
            arguments = {"archived": True}
        else:
            arguments = {"pinned_first": True}
        return {**arguments, "channel": self.channel or None, "model": self.model or None}

    def matches(self, session: SessionInfo) -> bool:
        """Return whether the list shows a session."""
        if session.relation == "delegate":
            return False
        archived = session.archived_at_ms is not None
        return (
            (self.view == "archived") == archived
            and self.view != "trash"
            and self.channel in ("", session.channel)
            and self.model in ("", session.model)
        )


async def sidebar_values(request: Request[Any, Any, Any], account: Account, session: str | None) -> dict[str, Any]:
    """Return the values of the sidebar's template, with the open session marked."""
    clock = clock_of(request.cookies)
    width = request.cookies.get(WIDTH_COOKIE, "")
    page = await _read_page(account, clock, SessionFilter(), None, "", session)
    return {
        **page,
        "groups": [*await _open_session_group(account, clock, session, page["groups"]), *page["groups"]],
        "sidebar_width": width if width in map(str, WIDTHS) else _DEFAULT_WIDTH,
        "widths": (WIDTHS[0], WIDTHS[-1]),
        "zone": clock.zone,
        "colors": COLORS,
        "key_help": templating.KEYBOARD_HELP,
    }


async def _open_session_group(
    account: Account, clock: Clock, name: str | None, groups: Sequence[RowGroup]
) -> list[RowGroup]:
    """Return a group with the open session, if it is on a later page of the list."""
    if name is None or any(row.id == name for group in groups for row in group.rows):
        return []
    handle = await account.store.get_session(name)
    if handle is None or not SessionFilter().matches(handle.info):
        return []
    return [RowGroup("open", "Current", await _read_rows(account, [handle], clock), continues=False)]


@get("/page/sessions", include_in_schema=False)
async def list_page(
    request: Request[Any, Any, Any],
    account: Account,
    after: str | None = None,
    group: str = "",
    view: ListView = "",
    channel: str = "",
    model: str = "",
) -> Response[str]:
    """Return a page of the list as HTML."""
    filter_ = SessionFilter(view, channel, model)
    values = await _read_page(account, clock_of(request.cookies), filter_, after, group, None)
    return template_response("sessions.html", **values)


async def _read_page(
    account: Account, clock: Clock, filter_: SessionFilter, after: str | None, group: str, current: str | None
) -> dict[str, Any]:
    page = await account.store.list_sessions(PAGE_SIZE, after=after, **filter_.list_arguments())
    rows = await _read_rows(account, page, clock)
    more = ""
    if page.next is not None:
        parameters = {"after": page.next, "group": rows[-1].group, **filter_._asdict()}
        more = "/page/sessions?" + urlencode(parameters)
    return {
        "groups": group_rows(rows, group),
        "more": more,
        "current": current,
        "active_filter": filter_,
        "first": after is None,
    }


async def _read_rows(account: Account, sessions: Sequence[AsyncSession], clock: Clock) -> list[SessionRow]:
    untitled = sessions_without_title(session for session in sessions if session.deleted_at is None)
    words = await asyncio.gather(*(read_first_words(session) for session in untitled))
    first_words = {session.id: text for session, text in zip(untitled, words, strict=True)}
    running = await _ids_with_open_turn(account)
    counts = await account.store.shown_counts(sessions)
    return [
        make_row(
            session.info,
            clock,
            messages=messages,
            running=session.id in running,
            first_words=first_words.get(session.id, ""),
        )
        for session, messages in zip(sessions, counts, strict=True)
    ]


async def _ids_with_open_turn(account: Account) -> set[str]:
    """Return the ids of the sessions with an open turn. One that began before the last day was abandoned."""
    since = time.time_ns() // 1_000_000 - DAY
    page = await account.store.list_sessions(_MAX_RUNNING, open_turn=True, since=since, archived=None, delegates=None)
    return {session.id for session in page}


@get("/page/rows", include_in_schema=False)
async def list_rows(
    request: Request[Any, Any, Any],
    account: Account,
    ids: Annotated[list[str], QueryParameter(name="id", max_items=_MAX_ROWS)],
    view: ListView = "",
    channel: str = "",
    model: str = "",
) -> Response[str]:
    """Return the rows of sessions by id, as HTML. Sessions that the filter excludes are left out."""
    filter_ = SessionFilter(view, channel, model)
    handles = await asyncio.gather(*(account.store.get_session(id) for id in dict.fromkeys(ids)))
    sessions = [session for session in handles if session is not None and filter_.matches(session.info)]
    rows = await _read_rows(account, sessions, clock_of(request.cookies))
    return template_response("rows.html", rows=rows, current=None)


@get("/page/children/{session:str}", include_in_schema=False)
async def child_rows(request: Request[Any, Any, Any], account: Account, session: str) -> Response[str]:
    """Return the rows of a session's sub-agents as HTML."""
    page = await account.store.list_sessions(200, parent=decode_path_segment(session), delegates=True, archived=None)
    rows = await _read_rows(account, page, clock_of(request.cookies))
    return template_response("rows.html", rows=rows, current=None)


@get("/page/filters", include_in_schema=False)
async def filter_choices(account: Account) -> dict[str, list[str]]:
    """Return the channels and models of the latest sessions."""
    channels, models = set[str](), set[str]()
    after: str | None = None
    for _ in range(_MAX_SCANNED // 500):
        page = await account.store.list_sessions(500, after=after, archived=None, delegates=True)
        channels |= {session.channel for session in page if session.channel}
        models |= {session.model for session in page if session.model}
        after = page.next
        if after is None:
            break
    return {"channels": sorted(channels, key=str.casefold), "models": sorted(models, key=str.casefold)}


ROUTES: list[Any] = [list_page, list_rows, child_rows, filter_choices]
