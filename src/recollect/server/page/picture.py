"""An answer while it comes, drawn as it grows: blocks that only change where something happened.

Each run has one picture, whoever looks at it. A viewer is given the changes since it last looked: whole blocks, or for
a text the elements after those that stay.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from recollect.agent.events import Event, ReasoningDelta, Responded, TextDelta, ToolFinished, ToolStarted
from recollect.model.part import AttachmentPart, DataPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.server.page import parts, rendering
from recollect.server.page.template import render
from recollect.server.talks import Run

_REMEMBERED = 200


class Block:
    """One element of an answer: HTML that is replaced, or a text that grows."""

    def __init__(self, html: str = "", stream: rendering.Stream | None = None) -> None:
        self.html = html
        self.stream = stream
        self.version = 0
        self._grown: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    def draw(self, html: str, version: int) -> None:
        """Look different from now on."""
        if html != self.html or self.stream is not None:
            self.html, self.stream, self.version = html, None, version

    async def grow(self, piece: str, version: int) -> None:
        """Take more of a text."""
        assert self.stream is not None
        unchanged = await rendering.grow(self.stream, piece)
        if unchanged is not None:
            self._grown.append((version, unchanged))
            self.version = version

    def kept_since(self, version: int) -> int:
        """Say how many elements of a text are as they were at a version."""
        if self.stream is None or not self._grown or self._grown[0][0] > version + 1:
            return 0
        return min((start for at, start in self._grown if at > version), default=0)

    def whole(self) -> str:
        """Give the block as it looks now."""
        if self.stream is None:
            return self.html
        return f'<div class="prose">{"".join(self.stream.blocks)}</div>'


class Picture:
    """What a run looks like so far."""

    def __init__(self, run: Run) -> None:
        self._run: weakref.ref[Run] = weakref.ref(run)
        self._seen = 0
        self._step = 0
        self._thinking = 0.0
        self._thought: list[str] = []
        self._thought_length = self._thought_drawn = 0
        self._looking = asyncio.Lock()  # rendering takes a while, and several viewers look at one picture
        self._calls: dict[str, tuple[Block, ToolCallPart]] = {}
        self.blocks: list[Block] = []
        self.version = 0

    async def _advance(self) -> None:
        """Take in what has happened since the last look."""
        run = self._run()
        if run is not None and run.count > self._seen:
            events = run.events(self._seen)
            self._seen = run.count
            self.version += 1
            for event in events:
                await self._take(event)

    async def _take(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._thought_over()
                last = self.blocks[-1] if len(self.blocks) > self._step else None
                if last is None or last.stream is None:
                    last = self._add(Block(stream=rendering.Stream()))
                await last.grow(event.text, self.version)
            case ReasoningDelta():
                self._think(event.text)
            case Responded():
                texts = [part.text for part in event.message.parts if isinstance(part, TextPart) and part.text.strip()]
                self._respond(event.message.parts, await rendering.rendered(texts))
            case ToolStarted():
                self._begin_tool(event)
            case ToolFinished():
                self._end_tool(event)
            case _:
                pass

    def _add(self, block: Block) -> Block:
        block.version = self.version
        self.blocks.append(block)
        return block

    def _think(self, piece: str) -> None:
        if not self._thinking:
            self._thinking, self._thought = time.monotonic(), []
            self._thought_length = self._thought_drawn = 0
            self._add(Block())
        self._thought.append(piece)
        self._thought_length += len(piece)
        if rendering.is_due(self._thought_length, self._thought_drawn):
            self._thought_drawn = self._thought_length
            self.blocks[-1].draw(parts.reasoning("".join(self._thought), thinking=True), self.version)

    def _thought_over(self) -> int | None:
        """Fold the thought when something else begins; how long it took."""
        if not self._thinking:
            return None
        took = int((time.monotonic() - self._thinking) * 1000)
        self._thinking = 0.0
        self.blocks[-1].draw(parts.reasoning("".join(self._thought), milliseconds=took), self.version)
        return took

    def _respond(self, given: tuple[Part, ...], prose: Mapping[str, str]) -> None:
        """Draw a complete response as it will be stored: where it looks the same, nothing changes."""
        self._thought_over()
        streamed = self.blocks[self._step :]
        at = self._step
        for part in given:
            drawn = self._drawn(part, streamed, prose)
            if drawn is None:
                continue
            block = self.blocks[at] if at < len(self.blocks) else self._add(Block())
            if block.stream is None or block.whole() != drawn:
                block.draw(drawn, self.version)
            if isinstance(part, ToolCallPart):
                self._calls[part.call_id] = (block, part)
            at += 1
        del self.blocks[at:]
        self._step = at

    def _drawn(self, part: Part, streamed: list[Block], prose: Mapping[str, str]) -> str | None:
        match part:
            case TextPart():
                return parts.text(prose[part.text]) if part.text.strip() else None
            case ReasoningPart():
                took = (part.metadata or {}).get("duration_ms")
                if type(took) is int:
                    return parts.reasoning(part.text, milliseconds=took)
                seen = next((b.html for b in streamed if 'class="reasoning"' in b.html and not b.stream), None)
                return (seen or parts.reasoning(part.text)) if part.text.strip() else None
            case ToolCallPart():
                return parts.card(part, None, unanswered="pending")
            case AttachmentPart():
                return parts.attachment(part, None)
            case DataPart():
                return parts.data(part)
            case _:
                return None

    def _begin_tool(self, event: ToolStarted) -> None:
        self._thought_over()
        if event.call_id not in self._calls:
            call = ToolCallPart(call_id=event.call_id, tool=event.tool, arguments=event.arguments)
            self._calls[event.call_id] = (self._add(Block()), call)
            self._step = len(self.blocks)
        block, call = self._calls[event.call_id]
        block.draw(parts.card(call, None, unanswered="running"), self.version)

    def _end_tool(self, event: ToolFinished) -> None:
        known = self._calls.get(event.call_id)
        if known is None:
            return
        found = next((part for part in event.message.parts if isinstance(part, ToolResultPart)), None)
        if found is None:
            found = ToolResultPart(call_id=event.call_id, tool=event.tool, status=event.status, text=event.output)
        result = parts.Result(found, None, event.latency_ms)
        known[0].draw(parts.card(known[1], result, unanswered="running"), self.version)

    async def html(self, turn: str) -> str:
        """Draw all of it, as an item of the conversation."""
        async with self._looking:
            await self._advance()
            blocks = [parts.safe(block.whole()) for block in self.blocks]
            return render("live.html", turn=turn, version=self.version, blocks=blocks)

    async def changes(self, since: int) -> dict[str, Any]:
        """Give what changed after a version: for each block its place and HTML, for a text from which element on.

        Both versions are told: who has less than the first can not go on from these changes, and reads all of it.
        """
        async with self._looking:
            await self._advance()
            return self._changes(since)

    def _changes(self, since: int) -> dict[str, Any]:
        found: list[list[Any]] = []
        for place, block in enumerate(self.blocks):
            if block.version <= since:
                continue
            kept = block.kept_since(since)
            if block.stream is not None and kept:
                found.append([place, kept, "".join(block.stream.blocks[kept:])])
            else:
                found.append([place, block.whole()])
        return {"since": since, "version": self.version, "count": len(self.blocks), "blocks": found}


_PICTURES: weakref.WeakKeyDictionary[Run, Picture] = weakref.WeakKeyDictionary()


def picture(run: Run) -> Picture:
    """Give the picture of a run."""
    found = _PICTURES.get(run)
    if found is None:
        found = _PICTURES[run] = Picture(run)
    return found
