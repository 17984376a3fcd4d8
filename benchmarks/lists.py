"""Lists of a store with 1,000,000 messages in 10,000 sessions: milliseconds for a page, first and in the middle."""

from __future__ import annotations

import statistics
import time
from typing import Any

import recollect
from million import asked_for

_TIMES = 41
LISTS: dict[str, dict[str, Any]] = {
    "by activity": {},
    "by creation": {"order": "created"},
    "by title": {"order": "title"},
    "pinned first": {"pinned_first": True},
    "a channel": {"channel": "web"},
    "a model, by title": {"model": "large-2", "order": "title"},
    "archived": {"archived": True},
    "pinned": {"pinned": True},
    "a role": {"role": "tool"},
    "a tool": {"tool": "read_file"},
    "no such channel": {"channel": "none"},
    "no such tool": {"tool": "none"},
}


def main() -> None:
    """Measure each list."""
    path = asked_for(__doc__)
    with recollect.open(path) as store:
        print(f"{'a page of 50, milliseconds':<28} {'first':>8} {'middle':>8}")
        for name, arguments in LISTS.items():
            first = _timed(store, None, arguments)
            middle = _timed(store, _middle(store, arguments), arguments)
            print(f"{name:<28} {first:>8.2f} {middle:>8.2f}", flush=True)


def _timed(store: recollect.Store, after: str | None, arguments: dict[str, Any]) -> float:
    taken: list[float] = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        store.list_sessions(50, after=after, **arguments)
        taken.append(time.perf_counter() - begun)
        if sum(taken) > 5:
            break
    return statistics.median(taken) * 1_000


def _middle(store: recollect.Store, arguments: dict[str, Any]) -> str | None:
    """Find the place in the middle of a list."""
    places: list[str | None] = [None]
    while True:
        page = store.list_sessions(200, after=places[-1], **arguments)
        if page.next is None:
            return places[len(places) // 2]
        places.append(page.next)


if __name__ == "__main__":
    main()
