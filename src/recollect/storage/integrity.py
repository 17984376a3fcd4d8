"""Integrity checks: compare counters, references, tool calls and payloads with the messages.

Each step is its own operation over a page of sessions. With `repair`, data that can be derived from the messages is
fixed; messages are never changed. A deep check also reads every message and every payload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from recollect.errors import RecollectError, format_value
from recollect.model import json, labels
from recollect.model.message import Message, Repair
from recollect.model.reports import Finding
from recollect.model.session import SessionInfo
from recollect.model.title import title_sort_key
from recollect.storage import edits, leases, messages, paths, records, row_stream, search, sessions, tools
from recollect.storage.operation import (
    Operation,
    Plan,
    Query,
    Row,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_all,
    fetch_one,
)
from recollect.storage.row_stream import VERSIONS_OF_SPAN

# Rows per operation, so that a check holds no long transaction.
_MESSAGE_PAGE_SIZE = 500
_PAYLOAD_PAGE_SIZE = 20  # each may have megabytes
_BACKUP_ADVICE = "Restore it from a backup, or continue without it."


class PayloadRow(NamedTuple):
    """A payload and its hash."""

    hash: str
    data: bytes


class PayloadReferencesRow(NamedTuple):
    """The number of references to a payload from messages."""

    hash: str
    refs: int


class StoredReferencesRow(NamedTuple):
    """The stored number of references to a payload, and whether the payload has its stored size."""

    hash: str
    refs: int
    size_matches: bool


class SessionTotalRow(NamedTuple):
    """The number of sessions of an owner."""

    sessions: int


class CheckedSessionRow(NamedTuple):
    """The key of a session to check."""

    key: int


class SessionStateRow(NamedTuple):
    """The derived columns of a session, and the values of its head branch from which they derive."""

    branch: int
    open_turns: int
    head_session: int | None
    head_number: int | None
    open_branches: int
    sort_title: str | None
    label_rows: str
    """The labels in the rows of session_labels, as a sorted JSON array."""


class BranchExtentRow(NamedTuple):
    """The number of messages of a branch, and the first and last position."""

    messages: int
    first: int | None
    last: int | None


class NextBranchRow(NamedTuple):
    """A branch key that messages have, and whether there is no such branch."""

    branch: int
    is_missing: bool


class UnclaimedTurnRow(NamedTuple):
    """An open turn that does not hold its branch."""

    position: int


class InconsistentCallRow(NamedTuple):
    """A tool call whose messages are missing or do not match."""

    call_id: str
    lacks_call: bool
    lacks_result: bool


class DanglingAppendRow(NamedTuple):
    """An idempotency key whose messages do not exist."""

    key: str


class StraySessionRow(NamedTuple):
    """The key of a session that does not exist and has records."""

    session: int


class SharedKeyRow(NamedTuple):
    """A message whose key another message of its path has too."""

    position: int
    client_key: str


class StrayVersionRow(NamedTuple):
    """An earlier version of a message that does not exist, by the key of its branch."""

    branch: int
    position: int


class MiscountedTreeRow(NamedTuple):
    """A tree whose branch counter is lower than a branch number."""

    tree: int


_BLOBS_PAGE = Query("blobs_page", PayloadRow)
_BLOBS_REFERENCE_COUNTS = Query("blobs_reference_counts", PayloadReferencesRow)
_BLOBS_REFS = Query("blobs_refs", StoredReferencesRow)
_SESSIONS_TOTAL = Query("sessions_total", SessionTotalRow)
_SESSIONS_ALL = Query("sessions_all", CheckedSessionRow)
_SESSION_STATE = Query("session_state", SessionStateRow)
_MESSAGES_EXTENT = Query("messages_extent", BranchExtentRow)
_MESSAGES_NEXT = Query("messages_next", NextBranchRow)
_TURNS_UNCLAIMED = Query("turns_unclaimed", UnclaimedTurnRow)
_TOOL_CALLS_INCONSISTENT = Query("tool_calls_inconsistent", InconsistentCallRow)
_APPENDS_DANGLING = Query("appends_dangling", DanglingAppendRow)
_MESSAGES_SHARING_KEY = Query("messages_sharing_key", SharedKeyRow)
_MESSAGE_VERSIONS_STRAY = Query("message_versions_stray", StrayVersionRow)
_TREES_MISCOUNTED = Query("trees_miscounted", MiscountedTreeRow)
_RECORDS_STRAY = Query("records_stray", StraySessionRow)


class _CheckedBranch(NamedTuple):
    key: int
    number: int
    session: str
    """The id of the session."""


class _CheckedPage(NamedTuple):
    findings: list[Finding]
    branch: int
    after: int | None
    """The position up to which the branch was read; None: to its end."""


def check_messages(session: int) -> Plan[list[Finding]]:
    """Decode every message of a session, on all its branches, and report those that fail."""
    findings: list[Finding] = []
    branches: list[_CheckedBranch] = yield Operation(_read_branches, session, writes=False)
    for branch in branches:
        after: int | None = 0
        while after is not None:
            page: _CheckedPage = yield Operation(_check_message_page, branch, after, writes=False)
            findings += page.findings
            after = page.after
    return findings


def _read_branches(session: int) -> Steps[list[_CheckedBranch]]:
    current = yield from sessions.find_by_key(session)
    if current is None:
        return []
    rows = yield from fetch_all(paths.BRANCHES_OF_SESSION, session=session)
    return [_CheckedBranch(row.key, row.number, current.value.id) for row in rows]


def _check_message_page(branch: _CheckedBranch, after: int) -> Steps[_CheckedPage]:
    rows = yield from fetch_all(
        messages.MESSAGES_FORWARD,
        branch=branch.key,
        low=after,
        high=paths.LAST_POSITION,
        limit=_MESSAGE_PAGE_SIZE,
        deleted=True,
    )
    findings: list[Finding] = []
    if not _is_readable(rows, branch.number):
        findings = [_unreadable_finding(row, branch) for row in rows if not _is_readable([row], branch.number)]
    if rows:
        findings += yield from _check_versions(branch, after, max(rows[-1].position, after))
    # rows of a damaged file may be out of order
    has_more = len(rows) == _MESSAGE_PAGE_SIZE and rows[-1].position > after
    return _CheckedPage(findings, branch.key, rows[-1].position if has_more else None)


def _check_versions(branch: _CheckedBranch, low: int, high: int) -> Steps[list[Finding]]:
    """Decode the earlier versions of the messages of a span, and report those that fail."""
    findings: list[Finding] = []
    for version in (yield from fetch_all(VERSIONS_OF_SPAN, branch=branch.key, low=low, high=high)):
        try:
            row = edits.version_row(version)
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError):
            row = None
        if row is None or not _is_readable([row], branch.number):
            message = (
                f"Version {version.version} of message {branch.number}.{version.position} of session "
                f"{branch.session!r} cannot be read."
            )
            findings.append(Finding(kind="message", message=message, advice=_BACKUP_ADVICE, session=branch.session))
    return findings


def _is_readable(rows: list[messages.MessageRow], number: int) -> bool:
    payloads = defaultdict[str, bytes](bytes)  # missing payloads are reported elsewhere
    try:
        for row in rows:
            messages.message_with_payloads(row, number, None if messages.blob_names(row) is None else payloads)
    except (msgspec.MsgspecError, ValueError, TypeError):  # truncated text, or a row without text
        return False
    return True


def _unreadable_finding(row: messages.MessageRow, branch: _CheckedBranch) -> Finding:
    message = f"Message {branch.number}.{row.position} of session {branch.session!r} cannot be read."
    return Finding(kind="message", message=message, advice=_BACKUP_ADVICE, session=branch.session)


def check_payloads(scope: Scope) -> Plan[list[Finding]]:
    """Compare every payload with its hash."""
    findings: list[Finding] = []
    after = ""
    while True:
        page: tuple[list[Finding], str | None] = yield Operation(_check_payload_page, scope, after, writes=False)
        page_findings, last = page
        findings += page_findings
        if last is None:
            return findings
        after = last


def _check_payload_page(scope: Scope, after: str) -> Steps[tuple[list[Finding], str | None]]:
    import hashlib  # noqa: PLC0415  only in a deep check

    findings: list[Finding] = []
    rows = yield from fetch_all(_BLOBS_PAGE, owner=scope.owner, after=after, limit=_PAYLOAD_PAGE_SIZE)
    for row in rows:
        if hashlib.sha256(row.data).hexdigest() != row.hash:
            message = f"Payload {row.hash[:12]} does not match its checksum."
            findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    return findings, rows[-1].hash if len(rows) == _PAYLOAD_PAGE_SIZE else None


def check_records(scope: Scope, session: int) -> Plan[list[Finding]]:
    """Decode every record of a session or of the store, and report those that fail."""
    id: str | None = None if session == records.STORE else (yield Operation(_read_session_id, session, writes=False))
    findings: list[Finding] = []
    after: tuple[str, str] | None = None
    while True:
        page: row_stream.RecordPage = yield row_stream.read_records(scope, session, after)
        findings += [_unreadable_record_finding(row, id) for row in page.records if not _is_readable_record(row)]
        if page.more is None or (
            after is not None and page.more <= after
        ):  # rows of a damaged file may be out of order
            return findings
        after = page.more


def _read_session_id(session: int) -> Steps[str | None]:
    current = yield from sessions.find_by_key(session)
    return None if current is None else current.value.id


def _is_readable_record(row: row_stream.FullRecordRow) -> bool:
    if (row.value is None) == (row.data is None):
        return False
    try:
        row.key.decode()
        if row.value is not None:
            json.decode(row.value)
    except (msgspec.MsgspecError, ValueError, TypeError):  # truncated text
        return False
    return True


def _unreadable_record_finding(row: row_stream.FullRecordRow, session: str | None) -> Finding:
    owner = "the store" if session is None else f"session {session!r}"
    message = f"Record {row.key.decode(errors='replace')!r} of kind {row.kind!r} of {owner} cannot be read."
    return Finding(kind="record", message=message, advice=_BACKUP_ADVICE, session=session)


CheckProgress = Callable[[int, int], object]
"""A function that Recollect calls with the amount done and the total."""

HistoryValidator = Callable[[Sequence[Message]], Sequence[Repair]]
"""Returns the repairs that a history needs before a provider accepts it."""

CHECKED_AREAS = (
    "counters", "branches", "message keys", "turns", "tool calls", "idempotency keys", "titles", "labels", "payloads",
    "records",
    "search index",
)  # fmt: skip

_SESSION_PAGE_SIZE = 50  # sessions per operation
_STRAY_PAGE_SIZE = 500  # branches per operation
_MAX_STRAY_VERSIONS = 100  # reported in one check; more tell nothing new
_MAX_SHOWN = 5  # repairs or call ids that one finding lists
_REPAIR_ADVICE = "store.maintenance.check(repair=True) repairs it."
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
                findings += yield from check_records(scope, key)
        done += len(page)
        if progress is not None:
            progress(done, max(total, done))
        if len(page) < _SESSION_PAGE_SIZE:
            break
        after = page[-1]
    findings += yield from search.check_index(scope, repair=repair)
    findings += yield from _check_stray_messages()
    findings += yield Operation(_check_stray_versions, writes=False)
    findings += yield Operation(_check_payload_refs, scope, repair, writes=repair)
    findings += yield Operation(_check_trees, scope, writes=False)
    findings += yield Operation(_check_stray_records, scope, repair, writes=repair)
    if deep:
        findings += yield from check_payloads(scope)
        findings += yield from check_records(scope, records.STORE)
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
    current = yield from sessions.find_by_key(key)
    return None if current is None or current.value.deleted_at_ms is not None else current.value


def _count_sessions(scope: Scope) -> Steps[int]:
    total = yield from fetch_one(_SESSIONS_TOTAL, owner=scope.owner)
    return 0 if total is None else total.sessions


def _read_session_keys(scope: Scope, after: int) -> Steps[list[int]]:
    rows = yield from fetch_all(_SESSIONS_ALL, owner=scope.owner, after=after, limit=_SESSION_PAGE_SIZE)
    return [row.key for row in rows]


def _check_sessions(scope: Scope, keys: list[int], repair: bool) -> Steps[list[Finding]]:
    findings: list[Finding] = []
    for key in keys:
        current = yield from sessions.find_by_key(key)
        if current is not None:
            findings += yield from _check_session(scope, current, repair)
    return findings


def _check_session(scope: Scope, current: sessions.StoredSession, repair: bool) -> Steps[list[Finding]]:
    state = yield from fetch_one(_SESSION_STATE, session=current.session)
    assert state is not None  # read again below, after the repair of the branches
    if state.head_session != current.session:
        message = f"Session {current.value.id!r} has a head branch that is missing or belongs to another session."
        return [Finding(kind="branch", message=message, advice=_BACKUP_ADVICE, session=current.value.id)]
    findings = yield from _check_branches(scope, current, repair)
    state = yield from fetch_one(_SESSION_STATE, session=current.session)
    assert state is not None
    findings += yield from _check_session_row(scope, current, state, repair)
    findings += yield from _check_counts(scope, current, repair)
    findings += yield from _check_idempotency_keys(current)
    if current.value.deleted_at_ms is None and not current.open_turns:
        findings += yield from _check_unanswered_calls(current)
    return findings


def _check_session_row(
    scope: Scope, current: sessions.StoredSession, state: SessionStateRow, repair: bool
) -> Steps[list[Finding]]:
    """Compare the derived columns of a session row with its branch, open turns, relatives and title."""
    id, findings = current.value.id, list[Finding]()
    if state.branch != state.head_number:
        if repair:
            yield from execute("session_set_branch", session=current.session, number=state.head_number)
        message = f"Session {id!r} stores branch number {state.branch} for its head; it is {state.head_number}."
        findings.append(Finding(kind="branch", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    if state.open_turns != state.open_branches:
        if repair:
            yield from execute("session_set_open_turns", session=current.session, count=state.open_branches)
        message = f"Session {id!r} counts {state.open_turns} open turns; there are {state.open_branches}."
        findings.append(Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    for kind, problem in (yield from scope.search_dialect().check_session(current.session, repair=repair)):
        message = f"Session {id!r} {problem}."
        findings.append(Finding(kind=kind, message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
    sort_title = None if current.value.title is None else title_sort_key(current.value.title)
    if state.sort_title != sort_title:
        if repair:
            yield from sessions.set_sort_title(current.session, current.value.title)
        # Written by a version that only lower-cased ASCII letters.
        level = "notice" if sort_title and state.sort_title == _lower_ascii(current.value.title or "") else "problem"
        message = f"Session {id!r} has a sort title that does not match its title."
        findings.append(
            Finding(kind="title", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair, level=level)
        )
    if labels.decode_labels(state.label_rows) != current.value.labels:
        if repair:
            yield from sessions.set_label_rows(current.session, labels.encode_labels(current.value.labels))
        message = f"Session {id!r} has labels that differ from those by which lists find it."
        findings.append(Finding(kind="label", message=message, advice=_REPAIR_ADVICE, session=id, repaired=repair))
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
    for branch in (yield from fetch_all(paths.BRANCHES_OF_SESSION, session=current.session)):
        name = f"{branch.number} of session {current.value.id!r}"
        findings += yield from _check_extent(current, branch, name, repair)
        findings += yield from _check_open_turns(scope, current, branch.key, name, repair)
        findings += yield from _check_message_keys(current, branch)
        for call in (yield from fetch_all(_TOOL_CALLS_INCONSISTENT, branch=branch.key)):
            role = "asks" if call.lacks_call else "answers" if call.lacks_result else "asks or answers"
            message = (
                f"Tool call {call.call_id!r} on branch {name} has no message part that {role} it, or a wrong status."
            )
            findings.append(Finding(kind="tool call", message=message, advice=_REPORT_ADVICE, session=current.value.id))
    return findings


def _check_message_keys(current: sessions.StoredSession, branch: paths.SessionBranchRow) -> Steps[list[Finding]]:
    """Report messages of a branch whose key another message of the path has."""
    return [
        Finding(
            kind="message key",
            message=(
                f"Message {branch.number}.{row.position} of session {current.value.id!r} has the key "
                f"{format_value(row.client_key)}, which another message of its path has too."
            ),
            advice="Delete one of them with session.delete_messages().",
            session=current.value.id,
        )
        for row in (yield from fetch_all(_MESSAGES_SHARING_KEY, branch=branch.key))
    ]


def _check_extent(
    current: sessions.StoredSession, branch: paths.SessionBranchRow, name: str, repair: bool
) -> Steps[list[Finding]]:
    """Compare the last position of a branch with its messages."""
    extent = yield from fetch_one(_MESSAGES_EXTENT, branch=branch.key)
    assert extent is not None
    end = branch.fork_at if extent.last is None else extent.last
    findings: list[Finding] = []
    if end > branch.last:
        if repair:
            yield from execute("session_set_last", session=current.session, branch=branch.key, last=end)
            yield from execute("branch_set_last", branch=branch.key, last=end)
        message = f"Branch {name} has a last position of {branch.last}, but a message at {end}."
        findings.append(
            Finding(kind="counter", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
        )
    missing = max(branch.last, end) - branch.fork_at - extent.messages
    if missing or (extent.messages and extent.first != branch.fork_at + 1):
        message = (
            f"Branch {name} lacks {missing} of its messages."
            if missing > 0
            else f"Branch {name} begins at {extent.first}."
        )
        findings.append(Finding(kind="message", message=message, advice=_BACKUP_ADVICE, session=current.value.id))
    return findings


def _check_open_turns(
    scope: Scope, current: sessions.StoredSession, branch: int, name: str, repair: bool
) -> Steps[list[Finding]]:
    """Check the open turn of a branch, and find open turns that do not hold it."""
    findings: list[Finding] = []
    row = yield from fetch_one(leases.BRANCH_OPEN, branch=branch)
    position = None if row is None else row.open_turn
    if position is not None:
        turn = yield from fetch_one(leases.TURN_GET, branch=branch, position=position)
        if turn is None or turn.status != "open":
            if repair:
                yield from leases.release_branch(current.session, branch, position)
            message = f"Branch {name} is held by turn {position}, which is {'gone' if turn is None else turn.status}."
            findings.append(
                Finding(kind="turn", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
            )
        elif not (yield from leases.has_live_turn(scope, current.session)):
            if repair:
                yield from leases.recover_turns(scope, current.session)
            message = f"Turn {position} on branch {name} was left open by a process that is gone."
            advice = "Opening the session, or store.maintenance.check(repair=True), marks it as interrupted."
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
    for turn in (yield from fetch_all(_TURNS_UNCLAIMED, branch=branch, open_turn=position)):
        if repair:
            yield from leases.interrupt_turn(scope, current.session, branch, turn.position)
        message = f"Turn {turn.position} on branch {name} is open, but does not hold its branch."
        findings.append(
            Finding(kind="turn", message=message, advice=_REPAIR_ADVICE, session=current.value.id, repaired=repair)
        )
    return findings


def _check_idempotency_keys(current: sessions.StoredSession) -> Steps[list[Finding]]:
    rows = yield from fetch_all(_APPENDS_DANGLING, session=current.session)
    return [
        Finding(
            kind="idempotency key",
            message=f"The key {row.key!r} of session {current.value.id!r} refers to messages that do not exist.",
            advice=_REPORT_ADVICE,
            session=current.value.id,
        )
        for row in rows
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
    advice = "Store one with session.tools.record_result(); status='cancelled' records that there is none."
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


def _check_stray_versions() -> Steps[list[Finding]]:
    """Report earlier versions of messages that do not exist."""
    return [
        Finding(
            kind="message",
            message=f"Message {row.position} on branch {row.branch} has an earlier version, but does not exist.",
            advice=_REPORT_ADVICE,
        )
        for row in (yield from fetch_all(_MESSAGE_VERSIONS_STRAY, limit=_MAX_STRAY_VERSIONS))
    ]


def _read_stray_page(after: int) -> Steps[tuple[list[int], int | None]]:
    strays: list[int] = []
    for _ in range(_STRAY_PAGE_SIZE):
        row = yield from fetch_one(_MESSAGES_NEXT, branch=after)
        if row is None or row.branch <= after:  # rows of a damaged file may be out of order
            return strays, None
        after = row.branch
        if row.is_missing:
            strays.append(after)
    return strays, after


def _check_payload_refs(scope: Scope, repair: bool) -> Steps[list[Finding]]:
    """Compare the reference counts of the payloads with the messages."""
    references = {
        payload.hash: payload.refs for payload in (yield from fetch_all(_BLOBS_REFERENCE_COUNTS, owner=scope.owner))
    }
    findings: list[Finding] = []
    wrong: list[Row] = []
    for payload in (yield from fetch_all(_BLOBS_REFS, owner=scope.owner)):
        count = references.pop(payload.hash, 0)
        if payload.refs != count:
            wrong.append((scope.owner, payload.hash))
            message = f"Payload {payload.hash[:12]} counts {payload.refs} references; there are {count}."
            findings.append(Finding(kind="payload", message=message, advice=_REPAIR_ADVICE, repaired=repair))
        if not payload.size_matches:
            message = f"Payload {payload.hash[:12]} does not have its stored size."
            findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    for name, count in references.items():
        message = f"Payload {name[:12]} is missing; {count} messages refer to it."
        findings.append(Finding(kind="payload", message=message, advice=_BACKUP_ADVICE))
    if repair and wrong:
        yield from execute("blobs_recount", owner=scope.owner)
        yield from execute_many("blob_delete_unused", wrong)
    return findings


def _check_stray_records(scope: Scope, repair: bool) -> Steps[list[Finding]]:
    """Report records of sessions that do not exist, which a new session with the same key would get."""
    rows = yield from fetch_all(_RECORDS_STRAY, owner=scope.owner)
    if repair:
        for row in rows:
            yield from execute("records_erase", owner=scope.owner, session=row.session)
    message = "There are records of session {}, which does not exist."
    advice = "No message is affected. store.maintenance.check(repair=True) deletes them."
    return [Finding(kind="record", message=message.format(row.session), advice=advice, repaired=repair) for row in rows]


def _check_trees(scope: Scope) -> Steps[list[Finding]]:
    rows = yield from fetch_all(_TREES_MISCOUNTED, owner=scope.owner)
    return [
        Finding(kind="counter", message=f"Tree {row.tree} would assign a branch number twice.", advice=_REPORT_ADVICE)
        for row in rows
    ]
