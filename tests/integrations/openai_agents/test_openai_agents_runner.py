"""RecollectSession under the SDK's Runner, with a scripted model: tools, handoffs, streams, approvals, a killed process."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    SQLiteSession,
    function_tool,
)
from agents.exceptions import InputGuardrailTripwireTriggered
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession
from agents.run_internal.session_persistence import rewind_session_items
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage
from openai.types.responses import CompactedResponse, ResponseUsage
from openai_agents_items import ALL_ITEMS, answer, call, output, user

import recollect
from recollect.integrations.openai_agents import RecollectSession


@function_tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


async def run(method, agent, message, **options):
    """Run an agent, with a stream or without."""
    if method == "run":
        return await Runner.run(agent, message, **options)
    result = Runner.run_streamed(agent, message, **options)
    async for _ in result.stream_events():
        pass
    return result


methods = pytest.mark.parametrize("method", ["run", "run_streamed"])


def make_model(*steps):
    """Return a model that answers with these steps, each with usage."""
    model = ScriptedModel(list(steps))
    model.set_default_usage(Usage(requests=1, input_tokens=11, output_tokens=3, total_tokens=14))
    return model


@methods
def test_a_run_with_tools_and_a_handoff_is_stored_as_the_sdk_stores_it(url, method):
    def make_agents():
        billing = Agent(name="Billing", model=make_model([assistant_message("Paid.")], [assistant_message("Paid.")]))
        model = make_model(
            [
                function_call("weather", {"city": "Oslo"}, call_id="c1"),
                function_call("weather", {"city": "Rome"}, call_id="c2"),
            ],
            [assistant_message("Rain in both.")],
            [function_call("transfer_to_billing", {}, call_id="c3")],
        )
        return Agent(name="Front", model=model, tools=[weather], handoffs=[billing]), billing

    async def converse(session):
        front, billing = make_agents()
        first = await run(method, front, "Weather?", session=session)
        second = await run(method, front, "And my bill?", session=session)
        third = await run(method, billing, "And my bill?", session=session)
        assert [result.final_output for result in (first, second, third)] == ["Rain in both.", "Paid.", "Paid."]
        return await session.get_items(), [len(call.input) for call in front.model.calls]

    async def main():
        theirs = await converse(SQLiteSession("s"))
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s")
            assert await converse(session) == theirs
            conversation = await store.session("s")
            assert [(call.tool, call.status) for call in await conversation.tools.list()] == [
                ("weather", "success"), ("weather", "success"), ("transfer_to_billing", "success"),
            ]  # fmt: skip
            stats = await conversation.stats()
            assert (stats.input_tokens, stats.output_tokens) == (5 * 11, 5 * 3)
            # The handoff is part of every provider's history.
            history = await conversation.history("anthropic")
            assert "transfer_to_billing" in json.dumps(history)
            assert {repair.kind for repair in history.repairs} <= {"moved_result"}

    asyncio.run(main())


@methods
def test_limits_and_the_input_callback(url, method):
    async def main():
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s", session_settings=SessionSettings(limit=2))
            await session.add_items([user("a"), answer("b"), user("c"), answer("d")])
            model = make_model(*([assistant_message("ok")] for _ in range(3)))
            agent = Agent(name="A", model=model)
            await run(method, agent, "e", session=session)
            assert model.last_call.input == [user("c"), answer("d"), user("e")]
            config = RunConfig(session_settings=SessionSettings(limit=1))
            await run(method, agent, "f", session=session, run_config=config)
            assert len(model.last_call.input) == 2
            before = await session.get_items(100)

            def keep_users(history, new):
                return [item for item in history if item.get("role") == "user"] + new

            config = RunConfig(session_input_callback=keep_users, session_settings=SessionSettings(limit=100))
            await run(method, agent, [user("g")], session=session, run_config=config)
            assert model.last_call.input == [user(text) for text in "acefg"]
            assert (await session.get_items(100))[: len(before)] == before

    asyncio.run(main())


@methods
def test_an_approval_is_resumed_from_its_state_in_another_program(url, method):
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Return a receipt."""
        return f"paid {amount}"

    def agent(*steps):
        return Agent(name="A", model=make_model(*steps), tools=[pay])

    async def main():
        async with recollect.open_async(url) as store:
            asking = agent([function_call("pay", {"amount": 5}, call_id="c1")])
            result = await run(method, asking, "Pay 5.", session=RecollectSession(store, "s"))
            text = result.to_state().to_json()
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s")
            other = agent([assistant_message("Done.")])
            state = await RunState.from_json(other, text)
            state.approve(state.get_interruptions()[0])
            result = await run(method, other, state, session=session)
            assert result.final_output == "Done."
            items = await session.get_items()
            assert [item.get("type", item.get("role")) for item in items] == [
                "user", "function_call", "function_call_output", "message",
            ]  # fmt: skip
            stats = await (await store.session("s")).stats()
            assert (stats.input_tokens, stats.output_tokens) == (22, 6)

    asyncio.run(main())


@methods
def test_a_guardrail_keeps_the_input(url, method):
    async def trip(context, agent, message):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async def main():
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s")
            agent = Agent(name="A", model=make_model([assistant_message("x")]), input_guardrails=[InputGuardrail(trip)])
            with pytest.raises(InputGuardrailTripwireTriggered):
                await run(method, agent, "hello", session=session)
            assert await session.get_items() == [user("hello")]

    asyncio.run(main())


def test_the_sdk_rewinds_what_it_has_added(url):
    async def main():
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s")
            await session.add_items([user("keep")])
            batch = [user("retry"), call(1), output(1)]
            for _ in range(3):
                await session.add_items(batch)
                await rewind_session_items(session, batch)
                assert await session.get_items() == [user("keep")]
            await session.add_items(batch)
            assert await session.get_items() == [user("keep"), *batch]

    asyncio.run(main())


def test_synchronous_runs_share_a_session(url):
    session = RecollectSession.from_url(url, "s")
    agent = Agent(name="A", model=make_model([assistant_message("one")], [assistant_message("two")]))
    asyncio.set_event_loop(asyncio.new_event_loop())  # run_sync() uses the loop of the thread
    try:
        assert Runner.run_sync(agent, "1", session=session).final_output == "one"
        assert Runner.run_sync(agent, "2", session=session).final_output == "two"
        assert len(agent.model.last_call.input) == 3
    finally:
        session.close()
        asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)


class TestEncryption:
    KEY = "a key of high entropy, provisioned elsewhere"

    def test_envelopes_come_back_and_are_sent_to_nobody(self, url):
        async def main():
            async with recollect.open_async(url) as store:
                inner = RecollectSession(store, "s")
                session = EncryptedSession("s", inner, self.KEY)
                await session.add_items(ALL_ITEMS)
                assert await session.get_items() == ALL_ITEMS
                assert await session.get_items(3) == ALL_ITEMS[-3:]
                envelopes = await inner.get_items()
                assert all(envelope.keys() == {"__enc__", "v", "kid", "payload"} for envelope in envelopes)
                assert await session.pop_item() == ALL_ITEMS[-1]
                conversation = await store.session("s")
                for format in ("openai-responses", "openai", "anthropic"):
                    assert await conversation.history(format) == []
                assert list(await store.search("Oslo")) == []
                await session.clear_session()
                assert await session.get_items() == []

        asyncio.run(main())

    @methods
    def test_a_run_with_usage(self, url, method):
        async def main():
            async with recollect.open_async(url) as store:
                session = EncryptedSession("s", RecollectSession(store, "s"), self.KEY)
                model = make_model([assistant_message("one")], [assistant_message("two")])
                agent = Agent(name="A", model=model)
                await run(method, agent, "1", session=session)
                await run(method, agent, "2", session=session)
                assert len(model.last_call.input) == 3
                stats = await (await store.session("s")).stats()
                assert (stats.input_tokens, stats.output_tokens) == (22, 6)

        asyncio.run(main())


class Compactor:
    """The part of OpenAI's client that compacts: it returns one compaction item."""

    def __init__(self):
        self.responses = self
        self.requests = []

    async def compact(self, **request):
        self.requests.append(request)
        await asyncio.sleep(0)
        item = {"type": "compaction", "id": f"cmp_{len(self.requests)}", "encrypted_content": "gAAA"}
        usage = ResponseUsage.model_validate({
            "input_tokens": 100, "output_tokens": 10, "total_tokens": 110,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        })  # fmt: skip
        return CompactedResponse.model_validate(
            {"id": "resp_c", "created_at": 1, "object": "response.compaction", "output": [item], "usage": usage}
        )


class TestOpenAICompaction:
    def wrap(self, inner, compactor, **options):
        return OpenAIResponsesCompactionSession("s", inner, client=compactor, compaction_mode="input", **options)

    def test_a_forced_compaction_replaces_all_items_at_once(self, url):
        async def main():
            async with recollect.open_async(url) as store:
                inner, compactor = RecollectSession(store, "s"), Compactor()
                session = self.wrap(inner, compactor)
                await session.add_items([user("a"), answer("b", "msg_1")])
                await session.run_compaction({"force": True})
                assert [item["type"] for item in await session.get_items()] == ["compaction"]
                conversation = await store.session("s")
                branches = await conversation.branches.list()
                assert len(branches) == 2  # one change, not a clearing and an append
                assert [message.text for message in await conversation.messages(branch=1)] == ["a", "b"]

        asyncio.run(main())

    @methods
    def test_automatic_compaction_after_a_run(self, url, method):
        async def main():
            async with recollect.open_async(url) as store:
                inner, compactor = RecollectSession(store, "s"), Compactor()
                session = self.wrap(inner, compactor, should_trigger_compaction=lambda context: True)
                model = ScriptedModel(
                    [
                        {"output": [assistant_message("one")], "response_id": "resp_1"},
                        {"output": [assistant_message("two")], "response_id": "resp_2"},
                    ]
                )
                model.set_default_usage(Usage(requests=1, input_tokens=11, output_tokens=3, total_tokens=14))
                agent = Agent(name="A", model=model)
                result = await run(method, agent, "1", session=session)
                assert [item["type"] for item in await inner.get_items()] == ["compaction"]
                await run(method, agent, "2", session=session)
                assert [item.get("type", "message") for item in model.last_call.input] == ["compaction", "message"]
                assert len(compactor.requests) == 2
                await inner.store_run_usage(result)
                await inner.store_run_usage(result)
                stats = await (await store.session("s")).stats()
                assert (stats.input_tokens, stats.output_tokens) == (111, 13)

        asyncio.run(main())

    def test_a_long_history_is_compacted_only_at_its_end(self, url):
        async def main():
            async with recollect.open_async(url) as store:
                inner = RecollectSession(store, "s", session_settings=SessionSettings(limit=4))
                await inner.add_items([user("old"), answer("older"), user("q"), answer("r")])
                snapshot = await inner._get_compaction_snapshot(2)
                assert (snapshot.items, snapshot.complete) == ([user("q"), answer("r")], False)
                assert (await inner._get_compaction_snapshot(4)).complete
                assert await snapshot.replace_suffix(1, [answer("compact")])
                assert await inner.get_items() == [user("old"), answer("older"), user("q"), answer("compact")]
                snapshot = await inner._get_compaction_snapshot(2)
                await inner.add_items([user("meanwhile")])
                assert not await snapshot.replace_suffix(0, [answer("compact")])
                whole = await inner._get_compaction_snapshot(9)
                assert await whole.replace_suffix(0, [answer("all")])
                assert await inner.get_items() == [answer("all")]

        asyncio.run(main())


CHILD = pathlib.Path(__file__).with_name("openai_agents_child.py")
LOOP = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "From a loop."},
            {"type": "tool_use", "id": "tu_1", "name": "look", "input": {}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu_1", "content": "seen"}]},
]
"""What a program for another provider appends."""


def kill_in_tool(url, method, flag):
    """Kill a process in a tool of its second run, and return the items that it had read there."""
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    child = subprocess.Popen([sys.executable, CHILD, url, method, flag], env=environment)
    deadline = time.monotonic() + 60
    while not flag.exists() and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return json.loads(flag.read_text())


@methods
def test_a_process_that_is_killed_in_a_tool_continues_and_so_does_another_program(url, method, tmp_path):
    items_before = kill_in_tool(url, method, tmp_path / "in the tool")

    async def main():
        async with recollect.open_async(url) as store:
            session = RecollectSession(store, "s")
            items = await session.get_items()
            assert items[: len(items_before)] == items_before
            assert items[-1] == user("And in Rome?")
            # The same conversation continues with another agent of the framework,
            other = Agent(name="Other", model=make_model([assistant_message("Rome is unknown.")]))
            await run(method, other, "Are you there?", session=session)
            assert other.model.last_call.input[:-1] == items
            # then in a plain loop, in the format of another provider,
            conversation = await store.session("s")
            request = await conversation.history("anthropic")
            assert {message["role"] for message in request[::2]} == {"user"}
            assert "tool_result" in json.dumps(request)
            await conversation.append(LOOP, "anthropic")
            # and in the framework again.
            last = Agent(name="Last", model=make_model([assistant_message("Back.")]))
            await run(method, last, "And now?", session=RecollectSession(store, "s"))
            assert last.model.last_call.input[-6:] == [
                {**answer("Rome is unknown."), "id": "scripted-message"},
                user("Look."),
                {"role": "assistant", "content": "From a loop."},
                {"type": "function_call", "call_id": "tu_1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "tu_1", "output": "seen"},
                user("And now?"),
            ]

    asyncio.run(main())
