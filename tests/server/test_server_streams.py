"""Streaming chat and event streams: followed, cut off, resumed, stopped, many at once, and over a killed server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading

import httpx
import pytest
from click.testing import CliRunner
from running import TOKEN, Events, wait_for

import recollect
from recollect.cli.serve import serve as serve_command
from recollect.errors import DiskFull
from recollect.model.value import iso, milliseconds
from recollect.server import serve

STREAM = {"Accept": "text/event-stream"}
LONG = "0123456789abcdefghijklmnopqrstuvwxyz"


def words(events):
    return "".join(data["text"] for name, data, _ in events if name == "text")


def said(count):
    return "".join(f"w{number} " for number in range(count))


def follow(api, session, last=None):
    headers = {} if last is None else {"Last-Event-ID": last}
    return api.stream("GET", f"{session}/events", headers=headers)


def test_an_answer_streams_to_who_asked_and_is_stored(api, session):
    with api.stream("POST", f"{session}/chat", json={"text": "say 40 words"}, headers=STREAM) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = list(Events(response))
    assert events[0][0] == "turn_started"
    assert events[-1][0] == "turn_ended"
    assert words(events) == said(40)
    (response,) = (data["message"] for name, data, _ in events if name == "response")
    assert iso(milliseconds(response["created_at"])) == response["created_at"]
    stored = api.get(f"{session}/messages").json()["messages"]
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert stored[1]["parts"][0]["text"] == said(40)
    assert api.get(session).json()["running"] is False


def test_a_stream_cut_in_the_middle_goes_on_with_nothing_lost_or_doubled(api, server, session):
    server.model.gate.clear()
    run = api.post(f"{session}/chat", json={"text": "say 60 words"})
    assert run.status_code == 202
    assert run.json()["running"]
    with follow(api, session) as response:
        events = Events(response)
        seen = []
        while words(seen) != said(2):
            seen += events.until("text")
        last = seen[-1][2]
    server.model.gate.set()
    with follow(api, session, last) as response:
        seen += [item for item in Events(response).until("turn_ended") if item[0] != "ready"]
    assert words(seen) == said(60)
    names = [name for name, _, _ in seen]
    assert (names.count("turn_started"), names.count("turn_ended")) == (1, 1)
    with follow(api, session, last) as response:  # a tab that comes back late, while the run is still remembered
        late = Events(response).until("turn_ended")
    assert words(seen[:1] + late) == said(60)[len(said(2)) :]
    with follow(api, session, "1.1:1:0") as response:
        assert words(Events(response).until("turn_ended")) == said(60)


def test_at_every_place_of_a_cut_the_rest_follows(api, session):
    with api.stream("POST", f"{session}/chat", json={"text": "say 7 words"}, headers=STREAM) as response:
        whole = list(Events(response))
    turn, count, _ = whole[-1][2].split(":")
    for at in range(int(count) + 1):
        with follow(api, session, f"{turn}:{at}:0") as response:
            if at == int(count):
                assert Events(response).until("ready")[-1][1]["running"] is False
                continue
            rest = Events(response).until("turn_ended")
        assert rest[-1][2].startswith(f"{turn}:{count}:")
        before = whole_text(whole, at)
        assert before + words(rest) == said(7)


def whole_text(events, at):
    """The text of the first so many raw events: the first is the start of the turn, each of the next seven is a word."""
    return said(min(max(at - 1, 0), 7))


def test_changes_by_others_are_told(api, session, tmp_path):
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
        missed = next(Events(response))
    assert missed[0] == "change"
    assert missed[1]["revision"] > change[1]["revision"]


def test_the_change_feed_tells_every_session_and_what_was_missed(api, serving, server, tmp_path):
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
        found = []
        for name, data, _ in Events(response):
            assert name != "reset"
            if name == "change":
                found.append(data["session"])
                if data["session"] == "two":
                    break
    server.close()
    with serving().client() as again:
        with again.stream("GET", "/changes", headers={"Last-Event-ID": last}) as response:
            told = Events(response).until("reset")
            assert told[-1][0] == "reset"
        for odd in ("x", "00000000-1-2020-01-01T00:00:00.000Z", "-" * 400):
            with again.stream("GET", "/changes", headers={"Last-Event-ID": odd}) as response:
                Events(response).until("reset")


def test_stop_keeps_what_came(api, server, session):
    server.model.gate.clear()
    api.post(f"{session}/chat", json={"text": "say 50 words"})
    wait_for(lambda: api.get("/info").json()["running"] == ["s/1"])
    busy = api.post(f"{session}/chat", json={"text": "another"})
    assert (busy.status_code, busy.json()["code"]) == (409, "session-busy")
    assert api.post(f"{session}/stop").json() == {"stopped": True}
    wait_for(lambda: api.get(f"{session}/turns").json()["turns"][-1]["status"] == "cancelled")
    stored = api.get(f"{session}/messages").json()["messages"]
    assert (stored[-1]["state"], stored[-1]["parts"][0]["text"]) == ("interrupted", said(2))
    assert api.post(f"{session}/stop").json() == {"stopped": False}
    server.model.gate.set()
    assert api.post(f"{session}/continue").status_code == 202


@pytest.mark.parametrize("address", ["/api/v1/sessions/s%2F1", "/page/session/s%2F1"])
def test_what_came_is_kept_when_a_session_is_deleted_in_the_middle_of_an_answer(api, server, session, address):
    server.model.gate.clear()
    with api.stream("POST", f"{session}/chat", json={"text": "say 50 words"}, headers=STREAM) as response:
        seen, events = [], Events(response)
        while words(seen) != said(2):
            seen += events.until("text")
        assert api.delete(f"{server.url}{address}", headers={"Origin": server.url}).is_success
        assert [data["status"] for name, data, _ in events if name == "turn_ended"] == ["cancelled"]
    api.post(f"{session}/restore")
    (turn,) = api.get(f"{session}/turns").json()["turns"]
    assert turn["status"] == "cancelled"
    stored = api.get(f"{session}/messages").json()["messages"]
    assert (stored[-1]["state"], stored[-1]["parts"][0]["text"]) == ("interrupted", said(2))


def test_edit_regenerate_retry_and_commands(api, session):
    def ask(path, body):
        with api.stream("POST", f"{session}{path}", json=body, headers=STREAM) as response:
            assert response.status_code == 200, response.read()
            return list(Events(response))[-1][1]

    assert ask("/chat", {"text": "say 2 words"})["status"] == "completed"
    assert ask("/messages/1.1/edit", {"text": "say 4 words"})["text"] == said(4)
    assert ask("/regenerate", {})["text"] == said(4)
    assert len(api.get(f"{session}/branches").json()["branches"]) == 3
    assert ask("/chat", {"text": "say 1 words and fail"})["status"] == "failed"
    assert ask("/retry", {})["status"] == "failed"
    done = api.post(f"{session}/commands", json={"line": "/rename Better"}).json()
    assert done["failed"] is False
    assert api.get(session).json()["title"] == "Better"
    assert api.post(f"{session}/commands", json={"line": "/nonsense"}).json()["failed"] is True
    assert api.post(f"{session}/chat", json={"text": "  "}).status_code == 400


def test_a_question_that_can_not_be_stored_is_a_problem_and_no_turn(api, server, session):
    store = asyncio.run_coroutine_threadsafe(server.accounts.get(""), server.loop).result(60).store
    plain = store.run

    async def full(op):
        if op.writes:
            raise DiskFull(path="/somewhere")
        return await plain(op)

    store.run = full
    for headers in ({}, STREAM, {"Idempotency-Key": "q1"}):
        answer = api.post(f"{session}/chat", json={"text": "say 2 words"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (507, "disk-full")
        assert answer.headers["content-type"] == "application/problem+json"
    assert api.get("/info").json()["running"] == []
    store.run = plain
    assert api.get(f"{session}/messages").json()["messages"] == []
    again = api.post(f"{session}/chat", json={"text": "say 2 words"}, headers={"Idempotency-Key": "q1"})
    assert (again.status_code, again.json()["turn"]) == (202, "1.1")


def test_a_question_with_a_key_is_asked_once(api, session):
    ask = {"json": {"text": "say 2 words"}, "headers": {"Idempotency-Key": "q1"}}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: api.post(f"{session}/chat", **ask), range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["turn"] for answer in answers}) == 1
    wait_for(lambda: not api.get(session).json()["running"])
    assert len(api.get(f"{session}/turns").json()["turns"]) == 1


def test_fifty_streams_at_once(api, server):
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
        asked = [pool.submit(ask, number) for number in range(50)]
        wait_for(lambda: len(api.get("/info").json()["running"]) == 50, "fifty answers")
        assert api.get("/health").status_code == 200  # it answers at all while they run
        server.model.gate.set()
        for answer in asked:
            events = answer.result(60)
            assert words(events) == said(30)
            assert events[-1][1]["status"] == "completed"


def test_silence_is_broken_by_comments(api, session, monkeypatch):
    monkeypatch.setattr("recollect.server.api.stream.ALIVE", 0.05)
    with follow(api, session) as response:
        lines = response.iter_lines()
        found = [line for line, _ in zip(lines, range(40), strict=False) if line.startswith(":")]
    assert found.count(": still here") > 2


def test_open_streams_end_when_the_server_stops(serving):
    server = serving()
    server.model.gate.clear()
    with server.client() as api:
        api.put("/sessions/a")
        api.post("/sessions/a/chat", json={"text": "say 9 words"})
        begun, ended = [], []

        def read(path):
            with server.client() as client, client.stream("GET", path) as response:
                events = Events(response)
                begun.append(next(events))
                list(events)
                ended.append(path)

        threads = [
            threading.Thread(target=read, args=(path,)) for path in ("/sessions/a/events", "/changes") for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(begun) == 10)
    server.close()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 10


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_in_the_middle_of_an_answer(command, tmp_path, sign):
    server = command().wait_until_up()
    with server.client() as api:
        api.put("/sessions/a")
        with api.stream(
            "POST", "/sessions/a/chat", json={"text": "Tell me a story in 500 chapters"}, headers=STREAM
        ) as response:
            events = Events(response)
            seen = events.until("text")
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
            server.end(sign)
            if sign == signal.SIGTERM:
                seen += list(events)  # ends cleanly
    output = server.rest()
    assert server.token not in output.partition("\n")[2]
    assert "Traceback" not in output
    again = command().wait_until_up()
    assert again.token == server.token
    with again.client() as api:
        turn = api.get("/sessions/a/turns").json()["turns"][-1]
        assert turn["status"] == ("cancelled" if sign == signal.SIGTERM else "interrupted")
        assert api.get("/sessions/a/messages").json()["messages"][1]["state"] == "interrupted"
        with api.stream("GET", "/sessions/a/events", headers={"Last-Event-ID": "1.1:5:1"}) as response:
            assert next(Events(response))[0] == "change"
        with api.stream("POST", "/sessions/a/continue", headers=STREAM) as response:
            assert list(Events(response))[-1][1]["status"] == "completed"
    assert again.end() == 0 or again.process.returncode == -signal.SIGTERM


def test_a_taken_port_gives_the_next_and_a_wrong_start_says_why(command, tmp_path):
    first = command("--port", "0")
    taken = first.url.rpartition(":")[2]
    refused = command("--port", taken)
    assert refused.process.wait(60) != 0
    assert "--port" in refused.rest()
    public = command("--host", "0.0.0.0", "--port", "0")
    assert public.process.wait(60) != 0
    assert "RECOLLECT_TOKEN" in public.rest()
    short = command("--host", "0.0.0.0", "--port", "0", RECOLLECT_TOKEN="short")
    assert short.process.wait(60) != 0
    assert "characters" in short.rest()
    owners = command("--port", "0", RECOLLECT_OWNERS=f"alice={'a' * 40},bob={'b' * 40}")
    assert owners.process.wait(60) != 0
    assert "PostgreSQL" in owners.rest()
    assert "aaaa" not in owners.rest() if not owners.process.stdout.closed else True


@pytest.mark.parametrize("others", ["192.168.1.20", "2001:db8::7", None])
def test_a_link_for_other_machines_where_they_can_reach_it(monkeypatch, tmp_path, others):
    listener = serve.listen("127.0.0.1", 0, exact=True)  # in the place of all addresses: a test listens to nobody else
    asked = []
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "r.db"))
    monkeypatch.setenv("RECOLLECT_TOKEN", LONG)
    monkeypatch.setattr(serve, "listen", lambda *_, **__: listener)
    monkeypatch.setattr(serve, "run", lambda *_, **__: None)
    monkeypatch.setattr(serve, "address_for_others", lambda host: asked.append(host) or others)
    told = CliRunner().invoke(serve_command, ["--host", "0.0.0.0"]).output
    port = listener.getsockname()[1]
    listener.close()
    shown = others if others is None or ":" not in others else f"[{others}]"
    assert asked == ["0.0.0.0"]
    assert f"Recollect is at http://127.0.0.1:{port}/#token={LONG}\n" in told
    other = f"Other machines open http://{shown}:{port}/#token={LONG}\n"
    assert (other in told) is (others is not None)
    assert told.count("http://") == 1 + (others is not None)


def test_an_address_for_others_is_none_of_loopback():
    for host in ("127.0.0.1", "::1", "localhost", "10.1.2.3"):
        assert serve.address_for_others(host) is None  # the link has it already
    for host in ("0.0.0.0", "::"):
        found = serve.address_for_others(host)
        assert found is None or not serve.loopback(found)


def test_a_role_that_may_not_keep_owners_apart_is_refused_before_the_link(command, databases, database):
    mighty = databases.url_of(database, "postgres")
    owners = "alice=alice-token-0123456789-0123456789-01,bob=bob-token-0123456789-0123456789-01"
    server = command("--port", "0", RECOLLECT_DB=mighty, RECOLLECT_OWNERS=owners)
    assert server.process.wait(60) != 0
    told = server.rest()
    assert "superuser" in told
    assert "Recollect is at" not in told


def test_two_owners_on_postgres_see_only_their_own(serving, postgres):
    server = serving(
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
            assert list(Events(response))[-1][1]["text"] == said(3)


def test_retention_reaches_the_conversations_of_each_owner(command, postgres):
    for owner in ("alice", "bob"):
        with recollect.open(postgres, owner=owner) as store:
            store.session("same").append([{"role": "user", "content": str(number)} for number in range(5)])
    owners = "alice=alice-token-0123456789-0123456789-01,bob=bob-token-0123456789-0123456789-01"
    server = command("--port", "0", RECOLLECT_DB=postgres, RECOLLECT_OWNERS=owners, RECOLLECT_MAX_MESSAGES="2")
    server.wait_until_up()
    for owner in ("alice", "bob"):
        with httpx.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:
            client.headers["Authorization"] = f"Bearer {owner}-token-0123456789-0123456789-01"
            wait_for(lambda: len(client.get("/sessions/same/messages").json()["messages"]) == 2)
    server.end()
    told = server.rest()
    assert told.count("Retention: ") == 2
    assert told.index("Recollect is at") < told.index("Retention: ")
    assert "token-0123456789" not in told
