"""The exported page: no message becomes a tag, an attribute, a script or a URL, and all content is there."""

from __future__ import annotations

import base64
import html.parser
import itertools
import re

import markdown_it
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_stores import STORE_STEPS, build_store, export_bytes, import_compaction

import recollect
from recollect.export import markdown_html, safe_markup
from recollect.storage.operation import Operation
from recollect_conformance import examples

ALLOWED_TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "ul", "li", "a",
    "span", "small", "p", "article", "header", "section", "dl", "dt", "dd", "div", "time", "details", "summary", "svg",
    "path", "pre", "code", "strong", "em", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td", "figure",
    "img", "footer", "del",
}  # fmt: skip
VOID_TAGS = {"meta", "img", "hr"}
ALLOWED_ATTRIBUTES = {
    "class", "id", "href", "rel", "dir", "lang", "charset", "http-equiv", "content", "name", "datetime", "open", "viewbox",
    "fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "role", "aria-label", "aria-hidden", "d", "src",
    "alt", "loading", "download", "start", "title",
}  # fmt: skip


class PageReader(html.parser.HTMLParser):
    """A parser that checks that a page is well formed, and collects its links, images, text and ids."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.images, self.words, self.ids = [], [], [], [], []
        self.counts = {}

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED_TAGS, tag
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            assert name in ALLOWED_ATTRIBUTES, name
            if name == "href":
                self.links.append(value)
            if name == "src":
                self.images.append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in VOID_TAGS and tag != "path":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        assert tag == "path"

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def parse_page(page):
    reader = PageReader()
    reader.feed(page.decode())
    reader.close()
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    for link in reader.links:
        assert re.match(r"(#|https?://|data:application/octet-stream;base64,[A-Za-z0-9+/=]*$)", link), link
        assert not link.startswith("#") or link[1:] in reader.ids
    for image in reader.images:
        assert re.fullmatch(r"data:image/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=]*", image)
    return reader


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        yield store


HOSTILE_TEXTS = [
    "<script>alert(1)</script>", "</code></pre><script>alert(1)</script>", '"><img src=x onerror=alert(1)>',
    "[x](javascript:alert(1))", '[x](https://a.test/"onmouseover=alert(1))', "https://a.test/<script>", "![x](https://a.test/x.png)",
    "`</code><script>`", '```"><script>\n</pre><script>\n', "</style><script>", "<!-- ", "]]>", "&lt;script&gt;&#60;", "</title><script>",
    "| a | <b> |\n|---|---|\n| <script> | `</td>` |", "# <h1>", "- <li onclick=x>", "> </blockquote>", "**<b>**", "\0\x1b[31m\ud800",
    "\u202egnp.exe", "[a](https://a.test) [b](https://b.test/(x))", "https://a.test/?a=1&b='2'", "*a **b* c**", "``` `` ` ```x",
    "1. a\n2. b\n   c\n\n9999999999. x", "~~~py\nx\n~~~~\nafter",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_stays_text_in_every_field(store, text):
    clean = text.replace("\0", "").encode("utf-8", "replace").decode()
    session = store.session("s", title=clean, model=clean, system_prompt=clean, task=clean)
    session.append(examples.user(text))
    session.append(examples.assistant(text))
    session.append({"role": "assistant", "parts": [
        {"kind": "reasoning", "text": text}, {"kind": "data", "data": {text: text}},
        {"kind": "tool_call", "call_id": "c", "tool": text, "arguments": {text: text}},
        {"kind": "attachment", "name": text, "mime_type": text, "data": "aGk=", "url": text},
        {"kind": "attachment", "name": text, "mime_type": "image/png", "data": text},
        {"kind": "attachment", "name": text, "url": "data:image/png;base64," + text},
    ], "model": text, "error": {"m": text}})  # fmt: skip
    session.tools.record_result("c", text, status="error", error_message=text + "!")
    session.append({"role": "tool", "parts": [{"kind": "tool_result", "call_id": "z", "tool": text, "text": text}]})
    store._run(Operation(import_compaction, "s", clean, 1))
    reader = parse_page(export_bytes(store, ["s"], "html"))
    visible_text = "".join(reader.words)
    assert not any(image.endswith(text) for image in reader.images)
    if "<script>" in text and "|" not in text:
        assert visible_text.count("<script>") >= 8
    markdown = export_bytes(store, ["s"], "md").decode()
    assert set(tags(markdown)) <= EXPECTED_TAGS
    assert headings(markdown) == ["User", "Assistant", "Assistant", "Tool"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", markdown)


MARKDOWN = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
EXPECTED_TAGS = {
    "<sub>", "</sub>", "<details><summary>System prompt</summary>\n", "<details><summary>Reasoning</summary>\n",
    "<details><summary>Data</summary>\n", "</details>\n",
}  # fmt: skip


def tags(page: str) -> list[str]:
    """Return the parts that a Markdown parser treats as HTML."""
    tokens = MARKDOWN.parse(page)
    inner = [child for token in tokens for child in token.children or ()]
    return [token.content for token in (*tokens, *inner) if token.type in ("html_block", "html_inline")]


def headings(page: str) -> list[str]:
    """Return the headings of messages, as a Markdown parser finds them."""
    tokens = MARKDOWN.parse(page)
    return [
        after.content
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open" and token.tag == "h2" and after.content in ("User", "Assistant", "Tool")
    ]


ESCAPE_ATTEMPTS = [
    "~~~\r~~~\r<script>alert(1)</script>", "``` `x\n<script>alert(1)</script>", "\\`<img src=x onerror=alert(1)>\\`",
    "` <img src=x onerror=alert(1)> ``", "`x\n`<img src=x onerror=alert(1)>`", "- a\n  ```\n<script>", "- ```\n  ```\n  <script>",
    "| a | b | c |\n|---|---|---|\n| ` | <img src=x onerror=alert(1)> | ` |", "```\n\t```\n", "``` | <b>\n|---|---|\n", "\t```\n```\n<b>",
    "a\r\r<script>", "x`\n\n<script>alert(1)</script>\n\n`", "  ```\n a", "> ```\n ~~~\n<b>",
]  # fmt: skip


@pytest.mark.parametrize("text", ESCAPE_ATTEMPTS)
def test_no_field_breaks_the_structure_of_the_markdown(store, text):
    session = store.session("s", title=text, task=text, model=text, system_prompt=text)
    for message in (examples.user(text), examples.assistant(text)):
        session.append(message)
    session.append({"role": "assistant", "parts": [
        {"kind": "tool_call", "call_id": "c", "tool": text, "arguments": {text: text}}, {"kind": "reasoning", "text": text},
    ]})  # fmt: skip
    session.append(examples.user("the end"))
    page = export_bytes(store, ["s"], "md").decode()
    assert set(tags(page)) <= EXPECTED_TAGS
    assert headings(page) == ["User", "Assistant", "Assistant", "User"]


MARKDOWN_TOKENS = [
    "`", "``", "```", "~~~", "````", "\n", "\n\n", "\r", " ", "   ", "    ", "\t", "- ", "1. ", "> ", "<b>", "<script>", "<!-- ", "|",
    "|---|---|\n", "\\", "a", "# ", "[", "](", "```py\n", "<img src=x onerror=y>", "<http://x>", "\\`",
]  # fmt: skip


@given(st.lists(st.sampled_from(MARKDOWN_TOKENS), max_size=25).map("".join))
@settings(max_examples=500, deadline=None)
def test_no_text_becomes_a_tag_in_markdown(text):
    markdown = safe_markup.sanitize_markdown(text)
    for page in (markdown, "\n".join(f"> {line}" for line in markdown.split("\n"))):
        assert tags(page) == []
        assert headings(f"{page}\n\n## Assistant\n") == ["Assistant"]


@given(
    st.text(st.sampled_from("<>&\"'`*_[]()#-|>~ \n\tab1.:/\\!") | st.characters(exclude_categories=()), max_size=200)
)
@settings(max_examples=200, deadline=None)
def test_rendered_prose_has_no_active_elements(text):
    reader = PageReader()
    reader.feed("<main>" + markdown_html.markdown_to_html(text) + "</main>")
    reader.close()
    assert reader.open == []
    assert not set(reader.counts) & {"script", "img", "style", "svg", "details"}
    assert all(link.startswith(("http://", "https://")) for link in reader.links)


@given(STORE_STEPS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_page_of_every_store_is_well_formed(steps):
    with recollect.open(":memory:") as store:
        build_store(store, steps)
        parse_page(export_bytes(store, None, "html", deleted=True))
        parse_page(export_bytes(store, ["cli:first"], "html"))


@pytest.mark.parametrize("length", [20_000])
@pytest.mark.parametrize(
    "unit", ["*", "**", "`", "[", "](", "https://", "# ", "- ", "|", "> ", "<", "&", "** a", "`` ` ", "[a]("]
)
def test_a_long_hostile_text_takes_linear_time(unit, length):
    """Quadratic time would take minutes."""
    assert markdown_html.markdown_to_html(unit * length)


class TestPageContents:
    def page(self, store, **options):
        return export_bytes(store, ["s"], "html", **options).decode()

    def test_the_page_has_no_scripts_and_no_external_resources(self, store):
        store.session("s").append(examples.user("see https://a.test/x and ![i](https://a.test/i.png)"))
        page = self.page(store)
        assert "<script" not in page
        assert "Content-Security-Policy" in page
        assert "default-src 'none'" in page
        style = page.partition("<style>")[2].partition("</style>")[0]
        assert "url(" not in style
        assert "@import" not in style
        assert "prefers-color-scheme: dark" in style
        assert "@media print" in style

    def test_tool_calls_are_cards_and_failed_ones_are_open(self, store):
        session = store.session("s")
        session.append(examples.tool_call_message("c1", "c2"))
        session.tools.record_result("c1", "fine", latency_ms=1500)
        session.tools.record_result("c2", "bad", status="error", error_message="no such file")
        session.append(examples.tool_call_message("c3"))
        page = self.page(store)
        assert page.count('<details class="tool"') == 3
        assert page.count('<details class="tool" open>') == 1
        assert "1.5 s" in page
        assert "no such file" in page
        assert page.count("fine") == 1
        assert page.count('aria-label="pending"') == 1

    def test_images_of_safe_types_are_shown_and_others_are_downloads(self, store):
        data = base64.b64encode(b"x" * 3000).decode()
        session = store.session("s")
        session.append([
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/webp;base64," + data}}]},
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": data}}]},
            {"role": "user", "content": [{"type": "document", "title": "a.html", "source": {"type": "base64", "media_type": "text/html", "data": data}}]},
            {"role": "user", "content": [{"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64," + data}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.test/i.png"}}]},
        ])  # fmt: skip
        reader = parse_page(self.page(store).encode())
        assert [image.partition(";")[0] for image in reader.images] == ["data:image/png", "data:image/webp"]
        assert sum(link.startswith("data:application/octet-stream") for link in reader.links) == 3
        assert "https://a.test/i.png" in reader.links

    def test_the_active_path_comes_before_other_branches(self, store):
        session = store.session("s")
        session.append([examples.user(f"word {n}") for n in range(1, 5)])
        session.rewind(2)
        session.append(examples.user("another way"))
        for format in ("html", "md"):
            page = export_bytes(store, ["s"], format).decode()
            positions = [
                page.index(text) for text in ("word 1", "word 2", "another way", "Branch 1", "word 3", "word 4")
            ]
            assert positions == sorted(positions)
            assert page.count("word 1") == page.count("word 4") == 1

    def test_deleted_messages_are_optional(self, store):
        session = store.session("s")
        session.append(examples.numbered_messages(3))
        session.delete_messages([2])
        assert "m2" not in self.page(store)
        assert "m2" in self.page(store, deleted=True)
        assert b"m2" not in export_bytes(store, deleted=False)
        assert b"m2" in export_bytes(store)

    def test_compactions_are_marked_and_secrets_masked(self, store):
        session = store.session("s", title="password=hunter22")
        session.append(examples.numbered_messages(3))
        store._run(Operation(import_compaction, "s", "The summary.", 2))
        page = self.page(store, redact=True)
        assert page.index("m2") < page.index("The summary.") < page.index("m3")
        assert "hunter22" not in page
        assert "masked" in page

    def test_several_sessions_begin_with_a_list(self, store):
        for name in ("s", "t"):
            store.session(name, title=f"About {name}").append(examples.user("x"))
        page = export_bytes(store, None, "html").decode()
        assert page.count('<article class="session"') == 2
        assert page.count('href="#s') == 2
        assert "<title>Conversations</title>" in page
        assert "<title>About s</title>" in self.page(store)

    def test_heads_and_lists_count_messages_without_tool_steps(self, store):
        steps = [examples.tool_call_message("one"), examples.tool_result_message("one")]
        store.session("s").append([*examples.numbered_messages(2), examples.user("q"), *steps, examples.assistant("a")])
        store.session("t").append(examples.user("x"))
        page = export_bytes(store, None, "html").decode()
        assert "<small>4 messages ·" in page
        assert "<small>1 message ·" in page
        assert re.search(r"<dt>Messages</dt><dd[^>]*>4</dd>", page)
        assert "- Messages: 4\n" in export_bytes(store, ["s"], "markdown").decode()


class TestMarkdown:
    def test_open_code_is_closed_and_tags_are_escaped(self, store):
        session = store.session("s", title="# A *title*")
        session.append(examples.assistant("look:\n```py\n<b>\nnever closed"))
        session.append(examples.user("<details> and `<b>`\n```\nopen"))
        page = export_bytes(store, ["s"], "md").decode()
        assert "never closed\n```\n" in page
        assert "> &lt;details> and `<b>`" in page
        assert "# \\# A \\*title\\*" in page

    def test_code_is_unchanged(self, store):
        """At the margin, in a list, and inline: where every Markdown parser reads it as code."""
        text = "Use `List<T>` or ``a`<b>``:\n\n1. first\n   ```html\n   <div>\n   ```\n2. then\n\n~~~\n<p>\n~~~\n\n```c\n#include <a.h>\n```"
        store.session("s").append(examples.assistant(text))
        assert text in export_bytes(store, ["s"], "md").decode()

    def test_a_code_fence_is_longer_than_fences_in_its_content(self, store):
        session = store.session("s")
        session.append(examples.tool_call_message("c"))
        session.tools.record_result("c", "````\nx")
        assert "`````text\n````\nx\n`````" in export_bytes(store, ["s"], "md").decode()
