"""A task is cancelled at any operation: no write is partial, and no turn stays open without a holder."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import recollect
from recollect.errors import RecollectError, StoreClosed
from recollect.store_async import AsyncStore


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


def assistant_message(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def texts(session) -> list[str]:
    return [message.text for message in await session.messages()]


class CancellingStore(AsyncStore):
    """A store that cancels the task under test before or after its n-th operation."""

    task_to_cancel: asyncio.Task | None = None
    at, when, repeats = 0, "before", False
    operations = 0

    async def _run(self, op):
        if self.task_to_cancel is None:
            return await super()._run(op)
        self.operations += 1
        is_target = self.operations == self.at or (self.repeats and self.operations > self.at > 0)
        if is_target and self.when == "before":
            self.task_to_cancel.cancel()
        result = await super()._run(op)
        if is_target and self.when == "after":
            self.task_to_cancel.cancel()
        return result


async def run_turn(session) -> None:
    """Run a turn that awaits every method of a turn and a stream."""
    async with session.turn("question") as turn:
        await turn.add(assistant_message("step"))
        async with turn.stream() as stream:
            await stream.write("half ")
            await stream.flush()
            await stream.write("whole")
        await turn.add(assistant_message("last"))


async def check_session_usable(session) -> None:
    """Check that the next turn starts without waiting, and that every earlier turn and message has ended."""
    async with session.turn("next", wait=0) as turn:
        await turn.add(assistant_message("next answer"))
    turns = await session.turns.list()
    assert "open" not in {turn.status for turn in turns}
    assert turns[-1].status == "completed"
    messages = await session.messages()
    assert not [message.id for message in messages if message.state in ("streaming", "pending")]
    current = await session.refresh()
    assert current.message_count == len(messages)


def run_cancelled(path: str, at: int, when: str, *, repeats: bool = False) -> int:
    """Run a turn, cancelled at its n-th operation. Return how many operations it began."""

    async def main() -> int:
        plain_store = await recollect.open_async(path)
        store = CancellingStore(plain_store._engine)
        try:
            session = await store.session("cli:a")
            task = asyncio.create_task(run_turn(session))
            store.task_to_cancel, store.at, store.when, store.repeats = task, at, when, repeats
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 20)
            await asyncio.wait([task])
            store.task_to_cancel = None
            await check_session_usable(session)
            return store.operations
        finally:
            await store.close()

    return asyncio.run(main())


OPERATIONS = 8  # one more than the operations of run_turn(): begin, add, stream, flush, close, add, complete


def test_a_turn_that_is_not_cancelled_runs_every_operation(path):
    assert run_cancelled(path, 0, "before") == OPERATIONS - 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, OPERATIONS))
def test_cancelling_at_any_operation_leaves_the_session_usable(path, check_database, at, when):
    assert run_cancelled(path, at, when) >= at
    check_database(path)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, OPERATIONS))
def test_cancelling_again_during_cleanup_leaves_the_session_usable(path, check_database, at, when):
    """Some frameworks cancel at every await until the task has ended."""
    assert run_cancelled(path, at, when, repeats=True) >= at
    check_database(path)


@pytest.mark.parametrize("step", range(0, 40, 3))
def test_cancelling_at_any_time_leaves_the_session_usable(path, step):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            task = asyncio.create_task(run_turn(session))
            await asyncio.sleep(step * 0.0002)
            task.cancel()
            await asyncio.wait([task])
            await check_session_usable(session)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def hold_write_lock(spawn, path: str):
    """Hold the write lock in another process: an operation that has begun waits, the others are queued."""
    child = spawn("hold_write_lock", path)
    assert await asyncio.to_thread(child.stdout.readline) == b"locked\n"
    try:
        yield
    finally:
        child.stdin.write(b"free\n")
        child.stdin.flush()
        assert await asyncio.to_thread(child.stdout.readline) == b"free\n"


def test_cancelling_withdraws_an_operation_that_has_not_begun(path, spawn):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            async with hold_write_lock(spawn, path):
                running_task = asyncio.create_task(session.append(user_message("begun")))
                while not store._engine._writer.write_lock.locked():  # pyright: ignore[reportAttributeAccessIssue]
                    await asyncio.sleep(0.01)
                waiting_tasks = [asyncio.create_task(session.append(user_message(f"waiting {n}"))) for n in range(5)]
                await asyncio.sleep(0.05)
                for task in (running_task, *waiting_tasks[:3]):
                    task.cancel()
                done, _ = await asyncio.wait([running_task, *waiting_tasks[:3]], timeout=60)
                assert len(done) == 4
                assert all(task.cancelled() for task in done)
            await asyncio.gather(*waiting_tasks[3:])
            assert await texts(session) == ["begun", "waiting 3", "waiting 4"]

    asyncio.run(main())


def test_a_cancelled_append_of_many_messages_is_atomic(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            for number in range(60):
                task = asyncio.create_task(session.append([user_message(f"{number} {part}") for part in range(20)]))
                await asyncio.sleep(number * 0.00005)
                task.cancel()
                await asyncio.wait([task])
                is_acknowledged = not task.cancelled()
                stored_texts = [text for text in await texts(session) if text.split()[0] == str(number)]
                assert len(stored_texts) in ((20,) if is_acknowledged else (0, 20))

    asyncio.run(main())


def test_a_timeout_does_not_affect_appends_of_other_tasks(path, spawn):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            async with hold_write_lock(spawn, path):
                appends = [asyncio.create_task(session.append(user_message(n))) for n in range(10)]
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await session.append(user_message("too slow"))
            await asyncio.gather(*appends)
            stored_texts = await texts(session)
            assert [text for text in stored_texts if text != "too slow"] == [str(n) for n in range(10)]

    asyncio.run(main())


def test_cancelled_reads_leave_the_store_usable(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            await session.append([user_message(n) for n in range(2_000)])
            for number in range(20):
                task = asyncio.create_task(session.messages())
                await asyncio.sleep(number * 0.0002)
                task.cancel()
                await asyncio.wait([task])
            assert len(await session.messages()) == 2_000

    asyncio.run(main())


def test_closing_during_writes_keeps_every_acknowledged_message(path, check_database):
    async def main() -> list[str]:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        acknowledged_texts: list[str] = []

        async def write(name: int) -> None:
            for number in range(200):
                await session.append(user_message(f"{name} {number}"))
                acknowledged_texts.append(f"{name} {number}")

        tasks = [asyncio.create_task(write(name)) for name in range(16)]
        while len(acknowledged_texts) < 50:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(store.close(), 60)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(error, StoreClosed) for error in results)
        assert all(error is None or isinstance(error, StoreClosed) for error in results)
        return acknowledged_texts

    acknowledged_texts = asyncio.run(main())
    assert acknowledged_texts
    with recollect.open(path) as store:
        stored_texts = [message.text for message in store.session("cli:a").messages()]
    assert len(stored_texts) == len(set(stored_texts))
    assert set(stored_texts) == set(acknowledged_texts)
    check_database(path)


def test_close_waits_for_queued_operations(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        tasks = [asyncio.create_task(session.append(user_message(n))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        await store.close()
        with pytest.raises(StoreClosed):
            await session.append(user_message("late"))
        with pytest.raises(StoreClosed):
            await session.messages()

    asyncio.run(main())
    with recollect.open(path) as store:
        assert len(store.session("cli:a").messages()) == 100


def test_closing_during_reads_raises_a_recollect_error(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        await session.append([user_message(n) for n in range(3_000)])
        reads = [asyncio.create_task(session.messages()) for _ in range(20)]
        await asyncio.sleep(0.005)
        await store.close()
        for result in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(result, RecollectError) or len(result) == 3_000

    asyncio.run(main())


def test_a_cancelled_close_still_closes(path):
    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        appends = [asyncio.create_task(session.append(user_message(n))) for n in range(50)]
        await asyncio.sleep(0)
        close_task = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        close_task.cancel()
        await asyncio.wait([close_task])
        await asyncio.gather(*appends)
        with pytest.raises(StoreClosed):
            await session.append(user_message("late"))

    asyncio.run(main())
    with recollect.open(path) as store:
        assert len(store.session("cli:a").messages()) == 50


def test_a_failing_operation_does_not_fail_its_batch(path, check_database):
    """Operations of a batch share a transaction; an error of one reaches only its own caller."""

    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")

            def append_with_conflict(n: int):
                return session.append(user_message(n), expected=10**9)

            appends = [append_with_conflict(n) if n % 7 == 3 else session.append(user_message(n)) for n in range(70)]
            results = await asyncio.gather(*appends, return_exceptions=True)
            for n, result in enumerate(results):
                assert isinstance(result, recollect.StaleRevision) == (n % 7 == 3)
            assert sorted(map(int, await texts(session))) == [n for n in range(70) if n % 7 != 3]
            assert (await session.refresh()).message_count == 60

    asyncio.run(main())
    check_database(path)


def test_the_same_idempotency_key_in_one_batch_writes_once(path):
    async def main() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            results = await asyncio.gather(*(session.append(user_message("once"), key="k") for _ in range(20)))
            assert await texts(session) == ["once"]
            assert sum(not result.repeated for result in results) == 1

    asyncio.run(main())


def test_two_event_loops_in_two_threads_share_a_store(path):
    import threading

    async def main() -> None:
        store = await recollect.open_async(path)
        session = await store.session("cli:a")
        errors: list[BaseException] = []

        def run_second_loop() -> None:
            async def write() -> None:
                await asyncio.gather(*(session.append(user_message(f"other {n}")) for n in range(50)))

            try:
                asyncio.run(write())
            except BaseException as error:  # noqa: BLE001  asserted below
                errors.append(error)

        thread = threading.Thread(target=run_second_loop)
        thread.start()
        await asyncio.gather(*(session.append(user_message(f"here {n}")) for n in range(50)))
        await asyncio.to_thread(thread.join)
        assert errors == []
        assert len(set(await texts(session))) == 100
        await store.close()

    asyncio.run(main())
