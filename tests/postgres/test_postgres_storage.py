"""How messages are stored: compressed from a few hundred characters, and in the TOAST table only if no page can hold them."""

from __future__ import annotations

import random
import re

import psycopg
import pytest

import recollect
from recollect import sql
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema

WORDS = ["the", "server", "compresses", "what", "is", "in", "a", "row", "longer", "than", "quarter", "of", "page"]
READ_SIZES = "SELECT octet_length(parts), pg_column_size(parts), pg_column_size(filler) FROM recollect.messages ORDER BY position"


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def assistant_message(text):
    return {"role": "assistant", "content": text}


def words(length):
    return " ".join(random.Random(length).choices(WORDS, k=length))[:length]


def count_toast_chunks(admin):
    """Return the number of chunks of messages in the TOAST table."""
    (table,) = admin.execute(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'recollect.messages'::regclass"
    ).fetchone()
    return admin.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_a_message_of_a_few_hundred_characters_is_compressed(postgres, admin):
    texts = [words(length) for length in (200, 500, 800, 1_200, 1_900, 2_100, 5_000)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append([assistant_message(text) for text in texts])
        assert [message.text for message in session.messages()] == texts
    rows = admin.execute(READ_SIZES).fetchall()
    for size, stored_size, filler in rows[:2]:
        assert stored_size >= size
        assert filler is None
    for size, stored_size, filler in rows[2:]:
        assert stored_size + filler < 0.75 * size
        assert filler < 40
    assert count_toast_chunks(admin) == 0


def test_an_incompressible_message_takes_only_a_few_bytes_more(postgres, admin):
    rng = random.Random(1)
    texts = ["".join(rng.choices([chr(n) for n in range(0x4E00, 0x9000)], k=count)) for count in (250, 400, 650)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append([assistant_message(text) for text in texts])
        assert [message.text for message in session.messages()] == texts
    for size, stored_size, filler in admin.execute(READ_SIZES):
        assert stored_size <= size + 4
        assert filler < 40


def test_only_a_message_larger_than_a_page_is_in_the_toast_table(postgres, admin):
    texts = [words(12_000), words(60_000)]
    with recollect.open(postgres) as store:
        session = store.session("a")
        session.append(assistant_message(texts[0]))
        assert count_toast_chunks(admin) == 0
        session.append(assistant_message(texts[1]))
        assert count_toast_chunks(admin) > 0
        assert [message.text for message in session.messages()] == texts
        assert store.maintenance.check().problems == ()


def test_a_streamed_message_is_compressed(postgres, admin):
    text = words(1_000)
    with recollect.open(postgres) as store, store.session("a").turn("q") as turn, turn.stream() as stream:
        for start in range(0, len(text), 100):
            stream.write(text[start : start + 100])
            stream.flush()
    size, stored_size, filler = admin.execute(READ_SIZES).fetchall()[-1]
    assert size > len(text)
    assert stored_size + filler < 0.75 * size


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
def test_an_unknown_role_state_or_status_is_refused(postgres, admin, statement):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with recollect.open(postgres) as store:
        store.session("a").save_turn("q", {"role": "assistant", "content": None, "tool_calls": [call]})
    with pytest.raises(psycopg.errors.CheckViolation):
        admin.execute(statement)


def test_a_database_without_compression_and_domains_is_used_unchanged(databases):
    """These columns and types affect only how rows are stored in pages: no statement names them."""
    number, name, text = sql.migrations("postgres")[0]
    old_schema = re.sub(r"CREATE DOMAIN .*?;\n", "", text, flags=re.DOTALL)
    old_schema = re.sub(
        r"recollect\.(relation|\w+_status|role|\w+_state)\b(?! \()",
        'text COLLATE "C"',
        old_schema.replace(", 'filler'", ""),
    )
    old_schema = re.sub(r"    filler text .*?STORED,\n", "", old_schema, flags=re.DOTALL)
    old_schema = old_schema.replace(") WITH (toast_tuple_target = 640);", ");")
    assert "filler text" not in old_schema
    url = databases.url_of(database := databases.make(), "plain")
    try:
        prepare_schema(Address(url), "", 10, [(number, name, old_schema)])
        with recollect.open(url, owner="ann") as store:
            session = store.session("a", status="active")
            session.append([assistant_message(words(900)), assistant_message(words(9_000))])
            session.save_turn("q", assistant_message("r"))
            assert [len(message.text) for message in session.messages(last=4)] == [900, 9_000, 1, 1]
            assert {hit.session for hit in store.search("compresses")} == {"a"}
            assert store.maintenance.check().problems == ()
        with psycopg.connect(url) as connection:
            assert connection.execute(
                "SELECT count(*) FROM pg_attribute WHERE attrelid = 'recollect.messages'::regclass AND attname = 'filler'"
            ).fetchone() == (0,)
    finally:
        databases.drop(database)
