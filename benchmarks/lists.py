"""Lists of a store of 1,000,000 messages in 10,000 sessions: milliseconds for the first and the middle page."""

from __future__ import annotations

import statistics
import time
from typing import Any

import recollect
from million import store_from_arguments

_RUNS = 41  # runs per page, or as many as fit into 5 seconds; the median is printed
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
    "unused channel": {"channel": "none"},
    "unused tool": {"tool": "none"},
}


def main() -> None:
    """Measure each list."""
    path = store_from_arguments(__doc__)
    with recollect.open(path) as store:
        print(f"{'a page of 50, milliseconds':<28} {'first':>8} {'middle':>8}")
        for name, arguments in LISTS.items():
            first = _page_time(store, None, arguments)
            middle = _page_time(store, _middle_cursor(store, arguments), arguments)
            print(f"{name:<28} {first:>8.2f} {middle:>8.2f}", flush=True)


def _page_time(store: recollect.Store, after: str | None, arguments: dict[str, Any]) -> float:
    times: list[float] = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        store.list_sessions(50, after=after, **arguments)
        times.append(time.perf_counter() - started)
        if sum(times) > 5:
            break
    return statistics.median(times) * 1_000


def _middle_cursor(store: recollect.Store, arguments: dict[str, Any]) -> str | None:
    """Return the cursor in the middle of a list."""
    cursors: list[str | None] = [None]
    while True:
        page = store.list_sessions(200, after=cursors[-1], **arguments)
        if page.next is None:
            return cursors[len(cursors) // 2]
        cursors.append(page.next)


if __name__ == "__main__":
    main()
