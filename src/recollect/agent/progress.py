"""How far an answer has come: the text so far, the tools that run, and what is left to mark if it is cut off."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from recollect.agent.events import ToolFinished, ToolStarted
from recollect.agent.recorder import Recording
from recollect.agent.titles import said
from recollect.formats.truncation import is_truncated
from recollect.model.message import Draft
from recollect.model.part import ReasoningPart, ToolCallPart, ToolResultPart
from recollect.model.stream import Gathering, Kind
from recollect.model.turn import failure


class Progress:
    """One run, as the conversation follows it. Every step goes to the recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._gathering = Gathering(time.monotonic())
        self._open: dict[str, ToolCallPart] = {}
        self._used: list[Draft] = []
        self._running = 0
        self._texts: list[str] = []
        self._thought: list[float] = []

    @property
    def tools_running(self) -> bool:
        """Whether the model waits for a tool, and not we for the model."""
        return self._running > 0

    @property
    def text(self) -> str:
        """What the model has said in this turn."""
        texts = [*self._texts, said(self._gathering.draft("streaming"))]
        return "\n\n".join(text for text in texts if text)

    @property
    def unfinished(self) -> bool:
        """Whether the last response is not whole: its stream ended without a finish reason."""
        return bool(self._used) and self._used[-1].state == "interrupted"

    @property
    def truncated(self) -> bool:
        """Whether the last response ended at its length limit."""
        return bool(self._used) and is_truncated(self._used[-1])

    def piece(self, text: str, kind: Kind) -> None:
        """Take a piece of the answer."""
        if kind == "reasoning":
            self._thought = [*self._thought[:1], time.monotonic()]
        self._gathering.add(text, kind, time.monotonic())
        self._recording.text(text, kind)

    def responded(self, draft: Draft) -> list[Draft]:
        """Take a complete response; a thought in it is given the time that it took."""
        draft = self._timed(draft)
        self._gathering = Gathering(time.monotonic())
        self._texts.append(said(draft))
        self._used.append(draft)
        self._open |= {part.call_id: part for part in draft.parts if isinstance(part, ToolCallPart)}
        self._recording.answered(draft)
        return [draft]

    def _timed(self, draft: Draft) -> Draft:
        thought, self._thought = self._thought, []
        place = next((at for at, part in enumerate(draft.parts) if isinstance(part, ReasoningPart)), None)
        if place is None or not thought:
            return draft
        part = draft.parts[place]
        took = {"duration_ms": int((thought[-1] - thought[0]) * 1000)}
        timed = msgspec.structs.replace(part, metadata={**took, **(part.metadata or {})})
        return msgspec.structs.replace(draft, parts=(*draft.parts[:place], timed, *draft.parts[place + 1 :]))

    def tool_started(self, event: ToolStarted) -> None:
        """Note that a tool runs."""
        self._running += 1
        self._recording.running(event.call_id)

    async def noted(self) -> None:
        """Wait until the calls are stored, before a tool does something in the world."""
        await self._recording.settled()

    def tool_finished(self, event: ToolFinished, draft: Draft) -> list[Draft]:
        """Take a tool's result."""
        self._running = max(self._running - 1, 0)
        self._open.pop(event.call_id, None)
        self._recording.add(draft)
        return [draft]

    def cut_off(self, error: BaseException) -> list[Draft]:
        """Keep what there is when a run ends early, marked; calls that run are marked as canceled."""
        kept: list[Draft] = []
        draft = self._gathering.cut_off(error)
        if draft.parts:
            kept.append(draft)
            self._recording.answered(draft)
        for part in self._open.values():
            result = _canceled(part, error)
            kept.append(result)
            self._recording.add(result)
        return kept

    def usage(self) -> dict[str, Any]:
        """Add up what the model reported."""
        given = [draft.input_tokens for draft in self._used if draft.input_tokens is not None]
        taken = [draft.output_tokens for draft in self._used if draft.output_tokens is not None]
        return {
            "model": next((draft.model for draft in reversed(self._used) if draft.model), None),
            "input_tokens": sum(given) if given else None,
            "output_tokens": sum(taken) if taken else None,
        }


def _canceled(part: ToolCallPart, error: BaseException) -> Draft:
    stopped = isinstance(error, asyncio.CancelledError)
    told = "Stopped before it gave a result." if stopped else f"Not run to its end: {failure(error)['message']}"
    result = ToolResultPart(call_id=part.call_id, tool=part.tool, status="canceled", text=told, error_message=told)
    return Draft(role="tool", parts=(result,))
