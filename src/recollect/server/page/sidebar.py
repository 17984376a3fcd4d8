"""The sidebar: the list of sessions, a page at a time, and what keeps it in step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode

from litestar import Request, Response, get
from litestar.params import QueryParameter

from recollect import ops
from recollect.model.session import Session
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page import keys
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.naming import first_words
from recollect.server.page.rows import COLORS, Group, Row, groups, row, wanting_words
from recollect.server.page.template import answer

PAGE = 40
"""Sessions in one page of the list: more than fit on a screen."""

WIDTH_COOKIE = "sidebar"
WIDTHS = tuple(range(220, 481, 20))
_USUAL_WIDTH = 280
_MOST_ROWS = 100
_MOST_LOOKED_AT = 2_000

View = Literal["", "archived", "trash"]


class Filter(NamedTuple):
    """Which sessions the list shows."""

    view: View = ""
    channel: str = ""
    model: str = ""

    def asked(self) -> dict[str, Any]:
        """Give it as list_sessions() takes it."""
        if self.view == "trash":
            shown: dict[str, Any] = {"deleted": True, "archived": None, "delegates": True}
        elif self.view == "archived":
            shown = {"archived": True}
        else:
            shown = {"pinned_first": True}
        return {**shown, "channel": self.channel or None, "model": self.model or None}

    def fits(self, session: Session) -> bool:
        """Whether a session is one of those in the list."""
        if session.relation == "delegate":
            return False
        archived = session.archived_at is not None
        return (
            (self.view == "archived") == archived
            and self.view != "trash"
            and self.channel in ("", session.channel)
            and self.model in ("", session.model)
        )


async def sidebar(request: Request[Any, Any, Any], account: Account, session: str | None) -> dict[str, Any]:
    """Give what the sidebar's template needs, with the open session marked."""
    clock = clock_of(request.cookies)
    width = request.cookies.get(WIDTH_COOKIE, "")
    page = await _page(account, clock, Filter(), None, "", session)
    return {
        **page,
        "groups": [*await _open_now(account, clock, session, page["groups"]), *page["groups"]],
        "sidebar_width": width if width in map(str, WIDTHS) else _USUAL_WIDTH,
        "widths": (WIDTHS[0], WIDTHS[-1]),
        "zone": clock.zone,
        "colors": COLORS,
        "key_help": keys.HELP,
    }


async def _open_now(account: Account, clock: Clock, name: str | None, shown: Sequence[Group]) -> list[Group]:
    """Give the open session a place on top where it stands on a later page of the list."""
    if name is None or any(row.id == name for group in shown for row in group.rows):
        return []
    found = await account.store.get_session(name)
    if found is None or not Filter().fits(found.info):
        return []
    return [Group("open", "Open now", await _rows(account, [found.info], clock), goes_on=False)]


@get("/page/sessions", include_in_schema=False)
async def sessions(
    request: Request[Any, Any, Any],
    account: Account,
    after: str | None = None,
    group: str = "",
    view: View = "",
    channel: str = "",
    model: str = "",
) -> Response[str]:
    """Give a page of the list."""
    chosen = Filter(view, channel, model)
    filled = await _page(account, clock_of(request.cookies), chosen, after, group, None)
    return answer("sessions.html", **filled)


async def _page(
    account: Account, clock: Clock, chosen: Filter, after: str | None, group: str, current: str | None
) -> dict[str, Any]:
    found = await account.store.list_sessions(PAGE, after=after, **chosen.asked())
    rows = await _rows(account, [session.info for session in found], clock)
    more = ""
    if found.next is not None:
        place = {"after": found.next, "group": rows[-1].group, **chosen._asdict()}
        more = "/page/sessions?" + urlencode(place)
    return {"groups": groups(rows, group), "more": more, "current": current, "chosen": chosen, "first": after is None}


async def _rows(account: Account, found: Sequence[Session], clock: Clock) -> list[Row]:
    wanting = wanting_words(session for session in found if session.deleted_at is None)
    words = dict(zip(wanting, await asyncio.gather(*(first_words(account.store, id) for id in wanting)), strict=True))
    running = set(await account.store.run(ops.sessions.running(account.store.scope())))
    counts = await account.store.shown_counts(found)
    return [
        row(session, clock, messages=messages, running=session.id in running, first_words=words.get(session.id, ""))
        for session, messages in zip(found, counts, strict=True)
    ]


@get("/page/rows", include_in_schema=False)
async def rows(
    request: Request[Any, Any, Any],
    account: Account,
    ids: Annotated[list[str], QueryParameter(name="id", max_items=_MOST_ROWS)],
    view: View = "",
    channel: str = "",
    model: str = "",
) -> Response[str]:
    """Give rows by the ids of their sessions: those that are in the list as it is filtered."""
    chosen = Filter(view, channel, model)
    found = await asyncio.gather(*(account.store.get_session(id) for id in dict.fromkeys(ids)))
    infos = [session.info for session in found if session is not None and chosen.fits(session.info)]
    made = await _rows(account, infos, clock_of(request.cookies))
    return answer("rows.html", rows=made, current=None)


@get("/page/children/{session:str}", include_in_schema=False)
async def children(request: Request[Any, Any, Any], account: Account, session: str) -> Response[str]:
    """Give the sub-agents' sessions of a session."""
    found = await account.store.list_sessions(200, parent=session_id(session), delegates=True, archived=None)
    made = await _rows(account, [one.info for one in found], clock_of(request.cookies))
    return answer("rows.html", rows=made, current=None)


@get("/page/filters", include_in_schema=False)
async def filters(account: Account) -> dict[str, list[str]]:
    """Give the channels and models that the newest sessions have."""
    channels, models = set[str](), set[str]()
    after: str | None = None
    for _ in range(_MOST_LOOKED_AT // 500):
        page = await account.store.list_sessions(500, after=after, archived=None, delegates=True)
        channels |= {session.channel for session in page if session.channel}
        models |= {session.model for session in page if session.model}
        after = page.next
        if after is None:
            break
    return {"channels": sorted(channels, key=str.casefold), "models": sorted(models, key=str.casefold)}


ROUTES: list[Any] = [sessions, rows, children, filters]
