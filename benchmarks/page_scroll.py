"""The sidebar with many sessions in a browser: frame times while it scrolls and pages arrive.

The time between frames depends on the load of the whole machine. The benchmark therefore also prints the CPU time of
the longest task of the page's main thread, from the browser's trace.
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
        chromium = playwright.chromium.launch(executable_path=browser, args=list(_FLAGS))
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.goto(link)
        page.wait_for_function("() => window.recollect && document.readyState === 'complete'")
        for name, step in (("down, pages arriving", 120), ("up, all pages loaded", -400), ("down again", 400)):
            chromium.start_tracing(page=page, categories=["toplevel", "devtools.timeline", "__metadata"])
            result = page.evaluate(_SCROLL, step)
            _print(name, result, _tasks(json.loads(chromium.stop_tracing())["traceEvents"]))
        chromium.close()


def _tasks(events: list[dict[str, Any]]) -> list[float]:
    """Return the CPU time in milliseconds of each task of the page's main thread."""
    main_threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    times_by_thread: dict[tuple[int, int], list[float]] = {thread: [] for thread in main_threads}
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["name"] in ("RunTask", "ThreadControllerImpl::RunTask") and thread in main_threads and "tdur" in event:
            times_by_thread[thread].append(event["tdur"] / 1_000)
    return max(times_by_thread.values(), key=sum, default=[0.0])


def _print(name: str, result: dict[str, Any], tasks: list[float]) -> None:
    gaps = sorted(result["gaps"])
    median, worst = gaps[len(gaps) // 2], gaps[-1]
    slow_frames = sum(gap > 50 for gap in gaps)
    print(
        f"{name:<24} rows {result['rows']:>5}  frames {len(gaps):>5}  p50 {median:5.1f} ms  worst {worst:6.1f} ms  "
        f"over 50 ms {slow_frames:>3}; CPU ms: longest task {max(tasks):.1f}, per frame {sum(tasks) / len(gaps):.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
