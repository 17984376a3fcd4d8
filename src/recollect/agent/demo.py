"""The built-in model `demo`: offline, instant, and honest about being a demo.

It understands a handful of phrases, answers from the conversation itself, streams word by word and calls real tools,
so that everything around a model can be tried and tested without a key or a network. It is no language model.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from recollect.agent import demo_answers as answers
from recollect.agent.events import Event, ReasoningDelta, Responded, TextDelta, ToolFinished, ToolStarted
from recollect.agent.models import DEMO, Spoken
from recollect.agent.titles import from_text
from recollect.agent.tools import Tool, call
from recollect.model.message import Draft
from recollect.model.part import Part, ReasoningPart, ResultStatus, TextPart, ToolCallPart, ToolResultPart
from recollect.model.tokens import estimate

_WINDOW = 32_000
_PACE = 0.012
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")


class DemoModel:
    """A model without a network. `pace` is how many seconds it takes for a word."""

    name = DEMO

    def __init__(self, *, window: int | None = None, pace: float = _PACE) -> None:
        self.window = window or _WINDOW
        self._pace = pace
        self._calls = 0

    async def run(
        self,
        spoken: Spoken,
        *,
        instructions: str,
        tools: Sequence[Tool],
        toolsets: Sequence[Any] = (),  # noqa: ARG002  the demo has no use for a provider's toolsets
    ) -> AsyncGenerator[Event, None]:
        """Answer what was said last."""
        known = {tool.__name__: tool for tool in tools}
        read = estimate([TextPart(text=instructions)]) + sum(estimate(message.parts) for message in spoken)
        reply = answers.reply(spoken, list(known))
        if reply.calls:
            results: list[str] = []
            async for event in self._with_tools(reply, known, results, read):
                yield event
            reply = answers.Reply(text=reply.after(results))
        parts: list[Part] = []
        async for event in self._say(reply, parts):
            yield event
        yield Responded(message=self._draft(parts, read))

    async def _with_tools(
        self, reply: answers.Reply, known: dict[str, Tool], results: list[str], read: int
    ) -> AsyncGenerator[Event, None]:
        parts: list[Part] = []
        async for event in self._say(reply, parts):
            yield event
        asked = [self._asked(tool, arguments) for tool, arguments in reply.calls]
        yield Responded(message=self._draft([*parts, *asked], read))
        for part in asked:
            yield ToolStarted(call_id=part.call_id, tool=part.tool, arguments=part.input)
            finished = await self._called(part, known)
            results.append(finished.output)
            yield finished

    def _asked(self, tool: str, arguments: dict[str, Any]) -> ToolCallPart:
        self._calls += 1
        return ToolCallPart(call_id=f"demo-{time.time_ns():x}-{self._calls}", tool=tool, arguments=arguments)

    async def _called(self, part: ToolCallPart, known: dict[str, Tool]) -> ToolFinished:
        started = time.monotonic()
        status: ResultStatus = "success"
        try:
            output = str(await call(known[part.tool], part.input))
        except Exception as error:  # noqa: BLE001  whatever a tool raises, the model is told and the talk goes on
            status, output = "error", f"{type(error).__name__}: {error}"
        return finished(part, status, output, int((time.monotonic() - started) * 1000))

    async def _say(self, reply: answers.Reply, parts: list[Part]) -> AsyncGenerator[Event, None]:
        if reply.reasoning:
            parts.append(ReasoningPart(text=reply.reasoning))
            for word in _WORD.findall(reply.reasoning):
                await asyncio.sleep(self._pace)
                yield ReasoningDelta(text=word)
        if reply.text:
            parts.append(TextPart(text=reply.text))
            for word in _WORD.findall(reply.text):
                await asyncio.sleep(self._pace)
                yield TextDelta(text=word)

    def _draft(self, parts: Sequence[Part], read: int) -> Draft:
        return Draft(role="assistant", parts=tuple(parts), model=DEMO, input_tokens=read, output_tokens=estimate(parts))

    async def write(self, task: str, spoken: Spoken) -> str:
        """Make a title from the first question, or a summary from all of them."""
        if task == "title":
            return from_text(next((message for message in spoken if message.role == "user"), None))
        return answers.summary(spoken)

    async def close(self) -> None:
        """Do nothing: it has no connections."""


def finished(part: ToolCallPart, status: ResultStatus, output: str, latency_ms: int) -> ToolFinished:
    """Make the event of a tool that has answered, with the message that is stored for it."""
    result = ToolResultPart(
        call_id=part.call_id,
        tool=part.tool,
        status=status,
        text=output,
        error_message=output if status == "error" else None,
        metadata={"latency_ms": latency_ms},
    )
    return ToolFinished(
        call_id=part.call_id,
        tool=part.tool,
        status=status,
        output=output,
        latency_ms=latency_ms,
        message=Draft(role="tool", parts=(result,)),
    )
