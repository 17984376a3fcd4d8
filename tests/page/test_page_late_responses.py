"""Responses that arrive late or out of order: they neither undo nor lose what the user did in the meantime."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

import recollect

from page_helpers import HeldResponse, row, until  # isort: skip
from test_page_conversation import questions, send, start_conversation, submit, wait_for_answer  # isort: skip


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def long_session(store, title):
    """Create a session with 160 messages, which are several pages of results."""
    session = store.session(title=title)
    session.append(
        [
            message
            for number in range(80)
            for message in (
                {"role": "user", "content": f"q {number}"},
                {"role": "assistant", "content": f"a {number}\n\n" * 3},
            )
        ]
    )
    return session


def open_session(page, session):
    """Open a session, and wait until its end is visible."""
    page.evaluate("(id) => recollect.open(id)", session.id)
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()


# The id of the first visible message, and its distance from the top of the window in pixels.
FIRST_VISIBLE = """() => {
    const edge = document.getElementById('scroll').getBoundingClientRect().top;
    const node = [...document.querySelectorAll('#messages > article')].find((article) => article.getBoundingClientRect().bottom > edge);
    return [node.dataset.message, Math.round(node.getBoundingClientRect().top)];
}"""


def scroll_by(page, distance):
    """Scroll, and wait until the page has handled the event."""
    page.locator("#scroll").evaluate(
        """(scroll, distance) => new Promise((done) => {
            const before = scroll.scrollTop, finish = () => requestAnimationFrame(done);
            scroll.scrollTop += distance;
            if (scroll.scrollTop === before) finish(); else scroll.addEventListener('scroll', finish, { once: true });
        })""",
        distance,
    )


def test_a_message_stored_while_a_conversation_opens_is_shown(open_scripted_page, store):
    page = open_scripted_page()
    start_conversation(page)
    session = store.session(title="Opened")
    session.append({"role": "user", "content": "before"})
    page.evaluate(
        """([id, revision]) => { window.changes = 0; document.addEventListener('recollect:change',
            ({ detail }) => { window.changes += detail.session === id && detail.revision > revision; }); }""",
        [session.id, session.revision],
    )
    response = HeldResponse(page, f"/page/conversation/{session.id}")
    page.evaluate("(id) => { recollect.open(id); }", session.id)
    response.wait_until_held()
    session.append({"role": "user", "content": "meanwhile"})
    page.wait_for_function("() => window.changes")
    response.release()
    expect(page.locator("#messages > .user").last).to_contain_text("meanwhile")


def test_a_late_end_of_an_earlier_turn_does_not_end_the_next(open_scripted_page, common_server):
    page = open_scripted_page()
    session = start_conversation(page)
    send(page, "echo first")
    wait_for_answer(page, "first")
    send(page, "hold late-end")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    assert page.evaluate(
        "(id) => { recollect.ended({ session: id, turn: '1.1' }); return recollect.view().running; }", session
    )
    expect(page.locator("#stop")).to_be_visible()
    common_server.create_file("late-end")
    wait_for_answer(page, "continues and ends here")


def test_a_refresh_from_before_older_messages_loaded_does_not_remove_them(open_scripted_page, store):
    page = open_scripted_page()
    open_session(page, long_session(store, "Paged"))
    first = page.evaluate("() => recollect.view().first")
    response = HeldResponse(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    response.wait_until_held()
    scroll_by(page, -(10**6))
    page.wait_for_function("(first) => recollect.view().first < first", arg=first)
    before, position = page.evaluate("() => recollect.view().first"), page.evaluate(FIRST_VISIBLE)
    response.release()
    assert page.evaluate("() => recollect.refresh().then(() => recollect.view().first)") <= before
    assert page.evaluate(FIRST_VISIBLE) == position


def test_a_refresh_during_a_refresh_returns_messages_stored_after_the_first(open_scripted_page, store):
    page = open_scripted_page()
    session = store.session(start_conversation(page))
    response = HeldResponse(page, "/items", '"have"')
    page.evaluate("() => { recollect.refresh(); }")
    response.wait_until_held()
    session.append({"role": "user", "content": "newer"})
    page.evaluate("""() => { window.text = null;
        recollect.refresh().then(() => { window.text = document.querySelector('#messages > .user')?.textContent ?? 'nothing'; }); }""")
    response.release()
    page.wait_for_function("() => window.text !== null")
    assert "newer" in page.evaluate("() => window.text")


def test_a_late_regenerate_response_does_not_change_another_conversation(open_scripted_page, store):
    page = open_scripted_page()
    start_conversation(page)
    send(page, "echo again")
    wait_for_answer(page, "again")
    other = long_session(store, "Another")
    response = HeldResponse(page, "/regenerate")
    page.evaluate("() => { document.querySelector('[data-do=regenerate]').click(); }")
    response.wait_until_held()
    open_session(page, other)
    scroll_by(page, -700)
    position = page.evaluate(FIRST_VISIBLE)
    response.release()
    assert page.evaluate("() => recollect.refresh().then(() => recollect.view().running)") is False
    assert page.evaluate(FIRST_VISIBLE) == position


def test_two_clicks_on_regenerate_send_one_request(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    send(page, "echo once")
    wait_for_answer(page, "once")
    response = HeldResponse(page, "/regenerate")
    page.evaluate(
        "() => { const button = document.querySelector('[data-do=regenerate]'); button.click(); button.click(); }"
    )
    response.release()
    expect(page.locator(".assistant .stepper")).to_contain_text("2/2")
    assert len(store.get_session(session).branches.list()) == 2


def test_text_typed_while_a_command_runs_stays(open_scripted_page):
    page = open_scripted_page()
    session = start_conversation(page)
    response = HeldResponse(page, "/command")
    submit(page, "/rename Slowly")
    response.wait_until_held()
    page.locator("#composer-text").fill("typed meanwhile")
    response.release()
    expect(page.locator(".title button")).to_have_text("Slowly")
    expect(page.locator("#composer-text")).to_have_value("typed meanwhile")
    response = HeldResponse(page, "/command")
    submit(page, "/rename Slower")
    response.wait_until_held()
    start_conversation(page)
    page.locator("#composer-text").fill("in another one")
    response.release()
    expect(page.locator("#composer-text")).to_have_value("in another one")
    page.evaluate("(id) => recollect.open(id)", session)
    expect(page.locator(".title button")).to_have_text("Slower")
    expect(page.locator("#composer-text")).to_have_value("")


def test_a_message_submitted_during_the_previous_request_is_sent(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    response = HeldResponse(page, "/say")
    submit(page, "echo first")
    response.wait_until_held()
    expect(page.locator("#messages > .assistant")).to_contain_text("first")
    wait_for_answer(page)
    submit(page, "echo second")
    page.locator("#composer-text").press("Enter")
    response.release()
    expect(page.locator("#messages > .user")).to_have_count(2)
    wait_for_answer(page, "second")
    expect(page.locator("#composer-text")).to_have_value("")
    assert questions(page) == ["echo first", "echo second"]
    assert store.get_session(session).message_count == 4
    response = HeldResponse(page, "/command")
    submit(page, "/rename Slowly")
    response.wait_until_held()
    submit(page, "echo third")
    response.release()
    wait_for_answer(page, "third")


def test_a_file_attached_while_a_message_is_sent_stays(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    file = {"mimeType": "text/plain", "buffer": b"notes"}
    page.locator("#file").set_input_files([{"name": "first.txt", **file}])
    expect(page.locator(".file-chip")).to_have_count(1)
    response = HeldResponse(page, "/say")
    submit(page, "echo with a file")
    response.wait_until_held()
    page.locator("#file").set_input_files([{"name": "later.txt", **file}])
    expect(page.locator(".file-chip")).to_have_count(2)
    response.release()
    wait_for_answer(page, "with a file")
    expect(page.locator(".file-chip")).to_contain_text("later.txt")


def test_a_late_response_does_not_replace_a_newer_panel_or_conversation(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    response = HeldResponse(page, "/details")
    page.evaluate("() => { recollect.actions.details(); }")
    response.wait_until_held()
    page.evaluate("() => recollect.actions.branches()")
    response.release()
    assert page.locator("#panel").get_attribute("data-url").endswith("/branches")
    response = HeldResponse(page, "/page/new")
    page.evaluate("() => { recollect.startConversation(); }")
    response.wait_until_held()
    page.evaluate("(id) => recollect.open(id)", session)
    response.release()
    assert page.evaluate("() => recollect.current") == session
    response = HeldResponse(page, "/details")
    page.evaluate("() => { recollect.actions.details(); }")
    response.wait_until_held()
    start_conversation(page)
    response.release()
    expect(page.locator("#panel")).to_be_hidden()


def test_an_older_response_does_not_overwrite_a_newer_sidebar_row(open_scripted_page, store):
    page = open_scripted_page()
    start_conversation(page)
    session = store.session(title="Named first")
    session.append({"role": "user", "content": "x"})
    expect(row(page, session.id)).to_have_count(1)
    response = HeldResponse(page, "/page/rows")
    session.update(title="Named second")
    response.wait_until_held()
    page.evaluate("(id) => { recollect.pin(id, true); }", session.id)
    until(lambda: store.get_session(session.id).pinned_at is not None)
    page.wait_for_timeout(700)  # every request that could overtake the held one has finished by then
    response.release()
    expect(row(page, session.id)).to_have_attribute("data-pinned", "")
    session.update(title="Named third")
    expect(row(page, session.id).locator(".session-title")).to_have_text("Named third")
    response = HeldResponse(page, "/page/sessions")
    page.evaluate("() => { recollect.reloadSessions(); }")
    response.wait_until_held()
    session.update(title="Named fourth")
    page.evaluate("(id) => { recollect.pin(id, false); }", session.id)
    until(lambda: store.get_session(session.id).pinned_at is None)
    page.wait_for_timeout(700)
    response.release()
    expect(row(page, session.id).locator(".session-title")).to_have_text("Named fourth")
    expect(row(page, session.id)).not_to_have_attribute("data-pinned", "")


def test_enter_opens_a_hit_of_the_current_query(open_scripted_page, store):
    wrong, right = store.session(title="Wrong"), store.session(title="Right")
    wrong.append({"role": "user", "content": "a quince alone"})
    right.append({"role": "user", "content": "a medlar alone"})
    page = open_scripted_page()
    start_conversation(page)
    page.keyboard.press("Control+k")
    expect(page.locator("#search-field")).to_be_focused()
    page.locator("#search-field").fill("quince")
    expect(page.locator("#search-hits .hit mark")).to_have_text("quince")
    response = HeldResponse(page, "/page/search")
    page.locator("#search-field").fill("medlar")
    response.wait_until_held()
    page.keyboard.press("Enter")
    response.release()
    expect(page.locator(".title button")).to_have_text("Right")


# Replaces the shared worker by event sources of the window, and collects them in `window.streams`.
STREAMS = """() => {
    delete window.SharedWorker;
    const Original = window.EventSource;
    window.streams = [];
    window.EventSource = class extends Original { constructor(...parameters) { super(...parameters); window.streams.push(this); } };
    window.EventSource.CLOSED = Original.CLOSED;
}"""


def test_opening_sessions_quickly_leaves_one_event_stream(open_scripted_page, store):
    names = [store.session(title=f"Session {number}").id for number in range(4)]
    page = open_scripted_page()
    page.context.add_init_script(f"({STREAMS})()")
    page.goto(f"{page.url.partition('/c/')[0]}/c/{names[0]}")
    page.wait_for_function("() => window.streams.length && window.streams.at(-1).readyState === 1")
    routes = []
    page.route("**/events?*", lambda route: routes.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    for number, name in enumerate(names[1:], 1):
        page.evaluate("(id) => recollect.open(id)", name)
        until(lambda number=number: (page.wait_for_timeout(20), len(routes) >= number)[1])
    assert page.evaluate("() => window.streams.filter((stream) => stream.readyState !== 2).length") == 2
    routes[-1].continue_()
    page.unroute("**/events?*")
    page.wait_for_function("() => window.streams.filter((stream) => stream.readyState !== 2).length === 1")
    store.session(names[-1]).append({"role": "user", "content": "received"})
    expect(page.locator("#messages > .user").last).to_contain_text("received")


def test_a_message_whose_response_was_lost_is_stored_once_after_a_reload(open_scripted_page, store):
    """The server stored the message, but its response was lost, so the composer still contains the same message."""
    page = open_scripted_page(expected=("ERR_FAILED", "Failed to load"))
    session = start_conversation(page)

    def lose_response(route):
        route.fetch()
        route.abort()

    page.route("**/say", lose_response)
    page.locator("#composer-text").fill("sent before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_contain_text("Can't reach the server")
    page.unroute("**/say")
    page.reload()
    expect(page.locator("#composer-text")).to_have_value("sent before")
    wait_for_answer(page, "sent before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    wait_for_answer(page)
    assert questions(page) == ["sent before"]
    page.locator("#composer-text").fill("sent before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages > .user")).to_have_count(2)
    assert store.get_session(session).message_count >= 3


def test_text_streamed_while_a_second_window_loads_is_shown_in_it(open_scripted_page, common_server):
    """Two windows share one event stream: events from before the second window subscribed are not repeated."""
    page = open_scripted_page()
    start_conversation(page)
    send(page, "hold late-one late-two late-three")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    routes = []
    other = page.context.new_page()
    other.route("**/live.js*", lambda route: routes.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    other.goto(page.url, wait_until="commit")
    until(lambda: (other.wait_for_timeout(20), routes)[1])
    expect(other.locator("#messages > .live h1")).to_have_text("A heading")
    common_server.create_file("late-one")
    expect(page.locator("#messages > .live")).to_contain_text("A paragraph after late-one.")
    routes[0].continue_()
    other.unroute("**/live.js*")
    other.wait_for_function("() => window.recollect?.view()")
    common_server.create_file("late-two")
    for window in (page, other):
        live = window.locator("#messages > .live")
        expect(live).to_contain_text("A paragraph after late-two.")
        expect(live).to_contain_text("A paragraph after late-one.")
        expect(live.locator("h1")).to_have_text("A heading")
    common_server.create_file("late-three")
    for window in (page, other):
        wait_for_answer(window, "continues and ends here")


def test_a_page_of_messages_read_before_a_change_shows_the_change(open_scripted_page, store):
    session = long_session(store, "Changed while it was read")
    page = open_scripted_page(f"/c/{session.id}?m=1.1")
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    response = HeldResponse(page, "/items", '"newer"')
    scroll_by(page, 10**6)
    response.wait_until_held()
    last = page.evaluate("() => recollect.view().last")
    message = f"1.{last + 2 - last % 2}"
    session.mark_message(message, {"pinned": True})
    page.wait_for_function("(revision) => recollect.view().revision >= revision", arg=session.refresh().revision)
    response.release()
    expect(page.locator(f'[data-do=pin-message][data-at="{message}"]')).to_have_attribute("data-pinned", "1")


def test_a_failed_page_of_messages_is_not_requested_in_a_loop(open_scripted_page, store):
    page = open_scripted_page(expected=("ERR_FAILED", "Failed to load"))
    open_session(page, long_session(store, "Out of reach"))
    first = page.evaluate("() => recollect.view().first")
    requests = []

    def refuse(route):
        if (route.request.post_data_json or {}).get("want") == "older":  # a refresh uses the same URL
            requests.append(time.monotonic())
        route.abort()

    page.route("**/items", refuse)
    scroll_by(page, -(10**6))
    until(lambda: (page.wait_for_timeout(20), requests)[1])
    page.wait_for_timeout(500)
    # One request, and a retry for each 3 seconds that a slow machine needed.
    assert len(requests) <= 1 + (time.monotonic() - requests[0]) // 3
    page.unroute("**/items")
    page.evaluate("() => recollect.refresh()")
    page.wait_for_function("(first) => recollect.view().first < first", arg=first)


def test_scrolling_to_the_start_too_early_loads_older_messages_later(open_scripted_page, store):
    page = open_scripted_page()
    open_session(page, long_session(store, "Too early"))
    page.evaluate("() => recollect.refresh()")
    # The state of a shorter branch, which has no older messages.
    first = page.evaluate("() => { recollect.view().older = false; return recollect.view().first; }")
    scroll_by(page, -(10**6))
    page.evaluate("() => recollect.refresh()")
    page.wait_for_function("(first) => recollect.view().first < first", arg=first)


def test_new_messages_do_not_remove_the_messages_in_view(open_scripted_page, store):
    session = store.session(title="As many messages as the page keeps")
    session.append(
        [
            message
            for number in range(149)
            for message in ({"role": "user", "content": f"q {number}"}, {"role": "assistant", "content": f"a {number}"})
        ]
    )
    page = open_scripted_page(f"/c/{session.id}")
    page.wait_for_function(
        "() => { document.getElementById('scroll').scrollTop = 0; return recollect.view().first === 1; }"
    )
    scroll_by(page, -(10**6))
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    for number in range(4):
        session.append({"role": "user", "content": f"new {number}"})
    page.wait_for_function("(revision) => recollect.view().revision >= revision", arg=session.refresh().revision)
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    assert page.evaluate("() => document.querySelectorAll('#messages > [data-key]').length") <= 300
    page.locator("#below button").click()
    expect(page.locator("#messages > .user").last).to_contain_text("new 3")


def test_a_conversation_closed_at_once_does_not_scroll_the_next(open_scripted_page, store):
    first, second = long_session(store, "Closed"), long_session(store, "Open")
    page = open_scripted_page()
    open_session(page, second)
    page.evaluate("""() => { window.callbacks = []; window.originalRequest = requestAnimationFrame;
        window.requestAnimationFrame = (run) => window.callbacks.push(run); }""")
    page.evaluate("(id) => recollect.open(id)", first.id)
    page.evaluate("(id) => recollect.open(id, '1.41')", second.id)
    page.evaluate("() => { window.callbacks.splice(0).forEach((run) => run()); }")
    expect(page.locator('[data-message="1.41"]')).to_be_in_viewport()
    assert page.evaluate("() => recollect.view().atEnd") is False
    page.evaluate("(id) => recollect.open(id)", first.id)
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop -= 900; }")
    page.wait_for_function("() => !recollect.view().atEnd")
    page.evaluate(
        "() => { window.requestAnimationFrame = window.originalRequest; window.callbacks.forEach((run) => run()); }"
    )
    assert page.evaluate("() => recollect.view().atEnd") is False


def test_a_refresh_before_the_scroll_event_does_not_undo_the_scrolling(open_scripted_page, store):
    page = open_scripted_page()
    open_session(page, long_session(store, "Scrolled just now"))
    distance = page.evaluate("""async () => {
        await recollect.refresh();
        const { session, first, scroll } = recollect.view(), original = recollect.send;
        const reply = await original("POST", `/page/conversation/${session}/items`, { first, last: null, have: {} });
        await recollect.refresh();
        recollect.send = async () => reply;
        scroll.scrollTop -= 900;
        await recollect.refresh();   /* before the scroll event */
        recollect.send = original;
        return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    }""")
    assert 850 < distance < 950


def test_completions_are_not_closed_by_an_earlier_blur(open_scripted_page):
    page = open_scripted_page()
    start_conversation(page)
    page.evaluate("""() => {
        const text = document.getElementById('composer-text');
        text.focus(); text.blur(); text.focus();
        text.value = '/re';
        text.dispatchEvent(new InputEvent('input'));
    }""")
    page.wait_for_timeout(300)
    expect(page.locator("#completions [role=option]")).to_have_count(3)
    expect(page.locator("#completions")).to_be_visible()


def test_a_new_conversation_is_not_one_with_a_pending_message(open_scripted_page, store):
    page = open_scripted_page()
    first = page.evaluate("() => recollect.startConversation()")
    # The page reports the opened conversation in a request of its own, which it does not wait for.
    until(lambda: (page.wait_for_timeout(20), store.records.get("agent.state", "last_session"))[1].value == first)
    assert page.evaluate("() => recollect.startConversation()") == first  # reused, because it has no messages
    routes = []
    page.route("**/say", lambda route: routes.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    submit(page, "echo first")
    until(lambda: (page.wait_for_timeout(20), routes)[1])
    second = page.evaluate("() => recollect.startConversation()")
    assert second != first
    routes[0].continue_()
    until(lambda: (page.wait_for_timeout(20), store.get_session(first).message_count == 2)[1])
    assert page.evaluate("() => recollect.current") == second
    assert store.get_session(second).message_count == 0


def test_changes_while_a_page_loads_are_in_its_sidebar(open_scripted_page, common_server, store):
    """Changes from before the page subscribes, with and without another window that has subscribed already."""
    old, older = store.session(title="Before"), store.session(title="Before too")
    first = open_scripted_page()
    routes = []
    late = first.context.new_page()
    late.route("**/live.js*", lambda route: routes.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    late.goto(first.url, wait_until="commit")
    expect(row(late, old.id).locator(".session-title")).to_have_text("Before")
    until(lambda: (late.wait_for_timeout(20), routes)[1])
    old.update(title="After")
    expect(row(first, old.id).locator(".session-title")).to_have_text("After")
    routes[0].continue_()
    late.unroute("**/live.js*")
    expect(row(late, old.id).locator(".session-title")).to_have_text("After")
    alone = open_scripted_page()
    alone.context.add_init_script("delete window.SharedWorker;")
    streams = []
    alone.route("**/events?*", lambda route: streams.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    alone.goto(alone.url)
    until(lambda: (alone.wait_for_timeout(20), streams)[1])
    older.update(title="After too")
    expect(row(first, older.id).locator(".session-title")).to_have_text("After too")
    streams[-1].continue_()
    alone.unroute("**/events?*")
    expect(row(alone, older.id).locator(".session-title")).to_have_text("After too")


def test_a_late_import_response_does_not_change_the_next_import(open_scripted_page):
    page = open_scripted_page(expected=("400",))
    broken = {"name": "broken.json", "mimeType": "application/json", "buffer": b"not an export"}
    dialog = page.locator("#import")
    page.evaluate("() => recollect.importDialog()")
    dialog.locator("input[type=file]").set_input_files([broken])
    response = HeldResponse(page, "/page/import")
    dialog.get_by_role("button", name="Import").click()
    response.wait_until_held()
    page.evaluate("() => { document.getElementById('import').close(); recollect.importDialog(); }")
    dialog.locator("input[type=file]").set_input_files([{**broken, "name": "next.json"}])
    response.release()
    expect(page.locator(".toast")).to_contain_text("broken.json: ")
    expect(dialog.locator("[data-report]")).to_be_empty()
    expect(dialog.get_by_role("button", name="Import")).to_be_enabled()
