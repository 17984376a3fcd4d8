"""A hit: a message or a title in which a search found what it looked for."""

from __future__ import annotations

from typing import Any

from recollect.model.value import Value


class Hit(Value, frozen=True, gc=False):
    """What was found, and where: the session, the message in it, and a piece of the text with the hits marked."""

    session: str
    title: str | None
    kind: str
    """`title`, or the kind of part: `text`, `reasoning`, `tool_call`, `tool_result`, `attachment`, `data`."""
    text: str
    marks: tuple[tuple[int, int], ...]
    """Where in `text` the hits are: from, to."""
    score: float
    """How well it fits; higher is better. Comparable within one search only."""
    created_at: int
    message: str | None = None
    """The message's id; None where the title was found."""
    role: str | None = None
    tool: str | None = None
    channel: str | None = None
    archived_at: int | None = None
    deleted_at: int | None = None
    parent: str | None = None

    @property
    def snippet(self) -> str:
        """The text with each hit between <mark> and </mark>. It is not escaped for HTML."""
        pieces: list[str] = []
        at = 0
        for low, high in self.marks:
            pieces += [self.text[at:low], "<mark>", self.text[low:high], "</mark>"]
            at = high
        return "".join((*pieces, self.text[at:]))

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, with the snippet, times as ISO 8601."""
        return {**super().to_dict(), "snippet": self.snippet}
