"""A restart of a bot: pending messages, interrupted answers, and complete answers that were not delivered."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from memory_platform import MemoryPlatform, make_incoming
from test_bot_dispatcher import open_dispatcher, read_messages, receive

import recollect
from recollect.channels.bot import IncomingFile
from recollect.channels.bot.ledger import Ledger, LedgerEntry
from recollect.errors import DeliveryFailed

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "agent"))
from scripted import Scripted, reply


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


async def store_ledger_entry(path, incoming, message_ids=(), *, files=False):
    """Store the ledger entry of a message that a killed process had accepted."""
    async with recollect.open_async(path) as store:
        ledger = Ledger(store, "telegram:99")
        await ledger.load()
        await ledger.take(incoming)
        ledger._state.open[incoming.name] = LedgerEntry(incoming.without_files(), list(message_ids), files)
        await ledger._save()


async def store_turn(path, incoming, answer="", status=None, lease=0.01):
    """Store a question and the answer, perhaps partial, of a killed process."""
    async with recollect.open_async(path) as store:
        session = await store.session(incoming.session)
        turn = await session.turn(incoming.draft(), key=incoming.key(), lease=lease)
        if answer:
            stream = await turn.stream()
            await stream.write(answer)
            await stream.flush()
            if status == "completed":
                await stream.close()
        if status == "completed":
            await turn.complete()


def platform_with(*texts):
    platform = MemoryPlatform()
    for number, text in enumerate(texts, 500):
        platform.messages["telegram:1"][str(number)] = text
    return platform


async def test_an_interrupted_answer_is_marked_once(path):
    incoming, platform = make_incoming("story", id=1), platform_with("Once upon \u2026")
    await store_turn(path, incoming, "Once upon a time")
    await store_ledger_entry(path, incoming, ["500"])
    for _ in range(2):
        async with open_dispatcher(path, platform) as dispatcher:
            await dispatcher.settle()
            assert not dispatcher.ledger.entries
    (text,) = platform.texts("telegram:1")
    assert text.startswith("Once upon a time\n\n")
    assert "was interrupted" in text
    async with open_dispatcher(path, platform) as dispatcher:
        await receive(dispatcher, make_incoming("story", id=1))
        await receive(dispatcher, make_incoming("say on", id=2))
        await dispatcher.settle()
    assert platform.texts("telegram:1")[1:] == ["on"]


async def test_an_interruption_without_a_message_to_edit_is_sent_as_a_new_one(path):
    incoming, platform = make_incoming("story", id=1), MemoryPlatform()
    await store_turn(path, incoming)
    await store_ledger_entry(path, incoming, ["no such message"])
    async with open_dispatcher(path, platform) as dispatcher:
        await dispatcher.settle()
    (text,) = platform.texts("telegram:1")
    assert "was interrupted" in text


async def test_visible_messages_are_not_removed(path):
    incoming, platform = make_incoming("story", id=1), platform_with("part one", "part two \u2026")
    await store_turn(path, incoming, "part one")
    await store_ledger_entry(path, incoming, ["500", "501"])
    async with open_dispatcher(path, platform) as dispatcher:
        await dispatcher.settle()
    assert platform.texts("telegram:1")[:2] == ["part one", "part two \u2026"]
    assert "was interrupted" in platform.texts("telegram:1")[2]


async def test_a_complete_answer_is_delivered(path):
    incoming, platform = make_incoming("story", id=1), platform_with("The end \u2026")
    await store_turn(path, incoming, "The end of it.", "completed")
    await store_ledger_entry(path, incoming, ["500"])
    async with open_dispatcher(path, platform) as dispatcher:
        await dispatcher.settle()
    assert platform.texts("telegram:1") == ["The end of it."]


async def test_pending_messages_are_answered_and_lost_files_are_requested_again(path):
    platform = MemoryPlatform()
    await store_ledger_entry(path, make_incoming("say hello", id=1))
    await store_ledger_entry(path, make_incoming("look", id=2, chat=2), files=True)
    await store_ledger_entry(path, make_incoming("/rename Later", id=3, chat=3))
    async with open_dispatcher(path, platform) as dispatcher:
        assert not await receive(dispatcher, make_incoming("say hello", id=1))
        await dispatcher.settle()
        assert await receive(
            dispatcher, make_incoming("look", id=9, chat=2, attachments=(IncomingFile("a", "image/png", b"x"),))
        )
        await dispatcher.settle()
    assert platform.texts("telegram:1") == ["hello"]
    assert "send it again" in platform.texts("telegram:2")[0]
    assert len(platform.texts("telegram:2")) == 2
    assert "Later" in platform.texts("telegram:3")[0]


async def test_a_turn_of_an_unreachable_process_is_taken_over(path, monkeypatch):
    incoming, platform = make_incoming("story", id=1), MemoryPlatform()
    from recollect.engine.sqlite.async_engine import AsyncSqliteEngine

    with monkeypatch.context() as patch:
        patch.setattr(AsyncSqliteEngine, "holder", lambda _: "another-machine/boot/1/1")
        await store_turn(path, incoming, "Once", lease=300)
    await store_ledger_entry(path, incoming)
    async with open_dispatcher(path, platform, Scripted(reply("it continues"))) as dispatcher:
        await receive(dispatcher, make_incoming("continue", id=2))
        await dispatcher.settle()
    assert "was interrupted" in platform.texts("telegram:1")[0]
    assert platform.texts("telegram:1")[1] == "it continues"
    assert read_messages(path, "telegram:1")[-1] == ("assistant", "it continues")


async def test_an_undelivered_notice_is_sent_after_the_next_start(path):
    incoming, platform = make_incoming("story", id=1), MemoryPlatform()
    await store_turn(path, incoming, "Once")
    await store_ledger_entry(path, incoming)
    platform.refusals = [DeliveryFailed(reason="no network", retryable=True)] * 1000
    async with open_dispatcher(path, platform, patience=0.1) as dispatcher:
        await dispatcher.settle()
        assert dispatcher.ledger.entries
    platform.refusals = []
    async with open_dispatcher(path, platform) as dispatcher:
        await dispatcher.settle()
    assert "was interrupted" in platform.texts("telegram:1")[0]


async def test_a_malformed_ledger_does_not_stop_the_bot(path):
    async with recollect.open_async(path) as store:
        await store.records.put("bot.ledger", "telegram:99", {"open": {"x": {"incoming": 5}}})
    platform = MemoryPlatform()
    async with open_dispatcher(path, platform) as dispatcher:
        await receive(dispatcher, make_incoming("say hello"))
        await dispatcher.settle()
    assert platform.texts("telegram:1") == ["hello"]


async def test_concurrent_marks_survive_a_restart(path):
    platform = MemoryPlatform()
    async with open_dispatcher(path, platform) as dispatcher:
        await asyncio.gather(
            *(dispatcher.take(make_incoming("say x", chat=n, id=1), mark=("updates", str(n))) for n in range(1, 40))
        )
        await dispatcher.mark("other", "5")
        await dispatcher.settle()
    async with open_dispatcher(path, platform) as dispatcher:
        assert dict(dispatcher.marks) == {"updates": "39", "other": "5"}
