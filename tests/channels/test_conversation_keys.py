"""Conversation keys: they convert to session ids and back, and two keys never share an id."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.channels import conversation_keys
from recollect.errors import InvalidValue
from recollect.model import session_ids

KEYS = [
    (conversation_keys.TerminalKey(), "cli:default"),
    (conversation_keys.TerminalKey("a:b"), "cli:a:b"),
    (conversation_keys.DiscordDirectKey("42"), "discord:dm:42"),
    (conversation_keys.DiscordChannelKey("42"), "discord:channel:42"),
    (conversation_keys.DiscordThreadKey("42"), "discord:thread:42"),
    (conversation_keys.TelegramChatKey("42"), "telegram:42"),
    (conversation_keys.TelegramChatKey("-1001234567890"), "telegram:-1001234567890"),
    (conversation_keys.TelegramChatKey("-100", "7"), "telegram:-100:7"),
    (conversation_keys.DelegateKey("telegram:-100:7", "coder"), "telegram:-100:7:delegate:coder"),
    (conversation_keys.DelegateKey("cli:a:delegate:b", "c"), "cli:a:delegate:b:delegate:c"),
    (conversation_keys.ExternalKey("claude-code", "5f0c"), "claude-code:5f0c"),
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
ANY_KEY = (
    st.builds(conversation_keys.TerminalKey, WORDS)
    | st.builds(conversation_keys.DiscordDirectKey, WORDS)
    | st.builds(conversation_keys.DiscordChannelKey, WORDS)
    | st.builds(conversation_keys.DiscordThreadKey, WORDS)
    | st.builds(conversation_keys.TelegramChatKey, WORDS, st.none() | WORDS)
    | st.builds(conversation_keys.DelegateKey, WORDS, WORDS)
    | st.builds(conversation_keys.ExternalKey, WORDS, WORDS)
)


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_keys_round_trip(key, text):
    assert conversation_keys.format_key(key) == text
    assert conversation_keys.parse_key(text) == key
    channel, channel_id = session_ids.split_key(text)
    assert f"{channel}:{channel_id}" == text


@settings(max_examples=400, deadline=None)
@given(ANY_KEY, ANY_KEY)
def test_different_keys_have_different_texts(one, other):
    texts = []
    for key in (one, other):
        try:
            texts.append(conversation_keys.format_key(key))
        except InvalidValue:
            continue
        assert conversation_keys.parse_key(texts[-1]) == key
        assert session_ids.check_id(texts[-1]) == texts[-1]
    if len(texts) == 2:
        assert (texts[0] == texts[1]) is (one == other)


@settings(max_examples=300, deadline=None)
@given(WORDS | st.text(max_size=40))
def test_a_parsed_key_formats_to_the_same_text(text):
    key = conversation_keys.parse_key(text)
    if key is not None:
        assert conversation_keys.format_key(key) == text


@pytest.mark.parametrize(
    "key",
    [
        conversation_keys.DiscordDirectKey("042"),
        conversation_keys.DiscordDirectKey("+42"),
        conversation_keys.DiscordDirectKey("4_2"),
        conversation_keys.DiscordDirectKey("\u0664\u0662"),
        conversation_keys.DiscordDirectKey("42:delegate:x"),
        conversation_keys.DiscordDirectKey(""),
        conversation_keys.DiscordDirectKey(42),
        conversation_keys.DiscordChannelKey("-1"),
        conversation_keys.DiscordThreadKey("9" * 21),
        conversation_keys.TelegramChatKey("0"),
        conversation_keys.TelegramChatKey("--1"),
        conversation_keys.TelegramChatKey("1", "-2"),
        conversation_keys.TelegramChatKey("1:2"),
        conversation_keys.TelegramChatKey("1", "2:delegate:x"),
        conversation_keys.TerminalKey(""),
        conversation_keys.TerminalKey("a\0b"),
        conversation_keys.TerminalKey("x" * 1_021),
        conversation_keys.TerminalKey("\ud800"),
        conversation_keys.TerminalKey("a:delegate:b"),
        conversation_keys.DelegateKey("", "x"),
        conversation_keys.DelegateKey("cli:a", ""),
        conversation_keys.DelegateKey("cli:a", "delegate:b"),
        conversation_keys.DelegateKey("cli:a", "b:delegate:c"),
        conversation_keys.ExternalKey("discord", "dm:42"),
        conversation_keys.ExternalKey("cli", "default"),
        conversation_keys.ExternalKey("Some Program", "1"),
        conversation_keys.ExternalKey("", "1"),
        conversation_keys.ExternalKey("a:b", "1"),
    ],
)
def test_invalid_keys_are_rejected(key):
    with pytest.raises(InvalidValue):
        conversation_keys.format_key(key)


@pytest.mark.parametrize(
    "text", ["", "plain", "discord:dm", "discord:dm:x", "discord:forum:4", "telegram:x", ":x", "a:", "A:b", "cli:\x00"]
)
def test_other_session_ids_are_not_keys(text):
    assert conversation_keys.parse_key(text) is None
