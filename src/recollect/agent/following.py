"""A sub-agent at work, as its parent's surface sees it: which tool runs, and the last line that was said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from recollect.agent.events import Delegated, Event, TextDelta, ToolFinished, ToolStarted, TurnEnded, TurnStarted

_PAUSE = 0.2
"""Seconds between two lines: a surface shows how far it is, and not every word."""

_LONGEST = 200


class Following:
    """Takes the events of a sub-agent and tells a few of them."""

    def __init__(self, name: str, session: str, emit: Callable[[Event], None]) -> None:
        self._name = name
        self._session = session
        self._emit = emit
        self._said = ""
        self._tools: dict[str, str] = {}
        self._told = float("-inf")
        self._soon: asyncio.TimerHandle | None = None

    def tell(self, event: Event) -> None:
        """Take an event."""
        match event:
            case TextDelta():
                self._said = (self._said + event.text)[-_LONGEST * 2 :]
                if self._soon is None:
                    left = max(self._told + _PAUSE - time.monotonic(), 0)
                    self._soon = asyncio.get_running_loop().call_later(left, self._say)
            case ToolStarted():
                self._tools[event.call_id] = event.tool
                self._say()
            case ToolFinished():
                self._tools.pop(event.call_id, None)
                self._say()
            case TurnStarted() | TurnEnded():
                self._say(ended=isinstance(event, TurnEnded))
            case Delegated():
                self._emit(event)  # a sub-agent of the sub-agent
            case _:
                pass

    def end(self) -> None:
        """Tell nothing that still waits to be told."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _say(self, *, ended: bool = False) -> None:
        self._told = time.monotonic()
        self.end()
        lines = [line for line in self._said.splitlines() if line.strip()]
        last = lines[-1].strip()[-_LONGEST:] if lines else ""
        tool = next(reversed(self._tools.values()), None)
        self._emit(Delegated(agent=self._name, session=self._session, tool=tool, line=last, ended=ended))
