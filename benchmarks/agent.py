"""The delay that recording adds to an agent: from Enter to the first model call, and while an answer streams.

    python benchmarks/agent.py [--messages 10000] [--turns 30] [--seconds 5]

A model that does nothing replaces the provider, so that the benchmark measures only Recollect. The store is a file on
this disk, with durable commits.
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

RATE = 200  # chunks per second, faster than most models


class Probe:
    """A model that records the time of each call and streams chunks at a constant rate."""

    name = "probe"
    window = 128_000

    def __init__(self, chunks: int = 0) -> None:
        self.chunks = chunks
        self.call_times: list[float] = []
        self.message_counts: list[int] = []
        self.delays: list[float] = []

    async def run(
        self, messages: Sequence[Any], *, instructions: str, tools: Sequence[Any], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Record the time and the number of messages, then stream."""
        del instructions, tools, toolsets
        self.call_times.append(time.perf_counter())
        self.message_counts.append(len(messages))
        started = time.perf_counter()
        text = ""
        for number in range(self.chunks):
            due = started + number / RATE
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            self.delays.append(time.perf_counter() - due)
            text += f"word{number} "
            yield TextDelta(text=f"word{number} ")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text=text or "ok"),), model="probe"))

    async def write(self, task: str, messages: Sequence[Any]) -> str:
        """Return the name of the task."""
        del messages
        return task

    async def close(self) -> None:
        """Release nothing: the probe has no connection."""


def print_times(name: str, seconds: Sequence[float]) -> None:
    milliseconds = sorted(value * 1000 for value in seconds)
    p95 = milliseconds[min(int(len(milliseconds) * 0.95), len(milliseconds) - 1)]
    print(
        f"{name:<64} p50 {statistics.median(milliseconds):8.2f} ms   p95 {p95:8.2f} ms   max {milliseconds[-1]:8.2f} ms"
    )


async def first_call(path: str, messages: int, turns: int) -> None:
    probe = Probe()
    async with Agent(probe, store=path) as agent:
        conversation = await agent.conversation("cli:long", title="Long")
        turn = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "word " * 200}]
        for _ in range(messages // 200):
            await conversation.session.append(turn * 100)
        waits: list[float] = []
        for number in range(turns):
            started = time.perf_counter()
            await conversation.ask(f"question {number}")
            waits.append(probe.call_times[-1] - started)
        print_times(
            f"Enter to the first model call, {messages:,} messages stored, {probe.message_counts[-1]:,} sent", waits
        )
        short = await agent.conversation("cli:short", title="Short")
        waits = []
        for number in range(turns):
            started = time.perf_counter()
            await short.ask(f"question {number}")
            waits.append(probe.call_times[-1] - started)
        print_times("the same in a new session", waits)


async def streaming(path: str, seconds: int) -> None:
    for name, store in (("on disk", path), ("in memory", ":memory:")):
        probe = Probe(seconds * RATE)
        async with Agent(probe, store=store) as agent:
            conversation = await agent.conversation("cli:stream", title="Stream")
            started = time.perf_counter()
            await conversation.ask("go")
            duration = time.perf_counter() - started
        print_times(f"{RATE} chunks per second, stored {name}: delay of a chunk", probe.delays)
        print(f"{'':<64} {seconds * RATE} chunks took {duration:.3f} s, expected {seconds} s")
    probe = Probe(seconds * RATE)
    async for _ in probe.run([], instructions="", tools=[]):
        pass
    print_times("the same without a store", probe.delays)


def starting(path: str) -> None:
    environment = {**os.environ, "RECOLLECT_DB": path}
    for name, arguments in (
        ("recollect --help", ["--help"]),
        ("recollect chat, one answer of the demo model", ["chat", "--session"]),
    ):
        durations: list[float] = []
        for _ in range(5):
            started = time.perf_counter()
            command = [sys.executable, "-m", "recollect", *arguments]
            subprocess.run(command, input=b"say x", env=environment, check=True, capture_output=True)
            durations.append(time.perf_counter() - started)
        print_times(name, durations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(first_call(os.path.join(folder, "long.db"), options.messages, options.turns))
        asyncio.run(streaming(os.path.join(folder, "stream.db"), options.seconds))
        starting(os.path.join(folder, "start.db"))


if __name__ == "__main__":
    main()
