"""Conversation output without a terminal: plain text for pipes, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from recollect.agent.commands import CommandOutcome
from recollect.agent.events import Delegated, Event, Notice, Responded, TextDelta, ToolFinished, ToolStarted, TurnEnded
from recollect.channels.terminal.sanitize import clean, truncate_line
from recollect.formats import display

_MAX_ASIDE_LENGTH = 200  # characters of a tool call or its output on standard error


class PlainScreen:
    """Prints the streamed answer to standard output, and notices and tool calls to standard error."""

    def __init__(self) -> None:
        self._open = False

    def event(self, event: Event) -> None:
        """Print an event."""
        match event:
            case TextDelta():
                self._write(clean(event.text))
            case Responded():
                self._line()
            case ToolStarted():
                _print_aside(f"> {event.tool} {json.dumps(event.arguments, ensure_ascii=False, default=str)}")
            case ToolFinished():
                _print_aside(f"< {event.output}")
            case Delegated() if event.tool:
                _print_aside(f"  {event.agent}: {event.tool}")
            case Notice():
                _print_aside(event.text, len(event.text))
            case TurnEnded():
                self._line()
                if event.error or event.truncated:
                    _print_aside(event.error or display.TRUNCATED_NOTICE)
            case _:
                pass

    def outcome(self, outcome: CommandOutcome) -> None:
        """Print the outcome of a command."""
        if outcome.text:
            (sys.stderr if outcome.failed else sys.stdout).write(clean(outcome.text) + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open = not text.endswith("\n")

    def _line(self) -> None:
        if self._open:
            self._write("\n")


def _print_aside(text: str, width: int = _MAX_ASIDE_LENGTH) -> None:
    sys.stdout.flush()
    sys.stderr.write(truncate_line(text, width) + "\n")
    sys.stderr.flush()


class JsonScreen:
    """Prints each event as one line of JSON."""

    def event(self, event: Event) -> None:
        """Print an event."""
        _print_json(event.to_dict())

    def outcome(self, outcome: CommandOutcome) -> None:
        """Print the outcome of a command."""
        _print_json({"event": "command", "text": outcome.text, "action": outcome.action, "failed": outcome.failed})


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()
