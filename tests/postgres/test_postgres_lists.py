"""Lists on tables that were never analyzed, as in the minute after a large initial load, and stored relatives."""

from __future__ import annotations

import concurrent.futures
import re

import psycopg
import pytest
from psycopg import sql

import recollect
from recollect.engine.postgres.connections import PipelinedConnection

SESSIONS_PER_OWNER = 3_000  # sessions; a plan that reads a whole table reads twice as many rows
PAGE = 50  # sessions
LISTS = {
    "default": {},
    "all": {"archived": None, "delegates": True},
    "created": {"order": "created"},
    "title": {"order": "title"},
    "pinned first": {"pinned_first": True},
    "channel": {"channel": "web"},
    "model by title": {"model": "small", "order": "title"},
    "archived": {"archived": True},
    "pinned": {"pinned": True},
    "trash": {"deleted": True},
    "oldest first": {"oldest_first": True},
    "created, oldest first": {"order": "created", "oldest_first": True},
    "title, Z to A": {"order": "title", "oldest_first": True},
    "label": {"label": "rare"},
    "two labels": {"label": ["common", "rare"], "order": "title"},
    "common label": {"label": "common"},
    "external id": {"external_id": "e7"},
    "id prefix": {"id_prefix": "s12"},
    "common id prefix": {"id_prefix": "s", "order": "created"},
    "metadata": {"metadata": {"third": True}},
    "relation": {"relation": "delegate"},
}
INSERT_SESSIONS = """
INSERT INTO recollect.sessions (
    tree, number, owner, id, parent, relation, created_at, updated_at, active_at, deleted_at, pinned_at, archived_at, title,
    folded, channel, model, external_id, labels, metadata
)
SELECT n, 1, %(owner)s, 's' || n, CASE WHEN n %% 2 = 0 THEN ((n - 1) << 20) | 1 END, CASE WHEN n %% 2 = 0 THEN 'delegate' END,
    n, n, n, CASE WHEN n %% 7 = 0 THEN n END, CASE WHEN n %% 100 = 5 THEN n END, CASE WHEN n %% 40 = 9 THEN n END,
    'Title ' || n, 'title ' || n, CASE WHEN n %% 3 = 0 THEN 'web' ELSE 'cli' END, CASE WHEN n %% 5 = 0 THEN 'large' ELSE 'small' END,
    'e' || n %% 1000, CASE WHEN n %% 200 = 3 THEN '["common","rare"]' ELSE '["common"]' END,
    CASE WHEN n %% 3 = 0 THEN '{"third":true}' ELSE '{"third":false}' END
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS n
"""
INSERT_LABELS = """
INSERT INTO recollect.session_labels (tree, session, owner, label)
SELECT s.tree, s.number, s.owner, l.value FROM recollect.sessions AS s CROSS JOIN json_array_elements_text(s.labels::json) AS l (value)
"""


@pytest.fixture(scope="module")
def unanalyzed_url(databases):
    """Return the URL of a database that was never analyzed, with sessions of two owners, half of them delegates."""
    name = databases.make()
    recollect.open(databases.url_of(name, "plain")).close()
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
        admin.execute("ALTER TABLE recollect.sessions SET (autovacuum_enabled = off)")
        for owner, first in (("ann", 1), ("bob", 1 + SESSIONS_PER_OWNER)):
            admin.execute(INSERT_SESSIONS, {"owner": owner, "first": first, "count": SESSIONS_PER_OWNER})
        admin.execute("ALTER TABLE recollect.session_labels SET (autovacuum_enabled = off)")
        admin.execute(INSERT_LABELS)
        assert admin.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'sessions'").fetchone() == (0,)
    yield databases.url_of(name, "plain")
    databases.drop(name)


@pytest.mark.parametrize("arguments", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_page_of_unanalyzed_tables_reads_few_rows(unanalyzed_url, arguments, mode, monkeypatch):
    with recollect.open(unanalyzed_url, owner="ann") as store:
        assert len(store.list_sessions(PAGE, **arguments)) > 0
        statements = record_statements(store, arguments, monkeypatch)
    with psycopg.connect(unanalyzed_url) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        for statement, values in statements:  # in one transaction: some set how the next is planned
            rows_by_scan = list(find_scans(explain(connection, statement, values)))
            # Rows that the filter excludes, and rows of the trash, are read on the way to a page.
            assert sum(rows for *_, rows in rows_by_scan) < SESSIONS_PER_OWNER, (statement.name, rows_by_scan)


@pytest.mark.parametrize(
    ("arguments", "index"),
    [
        ({"label": "rare"}, "session_labels_label"),
        ({"external_id": "e7"}, "sessions_external"),
        ({"id_prefix": "s12"}, "sessions_id"),
    ],
)
def test_a_filter_uses_its_index(unanalyzed_url, arguments, index, monkeypatch):
    with recollect.open(unanalyzed_url, owner="ann") as store:
        statements = record_statements(store, arguments, monkeypatch)
    with psycopg.connect(unanalyzed_url) as connection:
        connection.execute("SELECT set_config('recollect.owner', 'ann', true)")
        [(statement, values), *_] = [item for item in statements if b"FROM recollect." in item[0].text]
        [(_, used_index, rows)] = find_scans(explain(connection, statement, values))
        assert used_index == index
        assert 0 < rows < SESSIONS_PER_OWNER / 10


@pytest.mark.parametrize(
    "arguments",
    [{"tool": "read"}, {"role": "tool"}, {"tool": "read", "order": "title"}, {"role": "user", "pinned": True}],
)
def test_filters_by_tool_and_role_use_an_index_in_the_tree(unanalyzed_url, arguments, monkeypatch):
    """For empty tables the planner would read all rows, and the cached plan would be used when there are many."""
    with recollect.open(unanalyzed_url, owner="ann") as store:
        statements = record_statements(store, arguments, monkeypatch)
    tables = set()
    with psycopg.connect(unanalyzed_url) as connection:
        for statement, values in statements:
            for table, condition in conditions(explain(connection, statement, values)):
                tables.add(table)
                assert re.search(r"tree = (sessions|s)(_\d+)?\.tree.* AND \(\w*branch = ", condition), (
                    statement.name,
                    condition,
                )
    assert tables == {"tool_calls" if "tool" in arguments else "messages"}  # no other table


def test_delegate_counts_ignore_other_owners(unanalyzed_url):
    with recollect.open(unanalyzed_url, owner="ann") as store:
        page = store.list_sessions(PAGE, order="created")
        counts = {session.id: session.delegate_count for session in page}
        assert counts == {
            f"s{n}": int((n + 1) % 7 != 0) for n in range(SESSIONS_PER_OWNER - 1, 0, -2) if f"s{n}" in counts
        }
        assert set(counts.values()) == {0, 1}
        assert len(counts) == PAGE
        # A row of another owner with this parent is neither counted nor shown.
        with psycopg.connect(unanalyzed_url, autocommit=True) as connection:
            connection.execute("SELECT set_config('recollect.owner', 'bob', false)")
            parent_number = int(page[0].id[1:])
            cursor = connection.execute(
                "UPDATE recollect.sessions SET parent = %s WHERE id = %s RETURNING id",
                [(parent_number << 20) | 1, f"s{2 * SESSIONS_PER_OWNER}"],
            )
            assert cursor.fetchall()
        second_page = store.list_sessions(PAGE, order="created")
        assert {session.id: session.delegate_count for session in second_page} == counts
        assert store.get_session(page[0].id).delegate_count == counts[page[0].id]


@pytest.mark.parametrize("sort_limit", [2, 500])
def test_pinned_first_lists_every_session_once_for_any_page_size(databases, database, sort_limit, monkeypatch):
    """The first page is one statement, unless more sessions are pinned than may be sorted. Later pages take more.

    Then the pinned sessions take two, one of which shows that there are too many, and the others one.
    """
    monkeypatch.setattr("recollect.storage.listing._SORT_LIMIT", sort_limit)
    with recollect.open(databases.url_of(database, "plain")) as store:
        for number in range(9):
            store.session(f"s{number}", pinned=number % 2 == 0, archived=number == 4)
        store.session("s0:delegate:x", parent="s0", pinned=True)
        expected = ["s8", "s6", "s2", "s0", "s7", "s5", "s3", "s1"]
        for limit in range(1, 10):
            ids, after = [], None
            while True:
                page = store.list_sessions(limit, after=after, pinned_first=True)
                ids += [session.id for session in page]
                after = page.next
                if after is None:
                    break
                assert len(page) == limit
            assert ids == expected, limit
        statements = record_statements(store, {"pinned_first": True}, monkeypatch)
        assert len([statement for statement, _ in statements if b"recollect.sessions" in statement.text]) == (
            1 if sort_limit > 4 else 4
        )


def test_triggers_maintain_parent_ids_and_delegate_counts(databases, database):
    """Triggers maintain parent ids and delegate counts, also with concurrent writers and plain SQL."""
    url = databases.url_of(database, "plain")
    with recollect.open(url) as store:
        parent = store.session("a")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.session(f"a:delegate:{number}", parent="a"), range(24)))
        assert parent.refresh().delegate_count == 24
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.delete_session(f"a:delegate:{number}"), range(0, 24, 2)))
        assert parent.refresh().delegate_count == 12
        store.restore_session("a:delegate:0")
        store.session("b")
        with psycopg.connect(url, autocommit=True) as connection:
            execute = connection.execute
            execute("DELETE FROM recollect.sessions WHERE id = 'a:delegate:1'")
            execute("UPDATE recollect.sessions SET relation = 'fork' WHERE id = 'a:delegate:3'")
            execute("UPDATE recollect.sessions SET parent = NULL WHERE id = 'a:delegate:5'")
            execute("UPDATE recollect.sessions SET parent = (SELECT (tree << 20) | number FROM recollect.sessions WHERE id = 'b') "
                "WHERE id IN ('a:delegate:7', 'a:delegate:2')")  # fmt: skip
        sessions = {session.id: session for session in store.list_sessions(100, delegates=True)}
        assert {id: session.delegate_count for id, session in sessions.items() if session.delegate_count} == {
            "a": 9,
            "b": 1,
        }
        parents = {id: session.parent for id, session in sessions.items()}
        assert parents.pop("a:delegate:7") == "b"
        assert parents.pop("a:delegate:5") is None
        assert {parent for id, parent in parents.items() if "delegate" in id} == {"a"}
        assert store.get_session("a:delegate:3").parent == "a"
        assert [finding for finding in store.maintenance.check().problems if finding.kind == "counter"] == []


def test_a_parent_that_is_erased_concurrently_raises_session_not_found(databases, database):
    with recollect.open(databases.url_of(database, "plain")) as store:
        store.session("a")
        with (
            psycopg.connect(databases.url_of(database, "postgres")) as admin,
            concurrent.futures.ThreadPoolExecutor() as pool,
        ):
            admin.execute("DELETE FROM recollect.sessions WHERE id = 'a'")
            child = pool.submit(store.session, "a:delegate:x", parent="a")
            with pytest.raises(concurrent.futures.TimeoutError):
                child.result(0.3)
            admin.commit()
            with pytest.raises(recollect.SessionNotFound):
                child.result(10)
        assert store.get_session("a:delegate:x") is None
        assert [finding for finding in store.maintenance.check().problems if finding.kind == "counter"] == []


def test_check_repairs_parent_ids_and_delegate_counts(databases, database):
    url = databases.url_of(database, "plain")
    with recollect.open(url) as store:
        for id, parent in (("a", None), ("a:delegate:x", "a"), ("b", None)):
            store.session(id, parent=parent)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "UPDATE recollect.sessions SET delegates = delegates - 1, parent_id = 'b' WHERE id <> 'b'"
            )
        assert {problem.session for problem in store.maintenance.check().problems} == {"a", "a:delegate:x"}
        assert {finding.repaired for finding in store.maintenance.check(repair=True).findings} == {True}
        assert store.maintenance.check().problems == ()
        relatives = {
            session.id: (session.parent, session.delegate_count) for session in store.list_sessions(delegates=True)
        }
        assert relatives == {"a": (None, 1), "a:delegate:x": ("a", 0), "b": (None, 0)}


def test_check_repairs_the_rows_of_labels(databases, database):
    url = databases.url_of(database, "plain")
    with recollect.open(url) as store, recollect.open(url, owner="ann") as ann:
        for id, labels in (("a", ["x", "y"]), ("b", ["x"]), ("c", [])):
            store.session(id, labels=labels)
            ann.session(id, labels=labels)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM recollect.session_labels WHERE label = 'y'")
            connection.execute("UPDATE recollect.sessions SET labels = NULL WHERE id = 'b'")
        assert [session.id for session in store.list_sessions(label="y")] == []
        assert {(problem.kind, problem.session) for problem in store.maintenance.check().problems} == {
            ("label", "a"),
            ("label", "b"),
        }
        assert {finding.repaired for finding in store.maintenance.check(repair=True).findings} == {True}
        assert (store.maintenance.check().problems, ann.maintenance.check().problems) == ((), ())
        assert [session.id for session in store.list_sessions(label="y")] == ["a"]
        assert [session.id for session in store.list_sessions(label="x")] == ["a"]
        store.erase_session("a")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM recollect.session_labels").fetchone() == (0,)
        assert [session.id for session in ann.list_sessions(label="x")] == ["b", "a"]


def conditions(plan):
    """Yield the table and the index condition of every scan of tool calls and messages in a plan."""
    if plan.get("Relation Name") in ("tool_calls", "messages"):
        yield plan["Relation Name"], str([plan.get("Index Cond"), plan.get("Recheck Cond")])
    for child in plan.get("Plans", ()):
        yield from conditions(child)


def record_statements(store, arguments, monkeypatch):
    """Return the SELECT statements that a page of a list sends, with their values."""
    statements = []
    send = PipelinedConnection.send

    def record(pipeline, statement, values):
        statements.append((statement, values))
        send(pipeline, statement, values)

    monkeypatch.setattr(PipelinedConnection, "send", record)
    store.list_sessions(PAGE, **arguments)
    monkeypatch.undo()
    return [(statement, values) for statement, values in statements if b"SELECT" in statement.text]


def explain(connection, statement, values):
    """Run a statement as the engine does, and return its plan with the number of rows."""
    if b"recollect." not in statement.text:
        connection.execute(b"PREPARE setting AS " + statement.text)
        connection.execute(execute_command("setting", values))
        connection.execute("DEALLOCATE setting")
        return {}
    connection.execute(b"PREPARE listing AS " + statement.text)
    query = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ") + execute_command("listing", values)
    (plan,) = connection.execute(query).fetchone()
    connection.execute("DEALLOCATE listing")
    return plan[0]["Plan"]


def execute_command(name, values):
    literals = sql.SQL(", ").join([sql.Literal(value) for value in values])
    return sql.SQL("EXECUTE ") + sql.SQL(name) + (sql.SQL("(") + literals + sql.SQL(")") if values else sql.SQL(""))


def find_scans(plan):
    """Yield the alias, the index and the number of rows of every scan in a plan."""
    if "Alias" in plan and "Relation Name" in plan:
        children = plan.get("Plans", [{}])
        index = plan.get("Index Name") or next((node["Index Name"] for node in children if "Index Name" in node), None)
        rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        yield plan["Alias"], index, rows * plan["Actual Loops"]
    for child in plan.get("Plans", ()):
        yield from find_scans(child)
