"""The official SDKs, through Pydantic AI, against fake servers that implement the wire protocols."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai")

from fake_provider import HANG_UP, SILENCE, FakeProvider, anthropic, openai, responses

from recollect.agent import ReasoningDelta, TextDelta, ToolFinished
from recollect.errors import ModelNotConfigured
from recollect.formats.display import is_truncated

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
def make_provider_agent(make_agent, monkeypatch):
    """Return a function that makes agents for a fake server. The SDKs retry without long pauses."""
    for sdk in ("openai", "anthropic"):
        monkeypatch.setattr(f"{sdk}._base_client.BaseClient._calculate_retry_timeout", lambda *_, **__: 0.01)

    def make(server, provider, **options):
        name, _, path = provider
        return make_agent(name, base_url=server.url + path, api_key="test", title=lambda _: "T", **options)

    return make


def request_messages(request):
    """Return the messages of a request to a provider."""
    return request["input"] if "input" in request else request["messages"]


def first_half(stream):
    """Return the events of a stream up to its first word."""
    return stream[: 1 + next(index for index, event in enumerate(stream) if "Half " in event)]


async def collect_events(conversation, message):
    return [event async for event in conversation.send(message)]


async def test_an_answer_streams_and_is_stored(make_provider_agent, provider, read_session):
    async with (
        FakeProvider((200, provider[1]("Hello", ", ", "Ada."))) as server,
        make_provider_agent(server, provider, instructions="Be brief.") as agent,
    ):
        events = await collect_events(await agent.conversation("cli:a"), "Hi")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hello", ", ", "Ada."]
    messages, (turn,), _, _ = read_session("cli:a")
    assert [(m.role, m.text, m.state) for m in messages] == [
        ("user", "Hi", "completed"),
        ("assistant", "Hello, Ada.", "completed"),
    ]
    assert turn.status == "completed"
    assert turn.model in ("local-model", "claude-test", "gpt-5-test")
    assert turn.input_tokens in (11, 12)
    assert turn.output_tokens in (7, 9)
    assert "Be brief." in str(server.requests[0])
    assert server.requests[0]["stream"] is True


async def test_a_tool_is_called_and_its_result_is_sent(make_provider_agent, provider, read_session):
    call_stream = provider[1]("Let me see.", calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    async with (
        FakeProvider((200, call_stream), (200, provider[1]("It is 42."))) as server,
        make_provider_agent(server, provider) as agent,
    ):
        events = await collect_events(await agent.conversation("cli:a"), "What is 6 * 7?")
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.tool, finished.output, finished.status) == ("calculate", "42", "success")
    messages, _, (tool_call,), _ = read_session("cli:a")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].tool_calls[0].input == {"expression": "6 * 7"}
    assert (tool_call.call_id, tool_call.status) == ("call_1", "success")
    request_text = str(request_messages(server.requests[1]))
    assert "call_1" in request_text
    assert "42" in request_text
    assert {tool.get("name") or tool["function"]["name"] for tool in server.requests[0]["tools"]} >= {
        "calculate",
        "current_time",
    }


async def test_a_resumed_conversation_sends_the_whole_history(make_provider_agent, provider):
    call_stream = provider[1](calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    replies = [(200, call_stream), (200, provider[1]("42")), (200, provider[1]("You asked for 6 * 7."))]
    async with FakeProvider(*replies) as server:
        async with make_provider_agent(server, provider) as agent:
            await collect_events(await agent.conversation("cli:a"), "What is 6 * 7?")
        async with make_provider_agent(server, provider) as agent:
            assert (await (await agent.conversation("cli:a")).ask("What did I ask?")).status == "completed"
    roles = [
        item.get("role") or item["type"]
        for item in request_messages(server.requests[2])
        if item.get("role") not in ("system", "developer")
    ]
    expected = {
        openai: ["user", "assistant", "tool", "assistant", "user"],
        responses: ["user", "function_call", "function_call_output", "assistant", "user"],
        anthropic: ["user", "assistant"] * 2 + ["user"],
    }
    assert roles == expected[provider[1]]


async def test_thinking_is_sent_back_with_its_signature(make_provider_agent, read_session):
    provider = PROVIDERS["anthropic"]
    first = anthropic("Yes.", thinking="Should I?", calls=[("toolu_1", "current_time", "{}")])
    async with (
        FakeProvider((200, first), (200, anthropic("Done.")), (200, anthropic("Again."))) as server,
        make_provider_agent(server, provider) as agent,
    ):
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Go")
        await collect_events(conversation, "More")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Should I?"
    assert read_session("cli:a")[0][1].reasoning == "Should I?"
    for request in server.requests[1:]:
        block = request["messages"][1]["content"][0]
        assert (block["type"], block["thinking"], block["signature"]) == ("thinking", "Should I?", "c2lnbmVk")


async def test_a_conversation_moves_from_one_provider_to_another(make_provider_agent, read_session):
    calls = [("toolu_1", "calculate", '{"expression": "1 + 1"}')]
    async with (
        FakeProvider((200, anthropic("Hm.", thinking="Sum", calls=calls)), (200, anthropic("2"))) as first_server,
        FakeProvider((200, openai("Still 2."))) as second_server,
    ):
        async with make_provider_agent(first_server, PROVIDERS["anthropic"]) as agent:
            await collect_events(await agent.conversation("cli:a"), "1 + 1?")
        async with make_provider_agent(second_server, PROVIDERS["openai"]) as agent:
            assert (await (await agent.conversation("cli:a")).ask("Sure?")).text == "Still 2."
    messages = [m for m in second_server.requests[0]["messages"] if m["role"] not in ("system", "developer")]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert "c2lnbmVk" not in str(messages)
    assert [m.model for m in read_session("cli:a")[0] if m.role == "assistant"] == [
        "claude-test",
        "claude-test",
        "local-model",
    ]


async def test_encrypted_reasoning_is_sent_back(make_provider_agent, read_session):
    provider = PROVIDERS["responses"]
    first = responses("Yes.", thinking="Should I?", calls=[("call_1", "current_time", "{}")])
    replies = [(200, first), (200, responses("Done.")), (200, responses("Again."))]
    async with FakeProvider(*replies) as server:
        async with make_provider_agent(server, provider) as agent:
            events = await collect_events(await agent.conversation("cli:a"), "Go")
        # A new agent, which reads the reasoning from the store.
        async with make_provider_agent(server, provider) as agent:
            await collect_events(await agent.conversation("cli:a"), "More")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Should I?"
    assert read_session("cli:a")[0][1].reasoning == "Should I?"
    assert "reasoning.encrypted_content" in server.requests[0]["include"]
    for request in server.requests[1:]:
        (reasoning,) = [item for item in request["input"] if item.get("type") == "reasoning"]
        assert reasoning["encrypted_content"] == "ZW5jcnlwdGVk"
        assert reasoning["summary"] == [{"type": "summary_text", "text": "Should I?"}]


async def test_each_provider_gets_only_its_own_signatures(make_provider_agent):
    """Anthropic gets its signature, OpenAI its encrypted reasoning, and neither gets the other's."""
    thinking = [(200, anthropic("One.", thinking="Claude thinks")), (200, anthropic("Three."))]
    async with (
        FakeProvider(*thinking) as anthropic_server,
        FakeProvider((200, responses("Two.", thinking="GPT thinks")), (200, responses("Four."))) as openai_server,
    ):
        for server, name in (
            (anthropic_server, "anthropic"),
            (openai_server, "responses"),
            (anthropic_server, "anthropic"),
            (openai_server, "responses"),
        ):
            async with make_provider_agent(server, PROVIDERS[name]) as agent:
                assert (await (await agent.conversation("cli:a")).ask("Continue")).status == "completed"
    assert "c2lnbmVk" not in str(openai_server.requests)
    assert "ZW5jcnlwdGVk" not in str(anthropic_server.requests)
    (block,) = [b for m in anthropic_server.requests[1]["messages"] for b in m["content"] if b["type"] == "thinking"]
    assert (block["thinking"], block["signature"]) == ("Claude thinks", "c2lnbmVk")
    (reasoning,) = [item for item in openai_server.requests[1]["input"] if item.get("type") == "reasoning"]
    assert reasoning["encrypted_content"] == "ZW5jcnlwdGVk"
    texts = [str(item.get("content")) for item in openai_server.requests[1]["input"] if item.get("role") == "assistant"]
    assert [word for word in ("One.", "Two.", "Three.") if any(word in text for text in texts)] == [
        "One.",
        "Two.",
        "Three.",
    ]


@pytest.mark.parametrize(
    "malformed_event",
    [
        "data: {not json\n\n",
        "data: [1, 2]\n\n",
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "too many"}}\n\n',
    ],
)
async def test_a_malformed_stream(make_provider_agent, provider, read_session, malformed_event):
    broken = [*first_half(provider[1]("Half ", "of it")), malformed_event]
    async with FakeProvider(*[(200, broken)] * 4) as server, make_provider_agent(server, provider) as agent:
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Hi")
        # Anthropic's SDK skips data without an event name; the rest is a stream without a stop reason.
        is_skipped = provider[1] is anthropic and malformed_event.startswith("data:")
        status, state = ("interrupted", "interrupted") if is_skipped else ("failed", "error")
        assert events[-1].status == status
        assert events[-1].error
        server.replies = [(200, provider[1]("Here."))]
        assert (await conversation.ask("Again")).text == "Here."
    messages, turns, _, _ = read_session("cli:a")
    assert [turn.status for turn in turns] == [status, "completed"]
    assert (messages[1].text, messages[1].state) == ("Half ", state)


async def test_a_local_server_does_not_receive_the_keys_of_providers(make_agent, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    async with (
        FakeProvider((200, openai("Here."))) as server,
        make_agent("ollama:local-model", base_url=f"{server.url}/v1", title=lambda _: "T") as agent,
    ):
        assert (await agent.ask("Hi", "cli:a")).text == "Here."
    assert "sk-openai" not in server.requests[0]["head"]


async def test_an_api_key_is_sent_to_its_provider_only(make_agent, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    async with FakeProvider((200, anthropic("Here."))) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        async with make_agent("openai:gpt-test", api_key="sk-openai", title=lambda _: "T") as agent:
            conversation = await agent.conversation("cli:a", model="anthropic:claude-test")
            assert (await conversation.ask("Hi")).text == "Here."
    assert "sk-openai" not in server.requests[0]["head"]
    assert "sk-ant" in server.requests[0]["head"]


@pytest.mark.parametrize("status", [429, 500])
async def test_a_transient_error_is_retried(make_provider_agent, provider, status):
    error = {"type": "error", "error": {"type": "overloaded", "message": "busy"}}
    async with (
        FakeProvider((status, error), (200, provider[1]("Here."))) as server,
        make_provider_agent(server, provider) as agent,
    ):
        assert (await (await agent.conversation("cli:a")).ask("Hi")).text == "Here."
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_persistent_error_fails_the_turn(make_provider_agent, provider, read_session, status):
    error = {"type": "error", "error": {"type": "some_error", "message": "the reason"}}
    async with FakeProvider(*[(status, error)] * 9) as server, make_provider_agent(server, provider) as agent:
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Hi")
        assert events[-1].status == "failed"
        assert "the reason" in events[-1].error
        assert str(status) in events[-1].error
        server.replies = [(200, provider[1]("Here."))]
        assert (await conversation.ask("Again")).text == "Here."
    messages, turns, _, _ = read_session("cli:a")
    assert [turn.status for turn in turns] == ["failed", "completed"]
    assert [m.text for m in messages] == ["Hi", "Again", "Here."]


async def test_a_connection_closed_during_the_stream(make_provider_agent, provider, read_session):
    stream = provider[1]("Half ", "of it")
    cut = [*first_half(stream), HANG_UP]
    async with FakeProvider((200, cut), *[(200, cut)] * 4) as server, make_provider_agent(server, provider) as agent:
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Hi")
        assert events[-1].status == "failed"
        server.replies = [(200, provider[1]("Here."))]
        assert (await conversation.ask("Again")).text == "Here."
    messages, turns, _, _ = read_session("cli:a")
    assert [turn.status for turn in turns] == ["failed", "completed"]
    assert messages[1].state == "error"
    assert messages[1].text.startswith("Half")


async def test_a_stream_that_stalls(make_provider_agent, provider, read_session):
    stream = provider[1]("Half ", "of it")
    async with FakeProvider((200, provider[1]("Here.")), (200, [*first_half(stream), SILENCE])) as server:
        # The first answer imports the SDK, which can take longer than the timeout below.
        async with make_provider_agent(server, provider) as agent:
            assert (await (await agent.conversation("cli:first")).ask("Hi")).text == "Here."
        async with make_provider_agent(server, provider, timeout=2.0) as agent:
            events = await collect_events(await agent.conversation("cli:a"), "Hi")
    assert events[-1].status == "failed"
    assert "sent nothing" in events[-1].error
    assert read_session("cli:a")[0][1].text.startswith("Half")


async def test_stop_while_an_answer_streams(make_provider_agent, provider, read_session):
    stream = provider[1]("Half ", "of it")
    async with (
        FakeProvider((200, [*first_half(stream), SILENCE]), (200, provider[1]("Here."))) as server,
        make_provider_agent(server, provider) as agent,
    ):
        conversation = await agent.conversation("cli:a")
        async for event in conversation.send("Hi"):
            if isinstance(event, TextDelta):
                conversation.stop()
        assert event.status == "cancelled"  # pyright: ignore[reportAttributeAccessIssue]
        assert (await conversation.ask("Again")).text == "Here."
    assert [m.state for m in read_session("cli:a")[0]] == ["completed", "interrupted", "completed", "completed"]


async def test_a_connection_error_shows_the_address_without_the_password(make_agent):
    address = "http://ann:secret@127.0.0.1:9/v1"
    for name in ("local-model", "anthropic:claude", "ollama:local"):
        async with make_agent(name, base_url=address, api_key="k", title=lambda _: "T") as agent:
            events = await collect_events(await agent.conversation(f"cli:{name}"), "Hi")
        assert "(tried http://127.0.0.1:9/v1/)" in events[-1].error
        assert "secret" not in events[-1].error


async def test_no_server(make_agent):
    async with make_agent("local-model", base_url="http://127.0.0.1:9/v1", title=lambda _: "T") as agent:
        events = await collect_events(await agent.conversation("cli:a"), "Hi")
    assert events[-1].status == "failed"
    assert events[-1].error


@pytest.mark.parametrize("name", ["anthropic:claude-test", "openai:gpt-test"])
async def test_a_missing_api_key_is_reported(make_agent, name, monkeypatch):
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    async with make_agent(name) as agent:
        with pytest.raises(ModelNotConfigured, match="API_KEY"):
            await agent.conversation("cli:a")


@pytest.mark.parametrize("name", ["nonsense", "nobody:model", ":", "openai:"])
async def test_an_invalid_model_name(make_agent, name, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with make_agent(name) as agent:
        with pytest.raises(ModelNotConfigured):
            await agent.conversation("cli:a")


async def test_an_unknown_provider_is_reported(make_agent):
    async with make_agent("antropic:some-model") as agent:
        with pytest.raises(ModelNotConfigured, match="'antropic' is not a known provider"):
            await agent.conversation("cli:a")


def stream_without_finish_reason(provider):
    """Return a complete stream except for the event with the finish reason."""
    name, stream = provider[0], provider[1]("Half ", "of it")
    marks = {openai: '"finish_reason": "stop"', anthropic: "message_delta", responses: "response.completed"}
    assert name
    return [event for event in stream if marks[provider[1]] not in event]


async def test_a_stream_without_a_finish_reason_is_interrupted(make_provider_agent, provider, read_session):
    async with (
        FakeProvider((200, stream_without_finish_reason(provider)), (200, provider[1]("Here."))) as server,
        make_provider_agent(server, provider) as agent,
    ):
        conversation = await agent.conversation("cli:a")
        events = await collect_events(conversation, "Hi")
        assert (events[-1].status, events[-1].text, events[-1].truncated) == ("interrupted", "Half of it", False)
        assert "finish reason" in events[-1].error
        assert (await conversation.ask("Again")).text == "Here."
    messages, turns, _, _ = read_session("cli:a")
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    assert (messages[1].text, messages[1].state) == ("Half of it", "interrupted")
    assert "finish_reason" not in messages[1].native


async def test_calls_of_an_unfinished_answer_are_not_run(make_provider_agent, read_session):
    call_stream = openai("Let me see.", calls=[("call_1", "calculate", '{"expression": "6 * 7"}')])
    cut = [event for event in call_stream if '"finish_reason": "tool_calls"' not in event]
    async with FakeProvider((200, cut)) as server, make_provider_agent(server, PROVIDERS["openai"]) as agent:
        events = await collect_events(await agent.conversation("cli:a"), "What is 6 * 7?")
    assert not [event for event in events if isinstance(event, ToolFinished)]
    _, (turn,), (call,), _ = read_session("cli:a")
    assert (turn.status, call.status) == ("interrupted", "cancelled")


@pytest.mark.parametrize(
    ("name", "stream"),
    [("openai", openai("Half", finish="length")), ("anthropic", anthropic("Half", stop="max_tokens"))],
)
async def test_an_answer_that_reached_its_length_limit(make_provider_agent, read_session, name, stream):
    async with FakeProvider((200, stream)) as server, make_provider_agent(server, PROVIDERS[name]) as agent:
        answer = await (await agent.conversation("cli:a")).ask("Hi")
    assert (answer.status, answer.truncated) == ("completed", True)
    messages, (turn,), _, _ = read_session("cli:a")
    assert turn.status == "completed"
    assert is_truncated(messages[1])
