"""An answer as Markdown while it comes: what is complete is printed for good, what is not yet is shown below it.

Drawing the whole answer anew for each word would flicker, and would go wrong as soon as it is longer than the screen.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_LIST = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s")


class Blocks:
    """Splits a growing Markdown text into blocks that nothing that follows can change, and the rest."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def rest(self) -> str:
        """What is not complete yet."""
        return self._text

    def feed(self, text: str) -> list[str]:
        """Take a piece; give the blocks that are complete now."""
        self._text += text
        done: list[str] = []
        while (end := _end(self._text)) is not None:
            block, self._text = self._text[:end], self._text[end:]
            if block.strip():
                done.append(block.strip("\n"))
        return done

    def finish(self) -> str:
        """Give what is left, and begin anew."""
        left, self._text = self._text.strip("\n"), ""
        return left


def _end(text: str) -> int | None:
    """Find the end of the first block: a blank line outside a fence, after which no list goes on."""
    fence: str | None = None
    place, seen, in_list = 0, False, False
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        whole = line.endswith("\n")
        mark = _FENCE.match(line)
        if fence is not None:
            if whole and mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                return place + len(line)
        elif mark:
            fence = mark[1]
        elif whole and not line.strip():
            if seen and _closed(lines[index + 1 :], in_list=in_list):
                return place + len(line)
        else:
            in_list = bool(_LIST.match(line)) or (in_list and line[:1].isspace())
        seen = seen or bool(line.strip())
        place += len(line)
    return None


def _closed(following: list[str], *, in_list: bool) -> bool:
    """Say whether a blank line ends the block: in a list that shows in what follows."""
    if not in_list:
        return True
    upcoming = next((line for line in following if line.strip()), None)
    return upcoming is not None and upcoming.endswith("\n") and not upcoming[:1].isspace() and not _LIST.match(upcoming)
