"""The conversation's addresses: the page with a session open, and its pieces."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.response import Redirect

from recollect.errors import SessionNotFound
from recollect.server.account import Account
from recollect.server.names import piece, session_id
from recollect.server.page.frame import framed, html
from recollect.server.page.template import render
from recollect.store_async import AsyncSession


async def opened(account: Account, name: str) -> AsyncSession:
    """Give a session to look at; its activity is not touched."""
    session = await account.store.get_session(name)
    if session is None:
        raise SessionNotFound(session=name)
    return session


async def begun(account: Account, fields: dict[str, Any]) -> AsyncSession:
    """Give a session to begin with: the last one if nothing was said in it yet, else a new one."""
    last = await account.store.last_session()
    if last is not None and not (last.message_count or last.title or last.pinned_at or last.channel or fields):
        return last
    return await account.store.create_session(**fields)


@get("/", include_in_schema=False)
async def start(account: Account) -> Redirect:
    """Open the session that was last open, or a new one."""
    session = await account.store.last_session() or await account.store.create_session()
    return Redirect(f"/c/{piece(session.id)}", status_code=303)


@get("/c/{session:str}", include_in_schema=False)
async def conversation_page(request: Request[Any, Any, Any], account: Account, session: str) -> Response[str]:
    """Give the page with a session open."""
    found = await opened(account, session_id(session))
    await account.store.set_last_session(found.id)
    main = render("conversation.html", session=found)
    return await framed(request, account, title=found.title or "New chat", main=main, session=found.id)


@get("/page/conversation/{session:str}", include_in_schema=False)
async def conversation_part(account: Account, session: str) -> Response[str]:
    """Give a conversation to be put into a page that is open."""
    found = await opened(account, session_id(session))
    await account.store.set_last_session(found.id)
    return html(render("conversation.html", session=found))


@post("/page/new", include_in_schema=False, status_code=201)
async def new_session(account: Account, data: dict[str, Any]) -> dict[str, str]:
    """Begin a new conversation."""
    fields = {name: data[name] for name in ("title", "model") if data.get(name)}
    session = await begun(account, fields)
    return {"session": session.id}


ROUTES: list[Any] = [start, conversation_page, conversation_part, new_session]
