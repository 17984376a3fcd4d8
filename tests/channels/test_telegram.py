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
from recollect.errors import BotRejected

pytest.importorskip("telegram")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "agent"))
from scripted import Scripted, reply, response

from recollect.agent.events import TextDelta
from recollect.channels.telegram.bot import TelegramBot, TelegramOptions


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


@contextlib.asynccontextmanager
async def run_bot(server, path, model=None, **settings):
    """Run the bot until the block ends."""
    settings = {"users": ("7",), "poll": 5, "pause": 0.01, "pace": 0.01, **settings}
    async with Agent(model or DemoModel(pace=0), store=path) as agent:
        bot = TelegramBot(agent, TelegramOptions(TOKEN, server.url, **settings))
        task = asyncio.create_task(bot.run())
        try:
            yield bot
        finally:
            bot.stop()
            await task


def read_messages(path, session_id):
    with recollect.open(path) as store:
        session = store.get_session(session_id)
        return [] if session is None else [(m.role, m.text) for m in session.messages()]


async def test_a_direct_chat(path):
    async with FakeTelegram() as server, run_bot(server, path):
        await server.post("say hello")
        await server.wait_until(lambda: server.texts() == ["hello"])
        commands = server.calls_of("setMyCommands")[0]["commands"]
        assert {"new", "clear", "history", "rename", "search", "fork", "compact", "status"} <= {
            c["command"] for c in commands
        }
        assert server.calls_of("sendChatAction")[0]["action"] == "typing"
        await server.post("/rename Greetings")
        await server.wait_until(lambda: len(server.texts()) == 2)
        assert server.texts()[1] == "This conversation is now called Greetings."
    with recollect.open(path) as store:
        session = store.get_session("telegram:7")
        assert (session.channel, session.channel_id, session.title) == ("telegram", "7", "Greetings")
        assert session.messages()[0].metadata["author"] == {"id": "7", "name": "Ann"}


async def test_the_bot_answers_mentions_in_groups_and_separates_topics(path):
    async with FakeTelegram() as server, run_bot(server, path, chats=("-5",)):
        await server.post("just chatting", chat=-5)
        await server.post("not me @other_bot", chat=-5)
        await server.post("/new@other_bot", chat=-5)
        question_id = await server.post("say one @memory_bot", chat=-5, user=8, name="Bob")
        await server.wait_until(lambda: server.texts(-5) == ["one"])
        (answer,) = server.messages[-5].values()
        assert answer["reply_parameters"]["message_id"] == question_id
        bot_message = {
            "message_id": 3,
            "date": 1,
            "chat": {"id": -5, "type": "supergroup"},
            "from": {"id": 99, "is_bot": True, "first_name": "M"},
            "text": "one",
        }
        await server.post("say two", chat=-5, reply_to_message=bot_message)
        await server.wait_until(lambda: server.texts(-5) == ["one", "two"])
        await server.post("@memory_bot say three", chat=-5, is_topic_message=True, message_thread_id=44)
        await server.wait_until(lambda: server.texts(-5) == ["one", "two", "three"])
        assert list(server.messages[-5].values())[2]["message_thread_id"] == 44
        await server.post("say four @memory_bot", chat=-6)  # user 7 is on the allow list in every chat
        await server.wait_until(lambda: server.texts(-6) == ["four"])
        await server.post("say five @memory_bot", chat=-6, user=8)
        await server.post("/status@memory_bot", chat=-6)
        await server.wait_until(lambda: len(server.texts(-6)) == 2)
        assert "telegram:-6" in server.texts(-6)[1]
    assert read_messages(path, "telegram:-5") == [
        ("user", "say one"),
        ("assistant", "one"),
        ("user", "say two"),
        ("assistant", "two"),
    ]
    assert read_messages(path, "telegram:-5:44") == [("user", "say three"), ("assistant", "three")]


async def test_fifty_concurrent_chats_do_not_mix(path):
    async with FakeTelegram() as server, run_bot(server, path, DemoModel(pace=0.001), chats=("-9",)):
        chats = [*range(101, 126), *((-9, topic) for topic in range(1, 26))]
        for turn in (1, 2):
            for chat in chats:
                if isinstance(chat, int):
                    await server.post(f"say chat {chat} turn {turn}", chat=chat)
                else:
                    topic_fields = {"is_topic_message": True, "message_thread_id": chat[1]}
                    await server.post(f"@memory_bot say topic {chat[1]} turn {turn}", chat=-9, user=8, **topic_fields)
        await server.wait_until(lambda: sum(len(server.texts(chat)) for chat in (*range(101, 126), -9)) == 100)
        await server.wait_until(
            lambda: not any(text.endswith("\u2026") for chat in server.messages for text in server.texts(chat))
        )
    for chat in range(101, 126):
        assert server.texts(chat) == [f"chat {chat} turn 1", f"chat {chat} turn 2"]
    for topic in range(1, 26):
        texts = [m["text"] for m in server.messages[-9].values() if m["message_thread_id"] == topic]
        assert texts == [f"topic {topic} turn 1", f"topic {topic} turn 2"]
        assert [text for role, text in read_messages(path, f"telegram:-9:{topic}") if role == "assistant"] == texts


async def test_an_unsupported_message_is_reported(path):
    async with FakeTelegram() as server, run_bot(server, path):
        await server.post(location={"latitude": 1.0, "longitude": 2.0})
        await server.wait_until(
            lambda: (
                server.texts() == ["I can read text, images and other files, but this message contains none of them."]
            )
        )


async def test_a_reply_quotes_the_message_of_another_user(path):
    model = Scripted()
    quoted_message = {
        "message_id": 3,
        "date": 1,
        "chat": {"id": -5, "type": "supergroup"},
        "from": {"id": 8, "is_bot": False, "first_name": "Bob"},
        "text": "E = mc2",
    }
    async with FakeTelegram() as server, run_bot(server, path, model):
        await server.post("@memory_bot what is this?", chat=-5, reply_to_message=quoted_message)
        await server.wait_until(lambda: server.texts(-5) == ["ok"])
    assert model.histories[0][0].parts[0].text == "[Ann] Bob wrote:\n> E = mc2\n\nwhat is this?"


async def test_files(path):
    model = Scripted()
    async with FakeTelegram() as server, run_bot(server, path, model, max_file_size=100):
        server.files = {"small": b"\xff\xd8small", "big": b"\xff\xd8big", "notes": b"buy milk", "large": b"x" * 200}
        photo = [
            {"file_id": size, "file_unique_id": size, "width": n, "height": n}
            for n, size in ((10, "small"), (90, "big"))
        ]
        await server.post(caption="look", photo=photo)
        await server.wait_until(lambda: len(server.texts()) == 1)
        for name in ("notes", "large", "gone"):
            file = {"file_id": name, "file_unique_id": name, "file_name": f"{name}.txt", "mime_type": "text/plain"}
            await server.post(document={**file, **({"file_size": 200} if name == "large" else {})})
        await server.wait_until(lambda: len(server.texts()) == 6)
        album = {"media_group_id": "a1"}
        async with server._new_updates:
            pass
        for part in ("first", "second"):
            server.updates.append(
                {
                    "update_id": next(server._update_ids),
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
        await server.post("and a word")
        await server.wait_until(lambda: len(server.texts()) == 8)
    with recollect.open(path) as store:
        questions = [m for m in store.get_session("telegram:7").messages() if m.role == "user"]
    assert questions[0].text == "look"
    assert (questions[0].parts[1].mime_type, questions[0].parts[1].size) == ("image/jpeg", 5)  # pyright: ignore[reportAttributeAccessIssue]
    assert questions[1].parts[0].name == "notes.txt"  # pyright: ignore[reportAttributeAccessIssue]
    assert "the limit is 100" in questions[2].text
    assert "could not be downloaded" in questions[3].text
    assert questions[4].text == "both"
    assert [part.name for part in questions[4].parts[1:]] == [  # pyright: ignore[reportAttributeAccessIssue]
        f"photo-{int(questions[4].metadata['message_id']) + n}.jpg" for n in (0, 1)
    ]


async def test_an_answer_is_streamed_by_edits_and_split(path):
    words = [f"number {n} of some words, " for n in range(600)]
    model = Scripted(reply(*words, pause=0))
    async with FakeTelegram() as server, run_bot(server, path, model):
        await server.post("go")
        await server.wait_until(lambda: "number 599" in "".join(server.texts()))
        await server.wait_until(lambda: not server.texts()[-1].endswith("\u2026"))
    texts = server.texts()
    assert "".join("".join(texts).split()) == "".join("".join(words).split())
    assert len(texts) == 4
    assert 1 <= len(server.calls_of("editMessageText")) < 1_000
    assert any(
        call["text"].endswith("\u2026") for call in server.calls_of("sendMessage") + server.calls_of("editMessageText")
    )


async def test_rate_limits_and_failures_of_telegram(path):
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
        async with run_bot(server, path):
            await server.post("say hello")
            await server.wait_until(lambda: server.texts() == ["hello"])
            server.faults["sendMessage"] = [Refusal(403, "Forbidden: bot was blocked by the user")] * 9
            await server.post("say blocked")
            await server.wait_until(lambda: ("assistant", "blocked") in read_messages(path, "telegram:7"))
            server.faults["sendMessage"] = []
            await server.post("say back")
            await server.wait_until(lambda: "back" in server.texts())


async def test_rejected_entities_are_omitted(path):
    model = Scripted(reply("**bold** and `code`"))
    async with FakeTelegram() as server:
        server.faults["sendMessage"] = [Refusal(400, "Bad Request: can't parse entities")] * 1
        server.faults["editMessageText"] = [Refusal(400, "Bad Request: can't parse entities")] * 1
        async with run_bot(server, path, model):
            await server.post("go")
            await server.wait_until(lambda: server.texts() in (["**bold** and `code`"], ["bold and code"]))


async def test_a_group_that_becomes_a_supergroup_keeps_its_session(path):
    async with FakeTelegram() as server, run_bot(server, path):
        await server.post("say one @memory_bot", chat=-5)
        await server.wait_until(lambda: server.texts(-5) == ["one"])
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
        await server.post("say two @memory_bot", chat=-1005)
        await server.wait_until(lambda: server.texts(-1005) == ["two"])
    assert [text for _, text in read_messages(path, "telegram:-1005")] == ["say one", "one", "say two", "two"]


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


async def test_malformed_and_unknown_updates_are_ignored(path):
    async with FakeTelegram() as server, run_bot(server, path):
        for update in MALFORMED:
            async with server._new_updates:
                server.updates.append(update)
        server._update_ids = iter(range(1000, 2000))  # pyright: ignore[reportAttributeAccessIssue]
        await server.post("say still here")
        await server.wait_until(lambda: "still here" in server.texts())
    texts = " ".join(server.texts())
    assert "edited" not in texts
    assert "bot" not in texts.replace("@memory_bot", "")


async def test_messages_from_an_offline_period_are_answered_once(path):
    async with FakeTelegram() as server:
        await server.post("say one")
        await server.post("say two")
        async with run_bot(server, path):
            await server.wait_until(lambda: server.texts() == ["one", "two"])
        old_updates = [
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
        server.updates = [*old_updates, *old_updates]  # a server that repeats acknowledged updates
        await server.post("say three")
        server.offsets.clear()
        async with run_bot(server, path):
            await server.wait_until(lambda: "three" in server.texts())
        assert server.offsets[0] == 3
        assert server.texts() == ["one", "two", "three"]


async def run_until_rejected(server, path):
    """Run the bot until it raises an error."""
    async with Agent(DemoModel(pace=0), store=path) as agent:
        settings = TelegramOptions(TOKEN, server.url, users=("7",), poll=5, pause=0.01, pace=0.01)
        await asyncio.wait_for(TelegramBot(agent, settings).run(), 60)


async def test_a_second_program_with_the_same_token_is_an_error(path):
    async with FakeTelegram() as server:
        server.faults["getUpdates"] = [Refusal(409, "Conflict: terminated by other getUpdates request")] * 50
        with pytest.raises(BotRejected, match="another program reads the messages of this bot"):
            await run_until_rejected(server, path)
        server.faults["getUpdates"] = [
            Refusal(409, "Conflict: can't use getUpdates method while webhook is active")
        ] * 50
        with pytest.raises(BotRejected, match="deleteWebhook"):
            await run_until_rejected(server, path)
        server.faults["getUpdates"] = [Refusal(409, "Conflict: terminated by other getUpdates request")] * 2
        async with run_bot(server, path):  # a poll of the previous process, which Telegram still holds open
            await server.post("say hello")
            await server.wait_until(lambda: server.texts() == ["hello"])


async def test_stopping_the_bot_marks_the_answer_as_interrupted(path):
    model = Scripted([TextDelta(text="Once upon a time"), 100, response("never")])
    async with FakeTelegram() as server, run_bot(server, path, model) as bot:
        await server.post("story")
        await server.wait_until(server.texts)
        bot.stop()
        await server.wait_until(lambda: "was interrupted" in server.texts()[0])
        assert server.texts()[0].startswith("Once upon a time")


def start_bot_process(server, path, *arguments):
    environment = {
        **os.environ, "RECOLLECT_DB": path, "RECOLLECT_TELEGRAM_TOKEN": TOKEN, "RECOLLECT_TELEGRAM_BASE_URL": server.url,
        "RECOLLECT_TELEGRAM_ALLOW": "7", "RECOLLECT_CONFIG": "", "PYTHONASYNCIODEBUG": "",
    }  # fmt: skip
    return asyncio.create_subprocess_exec(
        sys.executable, "-c", "from recollect.cli import main; main()", "telegram", *arguments, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def test_killed_during_an_answer(path):
    async with FakeTelegram() as server:
        process = await start_bot_process(server, path)
        try:
            await server.post("Tell me a story in 500 chapters")
            await server.wait_until(lambda: server.texts() and len(server.texts()[0]) > 200)
            await server.post("say later")
            await server.wait_until(lambda: server.offsets[-1] >= 3)
        finally:
            process.kill()
            await process.wait()
        first = next(iter(server.messages[7]))
        process = await start_bot_process(server, path)
        try:
            await server.wait_until(lambda: "later" in server.texts())
            await server.wait_until(lambda: any("was interrupted" in text for text in server.texts()))
            assert server.messages[7][first]["text"].startswith("Chapter 1.")
            await server.post("say and on")
            await server.wait_until(lambda: "and on" in server.texts())
        finally:
            process.send_signal(signal.SIGINT)
            output, _ = await process.communicate()
        assert process.returncode == 0, output
        assert b"Stopped." in output
        assert TOKEN.encode() not in output
        async with run_bot(server, path):
            await server.post("say thrice")
            await server.wait_until(lambda: "thrice" in server.texts())
    assert sum("was interrupted" in text for text in server.texts()) == 1
    assert server.texts().count("later") == 1
    with recollect.open(path) as store:
        assert [turn.status for turn in store.get_session("telegram:7").turns.list()] == [
            "interrupted",
            *["completed"] * 3,
        ]


async def test_the_token_is_in_no_log_error_message_or_file(path, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    secret = TOKEN.partition(":")[2]
    outputs = []
    async with FakeTelegram() as server:
        server.faults["sendMessage"] = [DROP, Refusal(400, f"Bad Request: {TOKEN}")]
        server.faults["getUpdates"] = [DROP, b"<html>" + TOKEN.encode()]
        async with run_bot(server, path, Scripted(reply("fine"), [RuntimeError("x")])):
            await server.post("a")
            await server.wait_until(lambda: len(server.calls_of("sendMessage")) >= 2)
            await server.post("b")
            await server.wait_until(server.texts)
        other_server = FakeTelegram("1:another")
        async with other_server:
            async with Agent(Scripted(), store=path) as agent:
                with pytest.raises(BotRejected) as rejection:
                    await TelegramBot(agent, TelegramOptions(TOKEN, other_server.url)).run()
            outputs += [str(rejection.value), repr(rejection.value)]
            import traceback

            outputs.append("".join(traceback.format_exception(rejection.value)))
    outputs += [caplog.text, *(record.getMessage() for record in caplog.records)]
    outputs += [str(server.texts())]
    assert any("HTTP Request" in record.getMessage() for record in caplog.records)
    for text in outputs:
        assert secret.lower() not in text.lower()  # the library changes the case of quoted text
    for name in glob.glob(f"{tmp_path}/**", recursive=True):
        if os.path.isfile(name):
            with open(name, "rb") as file:
                assert secret.encode() not in file.read()
