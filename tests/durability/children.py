"""The commands of the child processes that the tests start and kill: `python children.py <command> <path> ...`.

A child prints a line after each acknowledged write.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

import recollect


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def acknowledge(text: object) -> None:
    """Print a line in one write(), so that the test reads all of it or nothing."""
    os.write(1, f"{text}\n".encode())


def start(command_name: str, *args: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a child with a command. Unbuffered: communicate() does not return data that readline() has buffered."""
    command = [sys.executable, os.path.abspath(__file__), command_name, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, **options)  # pyright: ignore[reportReturnType]


def append(path: str, session_id: str, first: str) -> None:
    """Append one message after another until killed."""
    store = recollect.open(path)
    session = store.session(session_id)
    for number in range(int(first), 1_000_000):
        session.append(user_message(str(number)))
        acknowledge(number)


def replace_messages(path: str, session_id: str, first: str, interface: str) -> None:
    """Replace all messages, with the title and the metadata, at the expected revision, until killed."""
    numbers = range(int(first), 1_000_000)

    def arguments(number: int) -> dict[str, Any]:
        changes = {"title": str(number), "metadata": {"step": number}}
        return {"messages": [user_message(str(number))] * 3, "after": number % 2, "update": changes}

    async def replace_in_tasks() -> None:
        async with recollect.open_async(path) as store:
            session = await store.session(session_id)
            for number in numbers:
                await session.append(**arguments(number), expected=session.revision)
                acknowledge(number)

    if interface == "async":
        asyncio.run(replace_in_tasks())
    with recollect.open(path) as store:
        session = store.session(session_id)
        for number in numbers:
            session.append(**arguments(number), expected=session.revision)
            acknowledge(number)


def append_concurrently(path: str, tasks: str, first: str) -> None:
    """Append from many tasks, in group commits, until killed."""

    async def write_session(store, name: str) -> None:
        session = await store.session(name)
        for number in range(int(first), 1_000_000):
            await session.append(user_message(str(number)))
            acknowledge(f"{name} {number}")

    async def main() -> None:
        async with recollect.open_async(path) as store:
            await asyncio.gather(*(write_session(store, f"cli:{task}") for task in range(int(tasks))))

    asyncio.run(main())


def write_turns(path: str, tasks: str, seed: str) -> None:
    """Write turns from many tasks, each continuing its session, until killed.

    Every second task holds each turn open over several writes; the others call save_turn().
    """

    async def write_session(store, name: str, *, holds_turn: bool) -> None:
        session = await store.session(name)
        questions = [int(message.text) for message in await session.messages(last=3) if message.role == "user"]
        for number in range(questions[-1] + 1 if questions else 0, 1_000_000):
            answer = {"role": "assistant", "content": f"answer {number}"}
            if holds_turn:
                async with session.turn(str(number), wait=0) as turn:
                    await turn.add(answer)
            else:
                await session.save_turn(str(number), answer)
            acknowledge(f"{name} {number}")

    async def main() -> None:
        async with recollect.open_async(path) as store:
            names = [f"cli:{task}" for task in range(int(tasks))]
            random.Random(int(seed)).shuffle(names)
            await asyncio.gather(*(write_session(store, name, holds_turn=int(name[4:]) % 2 == 1) for name in names))

    asyncio.run(main())


def hold_turns(path: str, session_id: str, first: str) -> None:
    """Hold one turn after another, with a step and an answer in each."""
    store = recollect.open(path)
    session = store.session(session_id)
    for number in range(int(first), 1_000_000):
        with session.turn(f"{number} ask") as turn:
            acknowledge(f"{number} ask")
            turn.add({"role": "assistant", "content": f"{number} step"})
            acknowledge(f"{number} step")
            time.sleep(0.005)
        acknowledge(f"{number} done")


def stream_answers(path: str, session_id: str, first: str) -> None:
    """Stream one answer after another, storing each chunk."""
    store = recollect.open(path)
    session = store.session(session_id)
    for number in range(int(first), 1_000_000):
        with session.turn(f"{number} ask") as turn:
            acknowledge(f"{number} ask")
            with turn.stream() as answer:
                for chunk in range(5):
                    answer.write(f"{chunk},")
                    answer.flush()
                    acknowledge(f"{number} chunk {chunk}")
            acknowledge(f"{number} closed")
        acknowledge(f"{number} done")


def hold_turn(path: str, session_id: str, streaming: str = "") -> None:
    """Open a turn and hold it until a line arrives on stdin."""
    store = recollect.open(path)
    with store.session(session_id).turn("mine") as turn:
        answer = turn.stream() if streaming else None
        if answer is not None:
            answer.write("half an")
            answer.flush()
        acknowledge("open")
        sys.stdin.readline()
        if answer is not None:
            answer.close()
        turn.add({"role": "assistant", "content": "still mine"})
    acknowledge("done")


def append_from_threads(path: str, name: str, threads: str, count: str) -> None:
    """Append from several threads, each to its own session and to a shared one."""
    store = recollect.open(path, timeout=60)
    errors: list[BaseException] = []

    def write_session(thread: int) -> None:
        try:
            own, shared = store.session(f"own:{name}:{thread}"), store.session("cli:shared")
            for number in range(int(count)):
                own.append(user_message(str(number)))
                shared.append([user_message(f"{name}:{thread} {number}"), user_message(f"{name}:{thread} {number}+")])
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    workers = [threading.Thread(target=write_session, args=(thread,)) for thread in range(int(threads))]
    acknowledge("ready")
    sys.stdin.readline()
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    store.close()
    if errors:
        raise errors[0]


def hold_write_lock(path: str) -> None:
    """Hold the write lock until a line arrives on stdin."""
    from recollect.engine.sqlite.connection import connect

    connection = connect(path, 5.0)
    connection.execute("BEGIN IMMEDIATE")
    acknowledge("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    acknowledge("free")


def update_search_index(path: str) -> None:
    """Update the search index in small transactions, and print a line after each commit."""
    from recollect.storage.search import index

    index._MAX_CHARACTERS = 1
    index.PAGE_SIZE = 5
    store = recollect.open(path)
    plan = index.catch_up(store._scope())
    result = store._run(next(plan))
    acknowledge("ready")
    sys.stdin.readline()
    while True:
        try:
            result = store._run(plan.send(result))
        except StopIteration as stop:
            acknowledge(f"done {stop.value}")
            return
        acknowledge("step")


def append_and_search(path: str, name: str, count: str) -> None:
    """Append messages, and search for each one right after its append."""
    store = recollect.open(path, timeout=60)
    acknowledge("ready")
    sys.stdin.readline()
    session = store.session(f"cli:{name}")
    for number in range(int(count)):
        session.append(user_message(f"word by{name} n{number}"))
        if number % 4 == 0:
            assert [hit.text for hit in store.search(f"by{name} n{number}")] == [f"word by{name} n{number}"]
    store.close()


def search_repeatedly(path: str, count: str) -> None:
    """Search repeatedly; a message that was found once must be found again."""
    store = recollect.open(path, timeout=60)
    acknowledge("ready")
    sys.stdin.readline()
    previous_hits: set[tuple[str, str | None]] = set()
    for _ in range(int(count)):
        hits = {(hit.session, hit.message) for hit in store.search("word", 1_000)}
        assert previous_hits <= hits
        previous_hits = hits
    store.close()


def append_keys_and_pop(path: str, count: str) -> None:
    """Append overlapping batches of messages with keys and print their ids; then pop all messages and print the ids."""
    store = recollect.open(path, timeout=60)
    session = store.session("cli:shared")
    acknowledge("ready")
    sys.stdin.readline()
    ids: dict[str, str] = {}
    for start_number in range(0, int(count), 3):
        keys = [f"k{number}" for number in range(start_number, start_number + 7)]
        drafts = [recollect.Draft(role="user", parts=(recollect.TextPart(text=key),), key=key) for key in keys]
        ids |= zip(keys, session.append(drafts).ids, strict=True)
    acknowledge(json.dumps(ids))
    sys.stdin.readline()
    popped_ids: list[str] = []
    while messages := session.pop(2):
        popped_ids += [message.id for message in messages]
    acknowledge(json.dumps(popped_ids))
    store.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
