"""Several at once on one server: what comes in twice is there once, and what looks everything over disturbs nobody."""

from __future__ import annotations

import io
import threading

import recollect
from recollect import export


def said(text):
    return {"role": "user", "content": text}


def at_once(*works):
    """Run these side by side, and raise what one of them raised."""
    failures = []

    def guarded(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001  raised below, in the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}


def test_one_file_comes_in_four_times_at_once(postgres):
    with recollect.open(":memory:") as origin:
        session = origin.session("a", title="A")
        session.append([{"role": "system", "content": "s"}, *(said(f"m{n}") for n in range(300))])
        session.append({"role": "user", "content": [IMAGE]})
        session.snapshot("summary", "of it")
        session.compact(summary="short", keep_turns=1)
        origin.session("b").append({"role": "user", "content": [IMAGE]})
        fork = session.fork(id="f", at=5)
        fork.append(said("elsewhere"))
        file = b"".join(export.chunks(origin, None, "jsonl"))
        told = {item.id: (item.message_count, item.token_count) for item in origin.list_sessions()}

    def bring():
        with recollect.open(postgres, owner="ann") as store:
            export.read(store, io.BytesIO(file))

    at_once(*[bring] * 4)
    with recollect.open(postgres, owner="ann") as store:
        assert {item.id: (item.message_count, item.token_count) for item in store.list_sessions()} == told
        assert [len(store.session("a").snapshots()), len(store.session("a").compactions())] == [1, 1]
        assert store.check().problems == ()
        assert b"".join(export.chunks(store, ["a"], "md")).count(b"m299") == 1


def test_checks_with_repair_and_pruning_while_others_write(postgres):
    with recollect.open(postgres) as store:
        store.session("shared").append({"role": "user", "content": [IMAGE]})

    done = threading.Event()

    def write(name):
        with recollect.open(postgres) as store:
            session = store.session(name)
            for n in range(25):
                session.append({"role": "user", "content": [IMAGE, {"type": "text", "text": f"{name} {n}"}]})
                if n % 5 == 4:
                    session.update(title=f"{name} {n}")
                    session.pin_message(session.message_count)
                    store.session(f"{name}:{n}").append({"role": "user", "content": [IMAGE]})
                    store.erase_session(f"{name}:{n}")

    def look():
        with recollect.open(postgres) as store:
            while not done.is_set():
                found = store.check(repair=True)
                assert [finding for finding in found.problems if finding.kind != "payload"] == []
                assert store.prune(older_than=3600, max_messages=1000, tool_output_over=0).count == 0

    def writers():
        try:
            at_once(*(lambda name=name: write(name) for name in ("one", "two", "three")))
        finally:
            done.set()

    at_once(writers, look)
    with recollect.open(postgres) as store:
        found = store.check()
        assert (found.problems, found.found) == ((), ())
        assert sorted((item.id, item.message_count) for item in store.list_sessions()) == [
            ("one", 25), ("shared", 1), ("three", 25), ("two", 25),
        ]  # fmt: skip
        for name in ("one", "two", "three"):
            assert all("QUJD" * 2000 in str(message.parts) for message in store.session(name).messages())
