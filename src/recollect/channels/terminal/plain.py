"""A talk without a terminal: plain text for pipes, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from recollect.agent.commands import Outcome
from recollect.agent.events import Delegated, Event, Notice, Responded, TextDelta, ToolFinished, ToolStarted, TurnEnded
from recollect.channels.terminal.safe import clean, cut
from recollect.formats import truncation

_WIDTH = 200


class PlainScreen:
    """The answer to standard output as it comes; everything about it to standard error."""

    def __init__(self) -> None:
        self._open = False

    def event(self, event: Event) -> None:
        """Show what happens."""
        match event:
            case TextDelta():
                self._write(clean(event.text))
            case Responded():
                self._line()
            case ToolStarted():
                _aside(f"> {event.tool} {json.dumps(event.arguments, ensure_ascii=False, default=str)}")
            case ToolFinished():
                _aside(f"< {event.output}")
            case Delegated() if event.tool:
                _aside(f"  {event.agent}: {event.tool}")
            case Notice():
                _aside(event.text, len(event.text))
            case TurnEnded():
                self._line()
                if event.error or event.truncated:
                    _aside(event.error or truncation.SENTENCE)
            case _:
                pass

    def outcome(self, outcome: Outcome) -> None:
        """Show what a command did."""
        if outcome.text:
            (sys.stderr if outcome.failed else sys.stdout).write(clean(outcome.text) + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open = not text.endswith("\n")

    def _line(self) -> None:
        if self._open:
            self._write("\n")


def _aside(text: str, width: int = _WIDTH) -> None:
    sys.stdout.flush()
    sys.stderr.write(cut(text, width) + "\n")
    sys.stderr.flush()


class JsonScreen:
    """One JSON object on each line, for each thing that happens."""

    def event(self, event: Event) -> None:
        """Print an event."""
        _print(event.to_dict())

    def outcome(self, outcome: Outcome) -> None:
        """Print what a command did."""
        _print({"event": "command", "text": outcome.text, "action": outcome.action, "failed": outcome.failed})


def _print(plain: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(plain, default=str) + "\n")
    sys.stdout.flush()
