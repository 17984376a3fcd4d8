"""The real Discord bot for tests, with its own store, a fake Discord and models whose answers a test controls."""

from __future__ import annotations

import asyncio
import contextlib
import re

from fake_discord import wait_until

from recollect import Draft, TextPart
from recollect.agent import Agent, Responded, TextDelta
from recollect.agent.titles import message_text
from recollect.channels.bot import AllowList
from recollect.channels.discord.bot import DiscordBot, DiscordOptions

ADA, BOB, EVE = 1, 2, 3


class EchoModel:
    """A model that answers with the user messages of its history, so that a test sees the history."""

    name = "echo"
    window = 200_000

    def __init__(self):
        self.histories = []

    def text(self, messages):
        return " | ".join(message_text(message) for message in messages if message.role == "user")

    async def run(self, messages, *, instructions, tools, toolsets=()):
        self.histories.append(list(messages))
        answer = self.text(messages)
        for word in re.findall(r"\S+\s*", answer):
            await asyncio.sleep(0)
            yield TextDelta(text=word)
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=answer),), model=self.name))

    async def write(self, task, messages):
        return f"written {task}"

    async def close(self):
        pass


class PausingModel(EchoModel):
    """A model that streams the first part, and the second after `resume` is set."""

    def __init__(self, first="The first half. ", second="The second half."):
        super().__init__()
        self.first, self.second = first, second
        self.resume = asyncio.Event()
        self.paused = asyncio.Event()

    async def run(self, messages, *, instructions, tools, toolsets=()):
        self.histories.append(list(messages))
        yield TextDelta(text=self.first)
        self.paused.set()
        await self.resume.wait()
        yield TextDelta(text=self.second)
        text = TextPart(text=self.first + self.second)
        yield Responded(message=Draft(role="assistant", parts=(text,), model=self.name))


class TextModel(EchoModel):
    """A model that streams one text, some characters at a time."""

    def __init__(self, text, size=40, pause=0.0):
        super().__init__()
        self.answer, self.size, self.pause = text, size, pause

    async def run(self, messages, *, instructions, tools, toolsets=()):
        self.histories.append(list(messages))
        for start in range(0, len(self.answer), self.size):
            await asyncio.sleep(self.pause)
            yield TextDelta(text=self.answer[start : start + self.size])
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=self.answer),), model=self.name))


class FastDiscordBot(DiscordBot):
    """The bot without the pause that Discord requires before a second identification."""

    async def before_identify_hook(self, shard_id, *, initial=False):
        pass


async def wait_for_answers(fake, channel, count=1, seconds=60.0):
    """Wait until the bot has sent `count` complete messages in a channel, and return their texts."""

    def complete_texts():
        texts = fake.bot_texts(channel)
        return len(texts) >= count and not texts[-1].endswith("\u2026") and texts

    return await wait_until(complete_texts, f"answer {count} in {channel}", seconds)


@contextlib.asynccontextmanager
async def run_bot(fake, store, model=None, *, ready=True, agent=None, **options):
    """Run the bot until the block ends. By default Ada (1) and Bob (2) are on the allow list, and Eve (3) is not."""
    for id, name, display_name in ((ADA, "ada", "Ada"), (BOB, "bob", None), (EVE, "eve", "Eve")):
        if not fake.users.get(id):
            fake.user(id, name, display_name=display_name)
    options.setdefault("access", AllowList(users=[str(ADA), str(BOB)]))
    agent = Agent(store=store, **agent) if agent else Agent(model or EchoModel(), store=store)
    async with agent:
        bot = FastDiscordBot(agent, DiscordOptions(base_url=fake.url, **options), guild_ready_timeout=0.05)
        stop = asyncio.Event()
        bot_task = asyncio.create_task(bot.serve(fake.token, stop=stop))
        try:
            if ready:
                await wait_until(
                    lambda: bot_task.done() or (fake.gateway.connected and bot.is_ready()), "the bot's start"
                )
                if bot_task.done():
                    bot_task.result()
            yield bot
        finally:
            stop.set()
            await bot_task
