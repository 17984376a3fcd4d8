"""Slash commands: registered, deferred, answered to the right eyes, and doing what they say."""

from __future__ import annotations

import re

import pytest
from discord_bots import ADA, Halting, answered, running
from fake_discord import BOT, FakeDiscord, until

import recollect

CHANNEL = 10
ISSUE = ("new", "clear", "history", "rename", "search", "fork", "compact", "status")


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "talks.db")


async def ordered(fake, channel, person, name, /, **options):
    """Give a command and wait for what is shown."""
    order = fake.command(channel, person, name, **options)
    await until(lambda: order.texts, f"/{name}")
    return order


async def test_commands_are_registered_with_their_options(store):
    async with FakeDiscord() as fake, running(fake, store):
        known = {command["name"]: command for command in fake.commands}
        assert set(ISSUE) <= set(known)
        assert {"thread", "stop", "help", "resume"} <= set(known)
        assert all(1 <= len(command["description"]) <= 100 for command in known.values())
        options = {
            name: [(option["name"], option.get("required", False)) for option in command.get("options", [])]
            for name, command in known.items()
        }
        assert options["rename"] == [("title", True)]
        assert options["history"] == [("count", False)]
        assert options["search"] == [("words", True)]
        assert options["clear"] == []
        for command in known.values():
            for option in command.get("options", []):
                assert re.fullmatch(r"[a-z]{1,32}", option["name"])
                assert 1 <= len(option["description"]) <= 100


async def test_each_command_does_what_it_says(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.say(here, ADA, "apples and pears")
        await answered(fake, here)
        order = await ordered(fake, here, ADA, "history")
        assert order.deferred
        assert order.ephemeral
        assert order.acknowledged - order.sent < 3
        assert "**Ada**" in order.texts[0]
        assert "apples and pears" in order.texts[0]
        assert "Fruit" in (await ordered(fake, here, ADA, "rename", title="Fruit")).texts[0]
        assert "apples" in (await ordered(fake, here, ADA, "search", words="pears")).texts[0]
        status = await ordered(fake, here, ADA, "status")
        assert f"discord:dm:{ADA}" in status.texts[0]
        assert "Fruit" in status.texts[0]
        assert store not in "".join(status.texts)
        assert "|" not in status.texts[0]
        forked = await ordered(fake, here, ADA, "fork")
        assert not forked.ephemeral
        cleared = await ordered(fake, here, ADA, "clear")
        assert "afresh" in cleared.texts[0]
        fake.say(here, ADA, "plums")
        await answered(fake, here, 2)
        assert fake.sent(here)[-1] == "plums"
        assert "/resume" in (await ordered(fake, here, ADA, "new", title="Trees")).texts[0]
        helped = await ordered(fake, here, ADA, "help")
        assert all(f"/{name}" in helped.texts[0] for name in ISSUE)
    with recollect.open(store) as opened:
        assert opened.get_session(f"discord:dm:{ADA}").title == "Trees"
        assert len(opened.search("apples")) >= 1


async def test_compact_sums_up(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        for number in range(1, 7):
            fake.say(here, ADA, f"number {number}")
            await answered(fake, here, number)
        told = await ordered(fake, here, ADA, "compact")
        assert "summed up" in told.texts[0]
    with recollect.open(store) as opened:
        assert len(opened.get_session(f"discord:dm:{ADA}").compactions()) == 1


async def test_mistakes_are_told(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        assert "no number" in (await ordered(fake, here, ADA, "history", count="many")).texts[0]
        assert "nothing to clear" in (await ordered(fake, here, ADA, "clear")).texts[0]
        fake.command(here, ADA, "unheard-of")
        assert "tokens" in (await ordered(fake, here, ADA, "status")).texts[0]


async def test_a_long_history_comes_in_pieces(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.say(here, ADA, "words " * 300)
        await answered(fake, here)
        order = fake.command(here, ADA, "history")
        await until(lambda: len(order.texts) >= 2)
        assert all(len(text) <= 2000 for text in order.texts)


async def test_a_thread_is_opened_fresh_or_with_the_history_of_its_channel(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            fake.say(CHANNEL, ADA, f"<@{BOT}> in the channel")
            await answered(fake, CHANNEL)
            order = await ordered(fake, CHANNEL, ADA, "thread", title="Fresh")
            fresh = int(re.search(r"<#(\d+)>", order.texts[0])[1])
            assert fake.channels[fresh]["name"] == "Fresh"
            fake.say(fresh, ADA, "hello")
            assert await answered(fake, fresh) == ["[Ada] hello"]
            order = await ordered(fake, CHANNEL, ADA, "thread", history=True)
            forked = int(re.search(r"<#(\d+)>", order.texts[0])[1])
            assert "2 messages" in (await answered(fake, forked))[0]
            fake.say(forked, ADA, "and on")
            assert (await answered(fake, forked, 2))[1] == "[Ada] in the channel | [Ada] and on"
            order = await ordered(fake, forked, ADA, "thread")
            assert order.ephemeral
            assert "channels of a server" in order.texts[0]
            order = fake.command(fake.dm(ADA), ADA, "thread")
            await until(lambda: order.texts)
            assert "channels of a server" in order.texts[0]
            order = await ordered(fake, CHANNEL, 3, "thread")
            assert "let you in" in order.texts[0]
    with recollect.open(store) as opened:
        assert opened.get_session(f"discord:thread:{forked}").parent == f"discord:channel:{CHANNEL}"


async def test_a_thread_that_can_not_be_opened_is_told(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            fake.limit("POST", "/threads$", status=403, body={"message": "Missing Permissions", "code": 50013})
            order = await ordered(fake, CHANNEL, ADA, "thread")
            assert "Missing Permissions" in order.texts[0]


async def test_a_command_waits_for_its_turn_and_is_answered_late(store):
    model = Halting()
    async with FakeDiscord() as fake, running(fake, store, model):
        here = fake.dm(ADA)
        fake.say(here, ADA, "go")
        await until(model.halted.is_set)
        order = fake.command(here, ADA, "clear")
        await until(lambda: order.acknowledged)
        assert order.texts == []
        model.go.set()
        await until(lambda: order.texts)
        assert "afresh" in order.texts[0]


async def test_an_answer_to_a_command_that_is_rate_limited_comes(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.limit("POST", "/webhooks/", times=2)
        assert "tokens" in (await ordered(fake, here, ADA, "status")).texts[0]


async def test_a_command_that_can_not_be_deferred_hurts_nothing(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.limit("POST", "/callback", status=404, body={"message": "Unknown interaction", "code": 10062})
        fake.command(here, ADA, "clear")
        fake.say(here, ADA, "hello")
        await answered(fake, here)


async def test_slash_commands_that_can_not_be_registered_do_not_stop_the_bot(store):
    async with FakeDiscord() as fake:
        fake.limit("PUT", "/commands", status=403, body={"message": "Missing Access", "code": 50001})
        async with running(fake, store):
            fake.say(fake.dm(ADA), ADA, "hello")
            await answered(fake, fake.dm(ADA))
