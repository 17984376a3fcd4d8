"""asyncio: cancelled at any await nothing is half done, and no turn stays open that nobody holds."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import recollect
from recollect.errors import RecollectError, StoreClosed
from recollect.store_async import AsyncStore


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def texts(session) -> list[str]:
    return [message.text for message in await session.messages()]


class Cutting(AsyncStore):
    """A store that cancels the task under test at its n-th operation, before it is run or after."""

    victim: asyncio.Task | None = None
    at, when, again = 0, "before", False
    seen = 0

    async def run(self, op):
        if self.victim is None:
            return await super().run(op)
        self.seen += 1
        hit = self.seen == self.at or (self.again and self.seen > self.at > 0)
        if hit and self.when == "before":
            self.victim.cancel()
        result = await super().run(op)
        if hit and self.when == "after":
            self.victim.cancel()
        return result


async def story(session) -> None:
    """A turn with everything that can be awaited in it."""
    async with session.turn("question") as turn:
        await turn.add(answer("step"))
        async with turn.stream() as stream:
            await stream.write("half ")
            await stream.flush()
            await stream.write("whole")
        await turn.add(answer("last"))


async def settled(session) -> None:
    """The next turn works at once, and everything before it has ended."""
    async with session.turn("next", wait=0) as turn:
        await turn.add(answer("next answer"))
    turns = await session.turns()
    assert "open" not in {turn.status for turn in turns}
    assert turns[-1].status == "completed"
    messages = await session.messages()
    assert not [message.id for message in messages if message.state in ("streaming", "pending")]
    fresh = await session.refresh()
    assert fresh.message_count == len(messages)


def cut(path: str, at: int, when: str, *, again: bool = False) -> int:
    """Tell the story, cancelled at its n-th operation; give how many operations it began."""

    async def main() -> int:
        opened = await recollect.open_async(path)
        store = Cutting(opened._engine)
        try:
            session = await store.session("cli:a")
            task = asyncio.create_task(story(session))
            store.victim, store.at, store.when, store.again = task, at, when, again
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 20)
            await asyncio.wait([task])
            store.victim = None
            await settled(session)
            return store.seen
        finally:
            await store.close()

    return asyncio.run(main())


WHOLE = 8  # the operations that story() takes: begin, add, stream, flush, close, add, complete


def test_the_whole_story(path):
    assert cut(path, 0, "before") == WHOLE - 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, WHOLE))
def test_cancelled_at_any_operation(path, sound, at, when):
    assert cut(path, at, when) >= at
    sound(path)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, WHOLE))
def test_cancelled_again_while_it_cleans_up(path, sound, at, when):
    """Some frameworks cancel at every await until the task has ended."""
    assert cut(path, at, when, again=True) >= at
    sound(path)


@pytest.mark.parametrize("step", range(0, 40, 3))
def test_cancelled_at_any_time(path, step):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            task = asyncio.create_task(story(session))
            await asyncio.sleep(step * 0.0002)
            task.cancel()
            await asyncio.wait([task])
            await settled(session)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def locked(spawn, path: str):
    """Another process holds the write lock meanwhile: what has begun waits, what has not begun is queued."""
    child = spawn("lock", path)
    assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
    try:
        yield
    finally:
        child.stdin.write(b"free\n")
        child.stdin.flush()
        assert await asyncio.to_thread(child.stdout.readline) == b"free\n"


def test_an_operation_that_has_not_begun_is_withdrawn(path, spawn):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            async with locked(spawn, path):
                begun = asyncio.create_task(session.append(said("begun")))
                while not store._engine._writer.writing.locked():
                    await asyncio.sleep(0.01)
                waiting = [asyncio.create_task(session.append(said(f"waiting {n}"))) for n in range(5)]
                await asyncio.sleep(0.05)
                for task in (begun, *waiting[:3]):
                    task.cancel()
                done, _ = await asyncio.wait([begun, *waiting[:3]], timeout=60)
                assert len(done) == 4
                assert all(task.cancelled() for task in done)
            await asyncio.gather(*waiting[3:])
            assert await texts(session) == ["begun", "waiting 3", "waiting 4"]

    asyncio.run(main())


def test_an_append_of_many_is_never_half(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            for number in range(60):
                task = asyncio.create_task(session.append([said(f"{number} {part}") for part in range(20)]))
                await asyncio.sleep(number * 0.00005)
                task.cancel()
                await asyncio.wait([task])
                kept = not task.cancelled()
                found = [text for text in await texts(session) if text.split()[0] == str(number)]
                assert len(found) in ((20,) if kept else (0, 20))

    asyncio.run(main())


def test_a_timeout_does_not_lose_what_others_wrote(path, spawn):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            async with locked(spawn, path):
                kept = [asyncio.create_task(session.append(said(n))) for n in range(10)]
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await session.append(said("too slow"))
            await asyncio.gather(*kept)
            found = await texts(session)
            assert [text for text in found if text != "too slow"] == [str(n) for n in range(10)]

    asyncio.run(main())


def test_reads_can_be_cancelled(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            await session.append([said(n) for n in range(2_000)])
            for number in range(20):
                task = asyncio.create_task(session.messages())
                await asyncio.sleep(number * 0.0002)
                task.cancel()
                await asyncio.wait([task])
            assert len(await session.messages()) == 2_000

    asyncio.run(main())


def test_closing_during_writes_loses_nothing_acknowledged(path, sound):
    async def main() -> list[str]:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        acknowledged: list[str] = []

        async def write(name: int) -> None:
            for number in range(200):
                await session.append(said(f"{name} {number}"))
                acknowledged.append(f"{name} {number}")

        tasks = [asyncio.create_task(write(name)) for name in range(16)]
        while len(acknowledged) < 50:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(store.close(), 60)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(error, StoreClosed) for error in ended)
        assert all(error is None or isinstance(error, StoreClosed) for error in ended)
        return acknowledged

    acknowledged = asyncio.run(main())
    assert acknowledged
    with recollect.open(path) as store:
        found = [message.text for message in store.session("cli:a").messages()]
    assert len(found) == len(set(found))
    assert set(found) == set(acknowledged)
    sound(path)


def test_closing_waits_for_what_was_asked_for(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        tasks = [asyncio.create_task(session.append(said(n))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        await store.close()
        with pytest.raises(StoreClosed):
            await session.append(said("late"))
        with pytest.raises(StoreClosed):
            await session.messages()

    asyncio.run(main())
    with recollect.open(path) as store:
        assert len(store.session("cli:a").messages()) == 100


def test_closing_during_reads_is_an_error_of_ours(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        await session.append([said(n) for n in range(3_000)])
        reads = [asyncio.create_task(session.messages()) for _ in range(20)]
        await asyncio.sleep(0.005)
        await store.close()
        for found in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(found, RecollectError) or len(found) == 3_000

    asyncio.run(main())


def test_a_close_that_is_cancelled_still_closes(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        writing = [asyncio.create_task(session.append(said(n))) for n in range(50)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.gather(*writing)
        with pytest.raises(StoreClosed):
            await session.append(said("late"))

    asyncio.run(main())
    with recollect.open(path) as store:
        assert len(store.session("cli:a").messages()) == 50


def test_one_that_fails_does_not_take_others_with_it(path, sound):
    """Operations that wait together share a transaction; an error of one is that one's alone."""

    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")

            def wrong(n: int):
                return session.append(said(n), expected=10**9)

            some = [wrong(n) if n % 7 == 3 else session.append(said(n)) for n in range(70)]
            results = await asyncio.gather(*some, return_exceptions=True)
            for n, result in enumerate(results):
                assert isinstance(result, recollect.StaleRevision) == (n % 7 == 3)
            assert sorted(map(int, await texts(session))) == [n for n in range(70) if n % 7 != 3]
            assert (await session.refresh()).message_count == 60

    asyncio.run(main())
    sound(path)


def test_the_same_key_in_one_batch_writes_once(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            made = await asyncio.gather(*(session.append(said("once"), key="k") for _ in range(20)))
            assert await texts(session) == ["once"]
            assert sum(not one.repeated for one in made) == 1

    asyncio.run(main())


def test_two_loops_in_two_threads_use_one_store(path):
    import threading

    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        trouble: list[BaseException] = []

        def elsewhere() -> None:
            async def write() -> None:
                await asyncio.gather(*(session.append(said(f"other {n}")) for n in range(50)))

            try:
                asyncio.run(write())
            except BaseException as error:  # noqa: BLE001  it is shown below
                trouble.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.gather(*(session.append(said(f"here {n}")) for n in range(50)))
        await asyncio.to_thread(thread.join)
        assert trouble == []
        assert len(set(await texts(session))) == 100
        await store.close()

    asyncio.run(main())
