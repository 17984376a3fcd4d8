"""A program that is killed while a tool of its second run works: openai_agents_child.py URL METHOD FLAG."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from recollect.integrations.openai_agents import RecollectSession


async def main(url, method, flag):
    session = RecollectSession.from_url(url, "s")

    @function_tool
    async def weather(city: str) -> str:
        """Return the weather, for Oslo only."""
        if city == "Oslo":
            return "rain"
        with open(f"{flag}.new", "w", encoding="utf-8") as file:
            json.dump(await session.get_items(), file)
        os.rename(f"{flag}.new", flag)
        await asyncio.sleep(60)
        return "never"

    model = ScriptedModel(
        [
            [function_call("weather", {"city": "Oslo"}, call_id="c1")],
            [assistant_message("Rain.")],
            [function_call("weather", {"city": "Rome"}, call_id="c2")],
        ]
    )
    agent = Agent(name="Child", model=model, tools=[weather])
    for question in ("Weather in Oslo?", "And in Rome?"):
        if method == "run":
            await Runner.run(agent, question, session=session)
        else:
            async for _ in Runner.run_streamed(agent, question, session=session).stream_events():
                pass


asyncio.run(main(*sys.argv[1:]))
