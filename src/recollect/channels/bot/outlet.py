"""Where an answer goes: what an adapter gives the desk for each message, and how it says that something failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from recollect.errors import RecollectError


class SlowDown(RecollectError):
    """The platform asks to wait {seconds:g} seconds."""

    seconds: float

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds=max(float(seconds), 0.0))


class Undelivered(RecollectError):
    """The platform did not take a message: {reason}."""

    again: bool

    def __init__(self, reason: str, *, again: bool) -> None:
        """Say why, and whether it is worth trying again: a lost connection is, a chat that is gone is not."""
        super().__init__(reason=reason, again=again)


class Outlet(Protocol):
    """The place that a message came from, as an answer sees it. Texts are Markdown; the adapter lays them out.

    Each of these raises SlowDown where the platform asks to wait, and Undelivered for everything else that fails.
    """

    @property
    def limit(self) -> int:
        """How long one message may be, as measure() counts."""
        ...

    @property
    def pace(self) -> float:
        """How many seconds lie between two changes that the platform allows."""
        ...

    @property
    def gathers(self) -> float:
        """For how many seconds the first words of an answer are gathered before they are sent."""
        ...

    def measure(self, text: str) -> int:
        """Count a text as the platform does."""
        ...

    async def send(self, text: str) -> str:
        """Send a message and give its id."""
        ...

    async def edit(self, message: str, text: str) -> None:
        """Change a message that was sent; one that stands there like that already is no failure."""
        ...

    async def typing(self) -> None:
        """Show for a few seconds that an answer is being written."""
        ...


class Button(NamedTuple):
    """A button below a message: its label, and what the platform hands back when it is pressed (64 bytes at most)."""

    label: str
    data: str


@runtime_checkable
class Askable(Protocol):
    """An outlet of a platform with buttons."""

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons below it, and return its id."""
        ...

    async def settle(self, message: str, text: str) -> None:
        """Change a message and take its buttons away."""
        ...


@runtime_checkable
class Rereadable(Protocol):
    """An outlet of a platform that lets a bot read again what it sent."""

    async def read(self, message: str) -> str | None:
        """Give what a message says now; None where it is gone."""
        ...
