"""Pairs of tool calls and tool results in a list of messages, and the output types of the OpenAI Responses format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec

from recollect.formats import common
from recollect.model.message import DataPart, Message, Part, ReasoningPart, Repair, ToolCallPart, ToolResultPart

_REASONING_TYPES = frozenset({"redacted_thinking"})
_REASONING_BLOCK = "reasoningContent"  # of Bedrock, whose blocks have no type

PartIndex = tuple[int, int]
"""The index of a message in a list, and of a part in it."""


class ToolPairs(NamedTuple):
    """Tool calls and tool results, by the indexes of their parts."""

    answers: dict[PartIndex, PartIndex]
    """The result of each call that has one."""
    open_calls: list[PartIndex]
    orphans: list[PartIndex]
    duplicates: list[PartIndex]


def is_call(part: Any) -> TypeGuard[ToolCallPart]:
    """Return whether a part is a tool call. Tools that the provider runs itself are stored as data parts."""
    return type(part) is ToolCallPart


def is_result(part: Any) -> TypeGuard[ToolResultPart]:
    """Return whether a part is a tool result."""
    return type(part) is ToolResultPart


def is_reasoning(part: Part) -> bool:
    """Return whether a part is reasoning, readable or redacted."""
    if type(part) is ReasoningPart:
        return True
    native = part.native if type(part) is DataPart else None
    if type(native) is not dict:
        return False
    kind = native.get("type")
    return (type(kind) is str and kind in _REASONING_TYPES) or _REASONING_BLOCK in native


def calls_of(message: Message) -> list[int]:
    """Return the indexes of the tool calls in an assistant message."""
    return [index for index, part in enumerate(message.parts) if is_call(part)] if message.role == "assistant" else []


def results_of(message: Message) -> list[int]:
    """Return the indexes of the tool results in a message."""
    return [index for index, part in enumerate(message.parts) if is_result(part)]


def pair_calls(messages: Sequence[Message]) -> ToolPairs:
    """Return the result of each tool call.

    Call ids are unique only within a response. A result belongs to the newest message before it that has an unanswered
    call of its id, and in that message to the call directly before it, or else to the first one. A result that comes
    before its call is used if no other result answers the call.
    """
    open_calls: dict[str, list[PartIndex]] = {}
    answers: dict[PartIndex, PartIndex] = {}
    unmatched_results: list[PartIndex] = []
    for index, part in _calls_and_results(messages):
        if is_call(part):
            open_calls.setdefault(part.call_id, []).append(index)
        elif same_id := open_calls.get(part.call_id):
            newest = same_id[-1]
            is_adjacent = newest == (index[0], index[1] - 1)
            answers[
                same_id.pop(-1 if is_adjacent else next(i for i, call in enumerate(same_id) if call[0] == newest[0]))
            ] = index
        else:
            unmatched_results.append(index)
    answered_ids = {_call_id(messages, call) for call in answers}
    orphans: list[PartIndex] = []
    duplicates: list[PartIndex] = []
    for index in unmatched_results:
        call_id = _call_id(messages, index)
        later_calls = [call for call in open_calls.get(call_id, ()) if call > index]
        if later_calls:
            open_calls[call_id].remove(later_calls[0])
            answers[later_calls[0]] = index
        else:
            (duplicates if call_id in answered_ids else orphans).append(index)
    return ToolPairs(answers, sorted(call for calls in open_calls.values() for call in calls), orphans, duplicates)


def _calls_and_results(messages: Sequence[Message]) -> Iterable[tuple[PartIndex, ToolCallPart | ToolResultPart]]:
    for index, message in enumerate(messages):
        for inner, part in enumerate(message.parts):
            if (message.role == "assistant" and is_call(part)) or is_result(part):
                yield (index, inner), part


def _call_id(messages: Sequence[Message], index: PartIndex) -> str:
    part: Any = messages[index[0]].parts[index[1]]
    return part.call_id


APPROVAL_REQUEST, APPROVAL_RESPONSE = "mcp_approval_request", "mcp_approval_response"


def approval_type(part: Part) -> str | None:
    """Return the item type of an approval request or response; None for any other part."""
    native = part.native if type(part) is DataPart else None
    kind = native.get("type") if type(native) is dict else None
    return kind if kind in (APPROVAL_REQUEST, APPROVAL_RESPONSE) else None


FUNCTION_CALL = "function_call"
_CUSTOM_CALL = "custom_tool_call"
_OUTPUT_TYPE_SENTENCE = (
    "The result of tool call {id} in message {message} has another output type: changed to that of its call."
)


def call_type(part: ToolCallPart, *, own: bool) -> str:
    """Return the Responses item type of a call; for a call of another format, the type under which it is rendered."""
    if part.native is None:
        return FUNCTION_CALL
    if not own:
        return FUNCTION_CALL if common.custom_input(part) is None else _CUSTOM_CALL
    return part.native.get("type", FUNCTION_CALL) if type(part.native) is dict else FUNCTION_CALL


def output_matches(part: ToolResultPart, kind: str, *, own: bool) -> bool:
    """Return whether a result has the output type of its call. One of another format is rendered with that type."""
    if not own:
        return True
    output_type = part.native.get("type") if type(part.native) is dict else None
    return (output_type or f"{FUNCTION_CALL}_output") == f"{kind}_output"


def retype_outputs(messages: list[Message], format: str | None, repairs: list[Repair]) -> list[Message]:
    """Drop the remainder of outputs of another type than their calls, so that they are rendered with the right one."""
    view = messages
    for call, result in pair_calls(messages).answers.items():
        message = messages[result[0]]
        if _pair_matches(messages[call[0]], call[1], message, result[1], format):
            continue
        view = list(messages) if view is messages else view
        bare: Any = msgspec.structs.replace(message.parts[result[1]], native=None)
        view[result[0]] = msgspec.structs.replace(message, format=None, native=None, parts=(bare,))
        sentence = _OUTPUT_TYPE_SENTENCE.format(id=repr(bare.call_id), message=message.id)
        repairs.append(Repair(kind="output_type", message=message.id, sentence=sentence, call_id=bare.call_id))
    return view


def _pair_matches(
    call_message: Message, call_index: int, result_message: Message, result_index: int, format: str | None
) -> bool:
    call, result = call_message.parts[call_index], result_message.parts[result_index]
    if len(result_message.parts) != 1 or not is_call(call) or not is_result(result):
        return True  # only an item stored as its own message can be wrong: a stored response comes from the API
    return output_matches(
        result, call_type(call, own=call_message.format == format), own=result_message.format == format
    )
