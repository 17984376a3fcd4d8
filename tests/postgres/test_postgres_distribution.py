"""Requirements of a sharding engine, read from the catalog and the plans: keys begin with the tree, and queries stay in it."""

from __future__ import annotations

import re

import psycopg
import pytest

import recollect
from recollect.engine.postgres.connections import PipelinedConnection

MESSAGES = [
    {"role": "user", "content": "What is in it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "a page"},
    {"role": "assistant", "content": "A page."},
]
CROSS_TREE_TABLES = {
    "commits": "a commit token is found by its random number and used by one connection only",
    "sessions": "a session is found by owner and id, its position in the list by the owner, and its delegates, "
    "which have their own trees, by its key",
    "blobs": "a payload is stored once for an owner",
}


@pytest.fixture
def sent_statements(postgres, monkeypatch):
    """Return every statement that appending to a session and reading it sends."""
    statements = {}
    send = PipelinedConnection.send

    def record_statement(pipeline, statement, values):
        statements[statement.name] = statement
        send(pipeline, statement, values)

    with recollect.open(postgres, owner="ann") as store:
        for number in range(30):
            store.session(f"s{number}").append(MESSAGES)
        session = store.session("a")
        monkeypatch.setattr(PipelinedConnection, "send", record_statement)
        session.append(MESSAGES)
        session.append(MESSAGES, key="once")
        session.append(MESSAGES, key="once")
        session.append({"role": "user", "content": [{"type": "text", "text": "x" * 300_000}]})
        session.save_turn("q", {"role": "assistant", "content": "r"})
        with session.turn("And now?") as turn:
            turn.add(MESSAGES[1:])
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


def test_every_unique_key_begins_with_the_tree_or_the_owner(sent_statements, admin):
    tables = {name.decode() for name in tables_of(sent_statements)}
    assert {"sessions", "branches", "messages", "turns", "tool_calls", "appends", "commits"} <= tables
    rows = admin.execute(
        "SELECT c.relname, i.indexrelid::regclass::text, a.attname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] "
        "WHERE c.relnamespace = 'recollect'::regnamespace AND i.indisunique"
    ).fetchall()
    first_columns = {(table, column) for table, _, column in rows if table in tables}
    assert {table for table, _ in first_columns} == {table for table, *_ in rows} & tables
    assert {table for table, column in first_columns if column not in ("tree", "owner")} == {"commits"}


def test_an_append_writes_to_no_table_with_an_identity_column(sent_statements, admin):
    """Only trees and two tables that people write by hand have identity columns; an append writes to none of them."""
    identity_tables = {
        row[0]
        for row in admin.execute(
            "SELECT attrelid::regclass::text FROM pg_attribute WHERE attidentity <> '' AND "
            "attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'recollect'::regnamespace)"
        )
    }
    assert identity_tables == {"recollect.trees", "recollect.compactions", "recollect.snapshots"}
    inserted_tables = {
        table.decode()
        for statement in sent_statements
        for table in re.findall(rb"INSERT INTO recollect\.([a-z_]+)", statement.text)
    }
    assert {"messages", "turns", "appends", "commits"} <= inserted_tables
    assert not {f"recollect.{table}" for table in inserted_tables} & identity_tables


def test_hot_queries_read_one_tree(sent_statements, admin, postgres):
    admin.execute("VACUUM ANALYZE")
    cross_tree_scans = {}
    with psycopg.connect(postgres, autocommit=True) as connection:
        for node_type in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"):  # plans as for many rows
            connection.execute(f"SET enable_{node_type} = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SELECT set_config('recollect.owner', 'ann', false)")
        for statement in sent_statements:
            if b"recollect." not in statement.text:
                continue
            connection.execute(b"PREPARE hot AS " + statement.text)
            count = len(set(re.findall(rb"\$\d+", statement.text)))
            nulls = f"({', '.join(['NULL'] * count)})" if count else ""
            ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot{nulls}".encode()).fetchall()
            connection.execute("DEALLOCATE hot")
            for table, condition in find_scans(plan[0]["Plan"]):
                if "tree" not in condition:
                    cross_tree_scans.setdefault(table, []).append((statement.name, condition))
    assert set(cross_tree_scans) <= set(CROSS_TREE_TABLES)
    assert "sessions" in cross_tree_scans
    cross_tree_conditions = [
        condition for table in ("sessions", "blobs") for _, condition in cross_tree_scans.get(table, [])
    ]
    assert all("owner" in condition or condition.startswith("(parent = ") for condition in cross_tree_conditions), (
        cross_tree_conditions
    )


def find_scans(plan):
    """Yield the table and the index condition of every scan in a plan."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan["Relation Name"], plan.get("Index Cond", "none")
    for child in plan.get("Plans", ()):
        yield from find_scans(child)
