"""Compactions: a range of a path and the summary that replaces it in the model-visible history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from recollect.model.message import Message, TextPart
from recollect.model.tokens import estimate_tokens
from recollect.model.value import TimeProperty, Value

KEEP_TURNS = 2
"""The newest turns that a compaction leaves untouched by default."""


class Compaction(Value, frozen=True, kw_only=True, gc=False):
    """A range of positions on a path, and its summary. The messages stay stored; undoing sets `undone_at`.

    - `id`: number of the compaction.
    - `branch`: number of the branch whose path it is on.
    - `from_position`, `to_position`: first and last replaced position on that path.
    - `round`: number of the compaction on its branch, from 1.
    - `tokens_before`, `tokens_after`: tokens of the replaced messages, and of the summary.
    - `summary`: text.
    - `created_at`, `undone_at`: times; `undone_at` is `None` while the compaction is in effect.

    Positions count along the path that ends with `branch`; the messages may be on earlier branches of that path.
    """

    id: int
    branch: int
    from_position: int
    to_position: int
    round: int
    tokens_before: int
    tokens_after: int
    summary: str
    created_at_ms: int
    undone_at_ms: int | None = None

    created_at = TimeProperty[datetime]()
    undone_at = TimeProperty[datetime | None]()


def outermost_compactions(compactions: Iterable[Compaction]) -> list[Compaction]:
    """Return the compactions in force that no later one in force covers, ordered by their first position."""
    outermost: list[Compaction] = []
    for compaction in sorted(compactions, key=lambda item: item.round, reverse=True):
        is_covered = any(
            other.from_position <= compaction.from_position and compaction.to_position <= other.to_position
            for other in outermost
        )
        if compaction.undone_at_ms is None and not is_covered:
            outermost.append(compaction)
    return sorted(outermost, key=lambda item: item.from_position)


class SummaryMessage(Message, frozen=True, gc=False):
    """The message that a model reads in place of a compacted range, at the position of its first message."""


SUMMARY_LABEL = "[Summary of earlier messages in this conversation]"
"""The first line of every summary that a model reads. Without it, a model takes the summary for words of the user."""


_LABEL_TOKENS = estimate_tokens((TextPart(text=f"{SUMMARY_LABEL}\n"),)) - estimate_tokens((TextPart(text=""),))


def summary_message(compaction: Compaction, branch: int) -> SummaryMessage:
    """Build the message that replaces a compacted range. `branch` is the branch on which the range begins."""
    return SummaryMessage(
        branch,
        compaction.from_position,
        "user",
        (TextPart(text=f"{SUMMARY_LABEL}\n{compaction.summary}"),),
        compaction.created_at_ms,
        tokens=compaction.tokens_after + _LABEL_TOKENS,
        completed_at_ms=compaction.created_at_ms,
        metadata={"compaction": compaction.round},
    )
