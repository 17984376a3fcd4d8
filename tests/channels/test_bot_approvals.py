"""Approvals in a chat: buttons below a message for the author of the request, and a timeout that denies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

pytest.importorskip("discord")
pytest.importorskip("telegram")
pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from discord_bots import ADA, BOB
from discord_bots import run_bot as run_discord_bot
from fake_discord import FakeDiscord, wait_until
from fake_telegram import TOKEN, FakeTelegram

import recollect
from payment_model import run_payment_model
from recollect.agent import Agent, approvals
from recollect.channels.bot import approval_prompts
from recollect.channels.telegram.bot import TelegramBot, TelegramOptions

LABELS = ["Allow once", "Allow in this conversation", "Always allow", "Deny"]
CHANNEL = 10  # an arbitrary channel id


@pytest.fixture
def bank(tmp_path):
    with run_payment_model(tmp_path) as bank:
        yield bank


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


class TelegramChat:
    """Two people in a group, and the bot."""

    name, ann, bob = "telegram", 7, 8

    def __init__(self, server):
        self.server = server

    async def post(self, text, user):
        await self.server.post(f"{text} @memory_bot", chat=-5, user=user, name="Ann" if user == self.ann else "Bob")

    @property
    def texts(self):
        return self.server.texts(-5)

    @property
    def buttons(self):
        return self.server.buttons(-5)

    async def press(self, label, user, buttons=None):
        return await self.server.press((buttons or self.buttons)[label], chat=-5, user=user)


class DiscordChat:
    name, ann, bob = "discord", ADA, BOB

    def __init__(self, server):
        self.server = server
        server.channel(CHANNEL)

    async def post(self, text, user):
        self.server.post(CHANNEL, user, f"<@900> {text}")

    @property
    def texts(self):
        return self.server.bot_texts(CHANNEL)

    @property
    def buttons(self):
        return self.server.buttons(CHANNEL)

    async def press(self, label, user, buttons=None):
        interaction = self.server.press(CHANNEL, user, (buttons or self.buttons)[label])
        await wait_until(lambda: interaction.acknowledged_at is not None, "the answer to a press")
        assert interaction.ephemeral == any(interaction.texts)
        return "".join(interaction.texts) or None


@contextlib.asynccontextmanager
async def telegram_chat(bank, path):
    async with FakeTelegram() as server, Agent(store=path, **bank.agent) as agent:
        settings = TelegramOptions(TOKEN, server.url, users=("7", "8"), poll=5, pause=0.01, pace=0.01)
        bot = TelegramBot(agent, settings)
        task = asyncio.create_task(bot.run())
        try:
            yield TelegramChat(server)
        finally:
            bot.stop()
            await task


@contextlib.asynccontextmanager
async def discord_chat(bank, path):
    async with FakeDiscord() as server:
        chat = DiscordChat(server)
        async with run_discord_bot(server, path, agent=bank.agent):
            yield chat


PLATFORMS = pytest.mark.parametrize("open_chat", [telegram_chat, discord_chat])


async def request_payment(chat, text="pay Eve"):
    await chat.post(text, chat.ann)
    await wait_until(lambda: list(chat.buttons) == LABELS, "the buttons")


async def wait_for_text(chat, text):
    await wait_until(lambda: any(text in message_text for message_text in chat.texts), text)


@PLATFORMS
async def test_only_the_author_of_the_request_can_answer(open_chat, bank, path):
    async with open_chat(bank, path) as chat:
        await request_payment(chat)
        (question,) = chat.texts
        assert "may I run" in question
        assert '"to": "Eve"' in question
        buttons = chat.buttons
        assert await chat.press("Allow once", chat.bob) in ("Only Ann can answer this.", "Only Ada can answer this.")
        assert bank.runs == []
        assert await chat.press("Allow once", chat.ann) is None
        await wait_for_text(chat, "The tool said: paid Eve")
        await wait_for_text(chat, "Allowed once.")
        assert chat.buttons == {}
        assert (
            await chat.press("Deny", chat.ann, buttons)
            == "This question is closed: it was already answered, or it timed out."
        )
    assert bank.runs == ["pay Eve"]


@PLATFORMS
async def test_deny(open_chat, bank, path):
    async with open_chat(bank, path) as chat:
        await request_payment(chat)
        await chat.press("Deny", chat.ann)
        await wait_for_text(chat, "The user denied this tool call")
        await wait_for_text(chat, "Not allowed.")
    assert bank.runs == []


@PLATFORMS
async def test_always_applies_to_the_user_who_answered(open_chat, bank, path):
    async with open_chat(bank, path) as chat:
        await request_payment(chat)
        await chat.press("Always allow", chat.ann)
        await wait_for_text(chat, "paid Eve")
        await chat.post("pay Zoe", chat.ann)
        await wait_for_text(chat, "paid Zoe")
        await chat.post("pay Mallory", chat.bob)
        await wait_until(lambda: chat.buttons, "the buttons")
        assert bank.runs == ["pay Eve", "pay Zoe"]
    with recollect.open(path) as store:
        (grant,) = store.records.get("agent.approvals", "grants").value
    assert (grant["who"], grant["tool"]) == (f"{chat.name}:{chat.ann}", "pay")


@PLATFORMS
async def test_a_timeout_denies(open_chat, bank, path, monkeypatch):
    monkeypatch.setattr(approval_prompts.ApprovalPrompts.__init__, "__defaults__", (0.2,))
    async with open_chat(bank, path) as chat:
        await chat.post("pay Eve", chat.ann)
        await wait_for_text(chat, "Not allowed: no answer within")
        await wait_for_text(chat, "The user denied this tool call")
        assert chat.buttons == {}
    assert bank.runs == []


@PLATFORMS
async def test_stop_and_long_arguments(open_chat, bank, path):
    async with open_chat(bank, path) as chat:
        await request_payment(chat, "pay Eve " + "word ``` " * 450 + "end")
        messages_text = "".join(chat.texts).replace("\u200b", "")
        assert messages_text.count("word") == 450
        assert "Its arguments are above." in chat.texts[-1]
        await chat.post("/stop", chat.ann)
        await wait_for_text(chat, "Stopped")
        await wait_until(lambda: chat.buttons == {}, "the buttons to disappear")
    assert bank.runs == []


@PLATFORMS
async def test_an_answer_through_the_store(open_chat, bank, path):
    async with open_chat(bank, path) as chat, recollect.open_async(path) as store:
        await request_payment(chat)
        (session,) = await store.list_sessions()
        approval = await approvals.answer(await store.session(session.id), "once")
        assert approval.who == f"{chat.name}:{chat.ann}"
        await wait_for_text(chat, "The tool said: paid Eve")
        await wait_for_text(chat, "Answered elsewhere")
        assert chat.buttons == {}
    assert bank.runs == ["pay Eve"]
