"""The server: start to first page, opening a long conversation, and concurrent answers.

    python benchmarks/server.py [--times 5] [--messages 10000] [--streams 50]

The wall clock time depends on the load of the whole machine, so the benchmark also prints the CPU time of the server.
Each chunk of an answer contains the time at which the model sent it; its delay is measured when a client receives it,
for one stream and for many concurrent streams.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import httpx

import recollect
from recollect.agent import Agent
from recollect.agent.demo import DemoModel
from recollect.agent.events import Responded, TextDelta
from recollect.model.message import Draft, TextPart
from recollect.server import serve

_TOKEN = "a-token-for-benchmarks-0123456789"  # noqa: S105
_HEADERS = {"Authorization": f"Bearer {_TOKEN}"}
_CHUNKS, _GAP = 150, 0.033  # chunks per answer, and seconds between them: about 30 per second, like a fast model
_WARM = 15  # chunks at both ends of an answer that are not measured, because streams start and end then
_TICKS = os.sysconf("SC_CLK_TCK")
_OPEN = """async (id) => {
  const begun = performance.now();
  await recollect.open(id);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const last = [...document.querySelectorAll("#messages > article")].at(-1).getBoundingClientRect();
  return [performance.now() - begun, last.top < innerHeight && last.bottom > 0];
}"""


class PacedModel(DemoModel):
    """A model that sends about 30 chunks per second, each of which is its send time."""

    async def run(self, messages: Any, *, instructions: Any, tools: Any, toolsets: Any = ()) -> AsyncGenerator[Any]:  # noqa: ARG002
        """Stream send times as an answer."""
        chunks: list[str] = []
        for _ in range(_CHUNKS):
            chunks.append(f"{time.monotonic_ns()} ")
            yield TextDelta(text=chunks[-1])
            await asyncio.sleep(_GAP)
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="".join(chunks)),), model="demo"))


def run_server(path: str) -> None:
    """Run the server with the paced model in this process."""
    listener = serve.listen("127.0.0.1", 0, exact=True)
    print(f"Recollect is at {serve.page_link('127.0.0.1', listener.getsockname()[1], None)}", flush=True)
    serve.run(
        listener, path, lambda store: Agent(PacedModel(), store=store, name="web"), {_TOKEN: ""}, log_level="error"
    )


class ServerProcess:
    """A server in a separate process."""

    def __init__(self, arguments: Sequence[str], folder: str, path: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env = {**environment, "RECOLLECT_DB": path, "RECOLLECT_TOKEN": _TOKEN, "XDG_CONFIG_HOME": folder}
        self.started = time.perf_counter()
        self._process = subprocess.Popen([sys.executable, *arguments], env=env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split(" at ", 1)[1].split("/#", 1)[0].strip().rstrip("/")

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process in seconds."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def end(self) -> None:
        """Stop the process."""
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def run_server_process(arguments: Sequence[str], folder: str, path: str) -> Iterator[ServerProcess]:
    """Start a server, yield it, and stop it."""
    server = ServerProcess(arguments, folder, path)
    try:
        yield server
    finally:
        server.end()


def print_times(name: str, wall: Sequence[float], cpu: Sequence[float] = ()) -> None:
    """Print times in milliseconds: minimum and median of the wall clock time, and of the CPU time."""
    line = f"{name:46} {min(wall) * 1000:7.0f} {statistics.median(wall) * 1000:7.0f}"
    print(line + (f"   {min(cpu) * 1000:7.0f} {statistics.median(cpu) * 1000:7.0f}" if cpu else ""), flush=True)


def measure_starts(folder: str, path: str, times: int) -> None:
    """Measure the start of the command up to the first page."""
    wall: list[float] = []
    cpu: list[float] = []
    for number in range(times + 1):  # the first start writes the bytecode and is not measured
        with run_server_process(["-m", "recollect", "serve", "--port", "0"], folder, path) as server:
            with httpx.Client(headers=_HEADERS, timeout=60, follow_redirects=True) as client:
                assert "composer-text" in client.get(f"{server.url}/").text
            if number:
                wall.append(time.perf_counter() - server.started)
                cpu.append(server.cpu_seconds())
    print_times("start to the first page", wall, cpu)


def measure_openings(server: ServerProcess, times: int) -> None:
    """Measure requests for a long conversation: the complete page, and the fragment that an open page requests."""
    with httpx.Client(headers=_HEADERS, timeout=60, base_url=server.url) as client:
        for name, path in (("complete page", "/c/long"), ("fragment", "/page/conversation/long")):
            wall: list[float] = []
            cpu: list[float] = []
            for number in range(times + 1):
                started, before = time.perf_counter(), server.cpu_seconds()
                for _ in range(5):
                    assert client.get(path).status_code == 200
                if number:
                    wall.append((time.perf_counter() - started) / 5)
                    cpu.append((server.cpu_seconds() - before) / 5)
            print_times(f"open: {name}, response of the server", wall, cpu)


def open_in_browser(server: ServerProcess, times: int, browser: str) -> None:
    """Measure opening a long conversation in a browser, up to the last visible message."""
    if not os.path.exists(browser):
        print(f"No browser at {browser}; skipping the measurement in a browser. Set --browser.")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=flags).new_page()
        page.goto(f"{server.url}/c/short#token={_TOKEN}")
        page.wait_for_function("() => window.recollect && recollect.open")
        durations: list[float] = []
        for _ in range(times + 1):
            milliseconds, visible = page.evaluate(_OPEN, "long")
            assert visible
            durations.append(milliseconds / 1000)
            page.evaluate(_OPEN, "short")
    print_times("open: in a browser, to the last message", durations[1:])


async def read_stream(client: httpx.AsyncClient, session: str) -> list[float]:
    """Send a message and return the delay of each chunk of the answer in seconds."""
    delays: list[float] = []
    headers, kind = {"Accept": "text/event-stream"}, ""
    path = f"/api/v1/sessions/{session}/chat"
    async with client.stream("POST", path, json={"text": "go"}, headers=headers) as stream:
        assert stream.status_code == 200, stream.status_code
        async for line in stream.aiter_lines():
            now = time.monotonic_ns()
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: ") and "text" in kind:
                delays += [(now - int(sent_at)) / 1e9 for sent_at in re.findall(r"\b\d{12,}\b", line)]
    return delays[_WARM:-_WARM]


async def measure_streams(server: ServerProcess, count: int) -> None:
    """Measure the delay of chunks for one stream, then for `count` concurrent streams."""
    limits = httpx.Limits(max_connections=count + 10)
    delays_by_count: dict[int, list[float]] = {}
    async with httpx.AsyncClient(base_url=server.url, headers=_HEADERS, timeout=120, limits=limits) as client:
        for streams in (1, count):
            for number in range(streams):
                (await client.put(f"/api/v1/sessions/stream-{streams}-{number}")).raise_for_status()
            before, started = server.cpu_seconds(), time.perf_counter()
            delays = await asyncio.gather(
                *(read_stream(client, f"stream-{streams}-{number}") for number in range(streams))
            )
            share = (server.cpu_seconds() - before) / (time.perf_counter() - started)
            delays_by_count[streams] = sorted(delay for single in delays for delay in single)
            p50, p95, p999 = (
                delays_by_count[streams][int(len(delays_by_count[streams]) * quantile)] * 1000
                for quantile in (0.5, 0.95, 0.999)
            )
            name = f"{streams} stream{'s' if streams > 1 else ''}: delay of a chunk"
            print(f"{name:46} {p50:7.0f} p50 {p95:7.0f} p95 {p999:7.0f} p99.9, {share:.0%} of a core", flush=True)
    for name, quantile in (("p50", 0.5), ("p95", 0.95)):
        single, concurrent = (
            delays_by_count[streams][int(len(delays_by_count[streams]) * quantile)] for streams in (1, count)
        )
        print(f"{f'added by {count} concurrent streams, {name}':46} {(concurrent - single) * 1000:7.0f} ms")


def main() -> None:
    """Fill a store, measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run_server(options.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "server.db")
        with recollect.open(path) as store:
            question = {"role": "user", "content": "What about **this** one?"}
            answer = {
                "role": "assistant",
                "content": "It has `code`, a [link](https://a.example), and a list:\n\n- a\n- b",
            }
            store.session("long", title="Long").append([question, answer] * (options.messages // 2))
            store.session("short", title="Short").append([question, answer])
        print(f"{'milliseconds':46} {'minimum':>7} {'median':>7}   {'CPU: minimum, median':>15}")
        measure_starts(folder, path, options.times)
        with run_server_process([os.path.abspath(__file__), "--serve", path], folder, path) as server:
            measure_openings(server, options.times)
            open_in_browser(server, options.times, options.browser)
            asyncio.run(measure_streams(server, options.streams))


if __name__ == "__main__":
    main()
