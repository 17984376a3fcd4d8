"""Deleting a message, and bringing it back: it is one message in every session that shares it."""

from __future__ import annotations

import pytest

from recollect.errors import (
    MessageNotFound,
)
from recollect.store import Store
from recollect.testing.place import Place
from recollect.testing.talk import counted, ids, numbered, texts, user


class TestDelete:
    """Taking one message out, and bringing it back."""

    def test_delete_and_restore(self, store: Store, place: Place):
        session = store.session("a")
        session.append(numbered(3))
        gone = session.delete_message(2)
        assert gone.deleted_at is not None
        assert texts(session) == ["m1", "m3"]
        counted(session)
        revision = session.revision
        assert session.delete_message(2).deleted_at is not None
        assert session.revision == revision
        session = place.reopen().session("a")
        assert texts(session) == ["m1", "m3"]
        assert session.restore_message("1.2").deleted_at is None
        assert texts(session) == ["m1", "m2", "m3"]
        counted(session)
        session.restore_message("1.2")
        counted(session)

    def test_positions_are_not_given_out_again(self, store: Store, place: Place):
        session = store.session("a")
        session.append(numbered(3))
        session.delete_message(3)
        assert session.append(user("m4")).ids == ["1.4"]
        session.delete_message(4)
        assert place.reopen().session("a").append(user("m5")).ids == ["1.5"]

    def test_all_can_be_deleted(self, store: Store):
        session = store.session("a")
        session.append(numbered(3))
        for id in ids(session):
            session.delete_message(id)
        assert texts(session) == []
        assert (session.message_count, session.token_count) == (0, 0)
        assert session.messages(last=2) == []
        assert session.history("anthropic") == []
        fork = session.fork()
        fork.append(user("on"))
        assert texts(fork) == ["on"]

    def test_a_shared_message_is_the_same_in_every_fork(self, store: Store):
        session = store.session("a")
        session.append(numbered(3))
        fork = session.fork(2)
        trashed = session.fork(id="t")
        store.delete_session("t")
        other = session.fork(1)
        fork.delete_message("1.2")
        assert texts(session) == ["m1", "m3"]
        assert texts(fork) == ["m1"]
        for each in (session, fork, other, store.restore_session("t")):
            counted(each.refresh())
        session.restore_message(2)
        for each in (session, fork, other, trashed):
            counted(each.refresh())

    def test_on_another_branch(self, store: Store):
        session = store.session("a")
        session.append(numbered(3))
        session.rewind(1)
        session.append(user("other"))
        session.delete_message("1.3")
        assert texts(session) == ["m1", "other"]
        counted(session)
        session.switch(1)
        assert texts(session) == ["m1", "m2"]
        counted(session)

    def test_what_is_not_there(self, store: Store):
        session = store.session("a")
        session.append(numbered(2))
        other = store.session("b")
        other.append(numbered(5))
        for act in (session.delete_message, session.restore_message):
            for id in (3, "1.3", "2.1"):
                with pytest.raises(MessageNotFound):
                    act(id)
        counted(session)
