"""Event streams: what a turn does as it does it, and what changes, in the form that a browser's EventSource reads.

Every event has an id, and a client that was cut off sends the last one back as Last-Event-ID: it is given what it
missed, nothing twice. An id of a session's stream names the turn, how many of its events were told, and the revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple

from litestar.response import Stream

from recollect.agent.events import Event
from recollect.server.account import Account
from recollect.server.api.answer import body
from recollect.server.talks import PACE, Run

ALIVE = 15.0
"""Seconds of silence after which a comment is sent, so that nothing between takes the connection for dead."""

TYPE = "text/event-stream"
_CURSOR = re.compile(r"([0-9]+\.[0-9]+|-):([0-9]{1,9}):([0-9]{1,18})", re.ASCII)
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Cursor(NamedTuple):
    """How much of a session's stream a client has: the turn, how many of its events, and the revision."""

    turn: str
    told: int
    revision: int

    def __str__(self) -> str:
        return f"{self.turn}:{self.told}:{self.revision}"

    @classmethod
    def read(cls, text: str | None) -> Cursor | None:
        """Read an id that a client sent back; None where it is none of ours."""
        found = None if text is None else _CURSOR.fullmatch(text.strip())
        return None if found is None else cls(found.group(1), int(found.group(2)), int(found.group(3)))


def event(name: str, data: Any, id: object | None = None) -> bytes:
    """Write one event."""
    lines = [] if id is None else [b"id: " + str(id).encode()]
    return b"\n".join([*lines, b"event: " + name.encode(), b"data: " + body(data), b"", b""])


def respond(account: Account, pieces: AsyncGenerator[bytes]) -> Stream:
    """Answer with a stream. It ends when the server is about to stop, and says something now and then."""
    return Stream(kept_alive(account, pieces), media_type=TYPE, headers=_HEADERS, status_code=200)


async def kept_alive(account: Account, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Give the pieces, a comment where none came for long, and end when the server is about to stop."""
    closing = asyncio.ensure_future(account.closing.wait())
    coming: asyncio.Future[bytes | None] = asyncio.ensure_future(_next(pieces))
    try:
        yield b": hello\n\n"
        while True:
            await asyncio.wait([coming, closing], timeout=ALIVE, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                piece = coming.result()
                if piece is None:
                    return
                yield piece
                coming = asyncio.ensure_future(_next(pieces))
            elif closing.done():
                yield b"retry: 1000\n\n"
                return
            else:
                yield b": still here\n\n"
    finally:
        await _ended(closing, coming)
        await pieces.aclose()


def _next(pieces: AsyncGenerator[bytes]) -> Coroutine[Any, Any, bytes | None]:
    async def given() -> bytes | None:
        return await anext(pieces, None)

    return given()


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(BaseException):
            await task


def _told(item: Event, cursor: Cursor) -> bytes:
    plain = item.to_dict()
    return event(plain.pop("event"), plain, cursor)


async def of_run(run: Run, told: int = 0, revision: int = 0) -> AsyncGenerator[bytes]:
    """Give the events of one turn after the first so many, to its end."""
    while True:
        for number, item in run.numbered(told):
            yield _told(item, Cursor(run.turn or "-", number, revision))
            told = number
        if run.ended and told >= run.count:
            return
        await run.changed(told)
        await asyncio.sleep(PACE)  # pieces that come faster are put together


async def of_session(account: Account, session: str, revision: int, last: Cursor | None) -> AsyncGenerator[bytes]:
    """Give everything of the turn that runs, then each change of the session and each turn that follows."""
    await account.changes.begin()
    number = account.changes.last
    known: Run | None = None
    cursor = Cursor("-", 0, revision)
    run = account.talks.run(session)
    if last is not None:
        if run is not None and run.turn == last.turn and last.told <= run.count:
            cursor = last
        elif last.revision != revision or last.turn != "-":
            yield event("change", {"session": session, "revision": revision}, cursor)
    elif run is not None and run.ended:
        known = run
    yield event("ready", {"session": session, "revision": revision, "running": account.talks.running(session)}, cursor)
    while True:
        begun, run = account.talks.begun, account.talks.run(session)
        if run is not None and run is not known:
            after = cursor.told if run.turn == cursor.turn else 0
            async for piece in of_run(run, after, cursor.revision):
                yield piece
            known, cursor = run, Cursor(run.turn or "-", run.count, cursor.revision)
        news, number = await _news(account, session, number, begun)
        if news is not None:
            cursor = cursor._replace(revision=cursor.revision if news < 0 else news)
            gone = None if news < 0 else news
            yield event("change", {"session": session, "revision": gone}, cursor)


async def _news(account: Account, session: str, number: int, begun: asyncio.Event) -> tuple[int | None, int]:
    """Wait for a change of a session, or for a turn that begins; -1 stands for a session that was erased."""
    changes = account.changes.follow(number, session=session)
    first = asyncio.ensure_future(anext(changes))
    other = asyncio.ensure_future(begun.wait())
    try:
        await asyncio.wait([first, other], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            return None, number
        item = first.result()
        if item.change is None:
            opened = await account.store.get_session(session)
            return (-1 if opened is None else opened.revision), item.number
        revision = item.change.revision
        return (-1 if revision is None else revision), item.number
    finally:
        await _ended(first, other)
        await changes.aclose()
