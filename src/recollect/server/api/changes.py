"""The change feed: which sessions changed, by anyone, as an event stream."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

from litestar import Request, get
from litestar.response import Stream

from recollect.model.value import iso, milliseconds
from recollect.server.account import Account
from recollect.server.api import stream

_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})-([0-9TZ:.\-]{20,30})", re.ASCII)
_PAGE = 500
_PAGES = 20


@get("/changes", tags=["changes"], operation_id="follow_changes", media_type=stream.TYPE)
async def follow_changes(request: Request[Any, Any, Any], account: Account) -> Stream:
    """Follow every change: `change` events with a session's id and its revision (null: it was erased).

    Send the last id back as `Last-Event-ID` to go on where a stream was cut off. Where the server no longer knows what
    was missed, it says `reset`, tells every session that changed since, and goes on: read your list again.
    """
    return stream.respond(account, _followed(account, request.headers.get("last-event-id")))


async def _followed(account: Account, last: str | None) -> AsyncGenerator[bytes]:
    await account.changes.begin()
    found = None if last is None else _ID.fullmatch(last.strip())
    after = account.changes.last
    known = found is not None and found.group(1) == account.changes.start and account.changes.knows(int(found.group(2)))
    if found is not None and known:
        after = int(found.group(2))
    yield stream.event("ready", {}, _id(account, after))
    if last is not None and not known:
        yield stream.event("reset", {}, _id(account, after))
        async for piece in _missed(account, after, None if found is None else found.group(3)):
            yield piece
    async for item in account.changes.follow(after):
        if item.change is None:
            yield stream.event("reset", {}, _id(account, item.number))
            continue
        plain = {"session": item.change.session, "revision": item.change.revision}
        yield stream.event("change", plain, _id(account, item.number))


def _id(account: Account, number: int) -> str:
    return f"{account.changes.start}-{number}-{iso(account.store.scope().now)}"


async def _missed(account: Account, number: int, since: str | None) -> AsyncGenerator[bytes]:
    """Tell the sessions that changed since a time. A client whose time is not known reads its list by itself."""
    try:
        begun = milliseconds(since or "")
    except ValueError:
        return
    for deleted in (False, True):
        after: str | None = None
        for _ in range(_PAGES):
            some = await account.store.list_sessions(_PAGE, after=after, archived=None, delegates=None, deleted=deleted)
            for session in some:
                if session.updated_at >= begun or (session.deleted_at or 0) >= begun:
                    plain = {"session": session.id, "revision": session.revision}
                    yield stream.event("change", plain, _id(account, number))
            after = some.next
            if after is None:
                break


ROUTES: list[Any] = [follow_changes]
