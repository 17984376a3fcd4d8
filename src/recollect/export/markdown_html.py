"""Markdown as HTML: the parser that the web app and exported pages share, and the renderer of exported pages.

markdown-it-py parses CommonMark with tables and strikethrough, and escapes HTML. On top of that: formulas are plain
text, bare URLs become links, and an image of another host becomes a link with its text, because a viewer that loaded
the image would reveal its reader to that host.

The parser does not guarantee linear time. The caller passes texts within the budget of plaintext.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from recollect.export.plaintext import fits_budget, normalize_text
from recollect.export.safe_markup import REPLACED_CHARACTERS, code_block, escape_html

_BARE_URL = re.compile(r"https?://[^\s<>\"'`\\^{|}]*[^\s<>\"'`\\^{|}.,;:!?)\]*_~]")
# A formula cannot contain another opening of its kind, so a search ends at the next one: many unclosed formulas cost
# linear time.
_MATH = re.compile(
    r"\$\$(?=\S)[^$\n]+?\$\$|\$(?![\s$])(?:[^$\n\\]|\\.)*?(?<![\s\\])\$(?![\d$])"
    r"|\\\((?:[^\\\n]|\\[^()\n])+\\\)|\\\[(?:[^\\\n]|\\[^\[\]\n])+\\\]"
)
_WEB_URL = re.compile(r"\Ahttps?://", re.IGNORECASE)
_DIRECTIONAL_TOKENS = frozenset({"blockquote_open", "bullet_list_open", "ordered_list_open", "table_open"})
_HEADING_SHIFT, _LOWEST_HEADING = 2, 6  # an exported page uses h1 and h2 itself; HTML has no h7


class LinkRules(NamedTuple):
    """The links and images that a document may contain."""

    is_allowed: Callable[[str], bool]
    """Whether a URL may be a link."""
    is_own_image: Callable[[str], bool]
    """Whether an image may be shown; any other becomes a link."""
    attributes: Mapping[str, str]
    """Attributes of every link."""


def make_parser(rules: LinkRules, directional_tokens: Collection[str] = _DIRECTIONAL_TOKENS) -> MarkdownIt:
    """Return a parser. The tokens of the given types get `dir="auto"`: they follow the direction of their text."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: rules.is_allowed(url)  # noqa: PLW0108  the attribute takes the argument by name
    parser.block.ruler.before("fence", "math", _math_block, {"alt": ["paragraph", "reference", "blockquote"]})
    parser.inline.ruler.before("escape", "math", _inline_math)
    parser.core.ruler.push("adjust", functools.partial(_adjust_tokens, rules=rules, directional=directional_tokens))
    return parser


def _inline_math(state: StateInline, silent: bool) -> bool:
    """Parse a formula as plain text, without emphasis and escapes."""
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
    """Parse a formula block as plain text. It contains no empty line."""
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


def _adjust_tokens(state: StateCore, rules: LinkRules, directional: Collection[str]) -> None:
    """Set the attributes of links, turn foreign images and bare URLs into links, and replace styles by classes."""
    for token in state.tokens:
        if token.type in directional:
            token.attrSet("dir", "auto")
        style = token.attrGet("style")
        if style:
            token.attrs.pop("style")
            token.attrSet("class", str(style).rpartition(":")[2])
        if token.children:
            token.children = _adjust_inline(token.children, rules)


def _adjust_inline(children: list[Token], rules: LinkRules) -> list[Token]:
    tokens: list[Token] = []
    link_depth = 0
    for token in children:
        if token.type == "link_open":
            link_depth += 1
            token.attrs.update(rules.attributes)
        elif token.type == "link_close":
            link_depth -= 1
        if token.type == "image" and not rules.is_own_image(str(token.attrGet("src") or "")):
            address = str(token.attrGet("src") or "")
            label = token.content or address
            tokens += [_text_token(label)] if link_depth else _link_tokens(address, label, rules)
        elif token.type == "image":
            token.attrSet("loading", "lazy")
            tokens.append(token)
        elif token.type == "text" and not link_depth and "://" in token.content:
            tokens += _link_bare_urls(token.content, rules)
        else:
            tokens.append(token)
    return tokens


def _link_bare_urls(text: str, rules: LinkRules) -> list[Token]:
    tokens: list[Token] = []
    end = 0
    for match in _BARE_URL.finditer(text):
        tokens += [_text_token(text[end : match.start()]), *_link_tokens(match[0], match[0], rules)]
        end = match.end()
    return [*tokens, _text_token(text[end:])]


def _text_token(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _link_tokens(address: str, label: str, rules: LinkRules) -> list[Token]:
    opening = Token("link_open", "a", 1, attrs={"href": address, **rules.attributes})
    return [opening, _text_token(label), Token("link_close", "a", -1)]


# --- Exported pages -----------------------------------------------------------------------------------------------


def markdown_to_html(text: str) -> str:
    """Return a Markdown text as HTML for an exported page; as plain text if it exceeds the parser's budget.

    Links lead to the web only. Control characters and marks that change the text direction become U+FFFD, also if they
    were written as character references.
    """
    text = normalize_text(text)
    if not fits_budget(text):
        return _plain_paragraph(text)
    return _page_parser().render(text).translate(REPLACED_CHARACTERS).rstrip("\n")


@functools.cache
def _page_parser() -> MarkdownIt:
    rules = LinkRules(
        is_allowed=lambda url: bool(_WEB_URL.match(url)),
        is_own_image=lambda url: False,  # noqa: ARG005
        attributes={"rel": "noopener noreferrer nofollow"},
    )
    parser = make_parser(rules, _DIRECTIONAL_TOKENS | {"paragraph_open", "heading_open", "list_item_open"})
    parser.core.ruler.push("page", _adjust_for_page)
    parser.add_render_rule("fence", _render_code)
    parser.add_render_rule("code_block", _render_code)
    parser.add_render_rule("math_block", _render_math)
    parser.add_render_rule("table_open", _open_table)
    parser.add_render_rule("table_close", _close_table)
    return parser


def _adjust_for_page(state: StateCore) -> None:
    """Lower the headings, and show the paragraphs of tight lists, whose line breaks the style preserves."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + _HEADING_SHIFT, _LOWEST_HEADING)}"
        elif token.hidden:
            token.hidden = False
            if token.nesting == 1:
                token.attrSet("class", "tight")


def _render_code(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    words = token.info.split(maxsplit=1)
    return code_block(token.content.removesuffix("\n"), words[0][:30] if words else "") + "\n"


def _render_math(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    return _plain_paragraph(tokens[index].content) + "\n"


def _open_table(*_: Any) -> str:
    return '<div class="wide"><table dir="auto">\n'


def _close_table(*_: Any) -> str:
    return "</table></div>\n"


def _plain_paragraph(text: str) -> str:
    return f'<p dir="auto">{escape_html(text)}</p>'
