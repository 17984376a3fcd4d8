"""A title for a talk, from what was said first."""

from __future__ import annotations

import re

from recollect.model.message import Draft, Message
from recollect.model.part import TextPart

_LONGEST = 60
_MARKUP = re.compile(r"\A[#>\s]+|`+|\*\*|__")
_END = re.compile(r"(?<=[.!?])\s")


def said(message: Draft | Message) -> str:
    """Give what was said in a message, without reasoning, tool calls and results."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def from_text(message: Draft | Message | None) -> str:
    """Make a title of the first sentence of a message: one line, of sixty characters at most."""
    return "" if message is None else shortened(_END.split(" ".join(said(message).split()), maxsplit=1)[0])


def shortened(text: str) -> str:
    """Give a text as a title: one line without markup, cut between words."""
    line = " ".join(_MARKUP.sub("", text).split()).strip(" \"'.:")
    line = "".join(character for character in line if character.isprintable())
    if len(line) <= _LONGEST:
        return line
    return line[: _LONGEST - 1].rpartition(" ")[0].rstrip(" ,;:") + "\u2026" if " " in line else line[:_LONGEST]
