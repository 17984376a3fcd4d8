"""Markdown as Telegram entities: a plain text, and ranges of it that are bold, code or a link.

Entities cannot be left open and need no escaping, so Telegram rejects no answer for its content. Text that is not
Markdown, or not yet because the rest has not arrived, is left unchanged. The text is never longer than the Markdown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recollect.channels.bot.chat_markdown import find_code_blocks, render_tables, utf16_length

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
_MAX_NESTING = 8  # levels of emphasis inside emphasis: bounds the recursion on hostile text


class TextEntity(NamedTuple):
    """A formatted range of a text: its type, and its offset and length in UTF-16 code units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class _EntityWriter:
    """Collects text and the entities in it."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.entities: list[TextEntity] = []
        self.at = 0

    def write(self, text: str) -> None:
        self.text.append(text)
        self.at += utf16_length(text)

    def mark(self, type: str, since: int, url: str | None = None, language: str | None = None) -> None:
        if self.at > since:
            self.entities.append(TextEntity(type, since, self.at - since, url, language))


def render_entities(markdown: str) -> tuple[str, list[TextEntity]]:
    """Return the plain text and its entities, ordered by offset, outer ones first."""
    source = render_tables(markdown.strip("\n")).rstrip()
    writer, position = _EntityWriter(), 0
    for block in find_code_blocks(source):
        _write_prose(writer, source[position : block.start])
        position = len(source) if block.end is None else block.end
        _write_code(writer, source[block.code : position], block.fence)
    _write_prose(writer, source[position:])
    text = "".join(writer.text)
    if not text.strip():
        return markdown.strip(), []
    return text, sorted(writer.entities, key=lambda entity: (entity.offset, -entity.length))


def _write_code(writer: _EntityWriter, inner: str, fence: str) -> None:
    """Write a code block without its fences."""
    fence_characters = fence[: len(fence) - len(fence.lstrip(fence[0]))]
    lines = inner.split("\n")
    if lines and lines[-1].strip() and not lines[-1].strip().strip(fence[0]):
        lines.pop()
    language = fence[len(fence_characters) :].strip().split(" ")[0] or None
    start = writer.at
    writer.write("\n".join(lines).rstrip("\n"))
    writer.mark("pre", start, language=language)


def _write_prose(writer: _EntityWriter, text: str) -> None:
    """Write text outside of code blocks. Adjacent quoted lines become one quotation."""
    quote_start: int | None = None
    lines = text.split("\n")
    for number, line in enumerate(lines):
        quote = _QUOTE.match(line)
        if quote is None and quote_start is not None:
            writer.mark("blockquote", quote_start)
            quote_start = None
        if number:
            writer.write("\n")
        if quote is not None:
            quote_start = writer.at if quote_start is None else quote_start
        _write_line(writer, line if quote is None else line[quote.end() :])
    if quote_start is not None:
        writer.mark("blockquote", quote_start)


def _write_line(writer: _EntityWriter, line: str) -> None:
    if _RULE.match(line):
        writer.write("\u2014\u2014\u2014")
        return
    heading = _HEADING.match(line)
    if heading is not None:
        start = writer.at
        _write_inline(writer, heading[1])
        writer.mark("bold", start)
        return
    bullet = _BULLET.match(line)
    if bullet is not None:
        done = (bullet[2] or "").strip().lower()
        writer.write(bullet[1] + {"[x]": "\u2611 ", "[ ]": "\u2610 "}.get(done, "\u2022 "))
        line = line[bullet.end() :]
    _write_inline(writer, line)


def _write_inline(writer: _EntityWriter, text: str, depth: int = 0) -> None:
    position = 0
    for match in _INLINE.finditer(text):
        writer.write(text[position : match.start()])
        position = match.end()
        _write_span(writer, match, depth)
    writer.write(text[position:])


def _write_span(writer: _EntityWriter, match: re.Match[str], depth: int) -> None:
    start = writer.at
    if match["escaped"] is not None:
        writer.write(match["escaped"])
    elif match["code"] is not None:
        writer.write(match["code"])
        writer.mark("code", start)
    else:
        kind = next(name for name in ("label", "strong", "gone", "star", "under") if match[name] is not None)
        if depth < _MAX_NESTING:
            _write_inline(writer, match[kind], depth + 1)
        else:
            writer.write(match[kind])
        type = {"label": "text_link", "strong": "bold", "gone": "strikethrough"}.get(kind, "italic")
        writer.mark(type, start, url=match["url"])
