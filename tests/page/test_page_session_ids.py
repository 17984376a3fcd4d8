"""Conversations with hostile ids in a real browser: opened, continued, found, deleted and restored by their ids."""

from __future__ import annotations

import base64
import struct
import zlib

from page_helpers import until
from playwright.sync_api import expect

from recollect.server.path_segments import encode_path_segment

HOSTILE_IDS = (
    "a\r\nX: y", "a\rb", "a\nb", "a\0b", "\0", "\x1b[31mred", "../../etc", "a/b%2Fc", "..", ".", "~.", "%00", "%", " ",
    "\u202egnp.exe", "\ue000s", '"><img src=x onerror="window.hacked=1">', "\U0001f600" * 256, "\0" * 1_024,
)  # fmt: skip


def png():
    """Return an image of 2 by 2 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 2 for _ in range(2)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def title_row(tab, title):
    return tab.locator("li.session").filter(has=tab.locator(".session-title", has_text=title)).first


def address_of(server, id):
    return f"{server.url}/c/{encode_path_segment(id)}"


def wait_for_address(tab, server, id):
    """Wait until the browser shows the address of a session. It leaves a few characters unescaped that Python escapes."""
    until(lambda: tab.evaluate("() => recollect.current") == id)
    until(lambda: tab.evaluate("() => recollect.fromSegment(location.pathname.slice(3))") == id)
    assert tab.evaluate("path => new URL(path, location).href", address_of(server, id)) == address_of(server, id)


def fill(server):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png()).decode()}"}}
    server.session("start", "hello", title="Start")
    for number, id in enumerate(HOSTILE_IDS):
        session = server.session(id, title=f"Title<{number}>")
        session.append({"role": "user", "content": [{"type": "text", "text": f"needle{number}needle"}, image]})


def test_conversations_open_by_click_by_address_and_by_history(server, open_page):
    fill(server)
    tab = open_page("/c/start")
    for number, id in enumerate(HOSTILE_IDS):
        title_row(tab, f"Title<{number}>").locator("a").click()
        wait_for_address(tab, server, id)
        expect(tab.locator("#messages > .user").first).to_contain_text(f"needle{number}needle")
        until(lambda: tab.evaluate("() => document.querySelector('#messages img')?.naturalWidth") == 2)
        expect(title_row(tab, f"Title<{number}>").locator("a")).to_have_attribute("aria-current", "page")
    for id in HOSTILE_IDS[-2::-1]:
        tab.go_back()
        wait_for_address(tab, server, id)
    for number, id in enumerate(HOSTILE_IDS):
        tab.goto(address_of(server, id))
        expect(tab.locator("#messages > .user").first).to_contain_text(f"needle{number}needle")
        wait_for_address(tab, server, id)
    assert tab.evaluate("() => window.hacked") is None


def test_conversations_continue_and_follow_changes(server, open_page):
    fill(server)
    tab = open_page("/c/start")
    for number, id in enumerate(HOSTILE_IDS):
        title_row(tab, f"Title<{number}>").locator("a").click()
        wait_for_address(tab, server, id)
        tab.locator("#composer-text").fill(f"echo number {number}")
        tab.locator("#composer-text").press("Enter")
        expect(tab.locator("#messages > .assistant").last).to_contain_text(f"number {number}")
        until(lambda: server.store.get_session(id).message_count >= 3)  # noqa: B023
        expect(tab.locator("#send")).to_be_visible()
        server.store.session(id).append({"role": "user", "content": f"elsewhere {number}"})
        expect(tab.locator("#messages > .user").last).to_contain_text(f"elsewhere {number}")
    assert tab.evaluate("() => window.hacked") is None


def test_conversations_are_found_deleted_and_restored(server, open_page):
    fill(server)
    tab = open_page("/c/start")
    for number, id in enumerate(HOSTILE_IDS):
        tab.keyboard.press("Control+k")
        tab.locator("#search-field").fill(f"needle{number}needle")
        expect(tab.locator("#search-hits .hit")).to_have_count(1)
        tab.keyboard.press("Enter")
        wait_for_address(tab, server, id)
        row = title_row(tab, f"Title<{number}>")
        row.hover()
        row.locator("> [data-do=row-menu]").click()
        tab.locator("#session-menu").get_by_role("menuitem", name="Delete", exact=True).click()
        until(lambda: server.store.get_session(id) is None)  # noqa: B023
        tab.get_by_role("button", name="Undo").last.click()
        until(lambda: server.store.get_session(id) is not None)  # noqa: B023
    assert len(server.store.list_sessions(100)) == len(HOSTILE_IDS) + 1


def test_related_conversations_are_linked(server, open_page):
    for number, id in enumerate(HOSTILE_IDS):
        server.session(id, "hello", title=f"Title<{number}>")
        server.session(f"agent {number}", "sub", title=f"Agent<{number}>", parent=id)
    for number, id in enumerate(HOSTILE_IDS):
        tab = open_page(f"/c/agent%20{number}")
        tab.get_by_title("Open the parent conversation").click()
        wait_for_address(tab, server, id)
        row = title_row(tab, f"Title<{number}>")
        row.locator(".session-toggle").click()
        expect(tab.locator(".session-title", has_text=f"Agent<{number}>")).to_have_count(1)
        details = tab.evaluate("() => recollect.send('GET', `/page/conversation/${recollect.segment(recollect.current)}/details`, undefined, { accept: 'text/html' })")  # fmt: skip
        assert not [character for character in details if not character.isprintable() and character != "\n"]
        tab.context.close()
