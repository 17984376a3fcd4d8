"""Functions that measure time: of one action, the best of several, and the rate of concurrent tasks."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

import recollect
from data import Turn


def time_action(action: Callable[[], Any]) -> float:
    """Return the seconds that an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def best(action: Callable[[], Any], times: int = 7) -> float:
    """Return the shortest of several times, in seconds."""
    gc.collect()
    return min(time_action(action) for _ in range(times))


async def turns_per_second(path_or_url: str, data: list[Turn], count: int, prefix: str = "task") -> float:
    """Append turns from `count` concurrent tasks, each in its own session, and check that none is lost."""
    async with recollect.open_async(path_or_url) as store:
        sessions = [await store.session(f"{prefix}:{number}") for number in range(count)]

        async def work(number: int) -> None:
            for turn in data[number::count]:
                await sessions[number].append(turn)

        started = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(count)))
        seconds = time.perf_counter() - started
        for number, session in enumerate(sessions):
            await session.refresh()
            expected = sum(len(turn) for turn in data[number::count])
            assert session.message_count == expected, "a turn is missing"
    return len(data) / seconds
