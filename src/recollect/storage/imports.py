"""Imports of conversations from other tools: messages by the keys of their tool, in a tree, as its transcript grows.

An import names each message by the key of its tool, and the message before it by that one's key. So the same
batch can be imported again, and a batch continues where the previous one ended. Messages that the store has are
compared and written again if the tool changed them; new ones are appended to the branch that ends with their
predecessor, or to a new branch. A branch that was continued in Recollect does not end with the predecessor any
more, so nothing is overwritten.

A batch and the records that describe how far the transcript was read are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, NamedTuple

from recollect.model import json, session_ids
from recollect.model.message import Draft, TextPart
from recollect.model.session import FLAG_FIELDS
from recollect.model.tokens import estimate_tokens
from recollect.storage import (
    appends,
    branches,
    edits,
    message_keys,
    messages,
    originals,
    paths,
    records,
    relations,
    row_stream,
    sessions,
    transfer,
)
from recollect.storage.fast_paths import encode_keys
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, fetch_all, fetch_one
from recollect.storage.originals import FILE_KIND, IMPORT_KIND, LINK_KIND, TOMBSTONE_KIND
from recollect.storage.row_stream import MESSAGE_ROW, FullMessageRow

FIELDS_KEY = "fields"
"""The key of the import record that holds what imports wrote to the fields of the session."""

_COMPARED_COLUMNS = (
    "role", "state", "input_tokens", "output_tokens", "format", "model", "error", "metadata", "native", "parts",
)  # fmt: skip


class KeyPositionRow(NamedTuple):
    """A message of a tree with its key."""

    client_key: str
    branch: int
    position: int


_MESSAGES_WITH_KEYS = Query("messages_with_keys", KeyPositionRow)


class ImportedMessage(NamedTuple):
    """A message of a transcript; its draft has a key. `parent` is the key of the message before it."""

    draft: Draft
    parent: str | None


class ImportedCompaction(NamedTuple):
    """A summary of the messages up to the one with the key `last`, and from the one with the key `first`."""

    last: str
    first: str | None
    summary: str
    created_at: int


class ImportedRecord(NamedTuple):
    """A record of the session that the import writes, with JSON text or bytes."""

    kind: str
    key: str
    text: str | None = None
    data: bytes | None = None


class ImportBatch(NamedTuple):
    """Messages and fields of one conversation."""

    session: str
    fields: Mapping[str, Any] = {}
    """Fields of the session, as update() takes them. One that was changed in Recollect since its import stays."""
    title_rank: int = 0
    """A title replaces one of the same rank or a lower one."""
    created_at: int | None = None
    updated_at: int | None = None
    origin: tuple[str, str] | None = None
    """For a conversation that shares the beginning of another one: its session id, and the key of the last message."""
    parent: str | None = None
    """The session id of the conversation that started this one as a sub-agent. If it was deleted, so is this one."""
    messages: Sequence[ImportedMessage] = ()
    compactions: Sequence[ImportedCompaction] = ()
    active: str | None = None
    """The key of the message with which the active path ends, unless the conversation was continued in Recollect."""
    records: Sequence[ImportedRecord] = ()
    obsolete: Sequence[str] = ()
    """Beginnings of the keys of original bytes that the records replace."""
    files: Sequence[tuple[str, str]] = ()
    """The keys and JSON texts of records of the store about the files."""
    again: bool = False
    """Whether a deleted or erased conversation is imported again."""


class ImportCounts(NamedTuple):
    """What a batch changed."""

    outcome: Literal["new", "updated", "unchanged", "deleted"]
    """Deleted: it was deleted in Recollect before, and nothing was written."""
    new_messages: int = 0
    updated_messages: int = 0
    is_shared: bool = True
    """Whether the session was created as a fork, if the batch has an origin."""


def import_batch(scope: Scope, batch: ImportBatch) -> Operation[ImportCounts]:
    """Write a batch of a conversation."""
    encoded = {item.draft.key: messages.encode_draft(item.draft, scope.now) for item in batch.messages}
    assert None not in encoded, "every message of an import has a key"
    return Operation(_import_batch, scope, batch, encoded, removes_from_index=True)


def import_in_steps(scope: Scope, batch: ImportBatch, encoded: dict[str, messages.EncodedDraft]) -> Steps[ImportCounts]:
    """Write a batch as part of another operation, after looking for the past that a new conversation shares."""
    if batch.origin is None and batch.messages:
        batch = batch._replace(origin=(yield from _find_shared_past(scope, batch)))
    return (yield from _import_batch(scope, batch, encoded))


def _import_batch(scope: Scope, batch: ImportBatch, encoded: dict[str, messages.EncodedDraft]) -> Steps[ImportCounts]:
    row = yield from sessions.find_live_row(scope, batch.session)
    if row is None and not batch.again and (yield from _is_excluded(scope, batch)):
        yield from _write_files(scope, batch.files)
        return ImportCounts("deleted")
    if row is None and not (batch.messages or batch.records):
        return ImportCounts("unchanged")  # fields of a conversation that is not stored
    is_new = row is None
    current = (yield from _create(scope, batch)) if row is None else sessions.stored_from_row(row)
    text = None if is_new else (yield from records.get_own(scope, IMPORT_KIND, FIELDS_KEY, session=current.session))
    state: dict[str, Any] = {} if text is None else json.decode(text)
    # The active path follows the tool until a client of Recollect continues, rewinds or switches it.
    is_followed = is_new or (yield from _key_of_end(current.head)) == state.get("end")
    writer = _BatchWriter(scope, current, encoded, is_new=is_new)
    yield from writer.write_messages(batch.messages)
    changed = yield from writer.write_compactions(batch.compactions)
    if is_followed:
        # An older copy of the transcript, such as one from another machine, does not take back what followed.
        if batch.updated_at is None or batch.updated_at >= state.get("active", 0):
            changed = (yield from writer.activate(batch.active)) or changed
        state["end"] = yield from _key_of_end((yield from sessions.read_by_key(current.session)).head)
    is_erased = (not is_new or current.value.parent is not None) and (
        yield from originals.are_erased(scope, current.session)
    )
    if is_erased:  # a title may be the text of an erased message
        batch = batch._replace(fields={name: value for name, value in batch.fields.items() if name != "title"})
    changed = (yield from _write_fields(scope, current, batch, state, text)) or changed
    yield from _write_records(scope, current, batch, is_erased=is_erased)
    yield from _write_files(scope, batch.files)
    changed = changed or bool(writer.new or writer.updated)
    outcome = "new" if is_new else "updated" if changed else "unchanged"
    return ImportCounts(outcome, writer.new, writer.updated, batch.origin is None or current.value.parent is not None)


def _write_records(
    scope: Scope, current: sessions.StoredSession, batch: ImportBatch, *, is_erased: bool
) -> Steps[None]:
    """Write the records of a batch; no original bytes and no content of a session whose original was erased."""
    for prefix in batch.obsolete:
        yield from records.delete_kind(scope, originals.ORIGINAL_KIND, prefix, session=current.session)
    for kind, key, text, data in batch.records:
        if is_erased and kind == originals.ORIGINAL_KIND:
            continue
        stored_text = originals.without_content(text) if is_erased and text is not None else text
        yield from records.put_own(scope, kind, key, stored_text, data, session=current.session)


def import_batches(scope: Scope, batches: Sequence[ImportBatch]) -> Operation[dict[str, ImportCounts]]:
    """Write batches without messages, of different conversations, in one transaction. Return counts by session id."""
    assert not any(batch.messages for batch in batches), "the messages of one conversation are a long transaction"
    return Operation(_import_batches, scope, sorted(batches, key=lambda batch: batch.session))


def _import_batches(scope: Scope, batches: Sequence[ImportBatch]) -> Steps[dict[str, ImportCounts]]:
    counts: dict[str, ImportCounts] = {}
    for batch in batches:  # in the order of ids, so that two imports lock the rows in the same order
        counts[batch.session] = yield from _import_batch(scope, batch, {})
    return counts


def preview_batch(scope: Scope, batch: ImportBatch) -> Operation[ImportCounts]:
    """Return about what import_batch() would change, without writing."""
    return Operation(_preview_batch, scope, batch, writes=False)


def _preview_batch(scope: Scope, batch: ImportBatch) -> Steps[ImportCounts]:
    row = yield from sessions.find_live_row(scope, batch.session)
    if row is None:
        is_deleted = not batch.again and (yield from _is_excluded(scope, batch))
        return ImportCounts("deleted") if is_deleted else ImportCounts("new", len(batch.messages))
    keys = [item.draft.key for item in batch.messages if item.draft.key is not None]
    positions = yield from _find_keys(sessions.stored_from_row(row), keys)
    new = len(keys) - len(positions)
    return ImportCounts("updated" if new else "unchanged", new)


def find_shared_past(scope: Scope, batch: ImportBatch) -> Operation[tuple[str, str] | None]:
    """Return the session that has the first messages of a new session, and the key of the last one that it has.

    Some tools copy the past of a fork into its file without a pointer to the origin.
    """
    return Operation(_find_shared_past, scope, batch, writes=False)


def _find_shared_past(scope: Scope, batch: ImportBatch) -> Steps[tuple[str, str] | None]:
    first = batch.messages[0]
    if first.parent is not None or (yield from sessions.find_live_row(scope, batch.session)) is not None:
        return None
    holder = yield from message_keys.find_holder(scope, first.draft.key or "")
    source, _, _ = batch.session.partition(":")
    if holder is None or not holder.value.id.startswith(f"{source}:"):
        return None
    positions = yield from _find_keys(holder, [item.draft.key for item in batch.messages if item.draft.key])
    last = None
    for item in batch.messages:
        if item.parent != last or item.draft.key not in positions:
            break
        branch, position = positions[item.draft.key]
        row = yield from fetch_one(MESSAGE_ROW, branch=branch, position=position)
        if row is None or not _is_copy(messages.encode_draft(item.draft, scope.now), row):
            break
        last = item.draft.key
    return None if last is None else (holder.value.id, last)


def read_files(scope: Scope) -> Operation[dict[str, Any]]:
    """Return what the imports stored about each file, by its key."""
    return Operation(_read_files, scope, writes=False)


def _read_files(scope: Scope) -> Steps[dict[str, Any]]:
    rows = yield from records.list_own(scope, FILE_KIND)
    return {row.key.decode(): json.decode(row.value or "null") for row in rows}


def write_files(scope: Scope, files: Sequence[tuple[str, str]]) -> Operation[None]:
    """Store JSON text about files."""
    return Operation(_write_files, scope, files)


def _write_files(scope: Scope, files: Sequence[tuple[str, str]]) -> Steps[None]:
    for key, text in files:
        yield from records.put_own(scope, FILE_KIND, key, text)


def read_states(scope: Scope, session: str) -> Operation[dict[str, str]]:
    """Return the import records of a session by key; none if it does not exist or is in the trash."""
    return Operation(_read_states, scope, session, writes=False)


def _read_states(scope: Scope, session: str) -> Steps[dict[str, str]]:
    row = yield from sessions.find_live_row(scope, session)
    if row is None:
        return {}
    rows = yield from records.list_own(scope, IMPORT_KIND, session=row.session)
    return {row.key.decode(): row.value or "null" for row in rows}


def read_states_of_sessions(scope: Scope, sessions: Sequence[str]) -> Operation[dict[str, dict[str, str]]]:
    """Return the import records of sessions by id and key. Sessions that are not stored are missing."""
    return Operation(records.list_own_of_sessions, scope, IMPORT_KIND, sessions, writes=False)


def changes_fields(states: Mapping[str, str], batch: ImportBatch) -> bool:
    """Return whether the fields of a batch differ from those that the last import wrote, by its records."""
    state: dict[str, Any] = json.decode(states.get(FIELDS_KEY, "{}"))
    earlier: dict[str, Any] = state.get("values", {})
    for name, value in batch.fields.items():
        if name == "metadata":
            old = earlier.get("metadata") or {}
            if any(key not in old or old[key] != item for key, item in value.items()):
                return True
        elif name == "title":
            rank = state.get("title_rank", 0)
            if batch.title_rank > rank or (batch.title_rank == rank and value != earlier.get("title")):
                return True
        elif name not in earlier or value != earlier[name]:
            return True
    return False


def read_chunks(scope: Scope, session: str, prefix: str, after: str, limit: int) -> Operation[list[tuple[str, bytes]]]:
    """Return a page of the chunks of an original, by their keys."""
    return Operation(_read_chunks, scope, session, prefix, after, limit, writes=False)


def _read_chunks(scope: Scope, session: str, prefix: str, after: str, limit: int) -> Steps[list[tuple[str, bytes]]]:
    row = yield from sessions.find_live_row(scope, session)
    if row is None:
        return []
    rows = yield from records.list_own_page(scope, originals.ORIGINAL_KIND, prefix, after, limit, session=row.session)
    return [(row.key.decode(), row.data or b"") for row in rows]


def read_blob(scope: Scope, name: str) -> Operation[bytes | None]:
    """Return the payload of a blob, or None."""
    return row_stream.read_blob(scope, name)


def link_delegate(scope: Scope, session: str, parent: str) -> Operation[None]:
    """Place the session of a sub-agent under its parent, unless it has one.

    If one of them is not stored yet, the parent is remembered for read_links(), because its file may come much later.
    A sub-agent that shares the past of a conversation is a fork until then.
    """
    return Operation(_link_delegate, scope, session, parent)


def _link_delegate(scope: Scope, session: str, parent: str) -> Steps[None]:
    row = yield from sessions.find_live_row(scope, session)
    parent_row = yield from sessions.find_live_row(scope, parent)
    if row is None or parent_row is None:
        missing = [id for id, item in ((session, row), (parent, parent_row)) if item is None]
        for id in missing:
            if (yield from _was_deleted(scope, id)):
                return
        yield from records.put_own(scope, LINK_KIND, session, json.encode(parent))
        return
    is_remembered = (yield from records.get_own(scope, LINK_KIND, session)) is not None
    yield from records.delete_own(scope, LINK_KIND, session)
    current = sessions.stored_from_row(row)
    is_free = current.value.parent is None or (is_remembered and current.value.relation == "fork")
    if is_free and not (yield from relations.is_ancestor(row.session, parent_row.session)):
        yield from relations.set_parent(scope, current, relations.ParentChange(parent, "delegate", sets_parent=True))


def link_delegates(scope: Scope, links: Mapping[str, str], created: AbstractSet[str]) -> Steps[None]:
    """Place sub-agents under their parents, also those that waited for one of the sessions that were created."""
    rows = yield from records.list_own(scope, LINK_KIND)
    waiting = {row.key.decode(): str(json.decode(row.value or "null")) for row in rows}
    links_of_new = {session: parent for session, parent in waiting.items() if {session, parent} & created}
    for session, parent in {**links_of_new, **links}.items():
        yield from _link_delegate(scope, session, parent)


def read_tombstones(scope: Scope) -> Operation[frozenset[str]]:
    """Return the keys of the tombstones of erased conversations, as originals.tombstone_key() returns them."""
    return Operation(_read_tombstones, scope, writes=False)


def _read_tombstones(scope: Scope) -> Steps[frozenset[str]]:
    return frozenset(row.key.decode() for row in (yield from records.list_own(scope, TOMBSTONE_KIND)))


def read_links(scope: Scope) -> Operation[dict[str, str]]:
    """Return the parents of sub-agents that could not be linked yet, by session id."""
    return Operation(_read_links, scope, writes=False)


def _read_links(scope: Scope) -> Steps[dict[str, str]]:
    rows = yield from records.list_own(scope, LINK_KIND)
    return {row.key.decode(): json.decode(row.value or "null") for row in rows}


def _is_excluded(scope: Scope, batch: ImportBatch) -> Steps[bool]:
    """Return whether a conversation that is not stored was deleted, or is a new sub-agent of one that was."""
    if (yield from _was_deleted(scope, batch.session)):
        return True
    if batch.parent is None or (yield from sessions.find_live_row(scope, batch.parent)) is not None:
        return False
    return (yield from _was_deleted(scope, batch.parent))


def _was_deleted(scope: Scope, session: str) -> Steps[bool]:
    if (yield from records.get_own(scope, TOMBSTONE_KIND, originals.tombstone_key(session))) is not None:
        return True
    return (yield from sessions.find_trashed_row(scope, session)) is not None


def _create(scope: Scope, batch: ImportBatch) -> Steps[sessions.StoredSession]:
    """Create the session, as a fork if the conversation that it shares has the message."""
    session_ids.check_new_id(batch.session)
    yield from records.delete_own(scope, TOMBSTONE_KIND, originals.tombstone_key(batch.session))
    span = origin = None
    if batch.origin is not None:
        row = yield from sessions.find_live_row(scope, batch.origin[0])
        if row is not None:
            origin = sessions.stored_from_row(row)
            positions = yield from _find_keys(origin, [batch.origin[1]])
            span = positions.get(batch.origin[1])
    if origin is None or span is None:
        yield from sessions.create_in_steps(scope, batch.session, {}, None)
    else:
        # Its transcript has the compactions of its past; the origin may have later ones.
        yield from branches.fork_after(scope, origin, span, batch.session, {}, inherits=False)
        if (yield from originals.are_erased(scope, origin.session)):
            current = yield from sessions.find(scope, batch.session)
            yield from records.put_own(scope, IMPORT_KIND, originals.ERASED_KEY, "true", session=current.session)
        if batch.parent is not None:  # a sub-agent that began with the context of its parent
            yield from records.put_own(scope, LINK_KIND, batch.session, json.encode(batch.parent))
            yield from _link_delegate(scope, batch.session, batch.parent)
    return (yield from sessions.find(scope, batch.session))


def _find_keys(current: sessions.StoredSession, keys: Sequence[str]) -> Steps[dict[str, tuple[int, int]]]:
    """Return the branch and position of the messages of a session with these keys; of several, the newest one.

    A message of a fork that has not the same past any more is not one of the session, even with the same key.
    """
    if not keys:
        return {}
    rows = yield from fetch_all(_MESSAGES_WITH_KEYS, tree=current.tree, keys=encode_keys(keys))
    if not rows:
        return {}
    branch_rows = yield from fetch_all(paths.BRANCHES_OF_TREE, tree=current.tree)
    reachable = paths.reachable_positions(branch_rows, {current.session})
    positions: dict[str, tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: (row.branch, row.position)):
        last = reachable.get(row.branch, 0)
        if last is None or row.position <= last:
            positions[row.client_key] = row.branch, row.position
    return positions


class _BatchWriter:
    """Writes the messages of a batch."""

    def __init__(
        self, scope: Scope, current: sessions.StoredSession, encoded: dict[str, messages.EncodedDraft], *, is_new: bool
    ) -> None:
        self.scope, self.current, self.encoded, self.is_new = scope, current, encoded, is_new
        self.positions: dict[str, tuple[int, int]] = {}
        """The branch and position of each message by key."""
        self.new = self.updated = 0

    def write_messages(self, items: Sequence[ImportedMessage]) -> Steps[None]:
        if not items:
            return
        is_fork = self.current.value.parent is not None
        if not self.is_new or is_fork:
            keys = {item.parent for item in items if item.parent is not None} | self.encoded.keys()
            self.positions = yield from _find_keys(self.current, sorted(keys))
        run: list[ImportedMessage] = []
        for item in items:
            key = item.draft.key
            assert key is not None
            if run and (item.parent != run[-1].draft.key or key in self.positions):
                yield from self._append(run)
                run = []
            if key in self.positions:
                yield from self._compare(self.encoded[key], *self.positions[key])
            else:
                run.append(item)
        if run:
            yield from self._append(run)

    def _append(self, run: Sequence[ImportedMessage]) -> Steps[None]:
        """Append messages, each of which follows the one before, after the predecessor of the first one."""
        parent = None if run[0].parent is None else self.positions.get(run[0].parent)
        branch = yield from branches.find_or_make_branch(self.scope, self.current, *(parent or (None, 0)))
        rows = [self.encoded[item.draft.key] for item in run if item.draft.key is not None]
        result = yield from appends.append_to_branch(
            self.scope, self.current.value.id, self.current.session, branch, None, rows, activates=False
        )
        for position, item in enumerate(run, result.first):
            self.positions[item.draft.key or ""] = branch, position
        self.new += len(run)

    def _compare(self, item: messages.EncodedDraft, branch: int, position: int) -> Steps[None]:
        """Write a message that its tool changed, unless it was edited in Recollect or belongs to another session."""
        row = yield from fetch_one(MESSAGE_ROW, branch=branch, position=position)
        if row is None or row.edited_at is not None:
            return
        columns: dict[str, Any] = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
        if all(_is_same(name, getattr(row, name), columns[name]) for name in _COMPARED_COLUMNS):
            return
        branch_row = yield from fetch_one(paths.BRANCH_GET, branch=branch)
        if branch_row is None or branch_row.session != self.current.session:
            return
        yield from self._rewrite(item, branch_row, row, columns)
        self.updated += 1

    def _rewrite(
        self, item: messages.EncodedDraft, branch: paths.BranchRow, row: FullMessageRow, columns: dict[str, Any]
    ) -> Steps[None]:
        message = yield from messages.read_at(self.scope, branch.key, branch.number, row.position)
        assert message is not None
        del columns["created_at"]
        columns |= {"completed_at": None, "edited_at": None}
        for name, payload in item.payloads.items():
            yield from appends.store_blob(self.scope, name, payload)
        content = edits.NewContent(columns, item.draft.parts, self.scope.now)
        yield from edits.write_content(self.scope, branch.key, row, message, content, former="dropped")
        if row.deleted_at is None:
            names = ("tokens", "input_tokens", "output_tokens")
            change = messages.CountChange(0, *((columns[name] or 0) - (getattr(row, name) or 0) for name in names))
            yield from messages.adjust_counts(self.scope, self.current.tree, branch.key, row.position, change)

    def write_compactions(self, compactions: Sequence[ImportedCompaction]) -> Steps[bool]:
        """Write the compactions that the store lacks, and return whether there were any."""
        if not compactions:
            return False
        keys = [key for item in compactions for key in (item.last, item.first) if key and key not in self.positions]
        self.positions |= yield from _find_keys(self.current, keys)
        rows = yield from fetch_all(paths.BRANCHES_OF_TREE, tree=self.current.tree)
        changed = False
        for item in compactions:
            if item.last in self.positions:
                changed = (yield from self._write_compaction(item, rows)) or changed
        return changed

    def _write_compaction(self, item: ImportedCompaction, branch_rows: Sequence[paths.TreeBranchRow]) -> Steps[bool]:
        """Write a compaction on each branch of the session that continues after it."""
        first = self.positions[item.first][1] if item.first in self.positions else 1
        branch, last = self.positions[item.last]
        changed = False
        for key in paths.branches_through(branch_rows, self.current.session, branch, last):
            compactions = yield from transfer.compactions_of(key)
            if first > last or any(row.to_position == last and row.summary == item.summary for row in compactions):
                continue
            spans = [
                span._replace(high=min(span.high, last), low=max(span.low, first - 1))
                for span in (yield from paths.read_path(key))
                if span.low < last and span.high >= first
            ]
            totals = yield from messages.count_path(spans)
            yield from execute(
                "compaction_import", branch=key, from_position=first, to_position=last,
                round=max((row.round for row in compactions), default=0) + 1, tokens_before=totals.token_count,
                tokens_after=estimate_tokens((TextPart(text=item.summary),)), summary=item.summary,
                created_at=item.created_at, undone_at=None,
            )  # fmt: skip
            changed = True
        return changed

    def activate(self, active: str | None) -> Steps[bool]:
        """End the active path where the tool would continue it; return whether it ended elsewhere.

        Messages after it, which a person took back in the tool, stay on their branch.
        """
        if active is None:
            return False
        self.current = yield from sessions.read_by_key(self.current.session)
        if active not in self.positions:
            self.positions |= yield from _find_keys(self.current, [active])
        if active not in self.positions:
            return False
        branch = yield from branches.find_or_make_branch(self.scope, self.current, *self.positions[active])
        if branch == self.current.head:
            return False
        yield from branches.switch_head(self.scope, self.current, branch, activity=False)
        return True


def _key_of_end(head: int) -> Steps[str | None]:
    """Return the key of the last message of the path of a branch; None for an empty path or a message without one."""
    branch, last = branches.end_of_path((yield from paths.read_path(head)))
    row = None if branch is None else (yield from fetch_one(MESSAGE_ROW, branch=branch, position=last))
    return None if row is None else row.client_key


def _is_copy(item: messages.EncodedDraft, row: FullMessageRow) -> bool:
    """Return whether a message is the same as one of another session: tools may use equal keys."""
    columns = dict(zip(messages.MESSAGE_COLUMNS, item.columns, strict=True))
    return item.created_at == row.created_at and _is_same("parts", row.parts, columns["parts"])


def _is_same(name: str, old: Any, new: Any) -> bool:
    if name in ("parts", "metadata", "native", "error") and old is not None and new is not None and old != new:
        return json.decode(old) == json.decode(new)
    return old == new


def _write_fields(
    scope: Scope, current: sessions.StoredSession, batch: ImportBatch, state: dict[str, Any], text: str | None
) -> Steps[bool]:
    """Write the fields that nobody changed in Recollect, the times and the state; return whether a field changed.

    `text` is the stored state of the last import, None for a new session.
    """
    earlier: dict[str, Any] = state.get("values", {})
    before = (yield from sessions.read_by_key(current.session)).value
    values = dict(batch.fields)
    rank = max(batch.title_rank, state.get("title_rank", 0))
    if batch.title_rank < rank:
        values.pop("title", None)
    if "metadata" in values:
        values["metadata"] = _merge_metadata(before.metadata or {}, earlier.get("metadata") or {}, values["metadata"])
        earlier = {**earlier, "metadata": before.metadata or {}}  # its keys are compared one by one
    fields = {name: value for name, value in values.items() if _is_untouched(before, earlier, name, value)}
    if fields:
        columns = sessions.columns_of(fields, batch.updated_at or scope.now)
        yield from sessions.update_columns(scope, batch.session, columns, None, raises_revision=False)
    new_state: dict[str, Any] = {"active": 0, **state, "values": {**earlier, **values}, "title_rank": rank}
    if batch.updated_at is not None:
        is_first = not state.get("active")  # of the batches with a time: the first lines may have none
        is_used = not is_first and before.active_at_ms != state.get("active")
        active = new_state["active"] = max(batch.updated_at, state.get("active", 0))  # an older copy may come later
        created = batch.created_at or batch.updated_at
        is_earlier = is_first or created < before.created_at_ms
        yield from execute(
            "session_import_times", session=current.session, created_at=created if is_earlier else None,
            active_at=None if is_used else active,
        )  # fmt: skip
    new_text = json.encode(new_state)
    if new_text != text:
        yield from records.put_own(scope, IMPORT_KIND, FIELDS_KEY, new_text, session=current.session)
    return bool(fields)


def _merge_metadata(old: Mapping[str, Any], earlier: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with the fields of the tool that nobody changed in Recollect."""
    return {**old, **{key: value for key, value in new.items() if key not in old or old[key] == earlier.get(key)}}


def _is_untouched(before: Any, earlier: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return whether a field is to be written: it differs, and is empty or as an earlier import wrote it."""
    old = getattr(before, f"{FLAG_FIELDS[name]}_ms") is not None if name in FLAG_FIELDS else getattr(before, name)
    old = list(old) if isinstance(old, tuple) else old
    value = list(value) if isinstance(value, tuple) else value
    return old != value and (not old or old == earlier.get(name))
