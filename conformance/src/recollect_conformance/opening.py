"""Opening: store.session() reads an existing session, creates a missing one, and writes to one only for a recovery."""

from __future__ import annotations

import threading
import time

import pytest

from recollect.errors import InvalidValue, SessionInTrash, SessionNotFound
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import assistant, texts, user
from recollect_conformance.turns import SHORT_LEASE, statuses, wait_for_lease

_QUIET_PERIOD = 0.4  # seconds in which no change may arrive


class TestOpening:
    """store.session() on sessions that exist, are missing, were deleted, or have an open turn."""

    def test_opening_an_existing_session_changes_nothing(self, store: Store, database: DatabaseUnderTest):
        for id in "abc":
            store.session(id).append(user(id))
        before = [session.info for session in list_all_sessions(store)]
        other = database.open()
        time.sleep(0.002)  # so that an activity time of now would differ
        with other.watch(timeout=_QUIET_PERIOD) as watch:
            for opener in (store, other):
                for id in "abc":
                    assert opener.session(id, title="ignored").info == opener.session(id, create=False).info
            assert list(watch) == []
        assert [session.info for session in list_all_sessions(other)] == before

    def test_activity_is_recorded_with_the_next_write(self, store: Store):
        for id in "abc":
            store.session(id).append(user(id))
        session = store.session("a")
        active = session.active_at
        time.sleep(0.002)
        session = store.session("a")
        assert session.active_at == active
        assert [entry.id for entry in store.list_sessions()] == ["c", "b", "a"]
        session.append(user("again"))
        assert session.active_at > active
        assert [entry.id for entry in store.list_sessions()] == ["a", "c", "b"]
        store.session("b").turn("q").complete()
        store.session("c").rewind(0)
        assert [entry.id for entry in store.list_sessions()] == ["c", "b", "a"]

    def test_many_open_a_missing_session_at_once(self, store: Store, database: DatabaseUnderTest):
        """One of them creates it, the others open it."""
        stores = [store, *(database.open() for _ in range(3))]
        for attempt in range(6):
            id = f"session {attempt}"
            barrier = threading.Barrier(len(stores))
            sessions: list[Session] = []

            def open_session(opener: Store, id: str = id, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                session = opener.session(id, title="T")
                session.append(user("x"))
                sessions.append(session)  # noqa: B023  the threads end in this iteration

            threads = [threading.Thread(target=open_session, args=(opener,)) for opener in stores]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(sessions) == len(stores)
            assert [entry.id for entry in list_all_sessions(store)].count(id) == 1
            assert texts(store.session(id)) == ["x"] * len(stores)

    def test_a_session_that_was_deleted(self, store: Store):
        first = store.session("a", title="first")
        first.append(user("x"))
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            store.session("a", create=False)
        second = store.session("a", title="second")
        assert (second.title, second.message_count) == ("second", 0)
        store.erase_session("a", deleted=False)
        store.erase_session("a")
        with pytest.raises(SessionNotFound) as excinfo:
            store.session("a", create=False)
        assert not isinstance(excinfo.value, SessionInTrash)

    def test_fields_are_checked_also_if_the_session_exists(self, store: Store):
        store.session("a", title="T")
        for fields in ({"title": 5}, {"nonsense": 1}, {"pinned": "yes"}):
            with pytest.raises(InvalidValue):
                store.session("a", **fields)  # pyright: ignore[reportArgumentType]
        assert store.session("a").title == "T"

    def test_a_missing_parent(self, store: Store):
        with pytest.raises(SessionNotFound):
            store.session("a", parent="missing")
        assert store.get_session("a") is None
        store.session("a")
        assert store.session("a", parent="missing").parent is None

    def test_an_abandoned_turn_is_interrupted_without_activity(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        turn = session.turn("q", lease=SHORT_LEASE)
        turn.add(assistant("so far"))
        store.session("b")
        wait_for_lease()
        before = session.refresh()
        active, revision = before.active_at, before.revision
        for create in (True, False):
            current = database.open().session("a", create=create)
            assert current.active_at == active
            assert current.revision == revision + 1  # of the first opening; the second one finds nothing to do
            assert statuses(current) == ["interrupted"]
        assert [entry.id for entry in store.list_sessions()] == ["b", "a"]

    def test_a_live_turn_is_not_written(self, store: Store, database: DatabaseUnderTest):
        turn = store.session("a").turn("q", lease=60)
        before = store.session("a").info
        for create in (True, False):
            assert database.open().session("a", create=create).info == before
        turn.complete()
