"""The sessions that a search indexes before it answers: those with messages that are not indexed, and no others."""

from __future__ import annotations

import concurrent.futures
import random
import re

import psycopg
import pytest

import recollect
from recollect import export, sql
from recollect.engine.postgres import search
from recollect_conformance.examples import user

UNINDEXED_SESSIONS = """
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
    monkeypatch.setattr(search, "_SETTLE_THRESHOLD", 1)
    with recollect.open(postgres) as store:
        yield store


def find_unflagged(admin):
    """Return the sessions with unindexed messages that are not flagged as waiting."""
    return [id for id, waiting in admin.execute(UNINDEXED_SESSIONS) if not waiting]


def find_waiting(admin):
    return {id for (id,) in admin.execute("SELECT id FROM recollect.sessions WHERE waiting")}


def test_every_statement_that_adds_messages_flags_the_session():
    names = set()
    for name, text in sql.queries("postgres").items():
        for update in re.findall(r"UPDATE recollect\.sessions[^;]*?(?=WHERE|FROM|$)", text):
            if re.search(r"\blast = ", update):
                assert "waiting = true" in update, name
                names.add(name)
    appends = {f"session_{verb}{suffix}" for verb in ("append", "save") for suffix in ("", "_with_calls")}
    assert {*appends, "session_advance", "session_touch"} <= names


class RandomActions:
    """Changes to sessions in random order. Each adds words that no other message has."""

    def __init__(self, store, seed):
        self.store = store
        self.rng = random.Random(seed)
        self.count = iter(range(10_000))

    def word(self):
        return f"word{next(self.count)}"

    def session_id(self):
        return self.rng.choice([session.id for session in self.store.list_sessions(50, delegates=True)])

    def session(self):
        return self.store.session(self.session_id())

    def has_several(self):
        return len(self.store.list_sessions(50)) > 3

    def append(self):
        self.session().append([user(self.word()), user(self.word())])

    def save(self):
        self.session().save_turn([user(self.word()), {"role": "assistant", "content": self.word()}])

    def turn(self):
        session = self.session()
        with session.turn(user(self.word())) as turn:
            if self.rng.random() < 0.3 and session.message_count > 2:
                session.rewind(1)  # the answer goes to a branch that is no longer active
            turn.add({"role": "assistant", "content": self.word()})

    def rewind(self):
        session = self.session()
        if session.message_count > 2:
            session.rewind(self.rng.randrange(1, session.message_count))

    def switch(self):
        session = self.session()
        session.branches.switch(self.rng.choice(session.branches.list()))

    def fork(self):
        session = self.session()
        if session.message_count:
            session.fork(id=self.word()).append([user(self.word())])

    def delegate(self):
        parent = self.session_id()
        self.store.session(f"{parent}:delegate:{self.word()}", parent=parent).append([user(self.word())])

    def delete_and_restore(self):
        if self.has_several():
            id = self.session_id()
            self.store.delete_session(id)
            if self.rng.random() < 0.5:
                self.store.restore_session(id)

    def erase(self):
        if self.has_several():
            self.store.erase_session(self.session_id(), forks="keep")

    def delete_and_restore_message(self):
        session = self.session()
        messages = session.messages()
        if messages:
            message_id = self.rng.choice(messages).id
            session.delete_messages([message_id])
            if self.rng.random() < 0.7:
                session.restore_messages([message_id])

    def reindex(self):
        self.store.maintenance.reindex()

    def new(self):
        self.store.session(self.word()).append([user(self.word())])

    def run_one(self):
        """Run a random action and return its name."""
        frequent = (self.append, self.turn, self.new)
        rare = (
            self.save,
            self.rewind,
            self.switch,
            self.fork,
            self.delegate,
            self.delete_and_restore,
            self.erase,
            self.delete_and_restore_message,
        )
        action = self.rng.choice((*frequent, *frequent, *rare, self.reindex))
        action()
        return action.__name__


@pytest.mark.parametrize("seed", range(4))
def test_every_session_with_unindexed_messages_is_flagged(store, admin, seed):
    for id in ("a", "b"):
        store.session(id).append([user(f"first {id}")])
    actions = RandomActions(store, seed)
    for _ in range(60):
        action = actions.run_one()
        assert find_unflagged(admin) == [], action
        if actions.rng.random() < 0.6:
            store.maintenance.index()
            assert admin.execute(UNINDEXED_SESSIONS).fetchall() == [], action
            assert find_waiting(admin) == set(), action
    assert [finding for finding in store.maintenance.check(deep=False).problems if finding.kind == "search"] == []


@pytest.mark.parametrize("source", ["copied", "imported", "imported twice"])
def test_copied_and_imported_messages_are_found(store, admin, tmp_path, postgres, source):
    with recollect.open(tmp_path / "other.db") as other:
        session = other.session("a")
        session.append([user("apples"), user("pears")])
        if source == "imported twice":
            export.write(other, None, None, tmp_path / "half.jsonl")
        session.fork(at=1, id="b").append([user("plums")])
        session.rewind(1)
        session.append([user("cherries")])
        session.branches.switch(1).append([user("grapes")])
        session.branches.switch(session.branches.list()[-1])
        export.write(other, None, None, tmp_path / "whole.jsonl")
    if source == "copied":
        recollect.copy(tmp_path / "other.db", postgres)
    elif source == "imported":
        export.read(store, tmp_path / "whole.jsonl")
    else:
        export.read(store, tmp_path / "half.jsonl")
        assert len(store.search("pears")) == 1
        assert find_waiting(admin) == set()
        export.read(store, tmp_path / "whole.jsonl")
    assert find_unflagged(admin) == []
    for word in ("apples", "pears", "plums", "cherries", "grapes"):
        assert len(store.search(word)) == 1, word
    assert find_waiting(admin) == set()


def test_a_search_clears_the_flags_only_if_many_sessions_wait(postgres, admin, monkeypatch):
    monkeypatch.setattr(search, "_SETTLE_THRESHOLD", 5)
    with recollect.open(postgres) as store:
        for number in range(4):
            store.session(f"s{number}").append([user(f"word{number}")])
            assert len(store.search(f"word{number}")) == 1
        assert find_waiting(admin) == {"s0", "s1", "s2", "s3"}
        store.session("s4").append([user("word4")])
        assert len(store.search("word4")) == 1
        assert find_waiting(admin) == set()
        store.session("s1").append([user("once more")])
        assert find_waiting(admin) == {"s1"}
        assert len(store.search("once")) == 1


def test_flags_of_more_sessions_than_a_batch_are_cleared(store, admin, monkeypatch):
    monkeypatch.setattr(search, "_SETTLE_BATCH", 3)
    for number in range(10):
        store.session(f"s{number}").append([user(f"word{number}")])
    store.maintenance.index()
    assert find_waiting(admin) == set()


def test_the_flag_of_a_locked_session_is_cleared_later(store, admin, databases, database):
    for id in ("a", "b"):
        store.session(id)
    store.maintenance.index()
    for id in ("a", "b"):
        store.session(id).append([user(f"word in {id}")])
    with psycopg.connect(databases.url_of(database, "postgres")) as other:
        other.execute("SELECT FROM recollect.sessions WHERE id = 'a' FOR UPDATE")
        assert len(store.search("word")) == 2  # without waiting for the lock
        assert find_waiting(admin) == {"a"}
    store.maintenance.index()
    assert find_waiting(admin) == set()


def test_check_repairs_a_missing_flag(store, admin):
    store.session("a").append([user("word")])
    admin.execute("UPDATE recollect.sessions SET waiting = false")
    assert len(store.search("word")) == 0
    (problem,) = store.maintenance.check(deep=False).problems
    assert (problem.kind, problem.session) == ("search", "a")
    store.maintenance.check(repair=True)
    assert len(store.search("word")) == 1
    assert store.maintenance.check().problems == ()


def test_messages_are_found_while_others_append_and_search(postgres, admin, monkeypatch):
    """Clear flags, append, and end turns on inactive branches concurrently: each search finds the word just written."""
    monkeypatch.setattr(search, "_SETTLE_THRESHOLD", 1)
    with recollect.open(postgres, timeout=60) as store:
        for number in range(4):
            store.session(f"s{number}").append([user("first"), user("second")])

        def write(number):
            session = store.session(f"s{number % 4}")
            for step in range(12):
                word = f"word{number}x{step}"
                if number < 4 and step % 3 == 0:
                    with session.turn(user("asked")) as turn:
                        session.rewind(1)
                        turn.add({"role": "assistant", "content": word})
                else:
                    session.append([user(word)])
                assert len(store.search(word)) == 1, word

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        store.maintenance.index()
    assert find_unflagged(admin) == []
    assert admin.execute(UNINDEXED_SESSIONS).fetchall() == []
