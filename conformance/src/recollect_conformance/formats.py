"""Formats: messages are returned unchanged in their format, and a session can continue in another format."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.message import Message
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    AI_SDK_MODEL_MESSAGES,
    AI_SDK_UI_MESSAGES,
    ANTHROPIC_MESSAGES,
    ANTHROPIC_RESPONSE,
    NAN,
    OPENAI_MESSAGES,
    OPENAI_RESPONSE,
    RESPONSES_ITEMS,
    RESPONSES_RESPONSE,
    check_counts,
    nested_list,
    texts,
    user,
)

_MESSAGES: dict[str, list[dict[str, Any]]] = {
    "anthropic": ANTHROPIC_MESSAGES,
    "openai": OPENAI_MESSAGES,
    "openai-responses": RESPONSES_ITEMS,
    "ai-sdk": AI_SDK_MODEL_MESSAGES,
    "ai-sdk-ui": AI_SDK_UI_MESSAGES,
}


def example(name: str) -> list[dict[str, Any]]:
    """Return messages in a provider's format: written by hand, or else translated."""
    return _MESSAGES.get(name) or formats.write(
        [
            Message(
                branch=1, position=position, role=draft.role, parts=draft.parts, format=draft.format, created_at_ms=0
            )
            for position, draft in enumerate(formats.read(ANTHROPIC_MESSAGES, "anthropic"), 1)
        ],
        name,
    )


_NOT_JSON = [NAN, float("inf"), -float("inf"), nested_list(600), nested_list(100_000), {1: 2}, b"x"]
_UNUSUAL_VALUES: list[Any] = [
    "\ud800", "\0", "a\0\ud800b", 2**64, -(2**200), 1e300, -0.0, 1.0, {"$blob": None}, {"$blob": None, "is": {}},
    {"$blob": "x", "as": "text"}, {"$blob": None, "is": {"$blob": 1}}, [], {}, "", {"": ""}, None, True,
    nested_list(480), " leading", "\u2028",
]  # fmt: skip


class TestFormats:
    """Messages of every format, stored and read."""

    @pytest.mark.parametrize("name", formats.PROVIDERS)
    def test_messages_are_returned_unchanged(self, store: Store, database: DatabaseUnderTest, name: str):
        messages = example(name)
        messages_copy = copy.deepcopy(messages)
        store.session("whole").append(messages_copy, format=name)  # pyright: ignore[reportArgumentType]
        one_by_one = store.session("single")
        for message in messages_copy:
            one_by_one.append(message, format=name)  # pyright: ignore[reportArgumentType]
        assert messages_copy == messages
        new_store = database.reopen()
        for id in ("whole", "single"):
            assert new_store.session(id).history(name) == messages  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize(
        ("name", "messages"),
        [
            ("anthropic", ANTHROPIC_MESSAGES[1:3]),
            ("openai", OPENAI_MESSAGES),
            ("openai-responses", RESPONSES_ITEMS[:8]),
            ("ai-sdk", AI_SDK_MODEL_MESSAGES),
            ("ai-sdk-ui", AI_SDK_UI_MESSAGES),
        ],
    )
    def test_the_format_is_detected_if_it_is_clear(self, store: Store, name: str, messages: list[dict[str, Any]]):
        session = store.session("a")
        session.append(messages)
        assert session.history(name, repair=False) == messages  # pyright: ignore[reportArgumentType]

    def test_a_role_with_a_text_is_equal_in_every_format(self, store: Store):
        messages = [user("hello"), {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
        session = store.session("a")
        session.append(messages)
        assert session.history("anthropic") == messages
        assert session.history("openai") == messages

    def test_a_session_begins_with_one_provider_and_continues_with_another(self, store: Store):
        session = store.session("a")
        session.append(ANTHROPIC_MESSAGES, format="anthropic")
        session.append(OPENAI_MESSAGES[1:], format="openai")
        session.append(user("and now?"))
        anthropic, openai = session.history("anthropic"), session.history("openai")
        assert anthropic[:4] == ANTHROPIC_MESSAGES
        assert openai[-6:-1] == OPENAI_MESSAGES[1:]
        assert anthropic[-1] == openai[-1] == user("and now?")
        calls = [call["id"] for message in openai for call in message.get("tool_calls") or ()]
        result_ids = [message["tool_call_id"] for message in openai if message["role"] == "tool"]
        assert calls == result_ids == ["toolu_1", "toolu_2", "call_1", "call_2"]
        blocks = [
            block for message in anthropic if isinstance(message["content"], list) for block in message["content"]
        ]
        assert [b["id"] for b in blocks if b["type"] == "tool_use"] == calls
        assert [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"] == calls

    @pytest.mark.parametrize(
        ("name", "messages", "statuses"),
        [
            ("openai-responses", RESPONSES_ITEMS, ["success", "success"]),
            ("ai-sdk", AI_SDK_MODEL_MESSAGES, ["success", "error"]),
            ("ai-sdk-ui", AI_SDK_UI_MESSAGES, ["success", "error"]),
        ],
    )
    def test_calls_are_tracked_in_every_format(
        self, store: Store, name: str, messages: list[dict[str, Any]], statuses: list[str]
    ):
        session = store.session("a")
        session.append(messages, format=name)  # pyright: ignore[reportArgumentType]
        assert [(call.call_id, call.tool) for call in session.tools.list()] == [("call_1", "read"), ("call_2", "read")]
        assert [call.status for call in session.tools.list()] == statuses
        for target in formats.PROVIDERS:
            assert session.history(target)  # pyright: ignore[reportArgumentType]

    def test_a_result_for_a_call_of_a_ui_message(self, store: Store):
        session = store.session("a")
        part = {"type": "tool-read", "toolCallId": "c", "state": "input-available", "input": {}}
        session.append({"id": "m", "role": "assistant", "parts": [part]})
        session.tools.record_result("c", {"words": 3})
        assert [call.status for call in session.tools.list()] == ["success"]
        (message,) = session.history("ai-sdk-ui")
        assert message["parts"] == [{**part, "state": "output-available", "output": {"words": 3}}]

    def test_messages_in_the_recollect_format_are_returned_unchanged(self, store: Store):
        session, second = store.session("a"), store.session("b")
        session.append(ANTHROPIC_MESSAGES, format="anthropic")
        history = session.history()
        assert [message["id"] for message in history] == ["1.1", "1.2", "1.3", "1.4"]
        second.append(list(history))
        assert second.history("anthropic") == ANTHROPIC_MESSAGES
        assert second.history() == history

    @pytest.mark.parametrize(
        ("response", "tokens", "model"),
        [
            (ANTHROPIC_RESPONSE, (16, 7), "claude-test-1"),
            (OPENAI_RESPONSE, (13, 4), "gpt-test-1"),
            (RESPONSES_RESPONSE, (11, 5), "gpt-test-2"),
        ],
    )
    def test_complete_responses(
        self, store: Store, database: DatabaseUnderTest, response: Any, tokens: tuple[int, int], model: str
    ):
        session = store.session("a")
        session.append(user("q"))
        session.append(response)
        session = database.reopen().session("a")
        message = session.messages()[1]
        assert formats.response(message) == response
        assert (message.input_tokens, message.output_tokens, message.model) == (*tokens, model)
        assert (session.input_tokens, session.output_tokens) == tokens
        assert [call.status for call in session.tools.list()] == ["pending"]
        check_counts(session)

    def test_objects_of_anthropics_sdk(self, store: Store):
        types: Any = pytest.importorskip("anthropic.types")
        session = store.session("a")
        session.save_turn("q", types.Message.model_validate(ANTHROPIC_RESPONSE))
        assert formats.response(session.messages()[1]) == ANTHROPIC_RESPONSE
        assert session.turns.list()[0].model == "claude-test-1"
        session.append({"role": "assistant", "content": [types.TextBlock(type="text", text="an object")]})
        assert texts(session)[-1] == "an object"

    def test_objects_of_openais_sdk(self, store: Store):
        chat: Any = pytest.importorskip("openai.types.chat")
        session = store.session("a")
        responses: Any = pytest.importorskip("openai.types.responses")
        response = responses.Response.model_construct(**RESPONSES_RESPONSE)
        store.session("b").save_turn("q", response)
        assert formats.response(store.session("b").messages()[1]) == RESPONSES_RESPONSE
        completion = chat.ChatCompletion.model_validate(OPENAI_RESPONSE)
        session.save_turn("q", completion)
        assert formats.response(session.messages()[1]) == OPENAI_RESPONSE
        session.append(completion.choices[0].message)
        assert session.history("openai", repair=False)[-1] == OPENAI_RESPONSE["choices"][0]["message"]

    def test_unknown_blocks_and_fields_are_kept(self, store: Store, database: DatabaseUnderTest):
        messages = [
            {
                "role": "user",
                "content": [{"type": "hologram", "rays": [1, {"a": None}]}, {"type": "text", "text": "x"}],
            },
            {"role": "assistant", "content": [], "future": {"field": True}},
            {"role": "assistant", "content": [{"type": "tool_use", "id": 5, "name": None}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "never-asked", "content": {"odd": 1}}]},
        ]
        store.session("a").append(messages, format="anthropic")
        assert database.reopen().session("a").history("anthropic", repair=False) == messages

    def test_unusual_values_are_returned_unchanged(self, store: Store, database: DatabaseUnderTest):
        conversations: list[list[dict[str, Any]]] = [
            [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"value": value}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x", "more": value}],
                },
                {"role": "assistant", "content": [{"type": "odd", "value": value}], "extra": value},
            ]
            for value in _UNUSUAL_VALUES
        ]
        for number, messages in enumerate(conversations):
            session = store.session(f"s{number}")
            session.append(messages, format="anthropic")
            session.append({"role": "user", "content": "x", "metadata": {"value": _UNUSUAL_VALUES[number]}})
        new_store = database.reopen()
        for number, messages in enumerate(conversations):
            session = new_store.session(f"s{number}")
            assert session.history("anthropic", repair=False)[:3] == messages
            assert repr(session.history("anthropic", repair=False)[:3]) == repr(messages)
            assert session.messages()[3].metadata == {"value": _UNUSUAL_VALUES[number]}
            assert [call.status for call in session.tools.list()] == ["success"]

    @pytest.mark.parametrize("unusual", ["\ud800", "a\0b", "🤖", ""])
    def test_unusual_names_are_returned_unchanged(self, store: Store, database: DatabaseUnderTest, unusual: str):
        messages = [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": unusual, "name": unusual, "input": {unusual: unusual}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": unusual, "content": unusual}]},
        ]
        response = {**ANTHROPIC_RESPONSE, "model": unusual}
        session = store.session("a")
        session.append(messages, format="anthropic")
        session.append(response)
        session = database.reopen().session("a")
        assert session.history("anthropic", repair=False)[:2] == messages
        assert formats.response(session.messages()[2]) == response
        assert [call.status for call in session.tools.list()] == ["success", "pending"]

    @pytest.mark.parametrize("unusual", [-1, 2**70, 1.5, "7", True, None])
    def test_unusual_usage_is_kept_and_not_counted(self, store: Store, unusual: Any):
        response = {**ANTHROPIC_RESPONSE, "usage": {"input_tokens": unusual, "output_tokens": unusual}}
        session = store.session("a")
        session.save_turn("q", response)
        assert formats.response(session.messages()[1]) == response
        check_counts(session)
        assert session.output_tokens >= 0

    def test_values_that_are_not_json_are_refused(self, store: Store):
        session = store.session("a")
        for value in _NOT_JSON:
            for unusual in (
                {"role": "user", "content": [{"type": "odd", "value": value}]},
                {"role": "user", "content": "x", "extra": value},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": value}]},
            ):
                with pytest.raises(InvalidValue):
                    session.append([user("x"), unusual], format="anthropic")
                with pytest.raises(InvalidValue):
                    session.save_turn("q", unusual, format="anthropic")
                assert texts(session) == []
        session.append(user("still works"))
        check_counts(session)

    def test_a_value_that_contains_itself_is_refused(self, store: Store):
        loop: list[Any] = []
        loop.append(loop)
        session = store.session("a")
        with pytest.raises(InvalidValue):
            session.append({"role": "user", "content": [{"type": "x", "v": loop}]}, format="anthropic")
        assert texts(session) == []
