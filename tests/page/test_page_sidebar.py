"""The sidebar in a real browser, while other processes write to the store."""

import re
import subprocess
import sys

import pytest
from page_helpers import HeldResponse, listed_ids, row, until
from playwright.sync_api import expect

from recollect_conformance.examples import assistant, numbered_messages, tool_call_message, tool_result_message, user

HOSTILE = '<img src=x onerror="window.hacked=1"> "quoted" & </title><script>window.hacked=1</script>'


def choose(tab, id, item):
    """Choose an item of the menu of a row."""
    row(tab, id).hover()
    row(tab, id).locator("> [data-do=row-menu]").click()
    tab.locator("#session-menu").get_by_role("menuitem", name=item, exact=True).click()


def test_rows_show_title_channel_messages_and_time(server, open_page):
    server.session("plain", "What is the plan? And more.", channel="cli")
    server.session("discord:dm:42/#%20 ?é", "one", "two", title=HOSTILE, color="green")
    server.session("empty")
    server.session("pinned", "x", title="On top", pinned=True)
    tab = open_page("/c/plain")
    pinned, day = tab.locator(".session-heading").all_text_contents()
    assert (pinned, day) in (("Pinned", "Today"), ("Pinned", "Yesterday"))  # midnight may have passed
    assert row(tab, "plain").locator(".session-title").inner_text() == "What is the plan?"
    note = row(tab, "plain").locator(".session-note").inner_text()
    assert re.search(r"cli · 1 message · (now|\d+ min|\w{3} )", note), note
    assert row(tab, "empty").locator(".session-title").inner_text() == "New chat"
    hostile = tab.locator('li.session[data-color="green"]')
    assert hostile.locator(".session-title").inner_text() == " ".join(HOSTILE.split())
    hostile.locator("a").click()
    expect(hostile.locator("a")).to_have_attribute("aria-current", "page")
    assert tab.url.startswith(server.url + "/c/discord%3Adm%3A42%2F%23%2520%20%3F%C3%A9")
    assert tab.evaluate("window.hacked") is None


def test_message_counts_omit_tool_steps(server, open_page):
    server.session("tools").append(
        [*numbered_messages(2), user("again"), tool_call_message("one"), tool_result_message("one"), assistant("done")]
    )
    tab = open_page("/c/tools")
    expect(row(tab, "tools").locator(".session-note")).to_contain_text("4 messages")
    fetch = "path => fetch(path).then(reply => reply.text())"
    details = tab.evaluate(fetch, "/page/conversation/tools/details")
    assert re.search(r"<dt>Messages</dt>\s*<dd[^>]*>4</dd>", details), details
    assert "4 messages ·" in tab.evaluate(fetch, "/page/conversation/tools/branches")


def test_the_open_session_is_marked_at_any_position_of_the_list(server, open_page):
    server.session("old", "x", title="Old")
    server.session("older", "x", title="Older too")
    for number in range(100):
        server.session(f"s{number}", title=f"Number {number}")
    tab = open_page("/c/old", height=500)
    heading = tab.locator('section[data-group="open"] .session-heading')
    expect(heading).to_have_text("Current")
    expect(tab.locator("#sessions a[aria-current]")).to_have_count(1)
    expect(row(tab, "old").locator("> a")).to_be_in_viewport()
    tab.evaluate("recollect.open('older')")
    expect(row(tab, "older").locator("> a")).to_have_attribute("aria-current", "page")
    expect(row(tab, "older").locator("> a")).to_be_in_viewport()
    expect(row(tab, "old")).to_have_count(0)
    server.store.session("older").update(title="Renamed")
    expect(row(tab, "older").locator(".session-title")).to_have_text("Renamed")
    expect(tab.locator("#sessions a[aria-current]")).to_have_count(1)

    def reached_the_end():
        tab.locator("#sessions").evaluate("list => { list.scrollTop = list.scrollHeight; }")
        return tab.locator(".sessions-more").count() == 0

    until(reached_the_end)
    expect(heading).to_have_count(0)
    expect(row(tab, "older")).to_have_count(1)
    expect(tab.locator("#sessions a[aria-current]")).to_have_count(1)


def test_rename_pin_color_and_archive(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/c")
    choose(tab, "a", "Rename")
    tab.keyboard.type("Renamed")
    tab.keyboard.press("Enter")
    until(lambda: server.store.get_session("a").title == "Renamed")
    expect(row(tab, "a").locator("a")).to_be_focused()
    tab.keyboard.press("F2")
    tab.keyboard.type("discarded")
    tab.keyboard.press("Escape")
    expect(row(tab, "a").locator(".session-title")).to_have_text("Renamed")
    choose(tab, "a", "Pin")
    expect(tab.locator('section[data-group="pinned"] li')).to_have_attribute("data-id", "a")
    until(lambda: server.store.get_session("a").pinned_at is not None)
    row(tab, "b").hover()
    row(tab, "b").locator("> [data-do=row-menu]").click()
    tab.get_by_role("menuitemradio", name="Blue").click()
    expect(row(tab, "b")).to_have_attribute("data-color", "blue")
    assert server.store.get_session("b").color == "blue"
    choose(tab, "b", "Archive")
    expect(row(tab, "b")).to_have_count(0)
    assert server.store.get_session("b").archived_at is not None
    tab.get_by_role("button", name="Undo").click()
    expect(row(tab, "b")).to_have_count(1)
    assert server.store.get_session("b").archived_at is None
    assert server.store.get_session("a").title == "Renamed"


def test_a_deleted_session_can_be_restored_and_the_next_one_opens(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/b")
    before = listed_ids(tab)
    choose(tab, "b", "Delete")
    expect(row(tab, "b")).to_have_count(0)
    expect(row(tab, "a").locator("a")).to_have_attribute("aria-current", "page")
    until(lambda: server.store.get_session("b") is None)
    tab.get_by_role("button", name="Undo").click()
    expect(row(tab, "b")).to_have_count(1)
    assert server.store.get_session("b").message_count == 1
    assert listed_ids(tab) == before == ["c", "b", "a"]


def test_deleting_the_last_session_starts_a_new_one(server, open_page):
    server.session("only", "hello", title="Only")
    tab = open_page("/c/only")
    row(tab, "only").locator("a").focus()
    tab.keyboard.press("Delete")
    expect(tab.locator("li.session .session-title")).to_have_text(["New chat"])
    until(lambda: [session.id for session in server.store.list_sessions(deleted=True)] == ["only"])
    expect(tab).not_to_have_url(f"{server.url}/c/only")


def test_the_trash_restores_and_erases_sessions(server, open_page):
    server.session("stays", "hello", title="Stays")
    for name in ("x", "y", "z"):
        server.session(name, "hello", title=f"Gone {name}")
        server.store.delete_session(name)
    tab = open_page("/c/stays")
    tab.get_by_role("button", name="Filter conversations").click()
    tab.get_by_label("Trash").check()
    expect(tab.locator("li.session")).to_have_count(3)
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Restore Gone x").click()
    expect(row(tab, "x")).to_have_count(0)
    assert server.store.get_session("x").title == "Gone x"
    tab.get_by_role("button", name="Erase Gone y permanently").click()
    tab.get_by_role("button", name="Cancel").click()
    assert len(server.store.list_sessions(deleted=True)) == 2
    tab.get_by_role("button", name="Erase Gone y permanently").click()
    tab.get_by_role("button", name="Erase", exact=True).click()
    expect(row(tab, "y")).to_have_count(0)
    assert [session.id for session in server.store.list_sessions(deleted=True)] == ["z"]
    tab.get_by_role("button", name="Empty trash").click()
    tab.locator("#ask").get_by_role("button", name="Empty trash").click()
    expect(tab.locator(".sessions-empty")).to_contain_text("The trash is empty")
    assert server.store.list_sessions(deleted=True) == []
    tab.get_by_role("button", name="Show all conversations").click()
    expect(tab.locator("li.session")).to_have_count(2)


def test_erasing_a_deleted_session_keeps_a_newer_one_with_the_same_id(server, open_page):
    server.session("cli:default", "old", title="Old")
    server.store.delete_session("cli:default")
    server.session("cli:default", "new", title="New")
    tab = open_page("/c/cli%3Adefault")
    tab.evaluate("recollect.filter({view: 'trash'})")
    tab.get_by_role("button", name="Erase Old permanently").click()
    tab.get_by_role("button", name="Erase", exact=True).click()
    expect(row(tab, "cli:default")).to_have_count(0)
    assert server.store.list_sessions(deleted=True) == []
    assert server.store.get_session("cli:default").title == "New"


def test_erasing_a_session_with_forks_needs_a_second_confirmation(server, open_page):
    origin = server.session("origin", "one", "two", title="Origin")
    fork = origin.fork(id="fork", title="Fork")
    server.store.delete_session("origin")
    tab = open_page("/c/fork", expected=("409",))
    tab.evaluate("recollect.filter({view: 'trash'})")
    tab.get_by_role("button", name="Erase Origin permanently").click()
    tab.get_by_role("button", name="Erase", exact=True).click()
    tab.get_by_role("button", name="Erase the rest").click()
    expect(row(tab, "origin")).to_have_count(0)
    assert [message.text for message in fork.messages()] == ["one", "two"]


def test_scrolling_loads_hundreds_of_sessions(server, open_page):
    for number in range(300):
        server.store.session(f"s{number}", title=f"Number {number}")
    tab = open_page("/c/s299")
    assert len(listed_ids(tab)) <= 130
    server.store.get_session("s0").update(title="Renamed far below")
    tab.evaluate("recollect.emit('change', {session: 's0'})")
    server.session("s150", "hello")
    expect(row(tab, "s150")).to_have_count(1)
    assert listed_ids(tab)[0] == "s150"
    row(tab, "s299").locator("a").focus()
    until(
        lambda: tab.evaluate("void document.querySelector('#sessions').scrollTo(0, 1e9)") or len(listed_ids(tab)) == 300
    )
    assert listed_ids(tab) == ["s150", *(f"s{number}" for number in range(299, -1, -1) if number != 150)]
    assert row(tab, "s0").locator(".session-title").inner_text() == "Renamed far below"
    headings = tab.locator(".session-heading").all_text_contents()
    assert len(headings) == len(set(headings)) <= 2  # midnight may have passed
    tab.keyboard.press("End")
    expect(row(tab, "s0").locator("a")).to_be_focused()


def test_the_list_shows_changes_of_another_process(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/c", expected=("404",))
    assert listed_ids(tab) == ["c", "b", "a"]
    program = (
        "import recollect, sys\n"
        "with recollect.open(sys.argv[1]) as store:\n"
        "    store.session('a').append({'role': 'user', 'content': 'more'})\n"
        "    store.session('discord:new', title='From a bot').append({'role': 'user', 'content': 'hello'})\n"
        "    store.session('b').update(title='Renamed elsewhere')\n"
        "    store.delete_session('c')\n"
    )
    subprocess.run([sys.executable, "-c", program, server.path], check=True, timeout=60)
    expect(row(tab, "discord:new").locator(".session-title")).to_have_text("From a bot")
    expect(row(tab, "b").locator(".session-title")).to_have_text("Renamed elsewhere")
    expect(row(tab, "a").locator(".session-note")).to_contain_text("2 messages")
    expect(row(tab, "c")).to_have_count(0)
    until(lambda: listed_ids(tab) == [session.id for session in server.store.list_sessions()])


def test_a_row_shows_a_dot_while_another_process_runs_a_turn(server, open_page):
    server.session("a", "hello", title="A")
    tab = open_page("/c/a")
    program = (
        "import recollect, sys\n"
        "with recollect.open(sys.argv[1]) as store:\n"
        "    with store.session('bot', title='Bot').turn('a question') as turn:\n"
        "        sys.stdin.readline()\n"
        "        turn.add({'role': 'assistant', 'content': 'an answer'})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, server.path], stdin=subprocess.PIPE, text=True) as process:
        expect(row(tab, "bot").locator(".dot.running")).to_have_count(1)
        process.communicate("go\n", timeout=60)
    expect(row(tab, "bot").locator(".dot.running")).to_have_count(0)
    expect(row(tab, "bot").locator(".session-note")).to_contain_text("2 messages")


def test_changes_do_not_interrupt_the_editing_of_a_title(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/c")
    tab.mouse.move(900, 400)
    row(tab, "a").locator("a").focus()
    tab.keyboard.press("F2")
    tab.keyboard.type("Half of")
    server.session("a", "more")  # would move the row to the top
    expect(row(tab, "a").locator(".session-note")).to_contain_text("2 messages")
    tab.evaluate("recollect.reloadSessions()")
    tab.keyboard.type(" a title")
    expect(row(tab, "a").locator("input")).to_have_value("Half of a title")
    assert server.store.get_session("a").title == "Title a"
    tab.keyboard.press("Enter")
    until(lambda: server.store.get_session("a").title == "Half of a title")
    until(lambda: listed_ids(tab) == ["a", "c", "b"])
    expect(row(tab, "a").locator("a")).to_be_focused()
    tab.evaluate("recollect.reloadSessions()")
    expect(row(tab, "a").locator("a")).to_be_focused()


def test_a_late_response_does_not_show_a_deleted_row_again(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/b")
    response = HeldResponse(tab, "/page/rows")
    server.store.session("b").update(title="Renamed meanwhile")
    response.wait_until_held()
    tab.evaluate("recollect.remove('b').catch(() => {}); undefined")
    until(lambda: server.store.get_session("b") is None)
    tab.evaluate(
        "() => { window.reappeared = 0; new MutationObserver(() => { reappeared += !!document.querySelector('li[data-id=b]'); })"
        ".observe(document.getElementById('sessions'), { childList: true, subtree: true }); }"
    )
    response.release()
    tab.evaluate("recollect.reloadSessions()")
    assert listed_ids(tab) == ["c", "a"]
    assert tab.evaluate("window.reappeared") == 0


def test_rows_do_not_move_under_the_pointer(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, "hello", title=f"Title {name}")
    tab = open_page("/c/c")
    row(tab, "b").hover()
    server.session("a", "more")
    tab.evaluate("recollect.emit('change', {session: 'a'})")
    expect(row(tab, "a").locator(".session-note")).to_contain_text("2 messages")
    assert listed_ids(tab) == ["c", "b", "a"]
    tab.mouse.move(900, 400)
    until(lambda: listed_ids(tab) == ["a", "c", "b"])


def test_delegates_are_collapsed_under_their_parent(server, open_page):
    server.session("cli:plan", "go", title="Parent")
    for agent in ("one", "two"):
        server.session(f"cli:plan:delegate:{agent}", "sub", title=f"Agent {agent}", parent="cli:plan")
    tab = open_page("/c/cli%3Aplan")
    assert listed_ids(tab) == ["cli:plan"]
    tab.get_by_role("button", name="2 sub-agents").click()
    expect(tab.locator("li.session li.session .session-title")).to_have_text(["Agent two", "Agent one"])
    tab.locator('li.session li.session a:has-text("Agent one")').click()
    expect(tab.locator("a[aria-current=page] .session-title")).to_have_text("Agent one")
    row(tab, "cli:plan").locator("> a").focus()
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator("li.session li.session")).to_have_count(0)


def test_filters_show_matching_sessions(server, open_page):
    server.session("a", "x", title="A", channel="discord", model="demo")
    server.session("b", "x", title="B", channel="cli", model="demo")
    server.session("c", "x", title="C", channel="cli", archived=True)
    tab = open_page("/c/b")
    tab.get_by_role("button", name="Filter conversations").click()
    form = tab.locator("#session-filters")
    form.get_by_label("Channel").select_option("cli")
    until(lambda: listed_ids(tab) == ["b"])
    form.get_by_label("Archived").check()
    until(lambda: listed_ids(tab) == ["c"])
    form.get_by_role("button", name="Clear").click()
    until(lambda: listed_ids(tab) == ["b", "a"])
    expect(tab.locator(".sidebar-filter")).to_be_hidden()


def test_the_sidebar_width_is_set_with_the_keyboard_and_stored(server, open_page):
    server.session("a", "x")
    tab = open_page("/c/a")
    edge = tab.get_by_role("separator", name="Sidebar width")
    edge.focus()
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    assert tab.locator("#sidebar").bounding_box()["width"] == 340
    tab.reload()
    assert tab.locator("#sidebar").bounding_box()["width"] == 340
    assert edge.get_attribute("aria-valuenow") == "340"


def test_the_sidebar_is_a_drawer_on_a_phone(server, open_page):
    server.session("a", "x", title="A")
    server.session("b", "x", title="B")
    tab = open_page("/c/a", width=390, height=800, has_touch=True, is_mobile=True)
    expect(tab.locator("#sidebar")).to_be_hidden()
    button = tab.locator("#conversation [data-do=drawer]")
    button.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("#sidebar")).to_be_visible()
    for _ in range(20):
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.querySelector('#sidebar').contains(document.activeElement)")
    tab.keyboard.press("Escape")
    expect(tab.locator("#sidebar")).to_be_hidden()
    expect(button).to_be_focused()
    button.tap()
    row(tab, "b").locator("a").tap()
    expect(tab.locator("#sidebar")).to_be_hidden()
    until(lambda: tab.evaluate("location.href").endswith("/c/b"))
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_swipe_shows_the_actions_of_a_row(server, open_page):
    server.session("a", "x", title="A")
    tab = open_page("/c/a", width=390, height=800, has_touch=True, is_mobile=True)
    tab.locator("#conversation [data-do=drawer]").tap()
    expect(row(tab, "a").locator("a")).to_be_visible()
    swipe = """(row) => {
      const link = row.querySelector("a");
      const send = (kind, x) => link.dispatchEvent(new PointerEvent(kind, {bubbles: true, pointerType: "touch", clientX: x, clientY: 20}));
      send("pointerdown", 150); send("pointermove", 130); send("pointermove", 90); send("pointerup", 90);
    }"""
    row(tab, "a").evaluate(swipe)
    row(tab, "a").get_by_role("button", name="Pin", exact=True).tap()
    until(lambda: server.store.get_session("a").pinned_at is not None)


@pytest.mark.parametrize("body", ['{"color": "url(x)"}', '{"pinned": "yes"}', '{"deleted_at": 1}', "[]", "not json"])
def test_an_invalid_change_is_rejected(server, open_page, body):
    server.session("a", "x", title="A")
    tab = open_page("/c/a", expected=("400",))
    status = tab.evaluate(
        "body => fetch('/page/session/a', {method: 'PATCH', body, headers: {'content-type': 'application/json'}}).then((response) => response.status)",
        body,
    )
    assert status == 400
    assert server.store.get_session("a").color is None
