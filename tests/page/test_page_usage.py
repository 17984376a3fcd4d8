"""The usage page, and export and import in the web app."""

import json

from page_helpers import until
from playwright.sync_api import expect

SECRET = "sk-ant-" + "a1B2" * 10


def create_session(server, name, count, **fields):
    """Create a session of turns with a tool call each; the first call fails."""
    session = server.session(name, title=name, **fields)
    for number in range(count):
        with session.turn(f"question {number}") as turn:
            turn.add(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": f"c{number}", "type": "function", "function": {"name": "<b>tool</b>", "arguments": "{}"}}
                    ],
                },
                format="openai",
            )
            session.tools.record_result(
                f"c{number}",
                "the answer of the tool",
                status="error" if number == 0 else "success",
                latency_ms=100 * (number + 1),
            )
            turn.add({"role": "assistant", "content": "answer"})
            turn.complete(model="demo", input_tokens=100, output_tokens=20)
    return session


def test_usage_is_shown_in_charts_and_tables(server, open_page):
    create_session(server, "a", 4, channel="cli", model="demo")
    create_session(server, "b", 2, channel='"><script>window.hacked=1</script>')
    tab = open_page("/usage")
    assert tab.locator(".totals dd b").all_text_contents()[:4] == ["2", "12", "720", "6"]
    chart = tab.locator("#figure-messages svg")
    assert chart.get_attribute("role") == "img"
    assert "12 in total" in chart.get_attribute("aria-label")
    assert tab.locator("#figure-messages svg title").last.text_content().endswith(": 12 messages")
    tab.locator("#figure-messages summary").click()
    expect(tab.locator("#figure-messages tbody tr").last.locator("td")).to_have_text("12")
    assert tab.locator("#figure-tools tbody tr").all_inner_texts() == ["<b>tool</b>\t6\t2 (33%)\t0\t0\t200 ms\t400 ms"]
    assert tab.locator("#figure-channels .bars li").count() == 2
    assert "Text" in tab.locator("#figure-bytes").inner_text()
    assert tab.locator("[style]").count() == 0
    tab.get_by_role("link", name="7 days").click()
    expect(tab.locator("#figure-messages tbody tr")).to_have_count(7)
    expect(tab.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "page")
    assert tab.evaluate("window.hacked") is None


def test_the_usage_of_an_empty_store(server, open_page):
    tab = open_page("/usage?days=all")
    expect(tab.locator(".figures-none")).to_contain_text("No usage yet")


def test_a_conversation_is_exported_to_a_file(server, open_page):
    create_session(server, "Notes / of: today", 1)
    tab = open_page("/c/Notes%20%2F%20of%3A%20today")
    tab.get_by_role("button", name="Export conversations").click()
    tab.get_by_label("Include tool output").uncheck()
    with tab.expect_download() as download:
        tab.locator("#export").get_by_role("button", name="Export").click()
    assert download.value.suggested_filename == "Notes of today.md"
    with open(download.value.path(), encoding="utf-8") as file:
        text = file.read()
    assert "question 0" in text
    assert "(tool output omitted)" in text
    assert "the answer of the tool" not in text


def test_all_conversations_are_exported_and_imported(server, open_page, tmp_path):
    create_session(server, "one", 1)
    server.session("two", f"the key is {SECRET}", title="Two")
    tab = open_page("/c/one", expected=("404",))
    tab.get_by_role("button", name="Export conversations").click()
    form = tab.locator("#export")
    form.get_by_label("All conversations").check()
    form.get_by_label("JSON complete, can be imported").check()
    expect(form.get_by_label("Include tool output")).to_be_disabled()
    form.get_by_label("Redact secrets").check()
    with tab.expect_download() as download:
        form.get_by_role("button", name="Export").click()
    export = tmp_path / "all.json"
    download.value.save_as(export)
    assert [session["id"] for session in json.loads(export.read_text())["sessions"]] == ["one", "two"]
    assert "sk-ant-" not in export.read_text()
    server.clear()
    tab.get_by_role("button", name="Import conversations").click()
    dialog = tab.locator("#import")
    expect(dialog.get_by_role("button", name="Import")).to_be_disabled()
    dialog.locator("input[type=file]").set_input_files(export)
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator("[data-report]")).to_contain_text("2 conversations imported, with")
    expect(dialog.locator("[data-report]")).to_contain_text("Secrets were redacted")
    until(lambda: {"Two", "one"} <= set(server.titles()))


def test_a_file_that_cannot_be_imported_shows_an_error(server, open_page, tmp_path):
    server.session("a", "x")
    broken = tmp_path / "broken.json"
    broken.write_text("this is <b>not</b> an export")
    tab = open_page("/c/a", expected=("400",))
    tab.get_by_role("button", name="Import conversations").click()
    dialog = tab.locator("#import")
    dialog.locator("input[type=file]").set_input_files(broken)
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator("[data-report]")).not_to_have_text("Importing…")
    expect(dialog.locator("[data-report]")).to_contain_text("could not be read")
    assert dialog.locator("[data-report] b").count() == 0
