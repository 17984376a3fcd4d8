"""Lists on a server that knows nothing of the tables yet, as in the minute after a first large load: by cost."""

from __future__ import annotations

import concurrent.futures
import re

import psycopg
import pytest
from psycopg import sql

import recollect
from recollect.engine.postgres.link import Link

MANY = 3_000
PAGE = 50
LISTS = {
    "usual": {},
    "all": {"archived": None, "delegates": True},
    "created": {"order": "created"},
    "title": {"order": "title"},
    "pinned first": {"pinned_first": True},
    "channel": {"channel": "web"},
    "model by title": {"model": "small", "order": "title"},
    "archived": {"archived": True},
    "pinned": {"pinned": True},
    "trash": {"deleted": True},
}
FILL = """
INSERT INTO recollect.sessions (
    tree, number, owner, id, parent, relation, created_at, updated_at, active_at, deleted_at, pinned_at, archived_at, title,
    folded, channel, model
)
SELECT n, 1, %(owner)s, 's' || n, CASE WHEN n %% 2 = 0 THEN ((n - 1) << 20) | 1 END, CASE WHEN n %% 2 = 0 THEN 'delegate' END,
    n, n, n, CASE WHEN n %% 7 = 0 THEN n END, CASE WHEN n %% 100 = 5 THEN n END, CASE WHEN n %% 40 = 9 THEN n END,
    'Title ' || n, 'title ' || n, CASE WHEN n %% 3 = 0 THEN 'web' ELSE 'cli' END, CASE WHEN n %% 5 = 0 THEN 'large' ELSE 'small' END
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(many)s - 1) AS n
"""


@pytest.fixture(scope="module")
def unknown(databases):
    """Give a database with sessions of two owners that was never analyzed, half of them sub-agents of the others."""
    name = databases.make()
    recollect.open(databases.url_of(name, "plain")).close()
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
        admin.execute("ALTER TABLE recollect.sessions SET (autovacuum_enabled = off)")
        for owner, first in (("ann", 1), ("bob", 1 + MANY)):
            admin.execute(FILL, {"owner": owner, "first": first, "many": MANY})
        assert admin.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'sessions'").fetchone() == (0,)
    yield databases.url_of(name, "plain")
    databases.drop(name)


@pytest.mark.parametrize("arguments", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_page_of_tables_that_were_never_analyzed_reads_few_rows(unknown, arguments, mode, monkeypatch):
    with recollect.open(unknown, owner="ann") as store:
        assert len(store.list_sessions(PAGE, **arguments)) > 0
        sent = noted(store, arguments, monkeypatch)
    with psycopg.connect(unknown) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}")
        for statement, values in sent:  # in one transaction, for which some set how the next is planned
            scans = list(scanned(explained(connection, statement, values)))
            # A filter that leaves one in three, and few of the trash, are passed over on the way to a page.
            assert sum(rows for *_, rows in scans) < MANY, (statement.name, scans)


@pytest.mark.parametrize(
    "arguments",
    [{"tool": "read"}, {"role": "tool"}, {"tool": "read", "order": "title"}, {"role": "user", "pinned": True}],
)
def test_what_a_session_called_and_said_is_looked_for_in_its_tree(unknown, arguments, monkeypatch):
    """Where nothing was said yet it is tempting to read all of it at once, and the plan is kept when there is more."""
    with recollect.open(unknown, owner="ann") as store:
        sent = noted(store, arguments, monkeypatch)
    looked = set()
    with psycopg.connect(unknown) as connection:
        for statement, values in sent:
            for table, condition in conditions(explained(connection, statement, values)):
                looked.add(table)
                assert re.search(r"tree = sessions(_\d+)?\.tree.* AND \(\w*branch = ", condition), (
                    statement.name,
                    condition,
                )
    assert looked == {"tool_calls" if "tool" in arguments else "messages"}  # and nothing that was not asked for


def test_a_page_counts_the_sub_agents_of_its_owner_alone(unknown):
    with recollect.open(unknown, owner="ann") as store:
        page = store.list_sessions(PAGE, order="created")
        counts = {session.id: session.delegate_count for session in page}
        assert counts == {f"s{n}": int((n + 1) % 7 != 0) for n in range(MANY - 1, 0, -2) if f"s{n}" in counts}
        assert set(counts.values()) == {0, 1}
        assert len(counts) == PAGE
        # A row of another owner that claims to be a sub-agent is neither counted nor shown.
        with psycopg.connect(unknown, autocommit=True) as connection:
            connection.execute("SELECT set_config('recollect.owner', 'bob', false)")
            mine = int(page[0].id[1:])
            moved = connection.execute(
                "UPDATE recollect.sessions SET parent = %s WHERE id = %s RETURNING id",
                [(mine << 20) | 1, f"s{2 * MANY}"],
            )
            assert moved.fetchall()
        again = store.list_sessions(PAGE, order="created")
        assert {session.id: session.delegate_count for session in again} == counts
        assert store.get_session(page[0].id).delegate_count == counts[page[0].id]


@pytest.mark.parametrize("few", [2, 500])
def test_pinned_first_is_the_same_list_whatever_the_page_and_however_many_are_pinned(
    databases, database, few, monkeypatch
):
    """A first page is one statement, unless more are pinned than are looked at one by one; those that follow are not."""
    monkeypatch.setattr("recollect.ops.lists._FEW", few)
    with recollect.open(databases.url_of(database, "plain")) as store:
        for number in range(9):
            store.session(f"s{number}", pinned=number % 2 == 0, archived=number == 4)
        store.session("s0:delegate:x", parent="s0", pinned=True)
        wanted = ["s8", "s6", "s2", "s0", "s7", "s5", "s3", "s1"]
        for limit in range(1, 10):
            listed, after = [], None
            while True:
                page = store.list_sessions(limit, after=after, pinned_first=True)
                listed += [session.id for session in page]
                after = page.next
                if after is None:
                    break
                assert len(page) == limit
            assert listed == wanted, limit
        sent = noted(store, {"pinned_first": True}, monkeypatch)
        assert len([each for each, _ in sent if b"recollect.sessions" in each.text]) == (1 if few > 4 else 3)


def test_kin_is_counted_and_named_whoever_writes_it(databases, database):
    """The rows of parents and children are written by triggers: also where several write at once, or in plain SQL."""
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
            run = connection.execute
            run("DELETE FROM recollect.sessions WHERE id = 'a:delegate:1'")
            run("UPDATE recollect.sessions SET relation = 'fork' WHERE id = 'a:delegate:3'")
            run("UPDATE recollect.sessions SET parent = NULL WHERE id = 'a:delegate:5'")
            run("UPDATE recollect.sessions SET parent = (SELECT (tree << 20) | number FROM recollect.sessions WHERE id = 'b') "
                "WHERE id IN ('a:delegate:7', 'a:delegate:2')")  # fmt: skip
        listed = {session.id: session for session in store.list_sessions(100, delegates=True)}
        assert {id: session.delegate_count for id, session in listed.items() if session.delegate_count} == {
            "a": 9,
            "b": 1,
        }
        named = {id: session.parent for id, session in listed.items()}
        assert named.pop("a:delegate:7") == "b"
        assert named.pop("a:delegate:5") is None
        assert {parent for id, parent in named.items() if "delegate" in id} == {"a"}
        assert store.get_session("a:delegate:3").parent == "a"
        assert [finding for finding in store.check().problems if finding.kind == "counter"] == []


def test_a_parent_that_is_erased_meanwhile_is_not_found(databases, database):
    with recollect.open(databases.url_of(database, "plain")) as store:
        store.session("a")
        with (
            psycopg.connect(databases.url_of(database, "postgres")) as other,
            concurrent.futures.ThreadPoolExecutor() as pool,
        ):
            other.execute("DELETE FROM recollect.sessions WHERE id = 'a'")
            child = pool.submit(store.session, "a:delegate:x", parent="a")
            with pytest.raises(concurrent.futures.TimeoutError):
                child.result(0.3)
            other.commit()
            with pytest.raises(recollect.SessionNotFound):
                child.result(10)
        assert store.get_session("a:delegate:x") is None
        assert [finding for finding in store.check().problems if finding.kind == "counter"] == []


def test_kin_that_is_wrong_is_found_and_put_right(databases, database):
    url = databases.url_of(database, "plain")
    with recollect.open(url) as store:
        for id, parent in (("a", None), ("a:delegate:x", "a"), ("b", None)):
            store.session(id, parent=parent)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "UPDATE recollect.sessions SET delegates = delegates - 1, parent_id = 'b' WHERE id <> 'b'"
            )
        assert {problem.session for problem in store.check().problems} == {"a", "a:delegate:x"}
        assert {finding.repaired for finding in store.check(repair=True).found} == {True}
        assert store.check().problems == ()
        kin = {session.id: (session.parent, session.delegate_count) for session in store.list_sessions(delegates=True)}
        assert kin == {"a": (None, 1), "a:delegate:x": ("a", 0), "b": (None, 0)}


def conditions(plan):
    """Give the table and the condition of the index of every scan of calls and messages in a plan."""
    if plan.get("Relation Name") in ("tool_calls", "messages"):
        yield plan["Relation Name"], str([plan.get("Index Cond"), plan.get("Recheck Cond")])
    for below in plan.get("Plans", ()):
        yield from conditions(below)


def noted(store, arguments, monkeypatch):
    """Give the statements about sessions that a page sends, with their values."""
    sent = []
    send = Link.send

    def note(link, statement, values):
        sent.append((statement, values))
        send(link, statement, values)

    monkeypatch.setattr(Link, "send", note)
    store.list_sessions(PAGE, **arguments)
    monkeypatch.undo()
    return [(statement, values) for statement, values in sent if b"SELECT" in statement.text]


def explained(connection, statement, values):
    """Run a statement as the engine does, and give its plan with the rows that were met."""
    if b"recollect." not in statement.text:
        connection.execute(b"PREPARE setting AS " + statement.text)
        connection.execute(executed("setting", values))
        connection.execute("DEALLOCATE setting")
        return {}
    connection.execute(b"PREPARE listing AS " + statement.text)
    asked = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ") + executed("listing", values)
    (plan,) = connection.execute(asked).fetchone()
    connection.execute("DEALLOCATE listing")
    return plan[0]["Plan"]


def executed(name, values):
    literals = sql.SQL(", ").join([sql.Literal(None if value is None else value.decode()) for value in values])
    return sql.SQL("EXECUTE ") + sql.SQL(name) + (sql.SQL("(") + literals + sql.SQL(")") if values else sql.SQL(""))


def scanned(plan):
    """Give the alias, the index and the rows met of every scan in a plan."""
    if "Alias" in plan and "Relation Name" in plan:
        below = plan.get("Plans", [{}])
        index = plan.get("Index Name") or next((part["Index Name"] for part in below if "Index Name" in part), None)
        met = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        yield plan["Alias"], index, met * plan["Actual Loops"]
    for below in plan.get("Plans", ()):
        yield from scanned(below)
