"""recollect.copy() of files: an interruption after any batch, and what an export omits."""

from __future__ import annotations

import pytest

import recollect
from recollect import export
from recollect.storage import row_stream
from recollect.storage.row_stream import JOURNAL_KEY
from recollect_conformance.database import read_contents
from recollect_conformance.examples import user


class Interrupted(Exception):
    """Raised by the progress callback, in place of a kill."""


def fill(path):
    with recollect.open(path) as store:
        session = store.session("long", title="Long")
        session.append([user(f"message {number}") for number in range(1500)], key="first")
        session.compact(before=session.messages()[9].id, summary="so far")
        session.snapshot("memory", "likes files")
        session.fork(id="fork").append([user("elsewhere") for _ in range(600)], key="second")
        for number in range(40):
            store.session(f"short:{number}", parent="long" if number % 2 else None).append(user("hello"), key="k")
        store.delete_session("short:1")
        store.session("short:1").append(user("again"))
        store.session("open").turn("still open")
        store.session("erased parent")
        store.session("delegate", parent="erased parent")
        store.erase_session("erased parent")
        many_keys = store.session("many keys")
        for number in range(60):
            many_keys.append(user("once"), key=f"key {number}")
            store.set_setting(f"setting {number}", number)


MESSAGES = 1500 + 600 + 41 + 1 + 60  # what fill() writes


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
            before, journal = journal, store.setting(JOURNAL_KEY)["position"]
            assert journal != before
        stages.add((journal["stage"], journal.get("part", [""])[0]))
    assert stages >= {("trees", "branch"), ("trees", "session"), ("parents", ""), ("settings", ""), ("end", "")}
    report = recollect.copy(source, target)
    assert report.whole
    assert report.counts["messages"] == MESSAGES
    assert report.counts["keys"] == 2 + 40 + 60
    with recollect.open(source) as a, recollect.open(target) as b:
        assert b.check().problems == ()
        assert read_contents(b)["sessions"].keys() == read_contents(a)["sessions"].keys()
        assert b.find_session("delegate").relation == "delegate"
        assert b"".join(export.chunks(a, None, "jsonl")) == b"".join(export.chunks(b, None, "jsonl"))


def test_the_journal_counts_each_row_once(tmp_path):
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    for _ in range(3):
        copy_until(source, target, 3)
    assert recollect.copy(source, target).whole
    with recollect.open(target) as store:
        journal = store.setting(JOURNAL_KEY)
        assert journal["count"] == MESSAGES
        assert journal["position"] == {"stage": "end"}


def test_a_page_has_rows_of_many_sessions(tmp_path, monkeypatch):
    source = tmp_path / "a.db"
    with recollect.open(source) as store:
        for number in range(120):
            store.session(f"short:{number}").append([user("hello"), user("again")], key="k")
    counts = {True: 0, False: 0}
    run = recollect.Store.run

    def count_run(self, op):
        counts[op.writes] += 1
        return run(self, op)

    monkeypatch.setattr(recollect.Store, "run", count_run)
    assert recollect.copy(source, tmp_path / "b.db").whole
    # 120 sessions are 5 parts or rows each: 2 pages, which are read for the copy and twice for the comparison.
    assert counts[True] == 1 + 2
    assert counts[False] <= 3 * 2 + 3


def test_the_journal_of_another_version_is_refused(tmp_path):
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    assert copy_until(source, target, 2) is None
    with recollect.open(target) as store:
        path = store.setting(JOURNAL_KEY)["source"]
    cursor = {"stage": "trees", "tree": 1, "part": "branch", "place": 1, "low": 512}
    for fields in (
        {"cursor": cursor, "tree": 1, "messages": 512},
        {"cursor": {"stage": "end"}, "tree": 3, "messages": MESSAGES, "whole": True},
        {"tree": "x"},
    ):
        journal = {"source": path, **fields}
        with recollect.open(target) as store:
            store.set_setting(JOURNAL_KEY, journal)
        with pytest.raises(recollect.Conflict, match=r"another version of Recollect began\. Copy into an empty"):
            recollect.copy(source, target)
        with recollect.open(target) as store:
            assert store.setting(JOURNAL_KEY) == journal


def test_the_comparison_finds_changes_on_any_page(tmp_path, monkeypatch):
    monkeypatch.setattr(row_stream, "PAGE_ROWS", 25)
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    assert recollect.copy(source, target).whole
    with recollect.open(target) as store:
        store.session("only in the target").append(user("ignored"))
        store.set_setting("only in the target", "ignored")
    assert recollect.copy(source, target).whole
    with recollect.open(target) as store:
        store.set_setting("setting 30", 0)
        for name in ("short:20", "long"):  # the later one first: the earlier change moves the ends of pages
            store.session(name).append(user("new"))
            differences = recollect.copy(source, target).differences
            names = [(difference.kind, difference.name, difference.missing) for difference in differences]
            assert ("session", name, False) in names
    assert sorted(names) == [
        ("session", "long", False), ("session", "short:20", False), ("setting", "setting 30", False),
    ]  # fmt: skip
