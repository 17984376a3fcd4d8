"""Markdown as it is shown: nothing in it runs, formulas stay, and in pieces it is the same as at once."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.server.page import markdown, plaintext, rendering

VOID = {"br", "hr", "img"}


class Reader(HTMLParser):
    """Reads HTML, and counts the elements at its top."""

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
    assert_safe(markdown.render(text))


def assert_safe(shown):
    read = Reader(shown)
    assert set(read.tags) <= markdown._SHOWN_TAGS
    for tag, name, value in read.attributes:
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
        if tag in read.tags:
            assert 'rel="noopener noreferrer"' in shown
            assert 'target="_blank"' in shown


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="<>[]()!\"'&#;:/ \nabjsx`*_$|-=\\~javascript", max_size=80))
def test_whatever_is_written_is_safe(text):
    assert_safe(markdown.render(text))


def test_an_image_of_another_host_is_a_link_and_one_of_ours_is_shown():
    assert '<a href="https://elsewhere.example/a.gif"' in markdown.render("![cat](https://elsewhere.example/a.gif)")
    assert "<img" not in markdown.render("![cat](https://elsewhere.example/a.gif)")
    assert '<img src="/files/x/1.1/0" alt="cat"' in markdown.render("![cat](/files/x/1.1/0)")


def test_an_address_in_the_text_is_a_link_without_the_full_stop():
    shown = markdown.render("See https://a.example/b_c?d=1, and (https://b.example).")
    assert 'href="https://a.example/b_c?d=1"' in shown
    assert 'href="https://b.example"' in shown
    assert "<a" not in markdown.render("`https://a.example`")


@pytest.mark.parametrize(
    "formula",
    ["$a_1 * b_2 * c$", r"\(x_1 \_ y\)", r"\[a * b * c\]", "$$e^{i\\pi} * 1 * 2$$", "$$\na_1 * b_2\n- c *d*\n=\n$$", "\\[\n1. a\n\\]"],
)  # fmt: skip
def test_formulas_stay_as_they_are(formula):
    read = Reader(markdown.render(f"before\n\n{formula}\n\nafter *this*"))
    assert formula in "".join(read.text)
    assert read.tags.count("em") == 1


def test_prices_are_no_formula():
    assert "<em>maybe</em>" in markdown.render("It costs $5 and *maybe* $10.")


def test_code_is_coloured_and_keeps_every_character():
    code = "def f(x):\n\n    return '<&>'  # \u00e9\n"
    shown = markdown.render(f"```python\n{code}```")
    assert '<span class="k">def</span>' in shown
    read = Reader(shown)
    assert code in "".join(read.text)


def test_tables_align_by_class_and_never_by_style():
    shown = markdown.render("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert '<td class="center">1</td>' in shown
    assert "style" not in shown


def test_a_text_that_would_take_too_long_is_shown_as_it_is():
    text = "![" * 4_000
    assert markdown.render(text) == plaintext.plain(text)
    assert markdown.render("a" * (plaintext.LONGEST + 1)).startswith('<div class="plain-text">')


def test_the_cache_is_bounded():
    cache = rendering.Cache(100)
    for number in range(50):
        cache.put(f"text {number}", "x" * 10)
    assert cache.get("text 49") == "x" * 10
    assert cache.get("text 0") is None
    cache.put("long", "x" * 1000)
    assert cache.get("long") is None
    assert sum(len(text) + len(made) for text, made in cache._kept.items()) <= 100


LINES = st.sampled_from(
    [
        "", "", "word", "*em* `code`", "# head", "#", "---", "===", "- item", "  more", "1. one", "2. two", "10) ten", "* star", "> said",
        ">", "```", "```python", "~~~", "x = 1", "    indented", "| a | b |", "|---|---|", "| 1 | 2 |", "[a]: https://a.example",
        '"title', 'title"', "[a] and [b][a]", "$$", "\\[", "\\]", "-", "+", "\tTab", "<div>", "2", "a\\", "**bold", "over**", "![i](/files/a)",
    ]
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=14).map("\n".join) | st.text(alphabet="ab-+*#>`~|=[]:1.2) \n\r\t$", max_size=60)


def grown(stream, piece):
    """Add a piece as rendering.grow() does, but in this process."""
    stream.take(piece)
    kept = [len(stream.blocks)]
    while (text := stream.due()) is not None:
        kept.append(stream.show(markdown.rendered(text, growing=True)))
    return min(kept)


@settings(max_examples=250, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 7), min_size=1, max_size=20))
@example("1. a\n\n2. b\n\nend", [1])
@example("foo\n#bar\n\nend", [5, 1])
@example('[a]: https://a.example\n"tit\nle"\n\n[a]', [1])
@example("[a] first\n\nsecond\n\nthird\n\n[a]: https://a.example", [3])
@example("a\r\n\r\nb\r\n\r\nc", [3, 1])
def test_in_pieces_it_is_the_same_as_at_once(text, sizes):
    stream = rendering.Stream()
    shown: list[str] = []
    at, turn = 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        start = grown(stream, text[at : at + size])
        at, turn = at + size, turn + 1
        shown[start:] = stream.blocks[start:]
        assert shown == stream.blocks == markdown.blocks(text[:at])
        assert all(Reader(block).top == 1 for block in shown), shown


def test_settled_blocks_are_not_rendered_again():
    stream = rendering.Stream()
    for number in range(200):
        assert grown(stream, f"Paragraph {number} with *words*.\n\n") >= number - 2
    assert stream.settled >= 198


def test_a_short_piece_of_code_is_never_broken_and_a_long_one_may_be():
    assert '<code class="whole">--dry-run</code>' in markdown.render("with `--dry-run` on")
    long = "run <all> --since 2024-01-01 " + "x-" * 20
    shown = '<code>run &lt;all&gt; <span class="whole">--since</span> <span class="whole">2024-01-01</span> '
    assert shown + "x-" * 20 + "</code>" in markdown.render(f"`{long}`")
    assert '<code class="whole">&lt;b&gt;</code>' in markdown.render("`<b>`")


def test_lists_quotes_and_tables_begin_on_the_side_of_their_text():
    shown = markdown.render("- \u05d0\n\n1. b\n\n> c\n\n| d |\n|---|\n| e |")
    sided = [tag for tag, name, value in Reader(shown).attributes if (name, value) == ("dir", "auto")]
    assert sided == ["ul", "ol", "blockquote", "table"]


@pytest.mark.parametrize(
    "address",
    [
        "/files/../c/ID?m=1.4", "/files/../events", "/files/../page/export?format=html", "/files/../page/search?q=a", "/files/../?token=x",
        "/files/%2e%2e/c/ID?m=1.4", "/files/%2E./1.1/0", "/files/./1.1/0", "/files/..%2fc/1.1/0", "/files/a%2F..%2F..%2Fc/1.1/0",
        "/files/..\\c/1.1/0", "/files/a%5C..%5Cc/1.1/0", "/files/a/1.1/0?x=1", "/files/a/1.1/0#x", "/files/a%3Fx/1.1/0", "/files/a/1.1/../0",
        "/files//1.1/0", "/files/a/1.1/", "/files/a/1.1", "/files/a/x/0", "/files/a/1.1/0/../../../../events", "/files/a/1.1/0.0.0", "/files",
        "/files/a&#47;..&#47;..&#47;events", "/files/a/1.1/\u0661", "/events", "/page/export", "/page/search", "/?token=x", "/c/ID", "c/ID", "?m=1", "#x",
        "//elsewhere.example/files/a/1.1/0", "files/a/1.1/0", "/files/%00/1.1/0",
    ],
)  # fmt: skip
def test_an_address_in_the_app_is_that_of_a_file_or_none(address):
    for text in (
        f"![a]({address})",
        f"[a]({address})",
        f"![a](<{address}>)",
        f"[![a]({address})]({address})",
        f"![a]\n\n[a]: {address}",
    ):
        shown = Reader(markdown.render(text))
        assert not [value for _, name, value in shown.attributes if name in ("src", "href")], text


@pytest.mark.parametrize(
    "address", ["/files/x/1.1/0", "/files/cli%3Adefault/2.14/3.1", "/files/s%2F1/1.1/0", "/files/é/1.1/0"]
)
def test_a_file_of_a_conversation_is_shown_and_linked(address):
    assert '<img src="/files/' in markdown.render(f"![a]({address})")
    assert '<a href="/files/' in markdown.render(f"[a]({address})")
