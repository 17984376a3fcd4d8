"""What a terminal can show: how wide it is, whether in colour, and stored text made harmless for it."""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any

import click

# Everything that could steer a terminal or turn the direction of a line: the categories Cc, Cf, Cs, Zl and Zp, except
# the two joiners that scripts and emoji need. A test compares it with the whole of Unicode.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_DELETE = 0x7F
_JOINERS = "\u200c\u200d"
_NARROWEST, _USUAL, _WIDEST = 40, 80, 200
_GLYPHS = {"pin": ("★", "*"), "archived": ("▪", "#"), "more": ("…", "~"), "call": ("→", ">"), "result": ("←", "<"),
           "good": ("✓", "ok"), "bad": ("✗", "x"), "fork": ("└", "+"), "dot": ("·", "-"), "bar": ("█", "#"),
           "line": ("─", "-"), "role": ("●", "*"), "thought": ("┊", "|")}  # fmt: skip


def safe(text: str) -> str:
    """Make a text harmless for a terminal, on one line: what could steer it is shown as a symbol."""
    return _STEERING.sub(_symbol, text) if not text.isprintable() else text


def safe_lines(text: str) -> list[str]:
    """Make a text of several lines harmless, line by line."""
    if text.isprintable():
        return [text] if text else []
    return [safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def _symbol(found: re.Match[str]) -> str:
    """Show a control character as Unicode's picture of it; what has none is the replacement character."""
    code = ord(found[0])
    if found[0] in "\t\n":
        return " "
    if code < ord(" "):
        return chr(0x2400 + code)
    return "\u2421" if code == _DELETE else "\ufffd"


def width(text: str) -> int:
    """How many columns a harmless text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


@functools.cache
def _columns_of(character: str) -> int:
    import unicodedata  # noqa: PLC0415  a megabyte that ASCII does not need

    if character in _JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Cut a harmless text off at a width, with a mark that there is more."""
    if width(text) <= columns:
        return text
    mark, room = glyph("more"), columns - 1
    kept: list[str] = []
    for character in text:
        room -= _columns_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + mark


def pad(text: str, columns: int, align: str = "<") -> str:
    """Fill a harmless text up to a width."""
    space = " " * max(columns - width(text), 0)
    return space + text if align == ">" else text + space


def is_terminal() -> bool:
    """Whether a person reads the output on a terminal, now."""
    return sys.stdout.isatty()


def columns() -> int:
    """How many columns the output may take."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and len(named) < 6 and int(named):  # noqa: PLR2004
        found = int(named)
    else:
        try:
            found = os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL
        except (OSError, ValueError):
            found = _USUAL
    return min(max(found, _NARROWEST), _WIDEST)


def wants_colour() -> bool | None:
    """Whether to print in colour: what the environment says, and else (None) only on a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def glyph(name: str) -> str:
    """Give a mark, in the letters that the output can take."""
    unicode, plain = _GLYPHS[name]
    return unicode if _takes_unicode(getattr(sys.stdout, "encoding", None) or "ascii") else plain


@functools.cache
def _takes_unicode(encoding: str) -> bool:
    try:
        "★…→✓─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def paint(text: str, **style: Any) -> str:
    """Colour a harmless text; click drops the colour where the output is no terminal."""
    return click.style(text, **style)


def complain(text: str) -> None:
    """Say what is wrong, on standard error, as one line."""
    click.echo(f"recollect: {safe(text)}", err=True)


def remark(text: str) -> None:
    """Say something beside the output, on standard error."""
    click.echo(safe(text), err=True)
