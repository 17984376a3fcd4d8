"""Messages: append, read, delete one and bring it back. Counts are kept right by the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from recollect.errors import Corrupted, InvalidValue, KeyReused, MessageNotFound
from recollect.model import figure, json, keys
from recollect.model.message import Draft, Message
from recollect.op import Op, Plan, Row, Scope, Steps, do, each, one, rows
from recollect.ops import record, sessions, tools
from recollect.ops.paths import LAST, MessageId, Span, locate, parse, path, shown

PAGE = 500
WHOLE = 1_000
"""A page where all there is is wanted: to a server each one is a journey."""

_position = itemgetter(1)
_VARYING = ("created_at", "completed_at", "tokens")  # the same message sent again may differ in these


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What an append made: the branch, the first position and how many, and how the session stands after it."""

    branch: int
    first: int
    count: int
    revision: int
    repeated: bool = False
    """Whether the same append had been made before, under the same key."""

    @property
    def ids(self) -> list[str]:
        """The ids of the messages."""
        return [f"{self.branch}.{self.first + offset}" for offset in range(self.count)]


class Written(msgspec.Struct, frozen=True, gc=False):
    """Where messages were written, and how the session stands after it."""

    session: int
    key: int
    branch: int
    first: int
    open_turns: int
    counts: Row

    @property
    def revision(self) -> int:
        """The session's revision after the write."""
        return self.counts[0]


def append(
    scope: Scope, session: str, drafts: Sequence[Draft], *, key: str | None = None, expected: int | None = None
) -> Op[tuple[Appended, Row]]:
    """Add messages to the end of a session's active path, all or none."""
    if not drafts:
        raise InvalidValue("There is no message to append. Give one message or a list of them.")
    check_key(key)
    figure.whole("expected", expected)
    records = [record.record(draft, scope.now) for draft in drafts]
    whole = at_once(scope, session, records, expected) if key is None else None
    return Op(_append, scope, session, records, key, expected, whole)


def check_key(key: str | None) -> None:
    """Refuse what can not be an idempotency key."""
    if key is not None and (not isinstance(key, str) or not key or key != json.storable(key)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"An idempotency key is a text that is not empty; got {key!r}.")


def _append(
    scope: Scope,
    session: str,
    records: list[record.Record],
    key: str | None,
    expected: int | None,
    whole: dict[str, Any] | None,
) -> Steps[tuple[Appended, Row]]:
    if whole is not None and (found := (yield "session_append", whole, False)):
        written = placed(found[0])
        return Appended(written.branch, written.first, len(records), written.revision), written.counts
    if key is not None:
        before = yield from appended_before(scope, session, key, records)
        if before is not None:
            return before[:2]
    written = yield from advance(scope, session, records, expected=expected)
    if key is not None:
        yield from remember(scope, written, key, records)
    return Appended(written.branch, written.first, len(records), written.revision), written.counts


def under_key(scope: Scope, session: str, key: str, drafts: Sequence[Draft] | None = None) -> Op[Appended | None]:
    """Find what was appended under a key; where drafts are given, other ones than those are an error."""
    check_key(key)
    records = None if drafts is None else [record.record(draft, scope.now) for draft in drafts]
    return Op(_under_key, scope, session, key, records, writes=False)


def _under_key(scope: Scope, session: str, key: str, records: Sequence[record.Record] | None) -> Steps[Appended | None]:
    before = yield from appended_before(scope, session, key, records)
    return None if before is None else before[0]


def remember(scope: Scope, written: Written, key: str, records: Sequence[record.Record]) -> Steps[None]:
    """Keep what an append made under its key."""
    yield from do(
        "append_insert", session=written.session, key=key, digest=_digest(records), branch=written.key,
        position=written.first, count=len(records), now=scope.now,
    )  # fmt: skip


def _digest(records: Sequence[record.Record]) -> bytes:
    """Fingerprint what the caller sent, so that a key can not stand for two contents."""
    import hashlib  # noqa: PLC0415  only where a key is given

    digest = hashlib.sha256()
    for item in records:
        told = [value for name, value in zip(record.COLUMNS, item.columns, strict=True) if name not in _VARYING]
        digest.update(repr(told).encode("utf-8", "surrogatepass"))
    return digest.digest()


def appended_before(
    scope: Scope, session: str, key: str, records: Sequence[record.Record] | None
) -> Steps[tuple[Appended, Row, int, int] | None]:
    """Find what an earlier append under this key made; the same key for other content is an error."""
    here = yield from sessions.find(scope, session)
    row = yield from one("append_get", session=here.session, key=key)
    if row is None:
        return None
    if records is not None and row[0] != _digest(records):
        raise KeyReused(session=session, key=key)
    branch = yield from one("branch_get", branch=row[1])
    assert branch is not None
    made = Appended(branch[1], row[2], row[3], here.value.revision, repeated=True)
    return made, sessions.counts(here.value), row[1], here.session


def at_once(
    scope: Scope, session: str, records: Sequence[record.Record], expected: int | None
) -> dict[str, Any] | None:
    """Give what is appended, for a statement that writes all of it; None where there is more to it than its rows.

    Such a statement gives no row, and has written nothing, where the session is not there, or not as it is expected:
    then it is done step by step, which finds out why.
    """
    calls: Sequence[Row] = ()
    for item in records:
        if not item.alone:
            found = _beside_alone(records)
            if found is None:
                return None
            calls = found
            break
    sums = _sums(scope, session, records)
    sums["expected"] = expected
    sums["rows"] = [item.columns for item in records]
    sums["calls"] = calls
    return sums


def placed(row: Row) -> Written:
    """Read the row of a statement that wrote messages."""
    return Written(row[0], row[1], row[3], row[2] + 1, row[4], row[5:])


def _beside_alone(records: Sequence[record.Record]) -> Sequence[Row] | None:
    """Give the calls that messages bring along; None where they bring payloads, pins or the result of an older call."""
    for item in records:
        if item.payloads or item.stays:
            return None
    return tools.made(records)


def advance(
    scope: Scope,
    session: str,
    records: Sequence[record.Record],
    *,
    opens_turn: bool = False,
    expected: int | None = None,
) -> Steps[Written]:
    """Write messages to the end of the active path and count them."""
    sums = _sums(scope, session, records)
    sums["expected"] = expected
    found = yield "session_advance", sums, False
    if not found:
        raise (yield from sessions.refused(scope, session, expected))
    written = placed(found[0])
    yield from _insert(scope, written.key, written.first, records, written.first if opens_turn else None)
    return written


def extend(
    scope: Scope, session: str, key: int, branch: int, turn: int | None, records: Sequence[record.Record]
) -> Steps[Written]:
    """Write messages to the end of a branch, which the session may have left meanwhile, and count them if not."""
    sums = _sums(scope, session, records)
    row = yield from one("session_stir", **sums, session=key, branch=branch)
    if row is None:
        raise (yield from sessions.lost(session, key))
    place = yield from one("branch_get", branch=branch)
    assert place is not None
    before = row[2]
    if row[1] != branch:
        yield from do("branch_advance", branch=branch, count=len(records))
        before = place[5]
    yield from _insert(scope, branch, before + 1, records, turn)
    active = yield from sessions.activate(scope, row[0])
    return Written(row[0], branch, place[1], before + 1, 0, (*row[3:9], active, row[10]))


def _insert(scope: Scope, branch: int, first: int, records: Sequence[record.Record], turn: int | None) -> Steps[None]:
    yield "message_insert", [(branch, at, turn, *item.columns) for at, item in enumerate(records, first)], True
    for item in records:
        if not item.alone:
            yield from _beside(scope, branch, first, records)
            break


def _beside(scope: Scope, branch: int, first: int, records: Sequence[record.Record]) -> Steps[None]:
    """Write what new messages bring along: payloads, tool calls and results, pins."""
    for item in records:
        for name, payload in item.payloads.items():
            yield from keep_blob(scope, name, payload)
    if any(item.calls or item.results for item in records):
        yield from tools.track(branch, first, records)
    yield from each("pin_insert", [(branch, at) for at, item in enumerate(records, first) if item.stays])


def _sums(scope: Scope, session: str, records: Sequence[record.Record]) -> dict[str, Any]:
    tokens = given = taken = 0
    for item in records:
        tokens += item.tokens
        given += item.draft.input_tokens or 0
        taken += item.draft.output_tokens or 0
    return {
        "owner": scope.owner, "id": session, "now": scope.now, "messages": len(records), "tokens": tokens,
        "input_tokens": given, "output_tokens": taken,
    }  # fmt: skip


def keep_blob(scope: Scope, name: str, payload: bytes) -> Steps[None]:
    """Store a payload once, and count who refers to it."""
    if (yield from one("blob_keep", owner=scope.owner, hash=name)) is None:
        yield from do("blob_insert", owner=scope.owner, hash=name, size=len(payload), data=payload, now=scope.now)


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
    return Op(_forward, scope, session, after, branch, until, limit, bool(deleted), writes=False)


def _forward(
    scope: Scope, session: str, after: int, branch: int | None, until: int | None, limit: int, deleted: bool
) -> Steps[Page]:
    here = yield from sessions.find(scope, session)
    branch = here.head if branch is None else branch
    spans = yield from path(branch)
    end = max(span.high for span in spans) if until is None else until
    found: list[Message] = []
    for span in reversed(spans):
        room = limit - len(found)
        low, high = max(span.low, after), min(span.high, end)
        if room > 0 and low < high:
            found += yield from stretch(scope, "messages_forward", span, low, high, room, deleted)
    more = found[-1].position if len(found) == limit and found[-1].position < end else None
    return Page(found, branch, end, more)


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
    return Op(_backward, scope, session, before, checked_limit(limit), bool(deleted), writes=False)


def checked_limit(limit: int) -> int:
    """Give how many messages are wanted, at most as many as a branch can have."""
    if not isinstance(limit, int) or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"How many messages is a number from 0 on; got {limit!r}.")
    return min(limit, LAST)


def _backward(scope: Scope, session: str, before: MessageId | None, limit: int, deleted: bool) -> Steps[Page]:
    if before is None and (page := (yield from _newest(scope, session, limit, deleted))) is not None:
        return page
    here = yield from sessions.find(scope, session)
    spans = yield from path(here.head)
    end = max(span.high for span in spans) if before is None else min(parse(before)[1] - 1, LAST)
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


def at(scope: Scope, branch: int, number: int, position: int) -> Steps[Message | None]:
    """Read the message at a place."""
    row = yield from one("message_get", branch=branch, position=position)
    return None if row is None else (yield from _with_payloads(scope, number, [row]))[0]


def get(scope: Scope, session: str, name: MessageId) -> Op[Message]:
    """Read one message, deleted or not."""
    return Op(_get, scope, session, name, writes=False)


def _get(scope: Scope, session: str, name: MessageId) -> Steps[Message]:
    here = yield from sessions.find(scope, session)
    return (yield from located(scope, session, here, name))[1]


def located(scope: Scope, session: str, here: sessions.Here, name: MessageId) -> Steps[tuple[Span, Message]]:
    """Find a message by its name, and read it."""
    span = yield from locate(session, here.head, here.session, name)
    message = yield from at(scope, span.branch, span.number, span.high)
    if message is None:
        raise MessageNotFound(session=session, message=shown(name))
    return span, message


def mark(scope: Scope, session: str, name: MessageId, *, deleted: bool) -> Op[Message]:
    """Delete a message, or bring it back. It is the same message in every fork that shares it."""
    return Op(_mark, scope, session, name, deleted)


def _mark(scope: Scope, session: str, name: MessageId, deleted: bool) -> Steps[Message]:
    here = yield from sessions.find(scope, session)
    span, message = yield from located(scope, session, here, name)
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
