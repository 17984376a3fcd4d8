"""How messages lie in their rows: compressed from some hundred characters on, and beside the row only what no page holds."""

from __future__ import annotations

import random
import re

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migration import ready

WORDS = ["the", "server", "compresses", "what", "is", "in", "a", "row", "longer", "than", "quarter", "of", "page"]
STORED = "SELECT octet_length(parts), pg_column_size(parts), pg_column_size(filler) FROM recollect.messages ORDER BY position"


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def said(text):
    return {"role": "assistant", "content": text}


def words(length):
    return " ".join(random.Random(length).choices(WORDS, k=length))[:length]


def beside(admin):
    """Count the pieces of messages that lie beside their rows."""
    (table,) = admin.execute(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'recollect.messages'::regclass"
    ).fetchone()
    return admin.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_what_has_some_hundred_characters_is_compressed(postgres, admin):
    texts = [words(length) for length in (200, 500, 800, 1_200, 1_900, 2_100, 5_000)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append([said(text) for text in texts])
        assert [message.text for message in session.messages()] == texts
    rows = admin.execute(STORED).fetchall()
    for whole, stored, filler in rows[:2]:
        assert stored >= whole
        assert filler is None
    for whole, stored, filler in rows[2:]:
        assert stored + filler < 0.75 * whole
        assert filler < 40
    assert beside(admin) == 0


def test_what_compressing_does_not_make_smaller_costs_some_bytes_more(postgres, admin):
    generator = random.Random(1)
    texts = ["".join(generator.choices([chr(n) for n in range(0x4E00, 0x9000)], k=count)) for count in (250, 400, 650)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append([said(text) for text in texts])
        assert [message.text for message in session.messages()] == texts
    for whole, stored, filler in admin.execute(STORED):
        assert stored <= whole + 4
        assert filler < 40


def test_only_what_no_page_holds_lies_beside_its_row(postgres, admin):
    texts = [words(12_000), words(60_000)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append(said(texts[0]))
        assert beside(admin) == 0
        session.append(said(texts[1]))
        assert beside(admin) > 0
        assert [message.text for message in session.messages()] == texts
        assert store.check().problems == ()


def test_a_message_that_was_written_piece_by_piece_is_compressed(postgres, admin):
    text = words(1_000)
    with recollect.open(postgres) as store, store.session("a").turn("q") as turn, turn.stream() as stream:
        for start in range(0, len(text), 100):
            stream.write(text[start : start + 100])
            stream.flush()
    whole, stored, filler = admin.execute(STORED).fetchall()[-1]
    assert whole > len(text)
    assert stored + filler < 0.75 * whole


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE recollect.messages SET role = 'robot'",
        "UPDATE recollect.messages SET state = 'done'",
        "UPDATE recollect.sessions SET status = 'odd'",
        "UPDATE recollect.sessions SET relation = 'cousin'",
        "UPDATE recollect.turns SET status = 'success'",
        "UPDATE recollect.tool_calls SET status = 'failed'",
    ],
)
def test_a_word_that_none_of_these_may_be_is_refused(postgres, admin, statement):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with recollect.open(postgres) as store:
        store.session("a").save_turn("q", {"role": "assistant", "content": None, "tool_calls": [call]})
    with pytest.raises(psycopg.errors.CheckViolation):
        admin.execute(statement)


def test_a_database_from_before_all_this_is_used_as_it_is(databases):
    """What is new here is only how rows lie in their pages: no statement names it."""
    number, name, text = sql.migrations("postgres")[0]
    before = re.sub(r"CREATE DOMAIN .*?;\n", "", text, flags=re.DOTALL)
    before = re.sub(
        r"recollect\.(relation|\w+_status|role|\w+_state)\b(?! \()",
        'text COLLATE "C"',
        before.replace(", 'filler'", ""),
    )
    before = re.sub(r"    filler text .*?STORED,\n", "", before, flags=re.DOTALL)
    before = before.replace(") WITH (toast_tuple_target = 640);", ");")
    assert "filler text" not in before
    url = databases.url_of(made := databases.make(), "plain")
    try:
        ready(Address(url), "", 10, [(number, name, before)])
        with recollect.open(url, owner="ann") as store:
            session = store.session("a", status="active")
            session.append([said(words(900)), said(words(9_000))])
            session.save_turn("q", said("r"))
            assert [len(message.text) for message in session.messages(last=4)] == [900, 9_000, 1, 1]
            assert {hit.session for hit in store.search("compresses")} == {"a"}
            assert store.check().problems == ()
        with psycopg.connect(url) as connection:
            assert connection.execute(
                "SELECT count(*) FROM pg_attribute WHERE attrelid = 'recollect.messages'::regclass AND attname = 'filler'"
            ).fetchone() == (0,)
    finally:
        databases.drop(made)
