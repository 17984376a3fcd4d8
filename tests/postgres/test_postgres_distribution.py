"""What a sharding engine needs, read from the catalog and the plans: keys that begin with the tree, and queries that stay in it."""

from __future__ import annotations

import re

import psycopg
import pytest

import recollect
from recollect.engine.postgres.link import Link

TALK = [
    {"role": "user", "content": "What is in it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "a page"},
    {"role": "assistant", "content": "A page."},
]
BEYOND = {
    "commits": "a mark is found by its random number, and is of use to one connection alone",
    "sessions": "a session is found by its owner and id, its place in the owner's list by the owner, and its sub-agents, "
    "which are trees of their own, by its key",
    "blobs": "a payload is stored once for an owner",
}


@pytest.fixture
def sent(postgres, monkeypatch):
    """Every statement that appending to a session and loading it sends."""
    statements = {}
    send = Link.send

    def noted(link, statement, values):
        statements[statement.name] = statement
        send(link, statement, values)

    with recollect.open(postgres, owner="ann") as store:
        for number in range(30):
            store.session(f"s{number}").append(TALK)
        session = store.session("a")
        monkeypatch.setattr(Link, "send", noted)
        session.append(TALK)
        session.append(TALK, key="once")
        session.append(TALK, key="once")
        session.append({"role": "user", "content": [{"type": "text", "text": "x" * 300_000}]})
        session.save_turn("q", {"role": "assistant", "content": "r"})
        with session.turn("And now?") as turn:
            turn.add(TALK[1:])
        session.messages()
        session.messages(last=5)
        session.history("openai", budget=1000)
        session.refresh()
        monkeypatch.undo()
    return list(statements.values())


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def tables_of(statements):
    return {table for statement in statements for table in re.findall(rb"recollect\.([a-z_]+)(?!\()", statement.text)}


def test_every_unique_key_begins_with_the_tree_or_the_owner(sent, admin):
    tables = {name.decode() for name in tables_of(sent)}
    assert {"sessions", "branches", "messages", "turns", "tool_calls", "appends", "commits"} <= tables
    rows = admin.execute(
        "SELECT c.relname, i.indexrelid::regclass::text, a.attname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] "
        "WHERE c.relnamespace = 'recollect'::regnamespace AND i.indisunique"
    ).fetchall()
    found = {(table, column) for table, _, column in rows if table in tables}
    assert {table for table, _ in found} == {table for table, *_ in rows} & tables
    assert {table for table, column in found if column not in ("tree", "owner")} == {"commits"}


def test_no_column_of_the_append_path_is_counted_by_the_server(sent, admin):
    """Trees and the two tables that people write by hand count; an append touches none of these counters."""
    counting = {
        row[0]
        for row in admin.execute(
            "SELECT attrelid::regclass::text FROM pg_attribute WHERE attidentity <> '' AND "
            "attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'recollect'::regnamespace)"
        )
    }
    assert counting == {"recollect.trees", "recollect.compactions", "recollect.snapshots"}
    written = {
        table.decode()
        for statement in sent
        for table in re.findall(rb"INSERT INTO recollect\.([a-z_]+)", statement.text)
    }
    assert {"messages", "turns", "appends", "commits"} <= written
    assert not {f"recollect.{table}" for table in written} & counting


def test_hot_queries_stay_in_their_tree(sent, admin, postgres):
    admin.execute("VACUUM ANALYZE")
    left = {}
    with psycopg.connect(postgres, autocommit=True) as connection:
        for kind in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"):  # as it is planned for many rows
            connection.execute(f"SET enable_{kind} = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SELECT set_config('recollect.owner', 'ann', false)")
        for statement in sent:
            if b"recollect." not in statement.text:
                continue
            connection.execute(b"PREPARE hot AS " + statement.text)
            count = len(set(re.findall(rb"\$\d+", statement.text)))
            nulls = f"({', '.join(['NULL'] * count)})" if count else ""
            (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot{nulls}").fetchone()
            connection.execute("DEALLOCATE hot")
            for table, condition in scans(plan[0]["Plan"]):
                if "tree" not in condition:
                    left.setdefault(table, []).append((statement.name, condition))
    assert set(left) <= set(BEYOND)
    assert "sessions" in left
    beyond = [condition for table in ("sessions", "blobs") for _, condition in left.get(table, [])]
    assert all("owner" in condition or condition.startswith("(parent = ") for condition in beyond), beyond


def scans(plan):
    """Give the table and the condition of every scan in a plan."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan["Relation Name"], plan.get("Index Cond", "none")
    for below in plan.get("Plans", ()):
        yield from scans(below)
