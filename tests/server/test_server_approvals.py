"""Tools that wait for approval, through the HTTP API. A client that does not answer is never waited for."""

from __future__ import annotations

import time

import pytest
from running import LIMIT, Events

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

import recollect
from paying_model import paying

AT = "/sessions/a"


@pytest.fixture
def bank(tmp_path):
    with paying(tmp_path) as bank:
        yield bank


@pytest.fixture
def client(command, bank):
    with command(RECOLLECT_CONFIG=str(bank.config)).wait_until_up().client() as client:
        client.put(AT)
        yield client


def waiting(client):
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        if (approval := client.get(f"{AT}/approval").json()["approval"]) is not None:
            return approval
        time.sleep(0.05)
    raise AssertionError("nothing waits")


def turn_is_over(client):
    until = time.monotonic() + LIMIT
    while client.get(f"{AT}/turns").json()["turns"][-1]["status"] == "open":
        assert time.monotonic() < until
        time.sleep(0.05)
    return client.get(f"{AT}/turns").json()["turns"][-1]["status"]


def last_text(client):
    return client.get(f"{AT}/messages").json()["messages"][-1]["parts"][0]["text"]


def test_a_client_that_does_not_answer_is_not_waited_for(client, bank):
    with client.stream("POST", f"{AT}/chat", json={"text": "pay Eve"}, headers={"Accept": "text/event-stream"}) as told:
        events = [(name, data) for name, data, _ in Events(told)]
    assert next(data["text"] for name, data in events if name == "notice").startswith(
        "The tool 'pay' of the MCP server"
    )
    assert "approval_requested" not in [name for name, _ in events]
    assert bank.runs == []


@pytest.mark.parametrize(("decision", "runs"), [("once", 1), ("session", 1), ("always", 1), ("deny", 0)])
def test_it_waits_for_the_answer(client, bank, decision, runs):
    assert client.get(f"{AT}/approval").json() == {"approval": None}
    assert client.post(f"{AT}/chat", json={"text": "pay Eve", "approvals": True}).status_code == 202
    approval = waiting(client)
    assert (approval["server"], approval["tool"], approval["arguments"]) == ("ledger", "pay", {"to": "Eve"})
    assert (approval["session"], approval["who"]) == ("a", "")
    refused = client.post(f"{AT}/approval", json={"id": "another", "decision": "once"})
    assert (refused.status_code, refused.json()["code"]) == (404, "approval-not-found")
    assert client.post(f"{AT}/approval", json={"id": approval["id"], "decision": "maybe"}).status_code == 400
    assert bank.runs == []
    answered = client.post(f"{AT}/approval", json={"id": approval["id"], "decision": decision})
    assert answered.json() == {"approval": approval}
    assert turn_is_over(client) == "completed"
    assert bank.runs == ["pay Eve"] * runs
    assert ("paid Eve" if runs else "The user did not allow this tool call") in last_text(client)
    assert client.post(f"{AT}/approval", json={"id": approval["id"], "decision": "once"}).status_code == 404


def test_the_events_tell_the_question_and_the_answer(client, bank):
    seen = []
    asked = {"text": "pay Eve", "approvals": True}
    with client.stream("POST", f"{AT}/chat", json=asked, headers={"Accept": "text/event-stream"}) as told:
        for name, data, _ in Events(told):
            seen.append((name, data))
            if name == "approval_requested":
                answer = {"id": data["id"], "decision": "once"}
                assert client.post(f"{AT}/approval", json=answer).status_code == 200
    names = [name for name, _ in seen]
    assert names.index("approval_requested") < names.index("approval_answered") < names.index("tool_finished")
    assert dict(seen)["approval_answered"]["decision"] == "once"
    assert bank.runs == ["pay Eve"]


def test_stopping_while_it_waits(client, bank):
    client.post(f"{AT}/chat", json={"text": "pay Eve", "approvals": True})
    waiting(client)
    assert client.post(f"{AT}/stop").json() == {"stopped": True}
    assert turn_is_over(client) == "cancelled"
    assert client.get(f"{AT}/approval").json() == {"approval": None}
    assert bank.runs == []


def test_a_server_that_was_killed_waits_no_more(command, client, bank, tmp_path):
    client.post(f"{AT}/chat", json={"text": "pay Eve", "approvals": True})
    waiting(client)
    import signal

    first = command.started[0]
    first.end(signal.SIGKILL)
    with command(RECOLLECT_CONFIG=str(bank.config)).wait_until_up().client() as again:
        assert again.get(f"{AT}/approval").json() == {"approval": None}
    with recollect.open(str(tmp_path / "r.db")) as store:
        store.recover("a")
        assert [turn.status for turn in store.session("a").turns()] == ["interrupted"]
    assert bank.runs == []
