"""Sanitized text for a terminal.

Text from a model, a tool or the store must not control the terminal: no escape sequences, no alarms, no characters
that reverse or hide text.
"""

from __future__ import annotations

from recollect.model.humanize import truncate

_JOINERS = "\u200c\u200d"  # not printable for Python, but harmless, and needed by scripts and emoji

TAB = "    "


def clean(text: str) -> str:
    """Return a text with line breaks, and with control characters replaced."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_clean_character(character) for character in text.replace("\r\n", "\n").replace("\t", TAB))


def clean_line(text: str) -> str:
    """Return a text as one sanitized line."""
    return clean(" ".join(text.split()))


def _clean_character(character: str) -> str:
    return character if character == "\n" or character.isprintable() or character in _JOINERS else "\ufffd"


def truncate_line(text: str, width: int) -> str:
    """Return a text as one sanitized line of at most `width` characters."""
    return truncate(clean_line(text), width)
