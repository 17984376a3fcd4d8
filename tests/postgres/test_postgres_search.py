"""Search on PostgreSQL: the same hits as on SQLite, the index that is used, owners apart, and what does not fit cut."""

from __future__ import annotations

import functools
import math

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

import recollect
from recollect.engine.postgres.book import Book
from recollect.ops.search import cost, find, query, tsquery
from recollect.ops.search.words import fold, tokens
from recollect.testing.talk import answers, asks, user

SEARCH = {"search_index", "search_titles", "search_terms"}
NO_FILTERS = {
    "below_branch": None, "below_position": None, "low_branch": 0, "low_position": 0, "ranges": None, "deleted": False,
    "delegates": False, "plain": True, "pool": 5000, "most": 2000, "below": None, "low": 0, "limit": 48,
}  # fmt: skip


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


def said(store, *texts, id="a", **fields):
    session = store.session(id, **fields)
    session.append([user(text) for text in texts])
    return session


def found(store, text, **filters):
    """Name everything that is found, a few at a time."""
    page = store.search(text, 7, **filters)
    hits = list(page)
    while page.next is not None:
        page = store.search(text, 7, after=page.next, **filters)
        hits += page
    return {(hit.session, hit.message, hit.text, hit.marks) for hit in hits}


# Texts that PostgreSQL's own parser would cut in its own way, and what people write.
PIECES = st.sampled_from([
    "red", "Infrared", "Café", "Straße", "北京", "京", "👍🏽", "a@b.example", "http://x.y/z?q=1", "foo-bar", "foo_bar", "1.5e3",
    "-42", "12abc", "abc12", "0x1f", "/usr/lib", "it's", "a\\b", "'", '"', ":*", "&|!()<->", "=a", "=r75736572", "x\0y",
    "x\x10y", "<b>red</b>", "привет", "ประเทศ", "½", "a", "bar", "foo", "e3", "1", "\u200b", "\u00ad", "ﬁn", "०१", "i\u0307",
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=6).map(" ".join)
TYPED = st.lists(
    PIECES | st.text(max_size=4) | st.sampled_from(["OR", "NOT", "-", "(", ")", '"', "*", "role:user", "tool:Read"]),
    min_size=1,
    max_size=5,
).map(" ".join)
CALM = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def storable(text):
    return text.encode("utf-8", "replace").decode()


@CALM
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), title=TEXTS, typed=st.lists(TYPED, min_size=1, max_size=4))
def test_the_same_is_found_as_on_sqlite(there, texts, title, typed):
    texts = [storable(text) for text in texts]
    wanted = [*typed, texts[0], f'"{texts[-1]}"', texts[0][1:-1]]
    results = []
    with recollect.open(":memory:") as here:
        for store in (here, there):
            session = said(store, *texts, title=storable(title).replace("\0", ""))
            session.append([asks("t", tool="Read"), answers("t", text=texts[-1])])
            results.append({text: found(store, text) for text in wanted})
            store.erase_session("a")
    assert results[1] == results[0]


@pytest.fixture
def there(postgres):
    with recollect.open(postgres, owner="ann") as store:
        yield store


@given(word=st.text(min_size=1, max_size=30))
def test_a_word_can_not_leave_its_quotes(word):
    for token in tokens(fold(word)):
        assert not set(token) & set("'\\ \t\n&|!()<>:*=")


def test_what_is_typed_without_end_is_no_error(postgres):
    with recollect.open(postgres) as store:
        said(store, "x" * 5000 + " y", "word")
        rows = " ".join(f'"{" ".join(f"{n}x{m}" + "z" * 300 for m in range(64))}"' for n in range(48))
        assert found(store, rows) == set()
        assert len(found(store, "x" * 5000)) == 1
        assert found(store, "x" * 4999) == set()
        assert len(found(store, "x" * 150 + "*")) == 1


def test_a_long_text_is_cut_and_no_error(postgres):
    """A tsvector has room for a megabyte: 80,000 different words do not fit."""
    with recollect.open(postgres, timeout=600) as store:  # each of its words is looked for when it is erased
        text = " ".join(f"word{n:06}" for n in range(80_000))
        said(store, "begin " + text + " end")
        said(store, "begin", id="b")
        assert {hit.session for hit in store.search("begin")} == {"a", "b"}
        assert len(store.search("word000100 word000200")) == 1
        assert len(store.search('"word000100 word000101"')) == 1
        assert len(store.search("word079999", role="user")) == 0
        assert store.reindex() == 2
        store.erase_session("a")
        assert [hit.session for hit in store.search("begin")] == ["b"]


def test_words_in_a_row_in_a_text_of_one_word(postgres):
    """Of a word, 255 places are kept; beyond them, two in a row are known as a pair."""
    with recollect.open(postgres) as store:
        said(store, "the sea " * 400 + "the harbour " + "the sea " * 9_000 + "the lighthouse is new", id="a")
        for text, count in (
            ('"the harbour"', 1), ('"sea the harbour the sea"', 1), ('"the lighthouse is"', 1), ('"the light"*', 1),
            ('"sea harbour"', 0), ('"lighthouse the"', 0), ('"harbour is"', 0),
        ):  # fmt: skip
            assert len(store.search(text)) == count, text


def test_owners_see_nothing_of_each_other(postgres, databases, database, admin):
    with recollect.open(postgres, owner="ann") as ann, recollect.open(postgres, owner="bob") as bob:
        said(ann, "secret of ann", title="plan of ann")
        said(bob, "secret of bob", title="plan of bob")
        assert len(ann.search("secret")) == len(ann.search("plan")) == len(ann.search("ecre")) == 1
        assert found(ann, "bob") == found(bob, "ann") == set()
    with psycopg.connect(postgres) as connection:
        for owner, count in (("ann", 1), ("bob", 0), ("", 0)):
            connection.execute("SELECT set_config('recollect.owner', %s, true)", (owner,))
            for setting in ("recollect.sought", "recollect.piece"):
                connection.execute("SELECT set_config(%s, '', true)", (setting,))
            terms = {row[0] for row in connection.execute("SELECT term FROM recollect.search_terms")}
            assert terms == ({"secret", "plan"} if owner else set())
            connection.execute("SELECT set_config('recollect.sought', '''ann'' | !''zzz''', true)")
            for table in ("search_index", "search_titles"):
                mine = connection.execute(
                    f"SELECT owner, words @@ '''ann'''::tsquery FROM recollect.{table}"
                ).fetchall()
                assert mine == ([(owner, bool(count))] if owner else [])
            changed = connection.execute("UPDATE recollect.search_index SET length = 1 WHERE owner <> %s", (owner,))
            assert changed.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO recollect.search_terms (owner, term) VALUES ('ann', 'x')")
    assert admin.execute("SELECT count(*) FROM recollect.search_index").fetchone() == (2,)


def test_a_role_that_passes_policies_by_finds_only_what_it_looks_for(postgres, databases, database):
    with recollect.open(postgres, owner="ann") as ann:
        said(ann, "a heron of ann", title="heron")
        assert ann.index() == 1
    with recollect.open(databases.url_of(database, "postgres")) as store:
        said(store, "a heron", "a stork", title="stork")
        assert [hit.text for hit in store.search("heron")] == ["a heron"]
        assert {hit.text for hit in store.search("stork")} == {"a stork", "stork"}
        assert [hit.text for hit in store.search("ero")] == ["a heron"]
        assert store.reindex() == 2
        store.erase_session("a")
        assert found(store, "heron") == found(store, "tor") == set()
    with recollect.open(postgres, owner="ann") as ann:
        assert ann.index() == 0
        assert {hit.text for hit in ann.search("eron")} == {"a heron of ann", "heron"}


def test_erasing_leaves_no_word(postgres, admin):
    with recollect.open(postgres, owner="ann") as store:
        said(store, "hunter2secret and common words", title="topsecret title")
        said(store, "common words", id="b", title="title")
        store.index()
        store.erase_session("a")
        terms = {row[0] for row in admin.execute("SELECT term FROM recollect.search_terms")}
        assert terms == {"common", "words", "title"}
        assert admin.execute("SELECT count(*) FROM recollect.search_index").fetchone() == (1,)
        assert admin.execute("SELECT count(*) FROM recollect.search_titles").fetchone() == (1,)


@pytest.mark.parametrize("user_", ["plain", "postgres"])
def test_the_indexes_are_used(postgres, databases, database, admin, user_):
    """Also under the policy of an owner; a condition beside a policy could not use them."""
    owner = "ann" if user_ == "plain" else ""
    with recollect.open(databases.url_of(database, user_), owner=owner) as store:
        said(store, "heron", title="heron")
        store.index()
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
    sought = tsquery.Sought({}).of(query.parse("w77", 0).words)
    params = {
        **NO_FILTERS,
        "sought": sought,
        "phrases": f'[["{sought}", 1]]',
        "owner": owner,
        "piece": "abcdef0",
        "ending": False,
    }
    with psycopg.connect(databases.url_of(database, user_)) as connection:
        connection.execute("SELECT set_config('recollect.owner', %s, true)", (owner,))
        for name, index in (
            ("search_messages", "search_index_words"),
            ("search_titles_match", "search_titles_words"),
            ("search_terms_with", "search_terms_pieces"),
        ):
            plan = explained(connection, name, params)
            assert f"Bitmap Index Scan on {index}" in plan, (name, plan)
            done = [line for line in plan.splitlines() if "never executed" not in line]
            assert not any("Seq Scan on search" in line for line in done), (name, plan)


def explained(connection, name, params):
    """Say what the server did for a query, as the engine runs it."""
    book = Book()
    before, statement = book.before(name), book.statement(name)
    for each, explain in ((before, ""), (statement, "EXPLAIN (ANALYZE, COSTS off) ")):
        connection.execute(b"PREPARE looked AS " + each.text)
        values = ", ".join(
            psycopg.sql.Literal(str(params[name])).as_string(connection) if params.get(name) is not None else "NULL"
            for name in each.names
        )
        rows = connection.execute(f"{explain}EXECUTE looked({values})").fetchall()
        connection.execute("DEALLOCATE looked")
    return "\n".join(row[0] for row in rows)


@pytest.fixture
def bare(databases):
    """Give a database in which someone else has made the schema for the role, which may make no extension."""
    name = databases.make()
    with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" OWNER TO postgres')
        admin.execute("CREATE SCHEMA recollect AUTHORIZATION plain")
        yield databases.url_of(name, "plain"), admin
    databases.drop(name)


def test_without_the_right_to_make_an_extension(bare):
    url, admin = bare
    with recollect.open(url, owner="ann") as store:
        assert admin.execute("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'").fetchone() == (0,)
        assert admin.execute("SELECT to_regclass('recollect.search_terms_pieces')").fetchone() == (None,)
        said(store, "getUserName(connect_timeout)")
        assert len(store.search("serNam")) == len(store.search("onnect_tim")) == 1


def test_pieces_of_words_have_an_index_where_the_extension_is(postgres, admin):
    with recollect.open(postgres):
        assert admin.execute("SELECT to_regclass('recollect.search_terms_pieces') IS NOT NULL").fetchone() == (True,)


def test_nothing_that_is_looked_for_stays_on_a_connection(postgres):
    """A pool of one connection: what a search sets must be gone with its transaction."""
    with recollect.open(f"{postgres}?pool_size=1", owner="ann") as store:
        said(store, "heron", "stork")
        assert len(store.search("heron")) == len(store.search("ero")) == 1
        assert len(store.search("stork")) == 1
        store.session("a").append(user("crane"))
        assert store.index() == 1
        assert store.reindex() == 3


@pytest.mark.parametrize("owner", ["", "ann"])
def test_a_word_that_most_have_is_found_alike_either_way(postgres, databases, database, monkeypatch, owner):
    """Walked from the newest back, or found by the index: the same hits, page by page."""
    monkeypatch.setattr(find, "POOL", 40)
    monkeypatch.setattr(find, "_MOST_COUNTED", 40)
    monkeypatch.setattr(find, "_SAMPLE", 20)
    with recollect.open(postgres, owner="bob") as other:
        said(other, *["heron"] * 50)
    with recollect.open(postgres, owner=owner) as store:
        for number in range(8):
            texts = [f"heron {'and more ' * (n % 5)} {n}" for n in range(30)]
            session = said(store, *texts, id=f"s{number}")
            session.append([user("stork")] * 5)
        store.get_session("s3").fork(id="fork").append([user("heron in a fork")] * 3)
        for gone in ("s2", "s3", "s7"):
            store.delete_session(gone)
        names = watched(monkeypatch)
        for typed in (
            "heron", "role:user", "heron OR stork", "heron -stork", "after:2020 heron", "-channel:x ero",
            'heron -"more heron"', '"heron and more" OR heron OR "more and"',
        ):  # fmt: skip
            found = {}
            for walked in (0, 1e9):
                monkeypatch.setattr(cost, "_NAMED", walked)
                monkeypatch.setattr(cost, "_FETCHED", walked)
                found[walked] = paged(store, typed)
                assert ("search_newest" in names) == bool(walked)
            for newest in (1, 60, 150, 10_000):  # too few of the newest, enough, and more than there are
                with monkeypatch.context() as patch:
                    patch.setattr(cost, "newest", lambda *_, newest=newest, **__: newest)
                    assert paged(store, typed) == found[0]
                assert "search_since" in names
            names.clear()
            assert found[0] == found[1e9]
            assert len(found[0]) >= 150


@pytest.mark.parametrize(
    ("typed", "loose"),
    [
        ('"a b c"', "('a' & 'b' & 'c')"),
        ('"a b"*', "('a' & 'b':*)"),
        ('x -"a b" -y', "('x' & !'y')"),
        ('"a b" OR (c NOT (d OR "e f"))', "(('a' & 'b') | 'c')"),
        ("-role:tool a", "('a' & !'=r746f6f6c')"),
    ],
)
def test_what_an_index_of_words_can_tell(typed, loose):
    """What is excluded narrows only where it needs no places."""
    asked = query.parse(typed, 0)
    assert tsquery.within(tsquery.Sought({}, loose=True), asked.words, asked.filters) == loose


def test_what_is_walked_and_what_the_index_finds():
    walked = functools.partial(cost.walked, pool=2_000)
    million = (1e6, 1e6, 150_000)
    assert walked(100, 100, 300, *million)  # a usual word
    assert not walked(3, 3, 300, *million)
    assert walked(1, 190, 300, *million)  # words in a row that most messages have somewhere
    assert walked(0, 190, 300, *million)
    assert not walked(0, 100, 300, *million)
    assert walked(10, 100, 300, *million)
    assert walked(8, 8, 300, *million)  # few enough to be each on a page of its own
    assert not walked(5, 5, 300, *million)
    assert not walked(8, 8, 300, 1e6, 1e6, 1_000)  # unless there are few pages
    assert not walked(100, 100, 300, 1e4, 1e6, 150_000)  # an owner with few among others with many
    assert not walked(100, 100, 200, 0, 1e6, 150_000)


def test_where_the_newest_are_enough():
    newest = functools.partial(cost.newest, pool=2_000)
    million = (1e6, 1e6, 150_000)
    assert newest(10, 10, 300, *million) == 120_000  # twice what should do
    assert newest(200, 200, 300, *million) is None  # walking is quicker
    assert newest(4, 4, 300, *million) is None  # so few may be chance
    assert newest(0, 0, 300, *million) is None
    assert newest(10, 10, 300, 5e4, 1e6, 150_000) is None  # they would be all of them
    assert newest(10, 10, 300, 0, 1e6, 150_000) is None


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ("here", False), ("gone", True), ("here gone", True), ("here OR gone", False), ("gone OR lost", True),
        ("here -gone", False), ('"here gone"', True), ("gone*", False), ('"gone here"*', True), ('"here gone"*', False),
        ("-gone", False), ("(here gone) OR here", False), ("role:user", False),
    ],
)  # fmt: skip
def test_what_a_word_that_is_nowhere_leaves(typed, missing):
    words = query.parse(typed, 0).words
    assert (cost.at_most(words, {"gone": 0, "lost": 0, "here": 9}) == 0) == missing
    assert cost.at_most(words, {}) == math.inf


@pytest.mark.parametrize(
    ("typed", "most"),
    [
        ("few", 3), ("few some", 3), ("few OR some", 23), ("some -few", 20), ('"some few"', 3), ("few*", math.inf),
        ('"few some"*', 3), ("few OR other", math.inf), ("few other", 3), ("(few some) OR (few other)", 6), ("-few", math.inf),
    ],
)  # fmt: skip
def test_how_many_can_have_what_is_looked_for(typed, most):
    assert cost.at_most(query.parse(typed, 0).words, {"few": 3, "some": 20}) == most


@pytest.mark.parametrize(
    ("short", "few", "asked"), [(0, 0, "search_messages"), (0, 1_000, "search_few"), (10_000, 0, "search_newest")]
)
def test_one_session_among_others_is_found_alike_either_way(postgres, monkeypatch, short, few, asked):
    """Its branches lie between those of a fork, and those before and after it are of other sessions."""
    monkeypatch.setattr(find, "POOL", 5)
    monkeypatch.setattr(find, "_SHORT", short)
    monkeypatch.setattr(find, "_FEW", few)
    with recollect.open(postgres) as store:
        said(store, *["before fox"] * 12, id="0")
        session = said(store, *[f"fox {number}" for number in range(12)], id="a")
        fork = session.fork(at=6, id="f")
        fork.append([user(f"forked fox {number}") for number in range(8)])
        session.rewind(9)
        session.append([user(f"another fox {number}") for number in range(9)])
        said(store, *["after fox"] * 12, id="z")
        first, forked = [f"fox {number}" for number in range(12)], [f"forked fox {number}" for number in range(8)]
        expected = {"a": {*first, *(f"another fox {number}" for number in range(9))}, "f": {*first[:6], *forked}}
        for id, texts in expected.items():
            names = watched(monkeypatch)
            hits = found(store, "fox", session=id)
            assert {text for _, _, text, _ in hits} == texts
            assert len(hits) == len(texts)
            assert names & {"search_messages", "search_few", "search_newest"} == {asked}
        assert found(store, "before", session="a") == found(store, "after", session="f") == set()
        assert found(store, "fox", session=store.create_session("empty").id) == set()


FEW = (
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
def test_few_hits_are_the_same_whichever_way_they_are_looked_for(postgres, monkeypatch, owner):
    with recollect.open(postgres, owner=owner) as store:
        for number, text in enumerate(
            ["the fox", "a hen", "the fox and the hen", "cow", "fox fox", "hen, the cow"] * 4
        ):
            session = said(store, text, f"{text} {number}", id=f"{'web' if number % 3 else 'cli'}:{number}")
            session.update(model="large" if number % 5 else "small")
        store.delete_session("web:2")
        store.session("web:4").fork(id="web:forked").append([user("the fox of a fork")])
        for typed in FEW:
            monkeypatch.setattr(find, "_FEW", 0)
            usual = [(hit.session, hit.message, hit.score) for hit in store.search(typed, 100)]
            monkeypatch.setattr(find, "_FEW", 1_000)
            names = watched(monkeypatch)
            assert [(hit.session, hit.message, hit.score) for hit in store.search(typed, 100)] == usual
            assert "search_few" in names
            assert usual
            assert sorted((session, message) for session, message, _ in usual) == sorted(paged(store, typed))


@pytest.mark.parametrize(
    ("name", "index", "values"),
    [
        ("search_hits_tools", "branches_pkey", {"hits": "[[1048577, 3], [2097153, 1]]", "near": 1000}),
        ("search_settle", "sessions_pkey", {"keys": "[1048577, 2097153]"}),
        ("search_unsettled", "sessions_waiting", {"owner": "", "after": 0, "limit": 5}),
        ("search_waiting", "sessions_waiting", {"owner": "", "many": 50}),
    ],
)
def test_what_is_named_is_looked_up_behind_a_policy_too(postgres, admin, name, index, values):
    """A place that is reckoned from what is given must be a column before it is compared, or all rows are read."""
    recollect.open(postgres).close()
    many = "FROM generate_series(1, 2000) AS n"
    admin.execute(
        "INSERT INTO recollect.sessions (tree, number, id, created_at, updated_at, active_at, owner, waiting) "
        f"SELECT n, 1, 's' || n, n, n, n, '', n < 9 {many}"
    )
    admin.execute(
        f"INSERT INTO recollect.branches (tree, number, session, created_at, owner) SELECT n, 1, 1, n, '' {many}"
    )
    admin.execute("ANALYZE recollect.sessions, recollect.branches")
    statement = Book().statement(name)
    with psycopg.connect(postgres) as connection:
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            connection.execute(f"SET {setting} = off")
        connection.execute(b"PREPARE looked AS " + statement.text)
        given = sql.SQL(", ").join([sql.Literal(values[each]) for each in statement.names])
        asked = sql.SQL("EXPLAIN (COSTS OFF) EXECUTE looked (") + given + sql.SQL(")")
        lines = [line.strip() for (line,) in connection.execute(asked)]
    used = next(number for number, line in enumerate(lines) if index in line)
    assert lines[used + 1].startswith("Index Cond: ("), lines


def watched(monkeypatch):
    names = set()
    statement = Book.statement
    monkeypatch.setattr(Book, "statement", lambda book, name: names.add(name) or statement(book, name))
    return names


def paged(store, typed):
    page = store.search(typed, 17)
    hits = [(hit.session, hit.message) for hit in page]
    while page.next is not None:
        page = store.search(typed, 17, after=page.next)
        hits += [(hit.session, hit.message) for hit in page]
    assert len(hits) == len(set(hits))
    return sorted(hits)
