"""The importer: writes the sessions of a file to a store, in transactions of a bounded size.

Records of an export keep their ids. A plain chat (a provider's messages in an array, one per line, or as {"messages":
[...]}) becomes a session whose id is a digest of its content, so the same file always yields the same session.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json as standard
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recollect import formats
from recollect.errors import ImportConflict, InvalidValue, format_value
from recollect.export import import_plan, records
from recollect.export.import_plan import ImportPlan, ImportTarget, Placement, SessionGroup, plan_import
from recollect.export.import_reader import JsonText, PayloadSpool, Spool
from recollect.export.import_report import Refused, Report
from recollect.export.pipeline import Pipeline, execute
from recollect.model import json, validation
from recollect.model.message import Draft
from recollect.model.times import DAY
from recollect.storage import appends, sessions, transfer
from recollect.storage.operation import Scope
from recollect.storage.row_stream import PAGE_ROWS

_CHANNEL = "import"
_TITLE_KEYS = ("title", "name")


def is_chat(text: bytes) -> bool:
    """Return whether a value is a chat or a message of one, rather than a record of an export."""
    value = records.parse_json(text)
    if not isinstance(value, dict):
        return False
    if value.get("type") in records.TYPES and ("session" in value or value.get("type") in ("header", "session")):
        return value.get("type") == "header" and "format" not in value and "sessions" not in value
    return "role" in value or isinstance(value.get("messages"), list) or "choices" in value


def import_chats(
    scope: Scope,
    pieces: Iterator[JsonText],
    report: Report,
    format: str | None,
    progress: Callable[[int], None] | None,
    *,
    dry_run: bool = False,
) -> Pipeline[None]:
    """Import chats: each {"messages": [...]} becomes a session, and single messages together become one."""
    if format is not None and format not in formats.FORMATS:
        formats.write([], format)  # raises the error that lists the formats
    single_chat = ImportedChat(format, dry_run=dry_run)
    try:
        for piece in pieces:
            value = _parse_chat_value(piece, report)
            if value is None:
                continue
            if isinstance(value.get("messages"), list):
                chat = ImportedChat(format, dry_run=dry_run)
                yield from _import_chat(scope, chat, piece.line, value, report, progress)
            elif value.get("type") == "header":
                single_chat.title = _title_of(value)
            else:
                single_chat.add(piece.line, piece.text, value, report)
        yield from single_chat.store(scope, report, progress)
    finally:
        single_chat.close()


def _parse_chat_value(piece: JsonText, report: Report) -> dict[str, Any] | None:
    if piece.reason is not None:
        report.refuse(piece.line, piece.reason)
        return None
    try:
        value = records.parse_json(piece.text)
    except InvalidValue as error:
        report.refuse(piece.line, error)
        return None
    if not isinstance(value, dict):
        report.refuse(piece.line, "Not a message.")
        return None
    return value


def _import_chat(
    scope: Scope,
    chat: ImportedChat,
    line: int,
    value: dict[str, Any],
    report: Report,
    progress: Callable[[int], None] | None,
) -> Pipeline[None]:
    chat.title = _title_of(value)
    try:
        for message in value["messages"]:
            chat.add(line, standard.dumps(message).encode(), message, report)
        yield from chat.store(scope, report, progress)
    finally:
        chat.close()


def _canonical_bytes(value: Any) -> bytes:
    return json.encode_standard(value).encode()


def _title_of(value: dict[str, Any]) -> str | None:
    title = next(
        (value[name] for name in _TITLE_KEYS if isinstance(value.get(name), str) and value[name].strip()), None
    )
    return None if title is None else " ".join(title.split()).replace("\0", "")[:200]


class ImportedChat:
    """The messages of one chat, validated and spooled until the whole chat is known."""

    def __init__(self, format: str | None, *, dry_run: bool = False) -> None:
        self.format = format
        self.dry_run = dry_run
        self.title: str | None = None
        self.spool = Spool()
        self.digest = hashlib.sha256()
        self._keys: set[str] = set()

    def add(self, line: int, text: bytes, value: Any, report: Report) -> None:
        """Add a message, or report why it is not one."""
        try:
            drafts, canonical = self._drafts(value), _canonical_bytes(value)
            self._check_keys(drafts)
        except InvalidValue as error:
            report.refuse(line, error)
            return
        if drafts:
            self.spool.add(line, text)
            self.digest.update(canonical + b"\n")

    def _drafts(self, value: Any) -> list[Draft]:
        if not isinstance(value, dict):
            raise InvalidValue("Not a message.")
        return formats.read([value], self.format)

    def _check_keys(self, drafts: Sequence[Draft]) -> None:
        """Raise InvalidValue for an invalid message key, and for one that an earlier message of the chat has."""
        for key in [validation.check_message_key(draft.key) for draft in drafts if draft.key is not None]:
            if key in self._keys:
                raise InvalidValue(f"An earlier message of the chat has the key {format_value(key)}.")
            self._keys.add(key)

    def store(self, scope: Scope, report: Report, progress: Callable[[int], None] | None) -> Pipeline[None]:
        """Append the messages to the session of this chat.

        Messages that an earlier import stored are not appended again.
        """
        if not self.spool.count:
            return
        id = f"{_CHANNEL}:{self.digest.hexdigest()[:16]}"
        exists = (yield from execute(sessions.get(scope, id))) is not None
        if not exists and not self.dry_run:
            yield from execute(sessions.ensure(scope, id, {} if self.title is None else {"title": self.title}))
        new_messages = 0
        for number, batch in enumerate(self._batches()):
            if not (yield from self._append_batch(scope, id, f"{_CHANNEL}:{number}", batch, exists=exists)):
                new_messages += len(batch)
                report.messages += len(batch)
            if progress is not None:
                progress(report.messages)
        outcome = report.updated if new_messages else report.unchanged
        (outcome if exists else report.created).append(id)

    def _append_batch(self, scope: Scope, id: str, key: str, batch: list[Draft], *, exists: bool) -> Pipeline[bool]:
        """Append a batch, and return whether it was stored before."""
        if not self.dry_run:
            appended, _ = yield from execute(appends.append(scope, id, batch, key=key))
            return appended.repeated
        return exists and (yield from execute(appends.find_by_key(scope, id, key, batch))) is not None

    def _batches(self) -> Iterator[list[Draft]]:
        batch: list[Draft] = []
        for piece in self.spool:
            batch += self._drafts(records.parse_json(piece.text))
            if len(batch) >= PAGE_ROWS:
                yield batch
                batch = []
        if batch:
            yield batch

    def close(self) -> None:
        """Delete the spooled messages."""
        self.spool.close()


class PlacementWriter:
    """Writes the sessions of one placement."""

    def __init__(self, scope: Scope, group: SessionGroup, placement: Placement, payloads: PayloadSpool) -> None:
        self.scope = scope
        self.group = group
        self.placement = placement
        self.payloads = payloads
        self.keys = transfer.ImportKeys(0, {}, {})
        self.failed: str | None = None

    def begin(self) -> Pipeline[None]:
        """Create the sessions and branches."""
        placement, group = self.placement, self.group
        incoming = [
            transfer.IncomingSession(
                target.id, target.key, target.mode, group.sessions[name].columns, group.sessions[name].head,
                placement.stored_id(group.sessions[name].record.parent),
            )
            for name, target in placement.targets.items()
        ]  # fmt: skip
        owners = {number: self._owner(number) for number in sorted(placement.paths)}
        paths = [group.incoming_branch(number, None if owner is None else owner.id) for number, owner in owners.items()]
        self.keys = yield from execute(transfer.begin_import(self.scope, placement.tree, incoming, paths))

    def _owner(self, number: int) -> ImportTarget | None:
        """Return the target of the session that owns a branch, or None if that session is not imported."""
        session = self.group.branches[number].session
        return None if session is None else self.placement.targets.get(session)

    def write(self, report: Report, progress: Callable[[int], None] | None) -> Pipeline[None]:
        """Write the messages, turns, tool calls and compactions.

        If another writer adds to a session meanwhile, stop there.
        """
        keys = self.keys.branches
        for branch_batch in import_plan.iter_batches(self.group, keys, self.placement.includes, self.payloads.size):
            owner = self._owner(branch_batch.number)
            batch = branch_batch.to_row_batch(
                keys[branch_batch.number],
                None if owner is None else self.keys.sessions[owner.id],
                self._payloads(branch_batch),
                renew=owner is not None and owner.mode == "renew",
            )
            try:
                report.messages += yield from execute(transfer.add_batch(self.scope, self.keys.tree, batch))
            except transfer.MessageDiverged as error:
                self.failed = f"{error} Another writer changed the session during the import."
                return
            if progress is not None:
                progress(report.messages)
        for name, target in self.placement.targets.items():
            if target.mode != "keep":
                yield from self._write_session_rows(name, self.keys.sessions[target.id], target.mode)

    def _write_session_rows(self, name: str, key: int, mode: transfer.ImportMode) -> Pipeline[None]:
        """Write the snapshots and the keyed records of a session."""
        if mode != "records":
            snapshots = import_plan.session_snapshots(self.group, name, self.keys.branches)
            if snapshots:
                yield from execute(transfer.store_snapshots(key, snapshots))
        for rows in import_plan.iter_keyed_rows(self.group, name):
            yield from execute(transfer.store_records(self.scope, key, rows))

    def _payloads(self, branch_batch: import_plan.BranchBatch) -> dict[str, bytes]:
        payloads = dict(branch_batch.payloads)
        for row in (*branch_batch.messages, *branch_batch.versions):
            for name in row.blob_names:
                if name in self.payloads and name not in payloads:
                    payloads[name] = self.payloads[name]
        return payloads


ON_CONFLICT = ("skip", "new", "error")
_ATTEMPTS = 8  # plans per group. Another writer must change the same sessions between each plan and its write.


class Importer:
    """One import: its options, its state and its report."""

    def __init__(
        self,
        scope: Scope,
        *,
        on_conflict: str,
        format: str | None,
        progress: Callable[[int], None] | None,
        dry_run: bool = False,
    ) -> None:
        if on_conflict not in ON_CONFLICT:
            raise InvalidValue(f"on_conflict must be one of {', '.join(ON_CONFLICT)}, got {format_value(on_conflict)}.")
        self.scope = scope
        self.on_conflict = on_conflict
        self.format = format
        self.progress = progress
        self.dry_run = dry_run
        self.report = Report()
        self.payloads = PayloadSpool()
        self.group: SessionGroup | None = None
        self.orphans: list[tuple[str, str]] = []

    def run(self, pieces: Iterator[JsonText]) -> Pipeline[Report]:
        """Import the whole file, and return the report."""
        first = next(pieces, None)
        while first is not None and (first.reason is not None or not _has_known_kind(first.text)):
            self.report.refuse(first.line, first.reason or _rejection_reason(first.text))
            first = next(pieces, None)
        try:
            if first is not None:
                all_pieces = _chain(first, pieces)
                if is_chat(first.text):
                    yield from import_chats(
                        self.scope, all_pieces, self.report, self.format, self.progress, dry_run=self.dry_run
                    )
                else:
                    yield from self._import_records(all_pieces)
        finally:
            self.payloads.close()
            if self.group is not None:
                self.group.close()
        return self.report

    def _import_records(self, pieces: Iterator[JsonText]) -> Pipeline[None]:
        for piece in pieces:
            if piece.reason is not None:
                self.report.refuse(piece.line, piece.reason)
                continue
            try:
                record = records.decode(piece.text)
                if isinstance(record, records.HeaderRecord | records.SessionRecord):
                    yield from self._start_group(record, piece.line)
                else:
                    yield from self._add_record(record, piece)
            except _NewerVersion:
                raise
            except InvalidValue as error:
                self.report.refuse(piece.line, error)
        yield from self._finish_group()
        yield from self._link_parents()

    def _start_group(self, record: records.HeaderRecord | records.SessionRecord, line: int) -> Pipeline[None]:
        """Handle a header or a session. Either may end the previous group."""
        if isinstance(record, records.HeaderRecord):
            if record.format not in ("", records.FORMAT):
                raise InvalidValue(
                    f"The header must have the format {records.FORMAT}, got {format_value(record.format)}."
                )
            if record.version > records.VERSION:
                raise _NewerVersion(
                    f"This export has version {record.version}; this Recollect reads up to version {records.VERSION}. "
                    "Upgrade with `pip install -U recollect`. None of it was imported."
                )
            yield from self._finish_group()
            self.report.redacted = self.report.redacted or record.redacted
            return
        if self.group is None or self.group.tree != record.tree:
            yield from self._finish_group()
            self.group = SessionGroup(record.tree)
        self.group.add_session(record, line, self.scope.now + DAY)

    def _add_record(self, record: Any, piece: JsonText) -> Pipeline[None]:
        """Add a record of a session to the group."""
        group = self.group
        if isinstance(record, records.BlobRecord):
            self._add_blob(record)
            return
        if group is None or record.session not in group.sessions:
            raise InvalidValue(f"The record of session {format_value(record.session)} must come before this one.")
        if isinstance(record, records.BranchRecord):
            group.add_branch(record)
            return
        if isinstance(record, records.MessageRecord):
            _, row, inline_payloads = records.message_row(record)
            yield from self._check_payloads([name for name in row.blob_names if name not in inline_payloads])
            group.add_message(record.id, None if row.deleted_at is not None else row.client_key)
        elif isinstance(record, records.VersionRecord):
            _, version, inline_payloads = records.version_row(record)
            yield from self._check_payloads([name for name in version.blob_names if name not in inline_payloads])
            group.add_version(record.message)
        else:
            _check_record(group, record)
            if isinstance(record, records.ToolCallRecord) and record.branch not in group.branches:
                group.unresolved_branches.append((piece.line, record.branch))
        group.spool.add(piece.line, piece.text)

    def _add_blob(self, record: records.BlobRecord) -> None:
        try:
            payload = base64.b64decode(record.data, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidValue("The data of the attachment is not valid base64.") from error
        if hashlib.sha256(payload).hexdigest() != record.hash:
            raise InvalidValue("The attachment is damaged: its data does not match its hash.")
        self.payloads.add(record.hash, payload)

    def _check_payloads(self, names: list[str]) -> Pipeline[None]:
        missing = [name for name in names if name not in self.payloads]
        if missing:
            existing: set[str] = yield from execute(transfer.find_blobs(self.scope, missing))
            if set(missing) - existing:
                raise InvalidValue(f"Attachment {missing[0]}, to which the message refers, is not in the file.")

    def _finish_group(self) -> Pipeline[None]:
        """Write the current group."""
        group, self.group = self.group, None
        if group is None:
            return
        try:
            for line, number in group.unresolved_branches:
                if number not in group.branches:
                    self.report.refuse(line, f"Branch {number} is not in the file.")
            for id, session in list(group.sessions.items()):
                if not session.own_branches:
                    self.report.refuse(session.line, f"Session {format_value(id)} has no branch in the file.")
                    del group.sessions[id]
            if group.sessions:
                yield from self._write_group(group)
        finally:
            group.close()

    def _write_group(self, group: SessionGroup) -> Pipeline[None]:
        """Write a group.

        If the store changes meanwhile, plan again; batches that were written are then skipped.
        """
        for _ in range(_ATTEMPTS):
            plan: ImportPlan = yield from plan_import(self.scope, group, self.on_conflict)
            if self.dry_run:
                self.report.messages += sum(placement.count(group) for placement in plan.placements)
                self._report_group(group, plan, {})
                return
            writers = [
                PlacementWriter(self.scope, group, placement, self.payloads)
                for placement in plan.placements
                if placement.writes
            ]
            try:
                for writer in writers:
                    yield from writer.begin()
                for writer in writers:
                    yield from writer.write(self.report, self.progress)
            except ImportConflict:
                continue
            self._report_group(group, plan, {id(writer.placement): writer.failed for writer in writers})
            return
        raise ImportConflict

    def _report_group(self, group: SessionGroup, plan: ImportPlan, failed: dict[int, str | None]) -> None:
        self.report.conflicts += plan.conflicts
        lists = {"new": self.report.created, "keep": self.report.unchanged}
        for placement in plan.placements:
            reason = failed.get(id(placement))
            for name, target in placement.targets.items():
                if reason is not None and target.mode != "keep":
                    self.report.conflicts.append(Refused(name, reason))
                    continue
                lists.get(target.mode, self.report.updated).append(target.id)
                parent = group.sessions[name].record.parent
                if target.mode == "new" and parent is not None:
                    self.orphans.append((target.id, placement.stored_id(parent) or parent))

    def _link_parents(self) -> Pipeline[None]:
        """Set the parents of sessions that were imported before their parent."""
        if self.dry_run:
            return
        ids = {*self.report.created, *self.report.updated, *self.report.unchanged}
        new_ids = {conflict.id: conflict.new_id for conflict in self.report.conflicts if conflict.new_id is not None}
        for child, name in self.orphans:
            parent = new_ids.get(name, name)
            if parent in ids:
                yield from execute(transfer.link_parent(self.scope, child, parent))


class _NewerVersion(InvalidValue):
    """An export of a newer version than this program can read."""


def _check_record(group: SessionGroup, record: Any) -> None:
    """Raise InvalidValue if a record refers to something that the file lacks, or cannot be stored."""
    if isinstance(record, records.KeyedRecord):
        records.keyed_row(record)
        return
    number, _ = import_plan.record_position(record)
    group.check_branch(number)
    if isinstance(record, records.TurnRecord):
        group.check_message(record.id)
        records.turn_row(record)
    elif isinstance(record, records.ToolCallRecord):
        group.check_message(record.message)
        records.call_row(record, 0)
    elif isinstance(record, records.CompactionRecord):
        records.compaction_row(record)
    else:
        records.snapshot_row(record, 0)


def _chain(first: JsonText, remaining: Iterator[JsonText]) -> Iterator[JsonText]:
    yield first
    yield from remaining


def _has_known_kind(text: bytes) -> bool:
    """Return whether a value is a record or a chat, and so determines the kind of the file."""
    try:
        value = records.parse_json(text)
    except InvalidValue:
        return False
    return isinstance(value, dict) and (is_chat(text) or value.get("type") in records.TYPES)


def _rejection_reason(text: bytes) -> str:
    try:
        records.parse_json(text)
    except InvalidValue as error:
        return str(error)
    return "Neither a record of an export nor a message."
