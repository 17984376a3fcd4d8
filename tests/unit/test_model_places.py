"""Places and their sessions: reversible, and never two places with one session."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.model import keys

PLACES = [
    (keys.Terminal(), "cli:default"),
    (keys.Terminal("a:b"), "cli:a:b"),
    (keys.DiscordDirect("42"), "discord:dm:42"),
    (keys.DiscordChannel("42"), "discord:channel:42"),
    (keys.DiscordThread("42"), "discord:thread:42"),
    (keys.TelegramChat("42"), "telegram:42"),
    (keys.TelegramChat("-1001234567890"), "telegram:-1001234567890"),
    (keys.TelegramChat("-100", "7"), "telegram:-100:7"),
    (keys.Delegate("telegram:-100:7", "coder"), "telegram:-100:7:delegate:coder"),
    (keys.Delegate("cli:a:delegate:b", "c"), "cli:a:delegate:b:delegate:c"),
    (keys.Outside("claude-code", "5f0c"), "claude-code:5f0c"),
]

WORDS = st.text(alphabet=":-delgatcisor0179 \n\u0660\u00e9x", max_size=24) | st.sampled_from(
    [
        "delegate",
        ":delegate:",
        "delegate:",
        ":delegate",
        "dm:1",
        "1",
        "-1",
        "01",
        "default",
        "cli",
        "discord",
        "telegram",
    ]
)
ANY = (
    st.builds(keys.Terminal, WORDS)
    | st.builds(keys.DiscordDirect, WORDS)
    | st.builds(keys.DiscordChannel, WORDS)
    | st.builds(keys.DiscordThread, WORDS)
    | st.builds(keys.TelegramChat, WORDS, st.none() | WORDS)
    | st.builds(keys.Delegate, WORDS, WORDS)
    | st.builds(keys.Outside, WORDS, WORDS)
)


@pytest.mark.parametrize(("place", "key"), PLACES)
def test_a_place_has_its_key_and_a_key_its_place(place, key):
    assert keys.key(place) == key
    assert keys.where(key) == place
    channel, channel_id = keys.place(key)
    assert f"{channel}:{channel_id}" == key


@settings(max_examples=400, deadline=None)
@given(ANY, ANY)
def test_no_two_places_have_one_key(one, other):
    made = []
    for place in (one, other):
        try:
            made.append(keys.key(place))
        except InvalidValue:
            continue
        assert keys.where(made[-1]) == place
        assert keys.checked(made[-1]) == made[-1]
    if len(made) == 2:
        assert (made[0] == made[1]) is (one == other)


@settings(max_examples=300, deadline=None)
@given(WORDS | st.text(max_size=40))
def test_a_key_that_has_a_place_is_the_key_of_it(text):
    place = keys.where(text)
    if place is not None:
        assert keys.key(place) == text


@pytest.mark.parametrize(
    "place",
    [
        keys.DiscordDirect("042"),
        keys.DiscordDirect("+42"),
        keys.DiscordDirect("4_2"),
        keys.DiscordDirect("\u0664\u0662"),
        keys.DiscordDirect("42:delegate:x"),
        keys.DiscordDirect(""),
        keys.DiscordDirect(42),
        keys.DiscordChannel("-1"),
        keys.DiscordThread("9" * 21),
        keys.TelegramChat("0"),
        keys.TelegramChat("--1"),
        keys.TelegramChat("1", "-2"),
        keys.TelegramChat("1:2"),
        keys.TelegramChat("1", "2:delegate:x"),
        keys.Terminal(""),
        keys.Terminal("a\nb"),
        keys.Terminal("x" * 600),
        keys.Terminal("a:delegate:b"),
        keys.Delegate("", "x"),
        keys.Delegate("cli:a", ""),
        keys.Delegate("cli:a", "delegate:b"),
        keys.Delegate("cli:a", "b:delegate:c"),
        keys.Outside("discord", "dm:42"),
        keys.Outside("cli", "default"),
        keys.Outside("Some Program", "1"),
        keys.Outside("", "1"),
        keys.Outside("a:b", "1"),
    ],
)
def test_hostile_places_are_refused(place):
    with pytest.raises(InvalidValue):
        keys.key(place)


@pytest.mark.parametrize(
    "key", ["", "plain", "discord:dm", "discord:dm:x", "discord:room:4", "telegram:x", ":x", "a:", "A:b", "cli:\x00"]
)
def test_what_is_of_no_place(key):
    assert keys.where(key) is None
