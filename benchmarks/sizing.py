"""The cost of a message on a PostgreSQL server: bytes per table, WAL and rates, and estimates for larger stores.

    python benchmarks/sizing.py [--messages 100000,300000] [--url postgresql://...]

The benchmark fills a store on its own server, measures at each number of messages, and prints estimates for larger
stores. fsync is off while the store is filled, because it does not change the number of bytes, and on for the write
rates. The text has 50,000 distinct words with a distribution like that of a language. docs/explanation/sizing.md has
the results.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg

import recollect
from postgres import server

SESSION_LENGTH = 100  # messages per session, about the median of long conversations
TASKS = 64  # tasks that write concurrently, as in the other benchmarks
LARGER = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_SIZES = """
SELECT c.relname, pg_relation_size(c.oid), pg_table_size(c.oid) - pg_relation_size(c.oid), pg_indexes_size(c.oid)
FROM pg_class AS c WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r' ORDER BY 2 DESC
"""
_UPDATES = """
SELECT relname, n_tup_upd, n_tup_hot_upd, n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = 'recollect' AND n_tup_upd > 0 ORDER BY 2 DESC
"""
_WORDS = [f"{chr(97 + n % 26)}{n:x}" if n > 400 else "etaoinshrdlu"[n % 12] + f"{n:x}" for n in range(50_000)]
_WEIGHTS = [sum(1 / (rank + 3) for rank in range(first, first + 100)) for first in range(0, 50_000, 100)]


class Point(NamedTuple):
    """The measurements at one number of messages."""

    messages: int
    turns: int
    sizes: dict[str, tuple[int, int, int]]
    sizes_with_index: dict[str, tuple[int, int, int]]
    wal: float
    wal_index: float
    rate: float
    rate_one: float
    rate_index: float


def text(generator: random.Random, length: int) -> str:
    """Return a text of about a length."""
    starts = generator.choices(range(0, 50_000, 100), weights=_WEIGHTS, k=length // 6 + 1)
    return " ".join(_WORDS[start + int(100 * generator.random() ** 2)] for start in starts)[:length]


def turns(generator: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Yield turns forever: 200 and 800 characters, and in 40% of the turns a tool result of 1,000 to 8,000."""
    number = 0
    while True:
        number += 1
        turn: list[dict[str, Any]] = [{"role": "user", "content": text(generator, 200)}]
        if generator.random() < 0.4:
            function = {"name": "read_file", "arguments": f'{{"path": "{text(generator, 20)}"}}'}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            turn.append({"role": "assistant", "content": None, "tool_calls": [call]})
            result = text(generator, generator.randint(1_000, 8_000))
            turn.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        turn.append({"role": "assistant", "content": text(generator, 800)})
        yield turn


async def fill(url: str, first: int, last: int) -> tuple[int, float]:
    """Write sessions concurrently up to a number of messages; return the number of turns, and turns per second."""
    message_count = turn_count = 0
    async with recollect.open_async(url) as store:

        async def work(number: int) -> None:
            nonlocal message_count, turn_count
            data = turns(random.Random(f"{first} {number}"))
            while message_count < last - first:
                session = await store.session()
                messages = 0
                while messages < SESSION_LENGTH:
                    turn = next(data)
                    messages += len(turn)
                    message_count += len(turn)
                    turn_count += 1
                    await session.save_turn(turn[0], turn[1:])

        started = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(TASKS)))
        return turn_count, turn_count / (time.perf_counter() - started)


def one_by_one(url: str, count: int) -> float:
    """Return the turns per second that one connection saves."""
    data = turns(random.Random(count))
    with recollect.open(url) as store:
        session = store.session()
        started = time.perf_counter()
        for _, turn in zip(range(count), data, strict=False):
            session.save_turn(turn[0], turn[1:])
        return count / (time.perf_counter() - started)


def measure_wal(admin: psycopg.Connection[Any], work: Callable[[], Any]) -> tuple[Any, int, float]:
    """Run some work; return its result, its bytes of WAL and its seconds."""
    before, started = _one(admin, "SELECT pg_current_wal_lsn()"), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    return result, int(_one(admin, "SELECT pg_current_wal_lsn() - %s::pg_lsn", before)), seconds


def measure(url: str, admin: psycopg.Connection[Any], first: int, last: int) -> Point:
    """Fill the store up to a number of messages, then index it, and measure both."""
    _sync(admin, "off")
    (turn_count, _), wal, _ = measure_wal(admin, lambda: asyncio.run(fill(url, first, last)))
    _sync(admin, "on")
    _, rate = asyncio.run(fill(url, last, last + TASKS * SESSION_LENGTH))
    rate_one = one_by_one(url, 300)
    _sync(admin, "off")
    admin.execute("VACUUM ANALYZE")
    sizes = _sizes(admin)
    before = _one(admin, "SELECT count(*) FROM recollect.search_index")
    with recollect.open(url, timeout=3600) as store:
        _, wal_index, seconds = measure_wal(admin, lambda: store.search("anything"))
    indexed = _one(admin, "SELECT count(*) FROM recollect.search_index") - before
    admin.execute("VACUUM ANALYZE")
    messages = _one(admin, "SELECT count(*) FROM recollect.messages")
    return Point(
        messages,
        turn_count,
        sizes,
        _sizes(admin),
        wal / turn_count,
        wal_index / indexed,
        rate,
        rate_one,
        indexed / seconds,
    )


def _sync(admin: psycopg.Connection[Any], setting: str) -> None:
    admin.execute(f"ALTER SYSTEM SET fsync = {setting}".encode())
    admin.execute("SELECT pg_reload_conf()")


def _sizes(admin: psycopg.Connection[Any]) -> dict[str, tuple[int, int, int]]:
    return {name: (heap, toast, indexes) for name, heap, toast, indexes in admin.execute(_SIZES)}


def _one(admin: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    row = admin.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0]


def _index_bytes(point: Point) -> int:
    return sum(sum(sizes) for name, sizes in point.sizes_with_index.items() if name.startswith("search_"))


def _table_bytes(point: Point) -> int:
    return sum(sum(sizes) for name, sizes in point.sizes.items() if not name.startswith("search_"))


def report(points: list[Point]) -> None:
    """Print the measurements as tables."""
    print("\n| messages | turns/s, 64 tasks | turns/s, one connection | WAL bytes/turn | bytes/message |"
          " with the search index | WAL bytes/indexed message | indexed messages/s |\n"
          "|---|---|---|---|---|---|---|---|")  # fmt: skip
    for point in points:
        table_bytes, index_bytes = _table_bytes(point) / point.messages, _index_bytes(point) / point.messages
        print(f"| {point.messages:,} | {point.rate:,.0f} | {point.rate_one:,.0f} | {point.wal:,.0f} |"
              f" {table_bytes:,.0f} | {table_bytes + index_bytes:,.0f} | {point.wal_index:,.0f} |"
              f" {point.rate_index:,.0f} |")  # fmt: skip
    last = points[-1]
    print(f"\nAt {last.messages:,} messages, bytes per message:\n")
    print("| table | rows | TOAST | indexes |\n|---|---|---|---|")
    for name, sizes in last.sizes_with_index.items():
        if sum(sizes) >= 8 * last.messages:
            print(f"| {name} | {' | '.join(f'{size / last.messages:,.1f}' for size in sizes)} |")


def print_estimates(point: Point) -> None:
    """Print the estimated sizes of larger stores, calculated from the last measurement."""
    table_bytes, index_bytes = _table_bytes(point) / point.messages, _index_bytes(point) / point.messages
    key_bytes = sum(sizes[2] for name, sizes in point.sizes.items() if not name.startswith("search_")) / point.messages
    print("\nEstimates from these values:\n")
    print("| messages | tables and indexes | with the search index | indexes of the tables |\n|---|---|---|---|")
    for count in LARGER:
        sizes = (count * table_bytes, count * (table_bytes + index_bytes), count * key_bytes)
        print(f"| {count:,} | {' | '.join(map(_format_size, sizes))} |")


def _format_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def main() -> None:
    """Measure at each count and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--messages", default="100000,300000", help="numbers of messages at which to measure, separated by commas"
    )
    parser.add_argument("--url", help="URL of an empty database, for a superuser (default: a new server)")
    options = parser.parse_args()
    with server(options.url) as url:
        recollect.open(url).close()
        with psycopg.connect(url.replace("plain@", "postgres@"), autocommit=True) as admin:
            points: list[Point] = []
            for messages in map(int, options.messages.split(",")):
                points.append(measure(url, admin, points[-1].messages if points else 0, messages))
                report(points[-1:])
            report(points)
            print_estimates(points[-1])
            print("\n| table | updates | HOT updates | dead rows |\n|---|---|---|---|")
            for name, updates, hot, dead in admin.execute(_UPDATES):
                print(f"| {name} | {updates:,} | {hot / updates:.0%} | {dead:,} |")


if __name__ == "__main__":
    main()
