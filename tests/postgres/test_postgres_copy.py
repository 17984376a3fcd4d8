"""recollect.copy() between engines: every kind of row, hostile text, killed copies, and comparison."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import psycopg
import pytest

import recollect
from recollect.storage.copy_writer import JOURNAL_KEY
from recollect.storage.records import COPY_KIND
from recollect_conformance.database import read_contents

HOSTILE = [
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "\x10p\x100",
    "'; DROP TABLE messages; --",
    "\\u0000",
    "x" * 300_000,
    "🧵",
    "",
]


def text_message(text, role="user"):
    return {"role": role, "content": text}


def tool_call(call):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "look", "input": {"q": "\0"}}]}


def tool_result(call, text="found"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}


def fill(store, name="a"):
    """Fill a store with every kind of row."""
    session = store.session(
        f"cli:{name}", title="Numbers", metadata={"k": ["\0", 1]}, system_prompt="Be kind.", labels=["b", "💥"]
    )
    session.append([text_message(text) for text in HOSTILE], key="k\0ey")
    session.append({"role": "system", "content": "Stay."})
    with session.turn("look it up") as turn:
        turn.add(tool_call("one\0"))
        turn.add(tool_result("one\0"))
        turn.add(text_message("seven", "assistant"))
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + "A" * 400_000}
    session.append({"role": "user", "content": [{"type": "image", "source": image}]})
    session.compact(before=session.messages()[4].id, summary="summary")
    session.snapshots.add("memory", "likes sevens")
    fork = session.fork(id=f"fork:{name}", title="Another way")
    fork.append([text_message("elsewhere"), {"role": "user", "content": [{"type": "image", "source": image}]}])
    session.rewind(session.messages()[2].id)
    session.append(text_message("instead"))
    session.delete_messages([session.messages()[-1].id])
    for text in HOSTILE[:-1]:
        key = text.replace("\ud800", "").replace("\udfff", "")[:1024] or "key"
        session.append(recollect.Draft(role="user", parts=(recollect.TextPart(text=text),), key=key))
        message = session.message(key=key)
        session.replace_message(message.id, {"role": "user", "content": [{"type": "image", "source": image}]})
        session.mark_message(message.id, {text: text})
        session.replace_message(message.id, text_message("seven again"))
    store.session(f"cli:{name}:delegate:helper", parent=f"cli:{name}").append(text_message("for the parent"))
    for number in range(3):  # the same id three times in the trash and once outside
        store.session(f"gone:{name}").append(text_message(f"number {number}"))
        store.delete_session(f"gone:{name}")
    store.session(f"gone:{name}").append(text_message("here again"))
    erased_session = store.session(f"erased:{name}")
    erased_session.append(text_message("secret"))
    store.erase_session(erased_session.id)
    store.session(f"open:{name}").turn("still open")
    store.records.put("setting", "theme\0", {"dark": "\ud800"})
    store.records.put("setting", "bytes", b"\0\xff")
    session.records.put("state\0", "\x01\0\x10", b"\0")
    session.records.put("state\0", "later", 1)
    session.records.put("state\0", "later", 2)
    session.records.delete("state\0", "later")
    store.records.put("agent.state", "last_session", f"fork:{name}")


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "chats.db")


def read_all(path_or_url, owner=""):
    with recollect.open(path_or_url, owner=owner) as store:
        assert store.maintenance.check().problems == ()
        contents = read_contents(store)
        for order in ("order", "created"):  # sessions of the same millisecond have no common order
            contents[order].sort()
        contents["trash"].sort(key=lambda session: (session.id, session.created_at))
        for session in contents["sessions"].values():  # ids of compactions and snapshots differ between stores
            for kind in ("compactions", "snapshots"):
                session[kind] = [{**json.loads(item.to_json()), "id": None} for item in session[kind]]
        return contents, store.records.list("setting"), sorted(hit.message for hit in store.search("seven"))


@pytest.mark.parametrize("direction", ["file to file", "file to server", "server to file", "server to server"])
def test_copy_transfers_every_row(direction, file, tmp_path, postgres, databases):
    other = databases.make() if direction.endswith("to server") and direction.startswith("server") else None
    source = postgres if direction.startswith("server") else file
    target = {"file": str(tmp_path / "copy.db"), "server": databases.url_of(other, "plain") if other else postgres}[
        direction.rpartition(" ")[2]
    ]
    with recollect.open(source) as store:
        fill(store)
    report = recollect.copy(source, target)
    assert report.complete
    assert report.counts["sessions"] == 8
    assert all(report.counts.values()), report.counts
    assert read_all(target) == read_all(source)
    with recollect.open(target) as store:  # the copy behaves like the source
        session = store.session("cli:a")
        count = session.message_count
        session.append([text_message(text) for text in HOSTILE], key="k\0ey")
        assert session.refresh().message_count == count
        with pytest.raises(recollect.KeyReused):
            session.append(text_message("other"), key="k\0ey")
        session.compact(before=session.messages()[2].id, summary="again")
        session.fork().append(text_message("and on"))
        store.session("new").append(text_message("new"))
        assert store.maintenance.check().problems == ()
    second_report = recollect.copy(source, target)
    assert {(difference.kind, difference.name, difference.missing) for difference in second_report.differences} == {
        ("session", "cli:a", False)
    }
    if other:
        databases.drop(other)


def test_a_copy_to_postgresql_and_back_has_equal_rows(file, tmp_path, postgres):
    with recollect.open(file) as store:
        fill(store)
    back_path = str(tmp_path / "back.db")
    assert recollect.copy(file, postgres).complete
    assert recollect.copy(postgres, back_path).complete
    assert read_rows(back_path) == read_rows(file)


def read_rows(path):
    """Return every row of every table of a file, read with sqlite3, without keys, which differ between files."""
    local_columns = {
        "key",
        "tree",
        "session",
        "head",
        "parent",
        "branch",
        "message",
        "result",
        "indexed_to",
        "title_changed",
    }
    contents = {}
    with sqlite3.connect(path) as connection:
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table}")
            indexes = [
                number
                for number, (name, *_) in enumerate(cursor.description)
                if name not in local_columns or table == "records"
            ]
            contents[table] = sorted(
                repr([row[number] for number in indexes]) for row in cursor if "recollect.copy" not in row[1:3]
            )
    return contents


TABLES = (
    "trees", "sessions", "branches", "turns", "messages", "appends", "tool_calls", "compactions", "snapshots", "pins",
    "blobs", "records", "message_versions",
)  # fmt: skip


def test_copy_transfers_every_owner(file, tmp_path, postgres, databases, database):
    for owner in ("", "ann", "bob"):
        with recollect.open(file, owner=owner) as store:
            fill(store, owner or "default")
    report = recollect.copy(file, postgres)
    assert report.complete
    assert report.owners == ("", "ann", "bob")
    assert report.counts["sessions"] == 24
    for owner in report.owners:
        assert read_all(postgres, owner) == read_all(file, owner)
    back_report = recollect.copy(postgres, tmp_path / "plain.db")  # an ordinary role sets each owner in turn
    assert back_report.complete
    assert back_report.owners == ("", "ann", "bob")
    assert back_report.counts["sessions"] == 24
    for owner in back_report.owners:
        assert read_all(tmp_path / "plain.db", owner) == read_all(file, owner)
    named_report = recollect.copy(postgres, tmp_path / "named.db", owners=["ann", "bob"])
    assert named_report.everyone
    assert read_all(tmp_path / "named.db", "bob") == read_all(file, "bob")
    superuser_report = recollect.copy(databases.url_of(database, "postgres"), tmp_path / "all.db")
    assert superuser_report.owners == ("", "ann", "bob")
    assert superuser_report.complete
    assert read_all(tmp_path / "all.db", "ann") == read_all(file, "ann")


def test_an_owner_that_appears_during_the_copy_is_copied(file, postgres):
    with recollect.open(file, owner="ann") as store:
        fill(store, "ann")

    def progress(done, total):
        if not calls:
            calls.append((done, total))
            with recollect.open(file, owner="late") as other:
                other.session("cli:late").append(text_message("here too"))

    calls = []
    report = recollect.copy(file, postgres, progress=progress)
    assert report.complete
    assert report.owners == ("ann", "late")
    with recollect.open(postgres, owner="late") as store:
        assert [session.id for session in store.list_sessions()] == ["cli:late"]


def test_copy_of_one_owner_ignores_other_owners(file, postgres):
    for owner in ("carl", "dora"):
        with recollect.open(postgres, owner=owner) as store:
            fill(store, owner)
    with recollect.open(file, owner="ann") as store:
        fill(store)
    assert recollect.copy(file, postgres, owners=["ann"]).complete
    assert read_all(postgres, "ann") == read_all(file, "ann")


@pytest.mark.parametrize("to_server", [True, False])
def test_a_killed_copy_continues(to_server, file, tmp_path, postgres, long):
    sessions = 20 if long else 10
    source, target = (file, postgres) if to_server else (postgres, str(tmp_path / "copy.db"))
    with recollect.open(source) as store:
        fill(store)
        for number in range(sessions):
            store.session(f"long:{number}").append(
                [text_message(f"word {number} {n} " * (n % 40)) for n in range(500)], key=f"key {number}"
            )
    command = [sys.executable, "-m", "recollect", "db", "copy", source, target, "--json"]
    rng = random.Random(7)
    kills = 0
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = _read_journal(target)
        deadline = time.monotonic() + 120
        while process.poll() is None and _read_journal(target) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.05)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert kills >= 2
    last_copy = subprocess.run(command, capture_output=True, check=True, timeout=300)
    report = json.loads(last_copy.stdout)
    assert report["complete"]
    assert report["counts"]["messages"] > sessions * 500
    assert report["counts"]["keys"] == sessions + 1
    assert read_all(target) == read_all(source)


def _read_journal(target):
    """Return the journal of a copy, or None."""
    if "://" not in target and not os.path.exists(target):
        return None
    with recollect.open(target) as store:
        return store.records.get(COPY_KIND, JOURNAL_KEY)


CHANGES = [
    "UPDATE messages SET parts = replace(parts, 'elsewhere', 'nowhere')",
    "UPDATE messages SET created_at = created_at + 1 WHERE key & 4294967295 = 3",
    "DELETE FROM messages WHERE key = (1 << 32) | 2",
    "DELETE FROM appends",
    "DELETE FROM pins",
    "UPDATE tool_calls SET status = 'error'",
    "UPDATE compactions SET summary = 'nothing'",
    "UPDATE snapshots SET tokens = tokens + 1",
    "UPDATE sessions SET title = 'Letters' WHERE title = 'Numbers'",
    "UPDATE sessions SET parent = NULL",
    "UPDATE branches SET fork_at = fork_at - 1 WHERE parent IS NOT NULL",
    "UPDATE turns SET latency_ms = 12345",
    "UPDATE blobs SET data = CAST(data || 'x' AS BLOB)",
    "DELETE FROM blobs",
    "DELETE FROM records WHERE kind <> 'recollect.copy'",
    "UPDATE records SET value = '1' WHERE kind <> 'recollect.copy'",
]
REMOVES_AN_ITEM = ("DELETE FROM blobs", "DELETE FROM records")


def test_copy_reports_any_changed_row(file, tmp_path, postgres):
    with recollect.open(postgres) as store:
        fill(store)
    assert recollect.copy(postgres, file).complete
    changed_path = tmp_path / "changed.db"
    for change in CHANGES:
        shutil.copy(file, changed_path)
        with contextlib.closing(sqlite3.connect(changed_path)) as connection, connection:
            assert connection.execute(change).rowcount, change
        differences = recollect.copy(postgres, changed_path).differences
        assert differences, change
        assert any(difference.missing for difference in differences) == change.startswith(REMOVES_AN_ITEM), change


def test_copy_reports_a_changed_row_on_the_server(file, postgres, databases, database):
    with recollect.open(file) as store:
        fill(store)
    assert recollect.copy(file, postgres).complete
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute("UPDATE recollect.messages SET parts = replace(parts, 'elsewhere', 'nowhere')")
    (difference,) = recollect.copy(file, postgres).differences
    assert (difference.kind, difference.name, difference.missing) == ("session", "fork:a", False)


def test_copy_refuses_a_target_with_other_data(file, tmp_path, postgres):
    with recollect.open(file) as store:
        fill(store)
    with recollect.open(postgres) as store:
        store.session("mine").append(text_message("mine"))
    with pytest.raises(recollect.Conflict, match="is not empty"):
        recollect.copy(file, postgres)
    with recollect.open(postgres) as store:
        assert [session.id for session in store.list_sessions()] == ["mine"]
    other, copy = str(tmp_path / "other.db"), str(tmp_path / "copy.db")
    with recollect.open(other) as store:
        store.session("other")
    assert recollect.copy(file, copy).complete
    with pytest.raises(recollect.Conflict, match="holds a copy of"):
        recollect.copy(other, copy)


def test_copy_refuses_missing_sources_and_invalid_targets(file, tmp_path):
    with pytest.raises(recollect.NotFound):
        recollect.copy(file, tmp_path / "copy.db")
    assert not os.path.exists(file)
    recollect.open(file).close()
    os.symlink(file, tmp_path / "link.db")
    for target in (file, tmp_path / "link.db", ":memory:"):
        with pytest.raises(recollect.InvalidValue):
            recollect.copy(file, target)


def test_two_concurrent_copies_write_every_row_once(file, postgres):
    with recollect.open(file) as store:
        fill(store)
        store.session("long").append([text_message("word " * 50) for _ in range(1500)])
    command = [sys.executable, "-m", "recollect", "db", "copy", file, postgres]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[1] for process in processes]
    for process, text in zip(processes, outputs, strict=True):
        assert process.returncode in (0, 4), text
    assert recollect.copy(file, postgres).complete
    assert read_all(postgres) == read_all(file)


def test_progress_is_monotonic_and_reaches_the_end(file, tmp_path):
    with recollect.open(file) as store:
        fill(store)
    progress_calls = []
    recollect.copy(file, tmp_path / "copy.db", progress=lambda done, total: progress_calls.append((done, total)))
    assert progress_calls == sorted(progress_calls)
    assert progress_calls[-1][0] / progress_calls[-1][1] > 0.9


def test_copy_does_not_change_the_source(file, tmp_path):
    with recollect.open(file) as store:
        fill(store)
    with open(file, "rb") as source_file:
        before = source_file.read()
    recollect.copy(file, tmp_path / "copy.db")
    with open(file, "rb") as source_file:
        assert source_file.read() == before
