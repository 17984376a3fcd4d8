"""Sessions: create, open, list, find, change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from recollect.errors import (
    AmbiguousName,
    InvalidValue,
    SessionExists,
    SessionInTrash,
    SessionNotFound,
    StaleRevision,
)
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import NAN, assistant, numbered_messages, texts, tool_call_message, user


def list_ids(store: Store, **filters: Any) -> list[str]:
    """Return the ids of a list."""
    return [session.id for session in list_all_sessions(store, **filters)]


def keyword(name: str, value: Any) -> dict[str, Any]:
    """Return one keyword argument."""
    return {name: value}


_INVALID_IDS: list[Any] = ["", "\ud800", "a\udcffb", "x" * 1_025, "\U0001f600" * 257, 5, b"a"]


class TestSessions:
    """Operations on complete sessions."""

    def test_a_new_session_is_empty_and_active(self, store: Store):
        session = store.session("cli:default", title="First", metadata={"a": [1, None]})
        assert (session.id, session.channel, session.channel_id) == ("cli:default", "cli", "default")
        assert (session.title, session.status, session.metadata) == ("First", "active", {"a": [1, None]})
        assert (session.message_count, session.token_count, session.last_message_at) == (0, 0, None)
        assert session.messages() == []
        assert session.history("anthropic") == []
        assert session.turns.list() == []
        assert session.tools.list() == []
        assert session.created_at == session.active_at

    def test_a_session_without_an_id_gets_a_unique_id(self, store: Store):
        first, second = store.session(), store.session()
        assert first.id != second.id
        assert len(first.id) == len(second.id) == 36
        assert first.id[14] == "7"
        assert store.session(first.id) == first

    def test_opening_again_returns_the_same_session_and_keeps_its_fields(
        self, store: Store, database: DatabaseUnderTest
    ):
        store.session("a", title="first").append(user("hi"))
        same = store.session("a", title="second")
        assert (same.title, same.message_count) == ("first", 1)
        assert texts(database.reopen().session("a")) == ["hi"]

    def test_creating_twice_is_an_error(self, store: Store):
        store.session("a", exist_ok=False, title="one")
        with pytest.raises(SessionExists) as excinfo:
            store.session("a", exist_ok=False, title="two")
        assert "'a'" in str(excinfo.value)
        assert store.session("a").title == "one"

    def test_get_returns_none_for_an_unknown_session(self, store: Store):
        assert store.get_session("a") is None
        store.session("a")
        session = store.get_session("a")
        assert session is not None
        assert session.id == "a"
        store.delete_session("a")
        assert store.get_session("a") is None

    def test_get_does_not_change_the_activity(self, store: Store):
        for id in ("a", "b"):
            store.session(id)
        store.get_session("a")
        store.find_session("a").refresh()
        assert list_ids(store) == ["b", "a"]

    def test_open_without_create(self, store: Store):
        with pytest.raises(SessionNotFound) as excinfo:
            store.session("a", create=False)
        assert not isinstance(excinfo.value, SessionInTrash)
        store.session("a")
        store.session("b")
        assert store.session("a", create=False).id == "a"
        assert list_ids(store) == ["b", "a"]
        store.delete_session("a")
        with pytest.raises(SessionInTrash):
            store.session("a", create=False)

    def test_the_list_is_by_newest_activity_also_within_a_millisecond(self, store: Store):
        sessions = {id: store.session(id) for id in "ab"}
        for _ in range(5):
            for last, before in (("a", "b"), ("b", "a")):
                for id in (before, last, before, last):
                    sessions[id].append(user("x"))
                assert list_ids(store) == [last, before]

    def test_each_write_counts_as_activity(self, store: Store):
        sessions = {id: store.session(id) for id in "abc"}
        calls: list[tuple[str, Any]] = [
            ("a", lambda: sessions["a"].append(user("x"))),
            ("b", lambda: sessions["b"].save_turn("q", {"role": "assistant", "content": "r"})),
            ("c", lambda: sessions["c"].append(numbered_messages(3))),
            ("a", lambda: sessions["a"].turn("q").complete()),
            ("c", lambda: sessions["c"].rewind(1)),
        ]
        for id, call in calls:
            call()
            assert list_ids(store)[0] == id

    def test_changes_without_activity_do_not_reorder_the_list(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(4))
        session.rewind(2)
        session.append(user("another"))
        store.session("b")
        before = [(entry.id, entry.active_at) for entry in list_all_sessions(store, archived=None)]
        calls: list[Any] = [
            lambda: session.update(title="Renamed", color="red", model="m", pinned=True),
            lambda: session.update(pinned=False, archived=True),
            lambda: session.update(archived=False),
            lambda: session.branches.switch(1),
            lambda: session.mark_message("1.1", {"pinned": True}),
            lambda: session.mark_message("1.1", {"pinned": None}),
            lambda: session.delete_messages(["1.1"]),
            lambda: session.restore_messages(["1.1"]),
            lambda: session.compact("1.3", summary="summary"),
            session.compactions.undo,
            session.messages,
            lambda: store.session("a"),
            lambda: store.session("a", create=False),
            lambda: store.search("another"),
            store.maintenance.recover,
        ]
        for call in calls:
            call()
            assert [(entry.id, entry.active_at) for entry in list_all_sessions(store, archived=None)] == before

    def test_the_list_by_creation(self, store: Store):
        created_ids = [store.session(f"s{n}").id for n in range(5)]
        store.session("s0").append(user("x"))
        assert list_ids(store, order="created") == created_ids[::-1]

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 50])
    def test_pages_join_without_gaps(self, store: Store, limit: int):
        created_ids = [store.session(f"s{n}").id for n in range(7)]
        listed_ids: list[str] = []
        page = store.list_sessions(limit)
        while True:
            assert len(page) <= limit
            listed_ids += [session.id for session in page]
            if page.next is None:
                break
            page = store.list_sessions(limit, after=page.next)
        assert listed_ids == created_ids[::-1]

    def test_pages_neither_skip_nor_repeat_while_the_list_changes(self, store: Store):
        for n in range(10):
            store.session(f"s{n}")
        page = store.list_sessions(4)
        listed_ids = [session.id for session in page]
        while page.next is not None:
            store.session(f"new{len(listed_ids)}")
            store.session("s9")
            store.delete_session(listed_ids[-1])
            page = store.list_sessions(3, after=page.next)
            listed_ids += [session.id for session in page]
        assert listed_ids == [f"s{n}" for n in reversed(range(10))]

    def test_filters(self, store: Store):
        store.session("cli:a", model="m1")
        store.session("cli:b", model="m2", pinned=True)
        store.session("web:c", model="m1", archived=True)
        store.session("web:d", status="failed")
        assert list_ids(store) == ["web:d", "cli:b", "cli:a"]
        assert list_ids(store, archived=None) == ["web:d", "web:c", "cli:b", "cli:a"]
        assert list_ids(store, archived=True) == ["web:c"]
        assert list_ids(store, pinned=True) == ["cli:b"]
        assert list_ids(store, pinned=False) == ["web:d", "cli:a"]
        assert list_ids(store, channel="cli") == ["cli:b", "cli:a"]
        assert list_ids(store, model="m1", archived=None) == ["web:c", "cli:a"]
        assert list_ids(store, status="failed") == ["web:d"]
        assert list_ids(store, channel="none") == []

    def test_sessions_of_sub_agents_are_listed_under_their_parent(self, store: Store):
        store.session("main")
        child = store.session("main:delegate:coder", parent="main")
        assert (child.parent, child.relation) == ("main", "delegate")
        assert list_ids(store) == ["main"]
        assert list_ids(store, delegates=True) == ["main:delegate:coder", "main"]
        assert (store.session(child.id).parent, store.session(child.id, parent="gone").parent) == ("main", "main")

    def test_an_id_alone_does_not_make_a_session_a_delegate(self, store: Store):
        store.session("app:alice")
        ordinary = store.session("app:alice:delegate:bob")
        assert (ordinary.parent, ordinary.relation) == (None, None)
        assert list_ids(store) == ["app:alice:delegate:bob", "app:alice"]
        assert store.session("app:alice").delegate_count == 0
        other = store.session("helper of alice", exist_ok=False, parent="app:alice")
        assert (other.parent, other.relation) == ("app:alice", "delegate")
        assert store.session("app:alice").delegate_count == 1

    def test_a_session_is_opened_or_created_or_both(self, store: Store):
        with pytest.raises(SessionNotFound):
            store.session("a", create=False)
        assert store.session("a", exist_ok=False, title="T").title == "T"
        with pytest.raises(SessionExists):
            store.session("a", exist_ok=False)
        assert store.session("a", title="ignored").title == "T"
        assert store.session("a", create=False).title == "T"
        new = [store.session(title="new"), store.session(exist_ok=False, title="new")]
        assert [session.title for session in new] == ["new", "new"]
        assert new[0].id != new[1].id
        for id, exist_ok in ((None, True), ("b", False), (None, False)):
            with pytest.raises(InvalidValue, match="create must be True"):
                store.session(id, create=False, exist_ok=exist_ok)
        store.delete_session("a")
        assert store.session("a", exist_ok=False).title is None
        assert len(list_ids(store)) == 3

    def test_a_parent_must_exist(self, store: Store):
        store.session("main")
        for exist_ok in (True, False):
            with pytest.raises(SessionNotFound, match="nobody"):
                store.session("child", exist_ok=exist_ok, parent="nobody")
            with pytest.raises(InvalidValue, match="parent"):
                store.session("child", exist_ok=exist_ok, parent=cast("Any", 5))
        store.delete_session("main")
        with pytest.raises(SessionInTrash):
            store.session("child", parent="main")
        assert store.get_session("child") is None

    def test_invalid_arguments_of_a_list_are_refused(self, store: Store):
        invalid: list[dict[str, Any]] = [
            {"limit": 0}, {"limit": -1}, {"limit": "5"}, {"order": "size"}, {"after": "x"}, {"after": ""},
            {"after": "99999999999999999999999.1"},
        ]  # fmt: skip
        for arguments in invalid:
            with pytest.raises(InvalidValue):
                store.list_sessions(**arguments)

    def test_find_by_id_prefix_or_title(self, store: Store):
        store.session("abc-1", title="Garden")
        store.session("abc-2", title="Kitchen")
        store.session("abd", title="abc-1")
        assert store.find_session("abc-1").id == "abc-1"
        assert store.find_session("abd").id == "abd"
        assert store.find_session("Kitchen").id == "abc-2"
        assert store.find_session("ab" + "d").id == "abd"
        assert store.find_session("abc-2").id == "abc-2"
        store.session("zoë:long")
        assert store.find_session("zo").id == "zoë:long"
        assert store.find_session("zoë:").id == "zoë:long"

    def test_find_by_title_ignores_case_and_accents(self, store: Store):
        store.session("one", title="Éclairs for TEA")
        store.session("two", title="kitchen-2")
        store.session("kitchen-1", title="Garden")
        assert store.find_session("eclairs for tea").id == "one"
        assert store.find_session(" ÉCLAIRS for tea ").id == "one"
        assert store.find_session("Kitchen-2").id == "two"
        assert store.find_session("kitchen").id == "kitchen-1"  # a prefix of an id
        store.session("three", title="Kitchen-2")
        assert store.find_session("Kitchen-2").id == "three"  # the exact spelling takes precedence
        with pytest.raises(AmbiguousName):
            store.find_session("KITCHEN-2")
        store.delete_session("one")
        with pytest.raises(SessionNotFound):
            store.find_session("eclairs for tea")

    def test_an_exact_id_takes_precedence_over_longer_ids(self, store: Store):
        store.session("ab")
        store.session("abc")
        assert store.find_session("ab").id == "ab"

    def test_an_ambiguous_name_lists_the_matches(self, store: Store):
        for n in range(8):
            store.session(f"x{n}", title="Same")
        for name in ("x", "Same"):
            with pytest.raises(AmbiguousName) as excinfo:
                store.find_session(name)
            candidates, matches = excinfo.value.fields["sessions"], excinfo.value.fields["matches"]
            assert len(set(candidates)) > 1
            assert matches == tuple(f"{id} (Same)" for id in candidates)
            assert ", ".join(matches) in str(excinfo.value)
        with pytest.raises(SessionNotFound):
            store.find_session("y")
        with pytest.raises(SessionNotFound):
            store.find_session("")

    def test_the_trash_is_not_found_by_name(self, store: Store):
        store.session("abc", title="Garden")
        store.delete_session("abc")
        for name in ("ab", "Garden", "abc"):
            with pytest.raises(SessionNotFound):
                store.find_session(name)

    @pytest.mark.parametrize(
        "field",
        ["external_id", "title", "task", "provider", "provider_config", "model", "working_dir", "system_prompt",
         "color", "channel", "channel_id"],
    )  # fmt: skip
    def test_update_of_a_text(self, store: Store, database: DatabaseUnderTest, field: str):
        session = store.session("a")
        before = session.revision
        assert getattr(session.update(**keyword(field, "é 🤖")), field) == "é 🤖"
        assert session.revision > before
        new_session = database.reopen().session("a")
        assert getattr(new_session, field) == "é 🤖"
        assert getattr(new_session.update(**keyword(field, None)), field) is None
        for invalid in (5, b"x", ["x"], "a\0b", "\ud800"):
            with pytest.raises(InvalidValue):
                new_session.update(**keyword(field, invalid))
        assert getattr(new_session.refresh(), field) is None

    def test_long_titles_models_and_channels(self, store: Store):
        long_text = "".join(map(chr, range(0x20000, 0x23000)))
        session = store.session("a", title=long_text)
        store.session("b", title=long_text + "b")
        assert store.find_session(long_text).id == "a"
        assert sorted(list_ids(store, order="title")) == ["a", "b"]
        for field in ("model", "channel"):
            assert getattr(session.update(**keyword(field, long_text[:512])), field) == long_text[:512]
            assert list_ids(store, **keyword(field, long_text[:512])) == ["a"]
            with pytest.raises(InvalidValue, match="at most 512 characters"):
                session.update(**keyword(field, long_text[:513]))

    def test_abandoned_turns_are_listed_in_the_order_of_their_ids(self, store: Store):
        for id in ("c", "a", "d", "b"):
            store.session(id).turn("x", lease=0.001)
        time.sleep(0.01)
        assert store.maintenance.recover() == ["a", "b", "c", "d"]

    def test_update_of_status(self, store: Store):
        session = store.session("a")
        for status in ("completed", "failed", "active"):
            assert session.update(status=status).status == status
        for invalid in ("done", None, 1, ""):
            with pytest.raises(InvalidValue):
                session.update(status=invalid)  # pyright: ignore[reportArgumentType]
        assert session.refresh().status == "active"

    @pytest.mark.parametrize("flag", ["pinned", "archived"])
    def test_update_of_a_flag_keeps_the_time(self, store: Store, flag: str):
        session = store.session("a")
        session.update(**{flag: True})  # pyright: ignore[reportArgumentType]
        assert getattr(session, f"{flag}_at") >= session.created_at
        assert getattr(session.update(title="x"), f"{flag}_at") is not None
        assert getattr(session.update(**{flag: False}), f"{flag}_at") is None  # pyright: ignore[reportArgumentType]
        for invalid in (None, 1, "yes"):
            with pytest.raises(InvalidValue):
                session.update(**keyword(flag, invalid))

    def test_update_of_metadata(self, store: Store, database: DatabaseUnderTest):
        metadata = {"": None, "deep": [{"x": [1.5, True, "\0", 2**80]}], "$blob": "mine", "s": "\ud800"}
        store.session("a").update(metadata=metadata)
        session = database.reopen().session("a")
        assert session.metadata == metadata
        for wrong in ([1], "text", {"x": NAN}, {"x": object()}, {1: 2}):
            with pytest.raises(InvalidValue):
                session.update(metadata=wrong)  # pyright: ignore[reportArgumentType]
        assert session.refresh().metadata == metadata
        assert session.update(metadata=None).metadata is None

    def test_update_of_several_fields_is_atomic(self, store: Store):
        session = store.session("a", title="t", color="red")
        with pytest.raises(InvalidValue):
            session.update(title="new", status="odd")  # pyright: ignore[reportArgumentType]
        assert session.refresh().title == "t"
        session.update(title="new", model="m", pinned=True)
        session.refresh()
        assert (session.title, session.model, session.color) == ("new", "m", "red")

    def test_update_of_an_unknown_field(self, store: Store):
        session = store.session("a")
        for name in ("name", "id", "revision", "message_count", "pinned_at"):
            with pytest.raises(InvalidValue, match=name):
                session.update(**keyword(name, "x"))
        for name in ("name", "revision", "message_count", "pinned_at"):
            with pytest.raises(InvalidValue, match=name):
                store.session("b", exist_ok=False, **keyword(name, "x"))
            with pytest.raises(InvalidValue, match=name):
                store.session("b", **keyword(name, "x"))
        assert store.get_session("b") is None

    def test_update_at_a_stale_revision_changes_nothing(self, store: Store):
        mine, theirs = store.session("a"), store.session("a")
        theirs.update(title="theirs")
        with pytest.raises(StaleRevision) as excinfo:
            mine.update(title="mine", expected=mine.revision)
        assert (excinfo.value.fields["expected"], excinfo.value.fields["revision"]) == (mine.revision, theirs.revision)
        assert mine.refresh().title == "theirs"
        assert mine.update(title="mine", expected=mine.revision).title == "mine"

    def test_every_change_increases_the_revision(self, store: Store):
        session = store.session("a")
        revisions = [session.revision]
        calls = (
            lambda: session.update(title="t"),
            lambda: session.append(numbered_messages(3)),
            lambda: session.delete_messages(["1.2"]),
            lambda: session.restore_messages(["1.2"]),
            lambda: session.turn("q").complete(),
            lambda: session.rewind(1),
            lambda: session.branches.switch(1),
        )
        for call in calls:
            call()
            info = store.get_session("a")
            assert info is not None
            revisions.append(info.revision)
            assert session.revision == info.revision
        assert revisions == sorted(set(revisions))

    def test_a_handle_has_the_fields_of_its_session(self, store: Store):
        session = store.session("a", title="t")
        fields = session.to_dict()
        assert fields["id"] == "a"
        assert fields["created_at"].endswith("Z")
        assert "t" in repr(session)
        assert session == store.session("a")
        assert hash(session) == hash(store.session("a"))
        assert session != store.session("b")

    def test_invalid_ids(self, store: Store):
        for id in _INVALID_IDS:
            for exist_ok in (True, False):
                with pytest.raises(InvalidValue):
                    store.session(id, exist_ok=exist_ok)
            assert list_ids(store) == [], id

    @pytest.mark.parametrize("id", ["\ud800", "a\0b", "", "x" * 1_025, "\U0001f600" * 257])
    def test_reading_with_an_invalid_id_finds_nothing(self, store: Store, id: str):
        assert store.get_session(id) is None
        for act in (store.find_session, store.delete_session, store.restore_session, store.erase_session):
            with pytest.raises(SessionNotFound):
                act(id)

    def test_the_times_of_a_session_do_not_go_back_with_the_clock(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        session = store.session("a")
        session.append(user("m1"))
        clock = time.time_ns
        changes: list[Callable[[], object]] = [
            lambda: session.append(user("m2")),
            lambda: session.append(tool_call_message("c")),
            lambda: session.append(user("m3"), key="k"),
            lambda: session.save_turn("m4", assistant("m5")),
            lambda: session.save_turn("m6", tool_call_message("d")),
            lambda: session.save_turn("m7", key="l"),
            lambda: session.turn("m8").complete(),
            lambda: session.update(title="t"),
            lambda: session.delete_messages([1]),
            lambda: store.session("a"),
            lambda: store.session("a", create=False),
        ]
        for change in changes:
            before = session.refresh().info
            with monkeypatch.context() as patch:
                patch.setattr(time, "time_ns", lambda: clock() - 3_600_000_000_000)  # an hour
                change()
            info = session.refresh().info
            assert info.updated_at >= before.updated_at
            assert info.active_at >= before.active_at
            assert (info.last_message_at_ms or 0) >= (before.last_message_at_ms or 0)
