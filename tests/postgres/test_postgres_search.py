"""Search on PostgreSQL: the same hits as on SQLite, use of the indexes, separate owners, and texts that are too long."""

from __future__ import annotations

import math

import psycopg
import psycopg.sql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

import recollect
from recollect.engine.postgres import search
from recollect.engine.postgres.statements import StatementRegistry
from recollect.storage.search import query, retrieval
from recollect.storage.search.analysis import fold, tokenize
from recollect.storage.search.dialect import Condition
from recollect_conformance.examples import tool_call_message, tool_result_message, user

SEARCH = {"search_index", "search_titles", "search_terms"}
NO_FILTERS = {
    "below_branch": None, "below_position": None, "low_branch": 0, "low_position": 0, "ranges": None, "deleted": False,
    "delegates": False, "unfiltered": True, "pool": 5000, "max_count": 2000, "below": None, "low": 0, "limit": 48,
}  # fmt: skip


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def add_session(store, *texts, id="a", **fields):
    session = store.session(id, **fields)
    session.append([user(text) for text in texts])
    return session


def find_all(store, text, **filters):
    """Return every hit of a search, read in small pages."""
    page = store.search(text, 7, **filters)
    hits = list(page)
    while page.next is not None:
        page = store.search(text, 7, after=page.next, **filters)
        hits += page
    return {(hit.session, hit.message, hit.text, hit.marks) for hit in hits}


# Texts that PostgreSQL's own parser would split differently, and ordinary words.
PIECES = st.sampled_from([
    "red", "Infrared", "Café", "Straße", "北京", "京", "👍🏽", "a@b.example", "http://x.y/z?q=1", "foo-bar", "foo_bar", "1.5e3",
    "-42", "12abc", "abc12", "0x1f", "/usr/lib", "it's", "a\\b", "'", '"', ":*", "&|!()<->", "=a", "=r75736572", "x\0y",
    "x\x10y", "<b>red</b>", "привет", "ประเทศ", "½", "a", "bar", "foo", "e3", "1", "\u200b", "\u00ad", "ﬁn", "०१", "i\u0307",
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=6).map(" ".join)
QUERIES = st.lists(
    PIECES | st.text(max_size=4) | st.sampled_from(["OR", "NOT", "-", "(", ")", '"', "*", "role:user", "tool:Read"]),
    min_size=1,
    max_size=5,
).map(" ".join)
DATABASE_SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def encodable(text):
    return text.encode("utf-8", "replace").decode()


@DATABASE_SETTINGS
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), title=TEXTS, queries=st.lists(QUERIES, min_size=1, max_size=4))
def test_searches_have_the_same_hits_as_on_sqlite(postgres_store, texts, title, queries):
    texts = [encodable(text) for text in texts]
    queries = [*queries, texts[0], f'"{texts[-1]}"', texts[0][1:-1]]
    results = []
    with recollect.open(":memory:") as sqlite_store:
        for store in (sqlite_store, postgres_store):
            session = add_session(store, *texts, title=encodable(title).replace("\0", ""))
            session.append([tool_call_message("t", tool="Read"), tool_result_message("t", text=texts[-1])])
            results.append({text: find_all(store, text) for text in queries})
            store.erase_session("a")
    assert results[1] == results[0]


@pytest.fixture
def postgres_store(postgres):
    with recollect.open(postgres, owner="ann") as store:
        yield store


@given(word=st.text(min_size=1, max_size=30))
def test_a_token_has_no_special_characters_of_a_tsquery(word):
    for token in tokenize(fold(word)):
        assert not set(token) & set("'\\ \t\n&|!()<>:*=")


def test_a_very_long_query_does_not_raise(postgres):
    with recollect.open(postgres) as store:
        add_session(store, "x" * 5000 + " y", "word")
        rows = " ".join(f'"{" ".join(f"{n}x{m}" + "z" * 300 for m in range(64))}"' for n in range(48))
        assert find_all(store, rows) == set()
        assert len(find_all(store, "x" * 5000)) == 1
        assert find_all(store, "x" * 4999) == set()
        assert len(find_all(store, "x" * 150 + "*")) == 1


def test_a_text_that_is_too_long_is_truncated_in_the_index(postgres):
    """A tsvector holds at most 1 MB: 80,000 different words do not fit."""
    with recollect.open(postgres, timeout=600) as store:  # erasing looks up each of its words
        text = " ".join(f"word{n:06}" for n in range(80_000))
        add_session(store, "begin " + text + " end")
        add_session(store, "begin", id="b")
        assert {hit.session for hit in store.search("begin")} == {"a", "b"}
        assert len(store.search("word000100 word000200")) == 1
        assert len(store.search('"word000100 word000101"')) == 1
        assert len(store.search("word079999", role="user")) == 0
        assert store.maintenance.reindex() == 2
        store.erase_session("a")
        assert [hit.session for hit in store.search("begin")] == ["b"]


def test_a_phrase_after_thousands_of_repetitions_is_found(postgres):
    """A tsvector has at most 255 positions of a word; beyond them, two adjacent words are indexed as a pair."""
    with recollect.open(postgres) as store:
        add_session(store, "the sea " * 400 + "the harbor " + "the sea " * 9_000 + "the lighthouse is new", id="a")
        for text, count in (
            ('"the harbor"', 1), ('"sea the harbor the sea"', 1), ('"the lighthouse is"', 1), ('"the light"*', 1),
            ('"sea harbor"', 0), ('"lighthouse the"', 0), ('"harbor is"', 0),
        ):  # fmt: skip
            assert len(store.search(text)) == count, text


def test_search_separates_owners(postgres, databases, database, admin):
    with recollect.open(postgres, owner="ann") as ann, recollect.open(postgres, owner="bob") as bob:
        add_session(ann, "secret of ann", title="plan of ann")
        add_session(bob, "secret of bob", title="plan of bob")
        assert len(ann.search("secret")) == len(ann.search("plan")) == len(ann.search("ecre")) == 1
        assert find_all(ann, "bob") == find_all(bob, "ann") == set()
    with psycopg.connect(postgres) as connection:
        for owner, count in (("ann", 1), ("bob", 0), ("", 0)):
            connection.execute("SELECT set_config('recollect.owner', %s, true)", (owner,))
            for setting in ("recollect.sought", "recollect.piece"):
                connection.execute("SELECT set_config(%s, '', true)", (setting,))
            terms = {row[0] for row in connection.execute("SELECT term FROM recollect.search_terms")}
            assert terms == ({"secret", "plan"} if owner else set())
            connection.execute("SELECT set_config('recollect.sought', '''ann'' | !''zzz''', true)")
            for table in ("search_index", "search_titles"):
                rows = connection.execute(
                    f"SELECT owner, words @@ '''ann'''::tsquery FROM recollect.{table}"
                ).fetchall()
                assert rows == ([(owner, bool(count))] if owner else [])
            cursor = connection.execute("UPDATE recollect.search_index SET length = 1 WHERE owner <> %s", (owner,))
            assert cursor.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO recollect.search_terms (owner, term) VALUES ('ann', 'x')")
    assert admin.execute("SELECT count(*) FROM recollect.search_index").fetchone() == (2,)


def test_a_role_that_bypasses_policies_finds_only_messages_of_its_owner(postgres, databases, database):
    with recollect.open(postgres, owner="ann") as ann:
        add_session(ann, "a heron of ann", title="heron")
        assert ann.maintenance.index() == 1
    with recollect.open(databases.url_of(database, "postgres")) as store:
        add_session(store, "a heron", "a stork", title="stork")
        assert [hit.text for hit in store.search("heron")] == ["a heron"]
        assert {hit.text for hit in store.search("stork")} == {"a stork", "stork"}
        assert [hit.text for hit in store.search("ero")] == ["a heron"]
        assert store.maintenance.reindex() == 2
        store.erase_session("a")
        assert find_all(store, "heron") == find_all(store, "tor") == set()
    with recollect.open(postgres, owner="ann") as ann:
        assert ann.maintenance.index() == 0
        assert {hit.text for hit in ann.search("eron")} == {"a heron of ann", "heron"}


def test_erasing_removes_every_word(postgres, admin):
    with recollect.open(postgres, owner="ann") as store:
        add_session(store, "hunter2secret and common words", title="topsecret title")
        add_session(store, "common words", id="b", title="title")
        store.maintenance.index()
        store.erase_session("a")
        terms = {row[0] for row in admin.execute("SELECT term FROM recollect.search_terms")}
        assert terms == {"common", "words", "title"}
        assert admin.execute("SELECT count(*) FROM recollect.search_index").fetchone() == (1,)
        assert admin.execute("SELECT count(*) FROM recollect.search_titles").fetchone() == (1,)


@pytest.mark.parametrize("role", ["plain", "postgres"])
def test_searches_use_the_indexes(postgres, databases, database, admin, role):
    """Also under the policy of an owner; a condition in addition to a policy could not use them."""
    owner = "ann" if role == "plain" else ""
    with recollect.open(databases.url_of(database, role), owner=owner) as store:
        add_session(store, "heron", title="heron")
        store.maintenance.index()
    admin.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
    admin.execute(
        "INSERT INTO recollect.search_index (tree, branch, position, length, words) "
        "SELECT 1, 1, n, 2, w.words FROM generate_series(2, 20000) AS n, "
        "recollect.search_words('word w' || n, '', '', 'a') AS w"
    )
    admin.execute(
        "INSERT INTO recollect.search_titles (tree, session, length, title, words) "
        "SELECT 1, n, 2, '', w.words FROM generate_series(2, 5000) AS n, "
        "recollect.search_words('word w' || n, '', '', 'a') AS w"
    )
    admin.execute("INSERT INTO recollect.search_terms (term) SELECT md5(n::text) FROM generate_series(1, 20000) AS n")
    admin.execute("VACUUM ANALYZE")
    expression, weights = search.PostgresSearch().compile(Condition(query.parse_query("w77", 0).words))
    params = {
        **NO_FILTERS,
        "expression": expression,
        "weights": weights,
        "owner": owner,
        "piece": "abcdef0",
        "ending": False,
    }
    with psycopg.connect(databases.url_of(database, role)) as connection:
        connection.execute("SELECT set_config('recollect.owner', %s, true)", (owner,))
        for name, index in (
            ("search_messages", "search_index_words"),
            ("search_titles_match", "search_titles_words"),
            ("search_terms_with", "search_terms_pieces"),
        ):
            plan = explain_query(connection, name, params)
            assert f"Bitmap Index Scan on {index}" in plan, (name, plan)
            executed_lines = [line for line in plan.splitlines() if "never executed" not in line]
            assert not any("Seq Scan on search" in line for line in executed_lines), (name, plan)


def explain_query(connection, name, params):
    """Return the plan of a query that is run as the engine runs it."""
    registry = StatementRegistry()
    statements = (registry.settings(name), ""), (registry.statement(name), "EXPLAIN (ANALYZE, COSTS off) ")
    for statement, explain in statements:
        connection.execute(b"PREPARE query AS " + statement.text)
        values = ", ".join(
            psycopg.sql.Literal(str(params[name])).as_string(connection) if params.get(name) is not None else "NULL"
            for name in statement.names
        )
        rows = connection.execute(f"{explain}EXECUTE query({values})").fetchall()
        connection.execute("DEALLOCATE query")
    return "\n".join(row[0] for row in rows)


@pytest.fixture
def schema_without_extension(databases):
    """Create a database in which an administrator made the schema for a role that cannot create extensions."""
    name = databases.make()
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" OWNER TO postgres'.encode())
        admin.execute("CREATE SCHEMA recollect AUTHORIZATION plain")
        yield databases.url_of(name, "plain"), admin
    databases.drop(name)


def test_search_works_without_the_privilege_to_create_extensions(schema_without_extension):
    url, admin = schema_without_extension
    with recollect.open(url, owner="ann") as store:
        assert admin.execute("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'").fetchone() == (0,)
        assert admin.execute("SELECT to_regclass('recollect.search_terms_pieces')").fetchone() == (None,)
        add_session(store, "getUserName(connect_timeout)")
        assert len(store.search("serNam")) == len(store.search("onnect_tim")) == 1


def test_infix_search_has_an_index_if_the_extension_exists(postgres, admin):
    with recollect.open(postgres):
        assert admin.execute("SELECT to_regclass('recollect.search_terms_pieces') IS NOT NULL").fetchone() == (True,)


def test_the_settings_of_a_search_end_with_its_transaction(postgres):
    """In a pool of one connection, the next operation would run with settings that stayed."""
    with recollect.open(f"{postgres}?pool_size=1", owner="ann") as store:
        add_session(store, "heron", "stork")
        assert len(store.search("heron")) == len(store.search("ero")) == 1
        assert len(store.search("stork")) == 1
        store.session("a").append(user("crane"))
        assert store.maintenance.index() == 1
        assert store.maintenance.reindex() == 3


@pytest.mark.parametrize("owner", ["", "ann"])
def test_walk_and_index_find_the_same_hits_of_a_frequent_word(postgres, databases, database, monkeypatch, owner):
    """Reading the messages from the newest backward, or the index: the same hits, page by page."""
    monkeypatch.setattr(retrieval, "POOL_SIZE", 40)
    monkeypatch.setattr(retrieval, "_MAX_COUNTED", 40)
    monkeypatch.setattr(search, "_SAMPLE_SIZE", 20)
    with recollect.open(postgres, owner="bob") as other:
        add_session(other, *["heron"] * 50)
    with recollect.open(postgres, owner=owner) as store:
        for number in range(8):
            texts = [f"heron {'and more ' * (n % 5)} {n}" for n in range(30)]
            session = add_session(store, *texts, id=f"s{number}")
            session.append([user("stork")] * 5)
        store.get_session("s3").fork(id="fork").append([user("heron in a fork")] * 3)
        for id in ("s2", "s3", "s7"):
            store.delete_session(id)
        names = record_statement_names(monkeypatch)
        for text in (
            "heron", "role:user", "heron OR stork", "heron -stork", "after:2020 heron", "-channel:x ero",
            'heron -"more heron"', '"heron and more" OR heron OR "more and"',
        ):  # fmt: skip
            hits = {}
            for index_cost in (0, 1e9):
                monkeypatch.setattr(search, "_INDEXED_COST", index_cost)
                monkeypatch.setattr(search, "_PAGE_COST", index_cost)
                hits[index_cost] = search_all_pages(store, text)
                assert ("search_newest" in names) == bool(index_cost)
            for newest in (1, 60, 150, 10_000):  # fewer of the newest messages than needed, enough, and more than exist
                with monkeypatch.context() as patch:
                    patch.setattr(search, "newest_count", lambda *_, newest=newest, **__: newest)
                    assert search_all_pages(store, text) == hits[0]
                assert "search_newest_start" in names
            names.clear()
            assert hits[0] == hits[1e9]
            assert len(hits[0]) >= 150


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ('"a b c"', "('a' & 'b' & 'c')"),
        ('"a b"*', "('a' & 'b':*)"),
        ('x -"a b" -y', "('x' & !'y')"),
        ('"a b" OR (c NOT (d OR "e f"))', "(('a' & 'b') | 'c')"),
        ("-role:tool a", "('a' & !'=r746f6f6c')"),
    ],
)
def test_the_loose_tsquery_has_no_phrases(text, loose):
    """An excluded phrase is left out: without positions, it would exclude too much."""
    parsed = query.parse_query(text, 0)
    condition = Condition(query.message_condition(parsed.words, parsed.filters))
    assert search.TsqueryCompiler(condition, loose=True).compile(condition.node) == loose


def test_a_walk_is_cheaper_for_frequent_words():
    def is_walk_cheaper(*density):
        return search.is_walk_cheaper(search.DensityRow(*density), pool=2_000)

    million = (1e6, 1e6, 150_000)
    assert is_walk_cheaper(100, 100, 300, *million)  # a frequent word
    assert not is_walk_cheaper(3, 3, 300, *million)
    assert is_walk_cheaper(1, 190, 300, *million)  # a phrase whose words most messages have
    assert is_walk_cheaper(0, 190, 300, *million)
    assert not is_walk_cheaper(0, 100, 300, *million)
    assert is_walk_cheaper(10, 100, 300, *million)
    assert is_walk_cheaper(8, 8, 300, *million)  # few enough that each is on another page
    assert not is_walk_cheaper(5, 5, 300, *million)
    assert not is_walk_cheaper(8, 8, 300, 1e6, 1e6, 1_000)  # unless the table has few pages
    assert not is_walk_cheaper(100, 100, 300, 1e4, 1e6, 150_000)  # an owner with few messages among others with many
    assert not is_walk_cheaper(100, 100, 200, 0, 1e6, 150_000)


def test_newest_count_is_twice_the_expected_need():
    def newest_count(*density):
        return search.newest_count(search.DensityRow(*density), pool=2_000)

    million = (1e6, 1e6, 150_000)
    assert newest_count(10, 10, 300, *million) == 120_000  # twice the expected number
    assert newest_count(200, 200, 300, *million) is None  # a walk is faster
    assert newest_count(4, 4, 300, *million) is None  # so few matches in the sample may be random
    assert newest_count(0, 0, 300, *million) is None
    assert newest_count(10, 10, 300, 5e4, 1e6, 150_000) is None  # that would be every message
    assert newest_count(10, 10, 300, 0, 1e6, 150_000) is None


@pytest.mark.parametrize(
    ("text", "is_missing"),
    [
        ("here", False), ("gone", True), ("here gone", True), ("here OR gone", False), ("gone OR lost", True),
        ("here -gone", False), ('"here gone"', True), ("gone*", False), ('"gone here"*', True), ('"here gone"*', False),
        ("-gone", False), ("(here gone) OR here", False), ("role:user", False),
    ],
)  # fmt: skip
def test_max_matches_is_zero_if_a_required_word_is_missing(text, is_missing):
    words = query.parse_query(text, 0).words
    assert (retrieval.max_matches(words, {"gone": 0, "lost": 0, "here": 9}) == 0) == is_missing
    assert retrieval.max_matches(words, {}) == math.inf


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("few", 3), ("few some", 3), ("few OR some", 23), ("some -few", 20), ('"some few"', 3), ("few*", math.inf),
        ('"few some"*', 3), ("few OR other", math.inf), ("few other", 3), ("(few some) OR (few other)", 6), ("-few", math.inf),
    ],
)  # fmt: skip
def test_max_matches_is_computed_from_word_counts(text, expected):
    assert retrieval.max_matches(query.parse_query(text, 0).words, {"few": 3, "some": 20}) == expected


@pytest.mark.parametrize(
    ("short_session", "few_messages", "statement"),
    [(0, 0, "search_messages"), (0, 1_000, "search_rare"), (10_000, 0, "search_newest")],
)
def test_every_statement_finds_the_same_hits_of_one_session(
    postgres, monkeypatch, short_session, few_messages, statement
):
    """Its branches lie between those of a fork; the branches before and after belong to other sessions."""
    monkeypatch.setattr(retrieval, "POOL_SIZE", 5)
    monkeypatch.setattr(search, "_SHORT_SESSION", short_session)
    monkeypatch.setattr(search, "_FEW_MESSAGES", few_messages)
    with recollect.open(postgres) as store:
        add_session(store, *["before fox"] * 12, id="0")
        session = add_session(store, *[f"fox {number}" for number in range(12)], id="a")
        fork = session.fork(at=6, id="f")
        fork.append([user(f"forked fox {number}") for number in range(8)])
        session.rewind(9)
        session.append([user(f"another fox {number}") for number in range(9)])
        add_session(store, *["after fox"] * 12, id="z")
        first_texts, fork_texts = (
            [f"fox {number}" for number in range(12)],
            [f"forked fox {number}" for number in range(8)],
        )
        expected = {
            "a": {*first_texts, *(f"another fox {number}" for number in range(9))},
            "f": {*first_texts[:6], *fork_texts},
        }
        for id, texts in expected.items():
            names = record_statement_names(monkeypatch)
            hits = find_all(store, "fox", session=id)
            assert {text for _, _, text, _ in hits} == texts
            assert len(hits) == len(texts)
            assert names & {"search_messages", "search_rare", "search_newest"} == {statement}
        assert find_all(store, "before", session="a") == find_all(store, "after", session="f") == set()
        assert find_all(store, "fox", session=store.session("empty", exist_ok=False).id) == set()


QUERIES_WITH_FEW_HITS = (
    "fox",
    "fox hen",
    "fox OR cow",
    '"the fox"',
    "fox -hen",
    "role:user fox",
    "channel:web fox",
    "the",
    "model:large fox",
)


@pytest.mark.parametrize("owner", ["", "ann"])
def test_the_statement_for_rare_words_finds_the_same_hits(postgres, monkeypatch, owner):
    with recollect.open(postgres, owner=owner) as store:
        for number, text in enumerate(
            ["the fox", "a hen", "the fox and the hen", "cow", "fox fox", "hen, the cow"] * 4
        ):
            session = add_session(store, text, f"{text} {number}", id=f"{'web' if number % 3 else 'cli'}:{number}")
            session.update(model="large" if number % 5 else "small")
        store.delete_session("web:2")
        store.session("web:4").fork(id="web:forked").append([user("the fox of a fork")])
        for text in QUERIES_WITH_FEW_HITS:
            monkeypatch.setattr(search, "_FEW_MESSAGES", 0)
            expected = [(hit.session, hit.message, hit.score) for hit in store.search(text, 100)]
            monkeypatch.setattr(search, "_FEW_MESSAGES", 1_000)
            names = record_statement_names(monkeypatch)
            assert [(hit.session, hit.message, hit.score) for hit in store.search(text, 100)] == expected
            assert "search_rare" in names
            assert expected
            assert sorted((session, message) for session, message, _ in expected) == sorted(
                search_all_pages(store, text)
            )


@pytest.mark.parametrize(
    ("name", "index", "values"),
    [
        ("search_hits_tools", "branches_pkey", {"hits": "[[1048577, 3], [2097153, 1]]", "call_distance": 1000}),
        ("search_clear_waiting", "sessions_pkey", {"keys": "[1048577, 2097153]"}),
        ("search_waiting_sessions", "sessions_waiting", {"owner": "", "after": 0, "limit": 5}),
        ("search_backlog", "sessions_waiting", {"owner": "", "max_sessions": 50}),
    ],
)
def test_lookups_by_key_use_an_index_behind_a_policy(postgres, admin, name, index, values):
    """A key that is computed from a parameter must be a column before the comparison; otherwise all rows are read."""
    recollect.open(postgres).close()
    series = "FROM generate_series(1, 2000) AS n"
    admin.execute(
        "INSERT INTO recollect.sessions (tree, number, id, created_at, updated_at, active_at, owner, waiting) "
        f"SELECT n, 1, 's' || n, n, n, n, '', n < 9 {series}"
    )
    admin.execute(
        f"INSERT INTO recollect.branches (tree, number, session, created_at, owner) SELECT n, 1, 1, n, '' {series}"
    )
    admin.execute("ANALYZE recollect.sessions, recollect.branches")
    statement = StatementRegistry().statement(name)
    with psycopg.connect(postgres) as connection:
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            connection.execute(f"SET {setting} = off")
        connection.execute(b"PREPARE lookup AS " + statement.text)
        arguments = sql.SQL(", ").join([sql.Literal(values[parameter]) for parameter in statement.names])
        explain = sql.SQL("EXPLAIN (COSTS OFF) EXECUTE lookup (") + arguments + sql.SQL(")")
        lines = [line.strip() for (line,) in connection.execute(explain)]
    scan = next(number for number, line in enumerate(lines) if index in line)
    assert lines[scan + 1].startswith("Index Cond: ("), lines


def record_statement_names(monkeypatch):
    names = set()
    statement = StatementRegistry.statement
    monkeypatch.setattr(
        StatementRegistry, "statement", lambda registry, name: names.add(name) or statement(registry, name)
    )
    return names


def search_all_pages(store, text):
    page = store.search(text, 17)
    hits = [(hit.session, hit.message) for hit in page]
    while page.next is not None:
        page = store.search(text, 17, after=page.next)
        hits += [(hit.session, hit.message) for hit in page]
    assert len(hits) == len(set(hits))
    return sorted(hits)
