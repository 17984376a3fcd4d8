"""Streaming chat and event streams: interrupted, resumed, stopped, concurrent, and after a killed server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading

import httpx
import pytest
from click.testing import CliRunner
from server_harness import TOKEN, Events, wait_for

import recollect
from recollect.cli.serve import serve as serve_command
from recollect.errors import DiskFull
from recollect.model.value import format_iso, parse_iso
from recollect.server import serve

STREAM = {"Accept": "text/event-stream"}
LONG_TOKEN = "0123456789abcdefghijklmnopqrstuvwxyz"


def text_of(events):
    return "".join(data["text"] for name, data, _ in events if name == "text")


def answer_text(count):
    return "".join(f"w{number} " for number in range(count))


def follow(api, session, last=None):
    headers = {} if last is None else {"Last-Event-ID": last}
    return api.stream("GET", f"{session}/events", headers=headers)


def test_an_answer_is_streamed_and_stored(api, session):
    with api.stream("POST", f"{session}/chat", json={"text": "say 40 words"}, headers=STREAM) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = list(Events(response))
    assert events[0][0] == "turn_started"
    assert events[-1][0] == "turn_ended"
    assert text_of(events) == answer_text(40)
    (response,) = (data["message"] for name, data, _ in events if name == "response")
    assert format_iso(parse_iso(response["created_at"])) == response["created_at"]
    messages = api.get(f"{session}/messages").json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["parts"][0]["text"] == answer_text(40)
    assert api.get(session).json()["running"] is False


def test_an_interrupted_stream_resumes_without_gaps_or_duplicates(api, server, session):
    server.model.gate.clear()
    run = api.post(f"{session}/chat", json={"text": "say 60 words"})
    assert run.status_code == 202
    assert run.json()["running"]
    with follow(api, session) as response:
        events = Events(response)
        received_events = []
        while text_of(received_events) != answer_text(2):
            received_events += events.until("text")
        last = received_events[-1][2]
    server.model.gate.set()
    with follow(api, session, last) as response:
        received_events += [item for item in Events(response).until("turn_ended") if item[0] != "ready"]
    assert text_of(received_events) == answer_text(60)
    names = [name for name, _, _ in received_events]
    assert (names.count("turn_started"), names.count("turn_ended")) == (1, 1)
    with follow(api, session, last) as response:  # a tab that reconnects late, while the server still has the run
        late = Events(response).until("turn_ended")
    assert text_of(received_events[:1] + late) == answer_text(60)[len(answer_text(2)) :]
    with follow(api, session, "1.1:1:0") as response:
        assert text_of(Events(response).until("turn_ended")) == answer_text(60)


def test_a_stream_resumes_at_every_position(api, session):
    with api.stream("POST", f"{session}/chat", json={"text": "say 7 words"}, headers=STREAM) as response:
        all_events = list(Events(response))
    turn, count, _ = all_events[-1][2].split(":")
    for at in range(int(count) + 1):
        with follow(api, session, f"{turn}:{at}:0") as response:
            if at == int(count):
                assert Events(response).until("ready")[-1][1]["running"] is False
                continue
            rest = Events(response).until("turn_ended")
        assert rest[-1][2].startswith(f"{turn}:{count}:")
        before = text_before(all_events, at)
        assert before + text_of(rest) == answer_text(7)


def text_before(events, at):
    """Return the text of the first raw events: the first one starts the turn, each of the next seven is a word."""
    return answer_text(min(max(at - 1, 0), 7))


def test_changes_by_other_processes_are_reported(api, session, tmp_path):
    with follow(api, session) as response:
        events = Events(response)
        ready = events.until("ready")[-1]
        with recollect.open(tmp_path / "r.db") as store:  # as another process would
            store.session("s/1").append({"role": "user", "content": "from elsewhere"})
        change = events.until("change")[-1]
        assert change[1]["revision"] > ready[1]["revision"]
        last = change[2]
    with recollect.open(tmp_path / "r.db") as store:
        store.session("s/1").append({"role": "user", "content": "while nobody looked"})
    with follow(api, session, last) as response:
        missed_change = next(Events(response))
    assert missed_change[0] == "change"
    assert missed_change[1]["revision"] > change[1]["revision"]


def test_the_change_feed_covers_all_sessions_and_missed_changes(api, start_server, server, tmp_path):
    with api.stream("GET", "/changes") as response:
        events = Events(response)
        events.until("ready")
        api.put("/sessions/one", json={"title": "x"})
        api.patch("/sessions/one", json={"title": "y"})
        first = events.until("change")[-1]
        assert first[1]["session"] == "one"
        last = first[2]
    api.put("/sessions/two")
    with api.stream("GET", "/changes", headers={"Last-Event-ID": last}) as response:
        session_ids = []
        for name, data, _ in Events(response):
            assert name != "reset"
            if name == "change":
                session_ids.append(data["session"])
                if data["session"] == "two":
                    break
    server.close()
    with start_server().client() as client:
        with client.stream("GET", "/changes", headers={"Last-Event-ID": last}) as response:
            reset_events = Events(response).until("reset")
            assert reset_events[-1][0] == "reset"
        for cursor in ("x", "00000000-1-2020-01-01T00:00:00.000Z", "-" * 400):
            with client.stream("GET", "/changes", headers={"Last-Event-ID": cursor}) as response:
                Events(response).until("reset")


def test_stop_keeps_the_streamed_part_of_an_answer(api, server, session):
    server.model.gate.clear()
    api.post(f"{session}/chat", json={"text": "say 50 words"})
    wait_for(lambda: api.get("/info").json()["running"] == ["s/1"])
    busy = api.post(f"{session}/chat", json={"text": "another"})
    assert (busy.status_code, busy.json()["code"]) == (409, "session-busy")
    assert api.post(f"{session}/stop").json() == {"stopped": True}
    wait_for(lambda: api.get(f"{session}/turns").json()["turns"][-1]["status"] == "cancelled")
    messages = api.get(f"{session}/messages").json()["messages"]
    assert (messages[-1]["state"], messages[-1]["parts"][0]["text"]) == ("interrupted", answer_text(2))
    assert api.post(f"{session}/stop").json() == {"stopped": False}
    server.model.gate.set()
    assert api.post(f"{session}/continue").status_code == 202


@pytest.mark.parametrize("address", ["/api/v1/sessions/s%2F1", "/page/session/s%2F1"])
def test_deleting_a_session_keeps_the_partial_answer(api, server, session, address):
    server.model.gate.clear()
    with api.stream("POST", f"{session}/chat", json={"text": "say 50 words"}, headers=STREAM) as response:
        received_events, events = [], Events(response)
        while text_of(received_events) != answer_text(2):
            received_events += events.until("text")
        assert api.delete(f"{server.url}{address}", headers={"Origin": server.url}).is_success
        assert [data["status"] for name, data, _ in events if name == "turn_ended"] == ["cancelled"]
    api.post(f"{session}/restore")
    (turn,) = api.get(f"{session}/turns").json()["turns"]
    assert turn["status"] == "cancelled"
    messages = api.get(f"{session}/messages").json()["messages"]
    assert (messages[-1]["state"], messages[-1]["parts"][0]["text"]) == ("interrupted", answer_text(2))


def test_edit_regenerate_retry_and_commands(api, session):
    def ask(path, body):
        with api.stream("POST", f"{session}{path}", json=body, headers=STREAM) as response:
            assert response.status_code == 200, response.read()
            return list(Events(response))[-1][1]

    assert ask("/chat", {"text": "say 2 words"})["status"] == "completed"
    assert ask("/messages/1.1/edit", {"text": "say 4 words"})["text"] == answer_text(4)
    assert ask("/regenerate", {})["text"] == answer_text(4)
    assert len(api.get(f"{session}/branches").json()["branches"]) == 3
    assert ask("/chat", {"text": "say 1 words and fail"})["status"] == "failed"
    assert ask("/retry", {})["status"] == "failed"
    outcome = api.post(f"{session}/commands", json={"line": "/rename Better"}).json()
    assert outcome["failed"] is False
    assert api.get(session).json()["title"] == "Better"
    assert api.post(f"{session}/commands", json={"line": "/nonsense"}).json()["failed"] is True
    assert api.post(f"{session}/chat", json={"text": "  "}).status_code == 400


def test_a_message_that_cannot_be_stored_is_a_problem_and_starts_no_turn(api, server, session):
    store = asyncio.run_coroutine_threadsafe(server.accounts.get(""), server.loop).result(60).store
    run_operation = store._run

    async def fail_writes(op):
        if op.writes:
            raise DiskFull(path="/somewhere")
        return await run_operation(op)

    store._run = fail_writes
    for headers in ({}, STREAM, {"Idempotency-Key": "q1"}):
        answer = api.post(f"{session}/chat", json={"text": "say 2 words"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (507, "disk-full")
        assert answer.headers["content-type"] == "application/problem+json"
    assert api.get("/info").json()["running"] == []
    store._run = run_operation
    assert api.get(f"{session}/messages").json()["messages"] == []
    repetition = api.post(f"{session}/chat", json={"text": "say 2 words"}, headers={"Idempotency-Key": "q1"})
    assert (repetition.status_code, repetition.json()["turn"]) == (202, "1.1")


def test_a_key_starts_one_turn(api, session):
    ask = {"json": {"text": "say 2 words"}, "headers": {"Idempotency-Key": "q1"}}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: api.post(f"{session}/chat", **ask), range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["turn"] for answer in answers}) == 1
    wait_for(lambda: not api.get(session).json()["running"])
    assert len(api.get(f"{session}/turns").json()["turns"]) == 1


def test_fifty_concurrent_streams(api, server):
    server.model.gate.clear()
    for number in range(50):
        api.put(f"/sessions/many:{number}")

    def ask(number):
        with (
            httpx.Client(base_url=api.base_url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
            client.stream(
                "POST", f"/sessions/many:{number}/chat", json={"text": "say 30 words"}, headers=STREAM
            ) as response,
        ):
            return list(Events(response))

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        futures = [pool.submit(ask, number) for number in range(50)]
        wait_for(lambda: len(api.get("/info").json()["running"]) == 50, "fifty answers")
        assert api.get("/health").status_code == 200  # other requests are answered meanwhile
        server.model.gate.set()
        for future in futures:
            events = future.result(60)
            assert text_of(events) == answer_text(30)
            assert events[-1][1]["status"] == "completed"


def test_idle_streams_send_keepalive_comments(api, session, monkeypatch):
    monkeypatch.setattr("recollect.server.api.event_stream.KEEPALIVE_INTERVAL", 0.05)
    with follow(api, session) as response:
        lines = response.iter_lines()
        comments = [line for line, _ in zip(lines, range(40), strict=False) if line.startswith(":")]
    assert comments.count(": still here") > 2


def test_open_streams_end_when_a_server_closes(start_server):
    server = start_server()
    server.model.gate.clear()
    with server.client() as api:
        api.put("/sessions/a")
        api.post("/sessions/a/chat", json={"text": "say 9 words"})
        first_events, ended_paths = [], []

        def read(path):
            with server.client() as client, client.stream("GET", path) as response:
                events = Events(response)
                first_events.append(next(events))
                list(events)
                ended_paths.append(path)

        threads = [
            threading.Thread(target=read, args=(path,)) for path in ("/sessions/a/events", "/changes") for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(first_events) == 10)
    server.close()
    for thread in threads:
        thread.join(60)
    assert len(ended_paths) == 10


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_stopped_during_an_answer_resumes_it(start_process, tmp_path, signal_number):
    server = start_process().wait_until_up()
    with server.client() as api:
        api.put("/sessions/a")
        with api.stream(
            "POST", "/sessions/a/chat", json={"text": "Tell me a story in 500 chapters"}, headers=STREAM
        ) as response:
            events = Events(response)
            received_events = events.until("text")
            wait_for(
                lambda: (
                    len(
                        httpx.get(f"{server.url}/api/v1/sessions/a/messages", headers=dict(api.headers)).json()[
                            "messages"
                        ]
                    )
                    == 2
                )
            )
            server.end(signal_number)
            if signal_number == signal.SIGTERM:
                received_events += list(events)  # ends cleanly
    output = server.remaining_output()
    assert server.token not in output.partition("\n")[2]
    assert "Traceback" not in output
    second_server = start_process().wait_until_up()
    assert second_server.token == server.token
    with second_server.client() as api:
        turn = api.get("/sessions/a/turns").json()["turns"][-1]
        assert turn["status"] == ("cancelled" if signal_number == signal.SIGTERM else "interrupted")
        assert api.get("/sessions/a/messages").json()["messages"][1]["state"] == "interrupted"
        with api.stream("GET", "/sessions/a/events", headers={"Last-Event-ID": "1.1:5:1"}) as response:
            assert next(Events(response))[0] == "change"
        with api.stream("POST", "/sessions/a/continue", headers=STREAM) as response:
            assert list(Events(response))[-1][1]["status"] == "completed"
    assert second_server.end() == 0 or second_server.process.returncode == -signal.SIGTERM


def test_invalid_start_options_are_refused_with_a_reason(start_process, tmp_path):
    first = start_process("--port", "0")
    port = first.url.rpartition(":")[2]
    second = start_process("--port", port)
    assert second.process.wait(60) != 0
    assert "--port" in second.remaining_output()
    public = start_process("--host", "0.0.0.0", "--port", "0")
    assert public.process.wait(60) != 0
    assert "RECOLLECT_TOKEN" in public.remaining_output()
    short = start_process("--host", "0.0.0.0", "--port", "0", RECOLLECT_TOKEN="short")
    assert short.process.wait(60) != 0
    assert "characters" in short.remaining_output()
    owners = start_process("--port", "0", RECOLLECT_OWNERS=f"alice={'a' * 40},bob={'b' * 40}")
    assert owners.process.wait(60) != 0
    assert "PostgreSQL" in owners.remaining_output()
    assert "aaaa" not in owners.remaining_output() if not owners.process.stdout.closed else True


@pytest.mark.parametrize("address", ["192.168.1.20", "2001:db8::7", None])
def test_serve_prints_a_link_for_other_machines(monkeypatch, tmp_path, address):
    listener = serve.listen(
        "127.0.0.1", 0, exact=True
    )  # instead of all addresses, so that no other machine can reach the test
    hosts = []
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "r.db"))
    monkeypatch.setenv("RECOLLECT_TOKEN", LONG_TOKEN)
    monkeypatch.setattr(serve, "listen", lambda *_, **__: listener)
    monkeypatch.setattr(serve, "run", lambda *_, **__: None)
    monkeypatch.setattr(serve, "address_for_others", lambda host: hosts.append(host) or address)
    output = CliRunner().invoke(serve_command, ["--host", "0.0.0.0"]).output
    port = listener.getsockname()[1]
    listener.close()
    url_host = address if address is None or ":" not in address else f"[{address}]"
    assert hosts == ["0.0.0.0"]
    assert f"Recollect is at http://127.0.0.1:{port}/#token={LONG_TOKEN}\n" in output
    line = f"Other machines: open http://{url_host}:{port}/#token={LONG_TOKEN}\n"
    assert (line in output) is (address is not None)
    assert output.count("http://") == 1 + (address is not None)


def test_the_address_for_other_machines_is_not_loopback():
    for host in ("127.0.0.1", "::1", "localhost", "10.1.2.3"):
        assert serve.address_for_others(host) is None  # the printed link contains it already
    for host in ("0.0.0.0", "::"):
        address = serve.address_for_others(host)
        assert address is None or not serve.is_loopback(address)


def test_a_superuser_role_is_refused_with_several_owners(start_process, databases, database):
    superuser_url = databases.url_of(database, "postgres")
    owners = "alice=alice-token-0123456789-0123456789-01,bob=bob-token-0123456789-0123456789-01"
    server = start_process("--port", "0", RECOLLECT_DB=superuser_url, RECOLLECT_OWNERS=owners)
    assert server.process.wait(60) != 0
    output = server.remaining_output()
    assert "superuser" in output
    assert "Recollect is at" not in output


def test_an_owner_cannot_read_other_owners(start_server, postgres):
    server = start_server(
        postgres, tokens={"alice-token-0123456789-0123456789-01": "alice", "bob-token-0123456789-0123456789-01": "bob"}
    )
    with (
        server.client("alice-token-0123456789-0123456789-01") as alice,
        server.client("bob-token-0123456789-0123456789-01") as bob,
    ):
        assert (alice.get("/info").json()["owner"], bob.get("/info").json()["owner"]) == ("alice", "bob")
        alice.put("/sessions/same", json={"title": "hers"})
        bob.put("/sessions/same", json={"title": "his"})
        alice.post("/sessions/same/messages", json={"messages": {"role": "user", "content": "an alpaca"}})
        assert bob.get("/sessions/same/messages").json()["messages"] == []
        assert bob.get("/search", params={"q": "alpaca"}).json()["hits"] == []
        assert len(alice.get("/search", params={"q": "alpaca"}).json()["hits"]) == 1
        assert [item["title"] for item in bob.get("/sessions").json()["sessions"]] == ["his"]
        assert b"alpaca" not in bob.get("/export").content
        with bob.stream("GET", "/changes") as response:
            events = Events(response)
            events.until("ready")
            alice.put("/sessions/hers-alone")
            bob.put("/sessions/his-alone")
            assert events.until("change")[-1][1]["session"] == "his-alone"
        assert alice.get("/space").status_code == 501
        with alice.stream("POST", "/sessions/same/chat", json={"text": "say 3 words"}, headers=STREAM) as response:
            assert list(Events(response))[-1][1]["text"] == answer_text(3)


def test_retention_applies_to_every_owner(start_process, postgres):
    for owner in ("alice", "bob"):
        with recollect.open(postgres, owner=owner) as store:
            store.session("same").append([{"role": "user", "content": str(number)} for number in range(5)])
    owners = "alice=alice-token-0123456789-0123456789-01,bob=bob-token-0123456789-0123456789-01"
    server = start_process("--port", "0", RECOLLECT_DB=postgres, RECOLLECT_OWNERS=owners, RECOLLECT_MAX_MESSAGES="2")
    server.wait_until_up()
    for owner in ("alice", "bob"):
        with httpx.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:
            client.headers["Authorization"] = f"Bearer {owner}-token-0123456789-0123456789-01"
            wait_for(lambda: len(client.get("/sessions/same/messages").json()["messages"]) == 2)
    server.end()
    output = server.remaining_output()
    assert output.count("Retention: ") == 2
    assert output.index("Recollect is at") < output.index("Retention: ")
    assert "token-0123456789" not in output
