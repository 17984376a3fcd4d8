"""A bot for tests: the real one, over a store of its own, talking to a fake Discord, with models that do as told."""

from __future__ import annotations

import asyncio
import contextlib
import re

from fake_discord import until

from recollect import Draft, TextPart
from recollect.agent import Agent, Responded, TextDelta
from recollect.agent.titles import said
from recollect.channels.bot import Access
from recollect.channels.discord.bot import DiscordBot, Options

ADA, BOB, EVE = 1, 2, 3


class Reciter:
    """A model that recites what people said to it, so that a test sees what it was given."""

    name = "reciter"
    window = 200_000

    def __init__(self):
        self.seen = []

    def text(self, spoken):
        return " | ".join(said(message) for message in spoken if message.role == "user")

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        self.seen.append(list(spoken))
        answer = self.text(spoken)
        for word in re.findall(r"\S+\s*", answer):
            await asyncio.sleep(0)
            yield TextDelta(text=word)
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=answer),), model=self.name))

    async def write(self, task, spoken):
        return f"made {task}"

    async def close(self):
        pass


class Halting(Reciter):
    """A model that says the first part, and the second when it is let."""

    def __init__(self, first="The first half. ", second="The second half."):
        super().__init__()
        self.first, self.second = first, second
        self.go = asyncio.Event()
        self.halted = asyncio.Event()

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        self.seen.append(list(spoken))
        yield TextDelta(text=self.first)
        self.halted.set()
        await self.go.wait()
        yield TextDelta(text=self.second)
        whole = TextPart(text=self.first + self.second)
        yield Responded(message=Draft(role="assistant", parts=(whole,), model=self.name))


class Writer(Reciter):
    """A model that writes one text, some characters at a time."""

    def __init__(self, text, size=40, pause=0.0):
        super().__init__()
        self.answer, self.size, self.pause = text, size, pause

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        self.seen.append(list(spoken))
        for at in range(0, len(self.answer), self.size):
            await asyncio.sleep(self.pause)
            yield TextDelta(text=self.answer[at : at + self.size])
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=self.answer),), model=self.name))


class Quick(DiscordBot):
    """The bot without the pause that Discord asks for before a second identification."""

    async def before_identify_hook(self, shard_id, *, initial=False):
        pass


async def answered(fake, place, count=1, seconds=60.0):
    """Wait until so many messages of the bot stand in a place, whole, and give them."""

    def there():
        sent = fake.sent(place)
        return len(sent) >= count and not sent[-1].endswith("\u2026") and sent

    return await until(there, f"answer {count} in {place}", seconds)


@contextlib.asynccontextmanager
async def running(fake, store, model=None, *, ready=True, agent=None, **options):
    """Run the bot until the block ends. People: ada (1) may talk, bob (2) too, eve (3) may not."""
    for id, name, shown in ((ADA, "ada", "Ada"), (BOB, "bob", None), (EVE, "eve", "Eve")):
        fake.users.get(id) or fake.user(id, name, shown=shown)
    options.setdefault("access", Access(users=[str(ADA), str(BOB)]))
    agent = Agent(store=store, **agent) if agent else Agent(model or Reciter(), store=store)
    async with agent:
        bot = Quick(agent, Options(base_url=fake.url, **options), guild_ready_timeout=0.05)
        stop = asyncio.Event()
        serving = asyncio.create_task(bot.serve(fake.token, stop=stop))
        try:
            if ready:
                await until(lambda: serving.done() or (fake.gateway.connected and bot.is_ready()), "the bot's start")
                if serving.done():
                    serving.result()
            yield bot
        finally:
            stop.set()
            await serving
