"""A conversation for the tests that kill its process. It prints each step to standard output."""

from __future__ import annotations

import asyncio
import sys
import time

from recollect.agent import Agent, TextDelta, ToolStarted
from recollect.agent.demo import DemoModel


def slow_tool() -> str:
    """Sleep longer than any test waits."""
    time.sleep(600)
    return "done"


def report(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


async def main(path: str, message: str) -> None:
    async with Agent(DemoModel(pace=0.02), store=path, tools=[slow_tool]) as agent:
        conversation = await agent.conversation("cli:killed")
        async for event in conversation.send(message):
            if isinstance(event, TextDelta):
                report("streaming")
            elif isinstance(event, ToolStarted):
                report("tool")


asyncio.run(main(*sys.argv[1:]))
