"""append() with `after` and `update`: messages and session fields that change in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import (
    InvalidValue,
    KeyReused,
    MessageNotFound,
    RecollectError,
    SessionInTrash,
    SessionNotFound,
    StaleRevision,
)
from recollect.model.message import Draft, TextPart
from recollect.store import Session, Store
from recollect_conformance.concurrency import MESSAGES_PER_WRITER, WRITERS, run_concurrently
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    assistant,
    check_counts,
    ids,
    numbered_messages,
    texts,
    tool_call_message,
    tool_result_message,
    user,
)

_CHANGE_TIMEOUT = 60.0  # seconds. A limit for slow machines; a test continues as soon as the change arrives.
_IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2_000}}],
}
_INVALID_UPDATES: list[Any] = [
    [], "title", 5, {"nope": 1}, {"parent": "b"}, {"title": 5}, {"status": "odd"}, {"pinned": "yes"}, {"title": "\0"},
    {"metadata": {"x": {1}}}, {"metadata": []}, {5: "x"}, {"revision": 1}, {"deleted_at": 1}, {"title": "t", "x": None},
]  # fmt: skip


def new_session(store: Store, id: str = "a", count: int = 4) -> Session:
    """Open a session with messages m1, m2 and so on."""
    session = store.session(id)
    session.append(numbered_messages(count))
    return session


def is_unchanged(session: Session, before: Any) -> bool:
    """Return whether a session has the fields that it had before, and its four messages."""
    return session.refresh().info == before and texts(session) == ["m1", "m2", "m3", "m4"]


class TestAppendAfter:
    """Replacing the end of a path, or all of it."""

    @pytest.mark.parametrize("after", [2, "1.2"])
    def test_replace_the_tail(self, store: Store, database: DatabaseUnderTest, after: Any):
        session = new_session(store)
        before = session.revision
        appended = session.append([user("x"), assistant("y")], after=after)
        assert (appended.ids, appended.count, appended.repeated) == (["2.3", "2.4"], 2, False)
        assert appended.revision == session.revision == before + 1
        assert session.branch == 2
        check_counts(session)
        session = database.reopen().session("a")
        assert texts(session) == ["m1", "m2", "x", "y"]
        assert [(branch.id, branch.parent, branch.fork_at, branch.last) for branch in session.branches.list()] == [
            (1, None, 0, 4), (2, 1, 2, 4),
        ]  # fmt: skip
        assert texts(session.branches.switch(1)) == ["m1", "m2", "m3", "m4"]
        check_counts(session)

    def test_replace_everything(self, store: Store):
        session = new_session(store)
        for number in range(3):
            before = session.revision
            assert session.append(user(f"all {number}"), after=0).ids == [f"{number + 2}.1"]
            assert (texts(session), session.revision) == ([f"all {number}"], before + 1)
            check_counts(session)
        assert texts(session.branches.switch(1)) == ["m1", "m2", "m3", "m4"]

    def test_clear_everything(self, store: Store):
        session = new_session(store)
        before = session.revision
        appended = session.append([], after=0)
        assert (appended.ids, appended.count, appended.revision) == ([], 0, before + 1)
        assert (texts(session), session.message_count, session.last_message_at) == ([], 0, None)
        assert session.append([], after=0).revision == before + 1
        assert session.append(user("again")).ids == ["2.1"]
        assert texts(session) == ["again"]

    def test_after_a_message_object(self, store: Store):
        session = new_session(store)
        session.append(user("x"), after=session.message("1.1"))
        assert texts(session) == ["m1", "x"]

    @pytest.mark.parametrize("after", [4, "1.4"])
    def test_after_the_last_message_is_a_plain_append(self, store: Store, after: Any):
        session = new_session(store)
        before = session.revision
        assert session.append(user("m5"), after=after).ids == ["1.5"]
        assert (session.revision, len(session.branches.list())) == (before + 1, 1)
        check_counts(session)

    def test_to_an_empty_session(self, store: Store):
        session = store.session("a")
        assert session.append(user("m1"), after=0).ids == ["1.1"]
        with pytest.raises(MessageNotFound):
            store.session("b").append(user("m1"), after=1)
        assert texts(store.session("b")) == []

    def test_after_a_message_of_another_branch(self, store: Store):
        session = new_session(store)
        session.append(user("x"), after=1)
        assert session.append(user("y"), after="1.3").ids == ["3.4"]
        assert texts(session) == ["m1", "m2", "m3", "y"]
        assert session.append(user("z"), after="2.2").ids == ["2.3"]
        assert texts(session) == ["m1", "x", "z"]
        assert session.append(user("m5"), after="1.4").ids == ["1.5"]
        assert texts(session) == ["m1", "m2", "m3", "m4", "m5"]
        check_counts(session)

    def test_after_a_deleted_message(self, store: Store):
        session = new_session(store)
        session.delete_messages([2])
        assert session.append(user("x"), after=2).ids == ["2.3"]
        assert texts(session) == ["m1", "x"]
        session.restore_messages(["1.2"])
        assert texts(session) == ["m1", "m2", "x"]
        check_counts(session)

    def test_many_replacements(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store, count=2)
        for number in range(40):
            session.append([user(f"{number}"), user("replaced next")], after=1 + number)
        session = database.reopen().session("a")
        assert texts(session) == ["m1", *map(str, range(40)), "replaced next"]
        check_counts(session)

    def test_unknown_messages_change_nothing(self, store: Store):
        session = new_session(store)
        before = session.info
        for after in (5, "1.5", "2.1", "1.0", 10**30, f"{10**30}.1"):
            with pytest.raises(MessageNotFound):
                session.append(user("x"), after=after, update={"title": "T"}, key="k")
        invalid_ids: list[Any] = ["x", "0", -1, 1.5, "", [1], True]
        for after in invalid_ids:
            with pytest.raises(InvalidValue):
                session.append(user("x"), after=after, update={"title": "T"}, key="k")
        assert is_unchanged(session, before)
        assert session.append(user("x"), key="k").ids == ["1.5"]

    def test_invalid_messages_change_nothing(self, store: Store):
        session = new_session(store)
        before = session.info
        invalid_messages: list[Any] = [None, 5, {}, {"role": "robot"}, [user("x"), "y"], [[]]]
        for invalid in invalid_messages:
            with pytest.raises(InvalidValue):
                session.append(invalid, after=0, update={"title": "T"})
        with pytest.raises(InvalidValue):
            session.append([])
        assert is_unchanged(session, before)

    def test_forks_keep_what_they_share(self, store: Store):
        session = new_session(store)
        fork = session.fork(3, id="f")
        fork.append(user("in the fork"))
        session.append(user("x"), after=1)
        assert texts(fork) == ["m1", "m2", "m3", "in the fork"]
        assert fork.append(user("y"), after="1.2").ids == ["4.3"]
        assert (texts(fork), texts(session)) == (["m1", "m2", "y"], ["m1", "x"])
        with pytest.raises(MessageNotFound):
            fork.append(user("z"), after="3.2")  # a branch of the origin
        with pytest.raises(MessageNotFound):
            fork.append(user("z"), after="1.4")  # after the fork
        store.erase_session("a", forks="keep")
        fork.append(user("w"), after=1)
        assert texts(fork) == ["m1", "w"]
        check_counts(fork)

    def test_an_open_turn_continues_on_its_branch(self, store: Store):
        session, window = store.session("a"), store.session("a")
        session.append(numbered_messages(2))
        turn = session.turn("q")
        window.append(user("elsewhere"), after=1)
        turn.add(assistant("r"))
        assert texts(window) == ["m1", "elsewhere"]
        window.append([user("after the answer")], after="1.4")
        assert texts(window) == ["m1", "m2", "q", "r", "after the answer"]
        turn.complete()
        check_counts(window.refresh())

    def test_a_result_belongs_to_a_call_before_it_on_the_new_path(self, store: Store):
        session = store.session("a")
        session.append([user("q"), tool_call_message("t"), tool_result_message("t", text="first"), assistant("r")])
        session.append([tool_result_message("t", text="second"), assistant("s")], after=2)
        assert [(call.status, call.result_message) for call in session.tools.list()] == [("success", "2.3")]
        session.append(tool_result_message("t", text="orphan"), after=1)
        assert session.tools.list() == []
        session.branches.switch(1)
        assert [(call.status, call.result_message) for call in session.tools.list()] == [("success", "1.3")]

    def test_attachments_and_pinned_messages(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([{"role": "system", "content": "s"}, _IMAGE, user("x")])
        pinned = {"role": "user", "content": "p", "metadata": {"pinned": True}}
        session.append([_IMAGE, pinned, user("y")], after=1, update={"title": "T"})
        session = database.reopen().session("a")
        assert session.messages()[1].parts == session.message("1.2").parts
        assert [message.pinned for message in session.messages()] == [False, False, True, False]
        assert [message.text for message in session.messages(active=True)] == ["s", "", "p", "y"]

    def test_compactions_of_the_kept_past_apply(self, store: Store):
        session = new_session(store, count=6)
        session.compact(before=3, summary="short")
        session.append(user("x"), after=4)
        assert [message.text.rpartition("\n")[2] for message in session.messages(active=True)] == [
            "short", "m3", "m4", "x",
        ]  # fmt: skip
        session.append(user("y"), after=1)
        assert [message.text for message in session.messages(active=True)] == ["m1", "y"]

    def test_a_session_in_the_trash_or_missing(self, store: Store):
        session = new_session(store)
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            session.append(user("x"), after=0, update={"title": "T"}, expected=0, key="k")
        store.restore_session("a")
        assert texts(session) == ["m1", "m2", "m3", "m4"]
        store.erase_session("a")
        with pytest.raises(SessionNotFound):
            session.append(user("x"), after=0, key="k")
        with pytest.raises(SessionNotFound):
            session.append([], update={"title": "T"}, expected=3)

    def test_it_moves_the_session_to_the_top_of_the_list(self, store: Store):
        for id in "abcd":
            new_session(store, id)
        handles = {session.id: session for session in store.list_sessions()}
        handles["b"].append(user("x"), after=1)
        assert [session.id for session in store.list_sessions()] == ["b", "d", "c", "a"]
        handles["c"].append([], after=0)
        assert [session.id for session in store.list_sessions()] == ["c", "b", "d", "a"]
        handles["d"].append([], update={"title": "T"})
        assert [session.id for session in store.list_sessions()] == ["c", "b", "d", "a"]
        assert [(session.id, session.active_at) for session in store.list_sessions()] == [
            (session.id, session.active_at) for session in (handles["c"], handles["b"], handles["d"], handles["a"])
        ]


class TestAppendWithUpdate:
    """Session fields that change with the messages."""

    def test_messages_and_fields(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        before = session.revision
        changes: Any = {"title": "T", "metadata": {"step": 5}, "pinned": True, "model": "m", "external_id": "e"}
        appended = session.append(user("m5"), update=changes)
        assert (appended.ids, appended.revision, session.revision) == (["1.5"], before + 1, before + 1)
        assert (session.title, session.metadata, session.model, session.external_id) == ("T", {"step": 5}, "m", "e")
        assert session.pinned_at is not None
        check_counts(session)
        assert database.reopen().session("a", create=False).title == "T"

    def test_fields_alone(self, store: Store):
        session = new_session(store)
        before = session.info
        appended = session.append([], update={"title": "T", "status": "completed"})
        assert (appended.ids, appended.branch, appended.revision) == ([], 1, before.revision + 1)
        assert (session.title, session.status, session.active_at) == ("T", "completed", before.active_at)
        assert texts(session) == ["m1", "m2", "m3", "m4"]
        assert [hit.id for hit in store.list_sessions(order="title")] == ["a"]
        assert store.find_session("T").id == "a"

    def test_an_empty_update_changes_nothing(self, store: Store):
        session = new_session(store)
        before = session.info
        assert session.append([], update={}).revision == before.revision
        assert is_unchanged(session, before)
        assert session.append(user("m5"), update={}).revision == before.revision + 1
        assert session.append(user("m5"), update={}, key="k").ids == session.append(user("m5"), key="k").ids

    def test_none_clears_a_field(self, store: Store):
        session = new_session(store)
        session.append(user("x"), update={"title": "T", "metadata": {"a": 1}, "archived": True})
        session.append(user("y"), after=2, update={"title": None, "metadata": None, "archived": False})
        assert (session.title, session.metadata, session.archived_at) == (None, None, None)
        assert [item.id for item in store.list_sessions(order="title")] == ["a"]

    @pytest.mark.parametrize("update", _INVALID_UPDATES)
    def test_invalid_fields_change_nothing(self, store: Store, update: Any):
        session = new_session(store)
        before = session.info
        for after in (None, 0, 2):
            with pytest.raises(InvalidValue):
                session.append(user("x"), after=after, update=update, key="k")
        assert is_unchanged(session, before)

    def test_the_caller_may_change_its_dict_later(self, store: Store):
        session = store.session("a")
        metadata = {"step": 1}
        changes: Any = {"title": "T", "metadata": metadata}
        session.append(user("x"), update=changes)
        metadata["step"] = 2
        changes.clear()
        assert (session.metadata, session.refresh().metadata) == ({"step": 1}, {"step": 1})

    def test_a_stale_handle_has_all_fields_afterwards(self, store: Store):
        stale, session = new_session(store), store.session("a")
        session.update(title="theirs", color="red")
        session.rewind(2)
        stale.append(user("x"), update={"model": "m"})
        assert stale.info == session.refresh().info
        assert (stale.title, stale.color, stale.model, stale.branch) == ("theirs", "red", "m", 2)

    def test_a_watch_reports_one_change(self, store: Store, database: DatabaseUnderTest):
        writer = new_session(database.open())
        with store.watch("a", timeout=_CHANGE_TIMEOUT) as watch:
            for number in range(5):
                writer.append(user(f"x{number}"), after=2, update={"title": f"T{number}", "pinned": True})
                assert next(watch) == ("a", writer.revision)
            writer.append([], after=0)
            assert next(watch) == ("a", writer.revision)
            writer.append([], update={"title": "end"})
            assert next(watch) == ("a", writer.revision)

    def test_a_search_finds_the_new_messages_and_title(self, store: Store):
        session = new_session(store)
        session.append(user("heron"), after=2, update={"title": "Egrets"})
        assert [hit.message for hit in store.search("heron")] == ["2.3"]
        assert [hit.session for hit in store.search("egrets")] == ["a"]


class TestAppendKeys:
    """Idempotency keys of appends with `after` and `update`."""

    def test_a_repetition_changes_nothing(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        changes: Any = {"title": "T", "pinned": True, "metadata": {"n": 1}}
        first = session.append(user("x"), after=2, update=changes, key="k")
        session.append(user("later"))
        session.update(title="renamed", pinned=False)
        session.rewind(1)
        before = session.info
        session = database.reopen().session("a", create=False)
        for expected in (None, 0, first.revision):
            again = session.append(user("x"), after=2, update=changes, key="k", expected=expected)
            assert (again.ids, again.repeated) == (first.ids, True)
        assert (session.title, session.branch, session.revision) == ("renamed", before.branch, before.revision)
        assert texts(session) == ["m1"]

    @pytest.mark.parametrize(
        "other",
        [
            {}, {"after": 2}, {"update": {"title": "T"}}, {"after": 1, "update": {"title": "T"}},
            {"after": 2, "update": {"title": "U"}}, {"after": 2, "update": {"title": None}},
            {"after": 2, "update": {"title": "T", "pinned": False}}, {"after": 2, "update": {"model": "T"}},
        ],
    )  # fmt: skip
    def test_another_place_or_update_under_the_same_key_is_refused(self, store: Store, other: dict[str, Any]):
        session = new_session(store)
        session.append(user("x"), after=2, update={"title": "T"}, key="k")
        before = session.info
        with pytest.raises(KeyReused):
            session.append(user("x"), **other, key="k")
        with pytest.raises(KeyReused):
            session.append([], after=2, update={"title": "T"}, key="k")
        assert session.refresh().info == before

    def test_a_plain_append_and_a_turn_under_the_same_key(self, store: Store):
        session = new_session(store)
        session.append(user("x"), key="plain")
        session.save_turn("y", key="turn")
        for message, key in (("x", "plain"), ("y", "turn")):
            with pytest.raises(KeyReused):
                session.append(user(message), after=0, key=key)
        session.append(user("z"), after=0, key="placed")
        with pytest.raises(KeyReused):
            session.append(user("z"), key="placed")
        with pytest.raises(KeyReused):
            session.save_turn("z", key="placed")
        assert texts(session) == ["z"]

    def test_a_key_without_messages(self, store: Store, database: DatabaseUnderTest):
        session = new_session(store)
        first = session.append([], after=0, update={"title": "T"}, key="k")
        session.append(user("x"))
        session.update(title="renamed")
        session = database.reopen().session("a")
        again = session.append([], after=0, update={"title": "T"}, key="k")
        assert (first.ids, again.ids, again.repeated) == ([], [], True)
        assert (texts(session), session.title) == (["x"], "renamed")
        assert session.append([], update={"title": "V"}, key="k2").repeated is False
        assert session.append([], update={"title": "V"}, key="k2").repeated is True
        with pytest.raises(KeyReused):
            session.append(user("x"), update={"title": "V"}, key="k2")

    def test_the_form_of_an_update_does_not_matter(self, store: Store):
        session = store.session("a")
        first = session.append(user("x"), update={"title": "T", "pinned": True}, key="k")
        again = session.append(user("x"), update={"pinned": True, "title": "T"}, key="k")
        assert (again.ids, again.repeated) == (first.ids, True)


class TestExpectedRevision:
    """`expected=` of every change of a path, a message or a session."""

    def test_append_after(self, store: Store):
        session, other = new_session(store), store.session("a")
        other.update(title="theirs")
        before = other.info
        for arguments in ({"after": 0}, {"after": 2, "update": {"title": "mine"}}, {"update": {"title": "mine"}}):
            for messages in (user("x"), []):
                with pytest.raises(StaleRevision) as excinfo:
                    session.append(messages, **arguments, expected=session.revision, key="k")  # type: ignore[arg-type]
                fields = excinfo.value.fields
                assert (fields["revision"], fields["expected"]) == (before.revision, session.revision)
        assert is_unchanged(other, before)
        session.refresh()
        session.append(user("x"), after=2, update={"title": "mine"}, expected=session.revision, key="k")
        assert (texts(session), session.title) == (["m1", "m2", "x"], "mine")

    def test_a_chain_of_changes(self, store: Store):
        session = new_session(store)
        session.append(user("x"), after=2, expected=session.revision)
        session.rewind(1, expected=session.revision)
        session.branches.switch(1, expected=session.revision)
        session.delete_messages([3], expected=session.revision)
        session.delete_messages([3], expected=session.revision)
        session.restore_messages([3], expected=session.revision)
        assert session.fork(2, id="f", expected=session.revision).message_count == 2
        session.append(user("m5"), expected=session.revision)
        assert texts(session) == ["m1", "m2", "m3", "m4", "m5"]
        check_counts(session)
        store.delete_session("a", expected=session.revision)
        in_trash = store.list_sessions(deleted=True)[0].revision
        session = store.restore_session("a", expected=in_trash)
        assert session.revision == in_trash + 1
        assert store.erase_session("f", expected=store.session("f").revision) == ["f"]
        assert store.erase_session("a", expected=session.revision) == ["a"]

    def test_a_stale_revision_changes_nothing(self, store: Store):
        session = new_session(store)
        session.append(user("x"), after=2)
        session.branches.switch(1)
        session.delete_messages([1])
        before, infos = session.info, [item.info for item in store.list_sessions()]
        for expected in (before.revision - 1, before.revision + 1, 0, 2**53 - 1):
            calls = (
                lambda: session.rewind(2, expected=expected),  # noqa: B023  called in this iteration
                lambda: session.rewind(4, expected=expected),  # noqa: B023
                lambda: session.rewind(0, expected=expected),  # noqa: B023
                lambda: session.rewind(99, expected=expected),  # noqa: B023
                lambda: session.branches.switch(2, expected=expected),  # noqa: B023
                lambda: session.branches.switch(1, expected=expected),  # noqa: B023
                lambda: session.branches.switch(99, expected=expected),  # noqa: B023
                lambda: session.fork(expected=expected),  # noqa: B023
                lambda: session.fork(2, id="a", title="T", expected=expected),  # noqa: B023
                lambda: session.delete_messages([1], expected=expected),  # noqa: B023
                lambda: session.delete_messages([2], expected=expected),  # noqa: B023
                lambda: session.restore_messages([1], expected=expected),  # noqa: B023
                lambda: session.restore_messages([2], expected=expected),  # noqa: B023
                lambda: store.delete_session("a", expected=expected),  # noqa: B023
                lambda: store.restore_session("a", expected=expected),  # noqa: B023
                lambda: store.erase_session("a", expected=expected),  # noqa: B023
                lambda: store.erase_session("a", forks="erase", deleted=False, expected=expected),  # noqa: B023
            )
            for call in calls:
                with pytest.raises(StaleRevision) as excinfo:
                    call()
                assert excinfo.value.fields == {
                    "session": "a", "revision": before.revision, "expected": expected,
                }  # fmt: skip
        assert session.refresh().info == before
        assert [item.info for item in store.list_sessions()] == infos
        assert store.list_sessions(deleted=True) == []

    def test_an_invalid_expected_revision(self, store: Store):
        session = new_session(store)
        before = session.info
        invalid_revisions: list[Any] = [-1, True, 1.0, "1", 2**53, b"1"]
        for expected in invalid_revisions:
            calls = (
                lambda: session.append(user("x"), after=0, expected=expected),  # noqa: B023
                lambda: session.rewind(2, expected=expected),  # noqa: B023
                lambda: session.branches.switch(1, expected=expected),  # noqa: B023
                lambda: session.fork(expected=expected),  # noqa: B023
                lambda: session.delete_messages([2], expected=expected),  # noqa: B023
                lambda: session.restore_messages([2], expected=expected),  # noqa: B023
                lambda: store.delete_session("a", expected=expected),  # noqa: B023
                lambda: store.restore_session("a", expected=expected),  # noqa: B023
                lambda: store.erase_session("a", expected=expected),  # noqa: B023
            )
            for call in calls:
                with pytest.raises(InvalidValue, match="expected"):
                    call()
        assert is_unchanged(session, before)

    def test_missing_sessions_are_reported_as_such(self, store: Store):
        session = new_session(store)
        store.delete_session("a")
        for call in (
            lambda: session.rewind(1, expected=0),
            lambda: session.branches.switch(1, expected=0),
            lambda: session.fork(expected=0),
            lambda: session.delete_messages([1], expected=0),
            lambda: store.delete_session("a", expected=0),
        ):
            with pytest.raises(SessionInTrash):
                call()
        store.erase_session("a")
        for call in (store.delete_session, store.restore_session, store.erase_session):
            with pytest.raises(SessionNotFound):
                call("a", expected=0)

    def test_the_revision_of_the_session_in_the_trash(self, store: Store):
        old = new_session(store)
        store.delete_session("a")
        store.session("a").append(user("new"))
        in_trash, live = store.list_sessions(deleted=True)[0].revision, store.session("a").revision
        assert in_trash != live
        with pytest.raises(StaleRevision):
            store.erase_session("a", deleted=True, expected=live)
        with pytest.raises(StaleRevision):
            store.erase_session("a", expected=in_trash)  # the one outside the trash
        store.delete_session("a", expected=live)
        store.erase_session("a", deleted=True, expected=store.list_sessions(deleted=True)[0].revision)
        with pytest.raises(StaleRevision):
            store.restore_session("a", expected=old.revision)
        assert texts(store.restore_session("a", expected=in_trash)) == ["m1", "m2", "m3", "m4"]
        with pytest.raises(StaleRevision):  # restored already, so its revision has changed
            store.restore_session("a", expected=in_trash)
        assert store.restore_session("a", expected=in_trash + 1).revision == in_trash + 1

    def test_a_change_through_a_fork_changes_the_revision(self, store: Store):
        session = new_session(store)
        fork = session.fork(id="f")
        revision = session.revision
        fork.delete_messages([2])
        with pytest.raises(StaleRevision):
            session.delete_messages([3], expected=revision)
        fork.append(user("mine"), after=1)
        assert session.delete_messages([3], expected=revision + 1)


class TestCombinedAppendConcurrency:
    """Concurrent replacements: one per revision, and never half of one."""

    def test_one_replacement_per_revision(self, store: Store, database: DatabaseUnderTest):
        store.session("a").append(user("start"))
        stores = [database.open() for _ in range(4)]

        def replace(writer: int) -> list[int]:
            session = stores[writer % 4].session("a")
            revisions: list[int] = []
            while len(revisions) < MESSAGES_PER_WRITER // 2:
                text = f"w{writer}:{len(revisions)}"
                try:
                    appended = session.append(
                        [user(text), assistant(text)], after=0, update={"title": text}, expected=session.revision
                    )
                except StaleRevision:
                    session.refresh()
                else:
                    revisions.append(appended.revision)
            return revisions

        first = store.session("a").revision
        revisions = [revision for numbers in run_concurrently(replace) for revision in numbers]
        assert sorted(revisions) == list(range(first + 1, first + 1 + len(revisions)))
        session = store.session("a")
        assert texts(session) == [session.title, session.title]
        assert len(session.branches.list()) == len(revisions) + 1
        check_counts(session)

    def test_one_of_many_at_the_same_revision_succeeds(self, store: Store):
        session = new_session(store)
        expected = session.revision

        def attempt(writer: int) -> bool:
            handle = store.get_session("a")
            if handle is None:  # another writer has deleted it; store.session() would create a new one
                return False
            calls = (
                lambda: handle.append(user(f"w{writer}"), after=writer % 5, expected=expected),
                lambda: handle.append([], update={"title": f"w{writer}"}, expected=expected),
                lambda: handle.rewind(1, expected=expected),
                lambda: handle.delete_messages([2], expected=expected),
                lambda: store.delete_session("a", expected=expected),
            )
            try:
                calls[writer % len(calls)]()
            except (StaleRevision, SessionInTrash):
                return False
            return True

        for _ in range(3):
            assert sum(run_concurrently(attempt)) == 1
            store.restore_session("a")
            session = store.session("a")
            session.rewind("1.4")
            session.restore_messages(["1.2"])
            expected = session.refresh().revision
            assert texts(session) == ["m1", "m2", "m3", "m4"]

    def test_a_handle_has_the_revision_of_its_own_change(self, store: Store):
        """A change of another handle that this one has not seen must not become its expected revision."""
        new_session(store)

        def work(writer: int) -> int:
            session, changes = store.session("a"), 0
            while changes < MESSAGES_PER_WRITER:
                expected = session.revision
                id = f"1.{1 + changes % 4}"
                try:
                    if writer % 3 == 2:
                        session.rewind(id, expected=expected)
                    else:
                        (session.delete_messages, session.restore_messages)[writer % 3]([id], expected=expected)
                except StaleRevision:
                    session.refresh()
                else:
                    assert session.revision in (expected, expected + 1)
                    changes += 1
            return changes

        assert sum(run_concurrently(work)) == WRITERS * MESSAGES_PER_WRITER

    def test_readers_see_whole_replacements(self, store: Store, database: DatabaseUnderTest):
        store.session("a", title="0").append([user("0")] * 3)
        reader_store = database.open()

        def work(number: int) -> None:
            session = (store if number % 2 else reader_store).get_session("a")
            assert session is not None
            for n in range(MESSAGES_PER_WRITER):
                if number % 2:
                    text = f"w{number}:{n}"
                    session.append([user(text)] * 3, after=0, update={"title": text})
                else:
                    for read in (texts, lambda handle: [item.text for item in handle.messages(last=3)]):
                        all_texts = read(session)
                        assert len(all_texts) == 3, all_texts
                        assert len(set(all_texts)) == 1, all_texts
                    before = session.refresh().info
                    assert (before.message_count, before.token_count > 0) == (3, True)
                    history = session.history("openai")
                    assert len({message["content"] for message in history}) == 1

        run_concurrently(work)
        session = store.session("a")
        assert len(session.branches.list()) == WRITERS // 2 * MESSAGES_PER_WRITER + 1
        check_counts(session)

    def test_nothing_is_lost_next_to_other_writers(self, store: Store):
        """Every acknowledged message stays stored, on some branch, and no other change is lost."""
        store.session("a").append(user("start"))

        def work(writer: int) -> list[str]:
            session, created = store.session("a"), list[str]()
            for n in range(MESSAGES_PER_WRITER):
                text = f"w{writer}:{n}"
                match writer % 4:
                    case 0:
                        created += session.append(user(text), after=0, update={"title": text}).ids
                    case 1:
                        created += session.append(user(text)).ids
                    case 2:
                        created += session.append(user(text), after="1.1", key=text).ids
                    case _:
                        session.fork(id=f"f{writer}:{n}").append(user(text), after=0)
                        session.rewind("1.1")
            return created

        created = [id for ids in run_concurrently(work) for id in ids]
        session = store.session("a")
        assert len(created) == len(set(created)) == WRITERS * 3 // 4 * MESSAGES_PER_WRITER
        assert len({session.message(id).text for id in created}) == len(created)
        check_counts(session)

    def test_the_same_key_replaces_once(self, store: Store):
        new_session(store)

        def replace(_: int) -> Any:
            return store.session("a").append([user("x"), user("y")], after=1, update={"title": "T"}, key="k")

        results = run_concurrently(replace)
        assert {tuple(result.ids) for result in results} == {("2.2", "2.3")}
        assert sorted(result.repeated for result in results) == [False] + [True] * (WRITERS - 1)
        assert ids(store.session("a")) == ["1.1", "2.2", "2.3"]

    def test_an_error_does_not_affect_the_others(self, store: Store):
        store.session("a")

        def work(number: int) -> int:
            session, errors = store.session("a"), 0
            for n in range(MESSAGES_PER_WRITER):
                draft = Draft(role="user", parts=(TextPart(text=f"w{number}:{n}"),))
                try:
                    session.append(draft, after=10**6 if number % 2 else None, update={"title": f"w{number}"})
                except RecollectError:
                    errors += 1
            return errors

        assert sum(run_concurrently(work)) == MESSAGES_PER_WRITER * WRITERS // 2
        session = store.session("a")
        assert len(texts(session)) == MESSAGES_PER_WRITER * WRITERS // 2
        assert session.title in {f"w{number}" for number in range(0, WRITERS, 2)}
