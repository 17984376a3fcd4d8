"""Labels and parents in exports, imports and copies, in documents, and in redacted files."""

from __future__ import annotations

import json

import pytest
from random_stores import export_bytes, import_bytes

import recollect
from recollect_conformance.examples import user

LABELS = ("ünï code", "a,b", "💥", '["x"]')


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        session = store.session("a", labels=LABELS)
        session.append(user("hello"))
        session.fork(id="fork").update(labels=["b"])
        store.session("none").append(user("hello"))
        yield store


@pytest.fixture
def target():
    with recollect.open(":memory:") as store:
        yield store


def labels_of(store):
    return {session.id: session.labels for session in store.list_sessions(archived=None, delegates=None)}


def with_fields(text, session, **fields):
    """Return an export with other fields of one session record."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        if line["type"] == "session" and line["id"] == session:
            line.update(fields)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.mark.parametrize("format", ["jsonl", "json"])
def test_an_import_restores_labels(store, target, format):
    text = export_bytes(store, format=format)
    _, report = import_bytes(text, target)
    assert (report.bad, report.conflicts) == ([], [])
    assert labels_of(target) == {"a": tuple(sorted(LABELS)), "fork": ("b",), "none": ()}
    assert [session.id for session in target.list_sessions(label="💥")] == ["a"]
    assert [hit.session for hit in target.search('hello label:"a,b"')] == ["a"]
    assert target.maintenance.check(file=False).problems == ()
    assert export_bytes(target, format=format) == text
    assert text.count(b'"labels"') == 2  # a session without labels has no such field


def test_a_later_import_replaces_labels(store, target):
    import_bytes(export_bytes(store), target)
    store.session("a").update(labels=["new"])
    store.session("fork").update(labels=None, title="T")
    _, report = import_bytes(export_bytes(store), target)
    assert sorted(report.updated) == ["a", "fork"]
    assert labels_of(target) == {"a": ("new",), "fork": (), "none": ()}
    assert [session.id for session in target.list_sessions(label=["b"])] == []
    assert target.maintenance.check(file=False).problems == ()
    target.session("a").update(labels=["mine"])
    import_bytes(export_bytes(store), target)
    assert labels_of(target)["a"] == ("mine",)


@pytest.mark.parametrize("labels", ["x", 5, {"a": 1}, [""], [" a"], ["a\0"], ["a\nb"], [5], ["x" * 201], ["\ud800"]])
def test_invalid_labels_of_a_file_are_refused(store, target, labels):
    _, report = import_bytes(with_fields(export_bytes(store, ["none"]), "none", labels=labels), target)
    assert report.bad[0].line == 2
    assert labels_of(target) == {}


def test_labels_of_a_file_are_sorted_and_without_duplicates(store, target):
    text = with_fields(export_bytes(store, ["none"]), "none", labels=["b", "a", "b"])
    import_bytes(text, target)
    assert labels_of(target) == {"none": ("a", "b")}


def test_too_many_labels_of_a_file_are_refused(store, target):
    text = with_fields(export_bytes(store, ["none"]), "none", labels=[f"l{number}" for number in range(101)])
    _, report = import_bytes(text, target)
    assert "at most 100 labels" in report.bad[0].reason


def test_a_copy_has_the_labels_of_every_session_and_of_the_trash(tmp_path):
    source, copy = tmp_path / "a.db", tmp_path / "b.db"
    with recollect.open(source) as store:
        store.session("a", labels=LABELS)
        store.session("trash", labels=["gone"])
        store.delete_session("trash")
    assert recollect.copy(source, copy).complete
    with recollect.open(copy) as store:
        assert labels_of(store) == {"a": tuple(sorted(LABELS))}
        assert [session.id for session in store.list_sessions(label="💥")] == ["a"]
        assert store.restore_session("trash").labels == ("gone",)
        assert [session.id for session in store.list_sessions(label="gone")] == ["trash"]
        assert store.maintenance.check().problems == ()
        store.session("a").update(add_labels=["more"])
    differences = recollect.copy(source, copy).differences
    assert [(difference.kind, difference.name) for difference in differences][:1] == [("session", "a")]


def test_a_backup_has_the_labels(tmp_path):
    with recollect.open(tmp_path / "a.db") as store:
        store.session("a", labels=LABELS)
        store.maintenance.backup(tmp_path / "b.db")
    with recollect.open(tmp_path / "b.db") as store:
        assert [session.labels for session in store.list_sessions(label="💥")] == [tuple(sorted(LABELS))]


def test_documents_show_labels_escaped(store):
    store.session("a").update(labels=["<b>bold</b>", "*x*"])
    page, text = export_bytes(store, ["a"], "html").decode(), export_bytes(store, ["a"], "md").decode()
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
    assert "- Labels: " in text
    assert "<b>bold" not in text
    assert "*x*" not in text.replace("\\*x\\*", "")
    assert "Labels" not in export_bytes(store, ["none"], "md").decode()


def test_secrets_in_labels_are_masked(store, target):
    token = "ghp_" + "a1B2" * 10
    store.session("none").update(labels=[f"key {token}", "plain"])
    text = export_bytes(store, ["none"], redact=True)
    assert token.encode() not in text
    import_bytes(text, target)
    assert labels_of(target) == {"none": ("key [redacted:github-token]", "plain")}


def test_a_file_does_not_make_a_session_its_own_ancestor(store, target):
    text = with_fields(export_bytes(store, ["none", "a"]), "none", parent="a", relation="delegate")
    text = with_fields(text, "a", parent="none", relation="delegate")
    import_bytes(text, target)
    parents = {session.id: session.parent for session in target.list_sessions(delegates=None)}
    assert sorted(map(str, parents.values())) in (["None", "a"], ["None", "none"])
    assert target.maintenance.check(file=False).problems == ()


def test_a_file_keeps_a_parent_that_was_set_later(store, target):
    store.session("a").update(parent="none", relation="fork")
    text = export_bytes(store)
    import_bytes(text, target)
    session = target.get_session("a")
    assert (session.parent, session.relation) == ("none", "fork")
    assert export_bytes(target) == text
