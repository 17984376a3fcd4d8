"""A message as search sees it: what was said, asked of tools and answered by them, and what else it is found by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.model.json import UNSET, decode, standard
from recollect.model.part import AttachmentPart, DataPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.ops.search.words import fold, tag

ALL = "a"
ROLE, TOOL = "r", "t"
_JSON_AT_MOST = 1_000_000


class Piece(NamedTuple):
    """One part of a message as text: its kind, the tool it belongs to, and the column it is indexed in."""

    kind: str
    text: str
    tool: str | None
    column: int


class Document(NamedTuple):
    """The columns of the index for one message."""

    said: str
    calls: str
    results: str
    tags: str


SAID, CALLS, RESULTS = range(3)


def pieces(parts: Sequence[Part], tools: Mapping[int, str]) -> Iterator[Piece]:
    """Go through what can be searched in a message; `tools` names the tool of a result by its place."""
    for place, part in enumerate(parts):
        if isinstance(part, TextPart | ReasoningPart):
            kind = "text" if isinstance(part, TextPart) else "reasoning"
            yield Piece(kind, part.text, None, SAID)
        elif isinstance(part, ToolCallPart):
            yield Piece("tool_call", f"{part.tool} {_arguments(part)}", part.tool, CALLS)
        elif isinstance(part, ToolResultPart):
            tool = part.tool or tools.get(place)
            yield Piece("tool_result", _result(part), tool, RESULTS)
        elif isinstance(part, AttachmentPart):
            yield Piece("attachment", " ".join(filter(None, (part.name, _short(part.url)))), None, SAID)
        else:
            yield Piece("data", _readable(part), None, SAID)


def _arguments(part: ToolCallPart) -> str:
    value = part.input
    return value if isinstance(value, str) else _flat(value)


def _result(part: ToolResultPart) -> str:
    """Give a result as text; one that is JSON without its escapes, which would grow into its words."""
    text = part.output
    if text[:1] in ("{", "[") and len(text) <= _JSON_AT_MOST:
        with contextlib.suppress(ValueError, RecursionError):
            text = _flat(decode(text))
    error = part.error_message
    return text if error is None or error == text else f"{text} {error}".lstrip()


def _flat(value: Any) -> str:
    """Write a JSON value as words: names and values in their order."""
    words: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                stack += [inner, f"{key}:"]
        elif isinstance(item, list):
            stack += reversed(item)
        elif item is not None:
            words.append(item if isinstance(item, str) else standard(item))
    return " ".join(words)


def _short(url: str | None) -> str | None:
    return None if url is None or url.startswith("data:") else url


def _readable(part: DataPart) -> str:
    value: Any = part.native if part.data is UNSET else part.data
    return _flat(value)


def document(role: str, parts: Sequence[Part], tools: Mapping[int, str]) -> Document:
    """Make the columns of a message."""
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    tags = [ALL, tag(ROLE, role)]
    for piece in pieces(parts, tools):
        columns[piece.column].append(piece.text)
        if piece.tool is not None:
            tags.append(tag(TOOL, piece.tool))
    said, calls, results = (fold("\n".join(texts)) for texts in columns)
    return Document(said, calls, results, " ".join(dict.fromkeys(tags)))
