"""What the tests of killed processes run: a talk that says on standard output how far it is."""

from __future__ import annotations

import asyncio
import sys
import time

from recollect.agent import Agent, TextDelta, ToolStarted
from recollect.agent.demo import DemoModel


def slow_tool() -> str:
    """Take longer than anyone waits."""
    time.sleep(600)
    return "done"


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(path: str, said: str) -> None:
    async with Agent(DemoModel(pace=0.02), store=path, tools=[slow_tool]) as agent:
        talk = await agent.talk("cli:killed")
        async for event in talk.send(said):
            if isinstance(event, TextDelta):
                tell("streaming")
            elif isinstance(event, ToolStarted):
                tell("tool")


asyncio.run(main(*sys.argv[1:]))
