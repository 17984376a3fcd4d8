"""Filters of lists and searches: label, external id, id prefix and metadata field; and lists in the reverse order."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from recollect.errors import AmbiguousName, InvalidValue, SessionNotFound
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest, list_all_sessions
from recollect_conformance.examples import NAN, user

ORDERS = ("activity", "created", "title")
HOSTILE_TEXTS = ("' OR 1=1 --", "\0", "%", "_", "💥", "\x10", "\\", '"', "", " ")
# Values that JSON functions of databases convert, and fields that look like paths.
VALUES = (
    "x", "", "é", "💥", "\0", "a\0b", "\x10", "\ud800", "\ud83d\ude00", "\\u0000", "\uffff0000", '"', "\\", "1", "null",
    0, 1, -1, 2**63, 10**30, 10**30 + 1, 1.0, 0.1, 0.1 + 0.2, 1e16, 1e300, -0.0, True, False, None,
)  # fmt: skip
FIELDS = (
    "a",
    "",
    "a.b",
    "[0]",
    "0",
    "$",
    "$.a",
    'a"b',
    "a\\b",
    'a\\"b',
    "é",
    "💥",
    "\x01",
    "\x10",
    "a b",
    "\n",
    "\\u0041",
)


def list_ids(store: Store, **filters: Any) -> list[str]:
    """Return the ids of a complete list."""
    return [session.id for session in list_all_sessions(store, **filters)]


def search_ids(store: Store, query: str, **filters: Any) -> list[str]:
    """Return the sessions of the hits of a search, sorted."""
    return sorted({hit.session for hit in store.search(query, 100, **filters)})


def fill_store(store: Store) -> None:
    """Fill a store with sessions that differ in the fields of the filters."""
    store.session("app:1", labels=["x"], external_id="e1", metadata={"user": "ann", "n": 1}, title="Zebra")
    store.session("app:2", labels=["x", "y"], external_id="e2", metadata={"user": "bob", "n": 1}, title="Ant")
    store.session("app:20", labels=["y"], external_id="e1", metadata={"user": "ann"})
    store.session("apq", metadata={"user": None, "deep": {"user": "ann"}}, pinned=True, title="Bee")
    store.session("Other", labels=["z"], archived=True)
    for session in list_all_sessions(store, archived=None):
        session.append(user("hello"))


class TestFilters:
    """Lists and searches in the sessions with a label, an external id, an id prefix or a metadata field."""

    def test_each_filter(self, store: Store):
        fill_store(store)
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({"label": "x"}, ["app:1", "app:2"]),
            ({"label": ["x"]}, ["app:1", "app:2"]),
            ({"label": ("y", "x", "y")}, ["app:2"]),
            ({"label": ["x", "z"]}, []),
            ({"label": []}, ["Other", "app:1", "app:2", "app:20", "apq"]),
            ({"label": "X"}, []),
            ({"label": ["x", *(f"l{number}" for number in range(1_000))]}, []),
            ({"label": "z"}, ["Other"]),
            ({"external_id": "e1"}, ["app:1", "app:20"]),
            ({"external_id": "e"}, []),
            ({"id_prefix": "app:"}, ["app:1", "app:2", "app:20"]),
            ({"id_prefix": "app:2"}, ["app:2", "app:20"]),
            ({"id_prefix": "APP"}, []),
            ({"id_prefix": ""}, ["Other", "app:1", "app:2", "app:20", "apq"]),
            ({"id_prefix": "app:20" * 200}, []),
            ({"metadata": {"user": "ann"}}, ["app:1", "app:20"]),
            ({"metadata": {"user": "ann", "n": 1}}, ["app:1"]),
            ({"metadata": {"user": "ann", "n": 2}}, []),
            ({"metadata": {"user": None}}, ["apq"]),
            ({"metadata": {"missing": None}}, []),
            ({"metadata": {}}, ["Other", "app:1", "app:2", "app:20", "apq"]),
            ({"label": "x", "external_id": "e1", "id_prefix": "app", "metadata": {"n": 1}}, ["app:1"]),
            ({"label": "y", "metadata": {"user": "ann"}, "pinned": False}, ["app:20"]),
        ]
        for filters, expected in cases:
            assert sorted(list_ids(store, archived=None, **filters)) == expected, filters
            assert search_ids(store, "hello", **filters) == expected, filters

    def test_the_trash_is_filtered_too(self, store: Store):
        fill_store(store)
        for id in ("app:1", "app:2"):
            store.delete_session(id)
        assert list_ids(store, label="y") == ["app:20"]
        for filters in ({"label": "x"}, {"id_prefix": "app:"}, {"metadata": {"n": 1}}):
            assert list_ids(store, deleted=True, **filters) == ["app:2", "app:1"]
            assert search_ids(store, "hello", deleted=True, **filters) == ["app:1", "app:2"]
        assert list_ids(store, deleted=True, external_id="e2") == ["app:2"]

    def test_a_changed_field_changes_the_lists(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a", external_id="old", metadata={"k": 1})
        session.append(user("hello"))
        session.update(external_id="new", metadata={"k": 2})
        store = database.reopen()
        for filters in ({"external_id": "old"}, {"metadata": {"k": 1}}):
            assert (list_ids(store, **filters), search_ids(store, "hello", **filters)) == ([], [])
        for filters in ({"external_id": "new"}, {"metadata": {"k": 2}}):
            assert (list_ids(store, **filters), search_ids(store, "hello", **filters)) == (["a"], ["a"])

    def test_a_label_in_a_query(self, store: Store):
        fill_store(store)
        cases = {
            "hello label:x": ["app:1", "app:2"],
            "label:x": ["app:1", "app:2"],
            "label:x label:y hello": ["app:2"],
            "hello -label:x": ["Other", "app:20", "apq"],
            "hello NOT label:x label:y": ["app:20"],
            'label:"y" zebra': [],
            "zebra label:x": ["app:1"],
            "label:missing": [],
        }
        for query, expected in cases.items():
            assert search_ids(store, query) == expected, query
        assert search_ids(store, "hello label:x", label="y") == ["app:2"]
        assert search_ids(store, "hello -label:x", label="x") == []
        store.session("spaces", labels=["two words", "ünï:code"]).append(user("hello"))
        assert search_ids(store, 'hello label:"two words"') == ["spaces"]
        assert search_ids(store, "hello label:ünï:code") == ["spaces"]
        assert search_ids(store, "", label="two words") == ["spaces"]

    def test_a_fork_with_a_label_is_a_hit_of_shared_messages(self, store: Store):
        session = store.session("a")
        session.append(user("hello"))
        session.fork(id="fork", labels=["x"])
        assert search_ids(store, "hello", label="x") == ["fork"]
        assert search_ids(store, "hello", session="a", label="x") == []

    def test_hostile_texts_match_nothing(self, store: Store):
        store.session("a", labels=["x"], external_id="x", metadata={"x": "x"}).append(user("hello"))
        for text in HOSTILE_TEXTS:
            filters: list[dict[str, Any]] = [{"label": text}, {"external_id": text}, {"metadata": {"x": text}}]
            filters += [{"label": ["x", text]}] + ([{"id_prefix": text}] if text else [])
            for arguments in filters:
                assert list_ids(store, **arguments) == [], arguments
                assert search_ids(store, "hello", **arguments) == [], arguments

    def test_an_id_prefix_of_any_characters(self, store: Store):
        ids = ("a", "a!", "a~", "aa", "aé", "a💥", "a💥z", "a\U0002ebe0", "b", "A")
        for id in ids:
            store.session(id)
        for prefix in ("a", "a💥", "aé", "b", "a~", "c"):
            assert sorted(list_ids(store, id_prefix=prefix)) == sorted(id for id in set(ids) if id.startswith(prefix))

    def test_metadata_is_compared_exactly(self, store: Store):
        """A value matches an equal value of the same type: not 1 for 1.0, for True or for "1"."""
        for number, value in enumerate(VALUES):
            store.session(f"plain{number:02}", metadata={"k": value, "other": ["x", {"k": "x"}]})
            # A lone surrogate changes how all values next to it are stored.
            store.session(f"rare{number:02}", metadata={"a\0": "\ud800", "k": value, "z": "\ud83d\uffff\ude00"})
        store.session("nested", metadata={"list": ["x"], "object": {"k": "x"}, "k ": "x", "kk": "x"})
        store.session("without")
        for number, value in enumerate(VALUES):
            expected = [f"rare{number:02}", f"plain{number:02}"]
            assert list_ids(store, metadata={"k": value}) == expected, value
        assert list_ids(store, metadata={"k": "\ud83d\uffff\ude00"}) == []

    def test_a_field_may_have_any_name(self, store: Store):
        for number, name in enumerate(FIELDS):
            others = {other: "other" for other in FIELDS if other != name}
            store.session(f"plain{number:02}", metadata={**others, name: "this"})
            store.session(f"rare{number:02}", metadata={**others, name: "this", "\ud800": 1, "\0": 1})
        for number, name in enumerate(FIELDS):
            expected = [f"rare{number:02}", f"plain{number:02}"]
            assert list_ids(store, metadata={name: "this"}) == expected, name

    def test_a_field_whose_name_contains_nul_is_another_field(self, store: Store):
        store.session("nul", metadata={"a\0b": 1, "\0": 2})
        store.session("both", metadata={"a\0b": 1, "a": 2, "": 3})
        for session in ("nul", "both"):
            store.session(session).append({"role": "user", "content": "needle"})
        expected = {"a": (2, ["both"]), "": (3, ["both"]), "b": (1, []), "a\\u0000b": (1, [])}
        for name, (value, ids) in expected.items():
            assert list_ids(store, metadata={name: value}) == ids, name
            assert [hit.session for hit in store.search("needle", metadata={name: value})] == ids, name
        assert list_ids(store, metadata={"a": 1}) == list_ids(store, metadata={"": 2}) == []

    def test_invalid_filters_are_refused(self, store: Store):
        invalid: list[dict[str, Any]] = [
            {"label": 5}, {"label": ["a", 5]}, {"label": "\ud800"}, {"label": b"a"}, {"external_id": 5},
            {"external_id": "\ud800"}, {"id_prefix": 5}, {"id_prefix": b"a"}, {"id_prefix": "\ud800"},
            {"metadata": "a"}, {"metadata": [("a", 1)]}, {"metadata": {1: 2}}, {"metadata": {"a": [1]}},
            {"metadata": {"a": {}}}, {"metadata": {"a": NAN}}, {"metadata": {"a": b"x"}}, {"metadata": {"a\0": 1}},
            {"metadata": {"\ud800": 1}},
        ]  # fmt: skip
        for arguments in invalid:
            with pytest.raises(InvalidValue):
                store.list_sessions(**arguments)
            with pytest.raises(InvalidValue):
                store.search("x", **arguments)
        with pytest.raises(InvalidValue):
            store.list_sessions(oldest_first=cast("Any", Undecided()))

    def test_find_by_external_id(self, store: Store):
        store.session("a", external_id="thread-1", title="b")
        store.session("b", external_id="a")
        store.session("thread-10", external_id="c", title="C")
        store.session("c2", external_id="c")
        assert store.find_session("thread-1").id == "a"
        assert store.find_session("a").id == "a"  # an id comes before an external id
        assert store.find_session("b").id == "b"
        with pytest.raises(AmbiguousName) as error:
            store.find_session("c")
        assert error.value.fields["sessions"] == ("thread-10", "c2")
        store.delete_session("a")
        with pytest.raises(SessionNotFound):
            store.find_session("thread-1x")
        assert store.find_session("thread-1").id == "thread-10"  # a prefix


class TestReversedLists:
    """`oldest_first` reverses every order."""

    @pytest.mark.parametrize("order", ORDERS)
    def test_pages_of_every_size_join(self, store: Store, order: str):
        fill_store(store)
        forward = list_ids(store, order=order, archived=None)
        filter_sets: tuple[dict[str, Any], ...] = (
            {}, {"label": "x"}, {"id_prefix": "app:"}, {"metadata": {"user": "ann"}}, {"pinned": False},
        )  # fmt: skip
        for filters in filter_sets:
            matches = set(list_ids(store, archived=None, **filters))
            expected = [id for id in reversed(forward) if id in matches]
            for limit in range(1, 7):
                ids: list[str] = []
                after = None
                while not ids or after is not None:
                    page = store.list_sessions(
                        limit, after=after, order=cast("Any", order), oldest_first=True, archived=None, **filters
                    )
                    ids += [session.id for session in page]
                    after = page.next
                assert ids == expected, (filters, limit)

    def test_the_trash_first_deleted_first(self, store: Store):
        for id in ("a", "b", "c"):
            store.session(id)
        for id in ("b", "c", "a"):
            store.delete_session(id)
            time.sleep(0.002)  # sessions that were deleted in the same millisecond are in the order of their keys
        assert list_ids(store, deleted=True) == ["a", "c", "b"]
        assert list_ids(store, deleted=True, oldest_first=True) == ["b", "c", "a"]
        assert [session.id for session in store.list_sessions(2, deleted=True, oldest_first=True)] == ["b", "c"]

    def test_pinned_sessions_come_first_in_both_directions(self, store: Store):
        for number in range(6):
            store.session(f"s{number}", pinned=number in (1, 4), title="T" if number % 2 else None)
        reversed_list = {"pinned_first": True, "oldest_first": True}
        assert list_ids(store, **reversed_list) == ["s1", "s4", "s0", "s2", "s3", "s5"]
        assert list_ids(store, order="created", **reversed_list) == ["s1", "s4", "s0", "s2", "s3", "s5"]
        assert list_ids(store, order="title", **reversed_list) == ["s4", "s1", "s0", "s2", "s5", "s3"]

    def test_times_bound_a_reversed_list(self, store: Store):
        for id in ("a", "b", "c", "d"):
            store.session(id)
        times = {session.id: session.active_at for session in list_all_sessions(store)}
        for order in ("activity", "title"):
            filters: dict[str, Any] = {"order": order, "oldest_first": True}
            assert list_ids(store, since=times["b"], **filters) == ["b", "c", "d"]
            assert list_ids(store, until=times["c"], **filters) == ["a", "b"]
            assert list_ids(store, since=times["b"], until=times["d"], **filters) == ["b", "c"]
            page = store.list_sessions(1, since=times["b"], **filters)
            second = store.list_sessions(1, since=times["b"], until=times["d"], after=page.next, **filters)
            assert ([session.id for session in second], second.next) == (["c"], None)

    def test_a_cursor_belongs_to_its_direction(self, store: Store):
        fill_store(store)
        for order in ORDERS:
            forward = store.list_sessions(1, order=cast("Any", order)).next
            backward = store.list_sessions(1, order=cast("Any", order), oldest_first=True).next
            assert forward is not None
            assert backward is not None
            with pytest.raises(InvalidValue, match="is not a cursor of this list"):
                store.list_sessions(1, order=cast("Any", order), after=backward)
            with pytest.raises(InvalidValue, match="is not a cursor of this list"):
                store.list_sessions(1, order=cast("Any", order), after=forward, oldest_first=True)

    def test_pages_neither_skip_nor_repeat_while_the_list_changes(self, store: Store):
        for number in range(8):
            store.session(f"s{number}")
        pages: list[str] = []
        page = store.list_sessions(2, oldest_first=True)
        while True:
            pages += [session.id for session in page]
            if page.next is None:
                break
            if len(pages) == 2:
                store.session("s0").append(user("x"))  # already listed, and now the newest
                store.session("new")
                store.delete_session("s3")
            page = store.list_sessions(2, after=page.next, oldest_first=True)
        assert pages == ["s0", "s1", "s2", "s4", "s5", "s6", "s7", "s0", "new"]


class Undecided:
    """An object without a truth value."""

    def __bool__(self) -> bool:
        raise RuntimeError("no")
