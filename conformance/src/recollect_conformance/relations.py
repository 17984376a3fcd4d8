"""The parent of a session and its relation to it: at creation, and later, for sub-agents that arrive before it."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from recollect.errors import InvalidValue, SessionInTrash, SessionNotFound, StaleRevision
from recollect.store import Session, Store
from recollect_conformance.concurrency import run_concurrently
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import user


def list_ids(store: Store, **filters: Any) -> list[str]:
    """Return the ids of a complete list."""
    return [session.id for session in list_all_sessions(store, **filters)]


def link_of(session: Session) -> tuple[str | None, str | None]:
    """Return the parent and the relation of a session, read again."""
    session.refresh()
    return session.parent, session.relation


class TestRelations:
    """The parent and the relation are fields of a session."""

    def test_they_are_set_when_a_session_is_created(self, store: Store):
        store.session("main")
        created = [
            store.session("default", parent="main"),
            store.session("delegate", parent="main", relation="delegate"),
            store.session("fork", exist_ok=False, parent="main", relation="fork"),
            store.session("none", exist_ok=False, parent="main", relation=None),
            store.session("free", exist_ok=False, parent=None, relation=None),
        ]
        links = [("main", "delegate"), ("main", "delegate"), ("main", "fork"), ("main", "delegate"), (None, None)]
        assert [(session.parent, session.relation) for session in created] == links
        assert [link_of(session) for session in created] == links
        assert store.session("main").delegate_count == 3
        assert sorted(list_ids(store, parent="main")) == ["fork"]

    def test_they_are_set_changed_and_cleared_later(self, store: Store, database: DatabaseUnderTest):
        child = store.session("child", labels=["x"], metadata={"k": 1})
        main, other = store.session("main"), store.session("other")
        before = child.revision
        child.update(parent="main")
        assert (child.parent, child.relation, child.revision) == ("main", "delegate", before + 1)
        assert (child.labels, child.metadata) == (("x",), {"k": 1})
        assert (link_of(child), main.refresh().delegate_count) == (("main", "delegate"), 1)
        assert list_ids(store) == ["other", "main"]
        child.update(parent="other", title="T")
        assert (link_of(child), child.title) == (("other", "delegate"), "T")
        assert (main.refresh().delegate_count, other.refresh().delegate_count) == (0, 1)
        child.update(relation="fork")
        assert (link_of(child), other.refresh().delegate_count) == (("other", "fork"), 0)
        assert list_ids(store, parent="other") == ["child"]
        child.update(parent="main")
        assert (link_of(child), main.refresh().delegate_count) == (("main", "fork"), 0)
        child.update(parent="main", relation="delegate", pinned=True)
        assert (link_of(child), main.refresh().delegate_count) == (("main", "delegate"), 1)
        child.update(parent=None)
        assert (link_of(child), main.refresh().delegate_count) == ((None, None), 0)
        assert child.update(parent=None, relation=None).parent is None
        assert "child" in list_ids(store)
        database.verify()

    def test_a_fork_can_have_another_parent(self, store: Store):
        origin, other = store.session("origin"), store.session("other")
        origin.append([user("1"), user("2")])
        fork = origin.fork(id="fork")
        fork.update(parent="other", relation="delegate")
        assert (link_of(fork), other.refresh().delegate_count) == (("other", "delegate"), 1)
        assert [message.id for message in fork.messages()] == [message.id for message in origin.messages()]
        store.erase_session("origin", forks="keep")
        assert (link_of(fork), len(fork.messages())) == (("other", "delegate"), 2)
        assert store.maintenance.check(file=False).problems == ()

    def test_the_relation_stays_if_the_parent_is_erased_and_can_be_cleared(self, store: Store):
        main = store.session("main")
        child = store.session("child", parent="main")
        store.erase_session(main.id)
        assert link_of(child) == (None, "delegate")
        assert list_ids(store) == []
        with pytest.raises(InvalidValue, match="relation must be None without a parent"):
            child.update(relation="fork")
        child.update(relation=None)
        assert (link_of(child), list_ids(store)) == ((None, None), ["child"])
        store.session("new")
        assert link_of(child.update(parent="new")) == ("new", "delegate")

    def test_invalid_links_are_refused(self, store: Store):
        store.session("main")
        child, free = store.session("child", parent="main"), store.session("free")
        revision = child.refresh().revision
        invalid: list[dict[str, Any]] = [
            {"parent": 5}, {"parent": b"main"}, {"parent": "\ud800"}, {"relation": "sibling"}, {"relation": 5},
            {"parent": "main", "relation": "x"}, {"parent": None, "relation": "fork"}, {"relation": None},
            {"parent": "child"}, {"parent": "main", "title": 5},
        ]  # fmt: skip
        for fields in invalid:
            with pytest.raises(InvalidValue):
                child.update(**fields)
        for fields in ({"relation": "fork"}, {"relation": "delegate"}):
            with pytest.raises(InvalidValue, match="relation must be None without a parent"):
                free.update(**cast("Any", fields))
            with pytest.raises(InvalidValue, match="relation must be None without a parent"):
                store.session("new", exist_ok=False, **cast("Any", fields))
        for name in ("parent", "relation"):
            with pytest.raises(InvalidValue, match=f"{name} must be set with session.update"):
                child.fork(**cast("Any", {name: "main" if name == "parent" else "fork"}))
        with pytest.raises(SessionNotFound, match="nobody"):
            child.update(parent="nobody", title="not written")
        with pytest.raises(StaleRevision):
            child.update(parent="free", expected=revision + 1)
        store.delete_session("free")
        with pytest.raises(SessionInTrash):
            child.update(parent="free", title="not written")
        assert (child.refresh().revision, child.title, link_of(child)) == (revision, None, ("main", "delegate"))
        assert child.update(parent="main", expected=revision).revision == revision + 1
        assert store.get_session("new") is None

    def test_a_session_is_never_its_own_ancestor(self, store: Store):
        sessions = [store.session(f"s{number}") for number in range(5)]
        for child, parent in itertools.pairwise(sessions):
            child.update(parent=parent.id)
        for number in range(5):
            with pytest.raises(InvalidValue, match="descendants"):
                sessions[4].update(parent=f"s{number}")
        assert link_of(sessions[4]) == (None, None)
        sessions[2].update(parent=None)
        sessions[4].update(parent="s0")
        with pytest.raises(InvalidValue, match="descendants"):
            sessions[2].update(parent="s3")
        assert [session.refresh().delegate_count for session in sessions] == [1, 1, 1, 0, 1]

    def test_concurrent_links_close_no_circle(self, store: Store, database: DatabaseUnderTest):
        """Each thread links one session to the next one, in a ring: at least one of them is refused."""
        stores = [store, database.open()]
        count = 4
        for attempt in range(3):
            for number in range(count):
                store.session(f"{attempt}:{number}")

            def link(number: int, attempt: int = attempt) -> bool:
                session = stores[number % 2].get_session(f"{attempt}:{number}")
                assert session is not None
                try:
                    session.update(parent=f"{attempt}:{(number + 1) % count}")
                except InvalidValue:
                    return False
                return True

            results = run_concurrently(link, count)
            assert results.count(False) == 1
            for number in range(count):
                ancestors: list[str] = []
                session = store.get_session(f"{attempt}:{number}")
                while session is not None and session.parent is not None:
                    assert session.parent not in ancestors
                    ancestors.append(session.parent)
                    session = store.get_session(session.parent)
        assert store.maintenance.check(file=False).problems == ()

    def test_lists_by_relation(self, store: Store):
        main = store.session("main")
        main.append(user("x"))
        main.fork(id="fork")
        store.session("helper", parent="main")
        store.session("helper of helper", parent="helper")
        assert list_ids(store, relation="fork") == ["fork"]
        assert list_ids(store, relation="delegate") == ["helper of helper", "helper"]
        assert list_ids(store, relation="delegate", delegates=False, parent="main") == ["helper"]
        assert list_ids(store, relation="fork", delegates=True, parent="main") == ["fork"]
        assert list_ids(store, relation="fork", parent="helper") == []
        for relation in ("sibling", "", 5, True):
            with pytest.raises(InvalidValue, match="relation"):
                store.list_sessions(relation=cast("Any", relation))

    def test_a_list_of_the_children_of_a_missing_parent_is_empty(self, store: Store):
        store.session("main")
        for parent in ("nobody", "", "\0", "x" * 5_000):
            page = store.list_sessions(parent=parent, delegates=None)
            assert (list(page), page.next) == ([], None)
        store.session("child", parent="main")
        store.delete_session("main")
        assert list_ids(store, parent="main", delegates=True) == ["child"]
        store.erase_session("main")
        assert list_ids(store, parent="main", delegates=True) == []
