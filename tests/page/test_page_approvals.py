"""The card that requests an approval: in every window, with the keyboard, on a phone, in light and dark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from page_helpers import TOKEN, wait_for_server
from test_page_accessibility import violations

pytest.importorskip("pydantic_ai")
pytest.importorskip("fastmcp")

from playwright.sync_api import expect

from payment_model import run_payment_model

SCREENSHOTS = os.environ.get("RECOLLECT_TEST_PICTURES")


@pytest.fixture
def bank(tmp_path):
    with run_payment_model(tmp_path) as bank:
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
        url = process.stdout.readline().split(" at ", 1)[1].split("/#token", 1)[0].strip()  # pyright: ignore[reportOptionalMemberAccess]
        wait_for_server(url)
        yield url
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


@pytest.fixture
def open_payment_page(url, open_page_at):
    """Return a function that opens the page. The browser is closed before the server stops, to avoid console errors."""
    return lambda path="/", **options: open_page_at(url, path, **options)


def request_payment(open_payment_page, text="pay Eve for the <b>garden</b>", **options):
    page = open_payment_page(**options)
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")
    expect(page.locator(".approval")).to_be_visible()
    return page


def take_screenshot(page, name):
    if SCREENSHOTS:
        page.screenshot(path=os.path.join(SCREENSHOTS, f"approval-{name}.png"))


def test_an_approval_card_has_four_decisions(open_payment_page, bank):
    page = request_payment(open_payment_page)
    card = page.locator(".approval")
    expect(card).to_contain_text("Allow the model to run pay from ledger?")
    expect(card.locator("pre")).to_have_text('{\n  "to": "Eve",\n  "note": "for the <b>garden</b>"\n}')
    assert card.locator("button").all_inner_texts() == [
        "Allow once", "Allow in this conversation", "Always allow", "Deny",
    ]  # fmt: skip
    take_screenshot(page, "light")
    assert bank.runs == []
    card.get_by_role("button", name="Allow once").click()
    expect(card).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("The tool said: paid Eve")
    assert bank.runs == ["pay Eve"]


def test_a_tool_call_is_denied_with_the_keyboard(open_payment_page, bank):
    page = request_payment(open_payment_page)
    page.focus("#composer-text")
    page.keyboard.type("typed while the card is open")
    for _ in range(30):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.dataset.decision") == "deny":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("The user denied this tool call")
    expect(page.locator("#composer-text")).to_have_value("typed while the card is open")
    assert bank.runs == []


def test_a_decision_in_one_window_closes_the_card_in_both(open_payment_page, bank):
    page = request_payment(open_payment_page)
    other = open_payment_page("/c/" + page.url.rpartition("/c/")[2], context=page.context)
    card = other.locator(".approval")
    expect(card).to_be_visible()
    card.get_by_role("button", name="Always allow").click()
    expect(card).to_have_count(0)
    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator(".message.assistant")).to_contain_text("paid Eve")
    expect(page.locator("#stop")).to_be_hidden()  # the page refuses a message while an answer is in progress
    page.fill("#composer-text", "pay Bob")
    page.press("#composer-text", "Enter")
    expect(page.locator(".message.assistant").last).to_contain_text("paid Bob")
    assert bank.runs == ["pay Eve", "pay Bob"]


def test_an_approval_request_of_another_process_is_decided_in_the_page(open_payment_page, bank, env):
    program = """
import asyncio
from recollect.agent import approvals, agent_from_config

async def main():
    async with agent_from_config(approve=approvals.remote_approver) as agent:
        print((await agent.ask("pay Eve", "cli:a")).text, flush=True)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            page = open_payment_page()
            page.locator('li.session[data-id="cli:a"]').click()
            page.locator(".approval").get_by_role("button", name="Allow once").click()
            assert process.stdout.readline() == "The tool said: paid Eve\n"  # pyright: ignore[reportOptionalMemberAccess]
            expect(page.locator(".approval")).to_have_count(0)
        finally:
            process.kill()
    assert bank.runs == ["pay Eve"]


def test_stop_removes_the_card(open_payment_page, bank):
    page = request_payment(open_payment_page)
    page.click("#stop")
    expect(page.locator(".approval")).to_have_count(0)
    assert bank.runs == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_approval_card_fits_a_phone(open_payment_page, scheme):
    page = request_payment(
        open_payment_page, width=360, height=740, color_scheme=scheme, text="pay Eve " + "word " * 300
    )
    take_screenshot(page, f"phone-{scheme}")
    card = page.locator(".approval")
    assert card.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
    for button in card.locator("button").all():
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert [violation for violation in violations(page) if violation[1] != ["#composer-text"]] == []
