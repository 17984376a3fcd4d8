"""GET /sessions/{session}/messages in pages, and GET .../history with `last`."""

import pytest

import recollect

AT = "/sessions/a/messages"


@pytest.fixture
def path(api):
    api.put("/sessions/a")
    messages = [{"role": "user", "content": f"m{n}", "created_at": f"2025-11-16T10:{n:02d}:00Z"} for n in range(1, 11)]
    api.post(AT, json={"messages": messages})
    return AT


def read(api, **query):
    body = api.get(AT, params=query).raise_for_status().json()
    return [int(message["id"].partition(".")[2]) for message in body["messages"]], body["before"], body["next"]


def test_pages_forward_and_backward(api, path):
    assert read(api, limit=3) == ([8, 9, 10], "1.8", None)
    assert read(api, limit=3, before="1.8") == ([5, 6, 7], "1.5", "1.7")
    assert read(api, limit=3, before="1.3") == ([1, 2], None, "1.2")
    assert read(api, limit=3, after="0") == ([1, 2, 3], None, "1.3")
    assert read(api, limit=3, after="1.3") == ([4, 5, 6], "1.4", "1.6")
    assert read(api, limit=3, after="1.8") == ([9, 10], "1.9", None)
    assert read(api, after="1.10") == ([], None, None)


def test_positions_times_and_ranges(api, path):
    assert read(api, after="7")[0] == [8, 9, 10]
    assert read(api, before="3")[0] == [1, 2]
    assert read(api, after="2025-11-16T10:08:00Z")[0] == [9, 10]
    assert read(api, before="2025-11-16T11:03:00+01:00")[0] == [1, 2]
    assert read(api, after="1.2", before="1.6")[0] == [3, 4, 5]
    assert read(api, after="1.2", before="1.6", limit=2) == ([3, 4], "1.3", "1.4")


def test_pages_of_another_branch(api, path):
    api.post("/sessions/a/rewind", json={"to": "1.4"})
    api.post(AT, json={"messages": [{"role": "user", "content": "other"}] * 3})
    assert read(api, limit=2, branch=2, after="1.4")[0] == [5, 6]
    assert read(api, limit=2, branch=1, before="1.9")[0] == [7, 8]
    assert read(api, limit=2, branch=1)[0] == [1, 2]
    assert api.get(AT, params={"branch": 2, "before": "1.9"}).status_code == 404
    assert api.get(AT, params={"before": "1.9"}).json()["code"] == "message-not-found"


@pytest.mark.parametrize("cursor", ["x", "", "-1", "1.2.3", "2025-13-01", "9" * 5_000, "1e3", "\u0661"])
def test_an_invalid_cursor_is_refused(api, path, cursor):
    for name in ("after", "before"):
        response = api.get(AT, params={name: cursor})
        assert (response.status_code, response.json()["code"]) == (400, "invalid-value")


def test_the_last_messages_of_a_history(api, path):
    api.post(
        AT,
        json={
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ]
        },
    )
    history = api.get("/sessions/a/history", params={"format": "openai", "last": 1}).json()
    assert history["messages"] == [{"role": "tool", "tool_call_id": "c", "content": "r"}]
    assert [(repair["kind"], repair["message"]) for repair in history["repairs"]] == [("split_pair", "1.12")]
    response = api.get("/sessions/a/history", params={"last": 1, "budget": 5})
    assert (response.status_code, response.json()["code"]) == (400, "invalid-value")


def test_an_unknown_format_is_refused(api, path):
    for response in (
        api.get("/sessions/a/history", params={"format": "nobody"}),
        api.post(AT, json={"messages": [{"role": "user", "content": "x"}], "format": "nobody"}),
    ):
        assert (response.status_code, response.json()["code"]) == (400, "unknown-format")
        assert "anthropic" in response.json()["fields"]["known"]


def test_values_that_are_not_json_are_refused_in_the_words_of_the_library(api, path, server):
    with recollect.open(":memory:") as store, pytest.raises(recollect.InvalidValue) as excinfo:
        store.session("a").append({"role": "user", "content": "x", "extra": float("nan")})
    sentence = str(excinfo.value)
    bodies = {
        f"{AT}": '{"messages": {"role": "user", "content": "x", "extra": NaN}}',
        "/sessions/a/turns": '{"message": {"role": "user", "content": "x", "extra": NaN}}',
    }
    for at, body in bodies.items():
        response = api.post(at, content=body, headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["detail"]) == (400, sentence)
    response = api.put(
        "/records/setting/k", content='{"value": [Infinity]}', headers={"Content-Type": "application/json"}
    )
    assert response.json()["detail"] == sentence.replace("message['extra']", "value[0]").replace("got nan", "got inf")
    response = api.patch(
        "/sessions/a", content='{"metadata": {"x": NaN}}', headers={"Content-Type": "application/json"}
    )
    assert response.json()["detail"] == sentence.replace("message['extra']", "metadata['x']")
