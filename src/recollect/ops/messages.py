"""Messages: read, delete one and bring it back. Counts are kept right by the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from recollect.errors import Corrupted, InvalidValue, MessageNotFound, displayed
from recollect.model import argument, json, keys
from recollect.model.message import Message
from recollect.op import Op, Plan, Row, Scope, Steps, do, one, rows
from recollect.ops import record, sessions
from recollect.ops.paths import LAST, MessageId, Span, locate, parse, path, shown

PAGE = 500
WHOLE = 1_000
"""A page where all there is is wanted: to a server each one is a journey."""

_COUNTED = 100
"""Sessions whose messages are counted in one statement. Counting reads every message row of their paths."""

_position = itemgetter(1)


class Page(NamedTuple):
    """Some messages of a path, oldest first; where to go on, and the branch that the path ends with."""

    messages: list[Message]
    branch: int
    until: int
    more: int | None


def forward(
    scope: Scope,
    session: str,
    *,
    after: int = 0,
    branch: int | None = None,
    until: int | None = None,
    limit: int = PAGE,
    deleted: bool = False,
) -> Op[Page]:
    """Read a page of the active path from the oldest on. `branch` and `until` hold on to the end it began with."""
    return Op(_forward, scope, session, after, branch, until, limit, argument.flag("deleted", deleted), writes=False)


def _forward(
    scope: Scope, session: str, after: int, branch: int | None, until: int | None, limit: int, deleted: bool
) -> Steps[Page]:
    here = yield from sessions.find(scope, session)
    branch = here.head if branch is None else branch
    spans = yield from path(branch)
    end = _last(session, spans) if until is None else until
    found: list[Message] = []
    for span in reversed(spans):
        room = limit - len(found)
        low, high = max(span.low, after), min(span.high, end)
        if room > 0 and low < high:
            found += yield from stretch(scope, "messages_forward", span, low, high, room, deleted)
    more = found[-1].position if len(found) == limit and found[-1].position < end else None
    return Page(found, branch, end, more)


def _last(session: str, spans: Sequence[Span]) -> int:
    """Return the last position of a path."""
    if not spans:
        raise Corrupted(
            f"The branch of session {session!r} is missing: the database was damaged, or another program deleted it. "
            f"Stop writing to it and restore a backup.",
            session=session,
        )
    return max(span.high for span in spans)


def everything(scope: Scope, session: str, *, deleted: bool = False) -> Plan[list[Message]]:
    """Read the whole active path, page by page, up to the end that it had at the start."""
    page: Page = yield forward(scope, session, deleted=deleted, limit=WHOLE)
    found = page.messages
    while page.more is not None:
        page = yield following(scope, session, page, deleted=deleted, limit=WHOLE)
        found += page.messages
    return found


def following(scope: Scope, session: str, page: Page, *, deleted: bool = False, limit: int = PAGE) -> Op[Page]:
    """Read the page after a page, on the path and up to the end that the first one had."""
    after = page.until if page.more is None else page.more
    return forward(scope, session, after=after, branch=page.branch, until=page.until, limit=limit, deleted=deleted)


def backward(
    scope: Scope, session: str, *, before: MessageId | None = None, limit: int = PAGE, deleted: bool = False
) -> Op[Page]:
    """Read the last messages of the active path, or the last ones before a message."""
    return Op(_backward, scope, session, before, checked_limit(limit), argument.flag("deleted", deleted), writes=False)


def checked_limit(limit: int) -> int:
    """Give how many messages are wanted, at most as many as a branch can have."""
    if type(limit) is not int or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"How many messages is a number from 0 on; got {displayed(limit)}.")
    return min(limit, LAST)


def _backward(scope: Scope, session: str, before: MessageId | None, limit: int, deleted: bool) -> Steps[Page]:
    if before is None and (page := (yield from _newest(scope, session, limit, deleted))) is not None:
        return page
    here = yield from sessions.find(scope, session)
    spans = yield from path(here.head)
    end = _last(session, spans) if before is None else min(parse(before)[1] - 1, LAST)
    found: list[Message] = []
    for span in spans:
        room = limit - len(found)
        high = min(span.high, end)
        if room > 0 and span.low < high:
            part = yield from stretch(scope, "messages_backward", span, span.low, high, room, deleted)
            found = part[::-1] + found
    more = found[0].position if found and len(found) == limit else None
    return Page(found, here.head, end, more)


def _newest(scope: Scope, session: str, limit: int, deleted: bool) -> Steps[Page | None]:
    """Read the last messages of a path, where the branch that it ends with has them all; None where it has not."""
    if not keys.findable(session):
        return None
    found = yield from rows("messages_last", owner=scope.owner, id=session, limit=limit, deleted=deleted)
    if not found:
        return None
    head, number, end, fork_at = found[0][-4:]
    if fork_at and len(found) < limit:
        return None
    made = yield from _made(scope, number, [row[:-4] for row in sorted(found, key=_position)])
    return Page(made, head, end, made[0].position if len(made) == limit else None)


def stretch(
    scope: Scope, query: str, span: Span, low: int, high: int, limit: int = PAGE, deleted: bool = False
) -> Steps[list[Message]]:
    """Read messages of a stretch, after a position and up to another, in the order of the query."""
    found = yield from rows(query, branch=span.branch, low=low, high=high, limit=limit, deleted=deleted)
    return (yield from _made(scope, span.number, found))


def _made(scope: Scope, number: int, found: list[Row]) -> Steps[list[Message]]:
    """Make messages of rows, with the payloads that are stored apart."""
    if any(record.blobs_of(row) is not None for row in found if row[record.REST] is not None):
        return (yield from _with_payloads(scope, number, found))
    return record.messages(found, number)


def _with_payloads(scope: Scope, number: int, found: list[Row]) -> Steps[list[Message]]:
    payloads: dict[str, bytes] = {}
    made: list[Message] = []
    for row in found:
        names = record.blobs_of(row)
        for name in names or ():
            if name not in payloads:
                stored = yield from one("blob_get", owner=scope.owner, hash=name)
                if stored is None:
                    raise _without_payload(f"{number}.{row[1]}", name)
                payloads[name] = stored[0]
        made.append(record.whole(row, number, None if names is None else payloads))
    return made


def _without_payload(message: str, name: str) -> Corrupted:
    return Corrupted(
        f"Message {message} refers to a payload that is not in the store ({name}): the file was damaged, or another "
        f"program deleted it. Stop writing to the file and restore a backup.",
        message=message,
        payload=name,
    )


def at(scope: Scope, branch: int, number: int, position: int, *, lock: bool = False) -> Steps[Message | None]:
    """Read the message at a place. `lock` keeps others from changing it until the operation ends."""
    row = yield from one("message_for_update" if lock else "message_get", branch=branch, position=position)
    return None if row is None else (yield from _with_payloads(scope, number, [row]))[0]


def get(scope: Scope, session: str, name: MessageId) -> Op[Message]:
    """Read one message, deleted or not."""
    return Op(_get, scope, session, name, writes=False)


def _get(scope: Scope, session: str, name: MessageId) -> Steps[Message]:
    here = yield from sessions.find(scope, session)
    return (yield from located(scope, session, here, name))[1]


def located(
    scope: Scope, session: str, here: sessions.Here, name: MessageId, *, lock: bool = False
) -> Steps[tuple[Span, Message]]:
    """Find a message by its name, and read it. `lock` keeps others from changing it until the operation ends."""
    span = yield from locate(session, here.head, here.session, name)
    message = yield from at(scope, span.branch, span.number, span.high, lock=lock)
    if message is None:
        raise MessageNotFound(session=session, message=shown(name))
    return span, message


def mark(scope: Scope, session: str, name: MessageId, *, deleted: bool) -> Op[Message]:
    """Delete a message, or bring it back. It is the same message in every fork that shares it."""
    return Op(_mark, scope, session, name, deleted)


def _mark(scope: Scope, session: str, name: MessageId, deleted: bool) -> Steps[Message]:
    here = yield from sessions.find(scope, session)
    span, message = yield from located(scope, session, here, name, lock=True)
    if (message.deleted_at is not None) == deleted:
        return message
    stamp = scope.now if deleted else None
    yield from do("message_mark", branch=span.branch, position=span.high, deleted_at=stamp)
    sign = -1 if deleted else 1
    change = Change(
        sign, sign * message.tokens, sign * (message.input_tokens or 0), sign * (message.output_tokens or 0)
    )
    yield from recount(scope, here.tree, span.branch, span.high, change)
    return msgspec.structs.replace(message, deleted_at=stamp)


class Change(NamedTuple):
    """By how much a message changes the counts of the sessions that have it."""

    messages: int
    tokens: int
    input_tokens: int
    output_tokens: int


def recount(scope: Scope, tree: int, branch: int, position: int, change: Change) -> Steps[None]:
    """Change the counts of every session whose active path has a message: it is one message in all of them."""
    for key, _, head, _ in (yield from rows("sessions_of_tree", tree=tree)):
        spans = yield from path(head)
        if any(span.branch == branch and span.low < position <= span.high for span in spans):
            yield from do("session_change", session=key, now=scope.now, **change._asdict())


class Totals(NamedTuple):
    """What a path adds up to."""

    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    last_message_at: int | None


def totals(spans: Sequence[Span]) -> Steps[Totals]:
    """Count the messages of a path."""
    count = tokens = given = taken = 0
    newest: int | None = None
    for span in spans:
        if span.low < span.high:
            row = yield from one("messages_count", branch=span.branch, low=span.low, high=span.high)
            assert row is not None
            count, tokens, given, taken = count + row[0], tokens + row[1], given + row[2], taken + row[3]
            newest = row[4] if newest is None else newest
    return Totals(count, tokens, given, taken, newest)


class Stretch(NamedTuple):
    """Positions of a session's active path, after one and up to another.

    `deleted_at` names the session beside its id: one in the trash can have the id of a living one.
    """

    id: str
    deleted_at: int | None = None
    after: int = 0
    until: int = LAST


def shown_counts(scope: Scope, wanted: Sequence[Any]) -> Plan[list[int]]:
    """Count the messages of each session's active path that are no tool steps, in the order of the sessions.

    A session is a handle, a value or the id of a living session. One that is not there counts 0.
    """
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"sessions must be a list of sessions or ids, got {displayed(wanted)}.")
    return _shown_counts(scope, [_whole_path(session) for session in wanted])


def _whole_path(session: Any) -> Stretch:
    if isinstance(session, str):
        return Stretch(argument.string("A session's id", session))
    try:
        id, deleted_at = session.id, session.deleted_at
    except Exception as error:
        raise InvalidValue(f"sessions must hold sessions or ids, got {displayed(session)}.") from error
    return Stretch(argument.string("A session's id", id), deleted_at)


def _shown_counts(scope: Scope, stretches: Sequence[Stretch]) -> Plan[list[int]]:
    counts: list[int] = []
    for start in range(0, len(stretches), _COUNTED):
        counts += yield count_shown(scope, stretches[start : start + _COUNTED])
    return counts


def count_shown(scope: Scope, stretches: Sequence[Stretch]) -> Op[list[int]]:
    """Count the messages of stretches that are no tool steps, in one statement: give it a page of them."""
    return Op(_count_shown, scope, stretches, writes=False)


def _count_shown(scope: Scope, stretches: Sequence[Stretch]) -> Steps[list[int]]:
    counts = [0] * len(stretches)
    places = [place for place, stretch in enumerate(stretches) if keys.findable(stretch.id)]
    text = json.encode([stretches[place] for place in places])
    for place, count in (yield from rows("messages_shown", owner=scope.owner, stretches=text)):
        counts[places[place]] += count
    return counts


def shown_by_branch(scope: Scope, session: str) -> Op[dict[int, int]]:
    """Count the messages of each branch of a session that are no tool steps, without the past that it shares."""
    return Op(_shown_by_branch, scope, session, writes=False)


def _shown_by_branch(scope: Scope, session: str) -> Steps[dict[int, int]]:
    here = yield from sessions.find(scope, session)
    return dict((yield from rows("messages_shown_by_branch", session=here.session)))
