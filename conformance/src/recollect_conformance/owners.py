"""Owners: each has its own sessions, records and last session."""

from __future__ import annotations

import pytest

from recollect.errors import SessionNotFound
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import texts, user


class TestLastSession:
    """The last session."""

    def test_the_last_session(self, store: Store, database: DatabaseUnderTest):
        assert store.last_session() is None
        store.session("a")
        store.session("b")
        assert store.last_session() == store.get_session("b")
        store.set_last_session("a")
        store.session("b")
        store = database.reopen()
        assert store.last_session() == store.get_session("a")
        store.delete_session("a")
        assert store.last_session() == store.get_session("b")
        store.restore_session("a")
        assert store.last_session() == store.get_session("a")
        with pytest.raises(SessionNotFound):
            store.set_last_session("nobody")


class TestOwners:
    """Each owner has its own sessions, records and ids."""

    def test_owners_do_not_see_one_another(self, store: Store, database: DatabaseUnderTest):
        ann, bob = database.open("ann"), database.open("bob")
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            assert other.get_session("a") is None
            other.create_session("a").append(user(name), key="k")
            other.records.put("k", "x", name)
        ann.set_last_session("a")
        bob.delete_session("a")
        assert [len(list_all_sessions(other)) for other in (store, ann, bob)] == [1, 1, 0]
        assert [other.shown_counts(["a"]) for other in (store, ann, bob)] == [[1], [1], [0]]
        assert [[record.value for record in other.records.list("k")] for other in (store, ann, bob)] == [
            ["nobody"],
            ["ann"],
            ["bob"],
        ]
        assert ann.erase_session("a") == ["a"]
        assert texts(store.session("a")) == ["nobody"]
        assert texts(bob.restore_session("a")) == ["bob"]
        assert bob.last_session() == bob.get_session("a")

    def test_owners_are_listed(self, store: Store, database: DatabaseUnderTest):
        assert store.owners().names == ()
        ann, bob, dora = database.open("ann"), database.open("bob"), database.open("dora")
        ann.create_session("a")
        bob.create_session("a")
        bob.delete_session("a")
        dora.records.put("k", "x", 1)
        for other in (store, ann):
            assert (other.owners().names, other.owners().everyone) == (("ann", "bob", "dora"), True)
        store.create_session("a")
        assert (store.check(file=False).sound, ann.check(file=False).sound) == (True, True)
        bob.erase_session("a")
        assert ann.owners().names == ("", "ann", "dora")
