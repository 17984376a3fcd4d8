"""Compaction: which messages a summary replaces, and when compaction is due. Pure functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.history.window import align_to_pairs, always_kept, split_turns
from recollect.model.compaction import KEEP_TURNS, Compaction, SummaryMessage
from recollect.model.message import Message

Summarize = Callable[[list[Message]], Any]
"""A function that takes the messages to replace, including an earlier summary, and returns the text of the summary, or
an awaitable of it."""


class CompactionPolicy(msgspec.Struct, frozen=True):
    """When to compact automatically: once a share of the token budget is used. The newest turns are kept.

    - `share`: the share of the budget from which on `due()` returns `True`, 0.8 by default.
    - `keep_turns`: as in [session.compact()], with the same default.

    It has no `to_dict()`.

    ```python
    policy = recollect.types.CompactionPolicy(share=0.8)
    if policy.due(session.active_tokens(), 8_000):
        session.compact(summarize=lambda messages: f"{len(messages)} messages", keep_turns=policy.keep_turns)
    ```
    """

    share: float = 0.8
    keep_turns: int = KEEP_TURNS

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidValue(f"share must be greater than 0 and at most 1, got {format_value(self.share)}.")
        _check_turns(self.keep_turns)

    def due(self, tokens: int, budget: int) -> bool:
        """Return whether `tokens` is at least the share of the budget."""
        return tokens >= self.share * budget


class CompactionRange(NamedTuple):
    """The messages that a compaction replaces: the first and last position, the messages, and their tokens."""

    low: int
    high: int
    messages: list[Message]
    tokens: int


def choose_range(
    messages: Sequence[Message], compactions: Sequence[Compaction], before: int | None, keep_turns: int
) -> CompactionRange:
    """Return the messages to replace: all before a position, or all but the newest turns.

    Tool calls and their results stay together. System messages and pinned messages are not replaced; earlier summaries
    are. Raise InvalidValue if there is nothing to replace.
    """
    _check_turns(keep_turns)
    last_positions = {compaction.from_position: compaction.to_position for compaction in compactions}

    def last_position(message: Message) -> int:
        return last_positions[message.position] if isinstance(message, SummaryMessage) else message.position

    if before is None:
        end = _first_kept(messages, keep_turns)
    else:
        end = next((index for index, message in enumerate(messages) if last_position(message) >= before), len(messages))
    kept_indexes = always_kept(messages)
    end = align_to_pairs(messages, end)
    range_messages = [message for index, message in enumerate(messages) if index < end and index not in kept_indexes]
    if all(isinstance(message, SummaryMessage) for message in range_messages):
        scope = "except the newest turns" if before is None else f"before position {before}"
        raise InvalidValue(f"There is nothing to compact {scope}. Pass a later message with before=...")
    return CompactionRange(
        min(message.position for message in range_messages),
        max(last_position(message) for message in range_messages),
        range_messages,
        sum(message.tokens for message in range_messages),
    )


def _check_turns(keep_turns: int) -> None:
    if type(keep_turns) is not int or keep_turns < 0:
        raise InvalidValue(f"keep_turns must be a non-negative integer, got {format_value(keep_turns)}.")


def _first_kept(messages: Sequence[Message], keep_turns: int) -> int:
    """Return the index at which the newest turns begin. A short session keeps fewer turns, but at least one."""
    if keep_turns == 0:
        return len(messages)
    kept_indexes = always_kept(messages)
    candidates = [
        i for i, message in enumerate(messages) if i not in kept_indexes and not isinstance(message, SummaryMessage)
    ]
    turns = split_turns([messages[index] for index in candidates])
    if not turns:
        return 0
    count = keep_turns if len(turns) > keep_turns else max(len(turns) - 1, 1)
    return candidates[turns[-count][0]]


def check_summary_source(summary: str | None, summarize: Summarize | None) -> None:
    """Raise InvalidValue unless the caller passed exactly one of `summary` and `summarize`."""
    if (summary is None) == (summarize is None):
        raise InvalidValue("Pass either summary=..., a str, or summarize=..., a function that returns one.")
    if summarize is not None and not callable(summarize):
        raise InvalidValue(
            f"summarize must be a function that takes messages and returns a str, got {format_value(summarize)}."
        )


def check_summary(summary: Any) -> Any:
    """Return the summary. Raise InvalidValue if it must be awaited, which a sync store cannot do."""
    if inspect.isawaitable(summary):
        if inspect.iscoroutine(summary):
            summary.close()
        raise InvalidValue("summarize returned an awaitable. Use it with recollect.open_async().")
    return summary
