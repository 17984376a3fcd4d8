"""The revision of a handle after its own change, while another handle changes the session right after it."""

from __future__ import annotations

import asyncio

import pytest

import recollect


def user_message(text):
    return {"role": "user", "content": text}


CHANGES = {
    "append": lambda session: session.append(user_message("mine"), after=1, update={"title": "T"}),
    "append without messages": lambda session: session.append([], after=1),
    "rewind": lambda session: session.rewind(1),
    "switch": lambda session: session.branches.switch(1),
    "delete_messages": lambda session: session.delete_messages([1]),
    "restore_messages": lambda session: session.restore_messages([1]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_after_the_own_one_is_not_seen(change):
    with recollect.open(":memory:") as store:
        session, other = store.session("a"), store.session("a")
        session.append([user_message("one"), user_message("two")])
        run = store._run

        def run_and_change(op):
            store._run = run
            result = run(op)
            other.update(title="theirs")
            return result

        store._run = run_and_change
        change(session)
        with pytest.raises(recollect.StaleRevision):
            session.append(user_message("mine"), expected=session.revision)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_after_the_own_one_is_not_seen_by_an_async_handle(change):
    async def scenario():
        async with recollect.open_async(":memory:") as store:
            session, other = await store.session("a"), await store.session("a")
            await session.append([user_message("one"), user_message("two")])
            run = store._run

            async def run_and_change(op):
                store._run = run
                result = await run(op)
                await other.update(title="theirs")
                return result

            store._run = run_and_change
            await change(session)
            with pytest.raises(recollect.StaleRevision):
                await session.append(user_message("mine"), expected=session.revision)

    asyncio.run(scenario())
