"""The bot on Telegram: the real library against a Bot API server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import os
import signal
import sys

import pytest
from fake_telegram import DROP, TOKEN, FakeTelegram, Refusal

import recollect
from recollect.agent import Agent
from recollect.agent.demo import DemoModel
from recollect.errors import BotRefused

pytest.importorskip("telegram")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "agent"))
from scripted import Scripted, responded, say

from recollect.agent.events import TextDelta
from recollect.channels.telegram.bot import Settings, TelegramBot


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


@contextlib.asynccontextmanager
async def running(server, path, model=None, **settings):
    """Run the bot until the block ends."""
    settings = {"users": ("7",), "poll": 5, "pause": 0.01, "pace": 0.01, **settings}
    async with Agent(model or DemoModel(pace=0), store=path) as agent:
        bot = TelegramBot(agent, Settings(TOKEN, server.url, **settings))
        task = asyncio.create_task(bot.run())
        try:
            yield bot
        finally:
            bot.stop()
            await task


def stored(path, session):
    with recollect.open(path) as store:
        found = store.get_session(session)
        return [] if found is None else [(m.role, m.text) for m in found.messages()]


async def test_a_direct_chat(path):
    async with FakeTelegram() as server, running(server, path):
        await server.say("say hello")
        await server.until(lambda: server.texts() == ["hello"])
        commands = server.made("setMyCommands")[0]["commands"]
        assert {"new", "clear", "history", "rename", "search", "fork", "compact", "status"} <= {
            c["command"] for c in commands
        }
        assert server.made("sendChatAction")[0]["action"] == "typing"
        await server.say("/rename Greetings")
        await server.until(lambda: len(server.texts()) == 2)
        assert server.texts()[1] == "This conversation is called Greetings now."
    with recollect.open(path) as store:
        found = store.get_session("telegram:7")
        assert (found.channel, found.channel_id, found.title) == ("telegram", "7", "Greetings")
        assert found.messages()[0].metadata["author"] == {"id": "7", "name": "Ann"}


async def test_groups_answer_when_called_and_topics_are_their_own(path):
    async with FakeTelegram() as server, running(server, path, chats=("-5",)):
        await server.say("just talking", chat=-5)
        await server.say("not me @other_bot", chat=-5)
        await server.say("/new@other_bot", chat=-5)
        asked = await server.say("say one @memory_bot", chat=-5, user=8, name="Bob")
        await server.until(lambda: server.texts(-5) == ["one"])
        (answer,) = server.messages[-5].values()
        assert answer["reply_parameters"]["message_id"] == asked
        mine = {
            "message_id": 3,
            "date": 1,
            "chat": {"id": -5, "type": "supergroup"},
            "from": {"id": 99, "is_bot": True, "first_name": "M"},
            "text": "one",
        }
        await server.say("say two", chat=-5, reply_to_message=mine)
        await server.until(lambda: server.texts(-5) == ["one", "two"])
        await server.say("@memory_bot say three", chat=-5, is_topic_message=True, message_thread_id=44)
        await server.until(lambda: server.texts(-5) == ["one", "two", "three"])
        assert list(server.messages[-5].values())[2]["message_thread_id"] == 44
        await server.say("say four @memory_bot", chat=-6)  # user 7 may, wherever it is
        await server.until(lambda: server.texts(-6) == ["four"])
        await server.say("say five @memory_bot", chat=-6, user=8)
        await server.say("/status@memory_bot", chat=-6)
        await server.until(lambda: len(server.texts(-6)) == 2)
        assert "telegram:-6" in server.texts(-6)[1]
    assert stored(path, "telegram:-5") == [
        ("user", "say one"),
        ("assistant", "one"),
        ("user", "say two"),
        ("assistant", "two"),
    ]
    assert stored(path, "telegram:-5:44") == [("user", "say three"), ("assistant", "three")]


async def test_fifty_chats_at_once_never_mix(path):
    async with FakeTelegram() as server, running(server, path, DemoModel(pace=0.001), chats=("-9",)):
        chats = [*range(101, 126), *((-9, topic) for topic in range(1, 26))]
        for turn in (1, 2):
            for chat in chats:
                if isinstance(chat, int):
                    await server.say(f"say chat {chat} turn {turn}", chat=chat)
                else:
                    where = {"is_topic_message": True, "message_thread_id": chat[1]}
                    await server.say(f"@memory_bot say topic {chat[1]} turn {turn}", chat=-9, user=8, **where)
        await server.until(lambda: sum(len(server.texts(chat)) for chat in (*range(101, 126), -9)) == 100)
        await server.until(
            lambda: not any(text.endswith("\u2026") for chat in server.messages for text in server.texts(chat))
        )
    for chat in range(101, 126):
        assert server.texts(chat) == [f"chat {chat} turn 1", f"chat {chat} turn 2"]
    for topic in range(1, 26):
        told = [m["text"] for m in server.messages[-9].values() if m["message_thread_id"] == topic]
        assert told == [f"topic {topic} turn 1", f"topic {topic} turn 2"]
        assert [text for role, text in stored(path, f"telegram:-9:{topic}") if role == "assistant"] == told


async def test_what_can_not_be_read_is_said(path):
    async with FakeTelegram() as server, running(server, path):
        await server.say(location={"latitude": 1.0, "longitude": 2.0})
        await server.until(
            lambda: server.texts() == ["I can read texts, pictures and other files, and this was none of them."]
        )


async def test_what_somebody_else_said_is_quoted_to_the_model(path):
    model = Scripted()
    said = {
        "message_id": 3,
        "date": 1,
        "chat": {"id": -5, "type": "supergroup"},
        "from": {"id": 8, "is_bot": False, "first_name": "Bob"},
        "text": "E = mc2",
    }
    async with FakeTelegram() as server, running(server, path, model):
        await server.say("@memory_bot what is this?", chat=-5, reply_to_message=said)
        await server.until(lambda: server.texts(-5) == ["ok"])
    assert model.seen[0][0].parts[0].text == "[Ann] Bob wrote:\n> E = mc2\n\nwhat is this?"


async def test_files(path):
    model = Scripted()
    async with FakeTelegram() as server, running(server, path, model, max_file_size=100):
        server.files = {"small": b"\xff\xd8small", "big": b"\xff\xd8big", "notes": b"buy milk", "large": b"x" * 200}
        photo = [
            {"file_id": size, "file_unique_id": size, "width": n, "height": n}
            for n, size in ((10, "small"), (90, "big"))
        ]
        await server.say(caption="look", photo=photo)
        await server.until(lambda: len(server.texts()) == 1)
        for name in ("notes", "large", "gone"):
            file = {"file_id": name, "file_unique_id": name, "file_name": f"{name}.txt", "mime_type": "text/plain"}
            await server.say(document={**file, **({"file_size": 200} if name == "large" else {})})
        await server.until(lambda: len(server.texts()) == 6)
        album = {"media_group_id": "a1"}
        async with server._news:
            pass
        for part in ("first", "second"):
            server.updates.append(
                {
                    "update_id": next(server._numbers),
                    "message": {
                        "message_id": next(server._ids),
                        "date": 1,
                        "chat": {"id": 7, "type": "private"},
                        "from": {"id": 7, "is_bot": False, "first_name": "Ann"},
                        "photo": photo,
                        **album,
                        **({"caption": "both"} if part == "first" else {}),
                    },
                }
            )
        await server.say("and a word")
        await server.until(lambda: len(server.texts()) == 8)
    with recollect.open(path) as store:
        asked = [m for m in store.get_session("telegram:7").messages() if m.role == "user"]
    assert asked[0].text == "look"
    assert (asked[0].parts[1].mime_type, asked[0].parts[1].size) == ("image/jpeg", 5)
    assert asked[1].parts[0].name == "notes.txt"
    assert "at most 100 are taken" in asked[2].text
    assert "could not be fetched" in asked[3].text
    assert asked[4].text == "both"
    assert [part.name for part in asked[4].parts[1:]] == [
        f"photo-{int(asked[4].metadata['message_id']) + n}.jpg" for n in (0, 1)
    ]


async def test_an_answer_is_streamed_by_edits_and_split(path):
    words = [f"number {n} of some words, " for n in range(600)]
    model = Scripted(say(*words, pause=0))
    async with FakeTelegram() as server, running(server, path, model):
        await server.say("go")
        await server.until(lambda: "number 599" in "".join(server.texts()))
        await server.until(lambda: not server.texts()[-1].endswith("\u2026"))
    shown = server.texts()
    assert "".join("".join(shown).split()) == "".join("".join(words).split())
    assert len(shown) == 4
    assert 1 <= len(server.made("editMessageText")) < 1_000
    assert any(call["text"].endswith("\u2026") for call in server.made("sendMessage") + server.made("editMessageText"))


async def test_waits_and_failures_of_telegram(path):
    async with FakeTelegram() as server:
        server.faults["getMe"] = [DROP, Refusal(502, "Bad Gateway")]
        server.faults["getUpdates"] = [
            DROP,
            Refusal(500, "Oops"),
            Refusal(429, "Too Many Requests", retry_after=1),
            b"<html>",
            None,
        ]
        server.faults["sendMessage"] = [
            Refusal(429, "Too Many Requests", retry_after=1),
            DROP,
            Refusal(502, "Bad Gateway"),
        ]
        async with running(server, path):
            await server.say("say hello")
            await server.until(lambda: server.texts() == ["hello"])
            server.faults["sendMessage"] = [Refusal(403, "Forbidden: bot was blocked by the user")] * 9
            await server.say("say blocked")
            await server.until(lambda: ("assistant", "blocked") in stored(path, "telegram:7"))
            server.faults["sendMessage"] = []
            await server.say("say back")
            await server.until(lambda: "back" in server.texts())


async def test_entities_that_telegram_refuses_are_left_out(path):
    model = Scripted(say("**bold** and `code`"))
    async with FakeTelegram() as server:
        server.faults["sendMessage"] = [Refusal(400, "Bad Request: can't parse entities")] * 1
        server.faults["editMessageText"] = [Refusal(400, "Bad Request: can't parse entities")] * 1
        async with running(server, path, model):
            await server.say("go")
            await server.until(lambda: server.texts() in (["**bold** and `code`"], ["bold and code"]))


async def test_a_group_that_becomes_a_supergroup_goes_on(path):
    async with FakeTelegram() as server, running(server, path):
        await server.say("say one @memory_bot", chat=-5)
        await server.until(lambda: server.texts(-5) == ["one"])
        await server.push(
            {
                "message": {
                    "message_id": 1,
                    "date": 1,
                    "chat": {"id": -1005, "type": "supergroup", "title": "G"},
                    "migrate_from_chat_id": -5,
                    "sender_chat": {"id": -1005, "type": "supergroup", "title": "G"},
                }
            }
        )
        await server.say("say two @memory_bot", chat=-1005)
        await server.until(lambda: server.texts(-1005) == ["two"])
    assert [text for _, text in stored(path, "telegram:-1005")] == ["say one", "one", "say two", "two"]


MALFORMED = [
    {"update_id": 900},
    {"update_id": 901, "message": {"message_id": "x"}},
    {"update_id": 902, "message": None},
    {"update_id": 903, "message": []},
    {"update_id": 904, "edited_message": {"message_id": 1000, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": False, "first_name": "A"}, "text": "say edited"}},
    {"update_id": 905, "something_new": {"a": 1}},
    {"update_id": 906, "message": {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": False, "first_name": "A"}, "text": "\ud800 @memory_bot", "entities": [{"type": "mention", "offset": 900, "length": -5}]}},
    {"update_id": 907, "message": {"message_id": 2, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 5, "is_bot": True, "first_name": "B"}, "text": "say bot"}},
    {"update_id": 908, "message": {"message_id": 3, "date": 1, "chat": {"id": 0, "type": "private"}, "from": {"id": 7, "is_bot": False, "first_name": "A"}, "text": "say nowhere"}},
    "nonsense", None, [], 5,
]  # fmt: skip


async def test_malformed_and_unknown_updates_are_survived(path):
    async with FakeTelegram() as server, running(server, path):
        for update in MALFORMED:
            async with server._news:
                server.updates.append(update)
        server._numbers = iter(range(1000, 2000))
        await server.say("say still here")
        await server.until(lambda: "still here" in server.texts())
    texts = " ".join(server.texts())
    assert "edited" not in texts
    assert "bot" not in texts.replace("@memory_bot", "")


async def test_what_came_while_away_is_answered_once(path):
    async with FakeTelegram() as server:
        await server.say("say one")
        await server.say("say two")
        async with running(server, path):
            await server.until(lambda: server.texts() == ["one", "two"])
        kept = [
            {
                "update_id": n + 1,
                "message": {
                    "message_id": 1000 + n,
                    "date": 1,
                    "chat": {"id": 7, "type": "private"},
                    "from": {"id": 7, "is_bot": False, "first_name": "Ann"},
                    "text": text,
                },
            }
            for n, text in enumerate(("say one", "say two"))
        ]
        server.updates = [*kept, *kept]  # a server that forgot what was confirmed
        await server.say("say three")
        server.offsets.clear()
        async with running(server, path):
            await server.until(lambda: "three" in server.texts())
        assert server.offsets[0] == 3
        assert server.texts() == ["one", "two", "three"]


async def ended_by_itself(server, path):
    """Run the bot until it gives up."""
    async with Agent(DemoModel(pace=0), store=path) as agent:
        settings = Settings(TOKEN, server.url, users=("7",), poll=5, pause=0.01, pace=0.01)
        await asyncio.wait_for(TelegramBot(agent, settings).run(), 60)


async def test_a_second_program_is_a_clear_error(path):
    async with FakeTelegram() as server:
        server.faults["getUpdates"] = [Refusal(409, "Conflict: terminated by other getUpdates request")] * 50
        with pytest.raises(BotRefused, match="another program reads the messages of this bot"):
            await ended_by_itself(server, path)
        server.faults["getUpdates"] = [
            Refusal(409, "Conflict: can't use getUpdates method while webhook is active")
        ] * 50
        with pytest.raises(BotRefused, match="deleteWebhook"):
            await ended_by_itself(server, path)
        server.faults["getUpdates"] = [Refusal(409, "Conflict: terminated by other getUpdates request")] * 2
        async with running(server, path):  # the last start's question, which Telegram has not given up yet
            await server.say("say hello")
            await server.until(lambda: server.texts() == ["hello"])


async def test_stopping_says_that_an_answer_is_cut_off(path):
    model = Scripted([TextDelta(text="Once upon a time"), 100, responded("never")])
    async with FakeTelegram() as server, running(server, path, model) as bot:
        await server.say("story")
        await server.until(server.texts)
        bot.stop()
        await server.until(lambda: "cut off" in server.texts()[0])
        assert server.texts()[0].startswith("Once upon a time")


def child(server, path, *arguments):
    environment = {
        **os.environ, "RECOLLECT_DB": path, "RECOLLECT_TELEGRAM_TOKEN": TOKEN, "RECOLLECT_TELEGRAM_BASE_URL": server.url,
        "RECOLLECT_TELEGRAM_ALLOW": "7", "RECOLLECT_CONFIG": "", "PYTHONASYNCIODEBUG": "",
    }  # fmt: skip
    return asyncio.create_subprocess_exec(
        sys.executable, "-c", "from recollect.cli import main; main()", "telegram", *arguments, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def test_killed_in_the_middle_of_an_answer(path):
    async with FakeTelegram() as server:
        process = await child(server, path)
        try:
            await server.say("Tell me a story in 500 chapters")
            await server.until(lambda: server.texts() and len(server.texts()[0]) > 200)
            await server.say("say later")
            await server.until(lambda: server.offsets[-1] >= 3)
        finally:
            process.kill()
            await process.wait()
        first = next(iter(server.messages[7]))
        process = await child(server, path)
        try:
            await server.until(lambda: "later" in server.texts())
            await server.until(lambda: any("cut off" in text for text in server.texts()))
            assert server.messages[7][first]["text"].startswith("Chapter 1.")
            await server.say("say and on")
            await server.until(lambda: "and on" in server.texts())
        finally:
            process.send_signal(signal.SIGINT)
            output, _ = await process.communicate()
        assert process.returncode == 0, output
        assert b"Stopped." in output
        assert TOKEN.encode() not in output
        async with running(server, path):
            await server.say("say thrice")
            await server.until(lambda: "thrice" in server.texts())
    assert sum("cut off" in text for text in server.texts()) == 1
    assert server.texts().count("later") == 1
    with recollect.open(path) as store:
        assert [turn.status for turn in store.get_session("telegram:7").turns()] == ["interrupted", *["completed"] * 3]


async def test_the_token_is_nowhere(path, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    secret = TOKEN.partition(":")[2]
    seen = []
    async with FakeTelegram() as server:
        server.faults["sendMessage"] = [DROP, Refusal(400, f"Bad Request: {TOKEN}")]
        server.faults["getUpdates"] = [DROP, b"<html>" + TOKEN.encode()]
        async with running(server, path, Scripted(say("fine"), [RuntimeError("x")])):
            await server.say("a")
            await server.until(lambda: len(server.made("sendMessage")) >= 2)
            await server.say("b")
            await server.until(server.texts)
        wrong = FakeTelegram("1:another")
        async with wrong:
            async with Agent(Scripted(), store=path) as agent:
                with pytest.raises(BotRefused) as refused:
                    await TelegramBot(agent, Settings(TOKEN, wrong.url)).run()
            seen += [str(refused.value), repr(refused.value)]
            import traceback

            seen.append("".join(traceback.format_exception(refused.value)))
    seen += [caplog.text, *(record.getMessage() for record in caplog.records)]
    seen += [str(server.texts())]
    assert any("HTTP Request" in record.getMessage() for record in caplog.records)
    for text in seen:
        assert secret.lower() not in text.lower()  # the library changes the case of what it quotes
    for name in glob.glob(f"{tmp_path}/**", recursive=True):
        if os.path.isfile(name):
            with open(name, "rb") as file:
                assert secret.encode() not in file.read()
