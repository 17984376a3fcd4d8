"""The conversation's addresses: the page with a session open, its header, and its items."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Redirect

from recollect.agent.commands import COMMANDS
from recollect.agent.models import DEMO, talkable
from recollect.agent.session_commands import is_empty
from recollect.errors import InvalidValue, MessageNotFound, SessionInTrash, SessionNotFound
from recollect.model import amount, keys
from recollect.model.message import Message
from recollect.server.account import Account
from recollect.server.names import piece, session_id
from recollect.server.page import items, parts
from recollect.server.page.branching import tip
from recollect.server.page.clock import clock_of
from recollect.server.page.frame import framed
from recollect.server.page.naming import called
from recollect.server.page.template import html, render
from recollect.server.page.uploads import LIMITS
from recollect.store_async import AsyncSession

MODELS = "web.models"
"""The setting that has the models which were chosen in the page, the last one first."""

_SHOWN_MODELS = 8
_EXCERPT = 2_000


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    """What a page shows of a conversation, and what it wants: what is new in it, or the page before or after it."""

    first: int = 1
    last: int | None = None
    have: dict[str, str] = {}
    want: str = "news"


async def opened(account: Account, name: str) -> AsyncSession:
    """Give a session to look at; its activity is not touched."""
    session = await account.store.get_session(name)
    if session is None:
        raise SessionNotFound(f"There is no conversation {name!r} here. It may be in the trash.", session=name)
    return session


async def begun(account: Account, fields: dict[str, Any], besides: Any = None) -> AsyncSession:
    """Give a session to begin with: the last one if nothing was said in it yet, else a new one.

    `besides` names one in which something is being said, which may not be stored yet.
    """
    last = await account.store.last_session()
    reusable = last is not None and last.id != besides and keys.addressable(last.id) and not fields
    if last is not None and reusable and await is_empty(last):
        return last
    return await account.store.create_session(**fields)


def model_of(account: Account, session: AsyncSession) -> str:
    """Name the model that a session goes on with."""
    return talkable(session.model) or account.agent.model_name


async def header(account: Account, session: AsyncSession) -> dict[str, Any]:
    """Give what the header shows."""
    model = model_of(account, session)
    window = account.agent.window_of(model)
    folded = any(fold.undone_at is None for fold in await session.compactions())
    used = await session.active_tokens() if folded else session.token_count
    chosen: Any = await account.store.setting(MODELS, [])
    known = [model, account.agent.model_name, *(name for name in chosen if isinstance(name, str)), DEMO]
    return {
        "session": session,
        "title": await called(account.store, session.info),
        "parent": session.parent,
        "model": model,
        "models": list(dict.fromkeys(known))[:_SHOWN_MODELS],
        "used": amount.count(used),
        "window": amount.count(window),
        "percent": min(round(100 * used / max(window, 1)), 100),
        "branches": len(await session.branches()),
    }


async def _conversation(
    request: Request[Any, Any, Any], account: Account, session: AsyncSession, target: str | None
) -> str:
    """Render a conversation with its end on the screen, or the message that is meant."""
    clock = clock_of(request.cookies)
    revision, view = session.revision, None
    message = None if target is None else await _message(session, target)
    here = message is not None and await _is_active(session, message)
    if message is not None and here:
        view = await items.around(account, session, clock, position=message.position)
    view = view or await items.latest(account, session, clock)
    await session.refresh()
    commands = [[command.name, command.arguments, command.help] for command in COMMANDS.values()]
    values = await header(account, session)
    # In a thread, as it may be many megabytes.
    return await asyncio.to_thread(
        render,
        "conversation.html",
        **values,
        view=view,
        revision=revision,
        safe=parts.safe,
        tags=msgspec.json.encode({item.key: item.tag for item in view.items}).decode(),
        running=_turn(account, session.id) is not None,
        target=message.id if message is not None and here else None,
        elsewhere=None if message is None or here else {"id": message.id, "text": message.text[:_EXCERPT]},
        demo=values["model"] == DEMO,
        limits=LIMITS,
        commands=msgspec.json.encode(commands).decode(),
    )


async def _message(session: AsyncSession, name: str) -> Message | None:
    """Find the message that a link names, on whichever branch it is; a link to nothing shows the end."""
    try:
        return await session.message(name)
    except (InvalidValue, MessageNotFound):
        return None


async def _is_active(session: AsyncSession, message: Message) -> bool:
    """Whether a message is on the active path."""
    here = await session.messages(1, before=message.position + 1)
    return bool(here) and here[0].id == message.id


async def _startable(account: Account) -> AsyncSession | None:
    """Return the last active session that a URL can carry: a store of an older version may hold '.' and '..'."""
    last = await account.store.last_session()
    if last is None or keys.addressable(last.id):
        return last
    return next((each for each in await account.store.list_sessions(3) if keys.addressable(each.id)), None)


@get("/", include_in_schema=False)
async def start(request: Request[Any, Any, Any], account: Account) -> Response[Any]:
    """Open the session that was last open, or a page that begins one."""
    session = await _startable(account)
    if session is None:
        return await framed(request, account, title="New chat", template="begin.html")
    return Redirect(f"/c/{piece(session.id)}", status_code=303)


@get("/c/{session:str}", include_in_schema=False)
async def conversation_page(
    request: Request[Any, Any, Any], account: Account, session: str, m: str | None = None
) -> Response[str]:
    """Give the page with a session open."""
    found = await opened(account, session_id(session))
    main = await _conversation(request, account, found, m)
    title = await called(account.store, found.info)
    return await framed(request, account, title=title, main=main, session=found.id)


@get("/page/conversation/{session:str}", include_in_schema=False)
async def conversation_part(
    request: Request[Any, Any, Any], account: Account, session: str, m: str | None = None
) -> Response[str]:
    """Give a conversation to be put into a page that is open."""
    found = await opened(account, session_id(session))
    return html(await _conversation(request, account, found, m))


@post("/page/conversation/{session:str}/opened", include_in_schema=False, status_code=204)
async def conversation_opened(account: Account, session: str) -> None:
    """Remember that a session was opened last, and mark the turns in it whose process is gone."""
    with contextlib.suppress(SessionNotFound, SessionInTrash):  # it went while it was opened
        await account.store.set_last_session(session_id(session))
        await account.store.recover(session_id(session))


@post("/page/conversation/{session:str}/show", include_in_schema=False, status_code=200)
async def conversation_show(account: Account, session: str, data: dict[str, str]) -> dict[str, bool]:
    """Switch to the branch of a message, at its newest end, if the message is on another one."""
    found = await opened(account, session_id(session))
    message = await _message(found, data.get("message", ""))
    if message is None or await _is_active(found, message):
        return {"switched": False}
    branches = await found.branches()
    if any(branch.id == message.branch for branch in branches):
        await found.switch(tip(branches, message.branch, message.position))
    return {"switched": True}


@post("/page/conversation/{session:str}/items", include_in_schema=False, status_code=200)
async def conversation_items(
    request: Request[Any, Any, Any], account: Account, session: str, data: Shown
) -> dict[str, Any]:
    """Give what is new in what a page shows, or the page before or after it; or say that the session is gone."""
    found = await account.store.get_session(session_id(session))
    if found is not None:
        with contextlib.suppress(SessionNotFound):  # it went while it was read
            return await _shown(request, account, found, data)
    return {"gone": await _gone(account, session_id(session))}


async def _shown(request: Request[Any, Any, Any], account: Account, found: AsyncSession, data: Shown) -> dict[str, Any]:
    clock = clock_of(request.cookies)
    revision = found.revision  # of before the messages are read: what changes meanwhile is asked for again
    if data.want == "older":
        view = await items.older(account, found, clock, before=data.first)
    elif data.want == "newer":
        view = await items.between(
            account, found, clock, first=(data.last or 0) + 1, last=(data.last or 0) + items.PAGE
        )
    else:
        view = await items.between(account, found, clock, first=data.first, last=data.last)
    await found.refresh()
    head = await header(account, found) if data.want == "news" else None
    return {
        "revision": revision,
        "first": view.first,
        "last": view.last,
        "older": view.older,
        "newer": view.newer,
        "turn": _turn(account, found.id),
        "items": [[i.key, i.tag, None if data.have.get(i.key) == i.tag else i.html] for i in view.items],
        "header": None if head is None else render("header.html", **head),
        "title": await called(account.store, found.info),
    }


async def _gone(account: Account, name: str) -> str:
    """Say what became of a session that a page shows."""
    try:
        await account.session(name)
    except SessionInTrash:
        return "trash"
    except SessionNotFound:
        return "erased"
    return "trash"  # it is back already, and the page offers that


def _turn(account: Account, session: str) -> str | None:
    """Name the turn that runs in a session here."""
    run = account.talks.run(session)
    return None if run is None or run.ended else run.turn


@post("/page/new", include_in_schema=False, status_code=201)
async def new_session(account: Account, data: dict[str, Any]) -> dict[str, str]:
    """Begin a new conversation."""
    fields = {name: data[name] for name in ("title", "model") if isinstance(data.get(name), str) and data[name]}
    session = await begun(account, fields, data.get("besides"))
    return {"session": session.id}


ROUTES: list[Any] = [
    start, conversation_page, conversation_part, conversation_opened, conversation_show, conversation_items,
    new_session,
]  # fmt: skip
