"""The sidebar with many sessions in a real browser: how long frames take while it scrolls and pages arrive.

Beside the time between frames, which is that of the whole machine, stands what the page's own thread took of the
processor for its longest task, from the browser's trace. That is what the page can do something about.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from playwright.sync_api import sync_playwright

import recollect

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
_SCROLL = """(step) => new Promise((done) => {
  const list = document.querySelector("#sessions"), gaps = [];
  let last = performance.now(), still = 0, at = -1;
  function frame(now) {
    gaps.push(now - last); last = now;
    list.scrollTop += step;
    still = list.scrollTop === at ? still + 1 : 0; at = list.scrollTop;
    if (still < 90) requestAnimationFrame(frame);
    else done({ gaps: gaps.slice(1, -90), rows: list.querySelectorAll("li.session").length });
  }
  requestAnimationFrame(frame);
})"""


def main() -> None:
    """Fill a store, serve it, and scroll its list from top to bottom and back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.db")
        with recollect.open(path) as store:
            for number in range(options.sessions):
                store.session(f"cli:{number}", title=f"Conversation {number} about something or other", model="demo")
        env = {**os.environ, "RECOLLECT_DB": path, "RECOLLECT_TOKEN": "b" * 32, "XDG_CONFIG_HOME": folder}
        env["RECOLLECT_LOG_LEVEL"] = "error"
        command = [sys.executable, "-c", "from recollect.cli import main; main()", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            link = server.stdout.readline().split(" at ", 1)[1].strip()
            _measure(link, options.browser)
        finally:
            server.terminate()
            server.wait(20)


def _measure(link: str, browser: str) -> None:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=list(_FLAGS))
        page = opened.new_page(viewport={"width": 1280, "height": 800})
        page.goto(link)
        page.wait_for_function("() => window.recollect && document.readyState === 'complete'")
        for name, step in (("down, pages arriving", 120), ("up, all of it there", -400), ("down again", 400)):
            opened.start_tracing(page=page, categories=["toplevel", "devtools.timeline", "__metadata"])
            found = page.evaluate(_SCROLL, step)
            _print(name, found, _tasks(json.loads(opened.stop_tracing())["traceEvents"]))
        opened.close()


def _tasks(events: list[dict[str, Any]]) -> list[float]:
    """Give the processor's milliseconds of each task of the thread that the page runs in."""
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    busiest: dict[tuple[int, int], list[float]] = {place: [] for place in main}
    for event in events:
        place = (event["pid"], event["tid"])
        if event["name"] in ("RunTask", "ThreadControllerImpl::RunTask") and place in main and "tdur" in event:
            busiest[place].append(event["tdur"] / 1_000)
    return max(busiest.values(), key=sum, default=[0.0])


def _print(name: str, found: dict[str, Any], tasks: list[float]) -> None:
    gaps = sorted(found["gaps"])
    median, worst = gaps[len(gaps) // 2], gaps[-1]
    over = sum(gap > 50 for gap in gaps)
    print(
        f"{name:<24} rows {found['rows']:>5}  frames {len(gaps):>5}  p50 {median:5.1f} ms  worst {worst:6.1f} ms  "
        f"over 50 ms {over:>3}; processor: longest task {max(tasks):.1f} ms, a frame {sum(tasks) / len(gaps):.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
