"""What a compaction replaces, and when one is due. Pure functions over what is sent on now."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.context.window import staying, turns, unparted
from recollect.errors import InvalidValue, displayed
from recollect.model.compaction import KEEP_TURNS, Compaction, Summary
from recollect.model.message import Message

Summarize = Callable[[list[Message]], Any]
"""Given the messages that will be replaced, earlier summaries among them, gives the summary, or awaits it."""


class CompactionPolicy(msgspec.Struct, frozen=True):
    """When to compact by itself: once a share of the budget is used. The newest turns are kept."""

    share: float = 0.8
    keep_turns: int = KEEP_TURNS

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidValue(f"share is a part of the budget, above 0 and up to 1; got {displayed(self.share)}.")
        _check_turns(self.keep_turns)

    def due(self, tokens: int, budget: int) -> bool:
        """Say whether so many tokens are the share of this budget, or more."""
        return tokens >= self.share * budget


class Replaced(NamedTuple):
    """What a compaction replaces: the first and last position, the messages, and their size."""

    low: int
    high: int
    messages: list[Message]
    tokens: int


def replaced(
    messages: Sequence[Message], covers: Sequence[Compaction], before: int | None, keep_turns: int
) -> Replaced:
    """Choose what to replace: all before a position, or all but the newest turns. Calls keep their results.

    Instructions and pinned messages are not replaced. What an earlier compaction put there is.
    """
    _check_turns(keep_turns)
    ends = {cover.from_position: cover.to_position for cover in covers}

    def last(message: Message) -> int:
        return ends[message.position] if isinstance(message, Summary) else message.position

    if before is None:
        place = _kept_from(messages, keep_turns)
    else:
        place = next((index for index, message in enumerate(messages) if last(message) >= before), len(messages))
    stays = staying(messages)
    place = unparted(messages, place)
    chosen = [message for index, message in enumerate(messages) if index < place and index not in stays]
    if all(isinstance(message, Summary) for message in chosen):
        where = "but its newest turns" if before is None else f"before position {before}"
        raise InvalidValue(f"There is nothing to compact {where}. Name a later message with before=...")
    return Replaced(
        min(message.position for message in chosen),
        max(last(message) for message in chosen),
        chosen,
        sum(message.tokens for message in chosen),
    )


def _check_turns(keep_turns: int) -> None:
    if type(keep_turns) is not int or keep_turns < 0:
        raise InvalidValue(f"keep_turns is a number from 0 on; got {displayed(keep_turns)}.")


def _kept_from(messages: Sequence[Message], keep_turns: int) -> int:
    """Find where the newest turns begin. Of a short conversation fewer are kept, and always one."""
    if keep_turns == 0:
        return len(messages)
    stays = staying(messages)
    own = [i for i, message in enumerate(messages) if i not in stays and not isinstance(message, Summary)]
    found = turns([messages[index] for index in own])
    if not found:
        return 0
    keep = keep_turns if len(found) > keep_turns else max(len(found) - 1, 1)
    return own[found[-keep][0]]


def chosen(summary: str | None, summarize: Summarize | None) -> None:
    """Refuse neither and both."""
    if (summary is None) == (summarize is None):
        raise InvalidValue("Give either summary=..., a text, or summarize=..., a function that makes it.")
    if summarize is not None and not callable(summarize):
        raise InvalidValue(f"summarize is a function that takes messages and gives a text; got {displayed(summarize)}.")


def told(summary: Any) -> Any:
    """Refuse a summary that would have to be awaited."""
    if inspect.isawaitable(summary):
        if inspect.iscoroutine(summary):
            summary.close()
        raise InvalidValue("summarize gives something to await. Use it with recollect.open_async().")
    return summary
