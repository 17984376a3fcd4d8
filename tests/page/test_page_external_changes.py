"""Changes from other windows and processes in a real browser: deleted and busy sessions, many windows, no shared worker."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import recollect

from page_helpers import row, until  # isort: skip


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def create_session(store, title, *texts):
    """Create a session with user messages."""
    session = store.session(title=title)
    session.append([{"role": "user", "content": text} for text in texts or ("a word",)])
    return session


def test_the_skip_link_only_moves_the_focus(open_scripted_page, store):
    session = create_session(store, "Skip link")
    page = open_scripted_page(f"/c/{session.id}")
    for path in (f"/c/{session.id}", "/usage"):
        page.goto(page.url.partition("/c/")[0] + path)
        page.evaluate("() => { window.element = document.querySelector('#conversation').firstElementChild; }")
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#conversation")).to_be_focused()
        assert page.evaluate("() => window.element.isConnected")


def test_a_change_of_the_hash_does_not_reload_the_conversation(open_scripted_page, store):
    session = create_session(store, "With a hash")
    page = open_scripted_page(f"/c/{session.id}")
    page.evaluate(
        "() => { window.element = document.querySelector('.conversation-view'); location.hash = 'conversation'; }"
    )
    page.evaluate("() => { location.hash = 'sidebar'; }")
    page.go_back()
    until(lambda: page.evaluate("() => location.hash") == "#conversation")
    assert page.evaluate("() => window.element.isConnected")


def test_a_session_deleted_elsewhere_shows_a_message_and_opens_the_next(open_scripted_page, store):
    create_session(store, "The next one")
    deleted = create_session(store, "The deleted one")
    page = open_scripted_page(f"/c/{deleted.id}", expected=("404",))  # the panel may request it at the same time
    page.evaluate("() => recollect.actions.details()")
    expect(page.locator("#panel")).to_be_visible()
    store.delete_session(deleted.id)
    expect(page.locator(".toast")).to_contain_text("“The deleted one” was deleted in another window or program.")
    expect(page.locator(".title button")).to_have_text("The next one")
    expect(page.locator("#panel")).to_be_hidden()
    expect(row(page, deleted.id)).to_have_count(0)
    page.get_by_role("button", name="Restore").click()
    expect(page.locator(".title button")).to_have_text("The deleted one")
    page.locator("#composer-text").fill("not to be lost")
    store.erase_session(deleted.id)
    expect(page.locator(".toast").last).to_contain_text("was erased in another window or program")
    until(lambda: page.evaluate("() => recollect.current") != deleted.id)
    expect(page.locator("#composer-text")).to_have_value("not to be lost")


def test_a_new_session_with_the_id_of_an_erased_one_is_shown(open_scripted_page, store):
    session = store.session("cli:again", title="Once")
    for number in range(20):
        session.append({"role": "user", "content": f"before {number}"})
    page = open_scripted_page("/c/cli%3Aagain", expected=("404",))
    expect(page.locator("#messages > .user")).to_have_count(20)
    page.evaluate("""() => { window.originalEmit = recollect.emit;
        recollect.emit = (name, detail) => { if (name !== 'change') window.originalEmit(name, detail); };
        /* first, process the changes that the page has received already */
        return new Promise((done) => setTimeout(done, 100)).then(() => recollect.refresh()); }""")
    store.erase_session("cli:again")
    other = store.session("cli:again", title="Once")
    other.append({"role": "user", "content": "another one"})
    change = {"session": "cli:again", "revision": other.refresh().revision, "running": False}
    # The server sends only the last of several changes.
    page.evaluate("(change) => window.originalEmit('change', change)", change)
    expect(page.locator("#messages > .user")).to_have_text([re.compile("another one")])


def test_a_link_to_a_missing_session_shows_an_error(open_scripted_page, common_server):
    page = open_scripted_page(expected=("404",))
    page.goto(common_server.url + "/c/missing")
    expect(page.locator(".error-card")).to_contain_text("There is no conversation 'missing'.")
    page.get_by_role("link", name="Back to conversations").click()
    expect(page.locator("#composer-text")).to_be_visible()


def test_a_busy_session_offers_to_wait_take_over_or_fork(open_scripted_page, store):
    session = create_session(store, "Busy")
    page = open_scripted_page(f"/c/{session.id}", expected=("409",))
    turn = store.session(session.id).turn("from the terminal")
    expect(page.locator(".ending.open")).to_be_visible()
    page.locator("#composer-text").fill("echo in a fork")
    page.locator("#composer-text").press("Enter")
    notice = page.locator(".notice:visible")
    expect(notice).to_contain_text("Another window or program is answering in this conversation.")
    assert "take_over" not in notice.inner_text()
    expect(page.locator("#composer-text")).to_have_value("echo in a fork")
    page.get_by_role("button", name="Send in a fork").click()
    expect(page.locator("#messages > .assistant").last).to_contain_text("in a fork")
    assert page.evaluate("() => recollect.current") != session.id
    page.evaluate("(id) => recollect.open(id)", session.id)
    expect(page.locator(".ending.open")).to_be_visible()
    page.locator("#composer-text").fill("echo after it")
    page.locator("#composer-text").press("Enter")
    page.get_by_role("button", name="Send when done").click()
    expect(notice).to_contain_text("will be sent when the other answer is complete")
    turn.add({"role": "assistant", "content": "answered elsewhere"})
    turn.complete()
    expect(page.locator("#messages > .assistant").last).to_contain_text("after it")
    expect(page.locator("#send")).to_be_visible()
    other = store.session(session.id).turn("from a bot")
    expect(page.locator(".ending.open")).to_be_visible()
    page.locator("#composer-text").fill("echo instead of it")
    page.locator("#composer-text").press("Enter")
    page.get_by_role("button", name="Take over").click()
    expect(page.locator("#messages > .assistant").last).to_contain_text("instead of it")
    expect(notice).to_have_count(0)
    with pytest.raises(recollect.RecollectError):
        other.add({"role": "assistant", "content": "too late"})


def test_seven_windows_of_one_browser_get_changes(open_scripted_page, store):
    session = create_session(store, "Seven windows")
    first = open_scripted_page(f"/c/{session.id}")
    windows = [first, *(open_scripted_page(f"/c/{session.id}", context=first.context) for _ in range(6))]
    session.append({"role": "user", "content": "to all of them"})
    for window in windows:
        expect(window.locator("#messages > .user").last).to_contain_text("to all of them")
    first.locator("#composer-text").fill("echo and this")
    first.locator("#composer-text").press("Enter")
    for window in windows:
        expect(window.locator("#messages > .assistant").last).to_contain_text("and this")


def test_without_a_shared_worker_a_window_has_its_own_event_stream(open_scripted_page, common_server, store):
    session = create_session(store, "Alone")
    page = open_scripted_page()
    page.context.add_init_script("delete window.SharedWorker;")
    routes = []
    page.route("**/events?*", lambda route: routes.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    page.goto(f"{common_server.url}/c/{session.id}")
    assert page.evaluate("() => window.SharedWorker === undefined")
    until(lambda: (page.wait_for_timeout(20), routes)[1])
    session.append({"role": "user", "content": "before the stream was open"})
    routes[-1].continue_()
    page.unroute("**/events?*")
    expect(page.locator("#messages > .user").last).to_contain_text("before the stream was open")
    session.append({"role": "user", "content": "from elsewhere"})
    expect(page.locator("#messages > .user").last).to_contain_text("from elsewhere")
    page.locator("#composer-text").fill("hold alone")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    common_server.create_file("alone")
    expect(page.locator("#messages > .assistant").last).to_contain_text("continues and ends here")
    expect(page.locator("#messages > .live")).to_have_count(0)


def test_a_pasted_picture_is_attached_and_pasted_text_stays_text(open_scripted_page, store):
    session = create_session(store, "Pasted")
    page = open_scripted_page(f"/c/{session.id}")
    paste = """(files) => {
        const data = new DataTransfer();
        if (files) data.items.add(new File([Uint8Array.from(atob(files), (c) => c.charCodeAt(0))], 'image.png', {type: 'image/png'}));
        else data.setData('text/plain', 'only text');
        const event = new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true});
        return document.getElementById('composer-text').dispatchEvent(event);
    }"""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    assert page.evaluate(paste, "") is True
    expect(page.locator(".file-chip")).to_have_count(0)
    assert page.evaluate(paste, pixel) is False
    expect(page.locator(".file-chip")).to_contain_text("image.png")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages .user img")).to_have_js_property("naturalWidth", 1)
    expect(page.locator(".file-chip")).to_have_count(0)
    until(
        lambda: any(
            message.parts and getattr(message.parts[0], "mime_type", "") == "image/png"
            for message in session.messages()
        )
    )
