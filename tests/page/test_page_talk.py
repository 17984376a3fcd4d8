"""A conversation in a real browser: said, streamed, stopped, branched, forked, with files, in two windows, by keys."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import pytest
from playwright.sync_api import expect

import recollect

from around import TOKEN, Held, until  # isort: skip


def entered(page, text):
    page.locator("#composer-text").fill(text)
    page.locator("#composer-text").press("Enter")


def said(page, text):
    """Say something, and wait until it is taken."""
    entered(page, text)
    expect(page.locator("#composer-text")).to_have_value("")


def answered(page, text=None):
    """Wait until an answer is complete, with this text in it."""
    if text is not None:
        expect(page.locator("#messages > .assistant").last).to_contain_text(text)
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#messages > .live")).to_have_count(0)
    if text is not None:
        expect(page.locator("#messages > .assistant").last).to_contain_text(text)


def questions(page):
    return page.locator("#messages > .user .words").all_inner_texts()


def fresh(page):
    page.evaluate("() => recollect.begin({title: 'A test'})")
    expect(page.locator("#messages > article")).to_have_count(0)
    return page.evaluate("() => recollect.current")


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def png(width=3, height=2):
    raw = b"".join(b"\0" + b"\x50\x90\x70" * width for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def test_an_answer_streams_and_nothing_under_the_reader_is_touched(talk, common_server):
    page = talk()
    fresh(page)
    said(page, "hold streaming")
    live = page.locator("#messages > .live")
    expect(live).to_contain_text("The open paragraph")
    expect(page.locator("#stop")).to_be_visible()
    page.locator(".reasoning summary").click()
    page.evaluate("""() => {
        window.heading = document.querySelector('.live h1');
        window.open_ = [...document.querySelectorAll('.live p')].at(-1);
        const range = document.createRange();
        range.setStart(window.heading.firstChild, 0);
        range.setEnd(window.open_.firstChild, 8);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
    }""")
    before = page.evaluate("() => getSelection().toString()")
    assert "A heading" in before
    common_server.let("streaming")
    answered(page, "goes on, and ends here")
    assert page.evaluate("() => getSelection().toString()") == before
    assert page.evaluate("() => window.heading.isConnected && window.open_.isConnected")
    expect(page.locator(".reasoning")).to_have_attribute("open", "")
    expect(page.locator(".assistant .code .nb").first).to_have_text("print")
    expect(page.locator(".assistant .figures")).to_contain_text("10 in, 20 out")


def test_a_reload_in_the_middle_shows_all_of_it(talk, common_server, store):
    page = talk()
    session = fresh(page)
    said(page, "hold reloaded")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.reload()
    expect(page.locator("#messages > .live h1")).to_have_text("A heading")
    expect(page.locator("#stop")).to_be_visible()
    common_server.let("reloaded")
    answered(page, "goes on, and ends here")
    expect(page.locator("#messages > .assistant h1")).to_have_count(1)
    assert [message.role for message in store.session(session).messages()] == ["user", "assistant"]


def test_escape_stops_and_continue_goes_on(talk):
    page = talk()
    fresh(page)
    said(page, "hold for-ever")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.keyboard.press("Escape")
    answered(page, "Stopped here.")
    expect(page.locator(".assistant").last).to_contain_text("The first paragraph is complete.")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#messages > .user")).to_have_count(2)
    answered(page)
    assert questions(page)[-1] == "Continue"
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)


def test_a_failure_is_told_in_words_and_retry_asks_again(talk, common_server):
    page = talk()
    fresh(page)
    said(page, "fail please")
    answered(page, "The model could not answer.")
    expect(page.locator(".ending.failed")).to_contain_text("the provider hung up")
    expect(page.locator(".assistant")).to_contain_text("Half an")
    common_server.let("mended")
    page.get_by_role("button", name="Retry").click()
    answered(page, "You said")
    assert questions(page) == ["fail please"]
    expect(page.locator(".assistant .stepper")).to_contain_text("2/2")
    (common_server.folder / "mended").unlink()


def test_a_tool_card_updates_while_it_runs_and_failures_open_by_themselves(talk, common_server):
    page = talk()
    fresh(page)
    said(page, "tool first")
    card = page.locator(".live .card")
    expect(card.locator(".dot.running")).to_be_visible()
    expect(card.locator("summary")).to_contain_text("<b>telling</b>")
    card.locator("summary").click()
    common_server.let("first")
    answered(page, "The tool has answered.")
    card = page.locator(".assistant .card").first
    expect(card.locator(".dot.success")).to_be_visible()
    expect(card).to_have_attribute("open", "")
    expect(card.locator("summary")).to_contain_text("1.2 s")
    expect(card.locator("pre").last).to_contain_text("<script>alert('output')</script>")
    card.get_by_role("button", name="Open").click()
    expect(page.locator("#panel pre").last).to_contain_text("<script>alert('output')</script>")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    common_server.let("bad")
    said(page, "tool bad")
    answered(page)
    expect(page.locator(".assistant").last.locator(".card.error")).to_have_attribute("open", "")


def test_edit_regenerate_and_step_between_them(talk, store):
    page = talk()
    session = fresh(page)
    said(page, "echo one")
    answered(page, "one")
    said(page, "echo two")
    answered(page, "two")
    page.locator("#composer-text").press("ArrowUp")
    expect(page.locator("#editing")).to_be_visible()
    expect(page.locator("#composer-text")).to_have_value("echo two")
    said(page, "echo three")
    answered(page, "three")
    assert questions(page) == ["echo one", "echo three"]
    step = page.locator("#messages > .user").last.locator(".stepper")
    expect(step).to_contain_text("2/2")
    step.get_by_role("button", name="Previous version").click()
    expect(page.locator("#messages > .user").last).to_contain_text("echo two")
    expect(page.locator("#messages > .user").last.locator(".stepper")).to_contain_text("1/2")
    page.locator("#messages > .assistant").first.hover()
    page.locator("#messages > .assistant").first.get_by_role("button", name="Regenerate").click()
    expect(page.locator("#messages > .assistant")).to_have_count(1)
    answered(page, "one")
    expect(page.locator("#messages > .assistant .stepper")).to_contain_text("2/2")
    page.get_by_role("button", name="Conversation menu").click()
    page.get_by_role("button", name="Branches").click()
    twigs = page.locator("#panel .twig")
    expect(twigs).to_have_count(3)
    twigs.nth(1).click()
    expect(page.locator("#messages > .user").last).to_contain_text("echo three")
    expect(page.locator("#panel .twig[aria-current]")).to_contain_text("echo three")
    texts = [message.text for message in store.get_session(session).messages()]
    assert texts == ["echo one", "one", "echo three", "three"]


def test_fork_here_shares_the_past_and_nothing_more(talk, store):
    page = talk()
    session = fresh(page)
    for text in ("echo one", "echo two"):
        said(page, text)
        answered(page, text[5:])
    first = page.locator("#messages > .assistant").first
    first.hover()
    first.get_by_role("button", name="Fork here").click()
    expect(page.locator("#messages > .user")).to_have_count(1)
    fork = page.evaluate("() => recollect.current")
    assert fork != session
    said(page, "echo other")
    answered(page, "other")
    assert questions(page) == ["echo one", "echo other"]
    assert [m.text for m in store.get_session(session).messages()] == ["echo one", "one", "echo two", "two"]
    page.go_back()
    expect(page.locator("#messages > .user").last).to_contain_text("echo two")


def test_files_go_by_button_and_drop_and_are_shown_and_can_not_run(talk, common_server, store):
    page = talk()
    session = fresh(page)
    hostile = '<img src=x onerror="alert(1)">.html'
    page.locator("#file").set_input_files(
        [
            {"name": "a drawer.png", "mimeType": "image/png", "buffer": png()},
            {"name": hostile, "mimeType": "text/html", "buffer": b"<script>alert(1)</script>"},
        ]
    )
    expect(page.locator(".file-chip")).to_have_count(2)
    page.evaluate("""() => {
        const data = new DataTransfer();
        data.items.add(new File(['dropped text'], 'notes.txt', {type: 'text/plain'}));
        document.getElementById('composer').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        const large = new File([new Uint8Array(21 * 1024 * 1024)], 'large.bin');
        const more = new DataTransfer(); more.items.add(large);
        document.getElementById('composer').dispatchEvent(new DragEvent('drop', {dataTransfer: more, bubbles: true, cancelable: true}));
    }""")
    expect(page.locator(".file-chip")).to_have_count(3)
    expect(page.locator("#refused")).to_contain_text("1 file was not added")
    expect(page.locator("#refused")).to_contain_text(
        "Larger than 20 MB (20,000,000 bytes): large.bin (22,020,096 bytes)."
    )
    said(page, "echo seen")
    answered(page, "seen")
    image = page.locator("#messages .user img")
    expect(image).to_have_js_property("naturalWidth", 3)
    expect(page.locator("#messages .user")).to_contain_text(hostile)
    parts = store.get_session(session).messages()[0].parts
    assert [part.mime_type for part in parts[1:]] == ["image/png", "text/html", "text/plain"]
    assert base64.b64decode(parts[1].data) == png()
    answer = page.request.get(common_server.url + page.locator(".attachment-file").first.get_attribute("href"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_two_windows_and_another_process_are_in_step(talk, common_server, store):
    page = talk()
    session = fresh(page)
    other = talk(f"/c/{session}", context=page.context)
    expect(other.locator("#composer-text")).to_be_visible()
    said(page, "hold both")
    for window in (page, other):
        expect(window.locator("#messages > .live")).to_contain_text("The open paragraph")
        expect(window.locator("#stop")).to_be_visible()
    common_server.let("both")
    for window in (page, other):
        answered(window, "goes on, and ends here")
    with store.session(session).turn("from the terminal") as turn:
        for window in (page, other):
            expect(window.locator("#messages > .user").last).to_contain_text("from the terminal")
            expect(window.locator(".ending.open")).to_contain_text("Answering in another window")
        turn.add({"role": "assistant", "content": "said elsewhere"})
    for window in (page, other):
        answered(window, "said elsewhere")
    store.session(session).update(title="Renamed <i>elsewhere</i>")
    for window in (page, other):
        expect(window.locator(".title button")).to_have_text("Renamed <i>elsewhere</i>")
    assert page.locator("#messages > article").count() == other.locator("#messages > article").count() == 4


def test_the_reader_is_not_moved_and_is_told_of_what_is_new(talk, common_server, store):
    session = store.create_session(title="Long")
    session.append(
        [
            m
            for n in range(60)
            for m in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}\n\n" * 3})
        ]
    )
    page = talk(f"/c/{session.id}")
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop -= 900; }")
    expect(page.locator("#below button")).to_be_visible()
    place = "() => { const e = document.getElementById('scroll').getBoundingClientRect().top; const n = [...document.querySelectorAll('#messages > article')].find((n) => n.getBoundingClientRect().bottom > e); return [n.dataset.message, Math.round(n.getBoundingClientRect().top)]; }"
    before = page.evaluate(place)
    session.append([{"role": "user", "content": "new question"}, {"role": "assistant", "content": "new answer"}])
    expect(page.locator("#below")).to_contain_text("New messages")
    expect(page.locator("#messages > .assistant").last).to_contain_text("new answer")
    assert page.evaluate(place) == before
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 100; }")
    seen = page.evaluate(place)
    until(lambda: page.evaluate("() => recollect.talk().first") == 1)
    now = page.evaluate(place)
    assert now[0] == seen[0]
    assert abs(now[1] - seen[1]) <= 2
    page.get_by_role("button", name="New messages").click()
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()
    expect(page.locator("#below")).to_be_hidden()


def test_thousands_of_messages_keep_few_in_the_page(talk, store):
    session = store.create_session(title="Very long")
    session.append(
        [
            m
            for n in range(1000)
            for m in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}"})
        ]
    )
    page = talk(f"/c/{session.id}?m=1.1001")
    expect(page.locator('[data-message="1.1001"]')).to_be_in_viewport()
    expect(page.locator('[data-message="1.1001"]')).to_have_class(re.compile("flash"))
    for way, edge in (("0", 0), ("scroll.scrollHeight", 10**9)):
        for _ in range(9):
            page.locator("#scroll").evaluate(f"(scroll) => {{ scroll.scrollTop = {way}; }}")
            page.wait_for_timeout(60)
        assert page.locator("#messages > article").count() <= 300
        del edge
    page.evaluate("() => recollect.actions['to-end']()")
    expect(page.locator("#messages > .assistant").last).to_contain_text("a 999")
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()


def test_commands_complete_and_tell_their_outcome(talk, store):
    page = talk()
    session = fresh(page)
    said(page, "echo one")
    answered(page)
    page.locator("#composer-text").press_sequentially("/re")
    expect(page.locator("#completions [role=option]")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(page.locator("#composer-text")).to_have_value("/rename ")
    page.keyboard.type("A better <b>title</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".title button")).to_have_text("A better <b>title</b>")
    expect(page.locator(".notice:visible")).to_be_visible()
    said(page, "/nonsense")
    expect(page.locator(".notice.failed:visible")).to_contain_text("no command")
    entered(page, "/rewind 1")
    expect(page.locator("#composer-text")).to_have_value("echo one")
    entered(page, "/fork")
    until(lambda: page.evaluate("() => recollect.current") != session)
    assert store.get_session(session).title == "A better <b>title</b>"


def test_what_was_summed_up_opens_to_the_originals_and_is_undone(talk, store):
    session = store.create_session(title="Summed up")
    for number in range(6):
        session.save_turn(f"question {number}", {"role": "assistant", "content": f"answer {number}"})
    page = talk(f"/c/{session.id}")
    page.get_by_role("button", name="Conversation menu").click()
    page.get_by_role("button", name="Sum up what is old").click()
    fold = page.locator("#messages > .fold")
    expect(fold).to_contain_text("8 earlier messages")
    assert questions(page) == ["question 4", "question 5"]
    fold.locator("summary").click()
    expect(fold.locator(".fold-items .user")).to_have_count(4)
    expect(fold).to_contain_text("So far you said 4 things")
    fold.get_by_role("button", name="Undo").click()
    expect(page.locator("#messages > .fold")).to_have_count(0)
    assert len(questions(page)) == 6


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_hostile_content_is_text(talk, store):
    session = store.create_session(f"x/{HOSTILE}#%?&", title=HOSTILE)
    session.append({"role": "system", "content": HOSTILE})
    session.append({"role": "user", "content": HOSTILE})
    call = {"kind": "tool_call", "call_id": f'"{HOSTILE}', "tool": HOSTILE, "arguments": {HOSTILE: HOSTILE}}
    session.append(
        {
            "role": "assistant",
            "parts": [{"kind": "reasoning", "text": HOSTILE}, {"kind": "text", "text": HOSTILE + " \ud800"}, call],
        }
    )
    result = {
        "kind": "tool_result",
        "call_id": f'"{HOSTILE}',
        "status": "error",
        "text": HOSTILE,
        "error_message": HOSTILE,
    }
    session.append({"role": "tool", "parts": [result]})
    files = [
        {
            "kind": "attachment",
            "mime_type": "image/svg+xml",
            "name": HOSTILE,
            "data": base64.b64encode(b"<svg/>").decode(),
        },
        {"kind": "attachment", "mime_type": "image/png", "name": HOSTILE, "url": "https://elsewhere.example/p.png"},
        {"kind": "attachment", "mime_type": 'x" onload="alert(1)', "name": HOSTILE, "url": "javascript:alert(1)"},
        {"kind": "data", "data": {HOSTILE: HOSTILE}},
    ]
    session.append({"role": "user", "parts": files})
    with pytest.raises(ConnectionError), session.turn("fail"):
        raise ConnectionError(HOSTILE)
    page = talk("/")
    page.evaluate("(id) => recollect.open(id)", session.id)
    expect(page.locator(".title button")).to_have_text(HOSTILE)
    expect(page.locator(".ending.failed")).to_contain_text(HOSTILE)
    expect(page.locator(".card.error").first).to_contain_text(HOSTILE)
    assert page.locator("#conversation script, #conversation img").count() == 0
    assert (
        page.locator("#conversation [onerror], #conversation [onload], #conversation [style*=expression]").count() == 0
    )
    hrefs = page.eval_on_selector_all("#messages a[href]", "links => links.map((a) => a.getAttribute('href'))")
    assert all(re.match("/files/|/c/|https://", href) for href in hrefs), hrefs
    page.evaluate("() => recollect.actions.details()")
    expect(page.locator("#panel")).to_contain_text(HOSTILE)
    assert page.locator("#panel img, #panel script").count() == 0
    page.reload()
    expect(page.locator(".title button")).to_have_text(HOSTILE)


def test_a_draft_is_kept_for_each_session_and_survives_a_failure(talk, store):
    page = talk(expected=("ERR_FAILED", "Failed to load"))
    first = fresh(page)
    page.locator("#composer-text").fill("not sent yet")
    second = fresh(page)
    expect(page.locator("#composer-text")).to_have_value("")
    page.evaluate("(id) => recollect.open(id)", first)
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.reload()
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.route("**/say", lambda route: route.abort())
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_contain_text("can not be reached")
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.unroute("**/say")
    page.locator("#composer-text").press("Enter")
    answered(page, "not sent yet")
    expect(page.locator("#composer-text")).to_have_value("")
    assert store.get_session(first).message_count == 2
    assert store.get_session(second).message_count == 0


def test_what_is_sent_is_not_left_in_a_conversation_that_is_shown_again_meanwhile(talk, store):
    page = talk()
    session = fresh(page)
    held = Held(page, "/say")
    entered(page, "said once")
    held.taken()
    fresh(page)
    page.evaluate("(id) => recollect.open(id)", session)
    expect(page.locator("#messages > .user")).to_have_count(1)
    page.locator("#composer-text").press("Enter")
    held.let()
    expect(page.locator("#composer-text")).to_have_value("")
    answered(page, "said once")
    assert questions(page) == ["said once"]
    assert store.get_session(session).message_count == 2


def test_what_the_page_asked_before_a_turn_does_not_hide_it(talk, common_server):
    page = talk()
    fresh(page)
    held = Held(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    held.taken()
    said(page, "hold earlier")
    page.evaluate("""() => { window.hidden = 0; new MutationObserver(() => { hidden += document.getElementById('stop').hidden; })
        .observe(document.getElementById('stop'), { attributes: true }); }""")
    expect(page.locator("#stop")).to_be_visible()
    held.let()
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    assert page.evaluate("() => window.hidden") == 0
    common_server.let("earlier")
    answered(page, "goes on, and ends here")


def test_what_the_page_asked_before_a_turn_of_another_window_does_not_hide_it(talk, common_server):
    page = talk()
    session = fresh(page)
    other = talk(f"/c/{session}", context=page.context)
    expect(other.locator("#composer-text")).to_be_visible()
    held = Held(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    held.taken()
    said(other, "hold another")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    expect(page.locator("#stop")).to_be_visible()
    page.evaluate("""() => { window.hidden = 0; new MutationObserver(() => { hidden += document.getElementById('stop').hidden; })
        .observe(document.getElementById('stop'), { attributes: true }); }""")
    held.let()
    page.evaluate("() => recollect.refresh()")
    assert page.evaluate("() => window.hidden") == 0
    common_server.let("another")
    for window in (page, other):
        answered(window, "goes on, and ends here")


def test_what_is_typed_into_a_page_that_was_just_loaded_is_written(talk):
    page = talk()
    fresh(page)
    page.reload()
    page.keyboard.type("hello 1 & ?")
    expect(page.locator("#composer-text")).to_have_value("hello 1 & ?")


def test_an_input_method_s_enter_does_not_send(talk):
    page = talk()
    fresh(page)
    page.locator("#composer-text").fill("half a w")
    page.evaluate("""() => {
        const field = document.getElementById('composer-text');
        field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}));
        field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, bubbles: true, cancelable: true}));
    }""")
    page.locator("#composer-text").press("Shift+Enter")
    page.keyboard.type("more")
    expect(page.locator("#composer-text")).to_have_value("half a w\nmore")
    expect(page.locator("#messages > article")).to_have_count(0)


def test_keys_alone_are_enough(talk):
    page = talk()
    fresh(page)
    page.locator("#composer-text").focus()
    page.keyboard.type("echo keys")
    page.keyboard.press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    answered(page, "keys")
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("() => document.activeElement.getAttribute('data-do')") == "regenerate":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".stepper")).to_contain_text("2/2")
    answered(page)
    page.locator(".title button").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("By keys")
    page.keyboard.press("Enter")
    expect(page.locator(".title button")).to_have_text("By keys")
    page.get_by_role("button", name="Conversation menu").focus()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.dataset.do") == "details"
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_contain_text("By keys")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()


def test_on_a_phone(talk):
    page = talk(width=390, height=780, has_touch=True, is_mobile=True)
    fresh(page)
    said(page, "Show me some code")
    answered(page, "fibonacci")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    code = page.locator(".code pre")
    assert code.evaluate("(pre) => pre.getBoundingClientRect().right") <= 390
    doings = page.locator("#messages .user .doings")
    assert doings.bounding_box()["width"] <= 1
    assert page.locator("#messages .assistant .doings").bounding_box()["width"] > 100

    def wide(least, most):
        until(lambda: (page.wait_for_timeout(20), least < doings.bounding_box()["width"] <= most)[1])

    page.locator("#messages .user .said").tap()
    wide(100, 390)
    page.wait_for_timeout(600)  # two taps at once would mark a word
    page.locator("#messages .user .said").tap()
    wide(-1, 1)
    for button in ("#send", "[data-do=attach]"):
        box = page.locator(button).bounding_box()
        assert box["width"] >= 36
        assert box["height"] >= 36
        assert box["x"] + box["width"] <= 390
    expect(page.locator("#send")).to_be_in_viewport()


def test_a_model_is_chosen_for_one_session_and_remembered(talk, store):
    page = talk(expected=("409",))
    session = fresh(page)
    page.locator("button.model").click()
    page.locator("#model-name").fill("nobody:nothing")
    page.locator("#model-name").press("Enter")
    expect(page.locator(".toast").last).to_contain_text("nobody")
    assert store.get_session(session).model is None
    page.locator("button.model").click()
    page.locator('#model-menu [data-model="demo"]').click()
    until(lambda: store.get_session(session).model == "demo")


def test_what_can_not_be_stored_stays_in_the_composer_and_is_told(own_server, talk_at):
    page = talk_at(own_server.url, expected=("507",))
    fresh(page)
    own_server.let("full")
    entered(page, "echo not to be lost")
    expect(page.locator(".toast").last).to_contain_text("full")
    expect(page.locator("#composer-text")).to_have_value("echo not to be lost")
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#messages > article")).to_have_count(0)
    (own_server.folder / "full").unlink()
    page.locator("#composer-text").press("Enter")
    answered(page, "not to be lost")
    assert questions(page) == ["echo not to be lost"]


def test_the_door_is_closed_without_a_token(chromium, common_server):
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(common_server.url + "/")
    assert answer.status == 401
    assert TOKEN not in page.content()
    context.close()
