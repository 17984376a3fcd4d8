"""Concurrent work on one server: a file imported twice is stored once, and checks and pruning do not disturb writers."""

from __future__ import annotations

import io
import threading

import recollect
from recollect import export


def user_message(text):
    return {"role": "user", "content": text}


def run_concurrently(*functions):
    """Run functions in threads, and fail if one of them raises."""
    failures = []

    def run_and_record(function):
        try:
            function()
        except Exception as error:  # noqa: BLE001  asserted below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=run_and_record, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}


def test_four_concurrent_imports_of_one_file_store_it_once(postgres):
    with recollect.open(":memory:") as origin:
        session = origin.session("a", title="A")
        session.append([{"role": "system", "content": "s"}, *(user_message(f"m{n}") for n in range(300))])
        session.append({"role": "user", "content": [IMAGE]})
        session.snapshots.add("summary", "of it")
        session.compact(summary="short", keep_turns=1)
        origin.session("b").append({"role": "user", "content": [IMAGE]})
        fork = session.fork(id="f", at=5)
        fork.append(user_message("elsewhere"))
        file = b"".join(export.chunks(origin, None, "jsonl"))
        counts = {session.id: (session.message_count, session.token_count) for session in origin.list_sessions()}

    def import_file():
        with recollect.open(postgres, owner="ann") as store:
            export.read(store, io.BytesIO(file))

    run_concurrently(*[import_file] * 4)
    with recollect.open(postgres, owner="ann") as store:
        assert {session.id: (session.message_count, session.token_count) for session in store.list_sessions()} == counts
        assert [len(store.session("a").snapshots.list()), len(store.session("a").compactions.list())] == [1, 1]
        assert store.maintenance.check().problems == ()
        assert b"".join(export.chunks(store, ["a"], "md")).count(b"m299") == 1


def test_check_with_repair_and_prune_are_safe_while_others_write(postgres):
    with recollect.open(postgres) as store:
        store.session("shared").append({"role": "user", "content": [IMAGE]})

    writers_done = threading.Event()

    def write(name):
        with recollect.open(postgres) as store:
            session = store.session(name)
            for n in range(25):
                session.append({"role": "user", "content": [IMAGE, {"type": "text", "text": f"{name} {n}"}]})
                if n % 5 == 4:
                    session.update(title=f"{name} {n}")
                    session.mark_message(session.message_count, {"pinned": True})
                    store.session(f"{name}:{n}").append({"role": "user", "content": [IMAGE]})
                    store.erase_session(f"{name}:{n}")

    def check_and_prune():
        with recollect.open(postgres) as store:
            while not writers_done.is_set():
                report = store.maintenance.check(repair=True)
                assert [finding for finding in report.problems if finding.kind != "payload"] == []
                assert store.maintenance.prune(older_than=3600, max_messages=1000, tool_output_over=0).count == 0

    def run_writers():
        try:
            run_concurrently(*(lambda name=name: write(name) for name in ("one", "two", "three")))
        finally:
            writers_done.set()

    run_concurrently(run_writers, check_and_prune)
    with recollect.open(postgres) as store:
        report = store.maintenance.check()
        assert (report.problems, report.findings) == ((), ())
        assert sorted((session.id, session.message_count) for session in store.list_sessions()) == [
            ("one", 25), ("shared", 1), ("three", 25), ("two", 25),
        ]  # fmt: skip
        for name in ("one", "two", "three"):
            assert all("QUJD" * 2000 in str(message.parts) for message in store.session(name).messages())
