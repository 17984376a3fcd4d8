"""Real clients of the official SDKs, inside Pydantic AI, against servers that speak the wire protocols."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai")

from wire import HANG_UP, SILENCE, Wire, anthropic, openai, responses

from recollect.agent import ReasoningDelta, TextDelta, ToolFinished
from recollect.errors import ModelNotConfigured
from recollect.formats.truncation import is_truncated

PROVIDERS = {
    "openai": ("local-model", openai, "/v1"),
    "responses": ("openai-responses:gpt-5-test", responses, "/v1"),
    "ollama": ("ollama:local-model", openai, "/v1"),
    "anthropic": ("anthropic:claude-test", anthropic, ""),
}


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def at(agent, monkeypatch):
    """Make an agent that talks to a server of this test; the SDKs do not wait long between their tries."""
    for sdk in ("openai", "anthropic"):
        monkeypatch.setattr(f"{sdk}._base_client.BaseClient._calculate_retry_timeout", lambda *_, **__: 0.01)

    def make(wire, provider, **options):
        name, _, path = provider
        return agent(name, base_url=wire.url + path, api_key="test", title=lambda _: "T", **options)

    return make


def spoken(request):
    """Give what a provider was sent of the conversation."""
    return request["input"] if "input" in request else request["messages"]


def half(whole):
    """Give what came of an answer until its first word."""
    return whole[: 1 + next(at for at, event in enumerate(whole) if "Half " in event)]


async def happening(talk, said):
    return [event async for event in talk.send(said)]


async def test_an_answer_streams_and_is_stored(at, provider, stored):
    async with (
        Wire((200, provider[1]("Hello", ", ", "Ada."))) as wire,
        at(wire, provider, instructions="Be brief.") as there,
    ):
        events = await happening(await there.talk("cli:a"), "Hi")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hello", ", ", "Ada."]
    messages, (turn,), _, _ = stored("cli:a")
    assert [(m.role, m.text, m.state) for m in messages] == [
        ("user", "Hi", "completed"),
        ("assistant", "Hello, Ada.", "completed"),
    ]
    assert turn.status == "completed"
    assert turn.model in ("local-model", "claude-test", "gpt-5-test")
    assert turn.input_tokens in (11, 12)
    assert turn.output_tokens in (7, 9)
    assert "Be brief." in str(wire.requests[0])
    assert wire.requests[0]["stream"] is True


async def test_a_tool_is_called_and_its_result_sent_back(at, provider, stored):
    asked = provider[1]("Let me see.", calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    async with Wire((200, asked), (200, provider[1]("It is 42."))) as wire, at(wire, provider) as there:
        events = await happening(await there.talk("cli:a"), "What is 6 * 7?")
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.tool, finished.output, finished.status) == ("calculate", "42", "success")
    messages, _, (made,), _ = stored("cli:a")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].tool_calls[0].input == {"expression": "6 * 7"}
    assert (made.call_id, made.status) == ("call_1", "success")
    sent = str(spoken(wire.requests[1]))
    assert "call_1" in sent
    assert "42" in sent
    assert {tool.get("name") or tool["function"]["name"] for tool in wire.requests[0]["tools"]} >= {
        "calculate",
        "current_time",
    }


async def test_the_whole_conversation_is_sent_when_it_is_resumed(at, provider):
    asked = provider[1](calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    replies = [(200, asked), (200, provider[1]("42")), (200, provider[1]("You asked for 6 * 7."))]
    async with Wire(*replies) as wire:
        async with at(wire, provider) as there:
            await happening(await there.talk("cli:a"), "What is 6 * 7?")
        async with at(wire, provider) as there:
            assert (await (await there.talk("cli:a")).ask("What did I ask?")).status == "completed"
    roles = [
        item.get("role") or item["type"]
        for item in spoken(wire.requests[2])
        if item.get("role") not in ("system", "developer")
    ]
    expected = {
        openai: ["user", "assistant", "tool", "assistant", "user"],
        responses: ["user", "function_call", "function_call_output", "assistant", "user"],
        anthropic: ["user", "assistant"] * 2 + ["user"],
    }
    assert roles == expected[provider[1]]


async def test_thinking_goes_back_with_its_signature(at, stored):
    provider = PROVIDERS["anthropic"]
    first = anthropic("Yes.", thinking="Should I?", calls=[("toolu_1", "current_time", "{}")])
    async with (
        Wire((200, first), (200, anthropic("Done.")), (200, anthropic("Again."))) as wire,
        at(wire, provider) as there,
    ):
        talk = await there.talk("cli:a")
        events = await happening(talk, "Go")
        await happening(talk, "More")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Should I?"
    assert stored("cli:a")[0][1].reasoning == "Should I?"
    for request in wire.requests[1:]:
        block = request["messages"][1]["content"][0]
        assert (block["type"], block["thinking"], block["signature"]) == ("thinking", "Should I?", "c2lnbmVk")


async def test_a_conversation_moves_from_one_provider_to_another(at, stored):
    call = [("toolu_1", "calculate", '{"expression": "1 + 1"}')]
    async with (
        Wire((200, anthropic("Hm.", thinking="Sum", calls=call)), (200, anthropic("2"))) as one,
        Wire((200, openai("Still 2."))) as two,
    ):
        async with at(one, PROVIDERS["anthropic"]) as there:
            await happening(await there.talk("cli:a"), "1 + 1?")
        async with at(two, PROVIDERS["openai"]) as there:
            assert (await (await there.talk("cli:a")).ask("Sure?")).text == "Still 2."
    sent = [m for m in two.requests[0]["messages"] if m["role"] not in ("system", "developer")]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert "c2lnbmVk" not in str(sent)
    assert [m.model for m in stored("cli:a")[0] if m.role == "assistant"] == [
        "claude-test",
        "claude-test",
        "local-model",
    ]


async def test_encrypted_reasoning_goes_back(at, stored):
    provider = PROVIDERS["responses"]
    first = responses("Yes.", thinking="Should I?", calls=[("call_1", "current_time", "{}")])
    replies = [(200, first), (200, responses("Done.")), (200, responses("Again."))]
    async with Wire(*replies) as wire:
        async with at(wire, provider) as there:
            events = await happening(await there.talk("cli:a"), "Go")
        async with at(wire, provider) as there:  # from the store
            await happening(await there.talk("cli:a"), "More")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Should I?"
    assert stored("cli:a")[0][1].reasoning == "Should I?"
    assert "reasoning.encrypted_content" in wire.requests[0]["include"]
    for request in wire.requests[1:]:
        (thought,) = [item for item in request["input"] if item.get("type") == "reasoning"]
        assert thought["encrypted_content"] == "ZW5jcnlwdGVk"
        assert thought["summary"] == [{"type": "summary_text", "text": "Should I?"}]


async def test_there_and_back_again_each_gets_its_own_secrets(at):
    """A signature is for Anthropic, encrypted reasoning for OpenAI; neither is shown to the other."""
    thinking = [(200, anthropic("One.", thinking="Claude thinks")), (200, anthropic("Three."))]
    async with (
        Wire(*thinking) as one,
        Wire((200, responses("Two.", thinking="GPT thinks")), (200, responses("Four."))) as two,
    ):
        for wire, name in ((one, "anthropic"), (two, "responses"), (one, "anthropic"), (two, "responses")):
            async with at(wire, PROVIDERS[name]) as there:
                assert (await (await there.talk("cli:a")).ask("Go on")).status == "completed"
    assert "c2lnbmVk" not in str(two.requests)
    assert "ZW5jcnlwdGVk" not in str(one.requests)
    (block,) = [b for m in one.requests[1]["messages"] for b in m["content"] if b["type"] == "thinking"]
    assert (block["thinking"], block["signature"]) == ("Claude thinks", "c2lnbmVk")
    (thought,) = [item for item in two.requests[1]["input"] if item.get("type") == "reasoning"]
    assert thought["encrypted_content"] == "ZW5jcnlwdGVk"
    texts = [str(item.get("content")) for item in two.requests[1]["input"] if item.get("role") == "assistant"]
    assert [word for word in ("One.", "Two.", "Three.") if any(word in text for text in texts)] == [
        "One.",
        "Two.",
        "Three.",
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "data: {not json\n\n",
        "data: [1, 2]\n\n",
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "too many"}}\n\n',
    ],
)
async def test_a_stream_that_is_malformed(at, provider, stored, bad):
    broken = [*half(provider[1]("Half ", "of it")), bad]
    async with Wire(*[(200, broken)] * 4) as wire, at(wire, provider) as there:
        talk = await there.talk("cli:a")
        events = await happening(talk, "Hi")
        # Anthropic's SDK skips data without an event's name: what is left is a stream without a stop reason.
        skipped = provider[1] is anthropic and bad.startswith("data:")
        status, state = ("interrupted", "interrupted") if skipped else ("failed", "error")
        assert events[-1].status == status
        assert events[-1].error
        wire.replies = [(200, provider[1]("Here."))]
        assert (await talk.ask("Again")).text == "Here."
    messages, turns, _, _ = stored("cli:a")
    assert [turn.status for turn in turns] == [status, "completed"]
    assert (messages[1].text, messages[1].state) == ("Half ", state)


async def test_a_local_server_is_not_told_the_keys_of_others(agent, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    async with (
        Wire((200, openai("Here."))) as wire,
        agent("ollama:local-model", base_url=f"{wire.url}/v1", title=lambda _: "T") as there,
    ):
        assert (await there.ask("Hi", "cli:a")).text == "Here."
    assert "sk-openai" not in wire.requests[0]["head"]


async def test_a_key_is_for_the_provider_that_it_was_given_for(agent, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    async with Wire((200, anthropic("Here."))) as wire:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url)
        async with agent("openai:gpt-test", api_key="sk-openai", title=lambda _: "T") as there:
            talk = await there.talk("cli:a", model="anthropic:claude-test")
            assert (await talk.ask("Hi")).text == "Here."
    assert "sk-openai" not in wire.requests[0]["head"]
    assert "sk-ant" in wire.requests[0]["head"]


@pytest.mark.parametrize("status", [429, 500])
async def test_a_passing_error_is_tried_again(at, provider, status):
    error = {"type": "error", "error": {"type": "overloaded", "message": "busy"}}
    async with Wire((status, error), (200, provider[1]("Here."))) as wire, at(wire, provider) as there:
        assert (await (await there.talk("cli:a")).ask("Hi")).text == "Here."
    assert len(wire.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_an_error_that_stays_ends_the_turn_and_says_why(at, provider, stored, status):
    error = {"type": "error", "error": {"type": "some_error", "message": "the reason"}}
    async with Wire(*[(status, error)] * 9) as wire, at(wire, provider) as there:
        talk = await there.talk("cli:a")
        events = await happening(talk, "Hi")
        assert events[-1].status == "failed"
        assert "the reason" in events[-1].error
        assert str(status) in events[-1].error
        wire.replies = [(200, provider[1]("Here."))]
        assert (await talk.ask("Again")).text == "Here."
    messages, turns, _, _ = stored("cli:a")
    assert [turn.status for turn in turns] == ["failed", "completed"]
    assert [m.text for m in messages] == ["Hi", "Again", "Here."]


async def test_a_line_that_is_cut_in_the_middle(at, provider, stored):
    whole = provider[1]("Half ", "of it")
    cut = [*half(whole), HANG_UP]
    async with Wire((200, cut), *[(200, cut)] * 4) as wire, at(wire, provider) as there:
        talk = await there.talk("cli:a")
        events = await happening(talk, "Hi")
        assert events[-1].status == "failed"
        wire.replies = [(200, provider[1]("Here."))]
        assert (await talk.ask("Again")).text == "Here."
    messages, turns, _, _ = stored("cli:a")
    assert [turn.status for turn in turns] == ["failed", "completed"]
    assert messages[1].state == "error"
    assert messages[1].text.startswith("Half")


async def test_a_line_that_falls_silent(at, provider, stored):
    whole = provider[1]("Half ", "of it")
    async with Wire((200, provider[1]("Here.")), (200, [*half(whole), SILENCE])) as wire:
        async with at(wire, provider) as there:  # what is loaded for the first answer takes its time
            assert (await (await there.talk("cli:first")).ask("Hi")).text == "Here."
        async with at(wire, provider, timeout=2.0) as there:
            events = await happening(await there.talk("cli:a"), "Hi")
    assert events[-1].status == "failed"
    assert "silent" in events[-1].error
    assert stored("cli:a")[0][1].text.startswith("Half")


async def test_stopped_while_it_streams(at, provider, stored):
    whole = provider[1]("Half ", "of it")
    async with Wire((200, [*half(whole), SILENCE]), (200, provider[1]("Here."))) as wire, at(wire, provider) as there:
        talk = await there.talk("cli:a")
        async for event in talk.send("Hi"):
            if isinstance(event, TextDelta):
                talk.stop()
        assert event.status == "cancelled"
        assert (await talk.ask("Again")).text == "Here."
    assert [m.state for m in stored("cli:a")[0]] == ["completed", "interrupted", "completed", "completed"]


async def test_the_address_that_was_tried_is_told_without_its_password(agent):
    at = "http://ann:secret@127.0.0.1:9/v1"
    for name in ("local-model", "anthropic:claude", "ollama:local"):
        async with agent(name, base_url=at, api_key="k", title=lambda _: "T") as there:
            events = await happening(await there.talk(f"cli:{name}"), "Hi")
        assert "(http://127.0.0.1:9/v1/ was tried)" in events[-1].error
        assert "secret" not in events[-1].error


async def test_no_server(agent):
    async with agent("local-model", base_url="http://127.0.0.1:9/v1", title=lambda _: "T") as there:
        events = await happening(await there.talk("cli:a"), "Hi")
    assert events[-1].status == "failed"
    assert events[-1].error


@pytest.mark.parametrize("name", ["anthropic:claude-test", "openai:gpt-test"])
async def test_without_a_key_one_is_told(agent, name, monkeypatch):
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    async with agent(name) as there:
        with pytest.raises(ModelNotConfigured, match="API_KEY"):
            await there.talk("cli:a")


@pytest.mark.parametrize("name", ["nonsense", "nobody:model", ":", "openai:"])
async def test_a_name_that_means_nothing(agent, name, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with agent(name) as there:
        with pytest.raises(ModelNotConfigured):
            await there.talk("cli:a")


async def test_a_provider_that_there_is_not_is_told_beside_some_that_there_are(agent):
    async with agent("antropic:some-model") as there:
        with pytest.raises(ModelNotConfigured, match="no provider is called 'antropic'"):
            await there.talk("cli:a")


def unfinished(provider):
    """Give an answer whose stream ends, in good order, before the provider says why."""
    name, whole = provider[0], provider[1]("Half ", "of it")
    marks = {openai: '"finish_reason": "stop"', anthropic: "message_delta", responses: "response.completed"}
    assert name
    return [event for event in whole if marks[provider[1]] not in event]


async def test_a_stream_without_a_finish_reason_is_interrupted(at, provider, stored):
    async with (
        Wire((200, unfinished(provider)), (200, provider[1]("Here."))) as wire,
        at(wire, provider) as there,
    ):
        talk = await there.talk("cli:a")
        events = await happening(talk, "Hi")
        assert (events[-1].status, events[-1].text, events[-1].truncated) == ("interrupted", "Half of it", False)
        assert "finish reason" in events[-1].error
        assert (await talk.ask("Again")).text == "Here."
    messages, turns, _, _ = stored("cli:a")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    assert (messages[1].text, messages[1].state) == ("Half of it", "interrupted")
    assert "finish_reason" not in messages[1].native


async def test_calls_of_an_unfinished_answer_are_not_run(at, stored):
    asked = openai("Let me see.", calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    cut = [event for event in asked if '"finish_reason": "tool_calls"' not in event]
    async with Wire((200, cut)) as wire, at(wire, PROVIDERS["openai"]) as there:
        events = await happening(await there.talk("cli:a"), "What is 6 * 7?")
    assert not [event for event in events if isinstance(event, ToolFinished)]
    _, (turn,), (call,), _ = stored("cli:a")
    assert (turn.status, call.status) == ("interrupted", "canceled")


@pytest.mark.parametrize(
    ("name", "whole"),
    [("openai", openai("Half", finish="length")), ("anthropic", anthropic("Half", stop="max_tokens"))],
)
async def test_an_answer_that_reached_its_length_limit(at, stored, name, whole):
    async with Wire((200, whole)) as wire, at(wire, PROVIDERS[name]) as there:
        answer = await (await there.talk("cli:a")).ask("Hi")
    assert (answer.status, answer.truncated) == ("completed", True)
    messages, (turn,), _, _ = stored("cli:a")
    assert turn.status == "completed"
    assert is_truncated(messages[1])
