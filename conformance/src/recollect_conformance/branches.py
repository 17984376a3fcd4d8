"""Branches: rewind, switch, fork at any message, and erase without damage to forks."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import (
    BranchNotFound,
    InvalidValue,
    MessageNotFound,
    SessionExists,
    SessionHasForks,
    SessionInTrash,
    SessionNotFound,
)
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import assistant, check_counts, ids, numbered_messages, texts, user


def new_session(store: Store, id: str = "a", count: int = 4) -> Session:
    """Open a session with messages m1, m2 and so on."""
    session = store.session(id)
    session.append(numbered_messages(count))
    return session


class TestRewind:
    """Rewinding and switching."""

    @pytest.mark.parametrize("to", [2, "1.2"])
    def test_rewind_to_a_message(self, store: Store, database: DatabaseUnderTest, to: Any):
        session = new_session(store)
        session.rewind(to)
        assert texts(session) == ["m1", "m2"]
        check_counts(session)
        assert session.append(assistant("other")).ids == ["2.3"]
        assert session.branch == 2
        session = database.reopen().session("a")
        assert ids(session) == ["1.1", "1.2", "2.3"]
        branches = session.branches.list()
        assert [(b.id, b.parent, b.fork_at, b.last, b.current) for b in branches] == [
            (1, None, 0, 4, False), (2, 1, 2, 3, True),
        ]  # fmt: skip
        assert texts(session.branches.switch(1)) == ["m1", "m2", "m3", "m4"]
        check_counts(session)
        assert texts(session.branches.switch(branches[1])) == ["m1", "m2", "other"]

    def test_another_branch_can_be_read_without_switching(self, store: Store):
        session = new_session(store, count=1200)
        session.rewind(2).append(assistant("other"))
        assert [message.text for message in session.messages(branch=2)] == ["m1", "m2", "other"]
        assert [message.text for message in session.messages(branch=1)] == [f"m{n}" for n in range(1, 1201)]
        assert session.branch == 2
        fork = session.fork(at="1.3", id="b")
        fork.append(user("x"))
        assert [message.id for message in fork.messages(branch=3)] == ["1.1", "1.2", "1.3", "3.4"]
        for number in (0, -1, 3, 99, 1 << 70):
            with pytest.raises(BranchNotFound):
                session.messages(branch=number)

    def test_rewind_to_a_message_object(self, store: Store):
        session = new_session(store)
        session.rewind(session.messages()[1])  # type: ignore[arg-type]
        assert texts(session) == ["m1", "m2"]

    def test_rewind_to_before_the_first_message(self, store: Store):
        session = new_session(store)
        session.rewind(0)
        assert texts(session) == []
        assert (session.message_count, session.token_count, session.last_message_at) == (0, 0, None)
        assert session.append(user("again")).ids == ["2.1"]
        assert texts(session) == ["again"]
        assert texts(session.branches.switch(1)) == ["m1", "m2", "m3", "m4"]
        session.rewind(0)
        check_counts(session)

    @pytest.mark.parametrize("to", [4, "1.4"])
    def test_rewind_to_the_end_changes_nothing(self, store: Store, to: Any):
        session = new_session(store)
        revision = session.revision
        session.rewind(to)
        assert (session.revision, len(session.branches.list())) == (revision, 1)
        assert session.append(user("m5")).ids == ["1.5"]

    def test_rewind_an_empty_session(self, store: Store):
        session = store.session("a")
        session.rewind(0)
        assert len(session.branches.list()) == 1
        assert session.append(user("m1")).ids == ["1.1"]

    def test_repeated_rewinds_leave_no_empty_branches(self, store: Store):
        session = new_session(store)
        for to in ("1.1", "1.2", "1.3", "1.2", "1.1", 0, "1.1"):
            session.rewind(to)
            check_counts(session)
        assert [branch.id for branch in session.branches.list() if branch.last > branch.fork_at] == [1]
        assert len(session.branches.list()) == 2
        session.append(user("x"))
        assert texts(session) == ["m1", "x"]

    def test_rewind_to_the_end_of_another_branch_continues_there(self, store: Store):
        session = new_session(store)
        session.rewind(2)
        session.append(user("x"))
        session.rewind("1.4")
        assert session.append(user("m5")).ids == ["1.5"]
        session.rewind("2.3")
        assert session.append(user("y")).ids == ["2.4"]
        assert texts(session) == ["m1", "m2", "x", "y"]

    def test_rewind_to_a_message_of_another_branch(self, store: Store):
        session = new_session(store)
        session.rewind(1)
        session.append(numbered_messages(3, first=12))
        session.rewind("1.3")
        assert texts(session) == ["m1", "m2", "m3"]
        session.append(user("x"))
        assert ids(session) == ["1.1", "1.2", "1.3", "3.4"]
        session.rewind("2.3")
        assert texts(session) == ["m1", "m12", "m13"]

    def test_rewind_to_a_deleted_message(self, store: Store):
        session = new_session(store)
        session.delete_messages([3])
        session.rewind(3)
        assert texts(session) == ["m1", "m2"]
        assert session.append(user("x")).ids == ["2.4"]
        session.restore_messages(["1.3"])
        assert texts(session) == ["m1", "m2", "m3", "x"]
        check_counts(session)

    def test_many_nested_branches(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append(user("0"))
        expected = ["0"]
        for n in range(1, 40):
            session.append([user(f"{n}"), user("left behind")])
            expected.append(f"{n}")
            session.rewind(n + 1)
        session = database.reopen().session("a")
        assert texts(session) == expected
        assert [message.position for message in session.messages()] == list(range(1, 41))
        assert len(session.branches.list()) == 40
        check_counts(session)

    def test_unknown_messages_and_branches(self, store: Store):
        session = new_session(store)
        new_session(store, "b", 9)
        for to in (5, "1.5", "2.1", "1.0", 10**30, f"{10**30}.1"):
            for act in (session.rewind, session.fork):
                with pytest.raises(MessageNotFound):
                    act(to)
        for invalid in ("x", -1, 1.5, "", [1]):
            for act in (session.rewind, session.fork):
                with pytest.raises(InvalidValue):
                    act(invalid)  # type: ignore[arg-type]
        for number in (2, 0, -1, 10**30):
            with pytest.raises(BranchNotFound):
                session.branches.switch(number)
        assert texts(session) == ["m1", "m2", "m3", "m4"]

    def test_switching_to_the_current_branch_changes_nothing(self, store: Store):
        session = new_session(store)
        revision = session.revision
        session.branches.switch(1)
        assert session.refresh().revision == revision

    def test_a_fork_has_its_own_branches(self, store: Store):
        session = new_session(store)
        session.rewind(2)
        session.append(user("x"))
        fork = session.fork("1.3")
        with pytest.raises(BranchNotFound):
            fork.branches.switch(1)
        with pytest.raises(BranchNotFound):
            session.branches.switch(fork.branch)
        fork.rewind(2)
        fork.append(user("y"))
        assert texts(fork) == ["m1", "m2", "y"]
        assert texts(session) == ["m1", "m2", "x"]
        assert [branch.id for branch in session.branches.list()] == [1, 2]


class TestFork:
    """Forks: new sessions that share messages."""

    @pytest.mark.parametrize("at", [None, 0, 1, 3, 4, "1.1", "1.4"])
    def test_fork_at_any_message(self, store: Store, database: DatabaseUnderTest, at: Any):
        session = new_session(store)
        fork = session.fork(at, id="f")
        count = 4 if at is None else int(str(at).rpartition(".")[2])
        assert texts(fork) == [f"m{n}" for n in range(1, count + 1)]
        check_counts(fork)
        fork.append(user("in the fork"))
        session.append(user("in the origin"))
        store = database.reopen()
        assert texts(store.session("f")) == [f"m{n}" for n in range(1, count + 1)] + ["in the fork"]
        assert texts(store.session("a")) == ["m1", "m2", "m3", "m4", "in the origin"]
        assert ids(store.session("f"))[:count] == ids(store.session("a"))[:count]

    def test_shared_messages_are_found_by_id_from_another_branch_of_the_fork(self, store: Store):
        fork = new_session(store).fork(2)
        fork.rewind(0)
        fork.append(user("again"))
        assert fork.message("1.1").text == "m1"
        for beyond in ("1.3", "1.4"):
            with pytest.raises(MessageNotFound):
                fork.message(beyond)
        assert texts(fork.fork("1.2")) == ["m1", "m2"]
        fork.delete_messages(["1.1"])
        assert texts(fork.rewind("1.2")) == ["m2"]
        check_counts(fork)

    def test_fields_that_a_fork_inherits(self, store: Store):
        session = store.session("a", title="T", task="k", model="m", color="red", metadata={"x": [1]}, pinned=True)
        session.update(status="completed")
        session.append(user("x"))
        fork = session.fork()
        assert (fork.parent, fork.relation) == ("a", "fork")
        assert (fork.title, fork.task, fork.model, fork.color, fork.metadata) == ("T", "k", "m", "red", {"x": [1]})
        assert (fork.status, fork.pinned_at) == ("active", None)
        second_fork = session.fork(id="f", title="Mine", metadata=None)
        assert (second_fork.id, second_fork.title, second_fork.metadata, second_fork.model) == ("f", "Mine", None, "m")
        assert [s.id for s in store.list_sessions()] == ["f", fork.id, "a"]

    def test_fork_with_an_id_that_exists_or_is_invalid(self, store: Store):
        session = new_session(store)
        with pytest.raises(SessionExists):
            session.fork(id="a")
        for invalid in ("", "x" * 1_025, 5):
            with pytest.raises(InvalidValue):
                session.fork(id=invalid)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            session.fork(name="x")  # pyright: ignore[reportCallIssue]
        assert len(store.list_sessions()) == 1

    def test_fork_at_a_message_of_another_branch(self, store: Store):
        session = new_session(store)
        session.rewind(2)
        session.append(user("x"))
        assert texts(session.fork("1.4")) == ["m1", "m2", "m3", "m4"]
        assert texts(session.fork("2.3")) == ["m1", "m2", "x"]
        assert texts(session.fork("1.2")) == ["m1", "m2"]

    def test_nested_forks(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        for n in range(30):
            session = session.fork(id=f"f{n}")
            session.append(user(f"in f{n}"))
        session = database.reopen().session("f29")
        expected = ["m1", "m2", "m3", "m4", *(f"in f{n}" for n in range(30))]
        assert texts(session) == expected
        assert texts(session.fork("1.2")) == ["m1", "m2"]
        assert texts(session.fork(10)) == expected[:10]
        check_counts(session)

    def test_fork_an_empty_session(self, store: Store):
        fork = store.session("a").fork(id="f")
        fork.append(user("x"))
        assert texts(fork) == ["x"]
        assert store.erase_session("a") == ["a"]
        assert texts(store.session("f")) == ["x"]

    def test_a_fork_survives_trashing_and_erasing_its_origin(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        fork = session.fork(3, id="f")
        fork.append(user("mine"))
        store.delete_session("a")
        assert texts(fork) == ["m1", "m2", "m3", "mine"]
        store.erase_session("a", forks="keep")
        store = database.reopen()
        fork = store.session("f")
        assert texts(fork) == ["m1", "m2", "m3", "mine"]
        assert fork.parent is None
        with pytest.raises(SessionNotFound):
            store.restore_session("a")
        assert fork.append(user("continues")).ids == ["2.5"]
        assert texts(fork.fork("1.2")) == ["m1", "m2"]
        fork.rewind("1.2")
        fork.append(user("back"))
        fork.delete_messages(["1.1"])
        assert texts(fork) == ["m2", "back"]
        check_counts(fork)

    def test_a_trashed_origin_cannot_be_forked_but_its_fork_can(self, store: Store):
        session = new_session(store)
        fork = session.fork(2)
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            session.fork()
        assert texts(fork.fork()) == ["m1", "m2"]


class TestErase:
    """Erasing sessions whose forks share their messages."""

    def test_erase_is_refused_and_the_error_lists_the_forks(self, store: Store):
        session = new_session(store)
        session.fork(2, id="f").fork(id="g")
        session.fork(0, id="alone")
        with pytest.raises(SessionHasForks) as excinfo:
            store.erase_session("a")
        assert excinfo.value.fields["forks"] == ("f", "g")
        assert "share its messages: f, g." in str(excinfo.value)
        assert texts(store.session("a")) == ["m1", "m2", "m3", "m4"]
        with pytest.raises(InvalidValue):
            store.erase_session("a", forks="some")

    def test_deleted_selects_one_of_two_sessions_with_the_same_id(self, store: Store):
        new_session(store)
        store.delete_session("a")
        store.session("a").append({"role": "user", "content": "new"})
        assert store.erase_session("a", deleted=True) == ["a"]
        assert texts(store.session("a")) == ["new"]
        assert store.list_sessions(deleted=True) == []
        with pytest.raises(SessionNotFound):
            store.erase_session("a", deleted=True)
        store.delete_session("a")
        with pytest.raises(SessionNotFound):
            store.erase_session("a", deleted=False)
        assert store.erase_session("a") == ["a"]

    def test_erase_with_the_forks(self, store: Store):
        session = new_session(store)
        fork = session.fork(2, id="f")
        fork.append(user("x"))
        fork.fork(id="g")
        session.fork(0, id="alone").append(user("y"))
        new_session(store, "other")
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "f", "g"]
        assert {s.id for s in store.list_sessions()} == {"alone", "other"}
        assert texts(store.session("alone")) == ["y"]
        assert texts(store.session("other")) == ["m1", "m2", "m3", "m4"]

    def test_erase_a_fork_alone(self, store: Store):
        session = new_session(store)
        session.fork(2, id="f").append(user("x"))
        assert store.erase_session("f") == ["f"]
        assert texts(session) == ["m1", "m2", "m3", "m4"]
        assert store.erase_session("a") == ["a"]

    def test_erase_a_fork_that_has_a_fork(self, store: Store):
        session = new_session(store)
        middle = session.fork(2, id="f")
        middle.append(numbered_messages(2, first=13))
        middle.fork("2.3", id="g").append(user("end"))
        store.erase_session("f", forks="keep")
        assert texts(store.session("g")) == ["m1", "m2", "m13", "end"]
        with pytest.raises(SessionHasForks, match="g"):
            store.erase_session("a")
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "g"]
        assert store.list_sessions() == []

    def test_a_fork_that_shares_only_messages_of_another_fork_is_kept(self, store: Store):
        session = new_session(store)
        fork = session.fork(2, id="f")
        fork.rewind(0)
        fork.append(user("again"))
        fork.fork(id="g")
        with pytest.raises(SessionHasForks) as excinfo:
            store.erase_session("a")
        assert excinfo.value.fields["forks"] == ("f",)
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "f"]
        assert texts(store.session("g")) == ["again"]

    def test_a_trashed_fork_also_prevents_erasing(self, store: Store):
        new_session(store).fork(2, id="f")
        store.delete_session("f")
        with pytest.raises(SessionHasForks):
            store.erase_session("a")
        store.erase_session("a", forks="keep")
        assert texts(store.restore_session("f")) == ["m1", "m2"]

    def test_message_ids_are_not_reused(self, store: Store):
        session = new_session(store)
        fork = session.fork(2, id="f")
        second = session.fork(4, id="g")
        second.append(user("x"))
        store.erase_session("g")
        store.erase_session("a", forks="keep")
        assert fork.append(user("y")).ids == ["2.3"]
        third = fork.fork()
        assert third.append(user("z")).ids == ["4.4"]
        assert texts(third) == ["m1", "m2", "y", "z"]
        store.erase_session("f", forks="keep")
        assert texts(third) == ["m1", "m2", "y", "z"]
        assert store.erase_session(third.id) == [third.id]
        assert store.session("a").append(user("new")).ids == ["1.1"]
