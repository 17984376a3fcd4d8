"""Anthropic's format: messages round trip, fill the common fields, and are translated from other formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.json import encode
from recollect.model.message import DataPart, Draft, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from stored_drafts import to_messages

CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "README.md"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello"}
RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "I look.", "citations": None}, CALL],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": None,
        "output_tokens": 7,
        "service_tier": "standard",
    },
}


def round_trip(message: Any, format: str | None = "anthropic") -> list[dict[str, Any]]:
    return formats.write(to_messages(formats.read(message, format)), "anthropic")


def translate(*messages: Any, format: str | None = "openai") -> list[dict[str, Any]]:
    return round_trip(list(messages), format)


def is_same_json(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": None}, {"type": "text"}, {"type": ["text"]}, {}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "whole": {"type": "text"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
        {"role": "assistant", "content": [{**CALL, "caller": {"type": "direct"}}]},
        {"role": "assistant", "content": [{**CALL, "input": None}, {**CALL, "input": 1.0}, {**CALL, "input": True}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": 7, "name": "n", "input": {}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "xyz"}]},
        {"role": "user", "content": [RESULT]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and now?"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "without an id"}]},
        {"role": "user", "content": [{**RESULT, "is_error": True}]},
        {"role": "user", "content": [{**RESULT, "is_error": False}]},
        {"role": "user", "content": [{**RESULT, "is_error": 1}]},
        {"role": "user", "content": [{**RESULT, "content": None}]},
        {"role": "user", "content": [{**RESULT, "content": []}]},
        {"role": "user", "content": [{**RESULT, "content": 5}, {**RESULT, "content": ["text"]}]},
        {
            "role": "user",
            "content": [
                {
                    **RESULT,
                    "content": [
                        {"type": "text", "text": "a", "citations": []},
                        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
                        {"type": "text", "text": 3},
                    ],
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                }
            ],
        },
        {"role": "user", "content": "hello", "name": None, "extra": {"a": [1, 1.0, True, -0.0]}},
        {"role": "assistant", "content": [{"type": "a_block_of_next_year", "data": {"x": 2**70}}]},
    ],
)
def test_messages_round_trip(message: dict[str, Any]) -> None:
    assert is_same_json(round_trip(message), [message])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
        {"role": "user", "content": [RESULT]},
    ],
)
def test_common_messages_have_no_provider_specific_remainder(message: dict[str, Any]) -> None:
    (draft,) = formats.read(message, "anthropic")
    assert draft.native is None
    assert all(part.native is None for part in draft.parts)


def test_common_fields_are_filled_and_only_the_remainder_is_native() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        CALL,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ]
    (draft,) = formats.read({"role": "assistant", "content": blocks})
    assert draft.format == "anthropic"
    assert draft.parts == (
        ReasoningPart(text="hm", native={"signature": "s"}),
        TextPart(text="hi", native={"cache_control": {"type": "ephemeral"}}),
        ToolCallPart(call_id="toolu_1", tool="read", arguments={"path": "README.md"}),
        DataPart(native=blocks[3]),
    )


def test_a_message_of_only_results_has_the_role_tool() -> None:
    failed = {**RESULT, "is_error": True, "content": [{"type": "text", "text": "no such file"}]}
    (results_only, with_text) = formats.read(
        [{"role": "user", "content": [failed]}, {"role": "user", "content": [failed, {"type": "text", "text": "hm"}]}]
    )
    part = ToolResultPart(call_id="toolu_1", status="error", content=(TextPart(text="no such file"),))
    assert (results_only.role, results_only.parts) == ("tool", (part,))
    assert (with_text.role, with_text.parts[0]) == ("user", part)


def test_a_response_has_model_and_tokens_and_round_trips() -> None:
    (draft,) = formats.read(RESPONSE)
    assert (draft.role, draft.format, draft.model) == ("assistant", "anthropic", "claude-x")
    assert (draft.input_tokens, draft.output_tokens, draft.tokens) == (15, 7, 7)
    (message,) = to_messages([draft])
    assert formats.response(draft) == formats.response(message) == RESPONSE
    assert formats.write([message], "anthropic") == [{"role": "assistant", "content": RESPONSE["content"]}]
    assert "I look." not in encode(draft.native)


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "Hi"}]])
def test_a_response_is_written_as_blocks(content: list[Any]) -> None:
    messages = to_messages(formats.read({**RESPONSE, "content": content}))
    assert formats.write(messages, "anthropic") == [{"role": "assistant", "content": content}]
    assert formats.response(messages[0]) == {**RESPONSE, "content": content}


def test_a_message_without_a_response_has_none() -> None:
    assert formats.response(formats.read({"role": "user", "content": "hi"})[0]) is None
    assert formats.response(formats.read({"role": "user", "content": "hi"}, "anthropic")[0]) is None


def test_sdk_objects_are_read() -> None:
    types = pytest.importorskip("anthropic.types")
    reply = types.Message.model_validate(RESPONSE)
    plain = reply.model_dump(mode="json", exclude_unset=True)
    (draft,) = formats.read(reply)
    assert formats.response(draft) == plain
    nested = {"role": "assistant", "content": reply.content}
    assert round_trip([nested], None) == [{"role": "assistant", "content": plain["content"]}]
    (draft_of_block,) = formats.read({"role": "assistant", "content": [reply.content[1]]})
    assert draft_of_block.parts == (ToolCallPart(call_id="toolu_1", tool="read", arguments={"path": "README.md"}),)


def test_messages_of_only_common_fields_round_trip_and_have_no_format() -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " "}]},
        {"role": "user", "content": [{"type": "text", "text": "alone"}]},
        {"role": "assistant", "content": []},
    ]
    drafts = formats.read(messages)
    assert {draft.format for draft in drafts} == {None}
    assert formats.write(to_messages(drafts), "anthropic") == messages


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ({"content": "hi"}, "no role"),
        ({"role": "tool", "content": "hi"}, "no role 'tool'"),
        ({"role": None, "content": "hi"}, "no role None"),
        ({"role": ["user"], "content": "hi"}, "no role"),
        ({"role": "user", "content": 5}, "The content must be a string or a list of blocks, got int"),
        ({"role": "user", "content": {"type": "text"}}, "The content must be a string or a list of blocks, got dict"),
        ({"role": "user", "content": ["hi"]}, r"content\[0\] must be a dict, got str"),
        (["not", "a", "message"], "A message must have a role, got a str"),
        (7, "got int"),
    ],
)
def test_invalid_messages_are_refused(message: Any, pattern: str) -> None:
    with pytest.raises(InvalidValue, match=pattern):
        formats.read(message, "anthropic")


# Translation


def test_tool_calls_and_results_of_openai() -> None:
    function = {"name": "read", "arguments": '{"path": "a"}'}
    calls = [{"id": name, "type": "function", "function": function} for name in ("c1", "c2")]
    assert translate(
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "go", "name": "ann"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "done"},
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
            ],
        },
        {"role": "assistant", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {"arguments": [1]}),
        ("null", {"arguments": None}),
        ('{"a": ', {"arguments": '{"a": '}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ("[" * 5000, {"arguments": "[" * 5000}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ],
)
def test_arguments_become_an_object(text: str, value: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    (message,) = translate({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message["content"][0]["input"] == value


def test_consecutive_results_are_merged_into_one_message() -> None:
    drafts = [
        *formats.read({"role": "assistant", "content": [CALL, {**CALL, "id": "t2"}, {**CALL, "id": "t3"}]}),
        Draft(role="tool", parts=(ToolResultPart(call_id="toolu_1", data={"n": 1}),)),
        Draft(role="system", parts=(TextPart(text="a note"),)),
        Draft(role="tool", parts=(ToolResultPart(call_id="t2", status="error", error_message="gone"),)),
        *formats.read({"role": "user", "content": [{**RESULT, "tool_use_id": "t3"}]}),
        Draft(role="tool", parts=(ToolResultPart(call_id="t4", data={"text": "\ud800", "big": 2**70}),)),
    ]
    _, joint_message, own_message, last_message = formats.write(to_messages(drafts), "anthropic")
    assert joint_message == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"n":1}'},
            {"type": "tool_result", "tool_use_id": "t2", "content": "gone", "is_error": True},
        ],
    }
    assert own_message == {"role": "user", "content": [{**RESULT, "tool_use_id": "t3"}]}
    assert last_message["content"][0]["content"] == '{"text":"\\ud800","big":1180591620717411303424}'


def test_results_come_before_the_text_of_their_message() -> None:
    drafts = [
        Draft(role="tool", parts=(TextPart(text="a note"), ToolResultPart(call_id="a", text="1"))),
        Draft(role="tool", parts=(ToolResultPart(call_id="b", text="2", status="cancelled"),)),
    ]
    assert formats.write(to_messages(drafts), "anthropic") == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "text", "text": "a note"},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True}],
        },
    ]


def test_mixed_messages_and_messages_without_text() -> None:
    image = {"type": "file", "file": {"file_id": "file-1"}}
    drafts = [
        *formats.read({"role": "user", "content": [image, {"type": "text", "text": "look"}]}),
        *formats.read({"role": "user", "content": [image]}),
        *formats.read({"role": "assistant", "content": " ", "refusal": None}),
        Draft(role="assistant", parts=(ReasoningPart(text="hm"),)),
        Draft(role="user", parts=(TextPart(text="so?"), ToolResultPart(call_id="c", text=""))),
        Draft(role="assistant", parts=(ToolCallPart(call_id="d", tool="f"), ToolResultPart(call_id="d", text="x"))),
    ]
    assert formats.write(to_messages(drafts), "anthropic") == [
        {"role": "user", "content": "look"},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": ""},
                {"type": "text", "text": "so?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "d", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d", "content": "x"}]},
    ]


def test_a_change_of_written_blocks_does_not_change_the_message() -> None:
    (message,) = to_messages(formats.read({"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}))
    formats.write([message], "anthropic")[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert message.parts == (DataPart(native={"type": "image", "source": {"type": "url"}}),)


def test_the_sdk_accepts_translations() -> None:
    pydantic = pytest.importorskip("pydantic")
    types = pytest.importorskip("anthropic.types")
    adapter = pydantic.TypeAdapter(types.MessageParam)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[]"}}
    messages = translate(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "y"}]},
    )
    for message in messages:
        model = adapter.validate_python(message)
        assert isinstance(message["content"], str) or list(model["content"])
    assert len(messages) == 3
