"""The async store under asyncio and trio: cancellation, watches, several loops, closing, and no leftover task or thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import time
import warnings

import pytest
import trio

import recollect
from recollect import storage
from recollect.model.message import Draft, TextPart
from recollect.store_async import AsyncStore

DEADLINE = 60  # seconds, which only a failure reaches


def user_message(text):
    return {"role": "user", "content": str(text)}


def assistant_message(text):
    return {"role": "assistant", "content": text}


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path):
    return tmp_path / "sessions.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("recollect-")]


def wait_for_threads(names):
    """Wait until no thread with one of these names runs."""
    deadline = time.monotonic() + DEADLINE
    while any(thread.name.startswith(names) for thread in own_threads()):
        assert time.monotonic() < deadline, own_threads()
        time.sleep(0.005)


class CancellingStore(AsyncStore):
    """A store that cancels a scope before or after its n-th operation."""

    scope_to_cancel: trio.CancelScope | None = None
    at, when = 0, "before"
    operations = 0

    async def _run(self, op):
        if self.scope_to_cancel is None:
            return await super()._run(op)
        self.operations += 1
        is_target = self.operations == self.at
        if is_target and self.when == "before":
            self.scope_to_cancel.cancel()
        result = await super()._run(op)
        if is_target and self.when == "after":
            self.scope_to_cancel.cancel()
        return result


async def run_turn(session):
    """Run a turn that awaits every method of a turn and a stream: 7 operations."""
    async with session.turn("question") as turn:
        await turn.add(assistant_message("step"))
        async with turn.stream() as stream:
            await stream.write("half ")
            await stream.flush()
            await stream.write("whole")
        await turn.add(assistant_message("last"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_turn_cancelled_at_any_operation_under_trio_leaves_none_open(path, when):
    async def main():
        async with recollect.open_async(path) as plain_store:
            store = CancellingStore(plain_store._engine)
            session = await store.session("a")
            for at in range(1, 8):
                with trio.CancelScope() as scope:
                    store.scope_to_cancel, store.at, store.when, store.operations = scope, at, when, 0
                    await run_turn(session)
                store.scope_to_cancel = None
                assert store.operations >= at
                turns = await session.turns.list()
                assert "open" not in {turn.status for turn in turns}
                assert not [m.id for m in await session.messages() if m.state in ("streaming", "pending")]
            async with session.turn("next", wait=0):
                pass
            assert (await store.maintenance.check()).problems == ()

    trio.run(main)


def test_a_cancelled_nursery_ends_its_turns_and_keeps_partial_answers(path):
    async def answer_slowly(session, has_started):
        async with session.turn("q") as turn, turn.stream() as answer:
            await answer.write("half an ans")
            has_started.set()
            await trio.sleep_forever()

    async def main():
        async with recollect.open_async(path) as store:
            sessions = [await store.session(f"s{number}") for number in range(3)]
            async with trio.open_nursery() as nursery:
                for session in sessions:
                    has_started = trio.Event()
                    nursery.start_soon(answer_slowly, session, has_started)
                    await has_started.wait()
                nursery.cancel_scope.cancel()
            for session in sessions:
                assert [(m.text, m.state) for m in await session.messages()] == [
                    ("q", "completed"),
                    ("half an ans", "interrupted"),
                ]
                assert [turn.status for turn in await session.turns.list()] == ["cancelled"]

    trio.run(main)


def test_a_store_is_closed_although_its_scope_is_cancelled(path):
    async def main():
        with trio.CancelScope() as scope:
            async with recollect.open_async(path) as store:
                await (await store.session("a")).append(user_message("x"))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with pytest.raises(recollect.StoreClosed):
            await store.session("a")

    trio.run(main)
    wait_for_threads(("recollect-write", "recollect-read", "recollect-postgres"))


def test_concurrent_trio_tasks_are_group_committed(path):
    async def write(store, writer):
        session = await store.session(f"s{writer % 8}")
        for number in range(3):
            await session.append(user_message(f"{writer}:{number}"))

    async def main():
        async with recollect.open_async(path) as store:
            async with trio.open_nursery() as nursery:
                for writer in range(64):
                    nursery.start_soon(write, store, writer)
            for number in range(8):
                session = await store.session(f"s{number}")
                texts = [message.text for message in await session.messages()]
                assert session.message_count == len(texts) == 24
                for writer in range(number, 64, 8):
                    own_texts = [text for text in texts if text.startswith(f"{writer}:")]
                    assert own_texts == [f"{writer}:{n}" for n in range(3)]

    trio.run(main)


def test_a_watch_under_trio(path):
    async def main():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            async with store.watch("a") as changes:
                await session.append(user_message("x"))
                with trio.fail_after(DEADLINE):
                    assert (await anext(changes)).session == "a"
                with trio.move_on_after(0.05):
                    async for _ in changes:
                        pass
                await session.append(user_message("y"))
                with trio.fail_after(DEADLINE):
                    assert (await anext(changes)).session == "a"
            async with store.watch("a", timeout=0.01) as changes:
                assert [change async for change in changes] == []
            open_watch = await store.watch("a")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(expect_store_closed, open_watch)
                await trio.sleep(0.05)
                await store.close()

    async def expect_store_closed(changes):
        with pytest.raises(recollect.StoreClosed):
            async for _ in changes:
                pass

    trio.run(main)
    wait_for_threads("recollect-watch")


class SlowNotifier:
    """A change notifier that has received a change when it is woken, and returns it once the waiting task is gone."""

    def __init__(self, notifier, is_cancelled):
        self.notifier, self.is_cancelled = notifier, is_cancelled
        self.close = notifier.close
        self.has_started = threading.Event()

    def wait(self, seconds):
        self.has_started.set()
        notice = self.notifier.wait(DEADLINE)
        assert self.is_cancelled.wait(DEADLINE)
        return notice

    def notify(self):
        self.is_cancelled.set()
        self.notifier.notify()


def test_a_cancelled_iteration_of_a_watch_loses_no_change_under_asyncio(path):
    async def main():
        async with recollect.open_async(path) as store, recollect.open_async(path) as other:
            session = await other.session("a")
            async with store.watch() as changes:
                is_cancelled = threading.Event()
                slow = SlowNotifier(changes._notifier, is_cancelled)
                changes._notifier = slow
                iteration = asyncio.ensure_future(anext(changes))
                await asyncio.to_thread(slow.has_started.wait, DEADLINE)
                await session.append(user_message("x"))
                iteration.cancel()
                await asyncio.wait([iteration])
                assert iteration.cancelled()
                changes._notifier = slow.notifier
                assert await asyncio.wait_for(anext(changes), DEADLINE) == ("a", session.revision)

    asyncio.run(main())


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_watch_cancelled_during_its_rescan_reports_the_change_later(path, library):
    """A cancellation while the watch reads the revisions, once while it opens and once in an iteration."""

    class CancelledRead(AsyncStore):
        is_armed = False

        def _run(self, op):
            if self.is_armed:
                self.is_armed = False
                raise RuntimeError  # like a cancellation: the rows of the operation do not arrive
            return super()._run(op)

    async def main():
        async with recollect.open_async(path) as plain_store:
            store = CancelledRead(plain_store._engine)
            session = await store.session("a")
            changes = store.watch()
            store.is_armed = True
            with pytest.raises(RuntimeError):
                await changes
            assert changes._notifier is None  # closed
            async with changes:
                await session.append(user_message("x"))
                changes._next_rescan = 0.0
                changes._is_rescan_due = True
                store.is_armed = True
                with pytest.raises(RuntimeError):
                    await anext(changes)
                assert await anext(changes) == ("a", session.revision)

    trio.run(main) if library == "trio" else asyncio.run(main())


@pytest.mark.parametrize("state", ["completed", "interrupted"])
def test_a_late_write_does_not_change_a_closed_stream(path, state):
    """A write that was in progress when its task was cancelled can run after the end of the stream."""

    async def main():
        async with recollect.open_async(path) as store, (await store.session("a")).turn("q") as turn:
            with contextlib.suppress(asyncio.CancelledError):
                async with turn.stream() as stream:
                    await stream.write("the whole answer")
                    if state == "interrupted":
                        raise asyncio.CancelledError
            draft = Draft(role="assistant", parts=(TextPart(text="the"),))
            late = storage.turns.write_stream(store._scope(), "a", stream._open_handle, draft, lease=turn._lease)
            with pytest.raises(recollect.InvalidValue, match="closed"):
                await store._run(late)
            message = await turn.session.message(stream.id)
            assert (message.text, message.state) == ("the whole answer", state)
            assert (await store.maintenance.check()).problems == ()

    asyncio.run(main())


def test_a_cancelled_flush_is_stored_before_the_end_of_the_stream(path):
    class SlowStore(AsyncStore):
        has_begun = None

        async def _run(self, op):
            if self.has_begun is None:
                return await super()._run(op)
            self.has_begun.set()
            self.has_begun = None
            await asyncio.sleep(0.05)
            return await super()._run(op)

    async def main():
        async with recollect.open_async(path) as plain_store:
            store = SlowStore(plain_store._engine)
            session = await store.session("a")

            async def answer(has_begun):
                async with session.turn("q") as turn, turn.stream() as stream:
                    await stream.write("text")
                    store.has_begun = has_begun
                    await stream.flush()

            has_begun = asyncio.Event()
            task = asyncio.ensure_future(answer(has_begun))
            await has_begun.wait()
            task.cancel()
            await asyncio.wait([task])
            revision = (await session.refresh()).revision
            assert [(m.text, m.state) for m in await session.messages()] == [
                ("q", "completed"),
                ("text", "interrupted"),
            ]
            assert revision == 6  # the session, the turn, the stream, the flush, and the two ends

    asyncio.run(main())


def test_the_text_of_a_paused_writer_is_stored_under_trio(path):
    async def main():
        async with recollect.open_async(path) as store:
            session = await store.session("a")
            async with session.turn("q") as turn, turn.stream() as answer:
                await answer.write("the last ")
                await answer.write("words")
                with trio.fail_after(DEADLINE):
                    while not (await session.message(2)).text:
                        await trio.sleep(0.05)
                assert (await session.message(2)).text == "the last words"
                await answer.write(", and more")
            assert [(m.text, m.state) for m in await session.messages()][1:] == [
                ("the last words, and more", "completed")
            ]

    trio.run(main)


def test_the_thread_that_flushes_paused_streams_ends_with_the_stream():
    async def main():
        async with recollect.open_async(":memory:") as store:
            session = await store.session("a")
            async with session.turn("q") as turn:
                first, second = await turn.stream(), await turn.stream()
                await first.write("a")
                await second.write("b")
                flusher = [thread for thread in own_threads() if thread.name == "recollect-flush"]
                assert len(flusher) == 1
                await first.close()
                assert flusher[0].is_alive()
                await second.close()
                flusher[0].join(0.5)  # seconds. A thread that waits for the flush would take 1 second
                assert not flusher[0].is_alive()

    asyncio.run(main())


def test_closing_a_stream_waits_for_a_flush_that_has_begun(monkeypatch):
    from recollect.store_async import waiting

    monkeypatch.setattr(waiting, "FLUSH_INTERVAL", 0.0)

    async def main():
        async with recollect.open_async(":memory:") as store:
            session = await store.session("a")
            async with session.turn("q") as turn:
                for number in range(100):
                    async with turn.stream() as answer:
                        await answer.write(f"{number}")
                        await asyncio.sleep(number * 0.00001)
            messages = (await session.messages())[1:]
            assert [(m.text, m.state) for m in messages] == [(str(number), "completed") for number in range(100)]

    asyncio.run(main())


def test_an_error_while_a_writer_pauses_is_raised_by_the_next_flush(monkeypatch):
    from recollect.store_async import waiting

    monkeypatch.setattr(waiting, "FLUSH_INTERVAL", 0.0)

    async def main():
        async with recollect.open_async(":memory:") as store:
            session = await store.session("a")
            turn = await session.turn("q")
            stream = await turn.stream()
            await (await session.turns.resume(turn.id)).cancel()
            await stream.write("x")
            wait_for_threads("recollect-flush")
            with pytest.raises(recollect.TurnClosed):
                await stream.flush()

    asyncio.run(main())


def test_a_store_is_used_under_asyncio_and_then_under_trio(path):
    async def append(store, text):
        await (await store.session("a")).append(user_message(text))

    async def open_store():
        return await recollect.open_async(path)

    store = trio.run(open_store)
    asyncio.run(append(store, "1"))
    trio.run(append, store, "2")
    asyncio.run(append(store, "3"))
    trio.run(store.close)
    with recollect.open(path) as sync_store:
        assert [m.text for m in sync_store.session("a").messages()] == ["1", "2", "3"]


def test_a_store_is_closed_without_a_running_loop(path):
    async def use():
        store = await recollect.open_async(path)
        await (await store.session("a")).append(user_message("x"))
        return store, await store.watch()

    for run in (asyncio.run, lambda coroutine: trio.run(lambda: coroutine)):
        store, watch = run(use())
        closed = store.close()
        wait_for_threads(("recollect-write", "recollect-watch"))
        assert asyncio.run(closed) is None
        assert asyncio.run(store.close()) is None
        assert trio.run(store.close) is None
        with pytest.raises(recollect.StoreClosed):
            asyncio.run(use_again(store))
        with pytest.raises(recollect.StoreClosed):
            asyncio.run(read_next(watch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store, watch = asyncio.run(use())
        closed = store.close()
        gc.collect()


async def use_again(store):
    await store.session("a")


async def read_next(watch):
    await anext(watch)


def test_a_store_is_closed_in_another_loop(path):
    async def open_store():
        store = await recollect.open_async(path)
        await store.session("a")
        return store

    async def close(store):
        await store.close()

    asyncio.run(close(asyncio.run(open_store())))
    trio.run(close, asyncio.run(open_store()))
    asyncio.run(close(trio.run(open_store)))


def test_a_store_is_closed_at_exit(tmp_path):
    code = """
import asyncio, atexit, sys, recollect
async def main():
    store = await recollect.open_async(sys.argv[1])
    atexit.register(store.close)
    await (await store.session("a")).append({"role": "user", "content": "x"})
    return store
store = asyncio.run(main())
"""
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "sessions.db")]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert process.stderr == ""
    assert [item.name for item in tmp_path.iterdir()] == ["sessions.db"]  # closed: no -wal and no -shm


def test_no_call_leaves_a_task_behind(path):
    """Every kind of call of the async store, with the tasks of the loop after each."""

    async def check(awaitable):
        result = await awaitable
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    async def main():
        store = await check(recollect.open_async(path))
        session = await check(store.session("a"))
        await check(session.append(user_message("x")))
        await check(session.messages())
        await check(store.search("x"))
        turn = await check(session.turn("q"))
        await check(turn.add(assistant_message("r")))
        stream = await check(turn.stream())
        await check(stream.write("text"))
        await check(stream.flush())
        await check(stream.write("more"))
        await check(stream.close())
        await check(turn.complete())
        await check(session.save_turn("q", assistant_message("r")))
        await check(session.compact(summarize=lambda messages: f"{len(messages)}", keep_turns=0))
        watch = await check(store.watch())
        await check(session.update(title="t"))
        await check(anext(watch))
        await check(watch.close())
        open_turn = await check(session.turn("q"))
        await check((await open_turn.stream()).write("unfinished"))
        await check(open_turn.cancel())
        await check(store.close())

    asyncio.run(main())


def test_an_asynchronous_summary_is_checked():
    async def main():
        async with recollect.open_async(":memory:") as store:
            session = await store.session("a")
            await session.append(user_message("x"))

            async def summarize(_):
                return asyncio.sleep(0)

            with pytest.raises(recollect.InvalidValue, match="awaitable"):
                await session.compact(summarize=summarize, keep_turns=0)

    asyncio.run(main())


def run_main(library, main):
    """Run a coroutine function under asyncio or trio."""
    return asyncio.run(main()) if library == "asyncio" else trio.run(main)


@pytest.mark.parametrize("phase", ["opening", "ending"])
def test_the_end_of_asyncio_run_leaves_no_turn_open(path, phase):
    """asyncio.run() cancels every task at its end, also those that the store would start for its own work."""

    async def run_in_background(session, is_due):
        if phase == "opening":
            asyncio.get_running_loop().call_soon(is_due.set)
            async with session.turn("q"):
                await asyncio.sleep(DEADLINE)
        else:
            async with session.turn("q"):
                asyncio.get_running_loop().call_soon(is_due.set)

    async def main(store):
        is_due = asyncio.Event()
        task = asyncio.create_task(run_in_background(await store.session("a"), is_due))
        await is_due.wait()
        return task  # asyncio.run() cancels it

    async def use_again(store):
        session = await store.session("a")
        async with session.turn("next", wait=0):
            pass
        return [turn.status for turn in await session.turns.list()]

    async def open_store():
        return await recollect.open_async(path)

    store = asyncio.run(open_store())
    for _ in range(5):
        asyncio.run(main(store))
        assert set(asyncio.run(use_again(store))) <= {"cancelled", "completed"}
    store.close()  # pyright: ignore[reportUnusedCoroutine]  without a running loop, the call closes the store


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_an_error_of_a_progress_function_is_raised_by_the_backup(tmp_path, library):
    def report(done, total):
        raise ValueError("a mistake of the caller")

    async def main():
        async with recollect.open_async(tmp_path / "sessions.db") as store:
            session = await store.session("a")
            with pytest.raises(ValueError, match="a mistake of the caller"):
                await store.maintenance.backup(tmp_path / "backup.db", progress=report)
            assert (await session.append(user_message("x"))).ids == ["1.1"]

    run_main(library, main)


PROGRAM_AFTER_THE_MAIN_THREAD = """
import asyncio, concurrent.futures.thread, sys, threading, recollect
path, library, ready = sys.argv[1], sys.argv[2], threading.Event()

async def main():
    async with recollect.open_async(path) as store:
        session = await store.session("a")
        ready.set()
        while not concurrent.futures.thread._shutdown:
            await (asyncio if library == "asyncio" else trio).sleep(0.005)
        await session.append({"role": "user", "content": "late"})
        await store.session("b")
        print([message.text for message in await session.messages()], len(await store.list_sessions()))

def run():
    asyncio.run(main()) if library == "asyncio" else trio.run(main)

if library == "trio":
    import trio
threading.Thread(target=run).start()
ready.wait()
"""


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_store_works_after_the_end_of_the_main_thread(path, library):
    """Executors refuse work then."""
    program = [sys.executable, "-c", PROGRAM_AFTER_THE_MAIN_THREAD, str(path), library]
    result = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (result.stdout, result.stderr) == ("['late'] 2\n", "")
