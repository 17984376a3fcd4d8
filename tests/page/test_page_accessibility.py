"""The page without a mouse, with a screen reader, in both themes, and on a phone."""

import os

import pytest
from page_helpers import row, until
from playwright.sync_api import expect

AXE = os.path.join(os.path.dirname(__file__), "..", "..", ".node", "node_modules", "axe-core", "axe.min.js")


def violations(tab, *rules):
    """Return the serious and critical violations that axe finds. The debugger injects it, past the page's CSP."""
    if not os.path.exists(AXE):
        pytest.skip("axe-core is missing. scripts/test installs it with npm.")
    if not tab.evaluate("!!window.axe"):
        with open(AXE, encoding="utf-8") as file:
            tab.evaluate(file.read() + "; undefined")
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    report = tab.evaluate("(options) => axe.run(document, options)", options)
    return [
        (violation["id"], node["target"], node["failureSummary"])
        for violation in report["violations"] if violation["impact"] in ("serious", "critical") for node in violation["nodes"]
    ]  # fmt: skip


def fill_store(server):
    server.session("cli:plan", "go", title="Parent", color="red")
    server.session("cli:plan:delegate:one", "sub", title="Agent", parent="cli:plan")
    session = server.session("a", title="A session", model="demo", pinned=True)
    with session.turn("What is in the file?") as turn:
        turn.add(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
                ],
            },
            format="openai",
        )
        session.tools.record_result("c", "no such file", status="error", error_message="no such file")
        turn.add(
            {
                "role": "assistant",
                "content": "It **does not exist**.\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |",
            }
        )
    server.session("gone", "x", title="Gone")
    server.store.delete_session("gone")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_violations(server, open_page, theme):
    fill_store(server)
    tab = open_page("/c/a", color_scheme=theme, reduced_motion="reduce")
    rules = ["color-contrast"] if theme == "dark" else []  # the other rules do not depend on the theme
    assert violations(tab, *rules) == []
    row(tab, "a").locator("> a").focus()
    tab.keyboard.press("Shift+F10")
    expect(tab.locator("#session-menu")).to_be_visible()
    assert violations(tab, *rules) == []
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="1 sub-agent").click()
    tab.keyboard.press("Control+k")
    tab.keyboard.type("file")
    expect(tab.locator(".hit").first).to_be_visible()
    tab.get_by_role("button", name="Filters", exact=True).click()
    assert violations(tab, *rules) == []
    tab.keyboard.press("Escape")
    tab.evaluate("recollect.filter({view: 'trash'})")
    expect(row(tab, "gone")).to_have_count(1)
    assert violations(tab, *rules) == []
    tab.goto(server.url + "/usage")
    tab.locator("summary").first.click()
    assert violations(tab, *rules) == []


def test_axe_on_dialogs_and_an_empty_store(server, open_page):
    tab = open_page("/", reduced_motion="reduce")
    assert violations(tab) == []
    for button, dialog in (
        ("Keyboard shortcuts", "#keys"),
        ("Export conversations", "#export"),
        ("Import conversations", "#import"),
    ):
        tab.get_by_role("button", name=button, exact=True).click()
        expect(tab.locator(dialog)).to_be_visible()
        assert violations(tab) == []
        tab.keyboard.press("Escape")
        expect(tab.get_by_role("button", name=button, exact=True)).to_be_focused()


def test_axe_on_a_phone(server, open_page):
    fill_store(server)
    tab = open_page("/c/a", width=390, height=800, has_touch=True, is_mobile=True, reduced_motion="reduce")
    assert violations(tab) == []
    tab.locator("#conversation [data-do=drawer]").tap()
    expect(tab.locator("#sidebar")).to_be_visible()
    assert violations(tab) == []
    tab.goto(server.url + "/usage")
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_sidebar_can_be_used_with_the_keyboard_alone(server, open_page):
    for name in ("a", "b", "c"):
        server.session(name, f"message in {name}", title=f"Title {name}")
    tab = open_page("/c/c")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.closest('#conversation') !== null")
    tab.keyboard.press("Alt+s")
    expect(row(tab, "c").locator("a")).to_be_focused()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    until(lambda: tab.evaluate("location.href").endswith("/c/b"))
    row(tab, "b").locator("a").focus()
    tab.keyboard.press("F2")
    tab.keyboard.type("By keys")
    tab.keyboard.press("Enter")
    until(lambda: server.store.get_session("b").title == "By keys")
    tab.keyboard.press("Tab")
    expect(row(tab, "b").locator("> .session-more")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("#session-menu [data-act=pin]")).to_be_focused()
    tab.keyboard.press("Enter")
    until(lambda: server.store.get_session("b").pinned_at is not None)
    row(tab, "a").locator("a").focus()
    tab.keyboard.press("Delete")
    expect(row(tab, "a")).to_have_count(0)
    assert tab.evaluate("document.querySelector('#sidebar').contains(document.activeElement)")
    tab.keyboard.press("?")
    expect(tab.locator("#keys")).to_be_visible()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Alt+n")
    until(lambda: "New chat" in tab.locator(".session-title").all_text_contents())


def test_a_closed_menu_has_aria_expanded_false(server, open_page):
    server.session("a", "x", title="A")
    button = open_page("/c/a").get_by_role("button", name="Conversation menu")
    for key in ("Enter", "Space"):
        button.press(key)
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(button.page.locator("#conversation-menu")).to_be_visible()
        button.page.evaluate("() => new Promise((done) => setTimeout(done, 50))")
        button.page.keyboard.press("Escape")
        expect(button).to_have_attribute("aria-expanded", "false")
        expect(button).to_be_focused()


def test_the_theme_is_stored_and_rendered_by_the_server(server, open_page):
    server.session("a", "x")
    tab = open_page("/c/a", color_scheme="light")
    light = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    tab.get_by_role("button", name="Theme").click()
    tab.get_by_role("menuitemradio", name="Dark").click()
    dark = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert light != dark
    response = tab.request.get(tab.url)
    assert 'data-theme="dark"' in response.text()
    tab.reload()
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


def test_times_are_in_the_time_zone_of_the_browser(server, open_page):
    server.session("a", "x", title="A")
    tab = open_page("/c/a", timezone_id="Pacific/Kiritimati")
    until(lambda: any(cookie["name"] == "recollect-zone" for cookie in tab.context.cookies()))
    selector = 'li.session[data-id="a"] time'
    until(lambda: tab.locator(selector).get_attribute("title").endswith(tab.evaluate(
        "at => new Date(Number(at)).toTimeString().slice(0, 5)", row(tab, "a").get_attribute("data-at"))))  # fmt: skip


def test_forced_colors_leave_the_active_row_visible(server, open_page):
    server.session("a", "x", title="A")
    tab = open_page("/c/a", forced_colors="active")
    assert tab.evaluate("getComputedStyle(document.querySelector('li.session')).outlineStyle") == "solid"
