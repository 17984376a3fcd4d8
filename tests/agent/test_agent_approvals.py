"""Approvals: a tool of an MCP server runs only after a person approved it, in this process or another."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from test_agent_mcp import collect_events, model_that_calls, notices

import recollect
from recollect.agent import Agent, ApprovalAnswered, ApprovalRequested, McpServer, ToolFinished, approvals, commands
from recollect.errors import ApprovalNotFound, InvalidConfig, InvalidValue

SERVER = (sys.executable, str(pathlib.Path(__file__).parent / "mcp_recording_server.py"))
PAY = ("ledger_pay", '{"to": "Eve"}')


@pytest.fixture
def record(tmp_path):
    class Record:
        path = tmp_path / "record"

        @property
        def runs(self):
            return self.path.read_text().splitlines() if self.path.exists() else []

        def server(self, **fields):
            env = {"RECORD": str(self.path), **fields.pop("env", {})}
            return McpServer("ledger", SERVER, env=env, timeout=120, **fields)

    return Record()


@pytest.fixture
def make_paying_agent(make_agent, record):
    """Return a function that makes agents whose model calls the tool `pay`."""

    def make(*tools, approve=None, server=None, **options):
        model, _ = model_that_calls(*(tools or (PAY,)))
        return make_agent(model, mcp=[server or record.server()], approve=approve, title=lambda _: "T", **options)

    return make


def recording_approver(decision, requests):
    async def approve(approval):
        requests.append(approval)
        return decision

    return approve


async def wait_until(condition):
    while not condition():
        await asyncio.sleep(0.01)


async def wait_for_approval(session):
    while (approval := await approvals.pending_approval(session)) is None:
        await asyncio.sleep(0.01)
    return approval


async def test_a_tool_is_not_run_if_nobody_can_be_asked(make_paying_agent, record):
    async with make_paying_agent() as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Pay Eve")
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.status, finished.output) == ("error", approvals.NOBODY_TO_ASK)
    (notice,) = notices(events)
    assert "'pay' of the MCP server 'ledger' was not run" in notice
    assert "approve = ['pay'] under [mcp.ledger]" in notice
    assert events[-1].status == "completed"
    assert record.runs == []


async def test_a_tool_runs_only_after_the_approval(make_paying_agent, record):
    runs_when_asked = []

    async def approve(approval):
        await asyncio.sleep(0.2)
        runs_when_asked.append((approval.server, approval.tool, approval.arguments, list(record.runs)))
        return "once"

    async with make_paying_agent(approve=approve) as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Pay Eve")
    assert runs_when_asked == [("ledger", "pay", {"to": "Eve"}, [])]
    assert record.runs == ["pay Eve"]
    request, answer = [e for e in events if isinstance(e, ApprovalRequested | ApprovalAnswered)]
    assert (request.tool, request.arguments, answer.id, answer.decision) == ("pay", {"to": "Eve"}, request.id, "once")  # pyright: ignore[reportAttributeAccessIssue]
    assert events[-1].text == "paid Eve"


async def test_a_denied_tool_is_not_run(make_paying_agent, record):
    async with make_paying_agent(approve=recording_approver("deny", [])) as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Pay Eve")
    assert [e.output for e in events if isinstance(e, ToolFinished)] == [approvals.DENIED]
    assert record.runs == []


@pytest.mark.parametrize(
    ("decision", "sessions"),
    [("once", ["a", "a", "b"]), ("session", ["a", "b"]), ("always", ["a"]), ("deny", ["a"] * 2)],
)
async def test_scope_of_each_decision(make_paying_agent, record, decision, sessions):
    requests = []
    for session in ("cli:a", "cli:a", "cli:b")[: 2 if decision == "deny" else 3]:
        # A new agent each time, which reads the decision from the store.
        async with make_paying_agent(approve=recording_approver(decision, requests)) as agent:
            await collect_events(await agent.conversation(session), "Pay Eve")
    assert [approval.session for approval in requests] == [f"cli:{name}" for name in sessions]
    assert len(record.runs) == (0 if decision == "deny" else 3)


async def test_always_applies_to_one_tool_and_one_person(make_paying_agent, record):
    requests = []
    approve = recording_approver("always", requests)
    async with make_paying_agent(PAY, ("ledger_look", "{}"), approve=approve) as agent:
        await collect_events(await agent.conversation("cli:a"), "Pay Eve, then look")
    assert [approval.tool for approval in requests] == ["pay", "look"]
    async with make_paying_agent(approve=approve) as agent:
        conversation = await agent.conversation("cli:a")
        conversation.approvals.who = "discord:7"
        await collect_events(conversation, "Pay Eve")
    assert [(approval.tool, approval.who) for approval in requests[2:]] == [("pay", "discord:7")]


@pytest.mark.parametrize(
    "change", [{"env": {"UNTIL": "x"}}, {"folder": "/"}, {"env": {"DESCRIPTION": "Pay another person."}}]
)
async def test_a_changed_server_or_tool_needs_a_new_approval(make_paying_agent, record, change):
    requests = []
    approve = recording_approver("always", requests)
    for server in (record.server(), record.server(), record.server(**change)):
        async with make_paying_agent(approve=approve, server=server) as agent:
            await collect_events(await agent.conversation("cli:a"), "Pay Eve")
    assert len(requests) == 2
    assert len(record.runs) == 3


@pytest.mark.parametrize("approve", ["all", ("pay",), ("look",)])
async def test_the_configuration_approves_tools(make_paying_agent, record, approve):
    async with make_paying_agent(server=record.server(approve=approve)) as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Pay Eve")
    assert record.runs == ([] if approve == ("look",) else ["pay Eve"])
    assert bool(notices(events)) == (approve == ("look",))


async def test_another_process_can_answer_an_approval(make_paying_agent, record, path):
    async with make_paying_agent(approve=approvals.remote_approver) as agent:
        conversation = await agent.conversation("cli:a")
        run = asyncio.create_task(collect_events(conversation, "Pay Eve"))
        async with recollect.open_async(path) as other_store:
            session = await other_store.session("cli:a")
            approval = await wait_for_approval(session)
            assert (approval.tool, approval.arguments, approval.text) == ("pay", {"to": "Eve"}, '{\n  "to": "Eve"\n}')
            with pytest.raises(ApprovalNotFound):
                await approvals.answer(session, "once", "another")
            with pytest.raises(InvalidValue, match="decision must be one of once, session, always, deny, got 'maybe'"):
                await approvals.answer(session, "maybe")
            assert record.runs == []
            await approvals.answer(session, "once", approval.id)
            await run
            assert await approvals.pending_approval(session) is None
            with pytest.raises(ApprovalNotFound):
                await approvals.answer(session, "once", approval.id)
    assert record.runs == ["pay Eve"]


async def test_an_approval_answered_elsewhere_closes_the_prompt(make_paying_agent, record):
    prompt_closed = asyncio.Event()

    async def approve(approval):
        try:
            return await approvals.remote_approver(approval)
        finally:
            prompt_closed.set()

    async with make_paying_agent(approve=approve) as agent:
        conversation = await agent.conversation("cli:a")
        run = asyncio.create_task(collect_events(conversation, "Pay Eve"))
        await wait_for_approval(conversation.session)
        outcome = await commands.run(await agent.conversation("cli:a"), "/approve deny")
        assert outcome.text == "Denied `pay` of `ledger`."
        await run
        assert prompt_closed.is_set()
    assert record.runs == []


async def test_stop_while_an_approval_is_pending(make_paying_agent, record, read_session):
    async with make_paying_agent(approve=approvals.remote_approver) as agent:
        conversation = await agent.conversation("cli:a")
        run = asyncio.create_task(collect_events(conversation, "Pay Eve"))
        await wait_for_approval(conversation.session)
        assert conversation.stop()
        assert (await run)[-1].status == "cancelled"
        assert await approvals.pending_approval(conversation.session) is None
    _, turns, tool_calls, _ = read_session("cli:a")
    assert [turn.status for turn in turns] == ["cancelled"]
    assert [call.status for call in tool_calls] == ["cancelled"]
    assert record.runs == []


async def test_the_lease_is_renewed_while_an_approval_is_pending(make_paying_agent, record, monkeypatch):
    monkeypatch.setattr(approvals, "_RENEW", 0.05)
    async with make_paying_agent(approve=approvals.remote_approver) as agent:
        conversation = await agent.conversation("cli:a")
        run = asyncio.create_task(collect_events(conversation, "Pay Eve"))
        await wait_for_approval(conversation.session)
        first = (await conversation.session.turns.list())[0].lease_until_at_ms
        while (await conversation.session.turns.list())[0].lease_until_at_ms <= first + 100:
            await asyncio.sleep(0.01)
        await approvals.answer(conversation.session, "once")
        assert (await run)[-1].status == "completed"


async def test_a_sub_agent_asks_in_the_conversation_of_its_parent(make_agent, record):
    inner, _ = model_that_calls(PAY)
    helper = Agent(inner, name="helper", mcp=[record.server()], title=lambda _: "T")
    outer, _ = model_that_calls(("ask_helper", '{"task": "Pay Eve"}'))
    requests = []
    async with make_agent(
        outer, delegates=[helper], approve=recording_approver("session", requests), title=lambda _: "T"
    ) as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Have Eve paid")
    assert [(approval.session, approval.tool) for approval in requests] == [("cli:a", "pay")]
    assert [event.tool for event in events if isinstance(event, ApprovalRequested)] == ["pay"]
    assert record.runs == ["pay Eve"]
    assert events[-1].text == "paid Eve"


async def test_parallel_calls_ask_for_approval_one_at_a_time(make_agent, record):
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    async def stream(messages, info):
        if len(messages) == 1:
            yield {n: DeltaToolCall(name=PAY[0], json_args=f'{{"to": "{n}"}}', tool_call_id=f"c{n}") for n in range(3)}
        else:
            yield "done"

    open_questions = []

    async def approve(approval):
        open_questions.append(approval.arguments["to"])
        await asyncio.sleep(0.05)
        assert len(open_questions) == 1
        return "session"

    model = FunctionModel(stream_function=stream)
    async with make_agent(model, mcp=[record.server()], approve=approve, title=lambda _: "T") as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Pay all")
    assert events[-1].status == "completed"
    assert sorted(record.runs) == ["pay 0", "pay 1", "pay 2"]


async def test_approval_commands(make_paying_agent, record):
    async with make_paying_agent(PAY, ("ledger_look", "{}"), approve=recording_approver("always", [])) as agent:
        conversation = await agent.conversation("cli:a")
        assert "No stored approvals." in (await commands.run(conversation, "/approvals")).text
        assert (await commands.run(conversation, "/approve once")).failed
        await collect_events(conversation, "Pay Eve, then look")
        listing = (await commands.run(conversation, "/approvals")).text
        assert listing == "1. `pay` of `ledger`, always\n2. `look` of `ledger`, always"
        assert (await commands.run(conversation, "/approvals revoke 3")).failed
        assert (await commands.run(conversation, "/approvals forget")).failed
        assert not (await commands.run(conversation, "/approvals revoke 1")).failed
        assert (await commands.run(conversation, "/approvals")).text == "1. `look` of `ledger`, always"
        assert "Revoked 1 approval." in (await commands.run(conversation, "/approvals revoke all")).text
        assert await approvals.grants(agent.store) == []


@pytest.mark.parametrize("wrong", ['"some"', "[1]", "true", '[""]'])
def test_an_invalid_approve_setting_is_rejected(tmp_path, monkeypatch, wrong):
    path = tmp_path / "config.toml"
    path.write_text(f'[mcp.ledger]\ncommand = ["x"]\napprove = {wrong}\n')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    from recollect.config.loader import load_config

    with pytest.raises(InvalidConfig, match="approve must be a list of tool names"):
        load_config().servers  # noqa: B018
