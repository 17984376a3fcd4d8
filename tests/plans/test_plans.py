"""EXPLAIN: every query finds its rows by a key or an index, and lists come out in order without being sorted."""

from __future__ import annotations

import glob
import os
import re

import apsw
import pytest

import recollect.ops
from recollect import sql
from recollect.engine.sqlite.connection import CHECKPOINT, connect
from recollect.engine.sqlite.file import File
from recollect.engine.sqlite.ranking import register

STEPS = sql.steps("sqlite")
QUERIES = {**sql.queries("sqlite"), **STEPS}
LARGE = (
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
)
TABLES = (
    "append",
    "blob",
    "branch",
    "compaction",
    "copy",  # no table: what a copy asks of all of them
    "message",
    "owner",  # the same
    "pin",
    "session",
    "setting",
    "snapshot",
    "search",
    "title",
    "tool_call",
    "tree",
    "turn",
)

# A scan or a sort that is meant, and why.
SCANS = {
    "search_waiting": "sessions are looked through before a search, at a microsecond each; appending keeps no list",
    "search_sample": "a check takes some of the newest",
    "search_restart": "the index is made anew",
    "search_retitle": "the index is made anew",
    "sessions_revisions": "whoever watches all sessions compares the revisions of all",
    "sessions_total": "a check looks at all there is",
    "blobs_named": "a check looks at all there is",
    "trees_short": "a check looks at all there is",
    "owners_all": "a copy takes all there is",
    "copy_holds": "it ends with the first that it finds",
    "copy_size": "a copy takes all there is",
}
WHOLE = ("search_empty_terms", "search_empty_titles", "search_restart", "search_retitle")  # the index is made anew
WIDE = {
    "search_waiting": "the same index, and sessions are looked through",
    "search_untitled": "an index of its own, with the titles alone that wait to be indexed",
    "sessions_by_deletion": "the trash is small, and has an index of its own",
    "session_activate": "the newest of the index, and no more",
    "session_insert": "the newest of the index, and no more",
    "session_restore": "the same",
    "session_advance": "the newest of the index, and no more",
    "session_append": "the same",
    "session_save": "the same",
    "tool_calls_ranked": "statistics are about all there is",
    "blobs_refs": "a check looks at all there is",
    "sessions_trashed": "the trash is small, and has an index of its own",
    "sessions_of_untitled": "its index has only those, and a few are taken",
    "sessions_held": "a server looks at all when it starts",
    "copy_holds": "it ends with the first that it finds",
    "copy_size": "a copy takes all there is",
}
SORTS = {
    "sessions_by_deletion": "the trash is small, and an index for its order would cost every session",
    "sessions_trashed": "the trash is small",
    "sessions_delegated": "a session has few sub-agents",
    "messages_large": "a session's branches are few, and few of its messages are large",
    "blobs_named": "a check counts who refers to each payload",
    "messages_tally": "a page of sessions is added up",
    "turns_tally": "a page of sessions is added up",
    "tool_calls_ranked": "ranks are places in an order",
    "sessions_through_activity": "it is given a few sessions to put in order",
    "sessions_through_creation": "it is given a few sessions to put in order",
    "sessions_through_title": "it is given a few sessions to put in order",
    "session_in_trash": "one id is seldom more than once in the trash",
    "sessions_by_title": "few sessions share a title",
    "sessions_titled_alike": "few sessions share a title",
    "branches_of_session": "a session has few branches",
    "branches_of_tree": "a tree has few branches, and only erasing reads them",
    "sessions_of_tree": "a tree has few sessions",
    "branch_path": "a path has few stretches",
    "search_reaching": "a message is in few forks",
    "search_ranges": "a session has few branches",
    "search_terms_with": "the shortest words come first",
    "search_titles_match": "the best titles come first",
    "tool_calls_of_path": "the stretches of a path are put in order, few as they are",
    "owners_all": "there are few owners",
    "compactions_whole": "a branch has few",
    "snapshots_whole": "a session has few",
}
IN_ORDER = (
    "sessions_by_activity", "sessions_usual", "sessions_by_creation", "sessions_by_folded_title", "messages_forward", "messages_backward",
    "messages_tell",
    "turns_of_span",
)  # fmt: skip


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    """A database with enough in it that a plan is no accident of emptiness."""
    path = str(tmp_path_factory.mktemp("plans") / "recollect.db")
    with recollect.open(path) as store:
        for number in range(30):
            session = store.session(f"cli:{number}", title=f"t{number}")
            session.append([{"role": "user", "content": "x"}] * 5)
    File(path, 5.0, CHECKPOINT).close()
    connection = connect(path, 5.0)
    register(connection)
    yield connection
    connection.close()


def bindings(query: str):
    names = set(re.findall(r"(?<![:\w]):([a-z_]+)", query))
    if names:
        return dict.fromkeys(names, 1)
    return (1,) * query.count("?")


def plan(connection: apsw.Connection, query: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings(query))]


def about_large(lines: list[str], query: str, pattern: str) -> list[str]:
    """Find the lines of a plan that fit a pattern and are about a large table, which the first group names."""
    known = {alias: table for table, alias in re.findall(r"\b([a-z_]+) AS ([a-z_]+)\b", query)}
    found = [(line, re.match(pattern, line)) for line in lines]
    return [line for line, match in found if match and known.get(match[1], match[1]) in LARGE]


def scanned(lines: list[str], query: str) -> list[str]:
    """Find where a large table is read from one end to the other, for itself or for an index that is thrown away."""
    return [
        *about_large(lines, query, r"SCAN (\w+)"),
        *about_large(lines, query, r"SEARCH (\w+) USING AUTOMATIC"),
    ]


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_table_is_scanned(connection, name):
    lines = plan(connection, QUERIES[name])
    found = scanned(lines, QUERIES[name])
    assert not found or name in SCANS, lines


@pytest.mark.parametrize("name", QUERIES)
def test_nothing_large_is_sorted(connection, name):
    lines = [line for line in plan(connection, QUERIES[name]) if "TEMP B-TREE" in line]
    assert not lines or name in SORTS, lines


@pytest.mark.parametrize("name", IN_ORDER)
def test_lists_and_messages_come_out_in_order(connection, name):
    lines = plan(connection, QUERIES[name])
    assert not [line for line in lines if "TEMP B-TREE" in line or ("SCAN" in line and "VIRTUAL" not in line)], lines


@pytest.mark.parametrize("name", IN_ORDER)
def test_a_page_is_found_by_a_range_and_not_only_by_owner(connection, name):
    lines = plan(connection, QUERIES[name])
    assert any(
        re.search(r"(active_at|created_at|folded|rowid)[<>]|active_at,rowid\)<|created_at,rowid\)<", line)
        for line in lines
    ), lines


NOTHING = "SELECT 1 WHERE false"  # what only another engine needs


@pytest.mark.parametrize(
    "name", [name for name, text in QUERIES.items() if name.startswith(("session_", "sessions_")) and text != NOTHING]
)
def test_a_list_reads_no_message_bodies(connection, name):
    """Asked of SQLite itself: which columns a statement reads. A role is told by a column before the body."""
    read = set()

    def note(action, first, second, *_):
        if action == apsw.SQLITE_READ:
            read.add((first, second))
        return apsw.SQLITE_OK

    connection.authorizer = note
    try:
        connection.execute(f"EXPLAIN {QUERIES[name]}", bindings(QUERIES[name])).fetchall()
    finally:
        connection.authorizer = None
    assert "sessions" in {table for table, _ in read}
    bodies = {(table, column) for table, column in read if table == "messages"}
    assert bodies <= {("messages", column) for column in ("key", "role", "deleted_at", "created_at", "")}


@pytest.mark.parametrize("name", list(STEPS))
def test_few_sessions_are_found_by_the_index_of_their_filter(connection, name):
    lines = plan(connection, QUERIES[name])
    assert re.match(
        r"SEARCH sessions USING (COVERING )?INDEX sessions_(parent|pinned|channel|model|status|archived|untitled)",
        lines[1],
    ), lines
    assert lines[::2] == ["CO-ROUTINE (subquery-1)", "SCAN (subquery-1)"]


@pytest.mark.parametrize("name", [name for name in QUERIES if name.startswith("sessions_through_")])
def test_few_sessions_are_looked_up_by_their_keys(connection, name):
    lines = plan(connection, QUERIES[name])
    assert lines[1] == "SEARCH sessions USING INTEGER PRIMARY KEY (rowid=?)", lines


@pytest.mark.parametrize("name", [name for name, text in QUERIES.items() if text.startswith(("UPDATE", "DELETE"))])
def test_a_change_finds_its_rows_by_a_key(connection, name):
    lines = plan(connection, QUERIES[name])
    if name in WHOLE:
        return
    assert lines
    assert lines[0].startswith("SEARCH") or "VIRTUAL TABLE INDEX" in lines[0], lines


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_table_is_read_by_owner_alone(connection, name):
    """Most stores have one owner: what is found by owner alone is everything."""
    lines = plan(connection, QUERIES[name])
    found = about_large(lines, QUERIES[name], r"SEARCH (\w+) USING .*\(owner=\?\)")
    assert not found or name in WIDE, lines


def test_the_check_would_see_a_scan(connection):
    query = "SELECT m.key FROM messages AS m WHERE m.model = :model ORDER BY m.tokens"
    lines = plan(connection, query)
    assert scanned(lines, query)
    assert [line for line in lines if "TEMP B-TREE" in line]


def test_every_exception_is_of_a_query_that_exists():
    assert {*SCANS, *SORTS, *WIDE} <= set(QUERIES)


class TestNames:
    def source(self) -> str:
        folder = os.path.dirname(recollect.ops.__file__)
        texts = []
        for name in sorted(glob.glob(os.path.join(folder, "**", "*.py"), recursive=True)):
            with open(name, encoding="utf-8") as file:
                texts.append(file.read())
        return "\n".join(texts)

    def used(self) -> set[str]:
        """Find the names that operations run: what stands in one(), rows(), do(), each() or is yielded or listed."""
        source = self.source()
        run = set(re.findall(r'\b(?:one|rows|do|each)\(\s*"([a-z_]+)"', source))
        run |= set(re.findall(r'\byield "([a-z_]+)"', source))
        return run | {name for name in QUERIES if f'"{name}"' in source}

    def test_every_query_that_is_used_exists(self):
        assert self.used() <= set(QUERIES)

    def test_every_query_that_exists_is_used(self):
        assert set(QUERIES) - set(STEPS) <= self.used()
        assert {f'"{name.removeprefix("sessions_")}"' in self.source() for name in STEPS} == {True}

    @pytest.mark.parametrize("name", QUERIES)
    def test_a_query_is_named_after_its_table(self, name):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        assert any(re.match(rf"{table}(s|es)?_", name) for table in TABLES)

    def test_no_name_is_given_twice(self):
        folder = os.path.join(os.path.dirname(sql.__file__), "sqlite", "queries")
        names = []
        for file in os.listdir(folder):
            with open(os.path.join(folder, file), encoding="utf-8") as text:
                names += re.findall(r"^-- (?:name|step): *(\S+)", text.read(), re.MULTILINE)
        assert len(names) == len(set(names)) == len(QUERIES)

    @pytest.mark.parametrize("name", QUERIES)
    def test_a_query_is_one_statement_with_one_kind_of_parameter(self, name):
        query = QUERIES[name]
        assert ";" not in query
        assert not ("?" in query and re.search(r"(?<![:\w]):[a-z_]+", query))
