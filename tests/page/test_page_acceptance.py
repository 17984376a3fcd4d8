"""The whole sequence that a person goes through, with the server ended and started again in between."""

from __future__ import annotations

import contextlib
import sqlite3

from playwright.sync_api import expect

import recollect

from around import until  # isort: skip
from test_page_talk import answered, questions, said  # isort: skip


def restarted(server, page, *, kill=False):
    """End the server, see that the page says so, start it again, and see that the page recovers by itself."""
    server.stop(kill=kill)
    expect(page.locator("#offline")).to_be_visible()
    server.start()
    expect(page.locator("#offline")).to_be_hidden()


@contextlib.contextmanager
def shown_anew(page):
    """Wait until a conversation is shown in the place of the one before, be it the same one."""
    page.evaluate("() => { window.before = document.querySelector('.talk'); }")
    yield
    page.wait_for_function("() => recollect.talk()?.element.isConnected && recollect.talk().element !== window.before")


def titled(page, title):
    with shown_anew(page):
        page.get_by_role("button", name="New chat").first.click()
    expect(page.locator("#messages > article")).to_have_count(0)
    page.locator(".title button").click()
    page.keyboard.type(title)
    page.keyboard.press("Enter")
    expect(page.locator(".title button")).to_have_text(title)


def row(page, title):
    return page.locator("#sessions li.session", has_text=title)


def counted(path, rows):
    """Count the rows of a view with any sqlite3."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as plain:
        return plain.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]


def test_the_acceptance_sequence(own_server, talk_at):
    ended = ("ERR_", "Failed to load")
    page = talk_at(own_server.url, expected=ended)
    titled(page, "Session A")
    for text in ("echo A1", "echo A2", "What is 12 * 34?"):
        said(page, text)
        answered(page)
    titled(page, "Session B")
    for text in ("echo B1", "echo B2"):
        said(page, text)
        answered(page)
    with shown_anew(page):
        row(page, "Session A").locator("a").first.click()
    expect(page.locator("#messages > .user")).to_have_count(3)
    assert questions(page) == ["echo A1", "echo A2", "What is 12 * 34?"]

    restarted(own_server, page)
    again = talk_at(own_server.url, expected=ended)
    expect(again.locator(".title button")).to_have_text("Session A")
    expect(again.locator("#messages > .user")).to_have_count(3)
    expect(again.locator("#messages > .assistant").last).to_contain_text("408")
    with shown_anew(again):
        row(again, "Session B").locator("a").first.click()
    expect(again.locator("#messages > .user")).to_have_count(2)
    assert questions(again) == ["echo B1", "echo B2"]
    again.get_by_role("button", name="Conversation menu").click()
    again.get_by_role("button", name="Delete", exact=True).click()
    expect(row(again, "Session B")).to_have_count(0)
    expect(again.locator(".toast")).to_contain_text("Session B")

    restarted(own_server, again, kill=True)
    last = talk_at(own_server.url, expected=ended)
    expect(row(last, "Session A")).to_have_count(1)
    expect(row(last, "Session B")).to_have_count(0)
    with shown_anew(last):
        row(last, "Session A").locator("a").first.click()
    expect(last.locator("#messages > .user")).to_have_count(3)
    said(last, "echo A4")
    answered(last, "A4")
    assert questions(page)[:3] == ["echo A1", "echo A2", "What is 12 * 34?"]
    expect(page.locator("#messages > .user")).to_have_count(4)  # the first window, two restarts later

    messages, parts, done = (
        counted(own_server.path, name)
        for name in ("chat_messages", "message_parts", "tool_invocations WHERE status = 'success'")
    )
    assert parts >= messages > 0
    assert done >= 1


def test_an_answer_that_a_killed_server_left_is_marked_and_goes_on(own_server, talk_at):
    page = talk_at(own_server.url, expected=("ERR_", "Failed to load"))
    said(page, "hold for-ever")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    with recollect.open(own_server.path) as store:
        session = store.last_session()
        until(lambda: session.refresh().message_count == 2 and "The open" in session.messages()[1].text)
    page.locator("#composer-text").fill("typed while it was away")
    restarted(own_server, page, kill=True)
    answered(page, "Cut off here")
    expect(page.locator("#messages > .assistant").last).to_contain_text("The first paragraph is complete.")
    expect(page.locator("#composer-text")).to_have_value("typed while it was away")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#messages > .user")).to_have_count(2)
    answered(page, "You said")
