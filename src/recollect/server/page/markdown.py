"""Markdown as HTML that can not run: markdown-it-py without HTML, Pygments for code, and nh3 has the last word.

A text is rendered block by block. The server never calls this on its event loop: a worker process does (worker.py),
because `re` holds the GIL and neither the parser nor a lexer of Pygments promises linear time.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from recollect.server.page.code import CLASSES, highlighted
from recollect.server.page.plaintext import fits, normalized, plain
from recollect.server.page.worker_protocol import Rendered

_SIDED = ("blockquote_open", "bullet_list_open", "ordered_list_open", "table_open")
_WHOLE = 24
"""Characters of code that stay on one line: they fit on a phone."""

_LONG = 1_000
"""Characters of code in a line up to which its options are looked for."""

_WITH_HYPHEN = re.compile(rf"(?<!\S)((?=\S*-)\S{{1,{_WHOLE}}})(?!\S)")

_LINK = re.compile(r"\A(?:https?://|mailto:)", re.IGNORECASE)
_FILE = re.compile(r"/files/(?P<session>[^/?#\\]+)/\d{1,19}\.\d{1,19}/\d{1,5}(?:\.\d{1,5})?", re.ASCII)
_STEPS = ("", ".", "..")
_LEADING = re.compile(r"[?#\\]")  # lead elsewhere, should anyone decode them once more
_BARE = re.compile(r"https?://[^\s<>\"'`\\^{|}]*[^\s<>\"'`\\^{|}.,;:!?)\]*_~]")
# No formula holds another opening of its kind, so that a search ends at the next one: many that are never closed cost
# no more than the text is long.
_MATH = re.compile(
    r"\$\$(?=\S)[^$\n]+?\$\$|\$(?![\s$])(?:[^$\n\\]|\\.)*?(?<![\s\\])\$(?![\d$])"
    r"|\\\((?:[^\\\n]|\\[^()\n])+\\\)|\\\[(?:[^\\\n]|\\[^\[\]\n])+\\\]"
)
_SHOWN_TAGS = {
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img",
    "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


def render(text: str) -> str:
    """Render a finished text."""
    return "".join(blocks(text))


def blocks(text: str) -> list[str]:
    """Render a text as a list of its blocks, each one element."""
    return rendered(normalized(text)).blocks


def rendered(text: str, *, growing: bool = False) -> Rendered:
    """Render a normalized text. For one that is growing, also find the blocks that stay as they are."""
    if not fits(text):
        return Rendered([plain(text)])
    parser = _parser()
    environment: dict[str, Any] = {}
    starts: list[int] = []
    made: list[str] = []
    for group in _groups(parser.parse(text, environment)):
        starts.append(_start(group))
        made.append(_cleaner().clean(parser.renderer.render(group, parser.options, environment)))
    references = bool(environment.get("references"))
    settled = _settled(text, starts) if growing and not references else (0, 0)
    return Rendered(made, references, *settled)


def is_file(address: str) -> bool:
    """Whether an address is that of a file in a conversation, and of nothing else in this app.

    A browser resolves `.` and `..`, also percent-encoded, and takes a backslash for a slash, so that an address with
    one of them leads elsewhere: to a page, an export or the event stream.
    """
    found = _FILE.fullmatch(address)
    if found is None:
        return False
    session = unquote(found["session"])
    return (
        session.isprintable()
        and not any(step in _STEPS for step in session.split("/"))
        and not _LEADING.search(session)
    )


def _settled(text: str, starts: list[int]) -> tuple[int, int]:
    """Find the last block that begins after an empty line, by complete lines alone: all before it stays.

    The last line may yet become something else, and what stands right above a block may yet be a part of it. Return
    the number of blocks before it, and of their characters.
    """
    whole = text[: text.rfind("\n") + 1]
    if not whole or len(starts) < 2:  # noqa: PLR2004
        return 0, 0
    lines = whole.split("\n")
    if whole != text:
        starts = [_start(group) for group in _groups(_parser().parse(whole, {}))]
    for index in range(len(starts) - 1, 0, -1):
        if starts[index] and not lines[starts[index] - 1].strip():
            return index, sum(len(line) + 1 for line in lines[: starts[index]])
    return 0, 0


def _start(group: list[Token]) -> int:
    return (group[0].map or [0])[0]


def _groups(tokens: list[Token]) -> list[list[Token]]:
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: bool(_LINK.match(url)) or is_file(url)
    parser.block.ruler.before("fence", "math", _math_block, {"alt": ["paragraph", "reference", "blockquote"]})
    parser.inline.ruler.before("escape", "math", _math)
    parser.core.ruler.push("shown", _shown)
    parser.add_render_rule("code_inline", _code)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("math_block", _render_math)
    return parser


def _math(state: StateInline, silent: bool) -> bool:
    """Leave a formula as it is written: no emphasis, no escapes in it."""
    if state.src[state.pos] not in "$\\":
        return False
    match = _MATH.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("text", "", 0).content = match[0]
    state.pos = match.end()
    return True


def _math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Leave a formula that stands alone as it is written. There is no empty line in one."""
    if state.is_code_block(start):
        return False
    opening = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]].rstrip()
    if opening not in ("$$", "\\["):
        return False
    closing = "$$" if opening == "$$" else "\\]"
    for line in range(start + 1, end):
        words = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
        if not words or state.sCount[line] < state.blkIndent:
            return False
        if words == closing:
            if not silent:
                state.line = line + 1
                token = state.push("math_block", "", 0)
                token.content = state.getLines(start, line + 1, state.blkIndent, False).rstrip("\n")  # noqa: FBT003
                token.map = [start, line + 1]
            return True
    return False


def _shown(state: StateCore) -> None:
    """Make every link open safely, an image of another host a link, an address in the text a link, and no style.

    Marks of lists, quotes and tables stand on the side where their text begins.
    """
    for token in state.tokens:
        if token.type in _SIDED:
            token.attrSet("dir", "auto")
        style = token.attrGet("style")
        if style:
            token.attrs.pop("style")
            token.attrSet("class", str(style).rpartition(":")[2])
        if token.children:
            token.children = _inline(token.children)


def _inline(children: list[Token]) -> list[Token]:
    made: list[Token] = []
    inside = 0
    for token in children:
        if token.type == "link_open":
            inside += 1
            token.attrSet("target", "_blank")
        elif token.type == "link_close":
            inside -= 1
        if token.type == "image" and not is_file(str(token.attrGet("src") or "")):
            address = str(token.attrGet("src") or "")
            made += [_text(token.content or address)] if inside else _linked(address, token.content or address)
        elif token.type == "image":
            token.attrSet("loading", "lazy")
            made.append(token)
        elif token.type == "text" and not inside and "://" in token.content:
            made += _with_links(token.content)
        else:
            made.append(token)
    return made


def _with_links(text: str) -> list[Token]:
    made: list[Token] = []
    end = 0
    for match in _BARE.finditer(text):
        made += [_text(text[end : match.start()]), *_linked(match[0], match[0])]
        end = match.end()
    return [*made, _text(text[end:])]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _linked(address: str, shown: str) -> list[Token]:
    opening = Token("link_open", "a", 1, attrs={"href": address, "target": "_blank"})
    return [opening, _text(shown), Token("link_close", "a", -1)]


def _code(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Show a piece of code in a line. A short one is never broken in two, nor is an option in a long one."""
    code = tokens[index].content
    if len(code) <= _WHOLE:
        return f'<code class="whole">{html.escape(code)}</code>'
    pieces = _WITH_HYPHEN.split(code) if len(code) <= _LONG else [code]
    options = (f'<span class="whole">{html.escape(piece)}</span>' for piece in pieces[1::2])
    return f"<code>{html.escape(pieces[0])}{''.join(map(_followed, options, pieces[2::2]))}</code>"


def _followed(option: str, rest: str) -> str:
    return option + html.escape(rest)


def _fence(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    language = token.info.strip().split(maxsplit=1)[0][:40] if token.info.strip() else ""
    label = f"<span>{html.escape(language)}</span>"
    copy = '<button type="button" class="button plain compact" data-do="copy-code">Copy</button>'
    code = highlighted(token.content, language)
    return f'<div class="code"><div class="code-head">{label}{copy}</div><pre><code>{code}</code></pre></div>\n'


def _render_math(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    return f'<div class="plain-text">{html.escape(tokens[index].content)}</div>\n'


@functools.cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=_SHOWN_TAGS,
        attributes={"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}},
        tag_attribute_values={
            "a": {"target": {"_blank"}},
            "button": {"type": {"button"}, "data-do": {"copy-code"}},
            "img": {"loading": {"lazy"}},
            **{tag: {"dir": {"auto"}} for tag in ("blockquote", "ol", "table", "ul")},
        },
        allowed_classes={
            "code": {"whole"},
            "div": {"code", "code-head", "plain-text"},
            "button": {"button", "plain", "compact"},
            "span": {*CLASSES, "whole"},
            "td": {"left", "center", "right"},
            "th": {"left", "center", "right"},
        },
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )
