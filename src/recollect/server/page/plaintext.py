"""Text before it is Markdown: what UTF-8 can carry, what fits the budget of the renderer, and how the rest is shown."""

from __future__ import annotations

import html
import re

LONGEST = 200_000
"""Characters up to which a text is taken for Markdown; what is longer is shown as it is."""

_MOST = {
    "[": 3_000, "|": 20_000, "`": 20_000, "*": 20_000, "_": 20_000, "\\": 20_000, "$": 20_000, "~": 20_000,
    "\n": 20_000,
}  # fmt: skip
"""Delimiters up to which a text is taken for Markdown: each costs the parser far more than a letter."""

_QUOTE_STEPS = 20_000
"""Lines that the parser may look at again because a quotation ended. 1.5 million took 7 s."""

_MARKERS = re.compile(r"[ \t>*+\-\d.)]*")


def sendable(text: str) -> str:
    """Return a text that UTF-8 can carry: a lone surrogate, which JSON can hold, becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def normalized(text: str) -> str:
    """Return a text with LF line ends and without NUL and lone surrogates."""
    return sendable(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def plain(text: str) -> str:
    """Show a text as it is."""
    return f'<div class="plain-text">{html.escape(text)}</div>'


class Budget:
    """Counts what a text costs the Markdown parser. `exceeded` is True for good once it is too much."""

    def __init__(self) -> None:
        self.exceeded = False
        self._characters = 0
        self._counts = dict.fromkeys(_MOST, 0)

    def take(self, piece: str) -> None:
        """Add a piece of a text."""
        self._characters += len(piece)
        if self._characters > LONGEST:
            self.exceeded = True
            return
        for mark, most in _MOST.items():
            self._counts[mark] += piece.count(mark)
            self.exceeded = self.exceeded or self._counts[mark] > most


def fits(text: str) -> bool:
    """Whether a text is short and simple enough to be parsed as Markdown."""
    budget = Budget()
    budget.take(text)
    return not budget.exceeded and (">" not in text or _quote_steps(text) <= _QUOTE_STEPS)


def _quote_steps(text: str) -> int:
    """Count how often the parser looks at a line again: for each line where a quotation ends, it reads all that follow.

    It stops at an empty line.
    """
    steps = ends = lines = before = 0
    for line in text.split("\n"):
        if not line or line.isspace():
            steps += ends * lines
            ends = lines = before = 0
            continue
        markers = _MARKERS.match(line)
        depth = markers[0].count(">") if markers is not None else 0
        ends += depth < before
        lines += 1
        before = depth
    return steps + ends * lines
