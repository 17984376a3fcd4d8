"""Pydantic AI's messages and ours: nothing is lost on the way, and every history is acceptable."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai.messages import (
    BinaryImage,
    FilePart,
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
from recollect.agent.pydantic_messages import NO_RESULT, answered, read_response, read_result, write

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


def through_the_store(draft, path):
    with recollect.open(path) as store:
        session = store.session("cli:a")
        session.append(draft)
        plain = session.history("recollect")[-1]
    from recollect import formats

    return formats.read(plain, "recollect")[0]


def test_a_response_comes_back_equal(path):
    back = through_the_store(read_response(RESPONSE), path)
    (written, *_) = write([back])
    assert written == RESPONSE


def test_our_fields_hold_what_others_read(path):
    draft = through_the_store(read_response(RESPONSE), path)
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
def test_a_result_comes_back_equal(path, content):
    asked = read_response(ModelResponse(parts=[ToolCallPart(tool_name="look", args={}, tool_call_id="c1")]))
    part = ToolReturnPart(tool_name="look", content=content, tool_call_id="c1", timestamp=NOW, metadata={"k": 1})
    back = through_the_store(read_result(part, 12), path)
    assert write([asked, back])[1].parts == [part]
    assert back.parts[0].metadata == {"latency_ms": 12}


@pytest.mark.parametrize(
    ("outcome", "status"), [("success", "success"), ("failed", "error"), ("interrupted", "canceled")]
)
def test_how_a_tool_ended(outcome, status):
    part = ToolReturnPart(tool_name="look", content="x", tool_call_id="c1", outcome=outcome)
    assert read_result(part, 0).parts[0].status == status


def draft(role, *parts, **fields):
    return recollect.Draft(role=role, parts=parts, **fields)


def test_messages_of_other_formats_are_translated():
    signed = recollect.ReasoningPart(text="Hm", native={"type": "thinking", "signature": "c2ln"})
    spoken = [
        draft("system", recollect.TextPart(text="Be brief.")),
        draft("user", recollect.TextPart(text="Look"), recollect.AttachmentPart(mime_type="image/png", url="https://x/a.png")),
        draft("assistant", signed, recollect.TextPart(text="A"), recollect.ToolCallPart(call_id="c1", tool="t", arguments=[1]), format="anthropic"),
        draft("tool", recollect.ToolResultPart(call_id="c1", text="done")),
        draft("assistant", recollect.ReasoningPart(text="unsigned"), recollect.TextPart(text="B"), format="openai"),
        draft("assistant", recollect.ReasoningPart(text="alone"), state="interrupted"),
    ]  # fmt: skip
    made = write(spoken)
    assert [type(message).__name__ for message in made] == [
        "ModelRequest",
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
        "ModelResponse",
    ]
    assert [part.part_kind for part in made[2].parts] == ["thinking", "text", "tool-call"]
    assert made[2].parts[0].signature == "c2ln"
    assert [part.part_kind for part in made[4].parts] == ["text"]


def test_a_call_that_nobody_answered_gets_an_answer_in_what_is_sent():
    asked = draft("assistant", *(recollect.ToolCallPart(call_id=f"c{n}", tool="t") for n in (1, 2)))
    result = draft("tool", recollect.ToolResultPart(call_id="c1", text="done"))
    orphan = draft("tool", recollect.ToolResultPart(call_id="c9", text="lost"))
    user = draft("user", recollect.TextPart(text="Next"))
    ids = [
        [part.call_id for part in m.parts if hasattr(part, "call_id")]
        for m in answered([user, asked, result, orphan, user])
    ]
    assert ids == [[], ["c1", "c2"], ["c1"], ["c2"], []]
    made = write([user, asked, user])
    assert [part.content for message in made[2:4] for part in message.parts] == [NO_RESULT, NO_RESULT]
    assert isinstance(made[4], ModelRequest)
    assert isinstance(made[4].parts[0], UserPromptPart)
    assert len(write([asked])) == 3


async def test_the_test_model(agent, stored):
    async with agent(TestModel(call_tools=["current_time"], custom_output_text="All done")) as there:
        answer = await (await there.talk("cli:a")).ask("Go")
    assert answer.text == "All done"
    messages, _, (made,), _ = stored("cli:a")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert made.status == "success"


async def test_a_function_model_with_tools_at_once(agent, stored):
    async def stream(messages, info):
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="slow", json_args='{"n": 1}', tool_call_id="a")}
            yield {1: DeltaToolCall(name="slow", json_args='{"n": 2}', tool_call_id="b")}
            yield {2: DeltaToolCall(name="broken", json_args="{}", tool_call_id="c")}
        else:
            returned = [part.content for part in messages[-1].parts]
            for word in ("I ", "got ", str(sorted(returned))):
                yield word

    async def slow(n: int) -> str:
        import asyncio

        await asyncio.sleep(0.1 / n)
        return f"r{n}"

    def broken() -> str:
        raise OSError("no disk")

    async with agent(FunctionModel(stream_function=stream), tools=[slow, broken], title=lambda _: "T") as there:
        events = [event async for event in (await there.talk("cli:a")).send("Go")]
    assert events[-1].text == "I got ['OSError: no disk', 'r1', 'r2']"
    assert [event.status for event in events if isinstance(event, ToolFinished)].count("error") == 1
    _, _, calls, _ = stored("cli:a")
    assert {made.call_id: made.status for made in calls} == {"a": "success", "b": "success", "c": "error"}


async def test_arguments_that_do_not_fit_are_told_to_the_model(agent, stored):
    async def stream(messages, info):
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="calculate", json_args='{"wrong": 1}', tool_call_id="a")}
        else:
            yield "Sorry."

    async with agent(FunctionModel(stream_function=stream), title=lambda _: "T") as there:
        assert (await (await there.talk("cli:a")).ask("Go")).text == "Sorry."
    _, _, (made,), _ = stored("cli:a")
    assert made.status == "error"


async def test_the_model_makes_titles_and_summaries(agent, stored):
    async def stream(messages, info):
        yield "Fine."

    def answer(messages, info):
        prompt = str(messages[0].parts[0].content)
        return ModelResponse(parts=[TextPart(content='"A **Good** Title."' if "title" in prompt else "It was short.")])

    async with agent(FunctionModel(answer, stream_function=stream)) as there:
        talk = await there.talk("cli:a")
        await talk.ask("Hello")
        assert await talk.summarize() == "It was short."
    assert stored("cli:a")[3].title == "A Good Title"


async def test_deltas_are_the_text(agent):
    async def stream(messages, info):
        for word in ("a", "b", "c"):
            yield word

    async with agent(FunctionModel(stream_function=stream), title=lambda _: "T") as there:
        events = [event async for event in (await there.talk("cli:a")).send("Go")]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b", "c"]
