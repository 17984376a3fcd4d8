"""Measure one contender in this process: `python measure.py NAME LOCATION WORK [NUMBERS...]`; print JSON.

peers.py starts it. A measurement has a fixed duration instead of a fixed number of operations, so that a slow store
takes no longer than a fast one; a minimum number of operations always runs.
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
from contenders.contender import comparable_openai_message
from data import turns

LONG, MIDDLE, NEW, WARM = "bench:10000", "bench:1000", "bench:new", "bench:warm"
QUERY = "there would"


def microseconds(samples: list[float]) -> float:
    """Return the median in microseconds."""
    return statistics.median(samples) * 1e6


def conversation(messages: int) -> list[Any]:
    """Return turns with at least `messages` messages."""
    result: list[Any] = []
    count = 0
    for turn in turns(messages):
        result.append(turn)
        count += len(turn)
        if count >= messages:
            break
    return result


async def check(store: Any) -> dict[str, Any]:
    """Store turns one by one, in batches and from concurrent tasks; check that all messages can be read back."""
    data = list(turns(40))
    expected = [comparable_openai_message(message) for turn in data for message in turn]
    for turn in data:
        await store.append(NEW, turn)
    for start in range(0, len(data), store.batch):
        await store.fill(WARM, data[start : start + store.batch])
    await store.append_concurrently("bench:0", data[0])

    async def task(number: int) -> None:
        for turn in data[1:] if number == 0 else data:
            await store.append_concurrently(f"bench:{number}", turn)

    await asyncio.gather(*(task(number) for number in range(4)))
    for session in (NEW, WARM, *(f"bench:{number}" for number in range(4))):
        if store.comparable(await store.load(session)) != expected:
            raise SystemExit(f"the messages of {session} differ from the stored ones")
    last = await store.last(NEW, 50)
    if last is not None and store.comparable(last)[-10:] != expected[-10:]:
        raise SystemExit("last() does not return the last messages")
    return {"equal": True}


async def build(store: Any, session: str, messages: int, seconds: int) -> dict[str, Any]:
    """Prepare a long conversation in at most `seconds` seconds, which is not measured."""
    data = conversation(messages)
    deadline = time.perf_counter() + seconds
    for start in range(0, len(data), store.batch):
        await store.fill(session, data[start : start + store.batch])
        if time.perf_counter() > deadline and start + store.batch < len(data):
            return {"built": False}
    return {"built": True, "messages": sum(len(turn) for turn in data)}


async def build_lists(store: Any, sessions: int, seconds: int) -> dict[str, Any]:
    """Prepare one conversation for warming up, and many short ones if the store supports lists or searches."""
    deadline = time.perf_counter() + seconds
    first = True
    for number, turn in enumerate(turns(sessions)):
        await store.append(WARM if first else f"bench:list:{number}", turn)
        first = False
        if not (store.lists or store.searches):
            break
        if time.perf_counter() > deadline:
            return {"listed": number + 1}
    return {"listed": sessions}


class AppendSeries:
    """Stores turns in one conversation: as many as fit into some seconds, within a minimum and a maximum."""

    def __init__(self, store: Any, session: str, seconds: float, minimum: int, maximum: int) -> None:
        self.store, self.session = store, session
        self.remaining, self.minimum, self.maximum = seconds, minimum, maximum
        self.samples: list[float] = []
        self.turns = itertools.cycle(turns(200, seed=2))

    @property
    def done(self) -> bool:
        """Return whether the series is long enough."""
        count = len(self.samples)
        return count >= self.maximum or (self.remaining <= 0 and count >= self.minimum)

    async def warm(self) -> None:
        """Open the conversation and store a turn, which is not measured."""
        await self.store.append(self.session, next(self.turns))

    async def run(self, count: int) -> None:
        """Store up to `count` turns and measure each."""
        for turn in itertools.islice(self.turns, count):
            if self.done:
                return
            started = time.perf_counter()
            await self.store.append(self.session, turn)
            self.samples.append(time.perf_counter() - started)
            self.remaining -= self.samples[-1]


async def append(store: Any, seconds: int) -> dict[str, Any]:
    """Store turns one by one, alternating between a new conversation and the long one."""
    new, long = AppendSeries(store, NEW, seconds, 20, 200), AppendSeries(store, LONG, seconds, 3, 200)
    await new.warm()
    await long.warm()
    while not (new.done and long.done):
        await new.run(10)
        await long.run(10)
    at_start, at_end = microseconds(new.samples), microseconds(long.samples)
    return {
        "append_us": at_start, "append_long_us": at_end, "growth": at_end / at_start,
        "turns": len(new.samples), "turns_long": len(long.samples),
    }  # fmt: skip


async def append_new(store: Any, seconds: int) -> dict[str, Any]:
    """Store turns in a new conversation only, if a long one could not be prepared."""
    new = AppendSeries(store, NEW, seconds, 20, 200)
    await new.warm()
    await new.run(new.maximum)
    return {"append_us": microseconds(new.samples), "turns": len(new.samples)}


async def append_only(store: Any, seconds: int) -> dict[str, Any]:
    """Store turns in a new store and return their number of messages, for its size per message."""
    new = AppendSeries(store, NEW, seconds, 20, 1_000)
    while not new.done:
        await new.run(10)
    data = itertools.islice(itertools.cycle(turns(200, seed=2)), len(new.samples))
    return {"messages": sum(len(turn) for turn in data)}


async def append_concurrently(store: Any, tasks: int, seconds: int) -> dict[str, Any]:
    """Store turns from concurrent tasks, each in its own conversation; return the turns per second."""
    data = list(turns(100, seed=3))
    counts = [0] * tasks
    await store.append_concurrently("bench:0", data[0])
    await asyncio.gather(*(store.append_concurrently(f"bench:{number}", data[0]) for number in range(1, tasks)))

    async def task(number: int) -> None:
        for turn in itertools.cycle(data):
            if counts[number] >= 2 and time.perf_counter() >= deadline:
                return
            await store.append_concurrently(f"bench:{number}", turn)
            counts[number] += 1

    started = time.perf_counter()
    deadline = started + seconds
    await asyncio.gather(*(task(number) for number in range(tasks)))
    duration = time.perf_counter() - started
    return {"tasks_per_second": sum(counts) / duration, "tasks_turns": sum(counts), "tasks_seconds": duration}


async def process(store: Any, number: int, seconds: int) -> dict[str, Any]:
    """Run as one of several processes that write to one store."""
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


async def time_action(action: Any) -> tuple[float, Any]:
    """Run an action once; return its seconds and its result."""
    gc.collect()
    started = time.perf_counter()
    result = await action()
    return time.perf_counter() - started, result


async def load(name: str, location: str, seconds: int) -> dict[str, Any]:
    """Load conversations from a newly opened store, so that no store returns cached values."""
    samples: dict[str, list[float]] = {}
    deadline = time.perf_counter() + seconds
    peak = None
    while len(samples.get("load_10000_us", ())) < 5 and (peak is None or time.perf_counter() < deadline):
        store = make(name)
        await store.open(location)
        await store.load(WARM)
        for key, session in (("load_1000_us", MIDDLE), ("load_10000_us", LONG)):
            duration, messages = await time_action(lambda store=store, session=session: store.load(session))
            samples.setdefault(key, []).append(duration)
            del messages
        peak = peak or _peak()
        for first in (True, False, False, False, False, False):
            duration, messages = await time_action(lambda store=store: store.last(LONG, 50))
            if messages is not None and not first:
                samples.setdefault("last_us", []).append(duration)
        await store.close()
    return {
        **{key: microseconds(times) for key, times in samples.items()},
        "peak_kb": peak,
        "loads": len(samples["load_10000_us"]),
    }


async def find(store: Any, seconds: int) -> dict[str, Any]:
    """List the newest conversations and search all of them, if the store supports it."""
    result: dict[str, Any] = {}
    for key, available, action in (
        ("list_us", store.lists, lambda: store.list(50)),
        ("search_us", store.searches, lambda: store.search(QUERY, 20)),
    ):
        if not available:
            continue
        await action()
        samples: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(samples) < 21 and (len(samples) < 3 or time.perf_counter() < deadline):
            samples.append((await time_action(action))[0])
        result[key] = microseconds(samples)
    return result


async def search_once(store: Any) -> dict[str, Any]:
    """Search once, which builds the index in a store that builds it on demand."""
    await store.search(QUERY, 20)
    return {}


async def open_only(_: Any) -> dict[str, Any]:
    """Return nothing: opening and closing has created the store."""
    return {}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


WORK = {
    "check": check, "build-lists": build_lists, "append": append, "append-new": append_new,
    "append-only": append_only, "together": append_concurrently,
    "process": process, "find": find, "search": search_once, "open": open_only,
}  # fmt: skip


async def main() -> None:
    name, location, work, *numbers = sys.argv[1:]
    store = make(name)
    if work == "load":
        result = await load(name, location, int(numbers[0]))
    else:
        await store.open(location)
        try:
            if work == "build":
                result = await build(store, numbers[0], int(numbers[1]), int(numbers[2]))
            else:
                result = await WORK[work](store, *map(int, numbers))
        finally:
            await store.close()
    print(json.dumps({**result, "durability": store.durability, "tasks": store.tasks}))


if __name__ == "__main__":
    asyncio.run(main())
