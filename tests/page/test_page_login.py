"""Login with a link and with the form, and links to messages, which change nothing, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import recollect

from page_helpers import TOKEN, WAIT, until  # isort: skip


@pytest.fixture
def visitor(chromium):
    """Return a function that opens a page without login, and returns it with the list of the URLs that it requests."""
    contexts = []

    def visit(**options):
        contexts.append(chromium.new_context(**options))
        contexts[-1].set_default_timeout(WAIT)
        page = contexts[-1].new_page()
        urls = []
        page.on("request", lambda request: urls.append(request.url))
        return page, urls

    yield visit
    for context in contexts:
        context.close()


def test_the_printed_link_logs_in(visitor, common_server):
    page, urls = visitor()
    page.goto(f"{common_server.url}/#token={TOKEN}")
    expect(page.locator("#composer-text")).to_be_visible()
    assert re.fullmatch(re.escape(common_server.url) + "/c/[^#?]+", page.url)
    page.goto("about:blank")
    page.goto(f"{common_server.url}/#token={TOKEN}")  # again, with the cookie
    expect(page.locator("#composer-text")).to_be_visible()
    until(lambda: (page.wait_for_timeout(20), "#" not in page.url)[1])
    page.evaluate("(token) => { location.hash = 'token=' + token; }", TOKEN)
    until(lambda: (page.wait_for_timeout(20), "#" not in page.url)[1])
    addresses = [url.partition("#")[0] for url in urls]
    assert addresses
    assert not [url for url in addresses if TOKEN in url]


def test_a_link_with_a_wrong_token_shows_the_form(visitor, common_server):
    page, _ = visitor()
    page.goto(f"{common_server.url}/#token=wrong")
    expect(page.locator("#login-failed")).to_be_visible()
    assert page.url == f"{common_server.url}/"
    page.get_by_label("Access token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#composer-text")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_the_form_posts_the_token(visitor, common_server, scripts):
    page, urls = visitor(java_script_enabled=scripts)
    page.goto(f"{common_server.url}/usage")
    page.get_by_label("Access token").fill("not the token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("This token is not valid")).to_be_visible()
    page.get_by_label("Access token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#conversation")).to_be_visible()
    assert not [url for url in urls if "token" in url.replace("tokens", "")]


def test_an_empty_store_gets_a_new_conversation(own_server, open_page_at):
    page = open_page_at(own_server.url)
    expect(page.locator("#composer-text")).to_be_visible()
    assert "/c/" in page.url
    with recollect.open(own_server.path) as store:
        assert [session.id for session in store.list_sessions()] == [page.evaluate("() => recollect.current")]
    page.go_back()
    assert page.url == "about:blank"


def create_branches(path, id):
    """Create a session with two branches; the second one is current."""
    with recollect.open(path) as store:
        session = store.session(id, title=id)
        session.append(
            [{"role": "user", "content": "question"}, {"role": "assistant", "content": "the **old** answer"}]
        )
        session.rewind("1.1")
        session.append({"role": "assistant", "content": "the new answer"})


def current_branch(path, id):
    with recollect.open(path) as store:
        return next(branch.id for branch in store.get_session(id).branches.list() if branch.current)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_link_to_another_branch_shows_the_message_and_switches_on_a_click(own_server, open_page_at):
    create_branches(own_server.path, "branches")
    page = open_page_at(own_server.url, "/c/branches?m=1.2")
    notice = page.get_by_role("region", name="Linked message")
    expect(notice).to_contain_text("the **old** answer")
    expect(page.locator("#messages")).to_contain_text("the new answer")
    assert current_branch(own_server.path, "branches") == 2
    notice.get_by_role("button", name="Switch to that branch").click()
    expect(notice).to_have_count(0)
    expect(page.locator('[data-message="1.2"]')).to_contain_text("the old answer")
    assert current_branch(own_server.path, "branches") == 1


def test_a_link_to_another_branch_can_be_dismissed(own_server, open_page_at):
    create_branches(own_server.path, "dismissed")
    page = open_page_at(own_server.url, "/c/dismissed?m=1.2")
    page.get_by_role("button", name="Stay on this branch").click()
    expect(page.locator(".elsewhere")).to_have_count(0)
    expect(page.locator("#messages")).to_contain_text("the new answer")
    assert current_branch(own_server.path, "dismissed") == 2


def test_a_hit_on_another_branch_switches_to_that_branch(own_server, open_page_at):
    create_branches(own_server.path, "searched")
    page = open_page_at(own_server.url, "/c/searched")
    page.evaluate("() => recollect.open('searched', '1.2')")
    expect(page.locator('[data-message="1.2"]')).to_contain_text("the old answer")
    assert current_branch(own_server.path, "searched") == 1
    assert page.locator(".elsewhere").count() == 0


def test_the_last_open_session_is_opened_again(own_server, open_page_at):
    with recollect.open(own_server.path) as store:
        for id in ("one", "two", "three"):
            store.session(id, title=id)

        def last():
            record = store.records.get("agent.state", "last_session")
            return None if record is None else record.value

        page = open_page_at(own_server.url, "/c/one")
        until(lambda: last() == "one")
        page.evaluate("() => recollect.open('two')")
        until(lambda: last() == "two")
    page.goto(f"{own_server.url}/")
    assert page.url == f"{own_server.url}/c/two"
