"""The search dialog in a real browser."""

from around import until
from playwright.sync_api import expect


def hits(tab):
    return tab.locator("#search-hits .hit")


def found(tab, *sessions):
    """Wait until the hits are those of these sessions."""
    until(lambda: sorted(tab.eval_on_selector_all("#search-hits .hit", OF)) == sorted(sessions))


OF = "hits => hits.map((hit) => hit.dataset.session)"


def ask(tab, text):
    tab.keyboard.press("Control+k")
    expect(tab.locator("#search-field")).to_be_focused()
    if text:
        tab.locator("#search-field").fill(text)


def test_enter_jumps_to_the_very_message(place, opened):
    place.session("other", "nothing of it", title="Other")
    wanted = place.session("cli:x/y #1", title="Wanted")
    for number in range(120):
        wanted.append(
            {"role": "user", "content": f"message {number}" + (" with the needle in it" if number == 7 else "")}
        )
    tab = opened("/c/other")
    ask(tab, "needle")
    expect(hits(tab)).to_have_count(1)
    assert hits(tab).locator("mark").inner_text() == "needle"
    assert "You" in hits(tab).inner_text()
    expect(tab.locator("#search-hits .hits-head")).to_contain_text("Wanted")
    message = hits(tab).get_attribute("data-message")
    tab.keyboard.press("Enter")
    expect(tab.locator("#search")).to_be_hidden()
    until(lambda: tab.evaluate("location.href").startswith(f"{place.url}/c/cli%3Ax%2Fy%20%231"))
    expect(
        tab.locator(f'[data-message="{message}"], [id="m{message}"], [data-key="{message}"]').first
    ).to_be_in_viewport()


def test_arrows_choose_and_the_pages_go_on(place, opened):
    for number in range(70):
        place.session(f"s{number}", f"The apple number {number}.", title=f"Talk {number}")
    tab = opened("/c/s0")
    ask(tab, "apple")
    expect(tab.locator('.hit[aria-selected="true"]')).to_have_count(1)
    first = tab.locator('.hit[aria-selected="true"]').get_attribute("id")
    tab.keyboard.press("ArrowDown")
    second = tab.locator('.hit[aria-selected="true"]').get_attribute("id")
    assert first != second
    assert tab.locator("#search-field").get_attribute("aria-activedescendant") == second
    until(
        lambda: tab.evaluate("void document.querySelector('#search-hits').scrollTo(0, 1e9)") or hits(tab).count() == 70
    )
    assert len(set(tab.eval_on_selector_all(".hit", "all => all.map((one) => one.dataset.session)"))) == 70
    expect(tab.locator("#search-count")).to_have_text("70 hits")


def test_filters_narrow(place, opened):
    place.session("a", "pear one", channel="cli", model="demo", title="A")
    place.session("b", "pear two", channel="discord", archived=True, title="B")
    c = place.session("c", "pear three", title="C")
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
    tab = opened("/c/a")
    ask(tab, "pear")
    found(tab, "a", "b", "c", "c", "c")
    tab.get_by_role("button", name="Filters", exact=True).click()
    form = tab.locator("#search-filters")
    form.get_by_label("Said by").select_option("assistant")
    found(tab, "c", "c")
    form.get_by_role("textbox", name="Tool").fill("look_up")
    found(tab, "c")
    assert "look_up" in hits(tab).inner_text()
    form.get_by_role("textbox", name="Tool").fill("")
    form.get_by_label("Said by").select_option("")
    form.get_by_label("Archived").select_option("yes")
    found(tab, "b")
    form.get_by_label("Archived").select_option("")
    form.get_by_label("Channel").select_option("cli")
    found(tab, "a")
    form.get_by_label("Since").select_option("7")
    found(tab, "a")


def test_hostile_text_is_text(place, opened):
    place.session(
        "h", '<img src=x onerror="window.hacked=1"> plum <script>window.hacked=1</script>', title="<b>plum</b>"
    )
    tab = opened("/c/h")
    ask(tab, "plum")
    expect(hits(tab)).to_have_count(2)
    assert '<img src=x onerror="window.hacked=1"> plum' in hits(tab).nth(1).inner_text()
    assert tab.locator("#search-hits img, #search-hits b, #search-hits script").count() == 0
    tab.locator("#search-field").fill('<img src=x onerror="window.hacked=1">zzz')
    expect(tab.locator("#search-told")).to_contain_text("Nothing was found for")
    assert tab.evaluate("window.hacked") is None


def test_the_empty_state_says_what_can_be_searched_and_what_was(place, opened):
    place.session("a", "grape", title="A")
    tab = opened("/c/a")
    ask(tab, "")
    expect(tab.locator("#search-told")).to_contain_text("Words are looked for in titles")
    tab.keyboard.type("grape")
    expect(hits(tab)).to_have_count(1)
    tab.keyboard.press("Enter")
    expect(tab.locator("#search")).to_be_hidden()
    ask(tab, "")
    tab.locator("#search-field").fill("")
    tab.get_by_role("button", name="grape", exact=True).click()
    expect(hits(tab)).to_have_count(1)


def test_the_newest_question_wins_and_failures_are_told(place, opened):
    place.session("a", "fig and melon", title="A")
    tab = opened("/c/a", expected=("500", "Failed to load"))
    held = []

    def hold(route):
        if "q=fig" in route.request.url:
            held.append(route)
        elif "q=broken" in route.request.url:
            route.fulfill(status=500, content_type="application/problem+json", body='{"detail": "The disk is full."}')
        else:
            route.continue_()

    tab.route("**/page/search?*", hold)
    ask(tab, "fig")
    until(lambda: (tab.wait_for_timeout(20), held)[1])
    tab.locator("#search-field").fill("melon")
    expect(hits(tab).locator("mark")).to_have_text("melon")
    for route in held:
        try:
            route.continue_()
        except Exception:  # noqa: BLE001  the page has let go of it
            break
    tab.wait_for_timeout(200)
    assert hits(tab).locator("mark").inner_text() == "melon"
    tab.locator("#search-field").fill("broken")
    expect(tab.locator("#search-told")).to_have_text("The disk is full.")
