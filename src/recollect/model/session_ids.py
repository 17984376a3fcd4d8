"""Session ids: validation, new ids, and the parts of an id.

A new id is a UUIDv7, which sorts by time. The session of a chat has the id `{channel}:{channel id}`, such as
`cli:default`, and the session of a sub-agent `{parent}:delegate:{agent}`. channels/conversation_keys.py has the ids of
each channel.
"""

from __future__ import annotations

import os

from recollect.errors import InvalidValue, format_value

# Bytes in UTF-8. PostgreSQL's index of owner and id has entries of at most 2,704 bytes: an id of 1,024 NULs, each of
# which it stores as two bytes, and an owner of 512 bytes take 2,576.
MAX_BYTES = 1_024
_OLD_MAX_LENGTH = 512  # characters, up to 2,048 bytes: the limit of earlier versions, whose sessions keep their ids
_MAX_CHANNEL_LENGTH = 512  # characters of the field `channel`, which is indexed too
_DELEGATE = ":delegate:"


def new_id(now: int) -> str:
    """Return a UUIDv7 for this time. The uuid module is not used: it costs 6 ms at start and has no version 7."""
    # RFC 9562: 48 bits of milliseconds and 80 random bits, of which the version (7) and the variant (0b10) replace six.
    number = (now << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_new_id(session: str) -> str:
    """Return the id of a session that is about to be created, as a plain str, or raise InvalidValue."""
    id = check_id(session)
    if is_old_id(id):
        raise _too_long_error(len(id.encode()))
    return id


def is_old_id(id: str) -> bool:
    """Return whether only an earlier version could have created a session with this id, because it is too long."""
    return len(id) * 4 > MAX_BYTES and len(id.encode()) > MAX_BYTES


def check_id(session: str) -> str:
    """Return an id that a stored session can have, as a plain str, or raise InvalidValue.

    Ids of an earlier version can be longer than those of new sessions.
    """
    id = _plain_str(session)
    if not id:
        received = format_value(session)
        raise InvalidValue(f"A session id must be a non-empty str, such as 'cli:default', got {received}.")
    size = _size(id)
    if size is None:
        raise InvalidValue(
            f"A session id must not contain unpaired surrogates, got {format_value(id)}. Replace or remove them."
        )
    if size > MAX_BYTES and len(id) > _OLD_MAX_LENGTH:
        raise _too_long_error(size)
    return id


def _too_long_error(size: int) -> InvalidValue:
    return InvalidValue(f"A session id must have at most {MAX_BYTES:,} bytes in UTF-8, got {size:,}. Use a shorter id.")


def is_possible_id(session: object) -> bool:
    """Return whether a session can have this id, so that a lookup makes sense."""
    id = _plain_str(session)
    if not 0 < len(id) <= MAX_BYTES:
        return False
    size = _size(id)
    return size is not None and (size <= MAX_BYTES or len(id) <= _OLD_MAX_LENGTH)


def _size(id: str) -> int | None:
    """Return the number of bytes in UTF-8, or None for a text with unpaired surrogates."""
    if id.isascii():
        return len(id)
    try:
        return len(id.encode())
    except UnicodeEncodeError:
        return None


def shorten_id(session: str, size: int) -> str:
    """Return the beginning of an id that has at most `size` bytes in UTF-8."""
    return session.encode()[:size].decode("utf-8", "ignore")


def last_with_prefix(prefix: str) -> str:
    """Return an upper bound of the ids with a prefix, for a range of an index."""
    # Not the next prefix: PostgreSQL stores NUL as two characters, which sort differently.
    # No id has more characters of four bytes than an old one can have.
    return prefix + "\U0010ffff" * _OLD_MAX_LENGTH


def _plain_str(session: object) -> str:
    """Return an id as a plain str, also of a subclass of str; '' for anything else."""
    return str.__str__(session) if isinstance(session, str) else ""


def split_key(session: str) -> tuple[str | None, str | None]:
    """Split a conversation key into channel and channel id: `discord:dm:42` is (`discord`, `dm:42`).

    An id whose parts cannot be these fields, such as one with NUL, is not a key: (None, None).
    """
    channel, colon, rest = session.partition(":")
    is_key = colon and channel and channel.isprintable() and len(channel) <= _MAX_CHANNEL_LENGTH and "\0" not in rest
    return (channel, rest) if is_key else (None, None)


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
    return (parent, agent) if separator and parent and agent else None


def delegate_parent(session: str) -> str | None:
    """Return the parent of a sub-agent's session: `{parent}` of `{parent}:delegate:{agent}`; None for others."""
    before, mark, agent = session.rpartition(_DELEGATE)
    return before if mark and before and agent else None
