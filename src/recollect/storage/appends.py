"""Appends: add messages to the end of a path, all or none, and once per idempotency key.

The same transaction updates the counts of the session. A tool result recorded by its call id is an append, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue, KeyReused, SessionInTrash, format_value
from recollect.model import validation
from recollect.model.message import Draft, Message, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.storage import messages, sessions, tools
from recollect.storage.operation import Operation, Row, Scope, Steps, execute, execute_many, fetch_one
from recollect.storage.paths import BRANCH_GET

_MAX_KEY_LENGTH = 512  # characters; longer keys are stored as a hash
_VOLATILE_COLUMNS = ("created_at", "completed_at", "tokens")  # columns in which a repeated message may differ


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The result of an append: the branch, the first position, the number of messages and the new revision."""

    branch: int
    first: int
    count: int
    revision: int
    repeated: bool = False
    """Whether the same append was stored before, under the same idempotency key."""

    @property
    def ids(self) -> list[str]:
        """The ids of the appended messages."""
        return [f"{self.branch}.{self.first + offset}" for offset in range(self.count)]


class WrittenMessages(msgspec.Struct, frozen=True, gc=False):
    """Where messages were written, and the counts of the session after the write."""

    session: int
    key: int
    branch: int
    first: int
    open_turns: int
    counts: Row

    @property
    def revision(self) -> int:
        """The session's revision after the write."""
        return self.counts[0]


def append(
    scope: Scope, session: str, drafts: Sequence[Draft], *, key: str | None = None, expected: int | None = None
) -> Operation[tuple[Appended, Row]]:
    """Add messages to the end of a session's active path, all or none."""
    if not drafts:
        raise InvalidValue("append() needs a message or a non-empty list of messages, got none.")
    check_key(key)
    validation.check_integer("expected", expected)
    records = [messages.encode_draft(draft, scope.now) for draft in drafts]
    params = single_statement_params(scope, session, records, expected) if key is None else None
    return Operation(_append, scope, session, records, key, expected, params)


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
    params: dict[str, Any] | None,
) -> Steps[tuple[Appended, Row]]:
    if params is not None and (rows := (yield "session_append", params, False)):
        result = written_from_row(rows[0])
        return Appended(result.branch, result.first, len(records), result.revision), result.counts
    if key is not None:
        earlier = yield from find_earlier_append(scope, session, key, records)
        if earlier is not None:
            return earlier[:2]
    result = yield from append_to_head(scope, session, records, expected=expected)
    if key is not None:
        yield from store_key(scope, result, key, records)
    return Appended(result.branch, result.first, len(records), result.revision), result.counts


def find_by_key(
    scope: Scope, session: str, key: str, drafts: Sequence[Draft] | None = None
) -> Operation[Appended | None]:
    """Return the append that was stored under a key, or None; raise KeyReused if the drafts differ from it."""
    check_key(key)
    records = None if drafts is None else [messages.encode_draft(draft, scope.now) for draft in drafts]
    return Operation(_find_by_key, scope, session, key, records, writes=False)


def _find_by_key(
    scope: Scope, session: str, key: str, records: Sequence[messages.EncodedDraft] | None
) -> Steps[Appended | None]:
    earlier = yield from find_earlier_append(scope, session, key, records)
    return None if earlier is None else earlier[0]


def store_key(scope: Scope, result: WrittenMessages, key: str, records: Sequence[messages.EncodedDraft]) -> Steps[None]:
    """Store the idempotency key of an append with a digest of its content."""
    yield from execute(
        "append_insert", session=result.session, key=_stored_key(key), digest=_digest(records), branch=result.key,
        position=result.first, count=len(records), now=scope.now,
    )  # fmt: skip


def _stored_key(key: str) -> str:
    """Return a key as it is stored: a long key as a hash, because PostgreSQL cannot index long texts."""
    key = str.__str__(key)
    if len(key) <= _MAX_KEY_LENGTH:
        return key
    import hashlib  # noqa: PLC0415  only for a long key

    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _digest(records: Sequence[messages.EncodedDraft]) -> bytes:
    """Return a hash of the content, so that a key cannot be used for different content."""
    import hashlib  # noqa: PLC0415  only if a key is used

    digest = hashlib.sha256()
    for item in records:
        values = [
            value
            for name, value in zip(messages.MESSAGE_COLUMNS, item.columns, strict=True)
            if name not in _VOLATILE_COLUMNS
        ]
        digest.update(repr(values).encode("utf-8", "surrogatepass"))
    return digest.digest()


def find_earlier_append(
    scope: Scope, session: str, key: str, records: Sequence[messages.EncodedDraft] | None
) -> Steps[tuple[Appended, Row, int, int] | None]:
    """Return the earlier append under this key, or None; raise KeyReused if its content differs."""
    current = yield from sessions.find(scope, session)
    row = yield from fetch_one("append_get", session=current.session, key=_stored_key(key))
    if row is None:
        return None
    if records is not None and row[0] != _digest(records):
        raise KeyReused(session=session, key=key)
    branch = yield from fetch_one(BRANCH_GET, branch=row[1])
    assert branch is not None
    earlier = Appended(branch.number, row[2], row[3], current.value.revision, repeated=True)
    return earlier, sessions.counts_of(current.value), row[1], current.session


def single_statement_params(
    scope: Scope, session: str, records: Sequence[messages.EncodedDraft], expected: int | None
) -> dict[str, Any] | None:
    """Return the parameters of a statement that writes a whole append; None if it needs more than rows and calls.

    Such a statement writes nothing and returns no row if the session is missing or has another revision. Then the
    operation runs statement by statement, which finds the reason.
    """
    calls: Sequence[Row] = ()
    for item in records:
        if not item.row_only:
            call_rows = _calls_without_payloads(records)
            if call_rows is None:
                return None
            calls = call_rows
            break
    params = _count_params(scope, session, records)
    params["expected"] = expected
    params["rows"] = [item.columns for item in records]
    params["calls"] = calls
    return params


def written_from_row(row: Row) -> WrittenMessages:
    """Return the result of a write from the row that its statement returned."""
    return WrittenMessages(row[0], row[1], row[3], row[2] + 1, row[4], row[5:])


def _calls_without_payloads(records: Sequence[messages.EncodedDraft]) -> Sequence[Row] | None:
    """Return the tool call rows of messages; None if they have blobs, pins or the result of an older call."""
    for item in records:
        if item.payloads or item.is_always_active:
            return None
    return tools.new_call_rows(records)


def append_to_head(
    scope: Scope,
    session: str,
    records: Sequence[messages.EncodedDraft],
    *,
    opens_turn: bool = False,
    expected: int | None = None,
) -> Steps[WrittenMessages]:
    """Write messages to the end of the active path and update the counts."""
    params = _count_params(scope, session, records)
    params["expected"] = expected
    rows = yield "session_advance", params, False
    if not rows:
        yield from sessions.check_updatable(scope, session, expected)
        rows = yield "session_advance", params, False
    if not rows:
        raise SessionInTrash(session=session)
    result = written_from_row(rows[0])
    yield from _insert_messages(scope, result.key, result.first, records, result.first if opens_turn else None)
    return result


def append_to_branch(
    scope: Scope, session: str, key: int, branch: int, turn: int | None, records: Sequence[messages.EncodedDraft]
) -> Steps[WrittenMessages]:
    """Write messages to the end of a branch, and count them if it still is the head of the session."""
    params = _count_params(scope, session, records)
    row = yield from fetch_one("session_touch", **params, session=key, branch=branch)
    if row is None:
        raise (yield from sessions.missing_key_error(session, key))
    branch_row = yield from fetch_one(BRANCH_GET, branch=branch)
    assert branch_row is not None
    before = row[2]
    if row[1] != branch:
        yield from execute("branch_advance", branch=branch, count=len(records))
        before = branch_row.last
    yield from _insert_messages(scope, branch, before + 1, records, turn)
    active = yield from sessions.activate(scope, row[0])
    return WrittenMessages(row[0], branch, branch_row.number, before + 1, 0, (*row[3:9], active, row[10]))


def _insert_messages(
    scope: Scope, branch: int, first: int, records: Sequence[messages.EncodedDraft], turn: int | None
) -> Steps[None]:
    yield "message_insert", [(branch, at, turn, *item.columns) for at, item in enumerate(records, first)], True
    for item in records:
        if not item.row_only:
            yield from _insert_related(scope, branch, first, records)
            break


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


def _count_params(scope: Scope, session: str, records: Sequence[messages.EncodedDraft]) -> dict[str, Any]:
    tokens = input_tokens = output_tokens = 0
    for item in records:
        tokens += item.tokens
        input_tokens += item.draft.input_tokens or 0
        output_tokens += item.draft.output_tokens or 0
    return {
        "owner": scope.owner, "id": session, "now": scope.now, "messages": len(records), "tokens": tokens,
        "input_tokens": input_tokens, "output_tokens": output_tokens,
    }  # fmt: skip


def store_blob(scope: Scope, name: str, payload: bytes) -> Steps[None]:
    """Store a payload once, and count its references."""
    if (yield from fetch_one("blob_reference", owner=scope.owner, hash=name)) is None:
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
