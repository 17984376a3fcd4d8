"""recollect.copy() of files: an interruption after any batch, and what an export omits."""

from __future__ import annotations

import json

import pytest

import recollect
from recollect import export
from recollect.storage import records, row_stream
from recollect.storage.copy_writer import JOURNAL_KEY
from recollect.storage.operation import Operation
from recollect.storage.records import COPY_KIND
from recollect_conformance.database import read_contents
from recollect_conformance.examples import user
from recollect_conformance.session_ids import SESSION_IDS


class Interrupted(Exception):
    """Raised by the progress callback, in place of a kill."""


def fill(path):
    with recollect.open(path) as store:
        session = store.session("long", title="Long")
        session.append([user(f"message {number}") for number in range(1500)], key="first")
        session.compact(before=session.messages()[9].id, summary="so far")
        session.snapshots.add("memory", "likes files")
        for position in range(3, 1500, 7):
            session.replace_message(position, user(f"changed {position}"))
            session.replace_message(position, user(f"changed again {position}"))
        session.append([recollect.Draft(role="user", parts=(), key=f"key {number}") for number in range(300)])
        session.fork(id="fork").append([user("elsewhere") for _ in range(600)], key="second")
        for number in range(40):
            store.session(f"short:{number}", parent="long" if number % 2 else None).append(user("hello"), key="k")
        store.delete_session("short:1")
        store.session("short:1").append(user("again"))
        store.session("open").turn("still open")
        store.session("erased parent")
        store.session("delegate", parent="erased parent")
        store.erase_session("erased parent")
        store.records.put("setting", "theme", "dark")
        many_keys = store.session("many keys")
        for number in range(60):
            many_keys.append(user("once"), key=f"key {number}")
            many_keys.records.put("state", f"record {number}", number)
            store.records.put("state", f"record {number}", number)


MESSAGES = 1800 + 600 + 41 + 1 + 60  # what fill() writes


def read_journal(store):
    journal = store.records.get(COPY_KIND, JOURNAL_KEY)
    assert journal is not None
    return journal.value


def copy_until(source, target, count):
    """Copy until the progress was called `count` times; return the report, or None if the copy was interrupted."""
    calls = 0

    def progress(done, total):
        nonlocal calls
        calls += 1
        if calls == count:
            raise Interrupted

    try:
        return recollect.copy(source, target, progress=progress)
    except Interrupted:
        return None


def test_a_copy_resumes_after_any_page(tmp_path, monkeypatch):
    monkeypatch.setattr(row_stream, "PAGE_ROWS", 25)  # so that pages end in each kind of list
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    stages: set[tuple[str, str]] = set()
    journal: dict = {}
    while journal.get("stage") != "end":
        assert copy_until(source, target, 2) is None  # the first call is for the rows of earlier runs
        with recollect.open(target) as store:
            before, journal = journal, read_journal(store)["position"]
            assert journal != before
        stages.add((journal["stage"], journal.get("part", [""])[0]))
    assert stages >= {
        ("trees", "branch"), ("trees", "session"), ("trees", "session records"), ("parents", ""), ("records", ""),
        ("end", ""),
    }  # fmt: skip
    report = recollect.copy(source, target)
    assert report.complete
    assert report.counts["messages"] == MESSAGES
    assert report.counts["versions"] == 2 * 214
    assert report.counts["keys"] == 2 + 40 + 60
    assert report.counts["records"] == 60 + 60 + 1
    with recollect.open(source) as a, recollect.open(target) as b:
        assert b.maintenance.check().problems == ()
        assert read_contents(b)["sessions"].keys() == read_contents(a)["sessions"].keys()
        assert b.find_session("delegate").relation == "delegate"
        assert b"".join(export.chunks(a, None, "jsonl")) == b"".join(export.chunks(b, None, "jsonl"))


def test_the_journal_counts_each_row_once(tmp_path):
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    for _ in range(3):
        copy_until(source, target, 3)
    assert recollect.copy(source, target).complete
    with recollect.open(target) as store:
        journal = read_journal(store)
        assert journal["count"] == MESSAGES
        assert journal["position"] == {"stage": "end"}


def test_a_page_has_rows_of_many_sessions(tmp_path, monkeypatch):
    source = tmp_path / "a.db"
    with recollect.open(source) as store:
        for number in range(120):
            store.session(f"short:{number}").append([user("hello"), user("again")], key="k")
    counts = {True: 0, False: 0}
    run = recollect.Store._run

    def count_run(self, op):
        counts[op.writes] += 1
        return run(self, op)

    monkeypatch.setattr(recollect.Store, "_run", count_run)
    assert recollect.copy(source, tmp_path / "b.db").complete
    # 120 sessions are 6 parts or rows each: 2 pages, which are read for the copy and twice for the comparison.
    assert counts[True] == 1 + 2
    assert counts[False] <= 3 * 2 + 3


def test_the_journal_of_another_version_is_refused(tmp_path):
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    assert copy_until(source, target, 2) is None
    with recollect.open(target) as store:
        path = read_journal(store)["source"]
    cursor = {"stage": "trees", "tree": 1, "part": "branch", "place": 1, "low": 512}
    for fields in (
        {"cursor": cursor, "tree": 1, "messages": 512},
        {"cursor": {"stage": "end"}, "tree": 3, "messages": MESSAGES, "whole": True},
        {"tree": "x"},
    ):
        journal = {"source": path, **fields}
        with recollect.open(target) as store:
            text = json.dumps(journal)
            store._run(Operation(records.put_own, store._scope(), COPY_KIND, JOURNAL_KEY, text))
        with pytest.raises(recollect.Conflict, match=r"another version of Recollect began\. Copy into an empty"):
            recollect.copy(source, target)
        with recollect.open(target) as store:
            assert read_journal(store) == journal


def test_the_comparison_finds_changes_on_any_page(tmp_path, monkeypatch):
    monkeypatch.setattr(row_stream, "PAGE_ROWS", 25)
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    assert recollect.copy(source, target).complete
    with recollect.open(target) as store:
        store.session("only in the target").append(user("ignored"))
        store.records.put("state", "only in the target", "ignored")
    assert recollect.copy(source, target).complete
    with recollect.open(target) as store:
        store.records.put("state", "record 30", 0)
        for name in ("short:20", "long"):  # the later one first: the earlier change moves the ends of pages
            store.session(name).append(user("new"))
            differences = recollect.copy(source, target).differences
            names = [(difference.kind, difference.name, difference.missing) for difference in differences]
            assert ("session", name, False) in names
    assert sorted(names) == [
        ("record", "state/record 30", False), ("session", "long", False), ("session", "short:20", False),
    ]  # fmt: skip


def test_sessions_with_hostile_ids_are_copied(tmp_path, postgres):
    """From a file to a server, which escapes NUL, and back."""
    with recollect.open(tmp_path / "a.db") as store:
        for number, id in enumerate(SESSION_IDS):
            session = store.session(id, labels=["a label"])
            session.append(user("x"), key="k")
            session.records.put("state", id, 1)
            store.session(f"child {number}", parent=id)
        store.delete_session(SESSION_IDS[0])
        expected = read_contents(store)
    for source, target in ((tmp_path / "a.db", postgres), (postgres, tmp_path / "b.db")):
        assert recollect.copy(source, target).complete
        with recollect.open(target) as store:
            assert read_contents(store) == expected
            assert store.maintenance.check().problems == ()
