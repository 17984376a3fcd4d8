"""recollect.copy() of files: an interruption after any batch, and what an export omits."""

from __future__ import annotations

import recollect
from recollect import export
from recollect.storage.copy_writer import JOURNAL_KEY
from recollect.storage.records import COPY_KIND
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


def test_a_copy_resumes_after_any_batch(tmp_path):
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(source)
    interruptions, done = 0, False
    while not done:
        copy_until(source, target, 3)  # the first call is for the rows of earlier runs, so each run writes two batches
        interruptions += 1
        assert interruptions < 20
        with recollect.open(target) as store:
            journal = store.records.get(COPY_KIND, JOURNAL_KEY)
            assert journal is not None
            done = journal.value.get("done", False)
    assert interruptions > 2
    report = recollect.copy(source, target)
    assert report.whole
    assert report.counts["messages"] == 1800 + 600 + 41 + 1
    assert report.counts["versions"] == 2 * 214
    assert report.counts["keys"] == 2 + 40
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
        journal = store.records.get(COPY_KIND, JOURNAL_KEY)
        assert journal is not None
        assert (journal.value["count"], journal.value["done"]) == (1800 + 600 + 41 + 1, True)
