"""A list with any filters and page size returns the same sessions as a filter over all sessions in Python."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recollect
from recollect.model.title import title_sort_key

titles = st.sampled_from([None, "", "a", "A", "á", "b", "Z", "z", "ß", "ss"])
session_shapes = st.fixed_dictionaries(
    {
        "channel": st.sampled_from(["cli", "web"]), "model": st.sampled_from([None, "m", "n"]), "title": titles,
        "status": st.sampled_from(["active", "failed"]), "pinned": st.booleans(), "archived": st.booleans(),
        "delegate": st.booleans(), "deleted": st.booleans(),
    }
)  # fmt: skip
flags = st.sampled_from([None, True, False])
filter_sets = st.fixed_dictionaries(
    {
        "archived": flags, "pinned": flags, "channel": st.sampled_from([None, "cli", "web"]),
        "model": st.sampled_from([None, "m"]), "status": st.sampled_from([None, "active", "failed"]),
        "delegates": st.booleans(), "deleted": st.booleans(), "pinned_first": st.booleans(),
        "order": st.sampled_from(["activity", "created", "title"]),
    }
)  # fmt: skip


@pytest.fixture(scope="module", params=["few", "many"])
def threshold(request):
    """Run each test with sorting after filtering, and with a scan of the list: both must return the same sessions."""
    from recollect.storage import listing

    before = listing._SORT_LIMIT
    listing._SORT_LIMIT = before if request.param == "few" else 0
    yield
    listing._SORT_LIMIT = before


def fill(store, shapes):
    store.session("top", title="top")
    for number, shape in enumerate(shapes):
        fields = {name: value for name, value in shape.items() if name not in ("delegate", "deleted")}
        name = f"top:delegate:{number}" if shape["delegate"] else f"s{number}"
        store.session(name, parent="top" if shape["delegate"] else None, **fields)
        if shape["deleted"]:
            store.delete_session(name)


def expected_ids(store, filters):
    """Filter and sort all sessions in Python, and return their ids."""
    sessions = store.list_sessions(1_000, archived=None, delegates=True, deleted=filters["deleted"])
    for name, field in (("archived", "archived_at"), ("pinned", "pinned_at")):
        if filters[name] is not None:
            sessions = [session for session in sessions if (getattr(session, field) is not None) == filters[name]]
    for name in ("channel", "model", "status"):
        if filters[name] is not None:
            sessions = [session for session in sessions if getattr(session, name) == filters[name]]
    if not filters["delegates"]:
        sessions = [session for session in sessions if session.relation != "delegate"]
    sessions = list(sessions)
    if not filters["deleted"] and filters["order"] == "created":
        sessions.sort(key=lambda session: creation_numbers(store)[session.id], reverse=True)
    if not filters["deleted"] and filters["order"] == "title":
        order = creation_numbers(store)
        untitled = [session for session in sessions if session.title is None]
        with_title = [session for session in sessions if session.title is not None]
        sessions = sorted(with_title, key=lambda session: (title_sort_key(session.title), order[session.id])) + untitled
    if filters["pinned_first"] and filters["pinned"] is None:
        sessions.sort(key=lambda session: session.pinned_at is None)
    return [session.id for session in sessions]


def creation_numbers(store):
    """Return the number of each session in the order of creation."""
    sessions = [*store.list_sessions(1_000, archived=None, delegates=True, order="created")]
    return {session.id: number for number, session in enumerate(reversed(sessions))}


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(session_shapes, max_size=12),
    queries=st.lists(filter_sets, min_size=1, max_size=6),
    limit=st.integers(1, 7),
)
def test_a_list_returns_the_sessions_that_match_the_filters(threshold, shapes, queries, limit):
    with recollect.open(":memory:") as store:
        fill(store, shapes)
        for filters in queries:
            expected = expected_ids(store, filters)
            ids: list[str] = []
            page = store.list_sessions(limit, **filters)
            ids += [session.id for session in page]
            while page.next is not None:
                page = store.list_sessions(limit, after=page.next, **filters)
                ids += [session.id for session in page]
            assert ids == expected, filters
