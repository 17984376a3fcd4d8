"""Session ids: new ones, stable keys, and what can not be one."""

from __future__ import annotations

import uuid

import pytest

from recollect.errors import InvalidValue
from recollect.model import keys

AT = 1763287200123


@pytest.mark.parametrize("at", [0, 1, AT, 2**48 - 1])
def test_a_new_id_is_a_uuid_of_version_7_with_its_time(at):
    for _ in range(50):
        text = keys.new_id(at)
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122
        assert parsed.int >> 80 == at


def test_new_ids_sort_by_time():
    ids = [keys.new_id(AT + step) for step in range(500)]
    assert ids == sorted(ids)


def test_new_ids_of_one_moment_differ():
    assert len({keys.new_id(AT) for _ in range(2_000)}) == 2_000


def test_a_new_id_has_no_place_and_no_parent():
    text = keys.new_id(AT)
    assert keys.checked(text) == text
    assert keys.place(text) == (None, None)
    assert keys.parent(text) is None


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("discord:dm:42", ("discord", "dm:42")),
        ("cli:default", ("cli", "default")),
        ("cli:", ("cli", "")),
        (":x", (None, None)),
        ("plain", (None, None)),
        ("telegram:-100:7", ("telegram", "-100:7")),
    ],
)
def test_a_key_says_its_place(key, place):
    assert keys.place(key) == place


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
def test_a_delegate_key_says_its_parent(key, parent):
    assert keys.parent(key) == parent


@pytest.mark.parametrize(
    "key", ["a", "cli:default", "ä:ö ü", "x" * 512, "\U0001f600", "a/b?c#d%", "...", "%2e%2e", ". ."]
)
def test_what_can_be_an_id(key):
    assert keys.checked(key) == key


@pytest.mark.parametrize(
    "key",
    ["", " ", "\t", "x" * 513, "a\nb", "a\x00b", "a\x1b[31m", "a\u2028b", "\ud800", ".", "..", None, 7, b"a", ["a"]],
    ids=repr,
)
def test_what_can_not_be_an_id(key):
    with pytest.raises(InvalidValue):
        keys.checked(key)
