"""What a restart finds: messages that were not read, answers that were cut off, and answers that nobody saw."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from bot_places import Undelivered, Wall, said
from test_bot_desk import desk_of, hear, stored

import recollect
from recollect.channels.bot import Attachment
from recollect.channels.bot.ledger import Entry, Ledger

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "agent"))
from scripted import Scripted, say


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bot.db")


async def leave(path, incoming, sent=(), *, files=False):
    """Write into the ledger what a process that is gone had taken on."""
    async with recollect.open_async(path) as store:
        ledger = Ledger(store, "telegram:99")
        await ledger.load()
        await ledger.take(incoming)
        ledger._page.open[incoming.name] = Entry(incoming.without_files(), list(sent), files)
        await ledger._save()


async def begun(path, incoming, answer="", status=None, lease=0.01):
    """Store a question, and what a process that is gone had answered."""
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


def wall_with(*texts):
    wall = Wall()
    for number, text in enumerate(texts, 500):
        wall.messages["telegram:1"][str(number)] = text
    return wall


async def test_an_answer_that_was_cut_off_is_said_to_be_in_its_message_once(path):
    asked, wall = said("story", id=1), wall_with("Once upon \u2026")
    await begun(path, asked, "Once upon a time")
    await leave(path, asked, ["500"])
    for _ in range(2):
        async with desk_of(path, wall) as desk:
            await desk.settle()
            assert not desk.ledger.entries
    (text,) = wall.texts("telegram:1")
    assert text.startswith("Once upon a time\n\n")
    assert "cut off" in text
    async with desk_of(path, wall) as desk:
        await hear(desk, said("story", id=1))
        await hear(desk, said("say on", id=2))
        await desk.settle()
    assert wall.texts("telegram:1")[1:] == ["on"]


async def test_without_a_message_to_change_it_is_said_in_a_new_one(path):
    asked, wall = said("story", id=1), Wall()
    await begun(path, asked)
    await leave(path, asked, ["no such message"])
    async with desk_of(path, wall) as desk:
        await desk.settle()
    (text,) = wall.texts("telegram:1")
    assert "cut off" in text


async def test_what_the_person_saw_is_not_taken_away(path):
    asked, wall = said("story", id=1), wall_with("part one", "part two \u2026")
    await begun(path, asked, "part one")
    await leave(path, asked, ["500", "501"])
    async with desk_of(path, wall) as desk:
        await desk.settle()
    assert wall.texts("telegram:1")[:2] == ["part one", "part two \u2026"]
    assert "cut off" in wall.texts("telegram:1")[2]


async def test_an_answer_that_was_complete_is_delivered(path):
    asked, wall = said("story", id=1), wall_with("The end \u2026")
    await begun(path, asked, "The end of it.", "completed")
    await leave(path, asked, ["500"])
    async with desk_of(path, wall) as desk:
        await desk.settle()
    assert wall.texts("telegram:1") == ["The end of it."]


async def test_a_message_that_was_not_read_is_answered_and_one_with_files_is_asked_for(path):
    wall = Wall()
    await leave(path, said("say hello", id=1))
    await leave(path, said("look", id=2, chat=2), files=True)
    await leave(path, said("/rename Later", id=3, chat=3))
    async with desk_of(path, wall) as desk:
        assert not await hear(desk, said("say hello", id=1))
        await desk.settle()
        assert await hear(desk, said("look", id=9, chat=2, attachments=(Attachment("a", "image/png", b"x"),)))
        await desk.settle()
    assert wall.texts("telegram:1") == ["hello"]
    assert "send it again" in wall.texts("telegram:2")[0]
    assert len(wall.texts("telegram:2")) == 2
    assert "Later" in wall.texts("telegram:3")[0]


async def test_a_turn_of_a_process_that_nobody_can_ask_is_taken_over(path, monkeypatch):
    asked, wall = said("story", id=1), Wall()
    from recollect import store_async

    with monkeypatch.context() as patch:
        patch.setattr(store_async, "holder", lambda: "another-machine/boot/1/1")
        await begun(path, asked, "Once", lease=300)
    await leave(path, asked)
    async with desk_of(path, wall, Scripted(say("on it goes"))) as desk:
        await hear(desk, said("go on", id=2))
        await desk.settle()
    assert "cut off" in wall.texts("telegram:1")[0]
    assert wall.texts("telegram:1")[1] == "on it goes"
    assert stored(path, "telegram:1")[-1] == ("assistant", "on it goes")


async def test_what_can_not_be_told_now_is_told_after_the_next_start(path):
    asked, wall = said("story", id=1), Wall()
    await begun(path, asked, "Once")
    await leave(path, asked)
    wall.refusals = [Undelivered("no network", again=True)] * 1000
    async with desk_of(path, wall, patience=0.1) as desk:
        await desk.settle()
        assert desk.ledger.entries
    wall.refusals = []
    async with desk_of(path, wall) as desk:
        await desk.settle()
    assert "cut off" in wall.texts("telegram:1")[0]


async def test_a_ledger_that_can_not_be_read_does_not_stop_the_bot(path):
    async with recollect.open_async(path) as store:
        await store.set_setting("bot:telegram:99", {"open": {"x": {"incoming": 5}}})
    wall = Wall()
    async with desk_of(path, wall) as desk:
        await hear(desk, said("say hello"))
        await desk.settle()
    assert wall.texts("telegram:1") == ["hello"]


async def test_marks_are_kept_and_many_are_written_together(path):
    wall = Wall()
    async with desk_of(path, wall) as desk:
        await asyncio.gather(*(desk.take(said("say x", chat=n, id=1), mark=("updates", str(n))) for n in range(1, 40)))
        await desk.mark("other", "5")
        await desk.settle()
    async with desk_of(path, wall) as desk:
        assert dict(desk.marks) == {"updates": "39", "other": "5"}
