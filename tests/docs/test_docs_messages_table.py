"""The import of docs/how-to/replace-a-messages-table.md: from PostgreSQL to PostgreSQL, and killed in the middle."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from docs_pages import find_blocks, run_example
from docs_programs import start, wait_for_line

import recollect

PAGE = "docs/how-to/replace-a-messages-table.md"
CREATE = (
    "CREATE TABLE messages (id bigserial PRIMARY KEY, conversation_id text, role text, content text,"
    " created_at timestamptz)"
)
IMPORT = """
import sqlite3, sys, time

{functions}

def read_slowly(rows):
    for number, row in enumerate(rows):
        if number == 1200 and sys.argv[1] == "stops":
            print("stopped", flush=True)
            time.sleep(600)
        yield row

with recollect.open("imported.db") as store:
    app = sqlite3.connect("large.db")
    print(import_table(read_slowly(read_table(app)), store), find_differences(read_table(app), store))
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Run the page and return its functions."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    for block in find_blocks(PAGE):
        run_example(PAGE, block, namespace)
    return namespace


@pytest.fixture
def table(databases, database_name):
    """Return the URL of a database with a table of 1,200 messages in two conversations."""
    url = databases.url_of(database_name, "postgres")
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS messages")
        connection.execute(CREATE)
        connection.execute(
            "INSERT INTO messages (conversation_id, role, content, created_at)"
            " SELECT 'c' || number % 2, 'user', 'text ' || number, timestamptz '2025-03-01 09:00Z' + number * interval '1s'"
            " FROM generate_series(1, 1200) AS number"
        )
    yield url
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE messages")


def test_a_table_in_postgresql_is_imported_once(page, table, postgres):
    with psycopg.connect(table) as connection, recollect.open(postgres) as store:
        rows = page["read_postgresql_table"]
        assert page["import_table"](rows(connection), store) == 1200
        assert page["import_table"](rows(connection), store) == 0
        assert page["find_differences"](rows(connection), store) == []
        session = store.session("app:c1", create=False)
        assert [message.text for message in session.messages(limit=2)] == ["text 1", "text 3"]
        assert session.messages(limit=1)[0].created_at.isoformat() == "2025-03-01T09:00:01+00:00"
        connection.execute("UPDATE messages SET content = 'changed' WHERE id = 7")
        assert page["find_differences"](rows(connection), store) == [7]
        with pytest.raises(recollect.KeyReused):
            page["import_table"](rows(connection), store)


def test_an_import_that_is_killed_continues_with_the_missing_rows(tmp_path, monkeypatch):
    import sqlite3

    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("large.db") as app:
        app.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation_id TEXT, role, content, created_at)")
        app.executemany(
            "INSERT INTO messages VALUES (?, 'c', 'user', ?, '2025-03-01 09:00:00')",
            [(number, f"text {number}") for number in range(1, 2001)],
        )
    app.close()
    blocks = [block.text for block in find_blocks(PAGE)]
    functions = next(text for text in blocks if "def import_table" in text).partition("store = ")[0]
    functions += next(text for text in blocks if "def find_differences" in text).partition("find_differences(read_")[0]
    (tmp_path / "import_table.py").write_text(IMPORT.format(functions=functions), encoding="utf-8")
    with start("import_table.py", "stops") as process:
        wait_for_line(process, "stopped")
        process.kill()
    result = subprocess.run(
        [sys.executable, "import_table.py", "continues"], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout == "1000 []\n"
    with recollect.open("imported.db") as store:
        assert [message.text for message in store.session("app:c").messages()] == [f"text {n}" for n in range(1, 2001)]
