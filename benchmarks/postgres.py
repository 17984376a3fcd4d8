"""The speed of Recollect on PostgreSQL, relative to raw psycopg 3 on one table in the same run.

    python benchmarks/postgres.py [--quick] [--url postgresql://...]

Without --url, it starts a server like the tests, with fsync and synchronous_commit on. Every value is a ratio of
medians. Both sides store the same generated turns in alternating blocks, with a durable commit per turn.
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
from data import turns
from raw_postgres import RawPostgres
from timing import best, turns_per_second

ID = "0196f0f0-7e6b-7000-8000-000000000000"
BLOCK = 50  # turns per side before the other side continues, so that a slow phase of the machine affects both


def append_each(url: str, count: int, method: str, owner: str) -> tuple[float, float]:
    """Append turns in alternating blocks; return the ratio of the medians, and our median in microseconds."""
    data = list(turns(count))
    raw, store = RawPostgres(url), recollect.open(url, owner=owner)
    session = store.session(f"{ID}-{method}")
    theirs: list[float] = []
    ours: list[float] = []
    position = 0
    for start in range(0, count, BLOCK):
        block = data[start : start + BLOCK]
        for turn in block:
            started = time.perf_counter()
            position = raw.append(f"{method}{owner}", position, turn)
            theirs.append(time.perf_counter() - started)
        for turn in block:
            started = time.perf_counter()
            if method == "append":
                session.append(turn)
            else:
                session.save_turn(turn[0], turn[1:])
            ours.append(time.perf_counter() - started)
    store.close()
    raw.close()
    return statistics.median(ours) / statistics.median(theirs), statistics.median(ours) * 1e6


def load(url: str, messages: int) -> dict[str, float]:
    """Read a complete long session; return the ratio."""
    raw, store = RawPostgres(url), recollect.open(url)
    session = store.session(f"{ID}-load")
    position = 0
    for turn in turns(messages):
        if position >= messages:
            break
        raw.append("load", position, turn)
        session.append(turn)
        position += len(turn)
    ratios = {f"load of {position:,} messages, typed": best(session.messages, 9) / best(lambda: raw.load("load"), 9)}
    store.close()
    raw.close()
    return ratios


def tasks(url: str, count: int, each: int) -> float:
    """Compare concurrent tasks, each in its own session, with one raw connection; return the ratio of the rates."""
    data = list(turns(count * each))
    ratios: list[float] = []
    for run in range(3):
        raw = RawPostgres(url)
        half = data[: len(data) // 2]
        position = 0
        started = time.perf_counter()
        for turn in half:
            position = raw.append(f"tasks{run}", position, turn)
        theirs = len(half) / (time.perf_counter() - started)
        raw.close()
        ratios.append(asyncio.run(turns_per_second(url, data, count, f"task:{run}")) / theirs)
    return statistics.median(ratios)


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    """Yield the URL of a database: `url`, or a new database on a server that is started for it."""
    if url:
        yield url
        return
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
    from postgres_server import PostgresServer  # noqa: PLC0415

    own = PostgresServer("fsync=on", "synchronous_commit=on", "shared_buffers=256MB").start()
    try:
        with psycopg.connect(own.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE ROLE plain LOGIN")
            admin.execute("CREATE DATABASE recollect OWNER plain")
        yield own.url("recollect", "plain")
    finally:
        own.remove()


def _measurements(url: str, scale: int) -> Any:
    for method, owner in (("append", ""), ("append", "ann"), ("save_turn", "")):
        ratio, ours = append_each(url, 2_000 // scale, method, owner)
        label = f"append of a turn, p50, {method}(){' for an owner' if owner else ''}"
        yield label, ratio, "at most 1.30 x raw"
        yield "  microseconds", ours, ""
    yield "64 tasks, turns per second", tasks(url, 64, 40 // scale or 4), "at least 1.50 x raw"
    for name, ratio_value in load(url, 10_000 // scale).items():
        yield name, ratio_value, "at most 1.00 x raw"


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10% of the work, for a first look")
    parser.add_argument("--url", help="URL of an empty database (default: a new server)")
    options = parser.parse_args()
    with server(options.url) as url:
        for name, value, target in _measurements(url, 10 if options.quick else 1):
            print(f"{name:<48} {value:>8.2f}   {target}", flush=True)


if __name__ == "__main__":
    main()
