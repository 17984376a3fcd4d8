"""Formats through the store: what came in one comes back equal in it, and goes on in another."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue
from recollect.store import Store
from recollect.testing.place import Place
from recollect.testing.talk import (
    ANTHROPIC_RESPONSE,
    ANTHROPIC_TALK,
    MODEL_TALK,
    NAN,
    OPENAI_RESPONSE,
    OPENAI_TALK,
    RESPONSES_RESPONSE,
    RESPONSES_TALK,
    UI_TALK,
    counted,
    texts,
    user,
)


def nested(depth: int) -> Any:
    """Give a list in a list in a list."""
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


_NOT_JSON = [NAN, float("inf"), -float("inf"), nested(600), nested(100_000), {1: 2}, b"x"]
_ODD_VALUES: list[Any] = [
    "\ud800", "\0", "a\0\ud800b", 2**64, -(2**200), 1e300, -0.0, 1.0, {"$blob": None}, {"$blob": None, "is": {}},
    {"$blob": "x", "as": "text"}, {"$blob": None, "is": {"$blob": 1}}, [], {}, "", {"": ""}, None, True, nested(480),
    " leading", "\u2028",
]  # fmt: skip


class TestFormats:
    """In and out of the store."""

    @pytest.mark.parametrize(
        ("name", "talk"),
        [
            ("anthropic", ANTHROPIC_TALK),
            ("openai", OPENAI_TALK),
            ("openai-responses", RESPONSES_TALK),
            ("ai-sdk", MODEL_TALK),
            ("ai-sdk-ui", UI_TALK),
        ],
    )
    def test_it_comes_back_equal(self, store: Store, place: Place, name: str, talk: list[dict[str, Any]]):
        given = copy.deepcopy(talk)
        store.session("whole").append(given, format=name)  # pyright: ignore[reportArgumentType]
        one_by_one = store.session("single")
        for message in given:
            one_by_one.append(message, format=name)  # pyright: ignore[reportArgumentType]
        assert given == talk
        again = place.reopen()
        for id in ("whole", "single"):
            assert again.session(id).history(name) == talk  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize(
        ("name", "talk"),
        [
            ("anthropic", ANTHROPIC_TALK[1:3]),
            ("openai", OPENAI_TALK),
            ("openai-responses", RESPONSES_TALK[:8]),
            ("ai-sdk", MODEL_TALK),
            ("ai-sdk-ui", UI_TALK),
        ],
    )
    def test_the_format_is_guessed_where_it_is_clear(self, store: Store, name: str, talk: list[dict[str, Any]]):
        session = store.session("a")
        session.append(talk)
        assert session.history(name, repair=False) == talk  # pyright: ignore[reportArgumentType]

    def test_a_role_with_a_text_is_equal_in_every_format(self, store: Store):
        talk = [user("hello"), {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
        session = store.session("a")
        session.append(talk)
        assert session.history("anthropic") == talk
        assert session.history("openai") == talk

    def test_it_begins_with_one_provider_and_goes_on_with_another(self, store: Store):
        session = store.session("a")
        session.append(ANTHROPIC_TALK, format="anthropic")
        session.append(OPENAI_TALK[1:], format="openai")
        session.append(user("and now?"))
        anthropic, openai = session.history("anthropic"), session.history("openai")
        assert anthropic[:4] == ANTHROPIC_TALK
        assert openai[-6:-1] == OPENAI_TALK[1:]
        assert anthropic[-1] == openai[-1] == user("and now?")
        calls = [call["id"] for message in openai for call in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in openai if message["role"] == "tool"]
        assert calls == answered == ["toolu_1", "toolu_2", "call_1", "call_2"]
        blocks = [
            block for message in anthropic if isinstance(message["content"], list) for block in message["content"]
        ]
        assert [b["id"] for b in blocks if b["type"] == "tool_use"] == calls
        assert [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"] == calls

    @pytest.mark.parametrize(
        ("name", "talk", "statuses"),
        [
            ("openai-responses", RESPONSES_TALK, ["success", "success"]),
            ("ai-sdk", MODEL_TALK, ["success", "error"]),
            ("ai-sdk-ui", UI_TALK, ["success", "error"]),
        ],
    )
    def test_calls_are_followed_in_every_format(
        self, store: Store, name: str, talk: list[dict[str, Any]], statuses: list[str]
    ):
        session = store.session("a")
        session.append(talk, format=name)  # pyright: ignore[reportArgumentType]
        assert [(call.call_id, call.tool) for call in session.tool_calls()] == [("call_1", "read"), ("call_2", "read")]
        assert [call.status for call in session.tool_calls()] == statuses
        for target in ("anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui"):
            assert session.history(target)

    def test_a_result_for_a_call_of_a_ui_message(self, store: Store):
        session = store.session("a")
        part = {"type": "tool-read", "toolCallId": "c", "state": "input-available", "input": {}}
        session.append({"id": "m", "role": "assistant", "parts": [part]})
        session.record_tool_result("c", {"words": 3})
        assert [call.status for call in session.tool_calls()] == ["success"]
        (message,) = session.history("ai-sdk-ui")
        assert message["parts"] == [{**part, "state": "output-available", "output": {"words": 3}}]

    def test_own_messages_come_back_as_they_are(self, store: Store):
        session, copied = store.session("a"), store.session("b")
        session.append(ANTHROPIC_TALK, format="anthropic")
        plain = session.history()
        assert [message["id"] for message in plain] == ["1.1", "1.2", "1.3", "1.4"]
        copied.append(list(plain))
        assert copied.history("anthropic") == ANTHROPIC_TALK
        assert copied.history() == plain

    @pytest.mark.parametrize(
        ("response", "tokens", "model"),
        [
            (ANTHROPIC_RESPONSE, (16, 7), "claude-test-1"),
            (OPENAI_RESPONSE, (13, 4), "gpt-test-1"),
            (RESPONSES_RESPONSE, (11, 5), "gpt-test-2"),
        ],
    )
    def test_whole_responses(self, store: Store, place: Place, response: Any, tokens: tuple[int, int], model: str):
        session = store.session("a")
        session.append(user("q"))
        session.append(response)
        session = place.reopen().session("a")
        message = session.messages()[1]
        assert formats.response(message) == response
        assert (message.input_tokens, message.output_tokens, message.model) == (*tokens, model)
        assert (session.input_tokens, session.output_tokens) == tokens
        assert [call.status for call in session.tool_calls()] == ["pending"]
        counted(session)

    def test_objects_of_anthropics_sdk(self, store: Store):
        types: Any = pytest.importorskip("anthropic.types")
        session = store.session("a")
        session.save_turn("q", types.Message.model_validate(ANTHROPIC_RESPONSE))
        assert formats.response(session.messages()[1]) == ANTHROPIC_RESPONSE
        assert session.turns()[0].model == "claude-test-1"
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

    def test_unknown_blocks_and_fields_are_kept(self, store: Store, place: Place):
        talk = [
            {
                "role": "user",
                "content": [{"type": "hologram", "rays": [1, {"a": None}]}, {"type": "text", "text": "x"}],
            },
            {"role": "assistant", "content": [], "future": {"field": True}},
            {"role": "assistant", "content": [{"type": "tool_use", "id": 5, "name": None}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "never-asked", "content": {"odd": 1}}]},
        ]
        store.session("a").append(talk, format="anthropic")
        assert place.reopen().session("a").history("anthropic", repair=False) == talk

    def test_odd_values_come_back_equal(self, store: Store, place: Place):
        talks: list[list[dict[str, Any]]] = [
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
            for value in _ODD_VALUES
        ]
        for number, talk in enumerate(talks):
            session = store.session(f"s{number}")
            session.append(talk, format="anthropic")
            session.append({"role": "user", "content": "x", "metadata": {"value": _ODD_VALUES[number]}})
        again = place.reopen()
        for number, talk in enumerate(talks):
            session = again.session(f"s{number}")
            assert session.history("anthropic", repair=False)[:3] == talk
            assert repr(session.history("anthropic", repair=False)[:3]) == repr(talk)
            assert session.messages()[3].metadata == {"value": _ODD_VALUES[number]}
            assert [call.status for call in session.tool_calls()] == ["success"]

    @pytest.mark.parametrize("odd", ["\ud800", "a\0b", "🤖", ""])
    def test_odd_names_come_back_equal(self, store: Store, place: Place, odd: str):
        talk = [
            {"role": "assistant", "content": [{"type": "tool_use", "id": odd, "name": odd, "input": {odd: odd}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": odd, "content": odd}]},
        ]
        response = {**ANTHROPIC_RESPONSE, "model": odd}
        session = store.session("a")
        session.append(talk, format="anthropic")
        session.append(response)
        session = place.reopen().session("a")
        assert session.history("anthropic", repair=False)[:2] == talk
        assert formats.response(session.messages()[2]) == response
        assert [call.status for call in session.tool_calls()] == ["success", "pending"]

    @pytest.mark.parametrize("odd", [-1, 2**70, 1.5, "7", True, None])
    def test_odd_usage_is_kept_and_not_counted(self, store: Store, odd: Any):
        response = {**ANTHROPIC_RESPONSE, "usage": {"input_tokens": odd, "output_tokens": odd}}
        session = store.session("a")
        session.save_turn("q", response)
        assert formats.response(session.messages()[1]) == response
        counted(session)
        assert session.output_tokens >= 0

    def test_what_json_can_not_carry_is_refused(self, store: Store):
        session = store.session("a")
        for value in _NOT_JSON:
            for odd in (
                {"role": "user", "content": [{"type": "odd", "value": value}]},
                {"role": "user", "content": "x", "extra": value},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": value}]},
            ):
                with pytest.raises(InvalidValue):
                    session.append([user("x"), odd], format="anthropic")
                with pytest.raises(InvalidValue):
                    session.save_turn("q", odd, format="anthropic")
                assert texts(session) == []
        session.append(user("still works"))
        counted(session)

    def test_a_value_that_holds_itself_is_refused(self, store: Store):
        loop: list[Any] = []
        loop.append(loop)
        session = store.session("a")
        with pytest.raises(InvalidValue):
            session.append({"role": "user", "content": [{"type": "x", "v": loop}]}, format="anthropic")
        assert texts(session) == []
