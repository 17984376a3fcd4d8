"""What was said, as HTML: paragraphs, code, headings, lists, quotes, emphasis and links to the web; nothing else.

An image is shown as a link with its text.

Everything is escaped before anything is marked up, so that a text can not become a tag, an attribute or an address
that is not http. Each expression takes time in proportion to the text.
"""

from __future__ import annotations

import html
import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([\w+#.\-]{0,30})[^`]*$")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)$")
_ITEM = re.compile(r"( {0,12})(?:[-*+]|(\d{1,9})[.)])[ \t]+(.*)$")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ROW = re.compile(r" {0,3}\|.*\|[ \t]*$")
_DIVIDER = re.compile(r"[ \t|:\-]+$")
_CODE = re.compile(r"(`+)((?:(?!\1).)+?)\1(?!`)")
_BARE = re.compile(r"(?<![\w/\"=>])(https?://[^\s<>\"'`]{1,2000})")
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]{1,2000}?)(?<=\S)\*\*")
_ITALIC = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]{1,2000}?)(?<=[^\s*])\*(?![\w*])")
_STRUCK = re.compile(r"~~(?=[^\s~])([^~\n]{1,2000}?)(?<=[^\s~])~~(?!~)")
_TRAILING = ".,;:!?)"


def rendered(text: str) -> str:
    """Render a text."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    pieces: list[str] = []
    at = 0
    while at < len(lines):
        piece, at = _next(lines, at)
        if piece:
            pieces.append(piece)
    return "\n".join(pieces)


def escaped(text: str) -> str:
    """Escape a text for HTML. Characters that HTML can not hold are shown as unknown."""
    return html.escape(text.translate(UNSHOWN).encode("utf-8", "replace").decode())


# Control characters; and marks that turn the direction of what follows, which can make a line of code or the name of a
# file read as another one.
UNSHOWN = dict.fromkeys(
    [code for code in range(32) if chr(code) not in "\t\n\r"]
    + [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "\N{REPLACEMENT CHARACTER}",
)


def code(text: str, language: str = "") -> str:
    """Show a text as it is, in the type of code."""
    label = f'<span class="language">{escaped(language)}</span>' if language else ""
    return f'<div class="code">{label}<pre dir="ltr"><code>{escaped(text)}</code></pre></div>'


def _next(lines: list[str], at: int) -> tuple[str, int]:
    line = lines[at]
    if not line.strip():
        return "", at + 1
    if fence := _FENCE.match(line):
        return _fenced(lines, at, fence[1], fence[2])
    if heading := _HEADING.match(line):
        level = min(len(heading[1]) + 2, 6)
        return f'<h{level} dir="auto">{_inline(heading[2].rstrip("# "))}</h{level}>', at + 1
    if _RULE.match(line):
        return "<hr>", at + 1
    if _ITEM.match(line):
        return _items(lines, at)
    if line.lstrip().startswith(">"):
        return _quoted(lines, at)
    if _ROW.match(line) and at + 1 < len(lines) and _is_divider(lines[at + 1]):
        return _table(lines, at)
    return _paragraph(lines, at)


def _is_divider(line: str) -> bool:
    return "-" in line and "|" in line and bool(_DIVIDER.match(line))


def _fenced(lines: list[str], at: int, fence: str, language: str) -> tuple[str, int]:
    end = at + 1
    while end < len(lines):
        told = lines[end].strip()
        if told.startswith(fence) and not told.strip(fence[0]):
            break
        end += 1
    return code("\n".join(lines[at + 1 : end]), language), end + 1


def _paragraph(lines: list[str], at: int) -> tuple[str, int]:
    end = at + 1
    while end < len(lines) and lines[end].strip() and not _begins(lines, end):
        end += 1
    return f'<p dir="auto">{_inline(chr(10).join(lines[at:end]))}</p>', end


def _begins(lines: list[str], at: int) -> bool:
    line = lines[at]
    if _FENCE.match(line) or _HEADING.match(line) or _ITEM.match(line) or line.lstrip().startswith(">"):
        return True
    return bool(_ROW.match(line)) and at + 1 < len(lines) and _is_divider(lines[at + 1])


def _items(lines: list[str], at: int) -> tuple[str, int]:
    """Render a list. What is indented deeper is set in, by steps; lists inside lists are not told apart."""
    kind = "ol" if (_ITEM.match(lines[at]) or [""])[2] else "ul"
    pieces: list[str] = []
    end, start = at, (_ITEM.match(lines[at]) or [""])[2]
    while end < len(lines) and (item := _ITEM.match(lines[end])) and ("ol" if item[2] else "ul") == kind:
        words, end = [item[3]], end + 1
        while end < len(lines) and lines[end].strip() and lines[end][:1] in " \t" and not _begins(lines, end):
            words.append(lines[end].strip())
            end += 1
        depth = min(len(item[1]) // 2, 4)
        level = f' class="in{depth}"' if depth else ""
        pieces.append(f'<li{level} dir="auto">{_inline(chr(10).join(words))}</li>')
    first = f' start="{int(start)}"' if start and start != "1" else ""
    return f"<{kind}{first}>{''.join(pieces)}</{kind}>", end


def _quoted(lines: list[str], at: int) -> tuple[str, int]:
    end = at
    words: list[str] = []
    while end < len(lines) and lines[end].lstrip().startswith(">"):
        words.append(lines[end].lstrip()[1:].removeprefix(" "))
        end += 1
    return f'<blockquote dir="auto">{_inline(chr(10).join(words))}</blockquote>', end


def _table(lines: list[str], at: int) -> tuple[str, int]:
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in _cells(lines[at]))
    end = at + 2
    body: list[str] = []
    while end < len(lines) and _ROW.match(lines[end]):
        body.append("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in _cells(lines[end])) + "</tr>")
        end += 1
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>', end


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _inline(text: str) -> str:
    """Render what stands inside a line: code first, since nothing else means anything in it."""
    pieces: list[str] = []
    done = 0
    for match in _CODE.finditer(text):
        pieces += (_marked(text[done : match.start()]), f"<code>{escaped(match[2].strip())}</code>")
        done = match.end()
    return "".join([*pieces, _marked(text[done:])])


def _marked(text: str) -> str:
    """Render emphasis and links in a text that is escaped first."""
    pieces: list[str] = []
    done = 0
    for match in _BARE.finditer(text):
        address = match[1].rstrip(_TRAILING)
        label, start = address, match.start()
        # [label](address): the label stands before the address that was found.
        named = re.search(r"!?\[([^\[\]\n]{1,300})\]\($", text[max(done, start - 305) : start])
        if named is not None and text[start + len(address) : start + len(address) + 1] == ")":
            label, start = named[1], start - len(named[0])
            end = match.start() + len(address) + 1
        else:
            end = match.start() + len(address)
        pieces += (_emphasis(text[done:start]), _anchor(address, label))
        done = end
    return "".join([*pieces, _emphasis(text[done:])])


def _anchor(address: str, label: str) -> str:
    return f'<a href="{escaped(address)}" rel="noopener noreferrer nofollow">{escaped(label)}</a>'


def _emphasis(text: str) -> str:
    shown = escaped(text)
    shown = _BOLD.sub(r"<strong>\1</strong>", shown)
    shown = _ITALIC.sub(r"<em>\1</em>", shown)
    return _STRUCK.sub(r"<del>\1</del>", shown)
