"""What people ask in SQL on a server: the views have the names, and say the same, as those in a file."""

from __future__ import annotations

import contextlib
import re
import sqlite3

import psycopg
import pytest
from test_postgres_copy import HOSTILE, answers, asks, fill, said

import recollect

VIEWS = ("chat_sessions", "chat_messages", "message_parts", "tool_invocations", "session_snapshots")
TREE = re.compile(r"^\d+(?=\.\d+\.\d+)")


def columns(connection, view):
    return [column[0] for column in connection.execute(f"SELECT * FROM {view} LIMIT 0").description]


def plain(rows):
    """Leave the numbers of trees out, which are each store's own."""
    return sorted(repr(tuple(TREE.sub("", cell) if isinstance(cell, str) else cell for cell in row)) for row in rows)


@pytest.fixture
def ask(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SET search_path = recollect")
        yield lambda text: connection.execute(text).fetchall()


def talk(store):
    """Fill a store with what both engines' JSON can say: no NUL and no half of a pair."""
    session = store.session("cli:a", title="Numbers", metadata={"k": 1})
    session.append([said('a\\u0000 \\\\ud800 "quoted" \n\t 🧵'), said("")])
    call = {"type": "function", "id": "c0", "function": {"name": "grep", "arguments": '{"path": '}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]}, format="openai")
    session.append({"role": "tool", "tool_call_id": "c0", "content": "no such file"}, format="openai")
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": [1, 2.50, None]}}
    session.append({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]})
    session.append(answers("c1", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]))
    session.append({"role": "assistant", "content": [{**use, "id": "c2"}]})
    fork = session.fork(id="cli:f")
    fork.append(answers("c2", "in the fork"))
    session.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "bad", "is_error": True}]}
    )
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + "A" * 100_000}
    session.append({"role": "user", "content": [{"type": "image", "source": image}, {"type": "novel", "x": {"y": 1}}]})
    session.delete_message(session.messages()[1].id)
    session.compact(before=session.messages()[2].id, summary="so far")
    session.snapshot("summary", {"s": 1})
    with session.turn("open"):
        pass
    store.session("gone").append(said("x"))
    store.delete_session("gone")


def test_they_say_what_those_of_a_file_say(tmp_path, postgres, ask):
    path = tmp_path / "talks.db"
    with recollect.open(path) as store:
        talk(store)
    assert recollect.copy(path, postgres).whole
    with contextlib.closing(sqlite3.connect(path)) as file, psycopg.connect(postgres) as server:
        for view in VIEWS:
            names = columns(file, view)
            assert columns(server, f"recollect.{view}") == names
            told = ", ".join(name for name in names if (view, name) != ("session_snapshots", "id"))
            found = plain(file.execute(f"SELECT {told} FROM {view}").fetchall())
            assert found
            assert plain(server.execute(f"SELECT {told} FROM recollect.{view}").fetchall()) == found, view


def test_a_chat_applications_questions(postgres, ask):
    with recollect.open(postgres) as store:
        session = store.create_session(title="Acceptance Test")
        with session.turn("Hello, how are you?") as turn:
            turn.add({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]})
            turn.add(answers("t", "the file"))
            turn.add(said("I'm doing well", "assistant"))
    assert ask("SELECT id, title FROM chat_sessions") == [(session.id, "Acceptance Test")]
    joined = "FROM chat_messages JOIN message_parts ON chat_messages.id = message_parts.message_id"
    rows = ask(
        f"SELECT role, kind, content_text, tool_name {joined} ORDER BY chat_messages.created_at, chat_messages.sequence"
    )
    assert rows == [
        ("user", "text", "Hello, how are you?", None),
        ("assistant", "tool_call", None, "read"),
        ("tool", "tool_result", "the file", "read"),
        ("assistant", "text", "I'm doing well", None),
    ]
    assert ask("SELECT count(*) FROM message_parts") == [(4,)]
    assert ask("SELECT count(*) FROM tool_invocations WHERE status='success'") == [(1,)]
    last = "FROM tool_invocations ORDER BY completed_at DESC, created_at DESC LIMIT 1"
    assert ask(f"SELECT tool_name, status, substr(output_json, 1, 50) {last}") == [("read", "success", "the file")]


def test_whatever_was_said(postgres, ask):
    with recollect.open(postgres) as store:
        fill(store)
        pairs = ["\\", "\\\\u0000", "\ude00\ud83d", "\ud83d🧵\ude00", "\0\0", "\\\0", "\ud800\ud800", "\0🧵"]
        store.session("more").append([said(text) for text in (*pairs, *HOSTILE)])
    texts = {row[0] for row in ask("SELECT content_text FROM message_parts WHERE session_id = 'more'")}
    assert {"\\", "\\\\u0000", "\ufffd\ufffd", "\\\ufffd", "\ufffd🧵\ufffd", "\ufffd🧵", "🧵", "a\ufffdb"} <= texts
    for view in VIEWS:
        assert ask(f"SELECT * FROM {view}")


def test_each_owner_sees_its_own(postgres, databases, database):
    for owner in ("", "ann"):
        with recollect.open(postgres, owner=owner) as store:
            session = store.session(f"of {owner}")
            session.append([said("x"), asks("c"), answers("c")])
            session.snapshot("title", "t")
    for role in ("plain", "postgres"):
        with psycopg.connect(databases.url_of(database, role), autocommit=True) as connection:
            for owner in ("", "ann", "bob"):
                connection.execute("SELECT set_config('recollect.owner', %s, false)", [owner])
                for view in VIEWS:
                    name = "id" if view == "chat_sessions" else "session_id"
                    seen = {row[0] for row in connection.execute(f"SELECT {name} FROM recollect.{view}")}
                    assert seen == (set() if owner == "bob" else {f"of {owner}"})
