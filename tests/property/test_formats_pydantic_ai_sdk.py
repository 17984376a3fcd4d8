"""Every message and part that Pydantic AI defines comes back equal, and is a valid history in every other format."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
from framework_round_trips import assert_stored_equal
from framework_values import COUNT, RandomValues, alternatives_of

messages: Any = pytest.importorskip("pydantic_ai.messages")

pytestmark = pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")  # still in stored histories

_FILES = [messages.ImageUrl, messages.AudioUrl, messages.DocumentUrl, messages.VideoUrl, messages.BinaryContent]
_FILES += [messages.UploadedFile]


def _tool_content(values: RandomValues, depth: int) -> Any:
    """Return the content of a tool return: text, data, a file, or a list or a dict with files."""
    choice = values.random.randrange(6)
    if choice == 0 or depth <= 0:
        return values.text()
    if choice == 1:
        return values.json()
    if choice == 2:
        return values.instance(values.random.choice(_FILES), 2)
    items = [_tool_content(values, depth - 2) for _ in range(values.random.randrange(1, 4))]
    return items if choice < 5 else {"a": items}


def _citation(values: RandomValues, depth: int) -> Any:
    return messages.Citation(sources=[messages.WebCitationSource(url="https://example.org", title=values.text())])


def _structured_content(values: RandomValues, depth: int) -> Any:
    return messages.StructuredContent(values.json(), content=values.text() or "text", tag="state")


def _instruction_id(values: RandomValues, depth: int) -> Any:
    source = messages.ToolsetInstructionSource(id=values.random.choice(["weather", "a"]))
    return messages.InstructionId(source, name=values.random.choice([None, "limits"]))


def _speech(speaker: str, values: RandomValues, depth: int = 3) -> Any:
    audio = values.random.choice([None, messages.BinaryContent(data=values.bytes(), media_type="audio/wav")])
    return messages.SpeechPart(speaker=speaker, transcript=values.random.choice([None, values.text()]), audio=audio)


SPECIAL = {
    messages.ToolReturnContent: _tool_content,
    messages.Citation: _citation,
    messages.StructuredContent: _structured_content,
    messages.InstructionId: _instruction_id,
    messages.SpeechPart: lambda values, depth: _speech("user", values),
}


def _parts(union: Any) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in dict.fromkeys(alternatives_of(union))]


def _part(kind: Any, values: RandomValues, speaker: str) -> Any:
    if kind is messages.SpeechPart:
        return _speech(speaker, values)
    if kind is messages.CompactionPart and speaker == "user":  # a summary that no provider wrote
        return messages.CompactionPart(values.random.choice([None, values.text()]), metadata=values.object())
    part = values.instance(kind)
    if kind is messages.RetryPromptPart:  # the loader replaces an empty id by a random one
        part.tool_call_id = part.tool_call_id or "c"
    return part


def dump(message: Any) -> dict[str, Any]:
    return messages.ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]


def load(dicts: list[Any]) -> list[Any]:
    return messages.ModelMessagesTypeAdapter.validate_python(dicts)


assert_equal = functools.partial(assert_stored_equal, name="pydantic-ai", dump=dump, load=load)


@pytest.mark.parametrize("kind", _parts(messages.ModelRequestPart))
def test_request_parts(kind: Any) -> None:
    values = RandomValues(kind.__name__, SPECIAL)
    assert_equal([messages.ModelRequest(parts=[_part(kind, values, "user")]) for _ in range(COUNT)])


@pytest.mark.parametrize("kind", _parts(messages.ModelResponsePart))
def test_response_parts(kind: Any) -> None:
    values = RandomValues(kind.__name__, SPECIAL)
    assert_equal([messages.ModelResponse(parts=[_part(kind, values, "assistant")]) for _ in range(COUNT)])


@pytest.mark.parametrize("kind", _parts(messages.UserContent))
def test_user_content(kind: Any) -> None:
    values = RandomValues(kind.__name__, SPECIAL)
    prompts = [
        [messages.UserPromptPart([values.value(kind), *[values.value(messages.UserContent) for _ in range(index % 3)]])]
        for index in range(COUNT)
    ]
    assert_equal([messages.ModelRequest(parts=parts) for parts in prompts])


def test_requests_and_responses_of_several_parts() -> None:
    values = RandomValues("several", SPECIAL)
    conversation: list[Any] = []
    for _ in range(COUNT):
        for kind, union, speaker in (
            (messages.ModelRequest, messages.ModelRequestPart, "user"),
            (messages.ModelResponse, messages.ModelResponsePart, "assistant"),
        ):
            kinds = values.random.choices(alternatives_of(union), k=values.random.randrange(6))
            parts = [_part(kind, values, speaker) for kind in kinds]
            conversation.append(dataclasses.replace(values.instance(kind, constants={"parts": []}), parts=parts))
    assert_equal(conversation)
