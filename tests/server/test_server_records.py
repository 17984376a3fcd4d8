"""Keyed records over HTTP: values, bytes, revisions, pages, and any character in kinds and keys."""

from __future__ import annotations

import base64
import concurrent.futures

import pytest
from test_server_sessions import assert_problem

from recollect.server.path_segments import encode_path_segment

KEYS = (
    "theme", "a/b", "a%2Fb", "../../etc/passwd", "%", "#?&=;", "\0", "\x01\n\x7f", "\ue000", "\ue0001", "\ue0000", "é/\ue000/",
    "\U0010ffff", "+", " ", ".", "..", "~.", "k" * 1_024,
)  # fmt: skip


@pytest.fixture(params=["", "/sessions/s%2F1"])
def records(request, api, session):
    """Return the path of the records of the store, and of a session."""
    assert session == "/sessions/s%2F1"
    return f"{request.param}/records"


def path_of(records, kind, key):
    return f"{records}/{encode_path_segment(kind)}/{encode_path_segment(key)}"


def test_a_record_is_written_read_and_deleted(api, records):
    path = path_of(records, "kind", "key")
    assert_problem(api.get(path), 404, "not-found")
    first = api.put(path, json={"value": {"a": [1, None]}})
    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    record = first.json()
    assert (record["kind"], record["key"], record["revision"], record["value"]) == ("kind", "key", 1, {"a": [1, None]})
    assert record["session"] == ("s/1" if "sessions" in records else None)
    assert record["created_at"] == record["updated_at"]
    assert api.get(path).json() == record
    assert api.get(path, headers={"If-None-Match": '"1"'}).status_code == 304
    assert api.put(path, json={"value": None}).json()["revision"] == 2
    assert api.get(path).json()["value"] is None
    assert api.get(path, headers={"If-None-Match": '"1"'}).status_code == 200
    assert api.delete(path).json() == {"deleted": True}
    assert api.delete(path).json() == {"deleted": False}
    assert_problem(api.get(path), 404, "not-found")


def test_bytes_are_base64(api, records):
    path, data = path_of(records, "kind", "key"), bytes(range(256))
    record = api.put(path, json={"data": base64.b64encode(data).decode()}).json()
    assert "value" not in record
    assert base64.b64decode(record["data"]) == data
    assert api.get(path).json() == record
    for body in (
        {"data": "?"},
        {"data": 5},
        {},
        {"value": 1, "data": ""},
        {"value": 1, "more": 1},
        {"value": 1, "expected": -1},
    ):
        assert api.put(path, json=body).status_code == 400
    assert api.get(path).json() == record


def test_expected_revisions(api, records):
    path = path_of(records, "kind", "key")
    assert_problem(api.put(path, json={"value": 1, "expected": 1}), 412, "stale-record")
    assert api.put(path, json={"value": 1, "expected": 0}).json()["revision"] == 1
    problem = assert_problem(api.put(path, json={"value": 2, "expected": 0}), 412, "stale-record")
    assert (problem["fields"]["revision"], problem["fields"]["expected"], problem["fields"]["key"]) == (1, 0, "key")
    assert_problem(api.put(path, json={"value": 2}, headers={"If-Match": '"2"'}), 412, "stale-record")
    assert api.put(path, json={"value": 2}, headers={"If-Match": '"1"'}).json()["revision"] == 2
    assert api.put(path, json={"value": 3, "expected": 2}, headers={"If-Match": '"2"'}).json()["revision"] == 3
    different = api.put(path, json={"value": 4, "expected": 3}, headers={"If-Match": '"2"'})
    assert_problem(different, 400, "invalid-value")
    assert_problem(api.put(path, json={"value": 4}, headers={"If-Match": "odd"}), 400, "invalid-value")
    assert_problem(api.delete(path, headers={"If-Match": '"1"'}), 412, "stale-record")
    assert_problem(api.delete(path, params={"expected": 1}), 412, "stale-record")
    assert api.get(path).json()["value"] == 3
    assert api.delete(path, params={"expected": 3}).json() == {"deleted": True}


def test_any_kind_and_key_can_be_used_in_a_path(api, records):
    for number, key in enumerate(KEYS):
        for kind in ("kind", "a/\ue000\0b", ".."):
            path = path_of(records, kind, key)
            record = api.put(path, json={"value": number, "expected": 0}).json()
            assert (record["kind"], record["key"]) == (kind, key)
            assert api.get(path).json() == record
    page = api.get(f"{records}/a%2F%EE%80%80%00b", params={"limit": 1_000}).json()
    assert [record["key"] for record in page["records"]] == sorted(KEYS)
    for key in KEYS:
        assert api.delete(path_of(records, "kind", key)).json() == {"deleted": True}


def test_pages_of_a_kind(api, records):
    for number in range(7):
        api.put(path_of(records, "kind", f"b{number}"), json={"value": number})
    api.put(path_of(records, "kind", "a"), json={"value": "other"})
    keys, after = [], None
    for _ in range(10):
        page = api.get(
            f"{records}/kind", params={"limit": 3, "prefix": "b"} | ({} if after is None else {"after": after})
        )
        keys += [record["key"] for record in page.json()["records"]]
        after = page.json()["next"]
        if after is None:
            break
    assert keys == [f"b{number}" for number in range(7)]
    assert api.get(f"{records}/other").json() == {"records": [], "next": None}
    assert_problem(api.get(f"{records}/kind", params={"limit": 0}), 400, "invalid-request")


def test_reserved_and_invalid_names_are_refused(api, records):
    assert_problem(api.put(path_of(records, "recollect.presence", "x"), json={"value": 1}), 400, "invalid-value")
    assert_problem(api.delete(path_of(records, "recollect.presence", "x")), 400, "invalid-value")
    assert_problem(api.put(path_of(records, "k" * 65, "x"), json={"value": 1}), 400, "invalid-value")
    assert_problem(api.put(path_of(records, "k", "x" * 1_025), json={"value": 1}), 400, "invalid-value")


def test_records_of_a_missing_session(api, session):
    for method, body in (("GET", None), ("PUT", {"value": 1}), ("DELETE", None)):
        assert_problem(api.request(method, "/sessions/none/records/k/x", json=body), 404, "session-not-found")
    api.put(f"{session}/records/k/x", json={"value": 1})
    api.delete(session)
    assert_problem(api.get(f"{session}/records/k/x"), 404, "session-in-trash")
    api.post(f"{session}/restore")
    assert api.get(f"{session}/records/k/x").json()["value"] == 1


def test_clients_that_compare_and_swap_lose_no_update(server, api):
    def increment(_):
        with server.client() as client:
            for _ in range(5):
                while True:
                    answer = client.get("/records/counter/n")
                    value, revision = (
                        (0, 0) if answer.status_code == 404 else (answer.json()["value"], answer.json()["revision"])
                    )
                    answer = client.put("/records/counter/n", json={"value": value + 1, "expected": revision})
                    if answer.status_code == 200:
                        break
                    assert_problem(answer, 412, "stale-record")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(4)))
    assert api.get("/records/counter/n").json()["value"] == 20
