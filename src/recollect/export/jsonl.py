"""JSON exports: JSON lines, and one JSON document with the same records grouped by session."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from recollect.export import records, redaction
from recollect.export.pipeline import Pipeline, execute
from recollect.export.redaction import Redactor
from recollect.export.selection import SelectedSession, select_trees, visit_sessions
from recollect.model import json
from recollect.model.record import RESERVED_PREFIX
from recollect.storage import row_stream
from recollect.storage.operation import Scope
from recollect.storage.row_stream import (
    BranchItem,
    FullCallRow,
    FullMessageRow,
    FullRecordRow,
    FullVersionRow,
    SessionItem,
    TreePart,
    TreeRest,
)

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
    trees = yield from select_trees(scope, ids)
    yield records.encode(_header(options)) + b"\n"
    yield from visit_sessions(scope, trees, writer.session)


def write_json(scope: Scope, ids: Sequence[str] | None, options: ExportOptions) -> Pipeline[None]:
    """Write one JSON document, with each record on its own line, so that it can be read in a stream."""
    writer = _RecordWriter(scope, options, RecordEncoder(array=True))
    head = records.encode(_header(options)).replace(b'"type":"header",', b"", 1)
    trees = yield from select_trees(scope, ids)
    yield head[:-1] + b',"sessions":[\n'
    yield from visit_sessions(scope, trees, writer.session_object)
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
        numbers = {key: extent.branch.number for key, extent in session.extents.items()}
        parts = [
            TreePart("branch", extent.branch.number, extent.branch.fork_at, session_id, extent.branch.key, extent.high)
            for extent in session.branches
        ]
        parts.append(TreePart("session", 0, None, session_id, session.key))
        parts.append(TreePart("session records", 0, None, session_id, session.key))
        names: set[tuple[str, bytes]] = set()
        rest: TreeRest | None = TreeRest(parts, numbers)
        while rest is not None:
            page = yield from execute(row_stream.read_rest(self.scope, rest, deleted=self.options.deleted))
            rest = page.rest
            for item in page.items:
                if isinstance(item, BranchItem):
                    yield from self._branch(session, item)
                elif isinstance(item, SessionItem):
                    for row in item.snapshots:
                        redacted = redaction.redact_snapshot(row, self.options.redactor)
                        yield self.encoder.add(records.snapshot_record(session_id, redacted, row.branch))
                    yield from self._keyed_records(session_id, item.records, names)

    def _keyed_records(
        self, session_id: str, rows: Sequence[FullRecordRow], names: set[tuple[str, bytes]]
    ) -> Pipeline[None]:
        """Write keyed records of a session, except Recollect's own. `names` is what earlier pages wrote."""
        redactor = self.options.redactor
        for row in rows:
            if not row.kind.startswith(RESERVED_PREFIX):
                redacted = row if redactor is None else redaction.redact_record(row, names, redactor)
                yield self.encoder.add(records.keyed_record(session_id, redacted))

    def _branch(self, session: SelectedSession, item: BranchItem) -> Pipeline[None]:
        session_id, number, redactor = session.value.id, item.number, self.options.redactor
        versions: dict[int, list[FullVersionRow]] = {}
        for version in item.versions:
            versions.setdefault(version.position, []).append(version)
        for row in item.messages:
            yield from self._message(session_id, number, row)
            for version in versions.get(row.position, ()):
                yield from self._version(session_id, number, version)
        positions = {row.position for row in item.messages}
        highs = {extent.branch.number: extent.high for extent in session.extents.values()}
        lines: list[records.ExportRecord] = [
            records.turn_record(session_id, number, redaction.redact_turn(row, redactor))
            for row in item.turns
            if row.position in positions
        ]
        for row in item.tool_calls:
            if row.position in positions:
                call = redaction.redact_call(call_row_within(row, highs[row.branch]), redactor)
                lines.append(records.call_record(session_id, number, call, row.branch))
        lines += [
            records.compaction_record(session_id, number, redaction.redact_compaction(row, redactor))
            for row in item.compactions
        ]
        yield b"".join(map(self.encoder.add, lines))

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


def call_row_within(row: FullCallRow, high: int) -> FullCallRow:
    """Return the row of a tool call. It is pending if its result comes after position `high`, the last exported one."""
    return row if row.result is None or row.result <= high else call_row_without_result(row)


def call_row_without_result(row: FullCallRow) -> FullCallRow:
    """Return the row of a tool call as pending, without its result."""
    return row._replace(
        status="pending", result=None, result_part=None, completed_at=None, latency_ms=None, error_code=None,
        error_message=None,
    )  # fmt: skip
