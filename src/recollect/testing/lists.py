"""Lists of sessions: orders, filters, pages that join while the list moves, sub-agents under their parent."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.store import Store
from recollect.testing.place import Place, listed
from recollect.testing.talk import answers, asks, numbered, user


def ids(store: Store, **arguments: Any) -> list[str]:
    """Give the ids of a whole list."""
    return [session.id for session in listed(store, **arguments)]


def paged(store: Store, limit: int, **arguments: Any) -> list[str]:
    """Give the ids of a whole list, read in pages of a size."""
    found: list[str] = []
    page = store.list_sessions(limit, **arguments)
    while True:
        assert len(page) <= limit
        found += [session.id for session in page]
        if page.next is None:
            return found
        assert len(page) == limit
        page = store.list_sessions(limit, after=page.next, **arguments)


def shelf(store: Store) -> None:
    """Fill a store with sessions that differ in everything a list can ask about."""
    store.session("cli:a", model="m1", title="Zebra")
    store.session("cli:b", model="m2", pinned=True, title="élan")
    store.session("web:c", model="m1", archived=True, title="Apple")
    store.session("web:d", title="apple", status="failed")
    store.session("web:e", status="completed")
    store.session("cli:f", pinned=True)
    store.session("cli:g", title="Eland")


class TestLists:
    """What a list shows, and in which order."""

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
        found = [session.title for session in listed(store, order="title")]
        assert found == [
            "", "ångström", "Äpfel", "apfel 2", "banana", "élan", "Eland", "ﬁn", "øre", "STRASSE", "straße 2", "Zoo",
            None, None,
        ]  # fmt: skip
        assert ids(store, order="title")[-2:] == ["neither", "none"]

    def test_a_renamed_session_is_listed_under_its_new_title(self, store: Store, place: Place):
        session = store.session("a", title="Zoo")
        store.session("b", title="middle")
        assert ids(store, order="title") == ["b", "a"]
        session.update(title="Ant")
        assert ids(store, order="title") == ["a", "b"]
        session.update(title=None)
        assert ids(place.reopen(), order="title") == ["b", "a"]
        store = place.open()
        store.session("a").update(title="Äther")
        fork = store.session("a").fork(id="f")
        assert ids(store, order="title") == ["a", "f", "b"]
        fork.update(color="red")
        store.delete_session("a")
        assert ids(store, order="title") == ["f", "b"]
        store.restore_session("a")
        assert ids(store, order="title") == ["a", "f", "b"]
        store.erase_session("a", forks="keep")
        assert ids(store, order="title") == ["f", "b"]

    def test_pinned_first(self, store: Store):
        shelf(store)
        assert ids(store, pinned_first=True) == ["cli:f", "cli:b", "cli:g", "web:e", "web:d", "cli:a"]
        assert ids(store, pinned_first=True, order="title") == ["cli:b", "cli:f", "web:d", "cli:g", "cli:a", "web:e"]
        assert ids(store, pinned_first=True, pinned=False) == ["cli:g", "web:e", "web:d", "cli:a"]
        assert ids(store, pinned_first=True, pinned=True) == ["cli:f", "cli:b"]
        assert ids(store, pinned_first=True, order="created", channel="cli") == ["cli:f", "cli:b", "cli:g", "cli:a"]

    @pytest.mark.parametrize("order", ["activity", "created", "title"])
    @pytest.mark.parametrize("pinned_first", [False, True])
    def test_pages_of_every_size_join(self, store: Store, order: str, pinned_first: bool):
        shelf(store)
        whole = ids(store, order=order, pinned_first=pinned_first, archived=None)
        assert sorted(whole) == ["cli:a", "cli:b", "cli:f", "cli:g", "web:c", "web:d", "web:e"]
        for limit in range(1, 9):
            assert paged(store, limit, order=order, pinned_first=pinned_first, archived=None) == whole
            for channel in ("cli", "web"):
                some = [id for id in whole if id.startswith(channel)]
                arguments = {"order": order, "pinned_first": pinned_first, "archived": None, "channel": channel}
                assert paged(store, limit, **arguments) == some

    def test_every_pair_of_filters(self, store: Store):
        shelf(store)
        store.session("cli:a").append([asks("1"), answers("1")])
        store.session("web:d").append(user("x"))
        everything = listed(store, archived=None)
        asked: dict[str, tuple[Any, Any]] = {
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
        for one, other in itertools.combinations_with_replacement(asked, 2):
            chosen = {"archived": None, one: asked[one][0], other: asked[other][0]}
            wanted = [s.id for s in everything if asked[one][1](s) and asked[other][1](s)]
            assert ids(store, **chosen) == wanted, chosen
            assert sorted(ids(store, order="title", **chosen)) == sorted(wanted), chosen
            assert paged(store, 1, pinned_first=True, **chosen) == ids(store, pinned_first=True, **chosen)

    def test_role_and_tool_of_what_was_said_in_it(self, store: Store):
        session = store.session("a")
        session.append([{"role": "system", "content": "s"}, user("u"), asks("1", tool="grep"), answers("1")])
        store.session("b").append(asks("2"))
        fork = session.fork(id="f")
        assert ids(store, tool="grep") == ["a"]
        assert ids(store, tool="read_file") == ["b"]
        assert ids(store, tool="none") == []
        assert ids(store, role="system") == ["a"]
        assert ids(store, role="tool") == ["a"]
        fork.append(asks("3", tool="grep"))
        assert ids(store, tool="grep") == ["f", "a"]
        session.delete_message("1.1")
        assert ids(store, role="system") == []

    def test_times_in_every_form(self, store: Store):
        first = store.session("a")
        store.session("b")
        second = store.get_session("b")
        assert second is not None
        moment = datetime.datetime.fromtimestamp(second.active_at / 1000, tz=datetime.UTC)
        for since in (second.active_at, moment, moment.isoformat(), second.to_dict()["active_at"]):
            assert ids(store, since=since) == ["b"]
            assert ids(store, until=since) == ["a"]
            assert ids(store, since=since, until=since) == []
        berlin = datetime.timezone(datetime.timedelta(hours=1))
        assert ids(store, since=moment.astimezone(berlin)) == ["b"]
        assert ids(store, since=moment.replace(tzinfo=None)) == ["b"]
        assert ids(store, since="2020-01-01") == ["b", "a"]
        assert ids(store, since=datetime.date(2020, 1, 1)) == ["b", "a"]
        assert ids(store, until="2020-01-01T00:00Z") == []
        assert ids(store, order="created", until=first.created_at) == []
        assert ids(store, order="title", since=second.active_at) == ["b"]
        store.delete_session("b")
        assert ids(store, deleted=True, since=second.active_at) == ["b"]
        assert ids(store, deleted=True, until=second.active_at) == []
        odd: Any
        for odd in ("yesterday", "", -1, 1.5, True, [], 1 << 60, "2025-13-01"):
            for name in ("since", "until"):
                with pytest.raises(InvalidValue):
                    store.list_sessions(**{name: odd})

    def test_sub_agents_are_counted_under_their_parent_and_listed_on_request(self, store: Store):
        parent = store.session("main")
        for agent in ("coder", "tester", "writer"):
            store.session(f"main:delegate:{agent}", parent="main")
        store.session("main:delegate:coder:delegate:helper", parent="main:delegate:coder")
        fork = parent.fork(id="fork")
        assert parent.refresh().delegate_count == 3
        assert fork.delegate_count == 0
        assert {session.id: session.delegate_count for session in listed(store)} == {"fork": 0, "main": 3}
        assert ids(store, parent="main", delegates=True) == [
            "main:delegate:writer", "main:delegate:tester", "main:delegate:coder",
        ]  # fmt: skip
        assert ids(store, parent="main:delegate:coder", delegates=True) == ["main:delegate:coder:delegate:helper"]
        assert ids(store, parent="main") == ["fork"]
        assert len(ids(store, parent="main", delegates=None)) == 4
        assert paged(store, 2, parent="main", delegates=True) == ids(store, parent="main", delegates=True)
        assert len(ids(store, delegates=True)) == len(ids(store, delegates=None)) == 6
        store.delete_session("main:delegate:tester")
        assert parent.refresh().delegate_count == 2
        assert "main:delegate:tester" not in ids(store, parent="main", delegates=True)
        store.restore_session("main:delegate:tester")
        store.erase_session("main:delegate:writer")
        assert parent.refresh().delegate_count == 2
        with pytest.raises(SessionNotFound):
            store.list_sessions(parent="nobody")
        assert parent.to_dict()["delegate_count"] == 2

    def test_more_than_a_few_are_listed_the_same(self, store: Store):
        """Beyond some number the list is walked instead of sorted; the pages must join there too."""
        for number in range(30):
            store.session(f"web:{number}", title=f"t{number % 7}", model="rare" if number % 10 == 0 else "common")
        assert ids(store, model="rare") == ["web:20", "web:10", "web:0"]
        assert len(paged(store, 4, model="common")) == 27

    def test_nothing_is_skipped_or_shown_twice_while_the_list_moves(self, store: Store):
        for number in range(12):
            store.session(f"s{number:02}", pinned=number % 3 == 0)
        still = [f"s{number:02}" for number in range(12) if number not in (0, 3, 7)]
        seen: list[str] = []
        page = store.list_sessions(2, pinned_first=True)
        for step in itertools.count():
            seen += [session.id for session in page]
            if page.next is None:
                break
            store.session(f"new{step}")
            store.session("s07")
            if step == 0:
                assert seen == ["s09", "s06"]
                store.session("s09").update(pinned=False)
                store.session("s03").update(pinned=False)
            if step == 2:
                store.session("s00").update(title="renamed")
            page = store.list_sessions(2, after=page.next, pinned_first=True)
        assert len(seen) == len(set(seen))
        assert [id for id in still if id not in seen] == []

    def test_a_place_belongs_to_its_order(self, store: Store):
        shelf(store)
        place = store.list_sessions(2).next
        titled = store.list_sessions(2, order="title").next
        pinned = store.list_sessions(3, pinned_first=True).next
        wrong: list[tuple[str | None, dict[str, Any]]] = [
            (place, {"order": "title"}), (place, {"order": "created"}), (place, {"deleted": True}),
            (titled, {}), (pinned, {}),
        ]  # fmt: skip
        for after, arguments in wrong:
            with pytest.raises(InvalidValue):
                store.list_sessions(2, after=after, **arguments)
        for odd in ("W10", "eyJhIjoxfQ", "bnVsbA", "é", "[]", "WyJhIiwwLCJ4IiwxXQ", "WyJhIiwwLC0xLDFd", 5, b"x"):
            with pytest.raises(InvalidValue):
                store.list_sessions(2, after=odd)  # type: ignore[arg-type]

    def test_odd_filters_are_refused(self, store: Store):
        odd: list[dict[str, Any]] = [
            {"status": "done"}, {"role": "robot"}, {"channel": 5}, {"model": b"x"}, {"tool": ["x"]}, {"parent": 1},
            {"archived": "yes"}, {"pinned": 2}, {"delegates": "only"}, {"channel": "\ud800"},
            {"order": "deleted"}, {"limit": True},
        ]  # fmt: skip
        for arguments in odd:
            with pytest.raises(InvalidValue):
                store.list_sessions(**arguments)
        for hostile in ("' OR 1=1 --", "\0", "%", "💥"):
            assert ids(store, channel=hostile) == []

    def test_a_long_talk_does_not_change_its_line_in_the_list(self, store: Store):
        session = store.session("a")
        session.append(numbered(30))
        line = store.list_sessions()[0]
        assert (line.message_count, line.info) == (30, session.refresh().info)
