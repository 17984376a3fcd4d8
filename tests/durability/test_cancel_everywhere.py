"""Every public method of the async store is cancelled at each of its awaits: no write is partial, and no turn stays open.

A test fails if a public method is neither in the tables below nor in EXCLUSIONS with a reason.
"""

from __future__ import annotations

import asyncio
import shutil
import types

import pytest

import recollect
from public_methods import list_all_methods

CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
MAX_AWAITS = 400  # awaits of one method; more mean that it does not end


def user_message(text: object) -> dict[str, str]:
    return {"role": "user", "content": str(text)}


async def _append(session) -> None:
    await session.append([user_message(number) for number in range(5)])
    await session.append([user_message(number) for number in range(5)], after="1.2", update={"title": "replaced"})


async def _turn(session) -> None:
    async with session.turn("question", wait=0) as turn:
        await turn.add({"role": "assistant", "content": "step"})
        async with turn.stream() as stream:
            await stream.write("half")
            await stream.flush()


async def _resume(session) -> None:
    turn = await session.turn("question", wait=0)
    resumed_turn = await session.turns.resume(turn.id)
    await resumed_turn.complete()


async def _compact_and_undo(session) -> None:
    await session.compact(before="1.3", summary="in short")
    await session.compactions.undo()


async def _rewind_and_switch(session) -> None:
    await session.rewind("1.2")
    await session.append(user_message("otherwise"))
    await session.branches.switch(1)


async def _attend(session) -> None:
    await session.presence.arrive("test", id="me")
    await session.presence.stay("me")
    await session.presence.leave("me")


async def _put_and_delete_record(records) -> None:
    await records.put("kind", "key", {"a": 1}, expected=0)
    await records.put("kind", "key", b"bytes", expected=1)
    await records.delete("kind", "key", expected=2)


async def _delete_and_restore_session(store) -> None:
    await store.delete_session("cli:b")
    await store.restore_session("cli:b")


async def _pin_and_unpin(session) -> None:
    await session.mark_message("1.2", {"pinned": True})
    await session.mark_message("1.2", {"pinned": None})


async def _delete_and_restore_message(session) -> None:
    await session.delete_messages(["1.2"])
    await session.restore_messages(["1.2"])


async def _add_and_remove_labels(session) -> None:
    await session.update(add_labels=["a", "b"])
    await session.update(remove_labels=["a"])


async def _replace_and_erase(session) -> None:
    await session.replace_message("1.2", user_message("word again"))
    await session.replace_message("1.2", user_message("word at last"), erase=True)


async def _append_keyed(session) -> None:
    await session.append([recollect.Draft(role="user", parts=(), key=f"k{number}") for number in range(3)])
    await session.append([recollect.Draft(role="user", parts=(), key=f"k{number}") for number in range(2, 5)])
    await session.message(key="k4")
    await session.store.message(key="k3")


async def _delete_and_pop(session) -> None:
    await session.delete_messages(["1.1", "1.2"])
    await session.pop(2)


SESSION = {
    "append": _append,
    "messages": lambda session: session.messages(),
    "message": lambda session: session.message("1.1"),
    "history": lambda session: session.history("anthropic"),
    "active_tokens": lambda session: session.active_tokens(),
    "compact compactions.undo": _compact_and_undo,
    "compactions.list": lambda session: session.compactions.list(),
    "compactions.latest": lambda session: session.compactions.latest(),
    "snapshots.add": lambda session: session.snapshots.add("summary", "so far"),
    "snapshots.list": lambda session: session.snapshots.list(),
    "mark_message mark_message": _pin_and_unpin,
    "delete_messages restore_messages": _delete_and_restore_message,
    "delete_messages pop": _delete_and_pop,
    "replace_message": _replace_and_erase,
    "mark_message": lambda session: session.mark_message("1.1", {"a": 1, "pinned": True}),
    "message_versions": lambda session: session.message_versions("1.1"),
    "append message ": _append_keyed,
    "update": lambda session: session.update(title="Other", metadata={"a": 1}),
    "update add_labels": _add_and_remove_labels,
    "turn": _turn,
    "turns.resume": _resume,
    "save_turn": lambda session: session.save_turn("question", {"role": "assistant", "content": "answer"}),
    "turns.list": lambda session: session.turns.list(),
    "tools.list": lambda session: session.tools.list(),
    "tools.start": lambda session: session.tools.start("c1"),
    "tools.record_result": lambda session: session.tools.record_result("c1", "found"),
    "branches.shown_counts": lambda session: session.branches.shown_counts(),
    "shown_counts": lambda session: session.shown_counts([(0, None)]),
    "find_append": lambda session: session.find_append("k"),
    "branches.list": lambda session: session.branches.list(),
    "rewind branches.switch": _rewind_and_switch,
    "fork": lambda session: session.fork(at="1.2"),
    "stats": lambda session: session.stats(),
    "refresh": lambda session: session.refresh(),
    "presence.arrive presence.stay presence.leave": _attend,
    "presence.list": lambda session: session.presence.list(),
}
RECORDS = {
    "records.put records.delete": _put_and_delete_record,
    "records.get": lambda records: records.get("kind", "key"),
    "records.list": lambda records: records.list("kind"),
}
STORE = {
    "session": lambda store: store.session("cli:new"),
    "session without an id": lambda store: store.session(title="new"),
    "get_session": lambda store: store.get_session("cli:a"),
    "find_session": lambda store: store.find_session("cli:a"),
    "list_sessions": lambda store: store.list_sessions(),
    "search": lambda store: store.search("word"),
    "maintenance.index": lambda store: store.maintenance.index(),
    "maintenance.reindex": lambda store: store.maintenance.reindex(),
    "delete_session restore_session": _delete_and_restore_session,
    "erase_session": lambda store: store.erase_session("cli:gone", deleted=True),
    "maintenance.empty_trash": lambda store: store.maintenance.empty_trash(),
    "maintenance.prune": lambda store: store.maintenance.prune(keep=1),
    "maintenance.recover": lambda store: store.maintenance.recover(),
    "stats": lambda store: store.stats(),
    "maintenance.owners": lambda store: store.maintenance.owners(),
    "shown_counts": lambda store: store.shown_counts(["cli:a", "cli:b"]),
    "message": lambda store: store.message(key="k"),
    "tools.stats": lambda store: store.tools.stats(),
    "maintenance.check": lambda store: store.maintenance.check(repair=True),
    "maintenance.space": lambda store: store.maintenance.space(),
    "maintenance.optimize": lambda store: store.maintenance.optimize(),
}
EXCLUSIONS = {
    "as_owner": "awaits nothing",
    "to_dict": "awaits nothing",
    "watch": "tests/conformance",
    "maintenance.backup": "writes a file next to the store; tests/durability/test_maintenance.py",
    "close": "tests/durability/test_cancel.py",
}


@pytest.mark.parametrize(("api_class", "table"), [(recollect.Store, STORE), (recollect.Session, SESSION)])
def test_every_public_method_is_in_a_table(api_class, table):
    names = {name for row in (*table, *RECORDS) for name in row.split()}
    assert list_all_methods(api_class) - set(EXCLUSIONS) - names == set()


@types.coroutine
def cancel_at_await(coroutine, at: int):
    """Run a coroutine and cancel it at its n-th await. Return how many awaits there were."""
    count = 0
    steps = coroutine.__await__()
    try:
        awaitable = steps.send(None)
        while True:
            count += 1
            if count == at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                value = yield awaitable
            except asyncio.CancelledError as error:
                awaitable = steps.throw(error)
            else:
                awaitable = steps.send(value)
    except StopIteration:
        return count


@pytest.fixture(scope="module")
def filled_path(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("filled") / "filled.db")
    with recollect.open(path) as store:
        session = store.session("cli:a")
        session.append(
            [user_message("word one"), user_message("word two"), user_message("word three"), user_message("word four")]
        )
        session.append(CALL, "anthropic")
        store.session("cli:b").append(recollect.Draft(role="user", parts=(recollect.TextPart(text="b"),), key="k"))
        store.session("cli:gone")
        store.delete_session("cli:gone")
    return path


async def cancel_at_every_await(filled_path: str, path: str, receiver: str, action) -> int:
    """Cancel one method at each of its awaits, each time on a new store. Return how many awaits it has."""
    for at in range(1, MAX_AWAITS):
        shutil.copy(filled_path, path)
        async with recollect.open_async(path) as store:
            session = await store.session("cli:a")
            receivers = {"session": session, "store": store, "records": session.records}
            task = asyncio.create_task(cancel_at_await(action(receivers[receiver]), at))
            await asyncio.wait([task], timeout=60)
            assert task.done()
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
            await check_store_usable(store)
            if not task.cancelled() and task.result() < at:
                return at - 1
    raise AssertionError(f"it has more than {MAX_AWAITS} awaits")


async def check_store_usable(store) -> None:
    """Check that the store is intact, no append is partial, and a new turn starts without waiting."""
    report = await store.maintenance.check(deep=False)
    assert [problem.message for problem in report.problems] == []
    session = await store.session("cli:a")
    count = (await session.refresh()).message_count
    texts = [message.text for message in await session.messages()]
    assert len(texts) == count
    assert sum(text in set("01234") for text in texts) in (0, 5)
    assert (session.title == "replaced") == (texts[2:3] == ["0"])
    async with session.turn("next", wait=0) as turn:
        await turn.add({"role": "assistant", "content": "yes"})
    assert {turn.status for turn in await session.turns.list()} <= {"completed", "cancelled", "failed", "interrupted"}


TABLES = {"session": SESSION, "store": STORE, "records": RECORDS}
CASES = [(receiver, name) for receiver, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("receiver", "name"), CASES)
def test_cancelling_at_every_await_leaves_the_store_usable(filled_path, path, receiver, name):
    action = TABLES[receiver][name]
    awaits = asyncio.run(cancel_at_every_await(filled_path, path, receiver, action))
    print(f"{receiver}.{name}: cancelled at each of {awaits} awaits")
    assert awaits > 0
