"""Markdown as safe HTML in the web app: the parser of exports, Pygments for code, nh3 as the last step.

A text is rendered block by block. The server never calls this on its event loop: a worker process does
(markdown_worker.py), because `re` holds the GIL and neither the parser nor a Pygments lexer guarantees linear time.
conversation.css assigns colors to the classes of Pygments.
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
from markdown_it.token import Token
from pygments.token import STANDARD_TYPES

from recollect.export.markdown_html import LinkRules, make_parser
from recollect.export.plaintext import fits_budget, normalize_text, render_plain
from recollect.server.page.markdown_protocol import RenderedText

HIGHLIGHT_CLASSES = frozenset(name for name in STANDARD_TYPES.values() if name)
MAX_HIGHLIGHTED_LENGTH = 60_000
"""Maximum length of highlighted code in characters; longer code is shown without colors, to bound the time."""

_MAX_LEXERS = 64  # cached lexers: more languages than a conversation uses


def highlight_code(code: str, language: str) -> str:
    """Return code as HTML, highlighted if the language is known."""
    lexer = _lexer(language.lower()) if language and len(code) <= MAX_HIGHLIGHTED_LENGTH else None
    if lexer is None:
        return html.escape(code)
    pieces: list[str] = []
    for kind, text in lexer.get_tokens(code):
        name = _token_class(kind)
        escaped = html.escape(text)
        pieces.append(f'<span class="{name}">{escaped}</span>' if name and text.strip() else escaped)
    escaped = "".join(pieces)
    return escaped if code.endswith("\n") else escaped.removesuffix("\n")


@functools.lru_cache(maxsize=_MAX_LEXERS)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  most answers have no code
    from pygments.util import ClassNotFound  # noqa: PLC0415

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except (ClassNotFound, ImportError, ValueError):
        return None


@functools.cache
def _token_class(kind: Any) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent
    return STANDARD_TYPES[kind]


_UNBROKEN_LENGTH = 24
"""Characters of inline code that are not broken: they fit on a phone."""

_MAX_OPTION_SCAN = 1_000
"""Maximum length of inline code in which options are searched, to bound the time."""

_WITH_HYPHEN = re.compile(rf"(?<!\S)((?=\S*-)\S{{1,{_UNBROKEN_LENGTH}}})(?!\S)")

_LINK_SCHEME = re.compile(r"\A(?:https?://|mailto:)", re.IGNORECASE)
_FILE_PATH = re.compile(r"/files/(?P<session>[^/?#\\]+)/\d{1,19}\.\d{1,19}/\d{1,5}(?:\.\d{1,5})?", re.ASCII)
_DOT_SEGMENTS = ("", ".", "..")
_REDIRECTING = re.compile(r"[?#\\]")  # would lead elsewhere if decoded once more
_ALLOWED_TAGS = {
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img",
    "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


def render_blocks(text: str) -> list[str]:
    """Return a text as a list of HTML blocks, each one element."""
    return render_normalized(normalize_text(text)).blocks


def render_normalized(text: str, *, growing: bool = False) -> RenderedText:
    """Render a normalized text. If it is growing, also find the blocks that no longer change."""
    if not fits_budget(text):
        return RenderedText([render_plain(text)])
    parser = _parser()
    environment: dict[str, Any] = {}
    starts: list[int] = []
    blocks: list[str] = []
    for group in _group_tokens(parser.parse(text, environment)):
        starts.append(_start_line(group))
        blocks.append(_cleaner().clean(parser.renderer.render(group, parser.options, environment)))
    references = bool(environment.get("references"))
    stable = _find_settled(text, starts) if growing and not references else (0, 0)
    return RenderedText(blocks, references, *stable)


def is_file_url(address: str) -> bool:
    """Return whether a URL points to a file of a conversation, and to nothing else in this app.

    A browser resolves `.` and `..`, also percent-encoded, and treats a backslash as a slash, so a URL with one of them
    could lead to a page, an export or the event stream.
    """
    match = _FILE_PATH.fullmatch(address)
    if match is None:
        return False
    session = unquote(match["session"])
    return (
        session.isprintable()
        and not any(step in _DOT_SEGMENTS for step in session.split("/"))
        and not _REDIRECTING.search(session)
    )


def _find_settled(text: str, starts: list[int]) -> tuple[int, int]:
    """Find the last block that begins after an empty line; the blocks before it no longer change.

    Only complete lines count: the last line may still change, and a block may still merge with the lines directly above
    it. Return the number of stable blocks and of their characters.
    """
    whole = text[: text.rfind("\n") + 1]
    if not whole or len(starts) < 2:  # noqa: PLR2004
        return 0, 0
    lines = whole.split("\n")
    if whole != text:
        starts = [_start_line(group) for group in _group_tokens(_parser().parse(whole, {}))]
    for index in range(len(starts) - 1, 0, -1):
        if starts[index] and not lines[starts[index] - 1].strip():
            return index, sum(len(line) + 1 for line in lines[: starts[index]])
    return 0, 0


def _start_line(group: list[Token]) -> int:
    return (group[0].map or [0])[0]


def _group_tokens(tokens: list[Token]) -> list[list[Token]]:
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def _is_allowed_link(url: str) -> bool:
    return bool(_LINK_SCHEME.match(url)) or is_file_url(url)


_LINK_RULES = LinkRules(_is_allowed_link, is_file_url, {"target": "_blank"})


@functools.cache
def _parser() -> MarkdownIt:
    parser = make_parser(_LINK_RULES)
    parser.add_render_rule("code_inline", _render_inline_code)
    parser.add_render_rule("fence", _render_fence)
    parser.add_render_rule("code_block", _render_fence)
    parser.add_render_rule("math_block", _render_math)
    return parser


def _render_inline_code(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Render inline code. Short code, and options in longer code, are not broken across lines."""
    code = tokens[index].content
    if len(code) <= _UNBROKEN_LENGTH:
        return f'<code class="whole">{html.escape(code)}</code>'
    pieces = _WITH_HYPHEN.split(code) if len(code) <= _MAX_OPTION_SCAN else [code]
    options = (f'<span class="whole">{html.escape(piece)}</span>' for piece in pieces[1::2])
    return f"<code>{html.escape(pieces[0])}{''.join(map(_join_option, options, pieces[2::2]))}</code>"


def _join_option(option: str, rest: str) -> str:
    return option + html.escape(rest)


def _render_fence(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    language = token.info.strip().split(maxsplit=1)[0][:40] if token.info.strip() else ""
    label = f"<span>{html.escape(language)}</span>"
    copy = '<button type="button" class="button plain compact" data-do="copy-code">Copy</button>'
    code = highlight_code(token.content, language)
    return f'<div class="code"><div class="code-head">{label}{copy}</div><pre><code>{code}</code></pre></div>\n'


def _render_math(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    return f'<div class="plain-text">{html.escape(tokens[index].content)}</div>\n'


@functools.cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=_ALLOWED_TAGS,
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
            "span": {*HIGHLIGHT_CLASSES, "whole"},
            "td": {"left", "center", "right"},
            "th": {"left", "center", "right"},
        },
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )
