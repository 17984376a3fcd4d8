"""Cutting a long answer into messages that a platform takes, where a reader would: paragraphs, lines, sentences, words.

A code block goes whole into the next message where it fits. One that must be cut is closed at the end of one message
and opened again, with its language, in the next. A table that must be cut has its head again in the next. Nothing but
white space at a cut is left out.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

Measure = Callable[[str], int]
_FENCE = re.compile(r"^ {0,3}(`{3,16}(?!`)|~{3,16}(?!~))([^\n]*)$", re.MULTILINE)
_LINE = (re.compile(r"\n"),)
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    *_LINE,
    re.compile(r"(?<=[.!?\u2026])[ \t]+|(?<=[\u3002\uff01\uff1f])"),
    re.compile(r"[ \t]+"),
)
_LEAST = 3
"""A cut at a better place may leave a message this many times smaller than it could be."""
_LANGUAGE = 40
_HEAD = 400
"""How long the head of a table may be to be said again."""
_DASHES = re.compile(r":?-+:?")


class Block(NamedTuple):
    """A code block in a text: where its first line begins, where its code begins, and where it ends."""

    start: int
    code: int
    end: int | None
    fence: str


def utf16(text: str) -> int:
    """Count a text in UTF-16 code units, as Telegram does: most emoji are two."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int, measure: Measure = len) -> list[str]:
    """Cut a text into pieces of at most `limit`; a text without anything to read gives none."""
    pieces: list[str] = []
    rest = text
    while (len(rest) > limit or measure(closed(rest)) > limit) and rest.strip():
        piece, rest = cut(rest, limit, measure)
        pieces += [piece] if piece.strip() else []
    return [*pieces, closed(rest)] if rest.strip() else pieces


def closed(text: str) -> str:
    """Close the code block that a text leaves open."""
    fence = _open(text)
    return text if fence is None else text + ("" if text.endswith("\n") else "\n") + _marks(fence)


def blocks(text: str) -> list[Block]:
    """Find the code blocks of a text; the last one may have no end."""
    return list(_each_block(text))


def _each_block(text: str) -> Iterator[Block]:
    opened: Block | None = None
    for line in _FENCE.finditer(text):
        marks, rest = line[1], line[2]
        if opened is None:
            if marks[0] == "~" or "`" not in rest:
                opened = Block(line.start(), min(line.end() + 1, len(text)), None, line[0].strip())
        elif marks[0] == opened.fence[0] and len(marks) >= len(_marks(opened.fence)) and not rest.strip():
            yield opened._replace(end=line.end())
            opened = None
    if opened is not None:
        yield opened


def outside_blocks(text: str, change: Callable[[str], str]) -> str:
    """Change what is outside of code blocks; those stay as they are."""
    changed: list[str] = []
    done = 0
    for block in blocks(text):
        end = len(text) if block.end is None else block.end
        changed += [change(text[done : block.start]), text[block.start : end]]
        done = end
    return "".join([*changed, change(text[done:])])


def _open(text: str) -> str | None:
    """Give the line that opened the code block in which a text ends; None where it ends outside of one."""
    found = blocks(text)
    return found[-1].fence if found and found[-1].end is None else None


def _marks(fence: str) -> str:
    return fence[: len(fence) - len(fence.lstrip(fence[0]))]


def cut(text: str, limit: int, measure: Measure = len) -> tuple[str, str]:
    """Take the first piece off a text that is longer than the limit: the piece, and what is left."""
    room = _fitting(text, limit, measure)
    while True:
        at, resume = _place(text, room)
        piece = closed(text[:at])
        over = measure(piece) - limit
        if over <= 0 or room <= 1:
            break
        room = max(room - over, 1) if room - over < at else at - 1  # closing a block takes room of its own
    return piece, _reopened(text, at, resume)


def _reopened(text: str, at: int, resume: int) -> str:
    """Give what is left after a cut, with the code block opened again that was cut."""
    fence, rest = _open(text[:at]), text[resume:]
    if fence is None:
        head = _table_head(text[:at]) if text[at:resume] == "\n" and "|" in rest.partition("\n")[0] else ""
        return head + rest if len(head) < min(resume, _HEAD) else rest
    header = (fence if len(fence) <= _LANGUAGE else _marks(fence)) + "\n"
    left = next(_each_block(header + rest))  # the others are found when it is their turn
    if left.end is not None and not (header + rest)[left.code : left.end].strip(" \t\n" + fence[0]):
        return (header + rest)[left.end :].removeprefix("\n")  # nothing but its end is left of the block
    return header + rest if resume > len(header) else rest


def is_rule(line: str) -> bool:
    """Whether a line is the one under the head of a Markdown table."""
    bare = line.strip()
    cells = bare.removeprefix("|").removesuffix("|").split("|")
    return "|" in bare and all(_DASHES.fullmatch(cell.strip()) for cell in cells)


def _table_head(text: str) -> str:
    """Give the head of the table that a text ends in, with the line under it; nothing where it ends in none."""
    lines = text.split("\n")
    first = len(lines)
    while first and "|" in lines[first - 1]:
        first -= 1
    rule = next((at for at in range(first + 1, len(lines)) if is_rule(lines[at])), None)
    return "" if rule is None else f"{lines[rule - 1]}\n{lines[rule]}\n"


def _fitting(text: str, limit: int, measure: Measure) -> int:
    """Find how many characters of a text fit, without measuring each of them."""
    low, high = 1, max(min(len(text), limit), 1)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _place(text: str, room: int) -> tuple[int, int]:
    """Find where to cut within the room: where the piece ends, and where what is left begins."""
    least = max(room // _LEAST, 1)
    end = text.find("\n", room)
    known = blocks(text[: len(text) if end < 0 else end])
    inside = next((block for block in known if block.start < room and (block.end is None or room < block.end)), None)
    if inside is not None:
        if inside.start >= least or (inside.start and room <= inside.code):
            return len(text[: inside.start].rstrip()) or inside.start, inside.start
        return _last(text, room, _LINE, inside.code + 1) or (room, room)

    starts = [block.start for block in known]

    def between(at: int) -> bool:
        before = bisect.bisect_left(starts, at)
        return not before or not ((end := known[before - 1].end) is None or at < end)

    return _last(text, room, _BREAKS, least, between) or (room, room)


def _last(
    text: str, room: int, patterns: tuple[re.Pattern[str], ...], least: int, good: Callable[[int], bool] | None = None
) -> tuple[int, int] | None:
    """Find the last place within the room that one of the patterns finds, the better pattern first."""
    for pattern in patterns:
        found = [
            (match.start(), match.end())
            for match in pattern.finditer(text, 0, room + 1)
            if least <= match.start() <= room and (good is None or good(match.start()))
        ]
        if found:
            return found[-1]
    return None
