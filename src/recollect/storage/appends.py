"""Appends: add messages to the end of a path, all or none, and once per idempotency key.

The same transaction updates the counts of the session. A tool result recorded by its call id is an append, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue, KeyReused, SessionInTrash, format_value
from recollect.model import validation
from recollect.model.message import Draft, Message, ToolResultPart
from recollect.model.session import SessionCounts, SessionInfo
from recollect.storage import messages, sessions, tools
from recollect.storage.fast_paths import ACTIVITY_RESOLUTION, AdvancedRow, AppendRequest, KeyedAppendRequest
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, execute_many, fetch_one
from recollect.storage.paths import BRANCH_GET

if TYPE_CHECKING:
    from recollect.storage.message_keys import KeyedBatch

_MAX_KEY_LENGTH = 512  # characters; longer keys are stored as a hash
_SPELLINGS = ('"status":"cancelled"', '"status":"canceled"')
_VOLATILE_COLUMNS = ("created_at", "completed_at", "tokens")  # columns in which a repeated message may differ
_lasting_columns = itemgetter(
    *(index for index, name in enumerate(messages.MESSAGE_COLUMNS) if name not in _VOLATILE_COLUMNS)
)


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The result of an append: the branch, the first position, the number of messages and the new revision.

    It has no `to_dict()`.

    - `branch`: number of the branch.
    - `first`, `count`: position of the first message, and number of messages.
    - `ids`: a list of the ids of the messages, in the order in which you passed them.
    - `keyed_ids`: the same ids as a tuple if some messages were stored before under their [keys][Message keys], else
      `None`. `branch` and `first` are then those of the first id, and the other messages may be elsewhere.
    - `revision`: revision of the session after the append.
    - `repeated`: whether nothing was stored: the same append was stored before under its key, or each message under its
      own.
    """

    branch: int
    first: int
    count: int
    revision: int
    repeated: bool = False
    keyed_ids: tuple[str, ...] | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the appended messages."""
        if self.keyed_ids is not None:
            return list(self.keyed_ids)
        return [f"{self.branch}.{self.first + offset}" for offset in range(self.count)]


def keyed_result(ids: Sequence[str], revision: int, *, is_repetition: bool) -> Appended:
    """Return the result of an append of which some messages were stored before."""
    branch, _, first = ids[0].partition(".")
    return Appended(int(branch), int(first), len(ids), revision, is_repetition, tuple(ids))


class WrittenMessages(msgspec.Struct, frozen=True, gc=False):
    """Where messages were written, and the counts of the session after the write."""

    session: int
    key: int
    branch: int
    first: int
    open_turns: int
    counts: SessionCounts


def append(
    scope: Scope, session: str, drafts: Sequence[Draft], *, key: str | None = None, expected: int | None = None
) -> Operation[tuple[Appended, SessionCounts]]:
    """Add messages to the end of a session's active path, all or none."""
    if not drafts:
        raise InvalidValue("append() needs a message or a non-empty list of messages, got none.")
    check_key(key)
    validation.check_integer("expected", expected)
    records = [messages.encode_draft(draft, scope.now) for draft in drafts]
    request = None if key is not None else _make_append_request(scope, session, records, expected)
    return Operation(
        _append, scope, session, records, key, expected, session=session, fast=request, finish=_finish_append
    )


def _make_append_request(
    scope: Scope, session: str, records: Sequence[messages.EncodedDraft], expected: int | None
) -> AppendRequest | None:
    """Return the request for the fast path of an append, with the keys of its messages if they have any."""
    keys = [item.draft.key for item in records if item.draft.key is not None]
    if not keys:
        return make_request(scope, session, records, expected)
    if len(set(keys)) < len(keys):
        return None  # the steps raise an error
    request = make_request(scope, session, records, expected, with_keys=True)
    if request is None:
        return None
    return KeyedAppendRequest(**msgspec.structs.asdict(request), keys=[item.draft.key for item in records])


def make_request(
    scope: Scope,
    session: str,
    records: Sequence[messages.EncodedDraft],
    expected: int | None,
    *,
    with_keys: bool = False,
) -> AppendRequest | None:
    """Return the request for the fast path of an append; None if it writes more than message and call rows."""
    has_calls = False
    for item in records:
        if not item.row_only:
            if item.payloads or item.is_always_active or (item.draft.key is not None and not with_keys):
                return None
            has_calls = True
    calls = tools.new_call_rows(records) if has_calls else ()
    if calls is None:
        return None
    tokens, input_tokens, output_tokens = _sum_tokens(records)
    return AppendRequest(
        scope.owner, session, scope.now, len(records), tokens, input_tokens, output_tokens, expected,
        [item.columns for item in records], calls,
    )  # fmt: skip


def _finish_append(request: AppendRequest, row: AdvancedRow) -> tuple[Appended, SessionCounts]:
    return Appended(row.branch, row.last + 1, request.messages, row.revision), row.counts


def check_key(key: str | None) -> None:
    """Raise InvalidValue unless a key is None or a non-empty string."""
    if key is not None and not validation.check_plain_text("key", key):
        raise InvalidValue(f"key must be a non-empty string, got {format_value(key)}.")


def _append(
    scope: Scope,
    session: str,
    records: list[messages.EncodedDraft],
    key: str | None,
    expected: int | None,
) -> Steps[tuple[Appended, SessionCounts]]:
    if key is not None:
        earlier = yield from find_earlier_append(scope, session, key, records)
        if earlier is not None:
            return earlier.appended, earlier.counts
    if any(item.draft.key is not None for item in records):
        return (yield from _append_keyed(scope, session, records, key, expected))
    result = yield from append_to_head(scope, session, records, expected=expected)
    if key is not None:
        yield from store_key(scope, result, key, records)
    return Appended(result.branch, result.first, len(records), result.counts.revision), result.counts


def _append_keyed(
    scope: Scope, session: str, records: list[messages.EncodedDraft], key: str | None, expected: int | None
) -> Steps[tuple[Appended, SessionCounts]]:
    """Append the messages whose keys are not on the path yet."""
    from recollect.storage import message_keys  # noqa: PLC0415  only for messages with keys

    current = yield from sessions.find(scope, session)  # locks the session, so that nobody else stores one of the keys
    batch = yield from message_keys.split_batch(session, current.head, records)
    if batch.new:
        result = yield from append_to_head(scope, session, batch.new, expected=expected)
    else:
        result = yield from empty_append(current)
    if key is not None:
        yield from store_key(scope, result, key, records, len(batch.new))
    return appended_batch(batch, result), result.counts


def empty_append(current: sessions.StoredSession) -> Steps[WrittenMessages]:
    """Return the result of an append to the head of a session that writes no message."""
    head = yield from fetch_one(BRANCH_GET, branch=current.head)
    assert head is not None
    counts = sessions.counts_of(current.value)
    return WrittenMessages(current.session, head.key, head.number, head.last + 1, current.open_turns, counts)


def appended_batch(batch: KeyedBatch, result: WrittenMessages) -> Appended:
    """Return the result of an append of a batch whose new messages were written."""
    if not batch.old:
        return Appended(result.branch, result.first, len(batch.new), result.counts.revision)
    ids = batch.ids(result.branch, result.first)
    return keyed_result(ids, result.counts.revision, is_repetition=not batch.new)


def find_by_key(
    scope: Scope, session: str, key: str, drafts: Sequence[Draft] | None = None
) -> Operation[Appended | None]:
    """Return the append that was stored under a key, or None; raise KeyReused if the drafts differ from it."""
    if key is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidValue("key must be a non-empty string, got None.")
    check_key(key)
    records = None if drafts is None else [messages.encode_draft(draft, scope.now) for draft in drafts]
    return Operation(_find_by_key, scope, session, key, records, writes=False)


def _find_by_key(
    scope: Scope, session: str, key: str, records: Sequence[messages.EncodedDraft] | None
) -> Steps[Appended | None]:
    earlier = yield from find_earlier_append(scope, session, key, records)
    return None if earlier is None else earlier.appended


def store_key(
    scope: Scope,
    result: WrittenMessages,
    key: str,
    records: Sequence[messages.EncodedDraft],
    new_messages: int | None = None,
    change: str = "",
) -> Steps[None]:
    """Store the idempotency key of an append with a digest of its content.

    `new_messages` is the number of its messages that were written, if some were stored before under their keys,
    and `change` describes what else the append changes.
    """
    yield from execute(
        "append_insert", session=result.session, key=_stored_key(key), digest=_digest(records, change),
        branch=result.key, position=result.first, count=len(records) if new_messages is None else new_messages,
        now=scope.now,
    )  # fmt: skip


def _stored_key(key: str) -> str:
    """Return a key as it is stored: a long key as a hash, because PostgreSQL cannot index long texts."""
    key = str.__str__(key)
    if len(key) <= _MAX_KEY_LENGTH:
        return key
    import hashlib  # noqa: PLC0415  only for a long key

    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _digest(records: Sequence[messages.EncodedDraft], change: str) -> bytes:
    """Return a hash of the content, so that a key cannot be used for different content."""
    import hashlib  # noqa: PLC0415  only if a key is used

    digest = hashlib.sha256(change.encode("utf-8", "surrogatepass"))
    for item in records:
        values = list(_lasting_columns(item.columns))
        if item.draft.key is not None:
            values.append(item.draft.key)
        # The former spelling, so that a key of an earlier version is found again with a result that is now `cancelled`.
        # A value that contains it has quotes, which repr() does not escape; the commas between values have none.
        digest.update(repr(values).replace(*_SPELLINGS).encode("utf-8", "surrogatepass"))
    return digest.digest()


class EarlierAppend(NamedTuple):
    """An append that was stored before under the same idempotency key, and the keys of its branch and session."""

    appended: Appended
    counts: SessionCounts
    branch: int
    session: int
    number: int
    position: int
    """The position of the first message that it wrote, on the branch with the public number `number`."""


class AppendKeyRow(NamedTuple):
    """An idempotency key: the digest of the content, and where the messages are."""

    digest: bytes
    branch: int
    position: int
    messages: int


APPEND_GET = Query("append_get", AppendKeyRow)


def find_earlier_append(
    scope: Scope, session: str, key: str, records: Sequence[messages.EncodedDraft] | None, change: str = ""
) -> Steps[EarlierAppend | None]:
    """Return the earlier append under this key, or None; raise KeyReused if its content or `change` differs."""
    current = yield from sessions.find(scope, session)
    row = yield from fetch_one(APPEND_GET, session=current.session, key=_stored_key(key))
    if row is None:
        return None
    if records is not None and row.digest != _digest(records, change):
        raise KeyReused(session=session, key=key)
    branch = yield from fetch_one(BRANCH_GET, branch=row.branch)
    assert branch is not None
    revision = current.value.revision
    appended = Appended(branch.number, row.position, row.messages, revision, repeated=True)
    if records is not None and row.messages < len(records):  # the others were stored before, under their keys
        from recollect.storage import message_keys  # noqa: PLC0415  only for messages with keys

        ids = yield from message_keys.repeated_ids(row.branch, branch.number, row.position, row.messages, records)
        appended = keyed_result(ids, revision, is_repetition=True)
    counts = sessions.counts_of(current.value)
    return EarlierAppend(appended, counts, row.branch, current.session, branch.number, row.position)


SESSION_ADVANCE = Query("session_advance", AdvancedRow)


def append_to_head(
    scope: Scope,
    session: str,
    records: Sequence[messages.EncodedDraft],
    *,
    opens_turn: bool = False,
    expected: int | None = None,
) -> Steps[WrittenMessages]:
    """Write messages to the end of the active path and update the counts."""
    params: dict[str, Any] = {
        **_count_params(scope, records), "owner": scope.owner, "id": session, "expected": expected,
        "activity_resolution": ACTIVITY_RESOLUTION,
    }  # fmt: skip
    row = yield from fetch_one(SESSION_ADVANCE, **params)
    if row is None:
        yield from sessions.check_updatable(scope, session, expected)
        row = yield from fetch_one(SESSION_ADVANCE, **params)
    if row is None:
        raise SessionInTrash(session=session)
    result = WrittenMessages(row.session, row.head, row.branch, row.last + 1, row.open_turns, row.counts)
    yield from _insert_messages(scope, result.key, result.first, records, result.first if opens_turn else None)
    return result


def append_to_branch(
    scope: Scope,
    session: str,
    key: int,
    branch: int,
    turn: int | None,
    records: Sequence[messages.EncodedDraft],
    *,
    activates: bool = True,
) -> Steps[WrittenMessages]:
    """Write messages to the end of a branch, and count them if it still is the head of the session.

    Without `activates`, the session keeps its position in lists.
    """
    row = yield from sessions.touch(session, key, branch, _count_params(scope, records))
    branch_row = yield from fetch_one(BRANCH_GET, branch=branch)
    assert branch_row is not None
    before = row.last
    if row.head != branch:
        yield from execute("branch_advance", branch=branch, count=len(records))
        before = branch_row.last
    yield from _insert_messages(scope, branch, before + 1, records, turn)
    counts = row.counts
    if activates:
        counts = counts._replace(active_at_ms=(yield from sessions.activate(scope, row.session)))
    return WrittenMessages(row.session, branch, branch_row.number, before + 1, 0, counts)


def _insert_messages(
    scope: Scope, branch: int, first: int, records: Sequence[messages.EncodedDraft], turn: int | None
) -> Steps[None]:
    if not records:
        return
    has_related_rows = has_keys = False
    for item in records:
        if not item.row_only:
            has_related_rows = True
            has_keys = has_keys or item.draft.key is not None
    rows = [(branch, at, turn, *item.columns) for at, item in enumerate(records, first)]
    if has_keys:
        rows = [(*row, item.draft.key, None, None) for row, item in zip(rows, records, strict=True)]
    yield "message_insert_full" if has_keys else "message_insert", rows, True
    if has_related_rows:
        yield from _insert_related(scope, branch, first, records)


def _insert_related(scope: Scope, branch: int, first: int, records: Sequence[messages.EncodedDraft]) -> Steps[None]:
    """Write the blobs, tool calls, tool results and pins of new messages."""
    for item in records:
        for name, payload in item.payloads.items():
            yield from store_blob(scope, name, payload)
    if any(item.calls or item.results for item in records):
        yield from tools.write_calls(branch, first, records)
    yield from execute_many(
        "pin_insert", [(branch, at) for at, item in enumerate(records, first) if item.is_always_active]
    )


def _sum_tokens(records: Sequence[messages.EncodedDraft]) -> tuple[int, int, int]:
    """Return the tokens of messages: estimated, and as providers reported them for input and output."""
    tokens = input_tokens = output_tokens = 0
    for item in records:
        tokens += item.tokens
        input_tokens += item.draft.input_tokens or 0
        output_tokens += item.draft.output_tokens or 0
    return tokens, input_tokens, output_tokens


def _count_params(scope: Scope, records: Sequence[messages.EncodedDraft]) -> dict[str, int]:
    tokens, input_tokens, output_tokens = _sum_tokens(records)
    return {
        "now": scope.now, "messages": len(records), "tokens": tokens, "input_tokens": input_tokens,
        "output_tokens": output_tokens,
    }  # fmt: skip


class BlobReferencesRow(NamedTuple):
    """The number of references to a blob."""

    refs: int


BLOB_REFERENCE = Query("blob_reference", BlobReferencesRow)


def store_blob(scope: Scope, name: str, payload: bytes) -> Steps[None]:
    """Store a payload once, and count its references."""
    if (yield from fetch_one(BLOB_REFERENCE, owner=scope.owner, hash=name)) is None:
        yield from execute("blob_insert", owner=scope.owner, hash=name, size=len(payload), data=payload, now=scope.now)


class RecordedToolResult(NamedTuple):
    """The message that contains a tool result, and the session after the write."""

    message: Message
    session: SessionInfo


def record_tool_result(scope: Scope, session: str, draft: Draft) -> Operation[RecordedToolResult]:
    """Store the result of a tool call. An equal result is not stored twice."""
    answer = draft.parts[0]
    if not isinstance(answer, ToolResultPart) or not answer.call_id:
        raise InvalidValue("A tool result needs a call_id: the id of the tool call that it answers.")
    return Operation(_record_tool_result, scope, session, messages.encode_draft(draft, scope.now), answer)


def _record_tool_result(
    scope: Scope, session: str, item: messages.EncodedDraft, answer: ToolResultPart
) -> Steps[RecordedToolResult]:
    current = yield from sessions.find(scope, session)
    if (yield from tools.find_open_call(current.head, answer.call_id)) is None:
        earlier = yield from _find_same_result(scope, current, answer)
        if earlier is None:
            raise (yield from tools.missing_call_error(session, current.head, answer.call_id))
        return RecordedToolResult(earlier, current.value)
    branch = yield from fetch_one(BRANCH_GET, branch=current.head)
    assert branch is not None
    result = yield from append_to_branch(scope, session, current.session, current.head, branch.open_turn, [item])
    message = yield from messages.read_at(scope, current.head, result.branch, result.first)
    assert message is not None
    return RecordedToolResult(message, (yield from sessions.find(scope, session)).value)


def _find_same_result(scope: Scope, current: sessions.StoredSession, answer: ToolResultPart) -> Steps[Message | None]:
    """Return the message that already contains an equal result, or None."""
    for call in (yield from tools.find_calls(current.head, answer.call_id, until=lambda _: False)):
        if call.result is None:
            continue
        branch, position, part = call.result
        row = yield from fetch_one(BRANCH_GET, branch=branch)
        assert row is not None
        message = yield from messages.read_at(scope, branch, row.number, position)
        if message is not None and _is_same_result(message.parts[part], answer):
            return message
    return None


def _is_same_result(part: Any, answer: ToolResultPart) -> bool:
    names = ("call_id", "status", "text", "data", "content", "error_code", "error_message")
    return all(getattr(part, name, None) == getattr(answer, name) for name in names)
