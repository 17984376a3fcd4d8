"""The bot in bad weather: rate limits, lost connections, restarts, missed and malformed messages."""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import pytest
from discord_bots import ADA, BOB, EVE, Halting, Reciter, Writer, answered, running
from fake_discord import BOT, FakeDiscord, until

import recollect
from recollect.channels.bot import Access
from recollect.channels.discord import missed, outlet

CHANNEL, THREAD = 10, 20
CREATE, EDIT = "POST /channels/N/messages", "PATCH /channels/N/messages/N"


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "talks.db")


@pytest.fixture
def quick(monkeypatch):
    """Edit as often as the limits of a quicker Discord allow."""
    monkeypatch.setattr(outlet._Measured, "pace", 0.06)
    monkeypatch.setattr(outlet._Measured, "gathers", 0.0)


def asked(store, session):
    with recollect.open(store) as opened:
        found = opened.get_session(session)
        return [] if found is None else [m.parts[0].text for m in found.messages() if m.role == "user"]


async def test_a_long_answer_is_streamed_within_the_limits(store, quick):
    text = "\n\n".join(f"Paragraph {number}. " + "It goes on and on. " * 8 for number in range(60))
    async with FakeDiscord() as fake:
        fake.buckets = {CREATE: (5, 0.25), EDIT: (5, 0.25)}
        async with running(fake, store, Writer(text, pause=0.004)) as bot:
            here = fake.dm(ADA)
            fake.say(here, ADA, "tell me")
            await until(lambda: fake.sent(here))
            await bot.desk.settle()
            sent = fake.sent(here)
            edits = fake.asked("PATCH", f"/channels/{here}/messages/")
            refused = [request for request in fake.requests if request.status == 429]
    assert len(edits) > 5
    assert len(refused) <= len(edits) / 10
    assert all(len(piece) <= 2000 for piece in sent)
    assert "\n\n".join(sent).split() == text.split()


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_rate_limit_is_waited_for(store, everywhere):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.limit("POST", f"/channels/{here}/messages", times=2, retry_after=0.3, everywhere=everywhere)
        fake.say(here, ADA, "patience")
        begun = time.monotonic()
        assert await answered(fake, here) == ["patience"]
        assert time.monotonic() - begun >= 0.6
        tried = [one.status for one in fake.asked("POST", f"/channels/{here}/messages$")]
        assert tried == [429, 429, 200]


async def test_a_very_long_rate_limit_does_not_hold_up_other_places(store):
    async with FakeDiscord() as fake, running(fake, store):
        here, there = fake.dm(ADA), fake.dm(BOB)
        fake.limit("POST", f"/channels/{here}/messages", times=1000, retry_after=3600)
        fake.say(here, ADA, "never")
        fake.say(there, BOB, "now")
        assert await answered(fake, there) == ["now"]
        fake.limits.clear()


async def test_errors_of_the_server_are_tried_again(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.limit("POST", f"/channels/{here}/messages", times=1, status=503)
        fake.say(here, ADA, "again")
        assert await answered(fake, here) == ["again"]


async def test_a_message_whose_acknowledgement_is_lost_is_shown_once(store, monkeypatch):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.lose = ("POST", f"/channels/{here}/messages")
        fake.say(here, ADA, "once")
        await answered(fake, here)
        await until(lambda: len(fake.asked("POST", f"/channels/{here}/messages$")) == 2)
        fake.say(here, ADA, "twice")
        assert await answered(fake, here, 2) == ["once", "once | twice"]


async def test_a_channel_that_may_not_be_written_to_hurts_nobody_else(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            forbidden = {"message": "Missing Permissions", "code": 50013}
            fake.limit("POST", f"/channels/{CHANNEL}/", times=1000, status=403, body=forbidden)
            fake.say(CHANNEL, ADA, f"<@{BOT}> hello")
            fake.say(fake.dm(ADA), ADA, "hello")
            await answered(fake, fake.dm(ADA))
            assert fake.sent(CHANNEL) == []


async def test_an_answer_whose_message_was_deleted_does_not_break_the_talk(store):
    model = Halting()
    async with FakeDiscord() as fake, running(fake, store, model):
        here = fake.dm(ADA)
        said = fake.say(here, ADA, "go")
        await until(lambda: fake.sent(here))
        for id in [id for id in fake.messages[here] if id != said]:
            del fake.messages[here][id]
        model.go.set()
        await until(lambda: fake.asked("PATCH", f"/channels/{here}/messages/"))
        fake.say(here, ADA, "on")
        await answered(fake, here)


async def test_a_lost_connection_is_resumed_and_nothing_is_missed(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.say(here, ADA, "before")
        await answered(fake, here)
        for turn, lose in enumerate((fake.gateway.drop, fake.gateway.ask_to_reconnect), 1):
            await lose()
            fake.say(here, ADA, f"meanwhile {turn}")
            await answered(fake, here, turn + 1)
            assert len(fake.gateway.resumed) == turn
        assert len(fake.gateway.identified) == 1
        assert fake.sent(here)[-1] == "before | meanwhile 1 | meanwhile 2"


async def test_a_session_that_discord_forgot_is_begun_anew_and_caught_up(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.say(here, ADA, "before")
        await answered(fake, here)
        await fake.gateway.invalidate()
        fake.say(here, ADA, "unheard")
        assert (await answered(fake, here, 2))[1] == "before | unheard"
        assert len(fake.gateway.identified) == 2


async def test_what_can_not_be_read_is_left_out(store, caplog):
    model = Reciter()
    async with FakeDiscord() as fake, running(fake, store, model):
        here = fake.dm(ADA)
        whole = fake.written(here, ADA, "whole")
        broken = [
            {}, [], None, 7, "text", {"id": "x"}, {**whole, "id": None}, {**whole, "channel_id": "no"},
            {**whole, "author": None}, {**whole, "author": {}}, {**whole, "mentions": [5]}, {**whole, "content": None},
            {**whole, "attachments": [{}]}, {**whole, "type": "reply"}, {**whole, "message_reference": 3},
        ]  # fmt: skip
        for data in broken:
            fake.gateway.dispatch("MESSAGE_CREATE", data)
            fake.gateway.dispatch("INTERACTION_CREATE", data)
            fake.gateway.dispatch("THREAD_CREATE", data)
        fake.gateway.dispatch("SOMETHING_NEW", {"a": 1})
        fake.gateway.raw('{"op": 99, "d": null}')
        fake.say(here, ADA, "still there?")
        await until(lambda: any("still there?" in text for text in fake.sent(here)))
        assert len(fake.gateway.identified) == 1
    assert "MESSAGE_CREATE that can not be read" in caplog.text


async def test_what_is_no_json_at_all_only_costs_a_new_connection(store, monkeypatch):
    monkeypatch.setattr("recollect.channels.discord.connection._PAUSE", 0.01)
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.gateway.raw("}{ nonsense")
        await until(lambda: len(fake.gateway.identified) == 2)
        fake.say(here, ADA, "hello again")
        assert await answered(fake, here) == ["hello again"]


async def test_what_was_said_while_the_bot_was_away_is_answered_once(store):
    model = Reciter()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.channel(CHANNEL + 1)
        async with running(fake, store, model):
            fake.thread(THREAD, CHANNEL, owner=BOT)
            for place in (fake.dm(ADA), CHANNEL, THREAD):
                fake.say(place, ADA, f"<@{BOT}> before")
                await answered(fake, place)
        fake.gateway.sessions.clear()
        fake.say(fake.dm(ADA), ADA, "one")
        fake.say(fake.dm(ADA), ADA, "two")
        fake.say(fake.dm(BOB), BOB, "my first")
        fake.say(CHANNEL, ADA, "not for the bot")
        fake.say(CHANNEL, ADA, f"<@{BOT}> for the bot")
        fake.say(CHANNEL + 1, EVE, f"<@{BOT}> let me in")
        fake.say(THREAD, ADA, "in the thread")
        for _ in range(2):
            async with running(fake, store, model):
                await answered(fake, fake.dm(ADA), 3)
                await answered(fake, fake.dm(BOB))
                await answered(fake, CHANNEL, 2)
                await answered(fake, THREAD, 2)
                fake.say(fake.dm(EVE), EVE, "a stranger")
                await until(lambda: fake.sent(fake.dm(EVE)))
            fake.gateway.sessions.clear()
        assert fake.sent(fake.dm(ADA))[-1] == "before | one | two"
        assert fake.sent(CHANNEL)[-1] == "[Ada] before | [Ada] for the bot"
        assert fake.sent(CHANNEL + 1) == []
        assert len(model.seen) == 3 + 5
    assert asked(store, f"discord:dm:{BOB}") == ["my first"]


async def test_a_role_counts_for_what_was_missed_too(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.roles[EVE] = [77]
        access = Access(roles=["77"])
        async with running(fake, store, access=access):
            pass
        fake.gateway.sessions.clear()
        fake.say(CHANNEL, BOB, f"<@{BOT}> no role")
        fake.say(CHANNEL, EVE, f"<@{BOT}> the role")
        async with running(fake, store, access=access):
            assert await answered(fake, CHANNEL) == ["[Eve] the role"]


async def test_nothing_from_before_the_first_start_or_too_long_ago_is_answered(store):
    model = Reciter()
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", shown="Ada")
        fake.say(fake.dm(ADA), ADA, "before there was a bot", seconds_ago=5)
        async with running(fake, store, model):
            fake.say(fake.dm(ADA), ADA, "first")
            await answered(fake, fake.dm(ADA))
        fake.gateway.sessions.clear()
        fake.say(fake.dm(ADA), ADA, "too old", seconds_ago=3)
        async with running(fake, store, model, catch_up=2.0):
            fake.say(fake.dm(ADA), ADA, "now")
            await answered(fake, fake.dm(ADA), 2)
    assert asked(store, f"discord:dm:{ADA}") == ["first", "now"]


async def test_a_command_written_as_a_message_is_not_run_again_after_a_restart(store):
    async with FakeDiscord() as fake:
        here = None
        async with running(fake, store):
            here = fake.dm(ADA)
            fake.say(here, ADA, "first")
            await answered(fake, here)
            fake.say(here, ADA, "/clear")
            await answered(fake, here, 2)
            fake.say(here, ADA, "second")
            await answered(fake, here, 3)
        async with running(fake, store):
            fake.say(here, ADA, "third")
            assert (await answered(fake, here, 4))[-1] == "second | third"


async def test_a_stop_in_the_middle_of_an_answer_says_so(store):
    model = Halting()
    async with FakeDiscord() as fake:
        async with running(fake, store, model):
            here = fake.dm(ADA)
            fake.say(here, ADA, "go")
            await until(lambda: any("first half" in text for text in fake.sent(here)))
        last = fake.sent(here)
        assert "The first half." in last[0]
        assert "cut off" in last[-1]
        async with running(fake, store, Reciter()):
            fake.say(here, ADA, "go on")
            assert (await answered(fake, here, len(last) + 1))[-1] == "go | go on"
        assert fake.sent(here)[: len(last)] == last
    with recollect.open(store) as opened:
        states = [message.state for message in opened.get_session(f"discord:dm:{ADA}").messages()]
    assert states == ["completed", "interrupted", "completed", "completed"]


async def test_files_of_a_message_that_waited_are_fetched_again_after_a_restart(store):
    model, after = Halting(), Reciter()
    async with FakeDiscord() as fake:
        async with running(fake, store, model) as bot:
            here = fake.dm(ADA)
            fake.say(here, ADA, "go")
            await until(model.halted.is_set)
            fake.say(here, ADA, "and this", files={"notes.txt": b"milk"})
            await until(lambda: len(bot.desk.ledger.entries) == 2)
        async with running(fake, store, after):
            await until(lambda: any("and this" in text for text in fake.sent(here)))
        assert any("milk" in (getattr(part, "text", None) or "") for part in after.seen[0][-1].parts)
        assert not any("send it again" in text for text in fake.sent(here))
    assert len(after.seen) == 1
    assert asked(store, f"discord:dm:{ADA}") == ["go", "and this"]


async def test_a_beat_is_sent(store):
    async with FakeDiscord() as fake:
        fake.gateway.interval = 100
        async with running(fake, store):
            await until(lambda: fake.gateway.heartbeats >= 3)


def test_ids_are_times():
    assert missed.moment(60) < missed.moment()
    assert missed.since(missed.moment(7200), 3600) == pytest.approx(missed.moment(3600), abs=1 << 34)
    assert missed.since(missed.moment(60), 3600) < missed.moment(60)


async def test_the_library_does_not_chatter(store, caplog):
    caplog.set_level(logging.WARNING)
    async with FakeDiscord() as fake, running(fake, store):
        fake.say(fake.dm(ADA), ADA, "hello")
        await answered(fake, fake.dm(ADA))
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_bot_that_was_closed_tells_nobody_anything(store, recwarn):
    async with FakeDiscord() as fake, running(fake, store) as bot:
        await bot.close()
        bot.dispatch("disconnect")
        gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
