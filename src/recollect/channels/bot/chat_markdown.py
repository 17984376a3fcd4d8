"""Markdown for chat platforms: splitting a long text into messages, and tables as code blocks or lists.

A text is split at paragraphs, lines, sentences or words. A code block that fits into the next message moves there
whole. A code block that must be split is closed at the end of one message and opened again, with its language, in the
next. The header of a split table is repeated. Only whitespace at a split is dropped.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

Measure = Callable[[str], int]
_FENCE = re.compile(r"^ {0,3}(`{3,16}(?!`)|~{3,16}(?!~))([^\n]*)$", re.MULTILINE)
_LINE_BREAKS = (re.compile(r"\n"),)
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    *_LINE_BREAKS,
    re.compile(r"(?<=[.!?\u2026])[ \t]+|(?<=[\u3002\uff01\uff1f])"),
    re.compile(r"[ \t]+"),
)
_MAX_SHRINK = 3
"""A split at a better break may leave a message this many times shorter than the limit."""
_MAX_FENCE_LENGTH = 40  # characters of an opening fence line that is repeated; of a longer one, only the fence itself
_MAX_TABLE_HEAD = 400
"""Maximum characters of a table header that is repeated after a split."""
_DASHES = re.compile(r":?-+:?")


class CodeBlock(NamedTuple):
    """A code block: the offsets of its first line, its code and its end (None if open), and its fence line."""

    start: int
    code: int
    end: int | None
    fence: str


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Telegram counts: most emoji are two."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int, measure: Measure = len) -> list[str]:
    """Split a text into pieces of at most `limit`, as `measure` counts. A blank text has no pieces."""
    pieces: list[str] = []
    remaining = text
    while (len(remaining) > limit or measure(close_code_block(remaining)) > limit) and remaining.strip():
        piece, remaining = cut_first_piece(remaining, limit, measure)
        pieces += [piece] if piece.strip() else []
    return [*pieces, close_code_block(remaining)] if remaining.strip() else pieces


def close_code_block(text: str) -> str:
    """Close the code block that a text leaves open."""
    fence = _open_fence(text)
    return text if fence is None else text + ("" if text.endswith("\n") else "\n") + _fence_characters(fence)


def find_code_blocks(text: str) -> list[CodeBlock]:
    """Return the code blocks of a text; the last one may be open."""
    return list(_iter_code_blocks(text))


def _iter_code_blocks(text: str) -> Iterator[CodeBlock]:
    block: CodeBlock | None = None
    for line in _FENCE.finditer(text):
        marks, info = line[1], line[2]
        if block is None:
            if marks[0] == "~" or "`" not in info:
                block = CodeBlock(line.start(), min(line.end() + 1, len(text)), None, line[0].strip())
        elif marks[0] == block.fence[0] and len(marks) >= len(_fence_characters(block.fence)) and not info.strip():
            yield block._replace(end=line.end())
            block = None
    if block is not None:
        yield block


def map_outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text outside of code blocks, which stay unchanged."""
    pieces: list[str] = []
    position = 0
    for block in find_code_blocks(text):
        end = len(text) if block.end is None else block.end
        pieces += [change(text[position : block.start]), text[block.start : end]]
        position = end
    return "".join([*pieces, change(text[position:])])


def _open_fence(text: str) -> str | None:
    """Return the fence line of the code block in which a text ends; None if it ends outside of one."""
    blocks = find_code_blocks(text)
    return blocks[-1].fence if blocks and blocks[-1].end is None else None


def _fence_characters(fence: str) -> str:
    return fence[: len(fence) - len(fence.lstrip(fence[0]))]


def cut_first_piece(text: str, limit: int, measure: Measure = len) -> tuple[str, str]:
    """Return the first piece of a text that is longer than the limit, and the remaining text."""
    length = _fitting_length(text, limit, measure)
    while True:
        at, resume = _find_cut(text, length)
        piece = close_code_block(text[:at])
        excess = measure(piece) - limit
        if excess <= 0 or length <= 1:
            break
        length = max(length - excess, 1) if length - excess < at else at - 1  # the closing fence needs space too
    return piece, _reopen_rest(text, at, resume)


def _reopen_rest(text: str, at: int, resume: int) -> str:
    """Return the text after a cut, with a cut code block opened again or a cut table's header repeated."""
    fence, remaining = _open_fence(text[:at]), text[resume:]
    if fence is None:
        table_head = _table_head(text[:at]) if text[at:resume] == "\n" and "|" in remaining.partition("\n")[0] else ""
        return table_head + remaining if len(table_head) < min(resume, _MAX_TABLE_HEAD) else remaining
    header = (fence if len(fence) <= _MAX_FENCE_LENGTH else _fence_characters(fence)) + "\n"
    first_block = next(_iter_code_blocks(header + remaining))  # later blocks are found by later calls
    if first_block.end is not None and not (header + remaining)[first_block.code : first_block.end].strip(
        " \t\n" + fence[0]
    ):
        return (header + remaining)[first_block.end :].removeprefix("\n")  # only the closing fence of the block is left
    return header + remaining if resume > len(header) else remaining


def is_table_rule(line: str) -> bool:
    """Return whether a line is the delimiter row of a Markdown table."""
    content = line.strip()
    cells = content.removeprefix("|").removesuffix("|").split("|")
    return "|" in content and all(_DASHES.fullmatch(cell.strip()) for cell in cells)


def _table_head(text: str) -> str:
    """Return the header and delimiter rows of the table in which a text ends; "" if it ends outside of one."""
    lines = text.split("\n")
    first = len(lines)
    while first and "|" in lines[first - 1]:
        first -= 1
    rule = next((number for number in range(first + 1, len(lines)) if is_table_rule(lines[number])), None)
    return "" if rule is None else f"{lines[rule - 1]}\n{lines[rule]}\n"


def _fitting_length(text: str, limit: int, measure: Measure) -> int:
    """Return how many characters of a text fit, by binary search."""
    low, high = 1, max(min(len(text), limit), 1)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _find_cut(text: str, length: int) -> tuple[int, int]:
    """Return where to cut within `length` characters: the end of the piece, and the start of the remaining text."""
    shortest = max(length // _MAX_SHRINK, 1)
    end = text.find("\n", length)
    blocks = find_code_blocks(text[: len(text) if end < 0 else end])
    enclosing = next(
        (block for block in blocks if block.start < length and (block.end is None or length < block.end)), None
    )
    if enclosing is not None:
        if enclosing.start >= shortest or (enclosing.start and length <= enclosing.code):
            return len(text[: enclosing.start].rstrip()) or enclosing.start, enclosing.start
        return _last_break(text, length, _LINE_BREAKS, enclosing.code + 1) or (length, length)

    starts = [block.start for block in blocks]

    def is_outside(position: int) -> bool:
        index = bisect.bisect_left(starts, position)
        return not index or not ((end := blocks[index - 1].end) is None or position < end)

    return _last_break(text, length, _BREAKS, shortest, is_outside) or (length, length)


def _last_break(
    text: str,
    length: int,
    patterns: tuple[re.Pattern[str], ...],
    shortest: int,
    accept: Callable[[int], bool] | None = None,
) -> tuple[int, int] | None:
    """Return the last match of the first pattern that has one between `shortest` and `length`; None if none has."""
    for pattern in patterns:
        breaks = [
            (match.start(), match.end())
            for match in pattern.finditer(text, 0, length + 1)
            if shortest <= match.start() <= length and (accept is None or accept(match.start()))
        ]
        if breaks:
            return breaks[-1]
    return None


_CELL_SEPARATOR = re.compile(r"(?<!\\)\|")
_MAX_TABLE_WIDTH = 48  # columns of a table in a code block: wider ones wrap on a phone


def render_tables(text: str) -> str:
    """Replace Markdown tables by code blocks or lists, for platforms without tables. Code blocks stay unchanged."""
    return map_outside_code(text, _replace_tables)


def _replace_tables(text: str) -> str:
    """Replace the tables of a text without code blocks. Linear in the number of lines: a model may write a million."""
    if "|" not in text:
        return text
    lines, output, index = text.split("\n"), list[str](), 0
    while index < len(lines):
        end = index + 1
        if "|" in lines[index] and end < len(lines) and is_table_rule(lines[end]):
            end += 1
            while end < len(lines) and "|" in lines[end]:
                end += 1
            output.append(_render_table(lines[index:end]))
        else:
            output.append(lines[index])
        index = end
    return "\n".join(output)


def _render_table(table: list[str]) -> str:
    head, _, *body = [_split_cells(line) for line in table]
    rows = [row for row in body if any(row)]
    if not any(head):
        pairs = "\n".join(_render_pair(row) for row in rows)
        return pairs or "\n".join(table)  # platforms reject an empty message
    plain = [[_strip_emphasis(cell) for cell in row] for row in (head, *rows)]
    count = max(len(row) for row in plain)
    if 2 * count > _MAX_TABLE_WIDTH:
        return _render_records(head, rows)
    grid = [row + [""] * (count - len(row)) for row in plain]
    widths = [max(_display_width(row[column]) for row in grid) for column in range(count)]
    if sum(widths) + 2 * count > _MAX_TABLE_WIDTH:
        return _render_records(head, rows)
    lines = ["  ".join(_pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
    lines.insert(1, "  ".join("\u2500" * width for width in widths))
    return "```\n" + "\n".join(lines).replace("```", "'''") + "\n```"


def _split_cells(line: str) -> list[str]:
    content = line.strip()
    content = content.removeprefix("|")
    content = content[:-1] if content.endswith("|") and not content.endswith("\\|") else content
    return [cell.strip().replace("\\|", "|") for cell in _CELL_SEPARATOR.split(content)]


def _render_pair(row: list[str]) -> str:
    label, *others = row
    values = " \u00b7 ".join(cell for cell in others if cell)
    return f"**{label}**: {values}" if label else values


def _render_records(head: list[str], rows: list[list[str]]) -> str:
    return "\n\n".join(_render_record(head, row) for row in rows) or " | ".join(head)


def _render_record(head: list[str], row: list[str]) -> str:
    """Return a row of a wide table as a list: each value on a line, after the name of its column."""
    lines = [
        f"- **{_strip_emphasis(name)}**: {cell}" if name else f"- {cell}"
        for name, cell in zip(head, row, strict=False)
        if cell
    ]
    return "\n".join([*lines, *(f"- {cell}" for cell in row[len(head) :] if cell)])


def _strip_emphasis(cell: str) -> str:
    """Remove emphasis marks from a cell: a code block would show them."""
    return re.sub(r"(\*\*|__|`)(.+?)\1", r"\2", cell)


def _display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _display_width(text))
