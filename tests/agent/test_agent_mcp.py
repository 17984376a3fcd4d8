"""MCP servers: real ones, as child processes, that serve, misbehave, die, or never start."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from recollect.agent import McpServer, Notice, ToolFinished, TurnEnded, configured

SERVER = (sys.executable, str(pathlib.Path(__file__).parent / "mcp_server.py"))


def calls(*tools):
    """Make a model that calls these tools, one in each response, and then says what came of it."""
    waiting = list(tools)
    known = []

    async def stream(messages, info):
        known.append([tool.name for tool in info.function_tools])
        if waiting:
            name, arguments = waiting.pop(0)
            yield {0: DeltaToolCall(name=name, json_args=arguments, tool_call_id=f"c{len(waiting)}")}
            return
        returns = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        yield str(returns[-1].content) if returns else "nothing"

    async def whole(messages, info):
        return ModelResponse(parts=[TextPart("T"), *[ToolCallPart("x")][:0]])

    model = FunctionModel(whole, stream_function=stream)
    return model, known


async def happening(talk, said):
    return [event async for event in talk.send(said)]


def notices(events):
    return [event.text for event in events if isinstance(event, Notice)]


async def test_a_folder_in_a_home_that_is_not_known_is_told(agent):
    model, _ = calls()
    servers = [McpServer("shelf", SERVER, folder="~nobody-is-called-so/shelf")]
    async with agent(model, mcp=servers, title=lambda _: "T") as there:
        talk = await there.talk("cli:a")
        (told,) = notices(await happening(talk, "Hello"))
        assert "home folder that is not known" in told


async def test_its_tools_are_called(agent, stored, capfd):
    model, known = calls(("shelf_lend", '{"book": "Emma"}'))
    servers = [
        McpServer("shelf", SERVER, env={"UNTIL": "Friday"}, timeout=120, approve="all"),
        McpServer("none", ("/no/such",)),
    ]
    async with agent(model, mcp=servers, title=lambda _: "T") as there:
        talk = await there.talk("cli:a")
        events = await happening(talk, "Lend me Emma")
        assert "shelf_lend" in known[0]
        assert "current_time" in known[0]
        assert events[-1].text == "Emma is yours until Friday"
        assert len(notices(events)) == 1
        assert (await happening(talk, "again"))[-1].status == "completed"
    messages, _, tool_calls, _ = stored("cli:a")
    assert [(call.tool, call.status) for call in tool_calls] == [("shelf_lend", "success")]
    assert messages[2].tool_results[0].output == "Emma is yours until Friday"
    assert "noise" not in capfd.readouterr().err


async def test_a_tool_that_fails_is_told_to_the_model_and_a_server_that_dies_is_started_again(agent):
    model, _ = calls(("shelf_refuse", "{}"), ("shelf_collapse", "{}"))
    async with agent(model, mcp=[McpServer("shelf", SERVER, timeout=120, approve="all")], title=lambda _: "T") as there:
        talk = await there.talk("cli:a")
        async with asyncio.timeout(200):
            events = await happening(talk, "Fall")
        refused, _ = [event for event in events if isinstance(event, ToolFinished)]
        assert (refused.status, refused.output) == ("error", "Error executing tool refuse")
        (told,) = notices(events)
        assert "'shelf' failed" in told
        assert events[-1].status == "completed"
        again, _ = calls(("shelf_lend", '{"book": "Emma"}'))
        talk.model = there.model(again)
        assert (await happening(talk, "Lend me Emma"))[-1].text == "Emma is yours until tomorrow"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/program",), "No such file"),
        ((sys.executable, "-c", "import sys; sys.exit('it is broken')"), "It said: it is broken."),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "did not answer within 2 seconds"),
        ((sys.executable, "-c", "print('this is no protocol'); import time; time.sleep(60)"), "within 2 seconds"),
    ],
)
async def test_one_that_does_not_start_is_told_once_and_the_talk_goes_on(agent, command, reason):
    model, known = calls()
    servers = [McpServer("broken-one", command, timeout=2 if "2 seconds" in reason else 60)]
    async with agent(model, mcp=servers, title=lambda _: "T") as there:
        talk = await there.talk("cli:a")
        events = await happening(talk, "one")
        (told,) = notices(events)
        assert told.startswith("The MCP server 'broken-one' could not be started: ")
        assert reason in told
        assert told.endswith("The talk goes on without its tools.")
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].status == "completed"
        assert "current_time" in known[0]
        assert notices(await happening(talk, "two")) == []


async def test_one_that_is_not_enabled_is_not_started(agent, tmp_path):
    model, _ = calls()
    touch = (sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')")
    async with agent(model, mcp=[McpServer("off", touch, enabled=False)], title=lambda _: "T") as there:
        assert notices(await happening(await there.talk("cli:a"), "one")) == []
    assert not (tmp_path / "ran").exists()


async def test_nobody_answers_at_a_url(agent):
    model, _ = calls()
    server = McpServer("far", url="http://127.0.0.1:9/mcp", timeout=5)
    async with agent(model, mcp=[server], title=lambda _: "T") as there:
        events = await happening(await there.talk("cli:a"), "one")
    assert "'far' could not be started" in notices(events)[0]
    assert events[-1].status == "completed"


async def test_without_the_extra_it_is_said(agent, monkeypatch):
    monkeypatch.setitem(sys.modules, "recollect.agent.mcp", None)
    model, _ = calls()
    async with agent(model, mcp=[McpServer("shelf", SERVER, timeout=120, approve="all")], title=lambda _: "T") as there:
        talk = await there.talk("cli:a")
        assert "pip install 'recollect[mcp]'" in notices(await happening(talk, "one"))[0]
        assert notices(await happening(talk, "two")) == []


async def test_they_come_from_the_configuration(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text(
        f"[mcp.shelf]\ncommand = {list(SERVER)!r}\nenv = {{ UNTIL = 'May' }}\ntimeout = 120\napprove = 'all'\n"
    )
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    model, _ = calls(("shelf_lend", '{"book": "Emma"}'))
    async with configured(":memory:", model=model, title=lambda _: "T") as there:
        answer = await there.ask("Lend me Emma", "cli:a")
    assert answer.text == "Emma is yours until May"
