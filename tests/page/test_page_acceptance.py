"""The acceptance sequence of the web app: two conversations, with the server stopped and started again in between."""

from __future__ import annotations

import contextlib
import sqlite3

from playwright.sync_api import expect

import recollect

from page_helpers import until  # isort: skip
from test_page_conversation import questions, send, wait_for_answer  # isort: skip


def restart(server, page, *, kill=False):
    """Stop the server, check that the page shows it, start the server again, and check that the page reconnects."""
    server.stop(kill=kill)
    expect(page.locator("#offline")).to_be_visible()
    server.start()
    expect(page.locator("#offline")).to_be_hidden()


@contextlib.contextmanager
def new_view(page):
    """Wait until a new view of a conversation, perhaps the same one, replaces the previous view."""
    page.evaluate("() => { window.previousView = document.querySelector('.conversation-view'); }")
    yield
    page.wait_for_function(
        "() => recollect.view()?.element.isConnected && recollect.view().element !== window.previousView"
    )


def create_conversation(page, title):
    """Create a conversation with this title."""
    with new_view(page):
        page.get_by_role("button", name="New chat").first.click()
    expect(page.locator("#messages > article")).to_have_count(0)
    page.locator(".title button").click()
    page.keyboard.type(title)
    page.keyboard.press("Enter")
    expect(page.locator(".title button")).to_have_text(title)


def row(page, title):
    return page.locator("#sessions li.session", has_text=title)


def count_rows(path, view):
    """Count the rows of a view with the sqlite3 module, as any SQLite client can."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(f"SELECT count(*) FROM {view}").fetchone()[0]


def test_the_acceptance_sequence(own_server, open_page_at):
    connection_errors = ("ERR_", "Failed to load")
    page = open_page_at(own_server.url, expected=connection_errors)
    create_conversation(page, "Session A")
    for text in ("echo A1", "echo A2", "What is 12 * 34?"):
        send(page, text)
        wait_for_answer(page)
    create_conversation(page, "Session B")
    for text in ("echo B1", "echo B2"):
        send(page, text)
        wait_for_answer(page)
    with new_view(page):
        row(page, "Session A").locator("a").first.click()
    expect(page.locator("#messages > .user")).to_have_count(3)
    assert questions(page) == ["echo A1", "echo A2", "What is 12 * 34?"]

    restart(own_server, page)
    again = open_page_at(own_server.url, expected=connection_errors)
    expect(again.locator(".title button")).to_have_text("Session A")
    expect(again.locator("#messages > .user")).to_have_count(3)
    expect(again.locator("#messages > .assistant").last).to_contain_text("408")
    with new_view(again):
        row(again, "Session B").locator("a").first.click()
    expect(again.locator("#messages > .user")).to_have_count(2)
    assert questions(again) == ["echo B1", "echo B2"]
    again.get_by_role("button", name="Conversation menu").click()
    again.get_by_role("button", name="Delete", exact=True).click()
    expect(row(again, "Session B")).to_have_count(0)
    expect(again.locator(".toast")).to_contain_text("Session B")

    restart(own_server, again, kill=True)
    last = open_page_at(own_server.url, expected=connection_errors)
    expect(row(last, "Session A")).to_have_count(1)
    expect(row(last, "Session B")).to_have_count(0)
    with new_view(last):
        row(last, "Session A").locator("a").first.click()
    expect(last.locator("#messages > .user")).to_have_count(3)
    send(last, "echo A4")
    wait_for_answer(last, "A4")
    assert questions(page)[:3] == ["echo A1", "echo A2", "What is 12 * 34?"]
    expect(page.locator("#messages > .user")).to_have_count(4)  # the first window, two restarts later

    messages, parts, successes = (
        count_rows(own_server.path, name)
        for name in ("chat_messages", "message_parts", "tool_invocations WHERE status = 'success'")
    )
    assert parts >= messages > 0
    assert successes >= 1


def test_an_answer_interrupted_by_a_killed_server_is_marked_and_can_be_continued(own_server, open_page_at):
    page = open_page_at(own_server.url, expected=("ERR_", "Failed to load"))
    send(page, "hold forever")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    with recollect.open(own_server.path) as store:
        session = store.list_sessions(1)[0]
        until(lambda: session.refresh().message_count == 2 and "The open" in session.messages()[1].text)
    page.locator("#composer-text").fill("typed while the server was down")
    restart(own_server, page, kill=True)
    wait_for_answer(page, "Interrupted: the server stopped during this answer.")
    expect(page.locator("#messages > .assistant").last).to_contain_text("The first paragraph is complete.")
    expect(page.locator("#composer-text")).to_have_value("typed while the server was down")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#messages > .user")).to_have_count(2)
    wait_for_answer(page, "You said")
