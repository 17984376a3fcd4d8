"""Rows are read unchanged: every column type, hostile texts, and with psycopg's Python implementation."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
import time

import pytest

import recollect
from recollect.engine.postgres.statements import PreparedStatement

HOSTILE = [
    "plain",
    "x\0y",
    "x\x10y",
    "\x100",
    "\x10p",
    "\x10",
    "\0",
    "\\u0010p",
    "\\\\u0010p",
    "é 北 👍",
    '"quoted"',
    "",
]


@pytest.mark.parametrize("count", [1, 200])
def test_messages_are_read_unchanged(postgres, count):
    with recollect.open(postgres) as store:
        session = store.session("a")
        texts = [HOSTILE[n % len(HOSTILE)] for n in range(1, count + 1)]
        session.append([
            {
                "role": "user", "parts": [{"kind": "text", "text": text}], "metadata": {"k": text},
                "model": text or None,
            }
            for text in texts
        ], format="recollect")  # fmt: skip
        messages = store.get_session("a").messages()
    assert [(m.role, m.text, m.model, m.metadata) for m in messages] == [
        ("user", text, text or None, {"k": text}) for text in texts
    ]


EVERY_TYPE = """
SELECT n::bigint - 9223372036854775807, (2147483647 - n)::int, CASE WHEN n % 3 = 0 THEN n::bigint END, n % 2 = 0,
    n / 8.0::float8, (:hostile::text[])[1 + n % 12], json_build_array((:hostile::text[])[1 + n % 12], n),
    '[1, "é"]'::varchar, NULL::text, '\\x00ff'::bytea, sum(n) OVER (ORDER BY n)
FROM generate_series(1, :count::int) AS n ORDER BY n
"""


@pytest.mark.parametrize("prepare", ["on", "off"])
def test_every_column_type_is_read(postgres, prepare):
    statement = PreparedStatement("every_type", EVERY_TYPE)
    with (
        recollect.open(f"{postgres}?prepare={prepare}") as store,
        store._engine._server._connection(time.monotonic() + 60) as pipeline,  # pyright: ignore[reportAttributeAccessIssue]
    ):
        for count in (3, 0, 1, 100):
            pipeline.send(statement, statement.values({"hostile": tuple(HOSTILE), "count": count}))
            (rows,) = pipeline.receive(end=True)
            assert [(*row[:6], json.loads(row[6]), *row[7:]) for row in rows] == [
                (
                    n - 9223372036854775807, 2147483647 - n, None if n % 3 else n, n % 2 == 0,
                    n / 8, HOSTILE[n % 12], [HOSTILE[n % 12], n],
                    '[1, "é"]'.encode(), None, b"\0\xff", n * (n + 1) // 2,
                )
                for n in range(1, count + 1)
            ]  # fmt: skip


def test_psycopg_without_its_c_implementation_reads_equal_rows(postgres):
    if not ctypes.util.find_library("pq"):
        pytest.skip("psycopg's Python implementation needs libpq")
    with recollect.open(postgres) as store:
        for text in HOSTILE:
            store.session("a").append({"role": "user", "content": text or "empty"}, key=text or None)
        expected = [message.text for message in store.get_session("a").messages()]
    program = (
        "import sys, json, psycopg, recollect; assert psycopg.pq.__impl__ == 'python'\n"
        "store = recollect.open(sys.argv[1]); session = store.get_session('a')\n"
        "session.append({'role': 'user', 'content': 'x'})\n"
        "print(json.dumps([message.text for message in session.messages()]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, postgres],
        env={**os.environ, "PSYCOPG_IMPL": "python"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(output) == [*expected, "x"]


def test_lists_are_equal_in_one_page_and_in_several(postgres):
    with recollect.open(postgres) as store:
        for number, text in enumerate(HOSTILE):
            title = text.replace("\0", "") or None
            store.session(f"s{number}", title=title, metadata={"k": text}, model=title)
        first_list, second_list = store.list_sessions(12), store.list_sessions(12)
        cursor, sessions = None, []
        while cursor is not None or not sessions:
            page = store.list_sessions(3, after=cursor)
            sessions += page
            cursor = page.next
        assert (
            [session_fields(s) for s in sessions]
            == [session_fields(s) for s in second_list]
            == [session_fields(s) for s in first_list]
        )
        assert [s.metadata["k"] for s in reversed(sessions)] == HOSTILE


def session_fields(session):
    return (session.id, session.title, session.model, session.metadata, session.created_at, session.revision)
