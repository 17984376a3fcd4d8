"""Take the picture of the web app that the README shows: a store with some talks in it, a server, a browser.

`.venv/bin/python tools/picture.py` writes docs/picture.png. It needs Chromium, as the tests of the page do.
"""

from __future__ import annotations

import datetime
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import recollect
from recollect import export

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE = {"width": 1200, "height": 720}
EARLIER = [
    ("cli:default", "Notes on the release", "cli", 3),
    ("discord:dm:42", "Rust or Go for the importer", "discord", 5),
    ("telegram:1234567", "Trains to Bergen", "telegram", 26),
    ("cli:backup", "A backup that restores", "cli", 30),
    ("web:letters", "A letter to the landlord", "web", 80),
    ("discord:channel:7", "Why the build is slow", "discord", 100),
    ("cli:regex", "A pattern for ISO dates", "cli", 300),
]
QUESTION = "Do I need a coat in Oslo tomorrow? And how far is it to Bergen by train?"
ANSWER = """Yes: **4 degrees and rain** in the morning, a little warmer after noon.

| | Oslo | Bergen |
|---|---|---|
| morning | 4°, rain | 7°, rain |
| evening | 6°, clouds | 6°, showers |

The train to Bergen takes **6 hours 40 minutes** for 471 km. The line climbs to 1,222 m at Finse, so
take something warm for the platform as well."""


def fill(path: str) -> None:
    """Store a talk with tools in it, and some from earlier days."""
    with recollect.open(path) as store:
        export.read(store, io.BytesIO(b"".join(json.dumps(item).encode() + b"\n" for item in earlier())))
        store.session("cli:default").update(pinned=True)
        session = store.session("web:coats", title="A coat for Oslo", model="anthropic:some-model")
        with session.turn(QUESTION) as turn:
            calls: list[dict[str, Any]] = [
                {"type": "tool_use", "id": "one", "name": "weather", "input": {"city": "Oslo", "day": "tomorrow"}},
                {"type": "tool_use", "id": "two", "name": "timetable", "input": {"from": "Oslo", "to": "Bergen"}},
            ]
            turn.add({"role": "assistant", "content": [{"type": "text", "text": "I look both up."}, *calls]})
            session.record_tool_result("one", "4 degrees and rain in the morning, 6 degrees and clouds in the evening")
            session.record_tool_result("two", "6 h 40 min, 471 km, highest point Finse (1,222 m)")
            turn.add({"role": "assistant", "content": ANSWER}, format="anthropic")
        store.set_last_session("web:coats")


def earlier() -> list[dict[str, Any]]:
    """Give talks of other days, as a file that is imported has them."""
    now = datetime.datetime.now(tz=datetime.UTC)
    records: list[dict[str, Any]] = [{"type": "header", "format": "recollect-export", "version": 1}]
    for number, (name, title, channel, hours) in enumerate(EARLIER, 1):
        time = (now - datetime.timedelta(hours=hours)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        times = {"created_at": time, "updated_at": time, "active_at": time, "last_message_at": time}
        records += [
            {"type": "session", "id": name, "tree": number, "title": title, "channel": channel, **times},
            {"type": "branch", "session": name, "id": 1, "created_at": time},
            *(
                {
                    "type": "message", "session": name, "id": f"1.{position}", "role": role, "created_at": time,
                    "parts": [{"kind": "text", "text": title}],
                }
                for position, role in ((1, "user"), (2, "assistant"))
            ),
        ]  # fmt: skip
    return records


def take(link: str, file: pathlib.Path) -> None:
    """Open the page in a browser, and keep what it shows."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this needs it

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(link)
        page.get_by_text("for the platform as well").wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(1000)
        page.screenshot(path=file)
        browser.close()


def main() -> None:
    """Fill a store, serve it, take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/talks.db"
        fill(path)
        command = [sys.executable, "-m", "recollect", "--db", path, "serve", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                take(server.stdout.readline().split()[-1], ROOT / "docs" / "picture.png")
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
