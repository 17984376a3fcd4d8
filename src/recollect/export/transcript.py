"""Transcripts: a session for people to read, the active path first, then the messages that only other branches have.

The rows are read once, page by page, and passed to a renderer. A tool result is rendered with its tool call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from recollect.export import redaction
from recollect.export.jsonl import ExportOptions, call_row_within
from recollect.export.pipeline import Pipeline, execute
from recollect.export.selection import BranchExtent, SelectedSession, path_spans, select_trees, visit_sessions
from recollect.formats import display
from recollect.formats.display import is_truncated
from recollect.model import blob, json
from recollect.model.message import Draft, Part, ToolCallPart, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.storage import row_stream
from recollect.storage.messages import MessageParts, PathRange, count_shown
from recollect.storage.operation import Scope
from recollect.storage.row_stream import BranchItem, FullCallRow, FullCompactionRow, FullMessageRow, TreePart, TreeRest

SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
"""The heading of a message, by its role."""

OMITTED_OUTPUT = "(tool output omitted)"
PartPosition = tuple[int, int, int]


class RenderedCall(NamedTuple):
    """The outcome of a tool call, and its result."""

    status: str
    latency_ms: int | None
    error_code: str | None
    error_message: str | None
    result: ToolResultPart | None


class RenderedMessage(NamedTuple):
    """A message to render. `parts` lacks the tool results that are rendered with their calls."""

    id: str
    role: str
    state: str
    created_at: int
    model: str | None
    tokens: int
    deleted: bool
    error: Any
    parts: Sequence[Part]
    calls: Mapping[int, RenderedCall]
    """The outcomes of the tool calls, by the index of the part."""
    truncated: bool = False
    """Whether the answer ended at its length limit."""


class RenderedSummary(NamedTuple):
    """A compaction: the first and the last message that it replaces, and the summary."""

    first: str
    last: str
    summary: str
    undone: bool


class SideBranch(NamedTuple):
    """A branch that is not on the active path, or only in part."""

    number: int
    fork_message: str | None
    """The last message that it shares with the messages rendered before it."""


class Renderer(Protocol):
    """Renders the pieces of a document. The methods are called in the order of the document."""

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the document."""
        ...

    def entry(self, number: int, session: SessionInfo, messages: int) -> bytes:
        """Return the entry of a session in the list of contents; `messages` does not count tool steps."""
        ...

    def contents_end(self) -> bytes:
        """Close the list of contents."""
        ...

    def session(self, number: int, session: SessionInfo, messages: int, branches: int) -> bytes:
        """Open a session, with its title and its facts."""
        ...

    def message(self, message: RenderedMessage) -> bytes:
        """Return one message."""
        ...

    def summary(self, summary: RenderedSummary) -> bytes:
        """Return the summary of a compaction."""
        ...

    def side(self, side: SideBranch) -> bytes:
        """Open a branch."""
        ...

    def session_end(self) -> bytes:
        """Close a session."""
        ...

    def end(self) -> bytes:
        """Close the document."""
        ...


def write_transcript(
    scope: Scope, ids: Sequence[str] | None, options: ExportOptions, renderer: Renderer
) -> Pipeline[None]:
    """Write sessions as a document. If there are several, it begins with a list of contents."""
    writer = _TranscriptWriter(scope, options, renderer)
    several = ids is None or len(set(ids)) > 1
    trees = yield from select_trees(scope, ids)
    yield renderer.begin(redacted=options.redactor is not None, several=several)
    if several:
        yield from visit_sessions(scope, trees, writer.entry)
        yield renderer.contents_end()
        writer.number = 0
    yield from visit_sessions(scope, trees, writer.session)
    yield renderer.end()


class _TranscriptWriter:
    def __init__(self, scope: Scope, options: ExportOptions, renderer: Renderer) -> None:
        self.scope = scope
        self.options = options
        self.renderer = renderer
        self.number = 0
        self.messages = 0
        self.shown_results: set[PartPosition] = set()

    def entry(self, session: SelectedSession) -> Pipeline[None]:
        self.number += 1
        messages = yield from self._count_messages(session)
        yield self.renderer.entry(self.number, redaction.redact_session(session.value, self.options.redactor), messages)

    def _count_messages(self, session: SelectedSession) -> Pipeline[int]:
        """Return the number of messages of a session's active path without tool steps."""
        path = PathRange(session.value.id, session.value.deleted_at_ms)
        [messages] = yield from execute(count_shown(self.scope, [path]))
        return messages

    def session(self, session: SelectedSession) -> Pipeline[None]:
        self.number += 1
        keys = {extent.branch.number: key for key, extent in session.extents.items()}
        path = path_spans(keys[session.value.branch], session.extents)
        side_branches = _side_branches(session, path)
        value = redaction.redact_session(session.value, self.options.redactor)
        messages = yield from self._count_messages(session)
        yield self.renderer.session(self.number, value, messages, len(side_branches) + 1)
        for extent, low, high in path:
            yield from self._write_span(session, path, extent, low, high)
        for side, span in side_branches:
            yield self.renderer.side(side)
            branch_path = path_spans(span[0].branch.key, session.extents)
            yield from self._write_span(session, branch_path, *span)
        self.shown_results.clear()
        yield self.renderer.session_end()

    def _write_span(
        self,
        session: SelectedSession,
        path: Sequence[tuple[BranchExtent, int, int]],
        extent: BranchExtent,
        low: int,
        high: int,
    ) -> Pipeline[None]:
        key, number = extent.branch.key, extent.branch.number
        rows: list[FullCompactionRow] = yield from execute(row_stream.read_compactions(key, high))
        compactions = sorted((row for row in rows if row.to_position > low), key=lambda row: row.to_position)
        part = TreePart("branch", number, low, session.value.id, key, high)
        rest: TreeRest | None = TreeRest([part], {extent.branch.key: extent.branch.number for extent, _, _ in path})
        while rest is not None:
            page = yield from execute(row_stream.read_rest(self.scope, rest, deleted=self.options.deleted))
            rest = page.rest
            for item in page.items:
                assert isinstance(item, BranchItem)
                for row in item.messages:
                    while compactions and compactions[0].to_position < row.position:
                        yield self._summary(number, compactions.pop(0))
                    yield from self._message(row, item, path)
        for row in compactions:
            yield self._summary(number, row)

    def _summary(self, number: int, row: FullCompactionRow) -> bytes:
        row = redaction.redact_compaction(row, self.options.redactor)
        return self.renderer.summary(
            RenderedSummary(
                f"{number}.{row.from_position}", f"{number}.{row.to_position}", row.summary, row.undone_at is not None
            )
        )

    def _message(
        self, row: FullMessageRow, item: BranchItem, path: Sequence[tuple[BranchExtent, int, int]]
    ) -> Pipeline[None]:
        parts = yield from self._parts(row)
        calls: dict[int, RenderedCall] = {}
        for index, part in enumerate(parts):
            if isinstance(part, ToolCallPart):
                calls[index] = yield from self._call(row, index, item, path)
        visible = [
            part
            for index, part in enumerate(parts)
            if not isinstance(part, ToolResultPart) or not self._was_shown((item.number, row.position, index))
        ]
        draft = self._draft(row, parts)
        visible += display.visible_parts(draft)[len(parts) :]
        self.messages += 1
        if self.options.progress is not None and self.messages % row_stream.PAGE_ROWS == 0:
            self.options.progress(self.messages)
        if visible or not parts:
            yield self.renderer.message(
                RenderedMessage(
                    f"{item.number}.{row.position}", row.role, row.state or "completed", row.created_at, row.model,
                    row.tokens, row.deleted_at is not None, self._error(row.error), visible,
                    _calls_by_index(parts, visible, calls), is_truncated(draft),
                )
            )  # fmt: skip

    def _draft(self, row: FullMessageRow, parts: tuple[Part, ...]) -> Draft:
        """Return a message with its provider-specific remainder."""
        native = None if row.native is None else json.decode(row.native)
        if self.options.redactor is not None:
            native = self.options.redactor.value(native)
        return Draft(role=row.role, parts=parts, format=row.format, native=native)

    def _was_shown(self, position: PartPosition) -> bool:
        if position in self.shown_results:
            self.shown_results.discard(position)
            return True
        return False

    def _error(self, text: str | None) -> Any:
        value = None if text is None else json.decode(text)
        return value if self.options.redactor is None else self.options.redactor.value(value)

    def _parts(self, row: FullMessageRow) -> Pipeline[tuple[Part, ...]]:
        payloads: dict[str, bytes] = {}
        for name in row.blob_names:
            payloads[name] = (yield from execute(row_stream.read_blob(self.scope, name))) or b""
        data = json.decode(row.parts)
        if row.blobs is not None:
            data = blob.attach_payloads(data, payloads)
        if self.options.redactor is not None:
            data = self.options.redactor.value(data)
        parts = msgspec.convert(data, MessageParts)
        return parts if self.options.output else tuple(map(_without_output, parts))

    def _call(
        self, row: FullMessageRow, index: int, item: BranchItem, path: Sequence[tuple[BranchExtent, int, int]]
    ) -> Pipeline[RenderedCall]:
        call = _find_call_row(row.position, index, item.tool_calls, path)
        if call is None:
            return RenderedCall("pending", None, None, None, None)
        call = redaction.redact_call(call, self.options.redactor)
        result = None
        if call.result is not None and call.result_part is not None:
            rows = item.messages if call.branch == item.number else []
            answer = next((other for other in rows if other.position == call.result), None)
            if answer is None:
                keys = {extent.branch.number: extent.branch.key for extent, _, _ in path}
                answer = next(iter((yield from execute(row_stream.read_message(keys[call.branch], call.result)))), None)
            if answer is not None and (self.options.deleted or answer.deleted_at is None):
                result = _result_part((yield from self._parts(answer)), call.result_part)
                if result is not None:
                    self.shown_results.add((call.branch, call.result, call.result_part))
        return RenderedCall(call.status, call.latency_ms, call.error_code, call.error_message, result)


def _without_output(part: Part) -> Part:
    """Return a part with the output of a tool replaced by a sentence. Its status stays."""
    if not isinstance(part, ToolResultPart):
        return part
    return msgspec.structs.replace(part, text=OMITTED_OUTPUT, data=msgspec.UNSET, content=None)


def _result_part(parts: Sequence[Part], index: int) -> ToolResultPart | None:
    part = parts[index] if index < len(parts) else None
    return part if isinstance(part, ToolResultPart) else None


def _calls_by_index(
    parts: Sequence[Part], visible: Iterable[Part], calls: Mapping[int, RenderedCall]
) -> dict[int, RenderedCall]:
    """Return the calls by the index of their parts among the visible parts."""
    by_part = {id(parts[index]): call for index, call in calls.items()}
    return {index: by_part[id(part)] for index, part in enumerate(visible) if id(part) in by_part}


def _find_call_row(
    position: int, index: int, calls: Sequence[FullCallRow], path: Sequence[tuple[BranchExtent, int, int]]
) -> FullCallRow | None:
    """Return the row of a call on a path. If several branches of the path have one, the last branch wins."""
    ends = {extent.branch.number: (depth, high) for depth, (extent, _, high) in enumerate(path)}
    candidates = [row for row in calls if row[:2] == (position, index) and row.branch in ends]
    if not candidates:
        return None
    row = max(candidates, key=lambda row: ends[row.branch][0])
    return call_row_within(row, ends[row.branch][1])


def _side_branches(
    session: SelectedSession, path: Sequence[tuple[BranchExtent, int, int]]
) -> list[tuple[SideBranch, tuple[BranchExtent, int, int]]]:
    """Return the branches of a session with messages that are not on its active path."""
    on_path = {extent.branch.key: high for extent, _, high in path}
    side_branches: list[tuple[SideBranch, tuple[BranchExtent, int, int]]] = []
    for key, extent in session.extents.items():
        low = on_path.get(key, extent.branch.fork_at)
        if extent.branch.session != session.key or low >= extent.high:
            continue
        origin = extent.branch.number if key in on_path else extent.parent
        shared = None if low == 0 or origin is None else f"{origin}.{low}"
        side_branches.append((SideBranch(extent.branch.number, shared), (extent, low, extent.high)))
    return side_branches
