"""Live updates of the page: the running answer as HTML that grows, and the event stream.

Each running turn is rendered once, for any number of clients. A client receives the changes since its last
version: whole blocks, or for a text the elements after those that did not change. A browser has one stream for all
its windows. Changes that a slow client has not received yet are merged, never queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec
from litestar import Request, get
from litestar.response import Stream

from recollect.agent.events import Event, ReasoningDelta, Responded, TextDelta, ToolFinished, ToolStarted
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.server.account import Account
from recollect.server.page import markdown_rendering, part_rendering
from recollect.server.page.templating import render_template
from recollect.server.turn_runner import DELIVERY_INTERVAL, TurnRun

_MAX_KEPT_VERSIONS = 200  # versions, about 8 s of streaming; a slower client receives the whole block


class LiveBlock:
    """One element of an answer: HTML that is replaced, or a growing text."""

    def __init__(self, html: str = "", stream: markdown_rendering.MarkdownStream | None = None) -> None:
        self.html = html
        self.stream = stream
        self.version = 0
        self._growth: deque[tuple[int, int]] = deque(maxlen=_MAX_KEPT_VERSIONS)

    def replace(self, html: str, version: int) -> None:
        """Replace the HTML."""
        if html != self.html or self.stream is not None:
            self.html, self.stream, self.version = html, None, version

    async def grow(self, piece: str, version: int) -> None:
        """Add a piece to the text."""
        assert self.stream is not None
        unchanged = await markdown_rendering.grow_stream(self.stream, piece)
        if unchanged is not None:
            self._growth.append((version, unchanged))
            self.version = version

    def count_unchanged(self, version: int) -> int:
        """Return how many elements of a text did not change since a version."""
        if self.stream is None or not self._growth or self._growth[0][0] > version + 1:
            return 0
        return min((start for at, start in self._growth if at > version), default=0)

    def to_html(self) -> str:
        """Return the current HTML."""
        if self.stream is None:
            return self.html
        return f'<div class="prose">{"".join(self.stream.blocks)}</div>'


class LiveAnswer:
    """The HTML of a run so far."""

    def __init__(self, run: TurnRun) -> None:
        self._run: weakref.ref[TurnRun] = weakref.ref(run)
        self._event_count = 0
        self._step = 0  # index of the first block of the response in progress
        self._thinking = 0.0  # time.monotonic() at the start of the reasoning; 0 outside of it
        self._reasoning: list[str] = []
        self._reasoning_length = self._rendered_length = 0
        self._lock = asyncio.Lock()  # rendering takes time, and several clients share the answer
        self._calls: dict[str, tuple[LiveBlock, ToolCallPart]] = {}
        self.blocks: list[LiveBlock] = []
        self.version = 0

    async def _advance(self) -> None:
        """Apply the events since the last call."""
        run = self._run()
        if run is not None and run.count > self._event_count:
            events = run.events(self._event_count)
            self._event_count = run.count
            self.version += 1
            for event in events:
                await self._apply(event)

    async def _apply(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._end_reasoning()
                last = self.blocks[-1] if len(self.blocks) > self._step else None
                if last is None or last.stream is None:
                    last = self._add(LiveBlock(stream=markdown_rendering.MarkdownStream()))
                await last.grow(event.text, self.version)
            case ReasoningDelta():
                self._add_reasoning(event.text)
            case Responded():
                texts = [part.text for part in event.message.parts if isinstance(part, TextPart) and part.text.strip()]
                self._respond(event.message.parts, await markdown_rendering.render_texts(texts))
            case ToolStarted():
                self._start_tool(event)
            case ToolFinished():
                self._end_tool(event)
            case _:
                pass

    def _add(self, block: LiveBlock) -> LiveBlock:
        block.version = self.version
        self.blocks.append(block)
        return block

    def _add_reasoning(self, piece: str) -> None:
        if not self._thinking:
            self._thinking, self._reasoning = time.monotonic(), []
            self._reasoning_length = self._rendered_length = 0
            self._add(LiveBlock())
        self._reasoning.append(piece)
        self._reasoning_length += len(piece)
        if markdown_rendering.is_due(self._reasoning_length, self._rendered_length):
            self._rendered_length = self._reasoning_length
            self.blocks[-1].replace(
                part_rendering.render_reasoning("".join(self._reasoning), thinking=True), self.version
            )

    def _end_reasoning(self) -> int | None:
        """Collapse the reasoning when something else begins. Return its duration in milliseconds."""
        if not self._thinking:
            return None
        milliseconds = int((time.monotonic() - self._thinking) * 1000)
        self._thinking = 0.0
        self.blocks[-1].replace(
            part_rendering.render_reasoning("".join(self._reasoning), milliseconds=milliseconds), self.version
        )
        return milliseconds

    def _respond(self, parts: tuple[Part, ...], prose: Mapping[str, str]) -> None:
        """Render a complete response as it will be stored. Equal blocks do not change."""
        self._end_reasoning()
        streaming_blocks = self.blocks[self._step :]
        index = self._step
        for part in parts:
            html = self._render_part(part, streaming_blocks, prose)
            if html is None:
                continue
            block = self.blocks[index] if index < len(self.blocks) else self._add(LiveBlock())
            if block.stream is None or block.to_html() != html:
                block.replace(html, self.version)
            if isinstance(part, ToolCallPart):
                self._calls[part.call_id] = (block, part)
            index += 1
        del self.blocks[index:]
        self._step = index

    def _render_part(self, part: Part, streaming_blocks: list[LiveBlock], prose: Mapping[str, str]) -> str | None:
        match part:
            case TextPart():
                return part_rendering.render_text(prose[part.text]) if part.text.strip() else None
            case ReasoningPart():
                milliseconds = (part.metadata or {}).get("duration_ms")
                if type(milliseconds) is int:
                    return part_rendering.render_reasoning(part.text, milliseconds=milliseconds)
                shown_html = next(
                    (b.html for b in streaming_blocks if 'class="reasoning"' in b.html and not b.stream), None
                )
                return (shown_html or part_rendering.render_reasoning(part.text)) if part.text.strip() else None
            case ToolCallPart():
                return part_rendering.render_tool_call(part, None, pending_status="pending")
            case AttachmentPart():
                return part_rendering.render_attachment(part, None)
            case DataPart():
                return part_rendering.render_data(part)
            case _:
                return None

    def _start_tool(self, event: ToolStarted) -> None:
        self._end_reasoning()
        if event.call_id not in self._calls:
            call = ToolCallPart(call_id=event.call_id, tool=event.tool, arguments=event.arguments)
            self._calls[event.call_id] = (self._add(LiveBlock()), call)
            self._step = len(self.blocks)
        block, call = self._calls[event.call_id]
        block.replace(part_rendering.render_tool_call(call, None, pending_status="running"), self.version)

    def _end_tool(self, event: ToolFinished) -> None:
        call_entry = self._calls.get(event.call_id)
        if call_entry is None:
            return
        result_part = next((part for part in event.message.parts if isinstance(part, ToolResultPart)), None)
        if result_part is None:
            result_part = ToolResultPart(call_id=event.call_id, tool=event.tool, status=event.status, text=event.output)
        result = part_rendering.StoredResult(result_part, None, event.latency_ms)
        call_entry[0].replace(
            part_rendering.render_tool_call(call_entry[1], result, pending_status="running"), self.version
        )

    async def html(self, turn: str) -> str:
        """Return the answer as an item of the conversation."""
        async with self._lock:
            await self._advance()
            blocks = [part_rendering.trusted_html(block.to_html()) for block in self.blocks]
            return render_template("live.html", turn=turn, version=self.version, blocks=blocks)

    async def changes(self, since: int) -> dict[str, Any]:
        """Return the changes after a version: index and HTML of each block; for a text, the changed elements.

        The result has both versions: a client with an older version than `since` reads the whole answer.
        """
        async with self._lock:
            await self._advance()
            return self._changes(since)

    def _changes(self, since: int) -> dict[str, Any]:
        changes: list[list[Any]] = []
        for index, block in enumerate(self.blocks):
            if block.version <= since:
                continue
            unchanged = block.count_unchanged(since)
            if block.stream is not None and unchanged:
                changes.append([index, unchanged, "".join(block.stream.blocks[unchanged:])])
            else:
                changes.append([index, block.to_html()])
        return {"since": since, "version": self.version, "count": len(self.blocks), "blocks": changes}


_LIVE_ANSWERS: weakref.WeakKeyDictionary[TurnRun, LiveAnswer] = weakref.WeakKeyDictionary()


def live_answer_of(run: TurnRun) -> LiveAnswer:
    """Return the live answer of a run."""
    answer = _LIVE_ANSWERS.get(run)
    if answer is None:
        answer = _LIVE_ANSWERS[run] = LiveAnswer(run)
    return answer


_HEARTBEAT_INTERVAL = 10.0  # seconds. live-worker.js reconnects after 35 s without an event.
_MAX_OPEN_SESSIONS = 50  # sessions per browser; live-worker.js sends no more


def _format_event(event: str, data: dict[str, Any], id: str | None = None) -> bytes:
    id_line = b"" if id is None else f"id: {id}\n".encode()
    return id_line + f"event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class FollowedSession:
    """An open session: its current run, and the version that was sent."""

    def __init__(self, session: str, wake: asyncio.Event) -> None:
        self.session = session
        self._wake = wake
        self._run: TurnRun | None = None
        self._ended: TurnRun | None = None
        self._version = -1

    async def new_events(self, run: TurnRun | None) -> list[bytes]:
        """Return the new events of the session's run."""
        events: list[bytes] = []
        if run is not self._run:
            events += self._end_events(self._run)  # another run replaced it, so it has ended
            self.unfollow()
            if run is None or run is self._ended:
                return events
            self._run, self._version = run, -1
            run.watchers.add(self._wake)
        if run is None:
            return events
        ended = run.ended  # read before rendering: later events are sent next time
        if not ended or self._version >= 0:
            events += await self._progress(run)
        if ended:
            events += self._end_events(run)
            self.unfollow()
        return events

    async def _progress(self, run: TurnRun) -> list[bytes]:
        changes = await live_answer_of(run).changes(self._version)
        if changes["version"] <= self._version:
            return []
        self._version = changes["version"]
        return [_format_event("progress", {"session": self.session, "turn": run.turn, **changes})]

    def _end_events(self, run: TurnRun | None) -> list[bytes]:
        """Return the end event of a run, also if it ended before it was followed: a page may show it as running."""
        if run is None:
            return []
        self._ended = run
        return [_format_event("ended", {"session": self.session, "turn": run.turn})]

    def unfollow(self) -> None:
        """Stop following the run."""
        if self._run is not None:
            self._run.watchers.discard(self._wake)
        self._run = None


async def follow_events(account: Account, sessions: Sequence[str], after: str | None) -> AsyncGenerator[bytes]:
    """Yield events until the client disconnects or the server stops."""
    feed = account.feed
    await feed.start()
    wake = asyncio.Event()
    feed.watchers.add(wake)
    open_sessions = [FollowedSession(session, wake) for session in dict.fromkeys(sessions)]
    last_position = feed.parse_cursor(after)
    position = feed.count if last_position is None else last_position
    try:
        yield b"retry: 1000\n\n" + _format_event("hello", {"missed": last_position is None}, feed.cursor_at(position))
        while not feed.ended:
            wake.clear()
            updates, position = feed.since(position), feed.count
            for number, update in enumerate(updates, 1):
                # Only the last one has an id: a client that disconnects earlier receives all of them again.
                cursor = feed.cursor_at(position) if number == len(updates) else None
                event = _format_event("change", update._asdict(), cursor)
                yield event if update.session else _format_event("hello", {"missed": True}, cursor)
            for session in open_sessions:
                for piece in await session.new_events(account.runner.run(session.session)):
                    yield piece
            try:
                await asyncio.wait_for(wake.wait(), _HEARTBEAT_INTERVAL)
            except TimeoutError:
                yield _format_event("ping", {})
            else:
                await asyncio.sleep(DELIVERY_INTERVAL)
    finally:
        feed.watchers.discard(wake)
        for session in open_sessions:
            session.unfollow()


@get("/events", include_in_schema=False)
async def event_stream(request: Request[Any, Any, Any], account: Account) -> Stream:
    """Return the event stream. `open` lists the sessions whose answers are followed."""
    sessions = request.query_params.getall("open", [])[:_MAX_OPEN_SESSIONS]
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}

    async def stream_events() -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(follow_events(account, sessions, after)) as stream:
            async for piece in stream:
                yield piece

    return Stream(stream_events(), media_type="text/event-stream", headers=headers)


ROUTES: list[Any] = [event_stream]
