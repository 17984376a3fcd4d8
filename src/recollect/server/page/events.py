"""The page's event stream: every change of the store, and the answers that come in the sessions that are open.

A browser has one stream for all its windows. What a slow one has not taken yet is put together, never queued.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from litestar import Request, get
from litestar.response import Stream

from recollect.server.account import Account
from recollect.server.page.picture import picture
from recollect.server.talks import PACE, Run

_HEARTBEAT = 10.0
_MOST_OPEN = 50


def _told(event: str, data: dict[str, Any], id: str | None = None) -> bytes:
    place = b"" if id is None else f"id: {id}\n".encode()
    return place + f"event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class Followed:
    """An open session: the run that was last seen in it, and how much of it was told."""

    def __init__(self, session: str, wake: asyncio.Event) -> None:
        self.session = session
        self._wake = wake
        self._run: Run | None = None
        self._ended: Run | None = None
        self._version = -1

    async def news(self, run: Run | None) -> list[bytes]:
        """Give what is new in the session's run."""
        told: list[bytes] = []
        if run is not self._run:
            told += self._over(self._run)  # another one came in its place, so it has ended
            self.leave()
            if run is None or run is self._ended:
                return told
            self._run, self._version = run, -1
            run.watchers.add(self._wake)
        if run is None:
            return told
        ended = run.ended  # of before: what happens while it is drawn is told with the next look
        if not ended or self._version >= 0:
            told += await self._progress(run)
        if ended:
            told += self._over(run)
            self.leave()
        return told

    async def _progress(self, run: Run) -> list[bytes]:
        changes = await picture(run).changes(self._version)
        if changes["version"] <= self._version:
            return []
        self._version = changes["version"]
        return [_told("progress", {"session": self.session, "turn": run.turn, **changes})]

    def _over(self, run: Run | None) -> list[bytes]:
        """Say that a run has ended: also one that ended before it was followed, which a page may show as running."""
        if run is None:
            return []
        self._ended = run
        return [_told("ended", {"session": self.session, "turn": run.turn})]

    def leave(self) -> None:
        """Follow the run no longer."""
        if self._run is not None:
            self._run.watchers.discard(self._wake)
        self._run = None


async def follow(account: Account, sessions: Sequence[str], after: str | None) -> AsyncGenerator[bytes]:
    """Tell what happens, for as long as someone listens."""
    feed = account.feed
    await feed.begin()
    wake = asyncio.Event()
    feed.watchers.add(wake)
    followed = [Followed(session, wake) for session in dict.fromkeys(sessions)]
    known = feed.place(after)
    place = feed.count if known is None else known
    try:
        yield b"retry: 1000\n\n" + _told("hello", {"missed": known is None}, feed.mark(place))
        while not feed.ended:
            wake.clear()
            news, place = feed.since(place), feed.count
            for number, change in enumerate(news, 1):
                # The place is told with the last one: who loses the connection before it is told all of them again.
                mark = feed.mark(place) if number == len(news) else None
                told = _told("change", change._asdict(), mark)
                yield told if change.session else _told("hello", {"missed": True}, mark)
            for session in followed:
                for piece in await session.news(account.talks.run(session.session)):
                    yield piece
            try:
                await asyncio.wait_for(wake.wait(), _HEARTBEAT)
            except TimeoutError:
                yield _told("ping", {})
            else:
                await asyncio.sleep(PACE)
    finally:
        feed.watchers.discard(wake)
        for session in followed:
            session.leave()


@get("/events", include_in_schema=False)
async def events(request: Request[Any, Any, Any], account: Account) -> Stream:
    """Give the event stream; `open` names the sessions whose answers are followed."""
    sessions = request.query_params.getall("open", [])[:_MOST_OPEN]
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}

    async def told() -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(follow(account, sessions, after)) as stream:
            async for piece in stream:
                yield piece

    return Stream(told(), media_type="text/event-stream", headers=headers)


ROUTES: list[Any] = [events]
