"""JSON exports: JSON lines, and one JSON document with the same records grouped by session."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from recollect.export import records, redaction
from recollect.export.pipeline import Pipeline, execute
from recollect.export.redaction import Redactor
from recollect.export.selection import BranchExtent, SelectedSession, visit_sessions
from recollect.model import json
from recollect.model.record import RESERVED_PREFIX
from recollect.storage import row_stream
from recollect.storage.operation import Scope
from recollect.storage.row_stream import FullCallRow, FullMessageRow, FullVersionRow

R = TypeVar("R", FullMessageRow, FullVersionRow)


class ExportOptions(NamedTuple):
    """What an export leaves out, and the progress callback."""

    redactor: Redactor | None = None
    deleted: bool = True
    progress: Callable[[int], None] | None = None
    output: bool = True
    """Whether tool output is written; Markdown and HTML may omit it."""


class RecordEncoder:
    """Encodes records as lines of JSONL, or as elements of a JSON array."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self.first = True

    def add(self, record: records.ExportRecord) -> bytes:
        """Return the bytes of a record, with the separator before it in an array."""
        text = records.encode(record)
        if not self.array:
            return text + b"\n"
        separator = b"" if self.first else b",\n"
        self.first = False
        return separator + text


def write_jsonl(scope: Scope, ids: Sequence[str] | None, options: ExportOptions) -> Pipeline[None]:
    """Write a header and one record per line."""
    writer = _RecordWriter(scope, options, RecordEncoder(array=False))
    yield records.encode(_header(options)) + b"\n"
    yield from visit_sessions(scope, ids, writer.session)


def write_json(scope: Scope, ids: Sequence[str] | None, options: ExportOptions) -> Pipeline[None]:
    """Write one JSON document, with each record on its own line, so that it can be read in a stream."""
    writer = _RecordWriter(scope, options, RecordEncoder(array=True))
    head = records.encode(_header(options)).replace(b'"type":"header",', b"", 1)
    yield head[:-1] + b',"sessions":[\n'
    yield from visit_sessions(scope, ids, writer.session_object)
    yield b"\n]}\n"


def _header(options: ExportOptions) -> records.HeaderRecord:
    return records.HeaderRecord(
        format=records.FORMAT,
        version=records.VERSION,
        redacted=options.redactor is not None,
        deleted=options.deleted,
    )


class _RecordWriter:
    def __init__(self, scope: Scope, options: ExportOptions, encoder: RecordEncoder) -> None:
        self.scope = scope
        self.options = options
        self.encoder = encoder
        self.written_blobs: set[bytes] = set()
        self.sessions = 0
        self.messages = 0

    def session_object(self, session: SelectedSession) -> Pipeline[None]:
        """Write a session as an object: its id and a list of its records."""
        separator = b"" if self.sessions == 0 else b",\n"
        self.sessions += 1
        yield separator + b'{"id":' + json.encode(session.value.id).encode() + b',"records":[\n'
        self.encoder.first = True
        yield from self.session(session)
        yield b"\n]}"

    def session(self, session: SelectedSession) -> Pipeline[None]:
        """Write a session and all of its records."""
        session_id = session.value.id
        info = redaction.redact_session(session.value, self.options.redactor)
        yield self.encoder.add(records.session_record(info, session.tree)) + b"".join(
            self.encoder.add(
                records.branch_record(session_id, extent.branch, extent.parent, extent.high, shared=extent.shared)
            )
            for extent in session.branches
        )
        for extent in session.branches:
            yield from self._branch(session, extent)
        numbers = {key: extent.branch.number for key, extent in session.extents.items()}
        for row in (yield from execute(row_stream.read_snapshots(session.key))):
            if row.branch in numbers:
                redacted = redaction.redact_snapshot(row, self.options.redactor)
                yield self.encoder.add(records.snapshot_record(session_id, redacted, numbers[row.branch]))
        yield from self._keyed_records(session)

    def _keyed_records(self, session: SelectedSession) -> Pipeline[None]:
        """Write the keyed records of a session, except Recollect's own."""
        redactor = self.options.redactor
        names: set[tuple[str, bytes]] = set()
        after: tuple[str, bytes] | None = None
        while True:
            page: row_stream.RecordPage = yield from execute(row_stream.read_records(self.scope, session.key, after))
            for row in page.records:
                if not row.kind.startswith(RESERVED_PREFIX):
                    redacted = row if redactor is None else redaction.redact_record(row, names, redactor)
                    yield self.encoder.add(records.keyed_record(session.value.id, redacted))
            after = page.more
            if after is None:
                return

    def _branch(self, session: SelectedSession, extent: BranchExtent) -> Pipeline[None]:
        session_id, key, number = session.value.id, extent.branch.key, extent.branch.number
        low: int | None = extent.branch.fork_at
        while low is not None and low < extent.high:
            page: row_stream.BranchPage = yield from execute(
                row_stream.read_branch_page(session_id, key, low, extent.high, deleted=self.options.deleted)
            )
            versions: dict[int, list[FullVersionRow]] = {}
            for version in page.versions:
                versions.setdefault(version.position, []).append(version)
            for row in page.messages:
                yield from self._message(session_id, number, row)
                for version in versions.get(row.position, ()):
                    yield from self._version(session_id, number, version)
            positions = {row.position for row in page.messages}
            turns = [
                redaction.redact_turn(row, self.options.redactor) for row in page.turns if row.position in positions
            ]
            calls = self._calls(session, extent, [row for row in page.calls if row.position in positions])
            turn_records = [records.turn_record(session_id, number, row) for row in turns]
            yield b"".join(self.encoder.add(record) for record in (*turn_records, *calls))
            low = page.more
        for row in (yield from execute(row_stream.read_compactions(key, extent.high))):
            yield self.encoder.add(
                records.compaction_record(session_id, number, redaction.redact_compaction(row, self.options.redactor))
            )

    def _message(self, session_id: str, number: int, row: FullMessageRow) -> Pipeline[None]:
        row = yield from self._content(session_id, row)
        yield self.encoder.add(records.message_record(session_id, number, row))
        self.messages += 1
        if self.options.progress is not None and self.messages % row_stream.PAGE_ROWS == 0:
            self.options.progress(self.messages)

    def _version(self, session_id: str, number: int, row: FullVersionRow) -> Pipeline[None]:
        row = yield from self._content(session_id, row)
        yield self.encoder.add(records.version_record(session_id, number, row))

    def _content(self, session_id: str, row: R) -> Pipeline[R]:
        """Write the blobs of a message or of a version, and return its row, masked if secrets are."""
        redactor = self.options.redactor
        if redactor is None:
            for hash in row.blob_names:
                if bytes.fromhex(hash) not in self.written_blobs:
                    yield from self._blob(
                        session_id, hash, (yield from execute(row_stream.read_blob(self.scope, hash)))
                    )
        else:
            payloads: dict[str, bytes] = {}
            for hash in row.blob_names:
                payloads[hash] = (yield from execute(row_stream.read_blob(self.scope, hash))) or b""
            row, payloads = redaction.redact_message(row, payloads, redactor)
            for hash, payload in payloads.items():
                yield from self._blob(session_id, hash, payload)
        return row

    def _blob(self, session_id: str, hash: str, payload: bytes | None) -> Pipeline[None]:
        if payload is None or bytes.fromhex(hash) in self.written_blobs:
            return
        self.written_blobs.add(bytes.fromhex(hash))
        text = base64.b64encode(payload).decode()
        yield self.encoder.add(records.BlobRecord(session=session_id, hash=hash, size=len(payload), data=text))

    def _calls(
        self, session: SelectedSession, extent: BranchExtent, rows: Sequence[FullCallRow]
    ) -> Iterator[records.ToolCallRecord]:
        for row in rows:
            view_extent = session.extents.get(row.branch)
            if view_extent is not None:
                redacted = redaction.redact_call(call_row_within(row, view_extent.high), self.options.redactor)
                number = view_extent.branch.number
                yield records.call_record(session.value.id, extent.branch.number, redacted, number)


def call_row_within(row: FullCallRow, high: int) -> FullCallRow:
    """Return the row of a tool call. It is pending if its result comes after position `high`, the last exported one."""
    return row if row.result is None or row.result <= high else call_row_without_result(row)


def call_row_without_result(row: FullCallRow) -> FullCallRow:
    """Return the row of a tool call as pending, without its result."""
    return row._replace(
        status="pending", result=None, result_part=None, completed_at=None, latency_ms=None, error_code=None,
        error_message=None,
    )  # fmt: skip
