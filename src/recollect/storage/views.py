"""Views of a session: its model-visible messages, and the compactions and snapshots made from it.

A compaction is one row: the event, the span and the summary. It belongs to the branch on which it was made. Nothing is
deleted, moved or copied. The model-visible messages are read from the end backwards, only as far as needed, with the
summaries in place of the spans that they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from recollect.errors import (
    BranchNotFound,
    CompactionConflict,
    CompactionNotFound,
    InvalidValue,
    MessageNotFound,
    format_value,
)
from recollect.model import json, validation
from recollect.model.compaction import Compaction, outermost_compactions, summary_message
from recollect.model.message import DataPart, Message, MessageColumns, TextPart
from recollect.model.session import SNAPSHOT_KINDS, SessionInfo, Snapshot, SnapshotKind
from recollect.model.tokens import estimate_tokens
from recollect.storage import leases, messages, paths, sessions
from recollect.storage.operation import (
    Operation,
    Plan,
    Query,
    Scope,
    Steps,
    execute,
    fetch_all,
    fetch_one,
    fetch_tuples,
)
from recollect.storage.pages import PAGE_SIZE
from recollect.storage.paths import PathSpan


class CompactionRow(NamedTuple):
    """A compaction of a branch."""

    key: int
    branch: int
    from_position: int
    to_position: int
    round: int
    tokens_before: int
    tokens_after: int
    summary: str
    created_at: int
    undone_at: int | None


class SnapshotRow(NamedTuple):
    """A snapshot; the number of the branch is None if the branch was deleted."""

    key: int
    kind: SnapshotKind
    content: str
    branch_number: int | None
    position: int
    tokens: int
    created_at: int
    updated_at: int


class SnapshotKeyRow(NamedTuple):
    """The key of a snapshot."""

    key: int


COMPACTIONS_OF_BRANCH = Query("compactions_of_branch", CompactionRow)
SNAPSHOT_FIND = Query("snapshot_find", SnapshotKeyRow)
SNAPSHOT_INSERT = Query("snapshot_insert", SnapshotKeyRow)
SNAPSHOT_GET = Query("snapshot_get", SnapshotRow)
SNAPSHOTS_OF_SESSION = Query("snapshots_of_session", SnapshotRow)


class CompactionChange(NamedTuple):
    """A compaction that was made or undone, and the session after it."""

    compaction: Compaction
    session: SessionInfo


def compactions_of_branch(branch: int, number: int) -> Steps[list[Compaction]]:
    """Read the compactions of a branch, oldest first, including undone ones."""
    compactions = [
        _compaction_from_row(row, number) for row in (yield from fetch_all(COMPACTIONS_OF_BRANCH, branch=branch))
    ]
    return sorted(compactions, key=lambda item: item.round)


def _compaction_from_row(row: CompactionRow, number: int) -> Compaction:
    return Compaction(
        id=row.key,
        branch=number,
        from_position=row.from_position,
        to_position=row.to_position,
        round=row.round,
        tokens_before=row.tokens_before,
        tokens_after=row.tokens_after,
        summary=row.summary,
        created_at_ms=row.created_at,
        undone_at_ms=row.undone_at,
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
) -> Operation[CompactionChange]:
    """Store a compaction of a span of the path that was read: `before` and `after` are its sizes in tokens.

    `branch` and `rounds` are the end of the path and the compactions in force when it was read. Messages that were
    appended since come after the span. If the session moved to another branch since, the old branch is compacted.
    Raise CompactionConflict if the compactions changed since.
    """
    summary = _check_summary(summary)
    validation.check_integer("tokens", after)
    size = estimate_tokens((TextPart(text=summary),)) if after is None else after
    columns = {
        "from_position": span[0], "to_position": span[1], "tokens_before": before, "tokens_after": size,
        "summary": summary,
    }  # fmt: skip
    return Operation(_compact, scope, session, branch, rounds, columns)


def _check_summary(summary: Any) -> str:
    text = str.__str__(summary) if isinstance(summary, str) else ""
    if not text.strip():
        raise InvalidValue(f"summary must be a string that is not blank, got {format_value(summary)}.")
    sessions.check_storable("summary", text)
    return text


def _compact(
    scope: Scope, session: str, branch: int, rounds: Sequence[int], columns: dict[str, int | str]
) -> Steps[CompactionChange]:
    current = yield from sessions.find(scope, session)
    row = yield from fetch_one(paths.BRANCH_GET, branch=branch)
    if row is None or row.session != current.session:
        raise BranchNotFound(session=session, branch=branch)
    compactions = yield from compactions_of_branch(branch, row.number)
    if [item.round for item in compactions if item.undone_at_ms is None] != list(rounds):
        raise CompactionConflict(session=session)
    number = compactions[-1].round + 1 if compactions else 1
    yield from execute("compaction_insert", branch=branch, round=number, now=scope.now, **columns)
    compaction = (yield from compactions_of_branch(branch, row.number))[-1]
    return (yield from _compaction_change(scope, session, current.session, compaction))


def _compaction_change(scope: Scope, session: str, key: int, compaction: Compaction) -> Steps[CompactionChange]:
    yield from leases.raise_revision(scope, key)
    return CompactionChange(compaction, (yield from sessions.find(scope, session)).value)


def undo_compaction(scope: Scope, session: str, round: int | None) -> Operation[CompactionChange]:
    """Undo a compaction of the active path: the newest in force, or the one of a round. Undoing it twice is allowed."""
    validation.check_integer("round", round)
    return Operation(_undo_compaction, scope, session, round)


def _undo_compaction(scope: Scope, session: str, round: int | None) -> Steps[CompactionChange]:
    current = yield from sessions.find(scope, session)
    compactions = yield from compactions_of_branch(current.head, current.value.branch)
    candidates = [item for item in compactions if (item.undone_at_ms is None if round is None else item.round == round)]
    if not candidates:
        raise CompactionNotFound(session=session, round="the newest in force" if round is None else f"round {round}")
    compaction = candidates[-1]
    if compaction.undone_at_ms is not None:
        return CompactionChange(compaction, current.value)
    yield from execute("compaction_undo", branch=current.head, key=compaction.id, now=scope.now)
    undone = next(
        item
        for item in (yield from compactions_of_branch(current.head, current.value.branch))
        if item.id == compaction.id
    )
    return (yield from _compaction_change(scope, session, current.session, undone))


def list_compactions(scope: Scope, session: str) -> Operation[list[Compaction]]:
    """Read the compactions of the active path, oldest first, including undone ones."""
    return Operation(_list_compactions, scope, session, writes=False)


def _list_compactions(scope: Scope, session: str) -> Steps[list[Compaction]]:
    current = yield from sessions.find(scope, session)
    return (yield from compactions_of_branch(current.head, current.value.branch))


FIRST_PAGE_SIZE = 128  # messages per page if a budget limits them. A larger page reads more messages in vain
PARTNER_DISTANCE = 64  # positions. How far the call or result of a pinned tool message is looked for.

StopCondition = Callable[[Sequence[Message]], bool]
"""Return whether the messages that were read so far suffice."""


class MessageConsumer(Protocol):
    """A receiver of the active messages as columns, oldest first, instead of Message values."""

    def take(self, branch: int, messages: MessageColumns) -> None:
        """Take the next messages of a branch, given by its public number."""
        ...

    def end(self) -> None:
        """End the input."""
        ...


class ActiveView(NamedTuple):
    """The active messages and summaries of a path, oldest first, and the state of the path."""

    messages: list[Message]
    branch: int
    end: int
    covers: list[Compaction]
    rounds: list[int]


class CompactionInput(NamedTuple):
    """The input of a compaction: the active view, and the position that the caller named."""

    view: ActiveView
    before: int | None

    @property
    def messages(self) -> list[Message]:
        """The active messages and summaries."""
        return self.view.messages


class _ViewState(NamedTuple):
    """The start of a view: the spans that no compaction covers, newest first, and the messages always in it."""

    branch: int
    spans: list[PathSpan]
    open: list[PathSpan]
    end: int
    covers: list[Compaction]
    rounds: list[int]
    always: list[Message]


class MessageBatch(NamedTuple):
    """A batch of messages, oldest first, and the spans that were not read yet."""

    messages: list[Message]
    rest: list[PathSpan]


def read_active(
    scope: Scope,
    session: str,
    *,
    enough: StopCondition | None = None,
    consumer: MessageConsumer | None = None,
) -> Plan[ActiveView]:
    """Read the active messages of a session, page by page from the newest, until `enough` returns True.

    A consumer takes all messages, and the view has none, unless the path has compactions.
    """
    state: _ViewState = yield Operation(_read_state, scope, session, writes=False)
    if consumer is not None and not state.covers:
        yield from _feed_columns(scope, state, consumer)
        return ActiveView([], state.branch, state.end, state.covers, state.rounds)
    size = PAGE_SIZE if enough is None else FIRST_PAGE_SIZE
    read: list[Message] = []
    pages: list[list[Message]] = []
    remaining = state.open
    while remaining:
        batch: MessageBatch = yield Operation(read_batch, scope, remaining, size, writes=False)
        remaining = batch.rest
        pages.append(batch.messages)
        if enough is None:  # joined once at the end: a long session has many pages
            continue
        read = batch.messages + read
        if enough(merge_by_position(state.always, read)):
            if remaining and not _has_user_message(read):
                # The newest turn exceeds the budget: only the user message that opened it is still needed.
                read = (yield Operation(_read_last_user_message, scope, remaining, writes=False)) + read
            break
    if enough is None:
        read = [message for page in reversed(pages) for message in page]
    result = merge_by_position(state.always, read)
    return ActiveView(result, state.branch, state.end, state.covers, state.rounds)


def _feed_columns(scope: Scope, state: _ViewState, consumer: MessageConsumer) -> Plan[None]:
    """Pass all messages of a path without compactions to a consumer, in order."""
    for span in reversed(state.open):
        after: int | None = span.low
        while after is not None:
            page: MessageColumns = yield Operation(_read_columns, scope, span, after, writes=False)
            consumer.take(span.number, page)
            after = page.positions[-1] if len(page.positions) == messages.LARGE_PAGE_SIZE else None
    consumer.end()


def _read_columns(scope: Scope, span: PathSpan, after: int) -> Steps[MessageColumns]:
    rows = yield from fetch_tuples(
        messages.MESSAGES_TUPLES, branch=span.branch, low=after, high=span.high, limit=messages.LARGE_PAGE_SIZE
    )
    page = messages.columns_from_rows(rows)
    for index in [index for index, (_, _, _, _, _, rare) in enumerate(rows) if rare is not None]:
        message = yield from messages.read_at(scope, span.branch, span.number, page.positions[index])  # state or blobs
        assert message is not None
        page.parts[index], page.natives[index], page.states[index] = message.parts, message.native, message.state
    return page


def read_pinned(scope: Scope, spans: Sequence[PathSpan], low: int, high: int) -> Steps[list[Message]]:
    """Return the pinned and system messages after `low` and up to `high`, and the partners of tool messages."""
    result: list[Message] = []
    for span in spans:
        span_low, span_high = max(span.low, low), min(span.high, high)
        if span_low < span_high:
            pins = yield from messages.read_span(scope, messages.MESSAGES_PINNED, span, span_low, span_high)
            result += yield from _add_partners(scope, spans, pins)
    return result


def _has_user_message(batch: Sequence[Message]) -> bool:
    return any(message.role == "user" for message in batch)


def merge_by_position(always: Sequence[Message], read: list[Message]) -> list[Message]:
    """Merge both lists by position; a summary comes before a message with the same position."""
    if not always:
        return read
    positions = {message.position for message in read}
    missing = {m.position: m for m in always if type(m) is Message and m.position not in positions}
    summaries_read = [message for message in always if type(message) is not Message]
    if not missing and not summaries_read:
        return read
    return sorted((*summaries_read, *missing.values(), *read), key=lambda message: message.position)


def _read_state(scope: Scope, session: str) -> Steps[_ViewState]:
    current = yield from sessions.find(scope, session)
    spans = yield from paths.read_path(current.head)
    end = max(span.high for span in spans)
    number = spans[0].number
    active = [item for item in (yield from compactions_of_branch(current.head, number)) if item.undone_at_ms is None]
    covers = outermost_compactions(active)
    always = yield from read_pinned(scope, spans, 0, end)
    always += summaries(spans, covers)
    return _ViewState(
        current.head, spans, uncovered_spans(spans, covers, end), end, covers, [item.round for item in active], always
    )


def summaries(spans: Sequence[PathSpan], covers: Sequence[Compaction]) -> list[Message]:
    """Return the summaries of compactions on a path."""
    return [summary_message(cover, _branch_number_at(spans, cover.from_position)) for cover in covers]


def _branch_number_at(spans: Sequence[PathSpan], position: int) -> int:
    return next((span.number for span in spans if span.low < position <= span.high), spans[0].number)


def uncovered_spans(spans: Sequence[PathSpan], covers: Sequence[Compaction], end: int) -> list[PathSpan]:
    """Return the spans of a path without the compacted ranges, newest first."""
    result: list[PathSpan] = []
    for span in spans:
        high = min(span.high, end)
        for cover in sorted(covers, key=lambda item: item.to_position, reverse=True):
            if cover.to_position <= span.low or cover.from_position > high:
                continue
            if cover.to_position < high:
                result.append(PathSpan(span.branch, span.number, cover.to_position, high))
            high = cover.from_position - 1
        if span.low < high:
            result.append(PathSpan(span.branch, span.number, span.low, high))
    return result


def _add_partners(scope: Scope, spans: Sequence[PathSpan], pins: list[Message]) -> Steps[list[Message]]:
    """Add the calls and results that belong to pinned tool messages: a provider requires both."""
    result = list(pins)
    for message in pins:
        if message.pinned and (message.tool_calls or message.tool_results):
            result += yield from _read_partners(scope, spans, message)
    return result


def _read_partners(scope: Scope, spans: Sequence[PathSpan], message: Message) -> Steps[list[Message]]:
    neighbors: list[Message] = []
    for span in spans:
        low = max(span.low, message.position - PARTNER_DISTANCE)
        high = min(span.high, message.position + PARTNER_DISTANCE)
        if low < high:
            neighbors = (yield from messages.read_span(scope, messages.MESSAGES_FORWARD, span, low, high)) + neighbors
    ids = {part.call_id for part in (*message.tool_calls, *message.tool_results)}
    for other in neighbors:
        if ids & {part.call_id for part in other.tool_calls}:
            ids |= {part.call_id for part in other.tool_calls}
    return [other for other in neighbors if ids & {part.call_id for part in (*other.tool_calls, *other.tool_results)}]


def read_batch(scope: Scope, spans: Sequence[PathSpan], limit: int) -> Steps[MessageBatch]:
    """Return the last messages of spans, and the spans that remain."""
    batch: list[Message] = []
    for index, span in enumerate(spans):
        remaining = limit - len(batch)
        part = yield from messages.read_span(scope, messages.MESSAGES_BACKWARD, span, span.low, span.high, remaining)
        batch = part[::-1] + batch
        if len(part) == remaining:
            cut_span = PathSpan(span.branch, span.number, span.low, part[-1].position - 1)
            older = list(spans[index + 1 :])
            return MessageBatch(batch, [cut_span, *older] if cut_span.low < cut_span.high else older)
    return MessageBatch(batch, [])


def _read_last_user_message(scope: Scope, spans: Sequence[PathSpan]) -> Steps[list[Message]]:
    """Return the last user message, as a list, or an empty list."""
    for span in spans:
        result = yield from messages.read_span(scope, messages.MESSAGES_LAST_USER, span, span.low, span.high)
        if result:
            return result
    return []


def prepare_compaction(scope: Scope, session: str, before: paths.MessageId | None) -> Plan[CompactionInput]:
    """Read the active view, and resolve the message that is to be the first after the compaction."""
    position: int | None = None
    if before is not None:
        position = yield Operation(_find_position, scope, session, before, writes=False)
    view = yield from read_active(scope, session)
    return CompactionInput(view, position)


def _find_position(scope: Scope, session: str, name: paths.MessageId) -> Steps[int]:
    current = yield from sessions.find(scope, session)
    number, position = paths.parse_message_id(name)
    for span in (yield from paths.read_path(current.head)):
        if span.low < position <= span.high and number in (None, span.number):
            return position
    raise MessageNotFound(session=session, message=paths.display_message_id(name))


def count_tokens(scope: Scope, session: str) -> Operation[int]:
    """Add up the tokens of the active messages, from the stored counts."""
    return Operation(_count_tokens, scope, session, writes=False)


def _count_tokens(scope: Scope, session: str) -> Steps[int]:
    state = yield from _read_state(scope, session)
    if not state.covers:
        return (yield from sessions.find(scope, session)).value.token_count
    total = 0
    for message in merge_by_position(state.always, []):
        is_counted = any(span.low < message.position <= span.high for span in state.open)
        total += 0 if is_counted else message.tokens
    for span in state.open:
        row = yield from fetch_one(messages.MESSAGES_COUNT, branch=span.branch, low=span.low, high=span.high)
        assert row is not None
        total += row.tokens
    return total


def store_snapshot(
    scope: Scope, session: str, kind: str, content: Any, *, at: paths.MessageId | None, tokens: int | None
) -> Operation[Snapshot]:
    """Store a snapshot of a session up to a message; replace one of the same kind and message."""
    _check_kind(kind)
    plain = json.to_json_data(content, "content")
    validation.check_integer("tokens", tokens)
    size = estimate_tokens((DataPart(data=plain),)) if tokens is None else tokens
    return Operation(_store_snapshot, scope, session, kind, json.encode(plain), at, size)


def _check_kind(kind: str) -> None:
    validation.check_choice("kind", kind, SNAPSHOT_KINDS)


def _store_snapshot(
    scope: Scope, session: str, kind: str, text: str, at: paths.MessageId | None, tokens: int
) -> Steps[Snapshot]:
    current = yield from sessions.find(scope, session)
    branch, position = current.head, 0
    if at is None:
        end_span = next((span for span in (yield from paths.read_path(current.head)) if span.low < span.high), None)
    else:
        end_span = yield from paths.find_span(session, current.head, current.session, at)
    if end_span is not None:
        branch, position = end_span.branch, end_span.high
    key = {"session": current.session, "kind": kind, "branch": branch, "position": position}
    existing = yield from fetch_one(SNAPSHOT_FIND, **key)
    if existing is None:
        existing = yield from fetch_one(SNAPSHOT_INSERT, **key, content=text, tokens=tokens, now=scope.now)
    else:
        yield from execute(
            "snapshot_write", session=current.session, key=existing.key, content=text, tokens=tokens, now=scope.now
        )
    assert existing is not None
    yield from leases.raise_revision(scope, current.session)
    snapshot_row = yield from fetch_one(SNAPSHOT_GET, session=current.session, key=existing.key)
    assert snapshot_row is not None
    return _snapshot_from_row(snapshot_row)


def _snapshot_from_row(row: SnapshotRow) -> Snapshot:
    return Snapshot(
        id=row.key,
        kind=row.kind,
        content=json.decode(row.content),
        message=f"{row.branch_number}.{row.position}" if row.position and row.branch_number is not None else None,
        tokens=row.tokens,
        created_at_ms=row.created_at,
        updated_at_ms=row.updated_at,
    )


def list_snapshots(scope: Scope, session: str, kind: str | None) -> Operation[list[Snapshot]]:
    """Read the snapshots of a session, of one kind or of all, the oldest first."""
    if kind is not None:
        _check_kind(kind)
    return Operation(_list_snapshots, scope, session, kind, writes=False)


def _list_snapshots(scope: Scope, session: str, kind: str | None) -> Steps[list[Snapshot]]:
    current = yield from sessions.find(scope, session)
    snapshots = [
        _snapshot_from_row(row)
        for row in (yield from fetch_all(SNAPSHOTS_OF_SESSION, session=current.session, kind=kind))
    ]
    return sorted(snapshots, key=lambda item: item.id)
