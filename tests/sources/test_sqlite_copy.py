from __future__ import annotations

import sqlite3
import threading
import time
import zipfile

import pytest

from recollect.errors import UnreadableFile
from recollect.sources import sqlite_copy
from recollect.sources.files import open_tree
from recollect.sources.sqlite_copy import is_database, open_copy, read_tables, side_files


def connect(path, mode="WAL"):
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE IF NOT EXISTS pairs (a INTEGER, b INTEGER, c TEXT)")
    return connection


def rows(path, name="x.db", table="pairs", **query):
    with open_copy(open_tree(path), name) as copy:
        return list(copy.rows(table, **query))


def test_rows_of_the_wal_are_read_and_no_file_is_written(tmp_path):
    connection = connect(tmp_path / "x.db")
    connection.execute("INSERT INTO pairs VALUES (1, 1, 'one')")
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert rows(tmp_path) == rows(tmp_path / "x.db") == [{"a": 1, "b": 1, "c": "one"}]
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert side_files(open_tree(tmp_path / "x.db"), "x.db") == ("x.db-wal",)
    connection.close()
    assert side_files(open_tree(tmp_path), "x.db") == ()


def test_a_link_to_a_database_finds_the_wal_of_its_target(tmp_path):
    (tmp_path / "real").mkdir()
    connection = connect(tmp_path / "real" / "x.db")
    connection.execute("INSERT INTO pairs VALUES (1, 1, 'one')")
    (tmp_path / "y.db").symlink_to(tmp_path / "real" / "x.db")
    assert len(rows(tmp_path / "y.db", "y.db")) == 1
    connection.close()


def test_a_database_in_an_archive(tmp_path):
    connection = connect(tmp_path / "x.db")
    connection.execute("INSERT INTO pairs VALUES (1, 1, 'one')")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("x.db", "x.db-wal"):
            archive.write(tmp_path / name, f"data/{name}")
    connection.close()
    assert len(rows(tmp_path / "x.zip", "data/x.db")) == 1


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_copy_is_consistent_while_the_tool_writes(tmp_path, mode):
    """Each transaction keeps a and b equal in all rows, and checkpoints rewrite the file."""
    connection = connect(tmp_path / "x.db", mode)
    connection.executemany("INSERT INTO pairs VALUES (0, 0, ?)", [("x" * 500,)] * 200)
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE pairs SET a = ?", (number,))
            connection.execute("UPDATE pairs SET b = ?", (number,))
            connection.execute("COMMIT")
            if mode == "WAL":
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            time.sleep(0.15)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(6):
            new_events = rows(tmp_path)
            assert len(new_events) == 200
            assert len({(row["a"], row["b"]) for row in new_events}) == 1
            assert new_events[0]["a"] == new_events[0]["b"]
    finally:
        stop.set()
        thread.join()
        connection.close()


def test_a_database_that_always_changes_is_reported(tmp_path, monkeypatch):
    connection = connect(tmp_path / "x.db")
    monkeypatch.setattr(sqlite_copy, "_PAUSE", 0)
    original = sqlite_copy._copy_file

    def copy_and_change(tree, name, path):
        original(tree, name, path)
        connection.execute("INSERT INTO pairs VALUES (1, 1, 'one')")

    monkeypatch.setattr(sqlite_copy, "_copy_file", copy_and_change)
    with pytest.raises(UnreadableFile, match="changed during each of 40 attempts"):
        rows(tmp_path)
    connection.close()


def test_values_that_json_lacks(tmp_path):
    connection = connect(tmp_path / "x.db")
    connection.execute("INSERT INTO pairs VALUES (?, ?, CAST(? AS TEXT))", (float("inf"), b"\x00\xff", b"a\xff"))
    assert rows(tmp_path) == [{"a": {"real": "inf"}, "b": {"base64": "AP8="}, "c": "a\udcff"}]
    assert len(rows(tmp_path, column="c", value="a\udcff")) == 1
    assert rows(tmp_path, column="c", value=None) == rows(tmp_path, column="zz", value="1") == []
    connection.close()


def test_views_and_virtual_tables_are_not_read(tmp_path):
    connection = connect(tmp_path / "x.db")
    connection.execute(
        "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    with open_copy(open_tree(tmp_path), "x.db") as copy:
        assert "pairs" in copy.tables
        assert not {"endless", "words"} & copy.tables.keys()
        assert list(copy.rows("endless")) == []
        with pytest.raises(UnreadableFile, match="readonly"):
            list(copy._execute("INSERT INTO pairs VALUES (1, 1, 'x')"))
        with pytest.raises(UnreadableFile):
            list(copy._execute("ATTACH 'other.db' AS other"))
    connection.close()


def test_a_query_without_an_end_stops(tmp_path, monkeypatch):
    connect(tmp_path / "x.db").close()
    monkeypatch.setattr(sqlite_copy, "_MAX_CALLS", 5)
    with open_copy(open_tree(tmp_path), "x.db") as copy, pytest.raises(UnreadableFile, match="interrupted"):
        list(copy._execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"))


def test_files_that_are_no_database(tmp_path):
    (tmp_path / "x.db").write_bytes(sqlite_copy.MAGIC + b"\xff" * 200)
    (tmp_path / "y.db").write_bytes(b"hello")
    tree = open_tree(tmp_path)
    assert (is_database(tree, "x.db"), is_database(tree, "y.db")) == (True, False)
    assert read_tables(tree, "x.db") == {}
    with pytest.raises(UnreadableFile, match="as a database"):
        rows(tmp_path)
