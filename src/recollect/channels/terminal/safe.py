"""What may reach a terminal.

Text from a model, a tool or the store must not steer it: no escape sequences, no bells, no characters that reverse or
hide what is written.
"""

from __future__ import annotations

_JOINERS = "\u200c\u200d"
"""Not printable by Python's rule, but part of scripts and of emoji, and harmless."""

TAB = "    "


def clean(text: str) -> str:
    """Give a text with line breaks kept and everything that steers a terminal replaced."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_shown(character) for character in text.replace("\r\n", "\n").replace("\t", TAB))


def line(text: str) -> str:
    """Give a text as one clean line."""
    return clean(" ".join(text.split()))


def _shown(character: str) -> str:
    return character if character == "\n" or character.isprintable() or character in _JOINERS else "\ufffd"


def cut(text: str, width: int) -> str:
    """Give a text as one clean line of at most so many characters."""
    whole = line(text)
    return whole if len(whole) <= width else whole[: max(width - 1, 0)] + "\u2026"
