"""Query plans: every query finds its rows by a key or an index, and lists need no sort."""

from __future__ import annotations

import os
import re

import apsw
import pytest

import recollect
from recollect import sql
from recollect.engine.sqlite.connection import CHECKPOINT_PAGES, connect
from recollect.engine.sqlite.database_file import DatabaseFile
from recollect.engine.sqlite.ranking import register_ranking

QUERIES = sql.queries("sqlite")
FILTERS = [name for name in QUERIES if name.startswith("sessions_of_") and name != "sessions_of_tree"]
LARGE_TABLES = (
    "sessions",
    "messages",
    "branches",
    "turns",
    "tool_calls",
    "blobs",
    "appends",
    "compactions",
    "pins",
    "snapshots",
    "trees",
    "titles",
    "records",
    "session_labels",
)
TABLES = (
    "append",
    "blob",
    "branch",
    "compaction",
    "label",
    "copy",  # not a table: queries of a copy over all tables
    "message",
    "owner",  # not a table: queries over all owners
    "pin",
    "record",
    "session",
    "snapshot",
    "search",
    "title",
    "tool_call",
    "tree",
    "turn",
)

# Intended scans, with the reason.
SCANS = {
    "search_backlog": "a search checks all sessions, at a microsecond each; an append maintains no list",
    "search_sample": "a check samples the newest messages",
    "search_reset_branches": "the index is rebuilt",
    "search_reset_titles": "the index is rebuilt",
    "sessions_revisions": "a watch of all sessions compares all revisions",
    "sessions_total": "a check reads everything",
    "blobs_reference_counts": "a check reads everything",
    "blobs_recount": "a repair of wrong counts",
    "trees_miscounted": "a check reads everything",
    "owners_all": "a copy reads everything",
    "copy_begin": "it stops at the first row",
    "copy_size": "a copy reads everything",
}
# Intended changes of whole tables: the index is rebuilt.
WHOLE_TABLE_CHANGES = (
    "search_clear_terms",
    "search_clear_titles",
    "search_reset_branches",
    "search_reset_titles",
)
# Intended reads of all rows of an owner, with the reason.
OWNER_READS = {
    "search_backlog": "a search checks all sessions through the same index",
    "search_changed_titles": "its partial index contains only the titles that wait to be indexed",
    "sessions_by_deletion": "the trash is small and has its own index",
    "sessions_by_deletion_reversed": "the trash is small and has its own index",
    "session_activate": "it reads only the newest entry of the index",
    "session_insert": "it reads only the newest entry of the index",
    "session_restore": "it reads only the newest entry of the index",
    "session_advance": "it reads only the newest entry of the index",
    "session_append_state": "it reads only the newest entry of the index",
    "tool_calls_ranked": "statistics cover everything",
    "blobs_refs": "a check reads everything",
    "records_stray": "a check reads everything",
    "blobs_recount": "a repair of wrong counts",
    "sessions_trashed": "the trash is small and has its own index",
    "sessions_of_untitled": "its partial index contains only untitled sessions, and the query reads a few",
    "sessions_with_open_turns": "a server reads all of them when it starts",
    "copy_begin": "it stops at the first row",
    "copy_size": "a copy reads everything",
}
# Intended sorts, with the reason.
SORTS = {
    "sessions_by_deletion": "the trash is small, and an index for its order would cost every session",
    "sessions_by_deletion_reversed": "the trash is small, and an index for its order would cost every session",
    "sessions_trashed": "the trash is small",
    "sessions_delegated": "a session has few delegates",
    "messages_large": "a session has few branches, and few of its messages are large",
    "blobs_reference_counts": "a check counts the references to each payload",
    "blobs_recount": "a repair of wrong counts",
    "messages_tally": "it sums up a page of sessions",
    "turns_tally": "it sums up a page of sessions",
    "tool_calls_ranked": "a rank is a position in an order",
    "sessions_through_activity": "it sorts a few given sessions",
    "sessions_through_activity_reversed": "it sorts a few given sessions",
    "sessions_through_creation_reversed": "it sorts a few given sessions",
    "sessions_through_title_reversed": "it sorts a few given sessions",
    "sessions_through_creation": "it sorts a few given sessions",
    "sessions_through_title": "it sorts a few given sessions",
    "compactions_outline": "a branch has few compactions",
    "snapshots_outline": "a session has few snapshots",
    "session_in_trash": "an id is rarely more than once in the trash",
    "sessions_by_title": "few sessions share a title",
    "sessions_by_similar_title": "few sessions share a title",
    "branches_of_session": "a session has few branches",
    "branches_of_tree": "a tree has few branches, and only erasing reads them",
    "sessions_of_tree": "a tree has few sessions",
    "branch_path": "a path has few branches",
    "search_sharing_session": "a message is in few forks",
    "search_ranges": "a session has few branches",
    "search_terms_with": "the shortest words come first",
    "search_titles_match": "the best titles come first",
    "tool_calls_of_path": "a path has few branches",
    "owners_all": "there are few owners",
}
IN_ORDER = (
    "sessions_by_activity", "sessions_default_list", "sessions_by_creation", "sessions_by_folded_title",
    "sessions_by_activity_reversed", "sessions_by_creation_reversed", "sessions_by_folded_title_reversed",
    "messages_forward", "messages_backward", "messages_tuples", "turns_of_span",
)  # fmt: skip


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    """Create a database with rows, so that the plans are not those of empty tables, and yield a connection."""
    path = str(tmp_path_factory.mktemp("plans") / "recollect.db")
    with recollect.open(path) as store:
        for number in range(30):
            session = store.session(f"cli:{number}", title=f"t{number}")
            session.append([{"role": "user", "content": "x"}] * 5)
    DatabaseFile(path, 5.0, CHECKPOINT_PAGES).close()
    connection = connect(path, 5.0)
    register_ranking(connection)
    yield connection
    connection.close()


def bindings(query: str):
    names = set(re.findall(r"(?<![:\w]):([a-z_]+)", query))
    if names:
        return dict.fromkeys(names, 1)
    return (1,) * query.count("?")


def query_plan(connection: apsw.Connection, query: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings(query))]


def lines_about_large_tables(lines: list[str], query: str, pattern: str) -> list[str]:
    """Return the lines of a plan that match a pattern whose first group is a large table."""
    aliases = {alias: table for table, alias in re.findall(r"\b([a-z_]+) AS ([a-z_]+)\b", query)}
    matches = [(line, re.match(pattern, line)) for line in lines]
    return [line for line, match in matches if match and aliases.get(match[1], match[1]) in LARGE_TABLES]


def find_scans(lines: list[str], query: str) -> list[str]:
    """Return the lines of a plan that scan a large table, directly or to build a temporary index."""
    return [
        *lines_about_large_tables(lines, query, r"SCAN (\w+)"),
        *lines_about_large_tables(lines, query, r"SEARCH (\w+) USING AUTOMATIC"),
    ]


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_table_is_scanned(connection, name):
    lines = query_plan(connection, QUERIES[name])
    scans = find_scans(lines, QUERIES[name])
    assert not scans or name in SCANS, lines


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_result_is_sorted(connection, name):
    lines = [line for line in query_plan(connection, QUERIES[name]) if "TEMP B-TREE" in line]
    assert not lines or name in SORTS, lines


@pytest.mark.parametrize("name", IN_ORDER)
def test_lists_and_messages_need_no_sort(connection, name):
    lines = query_plan(connection, QUERIES[name])
    assert not [line for line in lines if "TEMP B-TREE" in line or ("SCAN" in line and "VIRTUAL" not in line)], lines


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("record_get", "kind=? AND key=?"),
        ("records_page", "kind=? AND key>? AND key<?"),
        ("records_sizes", "(kind,key)>(?,?)"),
        ("records_rows", "(kind,key)>(?,?) AND (kind,key)<(?,?)"),
    ],
)
def test_records_are_read_by_their_names(connection, name, condition):
    (line,) = query_plan(connection, QUERIES[name])
    assert line == f"SEARCH records USING INDEX records_key (owner=? AND session=? AND {condition})"


@pytest.mark.parametrize("name", IN_ORDER)
def test_a_page_of_results_is_read_by_a_range(connection, name):
    lines = query_plan(connection, QUERIES[name])
    assert any(
        re.search(r"(active_at|created_at|folded|rowid)[<>]|active_at,rowid\)<|created_at,rowid\)<", line)
        for line in lines
    ), lines


@pytest.mark.parametrize("name", [name for name in QUERIES if name.startswith(("session_", "sessions_"))])
def test_a_list_reads_no_message_bodies(connection, name):
    """Record the columns that a statement reads, with SQLite's authorizer. The role is a column before the body."""
    columns = set()

    def record_read(action, first, second, *_):
        if action == apsw.SQLITE_READ:
            columns.add((first, second))
        return apsw.SQLITE_OK

    connection.authorizer = record_read
    try:
        connection.execute(f"EXPLAIN {QUERIES[name]}", bindings(QUERIES[name])).fetchall()
    finally:
        connection.authorizer = None
    assert "sessions" in {table for table, _ in columns}
    bodies = {(table, column) for table, column in columns if table == "messages"}
    assert bodies <= {("messages", column) for column in ("key", "role", "deleted_at", "created_at", "")}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_use_their_index(connection, name):
    lines = query_plan(connection, QUERIES[name])
    assert re.match(
        r"SEARCH sessions USING (COVERING )?INDEX sessions_"
        r"(parent|external|id|pinned|channel|model|status|archived|untitled)",
        lines[1],
    ), lines
    assert lines[::2] == ["CO-ROUTINE (subquery-1)", "SCAN (subquery-1)"]


def test_a_label_is_found_by_its_index(connection):
    lines = query_plan(connection, QUERIES["labels_sessions"])
    assert lines[1] == "SEARCH session_labels USING COVERING INDEX session_labels_label (owner=? AND label=?)", lines


def test_an_id_prefix_is_found_by_a_range(connection):
    lines = query_plan(connection, QUERIES["sessions_of_id_prefix"])
    assert lines[1] == "SEARCH sessions USING INDEX sessions_id (owner=? AND id>? AND id<?)", lines


@pytest.mark.parametrize("name", [name for name in QUERIES if name.startswith("sessions_through_")])
def test_sessions_are_read_by_their_keys(connection, name):
    lines = query_plan(connection, QUERIES[name])
    assert lines[1] == "SEARCH sessions USING INTEGER PRIMARY KEY (rowid=?)", lines


@pytest.mark.parametrize("name", [name for name, text in QUERIES.items() if text.startswith(("UPDATE", "DELETE"))])
def test_updates_and_deletes_find_their_rows_by_a_key(connection, name):
    lines = query_plan(connection, QUERIES[name])
    if name in WHOLE_TABLE_CHANGES:
        return
    assert lines
    assert lines[0].startswith("SEARCH") or "VIRTUAL TABLE INDEX" in lines[0], lines


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_table_is_read_by_owner_alone(connection, name):
    """Most stores have one owner, so a read by owner alone reads everything."""
    lines = query_plan(connection, QUERIES[name])
    reads = lines_about_large_tables(lines, QUERIES[name], r"SEARCH (\w+) USING .*\(owner=\?\)")
    assert not reads or name in OWNER_READS, lines


def test_a_scan_is_detected(connection):
    query = "SELECT m.key FROM messages AS m WHERE m.model = :model ORDER BY m.tokens"
    lines = query_plan(connection, query)
    assert find_scans(lines, query)
    assert [line for line in lines if "TEMP B-TREE" in line]


def test_every_exception_names_an_existing_query():
    assert {*SCANS, *SORTS, *OWNER_READS} <= set(QUERIES)


class TestNames:
    @pytest.mark.parametrize("name", QUERIES)
    def test_a_query_is_named_after_its_table(self, name):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        assert any(re.match(rf"{table}(s|es)?_", name) for table in TABLES)

    def test_query_names_are_unique(self):
        folder = os.path.join(os.path.dirname(sql.__file__), "sqlite", "queries")
        names = []
        for file in os.listdir(folder):
            with open(os.path.join(folder, file), encoding="utf-8") as text:
                names += re.findall(r"^-- name: *(\S+)", text.read(), re.MULTILINE)
        assert len(names) == len(set(names)) == len(QUERIES)

    @pytest.mark.parametrize("name", QUERIES)
    def test_a_query_is_one_statement_with_one_kind_of_parameter(self, name):
        query = QUERIES[name]
        assert ";" not in query
        assert not ("?" in query and re.search(r"(?<![:\w]):[a-z_]+", query))
