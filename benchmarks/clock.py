"""Taking times: of an action, the best of several, and of many tasks at once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

import recollect
from data import Turn


def timed(action: Callable[[], Any]) -> float:
    """Give how many seconds an action took."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def best(action: Callable[[], Any], times: int = 7) -> float:
    """Give the shortest of several times."""
    gc.collect()
    return min(timed(action) for _ in range(times))


async def turns_per_second(place: str, data: list[Turn], count: int, prefix: str = "task") -> float:
    """Append turns by so many tasks at once, each in its own session, and look that none was lost."""
    async with recollect.open_async(place) as store:
        sessions = [await store.session(f"{prefix}:{number}") for number in range(count)]

        async def work(number: int) -> None:
            for turn in data[number::count]:
                await sessions[number].append(turn)

        begun = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(count)))
        taken = time.perf_counter() - begun
        for number, session in enumerate(sessions):
            await session.refresh()
            expected = sum(len(turn) for turn in data[number::count])
            assert session.message_count == expected, "a turn was lost"
    return len(data) / taken
