"""A compaction: a span of a branch and the summary that stands in its place when history is sent."""

from __future__ import annotations

from recollect.model.value import Value


class Compaction(Value, frozen=True, kw_only=True, gc=False):
    """A record, not a deletion: the messages of the span stay, and undoing it is a mark."""

    id: int
    branch: int
    from_position: int
    to_position: int
    round: int
    tokens_before: int
    tokens_after: int
    summary: str
    created_at: int
    undone_at: int | None = None
