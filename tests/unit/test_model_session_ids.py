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
    assert session_ids.check_id(text) == text
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
        ("cli:a\nb", ("cli", "a\nb")),
        ("cli:a\0b", (None, None)),
        ("a\0b:c", (None, None)),
        ("a\nb:c", (None, None)),
        ("x" * 512 + ":c", ("x" * 512, "c")),
        ("x" * 513 + ":c", (None, None)),
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
    "key",
    ["a", "cli:default", "ä:ö ü", "\U0001f600", "a/b?c#d%", "...", "%2e%2e", ". .", ".", "..", " ", "\t", "a\nb", "a\x00b",
     "\0", "\x10", "a\x1b[31m", "a\u2028b", "\u202e", "\ue000", "\ufffe", "x" * 1_024, "\0" * 1_024, "\u00e9" * 512,
     "\u20ac" * 341, "\U0001f600" * 256],
    ids=ascii,
)  # fmt: skip
def test_valid_ids_are_accepted(key):
    assert session_ids.check_new_id(key) == session_ids.check_id(key) == key
    assert session_ids.is_possible_id(key)


@pytest.mark.parametrize(
    "key",
    ["", "x" * 1_025, "\u00e9" * 513, "\ud800", "a\udc00", "\ud83d\ude00", "\U0001f600" * 513, None, 7, b"a", ["a"]],
    ids=ascii,
)
def test_invalid_ids_are_refused(key):
    for check in (session_ids.check_new_id, session_ids.check_id):
        with pytest.raises(InvalidValue):
            check(key)
    assert not session_ids.is_possible_id(key)


@pytest.mark.parametrize("number", [257, 512])
def test_only_a_stored_session_has_an_id_of_more_bytes(number):
    """Earlier versions accepted 512 characters, of any size."""
    key = "\U0001f600" * number
    assert session_ids.check_id(key) == key
    assert session_ids.is_possible_id(key)
    with pytest.raises(InvalidValue, match=f"at most 1,024 bytes in UTF-8, got {4 * number:,}"):
        session_ids.check_new_id(key)


def test_errors_state_the_rule():
    with pytest.raises(InvalidValue, match=r"at most 1,024 bytes in UTF-8, got 1,026. Use a shorter id"):
        session_ids.check_new_id("\u00e9" * 513)
    with pytest.raises(InvalidValue, match=r"unpaired surrogates, got 'a\\ud800'. Replace or remove"):
        session_ids.check_new_id("a\ud800")


@pytest.mark.parametrize("prefix", ["a", "\0", "\U0010ffff", "a" * 1_000, "\U0001f600" * 400])
def test_the_last_id_with_a_prefix_is_not_before_any_other(prefix):
    last = session_ids.last_with_prefix(prefix).encode()
    for rest in ("", "\0", "z", "\U0010ffff" * 6, "\U0010ffff" * (512 - len(prefix))):
        assert prefix.encode() <= f"{prefix}{rest}".encode() <= last


def test_an_id_of_a_subclass_of_str_becomes_plain():
    class Name(str):
        __slots__ = ()

        def __str__(self):
            return "other"

    assert type(session_ids.check_id(Name("a"))) is str
    assert session_ids.check_id(Name("a")) == "a"


@pytest.mark.parametrize("size", range(12))
def test_a_shortened_id_is_a_prefix(size):
    for id in ("abcdefghijklmnop", "\u20ac\u20ac\u20ac\u20ac\u20ac", "a\U0001f600\0\u00e9\U0001f600"):
        prefix = session_ids.shorten_id(id, size)
        assert id.startswith(prefix)
        assert size - 3 <= len(prefix.encode()) <= size


@pytest.mark.parametrize("parent", ["cli:a", "a:delegate:b", "x"])
def test_a_delegate_id_splits_into_parent_and_agent(parent):
    id = session_ids.delegate_id(parent, "coder")
    assert id == f"{parent}:delegate:coder"
    assert session_ids.split_delegate(id) == (parent, "coder")
    assert session_ids.delegate_parent(id) == parent


@pytest.mark.parametrize(("parent", "agent"), [("", "a"), ("a", ""), ("a", "b:delegate:c"), ("a", "x" * 1_020)])
def test_a_delegate_id_with_an_invalid_parent_or_agent_is_refused(parent, agent):
    with pytest.raises(InvalidValue):
        session_ids.delegate_id(parent, agent)


@pytest.mark.parametrize("id", ["cli:a", "a:delegate:", ":delegate:a"])
def test_other_ids_are_not_delegates(id):
    assert session_ids.split_delegate(id) is None
