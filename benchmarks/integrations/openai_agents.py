"""RecollectSession next to the SDK's SQLiteSession: a turn, and the last 50 items, in a short and in a long session.

Both write to SQLite files in one folder, in WAL with a sync to disk per commit, in alternation. Run it in the
environment of the integration, which scripts/integrations creates:

    scripts/integrations openai_agents -k nothing
    .venv-openai_agents/bin/python benchmarks/integrations/openai_agents.py [--rounds N] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

from agents import SQLiteSession

import recollect
from recollect.integrations.openai_agents import RecollectSession

LONG = 5_000  # items of the long session
WARM_UP = 20  # rounds that are not counted: files grow to their first pages, threads start


def question_and_answer(number: int) -> list[Any]:
    """Return the items of a turn without tools: 1 KB each."""
    content = [{"type": "output_text", "text": f"answer {number} " + "y" * 900, "annotations": [], "logprobs": []}]
    return [
        {"role": "user", "content": f"question {number} " + "x" * 900},
        {"type": "message", "id": f"msg_{number:048x}", "role": "assistant", "status": "completed", "content": content},
    ]


def tool_step(number: int) -> list[Any]:
    """Return the items of a step with two calls, as the SDK adds them."""
    summary = [{"type": "summary_text", "text": "I should look at both cities. " * 5}]
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{city}{number:044x}",
            "call_id": f"call_{city}{number:020x}",
            "name": "weather",
            "arguments": f'{{"city":"{city}"}}',
            "status": "completed",
        }
        for city in ("Oslo", "Rome")
    ]
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": "4 degrees, rain. " * 10}
        for call in calls
    ]
    reasoning = {"type": "reasoning", "id": f"rs_{number:048x}", "summary": summary, "encrypted_content": "A" * 600}
    return [reasoning, *calls, *outputs]


class Comparison:
    """The times of both sessions by operation, in seconds."""

    def __init__(self) -> None:
        self.times: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))

    async def measure(self, name: str, ours: Awaitable[Any], theirs: Awaitable[Any], *, first: int) -> None:
        """Measure an operation on both sessions, in alternating order, and compare their results."""
        results: list[Any] = [None, None]
        operations = [ours, theirs]
        for side in (first, 1 - first):
            begin = time.perf_counter()
            results[side] = await operations[side]
            self.times[name][side].append(time.perf_counter() - begin)
        assert results[0] == results[1]

    def report(self) -> None:
        """Print the medians, and their ratio."""
        print(f"{'':32} {'Recollect':>10} {'SQLiteSession':>14} {'ratio':>6}")
        for name, (ours, theirs) in self.times.items():
            medians = [statistics.median(times[WARM_UP:]) * 1e3 for times in (ours, theirs)]
            print(f"{name:32} {medians[0]:7.3f} ms {medians[1]:11.3f} ms {medians[0] / medians[1]:6.2f}")


async def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="Compare RecollectSession with the SDK's SQLiteSession.")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--folder", default=None, help="a folder on the disk to measure; the temporary folder")
    options = parser.parse_args()
    comparison = Comparison()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        async with await recollect.open_async(f"{folder}/recollect.db") as store:
            for length in (0, LONG):
                ours = RecollectSession(store, f"of {length}")
                theirs = SQLiteSession(f"of {length}", f"{folder}/sdk.db")
                filler = [item for number in range(length // 2) for item in question_and_answer(-1 - number)]
                for start in range(0, length, 500):
                    await ours.add_items(filler[start : start + 500])
                    await theirs.add_items(filler[start : start + 500])
                label = "long session" if length else "short session"
                for number in range(options.rounds + WARM_UP):
                    first = number % 2
                    for name, items in (("2 items", question_and_answer(number)), ("5 items", tool_step(number))):
                        ours_add, theirs_add = ours.add_items(items), theirs.add_items(items)
                        await comparison.measure(f"{label}: add {name}", ours_add, theirs_add, first=first)
                    ours_get, theirs_get = ours.get_items(50), theirs.get_items(50)
                    await comparison.measure(f"{label}: get_items(50)", ours_get, theirs_get, first=first)
                theirs.close()
    comparison.report()


if __name__ == "__main__":
    asyncio.run(main())
