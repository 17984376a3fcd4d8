"""Tools that wait for approval, through the HTTP API. The server waits only if the client supports approvals."""

from __future__ import annotations

import time

import pytest
from server_harness import LIMIT, Events

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

import recollect
from payment_model import run_payment_model

SESSION = "/sessions/a"


@pytest.fixture
def bank(tmp_path):
    with run_payment_model(tmp_path) as bank:
        yield bank


@pytest.fixture
def client(start_process, bank):
    with start_process(RECOLLECT_CONFIG=str(bank.config)).wait_until_up().client() as client:
        client.put(SESSION)
        yield client


def wait_for_approval(client):
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if (approval := client.get(f"{SESSION}/approval").json()["approval"]) is not None:
            return approval
        time.sleep(0.05)
    raise AssertionError("no approval was requested")


def wait_for_turn_end(client):
    deadline = time.monotonic() + LIMIT
    while client.get(f"{SESSION}/turns").json()["turns"][-1]["status"] == "open":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return client.get(f"{SESSION}/turns").json()["turns"][-1]["status"]


def last_text(client):
    return client.get(f"{SESSION}/messages").json()["messages"][-1]["parts"][0]["text"]


def test_without_approvals_the_tool_is_refused_at_once(client, bank):
    with client.stream(
        "POST", f"{SESSION}/chat", json={"text": "pay Eve"}, headers={"Accept": "text/event-stream"}
    ) as response:
        events = [(name, data) for name, data, _ in Events(response)]
    assert next(data["text"] for name, data in events if name == "notice").startswith(
        "The tool 'pay' of the MCP server"
    )
    assert "approval_requested" not in [name for name, _ in events]
    assert bank.runs == []


@pytest.mark.parametrize(("decision", "runs"), [("once", 1), ("session", 1), ("always", 1), ("deny", 0)])
def test_the_turn_waits_for_the_decision(client, bank, decision, runs):
    assert client.get(f"{SESSION}/approval").json() == {"approval": None}
    assert client.post(f"{SESSION}/chat", json={"text": "pay Eve", "approvals": True}).status_code == 202
    approval = wait_for_approval(client)
    assert (approval["server"], approval["tool"], approval["arguments"]) == ("ledger", "pay", {"to": "Eve"})
    assert (approval["session"], approval["who"]) == ("a", "")
    unknown = client.post(f"{SESSION}/approval", json={"id": "another", "decision": "once"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "approval-not-found")
    assert client.post(f"{SESSION}/approval", json={"id": approval["id"], "decision": "maybe"}).status_code == 400
    assert bank.runs == []
    answer = client.post(f"{SESSION}/approval", json={"id": approval["id"], "decision": decision})
    assert answer.json() == {"approval": approval}
    assert wait_for_turn_end(client) == "completed"
    assert bank.runs == ["pay Eve"] * runs
    assert ("paid Eve" if runs else "The user denied this tool call") in last_text(client)
    assert client.post(f"{SESSION}/approval", json={"id": approval["id"], "decision": "once"}).status_code == 404


def test_events_report_the_request_and_the_decision(client, bank):
    events = []
    body = {"text": "pay Eve", "approvals": True}
    with client.stream("POST", f"{SESSION}/chat", json=body, headers={"Accept": "text/event-stream"}) as response:
        for name, data, _ in Events(response):
            events.append((name, data))
            if name == "approval_requested":
                answer = {"id": data["id"], "decision": "once"}
                assert client.post(f"{SESSION}/approval", json=answer).status_code == 200
    names = [name for name, _ in events]
    assert names.index("approval_requested") < names.index("approval_answered") < names.index("tool_finished")
    assert dict(events)["approval_answered"]["decision"] == "once"
    assert bank.runs == ["pay Eve"]


def test_stop_during_an_approval_request(client, bank):
    client.post(f"{SESSION}/chat", json={"text": "pay Eve", "approvals": True})
    wait_for_approval(client)
    assert client.post(f"{SESSION}/stop").json() == {"stopped": True}
    assert wait_for_turn_end(client) == "cancelled"
    assert client.get(f"{SESSION}/approval").json() == {"approval": None}
    assert bank.runs == []


def test_a_killed_server_leaves_no_approval_request(start_process, client, bank, tmp_path):
    client.post(f"{SESSION}/chat", json={"text": "pay Eve", "approvals": True})
    wait_for_approval(client)
    import signal

    first = start_process.started[0]
    first.end(signal.SIGKILL)
    with start_process(RECOLLECT_CONFIG=str(bank.config)).wait_until_up().client() as second_client:
        assert second_client.get(f"{SESSION}/approval").json() == {"approval": None}
    with recollect.open(str(tmp_path / "r.db")) as store:
        store.maintenance.recover("a")
        assert [turn.status for turn in store.session("a").turns.list()] == ["interrupted"]
    assert bank.runs == []
