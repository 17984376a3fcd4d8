"""Round trips of export and import: equal bytes, histories and counts; repetitions change nothing."""

from __future__ import annotations

import os

import pytest
import random_stores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_stores import STORE_STEPS, build_store, export_bytes, import_bytes, read_everything

import recollect
from recollect.storage.operation import Operation, fetch_all
from recollect.storage.transfer import BLOB_SIZE

pytestmark = pytest.mark.filterwarnings("default")
EXAMPLES = int(os.environ.get("RECOLLECT_EXAMPLES", "25"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@given(STORE_STEPS, st.sampled_from(["jsonl", "json"]))
@QUICK
def test_export_and_import_round_trip_and_repeat(steps, format):
    with recollect.open(":memory:") as store:
        build_store(store, steps)
        text = export_bytes(store, format=format)
        copy, report = import_bytes(text)
        with copy:
            assert report.bad == []
            assert report.conflicts == []
            assert sorted(report.created) == sorted(read_everything(store)["sessions"])
            assert read_everything(copy) == read_everything(store)
            assert export_bytes(copy, format=format) == text
            _, repetition = import_bytes(text, copy)
            assert (repetition.created, repetition.updated, repetition.messages) == ([], [], 0)
            assert export_bytes(copy, format=format) == text
            _, same = import_bytes(text, store)
            assert (same.created, same.updated, same.messages) == ([], [], 0)
            assert export_bytes(store, format=format) == text


@given(STORE_STEPS, STORE_STEPS)
@QUICK
def test_a_later_export_adds_new_records(steps, later_steps):
    with recollect.open(":memory:") as store:
        build_store(store, steps)
        copy, _ = import_bytes(export_bytes(store))
        build_store(store, later_steps)
        text = export_bytes(store)
        with copy:
            _, report = import_bytes(text, copy)
            assert report.bad == []
            assert report.conflicts == []
            actual, expected = read_everything(copy), read_everything(store)
            for id, session in expected["sessions"].items():
                assert actual["sessions"][id]["messages"] == session["messages"], id
                assert actual["sessions"][id]["branches"] == session["branches"], id
                assert actual["sessions"][id]["calls"] == session["calls"], id
                assert actual["sessions"][id]["info"].title == session["info"].title
            _, repetition = import_bytes(text, copy)
            assert (repetition.created, repetition.updated, repetition.messages) == ([], [], 0)


@given(STORE_STEPS, st.data())
@QUICK
def test_exported_sessions_include_their_shared_history(steps, data):
    with recollect.open(":memory:") as store:
        build_store(store, steps)
        all_ids = [session.id for session in store.list_sessions(50, archived=None, delegates=True)]
        ids = data.draw(st.lists(st.sampled_from(all_ids), unique=True, min_size=1))
        text = export_bytes(store, ids)
        copy, report = import_bytes(text)
        with copy:
            assert report.bad == []
            assert report.created == sorted(report.created, key=report.created.index)
            assert set(report.created) == set(ids)
            expected, actual = read_everything(store), read_everything(copy)
            for id in ids:
                assert actual["sessions"][id]["messages"] == expected["sessions"][id]["messages"]
                assert actual["sessions"][id]["calls"] == expected["sessions"][id]["calls"]
                assert actual[id, "anthropic"] == expected[id, "anthropic"]
            second_text = export_bytes(copy, ids)
            second_copy, _ = import_bytes(second_text)
            with second_copy:
                assert export_bytes(second_copy, ids) == second_text


@given(STORE_STEPS)
@QUICK
def test_every_store_can_be_exported_in_every_format(steps):
    with recollect.open(":memory:") as store:
        build_store(store, steps)
        for format in ("md", "html"):
            for deleted in (True, False):
                assert export_bytes(store, None, format, deleted=deleted, redact=deleted).decode()
        redacted_text = export_bytes(store, redact=True)
        copy, report = import_bytes(redacted_text)
        with copy:
            assert report.redacted
            assert report.bad == []
            read_everything(copy)


@given(STORE_STEPS)
@QUICK
def test_import_counts_blob_references_like_append(steps):
    def blob_sizes():
        sizes = {}
        for hash in hashes:
            sizes[hash] = yield from fetch_all(BLOB_SIZE, owner="", hash=hash)
        return sizes

    with recollect.open(":memory:") as store:
        build_store(store, steps)
        text = export_bytes(store)
        hashes = [
            line.split(b'"hash":"')[1][:64].decode() for line in text.splitlines() if line.startswith(b'{"type":"blob"')
        ]
        copy, _ = import_bytes(text)
        with copy:
            assert copy._run(Operation(blob_sizes, writes=False)) == store._run(Operation(blob_sizes, writes=False))
            for id in read_everything(copy)["sessions"]:
                if copy.get_session(id) is not None:
                    copy.erase_session(id, forks="erase")
            assert all(not size for size in copy._run(Operation(blob_sizes, writes=False)).values())
            assert random_stores.export_bytes(copy).count(b"\n") == 1
