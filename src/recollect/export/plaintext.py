"""Text before it is parsed as Markdown: normalization, the parser's budget, and the plain-text fallback."""

from __future__ import annotations

import html
import re

MAX_MARKDOWN_LENGTH = 200_000
"""Maximum length of a text that is parsed as Markdown, in characters. Longer ones are shown as plain text."""

_MAX_DELIMITERS = {
    "[": 3_000, "|": 20_000, "`": 20_000, "*": 20_000, "_": 20_000, "\\": 20_000, "$": 20_000, "~": 20_000,
    "\n": 20_000,
}  # fmt: skip
"""Maximum number of delimiters: each costs the parser far more than a letter."""

_MAX_QUOTE_STEPS = 20_000
"""Maximum number of lines that the parser reads again because a quotation ended. 1.5 million took 7 s."""

_MARKERS = re.compile(r"[ \t>*+\-\d.)]*")


def replace_surrogates(text: str) -> str:
    """Return a text that UTF-8 can carry: a lone surrogate, which JSON can hold, becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def normalize_text(text: str) -> str:
    """Return a text with LF line ends and without NUL and lone surrogates."""
    return replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def render_plain(text: str) -> str:
    """Return a text as escaped HTML without Markdown."""
    return f'<div class="plain-text">{html.escape(text)}</div>'


class ParseBudget:
    """Counts the cost of a text for the Markdown parser. `over_limit` stays True once the cost is too high."""

    def __init__(self) -> None:
        self.over_limit = False
        self._characters = 0
        self._counts = dict.fromkeys(_MAX_DELIMITERS, 0)

    def take(self, piece: str) -> None:
        """Add a piece of a text."""
        self._characters += len(piece)
        if self._characters > MAX_MARKDOWN_LENGTH:
            self.over_limit = True
            return
        for delimiter, maximum in _MAX_DELIMITERS.items():
            self._counts[delimiter] += piece.count(delimiter)
            self.over_limit = self.over_limit or self._counts[delimiter] > maximum


def fits_budget(text: str) -> bool:
    """Return whether a text is short and simple enough to be parsed as Markdown."""
    budget = ParseBudget()
    budget.take(text)
    return not budget.over_limit and (">" not in text or _count_quote_steps(text) <= _MAX_QUOTE_STEPS)


def _count_quote_steps(text: str) -> int:
    """Return how many lines the parser reads again: after each end of a quotation, all lines up to an empty one."""
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
