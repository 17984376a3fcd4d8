"""docs/format.md names every table, view and column, and its recipes work."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys

import apsw
import pytest
from docs_pages import blocks, names, read, run, section

import recollect
from recollect import sql
from recollect.engine.sqlite.connection import APPLICATION_ID, CHECKSUM_BYTES, PAGE_SIZE
from recollect.engine.sqlite.migration import backup_path
from recollect.model import blob
from recollect.model.part import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

PAGE = "docs/format.md"


def made():
    """Give what the migrations make: the names of a table's or a view's columns. FTS5's own tables are left out."""
    db = apsw.Connection(":memory:")
    for _, _, text in sql.migrations("sqlite"):
        db.execute(text).fetchall()
    shadows = "name GLOB 'search_index_*' OR name GLOB 'search_titles_*'"
    found = db.execute(
        f"SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND NOT ({shadows})"
    ).fetchall()
    columns = {
        name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        for kind, name in found
        if kind in ("table", "view")
    }
    db.close()
    return columns, [name for kind, name in found if kind == "index"]


COLUMNS, INDEXES = made()


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_or_view_has_a_section_that_names_its_columns_and_no_others(table):
    found = section(PAGE, table).text
    assert [column for column in COLUMNS[table] if column not in names(found)] == []
    rows = re.findall(r"^\| (`[^|]+`) \|", found, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} <= set(COLUMNS[table])


def test_every_index_is_named():
    assert [name for name in INDEXES if name not in names(section(PAGE, "Indexes").text)] == []


@pytest.mark.parametrize("kind", [TextPart, ReasoningPart, ToolCallPart, ToolResultPart, AttachmentPart, DataPart])
def test_a_kind_of_part_is_listed_with_its_fields(kind):
    row = next(
        line
        for line in section(PAGE, "Parts").text.splitlines()
        if line.startswith(f"| `{kind.__struct_config__.tag}` |")
    )
    own = [name for name in kind.__struct_fields__ if name not in ("native", "metadata")]
    assert [name for name in own if name not in names(row)] == []


def test_the_figures_are_those_of_the_program():
    file = section(PAGE, "The file").text
    assert f"0x{APPLICATION_ID:X} ({APPLICATION_ID})" in file
    assert f"{PAGE_SIZE} bytes" in file
    assert f"| {CHECKSUM_BYTES} at the end" in file
    assert f"now {sql.migrations('sqlite')[-1][0]} |" in file
    blobs = section(PAGE, "Blobs").text
    assert f"{blob.BASE64_FROM:,} characters" in blobs
    assert f"{blob.TEXT_FROM:,} characters" in blobs
    assert backup_path("recollect.db", 1) in section(PAGE, "Versions and migrations").text


@pytest.fixture
def path(tmp_path):
    """A store with a talk in it, closed."""
    place = str(tmp_path / "store.db")
    talk(place)
    return place


def talk(place):
    with recollect.open(place) as store:
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
        session.record_tool_result("t", "A title", latency_ms=3)
        session.rewind(1).append({"role": "assistant", "content": "No"})


def test_the_file_is_as_described(path):
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


def test_the_queries_run_in_a_stock_sqlite(path):
    queries = [text for block in blocks(PAGE, "sql") for text in block.text.split(";") if text.strip()]
    assert len(queries) >= 5
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    answers = [db.execute(text).fetchall() for text in queries]
    db.close()
    assert all(answers)
    assert answers[1] == [("read", "success")]
    assert [row[1] for row in answers[-1]] == ["user", "assistant"]


def test_reading_as_described_leaves_the_file_as_it_is(path):
    space = {"path": path}
    run(PAGE, blocks(PAGE)[0], space)
    assert space["titles"] == [("cli:default", "By hand")]
    assert opens(path)


def opens(path):
    """Whether Recollect reads all of a file, in a process of its own."""
    code = "import recollect, sys; s = recollect.open(sys.argv[1]).session('cli:default'); print(len(s.switch(1).messages()))"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "3"


def crash(path):
    """Write, and end without closing: the log stays behind."""
    code = "import os, recollect, sys; s = recollect.open(sys.argv[1]).session('cli:default'); s.update(task='x'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert os.path.getsize(path + "-wal")


def checkpoint_after_a_crash(path):
    """Let a stock SQLite read a file that a crash left with its log."""
    crash(path)
    stock(path, "SELECT count(*) FROM messages")


def write(path):
    stock(path, "UPDATE sessions SET title = 'By another program'")


def stock(path, statement):
    db = sqlite3.connect(path)
    with db:
        db.execute(statement).fetchall()
    db.close()


def sound(path):
    """Whether every page has its checksum, found as the page describes it."""
    space = {"path": path}
    run(PAGE, next(block for block in blocks(PAGE) if "verification = ON" in block.text), space)
    return space["sound"]


@pytest.mark.parametrize("harm", [checkpoint_after_a_crash, write])
def test_a_file_that_a_stock_sqlite_touched_is_read_all_the_same_and_gets_its_checksums_back(path, harm):
    assert sound(path)
    harm(path)
    assert not sound(path)
    assert opens(path)
    run(PAGE, next(block for block in blocks(PAGE) if "VACUUM" in block.text), {"path": path})
    assert sound(path)
    assert opens(path)
    with open(path, "rb") as file:
        assert file.read(21)[20] == CHECKSUM_BYTES


def test_a_changed_letter_is_found_by_its_checksum(path):
    with open(path, "r+b") as file:
        body = file.read()
        place = body.index(b"Read it")
        file.seek(place)
        file.write(b"Lead it")
    assert not sound(path)


def test_the_crash_above_harms_nothing_where_the_reader_opens_the_file_read_only(path):
    crash(path)
    run(PAGE, blocks(PAGE)[0], {"path": path})
    assert opens(path)


def test_a_copy_made_while_the_store_is_in_use_opens(path, tmp_path):
    with recollect.open(path) as store:
        store.session("cli:default").append({"role": "user", "content": "in the log"})
        copy = str(tmp_path / "copy.db")
        run(PAGE, next(block for block in blocks(PAGE) if "backup.step" in block.text), {"path": path, "copy": copy})
        store.session("cli:default").append({"role": "user", "content": "after it"})
    assert not os.path.exists(copy + "-wal")
    with recollect.open(copy) as store:
        assert [message.text for message in store.session("cli:default").messages()] == ["Read it", "No", "in the log"]
    assert opens(copy)


def test_the_choices_of_a_new_file_have_their_section():
    assert "Measured by benchmarks/file_choices.py:" in section(PAGE, "Choices that only a new file can take").text


def test_every_table_is_in_the_list_of_the_designs_page_where_it_is_referred_to():
    """A name with a dot in the last column of docs/designs.md is a table and a column that exist."""
    designs = read("docs/designs.md")
    last = [line.split(" | ")[-1] for line in designs.splitlines() if line.startswith("|")]
    wrong = [
        f"{table}.{column}"
        for cell in last
        for table, column in re.findall(r"`(\w+)\.(\w+)`", cell)
        if table in COLUMNS and column not in COLUMNS[table]
    ]
    assert wrong == []
    assert sum(f"`{table}." in designs for table in COLUMNS) >= 9
