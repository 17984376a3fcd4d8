"""Markdown on Telegram: its rendering as entities that Telegram accepts for any answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("telegram")

from recollect.channels.bot.chat_markdown import render_tables, utf16_length
from recollect.channels.telegram.entities import render_entities


def render_tags(markdown):
    """Render Markdown as text with its entities as tags: <type>...</type>."""
    text, entities = render_entities(markdown)
    units = text.encode("utf-16-le")
    marks = []
    for number, entity in enumerate(entities):
        extra = f" {entity.url or entity.language}" if entity.url or entity.language else ""
        marks.append((entity.offset, 1, -entity.length, number, f"<{entity.type}{extra}>"))
        marks.append((entity.offset + entity.length, 0, entity.length, -number, f"</{entity.type}>"))
    out, at = "", 0
    for offset, _, _, _, tag in sorted(marks):
        out += units[at * 2 : offset * 2].decode("utf-16-le") + tag
        at = offset
    return out + units[at * 2 :].decode("utf-16-le")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("plain", "plain"),
        ("**bold** and *italic* and _too_", "<bold>bold</bold> and <italic>italic</italic> and <italic>too</italic>"),
        ("**bold with `code`**", "<bold>bold with <code>code</code></bold>"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
        ("not **closed and `open", "not **closed and `open"),
        ("`<b>&amp;**x**</b>`", "<code><b>&amp;**x**</b></code>"),
        ("a \\*b\\* c", "a *b* c"),
        ("# Title\ntext", "<bold>Title</bold>\ntext"),
        ("- one\n  - two\n* three", "\u2022 one\n  \u2022 two\n\u2022 three"),
        ("- [ ] open\n- [x] done", "\u2610 open\n\u2611 done"),
        ("1. one\n2. two", "1. one\n2. two"),
        ("> said\n> so\n\nwell", "<blockquote>said\nso</blockquote>\n\nwell"),
        ("---", "\u2014\u2014\u2014"),
        ("[here](https://a.b/c_(d))", "<text_link https://a.b/c_(d)>here</text_link>"),
        ("[evil](javascript:alert(1))", "[evil](javascript:alert(1))"),
        ("```python\nprint(1)\n```\nafter", "<pre python>print(1)</pre>\nafter"),
        ("```\n# no title\n- no list", "<pre># no title\n- no list</pre>"),
        ("\U0001f600 **x**", "\U0001f600 <bold>x</bold>"),
        ("~~gone~~", "<strikethrough>gone</strikethrough>"),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "<pre>a  b\n\u2500  \u2500\u2500\n1  22</pre>"),
        ("| | |\n|---|---|\n| model | `demo` |", "<bold>model</bold>: <code>demo</code>"),
        ("```\n```", "```\n```"),
    ],
)
def test_rendering(markdown, expected):
    assert render_tags(markdown) == expected


MARKS = st.lists(
    st.sampled_from(
        [
            "**",
            "*",
            "_",
            "__",
            "`",
            "```",
            "~~",
            "[",
            "](http://x.y)",
            ")",
            "\\",
            "\n",
            "> ",
            "# ",
            "- ",
            "|",
            "|---|\n",
            "a",
            " b ",
            "\U0001f600",
            "<b>",
            "&",
        ]
    )
    | st.text(max_size=5),
    max_size=40,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(MARKS)
def test_entities_are_within_the_text_and_the_text_is_not_longer(markdown):
    text, entities = render_entities(markdown)
    whole = utf16_length(text)
    assert whole <= max(utf16_length(markdown), utf16_length(render_tables(markdown)))
    last = (-1, 0)
    for entity in entities:
        assert entity.length > 0
        assert 0 <= entity.offset < entity.offset + entity.length <= whole
        assert (entity.offset, -entity.length) >= last
        last = (entity.offset, -entity.length)
    if markdown.strip():
        assert text.strip()


def test_a_table_that_is_too_wide_becomes_a_list():
    wide = "| name | what it does |\n|---|---|\n| one | " + "long " * 20 + "|\n"
    assert render_tables(wide).startswith("- **name**: one\n- **what it does**: long")
