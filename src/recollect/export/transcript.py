"""Exports for people: a session as it reads, the active path first and then what other branches have of their own.

It goes through the rows once, page by page, and tells a renderer what comes. A tool's result is shown with its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from recollect.export import masks
from recollect.export.flow import Flow, ask
from recollect.export.lines import Options, within
from recollect.export.selection import Chosen, Cut, spans, visit
from recollect.formats import remainder
from recollect.formats.truncation import is_truncated
from recollect.model import blob, json
from recollect.model.message import Draft
from recollect.model.part import Part, ToolCallPart, ToolResultPart
from recollect.model.session import Session
from recollect.op import Row, Scope
from recollect.ops import transfer
from recollect.ops.messages import Stretch, count_shown
from recollect.ops.transfer import (
    BLOBS,
    CREATED,
    DELETED,
    ERROR,
    FORMAT,
    MODEL,
    NATIVE,
    PARTS,
    POSITION,
    ROLE,
    STATE,
    TOKENS,
)

WHO = {"user": "Person", "assistant": "Agent", "system": "System", "tool": "Tool"}
"""Who says what, as people read it."""

LEFT_OUT = "(what the tool answered was left out)"
_Parts = tuple[Part, ...]
Place = tuple[int, int, int]


class Call(NamedTuple):
    """How a tool call went, and what the tool answered."""

    status: str
    latency_ms: int | None
    error_code: str | None
    error_message: str | None
    result: ToolResultPart | None


class Said(NamedTuple):
    """A message as it is shown. `parts` are without the results that stand with their calls."""

    id: str
    role: str
    state: str
    created_at: int
    model: str | None
    tokens: int
    deleted: bool
    error: Any
    parts: Sequence[Part]
    calls: Mapping[int, Call]
    """How the tool calls went, by the index of the part."""
    truncated: bool = False
    """Whether the answer ended at its length limit."""


class Summary(NamedTuple):
    """A compaction: what it stands for, and its text."""

    first: str
    last: str
    summary: str
    undone: bool


class Side(NamedTuple):
    """A branch that the active path does not take, or not to its end."""

    number: int
    leaves: str | None
    """The last message that it shares with what was shown before."""


class Renderer(Protocol):
    """Gives the pieces of a document, in the order in which they are asked for."""

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the document."""
        ...

    def entry(self, number: int, session: Session, messages: int) -> bytes:
        """List a session; `messages` is how many it has without tool steps."""
        ...

    def contents_end(self) -> bytes:
        """Close the list."""
        ...

    def session(self, number: int, session: Session, messages: int, branches: int) -> bytes:
        """Head a session."""
        ...

    def message(self, said: Said) -> bytes:
        """Show a message."""
        ...

    def summary(self, summary: Summary) -> bytes:
        """Mark a compaction."""
        ...

    def side(self, side: Side) -> bytes:
        """Head a branch."""
        ...

    def session_end(self) -> bytes:
        """Close a session."""
        ...

    def end(self) -> bytes:
        """Close the document."""
        ...


def transcript(scope: Scope, ids: Sequence[str] | None, options: Options, renderer: Renderer) -> Flow[None]:
    """Write sessions as a document. Where there are several, it begins with a list of them."""
    writer = _Writer(scope, options, renderer)
    several = ids is None or len(set(ids)) > 1
    yield renderer.begin(redacted=options.redactor is not None, several=several)
    if several:
        yield from visit(scope, ids, writer.entry)
        yield renderer.contents_end()
        writer.number = 0
    yield from visit(scope, ids, writer.session)
    yield renderer.end()


class _Writer:
    def __init__(self, scope: Scope, options: Options, renderer: Renderer) -> None:
        self.scope = scope
        self.options = options
        self.renderer = renderer
        self.number = 0
        self.messages = 0
        self.shown: set[Place] = set()

    def entry(self, chosen: Chosen) -> Flow[None]:
        self.number += 1
        messages = yield from self._counted(chosen)
        yield self.renderer.entry(self.number, masks.session(chosen.value, self.options.redactor), messages)

    def _counted(self, chosen: Chosen) -> Flow[int]:
        """Count the messages of a session's active path without tool steps."""
        path = Stretch(chosen.value.id, chosen.value.deleted_at)
        [messages] = yield from ask(count_shown(self.scope, [path]))
        return messages

    def session(self, chosen: Chosen) -> Flow[None]:
        self.number += 1
        keys = {cut.branch.number: key for key, cut in chosen.reach.items()}
        path = spans(keys[chosen.value.branch], chosen.reach)
        sides = _sides(chosen, path)
        value = masks.session(chosen.value, self.options.redactor)
        messages = yield from self._counted(chosen)
        yield self.renderer.session(self.number, value, messages, len(sides) + 1)
        for cut, low, high in path:
            yield from self._stretch(chosen, path, cut, low, high)
        for side, stretch in sides:
            yield self.renderer.side(side)
            whole = spans(stretch[0].branch.key, chosen.reach)
            yield from self._stretch(chosen, whole, *stretch)
        self.shown.clear()
        yield self.renderer.session_end()

    def _stretch(
        self, chosen: Chosen, path: Sequence[tuple[Cut, int, int]], cut: Cut, low: int, high: int
    ) -> Flow[None]:
        key, number = cut.branch.key, cut.branch.number
        waiting: list[Row] = yield from ask(transfer.compactions(key, high))
        waiting = [row for row in waiting if row[1] > low]
        after: int | None = low
        while after is not None and after < high:
            page: transfer.Page = yield from ask(
                transfer.page(chosen.value.id, key, after, high, deleted=self.options.deleted)
            )
            for row in page.messages:
                while waiting and waiting[0][1] < row[POSITION]:
                    yield self._summary(number, waiting.pop(0))
                yield from self._message(number, row, page, path, key)
            after = page.more
        for row in waiting:
            yield self._summary(number, row)

    def _summary(self, number: int, row: Row) -> bytes:
        first, last, _, _, _, summary, _, undone = masks.compaction(row, self.options.redactor)
        return self.renderer.summary(Summary(f"{number}.{first}", f"{number}.{last}", summary, undone is not None))

    def _message(
        self, number: int, row: Row, page: transfer.Page, path: Sequence[tuple[Cut, int, int]], key: int
    ) -> Flow[None]:
        parts = yield from self._parts(row)
        calls: dict[int, Call] = {}
        for index, part in enumerate(parts):
            if isinstance(part, ToolCallPart):
                calls[index] = yield from self._call(row, index, page, path, key)
        kept = [
            part
            for index, part in enumerate(parts)
            if not isinstance(part, ToolResultPart) or not self._was_shown((key, row[POSITION], index))
        ]
        draft = self._draft(row, parts)
        kept += remainder.shown(draft)[len(parts) :]
        self.messages += 1
        if self.options.progress is not None and self.messages % transfer.PAGE_ROWS == 0:
            self.options.progress(self.messages)
        if kept or not parts:
            yield self.renderer.message(
                Said(
                    f"{number}.{row[POSITION]}", row[ROLE], row[STATE] or "completed", row[CREATED], row[MODEL],
                    row[TOKENS], row[DELETED] is not None, self._error(row[ERROR]), kept,
                    _by_place(parts, kept, calls), is_truncated(draft),
                )
            )  # fmt: skip

    def _draft(self, row: Row, parts: tuple[Part, ...]) -> Draft:
        """Return a message with its provider-specific remainder."""
        native = None if row[NATIVE] is None else json.decode(row[NATIVE])
        if self.options.redactor is not None:
            native = self.options.redactor.value(native)
        return Draft(role=row[ROLE], parts=parts, format=row[FORMAT], native=native)

    def _was_shown(self, place: Place) -> bool:
        if place in self.shown:
            self.shown.discard(place)
            return True
        return False

    def _error(self, text: str | None) -> Any:
        value = None if text is None else json.decode(text)
        return value if self.options.redactor is None else self.options.redactor.value(value)

    def _parts(self, row: Row) -> Flow[tuple[Part, ...]]:
        payloads: dict[str, bytes] = {}
        for name in transfer.blobs_of(row):
            payloads[name] = (yield from ask(transfer.blob(self.scope, name))) or b""
        whole = json.decode(row[PARTS])
        if row[BLOBS] is not None:
            whole = blob.attach(whole, payloads)
        if self.options.redactor is not None:
            whole = self.options.redactor.value(whole)
        parts = msgspec.convert(whole, _Parts)
        return parts if self.options.output else tuple(map(_without_output, parts))

    def _call(
        self, row: Row, index: int, page: transfer.Page, path: Sequence[tuple[Cut, int, int]], key: int
    ) -> Flow[Call]:
        found = _nearest(row[POSITION], index, page.calls, path)
        if found is None:
            return Call("pending", None, None, None, None)
        found = masks.call(found, self.options.redactor)
        _, _, branch, _, _, status, position, part, _, _, _, latency, code, message = found
        result = None
        if position is not None:
            near = page.messages if branch == key else []
            answer: Row | None = next((other for other in near if other[POSITION] == position), None)
            if answer is None:
                answer = yield from ask(transfer.message(branch, position))
            if answer is not None and (self.options.deleted or answer[DELETED] is None):
                result = _result((yield from self._parts(answer)), part)
                if result is not None:
                    self.shown.add((branch, position, part))
        return Call(status, latency, code, message, result)


def _without_output(part: Part) -> Part:
    """Put a sentence in the place of what a tool answered; that it answered, and how, stays."""
    if not isinstance(part, ToolResultPart):
        return part
    return msgspec.structs.replace(part, text=LEFT_OUT, data=msgspec.UNSET, content=None)


def _result(parts: Sequence[Part], index: int) -> ToolResultPart | None:
    part = parts[index] if index < len(parts) else None
    return part if isinstance(part, ToolResultPart) else None


def _by_place(parts: Sequence[Part], kept: Iterable[Part], calls: Mapping[int, Call]) -> dict[int, Call]:
    """Say how the calls went by the index that their parts have among those that are shown."""
    by_part = {id(parts[index]): call for index, call in calls.items()}
    return {index: by_part[id(part)] for index, part in enumerate(kept) if id(part) in by_part}


def _nearest(position: int, index: int, calls: Sequence[Row], path: Sequence[tuple[Cut, int, int]]) -> Row | None:
    """Find what counts for a call on a path: of the branches that speak for it, the one nearest to the end."""
    ends = {cut.branch.key: (depth, high) for depth, (cut, _, high) in enumerate(path)}
    found = [row for row in calls if row[:2] == (position, index) and row[2] in ends]
    if not found:
        return None
    row = max(found, key=lambda row: ends[row[2]][0])
    return within(row, ends[row[2]][1])


def _sides(chosen: Chosen, path: Sequence[tuple[Cut, int, int]]) -> list[tuple[Side, tuple[Cut, int, int]]]:
    """Find what a session's branches have beyond its active path."""
    on_path = {cut.branch.key: high for cut, _, high in path}
    found: list[tuple[Side, tuple[Cut, int, int]]] = []
    for key, cut in chosen.reach.items():
        low = on_path.get(key, cut.branch.fork_at)
        if cut.branch.session != chosen.key or low >= cut.high:
            continue
        leaves = cut.branch.number if key in on_path else cut.parent
        shared = None if low == 0 or leaves is None else f"{leaves}.{low}"
        found.append((Side(cut.branch.number, shared), (cut, low, cut.high)))
    return found
