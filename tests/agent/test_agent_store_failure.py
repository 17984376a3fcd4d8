"""A failing store: the conversation continues with one warning, and all messages are stored later, in order and once."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from scripted import Scripted, call_part, reply, response, tool_finished, tool_started

from recollect.agent import Notice, TextDelta
from recollect.agent.recorder import Recorder
from recollect.errors import DiskFull, StoreLocked


class StoreFailure:
    """Make the operations of a store fail while `on` is set, except for the first `after` of them."""

    def __init__(self, store, after=0):
        self._store, self._run, self.after, self.on = store, store._run, after, True
        self.tries = 0
        store._run = self.run

    def run(self, op):
        self.after -= 1
        if self.on and self.after < 0:
            self.tries += 1
            return self._refuse(op)
        return self._run(op)

    async def _refuse(self, op):
        raise DiskFull(path=self._store.path)


async def collect_events(conversation, message):
    return [event async for event in conversation.send(message)]


def warnings(events):
    return [event for event in events if isinstance(event, Notice) and event.level == "warning"]


async def test_turns_during_a_store_failure_are_stored_afterwards(make_agent, read_session):
    model = Scripted(reply("a1"), reply("a2"), reply("a3"))
    async with make_agent(model) as agent:
        conversation = await agent.conversation("cli:a")
        failure = StoreFailure(agent.store)
        events = [await collect_events(conversation, f"q{n}") for n in (1, 2)]
        assert [event[-1].text for event in events] == ["a1", "a2"]
        assert [event[-1].status for event in events] == ["completed", "completed"]
        assert len(warnings(events[0] + events[1])) == 1
        assert "full" in warnings(events[0])[0].text
        assert conversation.held_count == 4
        assert read_session("cli:a")[0] == []
        failure.on = False
        events = await collect_events(conversation, "q3")
        assert not warnings(events)
        assert await conversation._recorder.drain(60)
        assert conversation.held_count == 0
        assert any(
            "works again" in event.text for event in [*events, *conversation.notices()] if isinstance(event, Notice)
        )
    messages, turns, _, _ = read_session("cli:a")
    assert [m.text for m in messages] == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert [turn.status for turn in turns] == ["completed"] * 3


async def test_unsaved_messages_are_sent_to_the_model(make_agent):
    model = Scripted(reply("a1"), reply("a2"))
    async with make_agent(model) as agent:
        conversation = await agent.conversation("cli:a")
        await conversation.session.append({"role": "user", "content": "q0"})
        failure = StoreFailure(agent.store, after=3)
        await collect_events(conversation, "q1")
        await collect_events(conversation, "q2")
        failure.on = False
    texts = ["".join(p.text for p in m.parts) for m in model.histories[1]]
    assert texts == ["q0", "q1", "a1", "q2"]


@pytest.mark.parametrize("after", range(12))
async def test_a_failure_at_any_operation_stores_everything_once(make_agent, read_session, after):
    part = call_part("c1")
    script = [
        TextDelta(text="Let me "), TextDelta(text="see."), response("Let me see.", part), tool_started(part),
        tool_finished(part, "a match"), 0.01, TextDelta(text="It is "), TextDelta(text="there."), response("It is there."),
    ]  # fmt: skip
    async with make_agent(Scripted(script)) as agent:
        conversation = await agent.conversation("cli:a", title="T")
        failure = StoreFailure(agent.store, after=after)
        events = await collect_events(conversation, "Where?")
        assert events[-1].text == "Let me see.\n\nIt is there."
        assert len(warnings(events)) <= 1
        failure.on = False
        assert await conversation._recorder.drain(60)
    messages, turns, calls, session = read_session("cli:a")
    assert [(m.role, m.text, m.state) for m in messages] == [
        ("user", "Where?", "completed"), ("assistant", "Let me see.", "completed"), ("tool", "", "completed"),
        ("assistant", "It is there.", "completed"),
    ]  # fmt: skip
    assert [turn.status for turn in turns] == ["completed"]
    assert [tool_call.status for tool_call in calls] == ["success"]
    assert session.message_count == 4


async def test_a_failure_during_a_long_answer(make_agent, read_session):
    words = [f"w{n} " for n in range(30)]
    script = [step for word in words for step in (TextDelta(text=word), 0.07)]
    async with make_agent(Scripted([*script, response("".join(words))])) as agent:
        conversation = await agent.conversation("cli:a", title="T")
        failure = StoreFailure(agent.store, after=3)
        run = asyncio.create_task(collect_events(conversation, "Count"))
        await asyncio.sleep(1.7)
        failure.on = False
        events = await run
    assert events[-1].text == "".join(words)
    messages, _, _, _ = read_session("cli:a")
    assert [(m.text, m.state) for m in messages] == [("Count", "completed"), ("".join(words), "completed")]


async def test_stop_while_the_store_fails(make_agent, read_session):
    async with make_agent(Scripted([TextDelta(text="Half"), 30])) as agent:
        conversation = await agent.conversation("cli:a")
        failure = StoreFailure(agent.store)
        async for event in conversation.send("Go"):
            if isinstance(event, TextDelta):
                conversation.stop()
        assert event.status == "cancelled"  # pyright: ignore[reportAttributeAccessIssue]
        failure.on = False
        assert await conversation._recorder.drain(60)
    messages, (turn,), _, _ = read_session("cli:a")
    assert [(m.text, m.state) for m in messages] == [("Go", "completed"), ("Half", "interrupted")]
    assert turn.status == "cancelled"


async def test_close_does_not_wait_for_a_store_that_keeps_failing(make_agent, monkeypatch):
    monkeypatch.setattr("recollect.agent.recorder.STORE_TIMEOUT", 0.2)
    async with make_agent(Scripted()) as agent:
        conversation = await agent.conversation("cli:a")
        StoreFailure(agent.store)
        await collect_events(conversation, "Go")
        assert not await conversation.close()
        assert conversation.held_count == 2
        assert [(m.role, m.parts[0].text) for m in conversation.unsaved()] == [("user", "Go"), ("assistant", "ok")]
        from recollect.channels.terminal.conversation import save_unsaved

        path = save_unsaved(conversation).partition("They are in ")[2].partition(",")[0]
        with open(path, encoding="utf-8") as file:
            assert [json.loads(line)["role"] for line in file] == ["user", "assistant"]
        os.unlink(path)


async def test_buffered_messages_keep_their_creation_time(make_agent, read_session):
    import time

    async with make_agent(Scripted(reply("a1"))) as agent:
        conversation = await agent.conversation("cli:a")
        failure = StoreFailure(agent.store)
        await collect_events(conversation, "q1")
        answer_time = time.time_ns() // 1_000_000
        await asyncio.sleep(0.5)
        failure.on = False
        assert await conversation._recorder.drain(60)
    assert all(m.created_at_ms <= answer_time for m in read_session("cli:a")[0])


async def test_after_resuming_another_session_only_its_history_is_sent(make_agent):
    model = Scripted(reply("a1"), reply("a2"))
    async with make_agent(model) as agent:
        other = await agent.store.session("cli:b")
        await other.append({"role": "user", "content": "old"})
        conversation = await agent.conversation("cli:a")
        await collect_events(conversation, "q1")
        conversation.session, conversation._memory, conversation._has_history = other, [], False
        await collect_events(conversation, "q2")
    assert ["".join(p.text for p in m.parts) for m in model.histories[1]] == ["old", "q2"]


async def test_a_hanging_store_does_not_block_the_answer(make_agent, monkeypatch, read_session):
    monkeypatch.setattr("recollect.agent.recorder.STORE_TIMEOUT", 0.1)

    async with make_agent(Scripted(reply("Hi"))) as agent:
        conversation = await agent.conversation("cli:a")
        run, release = agent.store._run, asyncio.Event()

        async def run_after_release(op):
            await release.wait()
            return await run(op)

        agent.store._run = run_after_release
        events = await collect_events(conversation, "Hello")
        assert events[-1].text == "Hi"
        release.set()
        assert await conversation._recorder.drain(60)
    assert [m.text for m in read_session("cli:a")[0]] == ["Hello", "Hi"]


async def test_the_recorder_backs_off(monkeypatch):
    notices, tries, pauses = [], [], []

    async def write():
        tries.append(None)
        if len(tries) < 4:
            raise StoreLocked(path="x", seconds=1)

    async def pause(self, seconds):
        pauses.append(seconds)
        await asyncio.sleep(0)

    from recollect.agent.recorder import PendingWrite

    monkeypatch.setattr(Recorder, "_pause", pause)
    recorder = Recorder(notices.append)
    await recorder.wait_for(recorder.put(PendingWrite(write)))
    while not recorder.idle:
        await asyncio.sleep(0.01)
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses))
    assert len(notices) == 2
