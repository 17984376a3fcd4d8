"""An answer as Markdown while it comes: what is complete is printed for good, what is not yet is shown below it.

Drawing the whole answer anew for each word would flicker, and would go wrong as soon as it is longer than the screen.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_LIST = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s")


class Blocks:
    """Splits a growing Markdown text into blocks that nothing that follows can change, and the rest.

    Each line is looked at once: an answer in one long block must not cost time with the square of its length.
    """

    def __init__(self) -> None:
        self._begin([])
        self._partial = ""

    def _begin(self, lines: list[str]) -> None:
        self._lines = lines
        self._fence: str | None = None
        self._seen = self._in_list = False
        self._blank: int | None = None
        """The number of lines up to a blank one in a list, which ends the block if no list follows."""

    @property
    def rest(self) -> str:
        """What is not complete yet."""
        return "".join(self._lines) + self._partial

    def feed(self, text: str) -> list[str]:
        """Take a piece; return the blocks that are complete now."""
        *whole, self._partial = (self._partial + text).split("\n")
        done: list[str] = []
        for line in whole:
            block = self._take(f"{line}\n")
            if block.strip():
                done.append(block.strip("\n"))
        return done

    def finish(self) -> str:
        """Return what is left, and begin again."""
        left, self._partial = self.rest.strip("\n"), ""
        self._begin([])
        return left

    def _take(self, line: str) -> str:
        """Add a line; return the block that it shows to be complete, or nothing.

        A block ends with the end of a fence, or with a blank line outside one after which no list continues.
        """
        ended = ""
        if self._blank is not None and line.strip():
            if not line[:1].isspace() and not _LIST.match(line):
                ended, after = "".join(self._lines[: self._blank]), self._lines[self._blank :]
                self._begin(after)
            self._blank = None
        self._lines.append(line)
        mark = _FENCE.match(line)
        if self._fence is not None:
            if mark and mark[1].startswith(self._fence) and not line.strip().strip(self._fence[0]):
                return self._cut()
        elif mark:
            self._fence = mark[1]
        elif not line.strip():
            if self._seen and not self._in_list:
                return self._cut()
            if self._seen and self._blank is None:
                self._blank = len(self._lines)
        else:
            self._in_list = bool(_LIST.match(line)) or (self._in_list and line[:1].isspace())
        self._seen = self._seen or bool(line.strip())
        return ended

    def _cut(self) -> str:
        block = "".join(self._lines)
        self._begin([])
        return block
