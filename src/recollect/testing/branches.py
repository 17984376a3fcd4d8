"""Branches: go back without losing what followed, switch, fork at any message, erase with care for forks."""

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
from recollect.testing.place import Place
from recollect.testing.talk import assistant, counted, ids, numbered, texts, user


def talk(store: Store, id: str = "a", count: int = 4) -> Session:
    """Open a session with messages m1, m2 and so on."""
    session = store.session(id)
    session.append(numbered(count))
    return session


class TestRewind:
    """Going back and switching."""

    @pytest.mark.parametrize("to", [2, "1.2"])
    def test_to_a_message(self, store: Store, place: Place, to: Any):
        session = talk(store)
        session.rewind(to)
        assert texts(session) == ["m1", "m2"]
        counted(session)
        assert session.append(assistant("other")).ids == ["2.3"]
        assert session.branch == 2
        session = place.reopen().session("a")
        assert ids(session) == ["1.1", "1.2", "2.3"]
        branches = session.branches()
        assert [(b.id, b.parent, b.fork_at, b.last, b.current) for b in branches] == [
            (1, None, 0, 4, False), (2, 1, 2, 3, True),
        ]  # fmt: skip
        assert texts(session.switch(1)) == ["m1", "m2", "m3", "m4"]
        counted(session)
        assert texts(session.switch(branches[1])) == ["m1", "m2", "other"]

    def test_another_branch_can_be_read_from_where_one_stands(self, store: Store):
        session = talk(store, count=1200)
        session.rewind(2).append(assistant("other"))
        assert [message.text for message in session.iter_messages(branch=2)] == ["m1", "m2", "other"]
        assert [message.text for message in session.iter_messages(branch=1)] == [f"m{n}" for n in range(1, 1201)]
        assert session.branch == 2
        fork = session.fork(at="1.3", id="b")
        fork.append(user("x"))
        assert [message.id for message in fork.iter_messages(branch=3)] == ["1.1", "1.2", "1.3", "3.4"]
        for number in (0, -1, 3, 99, 1 << 70):
            with pytest.raises(BranchNotFound):
                list(session.iter_messages(branch=number))

    def test_to_a_message_value(self, store: Store):
        session = talk(store)
        session.rewind(session.messages()[1])  # type: ignore[arg-type]
        assert texts(session) == ["m1", "m2"]

    def test_to_before_the_first(self, store: Store):
        session = talk(store)
        session.rewind(0)
        assert texts(session) == []
        assert (session.message_count, session.token_count, session.last_message_at) == (0, 0, None)
        assert session.append(user("anew")).ids == ["2.1"]
        assert texts(session) == ["anew"]
        assert texts(session.switch(1)) == ["m1", "m2", "m3", "m4"]
        session.rewind(0)
        counted(session)

    @pytest.mark.parametrize("to", [4, "1.4"])
    def test_to_the_end_changes_nothing(self, store: Store, to: Any):
        session = talk(store)
        revision = session.revision
        session.rewind(to)
        assert (session.revision, len(session.branches())) == (revision, 1)
        assert session.append(user("m5")).ids == ["1.5"]

    def test_of_nothing_to_nothing(self, store: Store):
        session = store.session("a")
        session.rewind(0)
        assert len(session.branches()) == 1
        assert session.append(user("m1")).ids == ["1.1"]

    def test_again_and_again_leaves_no_empty_branches(self, store: Store):
        session = talk(store)
        for to in ("1.1", "1.2", "1.3", "1.2", "1.1", 0, "1.1"):
            session.rewind(to)
            counted(session)
        assert [branch.id for branch in session.branches() if branch.last > branch.fork_at] == [1]
        assert len(session.branches()) == 2
        session.append(user("x"))
        assert texts(session) == ["m1", "x"]

    def test_to_the_end_of_another_branch_goes_on_there(self, store: Store):
        session = talk(store)
        session.rewind(2)
        session.append(user("x"))
        session.rewind("1.4")
        assert session.append(user("m5")).ids == ["1.5"]
        session.rewind("2.3")
        assert session.append(user("y")).ids == ["2.4"]
        assert texts(session) == ["m1", "m2", "x", "y"]

    def test_to_a_message_of_another_branch(self, store: Store):
        session = talk(store)
        session.rewind(1)
        session.append(numbered(3, first=12))
        session.rewind("1.3")
        assert texts(session) == ["m1", "m2", "m3"]
        session.append(user("x"))
        assert ids(session) == ["1.1", "1.2", "1.3", "3.4"]
        session.rewind("2.3")
        assert texts(session) == ["m1", "m12", "m13"]

    def test_to_a_deleted_message(self, store: Store):
        session = talk(store)
        session.delete_message(3)
        session.rewind(3)
        assert texts(session) == ["m1", "m2"]
        assert session.append(user("x")).ids == ["2.4"]
        session.restore_message("1.3")
        assert texts(session) == ["m1", "m2", "m3", "x"]
        counted(session)

    def test_many_levels(self, store: Store, place: Place):
        session = store.session("a")
        session.append(user("0"))
        expected = ["0"]
        for n in range(1, 40):
            session.append([user(f"{n}"), user("left behind")])
            expected.append(f"{n}")
            session.rewind(n + 1)
        session = place.reopen().session("a")
        assert texts(session) == expected
        assert [message.position for message in session.messages()] == list(range(1, 41))
        assert len(session.branches()) == 40
        counted(session)

    def test_what_is_not_there(self, store: Store):
        session = talk(store)
        talk(store, "b", 9)
        for to in (5, "1.5", "2.1", "1.0", 10**30, f"{10**30}.1"):
            for act in (session.rewind, session.fork):
                with pytest.raises(MessageNotFound):
                    act(to)
        for odd in ("x", -1, 1.5, "", [1]):
            for act in (session.rewind, session.fork):
                with pytest.raises(InvalidValue):
                    act(odd)  # type: ignore[arg-type]
        for number in (2, 0, -1, 10**30):
            with pytest.raises(BranchNotFound):
                session.switch(number)
        assert texts(session) == ["m1", "m2", "m3", "m4"]

    def test_to_where_it_stands_is_no_change(self, store: Store):
        session = talk(store)
        revision = session.revision
        session.switch(1)
        assert session.refresh().revision == revision

    def test_a_fork_has_branches_of_its_own(self, store: Store):
        session = talk(store)
        session.rewind(2)
        session.append(user("x"))
        fork = session.fork("1.3")
        with pytest.raises(BranchNotFound):
            fork.switch(1)
        with pytest.raises(BranchNotFound):
            session.switch(fork.branch)
        fork.rewind(2)
        fork.append(user("y"))
        assert texts(fork) == ["m1", "m2", "y"]
        assert texts(session) == ["m1", "m2", "x"]
        assert [branch.id for branch in session.branches()] == [1, 2]


class TestFork:
    """A new session that shares a past."""

    @pytest.mark.parametrize("at", [None, 0, 1, 3, 4, "1.1", "1.4"])
    def test_at_any_message(self, store: Store, place: Place, at: Any):
        session = talk(store)
        fork = session.fork(at, id="f")
        kept = 4 if at is None else int(str(at).rpartition(".")[2])
        assert texts(fork) == [f"m{n}" for n in range(1, kept + 1)]
        counted(fork)
        fork.append(user("in the fork"))
        session.append(user("in the origin"))
        store = place.reopen()
        assert texts(store.session("f")) == [f"m{n}" for n in range(1, kept + 1)] + ["in the fork"]
        assert texts(store.session("a")) == ["m1", "m2", "m3", "m4", "in the origin"]
        assert ids(store.session("f"))[:kept] == ids(store.session("a"))[:kept]

    def test_what_it_shares_is_found_by_its_id_also_from_another_of_its_branches(self, store: Store):
        fork = talk(store).fork(2)
        fork.rewind(0)
        fork.append(user("anew"))
        assert fork.message("1.1").text == "m1"
        for beyond in ("1.3", "1.4"):
            with pytest.raises(MessageNotFound):
                fork.message(beyond)
        assert texts(fork.fork("1.2")) == ["m1", "m2"]
        fork.delete_message("1.1")
        assert texts(fork.rewind("1.2")) == ["m2"]
        counted(fork)

    def test_what_it_takes_over(self, store: Store):
        session = store.session("a", title="T", task="k", model="m", color="red", metadata={"x": [1]}, pinned=True)
        session.update(status="completed")
        session.append(user("x"))
        fork = session.fork()
        assert (fork.parent, fork.relation) == ("a", "fork")
        assert (fork.title, fork.task, fork.model, fork.color, fork.metadata) == ("T", "k", "m", "red", {"x": [1]})
        assert (fork.status, fork.pinned_at) == ("active", None)
        named = session.fork(id="f", title="Mine", metadata=None)
        assert (named.id, named.title, named.metadata, named.model) == ("f", "Mine", None, "m")
        assert [s.id for s in store.list_sessions()] == ["f", fork.id, "a"]

    def test_with_an_id_that_is_taken_or_odd(self, store: Store):
        session = talk(store)
        with pytest.raises(SessionExists):
            session.fork(id="a")
        for odd in ("\n", " ", 5):
            with pytest.raises(InvalidValue):
                session.fork(id=odd)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            session.fork(name="x")  # pyright: ignore[reportCallIssue]
        assert len(store.list_sessions()) == 1

    def test_at_a_message_of_another_branch(self, store: Store):
        session = talk(store)
        session.rewind(2)
        session.append(user("x"))
        assert texts(session.fork("1.4")) == ["m1", "m2", "m3", "m4"]
        assert texts(session.fork("2.3")) == ["m1", "m2", "x"]
        assert texts(session.fork("1.2")) == ["m1", "m2"]

    def test_of_a_fork_of_a_fork(self, store: Store, place: Place):
        session = talk(store)
        for n in range(30):
            session = session.fork(id=f"f{n}")
            session.append(user(f"in f{n}"))
        session = place.reopen().session("f29")
        expected = ["m1", "m2", "m3", "m4", *(f"in f{n}" for n in range(30))]
        assert texts(session) == expected
        assert texts(session.fork("1.2")) == ["m1", "m2"]
        assert texts(session.fork(10)) == expected[:10]
        counted(session)

    def test_of_nothing(self, store: Store):
        fork = store.session("a").fork(id="f")
        fork.append(user("x"))
        assert texts(fork) == ["x"]
        assert store.erase_session("a") == ["a"]
        assert texts(store.session("f")) == ["x"]

    def test_it_survives_the_trash_and_the_erasing_of_its_origin(self, store: Store, place: Place):
        session = talk(store)
        fork = session.fork(3, id="f")
        fork.append(user("mine"))
        store.delete_session("a")
        assert texts(fork) == ["m1", "m2", "m3", "mine"]
        store.erase_session("a", forks="keep")
        store = place.reopen()
        fork = store.session("f")
        assert texts(fork) == ["m1", "m2", "m3", "mine"]
        assert fork.parent is None
        with pytest.raises(SessionNotFound):
            store.restore_session("a")
        assert fork.append(user("goes on")).ids == ["2.5"]
        assert texts(fork.fork("1.2")) == ["m1", "m2"]
        fork.rewind("1.2")
        fork.append(user("back"))
        fork.delete_message("1.1")
        assert texts(fork) == ["m2", "back"]
        counted(fork)

    def test_a_trashed_origin_can_not_be_forked_but_its_fork_can(self, store: Store):
        session = talk(store)
        fork = session.fork(2)
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            session.fork()
        assert texts(fork.fork()) == ["m1", "m2"]


class TestErase:
    """Erasing, with forks that share the past."""

    def test_refused_naming_the_forks(self, store: Store):
        session = talk(store)
        session.fork(2, id="f").fork(id="g")
        session.fork(0, id="alone")
        with pytest.raises(SessionHasForks) as caught:
            store.erase_session("a")
        assert caught.value.fields["forks"] == ("f", "g")
        assert "its past: f, g." in str(caught.value)
        assert texts(store.session("a")) == ["m1", "m2", "m3", "m4"]
        with pytest.raises(InvalidValue):
            store.erase_session("a", forks="some")

    def test_of_two_with_one_id_the_one_that_is_meant(self, store: Store):
        talk(store)
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

    def test_with_the_forks(self, store: Store):
        session = talk(store)
        fork = session.fork(2, id="f")
        fork.append(user("x"))
        fork.fork(id="g")
        session.fork(0, id="alone").append(user("y"))
        talk(store, "other")
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "f", "g"]
        assert {s.id for s in store.list_sessions()} == {"alone", "other"}
        assert texts(store.session("alone")) == ["y"]
        assert texts(store.session("other")) == ["m1", "m2", "m3", "m4"]

    def test_a_fork_alone(self, store: Store):
        session = talk(store)
        session.fork(2, id="f").append(user("x"))
        assert store.erase_session("f") == ["f"]
        assert texts(session) == ["m1", "m2", "m3", "m4"]
        assert store.erase_session("a") == ["a"]

    def test_a_fork_in_the_middle(self, store: Store):
        session = talk(store)
        middle = session.fork(2, id="f")
        middle.append(numbered(2, first=13))
        middle.fork("2.3", id="g").append(user("end"))
        store.erase_session("f", forks="keep")
        assert texts(store.session("g")) == ["m1", "m2", "m13", "end"]
        with pytest.raises(SessionHasForks, match="g"):
            store.erase_session("a")
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "g"]
        assert store.list_sessions() == []

    def test_a_fork_that_shares_only_what_another_fork_added_is_kept(self, store: Store):
        session = talk(store)
        fork = session.fork(2, id="f")
        fork.rewind(0)
        fork.append(user("anew"))
        fork.fork(id="g")
        with pytest.raises(SessionHasForks) as caught:
            store.erase_session("a")
        assert caught.value.fields["forks"] == ("f",)
        assert sorted(store.erase_session("a", forks="erase")) == ["a", "f"]
        assert texts(store.session("g")) == ["anew"]

    def test_a_trashed_fork_counts_too(self, store: Store):
        talk(store).fork(2, id="f")
        store.delete_session("f")
        with pytest.raises(SessionHasForks):
            store.erase_session("a")
        store.erase_session("a", forks="keep")
        assert texts(store.restore_session("f")) == ["m1", "m2"]

    def test_places_are_not_given_out_again(self, store: Store):
        session = talk(store)
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
