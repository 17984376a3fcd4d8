"""Search in a store of 1,000,000 messages in 10,000 sessions, and the cost of the search index for an append."""

from __future__ import annotations

import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable

import recollect
from data import turns
from million import store_from_arguments

_QUERIES = 31  # queries per kind of search; the median and the maximum are printed
_APPENDS = 2_000  # turns per store
_INDEX_INTERVAL = 50  # turns between two updates of the index
KINDS: dict[str, Callable[[str, str], str]] = {
    "two words": lambda one, other: f"{one} {other}",
    "one of two words (OR)": lambda one, other: f"{one} OR {other}",
    "phrase of two words": lambda one, other: f'"{one} {other}"',
    "phrase of three words": lambda one, other: f'"{one} {other} {one}"',
    "one word, NOT another": lambda one, other: f"{one} -{other}",
    "two words, filter by user role": lambda one, other: f"role:user {one} {other}",
    "two words, filter by time": lambda one, other: f"after:2020 {one} {other}",
    "a substring of a word": lambda one, _: one[1:],
    "a word without hits": lambda one, other: f"{one}{other}zz",
}


def main() -> None:
    """Index the store, search in it, and measure appends with and without an index."""
    path = store_from_arguments(__doc__)
    with recollect.open(path) as store:
        before, started = os.path.getsize(path), time.perf_counter()
        count = store.maintenance.index()
        print(f"indexed {count:,} messages in {time.perf_counter() - started:.0f} s")
        print(f"file size after / before indexing: {os.path.getsize(path) / before:.2f}")
        _searches(store)
    print(f"append with regular indexing / without: {_appends():.2f}")


def _searches(store: recollect.Store) -> None:
    words = sorted({word for turn in turns(50, seed=1) for message in turn for word in str(message["content"]).split()})
    pairs = list(itertools.permutations(words, 2))
    random.Random(5).shuffle(pairs)
    print(f"{'a page of 20 with snippets, milliseconds':<42} {'median':>8} {'slowest':>8}")
    for name, write in KINDS.items():
        times: list[float] = []
        for one, other in pairs[:_QUERIES]:
            started = time.perf_counter()
            store.search(write(one, other))
            times.append((time.perf_counter() - started) * 1_000)
        print(f"{name:<42} {statistics.median(times):>8.1f} {max(times):>8.1f}", flush=True)


def _appends() -> float:
    """Append turns to two stores alternately, one of which is indexed regularly; return the ratio of the medians."""
    with tempfile.TemporaryDirectory() as folder:
        indexed_store, plain_store = (recollect.open(os.path.join(folder, name)) for name in ("indexed.db", "plain.db"))
        times: dict[str, list[float]] = {"indexed": [], "plain": []}
        sessions = {"indexed": indexed_store.session("a"), "plain": plain_store.session("a")}
        for number, turn in enumerate(turns(_APPENDS)):
            for name in ("indexed", "plain") if number % 2 else ("plain", "indexed"):
                started = time.perf_counter()
                sessions[name].append(turn, format="openai")
                times[name].append(time.perf_counter() - started)
            if number % _INDEX_INTERVAL == 0:
                indexed_store.maintenance.index()
        indexed_store.close()
        plain_store.close()
        return statistics.median(times["indexed"]) / statistics.median(times["plain"])


if __name__ == "__main__":
    main()
