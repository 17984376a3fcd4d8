"""The page of figures, and files out of the page and into it."""

import json

from around import until
from playwright.sync_api import expect

SECRET = "sk-ant-" + "a1B2" * 10


def talk(place, name, count, **fields):
    made = place.session(name, title=name, **fields)
    for number in range(count):
        with made.turn(f"question {number}") as turn:
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
            made.record_tool_result(
                f"c{number}",
                "the answer of the tool",
                status="error" if number == 0 else "success",
                latency_ms=100 * (number + 1),
            )
            turn.add({"role": "assistant", "content": "answer"})
            turn.complete(model="demo", input_tokens=100, output_tokens=20)
    return made


def test_figures_are_drawn_and_told_in_tables(place, opened):
    talk(place, "a", 4, channel="cli", model="demo")
    talk(place, "b", 2, channel='"><script>window.hacked=1</script>')
    tab = opened("/figures")
    assert tab.locator(".totals dd b").all_text_contents()[:4] == ["2", "12", "720", "6"]
    drawing = tab.locator("#figure-messages svg")
    assert drawing.get_attribute("role") == "img"
    assert "12 in all" in drawing.get_attribute("aria-label")
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


def test_figures_of_nothing(place, opened):
    tab = opened("/figures?days=all")
    expect(tab.locator(".figures-none")).to_contain_text("Nothing to count yet")


def test_a_conversation_is_saved_as_a_file(place, opened):
    talk(place, "Notes / of: today", 1)
    tab = opened("/c/Notes%20%2F%20of%3A%20today")
    tab.get_by_role("button", name="Export conversations").click()
    tab.get_by_label("What tools answered").uncheck()
    with tab.expect_download() as waited:
        tab.locator("#export").get_by_role("button", name="Export").click()
    assert waited.value.suggested_filename == "Notes of today.md"
    with open(waited.value.path(), encoding="utf-8") as file:
        text = file.read()
    assert "question 0" in text
    assert "left out" in text
    assert "the answer of the tool" not in text


def test_everything_goes_out_and_comes_in_again(place, opened, tmp_path):
    talk(place, "one", 1)
    place.session("two", f"the key is {SECRET}", title="Two")
    tab = opened("/c/one", expected=("404",))
    tab.get_by_role("button", name="Export conversations").click()
    form = tab.locator("#export")
    form.get_by_label("All conversations").check()
    form.get_by_label("JSON everything").check()
    expect(form.get_by_label("What tools answered")).to_be_disabled()
    form.get_by_label("Secrets masked").check()
    with tab.expect_download() as waited:
        form.get_by_role("button", name="Export").click()
    saved = tmp_path / "all.json"
    waited.value.save_as(saved)
    assert [session["id"] for session in json.loads(saved.read_text())["sessions"]] == ["one", "two"]
    assert "sk-ant-" not in saved.read_text()
    place.clear()
    tab.get_by_role("button", name="Import conversations").click()
    dialog = tab.locator("#import")
    expect(dialog.get_by_role("button", name="Import")).to_be_disabled()
    dialog.locator("input[type=file]").set_input_files(saved)
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator("[data-report]")).to_contain_text("2 conversations imported, with")
    expect(dialog.locator("[data-report]")).to_contain_text("Secrets had been masked")
    until(lambda: {"Two", "one"} <= set(place.titles()))


def test_a_file_that_is_none_is_told_in_words(place, opened, tmp_path):
    place.session("a", "x")
    broken = tmp_path / "broken.json"
    broken.write_text("this is <b>no</b> export")
    tab = opened("/c/a", expected=("400",))
    tab.get_by_role("button", name="Import conversations").click()
    dialog = tab.locator("#import")
    dialog.locator("input[type=file]").set_input_files(broken)
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator("[data-report]")).not_to_have_text("Importing…")
    expect(dialog.locator("[data-report]")).to_contain_text("could not be read")
    assert dialog.locator("[data-report] b").count() == 0
