"""What was erased is nowhere: not in the file, not in its log, not in a page that is free or that rows moved away from.

The bytes are read from copies that another process made: a plain open and close of the live file would drop the locks
of this one.
"""

from __future__ import annotations

import asyncio
import base64
import glob
import random
import subprocess
import sys

import apsw
import pytest

import recollect
from recollect.engine.sqlite import file as engine_file
from recollect.engine.sqlite.connection import connect, connect_reader

SECRET = b"SEKRET"


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def found(path: str, words: bytes = SECRET) -> dict[str, int]:
    """Count a word in the file and in whatever lies beside it under its name."""
    counts = {}
    for file in glob.glob(glob.escape(path) + "*"):
        bytes_ = subprocess.run(["cat", file], capture_output=True, check=True).stdout
        counts[file.removeprefix(path)] = bytes_.count(words)
    return {name: count for name, count in counts.items() if count}


def everything(store, name: str = "v") -> None:
    """Put a secret in every place that a session has."""
    session = store.session(
        name, title="SEKRET title", task="SEKRET task", model="SEKRET-model", provider_config="SEKRET config",
        working_dir="/SEKRET", system_prompt="SEKRET prompt", external_id="SEKRET-ext", color="SEKRET",
        channel="SEKRET-channel", metadata={"SEKRET": ["SEKRET"]},
    )  # fmt: skip
    session.append(said("SEKRET said"), key="SEKRET key")
    session.append(
        {"role": "user", "content": [{"type": "text", "text": "x", "SEKRETfield": "SEKRET native"}]}, "anthropic"
    )
    session.append(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "SEKRETid", "name": "SEKRETtool", "input": {"a": "SEKRET arg"}}],
        }
    )
    session.start_tool_call("SEKRETid")
    session.record_tool_result(
        "SEKRETid", "SEKRET result " * 6_000, status="error", error_code="SEKRET", error_message="SEKRET!"
    )
    image = base64.b64encode(SECRET * 3_000).decode()
    session.append(recollect.Draft(role="user", parts=(recollect.AttachmentPart(mime_type="image/png", data=image),)))
    session.save_turn("SEKRET q", {"role": "assistant", "content": "SEKRET a"}, error={"SEKRET": 1}, model="SEKRET-m")
    with session.turn("SEKRET asked") as turn, turn.stream() as answer:
        for _ in range(20):
            answer.write("SEKRET as it streams, ")
            answer.flush()
        answer.close(said("something else altogether") | {"role": "assistant"})
    for number in range(20):
        session.update(title=f"SEKRET title {'long ' * number}", metadata={"SEKRET": "x" * 100 * number})
    session.rewind(2)
    session.append(said("SEKRET on a branch"))
    session.delete_message(session.messages()[-1].id)


def test_a_session_with_everything_in_it(path):
    with recollect.open(path) as store:
        kept = store.session("kept")
        kept.append(said("KEPT"))
        everything(store)
        store.set_setting("mine", "SEKRET setting")
        assert found(path)
        assert store.erase_session("v") == ["v"]
        store.set_setting("mine", None)
        store.session("x")
        store.erase_session("x")
        assert found(path) == {}
        assert found(path, b"KEPT")
        kept.append(said("more"))
    assert found(path) == {}
    with recollect.open(path) as store:
        assert [message.text for message in store.session("kept").messages()] == ["KEPT", "more"]


def test_out_of_the_trash_and_under_asyncio(path):
    with recollect.open(path) as store:
        everything(store)
        store.delete_session("v")
        assert found(path)

    async def erase():
        async with recollect.open_async(path) as store:
            await store.erase_session("v")
            assert found(path) == {}

    asyncio.run(erase())
    assert found(path) == {}


def test_an_old_title_goes_with_the_new_one(path):
    with recollect.open(path) as store:
        session = store.session("a", title="SEKRET name")
        session.update(title="other")
        store.erase_session("a")
        assert found(path) == {}
        assert found(path, b"sekret") == {}


def test_what_a_fork_keeps_stays_and_the_rest_goes(path):
    with recollect.open(path) as store:
        session = store.session("a", title="SEKRET")
        session.append([said("SHARED"), said("SEKRET later")])
        session.fork(1, id="f", title="mine")
        store.erase_session("a", forks="keep")
        assert found(path) == {}
        assert found(path, b"SHARED")
        store.erase_session("f")
        assert found(path, b"SHARED") == {}


def crowded(store, seed: int) -> list[str]:
    """Write to many sessions in turn, so that full pages are split and rows move from page to page."""
    chance = random.Random(seed)
    victims = [store.session(f"v{number}", title=f"SEKRET {number}") for number in range(25)]
    others = [store.session(f"o{number}", title=f"plain {number}") for number in range(50)]
    for number in range(1_500):
        if chance.random() < 0.5:
            chance.choice(others).append(said("fine " * chance.randint(1, 60)))
            continue
        session, kind = chance.choice(victims), chance.random()
        if kind < 0.5:
            session.append(said("SEKRET " * chance.randint(1, 60)))
        elif kind < 0.8:
            session.update(title="SEKRET" * chance.randint(1, 10), metadata={"a": "SEKRET" * chance.randint(1, 80)})
        else:
            session.append(
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": f"SEKRET{number}", "name": "t", "input": {}}],
                }
            )
            session.record_tool_result(f"SEKRET{number}", "SEKRET" * 20, status="error", error_message="SEKRET" * 30)
    return [session.id for session in victims]


def test_copies_in_pages_that_rows_moved_away_from(path, sound, monkeypatch):
    with recollect.open(path) as store:
        victims = crowded(store, 8)
        with monkeypatch.context() as patch:  # without the rewrite there is something left, so that this test can fail
            patch.setattr(engine_file.File, "_rewritten", lambda _: True)
            for victim in victims:
                store.erase_session(victim)
            assert found(path)
        store.session("x")
        store.erase_session("x")
        assert found(path) == {}
        for number in range(50):
            store.session(f"o{number}").append(said("after"))
    sound(path)
    assert found(path) == {}


def test_optimize_finishes_what_an_erasure_left(path, monkeypatch):
    with recollect.open(path) as store:
        victims = crowded(store, 8)
        monkeypatch.setattr(engine_file.File, "_rewritten", lambda _: True)
        for victim in victims:
            store.erase_session(victim)
        assert found(path)
        store.optimize()
        assert found(path) == {}


def test_a_process_that_had_read_the_pages_before_does_not_bring_it_back(path, spawn):
    """Its own copy of a page, with what the gap held, must not be what it writes next."""
    with recollect.open(path) as store:
        victims = crowded(store, 5)
        child = spawn("append", path, "o1", 0)
        for _ in range(20):
            child.stdout.readline()
        for victim in victims:
            store.erase_session(victim)
        for _ in range(50):
            child.stdout.readline()
        child.kill()
        child.communicate()
        store.session("x")
        store.erase_session("x")
        assert found(path) == {}


def test_a_reader_that_holds_the_log_delays_it_and_the_next_write_makes_up_for_it(path):
    store = recollect.open(path)
    everything(store)
    reader = connect_reader(path, 5.0)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    store.erase_session("v")
    assert found(path)
    assert store._engine._file.unscrubbed
    reader.execute("COMMIT")
    reader.close()
    store.session("next")
    assert found(path) == {}
    store.close()


def test_closing_makes_up_for_it_too(path):
    store = recollect.open(path)
    everything(store)
    reader = connect_reader(path, 5.0)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    store.erase_session("v")
    reader.close()
    store.close()
    assert found(path) == {}


def test_a_rewrite_that_another_writer_delays_is_made_up_for(path):
    store = recollect.open(path, timeout=0.2)
    victims = crowded(store, 8)
    other = connect(path, 5.0)
    erase = engine_file.File.finish_erasure

    def locked_out(file: engine_file.File, *, erased: bool) -> None:
        other.execute("BEGIN IMMEDIATE")
        try:
            erase(file, erased=erased)
        finally:
            other.execute("COMMIT")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_file.File, "finish_erasure", locked_out)
        for victim in victims:
            store.erase_session(victim)
    assert store._engine._file.unscrubbed
    assert found(path)
    other.close()
    store.session("next")
    assert found(path) == {}
    store.close()


def test_a_rewrite_for_which_there_is_no_room_is_not_tried_after_every_write(path, monkeypatch):
    tries = []

    def full(connection):
        tries.append(connection)
        raise apsw.FullError("no room")

    with recollect.open(path) as store:
        everything(store)
        with monkeypatch.context() as patch:
            patch.setattr(engine_file, "_vacuum", full)
            assert store.erase_session("v") == ["v"]
            store.session("a").append(said("next"))
            store.session("a").append(said("next"))
            assert len(tries) == 1
            with pytest.raises(recollect.DiskFull):
                store.optimize()
        assert store._engine._file.slack
    assert found(path) == {}  # closing made up for it


HOLD = """
import fcntl, sys
shared = open(sys.argv[1] + "-shm", "r+b")
fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # SQLite's checkpoint lock, as a process in the middle of a checkpoint holds it
print("held", flush=True)
sys.stdin.read()
"""


def test_a_checkpoint_of_another_process_delays_it_and_nothing_is_damaged(path, sound):
    store = recollect.open(path)
    victims = crowded(store, 8)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        for victim in victims:
            store.erase_session(victim)
        store.optimize()
        assert store._engine._file.unscrubbed
        assert found(path)
        other.communicate()
    store.session("next")
    assert found(path) == {}
    assert store.check().problems == ()
    store.close()
    sound(path)
