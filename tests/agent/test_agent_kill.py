"""kill -9 during a turn: the partial answer is stored as interrupted, and the conversation continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from scripted import Scripted

import recollect


def kill_conversation(path, message, step, condition):
    """Run a conversation in a child process, and kill it after it printed `step` and `condition` holds for its session."""
    child = os.path.join(os.path.dirname(__file__), "killed_conversation.py")
    process = subprocess.Popen([sys.executable, child, path, message], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == step:
                break
        else:
            pytest.fail(f"the child never printed {step}")
        with recollect.open(path) as store:
            deadline = time.monotonic() + 60
            while not condition(store.session("cli:killed")) and time.monotonic() < deadline:
                time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def has_partial_answer(session):
    return len(session.messages()) == 2 and len(session.messages()[1].text) > 200


def has_running_tool(session):
    return [call.status for call in session.tools.list()] == ["running"]


async def test_killed_while_an_answer_streams(path, make_agent, read_session):
    kill_conversation(path, "Tell me a story in 500 chapters", "streaming", has_partial_answer)
    model = Scripted()
    async with make_agent(model) as agent:
        conversation = await agent.conversation("cli:killed")
        assert (await conversation.ask("Continue")).status == "completed"
    messages, turns, _, _ = read_session("cli:killed")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    assert [m.state for m in messages] == ["completed", "interrupted", "completed", "completed"]
    assert messages[1].text.startswith("Chapter 1.")
    assert len(messages[1].text) > 200
    assert [m.role for m in model.histories[0]] == ["user", "assistant", "user"]


async def test_killed_while_a_tool_runs(path, make_agent, read_session):
    kill_conversation(path, "call slow_tool {}", "tool", has_running_tool)
    with recollect.open(path) as store:
        (tool_call,) = store.get_session("cli:killed").tools.list()  # pyright: ignore[reportOptionalMemberAccess]
        assert tool_call.status == "running"
    pydantic_ai = pytest.importorskip("pydantic_ai.models.function")
    request = []

    async def stream(messages, info):
        request.extend(messages)
        yield "Here I am."

    async with make_agent(pydantic_ai.FunctionModel(stream_function=stream), title=lambda _: "T") as agent:
        answer = await (await agent.conversation("cli:killed")).ask("Still there?")
    assert answer.text == "Here I am."
    calls = [part.tool_call_id for m in request for part in m.parts if part.part_kind == "tool-call"]
    returns = [part.tool_call_id for m in request for part in m.parts if part.part_kind == "tool-return"]
    assert calls == returns == [tool_call.call_id]
    _, turns, _, _ = read_session("cli:killed")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]


async def test_the_demo_continues_after_a_kill(path, make_agent):
    kill_conversation(path, "call slow_tool {}", "tool", has_running_tool)
    async with make_agent() as agent:
        assert (await (await agent.conversation("cli:killed")).ask("say hello")).text == "hello"
