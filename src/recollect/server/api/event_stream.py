"""Event streams (text/event-stream): the events of a turn as they happen, and changes of sessions.

Every event has an id. A client that reconnects sends the last one as Last-Event-ID and receives what it missed, nothing
twice. An id in a session's stream consists of the turn, the number of its events sent so far, and the revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple

from litestar import Request, get
from litestar.response import Stream

from recollect.agent.events import Event
from recollect.model.value import format_iso, parse_iso
from recollect.server.account import Account
from recollect.server.api.responses import encode_json
from recollect.server.turn_runner import DELIVERY_INTERVAL, TurnRun

KEEPALIVE_INTERVAL = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection as idle."""

EVENT_STREAM_TYPE = "text/event-stream"
_CURSOR_PATTERN = re.compile(r"([0-9]+\.[0-9]+|-):([0-9]{1,9}):([0-9]{1,18})", re.ASCII)
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class StreamCursor(NamedTuple):
    """The position of a client in a session's stream: the turn, the number of its events received, and the revision."""

    turn: str
    event_count: int
    revision: int

    def __str__(self) -> str:
        return f"{self.turn}:{self.event_count}:{self.revision}"

    @classmethod
    def read(cls, text: str | None) -> StreamCursor | None:
        """Parse the id that a client sent back. Return None if it is not an id of this server."""
        match = None if text is None else _CURSOR_PATTERN.fullmatch(text.strip())
        return None if match is None else cls(match.group(1), int(match.group(2)), int(match.group(3)))


def format_event(name: str, data: Any, id: object | None = None) -> bytes:
    """Return one event in the text/event-stream format."""
    lines = [] if id is None else [b"id: " + str(id).encode()]
    return b"\n".join([*lines, b"event: " + name.encode(), b"data: " + encode_json(data), b"", b""])


def stream_response(account: Account, pieces: AsyncGenerator[bytes]) -> Stream:
    """Return a streaming response with keep-alive comments. It ends when the server stops."""
    return Stream(
        with_keepalive(account, pieces), media_type=EVENT_STREAM_TYPE, headers=_STREAM_HEADERS, status_code=200
    )


async def with_keepalive(account: Account, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the pieces, and a comment after KEEPALIVE_INTERVAL without one. Stop when the server stops."""
    closing = asyncio.ensure_future(account.closing.wait())
    next_piece: asyncio.Future[bytes | None] = asyncio.ensure_future(_next_chunk(pieces))
    try:
        yield b": hello\n\n"
        while True:
            await asyncio.wait([next_piece, closing], timeout=KEEPALIVE_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
            if next_piece.done():
                piece = next_piece.result()
                if piece is None:
                    return
                yield piece
                next_piece = asyncio.ensure_future(_next_chunk(pieces))
            elif closing.done():
                yield b"retry: 1000\n\n"
                return
            else:
                yield b": still here\n\n"
    finally:
        await _cancel_all(closing, next_piece)
        await pieces.aclose()


def _next_chunk(pieces: AsyncGenerator[bytes]) -> Coroutine[Any, Any, bytes | None]:
    async def read_next() -> bytes | None:
        return await anext(pieces, None)

    return read_next()


async def _cancel_all(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(BaseException):
            await task


def _format_turn_event(item: Event, cursor: StreamCursor) -> bytes:
    plain = item.to_dict()
    return format_event(plain.pop("event"), plain, cursor)


async def turn_events(run: TurnRun, count: int = 0, revision: int = 0) -> AsyncGenerator[bytes]:
    """Yield the events of a turn after the first `count`, until the turn ends."""
    while True:
        for number, item in run.numbered_events(count):
            yield _format_turn_event(item, StreamCursor(run.turn or "-", number, revision))
            count = number
        if run.ended and count >= run.count:
            return
        await run.changed(count)
        await asyncio.sleep(DELIVERY_INTERVAL)  # text deltas that arrive faster are merged


async def session_events(
    account: Account, session: str, revision: int, last_cursor: StreamCursor | None
) -> AsyncGenerator[bytes]:
    """Yield the events of the running turn, then every change of the session and every later turn."""
    await account.changes.start()
    number = account.changes.last
    finished_run: TurnRun | None = None
    cursor = StreamCursor("-", 0, revision)
    run = account.runner.run(session)
    if last_cursor is not None:
        if run is not None and run.turn == last_cursor.turn and last_cursor.event_count <= run.count:
            cursor = last_cursor
        elif last_cursor.revision != revision or last_cursor.turn != "-":
            yield format_event("change", {"session": session, "revision": revision}, cursor)
    elif run is not None and run.ended:
        finished_run = run
    yield format_event(
        "ready", {"session": session, "revision": revision, "running": account.runner.running(session)}, cursor
    )
    while True:
        start_event, run = account.runner.start_event, account.runner.run(session)
        if run is not None and run is not finished_run:
            after = cursor.event_count if run.turn == cursor.turn else 0
            async for piece in turn_events(run, after, cursor.revision):
                yield piece
            finished_run, cursor = run, StreamCursor(run.turn or "-", run.count, cursor.revision)
        new_revision, number = await _next_change(account, session, number, start_event)
        if new_revision is not None:
            cursor = cursor._replace(revision=cursor.revision if new_revision < 0 else new_revision)
            revision_or_none = None if new_revision < 0 else new_revision
            yield format_event("change", {"session": session, "revision": revision_or_none}, cursor)


async def _next_change(
    account: Account, session: str, number: int, start_event: asyncio.Event
) -> tuple[int | None, int]:
    """Wait for a change of a session or the start of a turn.

    Return the new revision (-1 if the session was erased, None if only a turn started) and the number of the change.
    """
    changes = account.changes.follow(number, session=session)
    change_task = asyncio.ensure_future(anext(changes))
    start_task = asyncio.ensure_future(start_event.wait())
    try:
        await asyncio.wait([change_task, start_task], return_when=asyncio.FIRST_COMPLETED)
        if not change_task.done():
            return None, number
        numbered_change = change_task.result()
        if numbered_change.change is None:
            handle = await account.store.get_session(session)
            return (-1 if handle is None else handle.revision), numbered_change.number
        revision = numbered_change.change.revision
        return (-1 if revision is None else revision), numbered_change.number
    finally:
        await _cancel_all(change_task, start_task)
        await changes.aclose()


_EVENT_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})-([0-9TZ:.\-]{20,30})", re.ASCII)
_PAGE_SIZE = 500  # sessions per page, to bound one read
_MAX_PAGES = 20  # pages. A client that missed more reads its list again anyway.


@get("/changes", tags=["changes"], operation_id="follow_changes", media_type=EVENT_STREAM_TYPE)
async def follow_changes(request: Request[Any, Any, Any], account: Account) -> Stream:
    """Follow all changes: `change` events with a session's id and its revision (null if it was erased).

    To resume, send the last id as `Last-Event-ID`. If the server no longer has the missed changes, it sends `reset` and
    a `change` for every session that changed since, then continues. Read your list again after `reset`.
    """
    return stream_response(account, _change_events(account, request.headers.get("last-event-id")))


async def _change_events(account: Account, last_id: str | None) -> AsyncGenerator[bytes]:
    await account.changes.start()
    match = None if last_id is None else _EVENT_ID.fullmatch(last_id.strip())
    after = account.changes.last
    is_remembered = (
        match is not None
        and match.group(1) == account.changes.run_id
        and account.changes.remembers(int(match.group(2)))
    )
    if match is not None and is_remembered:
        after = int(match.group(2))
    yield format_event("ready", {}, _format_event_id(account, after))
    if last_id is not None and not is_remembered:
        yield format_event("reset", {}, _format_event_id(account, after))
        async for piece in _missed_changes(account, after, None if match is None else match.group(3)):
            yield piece
    async for numbered_change in account.changes.follow(after):
        if numbered_change.change is None:
            yield format_event("reset", {}, _format_event_id(account, numbered_change.number))
            continue
        plain = {"session": numbered_change.change.session, "revision": numbered_change.change.revision}
        yield format_event("change", plain, _format_event_id(account, numbered_change.number))


def _format_event_id(account: Account, number: int) -> str:
    return f"{account.changes.run_id}-{number}-{format_iso(time.time_ns() // 1_000_000)}"


async def _missed_changes(account: Account, number: int, since: str | None) -> AsyncGenerator[bytes]:
    """Yield a change for each session that changed since a time. Yield nothing if the time is not known."""
    try:
        start = parse_iso(since or "")
    except ValueError:
        return
    for deleted in (False, True):
        after: str | None = None
        for _ in range(_MAX_PAGES):
            page = await account.store.list_sessions(
                _PAGE_SIZE, after=after, archived=None, delegates=None, deleted=deleted
            )
            for session in page:
                if session.info.updated_at_ms >= start or (session.info.deleted_at_ms or 0) >= start:
                    plain = {"session": session.id, "revision": session.revision}
                    yield format_event("change", plain, _format_event_id(account, number))
            after = page.next
            if after is None:
                break


ROUTES: list[Any] = [follow_changes]
