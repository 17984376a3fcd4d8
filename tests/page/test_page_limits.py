"""Long texts and many files: nothing is cut or left out without a word, and what is typed stays."""

from __future__ import annotations

import itertools
import json

import pytest
from playwright.sync_api import expect

import recollect
from recollect.server.page.uploads import LIMITS

from test_page_talk import answered, entered, fresh, png, said  # isort: skip

DROP = """([count, bytes]) => {
    const data = new DataTransfer();
    for (let n = 1; n <= count; n++) data.items.add(new File([new Uint8Array(bytes)], `picture ${n}.png`, { type: "image/png" }));
    document.getElementById("composer").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
LENGTH = "() => document.getElementById('composer-text').value.length"
# A storage with room for this many characters; the browser's own has some millions.
CRAMPED = """(most) => {
    const plain = Storage.prototype.setItem;
    Storage.prototype.setItem = function (key, value) {
        if (value.length > most) throw new DOMException("full", "QuotaExceededError");
        plain.call(this, key, value);
    };
}"""


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def pasted(page, text):
    """Put text in as a paste does: a field cuts it off at its maxlength."""
    page.locator("#composer-text").focus()
    page.keyboard.insert_text(text)


def limited(page, most):
    """Open a new conversation in a page whose limit for a message is `most` bytes."""
    page.route("**/page/conversation/*", lambda route: _lowered(route, most))
    return fresh(page)


def _lowered(route, most):
    answer = route.fetch()
    route.fulfill(response=answer, body=answer.text().replace(f'data-total="{LIMITS.total}"', f'data-total="{most}"'))


def test_a_long_paste_is_sent_whole(talk, store):
    page = talk()
    session = fresh(page)
    text = "brief " + "long words \u20ac " * 40_000 + "\nand the end"  # 520,018 characters
    pasted(page, text)
    assert page.evaluate(LENGTH) == len(text)
    page.reload()
    assert page.evaluate(LENGTH) == len(text)  # the draft
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    answered(page, "Received.")
    assert store.get_session(session).messages()[0].text == text


def test_a_paste_that_is_too_long_for_the_field_is_attached_as_a_file(talk, store):
    page = talk()
    session = fresh(page)
    paste = """(count) => {
        const data = new DataTransfer();
        data.setData("text/plain", "\u20ac".repeat(count));
        const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
        return document.getElementById("composer-text").dispatchEvent(event);
    }"""
    assert page.evaluate(paste, 1_000_000) is True  # left to the field
    expect(page.locator(".file-chip")).to_have_count(0)
    assert page.evaluate(paste, 1_000_001) is False
    expect(page.locator(".file-chip")).to_contain_text("pasted text.txt")
    expect(page.locator(".toast")).to_contain_text("1,000,001 characters")
    said(page, "brief")
    answered(page, "Received.")
    part = store.get_session(session).messages()[0].parts[1]
    assert (part.mime_type, part.size) == ("text/plain", 3 * 1_000_001)


def test_a_message_above_the_limit_is_kept_whole_and_not_sent(talk, store):
    page = talk()
    session = limited(page, 1_000)
    note, send = page.locator("#composer-note"), page.locator("#send")
    pasted(page, "\u20ac" * 333)
    expect(note).to_be_hidden()
    pasted(page, "\n" * 2)
    expect(note).to_contain_text("it has 1,003 bytes, and the limit is 1.0 kB (1,000 bytes). Nothing was cut off")
    expect(send).to_have_attribute("aria-disabled", "true")
    for act in (lambda: page.locator("#composer-text").press("Enter"), lambda: send.click(force=True)):
        act()
        assert page.evaluate(LENGTH) == 335
    page.locator("#composer-text").fill("echo short")
    expect(note).to_be_hidden()
    page.evaluate(DROP, [1, 995])
    expect(note).to_contain_text("1,005 bytes with its files")
    page.locator("#composer-text").press("Enter")
    page.get_by_role("button", name="Remove picture 1.png").click()
    expect(note).to_be_hidden()
    page.locator("#composer-text").press("Enter")
    answered(page, "short")
    assert [message.text for message in store.get_session(session).messages()][:1] == ["echo short"]


def test_an_edited_message_above_the_limit_is_not_sent(talk, store):
    page = talk()
    session = limited(page, 1_000)
    said(page, "echo first")
    answered(page, "first")
    page.locator("#messages > .user").hover()
    page.locator("#messages > .user [data-do=edit]").click()
    page.locator("#composer-text").fill('"' * 600)  # 1,202 bytes of JSON
    expect(page.locator("#composer-note")).to_contain_text("1,202 bytes")
    page.locator("#composer-text").press("Enter")
    page.locator("[data-do=cancel-edit]").click()
    expect(page.locator("#composer-note")).to_be_hidden()
    assert len(store.get_session(session).branches()) == 1


def test_the_server_takes_what_the_page_sends_at_its_limit(talk, store):
    page = talk()
    session = fresh(page)
    page.evaluate(DROP, [3, LIMITS.size])
    page.locator("#composer-text").fill("echo heavy")
    said(page, "echo heavy")
    answered(page, "heavy")
    parts = store.get_session(session).messages()[0].parts
    assert [part.size for part in parts[1:]] == [LIMITS.size] * 3


def test_a_refusal_of_the_server_names_its_limit_and_the_text_stays(talk):
    page = talk(expected=("413",))
    fresh(page)
    detail = "The request is too large: it can have at most 64 MiB (67,108,864 bytes). Send less at a time."
    body = json.dumps({"status": 413, "code": "too-large", "detail": detail})
    page.route("**/say", lambda route: route.fulfill(status=413, body=body, content_type="application/problem+json"))
    entered(page, "stays here")
    expect(page.locator(".toast")).to_contain_text("at most 64 MiB")
    expect(page.locator("#composer-text")).to_have_value("stays here")


def test_fifty_dropped_pictures_are_all_taken(talk, store):
    page = talk()
    session = fresh(page)
    page.evaluate(DROP, [50, 8])
    expect(page.locator(".file-chip")).to_have_count(50)
    expect(page.locator("#refused")).to_be_hidden()
    said(page, "echo fifty")
    answered(page, "fifty")
    assert len(store.get_session(session).messages()[0].parts) == 51


@pytest.mark.parametrize("width", [1280, 390])
def test_files_that_are_left_out_are_named_until_that_is_dismissed(talk, width):
    page = talk(width=width)
    session = fresh(page)
    refused = page.locator("#refused")
    page.evaluate(DROP, [103, 8])
    page.evaluate(DROP, [1, LIMITS.size + 1])
    expect(page.locator(".file-chip")).to_have_count(100)
    expect(refused).to_contain_text("4 files were not added")
    expect(refused).to_contain_text(
        "A message can have at most 100 files: picture 101.png, picture 102.png, picture 103.png."
    )
    expect(refused).to_contain_text("Larger than 20 MB (20,000,000 bytes): picture 1.png (20,000,001 bytes).")
    boxes = page.evaluate("""() => ["refused", "files", "composer-text"].map((id) => {
        const { top, bottom } = document.getElementById(id).getBoundingClientRect(); return [top, bottom]; })""")
    assert all(above[1] <= below[0] for above, below in itertools.pairwise(boxes))  # none covers another
    assert boxes[2][1] <= 800
    fresh(page)
    expect(refused).to_be_hidden()
    page.evaluate("(id) => recollect.open(id)", session)
    expect(refused).to_contain_text("4 files were not added")
    refused.get_by_role("button", name="Dismiss").click()
    expect(refused).to_be_hidden()
    expect(page.locator(".file-chip")).to_have_count(100)
    page.evaluate(DROP, [1, 8])
    expect(refused).to_contain_text("1 file was not added")


def test_files_for_a_message_that_is_edited_are_left_out_with_a_word(talk):
    page = talk()
    fresh(page)
    said(page, "echo edited")
    answered(page, "edited")
    page.locator("#messages > .user").hover()
    page.locator("#messages > .user [data-do=edit]").click()
    page.locator("#file").set_input_files([{"name": "late.png", "mimeType": "image/png", "buffer": png()}])
    expect(page.locator("#refused")).to_contain_text("An edited message keeps the files that it has: late.png.")


def test_a_draft_that_the_browser_can_not_store_is_kept_in_the_window_and_that_is_told(talk, store):
    page = talk()
    first = fresh(page)
    page.evaluate(CRAMPED, 1_000)
    note = page.locator("#composer-note")
    pasted(page, "brief " + "x" * 1_000)
    expect(note).to_contain_text("closing or reloading the window loses it")
    expect(page.locator("#send")).to_have_attribute("aria-disabled", "false")
    second = fresh(page)
    assert page.evaluate(LENGTH) == 0
    expect(note).to_be_hidden()
    page.evaluate("(id) => recollect.open(id)", first)
    expect(page.locator("#composer-text")).to_have_value("brief " + "x" * 1_000)
    expect(note).to_be_visible()
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.evaluate("() => { location.reload(); }")
    page.wait_for_timeout(0)
    page.wait_for_function("() => document.getElementById('composer-text').value.length === 1006")
    assert asked == ["beforeunload"]
    page.locator("#composer-text").press("Enter")
    answered(page)
    expect(note).to_be_hidden()
    assert page.evaluate(
        "() => { const event = new Event('beforeunload', { cancelable: true }); return dispatchEvent(event); }"
    )
    assert store.get_session(first).messages()[0].text == "brief " + "x" * 1_000
    assert store.get_session(second).message_count == 0


def test_a_long_message_that_is_sent_again_after_a_lost_answer_is_said_once(talk, store):
    page = talk(expected=("ERR_FAILED", "Failed to load"))
    session = fresh(page)
    text = "brief " + "again " * 80_000
    pasted(page, text)

    def lost(route):
        route.fetch()
        route.abort()

    page.route("**/say", lost)
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_be_visible()
    page.unroute("**/say")
    stored = page.evaluate("(id) => localStorage.getItem('recollect:sending:' + id)", session)
    assert len(stored) < 1_000
    page.reload()
    page.wait_for_function("() => !recollect.talk().running")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    answered(page)
    assert [message.role for message in store.get_session(session).messages()] == ["user", "assistant"]


def test_while_the_server_is_away_sending_says_so(talk, common_server):
    page = talk()
    fresh(page)
    said(page, "hold away")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    entered(page, "next")
    expect(page.locator(".toast")).to_have_text("Wait for the answer, or stop it. Your text is kept.")
    page.evaluate("() => { document.querySelector('.toasts').replaceChildren(); recollect.isOffline = true; }")
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_have_text(
        "The server cannot be reached. Try again when it is back. Your text is kept."
    )
    expect(page.locator("#composer-text")).to_have_value("next")
    page.evaluate("() => { recollect.isOffline = false; }")
    common_server.let("away")
    answered(page, "goes on, and ends here")
