"""Search hits: read the matching messages in batches and cut a snippet with highlighted terms out of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.model import json
from recollect.model.message import Part, ToolResultPart
from recollect.model.search import Hit
from recollect.storage.operation import Query, Scope, Steps, fetch_one, fetch_tuples
from recollect.storage.search import index
from recollect.storage.search.analysis import TextPiece, fold, text_pieces, token_spans

SNIPPET_LENGTH = 160  # characters, about two lines of a terminal
_CONTEXT_BEFORE = 40  # characters before the first mark
_BLOCK_LENGTH = 50_000  # characters that are tokenized at once
_BLOCK_OVERLAP = 2_000  # characters, so that a phrase across two blocks is found
_MAX_MARKS = 50  # marks per needle; more cannot improve the snippet


class Needle(NamedTuple):
    """A searched phrase. With `prefix`, the last word may be longer; with `suffix`, the first may begin earlier."""

    tokens: tuple[str, ...]
    prefix: bool
    suffix: bool

    @property
    def loose(self) -> bool:
        """True if it may be anywhere inside a word."""
        return self.suffix and len(self.tokens) == 1


class Snippet(NamedTuple):
    """A part of a text on one line, the marks in it, and how many different needles it contains."""

    text: str
    marks: tuple[tuple[int, int], ...]
    needle_count: int


Mark = tuple[int, int, int]
"""The start, the end and the needle number of an occurrence."""


def make_snippet(text: str, needles: Sequence[Needle]) -> Snippet:
    """Return the part of a text that contains the most different needles."""
    marks = _find_marks(text, needles)
    if not marks:
        start, end = 0, min(len(text), SNIPPET_LENGTH)
        return Snippet(*_single_line(text, start, end, ()), 0)
    first, count = _best_start(marks)
    start = max(0, marks[first][0] - _CONTEXT_BEFORE)
    end = min(len(text), max(start + SNIPPET_LENGTH, marks[first][1]))
    start = max(0, min(start, end - SNIPPET_LENGTH))
    start, end = _snap_to_words(text, start, end, marks[first])
    return Snippet(*_single_line(text, start, end, _without_overlaps(marks, start, end)), count)


def _without_overlaps(marks: Sequence[Mark], start: int, end: int) -> list[tuple[int, int]]:
    """Return the marks inside a part; of two that overlap, the first."""
    inside: list[tuple[int, int]] = []
    for low, high, _ in marks:
        if low >= max(start, inside[-1][1] if inside else 0) and high <= end:
            inside.append((low, high))
    return inside


def _find_marks(text: str, needles: Sequence[Needle]) -> list[Mark]:
    """Return the start, end and needle number of each occurrence.

    A long text is read in blocks. A block is tokenized only if it contains a needle that still needs marks.
    """
    marks: list[Mark] = []
    remaining = dict.fromkeys(range(len(needles)), _MAX_MARKS)
    start = 0
    while start < len(text) and remaining:
        end = _end_of_block(text, start)
        block = text[start : end + _BLOCK_OVERLAP]
        block_text = fold(block)
        if any(needles[number].tokens[0] in block_text for number in remaining):
            for low, high, number in _marks_in_block(block, needles, end - start):
                marks.append((start + low, start + high, number))
                remaining[number] = remaining.get(number, 0) - 1
            remaining = {number: count for number, count in remaining.items() if count > 0}
        start = end
    return marks


def _end_of_block(text: str, start: int) -> int:
    """Return the end of a block: after a space, so that no word is split."""
    if len(text) - start <= _BLOCK_LENGTH + _BLOCK_OVERLAP:
        return len(text)
    space = text.find(" ", start + _BLOCK_LENGTH, start + _BLOCK_LENGTH + _BLOCK_OVERLAP)
    return start + _BLOCK_LENGTH if space < 0 else space + 1


def _marks_in_block(block: str, needles: Sequence[Needle], end: int) -> Iterator[Mark]:
    words = token_spans(block)
    for place, (start, _, token) in enumerate(words):
        if start >= end:
            return
        for number, needle in enumerate(needles):
            last = place + len(needle.tokens) - 1
            if last < len(words) and _matches_first(token, needle) and _matches_rest(words, place, needle):
                yield start, words[last][1], number
                break


def _matches_first(token: str, needle: Needle) -> bool:
    first = needle.tokens[0]
    if token == first:
        return True
    if needle.loose:
        return first in token
    if needle.suffix:
        return token.endswith(first)
    return needle.prefix and len(needle.tokens) == 1 and token.startswith(first)


def _matches_rest(words: Sequence[tuple[int, int, str]], index: int, needle: Needle) -> bool:
    for offset in range(1, len(needle.tokens)):
        token, expected = words[index + offset][2], needle.tokens[offset]
        last = offset == len(needle.tokens) - 1
        if token != expected and not (last and needle.prefix and token.startswith(expected)):
            return False
    return True


def _best_start(marks: Sequence[Mark]) -> tuple[int, int]:
    """Return the index of the mark after which the most different needles fit into a snippet, and their number."""
    max_distance = SNIPPET_LENGTH - _CONTEXT_BEFORE - _CONTEXT_BEFORE // 2
    best = max_needles = end = 0
    counts: dict[int, int] = {}
    for first, (start, _, number) in enumerate(marks):
        while end < len(marks) and (end == first or marks[end][1] <= start + max_distance):
            counts[marks[end][2]] = counts.get(marks[end][2], 0) + 1
            end += 1
        if len(counts) > max_needles:
            best, max_needles = first, len(counts)
        counts[number] -= 1
        if not counts[number]:
            del counts[number]
    return best, max_needles


def _snap_to_words(text: str, start: int, end: int, mark: Mark) -> tuple[int, int]:
    """Move the start and end to nearby spaces."""
    if start > 0:
        space = text.find(" ", start, mark[0])
        start = space + 1 if 0 <= space < start + _CONTEXT_BEFORE // 2 else start
    if end < len(text):
        space = text.rfind(" ", max(mark[1], end - _CONTEXT_BEFORE // 2), end)
        end = space if space > 0 else end
    return start, end


def _single_line(
    text: str, start: int, end: int, marks: Iterable[tuple[int, int]]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a part on one line, with ellipses where the text continues; offsets stay valid."""
    before = "…" if start > 0 else ""
    line = text[start:end]
    if not line.isprintable():  # of all spaces, only the ordinary one is printable
        line = "".join([" " if char.isspace() or not char.isprintable() else char for char in line])
    shift = len(before) - start
    after = "…" if end < len(text) else ""
    return before + line + after, tuple((low + shift, high + shift) for low, high in marks)


READ_BATCH = 32
"""Messages that are read at once; each may have megabytes."""

MessagePosition = tuple[int, int]


class HitSession(NamedTuple):
    """The session in which a hit is shown, which also is a row of `search_sharing_session`."""

    id: str
    title: str | None
    channel: str | None
    archived_at: int | None
    deleted_at: int | None
    parent_id: str | None


class TitleMatchRow(NamedTuple):
    """A session whose title matches, and the rank of the title; lower is better."""

    session: int
    rank: float | None
    id: str
    title: str
    channel: str | None
    archived_at: int | None
    deleted_at: int | None
    parent_id: str | None
    created_at: int


class MatchedMessageRow(NamedTuple):
    """The message of a hit with the session of its branch, and whether that session passes the filters."""

    branch: int
    position: int
    number: int
    role: str
    created_at: int
    blobs: str | None
    parts: bytes
    session_matches: bool | None
    id: str | None
    title: str | None
    channel: str | None
    archived_at: int | None
    deleted_at: int | None
    parent_id: str | None


class ResultToolRow(NamedTuple):
    """The tool name of a tool result: the part of the message that holds it."""

    branch: int
    position: int
    part: int
    tool: str


MESSAGES = Query("search_hits", MatchedMessageRow)
SHARING_SESSION = Query("search_sharing_session", HitSession)
RESULT_TOOLS = Query("search_hits_tools", ResultToolRow)


class _FoundMessage(NamedTuple):
    """The message of a hit, and the session in which it is shown."""

    number: int
    role: str
    created: int
    parts: Sequence[Part]
    session: HitSession


def title_hit(row: TitleMatchRow, score: float, needles: Sequence[Needle]) -> Hit:
    """Return the hit of a title."""
    snippet = make_snippet(row.title, needles)
    return Hit(
        row.id, row.title, "title", snippet.text, snippet.marks, -score, row.created_at, channel=row.channel,
        archived_at_ms=row.archived_at, deleted_at_ms=row.deleted_at, parent=row.parent_id,
    )  # fmt: skip


def message_hits(
    scope: Scope,
    params: Mapping[str, Any],
    session: HitSession | None,
    entries: Sequence[tuple[float, MessagePosition]],
    needles: Sequence[Needle],
    *,
    context: bool = False,
) -> Steps[list[Hit | None]]:
    """Return the hits of messages, in `session` or in one that contains them; None if none does.

    With `context`, snippets also show the context that tools added.
    """
    messages_by_position = yield from _read_messages(scope, params, session, [place for _, place in entries])
    tools = yield from _read_tool_names(
        [place for place, message in messages_by_position.items() if any(map(_lacks_tool_name, message.parts))]
    )
    hits: list[Hit | None] = []
    for score, position in entries:
        message = messages_by_position.get(position)
        if message is None:
            hits.append(None)
            continue
        pieces = list(text_pieces(message.parts, tools.get(position, {})))
        if context:
            pieces += text_pieces(message.parts, tools.get(position, {}), context=True)
        piece, snippet = _best_snippet(pieces, needles)
        hits.append(
            Hit(
                message.session.id, message.session.title, piece.kind, snippet.text, snippet.marks, -score,
                message.created, f"{message.number}.{position[1]}", message.role, piece.tool, message.session.channel,
                message.session.archived_at, message.session.deleted_at, message.session.parent_id,
            )
        )  # fmt: skip
    return hits


def _read_messages(
    scope: Scope, params: Mapping[str, Any], session: HitSession | None, positions: Sequence[MessagePosition]
) -> Steps[dict[MessagePosition, _FoundMessage]]:
    result: dict[MessagePosition, _FoundMessage] = {}
    for branch, position, number, role, created, blobs, parts, session_matches, *session_columns in (
        yield from fetch_tuples(MESSAGES, hits=json.encode(positions), **params)
    ):
        shown_session = session or (HitSession(*session_columns) if session_matches else None)
        if shown_session is None:  # its own session is filtered out; another one may share the message
            shown_session = yield from fetch_one(SHARING_SESSION, branch=branch, position=position, **params)
        if shown_session is not None:
            all_parts = yield from index.read_parts(scope, parts, blobs)
            result[branch, position] = _FoundMessage(number, role, created, all_parts, shown_session)
    return result


def _lacks_tool_name(part: Part) -> bool:
    return isinstance(part, ToolResultPart) and not part.tool


def _read_tool_names(positions: Sequence[MessagePosition]) -> Steps[dict[MessagePosition, dict[int, str]]]:
    """Return the tool names of tool results, by message position and part."""
    names: dict[MessagePosition, dict[int, str]] = {}
    if positions:
        for branch, position, part, tool in (
            yield from fetch_tuples(RESULT_TOOLS, hits=json.encode(positions), call_distance=index.CALL_DISTANCE)
        ):
            names.setdefault((branch, position), {})[part] = tool
    return names


def _best_snippet(pieces: Sequence[TextPiece], needles: Sequence[Needle]) -> tuple[TextPiece, Snippet]:
    """Return the text piece that contains the most needles, with its snippet."""
    best: tuple[TextPiece, Snippet] | None = None
    for piece in pieces:
        snippet = make_snippet(piece.text, needles)
        if best is None or snippet.needle_count > best[1].needle_count:
            best = piece, snippet
    return best or (TextPiece("text", "", None, 0), Snippet("", (), 0))
