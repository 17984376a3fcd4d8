"""What PostgreSQL costs, against raw psycopg 3 on one table, measured in the same run.

    python benchmarks/postgres.py [--quick] [--url postgresql://...]

Without a URL it starts a server of its own, as the tests do, with fsync and synchronous_commit on. Every figure is a
ratio of medians. Both sides take the same generated turns and commit each turn durably, in alternating blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg

import recollect
from clock import best, turns_per_second
from data import turns
from raw_postgres import RawPostgres

ID = "0196f0f0-7e6b-7000-8000-000000000000"
BLOCK = 50


def append_each(url: str, count: int, way: str, owner: str) -> tuple[float, float]:
    """Append turn by turn, in alternating blocks: the ratio at p50, and ours in microseconds."""
    data = list(turns(count))
    raw, store = RawPostgres(url), recollect.open(url, owner=owner)
    session = store.session(f"{ID}-{way}")
    theirs: list[float] = []
    ours: list[float] = []
    position = 0
    for start in range(0, count, BLOCK):
        block = data[start : start + BLOCK]
        for turn in block:
            begun = time.perf_counter()
            position = raw.append(f"{way}{owner}", position, turn)
            theirs.append(time.perf_counter() - begun)
        for turn in block:
            begun = time.perf_counter()
            if way == "append":
                session.append(turn)
            else:
                session.save_turn(turn[0], turn[1:])
            ours.append(time.perf_counter() - begun)
    store.close()
    raw.close()
    return statistics.median(ours) / statistics.median(theirs), statistics.median(ours) * 1e6


def load(url: str, messages: int) -> dict[str, float]:
    """Read a long session whole, and its end."""
    raw, store = RawPostgres(url), recollect.open(url)
    session = store.session(f"{ID}-load")
    position = 0
    for turn in turns(messages):
        if position >= messages:
            break
        raw.append("load", position, turn)
        session.append(turn)
        position += len(turn)
    figures = {f"load of {position:,} messages, typed": best(session.messages, 9) / best(lambda: raw.load("load"), 9)}
    store.close()
    raw.close()
    return figures


def tasks(url: str, count: int, each: int) -> float:
    """Many tasks at once, each its own session, against one raw connection: the ratio of turns per second."""
    data = list(turns(count * each))
    ratios: list[float] = []
    for run in range(3):
        raw = RawPostgres(url)
        half = data[: len(data) // 2]
        position = 0
        begun = time.perf_counter()
        for turn in half:
            position = raw.append(f"tasks{run}", position, turn)
        theirs = len(half) / (time.perf_counter() - begun)
        raw.close()
        ratios.append(asyncio.run(turns_per_second(url, data, count, f"task:{run}")) / theirs)
    return statistics.median(ratios)


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    """Give the URL of a database: a new one on a server that is there, or on one of our own."""
    if url:
        yield url
        return
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
    from postgres_server import PostgresServer  # noqa: PLC0415

    own = PostgresServer("fsync=on", "synchronous_commit=on", "shared_buffers=256MB").start()
    try:
        with psycopg.connect(own.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE ROLE plain LOGIN")
            admin.execute("CREATE DATABASE talks OWNER plain")
        yield own.url("talks", "plain")
    finally:
        own.remove()


def _figures(url: str, scale: int) -> Any:
    for way, owner in (("append", ""), ("append", "ann"), ("save_turn", "")):
        ratio, ours = append_each(url, 2_000 // scale, way, owner)
        label = f"append of a turn, p50, {way}(){' for an owner' if owner else ''}"
        yield label, ratio, "at most 1.30 x raw"
        yield "  microseconds", ours, ""
    yield "64 tasks, turns per second", tasks(url, 64, 40 // scale or 4), "at least 1.50 x raw"
    for name, figure in load(url, 10_000 // scale).items():
        yield name, figure, "at most 1.00 x raw"


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--url", help="an empty database to use")
    options = parser.parse_args()
    with server(options.url) as url:
        for name, figure, target in _figures(url, 10 if options.quick else 1):
            print(f"{name:<48} {figure:>8.2f}   {target}", flush=True)


if __name__ == "__main__":
    main()
