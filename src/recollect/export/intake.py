"""Bringing a file into a store: records in groups, in transactions of a bounded size; chats as new sessions."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from recollect.errors import InvalidValue
from recollect.export import chats, records
from recollect.export.flow import Flow, ask
from recollect.export.group import Group
from recollect.export.placement import Placement, Plan, placed
from recollect.export.report import Refused, Report
from recollect.export.source import Piece
from recollect.export.spool import Payloads
from recollect.op import Row, Scope
from recollect.ops import arrivals, transfer
from recollect.ops.transfer import PAGE_BYTES, PAGE_ROWS, PARTS, POSITION

ON_CONFLICT = ("skip", "new", "error")
_ATTEMPTS = 8
_A_DAY = 86_400_000


class Intake:
    """One import: what was read, what became of it."""

    def __init__(
        self, scope: Scope, *, on_conflict: str, format: str | None, progress: Callable[[int], None] | None
    ) -> None:
        if on_conflict not in ON_CONFLICT:
            raise InvalidValue(f"on_conflict is one of {', '.join(ON_CONFLICT)}; got {on_conflict!r}.")
        self.scope = scope
        self.on_conflict = on_conflict
        self.format = format
        self.progress = progress
        self.report = Report()
        self.payloads = Payloads()
        self.group: Group | None = None
        self.orphans: list[tuple[str, str]] = []

    def run(self, pieces: Iterator[Piece]) -> Flow[Report]:
        """Import everything."""
        first = next(pieces, None)
        while first is not None and (first.reason is not None or not records_or_chat(first.text)):
            self.report.refuse(first.line, first.reason or _why(first.text))
            first = next(pieces, None)
        try:
            if first is not None:
                everything = _from(first, pieces)
                if chats.is_chat(first.text):
                    yield from chats.bring(self.scope, everything, self.report, self.format, self.progress)
                else:
                    yield from self._records(everything)
        finally:
            self.payloads.close()
            if self.group is not None:
                self.group.close()
        return self.report

    def _records(self, pieces: Iterator[Piece]) -> Flow[None]:
        for piece in pieces:
            if piece.reason is not None:
                self.report.refuse(piece.line, piece.reason)
                continue
            try:
                record = records.decode(piece.text)
                if isinstance(record, records.Header | records.SessionRecord):
                    yield from self._opening(record, piece.line)
                else:
                    yield from self._member(record, piece)
            except _Newer:
                raise
            except InvalidValue as error:
                self.report.refuse(piece.line, error)
        yield from self._close()
        yield from self._link()

    def _opening(self, record: records.Header | records.SessionRecord, line: int) -> Flow[None]:
        """Take a header or a session, either of which may end the group before it."""
        if isinstance(record, records.Header):
            if record.format not in ("", records.FORMAT):
                raise InvalidValue(f"It is the header of another format, {record.format!r}.")
            if record.version > records.VERSION:
                raise _Newer(
                    f"This export is of version {record.version}, and this Recollect knows up to {records.VERSION}. "
                    "Upgrade with `pip install -U recollect`. Nothing of it was imported."
                )
            yield from self._close()
            self.report.redacted = self.report.redacted or record.redacted
            return
        if self.group is None or self.group.tree != record.tree:
            yield from self._close()
            self.group = Group(record.tree)
        self.group.add_session(record, line, self.scope.now + _A_DAY)

    def _member(self, record: Any, piece: Piece) -> Flow[None]:
        """Take a record of a session."""
        group = self.group
        if isinstance(record, records.BlobRecord):
            self._blob(record)
            return
        if group is None or record.session not in group.sessions:
            raise InvalidValue(f"Session {record.session!r} is not before it.")
        if isinstance(record, records.BranchRecord):
            group.add_branch(record)
            return
        if isinstance(record, records.MessageRecord):
            _, row, inside = records.message_row(record)
            yield from self._check_payloads([name for name in records.blobs_of(row) if name not in inside])
            group.check_place(record.id, new=True)
        else:
            _check(group, record)
        group.spool.add(piece.line, piece.text)

    def _blob(self, record: records.BlobRecord) -> None:
        try:
            payload = base64.b64decode(record.data, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidValue("Its data is not base64.") from error
        if hashlib.sha256(payload).hexdigest() != record.hash:
            raise InvalidValue("Its data is not what its hash says: the attachment is damaged.")
        self.payloads.add(record.hash, payload)

    def _check_payloads(self, names: list[str]) -> Flow[None]:
        missing = [name for name in names if name not in self.payloads]
        if missing:
            held: set[str] = yield from ask(transfer.holds(self.scope, missing))
            if set(missing) - held:
                raise InvalidValue(f"The attachment {missing[0]} that it refers to is not in the file.")

    def _close(self) -> Flow[None]:
        """Write the group that was read."""
        group, self.group = self.group, None
        if group is None:
            return
        try:
            for id, given in list(group.sessions.items()):
                if not given.own:
                    self.report.refuse(given.line, f"Session {id!r} has no branch in the file.")
                    del group.sessions[id]
            if group.sessions:
                yield from self._settle(group)
        finally:
            group.close()

    def _settle(self, group: Group) -> Flow[None]:
        """Place and write a group. If the store changes meanwhile, look again: what was written stays."""
        for _ in range(_ATTEMPTS):
            plan: Plan = yield from placed(self.scope, group, self.on_conflict)
            try:
                writers = [_Writer(self, group, placement) for placement in plan.placements if placement.writes]
                for writer in writers:
                    yield from writer.begin()
                yield from self._write(group, writers)
            except arrivals.Stale:
                continue
            self._tell(group, plan, {id(writer.placement): writer.failed for writer in writers})
            return
        raise arrivals.Stale

    def _write(self, group: Group, writers: list[_Writer]) -> Flow[None]:
        if writers:
            for entry in group.entries():
                for writer in writers:
                    yield from writer.take(entry.record)
            for writer in writers:
                yield from writer.end()

    def _tell(self, group: Group, plan: Plan, failed: dict[int, str | None]) -> None:
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
                    self.orphans.append((target.id, _renamed(parent, placement)))

    def _link(self) -> Flow[None]:
        """Name the parents that came after their children."""
        known = {*self.report.created, *self.report.updated, *self.report.unchanged}
        for child, parent in self.orphans:
            if parent in known:
                yield from ask(arrivals.link(self.scope, child, parent))


class _Writer:
    """Writes a group to one tree, a batch at a time."""

    def __init__(self, intake: Intake, group: Group, placement: Placement) -> None:
        self.intake = intake
        self.group = group
        self.placement = placement
        self.failed: str | None = None
        self.opened = arrivals.Opened(0, {}, {})
        self.snapshots: dict[str, list[dict[str, Any]]] = {}
        self._clear(0)

    def _clear(self, number: int) -> None:
        self.number = number
        self.size = 0
        self.messages: list[Row] = []
        self.turns: list[dict[str, Any]] = []
        self.calls: list[Row] = []
        self.compactions: list[dict[str, Any]] = []
        self.inside: dict[str, bytes] = {}

    def begin(self) -> Flow[None]:
        """Make the sessions and branches."""
        placement, group = self.placement, self.group
        for_sessions = [
            arrivals.Arrival(
                target.id, target.key, target.mode, group.sessions[name].columns, group.sessions[name].head,
                _renamed(group.sessions[name].record.parent, placement),
            )
            for name, target in placement.targets.items()
        ]  # fmt: skip
        branches = [group.path(number, self._owner(number)) for number in sorted(placement.paths)]
        self.opened = yield from ask(arrivals.begin(self.intake.scope, placement.tree, for_sessions, branches))

    def _owner(self, number: int) -> str | None:
        """Name the session that a branch belongs to here; None where that is not brought in."""
        session = self.group.branches[number].session
        target = None if session is None else self.placement.targets.get(session)
        return None if target is None else target.id

    def take(self, record: Any) -> Flow[None]:
        """Take a record, and write what has gathered when it is enough."""
        if self.failed is not None:
            return
        number, position = _place(record)
        if isinstance(record, records.SnapshotRecord):
            self._snapshot(record, number)
            return
        if not self.placement.wants(number, position):
            return
        if number != self.number or len(self.messages) >= PAGE_ROWS or self.size >= PAGE_BYTES:
            yield from self._flush()
            self._clear(number)
        self._gather(record)

    def _gather(self, record: Any) -> None:
        if isinstance(record, records.MessageRecord):
            _, row, inside = records.message_row(record)
            self.messages.append(row)
            self.inside.update(inside)
            self.size += len(row[PARTS]) + sum(map(self.intake.payloads.size, records.blobs_of(row)))
        elif isinstance(record, records.TurnRecord):
            self.turns.append(records.turn_columns(record)[1])
        elif isinstance(record, records.CompactionRecord):
            self.compactions.append(records.compaction_columns(record))
        elif record.branch in self.opened.branches:
            self.calls.append(records.call_row(record, self.opened.branches[record.branch]))

    def _snapshot(self, record: records.SnapshotRecord, number: int) -> None:
        target = self.placement.targets.get(record.session)
        if target is not None and target.mode != "keep" and number in self.opened.branches:
            columns = records.snapshot_columns(record, self.opened.branches[number])
            self.snapshots.setdefault(target.id, []).append(columns)

    def _flush(self) -> Flow[None]:
        if not (self.messages or self.turns or self.calls or self.compactions):
            return
        payloads = dict(self.inside)
        for row in self.messages:
            for name in records.blobs_of(row):
                if name in self.intake.payloads and name not in payloads:
                    payloads[name] = self.intake.payloads[name]
        owner = self._owner(self.number)
        session = self.group.branches[self.number].session
        target = None if session is None else self.placement.targets.get(session)
        batch = arrivals.Batch(
            self.opened.branches[self.number], self.number,
            None if owner is None else self.opened.sessions[owner],
            target is not None and target.mode == "renew",
            sorted(self.messages, key=lambda row: row[POSITION]), self.turns, self.calls, self.compactions, payloads,
        )  # fmt: skip
        try:
            added: int = yield from ask(arrivals.add(self.intake.scope, self.opened.tree, batch))
        except arrivals.Diverged as error:
            self.failed = f"{error} It was changed during the import."
            return
        self.intake.report.messages += added
        if self.intake.progress is not None:
            self.intake.progress(self.intake.report.messages)

    def end(self) -> Flow[None]:
        """Write the rest."""
        if self.failed is None:
            yield from self._flush()
            self._clear(0)
        if self.failed is None:
            for id, found in self.snapshots.items():
                yield from ask(arrivals.keep_snapshots(self.opened.sessions[id], found))


class _Newer(InvalidValue):
    """A file of a version that is not known."""


def _renamed(parent: str | None, placement: Placement) -> Any:
    """Name a parent as it is called in the store."""
    target = None if parent is None else placement.targets.get(parent)
    return parent if target is None else target.id


def _check(group: Group, record: Any) -> None:
    """Refuse a record that speaks of what is not there, or that can not be stored."""
    number, _ = _place(record)
    group.check_branch(number)
    if isinstance(record, records.TurnRecord):
        group.check_place(record.id)
        records.turn_columns(record)
    elif isinstance(record, records.ToolCallRecord):
        group.check_place(record.message)
        group.check_branch(record.branch)
        records.call_row(record, 0)
    elif isinstance(record, records.CompactionRecord):
        records.compaction_columns(record)
    else:
        records.snapshot_columns(record, 0)


def _place(record: Any) -> tuple[int, int]:
    if isinstance(record, records.MessageRecord | records.TurnRecord):
        return records.place(record.id)
    if isinstance(record, records.CompactionRecord):
        return record.branch, record.to_position
    return records.place(record.message)


def _from(first: Piece, rest: Iterator[Piece]) -> Iterator[Piece]:
    yield first
    yield from rest


def records_or_chat(text: bytes) -> bool:
    """Whether a piece says what kind of file this is."""
    try:
        value = records.plain(text)
    except InvalidValue:
        return False
    return isinstance(value, dict) and (chats.is_chat(text) or value.get("type") in records.TYPES)


def _why(text: bytes) -> str:
    try:
        records.plain(text)
    except InvalidValue as error:
        return str(error)
    return "It is neither a record of an export nor a message."
