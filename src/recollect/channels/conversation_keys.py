"""Conversation keys: the channel and the chat of a session, as typed values that map to session ids and back.

    format_key(key)     the session id of a conversation key; two keys never have the same id
    parse_key(id)       the conversation key of a session id, or None

The ledger of a bot stores keys: class tags and field names are permanent.
"""

from __future__ import annotations

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.model.session_ids import check_id, delegate_id, is_possible_id, split_delegate, split_key

_MAX_DIGITS = 20  # digits of an id on Discord or Telegram, which are 64-bit integers
_PROGRAM_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_.-")


class TerminalKey(msgspec.Struct, frozen=True, tag="cli", tag_field="at"):
    """A named conversation in a terminal: `cli:{name}`."""

    name: str = "default"


class DiscordDirectKey(msgspec.Struct, frozen=True, tag="discord-dm", tag_field="at"):
    """Direct messages with a user on Discord: `discord:dm:{user}`."""

    user: str


class DiscordChannelKey(msgspec.Struct, frozen=True, tag="discord-channel", tag_field="at"):
    """A channel of a Discord server: `discord:channel:{channel}`."""

    channel: str


class DiscordThreadKey(msgspec.Struct, frozen=True, tag="discord-thread", tag_field="at"):
    """A thread on Discord, which is a conversation of its own: `discord:thread:{thread}`."""

    thread: str


class TelegramChatKey(msgspec.Struct, frozen=True, tag="telegram", tag_field="at"):
    """A chat on Telegram, or a topic in it: `telegram:{chat}`, `telegram:{chat}:{topic}`."""

    chat: str
    topic: str | None = None


class DelegateKey(msgspec.Struct, frozen=True, tag="delegate", tag_field="at"):
    """A sub-agent of a session: `{parent}:delegate:{agent}`."""

    parent: str
    agent: str


class ExternalKey(msgspec.Struct, frozen=True, tag="outside", tag_field="at"):
    """A session of another program: `{program}:{id}`, such as `claude-code:5f0c`."""

    program: str
    id: str


ConversationKey = (
    TerminalKey | DiscordDirectKey | DiscordChannelKey | DiscordThreadKey | TelegramChatKey | DelegateKey | ExternalKey
)


def format_key(key: ConversationKey) -> str:
    """Return the session id of a conversation key. Raise InvalidValue if another key has the same id."""
    session = check_id(_format_key_text(key))
    if parse_key(session) != key:
        raise InvalidValue(
            f"{format_value(session)} is the session of another conversation key than {format_value(key)}. Choose "
            "another name."
        )
    return session


def _format_key_text(key: ConversationKey) -> str:
    match key:
        case TerminalKey():
            return f"cli:{key.name}"
        case DiscordDirectKey():
            return f"discord:dm:{_check_platform_id(key.user)}"
        case DiscordChannelKey():
            return f"discord:channel:{_check_platform_id(key.channel)}"
        case DiscordThreadKey():
            return f"discord:thread:{_check_platform_id(key.thread)}"
        case TelegramChatKey():
            topic = "" if key.topic is None else f":{_check_platform_id(key.topic)}"
            return f"telegram:{_check_platform_id(key.chat, signed=True)}{topic}"
        case DelegateKey():
            return delegate_id(key.parent, key.agent)
        case ExternalKey():
            return f"{key.program}:{key.id}"


def _check_platform_id(value: str, *, signed: bool = False) -> str:
    """Return an id of a platform, or raise InvalidValue."""
    if not isinstance(value, str) or not _is_platform_id(value, signed=signed):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"A platform id must be an integer as a str, such as '42', got {format_value(value)}.")
    return value


def _is_platform_id(text: str, *, signed: bool = False) -> bool:
    """Return whether a text is an integer in canonical form. Two spellings of one id would be two sessions."""
    digits = text.removeprefix("-") if signed else text
    return digits.isdecimal() and digits.isascii() and digits[0] != "0" and len(digits) <= _MAX_DIGITS


def parse_key(session: str) -> ConversationKey | None:
    """Return the conversation key of a session id, or None if the id is not one."""
    if not is_possible_id(session):
        return None
    if ":delegate:" in session:
        delegate = split_delegate(session)
        return None if delegate is None else DelegateKey(*delegate)
    channel, rest = split_key(session)
    if channel is None or rest is None or not rest.strip():
        return None
    if channel == "cli":
        return TerminalKey(rest)
    if channel == "telegram":
        return _parse_telegram_key(rest)
    if channel == "discord":
        return _parse_discord_key(rest)
    return ExternalKey(channel, rest) if _PROGRAM_CHARACTERS.issuperset(channel) else None


def _parse_telegram_key(rest: str) -> ConversationKey | None:
    chat, colon, topic = rest.partition(":")
    if not _is_platform_id(chat, signed=True) or (colon and not _is_platform_id(topic)):
        return None
    return TelegramChatKey(chat, topic if colon else None)


def _parse_discord_key(rest: str) -> ConversationKey | None:
    kind, _, id = rest.partition(":")
    if not _is_platform_id(id):
        return None
    key_type = {"dm": DiscordDirectKey, "channel": DiscordChannelKey, "thread": DiscordThreadKey}.get(kind)
    return None if key_type is None else key_type(id)
