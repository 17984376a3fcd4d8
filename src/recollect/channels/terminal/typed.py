"""Text that was typed and not sent yet, and the options of a menu at which text can be typed."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Option(NamedTuple):
    """One choice of a menu. Its key is never a character of a text: letters typed at a menu are a message."""

    name: str
    text: str
    key: str = ""
    """As prompt_toolkit calls it, such as `c-t`. Without one, the option is reached with the arrow keys."""

    @property
    def label(self) -> str:
        """The key as people call it."""
        return f"Ctrl-{self.key[-1].upper()}" if self.key else ""


class Chosen(NamedTuple):
    """The answer to a menu: the option's name, or None if a message was entered instead; and the text in the line."""

    name: str | None
    text: str = ""


class Typed:
    """Input that must not be lost while a menu is on the screen."""

    def __init__(self) -> None:
        self.line = ""
        """What the next input line begins with."""
        self.entered: deque[str] = deque()
        """Messages and commands that were completed with Enter, in order."""

    def take(self, chosen: Chosen) -> None:
        """Keep the text of an answer to a menu: an entered message is sent, any other text stays in the line."""
        if chosen.name is None and chosen.text.strip():
            self.line = ""
            self.entered.append(chosen.text)
        else:
            self.line = chosen.text

    def put_back(self, message: str) -> None:
        """Put a message that was not sent into the input line, before what was typed since."""
        self.line = f"{message}\n{self.line}" if self.line else message
