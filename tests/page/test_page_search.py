"""The search dialog in a real browser."""

from page_helpers import until
from playwright.sync_api import expect


def hits(tab):
    return tab.locator("#search-hits .hit")


def wait_for_hits(tab, *sessions):
    """Wait until the hits belong to these sessions."""
    until(lambda: sorted(tab.eval_on_selector_all("#search-hits .hit", SESSIONS)) == sorted(sessions))


SESSIONS = "hits => hits.map((hit) => hit.dataset.session)"


def search(tab, text):
    """Open the search dialog, and enter a query."""
    tab.keyboard.press("Control+k")
    expect(tab.locator("#search-field")).to_be_focused()
    if text:
        tab.locator("#search-field").fill(text)


def test_enter_opens_the_message_of_a_hit(server, open_page):
    server.session("other", "something else", title="Other")
    target = server.session("cli:x/y #1", title="Target")
    for number in range(120):
        target.append(
            {"role": "user", "content": f"message {number}" + (" with the needle in it" if number == 7 else "")}
        )
    tab = open_page("/c/other")
    search(tab, "needle")
    expect(hits(tab)).to_have_count(1)
    assert hits(tab).locator("mark").inner_text() == "needle"
    assert "You" in hits(tab).inner_text()
    expect(tab.locator("#search-hits .hits-head")).to_contain_text("Target")
    message = hits(tab).get_attribute("data-message")
    tab.keyboard.press("Enter")
    expect(tab.locator("#search")).to_be_hidden()
    until(lambda: tab.evaluate("location.href").startswith(f"{server.url}/c/cli%3Ax%2Fy%20%231"))
    expect(
        tab.locator(f'[data-message="{message}"], [id="m{message}"], [data-key="{message}"]').first
    ).to_be_in_viewport()


def test_arrow_keys_select_hits_and_scrolling_loads_more(server, open_page):
    for number in range(70):
        server.session(f"s{number}", f"The apple number {number}.", title=f"Session {number}")
    tab = open_page("/c/s0")
    search(tab, "apple")
    expect(tab.locator('.hit[aria-selected="true"]')).to_have_count(1)
    first = tab.locator('.hit[aria-selected="true"]').get_attribute("id")
    tab.keyboard.press("ArrowDown")
    second = tab.locator('.hit[aria-selected="true"]').get_attribute("id")
    assert first != second
    assert tab.locator("#search-field").get_attribute("aria-activedescendant") == second
    until(
        lambda: tab.evaluate("void document.querySelector('#search-hits').scrollTo(0, 1e9)") or hits(tab).count() == 70
    )
    assert len(set(tab.eval_on_selector_all(".hit", "hits => hits.map((hit) => hit.dataset.session)"))) == 70
    expect(tab.locator("#search-count")).to_have_text("70 results")


def test_filters_reduce_the_hits(server, open_page):
    server.session("a", "pear one", channel="cli", model="demo", title="A")
    server.session("b", "pear two", channel="discord", archived=True, title="B")
    c = server.session("c", "pear three", title="C")
    c.append({"role": "assistant", "content": "pear four"})
    c.append(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"what": "pear"}'}}
                ],
            }
        ],
        format="openai",
    )
    tab = open_page("/c/a")
    search(tab, "pear")
    wait_for_hits(tab, "a", "b", "c", "c", "c")
    tab.get_by_role("button", name="Filters", exact=True).click()
    form = tab.locator("#search-filters")
    form.get_by_label("From").select_option("assistant")
    wait_for_hits(tab, "c", "c")
    form.get_by_role("textbox", name="Tool").fill("look_up")
    wait_for_hits(tab, "c")
    assert "look_up" in hits(tab).inner_text()
    form.get_by_role("textbox", name="Tool").fill("")
    form.get_by_label("From").select_option("")
    form.get_by_label("Archived").select_option("yes")
    wait_for_hits(tab, "b")
    form.get_by_label("Archived").select_option("")
    form.get_by_label("Channel").select_option("cli")
    wait_for_hits(tab, "a")
    form.get_by_label("Time").select_option("7")
    wait_for_hits(tab, "a")


def test_hostile_text_in_hits_is_text(server, open_page):
    server.session(
        "h", '<img src=x onerror="window.hacked=1"> plum <script>window.hacked=1</script>', title="<b>plum</b>"
    )
    tab = open_page("/c/h")
    search(tab, "plum")
    expect(hits(tab)).to_have_count(2)
    assert '<img src=x onerror="window.hacked=1"> plum' in hits(tab).nth(1).inner_text()
    assert tab.locator("#search-hits img, #search-hits b, #search-hits script").count() == 0
    tab.locator("#search-field").fill('<img src=x onerror="window.hacked=1">zzz')
    expect(tab.locator("#search-message")).to_contain_text("No results for")
    assert tab.evaluate("window.hacked") is None


def test_an_empty_query_shows_a_hint_and_recent_searches(server, open_page):
    server.session("a", "grape", title="A")
    tab = open_page("/c/a")
    search(tab, "")
    expect(tab.locator("#search-message")).to_contain_text("Search titles, messages")
    tab.keyboard.type("grape")
    expect(hits(tab)).to_have_count(1)
    tab.keyboard.press("Enter")
    expect(tab.locator("#search")).to_be_hidden()
    search(tab, "")
    tab.locator("#search-field").fill("")
    tab.get_by_role("button", name="grape", exact=True).click()
    expect(hits(tab)).to_have_count(1)


def test_the_latest_query_wins_and_errors_are_shown(server, open_page):
    server.session("a", "fig and melon", title="A")
    tab = open_page("/c/a", expected=("500", "Failed to load"))
    routes = []

    def hold(route):
        if "q=fig" in route.request.url:
            routes.append(route)
        elif "q=broken" in route.request.url:
            route.fulfill(status=500, content_type="application/problem+json", body='{"detail": "The disk is full."}')
        else:
            route.continue_()

    tab.route("**/page/search?*", hold)
    search(tab, "fig")
    until(lambda: (tab.wait_for_timeout(20), routes)[1])
    tab.locator("#search-field").fill("melon")
    expect(hits(tab).locator("mark")).to_have_text("melon")
    for route in routes:
        try:
            route.continue_()
        except Exception:  # noqa: BLE001  the page has aborted the request
            break
    tab.wait_for_timeout(200)
    assert hits(tab).locator("mark").inner_text() == "melon"
    tab.locator("#search-field").fill("broken")
    expect(tab.locator("#search-message")).to_have_text("The disk is full.")
