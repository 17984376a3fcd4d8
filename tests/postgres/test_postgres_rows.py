"""Many rows are read by the driver's compiled half, few by hand: both say the same, whatever is in them."""

from __future__ import annotations

import time

import pytest

import recollect
from recollect.engine.postgres import rows
from recollect.engine.postgres.book import Statement
from recollect.engine.postgres.text import texts

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


def everything(store):
    session = store.get_session("a")
    return [(m.id, m.role, m.text, m.model, m.metadata, m.state) for m in session.messages()]


@pytest.mark.parametrize("count", [7, 8, 200])
def test_read_either_way(postgres, monkeypatch, count):
    with recollect.open(postgres) as store:
        session = store.session("a")
        said = [HOSTILE[n % len(HOSTILE)] for n in range(count)]
        session.append([
            {
                "role": "user", "parts": [{"kind": "text", "text": text}], "metadata": {"k": text},
                "model": text or None,
            }
            for text in said
        ], format="recollect")  # fmt: skip
        quick = everything(store)
    monkeypatch.setattr(rows, "_COMPILED", False)
    with recollect.open(postgres) as store:
        assert everything(store) == quick
    assert [text for _, _, text, *_ in quick] == said
    assert [metadata for *_, metadata, _ in quick] == [{"k": text} for text in said]


EVERY_TYPE = """
SELECT n::bigint - 9223372036854775807, (2147483647 - n)::int * sign, n::smallint * sign::smallint,
    CASE WHEN n % 3 = 0 THEN n::bigint END, n % 2 = 0, n / 7.0::float8 * sign, 'NaN'::float8,
    (:hostile::text[])[1 + n % 12], json_build_array((:hostile::text[])[1 + n % 12], n), '[1, "é"]'::varchar, NULL::text
FROM generate_series(1, :count::int) AS n CROSS JOIN (VALUES (1), (-1)) AS s (sign)
"""


@pytest.mark.parametrize("prepare", ["on", "off"])
def test_numbers_come_as_digits_or_as_they_are(postgres, prepare, monkeypatch):
    """What had many rows once is asked for in the server's own form from then on, also where it has few or none."""
    counts = [3, 3, 100, 100, 3, 1, 0, 4, 100]
    with recollect.open(f"{postgres}?prepare={prepare}") as store:
        with store._engine._server._connection(time.monotonic() + 60) as link:
            found, forms = everything_of(link, counts)
        monkeypatch.setattr(rows, "_COMPILED", False)
        with store._engine._server._connection(time.monotonic() + 60) as link:
            digits, none = everything_of(link, counts)
    assert repr(found) == repr(digits)  # NaN is not equal to itself
    assert [len(each) for each in found] == [2 * count for count in counts]
    assert forms == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert not any(none)
    assert [row[7] for row in found[2][::2]] == [HOSTILE[n % 12] for n in range(1, 101)]


def everything_of(link, counts):
    """Ask for rows of every type again and again; give them, and the form in which each answer came."""
    statement = Statement("every_type", EVERY_TYPE)
    found, forms = [], []
    read = link._rows.of

    def noted(statement, result):
        forms.append(result.fformat(0))
        return read(statement, result)

    link._rows.of = noted
    for count in counts:
        link.send(statement, [texts(HOSTILE) if name == "hostile" else b"%d" % count for name in statement.names])
        found += link.receive(end=True)
    link._rows.of = read
    return found, forms


def test_a_list_reads_the_same_whether_it_was_long_or_short_before(postgres):
    with recollect.open(postgres) as store:
        for number, text in enumerate(HOSTILE):
            title = text.replace("\0", "") or None
            store.session(f"s{number}", title=title, metadata={"k": text}, model=title)
        first, long = store.list_sessions(12), store.list_sessions(12)
        place, few = None, []
        while place is not None or not few:
            page = store.list_sessions(3, after=place)
            few += page
            place = page.next
        assert [vars_of(s) for s in few] == [vars_of(s) for s in long] == [vars_of(s) for s in first]
        assert [s.metadata["k"] for s in reversed(few)] == HOSTILE


def vars_of(session):
    return (session.id, session.title, session.model, session.metadata, session.created_at, session.revision)
