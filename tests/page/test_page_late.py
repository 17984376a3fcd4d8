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
        """(scroll, way) => new Promise((done) => {
            const before = scroll.scrollTop, seen = () => requestAnimationFrame(done);
            scroll.scrollTop += way;
            if (scroll.scrollTop === before) seen(); else scroll.addEventListener('scroll', seen, { once: true });
        })""",
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
    held = Held(page, "/items", '"have"')
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
    held = Held(page, "/items", '"have"')
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


def test_what_is_entered_while_the_message_before_is_on_its_way_is_sent(talk, store):
    page = talk()
    session = fresh(page)
    held = Held(page, "/say")
    entered(page, "echo first")
    held.taken()
    expect(page.locator("#messages > .assistant")).to_contain_text("first")
    answered(page)
    entered(page, "echo second")
    page.locator("#composer-text").press("Enter")
    held.let()
    expect(page.locator("#messages > .user")).to_have_count(2)
    answered(page, "second")
    expect(page.locator("#composer-text")).to_have_value("")
    assert questions(page) == ["echo first", "echo second"]
    assert store.get_session(session).message_count == 4
    held = Held(page, "/command")
    entered(page, "/rename Slowly")
    held.taken()
    entered(page, "echo third")
    held.let()
    answered(page, "third")


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


def test_what_an_answer_said_while_a_page_was_loaded_is_shown(talk, common_server):
    """Two windows have one stream: what it told before the second one listened is not told again."""
    page = talk()
    fresh(page)
    said(page, "hold late-one late-two late-three")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    waiting = []
    other = page.context.new_page()
    other.route("**/live.js*", lambda route: waiting.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    other.goto(page.url, wait_until="commit")
    until(lambda: (other.wait_for_timeout(20), waiting)[1])
    expect(other.locator("#messages > .live h1")).to_have_text("A heading")
    common_server.let("late-one")
    expect(page.locator("#messages > .live")).to_contain_text("A paragraph after late-one.")
    waiting[0].continue_()
    other.unroute("**/live.js*")
    other.wait_for_function("() => window.recollect?.talk()")
    common_server.let("late-two")
    for window in (page, other):
        live = window.locator("#messages > .live")
        expect(live).to_contain_text("A paragraph after late-two.")
        expect(live).to_contain_text("A paragraph after late-one.")
        expect(live.locator("h1")).to_have_text("A heading")
    common_server.let("late-three")
    for window in (page, other):
        answered(window, "goes on, and ends here")


def test_a_page_of_messages_that_was_read_before_a_change_shows_it(talk, store):
    session = long_talk(store, "Changed while it was read")
    page = talk(f"/c/{session.id}?m=1.1")
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    held = Held(page, "/items", '"newer"')
    scrolled(page, 10**6)
    held.taken()
    last = page.evaluate("() => recollect.talk().last")
    place = f"1.{last + 2 - last % 2}"
    session.pin_message(place)
    page.wait_for_function("(revision) => recollect.talk().revision >= revision", arg=session.refresh().revision)
    held.let()
    expect(page.locator(f'[data-do=pin-message][data-at="{place}"]')).to_have_attribute("data-pinned", "1")


def test_a_page_that_can_not_be_read_is_not_asked_for_again_and_again(talk, store):
    page = talk(expected=("ERR_FAILED", "Failed to load"))
    shown(page, long_talk(store, "Out of reach"))
    first = page.evaluate("() => recollect.talk().first")
    asked = []
    page.route("**/items", lambda route: (asked.append(1), route.abort()))
    scrolled(page, -(10**6))
    until(lambda: (page.wait_for_timeout(20), asked)[1])
    page.wait_for_timeout(500)
    assert len(asked) <= 2
    page.unroute("**/items")
    page.evaluate("() => recollect.refresh()")
    page.wait_for_function("(first) => recollect.talk().first < first", arg=first)


def test_an_end_that_came_near_too_early_is_looked_at_again(talk, store):
    page = talk()
    shown(page, long_talk(store, "Too early"))
    page.evaluate("() => recollect.refresh()")
    first = page.evaluate(
        "() => { recollect.talk().older = false; return recollect.talk().first; }"
    )  # a shorter branch
    scrolled(page, -(10**6))
    page.evaluate("() => recollect.refresh()")
    page.wait_for_function("(first) => recollect.talk().first < first", arg=first)


def test_what_comes_new_does_not_push_out_what_is_being_read(talk, store):
    session = store.create_session(title="As much as a page keeps")
    session.append(
        [
            message
            for number in range(149)
            for message in ({"role": "user", "content": f"q {number}"}, {"role": "assistant", "content": f"a {number}"})
        ]
    )
    page = talk(f"/c/{session.id}")
    page.wait_for_function(
        "() => { document.getElementById('scroll').scrollTop = 0; return recollect.talk().first === 1; }"
    )
    scrolled(page, -(10**6))
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    for number in range(4):
        session.append({"role": "user", "content": f"new {number}"})
    page.wait_for_function("(revision) => recollect.talk().revision >= revision", arg=session.refresh().revision)
    expect(page.locator('[data-message="1.1"]')).to_be_in_viewport()
    assert page.evaluate("() => document.querySelectorAll('#messages > [data-key]').length") <= 300
    page.locator("#below button").click()
    expect(page.locator("#messages > .user").last).to_contain_text("new 3")


def test_a_conversation_that_is_left_at_once_does_not_scroll_the_next(talk, store):
    first, second = long_talk(store, "Left"), long_talk(store, "Stayed in")
    page = talk()
    shown(page, second)
    page.evaluate("""() => { window.frames_ = []; window.plain = requestAnimationFrame;
        window.requestAnimationFrame = (run) => window.frames_.push(run); }""")
    page.evaluate("(id) => recollect.open(id)", first.id)
    page.evaluate("(id) => recollect.open(id, '1.41')", second.id)
    page.evaluate("() => { window.frames_.splice(0).forEach((run) => run()); }")
    expect(page.locator('[data-message="1.41"]')).to_be_in_viewport()
    assert page.evaluate("() => recollect.talk().atEnd") is False
    page.evaluate("(id) => recollect.open(id)", first.id)
    page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop -= 900; }")
    page.wait_for_function("() => !recollect.talk().atEnd")
    page.evaluate("() => { window.requestAnimationFrame = window.plain; window.frames_.forEach((run) => run()); }")
    assert page.evaluate("() => recollect.talk().atEnd") is False


def test_what_comes_in_the_moment_of_scrolling_does_not_undo_it(talk, store):
    page = talk()
    shown(page, long_talk(store, "Scrolled just now"))
    left = page.evaluate("""async () => {
        await recollect.refresh();
        const { session, first, scroll } = recollect.talk(), plain = recollect.send;
        const given = await plain("POST", `/page/conversation/${session}/items`, { first, last: null, have: {} });
        await recollect.refresh();
        recollect.send = async () => given;
        scroll.scrollTop -= 900;
        await recollect.refresh();   /* before the event of the scrolling */
        recollect.send = plain;
        return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    }""")
    assert 850 < left < 950


def test_completions_are_not_closed_by_an_earlier_leaving(talk):
    page = talk()
    fresh(page)
    page.evaluate("""() => {
        const text = document.getElementById('composer-text');
        text.focus(); text.blur(); text.focus();
        text.value = '/re';
        text.dispatchEvent(new InputEvent('input'));
    }""")
    page.wait_for_timeout(300)
    expect(page.locator("#completions [role=option]")).to_have_count(3)
    expect(page.locator("#completions")).to_be_visible()


def test_a_new_conversation_is_not_the_one_in_which_something_is_being_said(talk, store):
    page = talk()
    first = page.evaluate("() => recollect.begin()")
    assert page.evaluate("() => recollect.begin()") == first  # nothing was said in it
    waiting = []
    page.route("**/say", lambda route: waiting.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    entered(page, "echo first")
    until(lambda: (page.wait_for_timeout(20), waiting)[1])
    second = page.evaluate("() => recollect.begin()")
    assert second != first
    waiting[0].continue_()
    until(lambda: (page.wait_for_timeout(20), store.get_session(first).message_count == 2)[1])
    assert page.evaluate("() => recollect.current") == second
    assert store.get_session(second).message_count == 0


def test_what_changes_while_a_page_is_loaded_is_in_its_list(talk, common_server, store):
    """Before it hears of changes, and also where another window of the browser hears of them already."""
    old, older = store.create_session(title="Before"), store.create_session(title="Before too")
    first = talk()
    waiting = []
    late = first.context.new_page()
    late.route("**/live.js*", lambda route: waiting.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    late.goto(first.url, wait_until="commit")
    expect(row(late, old.id).locator(".session-title")).to_have_text("Before")
    until(lambda: (late.wait_for_timeout(20), waiting)[1])
    old.update(title="After")
    expect(row(first, old.id).locator(".session-title")).to_have_text("After")
    waiting[0].continue_()
    late.unroute("**/live.js*")
    expect(row(late, old.id).locator(".session-title")).to_have_text("After")
    alone = talk()
    alone.context.add_init_script("delete window.SharedWorker;")
    held = []
    alone.route("**/events?*", lambda route: held.append(route))  # noqa: PLW0108  Playwright looks at its arguments
    alone.goto(alone.url)
    until(lambda: (alone.wait_for_timeout(20), held)[1])
    older.update(title="After too")
    expect(row(first, older.id).locator(".session-title")).to_have_text("After too")
    held[-1].continue_()
    alone.unroute("**/events?*")
    expect(row(alone, older.id).locator(".session-title")).to_have_text("After too")


def test_an_import_that_ends_late_leaves_the_next_one_alone(talk):
    page = talk(expected=("400",))
    broken = {"name": "broken.json", "mimeType": "application/json", "buffer": b"no export"}
    dialog = page.locator("#import")
    page.evaluate("() => recollect.importDialog()")
    dialog.locator("input[type=file]").set_input_files([broken])
    held = Held(page, "/page/import")
    dialog.get_by_role("button", name="Import").click()
    held.taken()
    page.evaluate("() => { document.getElementById('import').close(); recollect.importDialog(); }")
    dialog.locator("input[type=file]").set_input_files([{**broken, "name": "next.json"}])
    held.let()
    expect(page.locator(".toast")).to_contain_text("broken.json: ")
    expect(dialog.locator("[data-report]")).to_be_empty()
    expect(dialog.get_by_role("button", name="Import")).to_be_enabled()
