"""The server: from its start to the first page, opening a long conversation, and many answers at once.

    python benchmarks/server.py [--times 5] [--messages 10000] [--streams 50]

Beside the time by the clock, which is that of the whole machine, stands how long a processor was busy in the server.
Pieces of an answer carry the moment at which the model gave them. Their delay is taken when a client has them, for one
stream and for many at once: what many add is the difference.
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
from recollect.model.message import Draft
from recollect.model.part import TextPart
from recollect.server import serve

_TOKEN = "a-token-for-benchmarks-0123456789"  # noqa: S105
_HEADERS = {"Authorization": f"Bearer {_TOKEN}"}
_PIECES, _GAP = 150, 0.033
_WARM = 15
_TICKS = os.sysconf("SC_CLK_TCK")
_OPEN = """async (id) => {
  const begun = performance.now();
  await recollect.open(id);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const last = [...document.querySelectorAll("#messages > article")].at(-1).getBoundingClientRect();
  return [performance.now() - begun, last.top < innerHeight && last.bottom > 0];
}"""


class Paced(DemoModel):
    """A model that gives about thirty pieces a second, each the moment at which it was given."""

    async def run(self, spoken: Any, *, instructions: Any, tools: Any, toolsets: Any = ()) -> AsyncGenerator[Any]:  # noqa: ARG002
        """Answer with moments."""
        said: list[str] = []
        for _ in range(_PIECES):
            said.append(f"{time.monotonic_ns()} ")
            yield TextDelta(text=said[-1])
            await asyncio.sleep(_GAP)
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="".join(said)),), model="demo"))


def served(place: str) -> None:
    """Be the server, with the paced model."""
    listener = serve.listen("127.0.0.1", 0, exact=True)
    print(f"Recollect is at {serve.link('127.0.0.1', listener.getsockname()[1], None)}", flush=True)
    serve.run(listener, place, lambda store: Agent(Paced(), store=store, name="web"), {_TOKEN: ""}, log_level="error")


class Running:
    """A server in a process of its own."""

    def __init__(self, arguments: Sequence[str], folder: str, place: str) -> None:
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env = {**plain, "RECOLLECT_DB": place, "RECOLLECT_TOKEN": _TOKEN, "XDG_CONFIG_HOME": folder}
        self.begun = time.perf_counter()
        self._process = subprocess.Popen([sys.executable, *arguments], env=env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split(" at ", 1)[1].split("/#", 1)[0].strip().rstrip("/")

    def busy(self) -> float:
        """Say for how many seconds a processor was busy with it."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def running(arguments: Sequence[str], folder: str, place: str) -> Iterator[Running]:
    """Run a server for a while."""
    server = Running(arguments, folder, place)
    try:
        yield server
    finally:
        server.end()


def shown(name: str, clock: Sequence[float], busy: Sequence[float] = ()) -> None:
    """Print figures in milliseconds: the least, and the median."""
    line = f"{name:46} {min(clock) * 1000:7.0f} {statistics.median(clock) * 1000:7.0f}"
    print(line + (f"   {min(busy) * 1000:7.0f} {statistics.median(busy) * 1000:7.0f}" if busy else ""), flush=True)


def starts(folder: str, place: str, times: int) -> None:
    """Start the command, and wait for the first page."""
    clock: list[float] = []
    busy: list[float] = []
    for number in range(times + 1):  # the first one writes the bytecode, and is not counted
        with running(["-m", "recollect", "serve", "--port", "0"], folder, place) as server:
            with httpx.Client(headers=_HEADERS, timeout=60, follow_redirects=True) as client:
                assert "composer-text" in client.get(f"{server.url}/").text
            if number:
                clock.append(time.perf_counter() - server.begun)
                busy.append(server.busy())
    shown("start to the first page", clock, busy)


def openings(server: Running, times: int) -> None:
    """Open a long conversation: as a page, as the part that a page asks for, and its last page but one."""
    with httpx.Client(headers=_HEADERS, timeout=60, base_url=server.url) as client:
        for name, path in (("the page", "/c/long"), ("another one in the page", "/page/conversation/long")):
            clock: list[float] = []
            busy: list[float] = []
            for number in range(times + 1):
                begun, before = time.perf_counter(), server.busy()
                for _ in range(5):
                    assert client.get(path).status_code == 200
                if number:
                    clock.append((time.perf_counter() - begun) / 5)
                    busy.append((server.busy() - before) / 5)
            shown(f"open: {name}, served", clock, busy)


def browsed(server: Running, times: int, browser: str) -> None:
    """Open a long conversation in a browser, to the last message shown."""
    if not os.path.exists(browser):
        print(f"There is no browser at {browser}: nothing was opened in one.")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=flags).new_page()
        page.goto(f"{server.url}/c/short#token={_TOKEN}")
        page.wait_for_function("() => window.recollect && recollect.open")
        took: list[float] = []
        for _ in range(times + 1):
            milliseconds, seen = page.evaluate(_OPEN, "long")
            assert seen
            took.append(milliseconds / 1000)
            page.evaluate(_OPEN, "short")
    shown("open: in a browser, to the last message shown", took[1:])


async def listened(client: httpx.AsyncClient, session: str) -> list[float]:
    """Say something, and give how late each piece of the answer came."""
    late: list[float] = []
    headers, kind = {"Accept": "text/event-stream"}, ""
    path = f"/api/v1/sessions/{session}/chat"
    async with client.stream("POST", path, json={"text": "go"}, headers=headers) as stream:
        assert stream.status_code == 200, stream.status_code
        async for line in stream.aiter_lines():
            now = time.monotonic_ns()
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: ") and "text" in kind:
                late += [(now - int(moment)) / 1e9 for moment in re.findall(r"\b\d{12,}\b", line)]
    return late[_WARM:-_WARM]


async def streams(server: Running, count: int) -> None:
    """Follow one answer, then many at once."""
    limits = httpx.Limits(max_connections=count + 10)
    found: dict[int, list[float]] = {}
    async with httpx.AsyncClient(base_url=server.url, headers=_HEADERS, timeout=120, limits=limits) as client:
        for many in (1, count):
            for number in range(many):
                (await client.put(f"/api/v1/sessions/stream-{many}-{number}")).raise_for_status()
            before, begun = server.busy(), time.perf_counter()
            late = await asyncio.gather(*(listened(client, f"stream-{many}-{number}") for number in range(many)))
            share = (server.busy() - before) / (time.perf_counter() - begun)
            found[many] = sorted(delay for one in late for delay in one)
            p50, p95, most = (found[many][int(len(found[many]) * place)] * 1000 for place in (0.5, 0.95, 0.999))
            name = f"{many} stream{'s at once' if many > 1 else ''}: delay of a piece"
            print(f"{name:46} {p50:7.0f} p50 {p95:7.0f} p95 {most:7.0f} p99.9, {share:.0%} of a processor", flush=True)
    for name, place in (("p50", 0.5), ("p95", 0.95)):
        one, all_ = (found[many][int(len(found[many]) * place)] for many in (1, count))
        print(f"{f'added by {count} at once, {name}':46} {(all_ - one) * 1000:7.0f} ms")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        served(options.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "server.db")
        with recollect.open(place) as store:
            asked = {"role": "user", "content": "What about **this** one?"}
            told = {
                "role": "assistant",
                "content": "It has `code`, a [link](https://a.example), and a list:\n\n- a\n- b",
            }
            store.session("long", title="Long").append([asked, told] * (options.messages // 2))
            store.session("short", title="Short").append([asked, told])
        print(f"{'milliseconds':46} {'least':>7} {'median':>7}   {'processor: least, median':>15}")
        starts(folder, place, options.times)
        with running([os.path.abspath(__file__), "--serve", place], folder, place) as server:
            openings(server, options.times)
            browsed(server, options.times, options.browser)
            asyncio.run(streams(server, options.streams))


if __name__ == "__main__":
    main()
