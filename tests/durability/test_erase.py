"""Erased text is not in the file, its WAL, free pages, or the slack space of pages from which rows were moved.

Another process reads the bytes: opening and closing the live file with plain I/O would drop the locks of this one.
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
from recollect.engine.sqlite import database_file as engine_file
from recollect.engine.sqlite.connection import connect, connect_reader

SECRET = b"SEKRET"
# Whether text is left depends on the sizes of all rows: with this schema, one seed in four leaves some, and 6 does.
SLACK_SEEDS = range(6, 16)


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def count_secret(path: str, word: bytes = SECRET) -> dict[str, int]:
    """Count a word in the database file and the files next to it; files without it are left out."""
    counts = {}
    for file in glob.glob(glob.escape(path) + "*"):
        content = subprocess.run(["cat", file], capture_output=True, check=True).stdout
        counts[file.removeprefix(path)] = content.count(word)
    return {name: count for name, count in counts.items() if count}


def fill_session_with_secrets(store, name: str = "v") -> None:
    """Store a secret in every column and kind of row that a session has."""
    session = store.session(
        name, title="SEKRET title", task="SEKRET task", model="SEKRET-model", provider_config="SEKRET config",
        working_dir="/SEKRET", system_prompt="SEKRET prompt", external_id="SEKRET-ext", color="SEKRET",
        channel="SEKRET-channel", metadata={"SEKRET": ["SEKRET"]},
        labels=["SEKRET label"],
    )  # fmt: skip
    session.update(add_labels=["SEKRET 2"]).update(remove_labels=["SEKRET label"])
    session.append(user_message("SEKRET text"), key="SEKRET key")
    session.append(
        {"role": "user", "content": [{"type": "text", "text": "x", "SEKRETfield": "SEKRET native"}]}, "anthropic"
    )
    session.append(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "SEKRETid", "name": "SEKRETtool", "input": {"a": "SEKRET arg"}}],
        }
    )
    session.tools.start("SEKRETid")
    session.tools.record_result(
        "SEKRETid", "SEKRET result " * 6_000, status="error", error_code="SEKRET", error_message="SEKRET!"
    )
    image = base64.b64encode(SECRET * 3_000).decode()
    session.append(recollect.Draft(role="user", parts=(recollect.AttachmentPart(mime_type="image/png", data=image),)))
    session.save_turn("SEKRET q", {"role": "assistant", "content": "SEKRET a"}, error={"SEKRET": 1}, model="SEKRET-m")
    with session.turn("SEKRET question") as turn, turn.stream() as answer:
        for _ in range(20):
            answer.write("SEKRET as it streams, ")
            answer.flush()
        answer.close(user_message("something else altogether") | {"role": "assistant"})
    for number in range(20):
        session.update(title=f"SEKRET title {'long ' * number}", metadata={"SEKRET": "x" * 100 * number})
    for size in (1, 50, 2_000, 1):
        session.records.put("SEKRET kind", "SEKRET key", {"SEKRET": "SEKRET " * size})
        session.records.put("state", f"SEKRET{size}", b"SEKRET bytes " * size)
    session.records.delete("state", "SEKRET50")
    session.append(recollect.Draft(role="user", parts=(recollect.TextPart(text="SEKRET"),), key="SEKRET message key"))
    session.replace_message(session.message(key="SEKRET message key").id, user_message("SEKRET new content"))
    session.mark_message(1, {"SEKRET": "SEKRET"})
    session.rewind(2)
    session.append(user_message("SEKRET on a branch"))
    session.delete_messages([session.messages()[-1].id])


def test_erasing_removes_every_field_of_a_session(path):
    with recollect.open(path) as store:
        kept_session = store.session("kept")
        kept_session.append(user_message("KEPT"))
        fill_session_with_secrets(store)
        store.records.put("mine", "SEKRET key", "SEKRET record")
        assert count_secret(path)
        assert store.erase_session("v") == ["v"]
        store.records.delete("mine", "SEKRET key")
        store.session("x")
        store.erase_session("x")
        assert count_secret(path) == {}
        assert count_secret(path, b"KEPT")
        kept_session.append(user_message("more"))
    assert count_secret(path) == {}
    with recollect.open(path) as store:
        assert [message.text for message in store.session("kept").messages()] == ["KEPT", "more"]


def test_an_async_store_erases_a_session_in_the_trash(path):
    with recollect.open(path) as store:
        fill_session_with_secrets(store)
        store.delete_session("v")
        assert count_secret(path)

    async def erase():
        async with recollect.open_async(path) as store:
            await store.erase_session("v")
            assert count_secret(path) == {}

    asyncio.run(erase())
    assert count_secret(path) == {}


def test_erasing_removes_former_titles(path):
    with recollect.open(path) as store:
        session = store.session("a", title="SEKRET name")
        session.update(title="other")
        store.erase_session("a")
        assert count_secret(path) == {}
        assert count_secret(path, b"sekret") == {}


def test_erasing_keeps_only_the_messages_that_a_fork_shares(path):
    with recollect.open(path) as store:
        session = store.session("a", title="SEKRET")
        session.append([user_message("SHARED"), user_message("SEKRET later")])
        session.fork(1, id="f", title="mine")
        store.erase_session("a", forks="keep")
        assert count_secret(path) == {}
        assert count_secret(path, b"SHARED")
        store.erase_session("f")
        assert count_secret(path, b"SHARED") == {}


def write_many_sessions(store, seed: int) -> list[str]:
    """Write to many sessions alternately, so that pages are split and rows move between pages."""
    rng = random.Random(seed)
    victims = [store.session(f"v{number}", title=f"SEKRET {number}") for number in range(25)]
    others = [store.session(f"o{number}", title=f"plain {number}") for number in range(50)]
    for number in range(1_500):
        if rng.random() < 0.5:
            rng.choice(others).append(user_message("fine " * rng.randint(1, 60)))
            continue
        session, choice = rng.choice(victims), rng.random()
        if choice < 0.5:
            session.append(user_message("SEKRET " * rng.randint(1, 60)))
        elif choice < 0.8:
            session.update(title="SEKRET" * rng.randint(1, 10), metadata={"a": "SEKRET" * rng.randint(1, 80)})
        else:
            session.append(
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": f"SEKRET{number}", "name": "t", "input": {}}],
                }
            )
            session.tools.record_result(f"SEKRET{number}", "SEKRET" * 20, status="error", error_message="SEKRET" * 30)
    return [session.id for session in victims]


def erase_without_rewrite(store, path) -> None:
    """Write and erase sessions, with other sizes each time, until their text is left in slack space: the control."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_file.DatabaseFile, "_rewrite_after_erasure", lambda _: True)
        for seed in SLACK_SEEDS:
            for victim in write_many_sessions(store, seed):
                store.erase_session(victim)
            if count_secret(path):
                return
    pytest.fail("no layout of pages left erased text in slack space")


def test_erasing_wipes_slack_space_after_page_splits(path, check_database):
    with recollect.open(path) as store:
        erase_without_rewrite(store, path)
        store.session("x")
        store.erase_session("x")
        assert count_secret(path) == {}
        for number in range(50):
            store.session(f"o{number}").append(user_message("after"))
    check_database(path)
    assert count_secret(path) == {}


def test_optimize_wipes_slack_space(path):
    with recollect.open(path) as store:
        erase_without_rewrite(store, path)
        store.maintenance.optimize()
        assert count_secret(path) == {}


def test_another_process_does_not_write_erased_text_back(path, spawn):
    """Its cached copy of a page, with the old slack space, must not be written again."""
    with recollect.open(path) as store:
        victims = write_many_sessions(store, 5)
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
        assert count_secret(path) == {}


def test_the_next_write_finishes_a_wipe_that_a_reader_delayed(path):
    store = recollect.open(path)
    fill_session_with_secrets(store)
    reader = connect_reader(path, 5.0)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    store.erase_session("v")
    assert count_secret(path)
    assert store._engine._file.wipe_pending  # pyright: ignore[reportAttributeAccessIssue]
    reader.execute("COMMIT")
    reader.close()
    store.session("next")
    assert count_secret(path) == {}
    store.close()


def test_closing_finishes_a_wipe_that_a_reader_delayed(path):
    store = recollect.open(path)
    fill_session_with_secrets(store)
    reader = connect_reader(path, 5.0)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    store.erase_session("v")
    reader.close()
    store.close()
    assert count_secret(path) == {}


def test_the_next_write_finishes_a_wipe_that_a_writer_delayed(path):
    store = recollect.open(path, timeout=0.2)
    victims = write_many_sessions(store, 8)
    other = connect(path, 5.0)
    erase = engine_file.DatabaseFile.finish_erasure

    def finish_with_lock_held(file: engine_file.DatabaseFile, *, has_erased: bool) -> None:
        other.execute("BEGIN IMMEDIATE")
        try:
            erase(file, has_erased=has_erased)
        finally:
            other.execute("COMMIT")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_file.DatabaseFile, "finish_erasure", finish_with_lock_held)
        for victim in victims:
            store.erase_session(victim)
    assert store._engine._file.wipe_pending  # pyright: ignore[reportAttributeAccessIssue]
    assert count_secret(path)
    other.close()
    store.session("next")
    assert count_secret(path) == {}
    store.close()


def test_a_rewrite_that_fails_on_a_full_disk_is_not_retried_by_every_write(path, monkeypatch):
    attempts = []

    def fail_with_disk_full(connection):
        attempts.append(connection)
        raise apsw.FullError("disk full")

    with recollect.open(path) as store:
        fill_session_with_secrets(store)
        with monkeypatch.context() as patch:
            patch.setattr(engine_file, "_vacuum", fail_with_disk_full)
            assert store.erase_session("v") == ["v"]
            store.session("a").append(user_message("next"))
            store.session("a").append(user_message("next"))
            assert len(attempts) == 1
            with pytest.raises(recollect.errors.DiskFull):
                store.maintenance.optimize()
        assert store._engine._file.slack  # pyright: ignore[reportAttributeAccessIssue]
    assert count_secret(path) == {}  # closing the store wiped it


HOLD_CHECKPOINT_LOCK = """
import fcntl, sys
shared = open(sys.argv[1] + "-shm", "r+b")
fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # SQLite's checkpoint lock, as a process in the middle of a checkpoint holds it
print("held", flush=True)
sys.stdin.read()
"""


def test_a_checkpoint_of_another_process_delays_the_wipe(path, check_database):
    store = recollect.open(path)
    victims = write_many_sessions(store, 8)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD_CHECKPOINT_LOCK, path], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        for victim in victims:
            store.erase_session(victim)
        store.maintenance.optimize()
        assert store._engine._file.wipe_pending  # pyright: ignore[reportAttributeAccessIssue]
        assert count_secret(path)
        other.communicate()
    store.session("next")
    assert count_secret(path) == {}
    assert store.maintenance.check().problems == ()
    store.close()
    check_database(path)


def append_secrets(session) -> list[str]:
    """Append messages with a secret in every column that an edit replaces, edit them, and return their ids."""
    image = base64.b64encode(SECRET * 3_000).decode()
    call = recollect.ToolCallPart(call_id="SEKRETid", tool="SEKRETtool", arguments={"SEKRET": "SEKRET"})
    result = recollect.ToolResultPart(
        call_id="SEKRETid", text="SEKRET result " * 6_000, status="error", error_code="SEKRET", error_message="SEKRET!"
    )
    text = recollect.TextPart(text="SEKRET text", native={"SEKRET": 1}, metadata={"SEKRET": 1})
    drafts = [
        recollect.Draft(
            role="user", parts=(text,), native={"SEKRET": 1}, metadata={"SEKRET": 1}, error={"SEKRET": 1},
            model="SEKRET-model", format="SEKRET",
        ),
        recollect.Draft(role="assistant", parts=(call,)),
        recollect.Draft(role="tool", parts=(result,)),
        recollect.Draft(role="user", parts=(recollect.AttachmentPart(mime_type="image/png", data=image),)),
    ]  # fmt: skip
    ids = session.append(drafts, key="k").ids
    for id in ids:
        session.replace_message(id, user_message("SEKRET version " * 5_000))
    session.replace_message(ids[1], drafts[1])
    return ids


def redact(session, ids) -> None:
    for id in ids:
        session.replace_message(
            id, recollect.Draft(role="user", parts=(recollect.TextPart(text="redacted"),), metadata={}, model="m"),
            erase=True,
        )  # fmt: skip


def test_erasing_the_content_of_messages(path):
    with recollect.open(path) as store:
        session = store.session("a")
        session.append(user_message("KEPT"))
        ids = append_secrets(session)
        fork = session.fork(id="f")
        fork.append(user_message("fork"))
        assert len(store.search("SEKRET")) == 4
        assert count_secret(path)
        redact(fork, ids)
        assert count_secret(path) == {}
        assert count_secret(path, b"sekret") == {}
        assert count_secret(path, b"KEPT")
        assert store.maintenance.check().problems == ()
        assert list(store.search("SEKRET")) == []
        session.append(user_message("more"))
        assert session.messages()[1].text == "redacted"
    assert count_secret(path) == count_secret(path, b"sekret") == {}


def test_erasing_the_content_of_a_deleted_message_on_another_branch(path):
    with recollect.open(path) as store:
        session = store.session("a")
        session.append(user_message("first"))
        ids = append_secrets(session)
        session.delete_messages(ids)
        session.rewind("1.1")
        redact(session, ids)
        assert count_secret(path) == {}


def test_an_async_store_erases_content(path):
    async def erase():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            await session.append(user_message("SEKRET text"))
            await store.maintenance.index()
            await session.replace_message(1, user_message("SEKRET too"))
            await session.replace_message(1, user_message("redacted"), erase=True)
            assert count_secret(path) == {}

    asyncio.run(erase())
    assert count_secret(path) == {}


def test_without_erase_the_former_content_stays(path):
    with recollect.open(path) as store:
        session = store.session("a")
        session.append(user_message("SEKRET text"))
        session.replace_message(1, user_message("other"))
    assert count_secret(path)
    with recollect.open(path) as store:
        session = store.session("a")
        assert session.message_versions(1)[0].text == "SEKRET text"
        session.replace_message(1, user_message("other"), erase=True)
        assert count_secret(path) == {}


def test_pruned_outputs_of_versions_are_erased_with_their_session(path):
    with recollect.open(path) as store:
        append_secrets(store.session("a"))
        store.maintenance.prune(tool_output_over=100)
        store.maintenance.prune(keep=0, erase=True)
        assert count_secret(path) == {}
        assert store.maintenance.check().problems == ()
