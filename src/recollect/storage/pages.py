"""Pages of messages: the cursors that limit them, and their size."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, MessageNotFound, format_value
from recollect.model import times
from recollect.model.message import Message
from recollect.storage.paths import (
    LAST_POSITION,
    MessageId,
    PathSpan,
    display_message_id,
    is_message_id,
    parse_message_id,
)

Cursor = MessageId | datetime.date
"""The end of a page of messages: a [MessageId], or a time as `datetime`, `date` or ISO 8601 text (an `int` is a
position)."""

PAGE_SIZE = 500  # messages. Bounds the memory and the time of one operation.


class PageEnd(NamedTuple):
    """A parsed cursor: a message or a time in milliseconds, the other is None. Both are None for no limit."""

    message: MessageId | None = None
    time: int | None = None


NO_END = PageEnd()
"""The end of a page that is not limited on that side."""


class PageRequest(NamedTuple):
    """A page: the messages between two ends, the first ones or, with `backward`, the last ones."""

    after: PageEnd = NO_END
    before: PageEnd = NO_END
    limit: int = PAGE_SIZE
    backward: bool = False


class MessageSelection(NamedTuple):
    """The arguments that select messages of a path: all of them, the last ones, or a page."""

    last: int | None = None
    limit: int | None = None
    after: Cursor | None = None
    before: Cursor | None = None
    deleted: bool = False
    active: bool = False

    def page_request(self) -> PageRequest | None:
        """Return the page that the arguments select; None for all messages."""
        if self.last is self.limit is self.after is self.before is None:
            return None
        return parse_page(self.last, self.limit, self.after, self.before)


def parse_page(last: int | None, limit: int | None, after: Cursor | None, before: Cursor | None) -> PageRequest:
    """Parse the arguments of a page. Without `last` and `limit`, it has PAGE_SIZE messages."""
    if last is not None and limit is not None:
        raise InvalidValue("last and limit must not be combined. Pass one of them.")
    start, end = parse_cursor("after", after), parse_cursor("before", before)
    if last is not None:
        return PageRequest(start, end, check_limit("last", last), backward=True)
    size = PAGE_SIZE if limit is None else check_limit("limit", limit)
    return PageRequest(start, end, size, backward=after is None and before is not None)


def parse_cursor(name: str, value: Any) -> PageEnd:
    """Parse the argument `after` or `before`."""
    if value is None:
        return NO_END
    if isinstance(value, Message) or (type(value) is int and value >= 0):
        return PageEnd(value)
    if isinstance(value, str) and is_message_id(value):
        return PageEnd(str.__str__(value))
    if isinstance(value, str | datetime.date):
        try:
            # A message has whole milliseconds: it is before a time with a fraction of its millisecond.
            return PageEnd(time=times.parse_time(value) + (name == "before" and times.has_microseconds(value)))
        except InvalidValue:
            pass
    raise InvalidValue(
        f"{name} must be a message, its id such as '1.17', a position, or a time such as '2025-11-16T10:00Z', got "
        f"{format_value(value)}."
    )


def check_limit(name: str, limit: int) -> int:
    """Return a limit, capped at the number of messages that a branch can have."""
    if type(limit) is not int or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{name} must be a non-negative integer, got {format_value(limit)}.")
    return min(limit, LAST_POSITION)


def find_position(session: str, path: Sequence[PathSpan], name: MessageId) -> int:
    """Return the position of a message on a path. A number is a position itself.

    Raise MessageNotFound if the message is not on the path. An erased message keeps its position.
    """
    number, position = parse_message_id(name)
    if number is not None and not any(span.number == number and span.low < position <= span.high for span in path):
        raise MessageNotFound(session=session, message=display_message_id(name))
    return min(position, LAST_POSITION)


def find_bounds(session: str, path: Sequence[PathSpan], request: PageRequest) -> tuple[int, int]:
    """Return the positions after and up to which the messages of a page are."""
    low, high = 0, max(span.high for span in path)
    if request.after.message is not None:
        low = find_position(session, path, request.after.message)
    if request.before.message is not None:
        high = min(high, find_position(session, path, request.before.message) - 1)
    return low, high
