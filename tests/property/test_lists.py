"""Whatever a list is asked, in pages of whatever size: it gives what a plain look at every session gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recollect
from recollect.model.title import folded

titles = st.sampled_from([None, "", "a", "A", "á", "b", "Z", "z", "ß", "ss"])
made = st.fixed_dictionaries(
    {
        "channel": st.sampled_from(["cli", "web"]), "model": st.sampled_from([None, "m", "n"]), "title": titles,
        "status": st.sampled_from(["active", "failed"]), "pinned": st.booleans(), "archived": st.booleans(),
        "delegate": st.booleans(), "deleted": st.booleans(),
    }
)  # fmt: skip
flags = st.sampled_from([None, True, False])
asked = st.fixed_dictionaries(
    {
        "archived": flags, "pinned": flags, "channel": st.sampled_from([None, "cli", "web"]),
        "model": st.sampled_from([None, "m"]), "status": st.sampled_from([None, "active", "failed"]),
        "delegates": st.booleans(), "deleted": st.booleans(), "pinned_first": st.booleans(),
        "order": st.sampled_from(["activity", "created", "title"]),
    }
)  # fmt: skip


@pytest.fixture(scope="module", params=["few", "many"])
def threshold(request):
    """Sort what a filter leaves, or walk the list: both ways must give the same."""
    from recollect.ops import lists

    before = lists._FEW
    lists._FEW = before if request.param == "few" else 0
    yield
    lists._FEW = before


def fill(store, shapes):
    store.session("top", title="top")
    for number, shape in enumerate(shapes):
        fields = {name: value for name, value in shape.items() if name not in ("delegate", "deleted")}
        name = f"top:delegate:{number}" if shape["delegate"] else f"s{number}"
        store.session(name, parent="top" if shape["delegate"] else None, **fields)
        if shape["deleted"]:
            store.delete_session(name)


def wanted(store, question):
    """Look at every session, one by one."""
    found = store.list_sessions(1_000, archived=None, delegates=True, deleted=question["deleted"])
    for name, field in (("archived", "archived_at"), ("pinned", "pinned_at")):
        if question[name] is not None:
            found = [session for session in found if (getattr(session, field) is not None) == question[name]]
    for name in ("channel", "model", "status"):
        if question[name] is not None:
            found = [session for session in found if getattr(session, name) == question[name]]
    if not question["delegates"]:
        found = [session for session in found if session.relation != "delegate"]
    found = list(found)
    if not question["deleted"] and question["order"] == "created":
        found.sort(key=lambda session: numbers(store)[session.id], reverse=True)
    if not question["deleted"] and question["order"] == "title":
        places = numbers(store)
        untitled = [session for session in found if session.title is None]
        titled = [session for session in found if session.title is not None]
        found = sorted(titled, key=lambda session: (folded(session.title), places[session.id])) + untitled
    if question["pinned_first"] and question["pinned"] is None:
        found.sort(key=lambda session: session.pinned_at is None)
    return [session.id for session in found]


def numbers(store):
    """Number the sessions as they were made."""
    everything = [*store.list_sessions(1_000, archived=None, delegates=True, order="created")]
    return {session.id: place for place, session in enumerate(reversed(everything))}


@settings(max_examples=60, deadline=None)
@given(shapes=st.lists(made, max_size=12), questions=st.lists(asked, min_size=1, max_size=6), limit=st.integers(1, 7))
def test_a_list_is_what_a_plain_look_gives(threshold, shapes, questions, limit):
    with recollect.open(":memory:") as store:
        fill(store, shapes)
        for question in questions:
            expected = wanted(store, question)
            found: list[str] = []
            page = store.list_sessions(limit, **question)
            found += [session.id for session in page]
            while page.next is not None:
                page = store.list_sessions(limit, after=page.next, **question)
                found += [session.id for session in page]
            assert found == expected, question
