"""A sub-agent at work, as its parent sees it."""

from __future__ import annotations

import asyncio

from scripted import Scripted, answers, call, responded, say, starts

from recollect.agent import Agent, Delegated, TextDelta, ToolFinished, ToolStarted, TurnEnded
from recollect.agent.following import Following


async def happening(talk, said):
    return [event async for event in talk.send(said)]


def helper(**options):
    look = call("c1", "look", at="drawer")
    script = [
        TextDelta(text="I begin.\nThen I "), TextDelta(text="look."), 0.5, responded("I begin.\nThen I look.", look), starts(look),
        answers(look, "a sock"), *say("A sock is there."),
    ]  # fmt: skip
    return Agent(Scripted(script), name="finder", **options)


async def test_its_steps_are_told_while_it_works(agent, demo):
    async with agent(demo, delegates=[helper()]) as there:
        events = await happening(await there.talk("cli:a"), 'call ask_finder {"task": "find it"}')
    told = [event for event in events if isinstance(event, Delegated)]
    assert {(event.agent, event.session) for event in told} == {("finder", "cli:a:delegate:finder")}
    assert [event.tool for event in told if event.tool] == ["look"]
    assert [event.ended for event in told] == [False] * (len(told) - 1) + [True]
    assert told[-1].line.endswith("A sock is there.")
    assert any(event.line == "Then I look." for event in told)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolStarted) < kinds.index(Delegated) < kinds.index(ToolFinished)


async def test_a_sub_agent_of_a_sub_agent_is_told_too(agent, demo):
    from recollect.agent.demo import DemoModel

    middle = Agent(DemoModel(pace=0), name="middle", delegates=[helper()])
    async with agent(demo, delegates=[middle]) as there:
        said = 'call ask_middle {"task": "call ask_finder {\\"task\\": \\"find it\\"}"}'
        events = await happening(await there.talk("cli:a"), said)
    sessions = {event.session for event in events if isinstance(event, Delegated)}
    assert sessions == {"cli:a:delegate:middle", "cli:a:delegate:middle:delegate:finder"}


async def test_stopped_while_it_works(agent, demo, stored):
    slow = Agent(Scripted([TextDelta(text="so far"), 60.0]), name="slow")
    async with agent(demo, delegates=[slow]) as there:
        talk = await there.talk("cli:a")
        events = []
        async for event in talk.send('call ask_slow {"task": "x"}'):
            events.append(event)
            if isinstance(event, Delegated) and event.line == "so far":
                talk.stop()
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].status == "cancelled"
        assert not slow.lock("cli:a:delegate:slow").locked()
    messages, (turn,), _, _ = stored("cli:a:delegate:slow")
    assert (messages[1].text, messages[1].state, turn.status) == ("so far", "interrupted", "cancelled")


async def test_a_chatty_one_is_told_a_few_times(monkeypatch):
    told = []
    following = Following("chatty", "s", told.append)
    for number in range(10_000):
        following.tell(TextDelta(text=f"line {number}\n"))
    await asyncio.sleep(0.3)
    assert 1 <= len(told) < 200
    following.tell(TurnEnded(session="s", status="completed"))
    assert (told[-1].line, told[-1].ended) == ("line 9999", True)


async def test_everything_is_plain_data(agent, demo):
    plain = Delegated(agent="a", session="s", line="l").to_dict()
    assert plain == {"event": "delegated", "agent": "a", "session": "s", "tool": None, "line": "l", "ended": False}
