"""A compaction: a span of a path and the summary that stands in its place when history is sent."""

from __future__ import annotations

from collections.abc import Iterable

from recollect.model.message import Message
from recollect.model.part import TextPart
from recollect.model.tokens import estimate
from recollect.model.value import Value

KEEP_TURNS = 2
"""How many of the newest turns a compaction leaves as they are, where the caller does not say."""


class Compaction(Value, frozen=True, kw_only=True, gc=False):
    """A record, not a deletion: the messages of the span stay, and undoing it is a mark.

    The span counts positions along the path that ends with `branch`; the messages in it may be on branches before it.
    """

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


def outermost(compactions: Iterable[Compaction]) -> list[Compaction]:
    """Give the compactions in force that no later one in force covers, the oldest span first."""
    found: list[Compaction] = []
    for compaction in sorted(compactions, key=lambda item: item.round, reverse=True):
        covered = any(
            other.from_position <= compaction.from_position and compaction.to_position <= other.to_position
            for other in found
        )
        if compaction.undone_at is None and not covered:
            found.append(compaction)
    return sorted(found, key=lambda item: item.from_position)


class Summary(Message, frozen=True, gc=False):
    """The message that a model reads instead of a span. It has the place of the first message that it stands for."""


LABEL = "[Summary of earlier messages in this conversation]"
"""The first line of every summary that a model reads: without it the model takes the text for the user's own words."""


_LABEL_TOKENS = estimate((TextPart(text=f"{LABEL}\n"),)) - estimate((TextPart(text=""),))


def standing_for(compaction: Compaction, branch: int) -> Summary:
    """Make the message that stands for a span; `branch` is the number of the branch that the span begins on."""
    return Summary(
        branch,
        compaction.from_position,
        "user",
        (TextPart(text=f"{LABEL}\n{compaction.summary}"),),
        compaction.created_at,
        tokens=compaction.tokens_after + _LABEL_TOKENS,
        completed_at=compaction.created_at,
        metadata={"compaction": compaction.round},
    )
