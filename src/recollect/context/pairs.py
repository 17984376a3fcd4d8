"""Tool calls and their results in a list of messages: which belong together, and which are alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

from recollect.model.message import Message
from recollect.model.part import DataPart, Part, ReasoningPart, ToolCallPart, ToolResultPart

_REASONING = frozenset({"redacted_thinking"})

Place = tuple[int, int]
"""The index of a message in a list, and of a part in it."""


class Pairs(NamedTuple):
    """Calls and results by their places."""

    answers: dict[Place, Place]
    """The result of each call that has one."""
    unanswered: list[Place]
    orphans: list[Place]
    duplicates: list[Place]


def is_call(part: Any) -> TypeGuard[ToolCallPart]:
    """Whether a part is a call. What a provider runs itself is none: formats keep it as it is."""
    return type(part) is ToolCallPart


def is_result(part: Any) -> TypeGuard[ToolResultPart]:
    """Whether a part is the result of such a call."""
    return type(part) is ToolResultPart


def is_reasoning(part: Part) -> bool:
    """Whether a part is what a model thought."""
    if type(part) is ReasoningPart:
        return True
    native = part.native if type(part) is DataPart else None
    return type(native) is dict and native.get("type") in _REASONING


def calls_of(message: Message) -> list[int]:
    """Give the indexes of the calls in an agent's message."""
    return [index for index, part in enumerate(message.parts) if is_call(part)] if message.role == "assistant" else []


def results_of(message: Message) -> list[int]:
    """Give the indexes of the results in a message."""
    return [index for index, part in enumerate(message.parts) if is_result(part)]


def pair(messages: Sequence[Message]) -> Pairs:
    """Find the result of each call.

    Call ids are unique only within a response: a result belongs to the newest message before it that has an unanswered
    call of its id, and there to the first, unless it stands beside one. A result that came before its call is taken
    where nothing else answers it.
    """
    waiting: dict[str, list[Place]] = {}
    answers: dict[Place, Place] = {}
    loose: list[Place] = []
    for place, part in _places(messages):
        if is_call(part):
            waiting.setdefault(part.call_id, []).append(place)
        elif open := waiting.get(part.call_id):
            newest = open[-1]
            beside = newest == (place[0], place[1] - 1)
            answers[open.pop(-1 if beside else next(i for i, call in enumerate(open) if call[0] == newest[0]))] = place
        else:
            loose.append(place)
    answered = {_id(messages, call) for call in answers}
    orphans: list[Place] = []
    duplicates: list[Place] = []
    for place in loose:
        call_id = _id(messages, place)
        later = [call for call in waiting.get(call_id, ()) if call > place]
        if later:
            waiting[call_id].remove(later[0])
            answers[later[0]] = place
        else:
            (duplicates if call_id in answered else orphans).append(place)
    return Pairs(answers, sorted(call for calls in waiting.values() for call in calls), orphans, duplicates)


def _places(messages: Sequence[Message]) -> Iterable[tuple[Place, ToolCallPart | ToolResultPart]]:
    for index, message in enumerate(messages):
        for inner, part in enumerate(message.parts):
            if (message.role == "assistant" and is_call(part)) or is_result(part):
                yield (index, inner), part


def _id(messages: Sequence[Message], place: Place) -> str:
    part: Any = messages[place[0]].parts[place[1]]
    return part.call_id
