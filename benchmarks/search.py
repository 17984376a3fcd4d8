"""Search in a store with 1,000,000 messages in 10,000 sessions, and what the index costs an append."""

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
from million import asked_for

_TIMES = 31
_APPENDS = 2_000
_EVERY = 50
KINDS: dict[str, Callable[[str, str], str]] = {
    "two words": lambda one, other: f"{one} {other}",
    "either of two": lambda one, other: f"{one} OR {other}",
    "two in a row": lambda one, other: f'"{one} {other}"',
    "three in a row": lambda one, other: f'"{one} {other} {one}"',
    "one without another": lambda one, other: f"{one} -{other}",
    "two words of a person": lambda one, other: f"role:user {one} {other}",
    "two words, since a time": lambda one, other: f"after:2020 {one} {other}",
    "a piece of a word": lambda one, _: one[1:],
    "no such word": lambda one, other: f"{one}{other}zz",
}


def main() -> None:
    """Index the store, search in it, and append beside searches."""
    path = asked_for(__doc__)
    with recollect.open(path) as store:
        before, begun = os.path.getsize(path), time.perf_counter()
        count = store.index()
        print(f"indexed {count:,} messages in {time.perf_counter() - begun:.0f} s")
        print(f"the file grew to {os.path.getsize(path) / before:.2f} of its size")
        _searches(store)
    print(f"append with the index kept / without: {_appends():.2f}")


def _searches(store: recollect.Store) -> None:
    words = sorted({word for turn in turns(50, seed=1) for said in turn for word in str(said["content"]).split()})
    pairs = list(itertools.permutations(words, 2))
    random.Random(5).shuffle(pairs)
    print(f"{'a page of 20 with snippets, milliseconds':<42} {'median':>8} {'slowest':>8}")
    for name, write in KINDS.items():
        taken: list[float] = []
        for one, other in pairs[:_TIMES]:
            begun = time.perf_counter()
            store.search(write(one, other))
            taken.append((time.perf_counter() - begun) * 1_000)
        print(f"{name:<42} {statistics.median(taken):>8.1f} {max(taken):>8.1f}", flush=True)


def _appends() -> float:
    """Append turns to two stores by turns, one of which is searched now and then; give the ratio of the medians."""
    with tempfile.TemporaryDirectory() as folder:
        kept, plain = (recollect.open(os.path.join(folder, name)) for name in ("kept.db", "plain.db"))
        taken: dict[str, list[float]] = {"kept": [], "plain": []}
        sessions = {"kept": kept.session("a"), "plain": plain.session("a")}
        for number, turn in enumerate(turns(_APPENDS)):
            for name in ("kept", "plain") if number % 2 else ("plain", "kept"):
                begun = time.perf_counter()
                sessions[name].append(turn, format="openai")
                taken[name].append(time.perf_counter() - begun)
            if number % _EVERY == 0:
                kept.index()
        kept.close()
        plain.close()
        return statistics.median(taken["kept"]) / statistics.median(taken["plain"])


if __name__ == "__main__":
    main()
