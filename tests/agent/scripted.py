"""A model that follows the script of a test: a list of steps, each an event, a pause, an error or a function."""

from __future__ import annotations

import asyncio
import inspect

from recollect import Draft, TextPart, ToolCallPart
from recollect.agent.demo import tool_finished_event
from recollect.agent.events import Responded, TextDelta, ToolStarted
from recollect.model.message import ResultStatus


class Scripted:
    """A model with one script per run. It records the histories, instructions, tools and tasks that it receives."""

    name = "scripted"
    window = 10_000

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.histories = []
        self.instructions = []
        self.tools = []
        self.tasks = []

    async def run(self, messages, *, instructions, tools, toolsets=()):
        self.histories.append(list(messages))
        self.instructions.append(instructions)
        self.tools.append({tool.__name__: tool for tool in tools})
        script = self.scripts.pop(0) if self.scripts else reply("ok")
        for step in script:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, (int, float)):
                await asyncio.sleep(step)
            elif callable(step):
                result = step()
                if inspect.isawaitable(result):
                    await result
            else:
                yield step

    async def write(self, task, messages):
        self.tasks.append(task)
        return f"scripted {task}"

    async def close(self):
        self.closed = True


def reply(*words, pause=None):
    """Return the steps of an answer that streams these words."""
    steps = []
    for word in words:
        steps.append(TextDelta(text=word))
        if pause is not None:
            steps.append(pause)
    steps.append(response("".join(words)))
    return steps


def response(text="", *calls, **fields):
    """Return the event of a complete response with this text and these tool calls."""
    parts = ([TextPart(text=text)] if text else []) + list(calls)
    return Responded(message=Draft(role="assistant", parts=tuple(parts), model="scripted", **fields))


def call_part(call_id, tool="look", **arguments):
    return ToolCallPart(call_id=call_id, tool=tool, arguments=arguments)


def tool_started(part):
    return ToolStarted(call_id=part.call_id, tool=part.tool, arguments=part.input)


def tool_finished(part, output, status: ResultStatus = "success", latency=7):
    return tool_finished_event(part, status, output, latency)
