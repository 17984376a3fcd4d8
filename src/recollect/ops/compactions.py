"""Compactions: put a summary in the place of a span of the active path, read them, undo them.

A compaction is one row, which is the event, the span and the summary at once. It belongs to the branch that it was
made on and speaks for the path that ends there. Nothing is deleted, moved or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import BranchNotFound, CompactedMeanwhile, CompactionNotFound, InvalidValue, displayed
from recollect.model import figure
from recollect.model.compaction import Compaction
from recollect.model.part import TextPart
from recollect.model.session import Session
from recollect.model.tokens import estimate
from recollect.op import Op, Row, Scope, Steps, do, one, rows
from recollect.ops import fields, leases, sessions


class Compacted(NamedTuple):
    """What was made or undone, and how the session stands after it."""

    compaction: Compaction
    session: Session


def of_branch(branch: int, number: int) -> Steps[list[Compaction]]:
    """Read the compactions of a branch, oldest first, undone ones too."""
    found = [_value(row, number) for row in (yield from rows("compactions_of_branch", branch=branch))]
    return sorted(found, key=lambda item: item.round)


def _value(row: Row, number: int) -> Compaction:
    return Compaction(
        id=row[0],
        branch=number,
        from_position=row[2],
        to_position=row[3],
        round=row[4],
        tokens_before=row[5],
        tokens_after=row[6],
        summary=row[7],
        created_at=row[8],
        undone_at=row[9],
    )


def compact(
    scope: Scope,
    session: str,
    branch: int,
    rounds: Sequence[int],
    span: tuple[int, int],
    *,
    summary: Any,
    before: int,
    after: int | None,
) -> Op[Compacted]:
    """Store a compaction of a span of the path that was read: `before` and `after` are its sizes in tokens.

    `branch` and `rounds` say where the path ended, and which compactions were in force, when it was read. Messages that
    were appended since come after the span. A session that has moved to another branch since is compacted where it
    stood.
    """
    summary = _checked(summary)
    figure.whole("tokens", after)
    size = estimate((TextPart(text=summary),)) if after is None else after
    columns = {
        "from_position": span[0], "to_position": span[1], "tokens_before": before, "tokens_after": size,
        "summary": summary,
    }  # fmt: skip
    return Op(_compact, scope, session, branch, rounds, columns)


def _checked(summary: Any) -> str:
    text = str.__str__(summary) if isinstance(summary, str) else ""
    if not text.strip():
        raise InvalidValue(f"A summary is a text that is not blank; got {displayed(summary)}.")
    fields.check_storable("The summary", text)
    return text


def _compact(
    scope: Scope, session: str, branch: int, rounds: Sequence[int], columns: dict[str, int | str]
) -> Steps[Compacted]:
    here = yield from sessions.find(scope, session)
    row = yield from one("branch_get", branch=branch)
    if row is None or row[2] != here.session:
        raise BranchNotFound(session=session, branch=branch)
    known = yield from of_branch(branch, row[1])
    if [item.round for item in known if item.undone_at is None] != list(rounds):
        raise CompactedMeanwhile(session=session)
    number = known[-1].round + 1 if known else 1
    yield from do("compaction_insert", branch=branch, round=number, now=scope.now, **columns)
    made = (yield from of_branch(branch, row[1]))[-1]
    return (yield from _changed(scope, session, here.session, made))


def _changed(scope: Scope, session: str, key: int, made: Compaction) -> Steps[Compacted]:
    yield from leases.changed(scope, key)
    return Compacted(made, (yield from sessions.find(scope, session)).value)


def undo(scope: Scope, session: str, round: int | None) -> Op[Compacted]:
    """Undo a compaction of the active path: the newest in force, or the one of a round. Undoing twice is no error."""
    figure.whole("round", round)
    return Op(_undo, scope, session, round)


def _undo(scope: Scope, session: str, round: int | None) -> Steps[Compacted]:
    here = yield from sessions.find(scope, session)
    known = yield from of_branch(here.head, here.value.branch)
    wanted = [item for item in known if (item.undone_at is None if round is None else item.round == round)]
    if not wanted:
        raise CompactionNotFound(session=session, round="the newest in force" if round is None else f"round {round}")
    found = wanted[-1]
    if found.undone_at is not None:
        return Compacted(found, here.value)
    yield from do("compaction_undo", branch=here.head, key=found.id, now=scope.now)
    undone = next(item for item in (yield from of_branch(here.head, here.value.branch)) if item.id == found.id)
    return (yield from _changed(scope, session, here.session, undone))


def compactions(scope: Scope, session: str) -> Op[list[Compaction]]:
    """Read the compactions of the active path, oldest first, undone ones too."""
    return Op(_compactions, scope, session, writes=False)


def _compactions(scope: Scope, session: str) -> Steps[list[Compaction]]:
    here = yield from sessions.find(scope, session)
    return (yield from of_branch(here.head, here.value.branch))
