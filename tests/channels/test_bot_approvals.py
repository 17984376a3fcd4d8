"""Tools that wait for approval in a chat: buttons below a message, for who asked; no answer in time is a no."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

pytest.importorskip("discord")
pytest.importorskip("telegram")
pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from discord_bots import ADA, BOB
from discord_bots import running as discord_running
from fake_discord import FakeDiscord, until
from fake_telegram import TOKEN, FakeTelegram

import recollect
from paying_model import paying
from recollect.agent import Agent, approvals
from recollect.channels.bot import approving
from recollect.channels.telegram.bot import Settings, TelegramBot

LABELS = ["Allow once", "Allow in this conversation", "Always allow", "Deny"]
CHANNEL = 10


@pytest.fixture
def bank(tmp_path):
    with paying(tmp_path) as bank:
        yield bank


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


class OnTelegram:
    """Two people in a group, and the bot."""

    name, ann, bob = "telegram", 7, 8

    def __init__(self, server):
        self.server = server

    async def say(self, text, user):
        await self.server.say(f"{text} @memory_bot", chat=-5, user=user, name="Ann" if user == self.ann else "Bob")

    @property
    def texts(self):
        return self.server.texts(-5)

    @property
    def buttons(self):
        return self.server.buttons(-5)

    async def press(self, label, user, buttons=None):
        return await self.server.press((buttons or self.buttons)[label], chat=-5, user=user)


class OnDiscord:
    name, ann, bob = "discord", ADA, BOB

    def __init__(self, server):
        self.server = server
        server.channel(CHANNEL)

    async def say(self, text, user):
        self.server.say(CHANNEL, user, f"<@900> {text}")

    @property
    def texts(self):
        return self.server.sent(CHANNEL)

    @property
    def buttons(self):
        return self.server.buttons(CHANNEL)

    async def press(self, label, user, buttons=None):
        made = self.server.press(CHANNEL, user, (buttons or self.buttons)[label])
        await until(lambda: made.acknowledged is not None, "the answer to a press")
        assert made.ephemeral == any(made.texts)
        return "".join(made.texts) or None


@contextlib.asynccontextmanager
async def on_telegram(bank, path):
    async with FakeTelegram() as server, Agent(store=path, **bank.agent) as agent:
        settings = Settings(TOKEN, server.url, users=("7", "8"), poll=5, pause=0.01, pace=0.01)
        bot = TelegramBot(agent, settings)
        task = asyncio.create_task(bot.run())
        try:
            yield OnTelegram(server)
        finally:
            bot.stop()
            await task


@contextlib.asynccontextmanager
async def on_discord(bank, path):
    async with FakeDiscord() as server:
        place = OnDiscord(server)
        async with discord_running(server, path, agent=bank.agent):
            yield place


PLACES = pytest.mark.parametrize("place", [on_telegram, on_discord])


async def asked(chat, text="pay Eve"):
    await chat.say(text, chat.ann)
    await until(lambda: list(chat.buttons) == LABELS, "the buttons")


async def told(chat, text):
    await until(lambda: any(text in sent for sent in chat.texts), text)


@PLACES
async def test_who_asked_answers_and_nobody_else(place, bank, path):
    async with place(bank, path) as chat:
        await asked(chat)
        (question,) = chat.texts
        assert "may I run" in question
        assert '"to": "Eve"' in question
        buttons = chat.buttons
        assert await chat.press("Allow once", chat.bob) in ("Only Ann can answer this.", "Only Ada can answer this.")
        assert bank.runs == []
        assert await chat.press("Allow once", chat.ann) is None
        await told(chat, "The tool said: paid Eve")
        await told(chat, "Allowed once.")
        assert chat.buttons == {}
        assert await chat.press("Deny", chat.ann, buttons) == "This was answered already, or the answer came too late."
    assert bank.runs == ["pay Eve"]


@PLACES
async def test_deny(place, bank, path):
    async with place(bank, path) as chat:
        await asked(chat)
        await chat.press("Deny", chat.ann)
        await told(chat, "The user did not allow this tool call")
        await told(chat, "Not allowed.")
    assert bank.runs == []


@PLACES
async def test_always_counts_for_who_said_so(place, bank, path):
    async with place(bank, path) as chat:
        await asked(chat)
        await chat.press("Always allow", chat.ann)
        await told(chat, "paid Eve")
        await chat.say("pay Zoe", chat.ann)
        await told(chat, "paid Zoe")
        await chat.say("pay Mallory", chat.bob)
        await until(lambda: chat.buttons, "the buttons")
        assert bank.runs == ["pay Eve", "pay Zoe"]
    with recollect.open(path) as store:
        (grant,) = store.setting("approvals")
    assert (grant["who"], grant["tool"]) == (f"{chat.name}:{chat.ann}", "pay")


@PLACES
async def test_no_answer_in_time_is_a_no(place, bank, path, monkeypatch):
    monkeypatch.setattr(approving.Questions.__init__, "__defaults__", (0.2,))
    async with place(bank, path) as chat:
        await chat.say("pay Eve", chat.ann)
        await told(chat, "Not allowed: no answer within")
        await told(chat, "The user did not allow this tool call")
        assert chat.buttons == {}
    assert bank.runs == []


@PLACES
async def test_stop_and_long_arguments(place, bank, path):
    async with place(bank, path) as chat:
        await asked(chat, "pay Eve " + "word ``` " * 450 + "end")
        shown = "".join(chat.texts).replace("\u200b", "")
        assert shown.count("word") == 450
        assert "Its arguments are above." in chat.texts[-1]
        await chat.say("/stop", chat.ann)
        await told(chat, "Stopped")
        await until(lambda: chat.buttons == {}, "the buttons to go")
    assert bank.runs == []


@PLACES
async def test_somebody_at_the_store_answers(place, bank, path):
    async with place(bank, path) as chat, recollect.open_async(path) as store:
        await asked(chat)
        (found,) = await store.list_sessions()
        approval = await approvals.answer(await store.session(found.id), "once")
        assert approval.who == f"{chat.name}:{chat.ann}"
        await told(chat, "The tool said: paid Eve")
        await told(chat, "Answered in another window")
        assert chat.buttons == {}
    assert bank.runs == ["pay Eve"]
