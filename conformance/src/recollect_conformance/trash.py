"""The trash: sessions are moved there, restored completely, or erased."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recollect import storage
from recollect.errors import (
    SessionExists,
    SessionInTrash,
    SessionNotFound,
)
from recollect.model.message import Draft
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import numbered_messages, texts, user
from recollect_conformance.sessions import list_ids


class TestTrash:
    """Deleting moves to the trash and can be undone; erasing cannot."""

    def test_trash_and_restore_keep_everything(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", title="t")
        session.append(numbered_messages(3))
        session.rewind(2)
        session.append(user("other"))
        before = session.info
        store.delete_session("a")
        assert list_ids(store) == []
        assert [s.id for s in store.list_sessions(deleted=True)] == ["a"]
        assert store.list_sessions(deleted=True)[0].deleted_at is not None
        session = database.reopen().restore_session("a")
        assert texts(session) == ["m1", "m2", "other"]
        assert (session.title, session.token_count, session.deleted_at) == (
            "t",
            before.token_count,
            None,
        )
        assert [branch.id for branch in session.branches.list()] == [1, 2]

    def test_a_restored_session_keeps_its_place_in_the_list(self, store: Store):
        for id in "abcd":
            store.session(id).append(user(id))
        before = [(session.id, session.active_at, session.last_message_at) for session in list_all_sessions(store)]
        for id in "bdac":
            store.delete_session(id)
            store.restore_session(id)
            assert [(entry.id, entry.active_at, entry.last_message_at) for entry in list_all_sessions(store)] == before
        for id in "dcba":  # all are deleted before the first is restored
            store.delete_session(id)
        for id in "bcad":
            store.restore_session(id)
        assert [(entry.id, entry.active_at, entry.last_message_at) for entry in list_all_sessions(store)] == before

    def test_after_restoring_the_last_written_session_is_listed_first(self, store: Store):
        """Check the order if a session is created in the same millisecond as the trashed one."""
        time = store.session("a").info.active_at_ms
        store.delete_session("a")
        scope = replace(store._scope(), now=time)
        assert store._run(storage.sessions.create(scope, "b", {})).active_at_ms == time
        store.restore_session("a")
        for id in ("b", "a", "b"):
            store._run(storage.appends.append(replace(store._scope(), now=time), id, [Draft(role="user", parts=())]))
            assert list_ids(store)[0] == id

    def test_a_trashed_session_refuses_everything_but_restoring(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        turn = session.turn("q")
        store.delete_session("a")
        calls = (
            session.refresh,
            session.messages,
            session.branches.list,
            lambda: session.messages(branch=1),
            lambda: session.append(user("x")),
            lambda: session.update(title="x"),
            lambda: session.turn("x"),
            lambda: session.rewind(1),
            lambda: session.fork(id="f"),
            lambda: turn.add(user("x")),
            lambda: store.delete_session("a"),
        )
        for call in calls:
            with pytest.raises(SessionInTrash):
                call()
        assert texts(store.restore_session("a")) == ["m1", "m2", "q"]
        turn.add(user("continues"))

    def test_restoring_an_unknown_session(self, store: Store):
        with pytest.raises(SessionNotFound):
            store.restore_session("a")
        with pytest.raises(SessionNotFound):
            store.delete_session("a")
        with pytest.raises(SessionNotFound):
            store.erase_session("a")
        store.session("a", title="lives")
        assert store.restore_session("a").title == "lives"

    def test_the_id_of_a_trashed_session_can_be_used_again(self, store: Store):
        store.session("a", title="old").append(user("old"))
        store.delete_session("a")
        new = store.session("a")
        assert (new.title, new.message_count) == (None, 0)
        new.append(user("new"))
        with pytest.raises(SessionExists):
            store.restore_session("a")
        assert texts(store.session("a")) == ["new"]
        store.erase_session("a")
        old = store.restore_session("a")
        assert (old.title, texts(old)) == ("old", ["old"])

    def test_several_sessions_with_one_id_are_restored_newest_first(self, store: Store):
        for name in ("first", "second"):
            store.session("a", title=name)
            store.delete_session("a")
        assert store.restore_session("a").title == "second"
        store.erase_session("a")
        assert store.restore_session("a").title == "first"

    def test_erase_from_the_list_and_from_the_trash(self, store: Store):
        for id in ("a", "b"):
            store.session(id).append(user(id))
        assert store.erase_session("a") == ["a"]
        store.delete_session("b")
        assert store.erase_session("b") == ["b"]
        assert list_ids(store) == list_ids(store, deleted=True) == []
        for id in ("a", "b"):
            with pytest.raises(SessionNotFound):
                store.restore_session(id)
            assert store.session(id).messages() == []

    def test_a_turn_of_an_erased_session_does_not_write_to_a_new_session_with_its_id(self, store: Store):
        for remove in (store.delete_session, store.erase_session):
            turn = store.session("a").turn("old")
            remove("a")
            store.session("a").append(user("new"))
            with pytest.raises(SessionNotFound):
                turn.add(user("late"))
            assert texts(store.session("a")) == ["new"]
            store.erase_session("a")
        old = store.session("a")
        assert texts(old) == []

    def test_a_late_turn_continues_in_its_restored_session(self, store: Store):
        turn = store.session("a").turn("old")
        store.delete_session("a")
        store.session("a")
        with pytest.raises(SessionNotFound):
            turn.add(user("late"))
        store.erase_session("a")
        old = store.restore_session("a")
        old.append(user("next"))
        turn.add(user("continues"))
        assert texts(old) == ["old", "next", "continues"]

    def test_the_trash_lists_the_newest_first(self, store: Store):
        for id in "abc":
            store.session(id)
        for id in "bca":
            store.delete_session(id)
        assert sorted(list_ids(store, deleted=True)) == ["a", "b", "c"]
        times = [session.info.deleted_at_ms or 0 for session in list_all_sessions(store, deleted=True)]
        assert times == sorted(times, reverse=True)
