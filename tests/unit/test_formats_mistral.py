"""Mistral's chat format: its chunks, objects of its SDK, and the rules of a request."""

from __future__ import annotations

from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.formats.display import is_truncated
from recollect.formats.registry import read
from recollect.model.message import AttachmentPart, ReasoningPart

QUESTION = {"role": "user", "content": "q"}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}
CALL: dict[str, Any] = {"id": "abcdefgh1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def answer(*chunks: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(chunks), **fields}


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def test_chunks_become_parts(session: recollect.Session) -> None:
    reference = {"type": "reference", "reference_ids": [1, "two"]}
    messages = [
        {"role": "user", "content": [{"type": "document_url", "document_url": "https://example.org/a.pdf"}]},
        answer(THINKING, {"type": "text", "text": "a"}, reference),
    ]
    session.append(messages)
    document, reply = session.messages()
    assert isinstance(document.parts[0], AttachmentPart)
    assert (document.format, document.parts[0].url, document.parts[0].mime_type) == (
        "mistral", "https://example.org/a.pdf", "application/pdf",
    )  # fmt: skip
    assert isinstance(reply.parts[0], ReasoningPart)
    assert reply.reasoning == "hm"
    assert session.history("mistral") == messages
    assert session.history("openai")[-1] == {"role": "assistant", "content": "a"}
    assert session.history("anthropic")[0]["content"][0]["source"]["url"] == "https://example.org/a.pdf"


def test_objects_whose_role_was_never_set(session: recollect.Session) -> None:
    pydantic = pytest.importorskip("pydantic")

    class UserMessage(pydantic.BaseModel):
        content: str
        role: str = "user"

        @pydantic.model_serializer(mode="wrap")
        def serialize(self, handler):
            return {name: handler(self).get(name) for name in type(self).model_fields}  # a role that is not set is None

    session.append(UserMessage(content="hi"))
    assert session.history("mistral") == [{"role": "user", "content": "hi"}]


def test_a_history_for_mistral_keeps_its_rules(session: recollect.Session) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    session.append([QUESTION, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    ]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}]}])  # fmt: skip
    session.append({"role": "user", "content": "and?"})
    history = session.history("mistral")
    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant", "user"]
    call_id = history[1]["tool_calls"][0]["id"]
    assert formats.load_rules("mistral").call_id.fullmatch(call_id)  # type: ignore[union-attr]
    assert history[2]["tool_call_id"] == call_id
    assert history[2]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    assert history[3] == {"role": "assistant", "content": "OK"}
    assert {repair.kind for repair in history.repairs} == {"call_id", "same_role"}
    again = session.store.session("b")
    again.append(history, format="mistral")
    assert again.history("mistral") == history
    assert again.history("mistral").repairs == []
    raw = session.history("mistral", repair=False)
    assert raw[1]["tool_calls"][0]["id"] == raw[2]["tool_call_id"]


def test_ids_of_mistral_are_unchanged(session: recollect.Session) -> None:
    result = {"role": "tool", "name": "look", "tool_call_id": "abcdefgh1", "content": "a cat"}
    messages = [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        result,
        answer({"type": "text", "text": "a"}),
    ]
    session.append(messages, format="mistral")
    assert session.history("mistral") == messages
    assert session.history("mistral").repairs == []
    assert [call.status for call in session.tools.list()] == ["success"]


RESPONSE: dict[str, Any] = {
    "id": "r", "object": "chat.completion", "model": "mistral-test", "created": 1,
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    "choices": [{"index": 0, "finish_reason": "model_length",
                 "message": {"role": "assistant", "content": [THINKING, {"type": "text", "text": "a"}], "tool_calls": None}}],
}  # fmt: skip


def test_a_whole_response(session: recollect.Session) -> None:
    session.append(RESPONSE, format="mistral")
    (message,) = session.messages()
    assert formats.response(message) == RESPONSE
    assert (message.model, message.input_tokens, message.output_tokens, message.reasoning) == (
        "mistral-test",
        7,
        3,
        "hm",
    )
    assert is_truncated(message)
    assert session.history("mistral", repair=False) == [answer(THINKING, {"type": "text", "text": "a"})]


def test_files_and_custom_tools_of_openai_are_written_as_mistral_needs_them(session: recollect.Session) -> None:
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    custom = {"id": "abcdefgh1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    session.append(
        [{"role": "user", "content": [file, audio]}, {"role": "assistant", "content": None, "tool_calls": [custom]}]
    )
    question, call, _ = session.history("mistral")
    assert question["content"] == [
        {"type": "document_url", "document_url": "data:application/pdf;base64,AAAA", "document_name": "a.pdf"},
        {"type": "input_audio", "input_audio": "AAAA"},
    ]
    function = {"name": "sh", "arguments": '{"arguments":"ls"}'}
    assert call["tool_calls"] == [{"id": "abcdefgh1", "type": "function", "function": function}]


@pytest.mark.parametrize(
    "message",
    [
        answer(THINKING),
        answer({"type": "reference", "reference_ids": [1]}),
        {"role": "user", "content": [{"type": "document_url", "document_url": "https://example.org/a.pdf"}]},
        {"role": "assistant", "content": "Sure", "prefix": True},
    ],
)
def test_a_message_is_detected(message: dict[str, Any]) -> None:
    assert read(message)[0].format == "mistral"
    assert formats.render(read(message), "mistral") == [message]
