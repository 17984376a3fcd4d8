"""A store of 1,000,000 messages in 10,000 sessions, made once and used by several measurements.

The messages are written through the library, by many tasks whose commits are joined; only the sync of the disk after
each commit is left out while the file is made. Lengths of sessions vary; channels, models, titles, pins and archives
are spread over them, and some sessions have sub-agents.
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

SESSIONS = 10_000
MESSAGES = 1_000_000
_MODELS = ("small-1", "medium-1", "large-1", "large-2")
_CHANNELS = ("cli", "web", "discord", "telegram")
_SUBJECTS = ("garden", "kitchen", "Örebro", "éclair", "taxes", "compiler", "Zürich", "music", "index", "backup")
_TASKS = 64
_AT_ONCE = 200


def made(path: str, *, sessions: int = SESSIONS, messages: int = MESSAGES) -> str:
    """Make the store, unless it is there already, and give its path."""
    if not os.path.exists(path):
        asyncio.run(_make(path, sessions, messages))
    return path


async def _make(path: str, sessions: int, messages: int) -> None:
    part = f"{path}.part"
    data = [message for turn in turns(3_000, seed=7) for message in turn]
    async with recollect.open_async(part) as store:
        # Only here: a file that is being made for a measurement may be lost with the power.
        store._engine._file.writer.execute("PRAGMA synchronous = OFF")  # type: ignore[union-attr] # noqa: SLF001
        numbers = iter(range(sessions))
        lengths = _lengths(sessions, messages)
        await asyncio.gather(*(_task(store, numbers, lengths, data) for _ in range(_TASKS)))
    os.rename(part, path)


def _lengths(sessions: int, messages: int) -> list[int]:
    """Spread the messages unevenly: most sessions are short, a few are very long."""
    generator = random.Random(3)
    weights = [generator.paretovariate(1.5) for _ in range(sessions)]
    whole = sum(weights)
    lengths = [max(int(messages * weight / whole), 1) for weight in weights]
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
        left, at = lengths[number], generator.randrange(len(data))
        while left > 0:
            some = (data + data)[at : at + min(left, _AT_ONCE)]
            await session.append(some, format="openai")
            left, at = left - len(some), (at + len(some)) % len(data)


def asked_for(description: str | None) -> str:
    """Make the store that the command line names, unless it is there already, and give its path."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--path", default=os.path.join(tempfile.gettempdir(), "recollect-million.db"))
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    options = parser.parse_args()
    return made(options.path, sessions=options.sessions, messages=options.messages)


def main() -> None:
    """Make the store where it is asked for."""
    begun = time.perf_counter()
    path = asked_for(__doc__)
    print(f"{os.path.getsize(path):,} bytes, made in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
