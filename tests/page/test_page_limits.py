"""Long texts and many files: the page truncates or omits nothing silently, and keeps the typed text."""

from __future__ import annotations

import itertools
import json

import pytest
from playwright.sync_api import expect

import recollect
from recollect.server.attachments import UPLOAD_LIMITS

from test_page_conversation import png, send, start_conversation, submit, wait_for_answer  # isort: skip

DROP = """([count, bytes]) => {
    const data = new DataTransfer();
    for (let n = 1; n <= count; n++) data.items.add(new File([new Uint8Array(bytes)], `picture ${n}.png`, { type: "image/png" }));
    document.getElementById("composer").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
LENGTH = "() => document.getElementById('composer-text').value.length"
# A storage that takes values of at most this many characters. The limit of the browser is some millions.
SMALL_STORAGE = """(limit) => {
    const original = Storage.prototype.setItem;
    Storage.prototype.setItem = function (key, value) {
        if (value.length > limit) throw new DOMException("full", "QuotaExceededError");
        original.call(this, key, value);
    };
}"""


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def paste(page, text):
    """Insert text like a paste: a field truncates it at its maxlength."""
    page.locator("#composer-text").focus()
    page.keyboard.insert_text(text)


def start_limited_conversation(page, limit):
    """Start a conversation in a page whose limit for a message is `limit` bytes."""
    page.route("**/page/conversation/*", lambda route: _lower_limit(route, limit))
    return start_conversation(page)


def _lower_limit(route, limit):
    response = route.fetch()
    route.fulfill(
        response=response, body=response.text().replace(f'data-total="{UPLOAD_LIMITS.total}"', f'data-total="{limit}"')
    )


def test_a_long_paste_is_sent_completely(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    text = "brief " + "long words \u20ac " * 40_000 + "\nand the end"  # 520,018 characters
    paste(page, text)
    assert page.evaluate(LENGTH) == len(text)
    page.reload()
    assert page.evaluate(LENGTH) == len(text)  # restored from the stored draft
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    wait_for_answer(page, "Received.")
    assert store.get_session(session).messages()[0].text == text


def test_a_paste_too_long_for_the_composer_is_attached_as_a_file(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    dispatch_paste = """(count) => {
        const data = new DataTransfer();
        data.setData("text/plain", "\u20ac".repeat(count));
        const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
        return document.getElementById("composer-text").dispatchEvent(event);
    }"""
    assert page.evaluate(dispatch_paste, 1_000_000) is True  # not prevented: the browser inserts the text
    expect(page.locator(".file-chip")).to_have_count(0)
    assert page.evaluate(dispatch_paste, 1_000_001) is False
    expect(page.locator(".file-chip")).to_contain_text("pasted text.txt")
    expect(page.locator(".toast")).to_contain_text("1,000,001 characters")
    send(page, "brief")
    wait_for_answer(page, "Received.")
    part = store.get_session(session).messages()[0].parts[1]
    assert (part.mime_type, part.size) == ("text/plain", 3 * 1_000_001)


def test_a_message_above_the_limit_stays_in_the_composer_and_is_not_sent(open_scripted_page, store):
    page = open_scripted_page()
    session = start_limited_conversation(page, 1_000)
    note, send = page.locator("#composer-note"), page.locator("#send")
    paste(page, "\u20ac" * 333)
    expect(note).to_be_hidden()
    paste(page, "\n" * 2)
    expect(note).to_contain_text("too large: 1,003 bytes. The limit is 1.0 kB (1,000 bytes). Shorten it")
    expect(send).to_have_attribute("aria-disabled", "true")
    for submit_action in (lambda: page.locator("#composer-text").press("Enter"), lambda: send.click(force=True)):
        submit_action()
        assert page.evaluate(LENGTH) == 335
    page.locator("#composer-text").fill("echo short")
    expect(note).to_be_hidden()
    page.evaluate(DROP, [1, 995])
    expect(note).to_contain_text("1,005 bytes including files")
    page.locator("#composer-text").press("Enter")
    page.get_by_role("button", name="Remove picture 1.png").click()
    expect(note).to_be_hidden()
    page.locator("#composer-text").press("Enter")
    wait_for_answer(page, "short")
    assert [message.text for message in store.get_session(session).messages()][:1] == ["echo short"]


def test_an_edited_message_above_the_limit_is_not_sent(open_scripted_page, store):
    page = open_scripted_page()
    session = start_limited_conversation(page, 1_000)
    send(page, "echo first")
    wait_for_answer(page, "first")
    page.locator("#messages > .user").hover()
    page.locator("#messages > .user [data-do=edit]").click()
    page.locator("#composer-text").fill('"' * 600)  # 1,202 bytes of JSON
    expect(page.locator("#composer-note")).to_contain_text("1,202 bytes")
    page.locator("#composer-text").press("Enter")
    page.locator("[data-do=cancel-edit]").click()
    expect(page.locator("#composer-note")).to_be_hidden()
    assert len(store.get_session(session).branches.list()) == 1


def test_the_server_accepts_a_message_at_the_limit_of_the_page(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    page.evaluate(DROP, [3, UPLOAD_LIMITS.size])
    page.locator("#composer-text").fill("echo heavy")
    send(page, "echo heavy")
    wait_for_answer(page, "heavy")
    parts = store.get_session(session).messages()[0].parts
    assert [part.size for part in parts[1:]] == [UPLOAD_LIMITS.size] * 3


def test_an_error_of_the_server_shows_its_limit_and_the_text_stays(open_scripted_page):
    page = open_scripted_page(expected=("413",))
    start_conversation(page)
    detail = "The request body must have at most 64 MiB (67,108,864 bytes). Send less at a time."
    body = json.dumps({"status": 413, "code": "too-large", "detail": detail})
    page.route("**/say", lambda route: route.fulfill(status=413, body=body, content_type="application/problem+json"))
    submit(page, "this text stays")
    expect(page.locator(".toast")).to_contain_text("at most 64 MiB")
    expect(page.locator("#composer-text")).to_have_value("this text stays")


def test_fifty_dropped_pictures_are_all_attached(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    page.evaluate(DROP, [50, 8])
    expect(page.locator(".file-chip")).to_have_count(50)
    expect(page.locator("#refused")).to_be_hidden()
    send(page, "echo fifty")
    wait_for_answer(page, "fifty")
    assert len(store.get_session(session).messages()[0].parts) == 51


@pytest.mark.parametrize("width", [1280, 390])
def test_rejected_files_are_listed_until_the_list_is_dismissed(open_scripted_page, width):
    page = open_scripted_page(width=width)
    session = start_conversation(page)
    rejection = page.locator("#refused")
    page.evaluate(DROP, [103, 8])
    page.evaluate(DROP, [1, UPLOAD_LIMITS.size + 1])
    expect(page.locator(".file-chip")).to_have_count(100)
    expect(rejection).to_contain_text("4 files were not added")
    expect(rejection).to_contain_text(
        "A message can have at most 100 files: picture 101.png, picture 102.png, picture 103.png."
    )
    expect(rejection).to_contain_text("Larger than 20 MB (20,000,000 bytes): picture 1.png (20,000,001 bytes).")
    boxes = page.evaluate("""() => ["refused", "files", "composer-text"].map((id) => {
        const { top, bottom } = document.getElementById(id).getBoundingClientRect(); return [top, bottom]; })""")
    assert all(above[1] <= below[0] for above, below in itertools.pairwise(boxes))  # the boxes do not overlap
    assert boxes[2][1] <= 800
    start_conversation(page)
    expect(rejection).to_be_hidden()
    page.evaluate("(id) => recollect.open(id)", session)
    expect(rejection).to_contain_text("4 files were not added")
    rejection.get_by_role("button", name="Dismiss").click()
    expect(rejection).to_be_hidden()
    expect(page.locator(".file-chip")).to_have_count(100)
    page.evaluate(DROP, [1, 8])
    expect(rejection).to_contain_text("1 file was not added")


def test_files_for_an_edited_message_are_rejected_with_a_reason(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "echo edited")
    wait_for_answer(page, "edited")
    page.locator("#messages > .user").hover()
    page.locator("#messages > .user [data-do=edit]").click()
    page.locator("#file").set_input_files([{"name": "late.png", "mimeType": "image/png", "buffer": png()}])
    expect(page.locator("#refused")).to_contain_text("An edited message keeps its files: late.png.")


def test_a_draft_too_long_for_the_browser_storage_stays_in_the_window_with_a_warning(open_scripted_page, store):
    page = open_scripted_page()
    first = start_conversation(page)
    page.evaluate(SMALL_STORAGE, 1_000)
    note = page.locator("#composer-note")
    paste(page, "brief " + "x" * 1_000)
    expect(note).to_contain_text("Send it before you close or reload this window")
    expect(page.locator("#send")).to_have_attribute("aria-disabled", "false")
    second = start_conversation(page)
    assert page.evaluate(LENGTH) == 0
    expect(note).to_be_hidden()
    page.evaluate("(id) => recollect.open(id)", first)
    expect(page.locator("#composer-text")).to_have_value("brief " + "x" * 1_000)
    expect(note).to_be_visible()
    dialogs = []
    page.once("dialog", lambda dialog: (dialogs.append(dialog.type), dialog.dismiss()))
    page.evaluate("() => { location.reload(); }")
    page.wait_for_timeout(0)
    page.wait_for_function("() => document.getElementById('composer-text').value.length === 1006")
    assert dialogs == ["beforeunload"]
    page.locator("#composer-text").press("Enter")
    wait_for_answer(page)
    expect(note).to_be_hidden()
    assert page.evaluate(
        "() => { const event = new Event('beforeunload', { cancelable: true }); return dispatchEvent(event); }"
    )
    assert store.get_session(first).messages()[0].text == "brief " + "x" * 1_000
    assert store.get_session(second).message_count == 0


def test_a_long_message_sent_again_after_a_lost_response_is_stored_once(open_scripted_page, store):
    page = open_scripted_page(expected=("ERR_FAILED", "Failed to load"))
    session = start_conversation(page)
    text = "brief " + "again " * 80_000
    paste(page, text)

    def lose_response(route):
        route.fetch()
        route.abort()

    page.route("**/say", lose_response)
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_be_visible()
    page.unroute("**/say")
    pending = page.evaluate("(id) => localStorage.getItem('recollect:sending:' + id)", session)
    assert len(pending) < 1_000
    page.reload()
    page.wait_for_function("() => !recollect.view().running")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    wait_for_answer(page)
    assert [message.role for message in store.get_session(session).messages()] == ["user", "assistant"]


def test_sending_while_an_answer_runs_or_the_server_is_offline_shows_a_message(open_scripted_page, common_server):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "hold offline")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    submit(page, "next")
    expect(page.locator(".toast")).to_have_text("Wait for the answer or stop it. Your text is kept.")
    page.evaluate("() => { document.querySelector('.toasts').replaceChildren(); recollect.isOffline = true; }")
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_have_text("Can't reach the server. Try again when it is back. Your text is kept.")
    expect(page.locator("#composer-text")).to_have_value("next")
    page.evaluate("() => { recollect.isOffline = false; }")
    common_server.create_file("offline")
    wait_for_answer(page, "continues and ends here")
