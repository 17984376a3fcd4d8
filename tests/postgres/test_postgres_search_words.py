"""How PostgreSQL indexes and counts words: the parser of the server if it agrees with ours, and samples for frequent words."""

from __future__ import annotations

import json

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import sql
from recollect.engine.postgres.adapters import encode_text
from recollect.engine.postgres.address import Address
from recollect.engine.postgres.migrations import prepare_schema
from recollect.storage.search.analysis import fold
from recollect_conformance.examples import user

DATABASE_SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
# Texts that the parser of the server treats as numbers, hosts, files, addresses, tags and entities.
UNUSUAL_WORDS = st.sampled_from([
    "12e3a", "1e5", "00166e6fbx", "1.5e-3", "-1.5", "0x1f", "a@b.example", "http://x.y/z?q=1", "www.x.org", "/usr/lib/x.so",
    "foo-bar-baz", "foo_bar", "<b>red</b>", "&amp;", "&#65;", "it's", "x\0y", "x\x10y", "Straße", "北京", "a", "b", "a" * 200,
    "a" * 201, "9" * 2_100, "", "'", "\\", "=a", "3.14.15", "1e", "e1", "1e1e1e1",
])  # fmt: skip
LETTERS = st.text(alphabet="abe019 .-_/@<&:", max_size=12)
COLUMN = st.lists(UNUSUAL_WORDS | LETTERS | st.text(max_size=4), max_size=8).map(" ".join)


@pytest.fixture
def server(postgres, databases, database):
    recollect.open(postgres).close()
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


@DATABASE_SETTINGS
@given(columns=st.tuples(COLUMN, COLUMN, COLUMN), owner=st.sampled_from(["", "ann"]))
def test_the_fast_path_indexes_the_same_words(server, columns, owner):
    compare(server, columns, owner)


@pytest.mark.parametrize("text", ["a b " * 300, "word " * 255, "word " * 254, "a b c d e f g " * 2_500])
def test_the_fast_path_indexes_the_same_words_of_long_texts(server, text):
    compare(server, (text, "", "a"))
    compare(server, ("a", text, ""))


def compare(server, columns, owner=""):
    """Check that the fast path and the general function return the same words."""
    parameters = [encode_text(fold(column)).decode() for column in columns]
    server.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
    fast, general = (
        server.execute(f"SELECT words::text, length FROM recollect.{name}(%s, %s, %s, 'a r75')", parameters).fetchone()
        for name in ("search_words", "search_words_placed")
    )
    assert fast == general


def test_ordinary_text_uses_the_fast_path(server):
    """Most text consists of ASCII words; only text that the parser would split differently needs the general function."""
    with server.transaction(force_rollback=True):
        server.execute("DROP FUNCTION recollect.search_words_placed")
        for text in ("plain words, and (more)", "f(x) = 1.5; see https://example.org/a-b?c=d", "e2e 3e8 b2b"):
            server.execute("SELECT recollect.search_words(%s, '', '', 'a')", (text,))
        with pytest.raises(psycopg.errors.UndefinedFunction):
            server.execute("SELECT recollect.search_words('12e3a', '', '', 'a')")


def test_search_fits_is_the_sum_of_search_fit(server):
    vector, phrases = "'a':1A,5A 'b':2B 'c':3C", ["'a'", "'b'", "'c'", "'d'", "'a' <-> 'b'"]
    total = server.execute(
        "SELECT recollect.search_fits(%s::tsvector, 7, %s::tsquery[], %s::float8[])", (vector, phrases, [1, 2, 3, 4, 5])
    ).fetchone()
    total_of_each = server.execute(
        "SELECT sum(recollect.search_fit(%s::tsvector, 7, p.q, p.n)) "
        "FROM unnest(%s::tsquery[], ARRAY[1, 2, 3, 4, 5]) AS p (q, n)",
        (vector, phrases),
    ).fetchone()
    assert total == pytest.approx(total_of_each)
    assert total[0] > 0


def test_many_words_rank_by_the_number_of_matches(postgres):
    with recollect.open(postgres) as store:
        store.session("a").append([user("one two three"), user("one two three four five six seven"), user("one seven")])
        hits = store.search("one OR two OR three OR four OR five OR six OR seven")
        assert [hit.message for hit in hits] == ["1.2", "1.1", "1.3"]
        assert len({hit.score for hit in hits}) == 3


@pytest.mark.parametrize("role", ["plain", "postgres"])
def test_a_frequent_word_is_not_counted_and_others_are(server, databases, database, role):
    """A word in every message of one range is not frequent in all of them."""
    server.execute(
        "INSERT INTO recollect.search_index (tree, branch, position, length, owner, words) "
        "SELECT n / 100, 1, n % 100, 100, '', to_tsvector('simple', 'frequent ' || CASE WHEN n BETWEEN 3000 AND 3400 THEN "
        "'range ' ELSE '' END || CASE WHEN n % 5000 = 7 THEN 'rare ' ELSE '' END || filler.text) || array_to_tsvector(ARRAY['=a']) "
        "FROM generate_series(1, 15000) AS n, (SELECT string_agg('w' || w, ' ') AS text FROM generate_series(1, 60) AS w) AS filler"
    )
    server.execute("ANALYZE recollect.search_index")
    with psycopg.connect(databases.url_of(database, role)) as connection:
        for word, count in (("frequent", 100), ("range", 100), ("rare", 3), ("nowhere", 0)):
            term = f"'{word}'"
            assert connection.execute("SELECT recollect.search_count(%s, 100)", (term,)).fetchone() == (count,)
            common = connection.execute("SELECT recollect.search_common(%s::tsquery, 100)", (term,)).fetchone()
            assert common == (word == "frequent",), word
        assert connection.execute("SELECT recollect.search_count('''range''', 5000)").fetchone() == (401,)
        assert connection.execute("SELECT recollect.search_common('''frequent''', 15000)").fetchone() == (False,)


def test_words_of_other_owners_are_not_counted(server, databases, database):
    server.execute(
        "INSERT INTO recollect.search_index (tree, branch, position, length, owner, words) "
        "SELECT n, 1, 1, 1, 'bob', to_tsvector('simple', 'heron ' || repeat('x' || n || ' ', 40)) "
        "|| array_to_tsvector(ARRAY['=o' || md5('bob'), '=a', 'y' || repeat('z', 200)]) FROM generate_series(1, 15000) AS n"
    )
    for role in ("plain", "postgres"):
        with psycopg.connect(databases.url_of(database, role)) as connection:
            for owner, count in (("ann", 0), ("bob", 50)):
                connection.execute("SELECT set_config('recollect.owner', %s, true)", (owner,))
                assert connection.execute("SELECT recollect.search_count('''heron''', 50)").fetchone() == (count,)


@pytest.mark.parametrize("owner", ["", "ann"])
def test_erasing_removes_terms_that_no_message_has(postgres, owner):
    """Of thousands of terms, some stay: those in an old message, in a title, and in the newest message."""
    words = [f"word{n}" for n in range(3_000)]
    with recollect.open(postgres, owner=owner) as store:
        old_session = store.session("old")
        old_session.append([user(f"{word} and more") for word in words[:600]])
        store.session("titled", title=" ".join(words[600:603]))
        store.session("gone").append(user(" ".join(words)))
        store.session("new").append([user("something else")] * 150)
        store.session("newest").append(user(" ".join(words[-3:])))
        store.maintenance.index()
        store.delete_session("gone")
        store.erase_session("gone")
        with psycopg.connect(postgres) as connection:
            connection.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
            terms = {term for (term,) in connection.execute("SELECT term FROM recollect.search_terms").fetchall()}
        assert {word for word in terms if word.startswith("word")} == {*words[:603], *words[-3:]}
        assert len(store.search("ord599")) == len(store.search("ord2999")) == 1
        assert not store.search("ord1234")


def test_an_older_database_gets_the_views_and_is_searched(databases):
    name = databases.make()
    url, migrations = databases.url_of(name, "plain"), sql.migrations("postgres")
    prepare_schema(Address(url), "", 10, [migration for migration in migrations if migration[0] < 5])
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('recollect.chat_messages')").fetchone() == (None,)
        connection.execute(
            "INSERT INTO recollect.search_index (tree, branch, position, length, words) "
            "SELECT 999, 1, 1, w.length, w.words FROM recollect.search_words('heron', '', '', 'a') AS w"
        )
    with recollect.open(url) as store:
        store.session("a").append([user("a heron"), user("a stork")])
        assert len(store.search("heron")) == 1
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM recollect.chat_messages").fetchone() == (2,)
    databases.drop(name)


def test_a_database_with_the_views_keeps_them(databases):
    name = databases.make()
    url, migrations = databases.url_of(name, "plain"), sql.migrations("postgres")
    prepare_schema(Address(url), "", 10, [migration for migration in migrations if migration[0] < 5])
    views = next(text for number, _, text in migrations if number == 5).partition("-- Functions for search.")[0]
    with psycopg.connect(url) as connection:
        connection.execute(views.encode())
        connection.execute("CREATE VIEW mine AS SELECT id FROM recollect.chat_sessions")
    with recollect.open(url) as store:
        store.session("a")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT id FROM mine").fetchall() == [("a",)]
    databases.drop(name)


def test_search_sweep_accepts_terms_as_json(server):
    """A term may contain any character of a folded text."""
    terms = ["o'clock".replace("'", ""), "北", "x" * 64]
    assert server.execute("SELECT recollect.search_sweep(%s)", (json.dumps(terms),)).fetchone() == (3,)
