"""Messages to the bot on Discord: which ones it answers, what the model receives, and what the bot sends."""

from __future__ import annotations

import pytest
from discord_bots import ADA, BOB, EVE, EchoModel, PausingModel, TextModel, run_bot, wait_for_answers
from fake_discord import BOT, GUILD, FakeDiscord, wait_until

import recollect
from recollect.channels.bot import AllowList

CHANNEL, OTHER, THREAD = 10, 11, 20


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


def read_messages(path, session_id):
    with recollect.open(path) as store:
        session = store.get_session(session_id)
        return [] if session is None else session.messages()


async def test_direct_messages_are_answered(path):
    async with FakeDiscord() as fake, run_bot(fake, path):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "hello there")
        await wait_until(lambda: fake.bot_texts(channel) == ["hello there"])
        assert fake.find_requests("POST", f"/channels/{channel}/typing")
        fake.post(channel, ADA, "and again")
        await wait_until(lambda: fake.bot_texts(channel)[1:] == ["hello there | and again"])
    stored_messages = read_messages(path, f"discord:dm:{ADA}")
    assert [message.role for message in stored_messages] == ["user", "assistant", "user", "assistant"]
    assert stored_messages[0].metadata["author"] == {"id": str(ADA), "name": "Ada"}


async def test_the_bot_answers_mentions_and_replies_in_a_channel(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            fake.post(CHANNEL, ADA, "nobody in particular")
            question_id = fake.post(CHANNEL, ADA, f"<@{BOT}> what is up, <@{BOB}>?")
            await wait_for_answers(fake, CHANNEL)
            answer = next(m for m in fake.messages[CHANNEL].values() if m["author"]["id"] == str(BOT))
            assert answer["content"] == "[Ada] what is up, @bob?"
            assert answer["message_reference"]["message_id"] == str(question_id)
            fake.post(CHANNEL, BOB, "thanks", reply_to=int(answer["id"]))
            await wait_for_answers(fake, CHANNEL, 2)
            assert fake.bot_texts(CHANNEL)[1].endswith("[bob] thanks")
            assert fake.pings == []
    assert len(read_messages(path, f"discord:channel:{CHANNEL}")) == 4


async def test_a_reply_to_another_user_quotes_their_message(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            message_id = fake.post(CHANNEL, EVE, "The moon is a cheese.")
            fake.post(CHANNEL, ADA, f"<@{BOT}> is that so?", reply_to=message_id)
            await wait_for_answers(fake, CHANNEL)
            assert fake.bot_texts(CHANNEL) == ["[Ada] > The moon is a cheese.\nEve wrote that. is that so?"]


async def test_the_bot_answers_every_message_in_its_threads(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            fake.thread(THREAD, CHANNEL, owner=BOT)
            fake.thread(THREAD + 1, CHANNEL, owner=ADA)
            fake.post(THREAD, ADA, "without a call")
            await wait_until(lambda: fake.bot_texts(THREAD) == ["[Ada] without a call"])
            fake.post(THREAD + 1, ADA, "not meant for the bot")
            fake.post(THREAD + 1, ADA, f"<@{BOT}> come in")
            await wait_until(lambda: fake.bot_texts(THREAD + 1) == ["[Ada] come in"])
            fake.post(THREAD + 1, BOB, "and stay")
            await wait_for_answers(fake, THREAD + 1, 2)
            assert fake.bot_texts(THREAD + 1)[1] == "[Ada] come in | [bob] and stay"
    assert read_messages(path, f"discord:channel:{CHANNEL}") == []


async def test_a_message_in_an_archived_thread_is_answered(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path):
            fake.thread(THREAD, CHANNEL, owner=BOT, announce=False)
            fake.post(THREAD, ADA, "awake?")
            assert await wait_for_answers(fake, THREAD) == ["[Ada] awake?"]
    assert len(read_messages(path, f"discord:thread:{THREAD}")) == 2


async def test_a_mention_of_the_role_of_the_bot_is_answered(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.roles[BOT] = [78]
        async with run_bot(fake, path):
            fake.post(CHANNEL, ADA, "<@&78> hello", mention_roles=["78"])
            assert (await wait_for_answers(fake, CHANNEL))[0].endswith("hello")


async def test_a_deleted_question_is_answered(path):
    model = PausingModel()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path, model):
            deleted_message = fake.add_message(CHANNEL, ADA, f"<@{BOT}> quick")
            del fake.messages[CHANNEL][int(deleted_message["id"])]
            fake.deliver(deleted_message)
            model.resume.set()
            await wait_for_answers(fake, CHANNEL)


async def test_a_thread_can_start_with_the_history_of_its_channel(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path, inherit=True):
            fake.post(CHANNEL, ADA, f"<@{BOT}> in the channel")
            await wait_for_answers(fake, CHANNEL)
            fake.thread(THREAD, CHANNEL, owner=BOT)
            fake.post(THREAD, ADA, "in the thread")
            await wait_until(lambda: fake.bot_texts(THREAD) == ["[Ada] in the channel | [Ada] in the thread"])
            fake.post(CHANNEL, ADA, f"<@{BOT}> back")
            await wait_for_answers(fake, CHANNEL, 2)
            assert fake.bot_texts(CHANNEL)[1] == "[Ada] in the channel | [Ada] back"


async def test_users_outside_the_allow_list_are_refused(path):
    model = EchoModel()
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path, model):
            fake.post(CHANNEL, EVE, f"<@{BOT}> let me in")
            for _ in range(3):
                fake.post(fake.dm(EVE), EVE, "let me in")
            await wait_until(lambda: fake.bot_texts(fake.dm(EVE)))
            fake.post(fake.dm(ADA), ADA, "still here?")
            await wait_for_answers(fake, fake.dm(ADA))
            assert fake.bot_texts(CHANNEL) == []
            replies = fake.bot_texts(fake.dm(EVE))
            assert len(replies) == 1
            assert f"`{EVE}`" in replies[0]
            interaction = fake.send_command(CHANNEL, EVE, "status")
            await wait_until(lambda: interaction.texts)
            assert interaction.ephemeral
            assert f"`{EVE}`" in interaction.texts[0]
    assert len(model.histories) == 1
    assert read_messages(path, f"discord:dm:{EVE}") == []


async def test_the_default_allow_list_is_empty(path):
    model = EchoModel()
    async with FakeDiscord() as fake, run_bot(fake, path, model, access=AllowList()):
        fake.post(fake.dm(ADA), ADA, "hello")
        await wait_for_answers(fake, fake.dm(ADA))
        assert model.histories == []


async def test_guilds_and_roles_on_the_allow_list(path):
    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        fake.guild(501)
        fake.channel(OTHER, guild=501)
        fake.roles[EVE] = [77]
        async with run_bot(fake, path, access=AllowList(roles=["77"])):
            fake.post(CHANNEL, ADA, f"<@{BOT}> no role")
            fake.post(CHANNEL, EVE, f"<@{BOT}> the role")
            await wait_until(lambda: fake.bot_texts(CHANNEL) == ["[Eve] the role"])
        async with run_bot(fake, path, access=AllowList(guilds=["501"])):
            fake.post(CHANNEL, BOB, f"<@{BOT}> the wrong server")
            fake.post(OTHER, BOB, f"<@{BOT}> the right server")
            await wait_until(lambda: fake.bot_texts(OTHER) == ["[bob] the right server"])
            assert fake.bot_texts(CHANNEL) == ["[Eve] the role"]


async def test_other_bots_webhooks_and_system_messages_are_not_answered(path):
    model = EchoModel()
    async with FakeDiscord() as fake:
        fake.user(66, "robot", bot=True)
        fake.channel(CHANNEL)
        everyone = AllowList(guilds=[str(GUILD)], users=["66", "1"])
        async with run_bot(fake, path, model, access=everyone):
            fake.post(CHANNEL, 66, f"<@{BOT}> beep")
            fake.post(CHANNEL, ADA, f"<@{BOT}> pinned", type=6)
            fake.post(CHANNEL, ADA, f"<@{BOT}> hooked", webhook_id="5")
            fake.post(CHANNEL, ADA, f"<@{BOT}> spoken")
            await wait_for_answers(fake, CHANNEL)
            assert fake.bot_texts(CHANNEL) == ["[Ada] spoken"]


async def test_files_are_stored_and_sent_to_the_model(path):
    model = EchoModel()
    picture = b"\x89PNG\r\n\x1a\n" + bytes(200)
    async with FakeDiscord() as fake, run_bot(fake, path, model, max_file_size=1000):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "look", files={"cat.png": picture, "notes.txt": b"milk", "big.bin": bytes(2000)})
        assert "big.bin" in (await wait_for_answers(fake, channel, 2))[0]
        parts = model.histories[0][-1].parts
        assert any(getattr(part, "mime_type", None) == "image/png" for part in parts)
        assert any("milk" in (getattr(part, "text", None) or "") for part in parts)
        fake.files.clear()
        fake.post(channel, ADA, "gone", files={})
        message = fake.add_message(channel, ADA, "this one is lost")
        message["attachments"].append({**fake.attachment(channel, "lost.txt", b"x")})
        fake.files.clear()
        fake.deliver(message)
        assert any("lost.txt" in text for text in await wait_for_answers(fake, channel, 5))
    stored_messages = read_messages(path, f"discord:dm:{ADA}")
    files = {part.name: part for part in stored_messages[0].parts if isinstance(part, recollect.AttachmentPart)}
    assert set(files) == {"cat.png", "notes.txt"}
    assert "big.bin" in stored_messages[0].parts[0].text  # pyright: ignore[reportAttributeAccessIssue, reportOperatorIssue]
    assert "lost.txt could not be downloaded" in stored_messages[4].parts[0].text  # pyright: ignore[reportAttributeAccessIssue, reportOperatorIssue]


async def test_messages_stay_in_order_while_a_file_is_downloaded(path):
    async with FakeDiscord() as fake, run_bot(fake, path, TextModel("Yes.")):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "first", files={"a.txt": b"a" * 500_000})
        fake.post(channel, ADA, "second")
        fake.post(channel, ADA, "third")
        await wait_for_answers(fake, channel, 3)
        questions = [m.parts[0].text for m in read_messages(path, f"discord:dm:{ADA}") if m.role == "user"]  # pyright: ignore[reportAttributeAccessIssue]
        assert questions == ["first", "second", "third"]


async def test_fifty_concurrent_chats_do_not_mix(path):
    async with FakeDiscord() as fake:
        people = list(range(1000, 1020))
        for person in people:
            fake.user(person, f"person{person}")
        channels = [fake.channel(100 + number) for number in range(15)]
        everyone = AllowList(users=map(str, people), guilds=[str(GUILD)])
        async with run_bot(fake, path, access=everyone):
            threads = [fake.thread(200 + number, channels[0]) for number in range(15)]
            chats = [(fake.dm(person), person) for person in people]
            chats += [(chat, people[number % 20]) for number, chat in enumerate(channels + threads)]
            assert len(chats) == 50
            for turn in range(3):
                for chat, person in chats:
                    fake.post(chat, person, f"<@{BOT}> word {chat}-{turn}")
            for chat, person in chats:
                await wait_for_answers(fake, chat, 3, 90)
                author = "" if chat > 7_000_000 else f"[person{person}] "
                assert fake.bot_texts(chat)[-1] == " | ".join(f"{author}word {chat}-{turn}" for turn in range(3))


async def test_a_repeated_event_is_answered_once(path):
    model = EchoModel()
    async with FakeDiscord() as fake:
        async with run_bot(fake, path, model):
            channel = fake.dm(ADA)
            message_id = fake.post(channel, ADA, "only once")
            for _ in range(3):
                fake.deliver(fake.messages[channel][message_id])
            await wait_for_answers(fake, channel)
        async with run_bot(fake, path, model):
            fake.deliver(fake.messages[channel][message_id])
            fake.post(channel, ADA, "next")
            await wait_for_answers(fake, channel, 2)
    assert len(model.histories) == 2


async def test_an_answer_can_be_stopped(path):
    model = PausingModel()
    async with FakeDiscord() as fake, run_bot(fake, path, model):
        channel = fake.dm(ADA)
        fake.post(channel, ADA, "go")
        await wait_until(model.paused.is_set)
        await wait_until(lambda: fake.bot_texts(channel))
        interaction = fake.send_command(channel, ADA, "stop")
        await wait_until(lambda: interaction.texts == ["Stopped."])
        await wait_until(lambda: "Stopped" in fake.bot_texts(channel)[-1])
        assert interaction.ephemeral
        interaction = fake.send_command(channel, ADA, "stop")
        await wait_until(lambda: interaction.texts == ["There is no answer to stop."])


async def test_an_answer_never_pings(path):
    class MentioningModel(EchoModel):
        def text(self, read_messages):
            return f"@everyone @here <@{BOB}> <@&77>"

    async with FakeDiscord() as fake:
        fake.channel(CHANNEL)
        async with run_bot(fake, path, MentioningModel()):
            fake.post(CHANNEL, ADA, f"<@{BOT}> shout")
            interaction = fake.send_command(CHANNEL, ADA, "search", words="<@2>")
            await wait_for_answers(fake, CHANNEL)
            await wait_until(lambda: interaction.texts)
            assert fake.pings == []
