"""What asks for more than words in a Responses view: a picture of the screen, or a person's consent.

Neither can be made up. So a call or a request that has no such answer is left out of the view, and so is an answer to
what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recollect.context.pairs import Place, is_reasoning, pair
from recollect.formats import openai_items, openai_responses
from recollect.model.message import Message
from recollect.model.part import DataPart
from recollect.model.repair import Repair, RepairKind

_REQUEST, _RESPONSE = "mcp_approval_request", "mcp_approval_response"
_CALL = "Computer call {id} of message {message} has no screenshot: left out."
_RESULT = "The result of computer call {id} in message {message} is no screenshot: left out."
_ASKED = "Nobody has answered the approval request {id} of message {message}: left out."
_TOLD = "Message {message} answers the approval request {id}, which is not here or has its answer: left out."
_THOUGHT = "Reasoning of message {message} was left out with what followed it."


def leave_out(messages: list[Message], repairs: list[Repair]) -> list[Message]:
    """Leave out computer calls without a screenshot, and approvals that are only asked for or only given."""
    gone = {**_unseen(messages, repairs), **_unapproved(messages, repairs)}
    if not gone:
        return messages
    left: list[Message] = []
    for index, message in enumerate(messages):
        places = {inner for outer, inner in gone if outer == index}
        _with_reasoning(message, places, repairs)
        view = openai_responses.without(message, places) if places else message
        if view.parts or not places:
            left.append(view)
    return left


def _with_reasoning(message: Message, places: set[int], repairs: list[Repair]) -> None:
    """Leave out what the model thought before that, where nothing else of the message follows it."""
    last = len(message.parts) - 1
    if last not in places:
        return
    while last >= 0 and (last in places or is_reasoning(message.parts[last])):
        if last not in places:
            places.add(last)
            sentence = _THOUGHT.format(message=message.id)
            repairs.append(Repair(kind="last_reasoning", message=message.id, sentence=sentence))
        last -= 1


def _unseen(messages: Sequence[Message], repairs: list[Repair]) -> dict[Place, None]:
    calls = [
        (index, inner)
        for index, message in enumerate(messages)
        if message.format == openai_responses.NAME
        for inner, part in enumerate(message.parts)
        if openai_items.is_screen_call(part)
    ]
    gone: dict[Place, None] = {}
    answers = pair(messages).answers if calls else {}
    for place in calls:
        result = answers.get(place)
        if result is not None and _shows(messages, result):
            continue
        gone[place] = None
        _note(messages, place, "unanswered_call", _CALL, repairs)
        if result is not None:
            gone[result] = None
            _note(messages, result, "orphan_result", _RESULT, repairs)
    return gone


def _shows(messages: Sequence[Message], place: Place) -> bool:
    """Whether a result is a screenshot: it came as one, or has a picture in it."""
    message = messages[place[0]]
    part: Any = message.parts[place[1]]
    native = part.native
    came = type(native) is dict and native.get("type") == "computer_call_output"
    return (came and message.format == openai_responses.NAME) or openai_items.screenshot(part) is not None


def _unapproved(messages: Sequence[Message], repairs: list[Repair]) -> dict[Place, None]:
    waiting: dict[str, Place] = {}
    ignored: list[tuple[str, Place]] = []
    gone: dict[Place, None] = {}
    for place, kind, id in _consents(messages):
        before = waiting.pop(id, None)
        if kind == _REQUEST:
            waiting[id] = place
            ignored += [] if before is None else [(id, before)]
        elif before is None:
            gone[place] = None
            _note(messages, place, "orphan_result", _TOLD, repairs, id)
    for id, place in (*ignored, *waiting.items()):
        gone[place] = None
        _note(messages, place, "unanswered_call", _ASKED, repairs, id)
    return gone


def _consents(messages: Sequence[Message]) -> Iterator[tuple[Place, str, str]]:
    """Find what is asked and what is told, with the id of the request."""
    for index, message in enumerate(messages):
        if message.format != openai_responses.NAME:
            continue
        for inner, part in enumerate(message.parts):
            native = part.native if type(part) is DataPart else None
            kind = native.get("type") if type(native) is dict else None
            if type(native) is dict and kind in (_REQUEST, _RESPONSE):
                yield (index, inner), kind, str(native.get("id" if kind == _REQUEST else "approval_request_id"))


def _note(
    messages: Sequence[Message],
    place: Place,
    kind: RepairKind,
    sentence: str,
    repairs: list[Repair],
    id: str | None = None,
) -> None:
    message = messages[place[0]]
    part: Any = message.parts[place[1]]
    call_id = part.call_id if id is None else id
    told = sentence.format(id=repr(call_id), message=message.id)
    repairs.append(Repair(kind=kind, message=message.id, sentence=told, call_id=call_id))
