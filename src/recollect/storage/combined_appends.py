"""Combined appends: messages that follow any message of a session, and changes of its fields, in one transaction.

They replace the end of the active path, or all of it, and the earlier messages stay on their branch. Readers and
watches see one change: only the last statement that changes the session raises its revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.model import validation
from recollect.model.message import Draft
from recollect.model.session import FLAG_FIELDS, SessionInfo
from recollect.storage import appends, branches, messages, paths, sessions
from recollect.storage.appends import Appended
from recollect.storage.labels import LabelChange, split_fields
from recollect.storage.message_keys import KeyedBatch, has_keys, split_batch
from recollect.storage.operation import Operation, Scope, Steps, fetch_one


class _SessionChange(NamedTuple):
    """What a combined append changes besides the messages that it adds.

    `digest_text` is part of the digest of an idempotency key. It is equal for equal arguments, and empty if nothing
    changes.
    """

    after: paths.MessageId | None
    columns: dict[str, Any]
    labels: LabelChange | None
    digest_text: str


def append_and_update(
    scope: Scope,
    session: str,
    drafts: Sequence[Draft],
    *,
    key: str | None = None,
    expected: int | None = None,
    after: paths.MessageId | None = None,
    update: Mapping[str, Any] | None = None,
) -> Operation[tuple[Appended, SessionInfo]]:
    """Append messages after a message of the session, and change fields of the session with them, all or nothing.

    - `after`: the last message before them, on any branch; 0 is the beginning, None the end of the active path. The
      branch that ends with it becomes the head, as in branches.rewind().
    - `update`: fields, as in sessions.update().

    Without messages, only the rest changes. Nothing but a repeated key is accepted if the revision is not `expected`.
    """
    if not drafts and after is None and update is None:
        raise InvalidValue("append() needs a message, a list of messages, after= or update=, got none of them.")
    appends.check_key(key)
    validation.check_integer("expected", expected)
    records = [messages.encode_draft(draft, scope.now) for draft in drafts]
    change = _session_change(scope, after, update)
    # It may add a branch to the tree, which other sessions share, so it gets a transaction of its own.
    return Operation(_append_and_update, scope, session, records, key, expected, change)


def _session_change(scope: Scope, after: paths.MessageId | None, update: Mapping[str, Any] | None) -> _SessionChange:
    place = None if after is None else paths.parse_message_id(after)
    fields, label_change = ({}, None) if update is None else split_fields(_check_fields(update))
    columns = sessions.columns_of(fields, scope.now)
    if after is None and not columns and label_change is None:
        return _SessionChange(None, columns, None, "")
    # The time of a flag varies between repetitions of an append; whether it is set does not.
    flags = {column: columns[column] is not None for column in FLAG_FIELDS.values() if column in columns}
    described_change = [place, sorted({**columns, **flags}.items()), *map(sorted, label_change or ())]
    return _SessionChange(after, columns, label_change, repr(described_change))


def _check_fields(update: Any) -> dict[str, Any]:
    """Return the fields of a dict, whose class may override its methods, with names that are plain strings."""
    if not isinstance(update, dict):
        raise InvalidValue(f"update must be a dict of session fields or None, got {format_value(update)}.")
    items = dict.items(cast("dict[Any, Any]", update))
    return {validation.check_string("A field name in update", name): value for name, value in items}


def _append_and_update(
    scope: Scope,
    session: str,
    records: list[messages.EncodedDraft],
    key: str | None,
    expected: int | None,
    change: _SessionChange,
) -> Steps[tuple[Appended, SessionInfo]]:
    current = yield from sessions.find(scope, session)
    if key is not None:
        earlier = yield from appends.find_earlier_append(scope, session, key, records, change.digest_text)
        if earlier is not None:
            return earlier.appended, current.value
    sessions.check_revision(current, expected)
    batch, result = yield from _apply(scope, current, records, change)
    if key is not None:
        yield from appends.store_key(scope, result, key, records, len(batch.new), change.digest_text)
    info = (yield from sessions.read_by_key(current.session)).value
    if not records:
        return Appended(result.branch, result.first, 0, info.revision), info
    return msgspec.structs.replace(appends.appended_batch(batch, result), revision=info.revision), info


def _apply(
    scope: Scope, current: sessions.StoredSession, records: list[messages.EncodedDraft], change: _SessionChange
) -> Steps[tuple[KeyedBatch, appends.WrittenMessages]]:
    """Switch to the branch that the messages follow, change the fields, and append the new messages.

    Messages whose keys are on the path of that branch are stored already.
    """
    session, branch = current.value.id, current.head
    columns = change.columns
    if change.labels is not None:
        columns = columns | change.labels.columns(current.value)
    if change.after is not None:
        # A program may replace all messages in every turn, and so make thousands of branches.
        branch = yield from branches.make_branch_ending_at(scope, current, change.after, reuses_empty=not records)
    batch = KeyedBatch(records, {})
    if has_keys(records):
        batch = yield from split_batch(session, branch, records)
    if branch != current.head:
        is_last = not (columns or batch.new)
        yield from branches.switch_head(scope, current, branch, activity=not batch.new, raises_revision=is_last)
    if columns:
        yield from sessions.update_columns(scope, session, columns, None, raises_revision=not batch.new)
    if batch.new:
        return batch, (yield from appends.append_to_head(scope, session, batch.new))
    row = yield from fetch_one(paths.BRANCH_GET, branch=branch)
    assert row is not None
    counts = sessions.counts_of(current.value)
    result = appends.WrittenMessages(current.session, branch, row.number, row.last + 1, current.open_turns, counts)
    return batch, result
