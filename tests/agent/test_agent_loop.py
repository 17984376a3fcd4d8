"""The agent loop: the stored state at each step, however the run ends."""

from __future__ import annotations

import asyncio

import pytest
from scripted import Scripted, call_part, reply, response, tool_finished, tool_started

import recollect
from recollect.agent import Agent, TextDelta, Titled, ToolFinished, ToolStarted, TurnEnded, TurnStarted
from recollect.errors import ModelError, SessionBusy


async def collect_events(conversation, message, **options):
    return [event async for event in conversation.send(message, **options)]


class TestStoring:
    async def test_the_question_is_stored_before_the_model_is_called(self, make_agent, read_session):
        def check():
            messages, turns, *_ = read_session("cli:a")
            assert [(m.role, m.text) for m in messages] == [("user", "Hello")]
            assert turns[-1].status == "open"
            checks.append(True)

        checks = []
        async with make_agent(Scripted([check, *reply("Hi")])) as agent:
            await (await agent.conversation("cli:a")).ask("Hello")
        assert checks == [True]

    async def test_the_turn_closes_with_model_tokens_and_latency(self, make_agent, read_session):
        script = [TextDelta(text="Hi"), response("Hi", input_tokens=5, output_tokens=2)]
        async with make_agent(Scripted(script)) as agent:
            answer = await (await agent.conversation("cli:a")).ask("Hello")
        messages, (turn,), _, _ = read_session("cli:a")
        assert [(m.role, m.text, m.state, m.model) for m in messages] == [
            ("user", "Hello", "completed", None),
            ("assistant", "Hi", "completed", "scripted"),
        ]
        assert (turn.status, turn.model, turn.input_tokens, turn.output_tokens) == ("completed", "scripted", 5, 2)
        assert turn.latency_ms is not None
        assert (answer.text, answer.status, answer.input_tokens, answer.output_tokens) == ("Hi", "completed", 5, 2)

    async def test_tool_calls_and_results_are_stored_immediately(self, make_agent, read_session):
        def read_status():
            _, _, (running_call,), _ = read_session("cli:a")
            statuses.append(running_call.status)

        statuses = []
        part = call_part("c1", path="README.md")
        script = [
            TextDelta(text="Let me see."), response("Let me see.", part), tool_started(part), read_status,
            tool_finished(part, "# Title"), *reply("It has a title."),
        ]  # fmt: skip
        async with make_agent(Scripted(script)) as agent:
            events = await collect_events(await agent.conversation("cli:a"), "What is in it?")
        messages, turns, (tool_call,), _ = read_session("cli:a")
        assert statuses == ["running"]
        assert (tool_call.status, tool_call.tool, tool_call.latency_ms, tool_call.result_message) == (
            "success",
            "look",
            7,
            "1.3",
        )
        assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
        assert {m.turn for m in messages} == {1}
        assert len(turns) == 1
        kinds = [type(event) for event in events]
        assert kinds[0] is TurnStarted
        assert kinds[-1] is TurnEnded
        assert kinds.index(ToolStarted) < kinds.index(ToolFinished)
        assert events[-1].text == "Let me see.\n\nIt has a title."

    async def test_the_text_is_stored_while_it_streams(self, make_agent, read_session):
        def read_states():
            states.append([(m.state, m.text) for m in read_session("cli:a")[0][1:]])

        states = []
        script = [TextDelta(text="One, "), 1.2, TextDelta(text="two, "), 0.3, read_states, *reply("three.")]
        async with make_agent(Scripted(script)) as agent:
            await (await agent.conversation("cli:a")).ask("Count")
        ((state, text),) = states[0]
        assert state == "streaming"
        assert text.startswith("One, ")
        assert read_session("cli:a")[0][1].text == "three."

    async def test_a_resumed_session_sends_its_history(self, make_agent):
        model = Scripted(reply("Hello, Ada."), reply("Ada."))
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:a")).ask("My name is Ada")
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:a")).ask("What is my name?")
        texts = ["".join(p.text for p in m.parts) for m in model.histories[1]]
        assert texts == ["My name is Ada", "Hello, Ada.", "What is my name?"]

    async def test_a_message_with_an_attachment(self, make_agent, read_session):
        draft = recollect.Draft(
            role="user",
            parts=(recollect.TextPart(text="Look"), recollect.AttachmentPart(mime_type="image/png", data="aGk=")),
        )
        model = Scripted()
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:a")).ask(draft)
        assert model.histories[0][0].parts[1].data == "aGk="
        assert read_session("cli:a")[0][0].parts[1].mime_type == "image/png"


class TestEndings:
    async def test_stop_during_the_text(self, make_agent, read_session):
        async with make_agent(Scripted([TextDelta(text="One, "), TextDelta(text="two"), 30])) as agent:
            conversation = await agent.conversation("cli:a")
            events = []
            async for event in conversation.send("Count"):
                events.append(event)
                if isinstance(event, TextDelta) and event.text == "two":
                    assert conversation.stop()
            assert events[-1].status == "cancelled"
            assert events[-1].error is None
            assert not conversation.stop()
            messages, (turn,), _, _ = read_session("cli:a")
            assert [(m.text, m.state) for m in messages] == [("Count", "completed"), ("One, two", "interrupted")]
            assert turn.status == "cancelled"
            assert (await conversation.ask("Again")).text == "ok"

    async def test_stop_during_a_tool_call(self, make_agent, read_session):
        part = call_part("c1")
        model = Scripted([response("", part), tool_started(part), 30])
        async with make_agent(model) as agent:
            conversation = await agent.conversation("cli:a")
            async for event in conversation.send("Look"):
                if isinstance(event, ToolStarted):
                    conversation.stop()
            messages, (turn,), (tool_call,), _ = read_session("cli:a")
            assert [m.role for m in messages] == ["user", "assistant", "tool"]
            assert tool_call.status == "cancelled"
            assert turn.status == "cancelled"
            await conversation.ask("Again")
        assert [m.role for m in model.histories[1]] == ["user", "assistant", "tool", "user"]

    async def test_closing_the_event_stream_cancels_the_turn(self, make_agent, read_session):
        async with make_agent(Scripted([TextDelta(text="One"), 30])) as agent:
            conversation = await agent.conversation("cli:a")
            events = conversation.send("Count")
            async for event in events:
                if isinstance(event, TextDelta):
                    break
            await events.aclose()
            assert not conversation.busy
        messages, (turn,), _, _ = read_session("cli:a")
        assert messages[1].state == "interrupted"
        assert turn.status == "cancelled"

    async def test_cancelling_the_task_cancels_the_turn(self, make_agent, read_session):
        async with make_agent(Scripted([TextDelta(text="One"), 30])) as agent:
            conversation = await agent.conversation("cli:a")
            run = asyncio.create_task(conversation.ask("Count"))
            while not any(m.role == "user" for m in await conversation.session.messages()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        _, (turn,), _, _ = read_session("cli:a")
        assert turn.status == "cancelled"

    @pytest.mark.parametrize("error", [ModelError(model="m", reason="it refused"), RuntimeError("boom"), KeyError("x")])
    async def test_a_failure_stores_the_partial_answer(self, make_agent, read_session, error):
        model = Scripted([TextDelta(text="Half"), error])
        async with make_agent(model) as agent:
            conversation = await agent.conversation("cli:a")
            events = await collect_events(conversation, "Go")
            assert events[-1].status == "failed"
            assert str(error) in events[-1].error
            messages, (turn,), _, _ = read_session("cli:a")
            assert [(m.text, m.state) for m in messages] == [("Go", "completed"), ("Half", "error")]
            assert turn.status == "failed"
            assert turn.error["name"] == type(error).__name__
            assert (await conversation.ask("Again")).status == "completed"
        assert ["".join(p.text for p in m.parts) for m in model.histories[1]] == ["Go", "Half", "Again"]

    async def test_ask_raises_the_error_of_the_model(self, make_agent):
        async with make_agent(Scripted([ModelError(model="m", reason="no credit left")])) as agent:
            with pytest.raises(ModelError, match="no credit left"):
                await (await agent.conversation("cli:a")).ask("Go")

    async def test_a_silent_model_times_out(self, make_agent, read_session):
        async with make_agent(Scripted([TextDelta(text="Half"), 30]), timeout=0.5) as agent:
            conversation = await agent.conversation("cli:a")
            events = await collect_events(conversation, "Go")
            assert events[-1].status == "failed"
            assert "sent nothing" in events[-1].error
            assert (await conversation.ask("Again")).text == "ok"
        assert read_session("cli:a")[0][1].text == "Half"

    async def test_the_model_timeout_does_not_apply_to_tools(self, make_agent):
        part = call_part("c1")
        script = [response("", part), tool_started(part), 0.8, tool_finished(part, "done"), *reply("Done.")]
        async with make_agent(Scripted(script), timeout=0.5) as agent:
            assert (await (await agent.conversation("cli:a")).ask("Go")).status == "completed"

    async def test_closing_the_agent_cancels_running_turns(self, make_agent, read_session):
        model = Scripted([TextDelta(text="One"), 30])
        async with make_agent(model) as agent:
            conversation = await agent.conversation("cli:a")
            run = asyncio.create_task(collect_events(conversation, "Count"))
            while not model.histories:
                await asyncio.sleep(0.01)
        await run
        assert read_session("cli:a")[1][0].status == "cancelled"


class TestOneTurnAtATime:
    async def test_a_busy_session_raises(self, make_agent):
        model = Scripted([TextDelta(text="One"), 30])
        async with make_agent(model) as agent:
            conversation, other = await agent.conversation("cli:a"), await agent.conversation("cli:a")
            run = asyncio.create_task(collect_events(conversation, "Count"))
            while not model.histories:
                await asyncio.sleep(0.01)
            with pytest.raises(SessionBusy):
                await other.ask("Me too")
            conversation.stop()
            await run
            assert (await other.ask("Me too")).text == "ok"

    async def test_wait_for_a_busy_session(self, make_agent, read_session):
        model = Scripted([*reply("one", pause=0.2)], reply("two"))
        async with make_agent(model) as agent:
            conversation, other = await agent.conversation("cli:a"), await agent.conversation("cli:a")
            first = asyncio.create_task(conversation.ask("1"))
            while not model.histories:
                await asyncio.sleep(0.01)
            second = await other.ask("2", wait=60)
            assert (await first).text == "one"
            assert second.text == "two"
        assert [m.text for m in read_session("cli:a")[0]] == ["1", "one", "2", "two"]

    async def test_another_agent_takes_over(self, make_agent, read_session):
        model = Scripted([TextDelta(text="Half"), 30])
        async with make_agent(model) as first_agent, make_agent(Scripted(reply("Mine"))) as second_agent:
            conversation, other = await first_agent.conversation("cli:a"), await second_agent.conversation("cli:a")
            run = asyncio.create_task(collect_events(conversation, "Count"))
            while not model.histories:
                await asyncio.sleep(0.01)
            with pytest.raises(SessionBusy):
                await other.ask("Me too")
            assert (await other.ask("Me too", take_over=True)).text == "Mine"
            conversation.stop()
            events = await run
            assert events[-1].status in ("interrupted", "cancelled")
        messages, turns, _, _ = read_session("cli:a")
        assert [m.text for m in messages if m.role == "user"] == ["Count", "Me too"]
        assert turns[0].status in ("interrupted", "cancelled")
        assert turns[1].status == "completed"

    async def test_a_turn_that_was_taken_over_is_interrupted(self, make_agent, read_session, path):
        async def take_over():
            session = await other_store.session("cli:a")
            await session.turn("Me too", take_over=True)

        script = [TextDelta(text="Half"), 0.1, take_over, response("Half and more"), 30, *reply("Never")]
        async with recollect.open_async(path) as other_store, make_agent(Scripted(script)) as agent:
            events = await collect_events(await agent.conversation("cli:a"), "Count")
        assert events[-1].status == "interrupted"
        assert "took over this conversation" in events[-1].error
        assert "Never" not in [m.text for m in read_session("cli:a")[0]]

    async def test_concurrent_conversations_do_not_mix(self, make_agent, read_session, demo):
        async with make_agent(demo) as agent:
            conversations = [await agent.conversation(f"cli:{n}") for n in range(20)]
            for word in ("one", "two", "three"):
                replies = await asyncio.gather(*(t.ask(f"say {word} {n}") for n, t in enumerate(conversations)))
                assert [answer.text for answer in replies] == [f"{word} {n}" for n in range(20)]
        for n in range(20):
            texts = [m.text for m in read_session(f"cli:{n}")[0]]
            assert texts == [f"say one {n}", f"one {n}", f"say two {n}", f"two {n}", f"say three {n}", f"three {n}"]


class TestContext:
    async def test_instructions_are_built_for_each_turn_and_not_stored(self, make_agent, read_session):
        model = Scripted()
        instructions = iter(["built 0", "built 1"])
        async with make_agent(model, instructions=lambda: next(instructions)) as agent:
            conversation = await agent.conversation("cli:a")
            await conversation.ask("1")
            await conversation.ask("2")
        assert model.instructions == ["built 0", "built 1"]
        assert read_session("cli:a")[3].system_prompt is None

    async def test_instructions_are_stored_with_keep_instructions(self, make_agent, read_session):
        async with make_agent(Scripted(), instructions="Be brief.", keep_instructions=True) as agent:
            await (await agent.conversation("cli:a")).ask("1")
        assert read_session("cli:a")[3].system_prompt == "Be brief."

    async def test_the_instructions_contain_the_date(self, make_agent):
        model = Scripted()
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:a")).ask("1")
        assert "{today}" not in model.instructions[0]
        assert "20" in model.instructions[0]

    async def test_the_history_fits_the_window(self, make_agent):
        model = Scripted()
        model.window = 400
        async with make_agent(model, instructions="x") as agent:
            conversation = await agent.conversation("cli:a")
            await conversation.session.append(
                [{"role": "user", "content": "old " * 50}, {"role": "assistant", "content": "a"}] * 20
            )
            await conversation.ask("newest")
        texts = ["".join(p.text for p in m.parts) for m in model.histories[0]]
        assert texts[-1] == "newest"
        assert 1 < len(texts) < 12

    async def test_a_custom_token_counter(self, make_agent, read_session):
        async with make_agent(Scripted(reply("Hi there")), count_tokens=lambda text: len(text.split()) * 100) as agent:
            await (await agent.conversation("cli:a")).ask("one two three")
        assert [m.tokens for m in read_session("cli:a")[0]] == [300, 200]

    async def test_another_session_is_recalled(self, make_agent, read_session):
        model = Scripted()
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:old", title="Coats")).ask("I have a red coat")
            await (await agent.conversation("cli:new", context="Coats")).ask("Which color?")
        context, question = model.histories[1][0], model.histories[1][1]
        assert "I have a red coat" in context.parts[0].text
        assert context.parts[0].text.startswith("[Recalled")
        assert question.parts[0].text == "Which color?"
        messages, _, _, session = read_session("cli:new")
        assert messages[0].metadata == {"recalled": {"session": "cli:old"}}
        assert session.title == "scripted title"

    async def test_recalled_text_stays_within_its_budget(self, make_agent):
        from recollect.agent.recall import from_session

        async with make_agent(Scripted()) as agent:
            conversation = await agent.conversation("cli:old")
            await conversation.session.append([{"role": "user", "content": f"{n} " + "word " * 400} for n in range(30)])
            draft = await from_session(conversation.session, budget=1000)
        assert len(draft.parts[0].text) < 4600  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
        assert "29 word" in draft.parts[0].text  # pyright: ignore[reportAttributeAccessIssue, reportOperatorIssue]

    async def test_recalling_an_unknown_session_raises(self, make_agent):
        async with make_agent(Scripted()) as agent:
            with pytest.raises(recollect.SessionNotFound):
                await agent.conversation("cli:new", context="nowhere")

    async def test_search_results_are_recalled(self, make_agent):
        model = Scripted()
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:old")).ask("I have a red coat")
            await (await agent.conversation("cli:new", context="search:coat")).ask("Which color?")
        assert "I have a red coat" in model.histories[1][0].parts[0].text


class TestTitles:
    async def test_the_title_comes_from_the_first_exchange(self, make_agent, read_session, demo):
        async with make_agent(demo) as agent:
            events = await collect_events(await agent.conversation("cli:a"), "Where is my coat? I need it.")
        assert read_session("cli:a")[3].title == "Where is my coat?"
        assert [event.title for event in events if isinstance(event, Titled)] == ["Where is my coat?"]

    async def test_an_existing_title_is_kept(self, make_agent, read_session, demo):
        async with make_agent(demo) as agent:
            await (await agent.conversation("cli:a", title="Mine")).ask("hi")
        assert read_session("cli:a")[3].title == "Mine"

    async def test_the_model_writes_a_better_title(self, make_agent, read_session):
        model = Scripted()
        async with make_agent(model) as agent:
            await (await agent.conversation("cli:a")).ask("hi")
        assert read_session("cli:a")[3].title == "scripted title"
        assert model.tasks == ["title"]

    async def test_a_hook_returns_the_title(self, make_agent, read_session, demo):
        async def title(messages):
            return f"of {len(messages)}"

        async with make_agent(demo, title=title) as agent:
            await (await agent.conversation("cli:a")).ask("hi")
        assert read_session("cli:a")[3].title == "of 2"

    async def test_a_failing_title_hook_is_ignored(self, make_agent, read_session, demo):
        def title(messages):
            raise RuntimeError("boom")

        async with make_agent(demo, title=title) as agent:
            assert (await (await agent.conversation("cli:a")).ask("hi")).status == "completed"
        assert read_session("cli:a")[3].title == "hi"

    async def test_a_manual_title_is_not_overwritten(self, make_agent, read_session, demo):
        title_set = asyncio.Event()

        async def title(messages):
            await title_set.wait()
            return "from the hook"

        async with make_agent(demo, title=title) as agent:
            conversation = await agent.conversation("cli:a")
            await conversation.ask("hi")
            await conversation.session.update(title="by hand")
            title_set.set()
        assert read_session("cli:a")[3].title == "by hand"

    async def test_a_late_title_belongs_to_the_previous_session(self, make_agent, read_session, demo):
        session_changed = asyncio.Event()

        async def title(messages):
            await session_changed.wait()
            return "of the old one"

        async with make_agent(demo, title=title) as agent:
            conversation = await agent.conversation("cli:a")
            await conversation.ask("hi")
            conversation.notices()
            await conversation.move(await agent.store.session("cli:b"))
            session_changed.set()
            await conversation.close()
            assert not [event for event in conversation.notices() if isinstance(event, Titled)]
        assert read_session("cli:a")[3].title == "of the old one"
        assert read_session("cli:b")[3].title is None


class TestDelegates:
    async def test_a_sub_agent_has_its_own_session_under_its_parent(self, make_agent, read_session, demo):
        researcher = Agent(demo, name="researcher")
        async with make_agent(demo, delegates=[researcher]) as agent:
            conversation = await agent.conversation("cli:a")
            answer = await conversation.ask('call ask_researcher {"task": "say found it"}')
        assert "found it" in answer.text
        messages, _, _, session = read_session("cli:a:delegate:researcher")
        assert [m.text for m in messages] == ["say found it", "found it"]
        assert (session.parent, session.relation) == ("cli:a", "delegate")
        with recollect.open(agent._location) as store:
            assert [listed_session.id for listed_session in store.list_sessions()] == ["cli:a"]

    async def test_delegate_method(self, make_agent, read_session, demo):
        async with make_agent(demo) as agent:
            conversation = await agent.conversation("cli:a")
            assert (await conversation.delegate("echo", "say hello")).text == "hello"
        assert read_session("cli:a:delegate:echo")[3].parent == "cli:a"


class TestTools:
    async def test_sync_and_async_tools(self, make_agent, demo):
        def twice(number: int) -> int:
            return number * 2

        async def thrice(number: int) -> int:
            return number * 3

        async with make_agent(demo, tools=[twice, thrice]) as agent:
            conversation = await agent.conversation("cli:a")
            assert "42" in (await conversation.ask('call twice {"number": 21}')).text
            assert "63" in (await conversation.ask('call thrice {"number": 21}')).text

    @pytest.mark.parametrize("message", ["call broken {}", 'call broken {"unknown": 1}'])
    async def test_a_tool_that_raises_does_not_fail_the_turn(self, make_agent, read_session, demo, message):
        def broken():
            raise OSError("no such disk")

        async with make_agent(demo, tools=[broken]) as agent:
            assert (await (await agent.conversation("cli:a")).ask(message)).status == "completed"
        _, _, (tool_call,), _ = read_session("cli:a")
        assert tool_call.status == "error"
        assert tool_call.error_message


async def test_minimal_program(path):
    async with Agent("demo", store=path) as agent:
        conversation = await agent.conversation("cli:example")
        async for event in conversation.send("What is 6 * 7?"):
            if isinstance(event, TextDelta):
                pass
        assert event.text == "6 * 7 = **42**"  # pyright: ignore[reportAttributeAccessIssue]


async def test_compaction_when_the_window_is_nearly_full(make_agent):
    model = Scripted()
    model.window = 2_000
    async with make_agent(model, compact=True, instructions="x") as agent:
        conversation = await agent.conversation("cli:a")
        await conversation.session.append(
            [{"role": "user", "content": "old " * 80}, {"role": "assistant", "content": "a"}] * 20
        )
        await conversation.ask("newest")
        assert "summary" in model.tasks
        assert len(await conversation.session.compactions.list()) == 1
    assert any("scripted summary" in str(m.parts) for m in model.histories[0])


@pytest.mark.parametrize(("excess", "compactions"), [(-1, 0), (0, 1)])
async def test_compaction_follows_the_policy(make_agent, excess, compactions):
    model = Scripted()
    async with make_agent(model, compact=True, instructions="x", count_tokens=lambda _: 0) as agent:
        conversation = await agent.conversation("cli:a")
        full = next(
            n for n in range(conversation.budget) if recollect.types.CompactionPolicy().due(n, conversation.budget)
        )
        sizes = [full + excess, 0, 0, 0, 0, 0]
        messages = [{"role": "user", "parts": [{"kind": "text", "text": "old"}], "tokens": size} for size in sizes]
        await conversation.session.append(messages, format="recollect")
        await conversation.ask("newest")
        assert len(await conversation.session.compactions.list()) == compactions


async def test_waiting_for_a_busy_session_is_not_a_store_failure(path, make_agent, monkeypatch):
    from recollect.agent import recorder
    from recollect.errors import SessionBusy

    monkeypatch.setattr(recorder, "STORE_TIMEOUT", 2.0)  # seconds; shorter than the wait, enough for a slow machine
    model = Scripted()
    async with recollect.open_async(path) as store, make_agent(model) as agent:
        other = await (await store.session("cli:busy")).turn("first")
        conversation = await agent.conversation("cli:busy")
        with pytest.raises(SessionBusy):
            await conversation.ask("second", wait=2.5)
        assert not model.histories
        await other.complete()
        assert (await conversation.ask("third", wait=0.5)).status == "completed"


async def test_a_message_with_a_key_is_answered_once(path, make_agent, read_session):
    from recollect.errors import TurnExists

    async with make_agent() as agent:
        conversation = await agent.conversation("cli:keyed")
        async for _ in conversation.send("say one", key="m1"):
            pass
        for _ in range(2):
            with pytest.raises(TurnExists):
                async for _ in (await agent.conversation("cli:keyed")).send("say one", key="m1"):
                    pass
        assert (await conversation.ask("say two")).text == "two"
    assert [m.text for m in read_session("cli:keyed")[0]] == ["say one", "one", "say two", "two"]
