"""Who holds an open turn: finding turns whose holder is gone, and refusing a second turn beside a live one."""

from __future__ import annotations

from typing import NamedTuple

from recollect.errors import SessionBusy
from recollect.model import json
from recollect.model.value import iso
from recollect.op import Scope, Steps, do, one, rows

TAKEN = "TakenOver"
"""The name of the error that a turn has which was taken over."""

_ENDS = {"interrupted": "was interrupted", "cancelled": "was cancelled", "failed": "failed"}


class Holder(NamedTuple):
    """Who holds an open turn."""

    name: str
    since: int
    until: int


def recover(scope: Scope, session: int) -> Steps[bool]:
    """Mark the open turns of a session whose holder is gone as interrupted; a live turn is never touched.

    Say whether there was one.
    """
    found = False
    for branch, _, position in (yield from rows("branches_open", session=session)):
        if (yield from holder(scope, branch, position)) is None:
            yield from interrupt(scope, session, branch, position)
            found = True
    if found:
        yield from changed(scope, session)
    return found


def busy(scope: Scope, session: int) -> Steps[bool]:
    """Say whether a session has an open turn whose holder is alive."""
    for branch, _, position in (yield from rows("branches_open", session=session)):
        if (yield from holder(scope, branch, position)) is not None:
            return True
    return False


def changed(scope: Scope, session: int) -> Steps[None]:
    """Raise a session's revision for a change that counts nothing."""
    yield from do(
        "session_change", session=session, messages=0, tokens=0, input_tokens=0, output_tokens=0, now=scope.now
    )


def clear(scope: Scope, session: str, key: int, branch: int, *, take_over: bool) -> Steps[None]:
    """Make way for a new turn on a branch: interrupt what is left of a dead one, refuse beside a live one."""
    row = yield from one("branch_open", branch=branch)
    if row is None:
        return
    position = row[0]
    live = yield from holder(scope, branch, position)
    if live is not None and not take_over:
        raise SessionBusy(session=session, holder=live.name, until=iso(live.until))
    if live is None:
        yield from interrupt(scope, key, branch, position)
    else:
        yield from seize(scope, key, branch, position)


def seize(scope: Scope, session: int, branch: int, position: int) -> Steps[None]:
    """End a turn that another one holds, for good: the mark says that it was not merely found asleep."""
    told = {"name": TAKEN, "message": f"Another process took the session over ({scope.holder})."}
    yield from interrupt(scope, session, branch, position, error=json.encode(told))


def interrupt(scope: Scope, session: int, branch: int, position: int, *, error: str | None = None) -> Steps[None]:
    """End a turn that will not go on. What it stored stays; what is unfinished is marked."""
    yield from leave(scope, branch, position, "interrupted")
    yield from do(
        "turn_end", branch=branch, position=position, status="interrupted", now=scope.now, latency_ms=None,
        input_tokens=None, output_tokens=None, model=None, error=error,
    )  # fmt: skip
    yield from release(session, branch, position)


def leave(scope: Scope, branch: int, position: int, status: str) -> Steps[None]:
    """Mark what a turn leaves unfinished: a message in the middle of streaming, and calls that nobody runs any more.

    The calls of a turn that is completed stay open: a person, or another program, may be the one who answers them.
    """
    yield from do("messages_interrupt", branch=branch, position=position, now=scope.now)
    if status != "completed":
        yield from do(
            "tool_calls_cancel", branch=branch, position=position, now=scope.now, code=status,
            message=f"The turn {_ENDS[status]} before there was a result.",
        )  # fmt: skip


def claim(session: int, branch: int, position: int) -> Steps[None]:
    """Give a branch to a turn."""
    yield from do("branch_claim", branch=branch, position=position)
    yield from do("session_opens_turn", session=session, change=1)


def release(session: int, branch: int, position: int) -> Steps[None]:
    """Take a branch back from a turn, if it still has it."""
    if (yield from one("branch_release", branch=branch, position=position)) is not None:
        yield from do("session_opens_turn", session=session, change=-1)


def holder(scope: Scope, branch: int, position: int) -> Steps[Holder | None]:
    """Say who holds an open turn, since and until when; None where its lease has run out or its process is gone."""
    row = yield from one("turn_get", branch=branch, position=position)
    if row is None or row[1] != "open":
        return None
    name, until = row[9], row[10]
    return None if until <= scope.now or scope.gone(name) else Holder(name, row[2], until)
