"""kill -9 in the middle: what came is there, marked, and the talk goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from scripted import Scripted

import recollect


def killed(path, said, word, far_enough):
    """Run a talk in a process of its own, and kill it when it said the word and what it stored is far enough."""
    child = os.path.join(os.path.dirname(__file__), "killed_talk.py")
    process = subprocess.Popen([sys.executable, child, path, said], stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if line.strip() == word:
                break
        else:
            pytest.fail(f"the child never said {word}")
        with recollect.open(path) as store:
            until = time.monotonic() + 60
            while not far_enough(store.session("cli:killed")) and time.monotonic() < until:
                time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def told(session):
    return len(session.messages()) == 2 and len(session.messages()[1].text) > 200


def called(session):
    return [call.status for call in session.tool_calls()] == ["running"]


async def test_in_the_middle_of_a_stream(path, agent, stored):
    killed(path, "Tell me a story in 500 chapters", "streaming", told)
    model = Scripted()
    async with agent(model) as there:
        talk = await there.talk("cli:killed")
        assert (await talk.ask("Go on")).status == "completed"
    messages, turns, _, _ = stored("cli:killed")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    assert [m.state for m in messages] == ["completed", "interrupted", "completed", "completed"]
    assert messages[1].text.startswith("Chapter 1.")
    assert len(messages[1].text) > 200
    assert [m.role for m in model.seen[0]] == ["user", "assistant", "user"]


async def test_in_the_middle_of_a_tool(path, agent, stored):
    killed(path, "call slow_tool {}", "tool", called)
    with recollect.open(path) as store:
        (made,) = store.get_session("cli:killed").tool_calls()
        assert made.status == "running"
    pydantic_ai = pytest.importorskip("pydantic_ai.models.function")
    sent = []

    async def stream(messages, info):
        sent.extend(messages)
        yield "Here I am."

    async with agent(pydantic_ai.FunctionModel(stream_function=stream), title=lambda _: "T") as there:
        answer = await (await there.talk("cli:killed")).ask("Still there?")
    assert answer.text == "Here I am."
    calls = [part.tool_call_id for m in sent for part in m.parts if part.part_kind == "tool-call"]
    returns = [part.tool_call_id for m in sent for part in m.parts if part.part_kind == "tool-return"]
    assert calls == returns == [made.call_id]
    _, turns, _, _ = stored("cli:killed")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]


async def test_with_the_demo_it_just_goes_on(path, agent):
    killed(path, "call slow_tool {}", "tool", called)
    async with agent() as there:
        assert (await (await there.talk("cli:killed")).ask("say hello")).text == "hello"
