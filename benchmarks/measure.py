"""Measures one contender in a process of its own: `python measure.py NAME PLACE WORK [NUMBERS...]`; prints JSON.

Started by peers.py, with the environment that the contender needs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from typing import Any

from contenders import contender
from data import turns

LONG, SHORT = "bench:long", "bench:short"


def timed(samples: list[float]) -> float:
    """Give the median in microseconds."""
    return statistics.median(samples) * 1e6


async def repeated(action: Any, times: int) -> tuple[float | None, int | None]:
    """Do something several times: the median in microseconds, and what it gave."""
    samples: list[float] = []
    given = None
    for _ in range(times):
        gc.collect()
        begun = time.perf_counter()
        given = await action()
        samples.append(time.perf_counter() - begun)
        if given is None:
            return None, None
    return timed(samples), given


async def append(store: Any, count: int) -> dict[str, Any]:
    """Keep turns one after the other: at the median, and how the last tenth compares with the first."""
    samples: list[float] = []
    until = time.perf_counter() + 60
    messages = 0
    for turn in turns(count):
        begun = time.perf_counter()
        await store.append(LONG, turn)
        samples.append(time.perf_counter() - begun)
        messages += len(turn)
        if begun > until:
            break
    tenth = max(len(samples) // 10, 1)
    return {
        "append_us": timed(samples), "growth": timed(samples[-tenth:]) / timed(samples[:tenth]), "turns": len(samples),
        "messages": messages,
    }  # fmt: skip


async def together(store: Any, tasks: int, each: int) -> dict[str, Any]:
    """Keep turns from many tasks at once, each in its own conversation: turns in a second."""
    data = list(turns(each))
    keep = getattr(store, "append_together", store.append)

    def in_thread(session: str, turn: Any) -> None:
        asyncio.run(keep(session, turn))

    async def one(number: int) -> None:
        for turn in data:
            if store.threads:
                await asyncio.to_thread(in_thread, f"bench:{number}", turn)
            else:
                await keep(f"bench:{number}", turn)

    begun = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(tasks)))
    return {"tasks_per_second": tasks * each / (time.perf_counter() - begun)}


async def process(store: Any, number: int, each: int) -> dict[str, Any]:
    """Be one of several processes on one store."""
    data = list(turns(each))
    await store.append(f"bench:process:{number}", data[0])
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    for turn in data:
        await store.append(f"bench:process:{number}", turn)
    return {"seconds": time.perf_counter() - begun, "turns": each}


async def resume(store: Any, messages: int) -> dict[str, Any]:
    """Fill one long conversation; then load it, and its end."""
    data: list[Any] = []
    count = 0
    for turn in turns(messages):
        data.append(turn)
        count += len(turn)
        if count >= messages:
            break
    await store.fill(SHORT, data)
    load, loaded = await repeated(lambda: store.load(SHORT), 5)
    last, _ = await repeated(lambda: store.last(SHORT, 50), 11)
    return {f"load_{messages}_us": load, "loaded": loaded, "last_us": last, "peak_kb": _peak()}


async def lists(store: Any, sessions: int) -> dict[str, Any]:
    """Keep many short conversations; then list the newest, and search all."""
    for number, turn in enumerate(turns(sessions)):
        await store.append(f"bench:list:{number}", turn)
    listed, _ = await repeated(lambda: store.list(50), 11)
    await store.search("there would", 20)
    searched, _ = await repeated(lambda: store.search("there would", 20), 7)
    return {"list_us": listed, "search_us": searched}


async def nothing(_: Any) -> dict[str, Any]:
    """Only open and close: what it costs to be there."""
    return {"peak_kb": _peak()}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


WORK = {"append": append, "together": together, "process": process, "resume": resume, "lists": lists, "open": nothing}


async def main() -> None:
    name, place, work, *numbers = sys.argv[1:]
    begun = time.perf_counter()
    store = contender(name)
    await store.open(place)
    opened = time.perf_counter() - begun
    try:
        found = await WORK[work](store, *map(int, numbers))
    finally:
        await store.close()
    print(json.dumps({**found, "open_s": opened, "durability": store.durability}))


if __name__ == "__main__":
    asyncio.run(main())
