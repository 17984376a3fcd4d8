"""Example messages, tool calls and complete responses in the formats of providers, and checks of counts."""

from __future__ import annotations

from typing import Any

from recollect.store import Session

NAN = float("nan")


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    """Return a message of the assistant."""
    return {"role": "assistant", "content": text}


def numbered_messages(count: int, first: int = 1) -> list[dict[str, Any]]:
    """Return messages m1, m2 and so on, of the user and the assistant in turn."""
    return [{"role": "user" if n % 2 else "assistant", "content": f"m{n}"} for n in range(first, first + count)]


def tool_call_message(*ids: str, tool: str = "read_file") -> dict[str, Any]:
    """Return a message with tool calls in Anthropic's format."""
    calls = [{"type": "tool_use", "id": id, "name": tool, "input": {"path": f"{id}.md"}} for id in ids]
    return {"role": "assistant", "content": calls}


def tool_result_message(*ids: str, text: str = "contents") -> dict[str, Any]:
    """Return a message with tool results in Anthropic's format."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]}


def nested_list(depth: int) -> Any:
    """Return a list nested to a depth."""
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


def texts(session: Session) -> list[str]:
    """Return the texts of the active path."""
    return [message.text for message in session.messages()]


def ids(session: Session) -> list[str]:
    """Return the message ids of the active path."""
    return [message.id for message in session.messages()]


def check_counts(session: Session) -> None:
    """Check that the counts of a session handle equal the sums over its messages."""
    messages = session.messages()
    assert session.message_count == len(messages)
    assert session.token_count == sum(message.tokens for message in messages)
    assert session.input_tokens == sum(message.input_tokens or 0 for message in messages)
    assert session.output_tokens == sum(message.output_tokens or 0 for message in messages)


ANTHROPIC_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "What is in README.md?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I should read it.", "signature": "c2ln"},
            {"type": "text", "text": "Let me look.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "README.md", "deep": [1, {}]}},
            {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "# Hello"},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": [{"type": "text", "text": "denied"}],
                "is_error": True,
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It reads hello.", "cache_control": {"type": "x"}}]},
]

OPENAI_MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "name": "ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"'}},
            {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{ }"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "sun"}]},
    {"role": "assistant", "content": "Mixed.", "refusal": None, "annotations": []},
]

ANTHROPIC_RESPONSE: dict[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-1",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "abc="},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_9", "name": "read_file", "input": {"path": "a.md"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 5, "service_tier": "standard"},
}

OPENAI_RESPONSE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_763_287_200,
    "model": "gpt-test-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "On it.",
                "refusal": None,
                "tool_calls": [
                    {
                        "id": "call_9",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                    }
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 13, "completion_tokens": 4, "total_tokens": 17},
}

RESPONSES_ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "What is in the file?"}]},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Read it."}, {"type": "summary_text", "text": "Then answer."}],
        "encrypted_content": "gAAAA",
    },
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"path": "a"}'},
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "words"}]},
    {"type": "function_call_output", "call_id": "call_2", "output": ""},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Words.", "annotations": [], "future": None}],
    },
    {"type": "hologram", "rays": [1, {"a": None}]},
]

RESPONSES_RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1700000000,
    "model": "gpt-test-2",
    "output": [RESPONSES_ITEMS[1], RESPONSES_ITEMS[7], RESPONSES_ITEMS[2]],
    "usage": {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16},
    "status": "completed",
}

AI_SDK_MODEL_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image", "image": "AA=="}]},
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": "s"}}},
            {"type": "tool-call", "toolCallId": "call_1", "toolName": "read", "input": {"path": "a"}},
            {"type": "tool-call", "toolCallId": "call_2", "toolName": "read", "args": {"path": "b"}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "call_1",
                "toolName": "read",
                "output": {"type": "json", "value": {"words": 3}},
            },
            {"type": "tool-result", "toolCallId": "call_2", "toolName": "read", "result": "words", "isError": True},
        ],
    },
    {"role": "assistant", "content": "Three words.", "providerOptions": {}},
]

AI_SDK_UI_MESSAGES: list[dict[str, Any]] = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Look."}], "metadata": {"at": 1}},
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-read",
                "toolCallId": "call_1",
                "state": "output-available",
                "input": {"path": "a"},
                "output": {"words": 3},
            },
            {
                "type": "dynamic-tool",
                "toolName": "read",
                "toolCallId": "call_2",
                "state": "output-error",
                "input": {},
                "errorText": "gone",
            },
            {"type": "step-start"},
            {"type": "text", "text": "Three words.", "state": "done"},
            {"type": "data-hologram", "data": [None]},
        ],
    },
]
