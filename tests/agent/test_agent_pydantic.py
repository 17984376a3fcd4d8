"""Conversion between Pydantic AI's messages and drafts: lossless, and providers accept every history."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai.messages import (
    BinaryContent,
    BinaryImage,
    FilePart,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

import recollect
from recollect.agent import TextDelta, ToolFinished
from recollect.agent.pydantic_messages import (
    NO_RESULT,
    complete_tool_calls,
    read_response,
    read_result,
    to_model_messages,
)
from recollect.formats.display import is_truncated

NOW = datetime.datetime(2025, 11, 16, 10, tzinfo=datetime.UTC)
RESPONSE = ModelResponse(
    parts=[
        ThinkingPart(content="Hm", id="rs_1", signature="c2ln", provider_name="anthropic", provider_details={"caller": None}),
        TextPart(content="Yes", id="msg_1", provider_name="openai", provider_details={"phase": "final", "extra_content": [1, None]}),
        ToolCallPart(tool_name="look", args='{"a": 1', tool_call_id="c1", id="fc_1"),
        ToolCallPart(tool_name="look", args={"a": None}, tool_call_id="c2"),
        ToolCallPart(tool_name="look", args=None, tool_call_id="c3"),
        NativeToolCallPart(tool_name="web_search", args={"q": "x"}, tool_call_id="s1", provider_name="anthropic"),
        NativeToolReturnPart(tool_name="web_search", content={"r": [1]}, tool_call_id="s1", provider_name="anthropic", timestamp=NOW),
        FilePart(content=BinaryImage(data=b"\x89PNG", media_type="image/png")),
    ],
    usage=RequestUsage(input_tokens=10, output_tokens=5, cache_read_tokens=3, details={"x": 1}),
    model_name="some-model",
    timestamp=NOW,
    provider_name="anthropic",
    provider_details={"finish_reason": "end"},
    provider_response_id="r1",
    finish_reason="stop",
)  # fmt: skip


def store_and_read(draft, path):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        session.append(draft)
        plain = session.history("recollect")[-1]
    from recollect import formats

    return formats.read(plain, "recollect")[0]


def test_a_response_round_trips(path):
    draft = store_and_read(read_response(RESPONSE), path)
    (response, *_) = to_model_messages([draft])
    assert response == RESPONSE


def test_a_file_of_a_response_round_trips(path):
    data = bytes(range(256)) * 12
    response = ModelResponse(parts=[FilePart(content=BinaryContent(data=data, media_type="image/png"), id="f1")])
    draft = store_and_read(read_response(response), path)
    (part,) = draft.parts
    assert isinstance(part, recollect.AttachmentPart)
    (again,) = to_model_messages([draft])
    assert (
        again.parts == ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json([response]))[0].parts
    )


def test_a_response_of_an_earlier_version_is_sent_with_its_remainder():
    native = {"usage": {"input_tokens": 10}, "finish_reason": "length", "provider_name": "openai"}
    message = draft("assistant", recollect.TextPart(text="Yes"), format="pydantic-ai", native=native)
    (response,) = to_model_messages([message])
    assert isinstance(response, ModelResponse)
    assert (response.usage.input_tokens, response.finish_reason, response.provider_name) == (10, "length", "openai")
    assert is_truncated(message)


def test_common_fields_of_a_response(path):
    draft = store_and_read(read_response(RESPONSE), path)
    assert (draft.model, draft.input_tokens, draft.output_tokens) == ("some-model", 10, 5)
    with recollect.open(path) as store:
        message = store.session("cli:a").messages()[0]
        assert (message.text, message.reasoning) == ("Yes", "Hm")
        assert [(call.call_id, call.tool, call.input) for call in message.tool_calls] == [
            ("c1", "look", '{"a": 1'), ("c2", "look", {"a": None}), ("c3", "look", None),
        ]  # fmt: skip
        assert store.session("cli:a").history("anthropic")
        assert store.session("cli:a").history("openai")[0]["content"] == "Yes"


@pytest.mark.parametrize("content", ["text", {"a": [1, None]}, [1, 2], None, 3.5, True])
def test_a_tool_result_round_trips(path, content):
    call_draft = read_response(ModelResponse(parts=[ToolCallPart(tool_name="look", args={}, tool_call_id="c1")]))
    part = ToolReturnPart(tool_name="look", content=content, tool_call_id="c1", timestamp=NOW, metadata={"k": 1})
    result_draft = store_and_read(read_result(part, 12), path)
    assert to_model_messages([call_draft, result_draft])[1].parts == [part]
    assert result_draft.parts[0].metadata == {"latency_ms": 12}


@pytest.mark.parametrize(
    ("outcome", "status"), [("success", "success"), ("failed", "error"), ("interrupted", "cancelled")]
)
def test_status_of_a_tool_result(outcome, status):
    part = ToolReturnPart(tool_name="look", content="x", tool_call_id="c1", outcome=outcome)
    assert read_result(part, 0).parts[0].status == status  # pyright: ignore[reportAttributeAccessIssue]


def draft(role, *parts, **fields):
    return recollect.Draft(role=role, parts=parts, **fields)


def test_messages_of_other_formats_are_translated():
    signed = recollect.ReasoningPart(text="Hm", native={"type": "thinking", "signature": "c2ln"})
    drafts = [
        draft("system", recollect.TextPart(text="Be brief.")),
        draft("user", recollect.TextPart(text="Look"), recollect.AttachmentPart(mime_type="image/png", url="https://x/a.png")),
        draft("assistant", signed, recollect.TextPart(text="A"), recollect.ToolCallPart(call_id="c1", tool="t", arguments=[1]), format="anthropic"),
        draft("tool", recollect.ToolResultPart(call_id="c1", text="done")),
        draft("assistant", recollect.ReasoningPart(text="unsigned"), recollect.TextPart(text="B"), format="openai"),
        draft("assistant", recollect.ReasoningPart(text="alone"), state="interrupted"),
    ]  # fmt: skip
    messages = to_model_messages(drafts)
    assert [type(message).__name__ for message in messages] == [
        "ModelRequest",
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
        "ModelResponse",
    ]
    assert [part.part_kind for part in messages[2].parts] == ["thinking", "text", "tool-call"]
    assert messages[2].parts[0].signature == "c2ln"  # pyright: ignore[reportAttributeAccessIssue]
    assert [part.part_kind for part in messages[4].parts] == ["text"]


def test_a_tool_call_without_a_result_gets_one():
    calls = draft("assistant", *(recollect.ToolCallPart(call_id=f"c{n}", tool="t") for n in (1, 2)))
    result = draft("tool", recollect.ToolResultPart(call_id="c1", text="done"))
    orphan = draft("tool", recollect.ToolResultPart(call_id="c9", text="lost"))
    user = draft("user", recollect.TextPart(text="Next"))
    ids = [
        [part.call_id for part in m.parts if hasattr(part, "call_id")]  # pyright: ignore[reportAttributeAccessIssue]
        for m in complete_tool_calls([user, calls, result, orphan, user])
    ]
    assert ids == [[], ["c1", "c2"], ["c1"], ["c2"], []]
    messages = to_model_messages([user, calls, user])
    assert [part.content for message in messages[2:4] for part in message.parts] == [NO_RESULT, NO_RESULT]  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(messages[4], ModelRequest)
    assert isinstance(messages[4].parts[0], UserPromptPart)
    assert len(to_model_messages([calls])) == 3


async def test_the_test_model(make_agent, read_session):
    async with make_agent(TestModel(call_tools=["current_time"], custom_output_text="All done")) as agent:
        answer = await (await agent.conversation("cli:a")).ask("Go")
    assert answer.text == "All done"
    messages, _, (tool_call,), _ = read_session("cli:a")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert tool_call.status == "success"


async def test_a_function_model_with_parallel_tools(make_agent, read_session):
    async def stream(messages, info):
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="slow", json_args='{"n": 1}', tool_call_id="a")}
            yield {1: DeltaToolCall(name="slow", json_args='{"n": 2}', tool_call_id="b")}
            yield {2: DeltaToolCall(name="broken", json_args="{}", tool_call_id="c")}
        else:
            results = [part.content for part in messages[-1].parts]
            for word in ("I ", "got ", str(sorted(results))):
                yield word

    async def slow(n: int) -> str:
        import asyncio

        await asyncio.sleep(0.1 / n)
        return f"r{n}"

    def broken() -> str:
        raise OSError("no disk")

    async with make_agent(FunctionModel(stream_function=stream), tools=[slow, broken], title=lambda _: "T") as agent:
        events = [event async for event in (await agent.conversation("cli:a")).send("Go")]
    assert events[-1].text == "I got ['OSError: no disk', 'r1', 'r2']"
    assert [event.status for event in events if isinstance(event, ToolFinished)].count("error") == 1
    _, _, calls, _ = read_session("cli:a")
    assert {call.call_id: call.status for call in calls} == {"a": "success", "b": "success", "c": "error"}


async def test_invalid_arguments_are_reported_to_the_model(make_agent, read_session):
    async def stream(messages, info):
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="calculate", json_args='{"wrong": 1}', tool_call_id="a")}
        else:
            yield "Sorry."

    async with make_agent(FunctionModel(stream_function=stream), title=lambda _: "T") as agent:
        assert (await (await agent.conversation("cli:a")).ask("Go")).text == "Sorry."
    _, _, (tool_call,), _ = read_session("cli:a")
    assert tool_call.status == "error"


async def test_the_model_writes_titles_and_summaries(make_agent, read_session):
    async def stream(messages, info):
        yield "Fine."

    def answer(messages, info):
        prompt = str(messages[0].parts[0].content)
        return ModelResponse(parts=[TextPart(content='"A **Good** Title."' if "title" in prompt else "It was short.")])

    async with make_agent(FunctionModel(answer, stream_function=stream)) as agent:
        conversation = await agent.conversation("cli:a")
        await conversation.ask("Hello")
        assert await conversation.summarize() == "It was short."
    assert read_session("cli:a")[3].title == "A Good Title"


async def test_text_deltas(make_agent):
    async def stream(messages, info):
        for word in ("a", "b", "c"):
            yield word

    async with make_agent(FunctionModel(stream_function=stream), title=lambda _: "T") as agent:
        events = [event async for event in (await agent.conversation("cli:a")).send("Go")]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b", "c"]
