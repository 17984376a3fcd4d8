"""What happens elsewhere, seen in a real browser: sessions deleted or taken by others, many windows, no shared worker."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import recollect

from around import row, until  # isort: skip


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def made(store, title, *said):
    session = store.create_session(title=title)
    session.append([{"role": "user", "content": text} for text in said or ("a word",)])
    return session


def test_the_skip_link_moves_the_focus_and_nothing_else(talk, store):
    session = made(store, "Skipped to")
    page = talk(f"/c/{session.id}")
    for path in (f"/c/{session.id}", "/figures"):
        page.goto(page.url.partition("/c/")[0] + path)
        page.evaluate("() => { window.kept = document.querySelector('#conversation').firstElementChild; }")
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#conversation")).to_be_focused()
        assert page.evaluate("() => window.kept.isConnected")


def test_a_hash_leaves_the_conversation_as_it_is(talk, store):
    session = made(store, "With a hash")
    page = talk(f"/c/{session.id}")
    page.evaluate("() => { window.kept = document.querySelector('.talk'); location.hash = 'conversation'; }")
    page.evaluate("() => { location.hash = 'sidebar'; }")
    page.go_back()
    until(lambda: page.evaluate("() => location.hash") == "#conversation")
    assert page.evaluate("() => window.kept.isConnected")


def test_a_session_deleted_elsewhere_is_told_and_the_next_is_open(talk, store):
    made(store, "The next one")
    doomed = made(store, "The doomed one")
    page = talk(f"/c/{doomed.id}", expected=("404",))  # the panel may ask for it in the same moment
    page.evaluate("() => recollect.actions.details()")
    expect(page.locator("#panel")).to_be_visible()
    store.delete_session(doomed.id)
    expect(page.locator(".toast")).to_contain_text("“The doomed one” was deleted elsewhere.")
    expect(page.locator(".title button")).to_have_text("The next one")
    expect(page.locator("#panel")).to_be_hidden()
    expect(row(page, doomed.id)).to_have_count(0)
    page.get_by_role("button", name="Restore").click()
    expect(page.locator(".title button")).to_have_text("The doomed one")
    page.locator("#composer-text").fill("not to be lost")
    store.erase_session(doomed.id)
    expect(page.locator(".toast").last).to_contain_text("was erased elsewhere")
    until(lambda: page.evaluate("() => recollect.current") != doomed.id)
    expect(page.locator("#composer-text")).to_have_value("not to be lost")


def test_a_conversation_that_takes_the_name_of_an_erased_one_is_shown(talk, store):
    session = store.session("cli:again", title="Once")
    for number in range(20):
        session.append({"role": "user", "content": f"before {number}"})
    page = talk("/c/cli%3Aagain", expected=("404",))
    expect(page.locator("#messages > .user")).to_have_count(20)
    page.evaluate("""() => { window.told = recollect.emit;
        recollect.emit = (name, detail) => { if (name !== 'change') window.told(name, detail); };
        /* what it heard before is asked for first */
        return new Promise((done) => setTimeout(done, 100)).then(() => recollect.refresh()); }""")
    store.erase_session("cli:again")
    other = store.session("cli:again", title="Once")
    other.append({"role": "user", "content": "another one"})
    news = {"session": "cli:again", "revision": other.refresh().revision, "running": False}
    page.evaluate("(news) => window.told('change', news)", news)  # of several changes the last one is told
    expect(page.locator("#messages > .user")).to_have_text([re.compile("another one")])


def test_a_link_to_nothing_is_told_in_words(talk, common_server):
    page = talk(expected=("404",))
    page.goto(common_server.url + "/c/never-was")
    expect(page.locator(".door-card")).to_contain_text("There is no conversation 'never-was' here")
    page.get_by_role("link", name="Open the conversations").click()
    expect(page.locator("#composer-text")).to_be_visible()


def test_a_session_that_answers_elsewhere_offers_to_wait_take_over_or_fork(talk, store):
    session = made(store, "Busy")
    page = talk(f"/c/{session.id}", expected=("409",))
    turn = store.session(session.id).turn("from the terminal")
    expect(page.locator(".ending.open")).to_be_visible()
    page.locator("#composer-text").fill("echo beside it")
    page.locator("#composer-text").press("Enter")
    notice = page.locator(".notice:visible")
    expect(notice).to_contain_text("Another window or program is answering in this conversation.")
    assert "take_over" not in notice.inner_text()
    expect(page.locator("#composer-text")).to_have_value("echo beside it")
    page.get_by_role("button", name="Say it in a fork").click()
    expect(page.locator("#messages > .assistant").last).to_contain_text("beside it")
    assert page.evaluate("() => recollect.current") != session.id
    page.evaluate("(id) => recollect.open(id)", session.id)
    expect(page.locator(".ending.open")).to_be_visible()
    page.locator("#composer-text").fill("echo after it")
    page.locator("#composer-text").press("Enter")
    page.get_by_role("button", name="Send when it is done").click()
    expect(notice).to_contain_text("as soon as the other answer is complete")
    turn.add({"role": "assistant", "content": "said elsewhere"})
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


def test_seven_windows_of_one_browser_stay_live(talk, store):
    session = made(store, "Seven windows")
    first = talk(f"/c/{session.id}")
    windows = [first, *(talk(f"/c/{session.id}", context=first.context) for _ in range(6))]
    session.append({"role": "user", "content": "to all of them"})
    for window in windows:
        expect(window.locator("#messages > .user").last).to_contain_text("to all of them")
    first.locator("#composer-text").fill("echo and this")
    first.locator("#composer-text").press("Enter")
    for window in windows:
        expect(window.locator("#messages > .assistant").last).to_contain_text("and this")


def test_without_a_shared_worker_a_window_has_a_stream_of_its_own(talk, common_server, store):
    session = made(store, "Alone")
    page = talk()
    page.context.add_init_script("delete window.SharedWorker;")
    held = []
    page.route("**/events?*", lambda route: held.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    page.goto(f"{common_server.url}/c/{session.id}")
    assert page.evaluate("() => window.SharedWorker === undefined")
    until(lambda: (page.wait_for_timeout(20), held)[1])
    session.append({"role": "user", "content": "before it was heard"})
    held[-1].continue_()
    page.unroute("**/events?*")
    expect(page.locator("#messages > .user").last).to_contain_text("before it was heard")
    session.append({"role": "user", "content": "from elsewhere"})
    expect(page.locator("#messages > .user").last).to_contain_text("from elsewhere")
    page.locator("#composer-text").fill("hold alone")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    common_server.let("alone")
    expect(page.locator("#messages > .assistant").last).to_contain_text("goes on, and ends here")
    expect(page.locator("#messages > .live")).to_have_count(0)


def test_a_pasted_picture_is_sent_and_pasted_text_stays_text(talk, store):
    session = made(store, "Pasted")
    page = talk(f"/c/{session.id}")
    paste = """(files) => {
        const data = new DataTransfer();
        if (files) data.items.add(new File([Uint8Array.from(atob(files), (c) => c.charCodeAt(0))], 'image.png', {type: 'image/png'}));
        else data.setData('text/plain', 'only words');
        const event = new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true});
        return document.getElementById('composer-text').dispatchEvent(event);
    }"""
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    assert page.evaluate(paste, "") is True
    expect(page.locator(".file-chip")).to_have_count(0)
    assert page.evaluate(paste, dot) is False
    expect(page.locator(".file-chip")).to_contain_text("image.png")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages .user img")).to_have_js_property("naturalWidth", 1)
    expect(page.locator(".file-chip")).to_have_count(0)
    until(lambda: any(m.parts and getattr(m.parts[0], "mime_type", "") == "image/png" for m in session.messages()))
