"""Bringing a file into a store: records in groups, in transactions of a bounded size; chats as new sessions."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from recollect.errors import InvalidValue, displayed
from recollect.export import batches, chats, records, stored
from recollect.export.flow import Flow, ask
from recollect.export.group import Group
from recollect.export.landing import Landing
from recollect.export.placement import Plan, placed
from recollect.export.report import Refused, Report
from recollect.export.source import Piece
from recollect.export.spool import Payloads
from recollect.model.moment import DAY
from recollect.op import Scope
from recollect.ops import arrivals, transfer

ON_CONFLICT = ("skip", "new", "error")
_ATTEMPTS = 8


class Intake:
    """One import: what was read, what became of it."""

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
            raise InvalidValue(f"on_conflict is one of {', '.join(ON_CONFLICT)}; got {displayed(on_conflict)}.")
        self.scope = scope
        self.on_conflict = on_conflict
        self.format = format
        self.progress = progress
        self.dry_run = dry_run
        self.report = Report()
        self.payloads = Payloads()
        self.group: Group | None = None
        self.orphans: list[tuple[str, str]] = []

    def run(self, pieces: Iterator[Piece]) -> Flow[Report]:
        """Import everything."""
        first = next(pieces, None)
        while first is not None and (first.reason is not None or not _tells_kind(first.text)):
            self.report.refuse(first.line, first.reason or _why(first.text))
            first = next(pieces, None)
        try:
            if first is not None:
                everything = _from(first, pieces)
                if chats.is_chat(first.text):
                    yield from chats.bring(
                        self.scope, everything, self.report, self.format, self.progress, dry_run=self.dry_run
                    )
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
                raise InvalidValue(f"It is the header of another format, {displayed(record.format)}.")
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
        self.group.add_session(record, line, self.scope.now + DAY)

    def _member(self, record: Any, piece: Piece) -> Flow[None]:
        """Take a record of a session."""
        group = self.group
        if isinstance(record, records.BlobRecord):
            self._blob(record)
            return
        if group is None or record.session not in group.sessions:
            raise InvalidValue(f"Session {displayed(record.session)} is not before it.")
        if isinstance(record, records.BranchRecord):
            group.add_branch(record)
            return
        if isinstance(record, records.MessageRecord):
            _, row, inside = stored.message_row(record)
            yield from self._check_payloads([name for name in transfer.blobs_of(row) if name not in inside])
            group.add_message(record.id)
        else:
            _check(group, record)
            if isinstance(record, records.ToolCallRecord) and record.branch not in group.branches:
                group.awaited.append((piece.line, record.branch))
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
            for line, number in group.awaited:
                if number not in group.branches:
                    self.report.refuse(line, f"Branch {number} is not in the file.")
            for id, given in list(group.sessions.items()):
                if not given.own:
                    self.report.refuse(given.line, f"Session {displayed(id)} has no branch in the file.")
                    del group.sessions[id]
            if group.sessions:
                yield from self._settle(group)
        finally:
            group.close()

    def _settle(self, group: Group) -> Flow[None]:
        """Place and write a group. If the store changes meanwhile, look again: what was written stays."""
        for _ in range(_ATTEMPTS):
            plan: Plan = yield from placed(self.scope, group, self.on_conflict)
            if self.dry_run:
                self.report.messages += sum(placement.count(group) for placement in plan.placements)
                self._tell(group, plan, {})
                return
            landings = [
                Landing(self.scope, group, placement, self.payloads)
                for placement in plan.placements
                if placement.writes
            ]
            try:
                for landing in landings:
                    yield from landing.begin()
                for landing in landings:
                    yield from landing.write(self.report, self.progress)
            except arrivals.Stale:
                continue
            self._tell(group, plan, {id(landing.placement): landing.failed for landing in landings})
            return
        raise arrivals.Stale

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
                    self.orphans.append((target.id, placement.name(parent) or parent))

    def _link(self) -> Flow[None]:
        """Name the parents that came after their children."""
        if self.dry_run:
            return
        known = {*self.report.created, *self.report.updated, *self.report.unchanged}
        renamed = {refused.id: refused.new_id for refused in self.report.conflicts if refused.new_id is not None}
        for child, name in self.orphans:
            parent = renamed.get(name, name)
            if parent in known:
                yield from ask(arrivals.link(self.scope, child, parent))


class _Newer(InvalidValue):
    """A file of a version that is not known."""


def _check(group: Group, record: Any) -> None:
    """Refuse a record that speaks of what is not there, or that can not be stored."""
    number, _ = batches.place(record)
    group.check_branch(number)
    if isinstance(record, records.TurnRecord):
        group.check_message(record.id)
        stored.turn_columns(record)
    elif isinstance(record, records.ToolCallRecord):
        group.check_message(record.message)
        stored.call_row(record, 0)
    elif isinstance(record, records.CompactionRecord):
        stored.compaction_columns(record)
    else:
        stored.snapshot_columns(record, 0)


def _from(first: Piece, rest: Iterator[Piece]) -> Iterator[Piece]:
    yield first
    yield from rest


def _tells_kind(text: bytes) -> bool:
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
