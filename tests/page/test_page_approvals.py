"""The card that asks whether a tool may run: in every window, with the keyboard, on a phone, in light and dark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from around import TOKEN, wait_for
from test_page_access import findings

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from playwright.sync_api import expect

from paying_model import paying

PICTURES = os.environ.get("RECOLLECT_TEST_PICTURES")


@pytest.fixture
def bank(tmp_path):
    with paying(tmp_path) as bank:
        yield bank


@pytest.fixture
def env(tmp_path, bank):
    paths = {"RECOLLECT_DB": str(tmp_path / "page.db"), "XDG_CONFIG_HOME": str(tmp_path)}
    return {**os.environ, **paths, "RECOLLECT_TOKEN": TOKEN, "RECOLLECT_CONFIG": str(bank.config)}


@pytest.fixture
def url(env):
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve", "--port", "0", "--log-level", "error"], env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        url = process.stdout.readline().split(" at ", 1)[1].split("/#token", 1)[0].strip()
        wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.fixture
def at(url, talk_at):
    """Give what opens the page. The browser is closed before the server ends, which it would complain about."""
    return lambda path="/", **options: talk_at(url, path, **options)


def asked(at, text="pay Eve for the <b>garden</b>", **options):
    page = at(**options)
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")
    expect(page.locator(".approval")).to_be_visible()
    return page


def picture(page, name):
    if PICTURES:
        page.screenshot(path=os.path.join(PICTURES, f"approval-{name}.png"))


def test_a_card_with_four_buttons(at, bank):
    page = asked(at)
    card = page.locator(".approval")
    expect(card).to_contain_text("May the model run pay of ledger?")
    expect(card.locator("pre")).to_have_text('{\n  "to": "Eve",\n  "note": "for the <b>garden</b>"\n}')
    assert card.locator("button").all_inner_texts() == [
        "Allow once", "Allow in this conversation", "Always allow", "Deny",
    ]  # fmt: skip
    picture(page, "light")
    assert bank.runs == []
    card.get_by_role("button", name="Allow once").click()
    expect(card).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("The tool said: paid Eve")
    assert bank.runs == ["pay Eve"]


def test_deny_with_the_keyboard(at, bank):
    page = asked(at)
    page.focus("#composer-text")
    page.keyboard.type("a word that is typed meanwhile")
    for _ in range(30):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.dataset.decision") == "deny":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("The user did not allow this tool call")
    expect(page.locator("#composer-text")).to_have_value("a word that is typed meanwhile")
    assert bank.runs == []


def test_another_window_answers_and_the_card_goes_in_both(at, bank):
    page = asked(at)
    other = at("/c/" + page.url.rpartition("/c/")[2], context=page.context)
    card = other.locator(".approval")
    expect(card).to_be_visible()
    card.get_by_role("button", name="Always allow").click()
    expect(card).to_have_count(0)
    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("paid Eve")
    page.fill("#composer-text", "pay Bob")
    page.press("#composer-text", "Enter")
    expect(page.locator(".message.assistant").last).to_contain_text("paid Bob")
    assert bank.runs == ["pay Eve", "pay Bob"]


def test_a_question_of_another_process_is_answered_in_the_page(at, bank, env):
    program = """
import asyncio
from recollect.agent import approvals, configured

async def main():
    async with configured(approve=approvals.forever) as agent:
        print((await agent.ask("pay Eve", "cli:a")).text, flush=True)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            page = at()
            page.locator('li.session[data-id="cli:a"]').click()
            page.locator(".approval").get_by_role("button", name="Allow once").click()
            assert process.stdout.readline() == "The tool said: paid Eve\n"
            expect(page.locator(".approval")).to_have_count(0)
        finally:
            process.kill()
    assert bank.runs == ["pay Eve"]


def test_stop_takes_the_card_away(at, bank):
    page = asked(at)
    page.click("#stop")
    expect(page.locator(".approval")).to_have_count(0)
    assert bank.runs == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(at, scheme):
    page = asked(at, width=360, height=740, color_scheme=scheme, text="pay Eve " + "word " * 300)
    picture(page, f"phone-{scheme}")
    card = page.locator(".approval")
    assert card.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
    for button in card.locator("button").all():
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert [found for found in findings(page) if found[1] != ["#composer-text"]] == []
