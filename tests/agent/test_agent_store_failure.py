"""A store that fails: the talk goes on, the person is told once, and everything is written later, in order, once."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from scripted import Scripted, answers, call, responded, say, starts

from recollect.agent import Notice, TextDelta
from recollect.agent.recorder import Recorder
from recollect.errors import DiskFull, StoreLocked


class Trouble:
    """Makes a store fail from now on, or from the nth operation on, until it is told to stop."""

    def __init__(self, store, after=0):
        self._store, self._run, self.after, self.on = store, store.run, after, True
        self.tries = 0
        store.run = self.run

    def run(self, op):
        self.after -= 1
        if self.on and self.after < 0:
            self.tries += 1
            return self._refuse(op)
        return self._run(op)

    async def _refuse(self, op):
        raise DiskFull(path=self._store.path)


async def happening(talk, said):
    return [event async for event in talk.send(said)]


def warnings(events):
    return [event for event in events if isinstance(event, Notice) and event.level == "warning"]


async def test_a_whole_talk_without_a_store_is_written_when_it_is_back(agent, stored):
    model = Scripted(say("a1"), say("a2"), say("a3"))
    async with agent(model) as there:
        talk = await there.talk("cli:a")
        trouble = Trouble(there.store)
        events = [await happening(talk, f"q{n}") for n in (1, 2)]
        assert [event[-1].text for event in events] == ["a1", "a2"]
        assert [event[-1].status for event in events] == ["completed", "completed"]
        assert len(warnings(events[0] + events[1])) == 1
        assert "full" in warnings(events[0])[0].text
        assert talk.held == 4
        assert stored("cli:a")[0] == []
        trouble.on = False
        events = await happening(talk, "q3")
        assert not warnings(events)
        assert await talk._recorder.drain(60)
        assert talk.held == 0
        assert any("back" in event.text for event in [*events, *talk.notices()] if isinstance(event, Notice))
    messages, turns, _, _ = stored("cli:a")
    assert [m.text for m in messages] == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert [turn.status for turn in turns] == ["completed"] * 3


async def test_the_model_is_told_what_the_store_does_not_know(agent):
    model = Scripted(say("a1"), say("a2"))
    async with agent(model) as there:
        talk = await there.talk("cli:a")
        await talk.session.append({"role": "user", "content": "q0"})
        trouble = Trouble(there.store, after=3)
        await happening(talk, "q1")
        await happening(talk, "q2")
        trouble.on = False
    said = ["".join(p.text for p in m.parts) for m in model.seen[1]]
    assert said == ["q0", "q1", "a1", "q2"]


@pytest.mark.parametrize("after", range(12))
async def test_whenever_it_begins_to_fail_everything_is_stored_once(agent, stored, after):
    part = call("c1")
    script = [
        TextDelta(text="Let me "), TextDelta(text="see."), responded("Let me see.", part), starts(part),
        answers(part, "found"), 0.01, TextDelta(text="It is "), TextDelta(text="there."), responded("It is there."),
    ]  # fmt: skip
    async with agent(Scripted(script)) as there:
        talk = await there.talk("cli:a", title="T")
        trouble = Trouble(there.store, after=after)
        events = await happening(talk, "Where?")
        assert events[-1].text == "Let me see.\n\nIt is there."
        assert len(warnings(events)) <= 1
        trouble.on = False
        assert await talk._recorder.drain(60)
    messages, turns, calls, session = stored("cli:a")
    assert [(m.role, m.text, m.state) for m in messages] == [
        ("user", "Where?", "completed"), ("assistant", "Let me see.", "completed"), ("tool", "", "completed"),
        ("assistant", "It is there.", "completed"),
    ]  # fmt: skip
    assert [turn.status for turn in turns] == ["completed"]
    assert [made.status for made in calls] == ["success"]
    assert session.message_count == 4


async def test_failing_in_the_middle_of_a_long_answer(agent, stored):
    words = [f"w{n} " for n in range(30)]
    script = [step for word in words for step in (TextDelta(text=word), 0.07)]
    async with agent(Scripted([*script, responded("".join(words))])) as there:
        talk = await there.talk("cli:a", title="T")
        trouble = Trouble(there.store, after=3)
        asked = asyncio.create_task(happening(talk, "Count"))
        await asyncio.sleep(1.7)
        trouble.on = False
        events = await asked
    assert events[-1].text == "".join(words)
    messages, _, _, _ = stored("cli:a")
    assert [(m.text, m.state) for m in messages] == [("Count", "completed"), ("".join(words), "completed")]


async def test_stopped_while_the_store_fails(agent, stored):
    async with agent(Scripted([TextDelta(text="Half"), 30])) as there:
        talk = await there.talk("cli:a")
        trouble = Trouble(there.store)
        async for event in talk.send("Go"):
            if isinstance(event, TextDelta):
                talk.stop()
        assert event.status == "cancelled"
        trouble.on = False
        assert await talk._recorder.drain(60)
    messages, (turn,), _, _ = stored("cli:a")
    assert [(m.text, m.state) for m in messages] == [("Go", "completed"), ("Half", "interrupted")]
    assert turn.status == "cancelled"


async def test_a_store_that_never_comes_back_does_not_keep_anyone(agent, monkeypatch):
    monkeypatch.setattr("recollect.agent.recorder.PATIENCE", 0.2)
    async with agent(Scripted()) as there:
        talk = await there.talk("cli:a")
        Trouble(there.store)
        await happening(talk, "Go")
        assert not await talk.close()
        assert talk.held == 2
        assert [(m.role, m.parts[0].text) for m in talk.unsaved()] == [("user", "Go"), ("assistant", "ok")]
        from recollect.channels.terminal.talk import rescued

        path = rescued(talk).partition("They are in ")[2].partition(",")[0]
        with open(path, encoding="utf-8") as file:
            assert [json.loads(line)["role"] for line in file] == ["user", "assistant"]
        os.unlink(path)


async def test_messages_that_were_held_have_the_time_when_they_were_said(agent, stored):
    import time

    async with agent(Scripted(say("a1"))) as there:
        talk = await there.talk("cli:a")
        trouble = Trouble(there.store)
        await happening(talk, "q1")
        said = time.time_ns() // 1_000_000
        await asyncio.sleep(0.5)
        trouble.on = False
        assert await talk._recorder.drain(60)
    assert all(m.created_at <= said for m in stored("cli:a")[0])


async def test_a_session_that_is_resumed_while_another_is_held(agent):
    model = Scripted(say("a1"), say("a2"))
    async with agent(model) as there:
        other = await there.store.session("cli:b")
        await other.append({"role": "user", "content": "old"})
        talk = await there.talk("cli:a")
        await happening(talk, "q1")
        run = there.store.run
        trouble = Trouble(there.store, after=1)
        there.store.run = trouble.run
        talk.session, talk._memory, talk._loaded = other, [], False
        there.store.run = run
        await happening(talk, "q2")
    assert ["".join(p.text for p in m.parts) for m in model.seen[1]] == ["old", "q2"]


async def test_a_store_that_hangs_does_not_keep_the_answer(agent, monkeypatch, stored):
    monkeypatch.setattr("recollect.agent.recorder.PATIENCE", 0.1)

    async with agent(Scripted(say("Hi"))) as there:
        talk = await there.talk("cli:a")
        run, free = there.store.run, asyncio.Event()

        async def slow(op):
            await free.wait()
            return await run(op)

        there.store.run = slow
        events = await happening(talk, "Hello")
        assert events[-1].text == "Hi"
        free.set()
        assert await talk._recorder.drain(60)
    assert [m.text for m in stored("cli:a")[0]] == ["Hello", "Hi"]


async def test_the_recorder_backs_off(monkeypatch):
    told, tries, pauses = [], [], []

    async def write():
        tries.append(None)
        if len(tries) < 4:
            raise StoreLocked(path="x", seconds=1)

    async def pause(self, seconds):
        pauses.append(seconds)
        await asyncio.sleep(0)

    from recollect.agent.recorder import Job

    monkeypatch.setattr(Recorder, "_pause", pause)
    recorder = Recorder(told.append)
    await recorder.tried(recorder.put(Job(write)))
    while not recorder.settled:
        await asyncio.sleep(0.01)
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses))
    assert len(told) == 2
