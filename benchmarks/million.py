"""A store of 1,000,000 messages in 10,000 sessions, created once and used by several benchmarks.

Concurrent tasks write the messages through the library; only the sync to disk after each commit is off while the file
is created. The lengths of the sessions vary. Channels, models, titles, pins and archived sessions are spread over
them, and some sessions have delegates.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from typing import Any

import recollect
from data import turns

SESSIONS = 10_000  # sessions. Several years of a frequent user.
MESSAGES = 1_000_000  # messages. The size at which lists and searches must still be fast.
_MODELS = ("small-1", "medium-1", "large-1", "large-2")
_CHANNELS = ("cli", "web", "discord", "telegram")
_SUBJECTS = ("garden", "kitchen", "Örebro", "éclair", "taxes", "compiler", "Zürich", "music", "index", "backup")
_TASKS = 64  # tasks that write concurrently, so that one commit contains the writes of many
_BATCH = 200  # messages per append


def create_if_missing(path: str, *, sessions: int = SESSIONS, messages: int = MESSAGES) -> str:
    """Create the store if it does not exist, and return its path."""
    if not os.path.exists(path):
        asyncio.run(_create(path, sessions, messages))
    return path


async def _create(path: str, sessions: int, messages: int) -> None:
    temporary_path = f"{path}.part"
    data = [message for turn in turns(3_000, seed=7) for message in turn]
    async with recollect.open_async(temporary_path) as store:
        # Only for this file: after a power failure, the benchmark can create it again.
        store._engine._file.writer.execute("PRAGMA synchronous = OFF")  # type: ignore[union-attr] # noqa: SLF001
        numbers = iter(range(sessions))
        lengths = _lengths(sessions, messages)
        await asyncio.gather(*(_task(store, numbers, lengths, data) for _ in range(_TASKS)))
    os.rename(temporary_path, path)


def _lengths(sessions: int, messages: int) -> list[int]:
    """Return the length of each session: most are short, a few are very long."""
    generator = random.Random(3)
    weights = [generator.paretovariate(1.5) for _ in range(sessions)]
    total = sum(weights)
    lengths = [max(int(messages * weight / total), 1) for weight in weights]
    lengths[0] += messages - sum(lengths)
    return lengths


async def _task(store: Any, numbers: Any, lengths: list[int], data: list[Any]) -> None:
    for number in numbers:
        generator = random.Random(number)
        name, parent = f"{_CHANNELS[number % 4]}:{number}", None
        if number % 20 == 19:
            parent = f"{_CHANNELS[(number - 1) % 4]}:{number - 1}"
            name = f"{parent}:delegate:coder"
        session = await store.session(
            name, parent=parent, title=None if number % 10 == 3 else f"{generator.choice(_SUBJECTS)} {number}",
            model=_MODELS[number % 4], pinned=number % 500 == 5, archived=number % 50 == 7,
        )  # fmt: skip
        remaining, start = lengths[number], generator.randrange(len(data))
        while remaining > 0:
            batch = (data + data)[start : start + min(remaining, _BATCH)]
            await session.append(batch, format="openai")
            remaining, start = remaining - len(batch), (start + len(batch)) % len(data)


def store_from_arguments(description: str | None) -> str:
    """Create the store of the command line arguments if it does not exist, and return its path."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--path", default=os.path.join(tempfile.gettempdir(), "recollect-million.db"))
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    options = parser.parse_args()
    return create_if_missing(options.path, sessions=options.sessions, messages=options.messages)


def main() -> None:
    """Create the store and print its size."""
    started = time.perf_counter()
    path = store_from_arguments(__doc__)
    print(f"{os.path.getsize(path):,} bytes, created in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
