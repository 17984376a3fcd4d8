"""Markdown as Telegram shows it: a plain text, and entities that say which part of it is bold, code or a link.

Entities can not be left open and need no escaping, so no answer is refused for what is in it. What is no Markdown, or
not yet because the rest has not come, stays as it was written. The text is never longer than the Markdown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recollect.channels.bot.splitting import blocks, utf16
from recollect.channels.bot.tables import laid_out

_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<tick>`+)(?P<code>[^\n]+?)(?<!`)(?P=tick)(?!`)"
    r"|!?\[(?P<label>[^\[\]\n]+)\]"
    r"\((?P<url>(?:https?|tg|mailto):[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)(?: +\"[^\"\n]*\")?\)"
    r"|(?P<bold>\*\*|__)(?=[^\s*_])(?P<strong>[^\n]+?)(?<=\S)(?P=bold)"
    r"|~~(?=\S)(?P<gone>[^\n~]+?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<star>[^\n*]+?)(?<=\S)\*(?![\w*])"
    r"|(?<![\w_])_(?=[^\s_])(?P<under>[^\n]+?)(?<=[^\s_])_(?![\w_])"
)
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*$")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(\[[ xX]\][ \t]+)?")
_QUOTE = re.compile(r" {0,3}> ?")
_DEEPEST = 8


class Entity(NamedTuple):
    """A part of a text that looks different: what it is, where it begins and how long it is, in UTF-16 code units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class _Page:
    """The text as it is written, and the entities in it."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.entities: list[Entity] = []
        self.at = 0

    def write(self, text: str) -> None:
        self.text.append(text)
        self.at += utf16(text)

    def mark(self, type: str, since: int, url: str | None = None, language: str | None = None) -> None:
        if self.at > since:
            self.entities.append(Entity(type, since, self.at - since, url, language))


def rendered(markdown: str) -> tuple[str, list[Entity]]:
    """Give the text and its entities, in the order they begin, the outer one first."""
    source = laid_out(markdown.strip("\n")).rstrip()
    page, at = _Page(), 0
    for block in blocks(source):
        _prose(page, source[at : block.start])
        at = len(source) if block.end is None else block.end
        _code(page, source[block.code : at], block.fence)
    _prose(page, source[at:])
    text = "".join(page.text)
    if not text.strip():
        return markdown.strip(), []
    return text, sorted(page.entities, key=lambda entity: (entity.offset, -entity.length))


def _code(page: _Page, inner: str, fence: str) -> None:
    """Write a code block without its fences."""
    marks = fence[: len(fence) - len(fence.lstrip(fence[0]))]
    lines = inner.split("\n")
    if lines and lines[-1].strip() and not lines[-1].strip().strip(fence[0]):
        lines.pop()
    language = fence[len(marks) :].strip().split(" ")[0] or None
    since = page.at
    page.write("\n".join(lines).rstrip("\n"))
    page.mark("pre", since, language=language)


def _prose(page: _Page, text: str) -> None:
    """Write lines that are no code; quoted lines that stand together are one quotation."""
    quoted: int | None = None
    lines = text.split("\n")
    for number, line in enumerate(lines):
        quote = _QUOTE.match(line)
        if quote is None and quoted is not None:
            page.mark("blockquote", quoted)
            quoted = None
        if number:
            page.write("\n")
        if quote is not None:
            quoted = page.at if quoted is None else quoted
        _line(page, line if quote is None else line[quote.end() :])
    if quoted is not None:
        page.mark("blockquote", quoted)


def _line(page: _Page, line: str) -> None:
    if _RULE.match(line):
        page.write("\u2014\u2014\u2014")
        return
    heading = _HEADING.match(line)
    if heading is not None:
        since = page.at
        _inline(page, heading[1])
        page.mark("bold", since)
        return
    bullet = _BULLET.match(line)
    if bullet is not None:
        done = (bullet[2] or "").strip().lower()
        page.write(bullet[1] + {"[x]": "\u2611 ", "[ ]": "\u2610 "}.get(done, "\u2022 "))
        line = line[bullet.end() :]
    _inline(page, line)


def _inline(page: _Page, text: str, depth: int = 0) -> None:
    at = 0
    for found in _INLINE.finditer(text):
        page.write(text[at : found.start()])
        at = found.end()
        _span(page, found, depth)
    page.write(text[at:])


def _span(page: _Page, found: re.Match[str], depth: int) -> None:
    since = page.at
    if found["escaped"] is not None:
        page.write(found["escaped"])
    elif found["code"] is not None:
        page.write(found["code"])
        page.mark("code", since)
    else:
        kind = next(name for name in ("label", "strong", "gone", "star", "under") if found[name] is not None)
        if depth < _DEEPEST:
            _inline(page, found[kind], depth + 1)
        else:
            page.write(found[kind])
        type = {"label": "text_link", "strong": "bold", "gone": "strikethrough"}.get(kind, "italic")
        page.mark(type, since, url=found["url"])
