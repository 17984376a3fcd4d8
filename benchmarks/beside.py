"""Lists and searches on PostgreSQL beside a file, on the same data: `python benchmarks/beside.py FILE URL`.

FILE is what million.py made, and URL a database that it was copied to (`recollect db copy FILE URL`), on a server of
this machine. Both are indexed first. What is compared is the time of the processor, of this process and of the server's
process for its connection, so that other work on the machine counts less. Of a list, 8 pages at a time, the least of
25 times; of a search, the lesser of two, and of seven queries the median and the worst.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Callable
from typing import Any

import recollect
from data import turns
from lists import LISTS
from processor import Processor
from search import KINDS

_TIMES, _PAGES = 25, 8
_LONG = 5_000
_QUERIES = 7
_FAR = 50
_MORE: dict[str, Callable[[str, str], str]] = {
    "one word": lambda one, _: one,
    "two words in a channel": lambda one, other: f"channel:web {one} {other}",
    "the beginning of a word": lambda one, _: f"{one[:-1]}*",
}
Pair = tuple[recollect.Store, recollect.Store]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("url")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--search", action="store_true")
    options = parser.parse_args()
    with recollect.open(options.file) as file, recollect.open(options.url) as server:
        for store in (file, server):
            store.index()
        if options.lists or not options.search:
            _lists((file, server))
        if options.search or not options.lists:
            _searches((file, server))


def _lists(stores: Pair) -> None:
    print(f"{'a page of 50, milliseconds of the processor':<44} {'file':>8} {'server':>8} {'ratio':>6}")
    for name, arguments in LISTS.items():
        for place in ("first", "later"):
            after = [None if place == "first" else _far(store, arguments) for store in stores]
            calls = [_page(*each, arguments) for each in zip(stores, after, strict=True)]
            taken = _least(stores, calls)
            print(f"{f'{name}, {place}':<44} {taken[0]:8.3f} {taken[1]:8.3f} {taken[1] / taken[0]:6.2f}", flush=True)


def _page(store: recollect.Store, after: str | None, arguments: dict[str, Any]) -> Callable[[], Any]:
    return lambda: store.list_sessions(50, after=after, **arguments)


def _least(stores: Pair, calls: list[Callable[[], Any]]) -> list[float]:
    taken: list[list[float]] = [[] for _ in calls]
    clocks = [Processor(store) for store in stores]
    for call in calls * 2:
        call()
    for _ in range(_TIMES):
        for number, call in enumerate(calls):
            taken[number].append(clocks[number].taken(call, _PAGES))
        if sum(map(sum, taken)) * _PAGES > _LONG:
            break
    return [min(each) for each in taken]


def _far(store: recollect.Store, arguments: dict[str, Any]) -> str | None:
    after = None
    for _ in range(_FAR):
        page = store.list_sessions(50, after=after, **arguments)
        if page.next is None:
            break
        after = page.next
    return after


def _searches(stores: Pair) -> None:
    words = sorted({word for turn in turns(50, seed=1) for said in turn for word in str(said["content"]).split()})
    pairs = list(itertools.permutations(words, 2))
    random.Random(5).shuffle(pairs)
    print(f"{'a page of 20, milliseconds of the processor':<44} {'file':>8} {'server':>8} {'ratio':>6} {'worst':>6}")
    for name, write in {**KINDS, **_MORE}.items():
        found: list[list[float]] = []
        for one, other in pairs[:_QUERIES]:
            typed = write(one, other)
            found.append([_lesser(store, typed) for store in stores])
        file, server = (statistics.median(each) for each in zip(*found, strict=True))
        ratios = sorted(theirs / ours for ours, theirs in found)
        print(f"{name:<44} {file:8.1f} {server:8.1f} {statistics.median(ratios):6.2f} {ratios[-1]:6.2f}", flush=True)


def _lesser(store: recollect.Store, typed: str) -> float:
    clock = Processor(store)
    return min(clock.taken(lambda: store.search(typed)) for _ in range(2))


if __name__ == "__main__":
    main()
