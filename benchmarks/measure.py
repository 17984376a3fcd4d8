"""Measures one contender in a process of its own: `python measure.py NAME PLACE WORK [NUMBERS...]`; prints JSON.

Started by peers.py. Work is measured by time and not by count, so that a slow store takes no longer than a quick one:
as much as fits into some seconds, and a least that is always done.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import resource
import statistics
import sys
import time
from typing import Any

from contenders import make
from contenders.contender import plain
from data import turns

LONG, MIDDLE, NEW, WARM = "bench:10000", "bench:1000", "bench:new", "bench:warm"
WORDS = "there would"


def microseconds(samples: list[float]) -> float:
    """Give the median in microseconds."""
    return statistics.median(samples) * 1e6


def conversation(messages: int) -> list[Any]:
    """Make turns until there are so many messages."""
    made: list[Any] = []
    count = 0
    for turn in turns(messages):
        made.append(turn)
        count += len(turn)
        if count >= messages:
            break
    return made


async def check(store: Any) -> dict[str, Any]:
    """Keep turns one by one, many at once and from several tasks; what is read back must say the same."""
    data = list(turns(40))
    wanted = [plain(message) for turn in data for message in turn]
    for turn in data:
        await store.append(NEW, turn)
    for begin in range(0, len(data), store.batch):
        await store.fill(WARM, data[begin : begin + store.batch])
    await store.append_together("bench:0", data[0])

    async def task(number: int) -> None:
        for turn in data[1:] if number == 0 else data:
            await store.append_together(f"bench:{number}", turn)

    await asyncio.gather(*(task(number) for number in range(4)))
    for session in (NEW, WARM, *(f"bench:{number}" for number in range(4))):
        if store.said(await store.load(session)) != wanted:
            raise SystemExit(f"what was kept in {session} is not what was read back")
    last = await store.last(NEW, 50)
    if last is not None and store.said(last)[-10:] != wanted[-10:]:
        raise SystemExit("the last messages are not the last messages")
    return {"equal": True}


async def build(store: Any, session: str, messages: int, seconds: int) -> dict[str, Any]:
    """Prepare a long conversation, in at most so many seconds; not measured."""
    data = conversation(messages)
    until = time.perf_counter() + seconds
    for begin in range(0, len(data), store.batch):
        await store.fill(session, data[begin : begin + store.batch])
        if time.perf_counter() > until and begin + store.batch < len(data):
            return {"built": False}
    return {"built": True, "messages": sum(len(turn) for turn in data)}


async def build_lists(store: Any, sessions: int, seconds: int) -> dict[str, Any]:
    """Prepare many short conversations, where a store lists or searches; and one to warm up with, for all."""
    until = time.perf_counter() + seconds
    first = True
    for number, turn in enumerate(turns(sessions)):
        await store.append(WARM if first else f"bench:list:{number}", turn)
        first = False
        if not (store.lists or store.searches):
            break
        if time.perf_counter() > until:
            return {"listed": number + 1}
    return {"listed": sessions}


class Keeping:
    """Turns that are kept in one conversation: as many as fit into some seconds, from a least to a most."""

    def __init__(self, store: Any, session: str, seconds: float, least: int, most: int) -> None:
        self.store, self.session = store, session
        self.left, self.least, self.most = seconds, least, most
        self.samples: list[float] = []
        self.turns = itertools.cycle(turns(200, seed=2))

    @property
    def done(self) -> bool:
        """Whether there were enough."""
        count = len(self.samples)
        return count >= self.most or (self.left <= 0 and count >= self.least)

    async def warm(self) -> None:
        """Open the conversation and keep a turn, not measured."""
        await self.store.append(self.session, next(self.turns))

    async def some(self, count: int) -> None:
        """Keep some turns."""
        for turn in itertools.islice(self.turns, count):
            if self.done:
                return
            begun = time.perf_counter()
            await self.store.append(self.session, turn)
            self.samples.append(time.perf_counter() - begun)
            self.left -= self.samples[-1]


async def append(store: Any, seconds: int) -> dict[str, Any]:
    """Keep turns one after the other, some in a new conversation and some in the long one, in turn."""
    new, long = Keeping(store, NEW, seconds, 20, 200), Keeping(store, LONG, seconds, 3, 200)
    await new.warm()
    await long.warm()
    while not (new.done and long.done):
        await new.some(10)
        await long.some(10)
    at_start, at_end = microseconds(new.samples), microseconds(long.samples)
    return {
        "append_us": at_start, "append_long_us": at_end, "growth": at_end / at_start,
        "turns": len(new.samples), "turns_long": len(long.samples),
    }  # fmt: skip


async def append_new(store: Any, seconds: int) -> dict[str, Any]:
    """Keep turns in a new conversation alone, where a long one could not be prepared."""
    new = Keeping(store, NEW, seconds, 20, 200)
    await new.warm()
    await new.some(new.most)
    return {"append_us": microseconds(new.samples), "turns": len(new.samples)}


async def append_only(store: Any, seconds: int) -> dict[str, Any]:
    """Keep turns in a new store alone: how large it gets."""
    new = Keeping(store, NEW, seconds, 20, 1_000)
    while not new.done:
        await new.some(10)
    data = itertools.islice(itertools.cycle(turns(200, seed=2)), len(new.samples))
    return {"messages": sum(len(turn) for turn in data)}


async def together(store: Any, tasks: int, seconds: int) -> dict[str, Any]:
    """Keep turns from many tasks at once, each in its own conversation: turns in a second."""
    data = list(turns(100, seed=3))
    kept = [0] * tasks
    await store.append_together("bench:0", data[0])
    await asyncio.gather(*(store.append_together(f"bench:{number}", data[0]) for number in range(1, tasks)))

    async def one(number: int) -> None:
        for turn in itertools.cycle(data):
            if kept[number] >= 2 and time.perf_counter() >= until:
                return
            await store.append_together(f"bench:{number}", turn)
            kept[number] += 1

    begun = time.perf_counter()
    until = begun + seconds
    await asyncio.gather(*(one(number) for number in range(tasks)))
    took = time.perf_counter() - begun
    return {"tasks_per_second": sum(kept) / took, "tasks_turns": sum(kept), "tasks_seconds": took}


async def process(store: Any, number: int, seconds: int) -> dict[str, Any]:
    """Be one of several processes on one store."""
    data = itertools.cycle(turns(200, seed=4 + number))
    await store.append(f"bench:process:{number}", next(data))
    print("ready", flush=True)
    sys.stdin.readline()
    ends = [time.perf_counter()]
    while len(ends) <= 10 or ends[-1] - ends[0] < seconds:
        await store.append(f"bench:process:{number}", next(data))
        ends.append(time.perf_counter())
    longest = max(after - before for before, after in itertools.pairwise(ends))
    return {"seconds": ends[-1] - ends[0], "turns": len(ends) - 1, "longest": longest}


async def timed(action: Any) -> tuple[float, Any]:
    """Do something once."""
    gc.collect()
    begun = time.perf_counter()
    given = await action()
    return time.perf_counter() - begun, given


async def load(name: str, place: str, seconds: int) -> dict[str, Any]:
    """Resume: load conversations from a store that was opened for it, so that nobody gives what it has in memory."""
    samples: dict[str, list[float]] = {}
    until = time.perf_counter() + seconds
    peak = None
    while len(samples.get("load_10000_us", ())) < 5 and (peak is None or time.perf_counter() < until):
        store = make(name)
        await store.open(place)
        await store.load(WARM)
        for key, session in (("load_1000_us", MIDDLE), ("load_10000_us", LONG)):
            took, given = await timed(lambda store=store, session=session: store.load(session))
            samples.setdefault(key, []).append(took)
            del given
        peak = peak or _peak()
        for first in (True, False, False, False, False, False):
            took, given = await timed(lambda store=store: store.last(LONG, 50))
            if given is not None and not first:
                samples.setdefault("last_us", []).append(took)
        await store.close()
    return {
        **{key: microseconds(found) for key, found in samples.items()},
        "peak_kb": peak,
        "loads": len(samples["load_10000_us"]),
    }


async def find(store: Any, seconds: int) -> dict[str, Any]:
    """List the newest conversations, and search all of them."""
    found: dict[str, Any] = {}
    for key, offered, action in (
        ("list_us", store.lists, lambda: store.list(50)),
        ("search_us", store.searches, lambda: store.search(WORDS, 20)),
    ):
        if not offered:
            continue
        await action()
        samples: list[float] = []
        until = time.perf_counter() + seconds
        while len(samples) < 21 and (len(samples) < 3 or time.perf_counter() < until):
            samples.append((await timed(action))[0])
        found[key] = microseconds(samples)
    return found


async def search_once(store: Any) -> dict[str, Any]:
    """Search once, which makes the index where it is made when it is needed."""
    await store.search(WORDS, 20)
    return {}


async def nothing(_: Any) -> dict[str, Any]:
    """Only open and close: the store is there."""
    return {}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


WORK = {
    "check": check, "build-lists": build_lists, "append": append, "append-new": append_new,
    "append-only": append_only, "together": together,
    "process": process, "find": find, "search": search_once, "open": nothing,
}  # fmt: skip


async def main() -> None:
    name, place, work, *numbers = sys.argv[1:]
    kind = make(name)
    if work == "load":
        found = await load(name, place, int(numbers[0]))
    else:
        await kind.open(place)
        try:
            if work == "build":
                found = await build(kind, numbers[0], int(numbers[1]), int(numbers[2]))
            else:
                found = await WORK[work](kind, *map(int, numbers))
        finally:
            await kind.close()
    print(json.dumps({**found, "durability": kind.durability, "tasks": kind.tasks}))


if __name__ == "__main__":
    asyncio.run(main())
