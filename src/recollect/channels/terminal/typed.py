"""Text that was typed and not sent yet: entered messages that wait for their turn, and the beginning of the next."""

from __future__ import annotations

from collections import deque

from recollect.channels.terminal.entry import Chosen


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
