"""The place of a hit: a short piece of the text around it, with the words that were looked for marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recollect.ops.search.words import fold, spans

LENGTH = 160
_BEFORE = 40
_BLOCK = 50_000
_ACROSS = 2_000
_ENOUGH = 50


class Needle(NamedTuple):
    """What was looked for: words in a row. With `prefix` the last may go on, with `suffix` the first begin before."""

    tokens: tuple[str, ...]
    prefix: bool
    suffix: bool

    @property
    def loose(self) -> bool:
        """Whether it may stand anywhere inside of one word."""
        return self.suffix and len(self.tokens) == 1


class Excerpt(NamedTuple):
    """A piece of a text on one line, and where in it the hits are; how many different things were found in it."""

    text: str
    marks: tuple[tuple[int, int], ...]
    found: int


Mark = tuple[int, int, int]


def excerpt(text: str, needles: Sequence[Needle], length: int = LENGTH) -> Excerpt:
    """Cut the best piece out of a text: where most of what was looked for stands together."""
    marks = _marks(text, needles)
    if not marks:
        start, end = 0, min(len(text), length)
        return Excerpt(*_line(text, start, end, ()), 0)
    first, count = _best(marks, length)
    start = max(0, marks[first][0] - _BEFORE)
    end = min(len(text), max(start + length, marks[first][1]))
    start = max(0, min(start, end - length))
    start, end = _at_words(text, start, end, marks[first])
    return Excerpt(*_line(text, start, end, _apart(marks, start, end)), count)


def _apart(marks: Sequence[Mark], start: int, end: int) -> list[tuple[int, int]]:
    """Choose the marks inside of a piece; of two that overlap, the first."""
    inside: list[tuple[int, int]] = []
    for low, high, _ in marks:
        if low >= max(start, inside[-1][1] if inside else 0) and high <= end:
            inside.append((low, high))
    return inside


def _marks(text: str, needles: Sequence[Needle]) -> list[Mark]:
    """Find the needles: where each hit begins and ends, and which needle it is.

    A long text is read in blocks, and a block is taken apart only where a needle is in it that was not found often yet.
    """
    marks: list[Mark] = []
    wanted = dict.fromkeys(range(len(needles)), _ENOUGH)
    start = 0
    while start < len(text) and wanted:
        end = _end_of_block(text, start)
        block = text[start : end + _ACROSS]
        folded = fold(block)
        if any(needles[number].tokens[0] in folded for number in wanted):
            for low, high, number in _in_block(block, needles, end - start):
                marks.append((start + low, start + high, number))
                wanted[number] = wanted.get(number, 0) - 1
            wanted = {number: left for number, left in wanted.items() if left > 0}
        start = end
    return marks


def _end_of_block(text: str, start: int) -> int:
    """Choose where a block ends: after a space, so that no word is cut in two."""
    if len(text) - start <= _BLOCK + _ACROSS:
        return len(text)
    space = text.find(" ", start + _BLOCK, start + _BLOCK + _ACROSS)
    return start + _BLOCK if space < 0 else space + 1


def _in_block(block: str, needles: Sequence[Needle], end: int) -> Iterator[Mark]:
    words = spans(block)
    for place, (start, _, token) in enumerate(words):
        if start >= end:
            return
        for number, needle in enumerate(needles):
            last = place + len(needle.tokens) - 1
            if last < len(words) and _begins(token, needle) and _goes_on(words, place, needle):
                yield start, words[last][1], number
                break


def _begins(token: str, needle: Needle) -> bool:
    first = needle.tokens[0]
    if token == first:
        return True
    if needle.loose:
        return first in token
    if needle.suffix:
        return token.endswith(first)
    return needle.prefix and len(needle.tokens) == 1 and token.startswith(first)


def _goes_on(words: Sequence[tuple[int, int, str]], place: int, needle: Needle) -> bool:
    for offset in range(1, len(needle.tokens)):
        token, wanted = words[place + offset][2], needle.tokens[offset]
        last = offset == len(needle.tokens) - 1
        if token != wanted and not (last and needle.prefix and token.startswith(wanted)):
            return False
    return True


def _best(marks: Sequence[Mark], length: int) -> tuple[int, int]:
    """Choose where to begin: the place from which most different needles are near, and shown whole."""
    reach = length - _BEFORE - _BEFORE // 2
    best = most = end = 0
    near: dict[int, int] = {}
    for first, (start, _, number) in enumerate(marks):
        while end < len(marks) and (end == first or marks[end][1] <= start + reach):
            near[marks[end][2]] = near.get(marks[end][2], 0) + 1
            end += 1
        if len(near) > most:
            best, most = first, len(near)
        near[number] -= 1
        if not near[number]:
            del near[number]
    return best, most


def _at_words(text: str, start: int, end: int, mark: Mark) -> tuple[int, int]:
    """Move the edges of a piece to the spaces nearby."""
    if start > 0:
        space = text.find(" ", start, mark[0])
        start = space + 1 if 0 <= space < start + _BEFORE // 2 else start
    if end < len(text):
        space = text.rfind(" ", max(mark[1], end - _BEFORE // 2), end)
        end = space if space > 0 else end
    return start, end


def _line(text: str, start: int, end: int, marks: Iterable[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Write a piece on one line, with dots where the text goes on; each character keeps its place."""
    before = "…" if start > 0 else ""
    line = "".join(" " if char.isspace() or not char.isprintable() else char for char in text[start:end])
    shift = len(before) - start
    after = "…" if end < len(text) else ""
    return before + line + after, tuple((low + shift, high + shift) for low, high in marks)
