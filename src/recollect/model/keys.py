"""Which session a place has: ids that are stable keys, and new ids for talks that have no place.

A key is `channel:rest`, such as `cli:default` or `discord:dm:42`; a new id is a UUIDv7, which sorts by time.
"""

from __future__ import annotations

import os

from recollect.errors import InvalidValue

_LONGEST = 512


def new_id(now: int) -> str:
    """Make a UUIDv7 for this time. The uuid module is not used: it costs 6 ms at start and has no version 7."""
    number = (now << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def checked(session: str) -> str:
    """Give the id back if it can be one."""
    if not isinstance(session, str) or not session.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"A session id is a text that is not empty, such as 'cli:default'; got {session!r}.")
    if len(session) > _LONGEST:
        raise InvalidValue(f"A session id has at most {_LONGEST} characters; this one has {len(session)}.")
    if not session.isprintable():
        raise InvalidValue(f"A session id has no control characters or line breaks; got {session!r}.")
    return session


def findable(session: object) -> bool:
    """Whether there can be a session with this id, so that looking for it makes sense."""
    return isinstance(session, str) and session.isprintable() and 0 < len(session) <= _LONGEST


def place(session: str) -> tuple[str | None, str | None]:
    """Split a stable key into channel and channel id: `discord:dm:42` is (`discord`, `dm:42`)."""
    channel, colon, rest = session.partition(":")
    return (channel, rest) if colon and channel else (None, None)


def parent(session: str) -> str | None:
    """Name the session that a sub-agent's session belongs to: `{parent}:delegate:{agent}` has the parent."""
    before, mark, agent = session.rpartition(":delegate:")
    return before if mark and before and agent else None
