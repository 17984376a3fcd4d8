"""Behavior of the async store only: await, `async with`, `async for`, concurrent and cancelled tasks."""

from __future__ import annotations

import asyncio

import pytest

import recollect
from recollect.model.compaction import SUMMARY_LABEL


def user_message(text):
    return {"role": "user", "content": text}


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path):
    return tmp_path / "sessions.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


def test_blocks_and_iterators(path):
    async def scenario():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            async with session.turn("q") as turn:
                assert (await session.turns.list())[0].status == "open"
                async with turn.stream() as answer:
                    await answer.write("r")
            assert [message.text for message in await session.messages()] == ["q", "r"]
            assert (await session.turns.list())[0].status == "completed"
        with pytest.raises(recollect.StoreClosed):
            await store.session("a")
        store = await recollect.open_async(path)
        async with store:
            assert len(await (await store.session("a")).messages()) == 2

    asyncio.run(scenario())


def test_a_turn_or_stream_opens_when_it_is_awaited(path):
    async def scenario():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            turn = session.turn("q")
            assert await session.messages() == []
            with pytest.raises(recollect.InvalidValue):
                await turn.add(user_message("x"))
            with pytest.raises(recollect.InvalidValue):
                assert turn.id
            await turn
            stream = turn.stream()
            with pytest.raises(recollect.InvalidValue):
                assert stream.id
            await (await stream).close()
            await turn.complete()
            assert [message.text for message in await session.messages()] == ["q", ""]

    asyncio.run(scenario())


def test_a_cancelled_task_keeps_its_partial_answer(path):
    async def answer_slowly(store, has_started):
        session = await store.session("a")
        async with session.turn("q") as turn, turn.stream() as answer:
            await answer.write("half an ans")
            has_started.set()
            await asyncio.sleep(60)

    async def scenario():
        async with recollect.open_async(path) as store:
            has_started = asyncio.Event()
            task = asyncio.create_task(answer_slowly(store, has_started))
            await has_started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            session = await store.session("a")
            messages = await session.messages()
            assert [(message.text, message.state) for message in messages] == [
                ("q", "completed"),
                ("half an ans", "interrupted"),
            ]
            assert (await session.turns.list())[0].status == "cancelled"
            async with session.turn("next"):
                pass

    asyncio.run(scenario())


def test_the_last_chunk_is_stored_without_a_later_one(path):
    async def scenario():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            async with session.turn("q") as turn, turn.stream() as answer:
                await answer.write("the last ")
                await answer.write("words")
                for _ in range(1_200):
                    await asyncio.sleep(0.05)
                    if (await session.message(2)).text:
                        break
                assert (await session.message(2)).text == "the last words"

    asyncio.run(scenario())


def test_an_async_summarize_function(path):
    async def summarize(messages):
        await asyncio.sleep(0)
        return f"{len(messages)} messages"

    async def scenario():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            for n in range(6):
                await session.append(user_message(f"m{n}"))
            assert (await session.compact(summarize=summarize)).summary == "4 messages"
            assert [m.text for m in await session.messages(active=True)] == [f"{SUMMARY_LABEL}\n4 messages", "m4", "m5"]

    asyncio.run(scenario())
    with recollect.open(path) as store:
        session = store.session("a")
        with pytest.raises(recollect.InvalidValue, match="open_async"):
            session.compact(summarize=summarize, keep_turns=0)


def test_many_concurrent_tasks(path):
    async def write(store, writer):
        session = await store.session(f"s{writer % 8}")
        for n in range(5):
            await session.append(user_message(f"{writer}:{n}"))

    async def scenario():
        async with recollect.open_async(path) as store:
            await asyncio.gather(*(write(store, writer) for writer in range(64)))
        async with recollect.open_async(path) as store:
            for number in range(8):
                session = await store.session(f"s{number}")
                texts = [message.text for message in await session.messages()]
                assert session.message_count == len(texts) == 40
                for writer in range(number, 64, 8):
                    assert [text for text in texts if text.startswith(f"{writer}:")] == [
                        f"{writer}:{n}" for n in range(5)
                    ]

    asyncio.run(scenario())


def test_close_waits_for_pending_writes(path):
    async def scenario():
        store = await recollect.open_async(path)
        session = await store.session("a")
        tasks = [asyncio.create_task(session.append(user_message(str(n)))) for n in range(20)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        async with recollect.open_async(path) as second_store:
            assert len(await (await second_store.session("a")).messages()) == 20

    asyncio.run(scenario())


def test_several_event_loops_in_sequence(path):
    for number in range(3):

        async def scenario(number=number):
            async with recollect.open_async(path) as store:
                session = await store.session("a")
                await session.append(user_message("x"))
                assert session.message_count == number + 1

        asyncio.run(scenario())
