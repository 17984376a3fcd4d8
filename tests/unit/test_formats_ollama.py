"""Ollama's chat format: calls without ids, thinking, images, and responses."""

from __future__ import annotations

from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import InvalidValue
from recollect.formats import RegisteredFormat
from recollect.formats.display import is_truncated
from recollect.formats.registry import read
from recollect.model.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart

CALL: dict[str, Any] = {"function": {"name": "look", "arguments": {"at": 1}}}
QUESTION = {"role": "user", "content": "q"}


def result(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_name": "look", **fields}


def answer(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", **fields, "tool_calls": list(calls)}


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def test_fields_become_parts() -> None:
    (draft,) = read(answer(CALL, thinking="hm", content="I look"))
    assert [type(part) for part in draft.parts] == [ReasoningPart, TextPart, ToolCallPart]
    assert (draft.format, draft.parts[2].input) == ("ollama", {"at": 1})  # type: ignore[union-attr]
    (question,) = read({"role": "user", "content": "?", "images": ["iVBORw0K", b"\xff\xd8\xff\xe0"]})
    assert [part.mime_type for part in question.parts if isinstance(part, AttachmentPart)] == [
        "image/png",
        "image/jpeg",
    ]


def test_parallel_calls_without_ids_are_answered_in_their_order(session: recollect.Session) -> None:
    messages = [QUESTION, answer(CALL, CALL), result("one"), result("two"), answer(CALL), result("three")]
    for message in messages:
        session.append(message)
    assert session.history("ollama") == messages
    assert session.history("ollama").repairs == []
    assert [call.status for call in session.tools.list()] == ["success"] * 3
    openai = session.history("openai")
    ids = [call["id"] for message in openai for call in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in openai if message["role"] == "tool"] == ids
    assert len({*ids[:2]}) == 2


def test_a_result_of_another_format_has_an_id_only_if_its_call_has_one(session: recollect.Session) -> None:
    session.append([QUESTION, answer(CALL)])
    session.tools.record_result("look", "a cat")
    assert session.history("ollama")[-1] == result("a cat")
    session.append(answer({**CALL, "id": "call_1"}))
    session.tools.record_result("call_1", {"cats": 2})
    assert session.history("ollama")[-1] == result('{"cats":2}', tool_call_id="call_1")


def test_bytes_come_back_as_bytes(session: recollect.Session) -> None:
    messages = [{"role": "user", "content": "?", "images": [b"\x89PNG" * 900, "iVBORw0K"]}]
    session.append(messages)
    assert session.history("ollama") == messages
    assert session.history("anthropic")[0]["content"][1]["source"]["media_type"] == "image/png"


def test_what_ollama_cannot_express_becomes_text(session: recollect.Session) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    session.append({"role": "user", "content": [image, {"type": "text", "text": "?"}]}, format="openai")
    assert session.history("ollama") == [{"role": "user", "content": "File: https://example.org/a.png\n\n?"}]


RESPONSE: dict[str, Any] = {
    "model": "qwen", "created_at": "2026-01-01T00:00:00Z", "message": answer(CALL, thinking="hm"), "done": True,
    "done_reason": "length", "prompt_eval_count": 7, "eval_count": 3, "total_duration": 5,
}  # fmt: skip


def test_a_whole_response(session: recollect.Session) -> None:
    session.save_turn("q", RESPONSE)
    message = session.messages()[1]
    assert formats.response(message) == RESPONSE
    assert (message.model, message.input_tokens, message.output_tokens) == ("qwen", 7, 3)
    assert is_truncated(message)
    assert session.history("ollama", repair=False) == [QUESTION, RESPONSE["message"]]
    assert [call.status for call in session.tools.list()] == ["pending"]


def test_arguments_of_every_format_are_objects(session: recollect.Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    session.append([QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert session.history("ollama")[1]["tool_calls"] == [{"id": "c", "function": CALL["function"]}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "a", "thinking": "hm"},
        {"role": "user", "content": "?", "images": ["AAAA"]},
        {"role": "user", "content": "?", "images": [b"AAAA"]},
        result("a cat"),
        answer(CALL),
        answer({**CALL, "id": "call_1"}),
        RESPONSE,
    ],
)
def test_a_message_is_detected(message: dict[str, Any]) -> None:
    assert read(message)[0].format == "ollama"


def test_messages_of_servers_like_openais_are_not(session: recollect.Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for message in (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "a", "reasoning_content": "hm"},
        {"role": "tool", "content": "a", "tool_call_id": "c", "name": "look"},
    ):
        assert read(message)[0].format == "openai"


def test_a_tool_message_without_a_name_becomes_a_user_message(session: recollect.Session) -> None:
    session.append([QUESTION, {"role": "tool", "content": "a cat"}], format="ollama")
    assert session.history("ollama", repair=False)[1] == {"role": "tool", "content": "a cat"}
    assert session.history("ollama")[1] == {"role": "user", "content": "a cat"}


def test_content_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(InvalidValue, match="must be a string"):
        read({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "ollama")


def test_reasoning_needs_no_signature(session: recollect.Session) -> None:
    session.append(QUESTION)
    block = {"type": "thinking", "thinking": "hm", "signature": "secret"}
    session.append({"role": "assistant", "content": [block, {"type": "text", "text": "a"}]})
    assert session.history("ollama")[1] == {"role": "assistant", "content": "a", "thinking": "hm"}
    assert "secret" not in str(session.history(RegisteredFormat("ollama")))
