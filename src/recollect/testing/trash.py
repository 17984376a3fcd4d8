"""The trash: a session is put there, comes back whole, or is erased for good."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recollect import ops
from recollect.errors import (
    SessionExists,
    SessionInTrash,
    SessionNotFound,
)
from recollect.model.message import Draft
from recollect.store import Store
from recollect.testing.place import Place, listed
from recollect.testing.sessions import order
from recollect.testing.talk import numbered, texts, user


class TestTrash:
    """Deleting goes to the trash and can be undone; erasing can not."""

    def test_trash_and_restore_bring_it_back_whole(self, store: Store, place: Place):
        session = store.session("a", title="t")
        session.append(numbered(3))
        session.rewind(2)
        session.append(user("other"))
        before = session.info
        store.delete_session("a")
        assert order(store) == []
        assert [s.id for s in store.list_sessions(deleted=True)] == ["a"]
        assert store.list_sessions(deleted=True)[0].deleted_at is not None
        back = place.reopen().restore_session("a")
        assert texts(back) == ["m1", "m2", "other"]
        assert (back.title, back.token_count, back.deleted_at) == ("t", before.token_count, None)
        assert [branch.id for branch in back.branches()] == [1, 2]

    def test_a_restored_session_keeps_its_place_in_the_list(self, store: Store):
        for id in "abcd":
            store.session(id).append(user(id))
        before = [(session.id, session.active_at, session.last_message_at) for session in listed(store)]
        for id in "bdac":
            store.delete_session(id)
            store.restore_session(id)
            assert [(one.id, one.active_at, one.last_message_at) for one in listed(store)] == before
        for id in "dcba":  # all at once
            store.delete_session(id)
        for id in "bcad":
            store.restore_session(id)
        assert [(one.id, one.active_at, one.last_message_at) for one in listed(store)] == before

    def test_after_restoring_the_newest_activity_is_that_of_one_session(self, store: Store):
        """A session that was made in the same millisecond as the one in the trash has the same activity."""
        moment = store.session("a").active_at
        store.delete_session("a")
        scope = replace(store.scope(), now=moment)
        assert store.run(ops.sessions.create(scope, "b", {})).active_at == moment
        store.restore_session("a")
        for id in ("b", "a", "b"):
            store.run(ops.appends.append(replace(store.scope(), now=moment), id, [Draft(role="user", parts=())]))
            assert order(store)[0] == id

    def test_what_is_in_the_trash_refuses_everything_but_restoring(self, store: Store):
        session = store.session("a")
        session.append(numbered(2))
        turn = session.turn("q")
        store.delete_session("a")
        acts = (
            session.refresh,
            session.messages,
            session.branches,
            lambda: list(session.iter_messages()),
            lambda: session.append(user("x")),
            lambda: session.update(title="x"),
            lambda: session.turn("x"),
            lambda: session.rewind(1),
            lambda: session.fork(id="f"),
            lambda: turn.add(user("x")),
            lambda: store.set_last_session("a"),
            lambda: store.delete_session("a"),
        )
        for act in acts:
            with pytest.raises(SessionInTrash):
                act()
        assert texts(store.restore_session("a")) == ["m1", "m2", "q"]
        turn.add(user("goes on"))

    def test_restoring_what_is_not_there(self, store: Store):
        with pytest.raises(SessionNotFound):
            store.restore_session("a")
        with pytest.raises(SessionNotFound):
            store.delete_session("a")
        with pytest.raises(SessionNotFound):
            store.erase_session("a")
        store.session("a", title="lives")
        assert store.restore_session("a").title == "lives"

    def test_the_id_of_a_trashed_session_can_be_used_anew(self, store: Store):
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

    def test_several_with_one_id_in_the_trash_come_back_newest_first(self, store: Store):
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
        assert order(store) == order(store, deleted=True) == []
        for id in ("a", "b"):
            with pytest.raises(SessionNotFound):
                store.restore_session(id)
            assert store.session(id).messages() == []

    def test_a_turn_of_an_erased_session_does_not_write_into_its_successor(self, store: Store):
        for gone in (store.delete_session, store.erase_session):
            turn = store.session("a").turn("old")
            gone("a")
            store.session("a").append(user("new"))
            with pytest.raises(SessionNotFound):
                turn.add(user("late"))
            assert texts(store.session("a")) == ["new"]
            store.erase_session("a")
        old = store.session("a")
        assert texts(old) == []

    def test_a_late_turn_does_not_harm_the_session_it_belongs_to(self, store: Store):
        turn = store.session("a").turn("old")
        store.delete_session("a")
        store.session("a")
        with pytest.raises(SessionNotFound):
            turn.add(user("late"))
        store.erase_session("a")
        old = store.restore_session("a")
        old.append(user("next"))
        turn.add(user("goes on"))
        assert texts(old) == ["old", "next", "goes on"]

    def test_the_trash_lists_the_newest_first(self, store: Store):
        for id in "abc":
            store.session(id)
        for id in "bca":
            store.delete_session(id)
        assert sorted(order(store, deleted=True)) == ["a", "b", "c"]
        times = [session.deleted_at or 0 for session in listed(store, deleted=True)]
        assert times == sorted(times, reverse=True)
