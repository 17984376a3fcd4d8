"""What an agent that records itself costs: from Enter to the first model call, and while an answer streams.

    python benchmarks/agent.py [--messages 10000] [--turns 30] [--seconds 5]

A model that does nothing stands in for the provider, so that every figure is ours and not theirs. The store is a file
on this disk, with durable commits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from recollect import Draft, TextPart
from recollect.agent import Agent, Event, Responded, TextDelta

RATE = 200


class Probe:
    """A model that notes when it is asked and streams what it is told to, at a steady rate."""

    name = "probe"
    window = 128_000

    def __init__(self, chunks: int = 0) -> None:
        self.chunks = chunks
        self.asked: list[float] = []
        self.read: list[int] = []
        self.late: list[float] = []

    async def run(
        self, spoken: Sequence[Any], *, instructions: str, tools: Sequence[Any], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Note the time, and stream."""
        del instructions, tools, toolsets
        self.asked.append(time.perf_counter())
        self.read.append(len(spoken))
        begun = time.perf_counter()
        text = ""
        for number in range(self.chunks):
            due = begun + number / RATE
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            self.late.append(time.perf_counter() - due)
            text += f"word{number} "
            yield TextDelta(text=f"word{number} ")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=text or "ok"),), model="probe"))

    async def write(self, task: str, spoken: Sequence[Any]) -> str:
        """Give the name of the task."""
        del spoken
        return task

    async def close(self) -> None:
        """Do nothing."""


def shown(name: str, seconds: Sequence[float]) -> None:
    ordered = sorted(value * 1000 for value in seconds)
    p95 = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
    print(f"{name:<64} p50 {statistics.median(ordered):8.2f} ms   p95 {p95:8.2f} ms   max {ordered[-1]:8.2f} ms")


async def first_call(path: str, messages: int, turns: int) -> None:
    probe = Probe()
    async with Agent(probe, store=path) as agent:
        talk = await agent.talk("cli:long", title="Long")
        turn = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "word " * 200}]
        for _ in range(messages // 200):
            await talk.session.append(turn * 100)
        waits: list[float] = []
        for number in range(turns):
            begun = time.perf_counter()
            await talk.ask(f"question {number}")
            waits.append(probe.asked[-1] - begun)
        shown(f"Enter to the first model call, {messages:,} messages stored, {probe.read[-1]:,} sent", waits)
        short = await agent.talk("cli:short", title="Short")
        waits = []
        for number in range(turns):
            begun = time.perf_counter()
            await short.ask(f"question {number}")
            waits.append(probe.asked[-1] - begun)
        shown("the same in a new session", waits)


async def streaming(path: str, seconds: int) -> None:
    for name, store in (("on disk", path), ("in memory", ":memory:")):
        probe = Probe(seconds * RATE)
        async with Agent(probe, store=store) as agent:
            talk = await agent.talk("cli:stream", title="Stream")
            begun = time.perf_counter()
            await talk.ask("go")
            took = time.perf_counter() - begun
        shown(f"{RATE} chunks a second, stored {name}: a chunk is late by", probe.late)
        print(f"{'':<64} {seconds * RATE} chunks took {took:.3f} s of {seconds}")
    probe = Probe(seconds * RATE)
    async for _ in probe.run([], instructions="", tools=[]):
        pass
    shown("the same without a store", probe.late)


def starting(path: str) -> None:
    environment = {**os.environ, "RECOLLECT_DB": path}
    for name, words in (
        ("recollect --help", ["--help"]),
        ("recollect chat, one answer of the demo", ["chat", "--session"]),
    ):
        took: list[float] = []
        for _ in range(5):
            begun = time.perf_counter()
            command = [sys.executable, "-m", "recollect", *words]
            subprocess.run(command, input=b"say x", env=environment, check=True, capture_output=True)
            took.append(time.perf_counter() - begun)
        shown(name, took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(first_call(os.path.join(folder, "long.db"), chosen.messages, chosen.turns))
        asyncio.run(streaming(os.path.join(folder, "stream.db"), chosen.seconds))
        starting(os.path.join(folder, "start.db"))


if __name__ == "__main__":
    main()
