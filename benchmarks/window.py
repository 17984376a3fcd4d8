"""The time to fit a long conversation to a token budget, relative to loading all of it.

    python benchmarks/window.py

A session of 10,000 messages is fitted to 100,000 tokens. Token counts are stored, so older messages are neither read
nor counted again.
"""

from __future__ import annotations

import tempfile

import recollect
from data import turns
from timing import best

BUDGET = 100_000  # tokens, about the window of a current model


def fill(session: recollect.Session, count: int) -> None:
    remaining = count
    for turn in turns(count):
        session.append(turn)
        remaining -= len(turn)
        if remaining <= 0:
            return


def measure(store: recollect.Store, count: int) -> None:
    session = store.session(f"cli:{count}")
    fill(session, count)
    whole = best(lambda: session.history("openai"))
    history = session.history("openai", budget=BUDGET)
    seconds_by_name = {
        f"fit to {BUDGET:,} tokens ({len(history)} of {session.message_count} messages)": best(
            lambda: session.history("openai", budget=BUDGET)
        ),
        "the last 50 messages": best(lambda: session.history("openai", limit=50)),
    }
    session.compact(summary="So far.", keep_turns=50)
    seconds_by_name["after a compaction that keeps 50 turns"] = best(lambda: session.history("openai"))
    print(f"{count:,} messages, complete history: {whole * 1000:.1f} ms")
    for name, seconds in seconds_by_name.items():
        print(f"  {name}: ratio {seconds / whole:.3f} ({seconds * 1000:.2f} ms)")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, recollect.open(f"{folder}/recollect.db") as store:
        for count in (10_000, 40_000):
            measure(store, count)


if __name__ == "__main__":
    main()
