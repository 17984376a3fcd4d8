"""Which session a place has: ids that are stable keys, and new ids for talks that have no place.

A key is `channel:rest`, such as `cli:default` or `discord:dm:42`; a new id is a UUIDv7, which sorts by time.

    key(place)     the session of a place; no two places have the same
    where(key)     the place of a session, None where it has none
    place(key)     the channel and the channel id, as they are stored with the session
    parent(key)    the session that a sub-agent's session belongs to
"""

from __future__ import annotations

import os

import msgspec

from recollect.errors import InvalidValue, displayed

LONGEST = 512
_DIGITS = 20
_PROGRAM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_.-")
_DELEGATE = ":delegate:"
_DOT_SEGMENTS = frozenset({".", ".."})  # a browser resolves these away, also percent-encoded: /c/.. is /


class Terminal(msgspec.Struct, frozen=True, tag="cli", tag_field="at"):
    """A talk in a terminal that has a name: `cli:{name}`."""

    name: str = "default"


class DiscordDirect(msgspec.Struct, frozen=True, tag="discord-dm", tag_field="at"):
    """Direct messages with a person on Discord: `discord:dm:{user}`."""

    user: str


class DiscordChannel(msgspec.Struct, frozen=True, tag="discord-channel", tag_field="at"):
    """A channel of a Discord server: `discord:channel:{channel}`."""

    channel: str


class DiscordThread(msgspec.Struct, frozen=True, tag="discord-thread", tag_field="at"):
    """A thread on Discord, which is a talk of its own: `discord:thread:{thread}`."""

    thread: str


class TelegramChat(msgspec.Struct, frozen=True, tag="telegram", tag_field="at"):
    """A chat on Telegram, or a topic in it: `telegram:{chat}`, `telegram:{chat}:{topic}`."""

    chat: str
    topic: str | None = None


class Delegate(msgspec.Struct, frozen=True, tag="delegate", tag_field="at"):
    """A sub-agent that works for a session: `{parent}:delegate:{agent}`."""

    parent: str
    agent: str


class Outside(msgspec.Struct, frozen=True, tag="outside", tag_field="at"):
    """The session of another program: `{program}:{id}`, such as `claude-code:5f0c`."""

    program: str
    id: str


Place = Terminal | DiscordDirect | DiscordChannel | DiscordThread | TelegramChat | Delegate | Outside


def key(place: Place) -> str:
    """Give the session of a place. A place that would share its session with another is an InvalidValue."""
    made = checked(_written(place))
    if where(made) != place:
        raise InvalidValue(
            f"{displayed(made)} is the session of another place than {displayed(place)}. Choose another name."
        )
    return made


def _written(place: Place) -> str:
    match place:
        case Terminal():
            return f"cli:{place.name}"
        case DiscordDirect():
            return f"discord:dm:{_id(place.user)}"
        case DiscordChannel():
            return f"discord:channel:{_id(place.channel)}"
        case DiscordThread():
            return f"discord:thread:{_id(place.thread)}"
        case TelegramChat():
            topic = "" if place.topic is None else f":{_id(place.topic)}"
            return f"telegram:{_id(place.chat, signed=True)}{topic}"
        case Delegate():
            return f"{place.parent}{_DELEGATE}{place.agent}"
        case Outside():
            return f"{place.program}:{place.id}"


def _id(given: str, *, signed: bool = False) -> str:
    """Check an id of a platform."""
    if not isinstance(given, str) or not _is_id(given, signed=signed):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"An id of a platform is a whole number written as text, such as '42'; got {displayed(given)}."
        )
    return given


def _is_id(text: str, *, signed: bool = False) -> bool:
    """Say whether a text is a whole number, written in the one way that there is: two ways would be two sessions."""
    digits = text.removeprefix("-") if signed else text
    return digits.isdecimal() and digits.isascii() and digits[0] != "0" and len(digits) <= _DIGITS


def where(session: str) -> Place | None:
    """Give the place that a session is the key of; None where it is of no place that is known."""
    if not findable(session):
        return None
    before, mark, agent = session.rpartition(_DELEGATE)
    if mark:
        return Delegate(before, agent) if before.strip() and agent.strip() else None
    channel, colon, rest = session.partition(":")
    if not colon or not rest.strip():
        return None
    if channel == "cli":
        return Terminal(rest)
    if channel == "telegram":
        return _telegram(rest)
    if channel == "discord":
        return _discord(rest)
    return Outside(channel, rest) if channel and _PROGRAM.issuperset(channel) else None


def _telegram(rest: str) -> Place | None:
    chat, colon, topic = rest.partition(":")
    if not _is_id(chat, signed=True) or (colon and not _is_id(topic)):
        return None
    return TelegramChat(chat, topic if colon else None)


def _discord(rest: str) -> Place | None:
    kind, _, id = rest.partition(":")
    if not _is_id(id):
        return None
    made = {"dm": DiscordDirect, "channel": DiscordChannel, "thread": DiscordThread}.get(kind)
    return None if made is None else made(id)


def new_id(now: int) -> str:
    """Make a UUIDv7 for this time. The uuid module is not used: it costs 6 ms at start and has no version 7."""
    number = (now << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def checked(session: str) -> str:
    """Return the id of a session that is about to be created, or raise InvalidValue."""
    id = well_formed(session)
    if addressable(id):
        return id
    raise InvalidValue(f"A session id must not be '.' or '..', which no URL can carry; got {displayed(id)}.")


def addressable(session: str) -> bool:
    """Return whether a URL can carry the id as one segment of its path. Older versions stored ids that it cannot."""
    return session not in _DOT_SEGMENTS


def well_formed(session: str) -> str:
    """Return an id that a store can hold, as a plain str, or raise InvalidValue."""
    id = _text(session)
    if not id.strip():
        told = displayed(session)
        raise InvalidValue(f"A session id is a text that is not empty, such as 'cli:default'; got {told}.")
    if len(id) > LONGEST:
        raise InvalidValue(f"A session id has at most {LONGEST} characters; this one has {len(id)}.")
    if not id.isprintable():
        raise InvalidValue(f"A session id has no control characters or line breaks; got {displayed(id)}.")
    return id


def findable(session: object) -> bool:
    """Whether there can be a session with this id, so that looking for it makes sense."""
    id = _text(session)
    return id.isprintable() and 0 < len(id) <= LONGEST


def _text(session: object) -> str:
    """Return an id as a plain str, also of a subclass of str; '' for anything else."""
    return str.__str__(session) if isinstance(session, str) else ""


def place(session: str) -> tuple[str | None, str | None]:
    """Split a stable key into channel and channel id: `discord:dm:42` is (`discord`, `dm:42`)."""
    channel, colon, rest = session.partition(":")
    return (channel, rest) if colon and channel else (None, None)


def parent(session: str) -> str | None:
    """Name the session that a sub-agent's session belongs to: `{parent}:delegate:{agent}` has the parent."""
    before, mark, agent = session.rpartition(_DELEGATE)
    return before if mark and before and agent else None
