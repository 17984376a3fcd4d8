"""A menu in the middle of an answer: may this tool run? Text typed meanwhile waits for the end of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from recollect.agent.approvals import Approval, Decision, forever
from recollect.agent.events import Event
from recollect.channels.terminal.typed import Option, Typed

if TYPE_CHECKING:
    from recollect.channels.terminal.entry import Entry
    from recollect.channels.terminal.screen import Screen

_OPTIONS = (
    Option("once", "Allow this call", "c-y"),
    Option("session", "Allow this tool in this conversation", "c-t"),
    Option("always", "Always allow this tool", "c-k"),
    Option("deny", "Do not run it", "c-n"),
)
_SHOW = Option("show", "Show all arguments")


class Approving:
    """Asks the person at the terminal. While the menu is there, events wait: they would be drawn over it."""

    def __init__(self, screen: Screen, entry: Entry, typed: Typed, stop: Callable[[], object]) -> None:
        self._screen = screen
        self._entry = entry
        self._typed = typed
        self._stop = stop
        self._held: list[Event] | None = None

    def holds(self, event: Event) -> bool:
        """Take an event that cannot be shown now; return whether it was taken."""
        if self._held is None:
            return False
        self._held.append(event)
        return True

    async def approve(self, approval: Approval) -> Decision:
        """Ask until there is a decision. Ctrl-C stops the answer."""
        self._held = []
        try:
            with self._screen.paused():
                whole = self._screen.approval(approval)
                return await self._decision(approval, whole=whole)
        finally:
            held, self._held = self._held, None
            for event in held:
                self._screen.event(event)

    async def _decision(self, approval: Approval, *, whole: bool) -> Decision:
        while True:
            options = _OPTIONS if whole else (*_OPTIONS, _SHOW)
            try:
                chosen = await self._entry.choose(
                    options, begin=self._typed.line, default=None, entered="Enter sends it after this answer."
                )
            except asyncio.CancelledError:  # answered in another window, or the answer was stopped
                self._typed.line = self._entry.unsent
                raise
            except KeyboardInterrupt:
                self._stop()
                return await forever(approval)
            except EOFError:
                self._typed.entered.append("/quit")
                return "deny"
            self._typed.take(chosen)
            if chosen.name == "show":
                whole = self._screen.approval(approval, whole=True)
            elif chosen.name is not None:
                return cast("Decision", chosen.name)
