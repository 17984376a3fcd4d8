"""What the processes do that the tests start, and kill: `python children.py <what> <path> ...`.

Each prints a line after each write that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time

import recollect


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def ack(text: object) -> None:
    """Say it in one write, so that a line is whole or not there."""
    os.write(1, f"{text}\n".encode())


def start(what: str, *args: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a child that does this. Unbuffered: communicate() does not see what readline() has read ahead."""
    command = [sys.executable, os.path.abspath(__file__), what, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, **options)


def append(path: str, session: str, first: str) -> None:
    """Append one message after another, for ever."""
    store = recollect.open(path)
    talk = store.session(session)
    for number in range(int(first), 1_000_000):
        talk.append(said(str(number)))
        ack(number)


def group(path: str, tasks: str, first: str) -> None:
    """Append from many tasks that commit together, for ever."""

    async def one(store, name: str) -> None:
        talk = await store.session(name)
        for number in range(int(first), 1_000_000):
            await talk.append(said(str(number)))
            ack(f"{name} {number}")

    async def main() -> None:
        async with recollect.open_async(path) as store:
            await asyncio.gather(*(one(store, f"cli:{task}") for task in range(int(tasks))))

    asyncio.run(main())


def numbered(path: str, tasks: str, seed: str) -> None:
    """Write turns from many tasks, each going on where its session stands, until killed.

    Every second task holds each turn open over several writes; the others write it at once.
    """

    async def one(store, name: str, *, held: bool) -> None:
        talk = await store.session(name)
        asked = [int(message.text) for message in await talk.messages(last=3) if message.role == "user"]
        for number in range(asked[-1] + 1 if asked else 0, 1_000_000):
            answer = {"role": "assistant", "content": f"answer {number}"}
            if held:
                async with talk.turn(str(number), wait=0) as turn:
                    await turn.add(answer)
            else:
                await talk.save_turn(str(number), answer)
            ack(f"{name} {number}")

    async def main() -> None:
        async with recollect.open_async(path) as store:
            names = [f"cli:{task}" for task in range(int(tasks))]
            random.Random(int(seed)).shuffle(names)
            await asyncio.gather(*(one(store, name, held=int(name[4:]) % 2 == 1) for name in names))

    asyncio.run(main())


def turns(path: str, session: str, first: str) -> None:
    """Hold one turn after another, with a step and an answer in each."""
    store = recollect.open(path)
    talk = store.session(session)
    for number in range(int(first), 1_000_000):
        with talk.turn(f"{number} ask") as turn:
            ack(f"{number} ask")
            turn.add({"role": "assistant", "content": f"{number} step"})
            ack(f"{number} step")
            time.sleep(0.005)
        ack(f"{number} done")


def stream(path: str, session: str, first: str) -> None:
    """Stream one answer after another, storing each chunk."""
    store = recollect.open(path)
    talk = store.session(session)
    for number in range(int(first), 1_000_000):
        with talk.turn(f"{number} ask") as turn:
            ack(f"{number} ask")
            with turn.stream() as answer:
                for chunk in range(5):
                    answer.write(f"{chunk},")
                    answer.flush()
                    ack(f"{number} chunk {chunk}")
            ack(f"{number} closed")
        ack(f"{number} done")


def hold(path: str, session: str, streaming: str = "") -> None:
    """Open a turn and keep it until told to end."""
    store = recollect.open(path)
    with store.session(session).turn("mine") as turn:
        answer = turn.stream() if streaming else None
        if answer is not None:
            answer.write("half an")
            answer.flush()
        ack("open")
        sys.stdin.readline()
        if answer is not None:
            answer.close()
        turn.add({"role": "assistant", "content": "still mine"})
    ack("done")


def crowd(path: str, name: str, threads: str, count: str) -> None:
    """Append from several threads, each to a session of its own and to one that all share."""
    store = recollect.open(path, timeout=60)
    trouble: list[BaseException] = []

    def one(thread: int) -> None:
        try:
            own, shared = store.session(f"own:{name}:{thread}"), store.session("cli:shared")
            for number in range(int(count)):
                own.append(said(str(number)))
                shared.append([said(f"{name}:{thread} {number}"), said(f"{name}:{thread} {number}+")])
        except BaseException as error:  # noqa: BLE001  it is shown below
            trouble.append(error)

    running = [threading.Thread(target=one, args=(thread,)) for thread in range(int(threads))]
    ack("ready")
    sys.stdin.readline()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    store.close()
    if trouble:
        raise trouble[0]


def lock(path: str) -> None:
    """Hold the write lock until told to let go."""
    from recollect.engine.sqlite.connection import connect

    connection = connect(path, 5.0)
    connection.execute("BEGIN IMMEDIATE")
    ack("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    ack("free")


def catch_up(path: str) -> None:
    """Bring the search index up to date, in small pieces, and say after each that it was committed."""
    from recollect.ops.search import index

    index._CHARACTERS = 1
    index.PAGE = 5
    store = recollect.open(path)
    plan = index.catch_up(store.scope())
    result = store.run(next(plan))
    ack("ready")
    sys.stdin.readline()
    while True:
        try:
            result = store.run(plan.send(result))
        except StopIteration as done:
            ack(f"done {done.value}")
            return
        ack("step")


def talkative(path: str, name: str, count: str) -> None:
    """Append messages, and find each as soon as it is there."""
    store = recollect.open(path, timeout=60)
    ack("ready")
    sys.stdin.readline()
    talk = store.session(f"cli:{name}")
    for number in range(int(count)):
        talk.append(said(f"word by{name} n{number}"))
        if number % 4 == 0:
            assert [hit.text for hit in store.search(f"by{name} n{number}")] == [f"word by{name} n{number}"]
    store.close()


def look(path: str, count: str) -> None:
    """Search again and again; what was found once is found ever after."""
    store = recollect.open(path, timeout=60)
    ack("ready")
    sys.stdin.readline()
    before: set[tuple[str, str | None]] = set()
    for _ in range(int(count)):
        found = {(hit.session, hit.message) for hit in store.search("word", 1_000)}
        assert before <= found
        before = found
    store.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
