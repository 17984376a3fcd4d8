"""Lists and searches with random filters, orders and page sizes return what a filter in Python returns, on each engine.

The sessions get random labels, metadata, parents and other fields, which later operations change. The clock moves with
every operation, so that the order of a list is defined.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect.errors import InvalidValue
from recollect.model import json
from recollect.model.title import title_sort_key
from recollect.storage import listing
from recollect.storage.operation import Scope

START = 1_763_287_200_000  # milliseconds, an ordinary time
IDS = ("app:1", "app:2", "app:20", "ap", "web:1", "web:ä", "💥", "x")
LABELS = ("a", "b", "é", "two words")
VALUES = (1, 1.0, None, "\0")
TITLES = (None, "", "a", "A", "á", "b")
NAMES = ("k", 'a."b')

labels = st.lists(st.sampled_from(LABELS), max_size=3)
metadata = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {name: st.sampled_from(VALUES) for name in NAMES}, optional={"z": st.just("\ud800"), "\0": st.just(1)}
    ),
)
FIELDS = {
    "labels": labels, "external_id": st.sampled_from([None, "e1", "e2"]), "metadata": metadata,
    "title": st.sampled_from(TITLES), "pinned": st.booleans(), "archived": st.booleans(),
    "status": st.sampled_from(["active", "failed"]), "model": st.sampled_from([None, "m"]),
}  # fmt: skip
parents = st.sampled_from([None, None, *IDS])
relations = st.sampled_from([None, "fork", "delegate"])
ids = st.sampled_from(IDS)
new_sessions = st.tuples(st.just("create"), ids, st.fixed_dictionaries(FIELDS), parents, relations)
operations = st.one_of(
    st.tuples(st.just("update"), ids, st.fixed_dictionaries({}, optional=FIELDS)),
    st.tuples(st.sampled_from(["add_labels", "remove_labels"]), ids, labels),
    st.tuples(st.just("link"), ids, parents, relations),
    st.tuples(st.sampled_from(["delete", "restore", "erase"]), ids),
    new_sessions,
)
histories = st.builds(
    lambda order, created, steps: [
        *(("create", id, *values) for id, values in zip(order, created, strict=True)),
        *steps,
    ],
    st.permutations(IDS),
    st.lists(st.tuples(st.fixed_dictionaries(FIELDS), parents, relations), min_size=len(IDS), max_size=len(IDS)),
    st.lists(operations, max_size=10),
)
flags = st.sampled_from([True, False])
FILTERS = {
    "label": st.sampled_from(LABELS) | labels, "external_id": st.sampled_from(["e1", "e2", "e"]),
    "id_prefix": st.sampled_from(["app:", "app:2", "a", "web:ä", "💥", "z", ""]),
    "metadata": st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), min_size=1, max_size=2),
    "archived": flags, "pinned": flags, "status": st.sampled_from(["active", "failed"]), "model": st.just("m"),
    "deleted": st.booleans(), "delegates": st.booleans(),
}  # fmt: skip
OPTIONS = {
    "pinned_first": st.booleans(), "parent": ids, "relation": st.sampled_from(["fork", "delegate"]),
    "since": st.integers(0, 20), "until": st.integers(0, 20),
}  # fmt: skip


def some_of(choices: dict[str, st.SearchStrategy[Any]], max_size: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return dicts with a few of the entries: more filters at once would rarely match anything."""
    names = st.lists(st.sampled_from(sorted(choices)), max_size=max_size, unique=True)
    return names.flatmap(lambda subset: st.fixed_dictionaries({name: choices[name] for name in subset}))


list_options = st.builds(
    lambda order, oldest_first, others: {"order": order, "oldest_first": oldest_first, **others},
    st.sampled_from(["activity", "created", "title"]), st.booleans(), some_of(OPTIONS, 1),
)  # fmt: skip
queries = st.lists(st.tuples(some_of(FILTERS, 2), list_options, st.integers(1, 5)), min_size=4, max_size=8)


class ModelSession:
    """A session as plain attributes. `created_at` is unique."""

    def __init__(self, id: str, now: int) -> None:
        self.id = id
        self.labels: set[str] = set()
        self.external_id = self.title = self.model = self.metadata = None
        self.status = "active"
        self.pinned = self.archived = False
        self.parent: ModelSession | None = None
        self.relation: str | None = None
        self.created_at = self.active_at = now
        self.deleted_at: int | None = None

    def set_fields(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, set(value or ()) if name == "labels" else value)

    def ancestors(self) -> set[ModelSession]:
        sessions: set[ModelSession] = set()
        session: ModelSession | None = self
        while session is not None and session not in sessions:
            sessions.add(session)
            session = session.parent
        return sessions


class Model:
    """Applies operations to a store and to plain sessions, and lists both."""

    def __init__(self, store: recollect.Store) -> None:
        self.store = store
        self.now = START
        self.sessions: list[ModelSession] = []
        store._scope = lambda: Scope("", "here:1:1", self.now, lambda _: False, store._engine.search_dialect)

    def find(self, id: str | None, *, deleted: bool = False) -> ModelSession | None:
        matches = [s for s in self.sessions if s.id == id and (s.deleted_at is not None) == deleted]
        return max(matches, key=lambda s: s.deleted_at or 0, default=None)

    def apply(self, name: str, id: str, *arguments: Any) -> None:
        self.now += 1
        session = self.find(id)
        if name == "create":
            self.create(id, *arguments)
        elif name == "restore":
            self.restore(id)
        elif session is not None:
            getattr(self, name)(session, *arguments)

    def create(self, id: str, values: dict[str, Any], parent: str | None, relation: str | None) -> None:
        parent_session = self.find(parent)
        link = {} if parent_session is None else {"parent": parent, "relation": relation}
        created = self.find(id) is None
        handle = self.store.session(id, **values, **link)
        if created:
            session = ModelSession(id, self.now)
            session.set_fields(values)
            session.parent = parent_session
            session.relation = None if parent_session is None else relation or "delegate"
            self.sessions.append(session)
            handle.append({"role": "user", "content": "hello"})

    def update(self, session: ModelSession, values: dict[str, Any]) -> None:
        self.handle(session).update(**values)
        session.set_fields(values)

    def add_labels(self, session: ModelSession, new: list[str]) -> None:
        session.labels |= set(new)
        assert self.handle(session).update(add_labels=[*new]).labels == tuple(sorted(session.labels))

    def remove_labels(self, session: ModelSession, old: list[str]) -> None:
        session.labels -= set(old)
        assert self.handle(session).update(remove_labels=[*old]).labels == tuple(sorted(session.labels))

    def link(self, session: ModelSession, parent: str | None, relation: str | None) -> None:
        parent_session = self.find(parent)
        if parent_session is None:
            self.handle(session).update(parent=None)
            session.parent = session.relation = None
        elif session in parent_session.ancestors():
            with pytest.raises(InvalidValue):
                self.handle(session).update(parent=parent, relation=relation)
        else:
            self.handle(session).update(parent=parent, relation=relation)
            session.parent, session.relation = parent_session, relation or session.relation or "delegate"

    def delete(self, session: ModelSession) -> None:
        self.store.delete_session(session.id)
        session.deleted_at = self.now

    def restore(self, id: str) -> None:
        session = self.find(id, deleted=True)
        if session is not None and self.find(id) is None:
            self.store.restore_session(id)
            newest = max((s.active_at for s in self.sessions if s.deleted_at is None), default=None)
            session.active_at += session.active_at == newest
            session.deleted_at = None

    def erase(self, session: ModelSession) -> None:
        self.store.erase_session(session.id)
        self.sessions.remove(session)
        for other in self.sessions:
            if other.parent is session:
                other.parent = None

    def handle(self, session: ModelSession) -> recollect.Session:
        handle = self.store.get_session(session.id)
        assert handle is not None
        return handle

    def matches(self, session: ModelSession, filters: dict[str, Any]) -> bool:
        """Return whether a session passes the filters that lists and searches share."""
        filter_labels = filters.get("label", [])
        values = session.metadata or {}
        return (
            (session.deleted_at is not None) == filters.get("deleted", False)
            and set([filter_labels] if isinstance(filter_labels, str) else filter_labels) <= session.labels
            and filters.get("external_id") in (None, session.external_id)
            and session.id.startswith(filters.get("id_prefix", ""))
            and all(
                name in values and json.encode(values[name]) == json.encode(value)
                for name, value in filters.get("metadata", {}).items()
            )
            and filters.get("archived") in (None, session.archived)
            and filters.get("pinned") in (None, session.pinned)
            and filters.get("status") in (None, session.status)
            and filters.get("model") in (None, session.model)
        )

    def expected(self, filters: dict[str, Any], options: dict[str, Any]) -> list[str]:
        deleted, order = filters.get("deleted", False), options["order"]
        field = "deleted_at" if deleted else {"created": "created_at"}.get(order, "active_at")
        low, high = (options.get(name) for name in ("since", "until"))
        sessions = [s for s in self.sessions if self.matches(s, filters)]
        sessions = [s for s in sessions if self.is_related(s, options, delegates=filters.get("delegates", False))]
        sessions = [
            s for s in sessions
            if (low is None or getattr(s, field) >= START + low) and (high is None or getattr(s, field) < START + high)
        ]  # fmt: skip
        sessions.sort(key=lambda s: (getattr(s, field), s.created_at), reverse=True)
        if order == "title" and not deleted:
            with_title = [s for s in sessions if s.title is not None]
            with_title.sort(key=lambda s: (title_sort_key(s.title or ""), s.created_at))
            sessions = with_title + [s for s in sessions if s.title is None]
        if options["oldest_first"]:
            sessions.reverse()
        if options.get("pinned_first") and filters.get("pinned") is None:
            sessions.sort(key=lambda s: not s.pinned)
        return [s.id for s in sessions]

    def is_related(self, session: ModelSession, options: dict[str, Any], *, delegates: bool) -> bool:
        if "parent" in options:
            parent = self.find(options["parent"]) or self.find(options["parent"], deleted=True)
            if parent is None or session.parent is not parent:
                return False
            if "relation" not in options:
                return (session.relation == "delegate") == delegates
        if "relation" in options:
            return session.relation == options["relation"]
        return delegates or session.relation != "delegate"

    def check_list(self, filters: dict[str, Any], options: dict[str, Any], limit: int) -> None:
        arguments = {"archived": None, **filters, **options}
        arguments |= {name: START + options[name] for name in ("since", "until") if name in options}
        listed_ids: list[str] = []
        after = None
        while True:
            page = self.store.list_sessions(limit, after=after, **arguments)
            listed_ids += [session.id for session in page]
            after = page.next
            if after is None:
                break
            assert len(page) == limit
        assert listed_ids == self.expected(filters, options), arguments

    def check_search(self, filters: dict[str, Any]) -> None:
        expected = sorted(
            s.id for s in self.sessions
            if self.matches(s, filters) and (filters.get("delegates", False) or s.relation != "delegate")
        )  # fmt: skip
        assert sorted(hit.session for hit in self.store.search("hello", 100, **filters)) == expected, filters
        filter_labels = filters.get("label", [])
        typed = " ".join(
            f'label:"{label}"' for label in ([filter_labels] if isinstance(filter_labels, str) else filter_labels)
        )
        others = {name: value for name, value in filters.items() if name != "label"}
        assert sorted(hit.session for hit in self.store.search(f"hello {typed}", 100, **others)) == expected, filters


def compare(store: recollect.Store, steps: list[Any], lists: list[Any], sort_limit: int) -> None:
    model = Model(store)
    for step in steps:
        model.apply(*step)
    before, listing._SORT_LIMIT = listing._SORT_LIMIT, sort_limit
    try:
        for filters, options, limit in lists:
            model.check_list(filters, options, limit)
            model.check_search(filters)
    finally:
        listing._SORT_LIMIT = before
    assert store.maintenance.check(file=False).problems == ()
    for session in model.sessions:
        if session.deleted_at is None:
            info = model.handle(session).info
            assert (info.labels, info.relation) == (tuple(sorted(session.labels)), session.relation)
            assert info.parent == (None if session.parent is None else session.parent.id)
            assert info.delegate_count == sum(
                s.parent is session and s.relation == "delegate" and s.deleted_at is None for s in model.sessions
            )


examples = given(steps=histories, lists=queries, sort_limit=st.sampled_from([0, 2, listing._SORT_LIMIT]))


@settings(max_examples=100, deadline=None)
@examples
def test_lists_and_searches_equal_the_model_on_sqlite(steps, lists, sort_limit):
    with recollect.open(":memory:") as store:
        compare(store, steps, lists, sort_limit)


def test_lists_and_searches_equal_the_model_on_postgres(databases, long):
    @settings(max_examples=100 if long else 25, deadline=None, suppress_health_check=list(HealthCheck))
    @examples
    def compare_on_postgres(steps, lists, sort_limit):
        databases.wipe()
        with recollect.open(databases.url_of(databases.common, "plain")) as store:
            compare(store, steps, lists, sort_limit)

    with databases.pools.reuse():
        compare_on_postgres()
