"""The page without a mouse, for a screen reader, in both themes, on a phone."""

import os

import pytest
from around import row, until
from playwright.sync_api import expect

AXE = os.path.join(os.path.dirname(__file__), "..", "..", ".node", "node_modules", "axe-core", "axe.min.js")


def findings(tab, *rules):
    """Give what axe finds serious or critical; it is put into the page past its policy, as an extension would."""
    if not os.path.exists(AXE):
        pytest.skip("axe-core is not here. scripts/test installs it with npm.")
    if not tab.evaluate("!!window.axe"):
        with open(AXE, encoding="utf-8") as file:
            tab.evaluate(file.read() + "; undefined")
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = tab.evaluate("(options) => axe.run(document, options)", options)
    return [
        (one["id"], node["target"], node["failureSummary"])
        for one in found["violations"] if one["impact"] in ("serious", "critical") for node in one["nodes"]
    ]  # fmt: skip


def fill(place):
    place.session("cli:plan", "go", title="Parent", color="red")
    place.session("cli:plan:delegate:one", "sub", title="Agent", parent="cli:plan")
    talk = place.session("a", title="A talk", model="demo", pinned=True)
    with talk.turn("What is in the file?") as turn:
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
        talk.record_tool_result("c", "no such file", status="error", error_message="no such file")
        turn.add(
            {
                "role": "assistant",
                "content": "It is **not there**.\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |",
            }
        )
    place.session("gone", "x", title="Gone")
    place.store.delete_session("gone")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(place, opened, theme):
    fill(place)
    tab = opened("/c/a", color_scheme=theme, reduced_motion="reduce")
    rules = ["color-contrast"] if theme == "dark" else []  # all else is the same in both
    assert findings(tab, *rules) == []
    row(tab, "a").locator("> a").focus()
    tab.keyboard.press("Shift+F10")
    expect(tab.locator("#session-menu")).to_be_visible()
    assert findings(tab, *rules) == []
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="1 sub-agent").click()
    tab.keyboard.press("Control+k")
    tab.keyboard.type("file")
    expect(tab.locator(".hit").first).to_be_visible()
    tab.get_by_role("button", name="Filters", exact=True).click()
    assert findings(tab, *rules) == []
    tab.keyboard.press("Escape")
    tab.evaluate("recollect.filter({view: 'trash'})")
    expect(row(tab, "gone")).to_have_count(1)
    assert findings(tab, *rules) == []
    tab.goto(place.url + "/figures")
    tab.locator("summary").first.click()
    assert findings(tab, *rules) == []


def test_axe_on_dialogs_and_an_empty_store(place, opened):
    tab = opened("/", reduced_motion="reduce")
    assert findings(tab) == []
    for button, dialog in (
        ("Keyboard", "#keys"),
        ("Export conversations", "#export"),
        ("Import conversations", "#import"),
    ):
        tab.get_by_role("button", name=button, exact=True).click()
        expect(tab.locator(dialog)).to_be_visible()
        assert findings(tab) == []
        tab.keyboard.press("Escape")
        expect(tab.get_by_role("button", name=button, exact=True)).to_be_focused()


def test_axe_on_a_phone(place, opened):
    fill(place)
    tab = opened("/c/a", width=390, height=800, has_touch=True, is_mobile=True, reduced_motion="reduce")
    assert findings(tab) == []
    tab.locator("#conversation [data-do=drawer]").tap()
    expect(tab.locator("#sidebar")).to_be_visible()
    assert findings(tab) == []
    tab.goto(place.url + "/figures")
    assert findings(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_all_with_keys(place, opened):
    for name in ("a", "b", "c"):
        place.session(name, f"said in {name}", title=f"Title {name}")
    tab = opened("/c/c")
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
    until(lambda: place.store.get_session("b").title == "By keys")
    tab.keyboard.press("Tab")
    expect(row(tab, "b").locator("> .session-more")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("#session-menu [data-act=pin]")).to_be_focused()
    tab.keyboard.press("Enter")
    until(lambda: place.store.get_session("b").pinned_at is not None)
    row(tab, "a").locator("a").focus()
    tab.keyboard.press("Delete")
    expect(row(tab, "a")).to_have_count(0)
    assert tab.evaluate("document.querySelector('#sidebar').contains(document.activeElement)")
    tab.keyboard.press("?")
    expect(tab.locator("#keys")).to_be_visible()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Alt+n")
    until(lambda: "New chat" in tab.locator(".session-title").all_text_contents())


def test_a_menu_that_was_closed_says_so(place, opened):
    place.session("a", "x", title="A")
    button = opened("/c/a").get_by_role("button", name="Conversation menu")
    for key in ("Enter", "Space"):
        button.press(key)
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(button.page.locator("#talk-menu")).to_be_visible()
        button.page.evaluate("() => new Promise((done) => setTimeout(done, 50))")
        button.page.keyboard.press("Escape")
        expect(button).to_have_attribute("aria-expanded", "false")
        expect(button).to_be_focused()


def test_the_theme_is_remembered_and_rendered_at_once(place, opened):
    place.session("a", "x")
    tab = opened("/c/a", color_scheme="light")
    light = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    tab.get_by_role("button", name="Theme").click()
    tab.get_by_role("menuitemradio", name="Dark").click()
    dark = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert light != dark
    answer = tab.request.get(tab.url)
    assert 'data-theme="dark"' in answer.text()
    tab.reload()
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


def test_days_are_those_of_the_browser(place, opened):
    place.session("a", "x", title="A")
    tab = opened("/c/a", timezone_id="Pacific/Kiritimati")
    until(lambda: any(cookie["name"] == "recollect-zone" for cookie in tab.context.cookies()))
    exact = 'li.session[data-id="a"] time'
    until(lambda: tab.locator(exact).get_attribute("title").endswith(tab.evaluate(
        "at => new Date(Number(at)).toTimeString().slice(0, 5)", row(tab, "a").get_attribute("data-at"))))  # fmt: skip


def test_forced_colours_leave_the_active_row_visible(place, opened):
    place.session("a", "x", title="A")
    tab = opened("/c/a", forced_colors="active")
    assert tab.evaluate("getComputedStyle(document.querySelector('li.session')).outlineStyle") == "solid"
