"""RecollectSession: the Session protocol of the Agents SDK, on each engine."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import uuid

import pytest
from agents import RunContextWrapper, SessionSettings
from agents.memory import Session, is_openai_responses_compaction_aware_session
from agents.usage import Usage
from openai_agents_items import ALL_ITEMS, ITEMS, answer, call, member_names, output, user

import recollect
from recollect.integrations.openai_agents import RecollectSession


def run(url, scenario, **options):
    """Run a scenario with a session."""

    async def main():
        async with RecollectSession.from_url(url, "s", **options) as session:
            return await scenario(session)

    return asyncio.run(main())


async def native(session):
    """Return the Recollect session."""
    return await session._find()


def test_it_has_the_protocols_of_the_sdk(url):
    session = RecollectSession.from_url(url, "s")
    assert isinstance(session, Session)
    assert is_openai_responses_compaction_aware_session(session)
    assert session.session_id == "s"
    assert session.session_settings == SessionSettings()


def test_there_are_examples_of_every_member_of_the_union():
    assert member_names() == ITEMS.keys() - {"opaque"}


@pytest.mark.parametrize("name", ITEMS)
def test_items_come_back_equal_alone_and_together(url, name):
    async def scenario(session):
        for item in ITEMS[name]:
            await session.add_items([item])
        assert await session.get_items() == ITEMS[name]
        assert await session.get_items(1) == ITEMS[name][-1:]
        await session.clear_session()
        await session.add_items(ITEMS[name])
        assert await session.get_items() == ITEMS[name]
        conversation = await (await native(session)).messages()
        assert len(conversation) == len(ITEMS[name])

    run(url, scenario)


def test_all_items_in_one_batch_and_popped_one_by_one(url):
    async def scenario(session):
        await session.add_items(ALL_ITEMS)
        assert await session.get_items() == ALL_ITEMS
        for limit in (1, 7, len(ALL_ITEMS), len(ALL_ITEMS) + 1):
            assert await session.get_items(limit) == ALL_ITEMS[-limit:]
        results = []
        while (item := await session.pop_item()) is not None:
            results.append(item)
        assert results == ALL_ITEMS[::-1]
        assert await session.get_items() == []

    run(url, scenario)


def test_limits(url):
    items = [user(str(number)) for number in range(6)]

    async def scenario(session):
        assert await session.get_items() == []
        await session.add_items(items)
        assert await session.get_items() == items[-4:]  # of session_settings
        assert await session.get_items(2) == items[-2:]
        assert await session.get_items(0) == []
        assert await session.get_items(-1) == items
        assert await session.get_items(10**9) == items
        session.session_settings = None
        assert await session.get_items() == items

    run(url, scenario, session_settings={"limit": 4})


def test_a_read_creates_no_session(url):
    async def scenario(session):
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.clear_session()
        await session.run_compaction({"force": True})
        await session.add_items([])
        assert await native(session) is None
        await session.add_items([user("hi")])
        assert (await native(session)).title == "Greetings"

    run(url, scenario, title="Greetings", summarize=lambda messages: "s")


def test_what_was_said_is_typed(url):
    async def scenario(session):
        await session.add_items([user("Rain in Oslo?"), ITEMS["ResponseReasoningItemParam"][0]])
        await session.add_items([call(1), output(1), answer("Yes, rain.", "msg_1")])
        conversation = await native(session)
        messages = await conversation.messages()
        assert [message.role for message in messages] == ["user", "assistant", "assistant", "tool", "assistant"]
        assert messages[1].reasoning == "First\n\nsecond"
        assert messages[4].text == "Yes, rain."
        [tool_call] = await conversation.tools.list()
        assert (tool_call.tool, tool_call.status, tool_call.call_id) == ("weather", "success", "call_1")
        page = await conversation.store.search("rain")
        assert {hit.message for hit in page} >= {messages[4].id}
        history = await conversation.history("anthropic")
        assert [block["type"] for block in history[1]["content"]] == ["tool_use"]
        assert history[-1]["content"] == "Yes, rain."
        assert (await conversation.message(key="msg_1")).id == messages[4].id

    run(url, scenario)


def test_a_message_of_another_format_is_translated_and_popped_item_by_item(url):
    tool_use = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}},
        ],
    }
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]}

    async def scenario(session):
        await session.add_items([user("Look.")])
        conversation = await native(session)
        await conversation.append([tool_use, result], format="anthropic")
        items = [
            user("Look."),
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "t1", "output": "seen"},
        ]
        assert await session.get_items() == items
        assert await session.get_items(2) == items[-2:]
        await conversation.append({"role": "assistant", "parts": [{"kind": "data", "data": {"hidden": True}}]})
        assert await session.pop_item() == items[3]
        assert await session.get_items() == items[:3]
        assert await session.pop_item() == items[2]
        assert await session.get_items() == items[:2]
        assert (await conversation.messages(last=1))[0].parts[0].data == {"hidden": True}
        assert [await session.pop_item() for _ in range(3)] == [items[1], items[0], None]

    run(url, scenario)


def test_clearing_keeps_the_session_and_its_messages(url):
    async def scenario(session):
        await session.add_items([user("first"), answer("one", "msg_1")])
        await (await native(session)).update(title="Kept")
        await session.clear_session()
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        conversation = await (await native(session)).refresh()
        assert conversation.title == "Kept"
        assert [branch.id for branch in await conversation.branches.list()] == [1, 2]
        await session.add_items([answer("one", "msg_1")])
        assert await session.get_items() == [answer("one", "msg_1")]
        assert [message.text for message in await conversation.messages(branch=1)] == ["first", "one"]

    run(url, scenario)


def test_a_batch_is_all_or_nothing(url):
    async def scenario(session):
        await session.add_items([user("kept")])
        with pytest.raises(recollect.InvalidValue):
            await session.add_items([user("a"), {"role": "user", "content": {1, 2}}])
        assert await session.get_items() == [user("kept")]

    run(url, scenario)


class TestRepetition:
    """An append whose outcome the caller does not know is repeated; equal items that come again later are new."""

    TURN = (ITEMS["ResponseReasoningItemParam"][0], call(1), output(1))

    def test_the_same_batch_again(self, url):
        async def scenario(session):
            await session.add_items([user("q")])
            await session.add_items([*self.TURN])
            await session.add_items([*self.TURN])
            assert await session.get_items() == [user("q"), *self.TURN]

        run(url, scenario)

    def test_by_another_process_after_a_crash_with_another_writer_in_between(self, url):
        async def first(session):
            await session.add_items([user("q")])
            await session.add_items([*self.TURN])
            await RecollectSession(session._store._store, "s").add_items([user("another writer")])

        async def second(session):
            await session.add_items([*self.TURN])
            await session.add_items([answer("done", "msg_2")])
            return await session.get_items()

        run(url, first)
        assert run(url, second) == [user("q"), *self.TURN, user("another writer"), answer("done", "msg_2")]

    def test_after_a_cancellation(self, url):
        async def scenario(session):
            for number in range(20):
                batch = [call(number), output(number)]
                task = asyncio.create_task(session.add_items(batch))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await session.add_items(batch)
            return await session.get_items()

        assert run(url, scenario) == [item for number in range(20) for item in (call(number), output(number))]

    def test_ids_that_a_provider_uses_again_are_new_items(self, url):
        async def scenario(session):
            items = []
            for number in range(3):
                for batch in ([user("again")], [answer("OK", "msg_1")], [call(1), output(1, f"{number % 2}")]):
                    await session.add_items(batch)
                    items += batch
            assert await session.get_items() == items

        run(url, scenario)

    def test_placeholder_ids_and_ids_twice_in_a_batch(self, url):
        items = [answer("a", "__fake_id__"), answer("b", "__fake_id__"), answer("c", "msg_1"), answer("d", "msg_1")]

        async def scenario(session):
            await session.add_items(items)
            await session.add_items(items[:2])
            assert await session.get_items() == [*items, *items[:2]]

        run(url, scenario)

    def test_items_that_were_popped_may_come_again(self, url):
        async def scenario(session):
            await session.add_items([*self.TURN])
            results = [await session.pop_item() for _ in self.TURN]
            await session.add_items(results[::-1])
            assert await session.get_items() == [*self.TURN]

        run(url, scenario)


def test_concurrent_poppers_get_different_items(url):
    items = [user(str(number)) for number in range(30)]

    async def scenario(session):
        await session.add_items(items)
        sessions = [session, *(RecollectSession(session._store._store, "s") for _ in range(3))]

        async def pop_all(one):
            return [item async for item in pop_until_empty(one)]

        results = await asyncio.gather(*map(pop_all, sessions))
        return sorted(int(item["content"]) for group in results for item in group)

    assert run(url, scenario) == list(range(30))


async def pop_until_empty(session):
    while (item := await session.pop_item()) is not None:
        yield item


def _write_batches(url, writer, count):
    async def scenario(session):
        for number in range(count):
            await session.add_items([user(f"{writer} {number} {part}") for part in range(3)])

    run(url, scenario)


def test_batches_of_two_processes_do_not_mix(url):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_batches, args=(url, writer, 10)) for writer in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0

    async def scenario(session):
        return [item["content"].split() for item in await session.get_items()]

    words = run(url, scenario)
    assert len(words) == 60
    for start in range(0, 60, 3):
        batch = words[start : start + 3]
        assert {(writer, number) for writer, number, _ in batch} == {tuple(batch[0][:2])}
        assert [part for *_, part in batch] == ["0", "1", "2"]
    for writer in "ab":
        assert [int(number) for name, number, part in words if name == writer and part == "0"] == list(range(10))


class TestUsage:
    def context(self, tokens_in, tokens_out):
        return RunContextWrapper(
            context=None, usage=Usage(requests=1, input_tokens=tokens_in, output_tokens=tokens_out)
        )

    def test_the_tokens_of_each_model_call_are_those_of_its_last_message(self, url):
        async def scenario(session):
            context = RunContextWrapper(context=None)
            await session.get_items(wrapper=context)
            await session.add_items([user("q")], wrapper=context)
            context.usage.add(Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12))
            await session.add_items([call(1), output(1)], wrapper=context)
            context.usage.add(Usage(requests=1, input_tokens=20, output_tokens=3, total_tokens=23))
            await session.add_items([answer("a", "msg_1")], wrapper=context)
            messages = await (await native(session)).messages()
            assert [(m.input_tokens, m.output_tokens) for m in messages] == [
                (None, None),
                (10, 2),
                (None, None),
                (20, 3),
            ]
            assert messages[1].metadata == {"usage": {"requests": 1}}
            stats = await (await native(session)).stats()
            assert (stats.input_tokens, stats.output_tokens) == (30, 5)

        run(url, scenario)

    def test_a_restored_run_does_not_count_its_earlier_calls_again(self, url):
        async def scenario(session):
            context = self.context(100, 50)  # of a state that was restored
            await session.add_items([output(1)], wrapper=context)
            context.usage.add(Usage(requests=1, input_tokens=7, output_tokens=1))
            await session.add_items([answer("a")], wrapper=context)
            stats = await (await native(session)).stats()
            assert (stats.input_tokens, stats.output_tokens) == (7, 1)

        run(url, scenario)


def test_an_open_store_is_shared_and_stays_open(url):
    async def main():
        async with recollect.open_async(url) as store:
            async with RecollectSession(store, "a") as one, RecollectSession(store, "b") as two:
                await one.add_items([user("a")])
                await two.add_items([user("b")])
            assert await RecollectSession(store, "a").get_items() == [user("a")]
            assert sorted(session.id for session in await store.list_sessions()) == ["a", "b"]

    asyncio.run(main())


def test_several_event_loops_and_closing_without_one(url):
    session = RecollectSession.from_url(url, "s")
    asyncio.run(session.add_items([user("one")]))
    asyncio.run(session.add_items([user("two")]))
    assert asyncio.run(session.get_items()) == [user("one"), user("two")]
    session.close()
    with pytest.raises(recollect.StoreClosed):
        asyncio.run(session.get_items())
    other = RecollectSession.from_url(url, "s")
    other.close()
    with pytest.raises(recollect.StoreClosed):
        asyncio.run(other.get_items())


def test_first_calls_at_the_same_time_open_one_store(url):
    async def scenario(session):
        await asyncio.gather(*(session.add_items([user(str(number))]) for number in range(8)))
        assert sorted(item["content"] for item in await session.get_items()) == list("01234567")

    run(url, scenario)


def test_owners_are_separate(url):
    async def add(session):
        await session.add_items([user("secret")])
        return await session.get_items()

    assert run(url, add, owner="ann") == [user("secret")]
    assert run(url, lambda session: session.get_items(), owner="ben") == []


def test_a_session_that_is_deleted_or_erased_meanwhile(url):
    async def scenario(session):
        await session.add_items([user("one")])
        store = (await native(session)).store
        await store.delete_session("s")
        assert await session.get_items() == []
        with pytest.raises(recollect.SessionInTrash):
            await session.add_items([user("two")])
        await store.restore_session("s")
        assert await session.get_items() == [user("one")]
        await store.erase_session("s")
        assert await session.get_items() == []
        await session.add_items([user("three")])
        assert await session.get_items() == [user("three")]

    run(url, scenario)


class TestCompaction:
    def test_a_summary_replaces_the_oldest_turns_and_can_be_undone(self, url):
        turns = [[user(f"question {number} " + "x" * 400), answer(f"answer {number}")] for number in range(6)]

        async def summarize(messages):
            return f"{len(messages)} messages"

        async def scenario(session):
            for turn in turns:
                await session.add_items(turn)
                await session.run_compaction({"response_id": "r"})
            items = await session.get_items()
            assert "messages" in items[0]["content"]
            assert items[-2:] == turns[-1]
            assert await session.get_items(2) == turns[-1]
            assert await session.pop_item() == turns[-1][1]
            conversation = await native(session)
            assert len(await conversation.messages()) == 11
            while True:
                try:
                    await conversation.compactions.undo()
                except recollect.NotFound:
                    break
            assert len(await session.get_items()) == 11

        run(url, scenario, summarize=summarize, budget=500)

    def test_it_waits_for_the_budget_unless_forced(self, url):
        async def scenario(session):
            await session.run_compaction()
            await session.add_items([user("a"), answer("b")])
            await session.run_compaction()
            await session.run_compaction({"force": True})  # one turn: there is nothing to compact
            assert len(await session.get_items()) == 2
            await session.add_items([user("c"), answer("d")])
            await session.run_compaction({"force": False})
            assert len(await session.get_items()) == 4
            await session.run_compaction({"force": True})
            assert len(await session.get_items()) == 3

        run(url, scenario, summarize=lambda messages: "short")

    def test_without_summarize_nothing_happens(self, url):
        async def scenario(session):
            await session.add_items([user("a"), answer("b"), user("c"), answer("d")])
            await session.run_compaction({"force": True})
            assert len(await session.get_items()) == 4

        run(url, scenario)

    def test_a_summary_that_is_no_text_is_reported(self, url):
        async def scenario(session):
            await session.add_items([user("a"), answer("b"), user("c"), answer("d")])
            with pytest.raises(recollect.InvalidValue):
                await session.run_compaction({"force": True})

        run(url, scenario, summarize=lambda messages: "")


def test_odd_session_ids(url):
    async def main():
        async with recollect.open_async(url) as store:
            for session_id in (" ", "a:b:c", "ünï/..\n", str(uuid.uuid4()), "x" * 1024):
                session = RecollectSession(store, session_id)
                await session.add_items([user("hi")])
                assert await session.get_items() == [user("hi")]

    asyncio.run(main())
