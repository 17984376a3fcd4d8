"""Fitting a conversation to a token budget: whole turns are left out, from the oldest on."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.model.message import Message


def fit(messages: Sequence[Message], budget: int | None) -> list[Message]:
    """Keep the newest turns that fit the budget. System messages and the newest turn are always in."""
    if budget is None:
        return list(messages)
    kept = [message for message in messages if message.role == "system"]
    room = budget - sum(message.tokens for message in kept)
    for index, turn in enumerate(reversed(_turns(messages))):
        room -= sum(message.tokens for message in turn)
        if room < 0 and index > 0:
            break
        kept += turn
    chosen = {message.position for message in kept}
    return [message for message in messages if message.position in chosen]


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Split a conversation before each thing that a person said, so that calls and results stay together."""
    turns: list[list[Message]] = [[]]
    for message in messages:
        if message.role == "user" and turns[-1]:
            turns.append([])
        if message.role != "system":
            turns[-1].append(message)
    return turns
