"""A conversation in a real browser: sending, streaming, stopping, branches, forks, files, two windows, the keyboard."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import pytest
from playwright.sync_api import expect

import recollect

from page_helpers import TOKEN, HeldResponse, until  # isort: skip


def submit(page, text):
    """Type a message and press Enter."""
    page.locator("#composer-text").fill(text)
    page.locator("#composer-text").press("Enter")


def send(page, text):
    """Send a message, and wait until the server has accepted it."""
    submit(page, text)
    expect(page.locator("#composer-text")).to_have_value("")


def wait_for_answer(page, text=None):
    """Wait until an answer is complete and contains this text."""
    if text is not None:
        expect(page.locator("#messages > .assistant").last).to_contain_text(text)
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#messages > .live")).to_have_count(0)
    if text is not None:
        expect(page.locator("#messages > .assistant").last).to_contain_text(text)


def questions(page):
    """Return the texts of the user's messages."""
    return page.locator("#messages > .user .words").all_inner_texts()


def start_conversation(page):
    """Start a conversation, and return the id of its session."""
    page.evaluate("() => recollect.startConversation({title: 'A test'})")
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


def test_streaming_keeps_the_selection_and_the_rendered_nodes(open_scripted_page, common_server):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "hold streaming")
    live = page.locator("#messages > .live")
    expect(live).to_contain_text("The open paragraph")
    expect(page.locator("#stop")).to_be_visible()
    page.locator(".reasoning summary").click()
    page.evaluate("""() => {
        window.heading = document.querySelector('.live h1');
        window.paragraph = [...document.querySelectorAll('.live p')].at(-1);
        const range = document.createRange();
        range.setStart(window.heading.firstChild, 0);
        range.setEnd(window.paragraph.firstChild, 8);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
    }""")
    selection = page.evaluate("() => getSelection().toString()")
    assert "A heading" in selection
    common_server.create_file("streaming")
    wait_for_answer(page, "continues and ends here")
    assert page.evaluate("() => getSelection().toString()") == selection
    assert page.evaluate("() => window.heading.isConnected && window.paragraph.isConnected")
    expect(page.locator(".reasoning")).to_have_attribute("open", "")
    expect(page.locator(".assistant .code .nb").first).to_have_text("print")
    expect(page.locator(".assistant .figures")).to_contain_text("10 in, 20 out")


def test_a_reload_while_an_answer_streams_shows_the_whole_answer(open_scripted_page, common_server, store):
    page = open_scripted_page()
    session = start_conversation(page)
    send(page, "hold reloaded")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.reload()
    expect(page.locator("#messages > .live h1")).to_have_text("A heading")
    expect(page.locator("#stop")).to_be_visible()
    common_server.create_file("reloaded")
    wait_for_answer(page, "continues and ends here")
    expect(page.locator("#messages > .assistant h1")).to_have_count(1)
    assert [message.role for message in store.session(session).messages()] == ["user", "assistant"]


def test_escape_stops_an_answer_and_the_continue_button_continues_it(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "hold forever")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.keyboard.press("Escape")
    wait_for_answer(page, "Stopped.")
    expect(page.locator(".assistant").last).to_contain_text("The first paragraph is complete.")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#messages > .user")).to_have_count(2)
    wait_for_answer(page)
    assert questions(page)[-1] == "Continue"
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)


def test_a_failed_answer_shows_the_error_and_can_be_retried(open_scripted_page, common_server):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "fail please")
    wait_for_answer(page, "The model could not answer.")
    expect(page.locator(".ending.failed")).to_contain_text("the provider hung up")
    expect(page.locator(".assistant")).to_contain_text("Half an")
    common_server.create_file("fixed")
    page.get_by_role("button", name="Retry").click()
    wait_for_answer(page, "You said")
    assert questions(page) == ["fail please"]
    expect(page.locator(".assistant .stepper")).to_contain_text("2/2")
    (common_server.folder / "fixed").unlink()


def test_a_tool_card_updates_while_the_tool_runs_and_opens_if_it_fails(open_scripted_page, common_server):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "tool first")
    card = page.locator(".live .card")
    expect(card.locator(".dot.running")).to_be_visible()
    expect(card.locator("summary")).to_contain_text("<b>markup</b>")
    card.locator("summary").click()
    common_server.create_file("first")
    wait_for_answer(page, "The tool has answered.")
    card = page.locator(".assistant .card").first
    expect(card.locator(".dot.success")).to_be_visible()
    expect(card).to_have_attribute("open", "")
    expect(card.locator("summary")).to_contain_text("1.2 s")
    expect(card.locator("pre").last).to_contain_text("<script>alert('output')</script>")
    card.get_by_role("button", name="Open").click()
    expect(page.locator("#panel pre").last).to_contain_text("<script>alert('output')</script>")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    common_server.create_file("bad")
    send(page, "tool bad")
    wait_for_answer(page)
    expect(page.locator(".assistant").last.locator(".card.error")).to_have_attribute("open", "")


def test_edit_regenerate_and_switch_between_versions(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    send(page, "echo one")
    wait_for_answer(page, "one")
    send(page, "echo two")
    wait_for_answer(page, "two")
    page.locator("#composer-text").press("ArrowUp")
    expect(page.locator("#editing")).to_be_visible()
    expect(page.locator("#composer-text")).to_have_value("echo two")
    send(page, "echo three")
    wait_for_answer(page, "three")
    assert questions(page) == ["echo one", "echo three"]
    stepper = page.locator("#messages > .user").last.locator(".stepper")
    expect(stepper).to_contain_text("2/2")
    stepper.get_by_role("button", name="Previous version").click()
    expect(page.locator("#messages > .user").last).to_contain_text("echo two")
    expect(page.locator("#messages > .user").last.locator(".stepper")).to_contain_text("1/2")
    page.locator("#messages > .assistant").first.hover()
    page.locator("#messages > .assistant").first.get_by_role("button", name="Regenerate").click()
    expect(page.locator("#messages > .assistant")).to_have_count(1)
    wait_for_answer(page, "one")
    expect(page.locator("#messages > .assistant .stepper")).to_contain_text("2/2")
    page.get_by_role("button", name="Conversation menu").click()
    page.get_by_role("button", name="Branches").click()
    branches = page.locator("#panel .branch")
    expect(branches).to_have_count(3)
    branches.nth(1).click()
    expect(page.locator("#messages > .user").last).to_contain_text("echo three")
    expect(page.locator("#panel .branch[aria-current]")).to_contain_text("echo three")
    texts = [message.text for message in store.get_session(session).messages()]
    assert texts == ["echo one", "one", "echo three", "three"]


def test_a_fork_shares_only_the_messages_before_it(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    for text in ("echo one", "echo two"):
        send(page, text)
        wait_for_answer(page, text[5:])
    first = page.locator("#messages > .assistant").first
    first.hover()
    first.get_by_role("button", name="Fork here").click()
    expect(page.locator("#messages > .user")).to_have_count(1)
    fork = page.evaluate("() => recollect.current")
    assert fork != session
    send(page, "echo other")
    wait_for_answer(page, "other")
    assert questions(page) == ["echo one", "echo other"]
    assert [message.text for message in store.get_session(session).messages()] == ["echo one", "one", "echo two", "two"]
    page.go_back()
    expect(page.locator("#messages > .user").last).to_contain_text("echo two")


def test_files_are_attached_by_button_and_drop_and_are_not_executed(open_scripted_page, common_server, store):
    page = open_scripted_page()
    session = start_conversation(page)
    hostile = '<img src=x onerror="alert(1)">.html'
    page.locator("#file").set_input_files(
        [
            {"name": "a picture.png", "mimeType": "image/png", "buffer": png()},
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
    send(page, "echo files")
    wait_for_answer(page, "files")
    image = page.locator("#messages .user img")
    expect(image).to_have_js_property("naturalWidth", 3)
    expect(page.locator("#messages .user")).to_contain_text(hostile)
    parts = store.get_session(session).messages()[0].parts
    assert [part.mime_type for part in parts[1:]] == ["image/png", "text/html", "text/plain"]
    assert base64.b64decode(parts[1].data) == png()
    response = page.request.get(common_server.url + page.locator(".attachment-file").first.get_attribute("href"))
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in response.headers["content-security-policy"]


def test_two_windows_show_messages_of_each_other_and_of_another_process(open_scripted_page, common_server, store):
    page = open_scripted_page()
    session = start_conversation(page)
    other = open_scripted_page(f"/c/{session}", context=page.context)
    expect(other.locator("#composer-text")).to_be_visible()
    send(page, "hold both")
    for window in (page, other):
        expect(window.locator("#messages > .live")).to_contain_text("The open paragraph")
        expect(window.locator("#stop")).to_be_visible()
    common_server.create_file("both")
    for window in (page, other):
        wait_for_answer(window, "continues and ends here")
    with store.session(session).turn("from the terminal") as turn:
        for window in (page, other):
            expect(window.locator("#messages > .user").last).to_contain_text("from the terminal")
            expect(window.locator(".ending.open")).to_contain_text("Another window or program is answering")
        turn.add({"role": "assistant", "content": "answered elsewhere"})
    for window in (page, other):
        wait_for_answer(window, "answered elsewhere")
    store.session(session).update(title="Renamed <i>elsewhere</i>")
    for window in (page, other):
        expect(window.locator(".title button")).to_have_text("Renamed <i>elsewhere</i>")
    assert page.locator("#messages > article").count() == other.locator("#messages > article").count() == 4


def test_new_messages_do_not_scroll_the_view_and_show_a_button(open_scripted_page, common_server, store):
    session = store.session(title="Long")
    session.append(
        [
            message
            for n in range(60)
            for message in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}\n\n" * 3})
        ]
    )
    page = open_scripted_page(f"/c/{session.id}")
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop -= 900; }")
    expect(page.locator("#below button")).to_be_visible()
    first_visible = "() => { const e = document.getElementById('scroll').getBoundingClientRect().top; const n = [...document.querySelectorAll('#messages > article')].find((n) => n.getBoundingClientRect().bottom > e); return [n.dataset.message, Math.round(n.getBoundingClientRect().top)]; }"
    start = page.evaluate(first_visible)
    session.append([{"role": "user", "content": "new question"}, {"role": "assistant", "content": "new answer"}])
    expect(page.locator("#below")).to_contain_text("New messages")
    expect(page.locator("#messages > .assistant").last).to_contain_text("new answer")
    assert page.evaluate(first_visible) == start
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 100; }")
    position = page.evaluate(first_visible)
    until(lambda: page.evaluate("() => recollect.view().first") == 1)
    now = page.evaluate(first_visible)
    assert now[0] == position[0]
    assert abs(now[1] - position[1]) <= 2
    page.get_by_role("button", name="New messages").click()
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()
    expect(page.locator("#below")).to_be_hidden()


def test_a_long_conversation_has_at_most_300_messages_in_the_page(open_scripted_page, store):
    session = store.session(title="Very long")
    session.append(
        [
            message
            for n in range(1000)
            for message in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}"})
        ]
    )
    page = open_scripted_page(f"/c/{session.id}?m=1.1001")
    expect(page.locator('[data-message="1.1001"]')).to_be_in_viewport()
    expect(page.locator('[data-message="1.1001"]')).to_have_class(re.compile("flash"))
    for target, edge in (("0", 0), ("scroll.scrollHeight", 10**9)):
        for _ in range(9):
            page.locator("#scroll").evaluate(f"(scroll) => {{ scroll.scrollTop = {target}; }}")
            page.wait_for_timeout(60)
        assert page.locator("#messages > article").count() <= 300
        del edge
    page.evaluate("() => recollect.actions['to-end']()")
    expect(page.locator("#messages > .assistant").last).to_contain_text("a 999")
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()


def test_slash_commands_complete_and_show_their_result(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    send(page, "echo one")
    wait_for_answer(page)
    page.locator("#composer-text").press_sequentially("/re")
    expect(page.locator("#completions [role=option]")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(page.locator("#composer-text")).to_have_value("/rename ")
    page.keyboard.type("A better <b>title</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".title button")).to_have_text("A better <b>title</b>")
    expect(page.locator(".notice:visible")).to_be_visible()
    send(page, "/nonsense")
    expect(page.locator(".notice.failed:visible")).to_contain_text("Unknown command")
    submit(page, "/rewind 1")
    expect(page.locator("#composer-text")).to_have_value("echo one")
    submit(page, "/fork")
    until(lambda: page.evaluate("() => recollect.current") != session)
    assert store.get_session(session).title == "A better <b>title</b>"


def test_a_compaction_shows_the_original_messages_and_can_be_undone(open_scripted_page, store):
    session = store.session(title="Compacted")
    for number in range(6):
        session.save_turn(f"question {number}", {"role": "assistant", "content": f"answer {number}"})
    page = open_scripted_page(f"/c/{session.id}")
    page.get_by_role("button", name="Conversation menu").click()
    page.get_by_role("button", name="Compact older messages").click()
    compaction = page.locator("#messages > .compaction")
    expect(compaction).to_contain_text("8 earlier messages")
    assert questions(page) == ["question 4", "question 5"]
    compaction.locator("summary").click()
    expect(compaction.locator(".compaction-items .user")).to_have_count(4)
    expect(compaction).to_contain_text("So far you have sent 4 messages")
    compaction.get_by_role("button", name="Undo").click()
    expect(page.locator("#messages > .compaction")).to_have_count(0)
    assert len(questions(page)) == 6


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_hostile_content_is_text(open_scripted_page, store):
    session = store.session(f"x/{HOSTILE}#%?&", exist_ok=False, title=HOSTILE)
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
    page = open_scripted_page("/")
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


def test_each_session_keeps_its_draft_after_a_reload_and_a_failed_send(open_scripted_page, store):
    page = open_scripted_page(expected=("ERR_FAILED", "Failed to load"))
    first = start_conversation(page)
    page.locator("#composer-text").fill("not sent yet")
    second = start_conversation(page)
    expect(page.locator("#composer-text")).to_have_value("")
    page.evaluate("(id) => recollect.open(id)", first)
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.reload()
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.route("**/say", lambda route: route.abort())
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_contain_text("Can't reach the server")
    expect(page.locator("#composer-text")).to_have_value("not sent yet")
    page.unroute("**/say")
    page.locator("#composer-text").press("Enter")
    wait_for_answer(page, "not sent yet")
    expect(page.locator("#composer-text")).to_have_value("")
    assert store.get_session(first).message_count == 2
    assert store.get_session(second).message_count == 0


def test_a_message_is_sent_once_if_its_conversation_is_reopened_during_the_request(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    response = HeldResponse(page, "/say")
    submit(page, "sent once")
    response.wait_until_held()
    start_conversation(page)
    page.evaluate("(id) => recollect.open(id)", session)
    expect(page.locator("#messages > .user")).to_have_count(1)
    page.locator("#composer-text").press("Enter")
    response.release()
    expect(page.locator("#composer-text")).to_have_value("")
    wait_for_answer(page, "sent once")
    assert questions(page) == ["sent once"]
    assert store.get_session(session).message_count == 2


def test_a_late_refresh_from_before_a_turn_does_not_hide_the_turn(open_scripted_page, common_server):
    page = open_scripted_page()
    start_conversation(page)
    response = HeldResponse(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    response.wait_until_held()
    send(page, "hold earlier")
    page.evaluate("""() => { window.hidden = 0; new MutationObserver(() => { hidden += document.getElementById('stop').hidden; })
        .observe(document.getElementById('stop'), { attributes: true }); }""")
    expect(page.locator("#stop")).to_be_visible()
    response.release()
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    assert page.evaluate("() => window.hidden") == 0
    common_server.create_file("earlier")
    wait_for_answer(page, "continues and ends here")


def test_a_late_refresh_does_not_hide_a_turn_of_another_window(open_scripted_page, common_server):
    page = open_scripted_page()
    session = start_conversation(page)
    other = open_scripted_page(f"/c/{session}", context=page.context)
    expect(other.locator("#composer-text")).to_be_visible()
    response = HeldResponse(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    response.wait_until_held()
    send(other, "hold another")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    expect(page.locator("#stop")).to_be_visible()
    page.evaluate("""() => { window.hidden = 0; new MutationObserver(() => { hidden += document.getElementById('stop').hidden; })
        .observe(document.getElementById('stop'), { attributes: true }); }""")
    response.release()
    page.evaluate("() => recollect.refresh()")
    assert page.evaluate("() => window.hidden") == 0
    common_server.create_file("another")
    for window in (page, other):
        wait_for_answer(window, "continues and ends here")


def test_text_typed_right_after_loading_goes_into_the_composer(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    page.reload()
    page.keyboard.type("hello 1 & ?")
    expect(page.locator("#composer-text")).to_have_value("hello 1 & ?")


def test_enter_of_an_input_method_does_not_send(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
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


def test_a_conversation_can_be_used_with_the_keyboard_alone(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    page.locator("#composer-text").focus()
    page.keyboard.type("echo keys")
    page.keyboard.press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    wait_for_answer(page, "keys")
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("() => document.activeElement.getAttribute('data-do')") == "regenerate":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".stepper")).to_contain_text("2/2")
    wait_for_answer(page)
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


def test_the_conversation_fits_a_phone(open_scripted_page):
    page = open_scripted_page(width=390, height=780, has_touch=True, is_mobile=True)
    start_conversation(page)
    send(page, "Show me some code")
    wait_for_answer(page, "fibonacci")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    code = page.locator(".code pre")
    assert code.evaluate("(pre) => pre.getBoundingClientRect().right") <= 390
    actions = page.locator("#messages .user .message-actions")
    assert actions.bounding_box()["width"] <= 1
    assert page.locator("#messages .assistant .message-actions").bounding_box()["width"] > 100

    def wait_for_width(above, maximum):
        until(lambda: (page.wait_for_timeout(20), above < actions.bounding_box()["width"] <= maximum)[1])

    page.locator("#messages .user .bubble").tap()
    wait_for_width(100, 390)
    page.wait_for_timeout(600)  # a double tap would select a word
    page.locator("#messages .user .bubble").tap()
    wait_for_width(-1, 1)
    for button in ("#send", "[data-do=attach]"):
        box = page.locator(button).bounding_box()
        assert box["width"] >= 36
        assert box["height"] >= 36
        assert box["x"] + box["width"] <= 390
    expect(page.locator("#send")).to_be_in_viewport()


def test_the_model_is_chosen_per_session_and_stored(open_scripted_page, store):
    page = open_scripted_page(expected=("409",))
    session = start_conversation(page)
    page.locator("button.model").click()
    page.locator("#model-name").fill("nobody:nothing")
    page.locator("#model-name").press("Enter")
    expect(page.locator(".toast").last).to_contain_text("nobody")
    assert store.get_session(session).model is None
    page.locator("button.model").click()
    page.locator('#model-menu [data-model="demo"]').click()
    until(lambda: store.get_session(session).model == "demo")


def test_a_message_that_cannot_be_stored_stays_in_the_composer_with_an_error(own_server, open_page_at):
    page = open_page_at(own_server.url, expected=("507",))
    start_conversation(page)
    own_server.create_file("full")
    submit(page, "echo not to be lost")
    expect(page.locator(".toast").last).to_contain_text("full")
    expect(page.locator("#composer-text")).to_have_value("echo not to be lost")
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#messages > article")).to_have_count(0)
    (own_server.folder / "full").unlink()
    page.locator("#composer-text").press("Enter")
    wait_for_answer(page, "not to be lost")
    assert questions(page) == ["echo not to be lost"]


def test_the_page_requires_a_token(chromium, common_server):
    context = chromium.new_context()
    page = context.new_page()
    response = page.goto(common_server.url + "/")
    assert response.status == 401
    assert TOKEN not in page.content()
    context.close()
