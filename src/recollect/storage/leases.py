"""Leases of open turns: who holds a turn, recovery of turns whose holder is gone, and refusal of a second live turn."""

from __future__ import annotations

from typing import NamedTuple

from recollect.errors import SessionBusy
from recollect.model import json
from recollect.model.turn import TurnStatus
from recollect.model.value import format_iso
from recollect.storage.operation import Query, Scope, Steps, execute, fetch_all, fetch_one
from recollect.storage.paths import BranchKeyRow

TAKEOVER_ERROR = "TakenOver"
"""The error name of a turn that another process took over."""

_STATUS_PHRASES = {"interrupted": "was interrupted", "cancelled": "was cancelled", "failed": "failed"}


class OpenBranchRow(NamedTuple):
    """A branch with an open turn; `open_turn` is the position of the turn."""

    key: int
    number: int
    open_turn: int


class TurnRow(NamedTuple):
    """A turn; `error` is JSON."""

    position: int
    status: TurnStatus
    started_at: int
    ended_at: int | None
    latency_ms: int | None
    input_tokens: int | None
    output_tokens: int | None
    model: str | None
    error: str | None
    holder: str | None
    lease_until: int | None


BRANCH_OPEN = Query("branch_open", OpenBranchRow)
BRANCHES_OPEN = Query("branches_open", OpenBranchRow)
TURN_GET = Query("turn_get", TurnRow)
TURNS_OF_SPAN = Query("turns_of_span", TurnRow)
_BRANCH_RELEASE = Query("branch_release", BranchKeyRow)


class LeaseHolder(NamedTuple):
    """The holder of an open turn, and the times of its start and of the end of its lease."""

    name: str
    since: int
    until: int


def recover_turns(scope: Scope, session: int) -> Steps[bool]:
    """Mark the open turns of a session whose holder is gone as interrupted; never a live turn.

    Return whether there was one.
    """
    changed = False
    for branch in (yield from fetch_all(BRANCHES_OPEN, session=session)):
        if (yield from live_holder(scope, branch.key, branch.open_turn)) is None:
            yield from interrupt_turn(scope, session, branch.key, branch.open_turn)
            changed = True
    if changed:
        yield from raise_revision(scope, session)
    return changed


def has_abandoned_turn(scope: Scope, session: int) -> Steps[bool]:
    """Return whether a session has an open turn whose holder is gone."""
    for branch in (yield from fetch_all(BRANCHES_OPEN, session=session)):
        if (yield from live_holder(scope, branch.key, branch.open_turn)) is None:
            return True
    return False


def has_live_turn(scope: Scope, session: int) -> Steps[bool]:
    """Return whether a session has an open turn whose holder is alive."""
    for branch in (yield from fetch_all(BRANCHES_OPEN, session=session)):
        if (yield from live_holder(scope, branch.key, branch.open_turn)) is not None:
            return True
    return False


def raise_revision(scope: Scope, session: int) -> Steps[None]:
    """Raise a session's revision for a change that does not affect its counts."""
    yield from execute(
        "session_change", session=session, messages=0, tokens=0, input_tokens=0, output_tokens=0, now=scope.now
    )


def free_branch(scope: Scope, session: str, key: int, branch: int, *, take_over: bool) -> Steps[None]:
    """Prepare a branch for a new turn: interrupt an abandoned turn; raise SessionBusy for a live one."""
    row = yield from fetch_one(BRANCH_OPEN, branch=branch)
    if row is None:
        return
    position = row.open_turn
    live = yield from live_holder(scope, branch, position)
    if live is not None and not take_over:
        raise SessionBusy(session=session, holder=live.name, until=format_iso(live.until))
    if live is None:
        yield from interrupt_turn(scope, key, branch, position)
    else:
        yield from take_over_turn(scope, key, branch, position)


def take_over_turn(scope: Scope, session: int, branch: int, position: int) -> Steps[None]:
    """End a turn of another holder permanently: the error name distinguishes it from an interruption."""
    details = {"name": TAKEOVER_ERROR, "message": f"Another process took over the session ({scope.holder})."}
    yield from interrupt_turn(scope, session, branch, position, error=json.encode(details))


def interrupt_turn(scope: Scope, session: int, branch: int, position: int, *, error: str | None = None) -> Steps[None]:
    """End a turn as interrupted. Its messages stay; unfinished ones are marked."""
    yield from mark_unfinished(scope, branch, position, "interrupted")
    yield from execute(
        "turn_end", branch=branch, position=position, status="interrupted", now=scope.now, latency_ms=None,
        input_tokens=None, output_tokens=None, model=None, error=error,
    )  # fmt: skip
    yield from release_branch(session, branch, position)


def mark_unfinished(scope: Scope, branch: int, position: int, status: str) -> Steps[None]:
    """Mark unfinished messages of a turn as interrupted, and cancel its open tool calls.

    The calls of a completed turn stay open: a person or another program may answer them later.
    """
    yield from execute("messages_interrupt", branch=branch, position=position, now=scope.now)
    if status != "completed":
        yield from execute(
            "tool_calls_cancel", branch=branch, position=position, now=scope.now, code=status,
            message=f"The turn {_STATUS_PHRASES[status]} before there was a result.",
        )  # fmt: skip


def claim_branch(session: int, branch: int, position: int) -> Steps[None]:
    """Record that a turn holds a branch."""
    yield from execute("branch_claim", branch=branch, position=position)
    yield from execute("session_change_open_turns", session=session, change=1)


def release_branch(session: int, branch: int, position: int) -> Steps[None]:
    """Release a branch from a turn, if the turn still holds it."""
    if (yield from fetch_one(_BRANCH_RELEASE, branch=branch, position=position)) is not None:
        yield from execute("session_change_open_turns", session=session, change=-1)


def live_holder(scope: Scope, branch: int, position: int) -> Steps[LeaseHolder | None]:
    """Return the holder of an open turn; None if its lease expired or its process is gone."""
    turn = yield from fetch_one(TURN_GET, branch=branch, position=position)
    if turn is None or turn.status != "open" or turn.holder is None or turn.lease_until is None:
        return None
    if turn.lease_until <= scope.now or scope.is_gone(turn.holder):
        return None
    return LeaseHolder(turn.holder, turn.started_at, turn.lease_until)
