"""Talking to the bot on Discord: who is answered where, what the model is given, and what is sent back."""

from __future__ import annotations

import pytest
from discord_bots import ADA, BOB, EVE, Halting, Reciter, Writer, answered, running
from fake_discord import BOT, GUILD, FakeDiscord, until

import recollect
from recollect.channels.bot import Access

CHANNEL, OTHER, THREAD = 10, 11, 20


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "talks.db")


def messages(store, session):
    with recollect.open(store) as opened:
        found = opened.get_session(session)
        return [] if found is None else found.messages()


async def test_direct_messages_are_answered(store):
    async with FakeDiscord() as fake, running(fake, store):
        here = fake.dm(ADA)
        fake.say(here, ADA, "hello there")
        await until(lambda: fake.sent(here) == ["hello there"])
        assert fake.asked("POST", f"/channels/{here}/typing")
        fake.say(here, ADA, "and again")
        await until(lambda: fake.sent(here)[1:] == ["hello there | and again"])
    kept = messages(store, f"discord:dm:{ADA}")
    assert [message.role for message in kept] == ["user", "assistant", "user", "assistant"]
    assert kept[0].metadata["author"] == {"id": str(ADA), "name": "Ada"}


async def test_a_channel_is_answered_where_the_bot_is_called(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            fake.say(CHANNEL, ADA, "nobody in particular")
            asked = fake.say(CHANNEL, ADA, f"<@{BOT}> what is up, <@{BOB}>?")
            await answered(fake, CHANNEL)
            answer = next(m for m in fake.messages[CHANNEL].values() if m["author"]["id"] == str(BOT))
            assert answer["content"] == "[Ada] what is up, @bob?"
            assert answer["message_reference"]["message_id"] == str(asked)
            fake.say(CHANNEL, BOB, "thanks", reply_to=int(answer["id"]))
            await answered(fake, CHANNEL, 2)
            assert fake.sent(CHANNEL)[1].endswith("[bob] thanks")
            assert fake.pings == []
    assert len(messages(store, f"discord:channel:{CHANNEL}")) == 4


async def test_a_reply_to_somebody_else_brings_what_was_said(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            first = fake.say(CHANNEL, EVE, "The moon is a cheese.")
            fake.say(CHANNEL, ADA, f"<@{BOT}> is that so?", reply_to=first)
            await answered(fake, CHANNEL)
            assert fake.sent(CHANNEL) == ["[Ada] > The moon is a cheese.\nEve said that. is that so?"]


async def test_threads_of_the_bot_are_answered_always(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            fake.thread(THREAD, CHANNEL, owner=BOT)
            fake.thread(THREAD + 1, CHANNEL, owner=ADA)
            fake.say(THREAD, ADA, "without a call")
            await until(lambda: fake.sent(THREAD) == ["[Ada] without a call"])
            fake.say(THREAD + 1, ADA, "not meant for the bot")
            fake.say(THREAD + 1, ADA, f"<@{BOT}> come in")
            await until(lambda: fake.sent(THREAD + 1) == ["[Ada] come in"])
            fake.say(THREAD + 1, BOB, "and stay")
            await answered(fake, THREAD + 1, 2)
            assert fake.sent(THREAD + 1)[1] == "[Ada] come in | [bob] and stay"
    assert messages(store, f"discord:channel:{CHANNEL}") == []


async def test_a_thread_that_was_archived_is_found_again(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store):
            fake.thread(THREAD, CHANNEL, owner=BOT, announce=False)
            fake.say(THREAD, ADA, "awake?")
            assert await answered(fake, THREAD) == ["[Ada] awake?"]
    assert len(messages(store, f"discord:thread:{THREAD}")) == 2


async def test_the_role_of_the_bot_calls_it_too(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.roles[BOT] = [78]
        async with running(fake, store):
            fake.say(CHANNEL, ADA, "<@&78> hello", mention_roles=["78"])
            assert (await answered(fake, CHANNEL))[0].endswith("hello")


async def test_a_question_that_was_deleted_is_answered_still(store):
    model = Halting()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store, model):
            gone = fake.written(CHANNEL, ADA, f"<@{BOT}> quick")
            del fake.messages[CHANNEL][int(gone["id"])]
            fake.hear(gone)
            model.go.set()
            await answered(fake, CHANNEL)


async def test_a_thread_can_begin_with_the_history_of_its_channel(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store, inherit=True):
            fake.say(CHANNEL, ADA, f"<@{BOT}> in the channel")
            await answered(fake, CHANNEL)
            fake.thread(THREAD, CHANNEL, owner=BOT)
            fake.say(THREAD, ADA, "in the thread")
            await until(lambda: fake.sent(THREAD) == ["[Ada] in the channel | [Ada] in the thread"])
            fake.say(CHANNEL, ADA, f"<@{BOT}> back")
            await answered(fake, CHANNEL, 2)
            assert fake.sent(CHANNEL)[1] == "[Ada] in the channel | [Ada] back"


async def test_strangers_are_refused(store):
    model = Reciter()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store, model):
            fake.say(CHANNEL, EVE, f"<@{BOT}> let me in")
            for _ in range(3):
                fake.say(fake.dm(EVE), EVE, "let me in")
            await until(lambda: fake.sent(fake.dm(EVE)))
            fake.say(fake.dm(ADA), ADA, "still here?")
            await answered(fake, fake.dm(ADA))
            assert fake.sent(CHANNEL) == []
            told = fake.sent(fake.dm(EVE))
            assert len(told) == 1
            assert f"`{EVE}`" in told[0]
            assert fake.command(CHANNEL, EVE, "status")
            order = fake.command(CHANNEL, EVE, "status")
            await until(lambda: order.texts)
            assert order.ephemeral
            assert f"`{EVE}`" in order.texts[0]
    assert len(model.seen) == 1
    assert messages(store, f"discord:dm:{EVE}") == []


async def test_nobody_may_talk_by_default(store):
    model = Reciter()
    async with FakeDiscord() as fake, running(fake, store, model, access=Access()):
        fake.say(fake.dm(ADA), ADA, "hello")
        await answered(fake, fake.dm(ADA))
        assert model.seen == []


async def test_a_guild_or_a_role_lets_people_in(store):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.guild(501)
        fake.channel(OTHER, guild=501)
        fake.roles[EVE] = [77]
        async with running(fake, store, access=Access(roles=["77"])):
            fake.say(CHANNEL, ADA, f"<@{BOT}> no role")
            fake.say(CHANNEL, EVE, f"<@{BOT}> the role")
            await until(lambda: fake.sent(CHANNEL) == ["[Eve] the role"])
        async with running(fake, store, access=Access(guilds=["501"])):
            fake.say(CHANNEL, BOB, f"<@{BOT}> the wrong server")
            fake.say(OTHER, BOB, f"<@{BOT}> the right server")
            await until(lambda: fake.sent(OTHER) == ["[bob] the right server"])
            assert fake.sent(CHANNEL) == ["[Eve] the role"]
    assert GUILD == 500


async def test_other_bots_webhooks_and_system_messages_are_not_answered(store):
    model = Reciter()
    async with FakeDiscord() as fake:
        fake.user(66, "robot", bot=True)
        fake.channel(CHANNEL)
        everyone = Access(guilds=[str(GUILD)], users=["66", "1"])
        async with running(fake, store, model, access=everyone):
            fake.say(CHANNEL, 66, f"<@{BOT}> beep")
            fake.say(CHANNEL, ADA, f"<@{BOT}> pinned", type=6)
            fake.say(CHANNEL, ADA, f"<@{BOT}> hooked", webhook_id="5")
            fake.say(CHANNEL, ADA, f"<@{BOT}> spoken")
            await answered(fake, CHANNEL)
            assert fake.sent(CHANNEL) == ["[Ada] spoken"]


async def test_files_are_kept_and_passed_on(store):
    model = Reciter()
    picture = b"\x89PNG\r\n\x1a\n" + bytes(200)
    async with FakeDiscord() as fake, running(fake, store, model, max_file_size=1000):
        here = fake.dm(ADA)
        fake.say(here, ADA, "look", files={"cat.png": picture, "notes.txt": b"milk", "big.bin": bytes(2000)})
        assert "big.bin" in (await answered(fake, here, 2))[0]
        spoken = model.seen[0][-1].parts
        assert any(getattr(part, "mime_type", None) == "image/png" for part in spoken)
        assert any("milk" in (getattr(part, "text", None) or "") for part in spoken)
        fake.files.clear()
        fake.say(here, ADA, "gone", files={})
        lost = fake.written(here, ADA, "this one is lost")
        lost["attachments"].append({**fake.attachment(here, "lost.txt", b"x")})
        fake.files.clear()
        fake.hear(lost)
        assert any("lost.txt" in text for text in await answered(fake, here, 5))
    kept = messages(store, f"discord:dm:{ADA}")
    files = {part.name: part for part in kept[0].parts if isinstance(part, recollect.AttachmentPart)}
    assert set(files) == {"cat.png", "notes.txt"}
    assert "big.bin" in kept[0].parts[0].text
    assert "lost.txt could not be fetched" in kept[4].parts[0].text


async def test_messages_of_a_place_stay_in_order_though_one_has_a_file_to_fetch(store):
    async with FakeDiscord() as fake, running(fake, store, Writer("Yes.")):
        here = fake.dm(ADA)
        fake.say(here, ADA, "first", files={"a.txt": b"a" * 500_000})
        fake.say(here, ADA, "second")
        fake.say(here, ADA, "third")
        await answered(fake, here, 3)
        asked = [message.parts[0].text for message in messages(store, f"discord:dm:{ADA}") if message.role == "user"]
        assert asked == ["first", "second", "third"]


async def test_fifty_places_at_once_keep_apart(store):
    async with FakeDiscord() as fake:
        people = list(range(1000, 1020))
        for person in people:
            fake.user(person, f"person{person}")
        channels = [fake.channel(100 + number) for number in range(15)]
        everyone = Access(users=map(str, people), guilds=[str(GUILD)])
        async with running(fake, store, access=everyone):
            threads = [fake.thread(200 + number, channels[0]) for number in range(15)]
            places = [(fake.dm(person), person) for person in people]
            places += [(place, people[number % 20]) for number, place in enumerate(channels + threads)]
            assert len(places) == 50
            for turn in range(3):
                for place, person in places:
                    fake.say(place, person, f"<@{BOT}> word {place}-{turn}")
            for place, person in places:
                await answered(fake, place, 3, 90)
                who = "" if place > 7_000_000 else f"[person{person}] "
                assert fake.sent(place)[-1] == " | ".join(f"{who}word {place}-{turn}" for turn in range(3))


async def test_what_comes_twice_is_answered_once(store):
    model = Reciter()
    async with FakeDiscord() as fake:
        async with running(fake, store, model):
            here = fake.dm(ADA)
            said = fake.say(here, ADA, "only once")
            for _ in range(3):
                fake.hear(fake.messages[here][said])
            await answered(fake, here)
        async with running(fake, store, model):
            fake.hear(fake.messages[here][said])
            fake.say(here, ADA, "next")
            await answered(fake, here, 2)
    assert len(model.seen) == 2


async def test_an_answer_can_be_stopped(store):
    model = Halting()
    async with FakeDiscord() as fake, running(fake, store, model):
        here = fake.dm(ADA)
        fake.say(here, ADA, "go")
        await until(model.halted.is_set)
        await until(lambda: fake.sent(here))
        order = fake.command(here, ADA, "stop")
        await until(lambda: order.texts == ["Stopped."])
        await until(lambda: "Stopped" in fake.sent(here)[-1])
        assert order.ephemeral
        order = fake.command(here, ADA, "stop")
        await until(lambda: order.texts == ["There is no answer to stop."])


async def test_an_answer_never_pings(store):
    class Loud(Reciter):
        def text(self, spoken):
            return f"@everyone @here <@{BOB}> <@&77>"

    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with running(fake, store, Loud()):
            fake.say(CHANNEL, ADA, f"<@{BOT}> shout")
            order = fake.command(CHANNEL, ADA, "search", words="<@2>")
            await answered(fake, CHANNEL)
            await until(lambda: order.texts)
            assert fake.pings == []
