"""Deleting and restoring a message, which is the same message in every session that shares it."""

from __future__ import annotations

import pytest

from recollect.errors import (
    KeyReused,
    MessageNotFound,
    StaleRevision,
)
from recollect.model.message import Draft, TextPart
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import check_counts, ids, numbered_messages, texts, user


class TestDelete:
    """Deleting and restoring one message."""

    def test_delete_and_restore(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(3))
        assert session.delete_messages([2])
        assert session.message(2).deleted_at is not None
        assert texts(session) == ["m1", "m3"]
        check_counts(session)
        revision = session.revision
        assert not session.delete_messages([2])
        assert session.revision == revision
        session = database.reopen().session("a")
        assert texts(session) == ["m1", "m3"]
        assert session.restore_messages(["1.2"])
        assert session.message(2).deleted_at is None
        assert texts(session) == ["m1", "m2", "m3"]
        check_counts(session)
        assert not session.restore_messages(["1.2"])
        check_counts(session)

    def test_positions_are_not_reused(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.delete_messages([3])
        assert session.append(user("m4")).ids == ["1.4"]
        session.delete_messages([4])
        assert database.reopen().session("a").append(user("m5")).ids == ["1.5"]

    def test_all_messages_can_be_deleted(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        for id in ids(session):
            session.delete_messages([id])
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
        fork.delete_messages(["1.2"])
        assert texts(session) == ["m1", "m3"]
        assert texts(fork) == ["m1"]
        for handle in (session, fork, other, store.restore_session("t")):
            check_counts(handle.refresh())
        session.restore_messages([2])
        for handle in (session, fork, other, third_fork):
            check_counts(handle.refresh())

    def test_delete_on_another_branch(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(3))
        session.rewind(1)
        session.append(user("other"))
        session.delete_messages(["1.3"])
        assert texts(session) == ["m1", "other"]
        check_counts(session)
        session.branches.switch(1)
        assert texts(session) == ["m1", "m2"]
        check_counts(session)

    def test_several_messages_are_deleted_and_restored_together(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(numbered_messages(5))
        fork = session.fork(id="fork")
        revision = session.revision
        assert session.delete_messages([4, "1.2", 4, 2], expected=revision) == ["1.4", "1.2"]
        assert (session.revision, session.message_count) == (revision + 1, 3)
        assert session.restore_messages([2, 1, "1.2"], expected=revision + 1) == ["1.2"]
        assert (session.revision, texts(session)) == (revision + 2, ["m1", "m2", "m3", "m5"])
        assert session.restore_messages([1, 2]) == session.delete_messages([4]) == session.delete_messages([]) == []
        assert session.revision == revision + 2
        for change in (session.delete_messages, session.restore_messages):
            with pytest.raises(StaleRevision):
                change([4], expected=revision)
            with pytest.raises(MessageNotFound):
                change([4, 3, "1.9"])
        assert texts(fork) == texts(session) == ["m1", "m2", "m3", "m5"]
        check_counts(session)
        check_counts(fork.refresh())
        assert fork.restore_messages(["1.4"]) == ["1.4"]
        assert texts(session) == ["m1", "m2", "m3", "m4", "m5"]
        database.verify()

    def test_restored_messages_have_different_keys(self, store: Store):
        session = store.session("a")
        for number in range(3):
            session.append(Draft(role="user", parts=(TextPart(text=str(number)),), key="k"))
            session.delete_messages([number + 1])
        with pytest.raises(KeyReused):
            session.restore_messages([1, 3])
        assert texts(session) == []
        assert session.restore_messages([2]) == ["1.2"]
        with pytest.raises(KeyReused):
            session.restore_messages([3])

    def test_unknown_messages(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(2))
        other = store.session("b")
        other.append(numbered_messages(5))
        for act in (session.delete_messages, session.restore_messages):
            for id in (3, "1.3", "2.1"):
                with pytest.raises(MessageNotFound):
                    act([id])
        check_counts(session)
