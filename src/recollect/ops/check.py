"""Checking that what is kept beside the messages agrees with them: counters, references, tool calls, payloads.

Each step is an operation of its own, over a page of sessions. What can be derived from the messages is put right where
that is asked for; nothing that was said is ever changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.errors import RecollectError
from recollect.model.finding import Finding
from recollect.model.message import Message
from recollect.model.repair import Repair
from recollect.model.session import Session
from recollect.model.title import folded
from recollect.op import Op, Plan, Row, Scope, Steps, do, each, one, rows
from recollect.ops import bodies, leases, messages, paths, search, sessions, tools

Progress = Callable[[int, int], object]
Histories = Callable[[Sequence[Message]], Sequence[Repair]]
"""Says what a provider would refuse in a conversation."""

CHECKED = (
    "counters", "branches", "turns", "tool calls", "idempotency keys", "titles", "payloads", "search index",
)  # fmt: skip

_PAGE = 50
_STRAY = 500
_SHOWN = 5
_AGAIN = "store.check(repair=True) puts it right."
_BACKUP = "Restore a backup that has it, or go on without it."
_MENDED = "It is mended in what is sent to a model, and left as it is in the store."
_REPORT = "Nothing that was said is affected. Please report it."


def check(
    scope: Scope, *, deep: bool, repair: bool, histories: Histories, progress: Progress | None = None
) -> Plan[list[Finding]]:
    """Look at every session of an owner, living or in the trash, and at the payloads."""
    total: int = yield Op(_total, scope, writes=False)
    found: list[Finding] = []
    after, done = 0, 0
    while True:
        page: list[int] = yield Op(_keys, scope, after, writes=False)
        found += yield Op(_sessions, scope, page, repair, writes=repair)
        if deep:
            for key in page:
                found += yield from bodies.check(key)
                found += yield from _history(scope, key, histories)
        done += len(page)
        if progress is not None:
            progress(done, max(total, done))
        if len(page) < _PAGE:
            break
        after = page[-1]
    found += yield from search.check(scope, repair=repair)
    found += yield from _stray()
    found += yield Op(_payloads, scope, repair, writes=repair)
    found += yield Op(_trees, scope, writes=False)
    if deep:
        found += yield from bodies.check_payloads(scope)
    return found


def _history(scope: Scope, key: int, histories: Histories) -> Plan[list[Finding]]:
    """Name the places of a session that are mended whenever it is sent to a model."""
    session: Session | None = yield Op(_living, key, writes=False)
    if session is None:
        return []
    try:
        repairs = histories((yield from messages.everything(scope, session.id)))
    except RecollectError:  # it was deleted meanwhile, or its damage is told elsewhere
        return []
    where = f"Session {session.id!r}, message"
    return [
        Finding(
            kind="history", message=f"{where} {repair.message}: {repair.sentence}", advice=_MENDED, level="notice",
            session=session.id,
        )
        for repair in [repair for repair in repairs if repair.kind != "interrupted_call"][:_SHOWN]
    ]  # fmt: skip


def _living(key: int) -> Steps[Session | None]:
    row = yield from one("session_by_key", session=key)
    value = None if row is None else sessions.here(row).value
    return None if value is None or value.deleted_at is not None else value


def _total(scope: Scope) -> Steps[int]:
    row = yield from one("sessions_total", owner=scope.owner)
    return 0 if row is None else row[0]


def _keys(scope: Scope, after: int) -> Steps[list[int]]:
    return [row[0] for row in (yield from rows("sessions_all", owner=scope.owner, after=after, limit=_PAGE))]


def _sessions(scope: Scope, keys: list[int], repair: bool) -> Steps[list[Finding]]:
    found: list[Finding] = []
    for key in keys:
        row = yield from one("session_by_key", session=key)
        if row is not None:
            found += yield from _session(scope, sessions.here(row), repair)
    return found


def _session(scope: Scope, here: sessions.Here, repair: bool) -> Steps[list[Finding]]:
    state = yield from one("session_state", session=here.session)
    assert state is not None  # read again below: what was put right on the branches is in it then
    if state[3] != here.session:
        message = f"Session {here.value.id!r} stands on a branch that is not its own, or on none."
        return [Finding(kind="branch", message=message, advice=_BACKUP, session=here.value.id)]
    found = yield from _branches(scope, here, repair)
    state = yield from one("session_state", session=here.session)
    assert state is not None
    found += yield from _standing(scope, here, state, repair)
    found += yield from _counts(scope, here, repair)
    found += yield from _keyed(here)
    if here.value.deleted_at is None and not here.open_turns:
        found += yield from _unanswered(here)
    return found


def _standing(scope: Scope, here: sessions.Here, state: Row, repair: bool) -> Steps[list[Finding]]:
    """Compare what the row of a session says of its branch, its open turns, what else is noted there, and its title."""
    _, number, turns, _, known, _, open_turns, title, astray, overlooked = state
    id, found = here.value.id, list[Finding]()
    if number != known:
        if repair:
            yield from do("session_set_branch", session=here.session, number=known)
        message = f"Session {id!r} names its branch {number}; it is {known}."
        found.append(Finding(kind="branch", message=message, advice=_AGAIN, session=id, repaired=repair))
    if turns != open_turns:
        if repair:
            yield from do("session_set_open_turns", session=here.session, count=open_turns)
        message = f"Session {id!r} counts {turns} open turns; there are {open_turns}."
        found.append(Finding(kind="counter", message=message, advice=_AGAIN, session=id, repaired=repair))
    found += yield from _noted(here, astray, overlooked, repair)
    wanted = None if here.value.title is None else folded(here.value.title)
    if title != wanted:
        if repair:
            yield from sessions.entitle(scope, here.session, here.value.title)
        # One that was made before titles were folded in full.
        level = "notice" if wanted and title == _small(here.value.title or "") else "problem"
        message = f"Session {id!r} is listed by another title than it has."
        found.append(Finding(kind="title", message=message, advice=_AGAIN, session=id, repaired=repair, level=level))
    return found


def _noted(here: sessions.Here, astray: bool, overlooked: bool, repair: bool) -> Steps[list[Finding]]:
    """Tell what an engine notes in the row of a session so that it need not look elsewhere, where it is wrong."""
    id, found = here.value.id, list[Finding]()
    if astray:
        if repair:
            yield from do("session_set_kin", session=here.session)
        message = f"Session {id!r} shows another parent or another number of sub-agents than it has."
        found.append(Finding(kind="counter", message=message, advice=_AGAIN, session=id, repaired=repair))
    if overlooked:
        if repair:
            yield from do("session_set_waiting", session=here.session)
        message = f"Session {id!r} has messages that would never be indexed for search."
        found.append(Finding(kind="search", message=message, advice=_AGAIN, session=id, repaired=repair))
    return found


def _small(title: str) -> str:
    """Write A to Z small, as SQL does."""
    return title.encode().lower().decode()


def _counts(scope: Scope, here: sessions.Here, repair: bool) -> Steps[list[Finding]]:
    """Count the active path again."""
    value = here.value
    totals = yield from messages.totals((yield from paths.path(here.head)))
    names = ("message_count", "token_count", "input_tokens", "output_tokens")
    wrong = [name for name in names if getattr(value, name) != getattr(totals, name)]
    if not wrong:
        return []
    if repair:
        counted = {name: getattr(totals, name) for name in names}
        yield from do("session_recount", session=here.session, now=scope.now, **counted)
    told = ", ".join(f"{name} {getattr(value, name)} instead of {getattr(totals, name)}" for name in wrong)
    message = f"Session {value.id!r} has a wrong count: {told}."
    return [Finding(kind="counter", message=message, advice=_AGAIN, session=value.id, repaired=repair)]


def _branches(scope: Scope, here: sessions.Here, repair: bool) -> Steps[list[Finding]]:
    found: list[Finding] = []
    for key, number, _, fork_at, last, _ in (yield from rows("branches_of_session", session=here.session)):
        name = f"{number} of session {here.value.id!r}"
        found += yield from _extent(here, key, name, fork_at, last, repair)
        found += yield from _open(scope, here, key, name, repair)
        for call_id, asked, answered in (yield from rows("tool_calls_astray", branch=key)):
            what = "asks" if asked else "answers" if answered else "asks or answers"
            message = (
                f"Tool call {call_id!r} on branch {name} has no part of a message that {what} it, or a wrong status."
            )
            found.append(Finding(kind="tool call", message=message, advice=_REPORT, session=here.value.id))
    return found


def _extent(here: sessions.Here, branch: int, name: str, fork_at: int, last: int, repair: bool) -> Steps[list[Finding]]:
    """Compare the counter of positions of a branch with the messages on it."""
    row = yield from one("messages_extent", branch=branch)
    assert row is not None
    count, first, newest = row
    end = fork_at if newest is None else newest
    found: list[Finding] = []
    if end > last:
        if repair:
            yield from do("session_set_last", session=here.session, branch=branch, last=end)
            yield from do("branch_set_last", branch=branch, last=end)
        message = f"Branch {name} counts positions up to {last}; there is a message at {end}."
        found.append(Finding(kind="counter", message=message, advice=_AGAIN, session=here.value.id, repaired=repair))
    lost = max(last, end) - fork_at - count
    if lost or (count and first != fork_at + 1):
        message = f"Branch {name} lacks {lost} of its messages." if lost > 0 else f"Branch {name} begins at {first}."
        found.append(Finding(kind="message", message=message, advice=_BACKUP, session=here.value.id))
    return found


def _open(scope: Scope, here: sessions.Here, branch: int, name: str, repair: bool) -> Steps[list[Finding]]:
    """Look at the turn that is open on a branch, and for turns that are open without holding it."""
    found: list[Finding] = []
    row = yield from one("branch_open", branch=branch)
    position = None if row is None else row[0]
    if position is not None:
        turn = yield from one("turn_get", branch=branch, position=position)
        if turn is None or turn[1] != "open":
            if repair:
                yield from leases.release(here.session, branch, position)
            message = f"Branch {name} is held by turn {position}, which is {'gone' if turn is None else turn[1]}."
            found.append(Finding(kind="turn", message=message, advice=_AGAIN, session=here.value.id, repaired=repair))
        elif not (yield from leases.busy(scope, here.session)):
            if repair:
                yield from leases.recover(scope, here.session)
            message = f"Turn {position} on branch {name} was left open by a process that is gone."
            advice = "It is marked interrupted when the session is next opened, or by store.check(repair=True)."
            found.append(
                Finding(
                    kind="turn", message=message, advice=advice, level="notice", session=here.value.id, repaired=repair
                )
            )
    for (loose,) in (yield from rows("turns_unclaimed", branch=branch, open_turn=position)):
        if repair:
            yield from leases.interrupt(scope, here.session, branch, loose)
        message = f"Turn {loose} on branch {name} is open, and the branch does not know it."
        found.append(Finding(kind="turn", message=message, advice=_AGAIN, session=here.value.id, repaired=repair))
    return found


def _keyed(here: sessions.Here) -> Steps[list[Finding]]:
    found = yield from rows("appends_astray", session=here.session)
    return [
        Finding(
            kind="idempotency key",
            message=f"The key {key!r} of session {here.value.id!r} stands for messages that are not there.",
            advice=_REPORT,
            session=here.value.id,
        )
        for (key,) in found
    ]


def _unanswered(here: sessions.Here) -> Steps[list[Finding]]:
    """Name the tool calls that have no result though the talk went on: a provider would refuse them as they are."""
    end = max(span.high for span in (yield from paths.path(here.head)))
    waiting = [
        call.call_id
        for call in (yield from tools.on_path(here.head))
        if call.result_message is None and int(call.message.partition(".")[2]) < end
    ]
    if not waiting:
        return []
    shown = ", ".join(waiting[:_SHOWN]) + (" and more" if len(waiting) > _SHOWN else "")
    message = f"Session {here.value.id!r} has {len(waiting)} tool calls without a result: {shown}."
    advice = "session.record_tool_result() stores one; status='canceled' says that there is none."
    return [Finding(kind="unanswered", message=message, advice=advice, level="notice", session=here.value.id)]


def _stray() -> Plan[list[Finding]]:
    """Look for messages on a branch that does not exist."""
    found: list[Finding] = []
    after: int | None = 0
    while after is not None:
        page: tuple[list[int], int | None] = yield Op(_stray_page, after, writes=False)
        strays, after = page
        found += [
            Finding(kind="message", message=f"There are messages on branch {key}, which is gone.", advice=_REPORT)
            for key in strays
        ]
    return found


def _stray_page(after: int) -> Steps[tuple[list[int], int | None]]:
    strays: list[int] = []
    for _ in range(_STRAY):
        row = yield from one("messages_next", branch=after)
        if row is None or row[0] <= after:  # rows of a damaged file need not be in order
            return strays, None
        after = row[0]
        if row[1]:
            strays.append(after)
    return strays, after


def _payloads(scope: Scope, repair: bool) -> Steps[list[Finding]]:
    """Count who refers to each payload."""
    counted: dict[str, int] = dict((yield from rows("blobs_named", owner=scope.owner)))  # type: ignore[arg-type]
    found: list[Finding] = []
    for name, refs, whole in (yield from rows("blobs_refs", owner=scope.owner)):
        wanted = counted.pop(name, 0)
        if refs != wanted:
            if repair:
                yield from do("blob_set_refs", owner=scope.owner, hash=name, refs=wanted)
                yield from each("blob_sweep", [(scope.owner, name)])
            message = f"Payload {name[:12]} counts {refs} references; there are {wanted}."
            found.append(Finding(kind="payload", message=message, advice=_AGAIN, repaired=repair))
        if not whole:
            message = f"Payload {name[:12]} has another size than is noted for it."
            found.append(Finding(kind="payload", message=message, advice=_BACKUP))
    for name, wanted in counted.items():
        message = f"Payload {name[:12]} is gone, and {wanted} messages refer to it."
        found.append(Finding(kind="payload", message=message, advice=_BACKUP))
    return found


def _trees(scope: Scope) -> Steps[list[Finding]]:
    found: list[Any] = yield from rows("trees_short", owner=scope.owner)
    return [
        Finding(kind="counter", message=f"Tree {row[0]} would give out a branch number twice.", advice=_REPORT)
        for row in found
    ]
