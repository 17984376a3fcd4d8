"""Markdown as Discord shows it: it has no tables, no pictures, no rules and three sizes of headings."""

from __future__ import annotations

import re

from recollect.channels.bot import tables
from recollect.channels.bot.splitting import blocks

_SMALL_HEADING = re.compile(r"(?m)^ {0,3}#{4,6} +(.+?) *#*$")
_RULE = re.compile(r"(?m)^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")
_PICTURE = re.compile(r"!\[([^\]\n]{0,200})\]\((https?://[^\s)]{1,500})[^)\n]{0,200}\)")
_LINE = "\u2500" * 12


def laid_out(text: str) -> str:
    """Write a text so that it reads well on Discord; code blocks stay as they are."""
    text = tables.laid_out(text)
    made: list[str] = []
    at = 0
    for block in blocks(text):
        end = len(text) if block.end is None else block.end
        made += [_outside(text[at : block.start]), text[block.start : end]]
        at = end
    return "".join([*made, _outside(text[at:])])


def _outside(text: str) -> str:
    text = _SMALL_HEADING.sub(_bold, text)
    text = _RULE.sub(_LINE, text)
    return _PICTURE.sub(lambda found: f"[{found[1] or 'picture'}]({found[2]})", text)


def _bold(found: re.Match[str]) -> str:
    return f"**{found[1].replace('**', '')}**"
