"""What a message costs a PostgreSQL server: bytes by table, write-ahead log, rates; and from that, larger stores.

    python benchmarks/sizing.py [--messages 100000,300000] [--url postgresql://...]

It fills a store of its own server and measures at each count of messages, then prints what follows for larger ones.
Bytes do not depend on syncing to the disk, which is off while the store is filled and on for the rates of writing. The
text is drawn from 50,000 words of which few are common, as in a language. Figures in docs/cluster.md.
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

EACH = 100  # messages of a session
TASKS = 64
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
    """What was measured at a count of messages."""

    messages: int
    turns: int
    sizes: dict[str, tuple[int, int, int]]
    searching: dict[str, tuple[int, int, int]]
    log: float
    log_index: float
    rate: float
    rate_one: float
    rate_index: float


def text(generator: random.Random, length: int) -> str:
    """Make a text of about a length."""
    starts = generator.choices(range(0, 50_000, 100), weights=_WEIGHTS, k=length // 6 + 1)
    return " ".join(_WORDS[start + int(100 * generator.random() ** 2)] for start in starts)[:length]


def turns(generator: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Make turns without end: 200 characters, 800 characters, and in 40% of them a tool's result of 1,000 to 8,000."""
    number = 0
    while True:
        number += 1
        turn: list[dict[str, Any]] = [{"role": "user", "content": text(generator, 200)}]
        if generator.random() < 0.4:
            called = {"name": "read_file", "arguments": f'{{"path": "{text(generator, 20)}"}}'}
            call = {"id": f"call_{number}", "type": "function", "function": called}
            turn.append({"role": "assistant", "content": None, "tool_calls": [call]})
            answer = text(generator, generator.randint(1_000, 8_000))
            turn.append({"role": "tool", "tool_call_id": call["id"], "content": answer})
        turn.append({"role": "assistant", "content": text(generator, 800)})
        yield turn


async def fill(url: str, first: int, last: int) -> tuple[int, float]:
    """Write sessions up to a count of messages, many at once: the number of turns, and how many in a second."""
    written = count = 0
    async with recollect.open_async(url) as store:

        async def work(number: int) -> None:
            nonlocal written, count
            data = turns(random.Random(f"{first} {number}"))
            while written < last - first:
                session = await store.session()
                messages = 0
                while messages < EACH:
                    turn = next(data)
                    messages += len(turn)
                    written += len(turn)
                    count += 1
                    await session.save_turn(turn[0], turn[1:])

        begun = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(TASKS)))
        return count, count / (time.perf_counter() - begun)


def one_by_one(url: str, count: int) -> float:
    """Give how many turns one connection saves in a second."""
    data = turns(random.Random(count))
    with recollect.open(url) as store:
        session = store.session()
        begun = time.perf_counter()
        for _, turn in zip(range(count), data, strict=False):
            session.save_turn(turn[0], turn[1:])
        return count / (time.perf_counter() - begun)


def logged(admin: psycopg.Connection[Any], work: Callable[[], Any]) -> tuple[Any, int, float]:
    """Do something, and give the bytes of log and the seconds that it took."""
    before, begun = _one(admin, "SELECT pg_current_wal_lsn()"), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begun
    return result, int(_one(admin, "SELECT pg_current_wal_lsn() - %s::pg_lsn", before)), seconds


def measure(url: str, admin: psycopg.Connection[Any], so_far: int, wanted: int) -> Point:
    """Fill the store up to a count of messages, then index it, and measure both."""
    _sync(admin, "off")
    (count, _), log, _ = logged(admin, lambda: asyncio.run(fill(url, so_far, wanted)))
    _sync(admin, "on")
    _, rate = asyncio.run(fill(url, wanted, wanted + TASKS * EACH))
    alone = one_by_one(url, 300)
    _sync(admin, "off")
    admin.execute("VACUUM ANALYZE")
    plain = _sizes(admin)
    before = _one(admin, "SELECT count(*) FROM recollect.search_index")
    with recollect.open(url, timeout=3600) as store:
        _, log_index, seconds = logged(admin, lambda: store.search("anything"))
    indexed = _one(admin, "SELECT count(*) FROM recollect.search_index") - before
    admin.execute("VACUUM ANALYZE")
    messages = _one(admin, "SELECT count(*) FROM recollect.messages")
    return Point(
        messages, count, plain, _sizes(admin), log / count, log_index / indexed, rate, alone, indexed / seconds
    )


def _sync(admin: psycopg.Connection[Any], how: str) -> None:
    admin.execute(f"ALTER SYSTEM SET fsync = {how}".encode())
    admin.execute("SELECT pg_reload_conf()")


def _sizes(admin: psycopg.Connection[Any]) -> dict[str, tuple[int, int, int]]:
    return {name: (heap, toast, indexes) for name, heap, toast, indexes in admin.execute(_SIZES)}


def _one(admin: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    row = admin.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0]


def _searching(point: Point) -> int:
    return sum(sum(sizes) for name, sizes in point.searching.items() if name.startswith("search_"))


def _record(point: Point) -> int:
    return sum(sum(sizes) for name, sizes in point.sizes.items() if not name.startswith("search_"))


def report(points: list[Point]) -> None:
    """Print what was measured."""
    print("\n| messages | turns/s, 64 tasks | turns/s, one | log bytes/turn | bytes/message | with the search index |"
          " log bytes/message indexed | messages indexed/s |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for p in points:
        record, search = _record(p) / p.messages, _searching(p) / p.messages
        print(f"| {p.messages:,} | {p.rate:,.0f} | {p.rate_one:,.0f} | {p.log:,.0f} | {record:,.0f} |"
              f" {record + search:,.0f} | {p.log_index:,.0f} | {p.rate_index:,.0f} |")  # fmt: skip
    last = points[-1]
    print(f"\nAt {last.messages:,} messages, bytes for each:\n")
    print("| table | rows | long values | indexes |\n|---|---|---|---|")
    for name, sizes in last.searching.items():
        if sum(sizes) >= 8 * last.messages:
            print(f"| {name} | {' | '.join(f'{size / last.messages:,.1f}' for size in sizes)} |")


def larger(point: Point) -> None:
    """Print what larger stores would take, calculated from the last point."""
    record, search = _record(point) / point.messages, _searching(point) / point.messages
    keys = sum(sizes[2] for name, sizes in point.sizes.items() if not name.startswith("search_")) / point.messages
    print("\nCalculated from that:\n")
    print("| messages | tables and indexes | with the search index | keys alone |\n|---|---|---|---|")
    for count in LARGER:
        print(
            f"| {count:,} | {_shown(count * record)} | {_shown(count * (record + search))} | {_shown(count * keys)} |"
        )


def _shown(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def main() -> None:
    """Measure at each count and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", default="100000,300000", help="counts of messages to measure at")
    parser.add_argument("--url", help="an empty database to use, as a superuser")
    options = parser.parse_args()
    with server(options.url) as url:
        recollect.open(url).close()
        with psycopg.connect(url.replace("plain@", "postgres@"), autocommit=True) as admin:
            points: list[Point] = []
            for wanted in map(int, options.messages.split(",")):
                points.append(measure(url, admin, points[-1].messages if points else 0, wanted))
                report(points[-1:])
            report(points)
            larger(points[-1])
            print("\n| table | updates | of these in their page | dead rows |\n|---|---|---|---|")
            for name, updates, hot, dead in admin.execute(_UPDATES):
                print(f"| {name} | {updates:,} | {hot / updates:.0%} | {dead:,} |")


if __name__ == "__main__":
    main()
