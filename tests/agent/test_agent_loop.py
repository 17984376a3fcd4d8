"""The loop: what is on disk at each moment, however the run goes on."""

from __future__ import annotations

import asyncio

import pytest
from scripted import Scripted, answers, call, responded, say, starts

import recollect
from recollect.agent import Agent, TextDelta, Titled, ToolFinished, ToolStarted, TurnEnded, TurnStarted
from recollect.errors import ModelError, SessionBusy


async def happening(talk, said, **options):
    return [event async for event in talk.send(said, **options)]


class TestStoring:
    async def test_the_question_is_on_disk_before_the_model_is_asked(self, agent, stored):
        def look():
            messages, turns, *_ = stored("cli:a")
            assert [(m.role, m.text) for m in messages] == [("user", "Hello")]
            assert turns[-1].status == "open"
            seen.append(True)

        seen = []
        async with agent(Scripted([look, *say("Hi")])) as there:
            await (await there.talk("cli:a")).ask("Hello")
        assert seen == [True]

    async def test_the_turn_closes_with_model_tokens_and_latency(self, agent, stored):
        script = [TextDelta(text="Hi"), responded("Hi", input_tokens=5, output_tokens=2)]
        async with agent(Scripted(script)) as there:
            answer = await (await there.talk("cli:a")).ask("Hello")
        messages, (turn,), _, _ = stored("cli:a")
        assert [(m.role, m.text, m.state, m.model) for m in messages] == [
            ("user", "Hello", "completed", None),
            ("assistant", "Hi", "completed", "scripted"),
        ]
        assert (turn.status, turn.model, turn.input_tokens, turn.output_tokens) == ("completed", "scripted", 5, 2)
        assert turn.latency_ms is not None
        assert (answer.text, answer.status, answer.input_tokens, answer.output_tokens) == ("Hi", "completed", 5, 2)

    async def test_calls_and_results_are_on_disk_as_they_happen(self, agent, stored):
        def asked():
            _, _, (found,), _ = stored("cli:a")
            statuses.append(found.status)

        statuses = []
        part = call("c1", path="README.md")
        script = [
            TextDelta(text="Let me see."), responded("Let me see.", part), starts(part), asked,
            answers(part, "# Title"), *say("It has a title."),
        ]  # fmt: skip
        async with agent(Scripted(script)) as there:
            events = await happening(await there.talk("cli:a"), "What is in it?")
        messages, turns, (made,), _ = stored("cli:a")
        assert statuses == ["running"]
        assert (made.status, made.tool, made.latency_ms, made.result_message) == ("success", "look", 7, "1.3")
        assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
        assert {m.turn for m in messages} == {1}
        assert len(turns) == 1
        kinds = [type(event) for event in events]
        assert kinds[0] is TurnStarted
        assert kinds[-1] is TurnEnded
        assert kinds.index(ToolStarted) < kinds.index(ToolFinished)
        assert events[-1].text == "Let me see.\n\nIt has a title."

    async def test_the_text_is_kept_while_it_streams(self, agent, stored):
        def look():
            states.append([(m.state, m.text) for m in stored("cli:a")[0][1:]])

        states = []
        script = [TextDelta(text="One, "), 1.2, TextDelta(text="two, "), 0.3, look, *say("three.")]
        async with agent(Scripted(script)) as there:
            await (await there.talk("cli:a")).ask("Count")
        ((state, text),) = states[0]
        assert state == "streaming"
        assert text.startswith("One, ")
        assert stored("cli:a")[0][1].text == "three."

    async def test_a_session_is_resumed_where_it_was(self, agent):
        model = Scripted(say("Hello, Ada."), say("Ada."))
        async with agent(model) as there:
            await (await there.talk("cli:a")).ask("My name is Ada")
        async with agent(model) as there:
            await (await there.talk("cli:a")).ask("What is my name?")
        said = ["".join(p.text for p in m.parts) for m in model.seen[1]]
        assert said == ["My name is Ada", "Hello, Ada.", "What is my name?"]

    async def test_a_message_with_an_attachment(self, agent, stored):
        draft = recollect.Draft(
            role="user",
            parts=(recollect.TextPart(text="Look"), recollect.AttachmentPart(mime_type="image/png", data="aGk=")),
        )
        model = Scripted()
        async with agent(model) as there:
            await (await there.talk("cli:a")).ask(draft)
        assert model.seen[0][0].parts[1].data == "aGk="
        assert stored("cli:a")[0][0].parts[1].mime_type == "image/png"


class TestEndings:
    async def test_stopped_in_the_middle_of_the_text(self, agent, stored):
        async with agent(Scripted([TextDelta(text="One, "), TextDelta(text="two"), 30])) as there:
            talk = await there.talk("cli:a")
            events = []
            async for event in talk.send("Count"):
                events.append(event)
                if isinstance(event, TextDelta) and event.text == "two":
                    assert talk.stop()
            assert events[-1].status == "cancelled"
            assert events[-1].error is None
            assert not talk.stop()
            messages, (turn,), _, _ = stored("cli:a")
            assert [(m.text, m.state) for m in messages] == [("Count", "completed"), ("One, two", "interrupted")]
            assert turn.status == "cancelled"
            assert (await talk.ask("Again")).text == "ok"

    async def test_stopped_in_the_middle_of_a_tool(self, agent, stored):
        part = call("c1")
        model = Scripted([responded("", part), starts(part), 30])
        async with agent(model) as there:
            talk = await there.talk("cli:a")
            async for event in talk.send("Look"):
                if isinstance(event, ToolStarted):
                    talk.stop()
            messages, (turn,), (made,), _ = stored("cli:a")
            assert [m.role for m in messages] == ["user", "assistant", "tool"]
            assert made.status == "canceled"
            assert turn.status == "cancelled"
            await talk.ask("Again")
        assert [m.role for m in model.seen[1]] == ["user", "assistant", "tool", "user"]

    async def test_the_caller_goes_away(self, agent, stored):
        async with agent(Scripted([TextDelta(text="One"), 30])) as there:
            talk = await there.talk("cli:a")
            events = talk.send("Count")
            async for event in events:
                if isinstance(event, TextDelta):
                    break
            await events.aclose()
            assert not talk.busy
        messages, (turn,), _, _ = stored("cli:a")
        assert messages[1].state == "interrupted"
        assert turn.status == "cancelled"

    async def test_the_task_of_the_caller_is_cancelled(self, agent, stored):
        async with agent(Scripted([TextDelta(text="One"), 30])) as there:
            talk = await there.talk("cli:a")
            asking = asyncio.create_task(talk.ask("Count"))
            while not any(m.role == "user" for m in await talk.session.messages()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        _, (turn,), _, _ = stored("cli:a")
        assert turn.status == "cancelled"

    @pytest.mark.parametrize("error", [ModelError(model="m", reason="it refused"), RuntimeError("boom"), KeyError("x")])
    async def test_a_failure_keeps_what_came(self, agent, stored, error):
        model = Scripted([TextDelta(text="Half"), error])
        async with agent(model) as there:
            talk = await there.talk("cli:a")
            events = await happening(talk, "Go")
            assert events[-1].status == "failed"
            assert str(error) in events[-1].error
            messages, (turn,), _, _ = stored("cli:a")
            assert [(m.text, m.state) for m in messages] == [("Go", "completed"), ("Half", "error")]
            assert turn.status == "failed"
            assert turn.error["name"] == type(error).__name__
            assert (await talk.ask("Again")).status == "completed"
        assert ["".join(p.text for p in m.parts) for m in model.seen[1]] == ["Go", "Half", "Again"]

    async def test_ask_raises_what_the_model_failed_with(self, agent):
        async with agent(Scripted([ModelError(model="m", reason="no credit left")])) as there:
            with pytest.raises(ModelError, match="no credit left"):
                await (await there.talk("cli:a")).ask("Go")

    async def test_a_model_that_is_silent_has_timed_out(self, agent, stored):
        async with agent(Scripted([TextDelta(text="Half"), 30]), timeout=0.5) as there:
            talk = await there.talk("cli:a")
            events = await happening(talk, "Go")
            assert events[-1].status == "failed"
            assert "silent" in events[-1].error
            assert (await talk.ask("Again")).text == "ok"
        assert stored("cli:a")[0][1].text == "Half"

    async def test_a_tool_may_take_longer_than_a_model(self, agent):
        part = call("c1")
        script = [responded("", part), starts(part), 0.8, answers(part, "done"), *say("Done.")]
        async with agent(Scripted(script), timeout=0.5) as there:
            assert (await (await there.talk("cli:a")).ask("Go")).status == "completed"

    async def test_leaving_the_agent_ends_what_runs(self, agent, stored):
        model = Scripted([TextDelta(text="One"), 30])
        async with agent(model) as there:
            talk = await there.talk("cli:a")
            run = asyncio.create_task(happening(talk, "Count"))
            while not model.seen:
                await asyncio.sleep(0.01)
        await run
        assert stored("cli:a")[1][0].status == "cancelled"


class TestOneAtATime:
    async def test_a_busy_session_refuses(self, agent):
        model = Scripted([TextDelta(text="One"), 30])
        async with agent(model) as there:
            talk, other = await there.talk("cli:a"), await there.talk("cli:a")
            run = asyncio.create_task(happening(talk, "Count"))
            while not model.seen:
                await asyncio.sleep(0.01)
            with pytest.raises(SessionBusy):
                await other.ask("Me too")
            talk.stop()
            await run
            assert (await other.ask("Me too")).text == "ok"

    async def test_or_waits(self, agent, stored):
        model = Scripted([*say("one", pause=0.2)], say("two"))
        async with agent(model) as there:
            talk, other = await there.talk("cli:a"), await there.talk("cli:a")
            first = asyncio.create_task(talk.ask("1"))
            while not model.seen:
                await asyncio.sleep(0.01)
            second = await other.ask("2", wait=60)
            assert (await first).text == "one"
            assert second.text == "two"
        assert [m.text for m in stored("cli:a")[0]] == ["1", "one", "2", "two"]

    async def test_two_agents_as_two_processes_would(self, agent, stored):
        model = Scripted([TextDelta(text="Half"), 30])
        async with agent(model) as one, agent(Scripted(say("Mine"))) as two:
            talk, other = await one.talk("cli:a"), await two.talk("cli:a")
            run = asyncio.create_task(happening(talk, "Count"))
            while not model.seen:
                await asyncio.sleep(0.01)
            with pytest.raises(SessionBusy):
                await other.ask("Me too")
            assert (await other.ask("Me too", take_over=True)).text == "Mine"
            talk.stop()
            events = await run
            assert events[-1].status in ("interrupted", "cancelled")
        messages, turns, _, _ = stored("cli:a")
        assert [m.text for m in messages if m.role == "user"] == ["Count", "Me too"]
        assert turns[0].status in ("interrupted", "cancelled")
        assert turns[1].status == "completed"

    async def test_a_run_that_was_taken_over_ends_and_says_so(self, agent, stored, path):
        async def steal():
            session = await two.session("cli:a")
            await session.turn("Me too", take_over=True)

        script = [TextDelta(text="Half"), 0.1, steal, responded("Half and more"), 30, *say("Never")]
        async with recollect.open_async(path) as two, agent(Scripted(script)) as one:
            events = await happening(await one.talk("cli:a"), "Count")
        assert events[-1].status == "interrupted"
        assert "took this session over" in events[-1].error
        assert "Never" not in [m.text for m in stored("cli:a")[0]]

    async def test_many_at_once_never_mix(self, agent, stored, demo):
        async with agent(demo) as there:
            talks = [await there.talk(f"cli:{n}") for n in range(20)]
            for word in ("one", "two", "three"):
                answers = await asyncio.gather(*(t.ask(f"say {word} {n}") for n, t in enumerate(talks)))
                assert [answer.text for answer in answers] == [f"{word} {n}" for n in range(20)]
        for n in range(20):
            said = [m.text for m in stored(f"cli:{n}")[0]]
            assert said == [f"say one {n}", f"one {n}", f"say two {n}", f"two {n}", f"say three {n}", f"three {n}"]


class TestContext:
    async def test_the_instructions_are_built_anew_and_not_stored(self, agent, stored):
        model = Scripted()
        made = iter(["built 0", "built 1"])
        async with agent(model, instructions=lambda: next(made)) as there:
            talk = await there.talk("cli:a")
            await talk.ask("1")
            await talk.ask("2")
        assert model.instructions == ["built 0", "built 1"]
        assert stored("cli:a")[3].system_prompt is None

    async def test_the_instructions_are_stored_where_asked(self, agent, stored):
        async with agent(Scripted(), instructions="Be brief.", keep_instructions=True) as there:
            await (await there.talk("cli:a")).ask("1")
        assert stored("cli:a")[3].system_prompt == "Be brief."

    async def test_today_is_in_the_instructions(self, agent):
        model = Scripted()
        async with agent(model) as there:
            await (await there.talk("cli:a")).ask("1")
        assert "{today}" not in model.instructions[0]
        assert "20" in model.instructions[0]

    async def test_what_is_sent_fits_the_window(self, agent):
        model = Scripted()
        model.window = 400
        async with agent(model, instructions="x") as there:
            talk = await there.talk("cli:a")
            await talk.session.append(
                [{"role": "user", "content": "old " * 50}, {"role": "assistant", "content": "a"}] * 20
            )
            await talk.ask("newest")
        texts = ["".join(p.text for p in m.parts) for m in model.seen[0]]
        assert texts[-1] == "newest"
        assert 1 < len(texts) < 12

    async def test_a_token_counter_of_ones_own(self, agent, stored):
        async with agent(Scripted(say("Hi there")), count_tokens=lambda text: len(text.split()) * 100) as there:
            await (await there.talk("cli:a")).ask("one two three")
        assert [m.tokens for m in stored("cli:a")[0]] == [300, 200]

    async def test_what_was_said_elsewhere_is_recalled(self, agent, stored):
        model = Scripted()
        async with agent(model) as there:
            await (await there.talk("cli:old", title="Coats")).ask("I have a red coat")
            await (await there.talk("cli:new", context="Coats")).ask("Which colour?")
        recalled, asked = model.seen[1][0], model.seen[1][1]
        assert "I have a red coat" in recalled.parts[0].text
        assert recalled.parts[0].text.startswith("[Recalled")
        assert asked.parts[0].text == "Which colour?"
        messages, _, _, session = stored("cli:new")
        assert messages[0].metadata == {"recalled": {"session": "cli:old"}}
        assert session.title == "made title"

    async def test_recalled_text_stays_within_its_budget(self, agent):
        from recollect.agent.recall import from_session

        async with agent(Scripted()) as there:
            talk = await there.talk("cli:old")
            await talk.session.append([{"role": "user", "content": f"{n} " + "word " * 400} for n in range(30)])
            draft = await from_session(talk.session, budget=1000)
        assert len(draft.parts[0].text) < 4600
        assert "29 word" in draft.parts[0].text

    async def test_recalling_what_is_not_there(self, agent):
        async with agent(Scripted()) as there:
            with pytest.raises(recollect.SessionNotFound):
                await there.talk("cli:new", context="nowhere")

    async def test_a_search_is_recalled(self, agent):
        model = Scripted()
        async with agent(model) as there:
            await (await there.talk("cli:old")).ask("I have a red coat")
            await (await there.talk("cli:new", context="search:coat")).ask("Which colour?")
        assert "I have a red coat" in model.seen[1][0].parts[0].text


class TestTitles:
    async def test_the_first_exchange_gives_the_title(self, agent, stored, demo):
        async with agent(demo) as there:
            events = await happening(await there.talk("cli:a"), "Where is my coat? I need it.")
        assert stored("cli:a")[3].title == "Where is my coat?"
        assert [event.title for event in events if isinstance(event, Titled)] == ["Where is my coat?"]

    async def test_a_title_that_is_there_stays(self, agent, stored, demo):
        async with agent(demo) as there:
            await (await there.talk("cli:a", title="Mine")).ask("hi")
        assert stored("cli:a")[3].title == "Mine"

    async def test_the_model_makes_a_better_one(self, agent, stored):
        model = Scripted()
        async with agent(model) as there:
            await (await there.talk("cli:a")).ask("hi")
        assert stored("cli:a")[3].title == "made title"
        assert model.written == ["title"]

    async def test_a_hook_makes_it(self, agent, stored, demo):
        async def title(spoken):
            return f"of {len(spoken)}"

        async with agent(demo, title=title) as there:
            await (await there.talk("cli:a")).ask("hi")
        assert stored("cli:a")[3].title == "of 2"

    async def test_a_hook_that_fails_is_no_trouble(self, agent, stored, demo):
        def title(spoken):
            raise RuntimeError("boom")

        async with agent(demo, title=title) as there:
            assert (await (await there.talk("cli:a")).ask("hi")).status == "completed"
        assert stored("cli:a")[3].title == "hi"

    async def test_renamed_meanwhile_is_not_overwritten(self, agent, stored, demo):
        renamed = asyncio.Event()

        async def title(spoken):
            await renamed.wait()
            return "from the hook"

        async with agent(demo, title=title) as there:
            talk = await there.talk("cli:a")
            await talk.ask("hi")
            await talk.session.update(title="by hand")
            renamed.set()
        assert stored("cli:a")[3].title == "by hand"

    async def test_a_talk_that_moved_on_leaves_the_better_title_where_it_belongs(self, agent, stored, demo):
        moved = asyncio.Event()

        async def title(spoken):
            await moved.wait()
            return "of the old one"

        async with agent(demo, title=title) as there:
            talk = await there.talk("cli:a")
            await talk.ask("hi")
            talk.notices()
            await talk.move(await there.store.session("cli:b"))
            moved.set()
            await talk.close()
            assert not [event for event in talk.notices() if isinstance(event, Titled)]
        assert stored("cli:a")[3].title == "of the old one"
        assert stored("cli:b")[3].title is None


class TestDelegates:
    async def test_a_sub_agent_has_its_own_session_under_its_parent(self, agent, stored, demo):
        helper = Agent(demo, name="researcher")
        async with agent(demo, delegates=[helper]) as there:
            talk = await there.talk("cli:a")
            answer = await talk.ask('call ask_researcher {"task": "say found it"}')
        assert "found it" in answer.text
        messages, _, _, session = stored("cli:a:delegate:researcher")
        assert [m.text for m in messages] == ["say found it", "found it"]
        assert (session.parent, session.relation) == ("cli:a", "delegate")
        with recollect.open(there._where) as store:
            assert [found.id for found in store.list_sessions()] == ["cli:a"]

    async def test_a_sub_agent_by_hand(self, agent, stored, demo):
        async with agent(demo) as there:
            talk = await there.talk("cli:a")
            assert (await talk.delegate("echo", "say hello")).text == "hello"
        assert stored("cli:a:delegate:echo")[3].parent == "cli:a"


class TestTools:
    async def test_tools_of_ones_own_sync_and_async(self, agent, demo):
        def twice(number: int) -> int:
            return number * 2

        async def thrice(number: int) -> int:
            return number * 3

        async with agent(demo, tools=[twice, thrice]) as there:
            talk = await there.talk("cli:a")
            assert "42" in (await talk.ask('call twice {"number": 21}')).text
            assert "63" in (await talk.ask('call thrice {"number": 21}')).text

    @pytest.mark.parametrize("said", ["call broken {}", 'call broken {"unknown": 1}'])
    async def test_a_tool_that_raises_is_told_and_does_not_end_the_talk(self, agent, stored, demo, said):
        def broken():
            raise OSError("no such disk")

        async with agent(demo, tools=[broken]) as there:
            assert (await (await there.talk("cli:a")).ask(said)).status == "completed"
        _, _, (made,), _ = stored("cli:a")
        assert made.status == "error"
        assert made.error_message


async def test_a_developer_needs_twelve_lines(path):
    async with Agent("demo", store=path) as agent:
        talk = await agent.talk("cli:example")
        async for event in talk.send("What is 6 * 7?"):
            if isinstance(event, TextDelta):
                pass
        assert event.text == "6 * 7 = **42**"


async def test_compaction_is_made_when_the_window_is_nearly_full(agent):
    model = Scripted()
    model.window = 2_000
    async with agent(model, compact=True, instructions="x") as there:
        talk = await there.talk("cli:a")
        await talk.session.append(
            [{"role": "user", "content": "old " * 80}, {"role": "assistant", "content": "a"}] * 20
        )
        await talk.ask("newest")
        assert "summary" in model.written
        assert len(await talk.session.compactions()) == 1
    assert any("made summary" in str(m.parts) for m in model.seen[0])


@pytest.mark.parametrize(("beyond", "compacted"), [(-1, 0), (0, 1)])
async def test_compaction_is_due_when_the_policy_says_so(agent, beyond, compacted):
    model = Scripted()
    async with agent(model, compact=True, instructions="x", count_tokens=lambda _: 0) as there:
        talk = await there.talk("cli:a")
        full = next(n for n in range(talk.budget) if recollect.CompactionPolicy().due(n, talk.budget))
        sizes = [full + beyond, 0, 0, 0, 0, 0]
        said = [{"role": "user", "parts": [{"kind": "text", "text": "old"}], "tokens": size} for size in sizes]
        await talk.session.append(said, format="recollect")
        await talk.ask("newest")
        assert len(await talk.session.compactions()) == compacted


async def test_waiting_for_another_turn_is_not_taken_for_a_store_that_fails(path, agent, monkeypatch):
    from recollect.agent import recorder
    from recollect.errors import SessionBusy

    monkeypatch.setattr(recorder, "PATIENCE", 2.0)  # less than is waited, and still what a slow machine needs
    model = Scripted()
    async with recollect.open_async(path) as store, agent(model) as there:
        other = await (await store.session("cli:busy")).turn("first")
        talk = await there.talk("cli:busy")
        with pytest.raises(SessionBusy):
            await talk.ask("second", wait=2.5)
        assert not model.seen
        await other.complete()
        assert (await talk.ask("third", wait=0.5)).status == "completed"


async def test_what_was_said_under_a_key_is_answered_once(path, agent, stored):
    from recollect.errors import AlreadySaid

    async with agent() as there:
        talk = await there.talk("cli:keyed")
        async for _ in talk.send("say one", key="m1"):
            pass
        for _ in range(2):
            with pytest.raises(AlreadySaid):
                async for _ in (await there.talk("cli:keyed")).send("say one", key="m1"):
                    pass
        assert (await talk.ask("say two")).text == "two"
    assert [m.text for m in stored("cli:keyed")[0]] == ["say one", "one", "say two", "two"]
