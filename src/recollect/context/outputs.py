"""Outputs of the type of their calls, in a Responses view: one of another type is the output of no call there."""

from __future__ import annotations

from typing import Any

import msgspec

from recollect.context.pairs import is_call, is_result, pair
from recollect.formats import neutral
from recollect.model.message import Message
from recollect.model.part import ToolCallPart, ToolResultPart
from recollect.model.repair import Repair

FUNCTION = "function_call"
_CUSTOM = "custom_tool_call"
_SENTENCE = "The result of tool call {id} in message {message} is an output of another type: made one of its call's."


def kind_of(part: ToolCallPart, *, own: bool) -> str:
    """Name the type of item that a call is, or becomes where it came in another format."""
    if part.native is None:
        return FUNCTION
    if not own:
        return FUNCTION if neutral.custom_input(part) is None else _CUSTOM
    return part.native.get("type", FUNCTION) if type(part.native) is dict else FUNCTION


def fits(part: ToolResultPart, kind: str, *, own: bool) -> bool:
    """Say whether a result is the output of such a call; what came in another format is written as one."""
    if not own:
        return True
    came = part.native.get("type") if type(part.native) is dict else None
    return (came or f"{FUNCTION}_output") == f"{kind}_output"


def retype(messages: list[Message], format: str | None, repairs: list[Repair]) -> list[Message]:
    """Have outputs of another type than their calls written anew."""
    view = messages
    for call, result in pair(messages).answers.items():
        message = messages[result[0]]
        if _fit(messages[call[0]], call[1], message, result[1], format):
            continue
        view = list(messages) if view is messages else view
        bare: Any = msgspec.structs.replace(message.parts[result[1]], native=None)
        view[result[0]] = msgspec.structs.replace(message, format=None, native=None, parts=(bare,))
        sentence = _SENTENCE.format(id=repr(bare.call_id), message=message.id)
        repairs.append(Repair(kind="output_type", message=message.id, sentence=sentence, call_id=bare.call_id))
    return view


def _fit(asked: Message, at: int, answered: Message, place: int, format: str | None) -> bool:
    call, result = asked.parts[at], answered.parts[place]
    if len(answered.parts) != 1 or not is_call(call) or not is_result(result):
        return True  # an item is a message of its own, but for those of a whole response, which the API made
    return fits(result, kind_of(call, own=asked.format == format), own=answered.format == format)
