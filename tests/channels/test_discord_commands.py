"""Slash commands on Discord: registration, deferral, effect, and who sees the response."""

from __future__ import annotations

import re

import pytest
from discord_bots import ADA, PausingModel, run_bot, wait_for_answers
from fake_discord import BOT, FakeDiscord, wait_until

import recollect

CHANNEL = 10  # an arbitrary channel id
COMMANDS = ("new", "clear", "history", "rename", "search", "fork", "compact", "status")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


async def run_command(fake, channel, user, name, /, **options):
    """Send a slash command, wait for its response, and return the interaction."""
    interaction = fake.send_command(channel, user, name, **options)
    await wait_until(lambda: interaction.texts, f"/{name}")
    return interaction


async def test_commands_are_registered_with_their_options(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        commands = {command["name"]: command for command in fake.commands or ()}
        assert set(COMMANDS) <= set(commands)
        assert {"thread", "stop", "help", "resume"} <= set(commands)
        assert all(1 <= len(command["description"]) <= 100 for command in commands.values())
        options = {
            name: [(option["name"], option.get("required", False)) for option in command.get("options", [])]
            for name, command in commands.items()
        }
        assert options["rename"] == [("title", True)]
        assert options["history"] == [("count", False)]
        assert options["search"] == [("words", True)]
        assert options["clear"] == []
        for command in commands.values():
            for option in command.get("options", []):
                assert re.fullmatch(r"[a-z]{1,32}", option["name"])
                assert 1 <= len(option["description"]) <= 100


async def test_each_command(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "apples and pears")
        await wait_for_answers(fake, channel)
        interaction = await run_command(fake, channel, ADA, "history")
        assert interaction.is_deferred
        assert interaction.ephemeral
        assert interaction.acknowledged_at - interaction.created_at < 3
        assert "**Ada**" in interaction.texts[0]
        assert "apples and pears" in interaction.texts[0]
        assert "Fruit" in (await run_command(fake, channel, ADA, "rename", title="Fruit")).texts[0]
        assert "apples" in (await run_command(fake, channel, ADA, "search", words="pears")).texts[0]
        status = await run_command(fake, channel, ADA, "status")
        assert f"discord:dm:{ADA}" in status.texts[0]
        assert "Fruit" in status.texts[0]
        assert path not in "".join(status.texts)
        assert "|" not in status.texts[0]
        fork = await run_command(fake, channel, ADA, "fork")
        assert not fork.ephemeral
        clear = await run_command(fake, channel, ADA, "clear")
        assert "is cleared" in clear.texts[0]
        fake.post(channel, ADA, "plums")
        await wait_for_answers(fake, channel, 2)
        assert fake.bot_texts(channel)[-1] == "plums"
        assert "/resume" in (await run_command(fake, channel, ADA, "new", title="Trees")).texts[0]
        help_answer = await run_command(fake, channel, ADA, "help")
        assert all(f"/{name}" in help_answer.texts[0] for name in COMMANDS)
    with recollect.open(path) as store:
        assert store.get_session(f"discord:dm:{ADA}").title == "Trees"
        assert len(store.search("apples")) >= 1


async def test_compact(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        for number in range(1, 7):
            fake.post(channel, ADA, f"number {number}")
            await wait_for_answers(fake, channel, number)
        answer = await run_command(fake, channel, ADA, "compact")
        assert "now summarized" in answer.texts[0]
    with recollect.open(path) as store:
        assert len(store.get_session(f"discord:dm:{ADA}").compactions.list()) == 1


async def test_invalid_commands_are_reported(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        assert (
            "The number must be between 1 and"
            in (await run_command(fake, channel, ADA, "history", count="many")).texts[0]
        )
        assert "nothing to clear" in (await run_command(fake, channel, ADA, "clear")).texts[0]
        fake.send_command(channel, ADA, "unheard-of")
        assert "tokens" in (await run_command(fake, channel, ADA, "status")).texts[0]


async def test_a_long_history_is_split(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "words " * 300)
        await wait_for_answers(fake, channel)
        interaction = fake.send_command(channel, ADA, "history")
        await wait_until(lambda: len(interaction.texts) >= 2)
        assert all(len(text) <= 2000 for text in interaction.texts)


async def test_a_thread_is_opened_empty_or_with_the_history_of_its_channel(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            fake.post(CHANNEL, ADA, f"<@{BOT}> in the channel")
            await wait_for_answers(fake, CHANNEL)
            interaction = await run_command(fake, CHANNEL, ADA, "thread", title="Fresh")
            empty_thread = int(re.search(r"<#(\d+)>", interaction.texts[0])[1])
            assert fake.channels[empty_thread]["name"] == "Fresh"
            fake.post(empty_thread, ADA, "hello")
            assert await wait_for_answers(fake, empty_thread) == ["[Ada] hello"]
            interaction = await run_command(fake, CHANNEL, ADA, "thread", history=True)
            forked_thread = int(re.search(r"<#(\d+)>", interaction.texts[0])[1])
            assert "2 messages" in (await wait_for_answers(fake, forked_thread))[0]
            fake.post(forked_thread, ADA, "and on")
            assert (await wait_for_answers(fake, forked_thread, 2))[1] == "[Ada] in the channel | [Ada] and on"
            interaction = await run_command(fake, forked_thread, ADA, "thread")
            assert interaction.ephemeral
            assert "channels of a server" in interaction.texts[0]
            interaction = fake.send_command(fake.dm(ADA), ADA, "thread")
            await wait_until(lambda: interaction.texts)
            assert "channels of a server" in interaction.texts[0]
            interaction = await run_command(fake, CHANNEL, 3, "thread")
            assert "not on my allow list" in interaction.texts[0]
    with recollect.open(path) as store:
        assert store.get_session(f"discord:thread:{forked_thread}").parent == f"discord:channel:{CHANNEL}"


async def test_a_failure_to_open_a_thread_is_reported(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            fake.limit("POST", "/threads$", status=403, body={"message": "Missing Permissions", "code": 50013})
            interaction = await run_command(fake, CHANNEL, ADA, "thread")
            assert "Missing Permissions" in interaction.texts[0]


async def test_a_command_waits_for_the_answer_in_progress(path):
    model = PausingModel()
    async with FakeDiscord() as fake, run_bot(fake, path, model):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "go")
        await wait_until(model.paused.is_set)
        interaction = fake.send_command(channel, ADA, "clear")
        await wait_until(lambda: interaction.acknowledged_at)
        assert interaction.texts == []
        model.resume.set()
        await wait_until(lambda: interaction.texts)
        assert "is cleared" in interaction.texts[0]


async def test_a_rate_limited_response_to_a_command_is_delivered(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.limit("POST", "/webhooks/", times=2)
        assert "tokens" in (await run_command(fake, channel, ADA, "status")).texts[0]


async def test_a_command_that_cannot_be_deferred_is_ignored(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.limit("POST", "/callback", status=404, body={"message": "Unknown interaction", "code": 10062})
        fake.send_command(channel, ADA, "clear")
        fake.post(channel, ADA, "hello")
        await wait_for_answers(fake, channel)


async def test_commands_that_cannot_be_registered_do_not_stop_the_bot(path):
    async with FakeDiscord() as fake:
        fake.limit("PUT", "/commands", status=403, body={"message": "Missing Access", "code": 50001})
        async with run_bot(fake, path):
            fake.post(fake.dm(ADA), ADA, "hello")
            await wait_for_answers(fake, fake.dm(ADA))
