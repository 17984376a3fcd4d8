"""Progress events of sub-agents in the conversation of their parent."""

from __future__ import annotations

import asyncio

from scripted import Scripted, call_part, reply, response, tool_finished, tool_started

from recollect.agent import Agent, Delegated, TextDelta, ToolFinished, ToolStarted, TurnEnded
from recollect.agent.conversation import DelegateMonitor


async def collect_events(conversation, message):
    return [event async for event in conversation.send(message)]


def finder_agent(**options):
    look = call_part("c1", "look", at="drawer")
    script = [
        TextDelta(text="I start.\nThen I "), TextDelta(text="look."), 0.5, response("I start.\nThen I look.", look), tool_started(look),
        tool_finished(look, "a sock"), *reply("A sock is there."),
    ]  # fmt: skip
    return Agent(Scripted(script), name="finder", **options)


async def test_progress_of_a_sub_agent_is_reported(make_agent, demo):
    async with make_agent(demo, delegates=[finder_agent()]) as agent:
        events = await collect_events(await agent.conversation("cli:a"), 'call ask_finder {"task": "find it"}')
    progress = [event for event in events if isinstance(event, Delegated)]
    assert {(event.agent, event.session) for event in progress} == {("finder", "cli:a:delegate:finder")}
    assert [event.tool for event in progress if event.tool] == ["look"]
    assert [event.ended for event in progress] == [False] * (len(progress) - 1) + [True]
    assert progress[-1].line.endswith("A sock is there.")
    assert any(event.line == "Then I look." for event in progress)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolStarted) < kinds.index(Delegated) < kinds.index(ToolFinished)


async def test_progress_of_a_nested_sub_agent_is_reported(make_agent, demo):
    from recollect.agent.demo import DemoModel

    middle = Agent(DemoModel(pace=0), name="middle", delegates=[finder_agent()])
    async with make_agent(demo, delegates=[middle]) as agent:
        message = 'call ask_middle {"task": "call ask_finder {\\"task\\": \\"find it\\"}"}'
        events = await collect_events(await agent.conversation("cli:a"), message)
    sessions = {event.session for event in events if isinstance(event, Delegated)}
    assert sessions == {"cli:a:delegate:middle", "cli:a:delegate:middle:delegate:finder"}


async def test_stop_while_a_sub_agent_works(make_agent, demo, read_session):
    slow_agent = Agent(Scripted([TextDelta(text="so far"), 60.0]), name="slow")
    async with make_agent(demo, delegates=[slow_agent]) as agent:
        conversation = await agent.conversation("cli:a")
        events = []
        async for event in conversation.send('call ask_slow {"task": "x"}'):
            events.append(event)
            if isinstance(event, Delegated) and event.line == "so far":
                conversation.stop()
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].status == "cancelled"
        assert not slow_agent.lock("cli:a:delegate:slow").locked()
    messages, (turn,), _, _ = read_session("cli:a:delegate:slow")
    assert (messages[1].text, messages[1].state, turn.status) == ("so far", "interrupted", "cancelled")


async def test_progress_of_a_verbose_sub_agent_is_throttled(monkeypatch):
    reports = []
    monitor = DelegateMonitor("chatty", "s", reports.append)
    for number in range(10_000):
        monitor.handle(TextDelta(text=f"line {number}\n"))
    await asyncio.sleep(0.3)
    assert 1 <= len(reports) < 200
    monitor.handle(TurnEnded(session="s", status="completed"))
    assert (reports[-1].line, reports[-1].ended) == ("line 9999", True)


async def test_a_delegated_event_is_plain_data(make_agent, demo):
    plain = Delegated(agent="a", session="s", line="l").to_dict()
    assert plain == {"event": "delegated", "agent": "a", "session": "s", "tool": None, "line": "l", "ended": False}
