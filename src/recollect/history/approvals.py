"""Approval requests and computer calls in an OpenAI Responses history: drops those without an answer.

Unlike the result of a tool call, an approval or a screenshot cannot be synthesized. An answer to a request that is not
in the history is dropped too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recollect.formats import openai_responses
from recollect.history.tool_pairs import APPROVAL_REQUEST, PartIndex, approval_type, is_reasoning, pair_calls
from recollect.model.message import Message, Repair, RepairKind

_CALL_SENTENCE = "Computer call {id} of message {message} has no screenshot: omitted."
_RESULT_SENTENCE = "The result of computer call {id} in message {message} is not a screenshot: omitted."
_REQUEST_SENTENCE = "The approval request {id} of message {message} has no answer: omitted."
_RESPONSE_SENTENCE = (
    "Message {message} answers the approval request {id}, which is missing or already answered: omitted."
)
_REASONING_SENTENCE = "Reasoning of message {message} was omitted together with the item that followed it."


def drop_unanswered(messages: list[Message], repairs: list[Repair]) -> list[Message]:
    """Drop computer calls without a screenshot, approval requests without an answer, and answers without a request."""
    dropped_parts = {**_calls_without_screenshot(messages, repairs), **_unanswered_approvals(messages, repairs)}
    if not dropped_parts:
        return messages
    kept_messages: list[Message] = []
    for index, message in enumerate(messages):
        parts = {inner for outer, inner in dropped_parts if outer == index}
        _drop_reasoning_before(message, parts, repairs)
        view = openai_responses.without_parts(message, parts) if parts else message
        if view.parts or not parts:
            kept_messages.append(view)
    return kept_messages


def _drop_reasoning_before(message: Message, dropped_parts: set[int], repairs: list[Repair]) -> None:
    """Drop the reasoning before dropped parts, if no other part of the message follows: the API refuses it alone."""
    index = len(message.parts) - 1
    if index not in dropped_parts:
        return
    while index >= 0 and (index in dropped_parts or is_reasoning(message.parts[index])):
        if index not in dropped_parts:
            dropped_parts.add(index)
            sentence = _REASONING_SENTENCE.format(message=message.id)
            repairs.append(Repair(kind="last_reasoning", message=message.id, sentence=sentence))
        index -= 1


def _calls_without_screenshot(messages: Sequence[Message], repairs: list[Repair]) -> dict[PartIndex, None]:
    calls = [
        (index, inner)
        for index, message in enumerate(messages)
        if message.format == openai_responses.NAME
        for inner, part in enumerate(message.parts)
        if openai_responses.is_computer_call(part)
    ]
    dropped_parts: dict[PartIndex, None] = {}
    answers = pair_calls(messages).answers if calls else {}
    for call in calls:
        result = answers.get(call)
        if result is not None and _is_screenshot(messages, result):
            continue
        dropped_parts[call] = None
        _add_repair(messages, call, "unanswered_call", _CALL_SENTENCE, repairs)
        if result is not None:
            dropped_parts[result] = None
            _add_repair(messages, result, "orphan_result", _RESULT_SENTENCE, repairs)
    return dropped_parts


def _is_screenshot(messages: Sequence[Message], index: PartIndex) -> bool:
    """Return whether a result is a screenshot: it was stored as one, or contains an image."""
    message = messages[index[0]]
    part: Any = message.parts[index[1]]
    native = part.native
    is_output = type(native) is dict and native.get("type") == "computer_call_output"
    return (is_output and message.format == openai_responses.NAME) or openai_responses.screenshot_output(
        part
    ) is not None


def _unanswered_approvals(messages: Sequence[Message], repairs: list[Repair]) -> dict[PartIndex, None]:
    open_requests: dict[str, PartIndex] = {}
    replaced_requests: list[tuple[str, PartIndex]] = []
    dropped_parts: dict[PartIndex, None] = {}
    for index, kind, id in _find_approvals(messages):
        request = open_requests.pop(id, None)
        if kind == APPROVAL_REQUEST:
            open_requests[id] = index
            replaced_requests += [] if request is None else [(id, request)]
        elif request is None:
            dropped_parts[index] = None
            _add_repair(messages, index, "orphan_result", _RESPONSE_SENTENCE, repairs, id)
    for id, index in (*replaced_requests, *open_requests.items()):
        dropped_parts[index] = None
        _add_repair(messages, index, "unanswered_call", _REQUEST_SENTENCE, repairs, id)
    return dropped_parts


def _find_approvals(messages: Sequence[Message]) -> Iterator[tuple[PartIndex, str, str]]:
    """Yield approval requests and responses: the part, the kind, and the id of the request."""
    for index, message in enumerate(messages):
        if message.format != openai_responses.NAME:
            continue
        for inner, part in enumerate(message.parts):
            kind = approval_type(part)
            if kind is not None:
                id_field = "id" if kind == APPROVAL_REQUEST else "approval_request_id"
                yield (index, inner), kind, str(part.native.get(id_field))


def _add_repair(
    messages: Sequence[Message],
    index: PartIndex,
    kind: RepairKind,
    sentence: str,
    repairs: list[Repair],
    id: str | None = None,
) -> None:
    message = messages[index[0]]
    part: Any = message.parts[index[1]]
    call_id = part.call_id if id is None else id
    text = sentence.format(id=repr(call_id), message=message.id)
    repairs.append(Repair(kind=kind, message=message.id, sentence=text, call_id=call_id))
