"""What goes out comes back equal: bytes, histories in every format, counts; twice is once; a part of it is a part."""

from __future__ import annotations

import os

import pytest
import worlds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import WORLD, build, everything, exported, imported

import recollect
from recollect.op import Op, rows

pytestmark = pytest.mark.filterwarnings("default")
EXAMPLES = int(os.environ.get("RECOLLECT_EXAMPLES", "25"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@given(WORLD, st.sampled_from(["jsonl", "json"]))
@QUICK
def test_a_store_comes_back_equal_and_twice_is_once(steps, format):
    with recollect.open(":memory:") as store:
        build(store, steps)
        text = exported(store, format=format)
        copy, report = imported(text)
        with copy:
            assert report.bad == []
            assert report.conflicts == []
            assert sorted(report.created) == sorted(everything(store)["sessions"])
            assert everything(copy) == everything(store)
            assert exported(copy, format=format) == text
            _, again = imported(text, copy)
            assert (again.created, again.updated, again.messages) == ([], [], 0)
            assert exported(copy, format=format) == text
            _, same = imported(text, store)
            assert (same.created, same.updated, same.messages) == ([], [], 0)
            assert exported(store, format=format) == text


@given(WORLD, WORLD)
@QUICK
def test_a_longer_export_adds_what_is_new(steps, more):
    with recollect.open(":memory:") as store:
        build(store, steps)
        copy, _ = imported(exported(store))
        build(store, more)
        later = exported(store)
        with copy:
            _, report = imported(later, copy)
            assert report.bad == []
            assert report.conflicts == []
            found, wanted = everything(copy), everything(store)
            for id, session in wanted["sessions"].items():
                assert found["sessions"][id]["messages"] == session["messages"], id
                assert found["sessions"][id]["branches"] == session["branches"], id
                assert found["sessions"][id]["calls"] == session["calls"], id
                assert found["sessions"][id]["info"].title == session["info"].title
            _, again = imported(later, copy)
            assert (again.created, again.updated, again.messages) == ([], [], 0)


@given(WORLD, st.data())
@QUICK
def test_some_sessions_come_with_the_past_that_they_share(steps, data):
    with recollect.open(":memory:") as store:
        build(store, steps)
        living = [session.id for session in store.list_sessions(50, archived=None, delegates=True)]
        ids = data.draw(st.lists(st.sampled_from(living), unique=True, min_size=1))
        text = exported(store, ids)
        copy, report = imported(text)
        with copy:
            assert report.bad == []
            assert report.created == sorted(report.created, key=report.created.index)
            assert set(report.created) == set(ids)
            wanted, found = everything(store), everything(copy)
            for id in ids:
                assert found["sessions"][id]["messages"] == wanted["sessions"][id]["messages"]
                assert found["sessions"][id]["calls"] == wanted["sessions"][id]["calls"]
                assert found[id, "anthropic"] == wanted[id, "anthropic"]
            once_more = exported(copy, ids)
            third, _ = imported(once_more)
            with third:
                assert exported(third, ids) == once_more


@given(WORLD)
@QUICK
def test_every_format_can_be_written_of_every_store(steps):
    with recollect.open(":memory:") as store:
        build(store, steps)
        for format in ("md", "html"):
            for deleted in (True, False):
                assert exported(store, None, format, deleted=deleted, redact=deleted).decode()
        masked = exported(store, redact=True)
        copy, report = imported(masked)
        with copy:
            assert report.redacted
            assert report.bad == []
            everything(copy)


@given(WORLD)
@QUICK
def test_blobs_are_counted_as_an_append_counts_them(steps):
    def blobs():
        found = {}
        for hash in hashes:
            found[hash] = yield from rows("blob_size", owner="", hash=hash)
        return found

    with recollect.open(":memory:") as store:
        build(store, steps)
        text = exported(store)
        hashes = [
            line.split(b'"hash":"')[1][:64].decode() for line in text.splitlines() if line.startswith(b'{"type":"blob"')
        ]
        copy, _ = imported(text)
        with copy:
            assert copy.run(Op(blobs, writes=False)) == store.run(Op(blobs, writes=False))
            for id in everything(copy)["sessions"]:
                if copy.get_session(id) is not None:
                    copy.erase_session(id, forks="erase")
            assert all(not size for size in copy.run(Op(blobs, writes=False)).values())
            assert worlds.exported(copy).count(b"\n") == 1
