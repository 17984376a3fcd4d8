"""Keys, edits and versions in an export, and what an import does with them."""

from __future__ import annotations

import json

import pytest
from random_stores import PAYLOAD, export_bytes, import_bytes

import recollect
from recollect import Draft, TextPart
from recollect_conformance.examples import assistant, texts, tool_call_message, user


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield store


@pytest.fixture
def target():
    with recollect.open(":memory:") as store:
        yield store
        assert store.maintenance.check().problems == ()


def key_message(text, key):
    return Draft(role="user", parts=(TextPart(text=text),), key=key)


def versions(session, position):
    return [message.text for message in session.message_versions(position)]


def records(data):
    return [json.loads(line) for line in data.splitlines()]


def to_bytes(records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def set_content(data, id, **fields):
    """Change fields of a message in an export, and raise the revision of its session."""
    changed = records(data)
    for record in changed:
        if record["type"] == "session":
            record["revision"] += 10
        if record["type"] == "message" and record["id"] == id:
            record.update(fields)
    return to_bytes(changed)


def test_a_round_trip_keeps_keys_and_versions(store, target):
    session = store.session("a")
    session.append([key_message("one", "k\0\x10é"), user("two")])
    session.replace_message(1, {"role": "user", "parts": [{"kind": "attachment", "data": PAYLOAD}]})
    session.replace_message(1, user("three"))
    session.mark_message(2, {"seen": [1]})
    data = export_bytes(store)
    import_bytes(data, target)
    session_copy = target.get_session("a")
    assert session_copy.messages() == session.messages()
    assert session_copy.message_versions(1) == session.message_versions(1)
    assert session_copy.message(key="k\0\x10é").id == "1.1"
    assert session_copy.append(key_message("anything", "k\0\x10é")).repeated
    assert export_bytes(target) == data
    target.erase_session("a")


def test_a_file_without_deleted_messages_has_no_replaced_content(store, target):
    session = store.session("a")
    session.append([user("SECRET"), user("x")])
    session.replace_message(1, user("fine"))
    data = export_bytes(store, deleted=False)
    assert b"SECRET" not in data
    assert b"message_version" not in data
    import_bytes(data, target)
    assert texts(target.get_session("a")) == ["fine", "x"]
    for format in ("md", "html"):
        assert b"SECRET" not in export_bytes(store, None, format, deleted=True)


def test_secrets_in_versions_are_masked(store):
    session = store.session("a")
    session.append(user("token ghp_" + "a1B2" * 9))
    session.replace_message(1, user("gone"))
    assert b"a1B2a1B2" in export_bytes(store)
    assert b"a1B2a1B2" not in export_bytes(store, redact=True)


def test_an_older_export_does_not_undo_an_edit(store):
    session = store.session("a")
    session.append([user("one"), user("two")])
    before = export_bytes(store)
    session.replace_message(1, user("ONE"))
    session.mark_message(2, {"a": 1})
    after = export_bytes(store)
    _, report = import_bytes(before, store)
    assert (report.unchanged, report.conflicts) == (["a"], [])
    assert export_bytes(store) == after
    session.replace_message(1, user("erased"), erase=True)
    for data in (before, after):
        _, report = import_bytes(data, store)
        assert (report.unchanged, report.conflicts) == (["a"], [])
    assert (session.message(1).text, versions(session, 1)) == ("erased", [])
    assert b'"one"' not in export_bytes(store)


def test_a_newer_export_brings_edits_and_marks(store, target):
    session = store.session("a")
    session.append([user("one"), user("two"), user("three")])
    import_bytes(export_bytes(store), target)
    session.replace_message(1, user("ONE"))
    session.replace_message(1, {"role": "system", "content": "First"})
    session.mark_message(2, {"pinned": True})
    session.delete_messages([3])
    data = export_bytes(store)
    _, report = import_bytes(data, target)
    assert (report.updated, report.conflicts) == (["a"], [])
    session_copy = target.get_session("a")
    assert session_copy.messages(deleted=True) == session.messages(deleted=True)
    assert versions(session_copy, 1) == ["one", "ONE"]
    assert session_copy.history("openai", limit=1) == session.history("openai", limit=1)
    assert [hit.message for hit in target.search("first")] == ["1.1"]
    assert export_bytes(target) == data
    session.mark_message(2, {"pinned": None})
    session.restore_messages([3])
    import_bytes(export_bytes(store), target)
    assert session_copy.refresh().messages() == session.messages()


def test_an_edit_of_calls_and_attachments_is_imported(store, target):
    session = store.session("a")
    call = {"role": "assistant", "parts": [{"kind": "tool_call", "call_id": "c", "tool": "read"}]}
    session.append([call, {"role": "tool", "parts": [{"kind": "tool_result", "call_id": "c", "text": "x"}]}])
    import_bytes(export_bytes(store), target)
    target.maintenance.index()
    parts = [{"kind": "text", "text": "Let me see."}, {"kind": "tool_call", "call_id": "c", "tool": "look"}]
    session.replace_message(1, {"role": "assistant", "parts": parts})
    session.replace_message(2, {"role": "tool", "parts": [
        {"kind": "attachment", "data": PAYLOAD}, {"kind": "tool_result", "call_id": "c", "text": "y" * 70_000}
    ]})  # fmt: skip
    import_bytes(export_bytes(store), target)
    assert target.get_session("a").tools.list() == session.tools.list()
    assert target.get_session("a").messages() == session.messages()
    assert [hit.message for hit in target.search("look")] == ["1.1"]


def test_an_import_keeps_what_the_other_store_erased(store, target):
    session = store.session("a")
    session.append(user("secret"))
    import_bytes(export_bytes(store), target)
    session.replace_message(1, user("redacted"), erase=True)
    import_bytes(export_bytes(store), target)
    session_copy = target.get_session("a")
    assert (session_copy.message(1).text, versions(session_copy, 1)) == ("redacted", ["secret"])
    session_copy.replace_message(1, user("redacted"), erase=True)
    assert versions(session_copy, 1) == []


def test_edits_on_both_sides_are_a_conflict(store, target):
    session = store.session("a")
    session.append([user("one"), user("two")])
    import_bytes(export_bytes(store), target)
    target.get_session("a").replace_message(1, user("theirs"))
    target.get_session("a").update(title="x")
    target.get_session("a").update(title="y")
    session.replace_message(1, user("mine"))
    _, report = import_bytes(export_bytes(store), target)
    assert [conflict.id for conflict in report.conflicts] == ["a"]
    assert texts(target.get_session("a")) == ["theirs", "two"]


def test_an_edit_in_a_file_with_a_lower_revision_is_refused(store, target):
    session = store.session("a")
    session.append(user("one"))
    import_bytes(export_bytes(store), target)
    target.get_session("a").update(title="later")
    changed = records(export_bytes(store))
    changed[3].update(parts=[{"kind": "text", "text": "forged"}], edited_at=10**13)
    _, report = import_bytes(to_bytes(changed), target)
    assert [conflict.id for conflict in report.conflicts] == ["a"]
    assert texts(target.get_session("a")) == ["one"]


def test_content_that_differs_without_an_edit_is_refused(store, target):
    session = store.session("a")
    session.append(user("one"))
    data = export_bytes(store)
    import_bytes(data, target)
    file = set_content(data, "1.1", parts=[{"kind": "text", "text": "forged"}])
    _, report = import_bytes(file, target)
    assert [conflict.id for conflict in report.conflicts] == ["a"]
    assert texts(target.get_session("a")) == ["one"]
    file = set_content(data, "1.1", parts=[{"kind": "text", "text": "edited"}], edited_at="2100-01-01T00:00:00Z")
    _, report = import_bytes(file, target)
    session_copy = target.get_session("a")
    assert (texts(session_copy), versions(session_copy, 1)) == (["edited"], ["one"])  # nothing is lost


def test_an_old_export_without_keys_and_edits(store, target):
    session = store.session("a")
    session.append([key_message("one", "k"), user("two")])
    data = export_bytes(store)
    old = [{name: value for name, value in record.items() if name != "key"} for record in records(data)]
    _, report = import_bytes(to_bytes(old), target)
    assert report.bad == []
    assert target.get_session("a").message(1).key is None
    _, report = import_bytes(to_bytes(old), store)
    assert (report.unchanged, session.message(1).key) == (["a"], "k")


def test_an_old_export_with_the_former_spelling_of_cancelled(store, target):
    session = store.session("a")
    session.append(tool_call_message("c", "d"))
    session.tools.record_result("c", {"status": "canceled", "text": '"status":"canceled"'}, status="cancelled")
    session.append([user('{"kind":"tool_result","status":"canceled"}')])
    old = []
    for record in records(export_bytes(store)):
        if record["type"] == "tool_call" and record["status"] == "cancelled":
            record["status"] = "canceled"
        for part in record.get("parts", ()) if record["type"] == "message" else ():
            if part["kind"] == "tool_result":
                part["status"] = "canceled"
        old.append(record)
    _, report = import_bytes(to_bytes(old), target)
    assert report.bad == []
    session_copy = target.get_session("a")
    assert [message.parts for message in session_copy.messages()] == [message.parts for message in session.messages()]
    assert [call.status for call in session_copy.tools.list()] == [call.status for call in session.tools.list()]
    assert export_bytes(target) == export_bytes(store)
    _, report = import_bytes(to_bytes(old), store)
    assert report.unchanged == ["a"]


def test_a_file_with_a_key_twice_on_a_path(store):
    session = store.session("a")
    session.append([key_message("one", "k"), user("two"), key_message("three", "k3")])
    session.rewind(1)
    session.append([key_message("other", "k2")])
    data = export_bytes(store)
    _, report = import_bytes(set_content(data, "1.2", key="k"))
    assert [line.reason for line in report.bad] == ["Message 1.2 has the key of message 1.1 on the same path."]
    _, report = import_bytes(set_content(data, "2.2", key="k"))
    assert [line.reason for line in report.bad] == ["Message 2.2 has the key of message 1.1 on the same path."]
    other, report = import_bytes(set_content(data, "2.2", key="k3"))  # another path
    assert report.bad == []
    assert other.maintenance.check().problems == ()
    deleted = set_content(data, "1.2", key="k", deleted_at="2025-01-01T00:00:00Z")
    other, report = import_bytes(deleted)
    assert report.bad == []
    assert other.maintenance.check().problems == ()


def test_a_key_of_another_message_in_the_store(store, target):
    session = store.session("a")
    session.append([key_message("one", "k")])
    session.delete_messages([1])
    import_bytes(export_bytes(store), target)
    target.get_session("a").fork(id="f").append(key_message("fork", "k"))
    session.restore_messages([1])
    _, report = import_bytes(export_bytes(store), target)
    assert "would have the same key" in report.conflicts[0].reason
    assert texts(target.get_session("f")) == ["fork"]


@pytest.mark.parametrize(
    "fields",
    [
        {"key": ""}, {"key": "x" * 1025}, {"key": 5}, {"key": "\ud800"}, {"edited_at": "yesterday"}, {"edited_at": -1},
    ],
)  # fmt: skip
def test_invalid_keys_and_times_are_bad_lines(store, fields):
    store.session("a").append([key_message("one", "k"), user("two")])
    _, report = import_bytes(set_content(export_bytes(store), "1.2", **fields))
    assert len(report.bad) == 1


def test_hostile_versions(store, target):
    session = store.session("a")
    session.append([user("one"), user("two")])
    session.replace_message(1, {"role": "user", "parts": [{"kind": "attachment", "data": PAYLOAD}]})
    session.replace_message(1, user("last"))
    lines = records(export_bytes(store))
    (version,) = (line for line in lines if line["type"] == "message_version" and line["version"] == 2)
    end = len(lines)
    bad = [
        {**version, "message": "1.2"}, {**version, "message": "1.9"}, {**version, "message": "x"},
        {**version, "message": "9.1"}, {**version, "version": 0}, {**version, "version": "1"},
        {**version, "role": "nobody"}, {**version, "parts": 5}, {**version, "replaced_at": None},
        {**version, "blobs": ["f" * 64], "parts": [{"kind": "text", "text": {"$blob": "f" * 64, "as": "text"}}]},
        {**version, "session": "other"}, {**version, "metadata": [1]},
    ]  # fmt: skip
    position = lines.index(version) + 1
    data = to_bytes([*lines[:position], *[version] * 3, *bad, *lines[position:], version])
    _, report = import_bytes(data, target)
    assert len(report.bad) == len(bad) + 1, report.bad
    assert texts(target.get_session("a")) == ["last", "two"]
    assert len(target.get_session("a").message_versions(1)) == 2
    assert end == len(lines)


def test_a_message_with_very_many_versions_is_imported_with_its_versions(store, target):
    session = store.session("a")
    session.append([user(f"{number}") for number in range(300)])
    for number in range(40):
        session.replace_message(256, assistant(f"{number} " + "x" * 40_000))
    import_bytes(export_bytes(store), target)
    assert len(target.get_session("a").message_versions(256)) == 40
    assert export_bytes(target) == export_bytes(store)


def test_a_plain_chat_with_keys(store):
    chat = [
        {"role": "user", "parts": [{"kind": "text", "text": f"{key}"}], "key": key} for key in ("a", "b", "a", "", 5)
    ]
    data = json.dumps(chat).encode()
    _, report = import_bytes(data, store)
    assert len(report.bad) == 3
    (session,) = store.list_sessions()
    assert [message.key for message in session.messages()] == ["a", "b"]
    _, report = import_bytes(data, store)
    assert (report.messages, report.unchanged) == (0, [session.id])
    assert store.message(key="b")[1].text == "b"
