"""Rendered Markdown: no script in it runs, formulas are unchanged, and a stream renders like the whole text."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.export import plaintext
from recollect.server.page import markdown, markdown_rendering

VOID = {"br", "hr", "img"}


def render_html(text):
    return "".join(markdown.render_blocks(text))


class HtmlReader(HTMLParser):
    """Parses HTML, and counts the elements at its top level."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.depth, self.top, self.tags, self.attributes, self.text = 0, 0, [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.top += self.depth == 0
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        self.depth += tag not in VOID

    def handle_endtag(self, tag):
        self.depth -= tag not in VOID

    def handle_data(self, data):
        self.text.append(data)


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](java&#x73;cript:alert(1))",
    "[a](&#x6A;avascript:alert(1))",
    "[a]( javascript:alert(1))",
    "[a](<javascript:alert(1)>)",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    "![a](javascript:alert(1))",
    "![x](https://elsewhere.example/pixel.gif)",
    "[![x](https://elsewhere.example/pixel.gif)](https://a.example)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](//elsewhere.example)",
    "<javascript:alert(1)> <https://a.example>",
    '```"><script>alert(1)</script>\ncode\n```',
    "```python onclick=alert(1)\n</code></pre><script>alert(1)</script>\n```",
    '[a](https://a.example "\\" onmouseover=alert(1) x=\\"")',
    "[a]: javascript:alert(1)\n\n[a]",
    "<svg><animate onbegin=alert(1)>",
    "| a | <b onclick=x> |\n|:-:|--:|\n| <style>*{}</style> | `<i>` |",
    "<!-- comment --> <?php ?> <![CDATA[x]]>",
    "https://a.example/<script>alert(1)</script>",
    '<button data-do="delete">x</button>',
    "\u202e[a](https://a.example)\u2066",
    "<a href='/api/v1/x'>y</a> [z](/api/v1/sessions)",
    "$<script>alert(1)</script>$ \\(<img src=x onerror=y>\\)",
    "$$\n<script>alert(1)</script>\n$$",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text):
    assert_safe(render_html(text))


def assert_safe(html):
    reader = HtmlReader(html)
    assert set(reader.tags) <= markdown._ALLOWED_TAGS
    for tag, name, value in reader.attributes:
        assert name in {
            "href",
            "title",
            "target",
            "rel",
            "class",
            "src",
            "alt",
            "loading",
            "start",
            "type",
            "data-do",
            "dir",
        }, name
        if name == "href":
            assert re.match(r"https?://|mailto:|/files/", value, re.IGNORECASE), value
        if name == "src":
            assert value.startswith("/files/"), value
        if name == "data-do":
            assert (tag, value) == ("button", "copy-code")
    for tag in ("a",):
        if tag in reader.tags:
            assert 'rel="noopener noreferrer"' in html
            assert 'target="_blank"' in html


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="<>[]()!\"'&#;:/ \nabjsx`*_$|-=\\~javascript", max_size=80))
def test_any_text_is_rendered_safely(text):
    assert_safe(render_html(text))


def test_an_image_of_another_host_is_a_link_and_a_stored_image_is_shown():
    assert '<a href="https://elsewhere.example/a.gif"' in render_html("![cat](https://elsewhere.example/a.gif)")
    assert "<img" not in render_html("![cat](https://elsewhere.example/a.gif)")
    assert '<img src="/files/x/1.1/0" alt="cat"' in render_html("![cat](/files/x/1.1/0)")


def test_a_url_in_the_text_is_a_link_without_the_full_stop():
    html = render_html("See https://a.example/b_c?d=1, and (https://b.example).")
    assert 'href="https://a.example/b_c?d=1"' in html
    assert 'href="https://b.example"' in html
    assert "<a" not in render_html("`https://a.example`")


@pytest.mark.parametrize(
    "formula",
    ["$a_1 * b_2 * c$", r"\(x_1 \_ y\)", r"\[a * b * c\]", "$$e^{i\\pi} * 1 * 2$$", "$$\na_1 * b_2\n- c *d*\n=\n$$", "\\[\n1. a\n\\]"],
)  # fmt: skip
def test_formulas_are_unchanged(formula):
    reader = HtmlReader(render_html(f"before\n\n{formula}\n\nafter *this*"))
    assert formula in "".join(reader.text)
    assert reader.tags.count("em") == 1


def test_prices_are_not_a_formula():
    assert "<em>maybe</em>" in render_html("It costs $5 and *maybe* $10.")


def test_code_is_highlighted_and_keeps_every_character():
    code = "def f(x):\n\n    return '<&>'  # \u00e9\n"
    html = render_html(f"```python\n{code}```")
    assert '<span class="k">def</span>' in html
    reader = HtmlReader(html)
    assert code in "".join(reader.text)


def test_tables_align_by_class_and_never_by_style():
    html = render_html("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert '<td class="center">1</td>' in html
    assert "style" not in html


def test_a_text_that_would_take_too_long_is_shown_as_plain_text():
    text = "![" * 4_000
    assert render_html(text) == plaintext.render_plain(text)
    assert render_html("a" * (plaintext.MAX_MARKDOWN_LENGTH + 1)).startswith('<div class="plain-text">')


def test_the_cache_is_bounded():
    cache = markdown_rendering.RenderCache(100)
    for number in range(50):
        cache.put(f"text {number}", "x" * 10)
    assert cache.get("text 49") == "x" * 10
    assert cache.get("text 0") is None
    cache.put("long", "x" * 1000)
    assert cache.get("long") is None
    assert sum(len(text) + len(html) for text, html in cache._entries.items()) <= 100


LINES = st.sampled_from(
    [
        "", "", "word", "*em* `code`", "# head", "#", "---", "===", "- item", "  more", "1. one", "2. two", "10) ten", "* star", "> quote",
        ">", "```", "```python", "~~~", "x = 1", "    indented", "| a | b |", "|---|---|", "| 1 | 2 |", "[a]: https://a.example",
        '"title', 'title"', "[a] and [b][a]", "$$", "\\[", "\\]", "-", "+", "\tTab", "<div>", "2", "a\\", "**bold", "over**", "![i](/files/a)",
    ]
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=14).map("\n".join) | st.text(alphabet="ab-+*#>`~|=[]:1.2) \n\r\t$", max_size=60)


def add_piece(stream, piece):
    """Add a piece as markdown_rendering.grow_stream() does, but in this process."""
    stream.take(piece)
    unchanged_counts = [len(stream.blocks)]
    while (text := stream.due()) is not None:
        unchanged_counts.append(stream.show(markdown.render_normalized(text, growing=True)))
    return min(unchanged_counts)


@settings(max_examples=250, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 7), min_size=1, max_size=20))
@example("1. a\n\n2. b\n\nend", [1])
@example("foo\n#bar\n\nend", [5, 1])
@example('[a]: https://a.example\n"tit\nle"\n\n[a]', [1])
@example("[a] first\n\nsecond\n\nthird\n\n[a]: https://a.example", [3])
@example("a\r\n\r\nb\r\n\r\nc", [3, 1])
def test_a_stream_renders_like_the_whole_text(text, sizes):
    stream = markdown_rendering.MarkdownStream()
    blocks: list[str] = []
    offset, count = 0, 0
    while offset < len(text):
        size = sizes[count % len(sizes)]
        start = add_piece(stream, text[offset : offset + size])
        offset, count = offset + size, count + 1
        blocks[start:] = stream.blocks[start:]
        assert blocks == stream.blocks == markdown.render_blocks(text[:offset])
        assert all(HtmlReader(block).top == 1 for block in blocks), blocks


def test_stable_blocks_are_not_rendered_again():
    stream = markdown_rendering.MarkdownStream()
    for number in range(200):
        assert add_piece(stream, f"Paragraph {number} with *words*.\n\n") >= number - 2
    assert stream.stable >= 198


def test_short_inline_code_is_never_broken_and_long_code_may_be():
    assert '<code class="whole">--dry-run</code>' in render_html("with `--dry-run` on")
    long = "run <all> --since 2024-01-01 " + "x-" * 20
    expected = '<code>run &lt;all&gt; <span class="whole">--since</span> <span class="whole">2024-01-01</span> '
    assert expected + "x-" * 20 + "</code>" in render_html(f"`{long}`")
    assert '<code class="whole">&lt;b&gt;</code>' in render_html("`<b>`")


def test_lists_quotes_and_tables_follow_the_direction_of_their_text():
    html = render_html("- \u05d0\n\n1. b\n\n> c\n\n| d |\n|---|\n| e |")
    tags = [tag for tag, name, value in HtmlReader(html).attributes if (name, value) == ("dir", "auto")]
    assert tags == ["ul", "ol", "blockquote", "table"]


@pytest.mark.parametrize(
    "url",
    [
        "/files/../c/ID?m=1.4", "/files/../events", "/files/../page/export?format=html", "/files/../page/search?q=a", "/files/../?token=x",
        "/files/%2e%2e/c/ID?m=1.4", "/files/%2E./1.1/0", "/files/./1.1/0", "/files/..%2fc/1.1/0", "/files/a%2F..%2F..%2Fc/1.1/0",
        "/files/..\\c/1.1/0", "/files/a%5C..%5Cc/1.1/0", "/files/a/1.1/0?x=1", "/files/a/1.1/0#x", "/files/a%3Fx/1.1/0", "/files/a/1.1/../0",
        "/files//1.1/0", "/files/a/1.1/", "/files/a/1.1", "/files/a/x/0", "/files/a/1.1/0/../../../../events", "/files/a/1.1/0.0.0", "/files",
        "/files/a&#47;..&#47;..&#47;events", "/files/a/1.1/\u0661", "/events", "/page/export", "/page/search", "/?token=x", "/c/ID", "c/ID", "?m=1", "#x",
        "//elsewhere.example/files/a/1.1/0", "files/a/1.1/0", "/files/%00/1.1/0",
    ],
)  # fmt: skip
def test_a_url_in_the_app_must_be_that_of_a_stored_file(url):
    for text in (
        f"![a]({url})",
        f"[a]({url})",
        f"![a](<{url}>)",
        f"[![a]({url})]({url})",
        f"![a]\n\n[a]: {url}",
    ):
        reader = HtmlReader(render_html(text))
        assert not [value for _, name, value in reader.attributes if name in ("src", "href")], text


@pytest.mark.parametrize(
    "url", ["/files/x/1.1/0", "/files/cli%3Adefault/2.14/3.1", "/files/s%2F1/1.1/0", "/files/é/1.1/0"]
)
def test_a_stored_file_is_shown_and_linked(url):
    assert '<img src="/files/' in render_html(f"![a]({url})")
    assert '<a href="/files/' in render_html(f"[a]({url})")
