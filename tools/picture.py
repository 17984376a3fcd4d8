"""Take the pictures of the web app in docs/: a store with some talks in it, a server, a browser.

`.venv/bin/python tools/picture.py` writes docs/app.png and docs/search.png. It needs Chromium, as the tests of the page
do.
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
from typing import TYPE_CHECKING, Any

import recollect
from recollect import export

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
NOW = datetime.datetime.now(tz=datetime.UTC)
MODEL = "anthropic:some-model"
# Id, title, channel, hours ago, and what was said.
OTHERS = [
    ("cli:importer", "Refactor the importer", "cli", 29, "Split the importer into a reader and a writer?"),
    ("web:trip", "Trains to Bergen", "web", 4, "How long is the train from Oslo to Bergen?"),
    ("discord:thread:7", "Why the nightly build fails", "discord", 2, "The nightly build fails on the dry-run test."),
    ("web:board", "Notes for the board meeting", "web", 27, "Sum up what we decided about the release date."),
    ("telegram:1234567", "Tax questions", "telegram", 50, "Which receipts do I keep, and for how long?"),
    ("web:manual", "Translate the manual into Portuguese", "web", 75, "Translate the first chapter, please."),
    ("discord:channel:12", "Bird calls in the harbor", "discord", 98, "Which gull is that? It calls at night."),
    ("cli:sql", "Window functions, explained", "cli", 123, "What does PARTITION BY do, in one sentence?"),
    ("web:letter", "A letter to the landlord", "web", 170, "Write a short letter about the broken window."),
    ("telegram:7654321", "A garden on the shady side", "telegram", 250, "What grows where the sun never comes?"),
    ("web:questions", "Questions for an interview", "web", 420, "Ten questions for a data engineer."),
    ("cli:laptop", "Kernel panic on the old laptop", "cli", 600, "It stops with a kernel panic after the update."),
]
MARKS = {"cli:importer": {"pinned_at": NOW.isoformat()}, "discord:channel:12": {"color": "blue"}}
QUESTION = "Draft the notes for Harbor 2.4 from what was merged since 2.3. Short, with an example of the dry run."
MERGED = "#408 quicker imports\n#411 sync has a dry run\n#415 Python 3.9 is gone"
DRAFT = """### Harbor 2.4

**Quicker imports.** Reading a year of log books takes *a third* of the time it took.

| import of | 2.3 | 2.4 |
|---|--:|--:|
| 10,000 entries | 4.1 s | 1.3 s |
| 1,000,000 entries | 7 min | 2.2 min |

**Try before you sync.** `sync` has a dry run, which changes nothing:

```python
from harbor import Fleet

with Fleet("boats.toml") as fleet:
    report = fleet.sync(dry_run=True)
    print(f"{report.changed} boats would change")
```

**Gone:** Python 3.9."""


def main() -> None:
    """Fill a store, serve it, take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/talks.db"
        fill(path)
        command = [sys.executable, "-m", "recollect", "--db", path, "serve", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                take(server.stdout.readline().split()[-1])
            finally:
                server.terminate()


def fill(path: str) -> None:
    """Store a talk with tools in it, and some from earlier days."""
    records = [{"type": "header", "format": "recollect-export", "version": 1}, *release()]
    for number, (name, title, channel, hours, said) in enumerate(OTHERS, 2):
        time = ago(hours=hours)
        records += opened(name, number, time, title=title, channel=channel, **MARKS.get(name, {}))
        records += [message(name, 1, "user", time, text(said)), message(name, 2, "assistant", time, text("Gladly."))]
    with recollect.open(path) as store:
        report = export.read(store, io.BytesIO(b"".join(json.dumps(record).encode() + b"\n" for record in records)))
        assert not report.bad, report.bad
        store.set_last_session("web:release")


def release() -> list[dict[str, Any]]:
    """Give the talk that is open in the picture."""
    name, asked, answered, again, done = "web:release", ago(minutes=9), ago(minutes=8), ago(minutes=5), ago(minutes=4)
    merged = {"kind": "tool_result", "call_id": "one", "tool": "merged_since", "text": MERGED, **took(800)}
    linked = {"kind": "tool_result", "call_id": "two", "tool": "link_notes", "text": "linked", **took(240)}
    look = {"kind": "tool_call", "call_id": "one", "tool": "merged_since", "arguments": {"tag": "v2.3"}}
    link = {"kind": "tool_call", "call_id": "two", "tool": "link_notes", "arguments": {"pull_request": 415}}
    return [
        *opened(name, 1, asked, title="Draft the release notes for 2.4", channel="web", model=MODEL, pinned_at=asked),
        message(name, 1, "user", asked, text(QUESTION)),
        message(name, 2, "assistant", asked, look, turn=1, model=MODEL),
        message(name, 3, "tool", asked, merged, turn=1),
        message(name, 4, "assistant", answered, text(DRAFT), turn=1, model=MODEL),
        turn(name, 1, asked, answered, 6200, 2900, 310),
        message(name, 5, "user", again, text("Good. Link what is gone to its pull request.")),
        message(name, 6, "assistant", again, link, turn=5, model=MODEL),
        message(name, 7, "tool", again, linked, turn=5),
        message(name, 8, "assistant", done, text("Done: the last line of the draft links to **#415** now."), turn=5),
        turn(name, 5, again, done, 4100, 3700, 96),
        call(name, "1.2", "one", "merged_since", 3),
        call(name, "1.6", "two", "link_notes", 7),
    ]


def ago(**span: float) -> str:
    """Give a time before now."""
    return (NOW - datetime.timedelta(**span)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def opened(session: str, tree: int, time: str, **fields: str) -> list[dict[str, Any]]:
    """Give a session and its branch."""
    times = {"created_at": time, "updated_at": time, "active_at": time, "last_message_at": time}
    return [
        {"type": "session", "id": session, "tree": tree, **times, **fields},
        {"type": "branch", "session": session, "id": 1, "created_at": time},
    ]


def text(words: str) -> dict[str, Any]:
    """Give a part that is text."""
    return {"kind": "text", "text": words}


def took(milliseconds: int) -> dict[str, Any]:
    """Say how long a tool took, where the page looks for it."""
    return {"metadata": {"latency_ms": milliseconds}}


def message(session: str, position: int, role: str, time: str, part: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Give a message of one part."""
    place = {"type": "message", "session": session, "id": f"1.{position}", "role": role, "created_at": time}
    return {**place, "parts": [part], **fields}


def turn(session: str, first: int, begun: str, ended: str, lasted: int, read: int, written: int) -> dict[str, Any]:
    """Give a turn that was completed."""
    tokens = {"input_tokens": read, "output_tokens": written, "model": MODEL}
    times = {"started_at": begun, "ended_at": ended, "latency_ms": lasted}
    return {"type": "turn", "session": session, "id": f"1.{first}", "status": "completed", **times, **tokens}


def call(session: str, asked: str, call_id: str, tool: str, result: int) -> dict[str, Any]:
    """Give a tool call that was answered."""
    done = {"status": "success", "result": result, "result_part": 0, "created_at": ago(minutes=8)}
    return {"type": "tool_call", "session": session, "message": asked, "part": 0, "branch": 1, "call_id": call_id,
            "tool": tool, **done}  # fmt: skip


def take(link: str) -> None:
    """Open the page in a browser, and keep what it shows."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this needs it

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = shown(browser, link, "light")
        keep(page, "app.png")
        page = shown(browser, link, "dark")
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type("dry run")
        page.get_by_role("dialog").get_by_text("Why the nightly build fails").wait_for()
        keep(page, "search.png")
        browser.close()


def shown(browser: Browser, link: str, scheme: Any) -> Page:
    """Open the page at the talk that was open last."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    page.goto(link)
    page.get_by_text("links to").wait_for()
    return page


def keep(page: Page, name: str) -> None:
    """Take the picture when nothing moves any more."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)
    page.screenshot(path=DOCS / name)


if __name__ == "__main__":
    main()
