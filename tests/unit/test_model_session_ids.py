"""Session ids: new ids, conversation keys, and invalid ids."""

from __future__ import annotations

import uuid

import pytest

from recollect.errors import InvalidValue
from recollect.model import session_ids

NOVEMBER_2025 = 1763287200123  # milliseconds: 2025-11-16T10:00:00.123Z, an ordinary time


@pytest.mark.parametrize("at", [0, 1, NOVEMBER_2025, 2**48 - 1])
def test_a_new_id_is_a_uuid_of_version_7_with_its_time(at):
    for _ in range(50):
        text = session_ids.new_id(at)
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122
        assert parsed.int >> 80 == at


def test_new_ids_sort_by_time():
    ids = [session_ids.new_id(NOVEMBER_2025 + step) for step in range(500)]
    assert ids == sorted(ids)


def test_new_ids_of_one_millisecond_differ():
    assert len({session_ids.new_id(NOVEMBER_2025) for _ in range(2_000)}) == 2_000


def test_a_new_id_has_no_channel_and_no_parent():
    text = session_ids.new_id(NOVEMBER_2025)
    assert session_ids.check_new_id(text) == text
    assert session_ids.split_key(text) == (None, None)
    assert session_ids.delegate_parent(text) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("discord:dm:42", ("discord", "dm:42")),
        ("cli:default", ("cli", "default")),
        ("cli:", ("cli", "")),
        (":x", (None, None)),
        ("plain", (None, None)),
        ("telegram:-100:7", ("telegram", "-100:7")),
    ],
)
def test_a_key_contains_its_channel_and_channel_id(key, expected):
    assert session_ids.split_key(key) == expected


@pytest.mark.parametrize(
    ("key", "parent"),
    [
        ("cli:a:delegate:coder", "cli:a"),
        ("cli:a:delegate:coder:delegate:tester", "cli:a:delegate:coder"),
        (":delegate:x", None),
        ("cli:a:delegate:", None),
        ("cli:a:delegate", None),
        ("cli:a", None),
    ],
)
def test_a_delegate_key_contains_its_parent(key, parent):
    assert session_ids.delegate_parent(key) == parent


@pytest.mark.parametrize(
    "key", ["a", "cli:default", "ä:ö ü", "x" * 512, "\U0001f600", "a/b?c#d%", "...", "%2e%2e", ". ."]
)
def test_valid_ids_are_accepted(key):
    assert session_ids.check_new_id(key) == key


@pytest.mark.parametrize(
    "key",
    ["", " ", "\t", "x" * 513, "a\nb", "a\x00b", "a\x1b[31m", "a\u2028b", "\ud800", ".", "..", None, 7, b"a", ["a"]],
    ids=repr,
)
def test_invalid_ids_are_refused(key):
    with pytest.raises(InvalidValue):
        session_ids.check_new_id(key)


@pytest.mark.parametrize("parent", ["cli:a", "a:delegate:b", "x"])
def test_a_delegate_id_splits_into_parent_and_agent(parent):
    id = session_ids.delegate_id(parent, "coder")
    assert id == f"{parent}:delegate:coder"
    assert session_ids.split_delegate(id) == (parent, "coder")
    assert session_ids.delegate_parent(id) == parent


@pytest.mark.parametrize(
    ("parent", "agent"), [("", "a"), (" ", "a"), ("a", ""), ("a", "b:delegate:c"), ("a", "x" * 600)]
)
def test_a_delegate_id_with_an_invalid_parent_or_agent_is_refused(parent, agent):
    with pytest.raises(InvalidValue):
        session_ids.delegate_id(parent, agent)


@pytest.mark.parametrize("id", ["cli:a", "a:delegate:", ":delegate:a"])
def test_other_ids_are_not_delegates(id):
    assert session_ids.split_delegate(id) is None
