"""Turns: one run from the person's message to the end of the answer.

A turn is opened with the person's message, which is durable at once, takes steps, and ends; or it is saved whole,
in one transaction. Each write renews the lease of an open turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import AlreadySaid, InvalidValue, MessageNotFound, TurnClosed, TurnNotFound
from recollect.model import argument, figure, json
from recollect.model.message import Draft
from recollect.model.turn import Turn
from recollect.op import Op, Row, Scope, Steps, do, one, rows
from recollect.ops import appends, leases, paths, record, sessions


class Held(NamedTuple):
    """An open turn, as its holder knows it: where it is stored, and its public place."""

    session: int
    branch: int
    position: int
    number: int


class Step(NamedTuple):
    """What a write of a turn made, and how the session stands after it."""

    held: Held
    appended: appends.Appended
    counts: Row
    reopened: bool = False
    """Whether it took up a turn that was interrupted."""


class Usage(NamedTuple):
    """What a run used, where the caller knows."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None
    error: Any = None


def begin(
    scope: Scope,
    session: str,
    drafts: Sequence[Draft],
    *,
    lease: int,
    take_over: bool,
    expected: int | None = None,
    key: str | None = None,
) -> Op[Step]:
    """Open a turn with the person's message. A branch takes one turn at a time; a key opens one turn only."""
    if not drafts:
        raise InvalidValue("A turn begins with a message. Give what the person said.")
    appends.check_key(key)
    figure.whole("expected", expected)
    records = [record.record(draft, scope.now) for draft in drafts]
    return Op(_begin, scope, session, records, lease, take_over, expected, key)


def _begin(
    scope: Scope,
    session: str,
    records: list[record.Record],
    lease: int,
    take_over: bool,
    expected: int | None,
    key: str | None,
) -> Steps[Step]:
    if key is not None:
        before = yield from appends.appended_before(scope, session, key, records)
        if before is not None:
            raise AlreadySaid(session=session, key=key, turn=before[0].ids[0])
    written = yield from appends.advance(scope, session, records, opens_turn=True, expected=expected)
    if written.open_turns:
        yield from leases.clear(scope, session, written.session, written.key, take_over=take_over)
    yield from _insert(scope, written, status="open", until=scope.now + lease, usage=Usage())
    yield from leases.claim(written.session, written.key, written.first)
    if key is not None:
        yield from appends.remember(scope, written, key, records)
    return _step(Held(written.session, written.key, written.first, written.branch), written, len(records))


def _made_before(scope: Scope, session: str, key: str, records: list[record.Record]) -> Steps[Step | None]:
    """Find what an earlier call with this key made."""
    before = yield from appends.appended_before(scope, session, key, records)
    if before is None:
        return None
    appended, counts, branch, owner = before
    return Step(Held(owner, branch, appended.first, appended.branch), appended, counts)


def resume(scope: Scope, session: str, turn: paths.MessageId, *, lease: int) -> Op[Step]:
    """Take up an open turn by its id, or reopen one that was interrupted.

    Only the last turn of the active branch is reopened, and not one that another process took over: any other
    interrupted turn raises TurnClosed.
    """
    return Op(_resume, scope, session, turn, lease)


def _resume(scope: Scope, session: str, turn: paths.MessageId, lease: int) -> Steps[Step]:
    here = yield from sessions.find(scope, session)
    try:
        span = yield from paths.locate(session, here.head, here.session, turn)
    except MessageNotFound as error:
        raise TurnNotFound(session=session, turn=paths.shown(turn)) from error
    held = Held(here.session, span.branch, span.high, span.number)
    row = yield from one("turn_get", branch=span.branch, position=span.high)
    if row is None:
        raise TurnNotFound(session=session, turn=paths.shown(turn))
    counts, reopened = sessions.counts(here.value), row[1] == "interrupted"
    if reopened:  # one that has ended otherwise refuses the next step, unless that is a step it took before
        if span.branch != here.head:
            raise TurnClosed(session=session, turn=f"{held.number}.{held.position}", status=row[1])
        yield from renew(scope, session, held, lease, Usage())
        counts = (yield from stir(scope, session, held))[3:]
    appended = appends.Appended(span.number, span.high, 0, counts[0], repeated=True)
    return Step(held, appended, counts, reopened)


def _insert(scope: Scope, written: appends.Written, *, status: str, until: int | None, usage: Usage) -> Steps[None]:
    row = (
        written.key, written.first, *_run(scope, status, usage), None if until is None else scope.holder, until,
    )  # fmt: skip
    yield "turn_insert", [row], True


def _run(scope: Scope, status: str, usage: Usage) -> Row:
    """Give a turn as its row has it, without its place and its holder."""
    return (
        status, scope.now, None if status == "open" else scope.now, usage.latency_ms, usage.input_tokens,
        usage.output_tokens, usage.model, usage.error,
    )  # fmt: skip


def _step(held: Held, written: appends.Written, count: int) -> Step:
    appended = appends.Appended(written.branch, written.first, count, written.revision)
    return Step(held, appended, written.counts)


def _stored(usage: Usage) -> Usage:
    if usage.model is not None:
        argument.text("model", usage.model)
    figure.whole("input_tokens", usage.input_tokens)
    figure.whole("output_tokens", usage.output_tokens)
    latency = figure.milliseconds("latency_ms", usage.latency_ms)
    if latency is not usage.latency_ms:
        usage = usage._replace(latency_ms=latency)
    return usage if usage.error is None else usage._replace(error=json.encode(json.exact(usage.error)))


def add(
    scope: Scope, session: str, held: Held, drafts: Sequence[Draft], *, lease: int, key: str | None = None
) -> Op[Step]:
    """Add steps to an open turn: durable as they happen."""
    if not drafts:
        raise InvalidValue("There is no message to add. Give one message or a list of them.")
    appends.check_key(key)
    return Op(_add, scope, session, held, [record.record(draft, scope.now) for draft in drafts], lease, key)


def _add(
    scope: Scope, session: str, held: Held, records: list[record.Record], lease: int, key: str | None
) -> Steps[Step]:
    if key is not None and (before := (yield from _made_before(scope, session, key, records))) is not None:
        return before._replace(held=held)
    yield from renew(scope, session, held, lease, used(records))
    written = yield from appends.extend(scope, session, held.session, held.branch, held.position, records)
    if key is not None:
        yield from appends.remember(scope, written, key, records)
    return _step(held, written, len(records))


def used(records: Sequence[record.Record]) -> Usage:
    """Add up what providers reported in these messages."""
    model: str | None = None
    given: list[int] = []
    taken: list[int] = []
    for item in records:
        draft = item.draft
        model = draft.model or model
        if draft.input_tokens is not None:
            given.append(draft.input_tokens)
        if draft.output_tokens is not None:
            taken.append(draft.output_tokens)
    return Usage(model, sum(given) if given else None, sum(taken) if taken else None)


def hold(scope: Scope, session: str, held: Held, *, lease: int) -> Op[Row]:
    """Hold on to an open turn for another lease without adding anything; the session's revision rises."""
    return Op(_hold, scope, session, held, lease)


def _hold(scope: Scope, session: str, held: Held, lease: int) -> Steps[Row]:
    yield from renew(scope, session, held, lease, Usage())
    return (yield from stir(scope, session, held))[3:]


def renew(scope: Scope, session: str, held: Held, lease: int, usage: Usage) -> Steps[None]:
    """Hold on to a turn for another lease.

    A turn that was marked interrupted while its holder slept goes on, with its calls, unless it was taken over, or
    another has been opened since: then it stays ended, also when the other one is over.
    """
    standing = yield from _standing(session, held)
    if standing is None:
        raise (yield from sessions.lost(session, held.session))
    yield from do(
        "turn_renew", branch=held.branch, position=held.position, holder=scope.holder,
        lease_until=scope.now + lease, model=usage.model, input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )  # fmt: skip
    if standing == "released":
        yield from do("tool_calls_resume", branch=held.branch, position=held.position)
        yield from leases.claim(held.session, held.branch, held.position)


def _standing(session: str, held: Held) -> Steps[Literal["held", "released"] | None]:
    """Say whether a turn still has its branch; None where it was erased. One that has ended, or lost it, is closed."""
    row = yield from one("turn_get", branch=held.branch, position=held.position)
    branch = yield from one("branch_get", branch=held.branch)
    if row is None or branch is None:
        return None
    status, open_turn = row[1], branch[6]
    closed = status not in ("open", "interrupted") or open_turn not in (None, held.position)
    if status == "interrupted" and not closed:
        followed = yield from one("turn_after", branch=held.branch, position=held.position)
        closed = followed is not None or _was_taken(row[8])
    if closed:
        raise TurnClosed(session=session, turn=f"{held.number}.{held.position}", status=status)
    return "released" if open_turn is None else "held"


def _was_taken(error: str | None) -> bool:
    told = None if error is None else json.decode(error)
    return isinstance(told, dict) and told.get("name") == leases.TAKEN


def end(scope: Scope, session: str, held: Held, status: str, usage: Usage = Usage()) -> Op[tuple[Turn, Row]]:  # noqa: B008
    """End a turn: completed, failed, cancelled or interrupted."""
    if status != "interrupted":
        _check_end(status)
    return Op(_end, scope, session, held, status, _stored(usage))


def _check_end(status: str) -> None:
    argument.choice("status", status, ("completed", "failed", "cancelled"))


def _end(scope: Scope, session: str, held: Held, status: str, usage: Usage) -> Steps[tuple[Turn, Row]]:
    standing = yield from _standing(session, held)
    if standing is None:
        raise TurnNotFound(session=session, turn=f"{held.number}.{held.position}")
    if standing == "released":
        yield from do("tool_calls_resume", branch=held.branch, position=held.position)
    yield from leases.leave(scope, held.branch, held.position, status)
    ended = yield from one(
        "turn_end", branch=held.branch, position=held.position, status=status, now=scope.now, **usage._asdict()
    )
    assert ended is not None
    row = yield from stir(scope, session, held)
    yield from leases.release(row[0], held.branch, held.position)
    return turn(ended, held.number), row[3:]


def stir(scope: Scope, session: str, held: Held) -> Steps[Row]:
    """Raise a session's revision for a change that added no message; the session's key comes first in the row."""
    row = yield from one(
        "session_stir", session=held.session, now=scope.now, branch=held.branch, messages=0, tokens=0, input_tokens=0,
        output_tokens=0,
    )  # fmt: skip
    if row is None:
        raise (yield from sessions.lost(session, held.session))
    return row


def save(
    scope: Scope,
    session: str,
    question: Sequence[Draft],
    answer: Sequence[Draft],
    *,
    status: str = "completed",
    usage: Usage = Usage(),  # noqa: B008
    key: str | None = None,
    expected: int | None = None,
) -> Op[Step]:
    """Store a whole turn at once, all of it or nothing."""
    _check_end(status)
    if not question:
        raise InvalidValue("A turn begins with a message. Give what the person said.")
    appends.check_key(key)
    figure.whole("expected", expected)
    records = [record.record(draft, scope.now) for draft in (*question, *answer)]
    usage = _completed(_stored(usage), used(records))
    whole = appends.at_once(scope, session, records, expected) if key is None else None
    if whole is not None and status != "completed" and whole["calls"]:
        whole = None  # step by step: calls that have no result are marked
    if whole is not None:
        whole["turn"] = _run(scope, status, usage)
    return Op(_save, scope, session, records, status, usage, key, expected, whole)


def _save(
    scope: Scope,
    session: str,
    records: list[record.Record],
    status: str,
    usage: Usage,
    key: str | None,
    expected: int | None,
    whole: dict[str, Any] | None,
) -> Steps[Step]:
    if whole is not None and (found := (yield "session_save", whole, False)):
        written = appends.placed(found[0])
        return _step(Held(written.session, written.key, written.first, written.branch), written, len(records))
    if key is not None and (before := (yield from _made_before(scope, session, key, records))) is not None:
        return before
    written = yield from appends.advance(scope, session, records, opens_turn=True, expected=expected)
    if written.open_turns:
        yield from leases.clear(scope, session, written.session, written.key, take_over=False)
    yield from _insert(scope, written, status=status, until=None, usage=usage)
    if status != "completed" and any(item.calls for item in records):
        yield from leases.leave(scope, written.key, written.first, status)
    if key is not None:
        yield from appends.remember(scope, written, key, records)
    return _step(Held(written.session, written.key, written.first, written.branch), written, len(records))


def _completed(usage: Usage, reported: Usage) -> Usage:
    """Take what a caller says of a run, and what the provider reported where the caller says nothing."""
    return Usage(
        usage.model or reported.model,
        reported.input_tokens if usage.input_tokens is None else usage.input_tokens,
        reported.output_tokens if usage.output_tokens is None else usage.output_tokens,
        usage.latency_ms,
        usage.error,
    )


def turns(scope: Scope, session: str, after: int = 0, until: int | None = None) -> Op[list[Turn]]:
    """Read the turns of the active path, oldest first: all, or those that begin after a position, up to another."""
    figure.whole("after", after)
    figure.whole("until", until)
    return Op(_turns, scope, session, after or 0, paths.LAST if until is None else until, writes=False)


def _turns(scope: Scope, session: str, after: int, until: int) -> Steps[list[Turn]]:
    here = yield from sessions.find(scope, session)
    found: list[Turn] = []
    for span in reversed((yield from paths.path(here.head))):
        low, high = max(span.low, after), min(span.high, until)
        if low < high:
            for row in (yield from rows("turns_of_span", branch=span.branch, low=low, high=high)):
                found.append(turn(row, span.number))  # noqa: PERF401  a generator can not yield in a comprehension
    return found


def turn(row: Row, number: int) -> Turn:
    """Make a turn of a row; `number` is the public number of its branch."""
    return Turn(
        branch=number,
        position=row[0],
        status=row[1],
        started_at=row[2],
        ended_at=row[3],
        latency_ms=row[4],
        input_tokens=row[5],
        output_tokens=row[6],
        model=row[7],
        error=None if row[8] is None else json.decode(row[8]),
        holder=row[9],
        lease_until_at=row[10],
    )
