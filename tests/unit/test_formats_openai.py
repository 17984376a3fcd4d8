"""OpenAI's chat format: messages round trip, fill the common fields, and are translated from other formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.json import encode
from recollect.model.message import DataPart, Draft, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from stored_drafts import to_messages

FUNCTION = {"name": "read", "arguments": '{"path": "README.md"}'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CUSTOM = {"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1763287200,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "I look.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [CALL],
            },
        }
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20},
    "service_tier": "default",
}


def round_trip(message: Any, format: str | None = "openai") -> list[dict[str, Any]]:
    return formats.write(to_messages(formats.read(message, format)), "openai")


def is_same_json(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def assistant(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "user", "content": "hello", "name": "ann"},
        {"role": "system", "content": [{"type": "text", "text": "be kind"}]},
        {"role": "developer", "content": "be kind"},
        {"role": "function", "name": "f", "content": "42"},
        {"role": "function", "name": "f", "content": None},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": 1}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "x": True}, {"type": "text", "text": "b"}, {}]},
        assistant(CALL),
        assistant(CALL, content="I look."),
        assistant(CALL, content=""),
        assistant(CALL, content=[]),
        assistant(CALL, content=[{"type": "text", "text": "a"}]),
        assistant(CALL, content=[{"type": "refusal", "refusal": "no"}]),
        {"role": "assistant", "tool_calls": [CALL]},
        assistant(),
        {"role": "assistant", "content": "x", "tool_calls": None},
        {"role": "assistant", "content": "x", "tool_calls": "odd"},
        {"role": "user", "content": "x", "tool_calls": [CALL]},
        assistant(CUSTOM, CALL),
        assistant({**CUSTOM, "custom": {"name": "shell", "input": {"a": 1}, "more": 1}, "function": 5}),
        assistant({**CALL, "index": 0, "extra_content": {"google": {"thought_signature": "s"}}}),
        assistant({**CALL, "function": {**FUNCTION, "strict": True}, "custom": {}}),
        assistant({**CALL, "function": {"name": "read", "arguments": {"path": 1.0}}}),
        assistant({**CALL, "function": {"name": "read", "arguments": None}}),
        assistant({**CALL, "function": {"name": "read"}}),
        assistant({**CALL, "type": None}),
        assistant({**CALL, "whole": {"a": 1}}),
        assistant({"id": "call_1", "function": FUNCTION}),
        assistant(CALL, {"function": FUNCTION}),
        assistant(CALL, "odd"),
        {"role": "assistant", "content": None, "function_call": FUNCTION},
        {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "hello"},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
        {"role": "tool", "tool_call_id": "call_1", "content": None},
        {"role": "tool", "tool_call_id": "call_1", "content": []},
        {"role": "tool", "tool_call_id": "call_1"},
        {"role": "tool", "tool_call_id": "call_1", "name": "read"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "a", "x": 1}, {"type": "new"}]},
        {"role": "tool", "content": "without a call"},
        {"role": "tool", "tool_call_id": 5, "content": "hello"},
    ],
)
def test_messages_round_trip(message: dict[str, Any]) -> None:
    assert is_same_json(round_trip(message), [message])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        assistant(CALL),
        assistant(CALL, content="I look."),
        {"role": "tool", "tool_call_id": "call_1", "content": "hello"},
    ],
)
def test_common_messages_have_no_provider_specific_remainder(message: dict[str, Any]) -> None:
    (draft,) = formats.read(message, "openai")
    assert draft.native is None
    assert all(part.native is None for part in draft.parts)


def test_arguments_stay_the_text_of_the_model() -> None:
    arguments = '{"path" : "README.md",  }'
    (draft,) = formats.read(assistant({**CALL, "function": {"name": "read", "arguments": arguments}}))
    assert draft.parts == (ToolCallPart(call_id="call_1", tool="read", arguments_text=arguments),)


def test_a_call_that_is_stored_in_the_remainder_fills_the_common_fields() -> None:
    call = {"id": "call_1", "function": FUNCTION}
    (draft,) = formats.read(assistant(call))
    assert draft.parts == (
        ToolCallPart(call_id="call_1", tool="read", arguments_text=FUNCTION["arguments"], native={"whole": call}),
    )


def test_a_custom_call_is_a_tool_call() -> None:
    (draft,) = formats.read(assistant(CUSTOM))
    assert draft.parts == (ToolCallPart(call_id="call_2", tool="shell", arguments="ls -l", native={"type": "custom"}),)


def test_roles_and_results_are_read() -> None:
    developer, function, tool = formats.read(
        [
            {"role": "developer", "content": "be kind"},
            {"role": "function", "name": "f", "content": "42"},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "a"}, {"type": "new"}]},
        ]
    )
    assert (developer.role, developer.native) == ("system", {"role": "developer"})
    assert (function.role, function.native) == ("tool", {"role": "function", "fields": {"name": "f"}})
    assert tool.parts == (
        ToolResultPart(call_id="call_1", content=(TextPart(text="a"), DataPart(native={"type": "new"}))),
    )
    assert (tool.role, tool.native) == ("tool", None)


def test_a_completion_has_model_and_tokens_and_round_trips() -> None:
    (draft,) = formats.read(COMPLETION)
    assert (draft.role, draft.format, draft.model) == ("assistant", "openai", "gpt-x")
    assert (draft.input_tokens, draft.output_tokens, draft.tokens) == (12, 8, 8)
    (message,) = to_messages([draft])
    assert formats.response(draft) == formats.response(message) == COMPLETION
    assert formats.write([message], "openai") == [{"role": "assistant", "content": "I look.", "tool_calls": [CALL]}]
    assert "I look." not in encode(draft.native)


def test_only_the_fields_that_the_api_accepts_are_written() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "audio": {"id": "audio_1", "data": "AA==", "transcript": "no"},
        "tool_calls": None,
        "reasoning_content": "hm",
    }
    completion = {**COMPLETION, "choices": [{"index": 0, "message": message}]}
    messages = to_messages(formats.read(completion))
    assert formats.response(messages[0]) == completion
    assert formats.write(messages, "openai") == [
        {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "audio_1"}}
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_completions_with_other_numbers_of_choices(count: int) -> None:
    choices = [{"index": i, "message": {"role": "assistant", "content": f"answer {i}"}} for i in range(count)]
    completion = {**COMPLETION, "choices": choices, "usage": None}
    (message,) = to_messages(formats.read(completion))
    assert formats.response(message) == completion
    assert message.text == ("answer 0" if count else "")
    assert message.input_tokens is None


@pytest.mark.parametrize("choices", [None, [None], [{}], [{"delta": {"content": "x"}}], [{"message": {}}]])
def test_completions_without_a_message_are_refused(choices: Any) -> None:
    with pytest.raises(InvalidValue, match="choices"):
        formats.read({**COMPLETION, "choices": choices})


def test_sdk_objects_are_read() -> None:
    chat = pytest.importorskip("openai.types.chat")
    completion = chat.ChatCompletion.model_validate(COMPLETION)
    (draft,) = formats.read(completion)
    assert formats.response(draft) == completion.model_dump(mode="json", exclude_unset=True)
    message = completion.choices[0].message
    (output,) = round_trip([message], None)
    assert output == COMPLETION["choices"][0]["message"]  # type: ignore[index]
    nested = {"role": "assistant", "content": None, "tool_calls": message.tool_calls}
    assert round_trip(nested, None) == [assistant(CALL)]


def test_messages_of_only_common_fields_round_trip() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "alone"}]},
        {"role": "assistant", "content": []},
    ]
    assert round_trip(messages, None) == messages


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ({"content": "hi"}, "no role"),
        ({"role": "robot", "content": "hi"}, "OpenAI has no role 'robot'. Use one of: user, assistant"),
        ({"role": "user", "content": True}, "The content must be a string or a list of blocks, got bool"),
        ({"role": "user", "content": [None]}, r"content\[0\] must be a dict, got null"),
    ],
)
def test_invalid_messages_are_refused(message: Any, pattern: str) -> None:
    with pytest.raises(InvalidValue, match=pattern):
        formats.read(message, "openai")


# Translation


def test_tool_calls_and_results_of_anthropic() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a", "n": 2**70}},
                {"type": "tool_use", "id": "t2", "name": "list", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "there"},
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
                {"type": "image", "source": {"type": "url", "url": "u"}},
                {"type": "text", "text": "you are"},
            ],
        },
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
    ]
    output = formats.write(to_messages(formats.read(messages, "anthropic")), "openai")
    arguments = '{"path":"a","n":1180591620717411303424}'
    assert output == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "read", "arguments": arguments}},
                {"id": "t2", "type": "function", "function": {"name": "list", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "there"}, {"type": "text", "text": "you are"}]},
    ]


def test_results_without_a_format_are_written() -> None:
    drafts = [
        Draft(role="assistant", parts=(ReasoningPart(text="hm"), ToolCallPart(call_id="c", tool="f"))),
        Draft(role="tool", parts=(ToolResultPart(call_id="c", data=[1, None]),)),
        Draft(role="tool", parts=(ToolResultPart(call_id="d", content=(DataPart(data=1),), error_message="gone"),)),
    ]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert formats.write(to_messages(drafts), "openai") == [
        assistant(call),
        {"role": "tool", "tool_call_id": "c", "content": "[1,null]"},
        {"role": "tool", "tool_call_id": "d", "content": "gone"},
    ]


def test_the_sdk_accepts_translations() -> None:
    pydantic = pytest.importorskip("pydantic")
    chat = pytest.importorskip("openai.types.chat")
    adapter = pydantic.TypeAdapter(chat.ChatCompletionMessageParam)
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]}
    drafts = formats.read(
        [
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
        ],
        "anthropic",
    )
    messages = formats.write(to_messages(drafts), "openai")
    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]
    for message in messages:
        model = adapter.validate_python(message)
        for name in ("content", "tool_calls"):
            if isinstance(message.get(name), list):
                assert list(model[name]) == message[name]
