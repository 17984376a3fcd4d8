"""Messages: rows, reading and deleting.

A draft is encoded into the columns of a message row before the transaction begins. Deleting adjusts the counts of
every session that shares the message, in the same transaction. Appending is in appends.py, changing the content and the
metadata of a message in edits.py.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from recollect.errors import Corrupted, InvalidValue, MessageNotFound, format_value
from recollect.model import blob, json, session_ids, validation
from recollect.model.message import ROLES, Draft, Message, MessageColumns, Part, TextPart, ToolCallPart, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.model.tokens import estimate_tokens
from recollect.model.value import from_datetime
from recollect.storage import sessions
from recollect.storage.fast_paths import MESSAGES_LAST, LastMessagesRequest, NewestMessageRow
from recollect.storage.operation import (
    Operation,
    Plan,
    Query,
    Row,
    Scope,
    Steps,
    execute,
    fetch_all,
    fetch_one,
    fetch_tuples,
)
from recollect.storage.pages import PAGE_SIZE, PageRequest, check_limit, find_bounds, parse_page
from recollect.storage.paths import (
    LAST_POSITION,
    MessageId,
    PathSpan,
    display_message_id,
    find_span,
    read_path,
)

MessageParts = tuple[Part, ...]
_TEXT_ONLY: tuple[Sequence[Any], Sequence[Any], bool] = ((), (), True)
_NO_PAYLOADS: Mapping[str, bytes] = types.MappingProxyType({})
_SPACE = ord(" ")  # begins JSON of the standard json module, which msgspec does not decode exactly (model/json.py)


class MessageRow(NamedTuple):
    """A message; `rare` is a JSON array of the columns that most messages lack, parts are bytes for the decoder."""

    parts: bytes
    position: int
    role: str
    created_at: int
    turn: int | None
    tokens: int
    format: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    native: str | None
    rare: str | None


class HistoryRow(NamedTuple):
    """The columns of a message that a history needs. `rare` is not None if it must be read as a complete message."""

    parts: bytes
    position: int
    role: str
    format: str | None
    native: str | None
    rare: str | None


class NewestHistoryRow(NamedTuple):
    """The columns of one of the last messages of a session that a history needs, with its branch."""

    parts: bytes
    position: int
    role: str
    format: str | None
    native: str | None
    rare: str | None
    head: int
    fork_at: int


MESSAGE_GET = Query("message_get", MessageRow)
MESSAGE_FOR_UPDATE = Query("message_for_update", MessageRow)
MESSAGES_FORWARD = Query("messages_forward", MessageRow)
MESSAGES_BACKWARD = Query("messages_backward", MessageRow)
MESSAGES_FORWARD_BY_TIME = Query("messages_forward_by_time", MessageRow)
MESSAGES_BACKWARD_BY_TIME = Query("messages_backward_by_time", MessageRow)
MESSAGES_PINNED = Query("messages_pinned", MessageRow)
MESSAGES_LAST_USER = Query("messages_last_user", MessageRow)
MESSAGES_TUPLES = Query("messages_tuples", HistoryRow)
MESSAGES_LAST_TUPLES = Query("messages_last_tuples", NewestHistoryRow)

MESSAGE_COLUMNS = (
    "role", "state", "tokens", "input_tokens", "output_tokens", "created_at", "completed_at", "format", "model",
    "error", "metadata", "native", "blobs", "parts",
)  # fmt: skip


class EncodedDraft(msgspec.Struct, frozen=True, gc=False):
    """A draft ready to be stored: its columns, its tool calls and results, and its blob payloads."""

    columns: tuple[Any, ...]
    tokens: int
    created_at: int
    draft: Draft
    row_only: bool = False
    """Whether only its row is written: it has no tool call, no tool result, no blob, no pin and no key."""
    calls: Sequence[tuple[int, ToolCallPart]] = ()
    results: Sequence[tuple[int, ToolResultPart]] = ()
    payloads: Mapping[str, bytes] = _NO_PAYLOADS

    @property
    def is_always_active(self) -> bool:
        """True if it is in every history: a system message, or a message that is pinned from the start."""
        return _is_always_active(self.draft)


def encode_draft(draft: Draft, now: int) -> EncodedDraft:
    """Return a draft as the columns of a message row; raise InvalidValue for an unknown role."""
    if draft.role not in ROLES:
        raise InvalidValue(f"role must be one of {', '.join(ROLES)}, got {format_value(draft.role)}.")
    parts = draft.parts
    calls, results, plain = _TEXT_ONLY if _is_text_only(parts) else _tool_parts(parts)
    text = json.encode(parts)
    payloads, blobs = _NO_PAYLOADS, None
    if not plain and blob.may_hold_payloads(text):
        trimmed_parts, blob_payloads = blob.detach_payloads(parts)
        if blob_payloads is not None:
            text, payloads, blobs = json.encode(trimmed_parts), blob_payloads, json.encode(sorted(blob_payloads))
    tokens = estimate_tokens(parts) if draft.tokens is None else draft.tokens
    created = now if draft.created_at is None else from_datetime(draft.created_at)
    columns = (
        draft.role,
        None if draft.state == "completed" else draft.state,
        tokens,
        draft.input_tokens,
        draft.output_tokens,
        created,
        None,
        None if draft.format is None else json.escape_surrogates(draft.format),
        None if draft.model is None else json.escape_surrogates(draft.model),
        None if draft.error is None else json.encode(draft.error),
        None if draft.metadata is None else json.encode(draft.metadata),
        None if draft.native is None else json.encode(draft.native),
        blobs,
        text,
    )
    row_only = not (calls or results or payloads or draft.key is not None or _is_always_active(draft))
    if draft.key is not None:
        validation.check_message_key(draft.key)
    return EncodedDraft(columns, tokens, created, draft, row_only, calls, results, payloads)


def _is_always_active(draft: Draft) -> bool:
    return draft.role == "system" or (draft.metadata is not None and draft.metadata.get("pinned") is True)


def _is_text_only(parts: MessageParts) -> bool:
    """Return whether a message is a single text part, as most are."""
    if len(parts) != 1:
        return False
    part = parts[0]
    return type(part) is TextPart and part.native is None and part.metadata is None


def _tool_parts(parts: MessageParts) -> tuple[Sequence[Any], Sequence[Any], bool]:
    """Return the tool calls, the tool results, and whether no part can contain a blob."""
    if len(parts) == 1:
        (part,) = parts
        call = ((0, part),) if type(part) is ToolCallPart else ()
        result = ((0, part),) if type(part) is ToolResultPart else ()
        return call, result, blob.has_no_payload(part)
    calls = [(index, part) for index, part in enumerate(parts) if type(part) is ToolCallPart]
    results = [(index, part) for index, part in enumerate(parts) if type(part) is ToolResultPart]
    return calls, results, all(blob.has_no_payload(part) for part in parts)


def message_from_row(row: Row, branch: int, parts: MessageParts) -> Message:
    """Return the message of a MessageRow or an equal tuple; `branch` is the public number of its branch."""
    _, position, role, created, turn, tokens, format, model, input_tokens, output_tokens, native, rare = row
    if native is not None:
        native = json.decode(native)
    if rare is None:
        return Message(
            branch, position, role, parts, created, turn, tokens, format, model, input_tokens, output_tokens,
            native, "completed", created,
        )  # fmt: skip
    state, completed, deleted, error, metadata, _, key, edit_time = json.decode(rare)
    return Message(
        branch, position, role, parts, created, turn, tokens, format, model, input_tokens, output_tokens, native,
        state or "completed",
        created if completed is None and state is None else completed,
        deleted,
        None if error is None else json.decode(error),
        None if metadata is None else json.decode(metadata),
        key,
        edit_time,
    )  # fmt: skip


def messages_from_rows(rows: list[Row], branch: int) -> list[Message]:
    """Return the messages of rows. Rows without rare columns are converted inline, without a call for each."""
    decode = json.decoder(MessageParts)  # per row: joining the texts of a page to decode them at once is slower
    return [
        Message(
            branch, position, role, decode(text), created, turn, tokens, format, model, input_tokens, output_tokens,
            None if native is None else json.decode(native), "completed", created,
        )
        if rare is None and text[0] != _SPACE
        else message_from_row(row, branch, json.decode_as(MessageParts, text))
        for row in rows
        for (
            text, position, role, created, turn, tokens, format, model, input_tokens, output_tokens, native, rare,
        ) in (row,)
    ]  # fmt: skip


def columns_from_rows(rows: list[Row]) -> MessageColumns:
    """Return the columns of rows of HistoryRow or NewestHistoryRow.

    A row with rare columns has no parts, which the caller adds.
    """
    if not rows:
        return MessageColumns((), (), (), [], [], [])
    decode, plain = json.decoder(MessageParts), json.decoder(Any)
    texts, positions, roles, formats, natives, rares, *_ = zip(*rows, strict=True)
    parts = [
        () if rare is not None else decode(text) if text[0] != _SPACE else json.decode_as(MessageParts, text)
        for text, rare in zip(texts, rares, strict=True)
    ]
    decoded_natives: list[Any] = [None] * len(rows)
    if any(natives):
        decoded_natives = [
            None if native is None else plain(native) if native[0] != " " else json.decode(native) for native in natives
        ]
    return MessageColumns(positions, roles, formats, parts, decoded_natives, ["completed"] * len(rows))


def blob_names(row: Row) -> list[str] | None:
    """Return the hashes of the blobs that a row refers to; None if its parts are stored unchanged."""
    *_, rare = row
    if rare is None:
        return None
    *_, blobs, _, _ = json.decode(rare)
    return None if blobs is None else json.decode(blobs)


_rare_columns = itemgetter(MessageRow._fields.index("rare"))


def has_blobs(rows: Sequence[Row]) -> bool:
    """Return whether any of the rows refers to blobs. Most pages have no rare columns, so these are read first."""
    return any(map(_rare_columns, rows)) and any(blob_names(row) is not None for row in rows)


def message_with_payloads(row: Row, branch: int, payloads: Mapping[str, bytes] | None) -> Message:
    """Return the message of a row, with its blob payloads attached if it has any."""
    parts, *_ = row
    if payloads is None:
        return message_from_row(row, branch, json.decode_as(MessageParts, parts))
    attached_parts = blob.attach_payloads(json.decode(parts), payloads)
    return message_from_row(row, branch, msgspec.convert(attached_parts, MessageParts))


LARGE_PAGE_SIZE = 1_000
"""Messages per page when a whole path is read: each page is a round trip to a server."""

_COUNT_BATCH = 100
"""Sessions whose messages are counted in one statement. Counting reads every message row of their paths."""


class MessagePage(NamedTuple):
    """A page of a path, oldest first, with the end of the path and the position of the next page."""

    messages: list[Message]
    branch: int
    until: int
    more: int | None


def read_forward(
    scope: Scope,
    session: str,
    *,
    after: int = 0,
    branch: int | None = None,
    until: int | None = None,
    limit: int = PAGE_SIZE,
    deleted: bool = False,
) -> Operation[MessagePage]:
    """Read a page of the active path, oldest first. `branch` and `until` fix the end that the first page had."""
    return Operation(
        _read_forward,
        scope,
        session,
        after,
        branch,
        until,
        limit,
        validation.check_flag("deleted", deleted),
        writes=False,
    )


def _read_forward(
    scope: Scope, session: str, after: int, branch: int | None, until: int | None, limit: int, deleted: bool
) -> Steps[MessagePage]:
    current = yield from sessions.find(scope, session)
    branch = current.head if branch is None else branch
    spans = yield from read_path(branch)
    end = _last_position(session, spans) if until is None else until
    page: list[Message] = []
    for span in reversed(spans):
        remaining = limit - len(page)
        low, high = max(span.low, after), min(span.high, end)
        if remaining > 0 and low < high:
            page += yield from read_span(scope, MESSAGES_FORWARD, span, low, high, remaining, deleted)
    more = page[-1].position if len(page) == limit and page[-1].position < end else None
    return MessagePage(page, branch, end, more)


def _last_position(session: str, spans: Sequence[PathSpan]) -> int:
    """Return the last position of a path."""
    if not spans:
        raise Corrupted(
            f"The branch of session {session!r} is missing: the database is damaged, or another program deleted it. "
            f"Stop writing to the database and restore a backup.",
            session=session,
        )
    return max(span.high for span in spans)


def read_all(scope: Scope, session: str, *, branch: int | None = None, deleted: bool = False) -> Plan[list[Message]]:
    """Read the whole active path, or that of the branch with a key, page by page, up to its end at the start."""
    page: MessagePage = yield read_forward(scope, session, branch=branch, deleted=deleted, limit=LARGE_PAGE_SIZE)
    result = page.messages
    while page.more is not None:
        page = yield read_next(scope, session, page, deleted=deleted, limit=LARGE_PAGE_SIZE)
        result += page.messages
    return result


def read_next(
    scope: Scope, session: str, page: MessagePage, *, deleted: bool = False, limit: int = PAGE_SIZE
) -> Operation[MessagePage]:
    """Read the next page, on the same path and up to the end that the first page had."""
    after = page.until if page.more is None else page.more
    return read_forward(scope, session, after=after, branch=page.branch, until=page.until, limit=limit, deleted=deleted)


def read_backward(
    scope: Scope, session: str, *, before: MessageId | None = None, limit: int = PAGE_SIZE, deleted: bool = False
) -> Operation[MessagePage]:
    """Read the last messages of the active path, or the last ones before a message."""
    if before is not None:
        return read_page(scope, session, parse_page(limit, None, None, before), deleted=deleted)
    limit = check_limit("last", limit)
    deleted = validation.check_flag("deleted", deleted)
    fast = session_ids.is_possible_id(session)
    return Operation(
        _read_last, scope, session, limit, deleted, writes=False,
        fast=LastMessagesRequest(scope.owner, session, limit, deleted) if fast else None, finish=_finish_newest,
    )  # fmt: skip


def read_page(
    scope: Scope, session: str, request: PageRequest, *, branch: int | None = None, deleted: bool = False
) -> Operation[MessagePage]:
    """Read a page of the active path, or of the path of the branch with a key."""
    deleted = validation.check_flag("deleted", deleted)
    return Operation(_read_page, scope, session, request, branch, deleted, writes=False)


def _read_page(
    scope: Scope, session: str, request: PageRequest, branch: int | None, deleted: bool
) -> Steps[MessagePage]:
    current = yield from sessions.find(scope, session)
    branch = current.head if branch is None else branch
    spans = yield from read_path(branch)
    _last_position(session, spans)
    low, high = find_bounds(session, spans, request)
    page: list[Message] = []
    for span in spans if request.backward else reversed(spans):
        remaining = request.limit - len(page)
        part = span._replace(low=max(span.low, low), high=min(span.high, high))
        if remaining > 0 and part.low < part.high:
            page += yield from _read_page_span(scope, part, remaining, request, deleted)
    is_full = bool(page) and len(page) == request.limit
    if request.backward:
        page.reverse()
        return MessagePage(page, branch, high, page[0].position if is_full else None)
    return MessagePage(page, branch, high, page[-1].position if is_full and page[-1].position < high else None)


def _read_page_span(
    scope: Scope, span: PathSpan, limit: int, request: PageRequest, deleted: bool
) -> Steps[list[Message]]:
    since, until = request.after.time, request.before.time
    if since is None and until is None:
        query = MESSAGES_BACKWARD if request.backward else MESSAGES_FORWARD
        return (yield from read_span(scope, query, span, span.low, span.high, limit, deleted))
    rows = yield from fetch_tuples(
        MESSAGES_BACKWARD_BY_TIME if request.backward else MESSAGES_FORWARD_BY_TIME,
        branch=span.branch, low=span.low, high=span.high, limit=limit, deleted=deleted,
        since=-1 if since is None else since, until=validation.MAX_INTEGER if until is None else until,
    )  # fmt: skip
    return (yield from decode_rows(scope, span.number, rows))


def _finish_newest(request: LastMessagesRequest, rows: list[NewestMessageRow]) -> MessagePage | None:
    """Return the page of the last messages; None if other branches hold some of them, or if they refer to blobs."""
    newest = _newest_from_rows(rows, request.limit)
    if newest is None or has_blobs(newest.rows):
        return None
    return _newest_page(newest, messages_from_rows(newest.rows, newest.number), request.limit)


_position_of_tuple = itemgetter(NewestHistoryRow._fields.index("position"))
_rare_of_tuple = itemgetter(NewestHistoryRow._fields.index("rare"))
_row_position = itemgetter(NewestMessageRow._fields.index("position"))
_MESSAGE_COLUMNS = slice(len(MessageRow._fields))  # of a NewestMessageRow; the columns of its branch follow
_BRANCH_COLUMNS = slice(len(MessageRow._fields), None)


class _NewestRows(NamedTuple):
    """The last messages of a session, oldest first, as tuples, with the key, number and end of their branch."""

    rows: list[Row]
    head: int
    number: int
    end: int


def _newest_from_rows(rows: Sequence[Row], limit: int) -> _NewestRows | None:
    """Return the last messages of a session if its head branch contains all of them; otherwise None."""
    if not rows:
        return None
    head, number, end, fork_at = rows[0][_BRANCH_COLUMNS]
    if fork_at and len(rows) < limit:
        return None
    # Sorted, because a join does not promise the order of its rows.
    return _NewestRows([row[_MESSAGE_COLUMNS] for row in sorted(rows, key=_row_position)], head, number, end)


def _newest_page(newest: _NewestRows, messages: list[Message], limit: int) -> MessagePage:
    return MessagePage(messages, newest.head, newest.end, messages[0].position if len(messages) == limit else None)


def _read_last(scope: Scope, session: str, limit: int, deleted: bool) -> Steps[MessagePage]:
    newest_page = yield from read_newest(scope, session, limit, deleted)
    if newest_page is not None:
        return newest_page
    return (yield from _read_page(scope, session, PageRequest(limit=limit, backward=True), None, deleted))


def read_newest(scope: Scope, session: str, limit: int, deleted: bool) -> Steps[MessagePage | None]:
    """Read the last messages of a path if its head branch contains all of them; otherwise return None."""
    if not session_ids.is_possible_id(session):
        return None
    rows = yield from fetch_tuples(MESSAGES_LAST, owner=scope.owner, id=session, limit=limit, deleted=deleted)
    newest = _newest_from_rows(rows, limit)
    if newest is None:
        return None
    return _newest_page(newest, (yield from decode_rows(scope, newest.number, newest.rows)), limit)


def read_newest_columns(scope: Scope, session: str, limit: int) -> Steps[tuple[int, MessageColumns] | None]:
    """Read the last messages of a path as columns, with the key of its head branch.

    Return None if the head branch does not contain all of them, or if one has a state or refers to blobs.
    """
    if not session_ids.is_possible_id(session):
        return None
    rows = yield from fetch_tuples(MESSAGES_LAST_TUPLES, owner=scope.owner, id=session, limit=limit)
    if not rows:
        return None
    *_, head, fork_at = rows[0]
    if fork_at and len(rows) < limit:
        return None
    rows.sort(key=_position_of_tuple)  # a join does not promise the order of its rows
    return None if any(map(_rare_of_tuple, rows)) else (head, columns_from_rows(rows))


def read_span(
    scope: Scope,
    query: Query[MessageRow],
    span: PathSpan,
    low: int,
    high: int,
    limit: int = PAGE_SIZE,
    deleted: bool = False,
) -> Steps[list[Message]]:
    """Read messages of a span, after `low` and up to `high`, in the order of the query."""
    rows = yield from fetch_tuples(query, branch=span.branch, low=low, high=high, limit=limit, deleted=deleted)
    return (yield from decode_rows(scope, span.number, rows))


def decode_rows(scope: Scope, number: int, rows: list[Row]) -> Steps[list[Message]]:
    """Return the messages of rows, with their blob payloads."""
    if has_blobs(rows):
        return (yield from _decode_with_payloads(scope, number, rows))
    return messages_from_rows(rows, number)


class BlobDataRow(NamedTuple):
    """The payload of a blob."""

    data: bytes


BLOB_GET = Query("blob_get", BlobDataRow)


def _decode_with_payloads(scope: Scope, number: int, rows: list[Row]) -> Steps[list[Message]]:
    payloads: dict[str, bytes] = {}
    result: list[Message] = []
    for row in rows:
        names = blob_names(row)
        for name in names or ():
            if name not in payloads:
                blob_row = yield from fetch_one(BLOB_GET, owner=scope.owner, hash=name)
                if blob_row is None:
                    _, position, *_ = row
                    raise _missing_payload_error(f"{number}.{position}", name)
                payloads[name] = blob_row.data
        result.append(message_with_payloads(row, number, None if names is None else payloads))
    return result


def _missing_payload_error(message: str, name: str) -> Corrupted:
    return Corrupted(
        f"Message {message} refers to a payload that is missing from the store ({name}): the database is damaged, or "
        f"another program deleted it. Stop writing to the database and restore a backup.",
        message=message,
        payload=name,
    )


def read_at(scope: Scope, branch: int, number: int, position: int, *, lock: bool = False) -> Steps[Message | None]:
    """Read the message at a position. `lock` locks it until the operation ends."""
    row = yield from fetch_one(MESSAGE_FOR_UPDATE if lock else MESSAGE_GET, branch=branch, position=position)
    return None if row is None else (yield from _decode_with_payloads(scope, number, [row]))[0]


def get(scope: Scope, session: str, name: MessageId | None = None, key: str | None = None) -> Operation[Message]:
    """Read one message, deleted or not, by its id or by the caller's key."""
    if (name is None) == (key is None):
        raise InvalidValue("message() needs either an id or a key.")
    if key is not None:
        return Operation(_get_by_key, scope, session, validation.check_message_key(key), writes=False)
    return Operation(_get, scope, session, name, writes=False)


def _get(scope: Scope, session: str, name: MessageId) -> Steps[Message]:
    current = yield from sessions.find(scope, session)
    return (yield from find_message(scope, session, current, name))[1]


def _get_by_key(scope: Scope, session: str, key: str) -> Steps[Message]:
    from recollect.storage import message_keys  # noqa: PLC0415  only for a key

    current = yield from sessions.find(scope, session)
    span = yield from message_keys.find_in_session(session, current, key)
    message = yield from read_at(scope, span.branch, span.number, span.high)
    assert message is not None
    return message


def find_message(
    scope: Scope, session: str, current: sessions.StoredSession, name: MessageId, *, lock: bool = False
) -> Steps[tuple[PathSpan, Message]]:
    """Read a message by its id, and return it with its span. `lock` locks it until the operation ends."""
    span = yield from find_span(session, current.head, current.session, name)
    message = yield from read_at(scope, span.branch, span.number, span.high, lock=lock)
    if message is None:
        raise MessageNotFound(session=session, message=display_message_id(name))
    return span, message


class CountChange(NamedTuple):
    """The change that a message makes to the counts of the sessions that contain it."""

    messages: int
    tokens: int
    input_tokens: int
    output_tokens: int


class TreeSessionRow(NamedTuple):
    """A session of a tree, with its head branch."""

    session: int
    id: str
    head: int
    deleted_at: int | None


SESSIONS_OF_TREE = Query("sessions_of_tree", TreeSessionRow)


def adjust_counts(scope: Scope, tree: int, branch: int, position: int, change: CountChange) -> Steps[None]:
    """Change the counts of every session whose active path contains a message."""
    yield from adjust_all_counts(scope, tree, [(branch, position, change)])


def adjust_all_counts(scope: Scope, tree: int, changes: Sequence[tuple[int, int, CountChange]]) -> Steps[None]:
    """Change the counts of the sessions whose active path contains some of the messages, each a branch and position."""
    for row in (yield from fetch_all(SESSIONS_OF_TREE, tree=tree)):
        spans = yield from read_path(row.head)
        path_changes = [
            change
            for branch, position, change in changes
            if any(span.branch == branch and span.low < position <= span.high for span in spans)
        ]
        if path_changes:
            total = CountChange(*map(sum, zip(*path_changes, strict=True)))
            yield from execute("session_change", session=row.session, now=scope.now, **total._asdict())


class PathTotals(NamedTuple):
    """The counts of a path."""

    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    last_message_at: int | None


class SpanTotalsRow(NamedTuple):
    """The counts of a span."""

    messages: int
    tokens: int
    input_tokens: int
    output_tokens: int
    last_message_at: int | None


MESSAGES_COUNT = Query("messages_count", SpanTotalsRow)


def count_path(spans: Sequence[PathSpan]) -> Steps[PathTotals]:
    """Count the messages of a path."""
    count = tokens = input_tokens = output_tokens = 0
    newest: int | None = None
    for span in spans:
        if span.low < span.high:
            row = yield from fetch_one(MESSAGES_COUNT, branch=span.branch, low=span.low, high=span.high)
            assert row is not None
            count += row.messages
            tokens += row.tokens
            input_tokens += row.input_tokens
            output_tokens += row.output_tokens
            newest = row.last_message_at if newest is None else newest
    return PathTotals(count, tokens, input_tokens, output_tokens, newest)


class PathRange(NamedTuple):
    """Positions of a session's active path: after `after`, up to `until`.

    `deleted_at` identifies the session together with its id: a session in the trash can have the id of a live one.
    """

    id: str
    deleted_at: int | None = None
    after: int = 0
    until: int = LAST_POSITION


def count_shown_of_sessions(scope: Scope, sessions_or_ids: Sequence[Any]) -> Plan[list[int]]:
    """Count the messages of each session's active path that are not tool steps, in the order of the sessions.

    A session is a handle, a value or the id of a live session. A missing session counts 0.
    """
    if isinstance(sessions_or_ids, str | bytes) or not isinstance(sessions_or_ids, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"sessions must be a list of sessions or ids, got {format_value(sessions_or_ids)}.")
    return _count_shown_in_batches(scope, [_whole_range(session) for session in sessions_or_ids])


def _whole_range(session: Any) -> PathRange:
    if isinstance(session, str):
        return PathRange(validation.check_string("session id", session))
    try:
        info: SessionInfo = session if isinstance(session, SessionInfo) else session.info
        id, deleted_at = info.id, info.deleted_at_ms
    except Exception as error:
        raise InvalidValue(f"sessions must hold sessions or ids, got {format_value(session)}.") from error
    return PathRange(validation.check_string("session id", id), deleted_at)


def _count_shown_in_batches(scope: Scope, ranges: Sequence[PathRange]) -> Plan[list[int]]:
    counts: list[int] = []
    for start in range(0, len(ranges), _COUNT_BATCH):
        counts += yield count_shown(scope, ranges[start : start + _COUNT_BATCH])
    return counts


def count_shown_of_ranges(scope: Scope, session: str, ranges: Sequence[tuple[int, int | None]]) -> Operation[list[int]]:
    """Count the messages of position ranges of a session's active path that are not tool steps.

    Each range is a pair: after a position, and up to one; None is the end. Raise SessionNotFound if the session is
    missing.
    """
    if isinstance(ranges, str | bytes) or not isinstance(ranges, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"ranges must be a list of pairs of positions, got {format_value(ranges)}.")
    path_ranges = [_check_range(session, item) for item in ranges]
    return Operation(_count_shown_of_ranges, scope, session, path_ranges, writes=False)


def _check_range(session: str, item: Any) -> PathRange:
    match item:
        case (int(after), int() | None as until) if after >= 0 and (until is None or until >= 0):
            return PathRange(session, None, after, LAST_POSITION if until is None else min(until, LAST_POSITION))
        case _:
            raise InvalidValue(
                f"A range must be a pair of positions (after, until), until may be None, got {format_value(item)}."
            )


def _count_shown_of_ranges(scope: Scope, session: str, ranges: Sequence[PathRange]) -> Steps[list[int]]:
    yield from sessions.find(scope, session)
    counts: list[int] = []
    for start in range(0, len(ranges), _COUNT_BATCH):
        counts += yield from _count_shown(scope, ranges[start : start + _COUNT_BATCH])
    return counts


class ShownCountRow(NamedTuple):
    """The number of messages of a path range, on one of its branches."""

    range_number: int
    messages: int


class BranchShownRow(NamedTuple):
    """The number of messages of a branch."""

    number: int
    messages: int


MESSAGES_SHOWN = Query("messages_shown", ShownCountRow)
MESSAGES_SHOWN_BY_BRANCH = Query("messages_shown_by_branch", BranchShownRow)


def count_shown(scope: Scope, ranges: Sequence[PathRange]) -> Operation[list[int]]:
    """Count the messages of path ranges that are not tool steps, in one statement. Pass at most a page of ranges."""
    return Operation(_count_shown, scope, ranges, writes=False)


def _count_shown(scope: Scope, ranges: Sequence[PathRange]) -> Steps[list[int]]:
    counts = [0] * len(ranges)
    indexes = [index for index, item in enumerate(ranges) if session_ids.is_possible_id(item.id)]
    text = json.encode([ranges[index]._replace(id=json.escape_nul(ranges[index].id)) for index in indexes])
    for row in (yield from fetch_all(MESSAGES_SHOWN, owner=scope.owner, ranges=text)):
        counts[indexes[row.range_number]] += row.messages
    return counts


def count_shown_by_branch(scope: Scope, session: str) -> Operation[dict[int, int]]:
    """Count the messages of each branch of a session that are not tool steps, without the shared past."""
    return Operation(_count_shown_by_branch, scope, session, writes=False)


def _count_shown_by_branch(scope: Scope, session: str) -> Steps[dict[int, int]]:
    current = yield from sessions.find(scope, session)
    rows = yield from fetch_all(MESSAGES_SHOWN_BY_BRANCH, session=current.session)
    return {row.number: row.messages for row in rows}
