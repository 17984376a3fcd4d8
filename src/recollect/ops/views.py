"""The view of a path that is sent on: what is hidden by compactions left out, their summaries in its place.

It is read from the end backwards, only as far as it is needed. Nothing here is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from recollect.errors import MessageNotFound
from recollect.model.compaction import Compaction, outermost, standing_for
from recollect.model.line import Line, line
from recollect.model.message import Message
from recollect.op import Op, Plan, Scope, Steps, rows
from recollect.ops import compactions, messages, paths, record, sessions
from recollect.ops.paths import Span

FIRST_PAGE = 128
_PARTNERS = 64

Enough = Callable[[Sequence[Message]], bool]
"""Told what was read so far, whether anything older could still be of use."""


class Taker(Protocol):
    """Who is told what a path sends on, line by line from the oldest on, instead of being given messages."""

    def take(self, lines: Sequence[Line]) -> bool:
        """Take the next lines; whether there is any use in going on."""
        ...

    def end(self) -> bool:
        """Be told that this was all; whether no messages are needed."""
        ...


class View(NamedTuple):
    """What a path sends on: messages and summaries, oldest first; and where it stands."""

    messages: list[Message]
    branch: int
    end: int
    covers: list[Compaction]
    rounds: list[int]


class Ready(NamedTuple):
    """What a compaction is made from: what is sent on now, and the position that the caller named."""

    view: View
    before: int | None

    @property
    def messages(self) -> list[Message]:
        """The messages and summaries that are sent on."""
        return self.view.messages


class _Standing(NamedTuple):
    """Where a view begins: the stretches that are not hidden, the newest first, and what is always in it."""

    branch: int
    spans: list[Span]
    open: list[Span]
    end: int
    covers: list[Compaction]
    rounds: list[int]
    always: list[Message]


class _Told(NamedTuple):
    """Some lines, oldest first, and the position after which the next ones are; None where there are none."""

    lines: Sequence[Line]
    after: int | None


class _Piece(NamedTuple):
    """Some messages, oldest first, and the stretches that were not read yet."""

    messages: list[Message]
    rest: list[Span]


def active(
    scope: Scope,
    session: str,
    *,
    before: paths.MessageId | None = None,
    last: int | None = None,
    enough: Enough | None = None,
    taker: Taker | None = None,
) -> Plan[View]:
    """Read what a session sends on, or its end: page by page from the newest on, until it is enough.

    With `last` it is the last so many, wherever that begins. Where a taker took all of it, the view has no messages.
    """
    if last is not None:
        return (yield from _newest(scope, session, before, messages.checked_limit(last)))
    standing: _Standing = yield Op(_stand, scope, session, before, writes=False)
    if taker is not None and (yield from _tell(scope, standing, taker)):
        return View([], standing.branch, standing.end, standing.covers, standing.rounds)
    size = messages.PAGE if enough is None else FIRST_PAGE
    read: list[Message] = []
    pages: list[list[Message]] = []
    rest = standing.open
    while rest:
        piece: _Piece = yield Op(_back, scope, rest, size, writes=False)
        rest = piece.rest
        pages.append(piece.messages)
        if enough is None:  # joined once, at the end: a long past has many pages
            continue
        read = piece.messages + read
        if enough(_joined(standing.always, read)):
            if rest and not _opened(read):
                # The newest turn is longer than all there is room for: only what opened it is still of use.
                read = (yield Op(_asked, scope, rest, writes=False)) + read
            break
    if enough is None:
        read = [message for page in reversed(pages) for message in page]
    found = _joined(standing.always, read)
    return View(found, standing.branch, standing.end, standing.covers, standing.rounds)


def _tell(scope: Scope, standing: _Standing, taker: Taker) -> Plan[bool]:
    """Tell a taker all there is, in order. Where something is hidden, that has to be put together from messages."""
    if standing.covers:
        return False
    for span in reversed(standing.open):
        after: int | None = span.low
        while after is not None:
            told: _Told = yield Op(_lines, scope, span, after, writes=False)
            if not taker.take(told.lines):
                return False
            after = told.after
    return taker.end()


def _lines(scope: Scope, span: Span, after: int) -> Steps[_Told]:
    found = yield from rows("messages_tell", branch=span.branch, low=after, high=span.high, limit=messages.WHOLE)
    lines = record.lines(found)
    for index in [index for index, row in enumerate(found) if record.has_more(row)]:
        message = yield from messages.at(scope, span.branch, span.number, found[index][1])
        assert message is not None
        lines[index] = line(message)
    return _Told(lines, found[-1][1] if len(found) == messages.WHOLE else None)


def _newest(scope: Scope, session: str, before: paths.MessageId | None, last: int) -> Plan[View]:
    whole = yield from active(scope, session, before=before, enough=lambda found: len(found) >= last)
    return whole._replace(messages=whole.messages[len(whole.messages) - min(last, len(whole.messages)) :])


def _opened(found: Sequence[Message]) -> bool:
    return any(message.role == "user" for message in found)


def _joined(always: Sequence[Message], read: list[Message]) -> list[Message]:
    """Put what is always there and what was read in order; a summary comes before a message at its place."""
    if not always:
        return read
    known = {message.position for message in read}
    more = {m.position: m for m in always if type(m) is Message and m.position not in known}
    summaries = [message for message in always if type(message) is not Message]
    if not more and not summaries:
        return read
    return sorted((*summaries, *more.values(), *read), key=lambda message: message.position)


def _stand(scope: Scope, session: str, before: paths.MessageId | None) -> Steps[_Standing]:
    here = yield from sessions.find(scope, session)
    spans = yield from paths.path(here.head)
    last = max(span.high for span in spans)
    end = last if before is None else min(last, paths.parse(before)[1] - 1)
    number = spans[0].number
    force = [item for item in (yield from compactions.of_branch(here.head, number)) if item.undone_at is None]
    covers = outermost(force)
    always: list[Message] = []
    for span in spans:
        if span.low < min(span.high, end):
            low, high = span.low, min(span.high, end)
            found = yield from messages.stretch(scope, "messages_pinned", span, low, high)
            always += yield from _with_partners(scope, spans, found)
    always += [standing_for(cover, _number_at(spans, cover.from_position)) for cover in covers]
    return _Standing(here.head, spans, _open(spans, covers, end), end, covers, [item.round for item in force], always)


def _number_at(spans: Sequence[Span], position: int) -> int:
    return next((span.number for span in spans if span.low < position <= span.high), spans[0].number)


def _open(spans: Sequence[Span], covers: Sequence[Compaction], end: int) -> list[Span]:
    """Cut what is hidden out of the stretches of a path, the newest first."""
    found: list[Span] = []
    for span in spans:
        high = min(span.high, end)
        for cover in sorted(covers, key=lambda item: item.to_position, reverse=True):
            if cover.to_position <= span.low or cover.from_position > high:
                continue
            if cover.to_position < high:
                found.append(Span(span.branch, span.number, cover.to_position, high))
            high = cover.from_position - 1
        if span.low < high:
            found.append(Span(span.branch, span.number, span.low, high))
    return found


def _with_partners(scope: Scope, spans: Sequence[Span], found: list[Message]) -> Steps[list[Message]]:
    """Read the calls and results beside pinned messages too: they are never parted."""
    made = list(found)
    for message in found:
        if message.pinned and (message.tool_calls or message.tool_results):
            made += yield from _partners(scope, spans, message)
    return made


def _partners(scope: Scope, spans: Sequence[Span], message: Message) -> Steps[list[Message]]:
    near: list[Message] = []
    for span in spans:
        low = max(span.low, message.position - _PARTNERS)
        high = min(span.high, message.position + _PARTNERS)
        if low < high:
            near = (yield from messages.stretch(scope, "messages_forward", span, low, high)) + near
    ids = {part.call_id for part in (*message.tool_calls, *message.tool_results)}
    for other in near:
        if ids & {part.call_id for part in other.tool_calls}:
            ids |= {part.call_id for part in other.tool_calls}
    return [other for other in near if ids & {part.call_id for part in (*other.tool_calls, *other.tool_results)}]


def _back(scope: Scope, stretches: Sequence[Span], limit: int) -> Steps[_Piece]:
    found: list[Message] = []
    for index, span in enumerate(stretches):
        room = limit - len(found)
        part = yield from messages.stretch(scope, "messages_backward", span, span.low, span.high, room)
        found = part[::-1] + found
        if len(part) == room:
            rest = Span(span.branch, span.number, span.low, part[-1].position - 1)
            more = list(stretches[index + 1 :])
            return _Piece(found, [rest, *more] if rest.low < rest.high else more)
    return _Piece(found, [])


def _asked(scope: Scope, stretches: Sequence[Span]) -> Steps[list[Message]]:
    """Find what the person said last."""
    for span in stretches:
        found = yield from messages.stretch(scope, "messages_asked", span, span.low, span.high)
        if found:
            return found
    return []


def prepare(scope: Scope, session: str, before: paths.MessageId | None) -> Plan[Ready]:
    """Read what could be compacted, and find the message that is to be the first after it."""
    position: int | None = None
    if before is not None:
        position = yield Op(_position, scope, session, before, writes=False)
    view = yield from active(scope, session)
    return Ready(view, position)


def _position(scope: Scope, session: str, name: paths.MessageId) -> Steps[int]:
    here = yield from sessions.find(scope, session)
    number, position = paths.parse(name)
    for span in (yield from paths.path(here.head)):
        if span.low < position <= span.high and number in (None, span.number):
            return position
    raise MessageNotFound(session=session, message=paths.shown(name))


def tokens(scope: Scope, session: str) -> Op[int]:
    """Add up the size of what a session sends on, from the stored counts."""
    return Op(_tokens, scope, session, writes=False)


def _tokens(scope: Scope, session: str) -> Steps[int]:
    standing = yield from _stand(scope, session, None)
    if not standing.covers:
        return (yield from sessions.find(scope, session)).value.token_count
    total = 0
    for message in _joined(standing.always, []):
        counted = any(span.low < message.position <= span.high for span in standing.open)
        total += 0 if counted else message.tokens
    for span in standing.open:
        total += (yield from rows("messages_count", branch=span.branch, low=span.low, high=span.high))[0][1]
    return total
