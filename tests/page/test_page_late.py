"""Answers of the server that come late, or after later ones: what a person did meanwhile is neither undone nor lost."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import recollect

from around import Held, row, until  # isort: skip
from test_page_talk import answered, entered, fresh, questions, said  # isort: skip


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


def long_talk(store, title):
    session = store.create_session(title=title)
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


def shown(page, session):
    page.evaluate("(id) => recollect.open(id)", session.id)
    expect(page.locator("#messages > .assistant").last).to_be_in_viewport()


PLACE = """() => {
    const edge = document.getElementById('scroll').getBoundingClientRect().top;
    const node = [...document.querySelectorAll('#messages > article')].find((one) => one.getBoundingClientRect().bottom > edge);
    return [node.dataset.message, Math.round(node.getBoundingClientRect().top)];
}"""


def scrolled(page, way):
    """Scroll, and wait until the page has noticed."""
    page.locator("#scroll").evaluate(
        "(scroll, way) => new Promise((done) => { scroll.addEventListener('scroll', () => requestAnimationFrame(done),"
        " { once: true }); scroll.scrollTop += way; })",
        way,
    )


def test_what_is_said_while_a_conversation_is_opened_is_shown(talk, store):
    page = talk()
    fresh(page)
    session = store.create_session(title="Opened")
    session.append({"role": "user", "content": "before"})
    page.evaluate(
        """([id, revision]) => { window.heard = 0; document.addEventListener('recollect:change',
            ({ detail }) => { window.heard += detail.session === id && detail.revision > revision; }); }""",
        [session.id, session.revision],
    )
    held = Held(page, f"/page/conversation/{session.id}")
    page.evaluate("(id) => { recollect.open(id); }", session.id)
    held.taken()
    session.append({"role": "user", "content": "meanwhile"})
    page.wait_for_function("() => window.heard")
    held.let()
    expect(page.locator("#messages > .user").last).to_contain_text("meanwhile")


def test_the_end_of_an_earlier_turn_that_is_told_late_does_not_end_the_next(talk, common_server):
    page = talk()
    session = fresh(page)
    said(page, "echo first")
    answered(page, "first")
    said(page, "hold late-end")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    assert page.evaluate(
        "(id) => { recollect.ended({ session: id, turn: '1.1' }); return recollect.talk().running; }", session
    )
    expect(page.locator("#stop")).to_be_visible()
    common_server.let("late-end")
    answered(page, "goes on, and ends here")


def test_what_was_asked_before_older_messages_came_does_not_take_them_away(talk, store):
    page = talk()
    shown(page, long_talk(store, "Paged"))
    first = page.evaluate("() => recollect.talk().first")
    held = Held(page, "/items")
    page.evaluate("() => { recollect.refresh(); }")
    held.taken()
    scrolled(page, -(10**6))
    page.wait_for_function("(first) => recollect.talk().first < first", arg=first)
    before, place = page.evaluate("() => recollect.talk().first"), page.evaluate(PLACE)
    held.let()
    assert page.evaluate("() => recollect.refresh().then(() => recollect.talk().first)") <= before
    assert page.evaluate(PLACE) == place


def test_who_asks_for_what_is_new_is_given_what_is_newer_than_the_question(talk, store):
    page = talk()
    session = store.session(fresh(page))
    held = Held(page, "/items")
    page.evaluate("() => { recollect.refresh(); }")
    held.taken()
    session.append({"role": "user", "content": "newer"})
    page.evaluate("""() => { window.seen = null;
        recollect.refresh().then(() => { window.seen = document.querySelector('#messages > .user')?.textContent ?? 'nothing'; }); }""")
    held.let()
    page.wait_for_function("() => window.seen !== null")
    assert "newer" in page.evaluate("() => window.seen")


def test_an_answer_that_is_asked_for_again_leaves_another_conversation_alone(talk, store):
    page = talk()
    fresh(page)
    said(page, "echo again")
    answered(page, "again")
    other = long_talk(store, "Another")
    held = Held(page, "/regenerate")
    page.evaluate("() => { document.querySelector('[data-do=regenerate]').click(); }")
    held.taken()
    shown(page, other)
    scrolled(page, -700)
    place = page.evaluate(PLACE)
    held.let()
    assert page.evaluate("() => recollect.refresh().then(() => recollect.talk().running)") is False
    assert page.evaluate(PLACE) == place


def test_a_button_that_is_pressed_twice_asks_once(talk, store):
    page = talk()
    session = fresh(page)
    said(page, "echo once")
    answered(page, "once")
    held = Held(page, "/regenerate")
    page.evaluate(
        "() => { const button = document.querySelector('[data-do=regenerate]'); button.click(); button.click(); }"
    )
    held.let()
    expect(page.locator(".assistant .stepper")).to_contain_text("2/2")
    assert len(store.get_session(session).branches()) == 2


def test_what_is_typed_while_a_command_runs_stays(talk):
    page = talk()
    session = fresh(page)
    held = Held(page, "/command")
    entered(page, "/rename Slowly")
    held.taken()
    page.locator("#composer-text").fill("typed meanwhile")
    held.let()
    expect(page.locator(".title button")).to_have_text("Slowly")
    expect(page.locator("#composer-text")).to_have_value("typed meanwhile")
    held = Held(page, "/command")
    entered(page, "/rename Slower")
    held.taken()
    fresh(page)
    page.locator("#composer-text").fill("in another one")
    held.let()
    expect(page.locator("#composer-text")).to_have_value("in another one")
    page.evaluate("(id) => recollect.open(id)", session)
    expect(page.locator(".title button")).to_have_text("Slower")
    expect(page.locator("#composer-text")).to_have_value("")


def test_a_file_that_is_chosen_while_something_is_sent_stays(talk):
    page = talk()
    fresh(page)
    file = {"mimeType": "text/plain", "buffer": b"words"}
    page.locator("#file").set_input_files([{"name": "sent.txt", **file}])
    expect(page.locator(".file-chip")).to_have_count(1)
    held = Held(page, "/say")
    entered(page, "echo with a file")
    held.taken()
    page.locator("#file").set_input_files([{"name": "later.txt", **file}])
    expect(page.locator(".file-chip")).to_have_count(2)
    held.let()
    answered(page, "with a file")
    expect(page.locator(".file-chip")).to_contain_text("later.txt")


def test_what_was_chosen_last_is_open_in_the_panel_and_in_the_page(talk, store):
    page = talk()
    here = fresh(page)
    held = Held(page, "/details")
    page.evaluate("() => { recollect.actions.details(); }")
    held.taken()
    page.evaluate("() => recollect.actions.branches()")
    held.let()
    assert page.locator("#panel").get_attribute("data-url").endswith("/branches")
    held = Held(page, "/page/new")
    page.evaluate("() => { recollect.begin(); }")
    held.taken()
    page.evaluate("(id) => recollect.open(id)", here)
    held.let()
    assert page.evaluate("() => recollect.current") == here
    held = Held(page, "/details")
    page.evaluate("() => { recollect.actions.details(); }")
    held.taken()
    fresh(page)
    held.let()
    expect(page.locator("#panel")).to_be_hidden()


def test_an_older_answer_does_not_undo_a_newer_row(talk, store):
    page = talk()
    fresh(page)
    session = store.create_session(title="Named first")
    session.append({"role": "user", "content": "x"})
    expect(row(page, session.id)).to_have_count(1)
    held = Held(page, "/page/rows")
    session.update(title="Named second")
    held.taken()
    page.evaluate("(id) => { recollect.pin(id, true); }", session.id)
    until(lambda: store.get_session(session.id).pinned_at is not None)
    page.wait_for_timeout(700)  # time enough for all that would overtake it
    held.let()
    expect(row(page, session.id)).to_have_attribute("data-pinned", "")
    session.update(title="Named third")
    expect(row(page, session.id).locator(".session-title")).to_have_text("Named third")
    held = Held(page, "/page/sessions")
    page.evaluate("() => { recollect.reloadSessions(); }")
    held.taken()
    session.update(title="Named fourth")
    page.evaluate("(id) => { recollect.pin(id, false); }", session.id)
    until(lambda: store.get_session(session.id).pinned_at is None)
    page.wait_for_timeout(700)
    held.let()
    expect(row(page, session.id).locator(".session-title")).to_have_text("Named fourth")
    expect(row(page, session.id)).not_to_have_attribute("data-pinned", "")


def test_enter_opens_a_hit_of_what_stands_in_the_field(talk, store):
    wrong, right = store.create_session(title="Wrong"), store.create_session(title="Right")
    wrong.append({"role": "user", "content": "a quince alone"})
    right.append({"role": "user", "content": "a medlar alone"})
    page = talk()
    fresh(page)
    page.keyboard.press("Control+k")
    expect(page.locator("#search-field")).to_be_focused()
    page.locator("#search-field").fill("quince")
    expect(page.locator("#search-hits .hit mark")).to_have_text("quince")
    held = Held(page, "/page/search")
    page.locator("#search-field").fill("medlar")
    held.taken()
    page.keyboard.press("Enter")
    held.let()
    expect(page.locator(".title button")).to_have_text("Right")


STREAMS = """() => {
    delete window.SharedWorker;
    const Plain = window.EventSource;
    window.streams = [];
    window.EventSource = class extends Plain { constructor(...given) { super(...given); window.streams.push(this); } };
    window.EventSource.CLOSED = Plain.CLOSED;
}"""


def test_whoever_walks_quickly_through_the_list_has_one_stream(talk, store):
    names = [store.create_session(title=f"Walked {number}").id for number in range(4)]
    page = talk()
    page.context.add_init_script(f"({STREAMS})()")
    page.goto(f"{page.url.partition('/c/')[0]}/c/{names[0]}")
    page.wait_for_function("() => window.streams.length && window.streams.at(-1).readyState === 1")
    waiting = []
    page.route("**/events?*", lambda route: waiting.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    for number, name in enumerate(names[1:], 1):
        page.evaluate("(id) => recollect.open(id)", name)
        until(lambda number=number: (page.wait_for_timeout(20), len(waiting) >= number)[1])
    assert page.evaluate("() => window.streams.filter((one) => one.readyState !== 2).length") == 2
    waiting[-1].continue_()
    page.unroute("**/events?*")
    page.wait_for_function("() => window.streams.filter((one) => one.readyState !== 2).length === 1")
    store.session(names[-1]).append({"role": "user", "content": "heard"})
    expect(page.locator("#messages > .user").last).to_contain_text("heard")


def test_what_was_sent_before_a_reload_is_said_once(talk, store):
    """The server has it, and its answer got lost: what stands in the composer is the same message."""
    page = talk(expected=("ERR_FAILED", "Failed to load"))
    session = fresh(page)

    def lose(route):
        route.fetch()
        route.abort()

    page.route("**/say", lose)
    page.locator("#composer-text").fill("said before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator(".toast")).to_contain_text("can not be reached")
    page.unroute("**/say")
    page.reload()
    expect(page.locator("#composer-text")).to_have_value("said before")
    answered(page, "said before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#composer-text")).to_have_value("")
    answered(page)
    assert questions(page) == ["said before"]
    page.locator("#composer-text").fill("said before")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#messages > .user")).to_have_count(2)
    assert store.get_session(session).message_count >= 3
