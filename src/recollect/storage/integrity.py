"""Integrity checks: compare counters, references, tool calls and payloads with the messages.

Each step is its own operation over a page of sessions. With `repair`, data that can be derived from the messages is
fixed; messages are never changed. A deep check also reads every message and every payload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import RecollectError
from recollect.model.message import Message, Repair
from recollect.model.reports import Finding
from recollect.model.session import SessionInfo
from recollect.model.title import title_sort_key
from recollect.storage import leases, messages, paths, search, sessions, tools
from recollect.storage.operation import Operation, Plan, Row, Scope, Steps, execute, execute_many, fetch_all, fetch_one

# Rows per operation, so that a check holds no long transaction.
_MESSAGE_PAGE_SIZE = 500
_PAYLOAD_PAGE_SIZE = 20  # each may have megabytes
_BACKUP_ADVICE = "Restore it from a backup, or continue without it."


class _CheckedPage(NamedTuple):
    findings: list[Finding]
    branch: int
    after: int | None
    """The position up to which the branch was read; None: to its end."""


def check_messages(session: int) -> Plan[list[Finding]]:
    """Decode every message of a session, on all its branches, and report those that fail."""
    findings: list[Finding] = []
    branches: list[Row] = yield Operation(_read_branches, session, writes=False)
    for branch, number, id in branches:
        after: int | None = 0
        while after is not None:
            page: _CheckedPage = yield Operation(_check_message_page, branch, number, id, after, writes=False)
            findings += page.findings
            after = page.after
    return findings


def _read_branches(session: int) -> Steps[list[Row]]:
    row = yield from fetch_one("session_by_key", session=session)
    if row is None:
        return []
    id = sessions.stored_from_row(row).value.id
    return [(branch[0], branch[1], id) for branch in (yield from fetch_all("branches_of_session", session=session))]


def _check_message_page(branch: int, number: int, id: str, after: int) -> Steps[_CheckedPage]:
    rows = yield from fetch_all(
        "messages_forward", branch=branch, low=after, high=paths.LAST_POSITION, limit=_MESSAGE_PAGE_SIZE, deleted=True
    )
    findings: list[Finding] = []
    if not _is_readable(rows, number):
        findings = [_unreadable_finding(row, number, id) for row in rows if not _is_readable([row], number)]
    has_more = len(rows) == _MESSAGE_PAGE_SIZE and rows[-1][1] > after  # rows of a damaged file may be out of order
    return _CheckedPage(findings, branch, rows[-1][1] if has_more else None)


def _is_readable(rows: list[Row], number: int) -> bool:
    payloads = defaultdict[str, bytes](bytes)  # missing payloads are reported elsewhere
    try:
        for row in rows:
            messages.message_with_payloads(row, number, None if messages.blob_names(row) is None else payloads)
    except (msgspec.MsgspecError, ValueError, TypeError):  # truncated text, or a row without text
        return False
    return True


def _unreadable_finding(row: Row, number: int, id: str) -> Finding:
    message = f"Message {number}.{row[1]} of session {id!r} cannot be read."
    return Finding(kind="message", message=message, advice=_BACKUP_ADVICE, session=id)


def check_payloads(scope: Scope) -> Plan[list[Finding]]:
    """Compare every payload with its hash."""
    findings: list[Finding] = []
    after = ""
    while True:
        page: tuple[list[Finding], str | None] = yield Operation(_check_payload_page, scope, after, writes=False)
        findings += page[0]
        if page[1] is None:
            return findings
        after = page[1]


def _check_payload_page(scope: Scope, after: str) -> Steps[tuple[list[Finding], str | None]]:
    import hashlib  # noqa: PLC0415  only in a deep check

    findings: list[Finding] = []
    rows = yield from fetch_all("blobs_page", owner=scope.owner, after=after, limit=_PAYLOAD_PAGE_SIZE)
    for name, data in rows:
        if hashlib.sha256(data).hexdigest() != name:
            message = f"Payload {name[:12]} does not match its checksum."
            findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    return findings, rows[-1][0] if len(rows) == _PAYLOAD_PAGE_SIZE else None


CheckProgress = Callable[[int, int], object]
HistoryValidator = Callable[[Sequence[Message]], Sequence[Repair]]
"""Returns the repairs that a history needs before a provider accepts it."""

CHECKED_AREAS = (
    "counters", "branches", "turns", "tool calls", "idempotency keys", "titles", "payloads", "search index",
)  # fmt: skip

_SESSION_PAGE_SIZE = 50  # sessions per operation
_STRAY_PAGE_SIZE = 500  # branches per operation
_MAX_SHOWN = 5  # repairs or call ids that one finding lists
_REPAIR_ADVICE = "store.check(repair=True) repairs it."
_HISTORY_ADVICE = "Recollect repairs it in every history for a model; the stored messages do not change."
_REPORT_ADVICE = "No message is affected. Please report it."


def check_store(
    scope: Scope, *, deep: bool, repair: bool, histories: HistoryValidator, progress: CheckProgress | None = None
) -> Plan[list[Finding]]:
    """Check every session of an owner, including the trash, the search index and the payloads."""
    total: int = yield Operation(_count_sessions, scope, writes=False)
    findings: list[Finding] = []
    after, done = 0, 0
    while True:
        page: list[int] = yield Operation(_read_session_keys, scope, after, writes=False)
        findings += yield Operation(_check_sessions, scope, page, repair, writes=repair)
        if deep:
            for key in page:
                findings += yield from check_messages(key)
                findings += yield from _check_history(scope, key, histories)
        done += len(page)
        if progress is not None:
            progress(done, max(total, done))
        if len(page) < _SESSION_PAGE_SIZE:
            break
        after = page[-1]
    findings += yield from search.check_index(scope, repair=repair)
    findings += yield from _check_stray_messages()
    findings += yield Operation(_check_payload_refs, scope, repair, writes=repair)
    findings += yield Operation(_check_trees, scope, writes=False)
    if deep:
        findings += yield from check_payloads(scope)
    return findings


def _check_history(scope: Scope, key: int, histories: HistoryValidator) -> Plan[list[Finding]]:
    """Report the messages of a session that are repaired in every history."""
    session: SessionInfo | None = yield Operation(_read_live_session, key, writes=False)
    if session is None:
        return []
    try:
        repairs = histories((yield from messages.read_all(scope, session.id)))
    except RecollectError:  # it was deleted meanwhile, or another check reports the damage
        return []
    prefix = f"Session {session.id!r}, message"
    return [
        Finding(
            kind="history", message=f"{prefix} {repair.message}: {repair.sentence}", advice=_HISTORY_ADVICE,
            level="notice", session=session.id,
        )
        for repair in [repair for repair in repairs if repair.kind != "interrupted_call"][:_MAX_SHOWN]
    ]  # fmt: skip


def _read_live_session(key: int) -> Steps[SessionInfo | None]:
    row = yield from fetch_one("session_by_key", session=key)
    value = None if row is None else sessions.stored_from_row(row).value
    return None if value is None or value.deleted_at is not None else value


def _count_sessions(scope: Scope) -> Steps[int]:
    row = yield from fetch_one("sessions_total", owner=scope.owner)
    return 0 if row is None else row[0]


def _read_session_keys(scope: Scope, after: int) -> Steps[list[int]]:
    return [
        row[0]
        for row in (yield from fetch_all("sessions_all", owner=scope.owner, after=after, limit=_SESSION_PAGE_SIZE))
    ]


def _check_sessions(scope: Scope, keys: list[int], repair: bool) -> Steps[list[Finding]]:
    findings: list[Finding] = []
    for key in keys:
        row = yield from fetch_one("session_by_key", session=key)
        if row is not None:
            findings += yield from _check_session(scope, sessions.stored_from_row(row), repair)
    return findings


def _check_session(scope: Scope, current: sessions.StoredSession, repair: bool) -> Steps[list[Finding]]:
    state = yield from fetch_one("session_state", session=current.session)
    assert state is not None  # read again below, after the repair of the branches
    if state[3] != current.session:
        message = f"Session {current.value.id!r} has a head branch that is missing or belongs to another session."
        return [Finding(kind="branch", message=message, advice=_BACKUP_ADVICE, session=current.value.id)]
    findings = yield from _check_branches(scope, current, repair)
    state = yield from fetch_one("session_state", session=current.session)
    assert state is not None
    findings += yield from _check_session_row(scope, current, state, repair)
    findings += yield from _check_counts(scope, current, repair)
    findings += yield from _check_idempotency_keys(current)
    if current.value.deleted_at is None and not current.open_turns:
        findings += yield from _check_unanswered_calls(current)
    return findings


def _check_session_row(scope: Scope, current: sessions.StoredSession, state: Row, repair: bool) -> Steps[list[Finding]]:
    """Compare the derived columns of a session row with its branch, open turns, relatives and title."""
    _, number, turns, _, actual_number, _, open_turns, title, relatives_differ, is_skipped = state
    id, findings = current.value.id, list[Finding]()
    if number != actual_number:
        if repair:
            yield from execute("session_set_branch", session=current.session, number=actual_number)
        message = f"Session {id!r} stores branch number {number} for its head; it is {actual_number}."
        findings.append(Finding(kind="branch", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    if turns != open_turns:
        if repair:
            yield from execute("session_set_open_turns", session=current.session, count=open_turns)
        message = f"Session {id!r} counts {turns} open turns; there are {open_turns}."
        findings.append(Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    findings += yield from _check_derived_columns(current, relatives_differ, is_skipped, repair)
    sort_title = None if current.value.title is None else title_sort_key(current.value.title)
    if title != sort_title:
        if repair:
            yield from sessions.set_sort_title(scope, current.session, current.value.title)
        # Written by a version that only lower-cased ASCII letters.
        level = "notice" if sort_title and title == _lower_ascii(current.value.title or "") else "problem"
        message = f"Session {id!r} has a sort title that does not match its title."
        findings.append(
            Finding(kind="title", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair, level=level)
        )
    return findings


def _check_derived_columns(
    current: sessions.StoredSession, relatives_differ: bool, is_skipped: bool, repair: bool
) -> Steps[list[Finding]]:
    """Report wrong values in the columns that PostgreSQL derives from other rows."""
    id, findings = current.value.id, list[Finding]()
    if relatives_differ:
        if repair:
            yield from execute("session_set_relatives", session=current.session)
        message = f"Session {id!r} stores a wrong parent id or a wrong number of sub-agents."
        findings.append(Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    if is_skipped:
        if repair:
            yield from execute("session_set_waiting", session=current.session)
        message = f"Session {id!r} has messages that search would never index."
        findings.append(Finding(kind="search", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    return findings


def _lower_ascii(title: str) -> str:
    """Return a title with A to Z in lower case, as SQLite's lower() does."""
    return title.encode().lower().decode()


def _check_counts(scope: Scope, current: sessions.StoredSession, repair: bool) -> Steps[list[Finding]]:
    """Compare the counts of a session with its active path."""
    value = current.value
    totals = yield from messages.count_path((yield from paths.read_path(current.head)))
    names = ("message_count", "token_count", "input_tokens", "output_tokens")
    wrong = [name for name in names if getattr(value, name) != getattr(totals, name)]
    if not wrong:
        return []
    if repair:
        counts = {name: getattr(totals, name) for name in names}
        yield from execute("session_recount", session=current.session, now=scope.now, **counts)
    differences = ", ".join(f"{name} {getattr(value, name)} instead of {getattr(totals, name)}" for name in wrong)
    message = f"Session {value.id!r} has a wrong count: {differences}."
    return [Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=value.id, repaired=repair)]


def _check_branches(scope: Scope, current: sessions.StoredSession, repair: bool) -> Steps[list[Finding]]:
    findings: list[Finding] = []
    for key, number, _, fork_at, last, _ in (yield from fetch_all("branches_of_session", session=current.session)):
        name = f"{number} of session {current.value.id!r}"
        findings += yield from _check_extent(current, key, name, fork_at, last, repair)
        findings += yield from _check_open_turns(scope, current, key, name, repair)
        for call_id, lacks_call, lacks_result in (yield from fetch_all("tool_calls_inconsistent", branch=key)):
            role = "asks" if lacks_call else "answers" if lacks_result else "asks or answers"
            message = f"Tool call {call_id!r} on branch {name} has no message part that {role} it, or a wrong status."
            findings.append(Finding(kind="tool call", message=message, advice=_REPORT_ADVICE, session=current.value.id))
    return findings


def _check_extent(
    current: sessions.StoredSession, branch: int, name: str, fork_at: int, last: int, repair: bool
) -> Steps[list[Finding]]:
    """Compare the last position of a branch with its messages."""
    row = yield from fetch_one("messages_extent", branch=branch)
    assert row is not None
    count, first, newest = row
    end = fork_at if newest is None else newest
    findings: list[Finding] = []
    if end > last:
        if repair:
            yield from execute("session_set_last", session=current.session, branch=branch, last=end)
            yield from execute("branch_set_last", branch=branch, last=end)
        message = f"Branch {name} has a last position of {last}, but a message at {end}."
        findings.append(
            Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
        )
    missing = max(last, end) - fork_at - count
    if missing or (count and first != fork_at + 1):
        message = (
            f"Branch {name} lacks {missing} of its messages." if missing > 0 else f"Branch {name} begins at {first}."
        )
        findings.append(Finding(kind="message", message=message, advice=_BACKUP_ADVICE, session=current.value.id))
    return findings


def _check_open_turns(
    scope: Scope, current: sessions.StoredSession, branch: int, name: str, repair: bool
) -> Steps[list[Finding]]:
    """Check the open turn of a branch, and find open turns that do not hold it."""
    findings: list[Finding] = []
    row = yield from fetch_one("branch_open", branch=branch)
    position = None if row is None else row[0]
    if position is not None:
        turn = yield from fetch_one("turn_get", branch=branch, position=position)
        if turn is None or turn[1] != "open":
            if repair:
                yield from leases.release_branch(current.session, branch, position)
            message = f"Branch {name} is held by turn {position}, which is {'gone' if turn is None else turn[1]}."
            findings.append(
                Finding(kind="turn", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
            )
        elif not (yield from leases.has_live_turn(scope, current.session)):
            if repair:
                yield from leases.recover_turns(scope, current.session)
            message = f"Turn {position} on branch {name} was left open by a process that is gone."
            advice = "It is marked as interrupted when the session is opened next, or by store.check(repair=True)."
            findings.append(
                Finding(
                    kind="turn",
                    message=message,
                    advice=advice,
                    level="notice",
                    session=current.value.id,
                    repaired=repair,
                )
            )
    for (turn_position,) in (yield from fetch_all("turns_unclaimed", branch=branch, open_turn=position)):
        if repair:
            yield from leases.interrupt_turn(scope, current.session, branch, turn_position)
        message = f"Turn {turn_position} on branch {name} is open, but does not hold its branch."
        findings.append(
            Finding(kind="turn", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
        )
    return findings


def _check_idempotency_keys(current: sessions.StoredSession) -> Steps[list[Finding]]:
    rows = yield from fetch_all("appends_dangling", session=current.session)
    return [
        Finding(
            kind="idempotency key",
            message=f"The key {key!r} of session {current.value.id!r} refers to messages that do not exist.",
            advice=_REPORT_ADVICE,
            session=current.value.id,
        )
        for (key,) in rows
    ]


def _check_unanswered_calls(current: sessions.StoredSession) -> Steps[list[Finding]]:
    """Report tool calls without a result before the last message: a provider would reject them."""
    end = max(span.high for span in (yield from paths.read_path(current.head)))
    call_ids = [
        call.call_id
        for call in (yield from tools.calls_on_path(current.head))
        if call.result_message is None and int(call.message.partition(".")[2]) < end
    ]
    if not call_ids:
        return []
    sample = ", ".join(call_ids[:_MAX_SHOWN]) + (" and more" if len(call_ids) > _MAX_SHOWN else "")
    message = f"Session {current.value.id!r} has {len(call_ids)} tool calls without a result: {sample}."
    advice = "Store one with session.record_tool_result(); status='canceled' records that there is none."
    return [Finding(kind="unanswered", message=message, advice=advice, level="notice", session=current.value.id)]


def _check_stray_messages() -> Plan[list[Finding]]:
    """Report messages on branches that do not exist."""
    findings: list[Finding] = []
    after: int | None = 0
    while after is not None:
        page: tuple[list[int], int | None] = yield Operation(_read_stray_page, after, writes=False)
        strays, after = page
        findings += [
            Finding(
                kind="message",
                message=f"There are messages on branch {key}, which does not exist.",
                advice=_REPORT_ADVICE,
            )
            for key in strays
        ]
    return findings


def _read_stray_page(after: int) -> Steps[tuple[list[int], int | None]]:
    strays: list[int] = []
    for _ in range(_STRAY_PAGE_SIZE):
        row = yield from fetch_one("messages_next", branch=after)
        if row is None or row[0] <= after:  # rows of a damaged file may be out of order
            return strays, None
        after = row[0]
        if row[1]:
            strays.append(after)
    return strays, after


def _check_payload_refs(scope: Scope, repair: bool) -> Steps[list[Finding]]:
    """Compare the reference counts of the payloads with the messages."""
    references: dict[str, int] = dict((yield from fetch_all("blobs_reference_counts", owner=scope.owner)))  # type: ignore[arg-type]
    findings: list[Finding] = []
    for name, refs, size_matches in (yield from fetch_all("blobs_refs", owner=scope.owner)):
        count = references.pop(name, 0)
        if refs != count:
            if repair:
                yield from execute("blob_set_refs", owner=scope.owner, hash=name, refs=count)
                yield from execute_many("blob_delete_unused", [(scope.owner, name)])
            message = f"Payload {name[:12]} counts {refs} references; there are {count}."
            findings.append(Finding(kind="payload", message=message, advice=_REPAIR_ADVICE, repaired=repair))
        if not size_matches:
            message = f"Payload {name[:12]} does not have its stored size."
            findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    for name, count in references.items():
        message = f"Payload {name[:12]} is missing; {count} messages refer to it."
        findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    return findings


def _check_trees(scope: Scope) -> Steps[list[Finding]]:
    rows: list[Any] = yield from fetch_all("trees_miscounted", owner=scope.owner)
    return [
        Finding(kind="counter", message=f"Tree {row[0]} would assign a branch number twice.", advice=_REPORT_ADVICE)
        for row in rows
    ]
