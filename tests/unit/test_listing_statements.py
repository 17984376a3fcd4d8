"""Lists by label, external id, id prefix and metadata, and reversed lists: the statements that they run."""

from __future__ import annotations

from typing import Any

import pytest
from test_storage_statements import NO_FILTERS, SCOPE, Script, finish, listed_row

from recollect.storage import listing
from recollect.storage.fast_paths import ListSessionsRequest
from recollect.storage.operation import Operation

DEFAULT = {"archived": False, "delegates": False}


def page(*, order: str = "activity", **options: Any) -> Operation[Any]:
    names = ("deleted", "oldest_first", "pinned_first")
    arguments = {name: options.pop(name) for name in names if name in options}
    return listing.read_page(SCOPE, limit=2, order=order, filters={**NO_FILTERS, **options}, **arguments)


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({"oldest_first": True}, "sessions_by_activity_reversed"),
        ({"oldest_first": True, **DEFAULT}, "sessions_by_activity_reversed"),
        ({"oldest_first": True, "order": "created"}, "sessions_by_creation_reversed"),
        ({"oldest_first": True, "deleted": True, "label": "a"}, "sessions_by_deletion_reversed"),
        ({"metadata": {"a": 1}, "relation": "fork"}, "sessions_by_activity"),
    ],
    ids=repr,
)
def test_a_list_without_an_index_takes_one_statement(options, query):
    op = page(**options)
    request = op.fast
    assert type(request) is ListSessionsRequest
    assert request.query == query
    script = Script({query: [listed_row(labels=("a", "b")), listed_row(), listed_row()]})
    result = script.run(op)
    assert [session.labels for session in result.sessions] == [("a", "b"), ()]
    assert script.names == [query]
    assert script.params(query) == request.params
    assert finish(op, [tuple(row) for row in script.rows[query]]) == result


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"external_id": "x"}, ["sessions_of_external_id", "sessions_through_activity"]),
        ({"id_prefix": "cli:", "pinned": True}, ["sessions_of_id_prefix", "sessions_through_activity"]),
        ({"label": ["b", "a"]}, ["labels_sessions", "sessions_through_activity"]),
        (
            {"label": "a", "order": "created", "oldest_first": True},
            ["labels_sessions", "sessions_through_creation_reversed"],
        ),
        ({**DEFAULT, "pinned_first": True, "label": "a"}, [*["labels_sessions", "sessions_through_activity"] * 2]),
        (
            {"model": "m", "order": "title", "oldest_first": True},
            [
                *["sessions_of_untitled", "sessions_through_activity_reversed"],
                *["sessions_of_model", "sessions_through_title_reversed"],
            ],
        ),
    ],
    ids=repr,
)
def test_a_filter_with_an_index_takes_two_statements(options, names):
    op = page(**options)
    assert op.fast is None
    row = listing.SessionKeysRow("[11]")
    script = Script({name: [row] for name in names if name.startswith(("sessions_of_", "labels_"))})
    script.run(op)
    assert script.names == names
    assert script.params(names[1])["keys"] == "[11]"


def test_each_label_is_tried_in_turn():
    script = Script({})
    script.run(page(label=["b", "a"]))
    assert script.names == ["labels_sessions", "labels_sessions", "sessions_by_activity"]
    assert [params["value"] for _, params, _ in script.statements[:2]] == ["a", "b"]


def test_a_missing_parent_reads_no_session():
    script = Script({})
    assert script.run(page(parent="cli:x")) == ([], None)
    assert script.names == ["session_get", "session_in_trash"]


def test_the_first_page_of_a_reversed_list_with_pinned_sessions_first_has_no_fast_path():
    assert page(**DEFAULT, pinned_first=True, oldest_first=True).fast is None
