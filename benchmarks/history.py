"""What a long history costs in the format it came in, against raw sqlite3 and json.loads measured in the same run.

    python benchmarks/history.py [--messages 10000]

A session of each format is read whole, as dicts. The baseline reads the same dicts from one table and parses each.
Both sides take turns, and the time of the processor is measured, so that other work on the machine does not count; a
figure is a ratio of the best times.
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
from raw import Raw
from recollect import formats
from recollect.model.message import Message

ROUNDS = 25
BATCH = 500


def talk(format: str, count: int) -> list[dict[str, Any]]:
    """Make a conversation in a format: generated turns, translated."""
    messages = list(itertools.islice(itertools.chain.from_iterable(turns(count)), count))
    if format == "openai":
        return messages
    placed = [
        Message(branch=1, position=place, role=draft.role, parts=draft.parts, format=draft.format, created_at=0)
        for place, draft in enumerate(formats.read(messages), 1)
    ]
    return formats.write(placed, format)


def compared(folder: str, format: str, count: int) -> tuple[float, float, float]:
    """Read one session in both: the ratio, and the best times in milliseconds."""
    given = talk(format, count)
    raw, store = Raw(f"{folder}/raw-{format}.db"), recollect.open(f"{folder}/ours-{format}.db")
    session = store.session("a:long")
    position = 0
    for start in range(0, len(given), BATCH):
        some = given[start : start + BATCH]
        position = raw.append("a:long", position, [{"role": "item", **message} for message in some])
        session.append(some, format=format)
    assert list(session.history(format)) == given, "the history is not what went in"
    theirs, ours = _in_turn([lambda: raw.load("a:long"), lambda: session.history(format)])
    store.close()
    raw.close()
    return ours / theirs, ours * 1_000, theirs * 1_000


def _in_turn(actions: Sequence[Callable[[], Any]]) -> list[float]:
    best = [float("inf")] * len(actions)
    for _ in range(ROUNDS):
        for index, action in enumerate(actions):
            gc.collect()
            begun = time.process_time()
            action()
            best[index] = min(best[index], time.process_time() - begun)
    return best


def main() -> None:
    """Measure every provider's format and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="recollect-bench-")
    try:
        for format in ("openai", "anthropic", "openai-responses", "ai-sdk", "ai-sdk-ui"):
            ratio, ours, theirs = compared(folder, format, options.messages)
            name = f"history of {options.messages:,} messages, {format}"
            print(f"{name:<48} {ratio:>6.2f}   {ours:.0f} ms / {theirs:.0f} ms   at most 1.00 x raw", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
