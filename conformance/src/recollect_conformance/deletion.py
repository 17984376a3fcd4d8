"""Deleting and restoring a message, which is the same message in every session that shares it."""

from __future__ import annotations

import pytest

from recollect.errors import (
    MessageNotFound,
)
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import check_counts, ids, numbered_messages, texts, user


class TestDelete:
    """Deleting and restoring one message."""

    def test_delete_and_restore(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(3))
        assert session.delete_message(2)
        assert session.message(2).deleted_at is not None
        assert texts(session) == ["m1", "m3"]
        check_counts(session)
        revision = session.revision
        assert not session.delete_message(2)
        assert session.revision == revision
        session = database.reopen().session("a")
        assert texts(session) == ["m1", "m3"]
        assert session.restore_message("1.2")
        assert session.message(2).deleted_at is None
        assert texts(session) == ["m1", "m2", "m3"]
        check_counts(session)
        assert not session.restore_message("1.2")
        check_counts(session)

    def test_positions_are_not_reused(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.delete_message(3)
        assert session.append(user("m4")).ids == ["1.4"]
        session.delete_message(4)
        assert database.reopen().session("a").append(user("m5")).ids == ["1.5"]

    def test_all_messages_can_be_deleted(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        for id in ids(session):
            session.delete_message(id)
        assert texts(session) == []
        assert (session.message_count, session.token_count) == (0, 0)
        assert session.messages(last=2) == []
        assert session.history("anthropic") == []
        fork = session.fork()
        fork.append(user("next"))
        assert texts(fork) == ["next"]

    def test_a_shared_message_is_the_same_in_every_fork(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        fork = session.fork(2)
        third_fork = session.fork(id="t")
        store.delete_session("t")
        other = session.fork(1)
        fork.delete_message("1.2")
        assert texts(session) == ["m1", "m3"]
        assert texts(fork) == ["m1"]
        for handle in (session, fork, other, store.restore_session("t")):
            check_counts(handle.refresh())
        session.restore_message(2)
        for handle in (session, fork, other, third_fork):
            check_counts(handle.refresh())

    def test_delete_on_another_branch(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.rewind(1)
        session.append(user("other"))
        session.delete_message("1.3")
        assert texts(session) == ["m1", "other"]
        check_counts(session)
        session.switch(1)
        assert texts(session) == ["m1", "m2"]
        check_counts(session)

    def test_unknown_messages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        other = store.session("b")
        other.append(numbered_messages(5))
        for act in (session.delete_message, session.restore_message):
            for id in (3, "1.3", "2.1"):
                with pytest.raises(MessageNotFound):
                    act(id)
        check_counts(session)
