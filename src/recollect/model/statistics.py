"""What a store adds up to: sessions, messages, turns, tokens and tool calls, in all and by model, channel and day."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from recollect.model.value import Value

Period = Literal["day", "week", "month"]
PERIODS: tuple[Period, ...] = ("day", "week", "month")


class Tally(Value, frozen=True, kw_only=True, gc=False):
    """The figures of one model, channel or day. A name of None stands for sessions or messages that have none."""

    name: str | None
    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
    """How many of the messages are tool steps."""

    turns: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as people count them."""
        return self.messages - self.tool_steps


class Stats(Value, frozen=True, kw_only=True, gc=False):
    """The figures of a store or a session. Tokens are those that providers reported."""

    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
    """How many of the messages are tool steps."""

    turns: int = 0
    failures: int = 0
    cancelled: int = 0
    interrupted: int = 0
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    by_model: tuple[Tally, ...] = ()
    by_channel: tuple[Tally, ...] = ()
    by_day: tuple[Tally, ...] = ()

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as people count them."""
        return self.messages - self.tool_steps


def add_up(stats: Sequence[Stats]) -> Stats:
    """Return the sums of the figures of several owners."""
    if len(stats) == 1:
        return stats[0]
    figures = {name: sum(getattr(each, name) for each in stats) for name in Stats.__struct_fields__[:-3]}
    return Stats(
        **figures,
        by_model=ordered(_grouped([each.by_model for each in stats])),
        by_channel=ordered(_grouped([each.by_channel for each in stats])),
        by_day=tuple(sorted(_grouped([each.by_day for each in stats]), key=lambda tally: tally.name or "")),
    )


def _grouped(groups: Sequence[Sequence[Tally]]) -> list[Tally]:
    """Return the tallies of several owners, those with the same name added up."""
    found: dict[str | None, list[Tally]] = {}
    for tally in chain.from_iterable(groups):
        found.setdefault(tally.name, []).append(tally)
    names = Tally.__struct_fields__[1:]
    return [
        Tally(name=key, **{name: sum(getattr(each, name) for each in same) for name in names})
        for key, same in found.items()
    ]


def ordered(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """Return tallies in the order in which they are shown: those with the most messages first."""
    return tuple(sorted(tallies, key=lambda tally: (-tally.messages, tally.name is None, tally.name or "")))


class ToolStats(Value, frozen=True, kw_only=True, gc=False):
    """How a tool did, in all or in one period. Latencies are in milliseconds, by nearest rank, of answered calls."""

    tool: str
    period: str | None = None
    calls: int
    failures: int
    canceled: int
    unanswered: int
    p50_ms: int | None = None
    p95_ms: int | None = None
