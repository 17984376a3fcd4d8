"""MCP servers as real child processes: some serve tools, some fail, exit or never start."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from recollect.agent import McpServer, Notice, ToolFinished, TurnEnded, agent_from_config

SERVER = (sys.executable, str(pathlib.Path(__file__).parent / "mcp_server.py"))


def model_that_calls(*tools):
    """Return a model that calls these tools, one per response, and a list of the tool names of each request.

    After the calls, the model answers with the last result.
    """
    pending = list(tools)
    tool_names = []

    async def stream(messages, info):
        tool_names.append([tool.name for tool in info.function_tools])
        if pending:
            name, arguments = pending.pop(0)
            yield {0: DeltaToolCall(name=name, json_args=arguments, tool_call_id=f"c{len(pending)}")}
            return
        returns = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        yield str(returns[-1].content) if returns else "nothing"

    async def complete(messages, info):
        return ModelResponse(parts=[TextPart("T"), *[ToolCallPart("x")][:0]])

    model = FunctionModel(complete, stream_function=stream)
    return model, tool_names


async def collect_events(conversation, message):
    return [event async for event in conversation.send(message)]


def notices(events):
    return [event.text for event in events if isinstance(event, Notice)]


async def test_a_folder_in_an_unknown_home_is_reported(make_agent):
    model, _ = model_that_calls()
    servers = [McpServer("shelf", SERVER, folder="~nobody-is-called-so/shelf")]
    async with make_agent(model, mcp=servers, title=lambda _: "T") as agent:
        conversation = await agent.conversation("cli:a")
        (notice,) = notices(await collect_events(conversation, "Hello"))
        assert "The home folder ~nobody-is-called-so of " in notice


async def test_tools_of_a_server_are_called(make_agent, read_session, capfd):
    model, tool_names = model_that_calls(("shelf_lend", '{"title": "Emma"}'))
    servers = [
        McpServer("shelf", SERVER, env={"UNTIL": "Friday"}, timeout=120, approve="all"),
        McpServer("none", ("/no/such",)),
    ]
    async with make_agent(model, mcp=servers, title=lambda _: "T") as agent:
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Lend me Emma")
        assert "shelf_lend" in tool_names[0]
        assert "current_time" in tool_names[0]
        assert events[-1].text == "Emma is yours until Friday"
        assert len(notices(events)) == 1
        assert (await collect_events(conversation, "again"))[-1].status == "completed"
    messages, _, tool_calls, _ = read_session("cli:a")
    assert [(call.tool, call.status) for call in tool_calls] == [("shelf_lend", "success")]
    assert messages[2].tool_results[0].output == "Emma is yours until Friday"
    assert "noise" not in capfd.readouterr().err


async def test_a_failing_tool_is_reported_and_a_dead_server_is_restarted(make_agent):
    model, _ = model_that_calls(("shelf_refuse", "{}"), ("shelf_collapse", "{}"))
    async with make_agent(
        model, mcp=[McpServer("shelf", SERVER, timeout=120, approve="all")], title=lambda _: "T"
    ) as agent:
        conversation = await agent.conversation("cli:a")
        async with asyncio.timeout(200):
            events = await collect_events(conversation, "Fall")
        result, _ = [event for event in events if isinstance(event, ToolFinished)]
        assert (result.status, result.output) == ("error", "Error executing tool refuse")
        (notice,) = notices(events)
        assert "'shelf' failed" in notice
        assert events[-1].status == "completed"
        new_model, _ = model_that_calls(("shelf_lend", '{"title": "Emma"}'))
        conversation.model = agent.model(new_model)
        assert (await collect_events(conversation, "Lend me Emma"))[-1].text == "Emma is yours until tomorrow"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/program",), "No such file"),
        ((sys.executable, "-c", "import sys; sys.exit('it is broken')"), "Its last output: it is broken."),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "did not answer within 2 seconds"),
        ((sys.executable, "-c", "print('not a protocol'); import time; time.sleep(60)"), "within 2 seconds"),
    ],
)
async def test_a_server_that_does_not_start_is_reported_once(make_agent, command, reason):
    model, tool_names = model_that_calls()
    servers = [McpServer("broken-one", command, timeout=2 if "2 seconds" in reason else 60)]
    async with make_agent(model, mcp=servers, title=lambda _: "T") as agent:
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "one")
        (notice,) = notices(events)
        assert notice.startswith("The MCP server 'broken-one' could not be started: ")
        assert reason in notice
        assert notice.endswith("The conversation continues without its tools.")
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].status == "completed"
        assert "current_time" in tool_names[0]
        assert notices(await collect_events(conversation, "two")) == []


async def test_a_disabled_server_is_not_started(make_agent, tmp_path):
    model, _ = model_that_calls()
    touch = (sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')")
    async with make_agent(model, mcp=[McpServer("off", touch, enabled=False)], title=lambda _: "T") as agent:
        assert notices(await collect_events(await agent.conversation("cli:a"), "one")) == []
    assert not (tmp_path / "ran").exists()


async def test_no_server_at_the_url(make_agent):
    model, _ = model_that_calls()
    server = McpServer("far", url="http://127.0.0.1:9/mcp", timeout=5)
    async with make_agent(model, mcp=[server], title=lambda _: "T") as agent:
        events = await collect_events(await agent.conversation("cli:a"), "one")
    assert "'far' could not be started" in notices(events)[0]
    assert events[-1].status == "completed"


async def test_a_missing_extra_is_reported(make_agent, monkeypatch):
    monkeypatch.setitem(sys.modules, "recollect.agent.mcp", None)
    model, _ = model_that_calls()
    async with make_agent(
        model, mcp=[McpServer("shelf", SERVER, timeout=120, approve="all")], title=lambda _: "T"
    ) as agent:
        conversation = await agent.conversation("cli:a")
        assert "pip install 'recollect[mcp]'" in notices(await collect_events(conversation, "one"))[0]
        assert notices(await collect_events(conversation, "two")) == []


async def test_servers_come_from_the_configuration(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text(
        f"[mcp.shelf]\ncommand = {list(SERVER)!r}\nenv = {{ UNTIL = 'May' }}\ntimeout = 120\napprove = 'all'\n"
    )
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    model, _ = model_that_calls(("shelf_lend", '{"title": "Emma"}'))
    async with agent_from_config(":memory:", model=model, title=lambda _: "T") as agent:
        answer = await agent.ask("Lend me Emma", "cli:a")
    assert answer.text == "Emma is yours until May"
