"""The time to read a long history in its original format, relative to raw sqlite3 and json.loads in the same run.

    python benchmarks/history.py [--messages 10000]

The benchmark reads a complete session of each format as dicts. The baseline reads the same dicts from one table and
parses each. The two sides alternate. CPU time is measured, so that other processes affect it little; a value is the
ratio of the best times.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import recollect
from data import turns
from raw_sqlite import RawSqlite
from recollect import formats
from recollect.model.message import Message

ROUNDS = 25  # rounds per format. The best of fewer varied by several percent on a busy machine.
BATCH = 500  # messages per append. Only for filling, which is not measured.


def conversation(format: str, count: int) -> list[dict[str, Any]]:
    """Return generated turns as messages in a format."""
    messages = list(itertools.islice(itertools.chain.from_iterable(turns(count)), count))
    if format == "openai":
        return messages
    typed = [
        Message(branch=1, position=position, role=draft.role, parts=draft.parts, format=draft.format, created_at_ms=0)
        for position, draft in enumerate(formats.read(messages), 1)
    ]
    return formats.write(typed, format)


def compare_formats(folder: str, format: str, count: int) -> tuple[float, float, float]:
    """Read one session from both; return the ratio, and the best times in milliseconds."""
    messages = conversation(format, count)
    raw, store = RawSqlite(f"{folder}/raw-{format}.db"), recollect.open(f"{folder}/ours-{format}.db")
    session = store.session("a:long")
    position = 0
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        position = raw.append("a:long", position, [{"role": "item", **message} for message in batch])
        session.append(batch, format=format)
    assert list(session.history(format)) == messages, "the history differs from the stored messages"
    theirs, ours = _best_times([lambda: raw.load("a:long"), lambda: session.history(format)])
    store.close()
    raw.close()
    return ours / theirs, ours * 1_000, theirs * 1_000


def _best_times(actions: Sequence[Callable[[], Any]]) -> list[float]:
    best = [float("inf")] * len(actions)
    for _ in range(ROUNDS):
        for index, action in enumerate(actions):
            gc.collect()
            started = time.process_time()
            action()
            best[index] = min(best[index], time.process_time() - started)
    return best


def main() -> None:
    """Measure the format of each provider and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="recollect-bench-")
    try:
        for format in formats.PROVIDERS:
            ratio, ours, theirs = compare_formats(folder, format, options.messages)
            name = f"history of {options.messages:,} messages, {format}"
            print(f"{name:<48} {ratio:>6.2f}   {ours:.0f} ms / {theirs:.0f} ms   at most 1.00 x raw", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
