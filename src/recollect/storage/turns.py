"""Turns and streams: one run from a user message to the end of the answer, and an answer as it arrives.

A turn is opened with the user message, which is durable at once, takes steps, and ends; or it is saved whole, in one
transaction. Each write renews the lease of an open turn. A stream that is found open later was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from recollect.errors import (
    InvalidValue,
    MessageNotFound,
    SessionNotFound,
    TurnClosed,
    TurnExists,
    TurnNotFound,
    format_value,
)
from recollect.model import json, validation
from recollect.model.message import Draft, Message
from recollect.model.session import SessionCounts
from recollect.model.turn import TurnInfo
from recollect.storage import appends, leases, messages, paths, sessions, tools
from recollect.storage.fast_paths import AdvancedRow, SaveTurnRequest
from recollect.storage.operation import Operation, Query, Row, Scope, Steps, execute, execute_many, fetch_all, fetch_one

if TYPE_CHECKING:
    from recollect.storage.message_keys import KeyedBatch


class TurnPositionRow(NamedTuple):
    """The position of a turn."""

    position: int


_TURN_AFTER = Query("turn_after", TurnPositionRow)
_TURN_END = Query("turn_end", leases.TurnRow)


class HeldTurn(NamedTuple):
    """The reference that a holder has to its open turn: the keys, and the public branch number."""

    session: int
    branch: int
    position: int
    number: int


class TurnWrite(NamedTuple):
    """The result of a write to a turn, and the counts of the session after it."""

    held: HeldTurn
    appended: appends.Appended
    counts: SessionCounts
    resumed: bool = False
    """Whether an interrupted turn was reopened."""


class TurnUsage(NamedTuple):
    """The model, tokens, latency and error of a run, as far as known."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None
    error: Any = None


def begin_turn(
    scope: Scope,
    session: str,
    drafts: Sequence[Draft],
    *,
    lease: int,
    take_over: bool,
    expected: int | None = None,
    key: str | None = None,
) -> Operation[TurnWrite]:
    """Open a turn with the user message. A branch has one open turn at a time; a key opens only one turn."""
    if not drafts:
        raise InvalidValue("A turn needs at least one message to begin with, got none.")
    appends.check_key(key)
    validation.check_integer("expected", expected)
    records = [messages.encode_draft(draft, scope.now) for draft in drafts]
    return Operation(_begin_turn, scope, session, records, lease, take_over, expected, key, session=session)


def _begin_turn(
    scope: Scope,
    session: str,
    records: list[messages.EncodedDraft],
    lease: int,
    take_over: bool,
    expected: int | None,
    key: str | None,
) -> Steps[TurnWrite]:
    if key is not None:
        earlier = yield from appends.find_earlier_append(scope, session, key, records)
        if earlier is not None:
            raise TurnExists(session=session, key=key, turn=f"{earlier.number}.{earlier.position}")
    batch = yield from _split_batch(scope, session, None, records)
    new = records if batch is None else batch.new
    if batch is not None and not new:
        from recollect.storage import message_keys  # noqa: PLC0415  only for messages with keys

        raise message_keys.stored_turn_error(session, batch)
    result = yield from appends.append_to_head(scope, session, new, opens_turn=True, expected=expected)
    if result.open_turns:
        yield from leases.free_branch(scope, session, result.session, result.key, take_over=take_over)
    yield from _insert_turn(scope, result, status="open", until=scope.now + lease, usage=TurnUsage())
    yield from leases.claim_branch(result.session, result.key, result.first)
    if key is not None:
        yield from appends.store_key(scope, result, key, records, len(new))
    return _turn_write(HeldTurn(result.session, result.key, result.first, result.branch), result, len(new), batch)


def _split_batch(
    scope: Scope, session: str, open_turn: HeldTurn | None, records: Sequence[messages.EncodedDraft]
) -> Steps[KeyedBatch | None]:
    """Separate the messages that are stored under their keys, on the path of a turn or of the head, from new ones.

    Return None if no message has a key.
    """
    if not any(item.draft.key is not None for item in records):
        return None
    from recollect.storage import message_keys  # noqa: PLC0415  only for messages with keys

    if open_turn is None:
        branch = (yield from sessions.find(scope, session)).head  # locks the session
    else:
        yield from sessions.find_by_key(open_turn.session)
        branch = open_turn.branch
    return (yield from message_keys.split_batch(session, branch, records))


def _find_earlier_write(
    scope: Scope, session: str, key: str, records: list[messages.EncodedDraft]
) -> Steps[TurnWrite | None]:
    """Return the result of an earlier write with this key, or None."""
    earlier = yield from appends.find_earlier_append(scope, session, key, records)
    if earlier is None:
        return None
    turn = HeldTurn(earlier.session, earlier.branch, earlier.position, earlier.number)
    return TurnWrite(turn, earlier.appended, earlier.counts)


def resume_turn(scope: Scope, session: str, turn: paths.MessageId, *, lease: int) -> Operation[TurnWrite]:
    """Continue an open turn by its id, or reopen an interrupted one.

    Only the last turn of the active branch is reopened, and not one that another process took over: any other
    interrupted turn raises TurnClosed.
    """
    return Operation(_resume_turn, scope, session, turn, lease)


def _resume_turn(scope: Scope, session: str, turn: paths.MessageId, lease: int) -> Steps[TurnWrite]:
    current = yield from sessions.find(scope, session)
    try:
        span = yield from paths.find_span(session, current.head, current.session, turn)
    except MessageNotFound as error:
        raise TurnNotFound(session=session, turn=paths.display_message_id(turn)) from error
    open_turn = HeldTurn(current.session, span.branch, span.high, span.number)
    row = yield from fetch_one(leases.TURN_GET, branch=span.branch, position=span.high)
    if row is None:
        raise TurnNotFound(session=session, turn=paths.display_message_id(turn))
    counts, is_reopened = sessions.counts_of(current.value), row.status == "interrupted"
    if is_reopened:  # a turn with another status refuses the next step, unless that step is a repeated one
        if span.branch != current.head:
            raise TurnClosed(session=session, turn=f"{open_turn.number}.{open_turn.position}", status=row.status)
        yield from renew_lease(scope, session, open_turn, lease, TurnUsage())
        counts = (yield from touch_session(scope, session, open_turn)).counts
    appended = appends.Appended(span.number, span.high, 0, counts.revision, repeated=True)
    return TurnWrite(open_turn, appended, counts, is_reopened)


def _insert_turn(
    scope: Scope, result: appends.WrittenMessages, *, status: str, until: int | None, usage: TurnUsage
) -> Steps[None]:
    row = (
        result.key, result.first, *_turn_columns(scope, status, usage), None if until is None else scope.holder, until,
    )  # fmt: skip
    yield "turn_insert", [row], True


def _turn_columns(scope: Scope, status: str, usage: TurnUsage) -> Row:
    """Return the columns of a turn, without its position and holder."""
    return (
        status, scope.now, None if status == "open" else scope.now, usage.latency_ms, usage.input_tokens,
        usage.output_tokens, usage.model, usage.error,
    )  # fmt: skip


def _turn_write(
    open_turn: HeldTurn, result: appends.WrittenMessages, count: int, batch: KeyedBatch | None = None
) -> TurnWrite:
    if batch is None:
        appended = appends.Appended(result.branch, result.first, count, result.counts.revision)
    else:
        appended = appends.appended_batch(batch, result)
    return TurnWrite(open_turn, appended, result.counts)


def _encode_usage(usage: TurnUsage) -> TurnUsage:
    if usage.model is not None:
        validation.check_text("model", usage.model)
    validation.check_integer("input_tokens", usage.input_tokens)
    validation.check_integer("output_tokens", usage.output_tokens)
    latency = validation.check_milliseconds("latency_ms", usage.latency_ms)
    if latency is not usage.latency_ms:
        usage = usage._replace(latency_ms=latency)
    return usage if usage.error is None else usage._replace(error=json.encode(json.to_json_data(usage.error, "error")))


def add_messages(
    scope: Scope, session: str, open_turn: HeldTurn, drafts: Sequence[Draft], *, lease: int, key: str | None = None
) -> Operation[TurnWrite]:
    """Append messages to an open turn; they are durable when this returns."""
    if not drafts:
        raise InvalidValue("add() needs a message or a non-empty list of messages, got none.")
    appends.check_key(key)
    return Operation(
        _add_messages,
        scope,
        session,
        open_turn,
        [messages.encode_draft(draft, scope.now) for draft in drafts],
        lease,
        key,
        session=session,
    )


def _add_messages(
    scope: Scope, session: str, open_turn: HeldTurn, records: list[messages.EncodedDraft], lease: int, key: str | None
) -> Steps[TurnWrite]:
    if key is not None and (earlier := (yield from _find_earlier_write(scope, session, key, records))) is not None:
        return earlier._replace(held=open_turn)
    batch = yield from _split_batch(scope, session, open_turn, records)
    new = records if batch is None else batch.new
    yield from renew_lease(scope, session, open_turn, lease, reported_usage(new))
    result = yield from appends.append_to_branch(
        scope, session, open_turn.session, open_turn.branch, open_turn.position, new
    )
    if key is not None:
        yield from appends.store_key(scope, result, key, records, len(new))
    return _turn_write(open_turn, result, len(new), batch)


def reported_usage(records: Sequence[messages.EncodedDraft]) -> TurnUsage:
    """Add up the usage that providers reported in these messages."""
    model: str | None = None
    input_tokens: list[int] = []
    output_tokens: list[int] = []
    for item in records:
        draft = item.draft
        model = draft.model or model
        if draft.input_tokens is not None:
            input_tokens.append(draft.input_tokens)
        if draft.output_tokens is not None:
            output_tokens.append(draft.output_tokens)
    return TurnUsage(model, sum(input_tokens) if input_tokens else None, sum(output_tokens) if output_tokens else None)


def extend_lease(scope: Scope, session: str, open_turn: HeldTurn, *, lease: int) -> Operation[SessionCounts]:
    """Renew the lease of an open turn without new messages; the session's revision rises."""
    return Operation(_extend_lease, scope, session, open_turn, lease, session=session)


def _extend_lease(scope: Scope, session: str, open_turn: HeldTurn, lease: int) -> Steps[SessionCounts]:
    yield from renew_lease(scope, session, open_turn, lease, TurnUsage())
    return (yield from touch_session(scope, session, open_turn)).counts


def renew_lease(scope: Scope, session: str, open_turn: HeldTurn, lease: int, usage: TurnUsage) -> Steps[None]:
    """Renew the lease of a turn.

    A turn that was marked as interrupted while its holder was suspended continues, with its tool calls, unless it was
    taken over or a later turn was opened on the branch: then it stays ended and TurnClosed is raised.
    """
    state = yield from _check_held(session, open_turn)
    if state is None:
        raise (yield from sessions.missing_key_error(session, open_turn.session))
    yield from execute(
        "turn_renew", branch=open_turn.branch, position=open_turn.position, holder=scope.holder,
        lease_until=scope.now + lease, model=usage.model, input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )  # fmt: skip
    if state == "released":
        yield from execute("tool_calls_resume", branch=open_turn.branch, position=open_turn.position)
        yield from leases.claim_branch(open_turn.session, open_turn.branch, open_turn.position)


def _check_held(session: str, open_turn: HeldTurn) -> Steps[Literal["held", "released"] | None]:
    """Return whether a turn still holds its branch; None if it was erased. Raise TurnClosed if it ended or lost it."""
    turn = yield from fetch_one(leases.TURN_GET, branch=open_turn.branch, position=open_turn.position)
    branch = yield from fetch_one(paths.BRANCH_GET, branch=open_turn.branch)
    if turn is None or branch is None:
        return None
    is_closed = turn.status not in ("open", "interrupted") or branch.open_turn not in (None, open_turn.position)
    if turn.status == "interrupted" and not is_closed:
        later_turn = yield from fetch_one(_TURN_AFTER, branch=open_turn.branch, position=open_turn.position)
        is_closed = later_turn is not None or _was_taken_over(turn.error)
    if is_closed:
        raise TurnClosed(session=session, turn=f"{open_turn.number}.{open_turn.position}", status=turn.status)
    return "released" if branch.open_turn is None else "held"


def _was_taken_over(error: str | None) -> bool:
    details = None if error is None else json.decode(error)
    return isinstance(details, dict) and details.get("name") == leases.TAKEOVER_ERROR


def end_turn(
    scope: Scope,
    session: str,
    open_turn: HeldTurn,
    status: str,
    usage: TurnUsage = TurnUsage(),  # noqa: B008
) -> Operation[tuple[TurnInfo, SessionCounts]]:
    """End a turn: completed, failed, cancelled or interrupted."""
    if status != "interrupted":
        _check_final_status(status)
    return Operation(_end_turn, scope, session, open_turn, status, _encode_usage(usage), session=session)


def _check_final_status(status: str) -> None:
    validation.check_choice("status", status, ("completed", "failed", "cancelled"))


def _end_turn(
    scope: Scope, session: str, open_turn: HeldTurn, status: str, usage: TurnUsage
) -> Steps[tuple[TurnInfo, SessionCounts]]:
    state = yield from _check_held(session, open_turn)
    if state is None:
        raise TurnNotFound(session=session, turn=f"{open_turn.number}.{open_turn.position}")
    if state == "released":
        yield from execute("tool_calls_resume", branch=open_turn.branch, position=open_turn.position)
    yield from leases.mark_unfinished(scope, open_turn.branch, open_turn.position, status)
    turn_row = yield from fetch_one(
        _TURN_END,
        branch=open_turn.branch,
        position=open_turn.position,
        status=status,
        now=scope.now,
        **usage._asdict(),
    )
    assert turn_row is not None
    row = yield from touch_session(scope, session, open_turn)
    yield from leases.release_branch(row.session, open_turn.branch, open_turn.position)
    return turn_from_row(turn_row, open_turn.number), row.counts


def touch_session(scope: Scope, session: str, open_turn: HeldTurn) -> Steps[sessions.TouchedRow]:
    """Raise a session's revision for a change without new messages."""
    no_messages = {"now": scope.now, "messages": 0, "tokens": 0, "input_tokens": 0, "output_tokens": 0}
    return (yield from sessions.touch(session, open_turn.session, open_turn.branch, no_messages))


def save_turn(
    scope: Scope,
    session: str,
    question: Sequence[Draft],
    answer: Sequence[Draft],
    *,
    status: str = "completed",
    usage: TurnUsage = TurnUsage(),  # noqa: B008
    key: str | None = None,
    expected: int | None = None,
) -> Operation[TurnWrite]:
    """Store a complete turn in one transaction."""
    _check_final_status(status)
    if not question:
        raise InvalidValue("A turn needs at least one message to begin with, got none.")
    appends.check_key(key)
    validation.check_integer("expected", expected)
    records = [messages.encode_draft(draft, scope.now) for draft in (*question, *answer)]
    usage = _encode_usage(usage)
    request = None if key is not None else _save_request(scope, session, records, expected, status, usage)
    return Operation(
        _save_turn, scope, session, records, status, usage, key, expected,
        session=session, fast=request, finish=_finish_save,
    )  # fmt: skip


def _save_request(
    scope: Scope,
    session: str,
    records: Sequence[messages.EncodedDraft],
    expected: int | None,
    status: str,
    usage: TurnUsage,
) -> SaveTurnRequest | None:
    """Return the request for the fast path of a complete turn; None if it writes more than rows."""
    append = appends.make_request(scope, session, records, expected)
    # Calls without a result are cancelled, unless the turn is completed.
    if append is None or (status != "completed" and append.calls):
        return None
    usage = _merge_usage(usage, reported_usage(records))
    return SaveTurnRequest(
        append.owner, append.id, append.now, append.messages, append.tokens, append.input_tokens,
        append.output_tokens, append.expected, append.rows, append.calls, _turn_columns(scope, status, usage),
    )  # fmt: skip


def _finish_save(request: SaveTurnRequest, row: AdvancedRow) -> TurnWrite:
    first = row.last + 1
    turn = HeldTurn(row.session, row.head, first, row.branch)
    return TurnWrite(turn, appends.Appended(row.branch, first, request.messages, row.revision), row.counts)


def _save_turn(
    scope: Scope,
    session: str,
    records: list[messages.EncodedDraft],
    status: str,
    usage: TurnUsage,
    key: str | None,
    expected: int | None,
) -> Steps[TurnWrite]:
    if key is not None and (earlier := (yield from _find_earlier_write(scope, session, key, records))) is not None:
        return earlier
    batch = yield from _split_batch(scope, session, None, records)
    new = records if batch is None else batch.new
    if new:
        result = yield from appends.append_to_head(scope, session, new, opens_turn=True, expected=expected)
        if result.open_turns:
            yield from leases.free_branch(scope, session, result.session, result.key, take_over=False)
        usage = _merge_usage(usage, reported_usage(new))
        yield from _insert_turn(scope, result, status=status, until=None, usage=usage)
    else:  # a repeated turn
        result = yield from appends.empty_append((yield from sessions.find(scope, session)))
    if status != "completed" and any(item.calls for item in new):
        yield from leases.mark_unfinished(scope, result.key, result.first, status)
    if key is not None:
        yield from appends.store_key(scope, result, key, records, len(new))
    return _turn_write(HeldTurn(result.session, result.key, result.first, result.branch), result, len(new), batch)


def _merge_usage(usage: TurnUsage, provider_usage: TurnUsage) -> TurnUsage:
    """Return the usage that the caller states, completed by what the provider reported."""
    return TurnUsage(
        usage.model or provider_usage.model,
        provider_usage.input_tokens if usage.input_tokens is None else usage.input_tokens,
        provider_usage.output_tokens if usage.output_tokens is None else usage.output_tokens,
        usage.latency_ms,
        usage.error,
    )


def list_turns(scope: Scope, session: str, after: int = 0, until: int | None = None) -> Operation[list[TurnInfo]]:
    """Read the turns of the active path, oldest first: all, or those that begin after a position, up to another."""
    validation.check_integer("after", after)
    validation.check_integer("until", until)
    return Operation(
        _list_turns, scope, session, after or 0, paths.LAST_POSITION if until is None else until, writes=False
    )


def _list_turns(scope: Scope, session: str, after: int, until: int) -> Steps[list[TurnInfo]]:
    current = yield from sessions.find(scope, session)
    result: list[TurnInfo] = []
    for span in reversed((yield from paths.read_path(current.head))):
        low, high = max(span.low, after), min(span.high, until)
        if low < high:
            for row in (yield from fetch_all(leases.TURNS_OF_SPAN, branch=span.branch, low=low, high=high)):
                result.append(turn_from_row(row, span.number))  # noqa: PERF401  a generator cannot yield in a comprehension
    return result


def turn_from_row(row: leases.TurnRow, number: int) -> TurnInfo:
    """Return the turn of a row; `number` is the public number of its branch."""
    return TurnInfo(
        branch=number,
        position=row.position,
        status=row.status,
        started_at_ms=row.started_at,
        ended_at_ms=row.ended_at,
        latency_ms=row.latency_ms,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        model=row.model,
        error=None if row.error is None else json.decode(row.error),
        holder=row.holder,
        lease_until_at_ms=row.lease_until,
    )


class OpenStream(NamedTuple):
    """A streaming message: its turn and its position."""

    held: HeldTurn
    position: int

    @property
    def id(self) -> str:
        """The id of the message."""
        return f"{self.held.number}.{self.position}"


def begin_stream(
    scope: Scope, session: str, open_turn: HeldTurn, draft: Draft, *, lease: int
) -> Operation[tuple[OpenStream, SessionCounts]]:
    """Append a message with the state `streaming`, whose text arrives later."""
    item = messages.encode_draft(msgspec.structs.replace(draft, state="streaming", tokens=0), scope.now)
    return Operation(_begin_stream, scope, session, open_turn, item, lease, session=session)


def _begin_stream(
    scope: Scope, session: str, open_turn: HeldTurn, item: messages.EncodedDraft, lease: int
) -> Steps[tuple[OpenStream, SessionCounts]]:
    yield from renew_lease(scope, session, open_turn, lease, TurnUsage())
    result = yield from appends.append_to_branch(
        scope, session, open_turn.session, open_turn.branch, open_turn.position, [item]
    )
    return OpenStream(open_turn, result.first), result.counts


STREAM_CLOSED = "This stream is closed. Open another one with turn.stream()."


def write_stream(
    scope: Scope, session: str, stream: OpenStream, draft: Draft, *, lease: int
) -> Operation[SessionCounts]:
    """Store the text that has arrived so far."""
    item = messages.encode_draft(msgspec.structs.replace(draft, state="streaming", tokens=0), scope.now)
    return Operation(_write_stream, scope, session, stream, item, lease, session=session)


def _write_stream(
    scope: Scope, session: str, stream: OpenStream, item: messages.EncodedDraft, lease: int
) -> Steps[SessionCounts]:
    yield from renew_lease(scope, session, stream.held, lease, TurnUsage())
    message = yield from _read_streaming(scope, session, stream)
    # A write may run after close_stream(), if it was in progress when its task was cancelled. Tokens are counted when
    # the stream is closed; without them, "interrupted" means that another process interrupted the turn.
    if message.state != "streaming" and (message.state != "interrupted" or message.tokens):
        raise InvalidValue(STREAM_CLOSED)
    yield from _unindex_interrupted(scope, stream, message)
    yield from _update_message(stream, _keep_metadata(scope, item, message), None)
    return (yield from touch_session(scope, session, stream.held)).counts


def _read_streaming(scope: Scope, session: str, stream: OpenStream) -> Steps[Message]:
    message = yield from messages.read_at(scope, stream.held.branch, stream.held.number, stream.position, lock=True)
    if message is None:
        raise MessageNotFound(session=session, message=stream.id)
    return message


def _unindex_interrupted(scope: Scope, stream: OpenStream, message: Message) -> Steps[None]:
    """Remove a message from the search index before it continues: it was interrupted, and so may be indexed."""
    if message.state == "interrupted":
        from recollect.storage import search  # noqa: PLC0415  only after an interruption

        yield from search.invalidate_message(scope, stream.held.branch, stream.position)


def _keep_metadata(scope: Scope, item: messages.EncodedDraft, message: Message) -> messages.EncodedDraft:
    """Return the draft with the pin and the other marks that were set while the message was streaming."""
    if not message.metadata:
        return item
    metadata = {**message.metadata, **(item.draft.metadata or {})}
    return messages.encode_draft(msgspec.structs.replace(item.draft, metadata=metadata), scope.now)


def _claim_key(session: str, tree: int, stream: OpenStream, key: str) -> Steps[None]:
    """Set the key that the final message of a stream has."""
    from recollect.storage import message_keys  # noqa: PLC0415  only for a message with a key

    yield from message_keys.claim_key(session, tree, stream.held.branch, stream.position, key)


def _update_message(stream: OpenStream, item: messages.EncodedDraft, completed_at: int | None) -> Steps[None]:
    columns = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
    columns["completed_at"] = completed_at
    yield from execute("message_write", branch=stream.held.branch, position=stream.position, **columns)


def close_stream(
    scope: Scope, session: str, stream: OpenStream, draft: Draft, *, lease: int
) -> Operation[SessionCounts]:
    """Store the final message: completed, interrupted or with its error."""
    if draft.role != "assistant":  # the stored role does not change
        raise InvalidValue(
            f"A stream must be closed with an assistant message, got role {format_value(draft.role)}. "
            f"Store other messages with turn.add()."
        )
    return Operation(_close_stream, scope, session, stream, messages.encode_draft(draft, scope.now), lease)


def _close_stream(
    scope: Scope, session: str, stream: OpenStream, item: messages.EncodedDraft, lease: int
) -> Steps[SessionCounts]:
    open_turn, usage = stream.held, reported_usage([item])
    # Locks the session before its message, in the same order as every other operation.
    current = yield from sessions.find_by_key(open_turn.session)
    if current is None:
        raise SessionNotFound(session=session)
    yield from renew_lease(scope, session, open_turn, lease, usage)
    message = yield from _read_streaming(scope, session, stream)
    yield from _unindex_interrupted(scope, stream, message)
    if message.edited_at_ms is not None:  # replaced after an interruption: the turn must not restore the former content
        raise InvalidValue(STREAM_CLOSED)
    if item.draft.key is not None:
        yield from _claim_key(session, current.tree, stream, item.draft.key)
    item = _keep_metadata(scope, item, message)
    yield from _update_message(stream, item, scope.now)
    for name, payload in item.payloads.items():
        yield from appends.store_blob(scope, name, payload)
    if item.calls or item.results:
        yield from tools.write_calls(open_turn.branch, stream.position, [item])
    if (item.draft.metadata or {}).get("pinned") is True:  # a stream is never a system message
        yield from execute_many("pin_insert", [(open_turn.branch, stream.position)])
    if message.deleted_at_ms is None:
        change = messages.CountChange(
            0, item.tokens - message.tokens, usage.input_tokens or 0, usage.output_tokens or 0
        )
        yield from messages.adjust_counts(scope, current.tree, open_turn.branch, stream.position, change)
    return (yield from touch_session(scope, session, open_turn)).counts
