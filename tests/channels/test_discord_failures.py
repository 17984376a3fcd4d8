"""Failures of the Discord bot: rate limits, lost connections, restarts, missed and malformed messages."""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import pytest
from discord_bots import ADA, BOB, EVE, EchoModel, PausingModel, TextModel, run_bot, wait_for_answers
from fake_discord import BOT, FakeDiscord, wait_until

import recollect
from recollect.channels.bot import AllowList
from recollect.channels.discord import messages, outlet

CHANNEL, THREAD = 10, 20
CREATE, EDIT = "POST /channels/N/messages", "PATCH /channels/N/messages/N"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def fast_edits(monkeypatch):
    """Allow edits more often, to match the short rate limits of the fake server."""
    monkeypatch.setattr(outlet._DiscordOutlet, "pace", 0.06)
    monkeypatch.setattr(outlet._DiscordOutlet, "gathers", 0.0)


def read_questions(path, session_id):
    with recollect.open(path) as store:
        session = store.get_session(session_id)
        return [] if session is None else [m.parts[0].text for m in session.messages() if m.role == "user"]  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_long_answer_is_streamed_within_the_rate_limits(path, fast_edits):
    text = "\n\n".join(f"Paragraph {number}. " + "It has more words. " * 8 for number in range(60))
    async with FakeDiscord() as fake:
        fake.buckets = {CREATE: (5, 0.25), EDIT: (5, 0.25)}
        async with run_bot(fake, path, TextModel(text, pause=0.004)) as bot:
            channel = fake.dm(ADA)
            fake.post(channel, ADA, "tell me")
            await wait_until(lambda: fake.bot_texts(channel))
            await bot.dispatcher.settle()
            texts = fake.bot_texts(channel)
            edits = fake.find_requests("PATCH", f"/channels/{channel}/messages/")
            refusals = [request for request in fake.requests if request.status == 429]
    assert len(edits) > 5
    assert len(refusals) <= len(edits) / 10
    assert all(len(piece) <= 2000 for piece in texts)
    assert "\n\n".join(texts).split() == text.split()


@pytest.mark.parametrize("is_global", [False, True])
async def test_the_bot_waits_for_a_rate_limit(path, is_global):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.limit("POST", f"/channels/{channel}/messages", times=2, retry_after=0.3, is_global=is_global)
        fake.post(channel, ADA, "patience")
        start = time.monotonic()
        assert await wait_for_answers(fake, channel) == ["patience"]
        assert time.monotonic() - start >= 0.6
        statuses = [request.status for request in fake.find_requests("POST", f"/channels/{channel}/messages$")]
        assert statuses == [429, 429, 200]


async def test_a_very_long_rate_limit_does_not_block_other_channels(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        ada_channel, bob_channel = fake.dm(ADA), fake.dm(BOB)
        fake.limit("POST", f"/channels/{ada_channel}/messages", times=1000, retry_after=3600)
        fake.post(ada_channel, ADA, "never")
        fake.post(bob_channel, BOB, "now")
        assert await wait_for_answers(fake, bob_channel) == ["now"]
        fake.limits.clear()


async def test_server_errors_are_retried(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.limit("POST", f"/channels/{channel}/messages", times=1, status=503)
        fake.post(channel, ADA, "again")
        assert await wait_for_answers(fake, channel) == ["again"]


async def test_a_message_whose_response_is_lost_is_posted_once(path, monkeypatch):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.abort_response = ("POST", f"/channels/{channel}/messages")
        fake.post(channel, ADA, "once")
        await wait_for_answers(fake, channel)
        await wait_until(lambda: len(fake.find_requests("POST", f"/channels/{channel}/messages$")) == 2)
        fake.post(channel, ADA, "twice")
        assert await wait_for_answers(fake, channel, 2) == ["once", "once | twice"]


async def test_a_forbidden_channel_does_not_affect_others(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            forbidden = {"message": "Missing Permissions", "code": 50013}
            fake.limit("POST", f"/channels/{CHANNEL}/", times=1000, status=403, body=forbidden)
            fake.post(CHANNEL, ADA, f"<@{BOT}> hello")
            fake.post(fake.dm(ADA), ADA, "hello")
            await wait_for_answers(fake, fake.dm(ADA))
            assert fake.bot_texts(CHANNEL) == []


async def test_a_deleted_answer_does_not_stop_the_conversation(path):
    model = PausingModel()
    async with FakeDiscord() as fake, run_bot(fake, path, model):
        channel = fake.dm(ADA)
        question_id = fake.post(channel, ADA, "go")
        await wait_until(lambda: fake.bot_texts(channel))
        for id in [id for id in fake.messages[channel] if id != question_id]:
            del fake.messages[channel][id]
        model.resume.set()
        await wait_until(lambda: fake.find_requests("PATCH", f"/channels/{channel}/messages/"))
        fake.post(channel, ADA, "on")
        await wait_for_answers(fake, channel)


async def test_a_lost_connection_is_resumed_without_missing_messages(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "before")
        await wait_for_answers(fake, channel)
        for turn, disconnect in enumerate((fake.gateway.drop, fake.gateway.ask_to_reconnect), 1):
            await disconnect()
            fake.post(channel, ADA, f"meanwhile {turn}")
            await wait_for_answers(fake, channel, turn + 1)
            assert len(fake.gateway.resumes) == turn
        assert len(fake.gateway.identifications) == 1
        assert fake.bot_texts(channel)[-1] == "before | meanwhile 1 | meanwhile 2"


async def test_messages_are_caught_up_after_an_invalidated_gateway_session(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "before")
        await wait_for_answers(fake, channel)
        await fake.gateway.invalidate()
        fake.post(channel, ADA, "unheard")
        assert (await wait_for_answers(fake, channel, 2))[1] == "before | unheard"
        assert len(fake.gateway.identifications) == 2


async def test_malformed_events_are_ignored(path, caplog):
    model = EchoModel()
    async with FakeDiscord() as fake, run_bot(fake, path, model):
        channel = fake.dm(ADA)
        message = fake.add_message(channel, ADA, "whole")
        malformed = [
            {}, [], None, 7, "text", {"id": "x"}, {**message, "id": None}, {**message, "channel_id": "no"},
            {**message, "author": None}, {**message, "author": {}}, {**message, "mentions": [5]}, {**message, "content": None},
            {**message, "attachments": [{}]}, {**message, "type": "reply"}, {**message, "message_reference": 3},
        ]  # fmt: skip
        for data in malformed:
            fake.gateway.dispatch("MESSAGE_CREATE", data)
            fake.gateway.dispatch("INTERACTION_CREATE", data)
            fake.gateway.dispatch("THREAD_CREATE", data)
        fake.gateway.dispatch("SOMETHING_NEW", {"a": 1})
        fake.gateway.raw('{"op": 99, "d": null}')
        fake.post(channel, ADA, "still there?")
        await wait_until(lambda: any("still there?" in text for text in fake.bot_texts(channel)))
        assert len(fake.gateway.identifications) == 1
    assert "malformed MESSAGE_CREATE event" in caplog.text


async def test_invalid_json_causes_a_reconnect(path, monkeypatch):
    monkeypatch.setattr("recollect.channels.discord.client._FIRST_PAUSE", 0.01)
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.gateway.raw("}{ nonsense")
        await wait_until(lambda: len(fake.gateway.identifications) == 2)
        fake.post(channel, ADA, "hello again")
        assert await wait_for_answers(fake, channel) == ["hello again"]


async def test_messages_from_an_offline_period_are_answered_once(path):
    model = EchoModel()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.channel(CHANNEL + 1)
        async with run_bot(fake, path, model):
            fake.thread(THREAD, CHANNEL, owner=BOT)
            for chat in (fake.dm(ADA), CHANNEL, THREAD):
                fake.post(chat, ADA, f"<@{BOT}> before")
                await wait_for_answers(fake, chat)
        fake.gateway.sessions.clear()
        fake.post(fake.dm(ADA), ADA, "one")
        fake.post(fake.dm(ADA), ADA, "two")
        fake.post(fake.dm(BOB), BOB, "my first")
        fake.post(CHANNEL, ADA, "not for the bot")
        fake.post(CHANNEL, ADA, f"<@{BOT}> for the bot")
        fake.post(CHANNEL + 1, EVE, f"<@{BOT}> let me in")
        fake.post(THREAD, ADA, "in the thread")
        for _ in range(2):
            async with run_bot(fake, path, model):
                await wait_for_answers(fake, fake.dm(ADA), 3)
                await wait_for_answers(fake, fake.dm(BOB))
                await wait_for_answers(fake, CHANNEL, 2)
                await wait_for_answers(fake, THREAD, 2)
                fake.post(fake.dm(EVE), EVE, "a stranger")
                await wait_until(lambda: fake.bot_texts(fake.dm(EVE)))
            fake.gateway.sessions.clear()
        assert fake.bot_texts(fake.dm(ADA))[-1] == "before | one | two"
        assert fake.bot_texts(CHANNEL)[-1] == "[Ada] before | [Ada] for the bot"
        assert fake.bot_texts(CHANNEL + 1) == []
        assert len(model.histories) == 3 + 5
    assert read_questions(path, f"discord:dm:{BOB}") == ["my first"]


async def test_roles_apply_to_missed_messages(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.roles[EVE] = [77]
        access = AllowList(roles=["77"])
        async with run_bot(fake, path, access=access):
            pass
        fake.gateway.sessions.clear()
        fake.post(CHANNEL, BOB, f"<@{BOT}> no role")
        fake.post(CHANNEL, EVE, f"<@{BOT}> the role")
        async with run_bot(fake, path, access=access):
            assert await wait_for_answers(fake, CHANNEL) == ["[Eve] the role"]


async def test_messages_before_the_first_start_and_old_messages_are_ignored(path):
    model = EchoModel()
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", display_name="Ada")
        fake.post(fake.dm(ADA), ADA, "before there was a bot", seconds_ago=5)
        async with run_bot(fake, path, model):
            fake.post(fake.dm(ADA), ADA, "first")
            await wait_for_answers(fake, fake.dm(ADA))
        fake.gateway.sessions.clear()
        fake.post(fake.dm(ADA), ADA, "too old", seconds_ago=3)
        async with run_bot(fake, path, model, catch_up=2.0):
            fake.post(fake.dm(ADA), ADA, "now")
            await wait_for_answers(fake, fake.dm(ADA), 2)
    assert read_questions(path, f"discord:dm:{ADA}") == ["first", "now"]


async def test_a_text_command_is_not_run_again_after_a_restart(path):
    async with FakeDiscord() as fake:
        channel = None
        async with run_bot(fake, path):
            channel = fake.dm(ADA)
            fake.post(channel, ADA, "first")
            await wait_for_answers(fake, channel)
            fake.post(channel, ADA, "/clear")
            await wait_for_answers(fake, channel, 2)
            fake.post(channel, ADA, "second")
            await wait_for_answers(fake, channel, 3)
        async with run_bot(fake, path):
            fake.post(channel, ADA, "third")
            assert (await wait_for_answers(fake, channel, 4))[-1] == "second | third"


async def test_stopping_the_bot_marks_the_answer_as_interrupted(path):
    model = PausingModel()
    async with FakeDiscord() as fake:
        async with run_bot(fake, path, model):
            channel = fake.dm(ADA)
            fake.post(channel, ADA, "go")
            await wait_until(lambda: any("first half" in text for text in fake.bot_texts(channel)))
        texts = fake.bot_texts(channel)
        assert "The first half." in texts[0]
        assert "was interrupted" in texts[-1]
        async with run_bot(fake, path, EchoModel()):
            fake.post(channel, ADA, "continue")
            assert (await wait_for_answers(fake, channel, len(texts) + 1))[-1] == "go | continue"
        assert fake.bot_texts(channel)[: len(texts)] == texts
    with recollect.open(path) as store:
        states = [message.state for message in store.get_session(f"discord:dm:{ADA}").messages()]
    assert states == ["completed", "interrupted", "completed", "completed"]


async def test_files_of_a_pending_message_are_downloaded_again_after_a_restart(path):
    model, second_model = PausingModel(), EchoModel()
    async with FakeDiscord() as fake:
        async with run_bot(fake, path, model) as bot:
            channel = fake.dm(ADA)
            fake.post(channel, ADA, "go")
            await wait_until(model.paused.is_set)
            fake.post(channel, ADA, "and this", files={"notes.txt": b"milk"})
            await wait_until(lambda: len(bot.dispatcher.ledger.entries) == 2)
        async with run_bot(fake, path, second_model):
            await wait_until(lambda: any("and this" in text for text in fake.bot_texts(channel)))
        assert any("milk" in (getattr(part, "text", None) or "") for part in second_model.histories[0][-1].parts)
        assert not any("send it again" in text for text in fake.bot_texts(channel))
    assert len(second_model.histories) == 1
    assert read_questions(path, f"discord:dm:{ADA}") == ["go", "and this"]


async def test_heartbeats_are_sent(path):
    async with FakeDiscord() as fake:
        fake.gateway.interval = 100
        async with run_bot(fake, path):
            await wait_until(lambda: fake.gateway.heartbeats >= 3)


def test_message_ids_contain_their_time():
    assert messages.first_message_id(60) < messages.first_message_id()
    assert messages.catch_up_start(messages.first_message_id(7200), 3600) == pytest.approx(
        messages.first_message_id(3600), abs=1 << 34
    )
    assert messages.catch_up_start(messages.first_message_id(60), 3600) < messages.first_message_id(60)


async def test_the_library_logs_no_warnings(path, caplog):
    caplog.set_level(logging.WARNING)
    async with FakeDiscord() as fake, run_bot(fake, path):
        fake.post(fake.dm(ADA), ADA, "hello")
        await wait_for_answers(fake, fake.dm(ADA))
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == []


async def test_events_after_close_are_ignored(path, recwarn):
    async with FakeDiscord() as fake, run_bot(fake, path) as bot:
        await bot.close()
        bot.dispatch("disconnect")
        gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
