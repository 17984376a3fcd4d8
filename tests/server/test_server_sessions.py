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
    use_related_resources(api, name, path)
    assert api.delete(path).status_code == 204


def use_related_resources(api, name, path):
    """Use the resources below a session, and the parameters and bodies that contain its id."""
    assert api.patch(path, json={"title": "T", "labels": ["a label"]}).json()["id"] == name
    assert api.put(f"{path}/records/state/{encode_path_segment(name)}", json={"value": 1}).json()["key"] == name
    assert api.get(f"{path}/records/state/{encode_path_segment(name)}").json()["value"] == 1
    fork = api.post(f"{path}/fork", json={}).json()
    assert (fork["parent"], fork["relation"]) == (name, "fork")
    for params in ({"id_prefix": name}, {"label": "a label", "relation": "fork"}, {"parent": name, "relation": "fork"}):
        ids = {session["id"] for session in api.get("/sessions", params=params).json()["sessions"]}
        assert ids == ({name} if "id_prefix" in params else {fork["id"]}), params
    assert {hit["session"] for hit in api.get("/search", params={"q": "x", "session": name}).json()["hits"]} == {name}
    assert api.put("/last-session", json={"session": name}).status_code < 300
    assert api.get("/last-session").json()["session"]["id"] == name
    missing = api.get(f"{path}/messages/1.999")
    assert_problem(missing, 404, "message-not-found")
    assert missing.json()["fields"]["session"] == name
    assert missing.json()["detail"].isprintable()
    api.delete(f"/sessions/{fork['id']}")


INVALID_PATHS = ["/sessions/%00", "/sessions/%0a", "/sessions/%ff%fe", "/sessions/%zz", "/sessions/" + "y" * 600,
                                  "/sessions/%EE%80%80%0d", "/sessions/s%2F1/messages/1." + "9" * 5000, "/sessions/s%2F1/messages/²",
                                  "/sessions/s%2F1/messages/1.5/files/0", "/records/%00/%00", "/static/..%2f..%2fapp.py", "/static/%5c..%5c", "/nothing"]  # fmt: skip


def test_invalid_paths_are_client_errors(api, session):
    for path in INVALID_PATHS:
        for method in ("GET", "DELETE"):
            answer = api.request(method, path)
            assert 400 <= answer.status_code < 500 or (path.startswith("/records") and method == "DELETE"), (
                path,
                answer.status_code,
            )


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


def test_single_labels_are_added_and_removed(api):
    api.post("/sessions", json={"id": "l", "labels": ["a", "b"]})
    answer = api.patch("/sessions/l", json={"add_labels": ["c"], "remove_labels": ["a"]})
    assert (answer.status_code, answer.json()["labels"]) == (200, ["b", "c"])
    revision = answer.json()["revision"]
    assert api.patch("/sessions/l", json={"add_labels": ["c"]}).json()["revision"] == revision
    update = {"add_labels": ["d"], "remove_labels": ["b"]}
    api.post("/sessions/l/messages", json={"messages": {"role": "user", "content": "x"}, "update": update})
    assert api.get("/sessions/l").json()["labels"] == ["c", "d"]
    for path, method in (("/sessions", api.post), ("/sessions/new", api.put)):
        assert method(path, json={"add_labels": ["x"]}).status_code == 400
    assert api.patch("/sessions/l", json={"labels": ["x"], "add_labels": ["y"]}).status_code == 400


def test_labels_filters_and_reversed_lists(api):
    for number, labels in enumerate((["a"], ["a", "b"], [])):
        fields = {"labels": labels, "external_id": f"e{number}", "metadata": {"n": number, "all": True}}
        answer = api.put(f"/sessions/l:{number}", json=fields)
        assert answer.json()["labels"] == labels
        assert api.post(f"/sessions/l:{number}/messages", json={"messages": user("hello")}).status_code == 201

    def list_ids(**params):
        return [item["id"] for item in api.get("/sessions", params=params).json()["sessions"]]

    def search_ids(**params):
        return sorted(hit["session"] for hit in api.get("/search", params={"q": "hello", **params}).json()["hits"])

    cases = [
        ({"label": "a"}, ["l:0", "l:1"]), ({"label": ["a", "b"]}, ["l:1"]), ({"external_id": "e2"}, ["l:2"]),
        ({"id_prefix": "l:"}, ["l:0", "l:1", "l:2"]), ({"metadata": '{"n": 1, "all": true}'}, ["l:1"]),
        ({"metadata": "{}", "label": "b"}, ["l:1"]), ({"label": "c"}, []),
    ]  # fmt: skip
    for params, expected in cases:
        assert list_ids(**params) == expected[::-1]
        assert list_ids(oldest_first="true", **params) == expected
        assert search_ids(**params) == expected
    for metadata in ("", "x", "[1]", '{"n": [1]}', '{"n": NaN}', "[" * 5000, '{"\\ud800": 1}'):
        for path in ("/sessions", "/search?q=hello"):
            assert_problem(api.get(path, params={"q": "hello", "metadata": metadata}), 400, "invalid-value")
    assert api.patch("/sessions/l:0", json={"labels": ["x", "x", "c"]}).json()["labels"] == ["c", "x"]
    assert api.patch("/sessions/l:0", json={"title": "T"}).json()["labels"] == ["c", "x"]
    assert api.patch("/sessions/l:0", json={"labels": None}).json()["labels"] == []
    assert_problem(api.patch("/sessions/l:0", json={"labels": [" "]}), 400, "invalid-value")


def test_parents_and_relations(api):
    for name in ("main", "late"):
        assert api.put(f"/sessions/{name}").status_code == 200
    created = api.post("/sessions", json={"id": "branch", "parent": "main", "relation": "fork"}).json()
    assert (created["parent"], created["relation"]) == ("main", "fork")
    changed = api.patch("/sessions/late", json={"parent": "main"}).json()
    assert (changed["parent"], changed["relation"]) == ("main", "delegate")

    def list_ids(**params):
        return [item["id"] for item in api.get("/sessions", params=params).json()["sessions"]]

    assert list_ids(relation="delegate") == list_ids(parent="main", delegates="true") == ["late"]
    assert list_ids(relation="fork") == list_ids(parent="main") == ["branch"]
    assert list_ids(parent="nobody") == []
    assert_problem(api.patch("/sessions/main", json={"parent": "late"}), 400, "invalid-value")
    assert_problem(api.patch("/sessions/main", json={"parent": "nobody"}), 404, "session-not-found")
    assert_problem(api.post("/sessions/late/fork", json={"parent": "main"}), 400, "invalid-value")
    assert api.patch("/sessions/late", json={"parent": None}).json()["relation"] is None


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
    assert_problem(api.get(f"{session}/history", params={"format": "other"}), 400, "unknown-format")
    assert_problem(api.post(path, json={"messages": []}), 400, "invalid-value")
    assert_problem(
        api.post(path, json={"messages": {"role": "user", "content": "x"}, "format": "odd"}), 400, "unknown-format"
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
        ("POST", "/switch", {"branch": 1}), ("POST", "/fork", {"at": None}), ("POST", "/restore", None),
        ("POST", "/erase", None), ("DELETE", "/messages/1.1", None), ("POST", "/messages/1.1/restore", None),
        ("POST", "/messages", {"messages": [], "after": "0", "update": {"title": "x"}}),
    ):  # fmt: skip
        assert api.request(method, session + path, json=body, headers=stale).status_code == 412, path
    assert api.patch(session, json={"title": "y"}, headers={"If-Match": "*"}).status_code == 200
    assert_problem(api.patch(session, json={"title": "y"}, headers={"If-Match": "soon"}), 400, "invalid-value")


def test_append_after_a_message_with_changed_fields(api, session):
    path = f"{session}/messages"
    api.post(path, json={"messages": [user("a"), assistant("b"), user("c")]})
    tag = api.get(session).headers["etag"]
    body = {"messages": [user("x"), assistant("y")], "after": "1.1", "update": {"title": "T", "pinned": True}}
    response = api.post(path, json=body, headers={"If-Match": tag, "Idempotency-Key": "k"})
    assert (response.status_code, response.json()["ids"]) == (201, ["2.2", "2.3"])
    info = api.get(session)
    assert response.headers["etag"] == info.headers["etag"] == f'"{int(tag[1:-1]) + 1}"'
    assert (info.json()["title"], info.json()["message_count"], info.json()["branch"]) == ("T", 3, 2)
    repetition = api.post(path, json=body, headers={"If-Match": tag, "Idempotency-Key": "k"})
    assert (repetition.status_code, repetition.json()["ids"]) == (200, ["2.2", "2.3"])
    assert_problem(api.post(path, json={**body, "after": "0"}, headers={"Idempotency-Key": "k"}), 409, "key-reused")
    assert_problem(api.post(path, json=body, headers={"If-Match": tag}), 412, "stale-revision")
    assert [item["id"] for item in api.get(path).json()["messages"]] == ["1.1", "2.2", "2.3"]
    assert api.post(path, json={"messages": [], "after": "0"}).json()["ids"] == []
    assert api.get(path).json()["messages"] == []
    assert api.post(path, json={"messages": [], "update": {"title": None}}).status_code == 201
    assert api.get(session).json()["title"] is None
    for invalid, status in (
        ({"messages": []}, 400), ({"messages": user("x"), "after": "1"}, 400), ({"messages": user("x"), "after": 0}, 400),
        ({"messages": user("x"), "after": ""}, 400), ({"messages": user("x"), "after": "9.9"}, 404),
        ({"messages": user("x"), "update": {"nope": 1}}, 400), ({"messages": user("x"), "update": {"parent": "b"}}, 400),
        ({"messages": user("x"), "update": []}, 400), ({"messages": 5, "after": "0"}, 400), ({"after": "0"}, 400),
    ):  # fmt: skip
        assert api.post(path, json=invalid).status_code == status, invalid
    assert api.get(path).json()["messages"] == []
    turn = api.post(f"{session}/turns", json={"message": "q"}).json()["id"]
    with_place = {"messages": user("x"), "after": "0"}  # a step of a turn has no place of its own
    assert api.post(f"{session}/turns/{turn}/messages", json=with_place).status_code == 400


def test_one_of_many_changes_at_a_revision_succeeds(api, session):
    changes = (
        ("POST", "/rewind", {"to": "1.1"}), ("DELETE", "/messages/1.2", None), ("DELETE", "", None),
        ("POST", "/messages", {"messages": user("x"), "after": "0"}), ("PATCH", "", {"title": "t"}),
    )  # fmt: skip
    api.post(f"{session}/messages", json={"messages": [user("a"), assistant("b"), user("c")]})
    for _ in range(4):
        tag = {"If-Match": api.get(session).headers["etag"]}
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            answers = list(
                pool.map(
                    lambda change, tag=tag: api.request(change[0], session + change[1], json=change[2], headers=tag),
                    changes * 2,
                )
            )
        assert sum(answer.is_success for answer in answers) == 1, [answer.text for answer in answers]
        assert {answer.status_code for answer in answers if not answer.is_success} <= {404, 412}
        api.post(f"{session}/restore")
        api.post(f"{session}/rewind", json={"to": "1.3"})
        api.post(f"{session}/messages/1.2/restore")


def test_the_revision_of_a_session_in_the_trash(api, session):
    api.delete(session)
    (in_trash,) = api.get("/trash").json()["sessions"]
    tag, stale = ({"If-Match": f'"{in_trash["revision"] - step}"'} for step in (0, 1))
    assert_problem(api.post(f"{session}/restore", headers=stale), 412, "stale-revision")
    assert_problem(api.post(f"{session}/erase", params={"deleted": True}, headers=stale), 412, "stale-revision")
    assert api.post(f"{session}/restore", headers=tag).json()["revision"] == in_trash["revision"] + 1
    assert_problem(api.post(f"{session}/erase", headers=tag), 412, "stale-revision")
    tag = {"If-Match": api.get(session).headers["etag"]}
    assert api.post(f"{session}/erase", headers=tag).json() == {"erased": ["s/1"]}


def test_a_session_with_a_running_turn_is_deleted_at_a_revision(api, server, session):
    """Stopping the turn changes the revision, so it is checked before."""
    for method, path in (("DELETE", ""), ("POST", "/erase")):
        server.model.gate.clear()
        api.post(f"{session}/chat", json={"text": "5 words"})
        assert api.get(session).json()["running"]
        stale = {"If-Match": '"0"'}
        assert_problem(api.request(method, session + path, headers=stale), 412, "stale-revision")
        assert api.get(session).json()["running"]
        while True:  # the turn may write between the two requests
            tag = {"If-Match": api.get(session).headers["etag"]}
            if (answer := api.request(method, session + path, headers=tag)).status_code != 412:
                break
        assert answer.is_success, answer.text
        server.model.gate.set()
        assert api.get(session).status_code == 404
        api.put(session)


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


def test_replace_and_mark_a_message(api, session):
    message = {"role": "user", "parts": [{"kind": "text", "text": "secret"}], "key": "k/1"}
    response = api.post(f"{session}/messages", json={"messages": [message, user("b")]})
    assert response.json()["ids"] == ["1.1", "1.2"]
    assert api.post(f"{session}/messages", json={"messages": [message]}).status_code == 200
    one = f"{session}/messages/1.1"
    tag = api.get(session).headers["etag"]
    message = api.put(one, json={"message": assistant("public"), "erase": True}, headers={"If-Match": tag}).json()
    assert (message["parts"][0]["text"], message["role"], message["key"]) == ("public", "assistant", "k/1")
    assert message["edited_at"].endswith("Z")
    assert_problem(api.put(one, json={"message": user("x")}, headers={"If-Match": tag}), 412, "stale-revision")
    response = api.patch(one, json={"metadata": {"seen": True, "pinned": True}})
    assert (response.json()["metadata"], response.json()["edited_at"]) == (
        {"seen": True, "pinned": True}, message["edited_at"],
    )  # fmt: skip
    assert response.headers["etag"] != tag
    assert api.patch(one, json={"metadata": {"pinned": None}}).json()["metadata"] == {"seen": True}
    assert_problem(api.patch(one, json={"metadata": {}}, headers={"If-Match": tag}), 412, "stale-revision")
    for body in ({}, {"metadata": 5}, {"metadata": None}, {"metadata": {}, "other": 1}):
        assert api.patch(one, json=body).status_code == 400
    for body in ({}, {"message": []}, {"message": [user("a"), user("b")]}, {"message": user("x"), "erase": "yes"}):
        assert api.put(one, json=body).status_code == 400
    assert_problem(api.put(f"{session}/messages/1.9", json={"message": user("x")}), 404, "message-not-found")
    assert_problem(api.post(f"{session}/messages", json={"messages": [{**message, "key": ""}]}), 400, "invalid-value")
    api.delete(one)
    other = {"role": "user", "content": "other", "key": "k/1"}
    assert api.post(f"{session}/messages", json={"messages": other, "format": "recollect"}).status_code == 201
    assert_problem(api.post(f"{one}/restore"), 409, "key-reused")


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
    assert api.get("/search", params={"q": "heron"}).json()["index_error"] is None

    def fail(*_):
        raise DiskFull(path="sessions.db")
        yield

    monkeypatch.setattr(index, "index_backlog", fail)
    api.post(f"{session}/messages", json={"messages": [user("An egret came")]})
    results = api.get("/search", params={"q": "egret"}).json()
    assert results["hits"] == []
    assert "sessions.db" in results["index_error"]
    for word in ("egret", "heron"):
        page = api.get(f"{server.url}/page/search", params={"q": word}).text
        assert "The latest messages are not included" in page
        assert "sessions.db" in page


def test_snapshots_search_and_stats(api, session):
    api.post(f"{session}/messages", json={"messages": [user("The heron waits"), assistant("in the reeds")]})
    assert api.post(f"{session}/snapshots", json={"kind": "memory", "content": {"x": 1}}).status_code == 201
    assert api.get(f"{session}/snapshots", params={"kind": "memory"}).json()["snapshots"][0]["content"] == {"x": 1}
    assert_problem(api.post(f"{session}/snapshots", json={"kind": "odd", "content": 1}), 400, "invalid-request")
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
