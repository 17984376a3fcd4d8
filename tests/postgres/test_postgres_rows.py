"""Large results are decoded by psycopg's C code, small ones in Python: both return equal rows."""

from __future__ import annotations

import time

import pytest

import recollect
from recollect.engine.postgres import connections
from recollect.engine.postgres.statements import PreparedStatement
from recollect.engine.postgres.wire_codec import encode_texts

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


def read_messages(store):
    session = store.get_session("a")
    return [(m.id, m.role, m.text, m.model, m.metadata, m.state) for m in session.messages()]


@pytest.mark.parametrize("count", [7, 8, 200])
def test_both_decoders_return_equal_messages(postgres, monkeypatch, count):
    with recollect.open(postgres) as store:
        session = store.session("a")
        texts = [HOSTILE[n % len(HOSTILE)] for n in range(count)]
        session.append([
            {
                "role": "user", "parts": [{"kind": "text", "text": text}], "metadata": {"k": text},
                "model": text or None,
            }
            for text in texts
        ], format="recollect")  # fmt: skip
        compiled_rows = read_messages(store)
    monkeypatch.setattr(connections, "_COMPILED", False)
    with recollect.open(postgres) as store:
        assert read_messages(store) == compiled_rows
    assert [text for _, _, text, *_ in compiled_rows] == texts
    assert [metadata for *_, metadata, _ in compiled_rows] == [{"k": text} for text in texts]


EVERY_TYPE = """
SELECT n::bigint - 9223372036854775807, (2147483647 - n)::int * sign, n::smallint * sign::smallint,
    CASE WHEN n % 3 = 0 THEN n::bigint END, n % 2 = 0, n / 7.0::float8 * sign, 'NaN'::float8,
    (:hostile::text[])[1 + n % 12], json_build_array((:hostile::text[])[1 + n % 12], n), '[1, "é"]'::varchar, NULL::text
FROM generate_series(1, :count::int) AS n CROSS JOIN (VALUES (1), (-1)) AS s (sign)
"""


@pytest.mark.parametrize("prepare", ["on", "off"])
def test_text_and_binary_results_are_equal(postgres, prepare, monkeypatch):
    """After a large result, a statement is sent with binary results, also if later results are small or empty."""
    counts = [3, 3, 100, 100, 3, 1, 0, 4, 100]
    with recollect.open(f"{postgres}?prepare={prepare}") as store:
        with store._engine._server._connection(time.monotonic() + 60) as pipeline:  # pyright: ignore[reportAttributeAccessIssue]
            rows, formats = read_every_type(pipeline, counts)
        monkeypatch.setattr(connections, "_COMPILED", False)
        with store._engine._server._connection(time.monotonic() + 60) as pipeline:  # pyright: ignore[reportAttributeAccessIssue]
            text_rows, text_formats = read_every_type(pipeline, counts)
    assert repr(rows) == repr(text_rows)  # NaN is not equal to itself
    assert [len(result) for result in rows] == [2 * count for count in counts]
    assert formats == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert not any(text_formats)
    assert [row[7] for row in rows[2][::2]] == [HOSTILE[n % 12] for n in range(1, 101)]


def read_every_type(pipeline, counts):
    """Run a statement with every column type several times. Return the rows and the format of each result."""
    statement = PreparedStatement("every_type", EVERY_TYPE)
    rows, formats = [], []
    read = pipeline._row_reader.read_rows

    def record_format(statement, result):
        formats.append(result.fformat(0))
        return read(statement, result)

    pipeline._row_reader.read_rows = record_format
    for count in counts:
        pipeline.send(
            statement, [encode_texts(HOSTILE) if name == "hostile" else b"%d" % count for name in statement.names]
        )
        rows += pipeline.receive(end=True)
    pipeline._row_reader.read_rows = read
    return rows, formats


def test_lists_are_equal_before_and_after_a_large_result(postgres):
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
