"""Untrusted message content as safe markup: escaped HTML, Markdown without tags, attachments as data URLs.

Markdown: the text is written unchanged, but `<` is escaped unless every Markdown reader certainly treats it as code: in
a block that is fenced at the margin; in an indented block if nothing before it can be a fence; in a span that begins
and ends on one line with no open span before it.

An image becomes a link with its text: a viewer that loaded the image would reveal its reader to the host.

The time of each regular expression is proportional to the length of the text.
"""

from __future__ import annotations

import html
import re
from typing import Any, NamedTuple

from recollect.model.message import AttachmentPart


def escape_html(text: str) -> str:
    """Escape a text for HTML. Characters that HTML cannot represent become U+FFFD."""
    return html.escape(text.translate(REPLACED_CHARACTERS).encode("utf-8", "replace").decode())


# Control characters, and marks that change the text direction: those can make a line of code or a file name look like
# another one.
REPLACED_CHARACTERS = dict.fromkeys(
    [code for code in range(32) if chr(code) not in "\t\n\r"]
    + [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "\N{REPLACEMENT CHARACTER}",
)


def code_block(text: str, language: str = "") -> str:
    """Return a text as a block of code."""
    label = f'<span class="language">{escape_html(language)}</span>' if language else ""
    return f'<div class="code">{label}<pre dir="ltr"><code>{escape_html(text)}</code></pre></div>'


_FENCE = re.compile(r"( {0,3})(?:(`{3,})[^`]*|(~{3,}).*)$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TICKS = re.compile(r"`+")
_IMAGE = re.compile(r"(?<!\\)((?:\\\\)*)!(?=\[)")


class _Fence(NamedTuple):
    indent: int
    run: str

    def ends(self, line: str) -> bool:
        """Return whether a line can close the fence, at any indentation."""
        bare = line.strip(" \t")
        return len(bare) >= len(self.run) and not bare.strip(self.run[0])

    def marker(self) -> str:
        return " " * self.indent + self.run


def sanitize_markdown(text: str) -> str:
    """Return a Markdown text with its tags escaped and its code fences closed."""
    lines: list[str] = []
    fence: _Fence | None = None
    fence_possible = False  # an earlier line may be a fence in a list or a quote
    tick_open = False  # a code span may be open in this paragraph
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        lead = line[: len(line) - len(line.lstrip(" \t"))]
        indent = len(lead.expandtabs(4))
        if fence is None or fence.ends(line):  # in a quote, a tab has another width
            line = " " * indent + line[len(lead) :]  # noqa: PLW2901
        if fence is not None:
            if fence.ends(line) and fence.indent <= indent <= 3:  # noqa: PLR2004  deeper is indented code
                lines.append(line)
                fence = None
                continue
            if not fence.indent or not line.strip() or (indent >= fence.indent and not fence.ends(line)):
                lines.append(line)
                continue
            lines.append(fence.marker())  # the list, and the code in it, may end here: close the fence
        match = _FENCE.match(line)
        if (
            match is not None and "|" not in line and not (match[1] and fence_possible)
        ):  # a line with a bar may be the head of a table
            fence = _Fence(len(match[1]), match[2] or match[3])
            lines.append(line)
            tick_open = False
            continue
        fence = None
        fence_possible = fence_possible or "```" in line or "~~~" in line
        if match is not None:  # it may open or close code: escape it, so that it does neither
            line = f"{match[1]}\\{line.lstrip(' ')}"  # noqa: PLW2901
        safe_line, tick_open = _sanitize_line(line, tick_open=tick_open and bool(line.strip()))
        lines.append(safe_line)
    return "\n".join(lines if fence is None else [*lines, fence.marker()])


def _sanitize_line(line: str, *, tick_open: bool) -> tuple[str, bool]:
    """Escape the tags of a line outside of code. Return the line, and whether a code span may be open at its end."""
    spans = None if tick_open or "\\`" in line else _code_spans(line)
    if spans is None:
        return _escape_tags(line), True
    pieces: list[str] = []
    index = 0
    for begin, end in spans:
        code = line[begin:end]
        # A table cell ends at a bar, even inside code.
        pieces += [_escape_tags(line[index:begin]), _escape_tags(code) if "|" in code else code]
        index = end
    return "".join([*pieces, _escape_tags(line[index:])]), False


def _escape_tags(text: str) -> str:
    """Escape the start of tags, and the mark that turns a link into an image."""
    return _IMAGE.sub(r"\1\\!", _TAG.sub("&lt;", text))


def _code_spans(line: str) -> list[tuple[int, int]] | None:
    """Return the code spans of a line, or None if a run of backticks has no closing run of the same length."""
    runs = [(run.start(), run.end()) for run in _TICKS.finditer(line)]
    spans: list[tuple[int, int]] = []
    index = 0
    while index < len(runs):
        begin, end = runs[index]
        closing = next((i for i in range(index + 1, len(runs)) if runs[i][1] - runs[i][0] == end - begin), None)
        if closing is None:
            return None
        spans.append((begin, runs[closing][1]))
        index = closing + 1
    return spans


# Raster images, which a browser only draws. SVG is excluded: it can contain scripts and links.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_BINARY_TYPE = "application/octet-stream"

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+\-]{0,80}/[A-Za-z0-9][A-Za-z0-9.+\-]{0,80}")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*")
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,160})(?:;[^;,]{0,160}){0,4};base64,", re.IGNORECASE)
_WEB_URL = re.compile(r"https?://[^\s\"'<>`\\]+", re.IGNORECASE)


class RenderedAttachment(NamedTuple):
    """The name, type and size of an attachment, and its data URL or link."""

    name: str
    mime_type: str
    size: int | None
    picture: str | None = None
    """A data: URL of an image."""
    download: str | None = None
    """A data: URL to save. It has no specific type, so that no browser opens it as a page."""
    link: str | None = None
    """Its URL, if it is on the web."""


def render_attachment(part: AttachmentPart) -> RenderedAttachment:
    """Return an attachment as an inline image, a download or a link; only its name if it has none of them."""
    media_type, data = part.mime_type or "", part.data
    url = part.url or ""
    if data is None and (match := _DATA_URL.match(url)):
        media_type, data = media_type or match["type"], url[match.end() :]
    mime_type = media_type.lower() if _MEDIA_TYPE.fullmatch(media_type) else _BINARY_TYPE
    name = part.name or ("image" if mime_type in IMAGE_TYPES else "attachment")
    if data is None or not _BASE64.fullmatch(data):
        return RenderedAttachment(name, mime_type, part.size, link=url if _WEB_URL.fullmatch(url) else None)
    data = "".join(data.split())
    size = len(data) * 3 // 4 - data[-2:].count("=")
    if mime_type in IMAGE_TYPES:
        return RenderedAttachment(name, mime_type, size, picture=f"data:{mime_type};base64,{data}")
    return RenderedAttachment(name, mime_type, size, download=f"data:{_BINARY_TYPE};base64,{data}")


def attachment_of_block(block: Any) -> AttachmentPart | None:
    """Return the attachment in a provider's block, or None if the block holds no image or file."""
    block = block.get("whole", block) if isinstance(block, dict) else None
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return None
    name = _text_field(block, "title") or _text_field(block, "name") or _text_field(block, "filename")
    source = block.get("source")
    if isinstance(source, dict):
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return None
        return _attachment_part(
            name, _text_field(source, "media_type"), _text_field(source, "data"), _text_field(source, "url")
        )
    if kind in ("image_url", "input_image"):
        address = block.get("image_url")
        return _attachment_part(
            name,
            None,
            None,
            _text_field(address, "url") if isinstance(address, dict) else _text_field(block, "image_url"),
        )
    file = block.get("file") if kind == "file" else block if kind == "input_file" else None
    if isinstance(file, dict):
        data = _text_field(file, "file_data")
        url = data if data is not None and data.startswith("data:") else _text_field(file, "file_url")
        return _attachment_part(_text_field(file, "filename") or name, None, None if url == data else data, url)
    audio = block.get("input_audio")
    if isinstance(audio, dict):
        return _attachment_part(
            name or "audio", f"audio/{_text_field(audio, 'format') or 'wav'}", _text_field(audio, "data"), None
        )
    return None


def _attachment_part(
    name: str | None, mime_type: str | None, data: str | None, url: str | None
) -> AttachmentPart | None:
    return None if data is None and url is None else AttachmentPart(name=name, mime_type=mime_type, data=data, url=url)


def _text_field(block: dict[str, Any], name: str) -> str | None:
    value = block.get(name)
    return value if isinstance(value, str) else None
