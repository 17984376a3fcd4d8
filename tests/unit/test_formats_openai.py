"""OpenAI's chat format: equal on the way back, readable in between, translated from the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.json import encode
from recollect.model.message import Draft
from recollect.model.part import DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from stored_drafts import stored

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


def back(message: Any, format: str | None = "openai") -> list[dict[str, Any]]:
    return formats.write(stored(formats.read(message, format)), "openai")


def same(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


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
def test_what_came_in_comes_back_equal(message: dict[str, Any]) -> None:
    assert same(back(message), [message])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        assistant(CALL),
        assistant(CALL, content="I look."),
        {"role": "tool", "tool_call_id": "call_1", "content": "hello"},
    ],
)
def test_common_messages_need_nothing_beside_our_fields(message: dict[str, Any]) -> None:
    (draft,) = formats.read(message, "openai")
    assert draft.native is None
    assert all(part.native is None for part in draft.parts)


def test_the_arguments_stay_the_text_that_the_model_wrote() -> None:
    odd = '{"path" : "README.md",  }'
    (draft,) = formats.read(assistant({**CALL, "function": {"name": "read", "arguments": odd}}))
    assert draft.parts == (ToolCallPart(call_id="call_1", tool="read", arguments_text=odd),)


def test_a_call_that_is_kept_whole_can_still_be_read() -> None:
    call = {"id": "call_1", "function": FUNCTION}
    (draft,) = formats.read(assistant(call))
    assert draft.parts == (
        ToolCallPart(call_id="call_1", tool="read", arguments_text=FUNCTION["arguments"], native={"whole": call}),
    )


def test_a_custom_call_is_a_tool_call() -> None:
    (draft,) = formats.read(assistant(CUSTOM))
    assert draft.parts == (ToolCallPart(call_id="call_2", tool="shell", arguments="ls -l", native={"type": "custom"}),)


def test_roles_and_results() -> None:
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


def test_a_whole_completion_gives_model_and_tokens_and_is_rebuilt() -> None:
    (draft,) = formats.read(COMPLETION)
    assert (draft.role, draft.format, draft.model) == ("assistant", "openai", "gpt-x")
    assert (draft.input_tokens, draft.output_tokens, draft.tokens) == (12, 8, 8)
    (message,) = stored([draft])
    assert formats.response(draft) == formats.response(message) == COMPLETION
    assert formats.write([message], "openai") == [{"role": "assistant", "content": "I look.", "tool_calls": [CALL]}]
    assert "I look." not in encode(draft.native)


def test_of_a_completion_goes_out_what_the_api_takes() -> None:
    said = {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "audio": {"id": "audio_1", "data": "AA==", "transcript": "no"},
        "tool_calls": None,
        "reasoning_content": "hm",
    }
    completion = {**COMPLETION, "choices": [{"index": 0, "message": said}]}
    messages = stored(formats.read(completion))
    assert formats.response(messages[0]) == completion
    assert formats.write(messages, "openai") == [
        {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "audio_1"}}
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_completions_with_other_numbers_of_choices(count: int) -> None:
    choices = [{"index": i, "message": {"role": "assistant", "content": f"answer {i}"}} for i in range(count)]
    completion = {**COMPLETION, "choices": choices, "usage": None}
    (message,) = stored(formats.read(completion))
    assert formats.response(message) == completion
    assert message.text == ("answer 0" if count else "")
    assert message.input_tokens is None


@pytest.mark.parametrize("choices", [None, [None], [{}], [{"delta": {"content": "x"}}], [{"message": {}}]])
def test_completions_without_a_message_are_refused(choices: Any) -> None:
    with pytest.raises(InvalidValue, match="choices"):
        formats.read({**COMPLETION, "choices": choices})


def test_objects_of_the_sdk() -> None:
    chat = pytest.importorskip("openai.types.chat")
    completion = chat.ChatCompletion.model_validate(COMPLETION)
    (draft,) = formats.read(completion)
    assert formats.response(draft) == completion.model_dump(mode="json", exclude_unset=True)
    bare = completion.choices[0].message
    (written,) = back([bare], None)
    assert written == COMPLETION["choices"][0]["message"]  # type: ignore[index]
    nested = {"role": "assistant", "content": None, "tool_calls": bare.tool_calls}
    assert back(nested, None) == [assistant(CALL)]


def test_neutral_messages_come_back_equal() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "alone"}]},
        {"role": "assistant", "content": []},
    ]
    assert back(messages, None) == messages


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "hi"}, "no role"),
        ({"role": "robot", "content": "hi"}, "OpenAI has no role 'robot'. Use one of: user, assistant"),
        ({"role": "user", "content": True}, "The content is of type bool"),
        ({"role": "user", "content": [None]}, r"content\[0\] is null"),
    ],
)
def test_other_shapes_are_refused_with_a_sentence(message: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
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
    written = formats.write(stored(formats.read(messages, "anthropic")), "openai")
    arguments = '{"path":"a","n":1180591620717411303424}'
    assert written == [
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


def test_results_recorded_by_recollect() -> None:
    drafts = [
        Draft(role="assistant", parts=(ReasoningPart(text="hm"), ToolCallPart(call_id="c", tool="f"))),
        Draft(role="tool", parts=(ToolResultPart(call_id="c", data=[1, None]),)),
        Draft(role="tool", parts=(ToolResultPart(call_id="d", content=(DataPart(data=1),), error_message="gone"),)),
    ]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert formats.write(stored(drafts), "openai") == [
        assistant(call),
        {"role": "tool", "tool_call_id": "c", "content": "[1,null]"},
        {"role": "tool", "tool_call_id": "d", "content": "gone"},
    ]


def test_translations_are_what_the_sdk_accepts() -> None:
    pydantic = pytest.importorskip("pydantic")
    chat = pytest.importorskip("openai.types.chat")
    adapter = pydantic.TypeAdapter(chat.ChatCompletionMessageParam)
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]}
    messages = formats.read(
        [
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
        ],
        "anthropic",
    )
    written = formats.write(stored(messages), "openai")
    assert [message["role"] for message in written] == ["assistant", "tool", "user"]
    for message in written:
        checked = adapter.validate_python(message)
        for name in ("content", "tool_calls"):
            if isinstance(message.get(name), list):
                assert list(checked[name]) == message[name]
