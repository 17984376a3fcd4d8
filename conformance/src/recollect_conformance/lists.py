"""Lists of sessions: orders, filters, stable pages while the list changes, delegates under their parent."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest

from recollect.errors import InvalidValue
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import numbered_messages, tool_call_message, tool_result_message, user


def list_ids(store: Store, **arguments: Any) -> list[str]:
    """Return the ids of a complete list."""
    return [session.id for session in list_all_sessions(store, **arguments)]


def list_ids_in_pages(store: Store, limit: int, **arguments: Any) -> list[str]:
    """Return the ids of a complete list, read in pages of `limit` sessions."""
    ids: list[str] = []
    page = store.list_sessions(limit, **arguments)
    while True:
        assert len(page) <= limit
        ids += [session.id for session in page]
        if page.next is None:
            return ids
        assert len(page) == limit
        page = store.list_sessions(limit, after=page.next, **arguments)


def fill_store(store: Store) -> None:
    """Fill a store with sessions that differ in every field that a list can filter by."""
    store.session("cli:a", model="m1", title="Zebra")
    store.session("cli:b", model="m2", pinned=True, title="élan")
    store.session("web:c", model="m1", archived=True, title="Apple")
    store.session("web:d", title="apple", status="failed")
    store.session("web:e", status="completed")
    store.session("cli:f", pinned=True)
    store.session("cli:g", title="Eland")


class TestLists:
    """Contents and order of lists."""

    def test_by_title_without_case_and_accents_untitled_last(self, store: Store):
        titles = [
            "banana",
            "Äpfel",
            "apfel 2",
            "Zoo",
            "ångström",
            "élan",
            "Eland",
            "ﬁn",
            "STRASSE",
            "straße 2",
            "øre",
            "",
        ]
        for number, title in enumerate(titles):
            store.session(f"s{number}", title=title)
        store.session("none")
        store.session("neither")
        titles_in_order = [session.title for session in list_all_sessions(store, order="title")]
        assert titles_in_order == [
            "", "ångström", "Äpfel", "apfel 2", "banana", "élan", "Eland", "ﬁn", "øre", "STRASSE", "straße 2", "Zoo",
            None, None,
        ]  # fmt: skip
        assert list_ids(store, order="title")[-2:] == ["neither", "none"]

    def test_a_renamed_session_is_listed_under_its_new_title(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", title="Zoo")
        store.session("b", title="middle")
        assert list_ids(store, order="title") == ["b", "a"]
        session.update(title="Ant")
        assert list_ids(store, order="title") == ["a", "b"]
        session.update(title=None)
        assert list_ids(database.reopen(), order="title") == ["b", "a"]
        store = database.open()
        store.session("a").update(title="Äther")
        fork = store.session("a").fork(id="f")
        assert list_ids(store, order="title") == ["a", "f", "b"]
        fork.update(color="red")
        store.delete_session("a")
        assert list_ids(store, order="title") == ["f", "b"]
        store.restore_session("a")
        assert list_ids(store, order="title") == ["a", "f", "b"]
        store.erase_session("a", forks="keep")
        assert list_ids(store, order="title") == ["f", "b"]

    def test_pinned_first(self, store: Store):
        fill_store(store)
        assert list_ids(store, pinned_first=True) == ["cli:f", "cli:b", "cli:g", "web:e", "web:d", "cli:a"]
        assert list_ids(store, pinned_first=True, order="title") == [
            "cli:b",
            "cli:f",
            "web:d",
            "cli:g",
            "cli:a",
            "web:e",
        ]
        assert list_ids(store, pinned_first=True, pinned=False) == ["cli:g", "web:e", "web:d", "cli:a"]
        assert list_ids(store, pinned_first=True, pinned=True) == ["cli:f", "cli:b"]
        assert list_ids(store, pinned_first=True, order="created", channel="cli") == [
            "cli:f",
            "cli:b",
            "cli:g",
            "cli:a",
        ]

    @pytest.mark.parametrize("order", ["activity", "created", "title"])
    @pytest.mark.parametrize("pinned_first", [False, True])
    def test_pages_of_every_size_join(self, store: Store, order: str, pinned_first: bool):
        fill_store(store)
        all_ids = list_ids(store, order=order, pinned_first=pinned_first, archived=None)
        assert sorted(all_ids) == ["cli:a", "cli:b", "cli:f", "cli:g", "web:c", "web:d", "web:e"]
        for limit in range(1, 9):
            assert list_ids_in_pages(store, limit, order=order, pinned_first=pinned_first, archived=None) == all_ids
            for channel in ("cli", "web"):
                channel_ids = [id for id in all_ids if id.startswith(channel)]
                arguments = {"order": order, "pinned_first": pinned_first, "archived": None, "channel": channel}
                assert list_ids_in_pages(store, limit, **arguments) == channel_ids

    def test_every_pair_of_filters(self, store: Store):
        fill_store(store)
        store.session("cli:a").append([tool_call_message("1"), tool_result_message("1")])
        store.session("web:d").append(user("x"))
        everything = list_all_sessions(store, archived=None)
        filters: dict[str, tuple[Any, Any]] = {
            "channel": ("cli", lambda s: s.channel == "cli"),
            "model": ("m1", lambda s: s.model == "m1"),
            "status": ("failed", lambda s: s.status == "failed"),
            "pinned": (True, lambda s: s.pinned_at is not None),
            "archived": (True, lambda s: s.archived_at is not None),
            "tool": ("read_file", lambda s: s.id == "cli:a"),
            "role": ("user", lambda s: s.id == "web:d"),
            "since": (everything[3].active_at, lambda s: s.active_at >= everything[3].active_at),
            "until": (everything[3].active_at, lambda s: s.active_at < everything[3].active_at),
        }
        for first, second in itertools.combinations_with_replacement(filters, 2):
            arguments = {"archived": None, first: filters[first][0], second: filters[second][0]}
            expected = [s.id for s in everything if filters[first][1](s) and filters[second][1](s)]
            assert list_ids(store, **arguments) == expected, arguments
            assert sorted(list_ids(store, order="title", **arguments)) == sorted(expected), arguments
            assert list_ids_in_pages(store, 1, pinned_first=True, **arguments) == list_ids(
                store, pinned_first=True, **arguments
            )

    def test_filters_by_role_and_tool_of_messages(self, store: Store):
        session = store.session("a")
        session.append(
            [
                {"role": "system", "content": "s"},
                user("u"),
                tool_call_message("1", tool="grep"),
                tool_result_message("1"),
            ]
        )
        store.session("b").append(tool_call_message("2"))
        fork = session.fork(id="f")
        assert list_ids(store, tool="grep") == ["a"]
        assert list_ids(store, tool="read_file") == ["b"]
        assert list_ids(store, tool="none") == []
        assert list_ids(store, role="system") == ["a"]
        assert list_ids(store, role="tool") == ["a"]
        fork.append(tool_call_message("3", tool="grep"))
        assert list_ids(store, tool="grep") == ["f", "a"]
        session.delete_messages(["1.1"])
        assert list_ids(store, role="system") == []

    def test_times_in_every_form(self, store: Store):
        first = store.session("a")
        store.session("b")
        second = store.get_session("b")
        assert second is not None
        time = second.active_at
        for since in (second.info.active_at_ms, time, time.isoformat(), second.to_dict()["active_at"]):
            assert list_ids(store, since=since) == ["b"]
            assert list_ids(store, until=since) == ["a"]
            assert list_ids(store, since=since, until=since) == []
        berlin = datetime.timezone(datetime.timedelta(hours=1))
        assert list_ids(store, since=time.astimezone(berlin)) == ["b"]
        assert list_ids(store, since=time.replace(tzinfo=None)) == ["b"]
        assert list_ids(store, since="2020-01-01") == ["b", "a"]
        assert list_ids(store, since=datetime.date(2020, 1, 1)) == ["b", "a"]
        assert list_ids(store, until="2020-01-01T00:00Z") == []
        assert list_ids(store, order="created", until=first.created_at) == []
        assert list_ids(store, order="title", since=second.active_at) == ["b"]
        store.delete_session("b")
        assert list_ids(store, deleted=True, since=second.active_at) == ["b"]
        assert list_ids(store, deleted=True, until=second.active_at) == []
        invalid: Any
        for invalid in ("yesterday", "", -1, 1.5, True, [], 1 << 60, "2025-13-01"):
            for name in ("since", "until"):
                with pytest.raises(InvalidValue):
                    store.list_sessions(**{name: invalid})

    def test_sub_agents_are_counted_under_their_parent_and_listed_on_request(self, store: Store):
        parent = store.session("main")
        for agent in ("coder", "tester", "writer"):
            store.session(f"main:delegate:{agent}", parent="main")
        store.session("main:delegate:coder:delegate:helper", parent="main:delegate:coder")
        fork = parent.fork(id="fork")
        assert parent.refresh().delegate_count == 3
        assert fork.delegate_count == 0
        assert {session.id: session.delegate_count for session in list_all_sessions(store)} == {"fork": 0, "main": 3}
        assert list_ids(store, parent="main", delegates=True) == [
            "main:delegate:writer", "main:delegate:tester", "main:delegate:coder",
        ]  # fmt: skip
        assert list_ids(store, parent="main:delegate:coder", delegates=True) == ["main:delegate:coder:delegate:helper"]
        assert list_ids(store, parent="main") == ["fork"]
        assert len(list_ids(store, parent="main", delegates=None)) == 4
        assert list_ids_in_pages(store, 2, parent="main", delegates=True) == list_ids(
            store, parent="main", delegates=True
        )
        assert len(list_ids(store, delegates=True)) == len(list_ids(store, delegates=None)) == 6
        store.delete_session("main:delegate:tester")
        assert parent.refresh().delegate_count == 2
        assert "main:delegate:tester" not in list_ids(store, parent="main", delegates=True)
        store.restore_session("main:delegate:tester")
        store.erase_session("main:delegate:writer")
        assert parent.refresh().delegate_count == 2
        assert list_ids(store, parent="nobody") == []
        assert parent.to_dict()["delegate_count"] == 2

    def test_long_lists_have_the_same_order(self, store: Store):
        """Long lists are read by index instead of sorted; their pages must join too."""
        for number in range(30):
            store.session(f"web:{number}", title=f"t{number % 7}", model="rare" if number % 10 == 0 else "common")
        assert list_ids(store, model="rare") == ["web:20", "web:10", "web:0"]
        assert len(list_ids_in_pages(store, 4, model="common")) == 27

    def test_pages_neither_skip_nor_repeat_while_the_list_changes(self, store: Store):
        for number in range(12):
            store.session(f"s{number:02}", pinned=number % 3 == 0)
        unchanged_ids = [f"s{number:02}" for number in range(12) if number not in (0, 3, 7)]
        listed_ids: list[str] = []
        page = store.list_sessions(2, pinned_first=True)
        for step in itertools.count():
            listed_ids += [session.id for session in page]
            if page.next is None:
                break
            store.session(f"new{step}")
            store.session("s07")
            if step == 0:
                assert listed_ids == ["s09", "s06"]
                store.session("s09").update(pinned=False)
                store.session("s03").update(pinned=False)
            if step == 2:
                store.session("s00").update(title="renamed")
            page = store.list_sessions(2, after=page.next, pinned_first=True)
        assert len(listed_ids) == len(set(listed_ids))
        assert [id for id in unchanged_ids if id not in listed_ids] == []

    def test_a_cursor_belongs_to_its_order(self, store: Store):
        fill_store(store)
        cursor = store.list_sessions(2).next
        title_cursor = store.list_sessions(2, order="title").next
        pinned_cursor = store.list_sessions(3, pinned_first=True).next
        wrong: list[tuple[str | None, dict[str, Any]]] = [
            (cursor, {"order": "title"}), (cursor, {"order": "created"}), (cursor, {"deleted": True}),
            (title_cursor, {}), (pinned_cursor, {}),
        ]  # fmt: skip
        for after, arguments in wrong:
            with pytest.raises(InvalidValue):
                store.list_sessions(2, after=after, **arguments)
        for invalid in ("W10", "eyJhIjoxfQ", "bnVsbA", "é", "[]", "WyJhIiwwLCJ4IiwxXQ", "WyJhIiwwLC0xLDFd", 5, b"x"):
            with pytest.raises(InvalidValue):
                store.list_sessions(2, after=invalid)  # type: ignore[arg-type]

    def test_invalid_filters_are_refused(self, store: Store):
        invalid: list[dict[str, Any]] = [
            {"status": "done"}, {"role": "robot"}, {"channel": 5}, {"model": b"x"}, {"tool": ["x"]}, {"parent": 1},
            {"archived": "yes"}, {"open_turn": 1}, {"pinned": 2}, {"delegates": "only"}, {"channel": "\ud800"},
            {"order": "deleted"}, {"limit": True},
        ]  # fmt: skip
        for arguments in invalid:
            with pytest.raises(InvalidValue):
                store.list_sessions(**arguments)
        for hostile in ("' OR 1=1 --", "\0", "%", "💥"):
            assert list_ids(store, channel=hostile) == []

    def test_sessions_with_an_open_turn_are_listed(self, store: Store, database: DatabaseUnderTest):
        for id in ("idle", "busy", "done", "deleted"):
            store.session(id)
        turns = [store.session(id).turn("q") for id in ("busy", "done", "deleted")]
        store.session("busy").fork(id="fork")
        turns[1].complete()
        store.delete_session("deleted")
        other = database.open()
        for options in ({}, {"order": "created"}, {"order": "title"}, {"pinned_first": True}, {"status": "active"}):
            assert list_ids(other, open_turn=True, **options) == ["busy"], options
            assert set(list_ids(other, open_turn=False, **options)) == {"idle", "done", "fork"}, options
        assert list_ids(other, open_turn=True, deleted=True) == ["deleted"]
        assert list_ids(other, open_turn=True, since=store.session("busy").info.active_at_ms + 1) == []
        turns[0].complete()
        assert list_ids(other, open_turn=True) == []

    def test_many_messages_do_not_change_the_entry_in_the_list(self, store: Store):
        session = store.session("a")
        session.append(numbered_messages(30))
        entry = store.list_sessions()[0]
        assert (entry.message_count, entry.info) == (30, session.refresh().info)
