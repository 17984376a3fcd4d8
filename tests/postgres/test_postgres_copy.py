"""A whole store copied to the other engine and back: every kind of row, killed in the middle, hostile, and compared."""

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
from recollect.ops.slices import JOURNAL
from recollect.testing.place import contents

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


def said(text, role="user"):
    return {"role": role, "content": text}


def asks(call):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "look", "input": {"q": "\0"}}]}


def answers(call, text="found"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}


def fill(store, name="a"):
    """Put something of every kind into a store."""
    talk = store.session(f"cli:{name}", title="Numbers", metadata={"k": ["\0", 1]}, system_prompt="Be kind.")
    talk.append([said(text) for text in HOSTILE], key="k\0ey")
    talk.append({"role": "system", "content": "Stay."})
    with talk.turn("look it up") as turn:
        turn.add(asks("one\0"))
        turn.add(answers("one\0"))
        turn.add(said("seven", "assistant"))
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + "A" * 400_000}
    talk.append({"role": "user", "content": [{"type": "image", "source": image}]})
    talk.compact(before=talk.messages()[4].id, summary="what was said")
    talk.snapshot("memory", "likes sevens")
    fork = talk.fork(id=f"fork:{name}", title="Another way")
    fork.append([said("elsewhere"), {"role": "user", "content": [{"type": "image", "source": image}]}])
    talk.rewind(talk.messages()[2].id)
    talk.append(said("instead"))
    talk.delete_message(talk.messages()[-1].id)
    store.session(f"cli:{name}:delegate:helper", parent=f"cli:{name}").append(said("for the parent"))
    for number in range(3):  # the same id three times in the trash, and once living
        store.session(f"gone:{name}").append(said(f"number {number}"))
        store.delete_session(f"gone:{name}")
    store.session(f"gone:{name}").append(said("here again"))
    erased = store.session(f"erased:{name}")
    erased.append(said("secret"))
    store.erase_session(erased.id)
    store.session(f"open:{name}").turn("still open")
    store.set_setting("theme\0", {"dark": "\ud800"})
    store.set_last_session(f"fork:{name}")


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "talks.db")


def all_of(place, owner=""):
    with recollect.open(place, owner=owner) as store:
        assert store.check().problems == ()
        found = contents(store)
        for listed in ("order", "created"):  # those of one moment have no order that the engines share
            found[listed].sort()
        found["trash"].sort(key=lambda session: (session.id, session.created_at))
        for session in found["sessions"].values():  # the number of a compaction or a snapshot is its store's own
            for kind in ("compactions", "snapshots"):
                session[kind] = [{**json.loads(each.to_json()), "id": None} for each in session[kind]]
        return found, store.setting("theme\0"), sorted(hit.message for hit in store.search("seven"))


@pytest.mark.parametrize("way", ["file to file", "file to server", "server to file", "server to server"])
def test_everything_arrives(way, file, tmp_path, postgres, databases):
    other = databases.make() if way.endswith("to server") and way.startswith("server") else None
    source = postgres if way.startswith("server") else file
    target = {"file": str(tmp_path / "copy.db"), "server": databases.url_of(other, "plain") if other else postgres}[
        way.rpartition(" ")[2]
    ]
    with recollect.open(source) as store:
        fill(store)
    copied = recollect.copy(source, target)
    assert copied.whole
    assert copied.counts["sessions"] == 8
    assert all(copied.counts.values()), copied.counts
    assert all_of(target) == all_of(source)
    with recollect.open(target) as store:  # it goes on where the source would
        talk = store.session("cli:a")
        count = talk.message_count
        talk.append([said(text) for text in HOSTILE], key="k\0ey")
        assert talk.refresh().message_count == count
        with pytest.raises(recollect.KeyReused):
            talk.append(said("other"), key="k\0ey")
        talk.compact(before=talk.messages()[2].id, summary="again")
        talk.fork().append(said("and on"))
        store.session("new").append(said("new"))
        assert store.check().problems == ()
    again = recollect.copy(source, target)
    assert {(each.kind, each.name, each.missing) for each in again.differences} == {("session", "cli:a", False)}
    if other:
        databases.drop(other)


def test_there_and_back_is_the_same_again(file, tmp_path, postgres):
    with recollect.open(file) as store:
        fill(store)
    back = str(tmp_path / "back.db")
    assert recollect.copy(file, postgres).whole
    assert recollect.copy(postgres, back).whole
    assert rows_of(back) == rows_of(file)


def rows_of(path):
    """Read every row of every table of a file, with any sqlite3, apart from numbers that are the file's own."""
    own = {"key", "tree", "session", "head", "parent", "branch", "message", "result", "indexed_to", "title_changed"}
    found = {}
    with sqlite3.connect(path) as connection:
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table}")
            kept = [
                number for number, (name, *_) in enumerate(cursor.description) if name not in own or table == "settings"
            ]
            found[table] = sorted(
                repr([row[number] for number in kept]) for row in cursor if row[1:2] != ("recollect.copy",)
            )
    return found


TABLES = (
    "trees", "sessions", "branches", "turns", "messages", "appends", "tool_calls", "compactions", "snapshots", "pins",
    "blobs", "settings",
)  # fmt: skip


def test_every_owner(file, tmp_path, postgres, databases, database):
    for owner in ("", "ann", "bob"):
        with recollect.open(file, owner=owner) as store:
            fill(store, owner or "nobody")
    copied = recollect.copy(file, postgres)
    assert copied.whole
    assert copied.owners == ("", "ann", "bob")
    assert copied.counts["sessions"] == 24
    for owner in copied.owners:
        assert all_of(postgres, owner) == all_of(file, owner)
    back = recollect.copy(postgres, tmp_path / "plain.db")  # an ordinary role, which sets each owner in turn
    assert back.whole
    assert back.owners == ("", "ann", "bob")
    assert back.counts["sessions"] == 24
    for owner in back.owners:
        assert all_of(tmp_path / "plain.db", owner) == all_of(file, owner)
    named = recollect.copy(postgres, tmp_path / "named.db", owners=["ann", "bob"])
    assert named.everyone
    assert all_of(tmp_path / "named.db", "bob") == all_of(file, "bob")
    mighty = recollect.copy(databases.url_of(database, "postgres"), tmp_path / "all.db")
    assert mighty.owners == ("", "ann", "bob")
    assert mighty.whole
    assert all_of(tmp_path / "all.db", "ann") == all_of(file, "ann")


def test_an_owner_who_comes_meanwhile_is_copied_too(file, postgres):
    with recollect.open(file, owner="ann") as store:
        fill(store, "ann")

    def progress(done, total):
        if not came:
            came.append((done, total))
            with recollect.open(file, owner="late") as other:
                other.session("cli:late").append(said("here too"))

    came = []
    copied = recollect.copy(file, postgres, progress=progress)
    assert copied.whole
    assert copied.owners == ("ann", "late")
    with recollect.open(postgres, owner="late") as store:
        assert [session.id for session in store.list_sessions()] == ["cli:late"]


def test_beside_other_owners_on_the_server(file, postgres):
    for owner in ("carl", "dora"):
        with recollect.open(postgres, owner=owner) as store:
            fill(store, owner)
    with recollect.open(file, owner="ann") as store:
        fill(store)
    assert recollect.copy(file, postgres, owners=["ann"]).whole
    assert all_of(postgres, "ann") == all_of(file, "ann")


@pytest.mark.parametrize("to_server", [True, False])
def test_killed_again_and_again(to_server, file, tmp_path, postgres, long):
    sessions = 20 if long else 10
    source, target = (file, postgres) if to_server else (postgres, str(tmp_path / "copy.db"))
    with recollect.open(source) as store:
        fill(store)
        for number in range(sessions):
            store.session(f"long:{number}").append(
                [said(f"word {number} {n} " * (n % 40)) for n in range(500)], key=f"key {number}"
            )
    command = [sys.executable, "-m", "recollect", "db", "copy", source, target, "--json"]
    chance = random.Random(7)
    kills = 0
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = _reached(target)
        until = time.monotonic() + 120
        while process.poll() is None and _reached(target) == before and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert kills >= 2
    done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    told = json.loads(done.stdout)
    assert told["whole"]
    assert told["counts"]["messages"] > sessions * 500
    assert told["counts"]["keys"] == sessions + 1
    assert all_of(target) == all_of(source)


def _reached(target):
    """Look how far a copy came."""
    if "://" not in target and not os.path.exists(target):
        return None
    with recollect.open(target) as store:
        return store.setting(JOURNAL)


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
    "DELETE FROM settings WHERE key <> 'recollect.copy'",
    "UPDATE settings SET value = '1' WHERE key <> 'recollect.copy'",
]
GONE = ("DELETE FROM blobs", "DELETE FROM settings")


def test_any_changed_row_is_found(file, tmp_path, postgres):
    with recollect.open(postgres) as store:
        fill(store)
    assert recollect.copy(postgres, file).whole
    changed = tmp_path / "changed.db"
    for change in CHANGES:
        shutil.copy(file, changed)
        with contextlib.closing(sqlite3.connect(changed)) as connection, connection:
            assert connection.execute(change).rowcount, change
        differences = recollect.copy(postgres, changed).differences
        assert differences, change
        assert any(each.missing for each in differences) == change.startswith(GONE), change


def test_a_changed_row_on_the_server_is_found(file, postgres, databases, database):
    with recollect.open(file) as store:
        fill(store)
    assert recollect.copy(file, postgres).whole
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute("UPDATE recollect.messages SET parts = replace(parts, 'elsewhere', 'nowhere')")
    (difference,) = recollect.copy(file, postgres).differences
    assert (difference.kind, difference.name, difference.missing) == ("session", "fork:a", False)


def test_what_is_there_is_not_written_over(file, tmp_path, postgres):
    with recollect.open(file) as store:
        fill(store)
    with recollect.open(postgres) as store:
        store.session("mine").append(said("mine"))
    with pytest.raises(recollect.Conflict, match="is not empty"):
        recollect.copy(file, postgres)
    with recollect.open(postgres) as store:
        assert [session.id for session in store.list_sessions()] == ["mine"]
    other, copy = str(tmp_path / "other.db"), str(tmp_path / "copy.db")
    with recollect.open(other) as store:
        store.session("other")
    assert recollect.copy(file, copy).whole
    with pytest.raises(recollect.Conflict, match="holds a copy of"):
        recollect.copy(other, copy)


def test_refusals(file, tmp_path):
    with pytest.raises(recollect.NotFound):
        recollect.copy(file, tmp_path / "copy.db")
    assert not os.path.exists(file)
    recollect.open(file).close()
    os.symlink(file, tmp_path / "link.db")
    for target in (file, tmp_path / "link.db", ":memory:"):
        with pytest.raises(recollect.InvalidValue):
            recollect.copy(file, target)


def test_two_copies_at_once(file, postgres):
    with recollect.open(file) as store:
        fill(store)
        store.session("long").append([said("word " * 50) for _ in range(1500)])
    command = [sys.executable, "-m", "recollect", "db", "copy", file, postgres]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=120)[1] for process in both]
    for process, text in zip(both, told, strict=True):
        assert process.returncode in (0, 4), text
    assert recollect.copy(file, postgres).whole
    assert all_of(postgres) == all_of(file)


def test_progress_reaches_the_end(file, tmp_path):
    with recollect.open(file) as store:
        fill(store)
    seen = []
    recollect.copy(file, tmp_path / "copy.db", progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] / seen[-1][1] > 0.9


def test_the_source_is_only_read(file, tmp_path):
    with recollect.open(file) as store:
        fill(store)
    with open(file, "rb") as whole:
        before = whole.read()
    recollect.copy(file, tmp_path / "copy.db")
    with open(file, "rb") as whole:
        assert whole.read() == before
