"""Appends: messages added to the end of a path, all or none, and once for each key.

Counts are kept right by the same transaction. What is read, deleted or counted later is the business of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue, KeyReused, SessionInTrash, displayed
from recollect.model import argument, figure
from recollect.model.message import Draft
from recollect.op import Op, Row, Scope, Steps, do, each, one
from recollect.ops import record, sessions, tools

_LONGEST_KEY = 512
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
    if key is not None and not argument.plain_text("key", key):
        raise InvalidValue(f"An idempotency key is a text that is not empty; got {displayed(key)}.")


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
        "append_insert", session=written.session, key=_kept(key), digest=_digest(records), branch=written.key,
        position=written.first, count=len(records), now=scope.now,
    )  # fmt: skip


def _kept(key: str) -> str:
    """Give a key as it is stored: a long one by its fingerprint, because PostgreSQL has no index of long texts."""
    key = str.__str__(key)
    if len(key) <= _LONGEST_KEY:
        return key
    import hashlib  # noqa: PLC0415  only for such a key

    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


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
    row = yield from one("append_get", session=here.session, key=_kept(key))
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
        yield from sessions.refused(scope, session, expected)
        found = yield "session_advance", sums, False
    if not found:
        raise SessionInTrash(session=session)
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
