"""A path through the tree: the stretches of branches that lead from the first message to the last, and places on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, MessageNotFound, displayed
from recollect.model.message import Message
from recollect.op import Steps, rows

MessageId = str | int | Message
"""A message, its id ("1.17"), or its position on the active path."""

_LONGEST = 1_000
"""Digits that the parts of an id have at most; what is longer is not even read as a number."""

_SHOWN = 80
LAST = (1 << 32) - 1
MOST_BRANCHES = (1 << 31) - 1


class Span(NamedTuple):
    """A stretch of a path: the positions of one branch after `low`, up to `high`."""

    branch: int
    number: int
    low: int
    high: int


def path(branch: int) -> Steps[list[Span]]:
    """Read the stretches that a path is made of, the newest first."""
    return [Span(*row) for row in (yield from rows("branch_path", branch=branch))]


def parse(name: Any) -> tuple[int | None, int]:
    """Read a message's id, "branch.position", or a message; a number alone is a position on the active path."""
    if isinstance(name, Message):
        return name.branch, name.position
    if type(name) is int and 0 <= name < 10**_LONGEST:
        return None, name
    branch, dot, position = name.partition(".") if isinstance(name, str) else ("", "", "")
    if dot and _number(branch) and _number(position):
        return int(branch), int(position)
    raise InvalidValue(f"{displayed(name)} is no message id. An id looks like '1.17': branch and position.")


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST


def shown(name: MessageId) -> str | int:
    """Give a message's id, or what was taken for one."""
    return name.id if isinstance(name, Message) else name


def locate(session: str, head: int, session_key: int, name: MessageId) -> Steps[Span]:
    """Find the stretch that ends with a message: on the active path, or on another branch of the session."""
    number, position = parse(name)
    if position > LAST or (number or 0) > MOST_BRANCHES:
        raise MessageNotFound(session=session, message=shown(name))
    span = _on(number, position, (yield from path(head)))
    if span is None and number is not None:
        for row in (yield from rows("branches_of_session", session=session_key)):
            span = span or _on(number, position, (yield from path(row[0])))
    if span is None:
        raise MessageNotFound(session=session, message=shown(name))
    return span


def _on(number: int | None, position: int, spans: Sequence[Span]) -> Span | None:
    """Give the stretch of a path that has a position, cut off after it."""
    for span in spans:
        if span.low < position <= span.high and number in (None, span.number):
            return Span(span.branch, span.number, span.low, position)
    return None
