"""What a search looks at before it answers: the sessions in which something was said since, and no others."""

from __future__ import annotations

import concurrent.futures
import random
import re

import psycopg
import pytest

import recollect
from recollect import export, sql
from recollect.ops.search import index
from recollect.testing.talk import user

BEHIND = """
SELECT s.id, s.waiting FROM recollect.sessions AS s WHERE EXISTS (
    SELECT FROM recollect.branches AS b WHERE b.tree = s.tree AND b.session = s.number
        AND CASE WHEN s.branch = b.number THEN s.last ELSE b.last END > b.indexed_to
)
"""


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def store(postgres, monkeypatch):
    monkeypatch.setattr(index, "_MANY", 1)
    with recollect.open(postgres) as store:
        yield store


def overlooked(admin):
    return [id for id, waiting in admin.execute(BEHIND) if not waiting]


def waiting(admin):
    return {id for (id,) in admin.execute("SELECT id FROM recollect.sessions WHERE waiting")}


@pytest.mark.parametrize("part", ["queries", "brief", "ends"])
def test_every_statement_that_makes_a_session_longer_has_it_looked_at(part):
    texts = {"queries": sql.queries, "brief": sql.briefs, "ends": sql.ends}[part]("postgres")
    for name, text in texts.items():
        for found in re.findall(r"UPDATE recollect\.sessions[^;]*?(?=WHERE|FROM|$)", text):
            if re.search(r"\blast = ", found):
                assert "waiting = true" in found, name


class Doing:
    """The things that people and programs do to sessions, each with words of its own in them."""

    def __init__(self, store, seed):
        self.store = store
        self.chance = random.Random(seed)
        self.count = iter(range(10_000))

    def word(self):
        return f"word{next(self.count)}"

    def some(self):
        return self.chance.choice([session.id for session in self.store.list_sessions(50, delegates=True)])

    def session(self):
        return self.store.session(self.some())

    def several(self):
        return len(self.store.list_sessions(50)) > 3

    def append(self):
        self.session().append([user(self.word()), user(self.word())])

    def save(self):
        self.session().save_turn([user(self.word()), {"role": "assistant", "content": self.word()}])

    def turn(self):
        here = self.session()
        with here.turn(user(self.word())) as turn:
            if self.chance.random() < 0.3 and here.message_count > 2:
                here.rewind(1)  # what is said goes to a branch that the session has left
            turn.add({"role": "assistant", "content": self.word()})

    def rewind(self):
        here = self.session()
        if here.message_count > 2:
            here.rewind(self.chance.randrange(1, here.message_count))

    def switch(self):
        here = self.session()
        here.switch(self.chance.choice(here.branches()))

    def fork(self):
        here = self.session()
        if here.message_count:
            here.fork(id=self.word()).append([user(self.word())])

    def delegate(self):
        parent = self.some()
        self.store.session(f"{parent}:delegate:{self.word()}", parent=parent).append([user(self.word())])

    def trash(self):
        if self.several():
            id = self.some()
            self.store.delete_session(id)
            if self.chance.random() < 0.5:
                self.store.restore_session(id)

    def erase(self):
        if self.several():
            self.store.erase_session(self.some(), forks="keep")

    def forget(self):
        here = self.session()
        messages = here.messages()
        if messages:
            chosen = self.chance.choice(messages).id
            here.delete_message(chosen)
            if self.chance.random() < 0.7:
                here.restore_message(chosen)

    def again(self):
        self.store.reindex()

    def new(self):
        self.store.session(self.word()).append([user(self.word())])

    def something(self):
        often = (self.append, self.turn, self.new)
        seldom = (self.save, self.rewind, self.switch, self.fork, self.delegate, self.trash, self.erase, self.forget)
        step = self.chance.choice((*often, *often, *seldom, self.again))
        step()
        return step.__name__


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_overlooked_whatever_is_done(store, admin, seed):
    for id in ("a", "b"):
        store.session(id).append([user(f"first {id}")])
    doing = Doing(store, seed)
    for _ in range(60):
        done = doing.something()
        assert overlooked(admin) == [], done
        if doing.chance.random() < 0.6:
            store.index()
            assert admin.execute(BEHIND).fetchall() == [], done
            assert waiting(admin) == set(), done
    assert [finding for finding in store.check(deep=False).problems if finding.kind == "search"] == []


@pytest.mark.parametrize("how", ["copied", "imported", "imported twice"])
def test_what_is_brought_from_elsewhere_is_found(store, admin, tmp_path, postgres, how):
    with recollect.open(tmp_path / "other.db") as other:
        session = other.session("a")
        session.append([user("apples"), user("pears")])
        if how == "imported twice":
            export.write(other, None, None, tmp_path / "half.jsonl")
        session.fork(at=1, id="b").append([user("plums")])
        session.rewind(1)
        session.append([user("cherries")])
        session.switch(1).append([user("grapes")])
        session.switch(session.branches()[-1])
        export.write(other, None, None, tmp_path / "whole.jsonl")
    if how == "copied":
        recollect.copy(tmp_path / "other.db", postgres)
    elif how == "imported":
        export.read(store, tmp_path / "whole.jsonl")
    else:
        export.read(store, tmp_path / "half.jsonl")
        assert len(store.search("pears")) == 1
        assert waiting(admin) == set()
        export.read(store, tmp_path / "whole.jsonl")
    assert overlooked(admin) == []
    for word in ("apples", "pears", "plums", "cherries", "grapes"):
        assert len(store.search(word)) == 1, word
    assert waiting(admin) == set()


def test_searches_settle_only_now_and_then(postgres, admin, monkeypatch):
    monkeypatch.setattr(index, "_MANY", 5)
    with recollect.open(postgres) as store:
        for number in range(4):
            store.session(f"s{number}").append([user(f"word{number}")])
            assert len(store.search(f"word{number}")) == 1
        assert waiting(admin) == {"s0", "s1", "s2", "s3"}
        store.session("s4").append([user("word4")])
        assert len(store.search("word4")) == 1
        assert waiting(admin) == set()
        store.session("s1").append([user("once more")])
        assert waiting(admin) == {"s1"}
        assert len(store.search("once")) == 1


def test_more_sessions_than_are_settled_at_once(store, admin, monkeypatch):
    monkeypatch.setattr(index, "_SETTLED", 3)
    for number in range(10):
        store.session(f"s{number}").append([user(f"word{number}")])
    store.index()
    assert waiting(admin) == set()


def test_a_session_that_another_writes_to_is_left_for_later(store, admin, databases, database):
    for id in ("a", "b"):
        store.session(id)
    store.index()
    for id in ("a", "b"):
        store.session(id).append([user(f"said in {id}")])
    with psycopg.connect(databases.url_of(database, "postgres")) as other:
        other.execute("SELECT FROM recollect.sessions WHERE id = 'a' FOR UPDATE")
        assert len(store.search("said")) == 2  # and does not wait
        assert waiting(admin) == {"a"}
    store.index()
    assert waiting(admin) == set()


def test_a_mark_that_was_lost_is_found_and_put_right(store, admin):
    store.session("a").append([user("said")])
    admin.execute("UPDATE recollect.sessions SET waiting = false")
    assert len(store.search("said")) == 0
    (problem,) = store.check(deep=False).problems
    assert (problem.kind, problem.session) == ("search", "a")
    store.check(repair=True)
    assert len(store.search("said")) == 1
    assert store.check().problems == ()


def test_what_is_said_while_others_search_is_found(postgres, admin, monkeypatch):
    """Settling, appending, and turns that end on a branch that was left, at once: each word is found by its own search."""
    monkeypatch.setattr(index, "_MANY", 1)
    with recollect.open(postgres, timeout=60) as store:
        for number in range(4):
            store.session(f"s{number}").append([user("begun"), user("gone on")])

        def write(number):
            session = store.session(f"s{number % 4}")
            for time in range(12):
                word = f"word{number}x{time}"
                if number < 4 and time % 3 == 0:
                    with session.turn(user("asked")) as turn:
                        session.rewind(1)
                        turn.add({"role": "assistant", "content": word})
                else:
                    session.append([user(word)])
                assert len(store.search(word)) == 1, word

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        store.index()
    assert overlooked(admin) == []
    assert admin.execute(BEHIND).fetchall() == []
