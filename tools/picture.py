"""Take the screenshots of the web app in docs/images, with an example store, a server and a browser.

`.venv/bin/python tools/picture.py` writes docs/images/app.png and docs/images/search.png. It needs Chromium, like the
tests of the page.
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

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images"
NOW = datetime.datetime.now(tz=datetime.UTC)
MODEL = "anthropic:some-model"
# Id, title, channel, age in hours, and the user's message.
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
QUESTION = "Draft the notes for Harbor 2.4 from the pull requests since 2.3, with an example of the dry run."
PULL_REQUESTS = "#408 faster imports\n#411 dry run for sync\n#415 remove Python 3.9"
DRAFT = """### Harbor 2.4

**Faster imports.** Importing a year of logs takes *32%* of the time.

| import of | 2.3 | 2.4 |
|---|--:|--:|
| 10,000 entries | 4.1 s | 1.3 s |
| 1,000,000 entries | 7 min | 2.2 min |

**Dry run.** `sync` can report the changes without making them:

```python
from harbor import Fleet

with Fleet("boats.toml") as fleet:
    report = fleet.sync(dry_run=True)
    print(f"{report.changed} boats would change")
```

**Removed:** support for Python 3.9."""


def main() -> None:
    """Fill a store, serve it and take the screenshots."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/recollect.db"
        fill(path)
        command = [sys.executable, "-m", "recollect", "--db", path, "serve", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                take_screenshots(server.stdout.readline().split()[-1])
            finally:
                server.terminate()


def fill(path: str) -> None:
    """Store a conversation with tool calls, and older conversations."""
    records = [{"type": "header", "format": "recollect-export", "version": 1}, *release()]
    for number, (name, title, channel, hours, question) in enumerate(OTHERS, 2):
        time = ago(hours=hours)
        records += session_records(name, number, time, title=title, channel=channel, **MARKS.get(name, {}))
        records += [
            message(name, 1, "user", time, text(question)),
            message(name, 2, "assistant", time, text("Gladly.")),
        ]
    with recollect.open(path) as store:
        report = export.read(store, io.BytesIO(b"".join(json.dumps(record).encode() + b"\n" for record in records)))
        assert not report.bad, report.bad
        store.records.put("agent.state", "last_session", "web:release")


def release() -> list[dict[str, Any]]:
    """Return the records of the conversation that the screenshots show."""
    name, question_time, answer_time, second_question_time, second_answer_time = (
        "web:release",
        ago(minutes=9),
        ago(minutes=8),
        ago(minutes=5),
        ago(minutes=4),
    )
    list_result = {
        "kind": "tool_result",
        "call_id": "one",
        "tool": "merged_since",
        "text": PULL_REQUESTS,
        **latency(800),
    }
    link_result = {"kind": "tool_result", "call_id": "two", "tool": "link_notes", "text": "linked", **latency(240)}
    list_call = {"kind": "tool_call", "call_id": "one", "tool": "merged_since", "arguments": {"tag": "v2.3"}}
    link_call = {"kind": "tool_call", "call_id": "two", "tool": "link_notes", "arguments": {"pull_request": 415}}
    return [
        *session_records(
            name,
            1,
            question_time,
            title="Draft the release notes for 2.4",
            channel="web",
            model=MODEL,
            pinned_at=question_time,
        ),
        message(name, 1, "user", question_time, text(QUESTION)),
        message(name, 2, "assistant", question_time, list_call, turn=1, model=MODEL),
        message(name, 3, "tool", question_time, list_result, turn=1),
        message(name, 4, "assistant", answer_time, text(DRAFT), turn=1, model=MODEL),
        turn(name, 1, question_time, answer_time, 6200, 2900, 310),
        message(name, 5, "user", second_question_time, text("Good. Link the removal to its pull request.")),
        message(name, 6, "assistant", second_question_time, link_call, turn=5, model=MODEL),
        message(name, 7, "tool", second_question_time, link_result, turn=5),
        message(
            name,
            8,
            "assistant",
            second_answer_time,
            text("Done: the last line of the draft links to **#415** now."),
            turn=5,
        ),
        turn(name, 5, second_question_time, second_answer_time, 4100, 3700, 96),
        call(name, "1.2", "one", "merged_since", 3),
        call(name, "1.6", "two", "link_notes", 7),
    ]


def ago(**span: float) -> str:
    """Return the ISO time that is `span` before now."""
    return (NOW - datetime.timedelta(**span)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def session_records(session: str, tree: int, time: str, **fields: str) -> list[dict[str, Any]]:
    """Return the records of a session and its branch."""
    times = {"created_at": time, "updated_at": time, "active_at": time, "last_message_at": time}
    return [
        {"type": "session", "id": session, "tree": tree, **times, **fields},
        {"type": "branch", "session": session, "id": 1, "created_at": time},
    ]


def text(content: str) -> dict[str, Any]:
    """Return a text part."""
    return {"kind": "text", "text": content}


def latency(milliseconds: int) -> dict[str, Any]:
    """Return the latency of a tool as the metadata that the page reads."""
    return {"metadata": {"latency_ms": milliseconds}}


def message(session: str, position: int, role: str, time: str, part: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the record of a message with one part."""
    fixed_fields = {"type": "message", "session": session, "id": f"1.{position}", "role": role, "created_at": time}
    return {**fixed_fields, "parts": [part], **fields}


def turn(
    session: str, first: int, started_at: str, ended_at: str, latency_ms: int, input_tokens: int, output_tokens: int
) -> dict[str, Any]:
    """Return the record of a completed turn."""
    tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens, "model": MODEL}
    times = {"started_at": started_at, "ended_at": ended_at, "latency_ms": latency_ms}
    return {"type": "turn", "session": session, "id": f"1.{first}", "status": "completed", **times, **tokens}


def call(session: str, message_id: str, call_id: str, tool: str, result: int) -> dict[str, Any]:
    """Return the record of a tool call with a result."""
    status = {"status": "success", "result": result, "result_part": 0, "created_at": ago(minutes=8)}
    return {"type": "tool_call", "session": session, "message": message_id, "part": 0, "branch": 1, "call_id": call_id,
            "tool": tool, **status}  # fmt: skip


def take_screenshots(link: str) -> None:
    """Open the page in a browser and write the screenshots."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this function needs a browser

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = open_page(browser, link, "light")
        save_screenshot(page, "app.png")
        page = open_page(browser, link, "dark")
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type("dry run")
        page.get_by_role("dialog").get_by_text("Why the nightly build fails").wait_for()
        save_screenshot(page, "search.png")
        browser.close()


def open_page(browser: Browser, link: str, scheme: Any) -> Page:
    """Open the page, which shows the conversation that was open last."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    page.goto(link)
    page.get_by_text("links to").wait_for()
    return page


def save_screenshot(page: Page, name: str) -> None:
    """Write a screenshot after all animations have ended."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)
    page.screenshot(path=DOCS / name)


if __name__ == "__main__":
    main()
