"""Titles made from message text."""

from __future__ import annotations

import re

from recollect.model.message import Draft, Message, TextPart

_MAX_TITLE = 60  # characters of a generated title: it fits on one line of every list
_MARKUP = re.compile(r"\A[#>\s]+|`+|\*\*|__")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def message_text(message: Draft | Message) -> str:
    """Return the text of a message, without reasoning, tool calls and results."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def title_of(message: Draft | Message | None) -> str:
    """Return the first sentence of a message as a title: one line of at most 60 characters."""
    return (
        ""
        if message is None
        else shorten_title(_SENTENCE_END.split(" ".join(message_text(message).split()), maxsplit=1)[0])
    )


def shorten_title(text: str) -> str:
    """Return a text as a title: one line without markup, truncated between words."""
    line = " ".join(_MARKUP.sub("", text).split()).strip(" \"'.:")
    line = "".join(character for character in line if character.isprintable())
    if len(line) <= _MAX_TITLE:
        return line
    return line[: _MAX_TITLE - 1].rpartition(" ")[0].rstrip(" ,;:") + "\u2026" if " " in line else line[:_MAX_TITLE]
