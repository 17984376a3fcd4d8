"""Markdown in exported pages: the HTML that the shared parser renders for them."""

from __future__ import annotations

import pytest

from recollect.export.markdown_html import markdown_to_html
from recollect.export.plaintext import MAX_MARKDOWN_LENGTH


def test_nested_lists_are_nested_elements():
    page = markdown_to_html("- a\n  1. b\n  2. c\n- d")
    assert page.count("<ul") == page.count("<ol") == 1
    assert page.index("<ul") < page.index("<ol") < page.index("</ol>") < page.index("</ul>")
    assert page.count("<li") == 4


def test_headings_start_below_those_of_the_page():
    page = markdown_to_html("# a\n\n## b\n\n##### c")
    assert '<h3 dir="auto">a</h3>' in page
    assert '<h4 dir="auto">b</h4>' in page
    assert '<h6 dir="auto">c</h6>' in page


def test_line_breaks_of_a_paragraph_stay():
    assert markdown_to_html("one\ntwo") == '<p dir="auto">one\ntwo</p>'
    assert '<p dir="auto" class="tight">one\ntwo</p>' in markdown_to_html("- one\n  two")


@pytest.mark.parametrize("formula", ["$a_1 + b_1$", "\\(x*y*z\\)", "$$\nx_1 * y_1\n$$"])
def test_a_formula_is_plain_text(formula):
    page = markdown_to_html(formula)
    assert formula.replace("&", "&amp;") in page
    assert "<em>" not in page


def test_code_has_its_language_and_no_markup():
    page = markdown_to_html("```py title=x\nif a < b: **c**\n```")
    assert '<span class="language">py</span>' in page
    assert '<pre dir="ltr"><code>if a &lt; b: **c**</code></pre>' in page


def test_a_table_scrolls_and_keeps_its_alignment():
    page = markdown_to_html("| a | b |\n|--:|:-:|\n| 1 | 2 |")
    assert page.startswith('<div class="wide"><table')
    assert '<td class="right">1</td>' in page
    assert '<td class="center">2</td>' in page
    assert "style=" not in page


@pytest.mark.parametrize(
    "text",
    ["\u202ecba", "&#8238;cba", "&#x202E;cba", "`\u2066`", "[\x1b](https://a.test)", "[a](https://a.test '&#8238;')"],
)
def test_characters_that_change_the_direction_or_control_a_terminal_are_replaced(text):
    page = markdown_to_html(text)
    assert "\ufffd" in page
    assert not set(page) & {"\u202e", "\u2066", "\x1b"}


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "mailto:a@b.test", "/page/export", "//a.test"]
)
def test_links_lead_to_the_web_only(url):
    assert "<a " not in markdown_to_html(f"[a]({url}) <{url}>")


def test_links_send_no_referrer():
    for text in ("[a](https://a.test)", "https://a.test", "![a](https://a.test)"):
        assert '<a href="https://a.test" rel="noopener noreferrer nofollow">' in markdown_to_html(text)


def test_a_text_over_the_budget_is_one_plain_paragraph():
    text = "**a**\n" * (MAX_MARKDOWN_LENGTH // 6 + 1)
    assert markdown_to_html(text) == f'<p dir="auto">{text}</p>'
