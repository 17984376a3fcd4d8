"""Sessions, messages, turns, tools, branches and the rest of the store over HTTP, by a real client."""

from __future__ import annotations

import concurrent.futures
import json
from urllib.parse import quote

from recollect.errors import DiskFull
from recollect.server.path_segments import encode_path_segment
from recollect.storage.search import index


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def assert_problem(response, status, code):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == code
    assert response.json()["detail"]
    return response.json()


def test_create_update_delete_and_erase_a_session(api):
    creation = api.post("/sessions", json={"title": "A plan", "metadata": {"k": [1]}})
    assert creation.status_code == 201
    name = creation.json()["id"]
    assert creation.headers["etag"] == '"0"'
    assert api.get("/sessions").json()["sessions"][0]["id"] == name
    update = api.patch(f"/sessions/{name}", json={"title": None, "pinned": True, "color": "red"})
    assert (update.json()["title"], update.json()["color"]) == (None, "red")
    assert update.json()["pinned_at"].endswith("Z")
    assert update.json()["metadata"] == {"k": [1]}
    assert api.delete(f"/sessions/{name}").status_code == 204
    assert_problem(api.get(f"/sessions/{name}"), 404, "session-in-trash")
    assert [item["id"] for item in api.get("/trash").json()["sessions"]] == [name]
    assert api.post(f"/sessions/{name}/restore").json()["pinned_at"]
    assert api.post(f"/sessions/{name}/erase").json() == {"erased": [name]}
    assert_problem(api.get(f"/sessions/{name}"), 404, "session-not-found")
    api.put("/sessions/x")
    api.delete("/sessions/x")
    assert api.delete("/trash").json() == {"count": 1}


HOSTILE_IDS = [
    "discord:dm:42", "a/b", "../../etc/passwd", "%2F", "a%2Fb", "a b", "#?&=;", "\\", "..\\x", "<script>", "'\"",
    "é\u00df\u4e2d\U0001f600", "x" * 512, "a//b", "/", "//", "\u202e", "null", "~", "a.b.", ".", "..", "~.", "~..", "~~.",
    "...", "\ue000", "\ue000s", "\ue000m", "a\ue000sb", "\ue000/", "/\ue000m/", "a\r\nX: y", "\0", "a\0b", "\n", "\t", " ",
    " a ", "\x1b[31m", "\x7f", "\x85", "\u2028", "\x10", "\x100", "%", "%2", "%ff", "%00", "a;b=c", "\0" * 1_024,
    "\U0001f600" * 256, "\u20ac" * 341, "messages", "sessions", "a" * 1_024,
]  # fmt: skip


def test_any_id_can_be_used_in_a_path(api):
    for name in HOSTILE_IDS:
        use_session(api, name)
    assert {session["id"] for session in api.get("/sessions", params={"limit": 100}).json()["sessions"]} == set()


def test_invalid_ids_are_refused(api):
    for name in ("x" * 1_025, "\u20ac" * 342):
        assert_problem(api.put(f"/sessions/{quote(name, safe='')}"), 400, "invalid-value")


def use_session(api, name):
    path = f"/sessions/{encode_path_segment(name)}"
    assert api.put(path).json()["id"] == name
    assert api.post(f"{path}/messages", json={"messages": user("x")}).status_code == 201
    assert len(api.get(f"{path}/messages").json()["messages"]) == 1
    run = api.post(f"{path}/chat", json={"text": "2 words"}).json()
    assert run["session"] == name
    with api.stream("GET", run["events"].removeprefix("/api/v1")) as events:
        assert events.status_code == 200
    assert run["events"] == f"/api/v1{path}/events"
    assert api.get("/resolve", params={"name": name}).json()["id"] == name
    assert api.delete(path).status_code == 204


INVALID_PATHS = ["/sessions/%00", "/sessions/%0a", "/sessions/%ff%fe", "/sessions/%zz", "/sessions/" + "y" * 600,
                                  "/sessions/%EE%80%80%0d", "/sessions/s%2F1/messages/1." + "9" * 5000, "/sessions/s%2F1/messages/²",
                                  "/sessions/s%2F1/messages/1.5/files/0", "/settings/%00", "/static/..%2f..%2fapp.py", "/static/%5c..%5c", "/nothing"]  # fmt: skip


def test_invalid_paths_are_client_errors(api, session):
    for path in INVALID_PATHS:
        for method in ("GET", "DELETE"):
            answer = api.request(method, path)
            assert 400 <= answer.status_code < 500 or path.startswith("/settings"), (path, answer.status_code)


def test_list_pagination_and_filters(api):
    for number in range(7):
        fields = {"title": f"T{number}", "model": "demo" if number % 2 else None}
        assert api.put(f"/sessions/ch:{number}", json=fields).status_code == 200
    titles, after = [], None
    for _ in range(10):
        page = api.get("/sessions", params={"limit": 3, "order": "title"} | ({"after": after} if after else {})).json()
        titles += [item["title"] for item in page["sessions"]]
        after = page["next"]
        if after is None:
            break
    assert titles == [f"T{number}" for number in range(7)]

    def ids(**params):
        return {item["id"] for item in api.get("/sessions", params=params).json()["sessions"]}

    assert ids(model="demo") == {"ch:1", "ch:3", "ch:5"}
    api.patch("/sessions/ch:0", json={"archived": True, "pinned": True})
    assert "ch:0" not in ids()
    assert ids(archived="true") == {"ch:0"}
    assert ids(archived="any", pinned="true") == {"ch:0"}
    assert len(ids(channel="ch", archived="any")) == 7
    api.put("/sessions/ch:1:delegate:helper", json={"parent": "ch:1"})
    assert "ch:1:delegate:helper" not in ids()
    assert ids(parent="ch:1", delegates="true") == {"ch:1:delegate:helper"}
    assert api.put("/sessions/ch:2:delegate:chosen").json()["relation"] is None
    assert "ch:2:delegate:chosen" in ids()
    api.delete("/sessions/ch:2:delegate:chosen")
    assert api.post("/sessions", json={"parent": "nobody"}).status_code == 404
    assert api.patch("/sessions/ch:1", json={"parent": "ch:2"}).status_code in (400, 422)
    assert ids(since="2100-01-01T00:00:00Z") == set()
    for parameters in (
        {"limit": 0},
        {"limit": "x"},
        {"after": "garbage"},
        {"status": "odd"},
        {"since": "yesterdayish"},
        {"archived": "maybe"},
    ):
        assert api.get("/sessions", params=parameters).status_code == 400


def test_the_last_session_is_remembered(api):
    assert api.get("/last-session").json() == {"session": None}
    api.put("/sessions/a")
    api.put("/sessions/b")
    assert api.put("/last-session", json={"session": "a"}).status_code == 204
    assert api.get("/last-session").json()["session"]["id"] == "a"
    assert_problem(api.put("/last-session", json={"session": "zzz"}), 404, "session-not-found")
    api.put("/sessions/abc1")
    api.put("/sessions/abc2")
    assert_problem(api.get("/resolve", params={"name": "abc"}), 409, "ambiguous-name")


def test_a_key_creates_one_session(api, server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: api.post("/sessions", json={"title": "x"}, headers={"Idempotency-Key": "k"}), range(8))
        )
    assert {answer.json()["id"] for answer in answers} == {answers[0].json()["id"]}
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len(api.get("/sessions").json()["sessions"]) == 1
    assert api.post("/sessions", headers={"Idempotency-Key": "other"}).status_code == 201
    assert_problem(api.post("/sessions", json={"id": answers[0].json()["id"]}), 409, "session-exists")


def test_message_formats_and_pages(api, session):
    path = f"{session}/messages"
    openai = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}]}  # fmt: skip
    response = api.post(path, json={"messages": [user("q"), openai], "format": "openai"})
    assert response.status_code == 201
    assert response.json()["ids"] == ["1.1", "1.2"]
    history = api.get(f"{session}/history", params={"format": "openai"}).json()
    assert history["messages"][1] == openai
    assert [item["kind"] for item in history["repairs"]] == ["interrupted_call"]
    raw = api.get(f"{session}/history", params={"format": "openai", "repair": False}).json()
    assert raw["repairs"] == []
    api.post(path, json={"messages": [user(f"m{number}") for number in range(20)]})
    last = api.get(path, params={"limit": 5}).json()
    assert [m["id"] for m in last["messages"]] == [f"1.{n}" for n in range(18, 23)]
    assert (last["before"], last["next"]) == ("1.18", None)
    ids = [m["id"] for m in last["messages"]]
    while last["before"]:
        last = api.get(path, params={"limit": 5, "before": last["before"]}).json()
        ids = [m["id"] for m in last["messages"]] + ids
    assert ids == [f"1.{n}" for n in range(1, 23)]
    page = api.get(path, params={"limit": 15, "after": "0"}).json()
    rest = api.get(path, params={"limit": 15, "after": page["next"]}).json()
    assert [m["id"] for m in page["messages"] + rest["messages"]] == ids
    assert rest["next"] is None
    assert len(api.get(f"{session}/history", params={"budget": 30}).json()["messages"]) < 20
    assert api.get(f"{path}/1.1").json()["parts"] == [{"kind": "text", "text": "q"}]
    assert api.get(f"{path}/1.1/response").json() is None
    assert_problem(api.get(f"{path}/1.99"), 404, "message-not-found")
    assert_problem(api.get(f"{path}/x"), 400, "invalid-value")
    assert_problem(api.get(f"{session}/history", params={"format": "gemini"}), 400, "invalid-request")
    assert_problem(api.post(path, json={"messages": []}), 400, "invalid-value")
    assert_problem(
        api.post(path, json={"messages": {"role": "user", "content": "x"}, "format": "odd"}), 400, "invalid-request"
    )


def test_unusual_json_values_round_trip(api, session):
    body = b'{"messages": {"role": "user", "content": "half \\ud800 and \\u0000", "extra": 123456789012345678901234567890}, "format": "openai"}'
    response = api.post(f"{session}/messages", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 201, response.text
    stored_message = json.loads(api.get(f"{session}/messages/1.1").content)
    assert stored_message["parts"][0]["text"] == "half \ud800 and \x00"
    assert "half \\ud800" in api.get(f"{session}/history", params={"format": "openai"}).text
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert api.post(f"{session}/messages", content=deep).status_code == 400
    for invalid_body in (b"", b"{", b"nul", b"\xff\xfe", b"[1]", b'{"messages": NaN}', b'{"other": 1}'):
        answer = api.post(f"{session}/messages", content=invalid_body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, (invalid_body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_key_appends_once(api, session):
    path, headers = f"{session}/messages", {"Idempotency-Key": "k1"}
    first = api.post(path, json={"messages": user("once")}, headers=headers)
    repetition = api.post(path, json={"messages": user("once")}, headers=headers)
    assert (first.status_code, repetition.status_code) == (201, 200)
    assert (first.json()["ids"], repetition.json()["ids"], repetition.json()["repeated"]) == (["1.1"], ["1.1"], True)
    assert_problem(api.post(path, json={"messages": user("other")}, headers=headers), 409, "key-reused")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda _: api.post(path, json={"messages": user("x")}, headers={"Idempotency-Key": "k2"}), range(8)
            )
        )
    assert len(api.get(path).json()["messages"]) == 2


def test_concurrent_updates_with_a_stale_etag_are_refused(api, session):
    tag = api.get(session).headers["etag"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: api.patch(session, json={"title": f"t{n}"}, headers={"If-Match": tag}), range(8))
        )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7
    assert {answer.json()["code"] for answer in answers if answer.status_code == 412} == {"stale-revision"}
    title = next(answer.json()["title"] for answer in answers if answer.status_code == 200)
    assert api.get(session).json()["title"] == title
    stale = {"If-Match": tag}
    for method, path, body in (
        ("POST", "/messages", {"messages": user("x")}), ("POST", "/rewind", {"to": "0"}), ("DELETE", "", None),
        ("POST", "/turns", {"message": "x"}), ("POST", "/turns/save", {"message": "x"}),
        ("POST", "/switch", {"branch": 1}),
    ):  # fmt: skip
        assert api.request(method, session + path, json=body, headers=stale).status_code == 412, path
    assert api.patch(session, json={"title": "y"}, headers={"If-Match": "*"}).status_code == 200
    assert_problem(api.patch(session, json={"title": "y"}, headers={"If-Match": "soon"}), 400, "invalid-value")


def test_an_unchanged_resource_returns_304(api, session):
    for path in (session, f"{session}/messages", f"{session}/history"):
        tag = api.get(path).headers["etag"]
        response = api.get(path, headers={"If-None-Match": f'"99999", W/{tag}'})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    api.post(f"{session}/messages", json={"messages": user("x")})
    assert api.get(f"{session}/messages", headers={"If-None-Match": tag}).status_code == 200


def test_pin_delete_and_restore_a_message(api, session):
    api.post(f"{session}/messages", json={"messages": [user("a"), user("b")]})
    one = f"{session}/messages/1.1"
    assert api.put(f"{one}/pin").json()["metadata"] == {"pinned": True}
    assert not (api.delete(f"{one}/pin").json()["metadata"] or {}).get("pinned")
    assert api.delete(one).json()["deleted_at"]
    assert [m["id"] for m in api.get(f"{session}/messages").json()["messages"]] == ["1.2"]
    assert len(api.get(f"{session}/messages", params={"deleted": True}).json()["messages"]) == 2
    assert api.post(f"{one}/restore").json()["deleted_at"] is None


def test_a_client_runs_turns_with_its_own_model(api, session):
    response = api.post(f"{session}/turns", json={"message": "What is it?"}, headers={"Idempotency-Key": "t"})
    assert response.status_code == 201
    turn = response.json()["id"]
    assert (
        api.post(f"{session}/turns", json={"message": "What is it?"}, headers={"Idempotency-Key": "t"}).json()["id"]
        == turn
    )
    assert_problem(api.post(f"{session}/turns", json={"message": "Other"}), 409, "session-busy")
    turn_path = f"{session}/turns/{turn}"
    step = {
        "messages": {"role": "assistant", "content": [{"type": "tool_use", "id": "c/1", "name": "look", "input": {}}]}
    }
    assert api.post(f"{turn_path}/messages", json=step, headers={"Idempotency-Key": "s"}).status_code == 201
    assert api.post(f"{turn_path}/messages", json=step, headers={"Idempotency-Key": "s"}).status_code == 200
    assert api.get(f"{session}/tool-calls").json()["tool_calls"][0]["status"] == "pending"
    assert api.post(f"{session}/tool-calls/c%2F1/start").status_code == 204
    result = {"output": {"found": 3}, "latency_ms": 12}
    assert api.put(f"{session}/tool-calls/c%2F1/result", json=result).status_code == 200
    assert api.put(f"{session}/tool-calls/c%2F1/result", json=result).status_code == 200
    assert_problem(api.put(f"{session}/tool-calls/c%2F1/result", json={"output": 4}), 409, "tool-call-answered")
    assert_problem(api.put(f"{session}/tool-calls/none/result", json={"output": 4}), 404, "tool-call-not-found")
    call = api.get(f"{session}/tool-calls").json()["tool_calls"][0]
    assert (call["status"], call["latency_ms"]) == ("success", 12)
    turn_info = api.post(f"{turn_path}/complete", json={"model": "mine", "input_tokens": 5}).json()
    assert (turn_info["status"], turn_info["model"], turn_info["input_tokens"]) == ("completed", "mine", 5)
    assert_problem(api.post(f"{turn_path}/messages", json={"messages": assistant("late")}), 409, "turn-closed")
    failed = api.post(f"{session}/turns", json={"message": "Again"}).json()["id"]
    assert api.post(f"{session}/turns/{failed}/fail", json={"error": {"why": "x"}}).json()["error"] == {"why": "x"}
    third = api.post(f"{session}/turns", json={"message": "Third"}).json()["id"]
    assert api.post(f"{session}/turns/{third}/cancel").json()["status"] == "cancelled"
    complete_turn = {"message": "Whole", "response": assistant("all of it"), "latency_ms": 3}
    assert api.post(f"{session}/turns/save", json=complete_turn, headers={"Idempotency-Key": "w"}).status_code == 201
    assert api.post(f"{session}/turns/save", json=complete_turn, headers={"Idempotency-Key": "w"}).status_code == 200
    turns = api.get(f"{session}/turns", params={"limit": 3}).json()
    rest = api.get(f"{session}/turns", params={"limit": 3, "after": turns["next"]}).json()
    assert [t["status"] for t in turns["turns"] + rest["turns"]] == ["completed", "failed", "cancelled", "completed"]
    assert rest["next"] is None
    assert_problem(api.post(f"{session}/turns/9.9/complete"), 404, "turn-not-found")


def test_branches_forks_and_erase(api, session):
    api.post(f"{session}/messages", json={"messages": [user("a"), assistant("b"), user("c"), assistant("d")]})
    assert api.post(f"{session}/rewind", json={"to": "1.2"}).json()["message_count"] == 2
    api.post(f"{session}/messages", json={"messages": user("other")})
    branches = api.get(f"{session}/branches").json()["branches"]
    assert [(b["id"], b["current"]) for b in branches] == [(1, False), (2, True)]
    assert len(api.get(f"{session}/messages", params={"branch": 1}).json()["messages"]) == 4
    assert api.post(f"{session}/switch", json={"branch": 1}).json()["message_count"] == 4
    assert_problem(api.post(f"{session}/switch", json={"branch": 9}), 404, "branch-not-found")
    fork = api.post(f"{session}/fork", json={"at": "1.1", "id": "f/1", "title": "Fork"})
    assert (fork.status_code, fork.json()["message_count"], fork.json()["parent"]) == (201, 1, "s/1")
    assert_problem(api.post(f"{session}/erase"), 409, "session-has-forks")
    assert api.post(f"{session}/erase", params={"forks": "keep"}).json() == {"erased": ["s/1"]}
    assert len(api.get("/sessions/f%2F1/messages").json()["messages"]) == 1


def test_create_list_and_undo_a_compaction(api, session):
    messages = [message for number in range(6) for message in (user(f"q{number}"), assistant(f"a{number}"))]
    api.post(f"{session}/messages", json={"messages": messages})
    response = api.post(f"{session}/compactions", json={"summary": "In short.", "keep_turns": 2})
    assert response.status_code == 201, response.text
    assert response.json()["summary"] == "In short."
    by_model = api.post(f"{session}/compactions", json={"keep_turns": 2})
    assert by_model.status_code in (201, 400), by_model.text  # 400 if no messages are left to compact
    undo = api.post(f"{session}/compactions/undo", json={"round": 1})
    assert undo.json()["undone_at"]
    assert len(api.get(f"{session}/compactions").json()["compactions"]) >= 1
    assert_problem(api.post(f"{session}/compactions/undo", json={"round": 7}), 404, "compaction-not-found")
    assert_problem(api.post(f"{session}/compactions", json={"before": "1.2"}), 400, "invalid-value")


def test_the_model_writes_a_missing_summary(api, session):
    for number in range(5):
        turn = {"message": f"q{number}", "response": assistant(f"a{number}")}
        assert api.post(f"{session}/turns/save", json=turn).status_code == 201
    response = api.post(f"{session}/compactions")
    assert (response.status_code, response.json()["summary"]) == (201, "a summary")


def test_an_incomplete_search_reports_the_reason(api, server, session, monkeypatch):
    api.post(f"{session}/messages", json={"messages": [user("The heron waits")]})
    assert api.get("/search", params={"q": "heron"}).json()["hindered"] is None

    def fail(*_):
        raise DiskFull(path="sessions.db")
        yield

    monkeypatch.setattr(index, "index_backlog", fail)
    api.post(f"{session}/messages", json={"messages": [user("An egret came")]})
    results = api.get("/search", params={"q": "egret"}).json()
    assert results["hits"] == []
    assert "sessions.db" in results["hindered"]
    for word in ("egret", "heron"):
        page = api.get(f"{server.url}/page/search", params={"q": word}).text
        assert "The latest messages are not included" in page
        assert "sessions.db" in page


def test_snapshots_settings_search_and_stats(api, session):
    api.post(f"{session}/messages", json={"messages": [user("The heron waits"), assistant("in the reeds")]})
    assert api.post(f"{session}/snapshots", json={"kind": "memory", "content": {"x": 1}}).status_code == 201
    assert api.get(f"{session}/snapshots", params={"kind": "memory"}).json()["snapshots"][0]["content"] == {"x": 1}
    assert_problem(api.post(f"{session}/snapshots", json={"kind": "odd", "content": 1}), 400, "invalid-request")
    assert api.get("/settings/a%2Fb").json() == {"value": None}
    assert api.put("/settings/a%2Fb", json={"value": [1, None]}).status_code == 204
    assert api.get("/settings/a%2Fb").json() == {"value": [1, None]}
    assert api.delete("/settings/a%2Fb").status_code == 204
    hit = api.get("/search", params={"q": "heron"}).json()["hits"][0]
    assert (hit["session"], hit["message"]) == ("s/1", "1.1")
    assert hit["snippet"] == "The <mark>heron</mark> waits"
    assert api.get("/search", params={"q": "heron", "role": ["assistant", "tool"]}).json()["hits"] == []
    assert len(api.get("/search", params={"q": "heron", "role": ["assistant", "user"]}).json()["hits"]) == 1
    assert api.get("/search", params={"q": "heron", "until": "2001-01-01"}).json()["hits"] == []
    assert_problem(api.get("/search", params={"q": "heron", "after": "zzz"}), 400, "invalid-value")
    assert api.get("/stats").json()["messages"] == 2
    assert api.get(f"{session}/stats").json()["messages"] == 2
    assert api.get("/tool-stats", params={"period": "day"}).json() == {"tools": []}
    assert api.get("/space").json()["total"] > 0
    assert {model["name"] for model in api.get("/models").json()["models"]} >= {"words", "demo"}
    assert api.get("/info").json()["engine"] == "sqlite"
    assert "rename" in {item["name"] for item in api.get("/commands").json()["commands"]}


def test_export_and_import_over_http(api, session, start_server, tmp_path):
    api.post(f"{session}/messages", json={"messages": user("secret sk-ant-api03-" + "a1B2" * 20)})
    api.put("/sessions/other")
    export = api.get("/export", params={"format": "jsonl"})
    assert "attachment" in export.headers["content-disposition"]
    assert export.headers["content-security-policy"] == "default-src 'none'; sandbox"
    redacted_export = api.get(f"{session}/export", params={"format": "html", "redact": True})
    assert "a1B2a1B2a1B2" not in redacted_export.text
    assert len(api.get("/export", params={"format": "json", "session": ["s/1", "other"]}).json()["sessions"]) == 2
    assert_problem(api.get("/export", params={"session": "none"}), 404, "session-not-found")
    assert_problem(api.get("/export", params={"format": "exe"}), 400, "invalid-request")
    with start_server(tmp_path / "b.db").client() as other:
        report = other.post("/import", content=export.content)
        assert sorted(report.json()["created"]) == ["other", "s/1"]
        assert other.post("/import", content=iter([export.content[:50], export.content[50:]])).json()["unchanged"]
        assert other.get("/sessions/s%2F1/messages").json()["messages"][0]["role"] == "user"
        assert other.post("/import", content=b"garbage").json()["bad_count"] == 1
