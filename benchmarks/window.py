"""What it costs to fit a long conversation to a budget, against loading all of it.

    python benchmarks/window.py

A session of 10,000 messages is fitted to 100,000 tokens. Counts are stored: the past is neither read nor counted again.
"""

from __future__ import annotations

import tempfile

import recollect
from clock import best
from data import turns

BUDGET = 100_000


def fill(session: recollect.Session, count: int) -> None:
    left = count
    for turn in turns(count):
        session.append(turn)
        left -= len(turn)
        if left <= 0:
            return


def measure(store: recollect.Store, count: int) -> None:
    session = store.session(f"cli:{count}")
    fill(session, count)
    whole = best(lambda: session.history("openai"))
    fitted = session.history("openai", budget=BUDGET)
    figures = {
        f"fit to {BUDGET:,} tokens ({len(fitted)} of {session.message_count} messages)": best(
            lambda: session.history("openai", budget=BUDGET)
        ),
        "the last 50 messages": best(lambda: session.history("openai", limit=50)),
    }
    session.compact(summary="So far.", keep_turns=50)
    figures["after a compaction that left 50 turns"] = best(lambda: session.history("openai"))
    print(f"{count:,} messages, all of them: {whole * 1000:.1f} ms")
    for name, seconds in figures.items():
        print(f"  {name}: {seconds / whole:.3f} of it ({seconds * 1000:.2f} ms)")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, recollect.open(f"{folder}/talks.db") as store:
        for count in (10_000, 40_000):
            measure(store, count)


if __name__ == "__main__":
    main()
