"""Pages of a list, and the hits of a search."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from recollect.model.value import TimeProperty, Value

T = TypeVar("T")


class Page(list[T]):
    """A list of sessions, hits or records with a cursor.

    - `next`: the value to pass as `after` for the next page, or `None` at the end.
    - `index_error`: for a search, the reason why the newest messages were not searched, if the
      [index][search.md#the-index] could not be updated; otherwise `None`.
    """

    next: str | None
    index_error: str | None

    def __init__(self, items: Iterable[T] = (), next: str | None = None, index_error: str | None = None) -> None:
        super().__init__(items)
        self.next = next
        self.index_error = index_error


class Hit(Value, frozen=True, gc=False):
    """One hit of a search: the session, the message, and a snippet with the matches marked.

    - `session`, `title`, `channel`, `parent`: id and fields of the session.
    - `archived_at`, `deleted_at`: times of the session, or `None`.
    - `message`: id of the message, or `None` for a hit in a title.
    - `role`: role of the message, or `None`.
    - `kind`: `"title"`, `"text"`, `"reasoning"`, `"tool_call"`, `"tool_result"`, `"attachment"` or `"data"`.
    - `tool`: name of the tool for a call or a result, or `None`.
    - `text`: an excerpt on one line.
    - `marks`: the matches in `text`, as pairs of start and end offsets.
    - `snippet`: the excerpt with `<mark>` and `</mark>` around each match; not escaped for HTML.
    - `score`: a number; higher is better. Comparable only within one search.
    - `created_at`: creation time of the message, or of the session for a title.
    """

    session: str
    title: str | None
    kind: str
    text: str
    marks: tuple[tuple[int, int], ...]
    score: float
    created_at_ms: int
    message: str | None = None
    role: str | None = None
    tool: str | None = None
    channel: str | None = None
    archived_at_ms: int | None = None
    deleted_at_ms: int | None = None
    parent: str | None = None

    created_at = TimeProperty[datetime]()
    archived_at = TimeProperty[datetime | None]()
    deleted_at = TimeProperty[datetime | None]()

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
