"""Edits in an import: replaced content, earlier versions, metadata and keys of messages that the store may have.

The content of a message follows the file if it was edited later there and the session has a higher revision there, as
for deletion marks; the former content becomes an earlier version. Keys stay unique on each path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from recollect.errors import KeyReused, format_value
from recollect.model import json
from recollect.storage import edits, message_keys, messages
from recollect.storage.operation import Scope, Steps, execute, execute_many, fetch_all
from recollect.storage.row_stream import VERSIONS_OF_SPAN, FullMessageRow, FullVersionRow

if TYPE_CHECKING:
    from recollect.storage.transfer import RowBatch


def compare_edits(
    old_row: FullMessageRow, row: FullMessageRow, *, renew: bool
) -> Literal["further", "behind", "differs"] | None:
    """Compare the edit times of a message in a file with the stored one; None if they do not explain a difference."""
    before, after = old_row.edited_at or 0, row.edited_at or 0
    if before == after or old_row.created_at != row.created_at:
        return None
    if after < before:
        return "behind"
    return "further" if renew else "differs"


def new_versions(batch: RowBatch, present: dict[int, FullMessageRow]) -> Steps[list[FullVersionRow]]:
    """Return the versions that the store lacks, of messages that it lacks or has in the same or an older state."""
    if not batch.versions:
        return []
    positions = [row.position for row in batch.versions]
    span = {"branch": batch.branch, "low": min(positions) - 1, "high": max(positions)}
    numbers = {(row.position, row.version) for row in (yield from fetch_all(VERSIONS_OF_SPAN, **span))}
    edit_times = {row.position: row.edited_at or 0 for row in batch.messages}
    versions = {(row.position, row.version): row for row in batch.versions}
    return [
        row
        for number, row in versions.items()
        if number not in numbers
        # The message is newer in the store if its former content was erased there.
        and (row.position not in present or (present[row.position].edited_at or 0) <= edit_times.get(row.position, -1))
    ]


def write_versions(branch: int, versions: Sequence[FullVersionRow]) -> Steps[None]:
    """Write versions that do not exist, without counting the references to their blobs."""
    yield from execute_many("message_version_insert", [(branch, *row) for row in versions])


def replace_content(
    scope: Scope, tree: int, batch: RowBatch, old_row: FullMessageRow, row: FullMessageRow
) -> Steps[None]:
    """Replace the content of a message by a later edit; its blobs are stored already, and counts do not change."""
    yield from fetch_all(messages.SESSIONS_OF_TREE, tree=tree)  # locked, as write_content() requires
    old_message = yield from messages.read_at(scope, batch.branch, batch.number, row.position)
    assert old_message is not None
    rare = (row.state, row.completed_at, None, row.error, row.metadata, row.blobs, None, None)
    columns = (
        row.parts.encode(), row.position, row.role, row.created_at, row.turn, row.tokens, row.format, row.model,
        row.input_tokens, row.output_tokens, row.native, json.encode(rare),
    )  # fmt: skip
    new_message = (yield from messages.decode_rows(scope, batch.number, [columns]))[0]
    versions = yield from fetch_all(VERSIONS_OF_SPAN, branch=batch.branch, low=row.position - 1, high=row.position)
    number = versions[-1].version + 1 if versions else 1
    times = {item.version: item.replaced_at for item in batch.versions if item.position == row.position}
    content = edits.NewContent(
        {name: getattr(row, name) for name in (*messages.MESSAGE_COLUMNS, "edited_at") if name != "created_at"},
        new_message.parts,
        times.get(number, row.edited_at or 0),
    )
    yield from edits.write_content(scope, batch.branch, old_row, old_message, content, former="version")


def write_marks(batch: RowBatch, row: FullMessageRow) -> Steps[None]:
    """Write the metadata of a message whose content is the same, and its pin."""
    yield from execute("message_set_metadata", branch=batch.branch, position=row.position, metadata=row.metadata)
    metadata = None if row.metadata is None else json.decode(row.metadata)
    pinned = isinstance(metadata, dict) and metadata.get("pinned") is True
    yield from edits.write_pin(batch.branch, row.position, row.role, pinned=pinned)


def find_key_conflict(batch: RowBatch, rows: Sequence[FullMessageRow]) -> Steps[str | None]:
    """Return a sentence if one of these new messages has the key of another message of its path, or None."""
    keys = {row.client_key for row in rows if row.client_key is not None and row.deleted_at is None}
    duplicate = yield from message_keys.find_duplicate(batch.branch, sorted(keys))
    if duplicate is None:
        return None
    ids = " and ".join(row.id for row in sorted(duplicate, key=lambda row: row.position))
    return f"Messages {ids} would have the same key on one path, {format_value(duplicate[0].client_key)}."


def check_restored_key(tree: int, batch: RowBatch, row: FullMessageRow) -> Steps[str | None]:
    """Return a sentence if a message whose deletion mark was removed has the key of another message, or None."""
    if row.client_key is None or row.deleted_at is not None:
        return None
    try:
        yield from message_keys.check_free("", tree, batch.branch, row.position, row.client_key)
    except KeyReused as error:
        ids = f"{batch.number}.{row.position} and {error.fields['message']}"
        return f"Messages {ids} would have the same key on one path, {format_value(row.client_key)}."
    return None
