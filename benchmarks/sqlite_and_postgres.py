"""Lists and searches on PostgreSQL compared with a SQLite file: `python benchmarks/sqlite_and_postgres.py FILE URL`.

million.py creates FILE. URL is a database on this machine with a copy of it (`recollect db copy FILE URL`). Both are
indexed first. The values are CPU times of this process and the server's process for its connection, so that other
processes affect them little. For a list: the minimum of 25 runs of 8 pages. For a search: the minimum of two runs, then
the median and the maximum of seven queries.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Callable
from typing import Any

import recollect
from cpu_time import CpuTimer
from data import turns
from lists import LISTS
from search import KINDS

_RUNS, _PAGES = 25, 8  # runs per list, and pages per run
_MAX_TIME = 5_000  # milliseconds of CPU time per list. A slow list gets fewer runs.
_QUERIES = 7  # queries per kind of search
_LATER_PAGE = 50  # pages before the page that is measured as "later"
_MORE: dict[str, Callable[[str, str], str]] = {
    "one word": lambda one, _: one,
    "two words, filter by channel": lambda one, other: f"channel:web {one} {other}",
    "a prefix": lambda one, _: f"{one[:-1]}*",
}
Pair = tuple[recollect.Store, recollect.Store]


def main() -> None:
    """Measure lists and searches, or those that an option selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("url")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--search", action="store_true")
    options = parser.parse_args()
    with recollect.open(options.file) as file, recollect.open(options.url) as server:
        for store in (file, server):
            store.maintenance.index()
        if options.lists or not options.search:
            _lists((file, server))
        if options.search or not options.lists:
            _searches((file, server))


def _lists(stores: Pair) -> None:
    print(f"{'a page of 50, milliseconds of CPU time':<44} {'file':>8} {'server':>8} {'ratio':>6}")
    for name, arguments in LISTS.items():
        for page in ("first", "later"):
            after = [None if page == "first" else _later_cursor(store, arguments) for store in stores]
            calls = [_page(*each, arguments) for each in zip(stores, after, strict=True)]
            times = _minimum_times(stores, calls)
            print(f"{f'{name}, {page}':<44} {times[0]:8.3f} {times[1]:8.3f} {times[1] / times[0]:6.2f}", flush=True)


def _page(store: recollect.Store, after: str | None, arguments: dict[str, Any]) -> Callable[[], Any]:
    return lambda: store.list_sessions(50, after=after, **arguments)


def _minimum_times(stores: Pair, calls: list[Callable[[], Any]]) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    timers = [CpuTimer(store) for store in stores]
    for call in calls * 2:
        call()
    for _ in range(_RUNS):
        for number, call in enumerate(calls):
            times[number].append(timers[number].measure(call, _PAGES))
        if sum(map(sum, times)) * _PAGES > _MAX_TIME:
            break
    return [min(each) for each in times]


def _later_cursor(store: recollect.Store, arguments: dict[str, Any]) -> str | None:
    after = None
    for _ in range(_LATER_PAGE):
        page = store.list_sessions(50, after=after, **arguments)
        if page.next is None:
            break
        after = page.next
    return after


def _searches(stores: Pair) -> None:
    words = sorted({word for turn in turns(50, seed=1) for message in turn for word in str(message["content"]).split()})
    pairs = list(itertools.permutations(words, 2))
    random.Random(5).shuffle(pairs)
    print(f"{'a page of 20, milliseconds of CPU time':<44} {'file':>8} {'server':>8} {'ratio':>6} {'worst':>6}")
    for name, write in {**KINDS, **_MORE}.items():
        times: list[list[float]] = []
        for one, other in pairs[:_QUERIES]:
            query = write(one, other)
            times.append([_minimum_time(store, query) for store in stores])
        file, server = (statistics.median(each) for each in zip(*times, strict=True))
        ratios = sorted(theirs / ours for ours, theirs in times)
        print(f"{name:<44} {file:8.1f} {server:8.1f} {statistics.median(ratios):6.2f} {ratios[-1]:6.2f}", flush=True)


def _minimum_time(store: recollect.Store, query: str) -> float:
    timer = CpuTimer(store)
    return min(timer.measure(lambda: store.search(query)) for _ in range(2))


if __name__ == "__main__":
    main()
