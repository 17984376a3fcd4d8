"""Logging in with a link and with the form, and addresses that show without changing, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import recollect

from around import TOKEN, WAIT, until  # isort: skip


@pytest.fixture
def visitor(chromium):
    """Open pages of a browser that is not logged in. Return the page and every address that it asked for."""
    contexts = []

    def visit(**options):
        contexts.append(chromium.new_context(**options))
        contexts[-1].set_default_timeout(WAIT)
        page = contexts[-1].new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        return page, asked

    yield visit
    for context in contexts:
        context.close()


def test_the_printed_link_opens_the_app_with_one_click(visitor, common_server):
    page, asked = visitor()
    page.goto(f"{common_server.url}/#token={TOKEN}")
    expect(page.locator("#composer-text")).to_be_visible()
    assert re.fullmatch(re.escape(common_server.url) + "/c/[^#?]+", page.url)
    page.goto("about:blank")
    page.goto(f"{common_server.url}/#token={TOKEN}")  # again, with the cookie
    expect(page.locator("#composer-text")).to_be_visible()
    until(lambda: (page.wait_for_timeout(20), "#" not in page.url)[1])
    page.evaluate("(token) => { location.hash = 'token=' + token; }", TOKEN)
    until(lambda: (page.wait_for_timeout(20), "#" not in page.url)[1])
    sent = [url.partition("#")[0] for url in asked]
    assert sent
    assert not [url for url in sent if TOKEN in url]


def test_a_link_with_a_wrong_token_shows_the_form(visitor, common_server):
    page, _ = visitor()
    page.goto(f"{common_server.url}/#token=wrong")
    expect(page.locator("#login-failed")).to_be_visible()
    assert page.url == f"{common_server.url}/"
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    expect(page.locator("#composer-text")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_the_form_posts_the_token(visitor, common_server, scripts):
    page, asked = visitor(java_script_enabled=scripts)
    page.goto(f"{common_server.url}/figures")
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_text("does not know this token")).to_be_visible()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    expect(page.locator("#conversation")).to_be_visible()
    assert not [url for url in asked if "token" in url.replace("tokens", "")]


def test_a_store_without_conversations_begins_one(own_server, talk_at):
    page = talk_at(own_server.url)
    expect(page.locator("#composer-text")).to_be_visible()
    assert "/c/" in page.url
    with recollect.open(own_server.path) as store:
        assert [session.id for session in store.list_sessions()] == [page.evaluate("() => recollect.current")]
    page.go_back()
    assert page.url == "about:blank"


def branched(path, id):
    with recollect.open(path) as store:
        session = store.session(id, title=id)
        session.append([{"role": "user", "content": "left"}, {"role": "assistant", "content": "the **old** way"}])
        session.rewind("1.1")
        session.append({"role": "assistant", "content": "the new way"})


def branch(path, id):
    with recollect.open(path) as store:
        return next(branch.id for branch in store.get_session(id).branches() if branch.current)


def test_a_link_to_another_branch_shows_the_message_and_switches_on_a_click(own_server, talk_at):
    branched(own_server.path, "parted")
    page = talk_at(own_server.url, "/c/parted?m=1.2")
    notice = page.get_by_role("region", name="The message of this link")
    expect(notice).to_contain_text("the **old** way")
    expect(page.locator("#messages")).to_contain_text("the new way")
    assert branch(own_server.path, "parted") == 2
    notice.get_by_role("button", name="Switch to that branch").click()
    expect(notice).to_have_count(0)
    expect(page.locator('[data-message="1.2"]')).to_contain_text("the old way")
    assert branch(own_server.path, "parted") == 1


def test_a_link_to_another_branch_can_be_left_alone(own_server, talk_at):
    branched(own_server.path, "left")
    page = talk_at(own_server.url, "/c/left?m=1.2")
    page.get_by_role("button", name="Stay on this branch").click()
    expect(page.locator(".elsewhere")).to_have_count(0)
    expect(page.locator("#messages")).to_contain_text("the new way")
    assert branch(own_server.path, "left") == 2


def test_a_hit_on_another_branch_is_opened_there(own_server, talk_at):
    branched(own_server.path, "searched")
    page = talk_at(own_server.url, "/c/searched")
    page.evaluate("() => recollect.open('searched', '1.2')")
    expect(page.locator('[data-message="1.2"]')).to_contain_text("the old way")
    assert branch(own_server.path, "searched") == 1
    assert page.locator(".elsewhere").count() == 0


def test_what_was_open_last_is_open_again(own_server, talk_at):
    with recollect.open(own_server.path) as store:
        for id in ("one", "two", "three"):
            store.session(id, title=id)

        def last():
            return store.last_session().id

        page = talk_at(own_server.url, "/c/one")
        until(lambda: last() == "one")
        page.evaluate("() => recollect.open('two')")
        until(lambda: last() == "two")
    page.goto(f"{own_server.url}/")
    assert page.url == f"{own_server.url}/c/two"
