"""Session ids: validation, new ids, and the parts of an id.

A new id is a UUIDv7, which sorts by time. The session of a chat has the id `{channel}:{channel id}`, such as
`cli:default`, and the session of a sub-agent `{parent}:delegate:{agent}`. channels/conversation_keys.py has the ids of
each channel.
"""

from __future__ import annotations

import os

from recollect.errors import InvalidValue, format_value

MAX_LENGTH = 512  # characters; fits into an index key of PostgreSQL, whose limit is about 2,700 bytes
_DELEGATE = ":delegate:"
_DOT_SEGMENTS = frozenset({".", ".."})  # a browser resolves these away, also percent-encoded: /c/.. is /


def new_id(now: int) -> str:
    """Return a UUIDv7 for this time. The uuid module is not used: it costs 6 ms at start and has no version 7."""
    # RFC 9562: 48 bits of milliseconds and 80 random bits, of which the version (7) and the variant (0b10) replace six.
    number = (now << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_new_id(session: str) -> str:
    """Return the id of a session that is about to be created, or raise InvalidValue."""
    id = check_id(session)
    if is_addressable(id):
        return id
    raise InvalidValue(f"A session id must not be '.' or '..', which no URL can contain, got {format_value(id)}.")


def is_addressable(session: str) -> bool:
    """Return whether a URL can carry the id as one segment of its path. Older versions stored ids that it cannot."""
    return session not in _DOT_SEGMENTS


def check_id(session: str) -> str:
    """Return an id that a store can hold, as a plain str, or raise InvalidValue."""
    id = _plain_str(session)
    if not id.strip():
        received = format_value(session)
        raise InvalidValue(f"A session id must be a non-empty str, such as 'cli:default', got {received}.")
    if len(id) > MAX_LENGTH:
        raise InvalidValue(f"A session id must have at most {MAX_LENGTH} characters, got {len(id)}.")
    if not id.isprintable():
        raise InvalidValue(f"A session id must not contain control characters or line breaks, got {format_value(id)}.")
    return id


def is_possible_id(session: object) -> bool:
    """Return whether a session can have this id, so that a lookup makes sense."""
    id = _plain_str(session)
    return id.isprintable() and 0 < len(id) <= MAX_LENGTH


def last_with_prefix(prefix: str) -> str:
    """Return an upper bound of the ids with a prefix, for a range of an index."""
    # Not the next prefix: PostgreSQL stores NUL as two characters, which sort differently.
    return prefix + "\U0010ffff" * max(0, MAX_LENGTH - len(prefix))


def _plain_str(session: object) -> str:
    """Return an id as a plain str, also of a subclass of str; '' for anything else."""
    return str.__str__(session) if isinstance(session, str) else ""


def split_key(session: str) -> tuple[str | None, str | None]:
    """Split a conversation key into channel and channel id: `discord:dm:42` is (`discord`, `dm:42`)."""
    channel, colon, rest = session.partition(":")
    return (channel, rest) if colon and channel else (None, None)


def delegate_id(parent: str, agent: str) -> str:
    """Return the session id of a sub-agent. Raise InvalidValue if it would belong to another parent or agent."""
    session = check_new_id(f"{parent}{_DELEGATE}{agent}")
    if split_delegate(session) != (parent, agent):
        raise InvalidValue(
            f"agent must be a name without {_DELEGATE!r}, and parent a session id, got {format_value(agent)} and "
            f"{format_value(parent)}."
        )
    return session


def split_delegate(session: str) -> tuple[str, str] | None:
    """Split a sub-agent's session id into its parent and its agent; None for other ids and for empty parts."""
    parent, separator, agent = session.rpartition(_DELEGATE)
    return (parent, agent) if separator and parent.strip() and agent.strip() else None


def delegate_parent(session: str) -> str | None:
    """Return the parent of a sub-agent's session: `{parent}` of `{parent}:delegate:{agent}`; None for others."""
    before, mark, agent = session.rpartition(_DELEGATE)
    return before if mark and before and agent else None
