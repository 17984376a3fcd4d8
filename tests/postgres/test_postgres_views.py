"""The SQL views on PostgreSQL: they have the columns and rows of those in a SQLite file."""

from __future__ import annotations

import contextlib
import re
import sqlite3

import psycopg
import pytest
from test_postgres_copy import HOSTILE, fill, text_message, tool_call, tool_result

import recollect

VIEWS = ("chat_sessions", "chat_messages", "message_parts", "tool_invocations", "session_snapshots")
TREE = re.compile(r"^\d+(?=\.\d+\.\d+)")


def columns(connection, view):
    return [column[0] for column in connection.execute(f"SELECT * FROM {view} LIMIT 0").description]


def without_tree_numbers(rows):
    """Return the rows without the numbers of trees, which differ between stores."""
    return sorted(repr(tuple(TREE.sub("", cell) if isinstance(cell, str) else cell for cell in row)) for row in rows)


@pytest.fixture
def query(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SET search_path = recollect")
        yield lambda text: connection.execute(text).fetchall()


def fill_store(store):
    """Fill a store with text that the JSON of both engines supports: no NUL and no single surrogate."""
    session = store.session("cli:a", title="Numbers", metadata={"k": 1})
    session.append([text_message('a\\u0000 \\\\ud800 "quoted" \n\t 🧵'), text_message("")])
    call = {"type": "function", "id": "c0", "function": {"name": "grep", "arguments": '{"path": '}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]}, format="openai")
    session.append({"role": "tool", "tool_call_id": "c0", "content": "no such file"}, format="openai")
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": [1, 2.50, None]}}
    session.append({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]})
    session.append(tool_result("c1", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]))
    session.append({"role": "assistant", "content": [{**use, "id": "c2"}]})
    fork = session.fork(id="cli:f")
    fork.append(tool_result("c2", "in the fork"))
    session.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "bad", "is_error": True}]}
    )
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + "A" * 100_000}
    session.append({"role": "user", "content": [{"type": "image", "source": image}, {"type": "novel", "x": {"y": 1}}]})
    session.delete_messages([session.messages()[1].id])
    session.compact(before=session.messages()[2].id, summary="so far")
    session.snapshots.add("summary", {"s": 1})
    with session.turn("open"):
        pass
    store.session("gone").append(text_message("x"))
    store.delete_session("gone")


def test_views_have_the_rows_of_a_sqlite_file(tmp_path, postgres, query):
    path = tmp_path / "chats.db"
    with recollect.open(path) as store:
        fill_store(store)
    assert recollect.copy(path, postgres).complete
    with contextlib.closing(sqlite3.connect(path)) as file, psycopg.connect(postgres) as server:
        for view in VIEWS:
            names = columns(file, view)
            assert columns(server, f"recollect.{view}") == names
            selection = ", ".join(name for name in names if (view, name) != ("session_snapshots", "id"))
            expected = without_tree_numbers(file.execute(f"SELECT {selection} FROM {view}").fetchall())
            assert expected
            assert (
                without_tree_numbers(server.execute(f"SELECT {selection} FROM recollect.{view}".encode()).fetchall())
                == expected
            ), view


def test_queries_of_a_chat_application(postgres, query):
    with recollect.open(postgres) as store:
        session = store.session(title="Acceptance Test")
        with session.turn("Hello, how are you?") as turn:
            turn.add({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]})
            turn.add(tool_result("t", "the file"))
            turn.add(text_message("I'm doing well", "assistant"))
    assert query("SELECT id, title FROM chat_sessions") == [(session.id, "Acceptance Test")]
    tables = "FROM chat_messages JOIN message_parts ON chat_messages.id = message_parts.message_id"
    rows = query(
        f"SELECT role, kind, content_text, tool_name {tables} ORDER BY chat_messages.created_at, chat_messages.sequence"
    )
    assert rows == [
        ("user", "text", "Hello, how are you?", None),
        ("assistant", "tool_call", None, "read"),
        ("tool", "tool_result", "the file", "read"),
        ("assistant", "text", "I'm doing well", None),
    ]
    assert query("SELECT count(*) FROM message_parts") == [(4,)]
    assert query("SELECT count(*) FROM tool_invocations WHERE status='success'") == [(1,)]
    last_invocation = "FROM tool_invocations ORDER BY completed_at DESC, created_at DESC LIMIT 1"
    assert query(f"SELECT tool_name, status, substr(output_json, 1, 50) {last_invocation}") == [
        ("read", "success", "the file")
    ]


def test_views_show_any_stored_text(postgres, query):
    with recollect.open(postgres) as store:
        fill(store)
        pairs = ["\\", "\\\\u0000", "\ude00\ud83d", "\ud83d🧵\ude00", "\0\0", "\\\0", "\ud800\ud800", "\0🧵"]
        store.session("more").append([text_message(text) for text in (*pairs, *HOSTILE)])
    texts = {row[0] for row in query("SELECT content_text FROM message_parts WHERE session_id = 'more'")}
    assert {"\\", "\\\\u0000", "\ufffd\ufffd", "\\\ufffd", "\ufffd🧵\ufffd", "\ufffd🧵", "🧵", "a\ufffdb"} <= texts
    for view in VIEWS:
        assert query(f"SELECT * FROM {view}")


def test_views_separate_owners(postgres, databases, database):
    for owner in ("", "ann"):
        with recollect.open(postgres, owner=owner) as store:
            session = store.session(f"of {owner}")
            session.append([text_message("x"), tool_call("c"), tool_result("c")])
            session.snapshots.add("title", "t")
    for role in ("plain", "postgres"):
        with psycopg.connect(databases.url_of(database, role), autocommit=True) as connection:
            for owner in ("", "ann", "bob"):
                connection.execute("SELECT set_config('recollect.owner', %s, false)", [owner])
                for view in VIEWS:
                    name = "id" if view == "chat_sessions" else "session_id"
                    ids = {row[0] for row in connection.execute(f"SELECT {name} FROM recollect.{view}")}
                    assert ids == (set() if owner == "bob" else {f"of {owner}"})
