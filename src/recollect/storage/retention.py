"""Retention: erase sessions, prune them by age, count and size, trim long ones, and empty the trash.

Nothing is removed unless the caller asks. Pinned sessions and sessions with an open turn stay. A sub-agent's session
goes with its parent. Erasing keeps the past that forks share. Each step is a short transaction that checks again
before it removes anything: a session that was used, pinned or restored meanwhile stays. Trimmed messages are marked as
deleted and can be restored; a dropped tool output is gone, and a sentence replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue, SessionHasForks, SessionNotFound
from recollect.model import json, times, validation
from recollect.model.message import Draft, Message, Part, ToolResultPart
from recollect.model.reports import PrunedSession, PruneReason, PruneReport
from recollect.model.times import DurationLike
from recollect.model.tokens import estimate_tokens
from recollect.model.value import format_iso
from recollect.storage import edits, leases, messages, originals, paths, presence, search, sessions
from recollect.storage.operation import (
    Deletion,
    Operation,
    Plan,
    Query,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_all,
    fetch_one,
)
from recollect.storage.row_stream import VERSIONS_OF_SPAN

FORK_POLICIES = ("refuse", "keep", "erase")


class BlobListRow(NamedTuple):
    """The hashes of the blobs of a message, as JSON."""

    blobs: str


class SelectedSessionRow(NamedTuple):
    """The key of a session."""

    key: int


class MessageOutlineRow(NamedTuple):
    """The role of a message and its turn."""

    position: int
    role: str
    turn: int | None


class DeletedTokensRow(NamedTuple):
    """The tokens of a message that was marked as deleted."""

    tokens: int
    input_tokens: int
    output_tokens: int


class LargeMessageRow(NamedTuple):
    """A message with large tool outputs or blobs; `number` is the public number of its branch."""

    branch: int
    number: int
    position: int


class PrunableSessionRow(NamedTuple):
    """A session that pruning looks at; `listed_at` is its activity time, by which the pages are ordered."""

    key: int
    id: str
    title: str | None
    last_active_at: int
    listed_at: int
    pinned_at: int | None
    open_turns: int
    touched_at: int


class MessageTotalsRow(NamedTuple):
    """The number of messages, bytes and tool steps of a session."""

    messages: int
    bytes: int
    tool_steps: int


class BlobTotalRow(NamedTuple):
    """The bytes of the blobs of a session."""

    bytes: int


_MESSAGES_BLOBS = Query("messages_blobs", BlobListRow)
_SESSIONS_OVER_LIMIT = Query("sessions_over_limit", SelectedSessionRow)
_SESSIONS_UNPINNED = Query("sessions_unpinned", SelectedSessionRow)
_SESSIONS_DELEGATED = Query("sessions_delegated", SelectedSessionRow)
_MESSAGES_OUTLINE = Query("messages_outline", MessageOutlineRow)
_MESSAGES_MARK_DELETED = Query("messages_mark_deleted", DeletedTokensRow)
_MESSAGES_LARGE = Query("messages_large", LargeMessageRow)
_SESSIONS_PRUNABLE = Query("sessions_prunable", PrunableSessionRow)
_SESSIONS_TRASHED = Query("sessions_trashed", PrunableSessionRow)
_MESSAGES_TOTAL_SIZE = Query("messages_total_size", MessageTotalsRow)
_BLOBS_TOTAL_SIZE = Query("blobs_total_size", BlobTotalRow)


class ErasedSessions(NamedTuple):
    """The ids of the erased sessions."""

    sessions: list[str]


def erase_session(
    scope: Scope, session: str, *, forks: str = "refuse", deleted: bool | None = None, expected: int | None = None
) -> Operation[ErasedSessions]:
    """Erase a session, and every branch that no other session reaches.

    `deleted` is True for a session in the trash, False for one that is not; None prefers one that is not in the trash.
    Raise StaleRevision if its revision is not `expected`.
    """
    validation.check_choice("forks", forks, FORK_POLICIES)
    validation.check_integer("expected", expected)
    return Operation(
        _erase_session, scope, session, forks, deleted, expected, deletion=Deletion.CONTENT, removes_from_index=True
    )


def _erase_session(
    scope: Scope, session: str, forks: str, deleted: bool | None, expected: int | None
) -> Steps[ErasedSessions]:
    row = None if deleted is True else (yield from sessions.find_live_row(scope, session))
    if row is None and deleted is not False:
        row = yield from sessions.find_trashed_row(scope, session)
    if row is None and deleted is None:  # another process may have restored it between the two queries
        row = yield from sessions.find_live_row(scope, session)
    if row is None:
        raise SessionNotFound(session=session)
    current = sessions.stored_from_row(row)
    sessions.check_revision(current, expected)
    branches = yield from fetch_all(paths.BRANCHES_OF_TREE, tree=current.tree)
    names: dict[int, str] = {
        row.session: row.id for row in (yield from fetch_all(messages.SESSIONS_OF_TREE, tree=current.tree))
    }
    dependent = _dependent_sessions(branches, current.session)
    if dependent and forks == "refuse":
        raise SessionHasForks(session=session, forks=tuple(names[key] for key in sorted(dependent)))
    erased_keys = {current.session} | (dependent if forks == "erase" else set())
    yield from _interrupt_turns(scope, branches, erased_keys)
    for key in sorted(erased_keys):
        yield from search.remove_title(key)
        yield from _delete_session(scope, key, names[key])
    yield from _delete_unreachable(scope, current.tree, branches, erased_keys)
    erased_ids = [names[key] for key in sorted(erased_keys)]
    yield from presence.delete_for_sessions(scope, erased_ids)
    return ErasedSessions(erased_ids)


def erase_stored(scope: Scope, current: sessions.StoredSession) -> Steps[None]:
    """Erase a session whose row was read; forks keep the past that they share."""
    branches = yield from fetch_all(paths.BRANCHES_OF_TREE, tree=current.tree)
    yield from _interrupt_turns(scope, branches, {current.session})
    yield from search.remove_title(current.session)
    yield from _delete_session(scope, current.session, current.value.id)
    yield from _delete_unreachable(scope, current.tree, branches, {current.session})
    yield from presence.delete_for_sessions(scope, [current.value.id])


def _delete_session(scope: Scope, session: int, id: str) -> Steps[None]:
    """Delete the row of a session and the rows that only it has, but no messages."""
    yield from originals.bury(scope, session, id)
    yield from execute("session_delete", session=session)
    # Afterwards: a writer of a record keeps the row of the session from being deleted until the record is committed.
    yield from execute("records_erase", owner=scope.owner, session=session)


def unshared_positions(current: sessions.StoredSession) -> Steps[dict[int, int]]:
    """Return for each branch of a session the position after which its messages are not shared with another session."""
    branches = yield from fetch_all(paths.BRANCHES_OF_TREE, tree=current.tree)
    others = {branch.session for branch in branches}
    reachable = paths.reachable_positions(branches, others - {current.session})
    own = (branch for branch in branches if branch.session == current.session)
    return {branch.key: reachable.get(branch.key) or 0 for branch in own}


def _dependent_sessions(branches: list[paths.TreeBranchRow], session: int) -> set[int]:
    """Return the sessions whose path contains branches of this one."""
    by_key = {branch.key: branch for branch in branches}
    dependents: set[int] = set()
    contains_session: dict[int, bool] = {}
    for branch in sorted(branches, key=lambda item: item.key):  # a parent is older than its child
        parent = None if branch.parent is None else by_key.get(branch.parent)
        contains_session[branch.key] = parent is not None and (
            parent.session == session or contains_session[parent.key]
        )
        if contains_session[branch.key] and branch.session is not None:
            dependents.add(branch.session)
    return dependents - {session}


def _interrupt_turns(scope: Scope, branches: list[paths.TreeBranchRow], erased_keys: set[int]) -> Steps[None]:
    """Interrupt the open turns of erased sessions: forks may keep their messages, and no holder will end them."""
    for branch in branches:
        if branch.session in erased_keys:
            row = yield from fetch_one(leases.BRANCH_OPEN, branch=branch.key)
            if row is not None:
                yield from leases.interrupt_turn(scope, branch.session, branch.key, row.open_turn)


def _delete_unreachable(
    scope: Scope, tree: int, branches: list[paths.TreeBranchRow], erased_keys: set[int]
) -> Steps[None]:
    """Delete what no session reaches: branches, and the ends of branches after their last fork."""
    reachable = paths.reachable_positions(branches, {branch.session for branch in branches} - erased_keys)
    for branch in sorted(branches, key=lambda item: item.key, reverse=True):
        cut = reachable.get(branch.key, 0)
        if cut is not None:
            yield from _truncate_branch(scope, branch, branches, cut)
    yield from execute("tree_delete", tree=tree)


def _truncate_branch(
    scope: Scope, branch: paths.TreeBranchRow, branches: list[paths.TreeBranchRow], cut: int
) -> Steps[None]:
    """Delete the messages of a branch after a position, and the branch if nothing of it remains."""
    yield from search.truncate_branch(scope, branch.key, cut)
    rows = yield from fetch_all(_MESSAGES_BLOBS, branch=branch.key, low=cut, high=paths.LAST_POSITION)
    blob_keys = [(scope.owner, name) for row in rows for name in json.decode(row.blobs)]
    yield from execute_many("blob_release", blob_keys)
    yield from execute_many("blob_delete_unused", blob_keys)
    for query in (
        "messages_erase",
        "message_versions_erase",
        "turns_erase",
        "tool_calls_erase",
        "tool_calls_reopen",
        "pins_erase",
    ):
        yield from execute(query, branch=branch.key, low=cut)
    yield from execute("compactions_erase", branch=branch.key)  # a fork has its own
    if cut == 0:
        for other in branches:
            yield from execute("tool_calls_erase_answers", branch=branch.key, parent=other.key)
        yield from execute("branch_delete", branch=branch.key)


# Rows per operation, so that a transaction stays short.
_KEY_PAGE_SIZE = 200  # sessions
_TURN_PAGE_SIZE = 1_000  # messages
_OUTPUT_PAGE_SIZE = 20  # messages; each may hold megabytes
_OUTPUT_FIELDS = ("content", "output")


class DroppedOutputs(NamedTuple):
    """The number of dropped outputs, and their bytes."""

    outputs: int
    bytes: int


class _TrimProgress(NamedTuple):
    """The messages that a step deleted, and the position after which the next step continues; None: done."""

    messages: int
    after: int | None


def trim_sessions(scope: Scope, max_messages: int, *, dry_run: bool) -> Plan[int]:
    """Delete the oldest complete turns of sessions with more than `max_messages` messages; return the number."""
    total = 0
    for key in (yield from _read_session_keys(scope, _SESSIONS_OVER_LIMIT, max_messages=max_messages)):
        after: int | None = 0
        counted_messages = 0
        while after is not None:
            step: _TrimProgress = yield Operation(
                _trim_session,
                scope,
                key,
                max_messages,
                counted_messages,
                after,
                dry_run,
                writes=not dry_run,
                deletion=Deletion.ROWS,
            )
            counted_messages, after = counted_messages + (step.messages if dry_run else 0), step.after
            total += step.messages
    return total


def _read_session_keys(scope: Scope, query: Query[SelectedSessionRow], **params: Any) -> Plan[list[int]]:
    """Read the session keys that a query returns, a page at a time."""
    keys: list[int] = []
    while True:
        after = keys[-1] if keys else 0
        page: list[SelectedSessionRow] = yield Operation(_read_key_page, scope, query, after, params, writes=False)
        keys += [row.key for row in page]
        if len(page) < _KEY_PAGE_SIZE:
            return keys


def _read_key_page(
    scope: Scope, query: Query[SelectedSessionRow], after: int, params: dict[str, Any]
) -> Steps[list[SelectedSessionRow]]:
    return (yield from fetch_all(query, owner=scope.owner, after=after, limit=_KEY_PAGE_SIZE, **params))


def _trim_session(
    scope: Scope, key: int, max_messages: int, counted_messages: int, after: int, dry_run: bool
) -> Steps[_TrimProgress]:
    """Delete the oldest turns, a page at a time. In a dry run, `counted_messages` were counted so far."""
    current = yield from _read_idle_session(scope, key)
    if current is None or current.value.pinned_at_ms is not None:
        return _TrimProgress(0, None)
    excess = current.value.message_count - counted_messages - max_messages
    spans = yield from paths.read_path(current.head)
    own_from = yield from unshared_positions(current)
    for span in reversed(spans):
        low = max(span.low, after)
        if low >= span.high or excess <= 0:
            continue
        if span.branch not in own_from or own_from[span.branch] > span.low:
            break  # a fork shares this past and keeps it
        turns, at_end = yield from _read_whole_turns(span, low, newest=span is spans[0])
        count, end = _count_oldest(turns, excess)
        if count and not dry_run:
            yield from _mark_deleted(scope, current, span, low, end)
        if count:
            more = excess > count and (not at_end or span is not spans[0])
            return _TrimProgress(count, end if more else None)
        if at_end and span is spans[0]:
            break
    return _TrimProgress(0, None)


def _read_idle_session(scope: Scope, key: int) -> Steps[sessions.StoredSession | None]:
    """Return a session that is not in the trash and has no live turn, or None."""
    current = yield from sessions.find_by_key(key)
    if current is None or current.value.deleted_at_ms is not None:
        return None
    return None if current.open_turns and (yield from leases.has_live_turn(scope, key)) else current


def _read_whole_turns(span: paths.PathSpan, low: int, *, newest: bool) -> Steps[tuple[list[list[int]], bool]]:
    """Return the positions of the next complete turns, and whether the span ends there; skip the session's newest turn.

    A turn begins with a user message, so that tool calls and their results stay together.
    """
    limit = _TURN_PAGE_SIZE
    while True:
        rows = yield from fetch_all(_MESSAGES_OUTLINE, branch=span.branch, low=low, high=span.high, limit=limit)
        turns: list[list[int]] = []
        previous: int | None = None
        for row in rows:
            if not turns or (row.role == "user" and (row.turn is None or row.turn != previous)):
                turns.append([])
            turns[-1].append(row.position)
            previous = row.turn
        at_end = len(rows) < limit
        if not at_end or newest:
            turns = turns[:-1]
        if turns or at_end:
            return turns, at_end
        limit *= 2


def _count_oldest(turns: list[list[int]], excess: int) -> tuple[int, int]:
    """Return the number of messages of the turns that cover the excess, and the position of the last one."""
    count = end = 0
    for turn in turns:
        if count >= excess:
            break
        count, end = count + len(turn), turn[-1]
    return count, end


def _mark_deleted(
    scope: Scope, current: sessions.StoredSession, span: paths.PathSpan, low: int, end: int
) -> Steps[None]:
    rows = yield from fetch_all(_MESSAGES_MARK_DELETED, branch=span.branch, low=low, high=end, now=scope.now)
    yield from execute(
        "session_change",
        session=current.session,
        messages=-len(rows),
        tokens=-sum(row.tokens for row in rows),
        input_tokens=-sum(row.input_tokens for row in rows),
        output_tokens=-sum(row.output_tokens for row in rows),
        now=scope.now,
    )


def drop_outputs(scope: Scope, min_bytes: int, *, dry_run: bool) -> Plan[DroppedOutputs]:
    """Replace tool outputs of more than `min_bytes` bytes by a sentence."""
    outputs = size = 0
    for key in (yield from _read_session_keys(scope, _SESSIONS_UNPINNED)):
        cursor: tuple[int, int] | None = (0, 0)
        while cursor is not None:
            page: tuple[DroppedOutputs, tuple[int, int] | None] = yield Operation(
                _drop_outputs,
                scope,
                key,
                min_bytes,
                cursor,
                dry_run,
                writes=not dry_run,
                removes_from_index=True,
                deletion=Deletion.ROWS,
            )
            (count, bytes_), cursor = page
            outputs, size = outputs + count, size + bytes_
    return DroppedOutputs(outputs, size)


def _drop_outputs(
    scope: Scope, key: int, min_bytes: int, cursor: tuple[int, int], dry_run: bool
) -> Steps[tuple[DroppedOutputs, tuple[int, int] | None]]:
    current = yield from _read_idle_session(scope, key)
    if current is None:
        return DroppedOutputs(0, 0), None
    outputs = size = 0
    rows = yield from fetch_all(
        _MESSAGES_LARGE,
        session=key,
        branch=cursor[0],
        position=cursor[1],
        min_bytes=min_bytes,
        limit=_OUTPUT_PAGE_SIZE,
    )
    for row in rows:
        message = yield from messages.read_at(scope, row.branch, row.number, row.position, lock=not dry_run)
        assert message is not None
        parts, report = _replace_outputs(message, min_bytes, scope.now)
        outputs, size = outputs + report.outputs, size + report.bytes
        if report.outputs and not dry_run:
            yield from _rewrite_message(scope, current, row.branch, message, parts)
        report = yield from _drop_version_outputs(scope, row.branch, message, min_bytes, dry_run)
        outputs, size = outputs + report.outputs, size + report.bytes
    last = (rows[-1].branch, rows[-1].position) if len(rows) == _OUTPUT_PAGE_SIZE else None
    return DroppedOutputs(outputs, size), last


def _replace_outputs(message: Message, min_bytes: int, now: int) -> tuple[tuple[Part, ...], DroppedOutputs]:
    parts: list[Part] = []
    sizes: list[int] = []
    for part in message.parts:
        size = len(json.encode([part]).encode()) if isinstance(part, ToolResultPart) else 0
        if isinstance(part, ToolResultPart) and size > min_bytes and "dropped" not in (part.metadata or {}):
            sizes.append(size)
            parts.append(_placeholder_result(part, size, min_bytes, now))
        else:
            parts.append(part)
    return tuple(parts), DroppedOutputs(len(sizes), sum(sizes))


def _placeholder_result(part: ToolResultPart, size: int, min_bytes: int, now: int) -> ToolResultPart:
    """Return a tool result with a sentence in place of its output."""
    time = format_iso(now)
    native = part.native
    if isinstance(native, dict):
        native = {name: value for name, value in native.items() if name not in _OUTPUT_FIELDS} or None
    if native is not None and len(json.encode(native)) > min_bytes:
        native = None
    return msgspec.structs.replace(
        part,
        text=f"[This tool output of {size:,} bytes was dropped on {time[:10]} to save space.]",
        data=msgspec.UNSET,
        content=None,
        native=native,
        metadata={**(part.metadata or {}), "dropped": {"bytes": size, "at": time}},
    )


def _rewrite_message(
    scope: Scope, current: sessions.StoredSession, branch: int, message: Message, parts: tuple[Part, ...]
) -> Steps[None]:
    """Write a message with shorter parts, and release the blobs that it no longer refers to."""
    item = messages.encode_draft(Draft(role=message.role, parts=parts), scope.now)
    columns = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
    tokens = max(item.tokens, message.tokens - estimate_tokens(message.parts) + item.tokens)
    row = yield from fetch_one(messages.MESSAGE_GET, branch=branch, position=message.position)
    assert row is not None
    blob_names = [name for name in messages.blob_names(row) or () if name not in item.payloads]
    yield from search.invalidate_message(scope, branch, message.position)
    yield from execute(
        "message_replace_parts", branch=branch, position=message.position, parts=columns["parts"], tokens=tokens,
        blobs=columns["blobs"], edited_at=edits.next_edit(scope, message),
    )  # fmt: skip
    yield from edits.release_blobs(scope, blob_names)
    yield from originals.drop_originals(scope, current.tree)
    if message.deleted_at_ms is None:
        change = messages.CountChange(0, tokens - message.tokens, 0, 0)
        yield from messages.adjust_counts(scope, current.tree, branch, message.position, change)
    yield from leases.raise_revision(scope, current.session)


def _drop_version_outputs(
    scope: Scope, branch: int, message: Message, min_bytes: int, dry_run: bool
) -> Steps[DroppedOutputs]:
    """Replace large tool outputs in the earlier versions of a message."""
    reports: list[DroppedOutputs] = []
    versions = yield from fetch_all(VERSIONS_OF_SPAN, branch=branch, low=message.position - 1, high=message.position)
    for version in versions:
        old = (yield from edits.decode_versions(scope, message, [version]))[0]
        parts, report = _replace_outputs(old, min_bytes, scope.now)
        if report.outputs and not dry_run:
            item = messages.encode_draft(Draft(role=old.role, parts=parts), scope.now)
            columns = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
            yield from execute(
                "message_version_rewrite", branch=branch, position=message.position, version=version.version,
                parts=columns["parts"], tokens=columns["tokens"], blobs=columns["blobs"],
            )  # fmt: skip
            released_names = [name for name in version.blob_names if name not in item.payloads]
            yield from edits.release_blobs(scope, released_names)
        reports.append(report)
    return DroppedOutputs(sum(report.outputs for report in reports), sum(report.bytes for report in reports))


_END_OF_TIME = 1 << 62  # milliseconds, later than any stored time
# Sessions per transaction. Erasing takes longest: it overwrites the deleted content.
_CANDIDATE_PAGE_SIZE = 200
_TRASH_BATCH = 50  # sessions per transaction
_ERASE_BATCH = 10  # sessions per transaction


class _Candidate(NamedTuple):
    """A session that could be pruned, with its size if a rule needs it.

    `touched_at` is the time of the last activity or change. Rules compare it, because a session that was restored,
    renamed or unpinned keeps its old activity and must not be pruned again at once.
    """

    key: int
    id: str
    title: str | None
    active_at: int
    listed_at: int
    touched_at: int
    exempt: bool
    messages: int = 0
    bytes: int = 0
    tool_steps: int = 0


class _PruneRules(NamedTuple):
    before: int | None
    keep: int | None
    max_bytes: int | None


def prune(
    scope: Scope,
    *,
    older_than: DurationLike | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    max_messages: int | None = None,
    tool_output_over: int | None = None,
    dry_run: bool = False,
    erase: bool = False,
) -> Plan[PruneReport]:
    """Remove what the rules select: sessions, the oldest turns of long sessions, large tool outputs."""
    numbers = {
        "keep": keep, "max_bytes": max_bytes, "max_messages": max_messages, "tool_output_over": tool_output_over,
    }  # fmt: skip
    for name, value in numbers.items():
        validation.check_integer(name, value)
    if max_messages == 0:
        raise InvalidValue("max_messages must be at least 1, got 0: a session keeps its newest turn.")
    before = None if older_than is None else scope.now - times.parse_duration(older_than, "older_than")
    rules = _PruneRules(before, keep, max_bytes)
    dry_run, erase = validation.check_flag("dry_run", dry_run), validation.check_flag("erase", erase)
    return _prune(scope, rules, max_messages, tool_output_over, dry_run=dry_run, erase=erase)


def _prune(
    scope: Scope, rules: _PruneRules, max_messages: int | None, min_bytes: int | None, *, dry_run: bool, erase: bool
) -> Plan[PruneReport]:
    candidates: list[tuple[_Candidate, PruneReason]] = []
    if any(rule is not None for rule in rules):
        candidates = _choose((yield from _read_candidates(scope, rules)), rules)
    report = yield from _remove_chosen(scope, candidates, dry_run=dry_run, erase=erase)
    trim_count = 0 if max_messages is None else (yield from trim_sessions(scope, max_messages, dry_run=dry_run))
    outputs = DroppedOutputs(0, 0)
    if min_bytes is not None:
        outputs = yield from drop_outputs(scope, min_bytes, dry_run=dry_run)
    if erase and report and not dry_run:
        yield Operation(_wipe_erased, deletion=Deletion.CONTENT)
    return PruneReport(
        dry_run=dry_run, erased=erase, sessions=tuple(report), outputs=outputs.outputs, output_bytes=outputs.bytes,
        trimmed=trim_count,
    )  # fmt: skip


def _wipe_erased() -> Steps[None]:
    """Do nothing, in a transaction after which the engine wipes the content that earlier transactions erased."""
    yield from ()


def _read_candidates(scope: Scope, rules: _PruneRules) -> Plan[list[_Candidate]]:
    """Read the sessions that the rules apply to, most recently active first."""
    everything = rules.keep is not None or rules.max_bytes is not None
    cursor = (_END_OF_TIME, _END_OF_TIME) if everything or rules.before is None else (rules.before, -1)
    candidates: list[_Candidate] = []
    while True:
        page: list[_Candidate] = yield Operation(
            _read_candidate_page, scope, cursor, rules.max_bytes is not None, writes=False
        )
        candidates += page
        if len(page) < _CANDIDATE_PAGE_SIZE:
            return candidates
        cursor = (page[-1].listed_at, page[-1].key)


def _read_candidate_page(scope: Scope, cursor: tuple[int, int], measure: bool) -> Steps[list[_Candidate]]:
    candidates: list[_Candidate] = []
    for row in (
        yield from fetch_all(
            _SESSIONS_PRUNABLE, owner=scope.owner, at=cursor[0], key=cursor[1], limit=_CANDIDATE_PAGE_SIZE
        )
    ):
        item = _candidate_from_row(row, exempt=(yield from _is_exempt(scope, row)))
        candidates.append((yield from _measure(scope, item)) if measure else item)
    return candidates


def _is_exempt(scope: Scope, row: PrunableSessionRow) -> Steps[bool]:
    """Return whether a session is pinned or has a live turn."""
    return row.pinned_at is not None or (bool(row.open_turns) and (yield from leases.has_live_turn(scope, row.key)))


def _candidate_from_row(row: PrunableSessionRow, *, exempt: bool) -> _Candidate:
    return _Candidate(row.key, row.id, row.title, row.last_active_at, row.listed_at, row.touched_at, exempt)


def _measure(scope: Scope, item: _Candidate) -> Steps[_Candidate]:
    totals = yield from fetch_one(_MESSAGES_TOTAL_SIZE, session=item.key)
    blobs = yield from fetch_one(_BLOBS_TOTAL_SIZE, owner=scope.owner, session=item.key)
    assert totals is not None
    assert blobs is not None
    return item._replace(messages=totals.messages, bytes=totals.bytes + blobs.bytes, tool_steps=totals.tool_steps)


def _choose(candidates: Sequence[_Candidate], rules: _PruneRules) -> list[tuple[_Candidate, PruneReason]]:
    """Choose the sessions to remove, least recently touched first."""
    choices: dict[int, tuple[_Candidate, PruneReason]] = {}
    removable = sorted((item for item in candidates if not item.exempt), key=lambda item: item.touched_at, reverse=True)
    if rules.before is not None:
        choices |= {item.key: (item, "age") for item in removable if item.touched_at < rules.before}
    if rules.keep is not None:
        choices = {**{item.key: (item, "count") for item in removable[rules.keep :]}, **choices}
    if rules.max_bytes is not None:
        remaining = sum(item.bytes for item in candidates if item.key not in choices)
        for item in reversed(removable):
            if remaining <= rules.max_bytes:
                break
            if item.key not in choices and item.bytes:
                choices[item.key] = (item, "size")
                remaining -= item.bytes
    return sorted(choices.values(), key=lambda pair: (pair[0].active_at, pair[0].key))


def _remove_chosen(
    scope: Scope, choices: Sequence[tuple[_Candidate, PruneReason]], *, dry_run: bool, erase: bool
) -> Plan[list[PrunedSession]]:
    report: list[PrunedSession] = []
    size = _ERASE_BATCH if erase else _TRASH_BATCH
    for start in range(0, len(choices), size):
        batch = choices[start : start + size]
        report += yield Operation(
            _remove_batch,
            scope,
            batch,
            dry_run,
            erase,
            writes=not dry_run,
            removes_from_index=erase,
            deletion=Deletion.ROWS,
        )
    return report


def _remove_batch(
    scope: Scope, batch: Sequence[tuple[_Candidate, PruneReason]], dry_run: bool, erase: bool
) -> Steps[list[PrunedSession]]:
    report: list[PrunedSession] = []
    for item, reason in batch:
        family = yield from _with_delegates(scope, item)
        for index, current in enumerate(family):
            candidate = _Candidate(
                current.session, current.value.id, current.value.title, _last_activity(current), 0, 0, exempt=False
            )
            measured_candidate = yield from _measure(scope, candidate)
            report.append(_pruned_session(measured_candidate, "parent" if index else reason))
            if not dry_run:
                yield from _remove_session(scope, current, erase=erase)
    return report


def _pruned_session(item: _Candidate, reason: PruneReason) -> PrunedSession:
    return PrunedSession(
        id=item.id, title=item.title, active_at_ms=item.active_at, messages=item.messages, bytes=item.bytes,
        reason=reason, tool_steps=item.tool_steps,
    )  # fmt: skip


def _last_activity(current: sessions.StoredSession) -> int:
    return max(current.value.active_at_ms, current.value.last_message_at_ms or 0)


def _with_delegates(scope: Scope, item: _Candidate) -> Steps[list[sessions.StoredSession]]:
    """Read a chosen session again with its sub-agents' sessions; return nothing if it must stay now."""
    family: list[sessions.StoredSession] = []
    keys = [item.key]
    for key in keys:  # the list grows: sub-agents have sub-agents
        current = yield from sessions.find_by_key(key)
        if current is None:
            return []
        value = current.value
        if value.deleted_at_ms is not None or value.pinned_at_ms is not None:
            return []
        if current.open_turns and (yield from leases.has_live_turn(scope, key)):
            return []
        family.append(current)
        keys += [row.key for row in (yield from fetch_all(_SESSIONS_DELEGATED, session=key))]
    return family if max(_last_activity(family[0]), family[0].value.updated_at_ms) == item.touched_at else []


def _remove_session(scope: Scope, current: sessions.StoredSession, *, erase: bool) -> Steps[None]:
    if erase:
        yield from erase_stored(scope, current)
    else:
        yield from execute("session_trash", owner=scope.owner, id=current.value.id, now=scope.now)


def empty_trash(scope: Scope, *, older_than: DurationLike | None = None, dry_run: bool = False) -> Plan[PruneReport]:
    """Erase the trash, or what has been in it for `older_than`. Forks keep the past that they share."""
    until = scope.now if older_than is None else scope.now - times.parse_duration(older_than, "older_than")
    return _empty_trash(scope, until, dry_run=validation.check_flag("dry_run", dry_run))


def _empty_trash(scope: Scope, until: int, *, dry_run: bool) -> Plan[PruneReport]:
    report: list[PrunedSession] = []
    after = 0
    while True:
        page: tuple[list[PrunedSession], int | None] = yield Operation(
            _erase_trash_page,
            scope,
            until,
            after,
            dry_run,
            writes=not dry_run,
            removes_from_index=True,
            deletion=Deletion.ROWS,
        )
        report += page[0]
        if page[1] is None:
            break
        after = page[1]
    if report and not dry_run:
        yield Operation(_wipe_erased, deletion=Deletion.CONTENT)
    return PruneReport(dry_run=dry_run, erased=True, sessions=tuple(report))


def _erase_trash_page(
    scope: Scope, until: int, after: int, dry_run: bool
) -> Steps[tuple[list[PrunedSession], int | None]]:
    rows = yield from fetch_all(_SESSIONS_TRASHED, owner=scope.owner, until=until, after=after, limit=_ERASE_BATCH)
    report: list[PrunedSession] = []
    for row in rows:
        measured_candidate = yield from _measure(scope, _candidate_from_row(row, exempt=False))
        report.append(_pruned_session(measured_candidate, "trash"))
        if not dry_run:
            yield from erase_stored(scope, (yield from sessions.read_by_key(row.key)))
    return report, rows[-1].key if len(rows) == _ERASE_BATCH else None
