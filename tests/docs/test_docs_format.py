"""docs/reference/file-format.md documents every table, view and column, and its examples work."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys

import apsw
import pytest
from docs_pages import find_blocks, find_identifiers, find_section, read_page, run_example

import recollect
from recollect import sql
from recollect.engine.sqlite.connection import APPLICATION_ID, CHECKSUM_BYTES, PAGE_SIZE
from recollect.engine.sqlite.migrations import backup_path
from recollect.model import blob
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

PAGE = "docs/reference/file-format.md"


def read_schema():
    """Return the columns of each table and view that the migrations create, and the indexes, without FTS5's own tables."""
    db = apsw.Connection(":memory:")
    for _, _, text in sql.migrations("sqlite"):
        db.execute(text).fetchall()
    shadows = "name GLOB 'search_index_*' OR name GLOB 'search_titles_*'"
    objects = db.execute(
        f"SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND NOT ({shadows})"
    ).fetchall()
    columns = {
        name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        for kind, name in objects
        if kind in ("table", "view")
    }
    db.close()
    return columns, [name for kind, name in objects if kind == "index"]


COLUMNS, INDEXES = read_schema()


@pytest.mark.parametrize("table", COLUMNS)
def test_every_table_and_view_is_documented_with_exactly_its_columns(table):
    text = find_section(PAGE, table).text
    assert [column for column in COLUMNS[table] if column not in find_identifiers(text)] == []
    rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} <= set(COLUMNS[table])


def test_every_index_is_documented():
    assert [name for name in INDEXES if name not in find_identifiers(find_section(PAGE, "Indexes").text)] == []


@pytest.mark.parametrize("part", [TextPart, ReasoningPart, ToolCallPart, ToolResultPart, AttachmentPart, DataPart])
def test_every_kind_of_part_is_documented_with_its_fields(part):
    row = next(
        line
        for line in find_section(PAGE, "Parts").text.splitlines()
        if line.startswith(f"| `{part.__struct_config__.tag}` |")
    )
    fields = [name for name in part.__struct_fields__ if name not in ("native", "metadata")]
    assert [name for name in fields if name not in find_identifiers(row)] == []


def test_the_documented_numbers_equal_the_constants():
    file = find_section(PAGE, "The file").text
    assert f"0x{APPLICATION_ID:X} ({APPLICATION_ID})" in file
    assert f"{PAGE_SIZE} bytes" in file
    assert f"| {CHECKSUM_BYTES} at the end" in file
    assert f"now {sql.migrations('sqlite')[-1][0]} |" in file
    blobs = find_section(PAGE, "Blobs").text
    assert f"{blob.MIN_BASE64_LENGTH:,} characters" in blobs
    assert f"{blob.MIN_TEXT_LENGTH:,} characters" in blobs
    assert backup_path("recollect.db", 1) in find_section(PAGE, "Versions and migrations").text


@pytest.fixture
def path(tmp_path):
    """Create a store with one session, close it, and return its path."""
    database = str(tmp_path / "store.db")
    write_session(database)
    return database


def write_session(database):
    with recollect.open(database) as store:
        session = store.session("cli:default", title="By hand")
        session.append(
            [
                {"role": "user", "content": "Read it"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {"path": "R"}}],
                },
            ]
        )
        session.tools.record_result("t", "A title", latency_ms=3)
        session.rewind(1).append({"role": "assistant", "content": "No"})


def test_the_header_has_the_documented_values(path):
    with open(path, "rb") as file:
        header = file.read(100)
    assert int.from_bytes(header[16:18], "big") == PAGE_SIZE
    assert header[20] == CHECKSUM_BYTES
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "auto_vacuum", "encoding")] == [
        "wal",
        2,
        "UTF-8",
    ]
    db.close()
    assert os.name != "posix" or os.stat(path).st_mode & 0o777 == 0o600


def test_the_example_queries_run_in_a_stock_sqlite(path):
    queries = [text for block in find_blocks(PAGE, "sql") for text in block.text.split(";") if text.strip()]
    assert len(queries) >= 5
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    results = [db.execute(text).fetchall() for text in queries]
    db.close()
    assert all(results)
    assert results[1] == [("read", "success")]
    assert [row[1] for row in results[-1]] == ["user", "assistant"]


def test_the_example_reads_the_file_without_changing_it(path):
    namespace = {"path": path}
    run_example(PAGE, find_blocks(PAGE)[0], namespace)
    assert namespace["titles"] == [("cli:default", "By hand")]
    assert can_open(path)


def can_open(path):
    """Return whether Recollect reads all messages of a file, in a separate process."""
    code = "import recollect, sys; s = recollect.open(sys.argv[1]).session('cli:default'); print(len(s.branches.switch(1).messages()))"
    process = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    return process.stdout.strip() == "3"


def write_and_crash(path):
    """Write to a store and exit without closing it, so that the WAL remains."""
    code = "import os, recollect, sys; s = recollect.open(sys.argv[1]).session('cli:default'); s.update(task='x'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert os.path.getsize(path + "-wal")


def checkpoint_after_a_crash(path):
    """Read a file that has a WAL after a crash with a stock SQLite, which checkpoints it."""
    write_and_crash(path)
    execute_in_stock_sqlite(path, "SELECT count(*) FROM messages")


def write_with_stock_sqlite(path):
    execute_in_stock_sqlite(path, "UPDATE sessions SET title = 'By another program'")


def execute_in_stock_sqlite(path, statement):
    db = sqlite3.connect(path)
    with db:
        db.execute(statement).fetchall()
    db.close()


def has_valid_checksums(path):
    """Return whether every page has a valid checksum, with the example of the page."""
    namespace = {"path": path}
    run_example(PAGE, next(block for block in find_blocks(PAGE) if "verification = ON" in block.text), namespace)
    return namespace["sound"]


@pytest.mark.parametrize("remove_checksums", [checkpoint_after_a_crash, write_with_stock_sqlite])
def test_a_file_that_a_stock_sqlite_changed_opens_and_the_example_restores_its_checksums(path, remove_checksums):
    assert has_valid_checksums(path)
    remove_checksums(path)
    assert not has_valid_checksums(path)
    assert can_open(path)
    run_example(PAGE, next(block for block in find_blocks(PAGE) if "VACUUM" in block.text), {"path": path})
    assert has_valid_checksums(path)
    assert can_open(path)
    with open(path, "rb") as file:
        assert file.read(21)[20] == CHECKSUM_BYTES


def test_a_changed_byte_fails_its_checksum(path):
    with open(path, "r+b") as file:
        offset = file.read().index(b"Read it")
        file.seek(offset)
        file.write(b"Lead it")
    assert not has_valid_checksums(path)


def test_reading_a_file_read_only_after_a_crash_changes_nothing(path):
    write_and_crash(path)
    run_example(PAGE, find_blocks(PAGE)[0], {"path": path})
    assert can_open(path)


def test_the_example_copies_a_store_in_use(path, tmp_path):
    with recollect.open(path) as store:
        store.session("cli:default").append({"role": "user", "content": "in the log"})
        copy = str(tmp_path / "copy.db")
        run_example(
            PAGE,
            next(block for block in find_blocks(PAGE) if "backup.step" in block.text),
            {"path": path, "copy": copy},
        )
        store.session("cli:default").append({"role": "user", "content": "after it"})
    assert not os.path.exists(copy + "-wal")
    with recollect.open(copy) as store:
        assert [message.text for message in store.session("cli:default").messages()] == ["Read it", "No", "in the log"]
    assert can_open(copy)


def test_the_settings_fixed_at_creation_are_documented():
    assert "Measured by benchmarks/file_choices.py:" in find_section(PAGE, "Settings fixed at creation").text


def test_every_column_that_the_designs_page_names_exists():
    """In the last column of docs/internals/designs.md, `table.column` is a column of the database."""
    designs = read_page("docs/internals/designs.md")
    cells = [line.split(" | ")[-1] for line in designs.splitlines() if line.startswith("|")]
    missing = [
        f"{table}.{column}"
        for cell in cells
        for table, column in re.findall(r"`(\w+)\.(\w+)`", cell)
        if table in COLUMNS and column not in COLUMNS[table]
    ]
    assert missing == []
    assert sum(f"`{table}." in designs for table in COLUMNS) >= 9
