"""Owners: each has its own sessions, records and last session."""

from __future__ import annotations

from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import texts, user


class TestOwners:
    """Each owner has its own sessions, records and ids."""

    def test_owners_do_not_see_one_another(self, store: Store, database: DatabaseUnderTest):
        ann, bob = database.open("ann"), database.open("bob")
        for name, other in (("nobody", store), ("ann", ann), ("bob", bob)):
            assert other.get_session("a") is None
            other.session("a", exist_ok=False).append(user(name), key="k")
            other.records.put("k", "x", name)
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

    def test_owners_are_listed(self, store: Store, database: DatabaseUnderTest):
        assert store.maintenance.owners().names == ()
        ann, bob, dora = database.open("ann"), database.open("bob"), database.open("dora")
        ann.session("a", exist_ok=False)
        bob.session("a", exist_ok=False)
        bob.delete_session("a")
        dora.records.put("k", "x", 1)
        for other in (store, ann):
            assert (other.maintenance.owners().names, other.maintenance.owners().everyone) == (
                ("ann", "bob", "dora"),
                True,
            )
        store.session("a", exist_ok=False)
        assert (store.maintenance.check(file=False).ok, ann.maintenance.check(file=False).ok) == (True, True)
        bob.erase_session("a")
        assert ann.maintenance.owners().names == ("", "ann", "dora")
