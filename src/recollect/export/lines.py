"""Exports for machines: JSON lines, and one JSON document of the same records grouped by session."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from recollect.export import masks, records, stored
from recollect.export.flow import Flow, ask
from recollect.export.redaction import Redactor
from recollect.export.selection import Chosen, Cut, visit
from recollect.model import json
from recollect.op import Row, Scope
from recollect.ops import transfer
from recollect.ops.transfer import POSITION


class Options(NamedTuple):
    """What to leave out, and whom to tell how many messages were written."""

    redactor: Redactor | None = None
    deleted: bool = True
    progress: Callable[[int], None] | None = None
    output: bool = True
    """Whether what tools answered is written; documents for people may go without."""


class Joined:
    """Records as lines of JSONL, or as elements of an array."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self.first = True

    def add(self, record: records.Record) -> bytes:
        """Give a record as it goes out."""
        text = records.encode(record)
        if not self.array:
            return text + b"\n"
        before = b"" if self.first else b",\n"
        self.first = False
        return before + text


def jsonl(scope: Scope, ids: Sequence[str] | None, options: Options) -> Flow[None]:
    """Write a header, and one record a line."""
    writer = _Writer(scope, options, Joined(array=False))
    yield records.encode(_header(options)) + b"\n"
    yield from visit(scope, ids, writer.session)


def document(scope: Scope, ids: Sequence[str] | None, options: Options) -> Flow[None]:
    """Write one JSON document. Each record stands on a line of its own, so that it can be read piece by piece."""
    writer = _Writer(scope, options, Joined(array=True))
    head = records.encode(_header(options)).replace(b'"type":"header",', b"", 1)
    yield head[:-1] + b',"sessions":[\n'
    yield from visit(scope, ids, writer.grouped)
    yield b"\n]}\n"


def _header(options: Options) -> records.Header:
    return records.Header(
        format=records.FORMAT,
        version=records.VERSION,
        redacted=options.redactor is not None,
        deleted=options.deleted,
    )


class _Writer:
    def __init__(self, scope: Scope, options: Options, joined: Joined) -> None:
        self.scope = scope
        self.options = options
        self.joined = joined
        self.written: set[bytes] = set()
        self.sessions = 0
        self.messages = 0

    def grouped(self, chosen: Chosen) -> Flow[None]:
        """Write a session as an object: its id, and a list of its records."""
        before = b"" if self.sessions == 0 else b",\n"
        self.sessions += 1
        yield before + b'{"id":' + json.encode(chosen.value.id).encode() + b',"records":[\n'
        self.joined.first = True
        yield from self.session(chosen)
        yield b"\n]}"

    def session(self, chosen: Chosen) -> Flow[None]:
        """Write a session and everything in it."""
        name = chosen.value.id
        told = masks.session(chosen.value, self.options.redactor)
        yield self.joined.add(stored.of_session(told, chosen.tree)) + b"".join(
            self.joined.add(stored.of_branch(name, cut.branch, cut.parent, cut.high, shared=cut.shared))
            for cut in chosen.branches
        )
        for cut in chosen.branches:
            yield from self._branch(chosen, cut)
        numbers = {key: cut.branch.number for key, cut in chosen.reach.items()}
        for row in (yield from ask(transfer.snapshots(chosen.key))):
            if row[2] in numbers:
                masked = masks.snapshot(row, self.options.redactor)
                yield self.joined.add(stored.of_snapshot(name, masked, numbers[row[2]]))

    def _branch(self, chosen: Chosen, cut: Cut) -> Flow[None]:
        name, key, number = chosen.value.id, cut.branch.key, cut.branch.number
        low: int | None = cut.branch.fork_at
        while low is not None and low < cut.high:
            page: transfer.Page = yield from ask(transfer.page(name, key, low, cut.high, deleted=self.options.deleted))
            for row in page.messages:
                yield from self._message(name, number, row)
            there = {row[POSITION] for row in page.messages}
            turns = [masks.turn(row, self.options.redactor) for row in page.turns if row[0] in there]
            calls = self._calls(chosen, cut, [row for row in page.calls if row[0] in there])
            beside = [stored.of_turn(name, number, row) for row in turns]
            yield b"".join(self.joined.add(record) for record in (*beside, *calls))
            low = page.more
        for row in (yield from ask(transfer.compactions(key, cut.high))):
            yield self.joined.add(stored.of_compaction(name, number, masks.compaction(row, self.options.redactor)))

    def _message(self, name: str, number: int, row: Row) -> Flow[None]:
        redactor = self.options.redactor
        if redactor is None:
            for hash in transfer.blobs_of(row):
                if bytes.fromhex(hash) not in self.written:
                    yield from self._blob(name, hash, (yield from ask(transfer.blob(self.scope, hash))))
        else:
            payloads: dict[str, bytes] = {}
            for hash in transfer.blobs_of(row):
                payloads[hash] = (yield from ask(transfer.blob(self.scope, hash))) or b""
            row, payloads = masks.message(row, payloads, redactor)
            for hash, payload in payloads.items():
                yield from self._blob(name, hash, payload)
        yield self.joined.add(stored.of_message(name, number, row))
        self.messages += 1
        if self.options.progress is not None and self.messages % transfer.PAGE_ROWS == 0:
            self.options.progress(self.messages)

    def _blob(self, name: str, hash: str, payload: bytes | None) -> Flow[None]:
        if payload is None or bytes.fromhex(hash) in self.written:
            return
        self.written.add(bytes.fromhex(hash))
        text = base64.b64encode(payload).decode()
        yield self.joined.add(records.BlobRecord(session=name, hash=hash, size=len(payload), data=text))

    def _calls(self, chosen: Chosen, cut: Cut, rows: Sequence[Row]) -> Iterator[records.ToolCallRecord]:
        for row in rows:
            speaks_for = chosen.reach.get(row[2])
            if speaks_for is not None:
                masked = masks.call(within(row, speaks_for.high), self.options.redactor)
                number = speaks_for.branch.number
                yield stored.of_call(chosen.value.id, cut.branch.number, masked, number)


def within(row: Row, high: int) -> Row:
    """Give a tool call as it stands where only so much of the branch that answers it is there."""
    return row if row[6] is None or row[6] <= high else unanswered(row)


def unanswered(row: Row) -> Row:
    """Give a tool call as it stands without its result."""
    return (*row[:5], "pending", None, None, row[8], row[9], None, None, None, None)
