"""Approvals: a tool of an MCP server runs only after somebody allowed it, wherever that is answered."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from test_agent_mcp import calls, happening, notices

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
def paying(agent, record):
    """Make agents whose model pays."""

    def make(*tools, approve=None, server=None, **options):
        model, _ = calls(*(tools or (PAY,)))
        return agent(model, mcp=[server or record.server()], approve=approve, title=lambda _: "T", **options)

    return make


def answering(decision, seen):
    async def approve(approval):
        seen.append(approval)
        return decision

    return approve


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


async def waiting(session):
    while (approval := await approvals.waiting(session)) is None:
        await asyncio.sleep(0.01)
    return approval


async def test_without_anybody_to_ask_it_is_not_run(paying, record):
    async with paying() as there:
        events = await happening(await there.talk("cli:a"), "Pay Eve")
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.status, finished.output) == ("error", approvals.UNASKED)
    (told,) = notices(events)
    assert "'pay' of the MCP server 'ledger' was not run" in told
    assert "approve = ['pay'] under [mcp.ledger]" in told
    assert events[-1].status == "completed"
    assert record.runs == []


async def test_it_is_run_after_the_answer_and_not_before(paying, record):
    runs_when_asked = []

    async def approve(approval):
        await asyncio.sleep(0.2)
        runs_when_asked.append((approval.server, approval.tool, approval.arguments, list(record.runs)))
        return "once"

    async with paying(approve=approve) as there:
        events = await happening(await there.talk("cli:a"), "Pay Eve")
    assert runs_when_asked == [("ledger", "pay", {"to": "Eve"}, [])]
    assert record.runs == ["pay Eve"]
    asked, answered = [e for e in events if isinstance(e, ApprovalRequested | ApprovalAnswered)]
    assert (asked.tool, asked.arguments, answered.id, answered.decision) == ("pay", {"to": "Eve"}, asked.id, "once")
    assert events[-1].text == "paid Eve"


async def test_deny(paying, record):
    async with paying(approve=answering("deny", [])) as there:
        events = await happening(await there.talk("cli:a"), "Pay Eve")
    assert [e.output for e in events if isinstance(e, ToolFinished)] == [approvals.DENIED]
    assert record.runs == []


@pytest.mark.parametrize(
    ("decision", "asked"), [("once", ["a", "a", "b"]), ("session", ["a", "b"]), ("always", ["a"]), ("deny", ["a"] * 2)]
)
async def test_how_long_a_decision_counts(paying, record, decision, asked):
    seen = []
    for session in ("cli:a", "cli:a", "cli:b")[: 2 if decision == "deny" else 3]:
        async with paying(approve=answering(decision, seen)) as there:  # another process would read the same store
            await happening(await there.talk(session), "Pay Eve")
    assert [approval.session for approval in seen] == [f"cli:{name}" for name in asked]
    assert len(record.runs) == (0 if decision == "deny" else 3)


async def test_always_counts_for_one_tool_and_one_person(paying, record):
    seen = []
    approve = answering("always", seen)
    async with paying(PAY, ("ledger_look", "{}"), approve=approve) as there:
        await happening(await there.talk("cli:a"), "Pay Eve, then look")
    assert [approval.tool for approval in seen] == ["pay", "look"]
    async with paying(approve=approve) as there:
        talk = await there.talk("cli:a")
        talk.approvals.who = "discord:7"
        await happening(talk, "Pay Eve")
    assert [(approval.tool, approval.who) for approval in seen[2:]] == [("pay", "discord:7")]


@pytest.mark.parametrize(
    "changed", [{"env": {"UNTIL": "x"}}, {"folder": "/"}, {"env": {"DESCRIPTION": "Pay somebody else."}}]
)
async def test_a_server_or_a_tool_that_changed_is_asked_for_again(paying, record, changed):
    seen = []
    approve = answering("always", seen)
    for server in (record.server(), record.server(), record.server(**changed)):
        async with paying(approve=approve, server=server) as there:
            await happening(await there.talk("cli:a"), "Pay Eve")
    assert len(seen) == 2
    assert len(record.runs) == 3


@pytest.mark.parametrize("approve", ["all", ("pay",), ("look",)])
async def test_the_configuration_allows_tools(paying, record, approve):
    async with paying(server=record.server(approve=approve)) as there:
        events = await happening(await there.talk("cli:a"), "Pay Eve")
    assert record.runs == ([] if approve == ("look",) else ["pay Eve"])
    assert bool(notices(events)) == (approve == ("look",))


async def test_another_process_sees_the_question_and_answers(paying, record, path):
    async with paying(approve=approvals.forever) as there:
        talk = await there.talk("cli:a")
        turn = asyncio.create_task(happening(talk, "Pay Eve"))
        async with recollect.open_async(path) as elsewhere:
            session = await elsewhere.session("cli:a")
            approval = await waiting(session)
            assert (approval.tool, approval.arguments, approval.text) == ("pay", {"to": "Eve"}, '{\n  "to": "Eve"\n}')
            with pytest.raises(ApprovalNotFound):
                await approvals.answer(session, "once", "another")
            with pytest.raises(InvalidValue, match="decision must be one of once, session, always, deny, got 'maybe'"):
                await approvals.answer(session, "maybe")
            assert record.runs == []
            await approvals.answer(session, "once", approval.id)
            await turn
            assert await approvals.waiting(session) is None
            with pytest.raises(ApprovalNotFound):
                await approvals.answer(session, "once", approval.id)
    assert record.runs == ["pay Eve"]


async def test_the_question_goes_from_a_surface_when_it_is_answered_elsewhere(paying, record):
    dismissed = asyncio.Event()

    async def approve(_):
        try:
            return await approvals.forever(_)
        finally:
            dismissed.set()

    async with paying(approve=approve) as there:
        talk = await there.talk("cli:a")
        turn = asyncio.create_task(happening(talk, "Pay Eve"))
        await waiting(talk.session)
        outcome = await commands.run(await there.talk("cli:a"), "/approve deny")
        assert outcome.text == "`pay` of `ledger` is not run."
        await turn
        assert dismissed.is_set()
    assert record.runs == []


async def test_stopping_while_it_waits(paying, record, stored):
    async with paying(approve=approvals.forever) as there:
        talk = await there.talk("cli:a")
        turn = asyncio.create_task(happening(talk, "Pay Eve"))
        await waiting(talk.session)
        assert talk.stop()
        assert (await turn)[-1].status == "cancelled"
        assert await approvals.waiting(talk.session) is None
    _, turns, tool_calls, _ = stored("cli:a")
    assert [found.status for found in turns] == ["cancelled"]
    assert [call.status for call in tool_calls] == ["canceled"]
    assert record.runs == []


async def test_the_lease_is_renewed_while_it_waits(paying, record, monkeypatch):
    monkeypatch.setattr(approvals, "_RENEW", 0.05)
    async with paying(approve=approvals.forever) as there:
        talk = await there.talk("cli:a")
        turn = asyncio.create_task(happening(talk, "Pay Eve"))
        await waiting(talk.session)
        first = (await talk.session.turns())[0].lease_until_at
        while (await talk.session.turns())[0].lease_until_at <= first + 100:
            await asyncio.sleep(0.01)
        await approvals.answer(talk.session, "once")
        assert (await turn)[-1].status == "completed"


async def test_a_sub_agent_asks_in_the_conversation_of_its_parent(agent, record):
    inner, _ = calls(PAY)
    helper = Agent(inner, name="helper", mcp=[record.server()], title=lambda _: "T")
    outer, _ = calls(("ask_helper", '{"task": "Pay Eve"}'))
    seen = []
    async with agent(outer, delegates=[helper], approve=answering("session", seen), title=lambda _: "T") as there:
        events = await happening(await there.talk("cli:a"), "Have Eve paid")
    assert [(approval.session, approval.tool) for approval in seen] == [("cli:a", "pay")]
    assert [event.tool for event in events if isinstance(event, ApprovalRequested)] == ["pay"]
    assert record.runs == ["pay Eve"]
    assert events[-1].text == "paid Eve"


async def test_calls_at_once_are_asked_for_one_after_another(agent, record):
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
    async with agent(model, mcp=[record.server()], approve=approve, title=lambda _: "T") as there:
        events = await happening(await there.talk("cli:a"), "Pay all")
    assert events[-1].status == "completed"
    assert sorted(record.runs) == ["pay 0", "pay 1", "pay 2"]


async def test_the_commands(paying, record):
    async with paying(PAY, ("ledger_look", "{}"), approve=answering("always", [])) as there:
        talk = await there.talk("cli:a")
        assert "No tool is allowed" in (await commands.run(talk, "/approvals")).text
        assert (await commands.run(talk, "/approve once")).failed
        await happening(talk, "Pay Eve, then look")
        told = (await commands.run(talk, "/approvals")).text
        assert told == "1. `pay` of `ledger`, always\n2. `look` of `ledger`, always"
        assert (await commands.run(talk, "/approvals revoke 3")).failed
        assert (await commands.run(talk, "/approvals forget")).failed
        assert not (await commands.run(talk, "/approvals revoke 1")).failed
        assert (await commands.run(talk, "/approvals")).text == "1. `look` of `ledger`, always"
        assert "1 approvals are revoked" in (await commands.run(talk, "/approvals revoke all")).text
        assert await approvals.grants(there.store) == []


@pytest.mark.parametrize("wrong", ['"some"', "[1]", "true", '[""]'])
def test_the_setting_is_checked(tmp_path, monkeypatch, wrong):
    path = tmp_path / "config.toml"
    path.write_text(f'[mcp.ledger]\ncommand = ["x"]\napprove = {wrong}\n')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    from recollect.config.effective import load

    with pytest.raises(InvalidConfig, match="approve is a list of the names of tools"):
        load().servers  # noqa: B018
