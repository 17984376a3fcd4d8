"""Pages of a list, and the hits of a search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from recollect.model.value import Value

T = TypeVar("T")


class Page(list[T]):
    """A list with a cursor: pass `next` as `after` for the next page; None at the end.

    `hindered` is the reason why a search skipped the newest messages; None if it searched everything.
    """

    def __init__(self, items: Iterable[T] = (), next: str | None = None, hindered: str | None = None) -> None:
        super().__init__(items)
        self.next = next
        self.hindered = hindered


class Hit(Value, frozen=True, gc=False):
    """One hit of a search: the session, the message, and a snippet with the matches marked."""

    session: str
    title: str | None
    kind: str
    """`title`, or the kind of part: `text`, `reasoning`, `tool_call`, `tool_result`, `attachment`, `data`."""
    text: str
    marks: tuple[tuple[int, int], ...]
    """The matches in `text`: start and end."""
    score: float
    """The relevance; higher is better. Comparable within one search only."""
    created_at: int
    message: str | None = None
    """The id of the message; None for a match in the title."""
    role: str | None = None
    tool: str | None = None
    channel: str | None = None
    archived_at: int | None = None
    deleted_at: int | None = None
    parent: str | None = None

    @property
    def snippet(self) -> str:
        """The text with each match between <mark> and </mark>. It is not escaped for HTML."""
        pieces: list[str] = []
        end = 0
        for mark_start, mark_end in self.marks:
            pieces += [self.text[end:mark_start], "<mark>", self.text[mark_start:mark_end], "</mark>"]
            end = mark_end
        return "".join((*pieces, self.text[end:]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the snippet, times as ISO 8601."""
        return {**super().to_dict(), "snippet": self.snippet}
