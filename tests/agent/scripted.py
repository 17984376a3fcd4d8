"""A model that does what a test says: a list of steps, each an event, a pause, an error or a function."""

from __future__ import annotations

import asyncio
import inspect

from recollect import Draft, TextPart, ToolCallPart
from recollect.agent.demo import finished
from recollect.agent.events import Responded, TextDelta, ToolStarted


class Scripted:
    name = "scripted"
    window = 10_000

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.seen = []
        self.instructions = []
        self.tools = []
        self.written = []

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        self.seen.append(list(spoken))
        self.instructions.append(instructions)
        self.tools.append({tool.__name__: tool for tool in tools})
        script = self.scripts.pop(0) if self.scripts else say("ok")
        for step in script:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, (int, float)):
                await asyncio.sleep(step)
            elif callable(step):
                made = step()
                if inspect.isawaitable(made):
                    await made
            else:
                yield step

    async def write(self, task, spoken):
        self.written.append(task)
        return f"made {task}"

    async def close(self):
        self.closed = True


def say(*words, pause=None):
    """Say words one after another."""
    steps = []
    for word in words:
        steps.append(TextDelta(text=word))
        if pause is not None:
            steps.append(pause)
    steps.append(responded("".join(words)))
    return steps


def responded(text="", *calls, **fields):
    parts = ([TextPart(text=text)] if text else []) + list(calls)
    return Responded(message=Draft(role="assistant", parts=tuple(parts), model="scripted", **fields))


def call(call_id, tool="look", **arguments):
    return ToolCallPart(call_id=call_id, tool=tool, arguments=arguments)


def starts(part):
    return ToolStarted(call_id=part.call_id, tool=part.tool, arguments=part.input)


def answers(part, output, status="success", latency=7):
    return finished(part, status, output, latency)
