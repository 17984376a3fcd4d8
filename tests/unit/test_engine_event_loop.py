"""Waiting for a thread under trio and without a loop: results, errors, cancellation before and after the work began."""

from __future__ import annotations

import asyncio
import math
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import trio
import trio.testing

from recollect.engine.event_loop import (
    NO_LOOP,
    run_blocking,
    run_in_thread,
    run_to_end,
    running_loop,
    sleep,
    wait_for,
)
from recollect.engine.sqlite.search import SqliteSearch
from recollect.engine.write_queue import WriteQueue, deliver_results
from recollect.storage import sessions
from recollect.storage.operation import Scope

OP = sessions.get(Scope(owner="", holder="test", now=1, is_gone=lambda _: False, search_dialect=SqliteSearch), "a")
DEADLINE = 60  # seconds, which only a failure reaches


class Writer:
    """A write queue whose writer thread is the test."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        self.queue = WriteQueue(self.jobs)

    async def write(self):
        return await self.queue.wait(OP, running_loop())

    def answer(self, result=None, error=None):
        """Take the next operation, and deliver a result."""
        job = self.jobs.get(timeout=DEADLINE)
        assert job.take()
        job.result, job.error = result, error
        deliver_results([job])


@pytest.fixture
def writer():
    return Writer()


def test_the_running_loop_is_detected():
    async def current():
        return running_loop()

    loop = asyncio.new_event_loop()
    assert running_loop() == NO_LOOP
    assert loop.run_until_complete(current()) is loop
    assert trio.run(current) is not NO_LOOP
    loop.close()

    async def twice():
        return running_loop() is running_loop()

    assert trio.run(twice)


def test_a_result_and_an_error_reach_their_task(writer):
    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, writer.answer, 5)
            assert await writer.write() == 5
            nursery.start_soon(trio.to_thread.run_sync, writer.answer, None, KeyError("x"))
            with pytest.raises(KeyError):
                await writer.write()

    trio.run(main)


def test_a_batch_wakes_a_run_of_trio_once(writer):
    results = []

    def answer_together(count):
        batch = [writer.jobs.get(timeout=DEADLINE) for _ in range(count)]
        for job in batch:
            assert job.take()
        assert len({job.loop for job in batch}) == 1
        deliver_results(batch)
        assert batch == []

    async def write():
        results.append(await writer.write())

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, answer_together, 64)
            for _ in range(64):
                nursery.start_soon(write)

    trio.run(main)
    assert results == [None] * 64


def test_cancelling_withdraws_an_operation_that_has_not_begun(writer):
    async def main():
        with trio.move_on_after(0.01) as scope:
            await writer.write()
        assert scope.cancelled_caught

    trio.run(main)
    assert not writer.jobs.get_nowait().take()


def test_a_cancelled_scope_begins_no_operation(writer):
    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            assert trio.current_effective_deadline() == -math.inf
            await writer.write()
        assert scope.cancelled_caught

    trio.run(main)
    assert not writer.jobs.get_nowait().take()


def test_an_operation_that_has_begun_completes_and_returns_its_result(writer):
    async def main():
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                def answer_after_cancellation():
                    job = writer.jobs.get(timeout=DEADLINE)
                    assert job.take()
                    trio.from_thread.run_sync(scope.cancel, trio_token=token)
                    trio.from_thread.run(trio.testing.wait_all_tasks_blocked, trio_token=token)
                    job.result = 7
                    deliver_results([job])

                token = trio.lowlevel.current_trio_token()
                thread = threading.Thread(target=answer_after_cancellation)
                thread.start()
                assert await writer.write() == 7
                nursery.cancel_scope.cancel()
        thread.join()

    trio.run(main)


def test_a_result_for_a_run_that_has_ended_is_dropped(writer):
    async def main():
        with trio.move_on_after(0.01):
            await writer.write()

    trio.run(main)
    job = writer.jobs.get_nowait()
    deliver_results([job])


@pytest.mark.parametrize("is_begun", [True, False])
def test_cancelling_the_wait_for_a_thread_wakes_it(is_begun):
    wakeup = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        if not is_begun:
            executor.submit(wakeup.wait, DEADLINE)

        async def main():
            with trio.move_on_after(0.05):
                await wait_for(executor.submit(wakeup.wait, DEADLINE), wakeup.set)
            assert wakeup.is_set() == is_begun

        trio.run(main)
        wakeup.set()


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_every_library_waits_for_threads(run):
    async def main():
        await sleep(0.001)
        assert await run_in_thread(lambda a: a + 1, 1) == 2
        with pytest.raises(ZeroDivisionError):
            await run_in_thread(lambda: 1 / 0)
        with ThreadPoolExecutor(1) as executor:
            assert await running_loop().run_in_executor(executor, lambda a: a * 2, 4) == 8
        return await run_to_end(run_in_thread(lambda: 3))

    if run is asyncio.run:
        assert asyncio.run(main()) == 3
    else:
        assert trio.run(main) == 3
    assert run_blocking(main()) == 3


def test_a_shielded_coroutine_ends_although_its_task_is_cancelled():
    async def main():
        steps = []

        async def work():
            await sleep(0.02)
            steps.append("done")

        with trio.move_on_after(0.001) as scope:
            await run_to_end(work())
            steps.append("not cancelled yet")
            await trio.lowlevel.checkpoint()
        assert steps == ["done", "not cancelled yet"]
        assert scope.cancelled_caught

    trio.run(main)


def test_without_a_loop_a_wait_blocks(writer):
    thread = threading.Thread(target=writer.answer, args=(9,))
    thread.start()
    assert run_blocking(writer.write()) == 9
    thread.join()
    future: Future[int] = Future()
    threading.Timer(0.01, future.set_result, (4,)).start()
    assert run_blocking(wait_for(future)) == 4


def test_a_coroutine_that_needs_a_loop_is_refused():
    class Forever:
        def __await__(self):
            yield

    async def wait_forever():
        await Forever()

    with pytest.raises(RuntimeError, match="event loop"):
        run_blocking(wait_forever())


def test_an_asyncio_program_imports_neither_trio_nor_anyio():
    code = """
import asyncio, sys, recollect
async def main():
    async with recollect.open_async(":memory:") as store:
        session = await store.session("a")
        await session.append({"role": "user", "content": "x"})
        async with session.turn("q") as turn, turn.stream() as answer:
            await answer.write("r")
asyncio.run(main())
print({"trio", "anyio", "sniffio", "recollect.engine.trio_loop"} & set(sys.modules))
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"
