"""Markdown as Discord shows it: it has no tables, no pictures, no rules and three sizes of headings."""

from __future__ import annotations

import re

from recollect.channels.bot import tables
from recollect.channels.bot.splitting import outside_blocks

_SMALL_HEADING = re.compile(r"(?m)^ {0,3}#{4,6} +(.+?) *#*$")
_RULE = re.compile(r"(?m)^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")
_PICTURE = re.compile(r"!\[([^\]\n]{0,200})\]\((https?://[^\s)]{1,500})[^)\n]{0,200}\)")
_LINE = "\u2500" * 12


def laid_out(text: str) -> str:
    """Write a text so that it reads well on Discord; code blocks stay as they are."""
    return outside_blocks(tables.laid_out(text), _simplified)


def _simplified(text: str) -> str:
    text = _SMALL_HEADING.sub(_bold, text)
    text = _RULE.sub(_LINE, text)
    return _PICTURE.sub(lambda found: f"[{found[1] or 'picture'}]({found[2]})", text)


def _bold(found: re.Match[str]) -> str:
    return f"**{found[1].replace('**', '')}**"
