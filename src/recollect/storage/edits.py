"""Edits of stored messages: replace the content, change the metadata, pin, and delete several at once.

A message is shared with forks, so an edit is visible in each of them. Replacing keeps the former content as a version,
unless it is erased. The rows that derive from a message, such as tool calls, pins and counts, change with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from recollect.errors import Conflict, InvalidValue, MessageNotFound, StaleRevision, format_value
from recollect.model import json, validation
from recollect.model.message import Draft, Message
from recollect.model.session import SessionInfo
from recollect.storage import appends, call_edits, message_keys, messages, originals, paths, search, sessions
from recollect.storage.messages import CountChange
from recollect.storage.operation import (
    Deletion,
    Operation,
    Query,
    Row,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_all,
    fetch_one,
)
from recollect.storage.row_stream import MESSAGE_ROW, VERSIONS_OF_SPAN, FullMessageRow, FullVersionRow
from recollect.storage.search.index import UNFINISHED

_OPEN_STATES = ("pending", "streaming")


class SelectedMessageRow(NamedTuple):
    """The tokens of a message, and whether it is deleted."""

    position: int
    is_deleted: bool
    tokens: int
    input_tokens: int | None
    output_tokens: int | None


_MESSAGES_SELECTED = Query("messages_selected", SelectedMessageRow)


class MessageUsage(NamedTuple):
    """The usage of a message; None does not change it."""

    input_tokens: int | None
    output_tokens: int | None


_SAME_USAGE = MessageUsage(None, None)


def mark(
    scope: Scope,
    session: str,
    name: paths.MessageId,
    metadata: Mapping[str, Any],
    expected: int | None = None,
    usage: MessageUsage = _SAME_USAGE,
) -> Operation[Message]:
    """Merge keys into the metadata of a message and set its usage, in every fork that shares it. None removes a key.

    Raise StaleRevision if the revision of the session is not `expected`.
    """
    validation.check_integer("expected", expected)
    for field, number in usage._asdict().items():
        validation.check_integer(field, number)
    marks = json.to_json_data(metadata, "metadata")
    if not isinstance(marks, dict):
        raise InvalidValue(f"metadata must be a dict, got {format_value(metadata)}.")
    json.encode(marks)  # raises InvalidValue for what JSON cannot hold, before the transaction
    return Operation(_mark, scope, session, name, marks, usage, expected)


def _mark(
    scope: Scope,
    session: str,
    name: paths.MessageId,
    marks: Mapping[str, Any],
    usage: MessageUsage,
    expected: int | None,
) -> Steps[Message]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    span, message = yield from messages.find_message(scope, session, current, name, lock=True)
    if marks:
        message = yield from _merge_metadata(scope, current, span, message, marks)
    return (yield from _set_usage(scope, current, span, message, usage))


def _set_usage(
    scope: Scope, current: sessions.StoredSession, span: paths.PathSpan, message: Message, usage: MessageUsage
) -> Steps[Message]:
    """Write the usage of a message, and change the counts of the sessions that contain it."""
    old = MessageUsage(message.input_tokens, message.output_tokens)
    new = MessageUsage(*(before if after is None else after for before, after in zip(old, usage, strict=True)))
    if new == old:
        return message
    yield from execute("message_set_usage", branch=span.branch, position=span.high, **new._asdict())
    change = CountChange(0, 0, *((after or 0) - (before or 0) for before, after in zip(old, new, strict=True)))
    if message.deleted_at_ms is not None:
        change = CountChange(0, 0, 0, 0)
    yield from messages.adjust_counts(scope, current.tree, span.branch, span.high, change)
    return msgspec.structs.replace(message, **new._asdict())


def _merge_metadata(
    scope: Scope, current: sessions.StoredSession, span: paths.PathSpan, message: Message, marks: Mapping[str, Any]
) -> Steps[Message]:
    """Write the metadata of a message with some keys changed, and its pin."""
    fields = {**(message.metadata or {}), **marks}
    metadata = {key: value for key, value in fields.items() if key not in marks or value is not None} or None
    text = _encode_metadata(metadata)
    if text == _encode_metadata(message.metadata):  # as text: True equals 1 in Python
        return message
    yield from execute("message_set_metadata", branch=span.branch, position=span.high, metadata=text)
    marked_message = msgspec.structs.replace(message, metadata=metadata)
    yield from write_pin(span.branch, span.high, marked_message.role, pinned=marked_message.pinned)
    yield from messages.adjust_counts(scope, current.tree, span.branch, span.high, CountChange(0, 0, 0, 0))
    return marked_message


def _encode_metadata(metadata: Mapping[str, Any] | None) -> str | None:
    return None if metadata is None else json.encode(metadata)


def write_pin(branch: int, position: int, role: str, *, pinned: bool) -> Steps[None]:
    """Record whether a message is in every history: if it is pinned, or a system message."""
    if pinned or role == "system":
        yield from execute_many("pin_insert", [(branch, position)])
    else:
        yield from execute("pin_delete", branch=branch, position=position)


def replace(
    scope: Scope, session: str, name: paths.MessageId, draft: Draft, *, erase: bool, expected: int | None
) -> Operation[Message]:
    """Replace the content of a message, in every fork that shares it.

    With `erase`, the former content and all earlier versions are erased; otherwise it becomes an earlier version.
    """
    validation.check_integer("expected", expected)
    item = messages.encode_draft(draft, scope.now)
    return Operation(
        _replace, scope, session, name, item, erase, expected,
        deletion=Deletion.CONTENT if erase else Deletion.NOTHING, removes_from_index=True,
    )  # fmt: skip


def _replace(
    scope: Scope, session: str, name: paths.MessageId, item: messages.EncodedDraft, erase: bool, expected: int | None
) -> Steps[Message]:
    current = yield from sessions.find(scope, session)
    if expected is not None and current.value.revision != expected:
        raise StaleRevision(session=session, revision=current.value.revision, expected=expected)
    yield from fetch_all(messages.SESSIONS_OF_TREE, tree=current.tree)  # locked: forks share the message and its calls
    span, message = yield from messages.find_message(scope, session, current, name, lock=True)
    yield from _check_replaceable(session, span, message, item.draft)
    row = yield from fetch_one(MESSAGE_ROW, branch=span.branch, position=span.high)
    assert row is not None
    columns = _replaced_columns(scope, item, message)
    content = NewContent(columns, item.draft.parts, columns["edited_at"])
    if not erase and all(getattr(row, key) == value for key, value in columns.items() if key not in _TIMES):
        return message
    for name_, payload in item.payloads.items():
        yield from appends.store_blob(scope, name_, payload)
    yield from write_content(scope, span.branch, row, message, content, former="erased" if erase else "version")
    if erase:
        yield from originals.drop_originals(scope, current.tree)
    change = CountChange(0, 0, 0, 0)
    if message.deleted_at_ms is None:
        names = ("tokens", "input_tokens", "output_tokens")
        change = CountChange(0, *((columns[key] or 0) - (getattr(row, key) or 0) for key in names))
    yield from messages.adjust_counts(scope, current.tree, span.branch, span.high, change)
    replaced_message = yield from messages.read_at(scope, span.branch, span.number, span.high)
    assert replaced_message is not None
    return replaced_message


def _check_replaceable(session: str, span: paths.PathSpan, message: Message, draft: Draft) -> Steps[None]:
    """Raise InvalidValue for another key, and Conflict while a turn writes the message."""
    if draft.key not in (None, message.key):
        raise InvalidValue(
            f"The key of the new content must be None or the key of message {message.id}, {format_value(message.key)}, "
            f"got {format_value(draft.key)}."
        )
    if message.state in _OPEN_STATES and (
        (yield from fetch_one(UNFINISHED, branch=span.branch, position=span.high)) is not None
    ):
        raise Conflict(
            f"Message {message.id} of session {format_value(session)} is {message.state}: a turn still writes it. "
            f"Nothing was written. Replace it after the turn has ended."
        )


def _replaced_columns(scope: Scope, item: messages.EncodedDraft, message: Message) -> dict[str, Any]:
    """Return the columns of the new content; the model, usage and metadata stay if the draft does not state them."""
    columns: dict[str, Any] = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
    del columns["created_at"]
    for name in ("model", "input_tokens", "output_tokens"):
        if columns[name] is None:
            columns[name] = getattr(message, name)
    if columns["metadata"] is None:
        columns["metadata"] = _encode_metadata(message.metadata)
    completes = message.state in _OPEN_STATES and item.draft.state not in _OPEN_STATES
    columns["completed_at"] = scope.now if completes else None  # the column keeps a time that it has
    columns["edited_at"] = next_edit(scope, message)
    return columns


def next_edit(scope: Scope, message: Message) -> int:
    """Return the time of a new edit of a message, later than the previous one, so that an import can order them."""
    return max(scope.now, (message.edited_at_ms or 0) + 1)


_TIMES = ("completed_at", "edited_at")


class NewContent(NamedTuple):
    """The new content of a message: the columns of message_replace, the parts, and the time of the replacement."""

    columns: Mapping[str, Any]
    parts: messages.MessageParts
    replaced_at: int


FormerContent = Literal["version", "erased", "dropped"]


def write_content(
    scope: Scope, branch: int, row: FullMessageRow, message: Message, content: NewContent, *, former: FormerContent
) -> Steps[None]:
    """Replace the content of a message with what derives from it, except blobs of the new content and counts.

    `row` and `message` are the message before. The sessions of its tree must be locked. The former content becomes an
    earlier version, is erased with all earlier versions, or is dropped, because its tool has replaced it too.
    """
    columns, position = content.columns, row.position
    calls = yield from call_edits.plan_rewrite(branch, position, message.parts, content.parts, message.created_at_ms)
    for result_branch, result in ((branch, position), *calls.renamed_results):
        yield from search.invalidate_message(scope, result_branch, result)
    blob_names: list[str] = []
    if former == "dropped":
        blob_names = row.blob_names
    elif former == "erased":
        versions = yield from fetch_all(VERSIONS_OF_SPAN, branch=branch, low=position - 1, high=position)
        blob_names = [name for item in (row, *versions) for name in item.blob_names]
        yield from execute("message_versions_delete", branch=branch, position=position)
    else:
        yield from execute("message_version_add", branch=branch, position=position, now=content.replaced_at)
    yield from execute("message_replace", branch=branch, position=position, **columns)
    yield from call_edits.write_rewrite(branch, position, calls)
    metadata = None if columns["metadata"] is None else json.decode(columns["metadata"])
    pinned = isinstance(metadata, dict) and metadata.get("pinned") is True
    yield from write_pin(branch, position, columns["role"], pinned=pinned)
    yield from release_blobs(scope, blob_names)


def release_blobs(scope: Scope, names: Sequence[str]) -> Steps[None]:
    """Remove a reference to each blob, and delete those that nothing refers to."""
    keys = [(scope.owner, name) for name in names]
    yield from execute_many("blob_release", keys)
    yield from execute_many("blob_delete_unused", keys)


def read_versions(scope: Scope, session: str, name: paths.MessageId) -> Operation[list[Message]]:
    """Read the earlier versions of a message, the oldest first."""
    return Operation(_read_versions, scope, session, name, writes=False)


def _read_versions(scope: Scope, session: str, name: paths.MessageId) -> Steps[list[Message]]:
    current = yield from sessions.find(scope, session)
    span, message = yield from messages.find_message(scope, session, current, name)
    versions = yield from fetch_all(VERSIONS_OF_SPAN, branch=span.branch, low=span.high - 1, high=span.high)
    return (yield from decode_versions(scope, message, versions))


def decode_versions(scope: Scope, message: Message, versions: Sequence[FullVersionRow]) -> Steps[list[Message]]:
    """Return consecutive versions of a message, the oldest first, as messages with its id and key."""
    rows: list[Row] = [version_row(version, message.created_at_ms) for version in versions]
    old_messages = yield from messages.decode_rows(scope, message.branch, rows)
    edit_times = [None, *(version.replaced_at for version in versions)]
    return [
        msgspec.structs.replace(
            old, turn=message.turn, deleted_at_ms=message.deleted_at_ms, key=message.key, edited_at_ms=edit_time
        )
        for old, edit_time in zip(old_messages, edit_times, strict=False)
    ]


def version_row(version: FullVersionRow, created_at: int = 0) -> messages.MessageRow:
    """Return a version as the row of a message."""
    rare = (version.state, version.completed_at, None, version.error, version.metadata, version.blobs, None, None)
    return messages.MessageRow(
        version.parts.encode(), version.position, version.role, created_at, None, version.tokens, version.format,
        version.model, version.input_tokens, version.output_tokens, version.native, json.encode(rare),
    )  # fmt: skip


class DeletionChange(NamedTuple):
    """The ids of the messages that an operation deleted or restored, and the session after it."""

    ids: list[str]
    session: SessionInfo


def delete(
    scope: Scope, session: str, names: Iterable[paths.MessageId], expected: int | None = None
) -> Operation[DeletionChange]:
    """Mark messages as deleted, all or none, and return the ids of those that were not deleted before.

    Raise StaleRevision if the revision of the session is not `expected`.
    """
    validation.check_integer("expected", expected)
    return Operation(_delete, scope, session, validation.check_items("ids", names), expected)


def _delete(
    scope: Scope, session: str, names: Sequence[paths.MessageId], expected: int | None
) -> Steps[DeletionChange]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    yield from fetch_all(messages.SESSIONS_OF_TREE, tree=current.tree)  # locked: nobody else deletes one of them
    spans = yield from paths.find_spans(session, current.head, current.session, names)
    positions: dict[int, list[int]] = {}
    for span in spans:
        positions.setdefault(span.branch, []).append(span.high)
    changes: dict[tuple[int, int], CountChange] = {}
    places: set[tuple[int, int]] = set()
    for branch, branch_positions in positions.items():
        text = json.encode(sorted(set(branch_positions)))
        for row in (yield from fetch_all(_MESSAGES_SELECTED, branch=branch, positions=text)):
            places.add((branch, row.position))
            if not row.is_deleted:
                changes[branch, row.position] = _deletion_change(row.tokens, row.input_tokens, row.output_tokens)
    for span, name in zip(spans, names, strict=True):
        if (span.branch, span.high) not in places:
            raise MessageNotFound(session=session, message=paths.display_message_id(name))
    yield from _mark_deleted(scope, current.tree, changes)
    ids = {(span.branch, span.high): f"{span.number}.{span.high}" for span in spans}
    return (yield from _deletion_result(current, [id for place, id in ids.items() if place in changes]))


def _deletion_result(current: sessions.StoredSession, ids: list[str]) -> Steps[DeletionChange]:
    value = (yield from sessions.read_by_key(current.session)).value if ids else current.value
    return DeletionChange(ids, value)


def restore(
    scope: Scope, session: str, names: Iterable[paths.MessageId], expected: int | None = None
) -> Operation[DeletionChange]:
    """Restore deleted messages, all or none, and return the ids of those that were deleted before.

    Raise KeyReused if another message has the key of one of them, and StaleRevision as delete() does.
    """
    validation.check_integer("expected", expected)
    return Operation(_restore, scope, session, validation.check_items("ids", names), expected)


def _restore(
    scope: Scope, session: str, names: Sequence[paths.MessageId], expected: int | None
) -> Steps[DeletionChange]:
    current = yield from sessions.find(scope, session)
    sessions.check_revision(current, expected)
    yield from fetch_all(messages.SESSIONS_OF_TREE, tree=current.tree)  # locked: a fork could add one of their keys
    changes: dict[tuple[int, int], CountChange] = {}
    ids: list[str] = []
    for name in names:
        span, message = yield from messages.find_message(scope, session, current, name, lock=True)
        if message.deleted_at is None:  # also one that `names` contains twice
            continue
        if message.key is not None:
            yield from message_keys.check_free(session, current.tree, span.branch, span.high, message.key)
        yield from execute("message_mark_deleted", branch=span.branch, position=span.high, deleted_at=None)
        changes[span.branch, span.high] = CountChange(
            1, message.tokens, message.input_tokens or 0, message.output_tokens or 0
        )
        ids.append(message.id)
    yield from _change_counts(scope, current.tree, changes)
    return (yield from _deletion_result(current, ids))


def _deletion_change(tokens: int, input_tokens: int | None, output_tokens: int | None) -> CountChange:
    return CountChange(-1, -tokens, -(input_tokens or 0), -(output_tokens or 0))


def _mark_deleted(scope: Scope, tree: int, changes: Mapping[tuple[int, int], CountChange]) -> Steps[None]:
    """Mark messages as deleted, each a branch and a position, and change the counts of the sessions that share them."""
    for branch, position in changes:
        yield from execute("message_mark_deleted", branch=branch, position=position, deleted_at=scope.now)
    yield from _change_counts(scope, tree, changes)


def _change_counts(scope: Scope, tree: int, changes: Mapping[tuple[int, int], CountChange]) -> Steps[None]:
    """Change the counts of the sessions that share messages, each a branch and a position."""
    if changes:
        count_changes = [(branch, position, change) for (branch, position), change in changes.items()]
        yield from messages.adjust_all_counts(scope, tree, count_changes)


def pop(scope: Scope, session: str, count: int) -> Operation[list[Message]]:
    """Mark the last messages of the active path as deleted, and return them, the newest last."""
    if type(count) is not int or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"n must be a positive integer, got {format_value(count)}.")
    return Operation(_pop, scope, session, min(count, paths.LAST_POSITION))


def _pop(scope: Scope, session: str, count: int) -> Steps[list[Message]]:
    current = yield from sessions.find(scope, session)
    yield from fetch_all(
        messages.SESSIONS_OF_TREE, tree=current.tree
    )  # locked: forks may pop the messages that they share
    page_messages: list[Message] = []
    changes: dict[tuple[int, int], CountChange] = {}
    for span in (yield from paths.read_path(current.head)):
        remaining = count - len(page_messages)
        if remaining and span.low < span.high:
            page = yield from messages.read_span(
                scope, messages.MESSAGES_BACKWARD, span, span.low, span.high, remaining
            )
            page_messages += page
            changes |= {
                (span.branch, item.position): _deletion_change(item.tokens, item.input_tokens, item.output_tokens)
                for item in page
            }
    yield from _mark_deleted(scope, current.tree, changes)
    return [msgspec.structs.replace(message, deleted_at_ms=scope.now) for message in reversed(page_messages)]
