"""What was said, as Markdown in which no tag is one: it is kept as it was written, and `<` is shown instead of taken.

An image is written as a link with its text: a viewer would load it, and so tell its host who reads this.

In code it is kept as well, where it is certain that every reader of Markdown takes it for code. That is so of a block
that is fenced at the margin; of one that is indented, as long as nothing before it can be taken for a fence; and of a
span that begins and ends in one line, with nothing open before it. Elsewhere `<` becomes `&lt;`, also in code.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"( {0,3})(?:(`{3,})[^`]*|(~{3,}).*)$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TICKS = re.compile(r"`+")
_IMAGE = re.compile(r"(?<!\\)((?:\\\\)*)!(?=\[)")


class _Fence(NamedTuple):
    indent: int
    run: str

    def ends(self, line: str) -> bool:
        """Whether a line can be its end, however far it is indented."""
        bare = line.strip(" \t")
        return len(bare) >= len(self.run) and not bare.strip(self.run[0])

    def written(self) -> str:
        return " " * self.indent + self.run


def told(text: str) -> str:
    """Give what was said, with its tags shown as text and its code closed."""
    lines: list[str] = []
    fence: _Fence | None = None
    murky = False  # whether something was met that may be a fence in a list or a quote
    dirty = False  # whether a tick may be open in this paragraph
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        lead = line[: len(line) - len(line.lstrip(" \t"))]
        indent = len(lead.expandtabs(4))
        if fence is None or fence.ends(line):  # in a quote a tab is another number of columns
            line = " " * indent + line[len(lead) :]  # noqa: PLW2901
        if fence is not None:
            if fence.ends(line) and fence.indent <= indent <= 3:  # noqa: PLR2004  past that it is code
                lines.append(line)
                fence = None
                continue
            if not fence.indent or not line.strip() or (indent >= fence.indent and not fence.ends(line)):
                lines.append(line)
                continue
            lines.append(fence.written())  # a list may end here, and the code with it, or not
        found = _FENCE.match(line)
        if found is not None and "|" not in line and not (found[1] and murky):  # with a bar it may head a table
            fence = _Fence(len(found[1]), found[2] or found[3])
            lines.append(line)
            dirty = False
            continue
        fence = None
        murky = murky or "```" in line or "~~~" in line
        if found is not None:  # it may begin code or end it: it does neither
            line = f"{found[1]}\\{line.lstrip(' ')}"  # noqa: PLW2901
        shown, dirty = _untagged(line, dirty=dirty and bool(line.strip()))
        lines.append(shown)
    return "\n".join(lines if fence is None else [*lines, fence.written()])


def _untagged(line: str, *, dirty: bool) -> tuple[str, bool]:
    """Show the tags of a line as text, but for its code; say as well if a tick is left open in it."""
    spans = None if dirty or "\\`" in line else _spans(line)
    if spans is None:
        return _harmless(line), True
    pieces: list[str] = []
    at = 0
    for begin, end in spans:
        code = line[begin:end]
        # A cell of a table ends at a bar, also in the middle of code.
        pieces += [_harmless(line[at:begin]), _harmless(code) if "|" in code else code]
        at = end
    return "".join([*pieces, _harmless(line[at:])]), False


def _harmless(text: str) -> str:
    """Escape what begins a tag, and the mark that makes an image of a link."""
    return _IMAGE.sub(r"\1\\!", _TAG.sub("&lt;", text))


def _spans(line: str) -> list[tuple[int, int]] | None:
    """Find the code in a line: from some ticks to the next as many. None where some have no others."""
    runs = [(found.start(), found.end()) for found in _TICKS.finditer(line)]
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(runs):
        begin, end = runs[at]
        other = next((i for i in range(at + 1, len(runs)) if runs[i][1] - runs[i][0] == end - begin), None)
        if other is None:
            return None
        spans.append((begin, runs[other][1]))
        at = other + 1
    return spans
