"""Every public operation of the async store, cancelled at every single await of it: nothing is half done, or left open.

A test fails where a method has neither a row in the table below nor a word on why it needs none.
"""

from __future__ import annotations

import asyncio
import shutil
import types

import pytest

import recollect
from recollect.store_async import AsyncStore
from recollect.store_async.session import AsyncSession

CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
AWAITS = 400


def said(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


async def _turn(session) -> None:
    async with session.turn("question", wait=0) as turn:
        await turn.add({"role": "assistant", "content": "step"})
        async with turn.stream() as stream:
            await stream.write("half")
            await stream.flush()


async def _taken_up(session) -> None:
    turn = await session.turn("question", wait=0)
    again = await session.resume_turn(turn.id)
    await again.complete()


async def _each(session) -> None:
    async for _ in session.iter_messages():
        pass


async def _compact_twice(session) -> None:
    await session.compact(before="1.3", summary="in short")
    await session.undo_compaction()


async def _back_and_forth(session) -> None:
    await session.rewind("1.2")
    await session.append(said("otherwise"))
    await session.switch(1)


async def _attended(session) -> None:
    await session.arrive("test", id="me")
    await session.stay("me")
    await session.leave("me")


async def _trashed(store) -> None:
    await store.delete_session("cli:b")
    await store.restore_session("cli:b")


async def _pinned(session) -> None:
    await session.pin_message("1.2")
    await session.unpin_message("1.2")


async def _marked(session) -> None:
    await session.delete_message("1.2")
    await session.restore_message("1.2")


SESSION = {
    "append": lambda session: session.append([said(number) for number in range(5)]),
    "messages": lambda session: session.messages(),
    "iter_messages": _each,
    "message": lambda session: session.message("1.1"),
    "response": lambda session: session.response("1.1"),
    "history": lambda session: session.history("anthropic"),
    "active_tokens": lambda session: session.active_tokens(),
    "compact undo_compaction": _compact_twice,
    "compactions": lambda session: session.compactions(),
    "compaction": lambda session: session.compaction(),
    "snapshot": lambda session: session.snapshot("summary", "so far"),
    "snapshots": lambda session: session.snapshots(),
    "pin_message unpin_message": _pinned,
    "delete_message restore_message": _marked,
    "update": lambda session: session.update(title="Other", metadata={"a": 1}),
    "turn": _turn,
    "resume_turn": _taken_up,
    "save_turn": lambda session: session.save_turn("question", {"role": "assistant", "content": "answer"}),
    "turns": lambda session: session.turns(),
    "tool_calls": lambda session: session.tool_calls(),
    "start_tool_call": lambda session: session.start_tool_call("c1"),
    "record_tool_result": lambda session: session.record_tool_result("c1", "found"),
    "branches": lambda session: session.branches(),
    "rewind switch": _back_and_forth,
    "fork": lambda session: session.fork(at="1.2"),
    "stats": lambda session: session.stats(),
    "refresh": lambda session: session.refresh(),
    "arrive stay leave": _attended,
    "present": lambda session: session.present(),
}
STORE = {
    "session": lambda store: store.session("cli:new"),
    "create_session": lambda store: store.create_session(title="new"),
    "get_session": lambda store: store.get_session("cli:a"),
    "find_session": lambda store: store.find_session("cli:a"),
    "list_sessions": lambda store: store.list_sessions(),
    "search": lambda store: store.search("word"),
    "index": lambda store: store.index(),
    "reindex": lambda store: store.reindex(),
    "delete_session restore_session": _trashed,
    "erase_session": lambda store: store.erase_session("cli:gone", deleted=True),
    "empty_trash": lambda store: store.empty_trash(),
    "prune": lambda store: store.prune(keep=1),
    "recover": lambda store: store.recover(),
    "last_session": lambda store: store.last_session(),
    "set_last_session": lambda store: store.set_last_session("cli:b"),
    "setting": lambda store: store.setting("k"),
    "set_setting": lambda store: store.set_setting("k", 1),
    "stats": lambda store: store.stats(),
    "owners": lambda store: store.owners(),
    "shown_counts": lambda store: store.shown_counts(["cli:a", "cli:b"]),
    "tool_stats": lambda store: store.tool_stats(),
    "check": lambda store: store.check(repair=True),
    "space": lambda store: store.space(),
    "optimize": lambda store: store.optimize(),
}
ELSEWHERE = {
    "run": "what all of these are made of",
    "follow": "what those of several operations are made of",
    "scope": "awaits nothing",
    "watch": "tests/conformance",
    "backup": "makes a file beside the store; tests/durability/test_maintenance.py",
    "close": "tests/durability/test_cancel.py",
}


def named(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, types.FunctionType) and name[0] != "_"}


@pytest.mark.parametrize(("kind", "table"), [(AsyncStore, STORE), (AsyncSession, SESSION)])
def test_no_operation_is_missing(kind, table):
    assert named(kind) - set(ELSEWHERE) - {name for row in table for name in row.split()} == set()


@types.coroutine
def cut(coroutine, at: int):
    """Await something, cancelled at its n-th await; give how many awaits there were."""
    count = 0
    steps = coroutine.__await__()
    try:
        waited = steps.send(None)
        while True:
            count += 1
            if count == at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                told = yield waited
            except asyncio.CancelledError as error:
                waited = steps.throw(error)
            else:
                waited = steps.send(told)
    except StopIteration:
        return count


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("filled") / "filled.db")
    with recollect.open(path) as store:
        session = store.session("cli:a")
        session.append([said("word one"), said("word two"), said("word three"), said("word four")])
        session.append(CALL, "anthropic")
        store.session("cli:b").append(said("b"))
        store.session("cli:gone")
        store.delete_session("cli:gone")
    return path


async def cancelled_everywhere(filled: str, path: str, of: str, action) -> int:
    """Cancel one operation at each of its awaits, each time on a new store; give how many there were."""
    for at in range(1, AWAITS):
        shutil.copy(filled, path)
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            task = asyncio.create_task(cut(action(session if of == "session" else store), at))
            await asyncio.wait([task], timeout=60)
            assert task.done()
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
            await settled(store)
            if not task.cancelled() and task.result() < at:
                return at - 1
    raise AssertionError("there is no end to its awaits")


async def settled(store) -> None:
    """Nothing is wrong, nothing is half there, and the next one is not kept out."""
    found = await store.check(deep=False)
    assert [problem.message for problem in found.problems] == []
    session = await store.session("cli:a")
    count = (await session.refresh()).message_count
    texts = [message.text for message in await session.messages()]
    assert len(texts) == count
    assert sum(text in set("01234") for text in texts) in (0, 5)
    async with session.turn("next", wait=0) as turn:
        await turn.add({"role": "assistant", "content": "yes"})
    assert {turn.status for turn in await session.turns()} <= {"completed", "cancelled", "failed", "interrupted"}


ROWS = [("session", name) for name in SESSION] + [("store", name) for name in STORE]


@pytest.mark.parametrize(("of", "name"), ROWS)
def test_cancelled_at_every_await(filled, path, of, name):
    action = (SESSION if of == "session" else STORE)[name]
    awaits = asyncio.run(cancelled_everywhere(filled, path, of, action))
    print(f"{of}.{name}: cancelled at each of {awaits} awaits")
    assert awaits > 0
