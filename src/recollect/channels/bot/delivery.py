"""Delivery of answers: the Outlet interface that an adapter implements, and an answer shown while it streams.

The last message is edited as often as the platform allows. When a message is full, the answer continues in another.
After RateLimited, delivery waits as long as the platform asks. The end of an answer is retried for DELIVERY_TIMEOUT.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from recollect.channels.bot.chat_markdown import close_code_block, cut_first_piece
from recollect.errors import DeliveryFailed, RateLimited


class Outlet(Protocol):
    """The chat that an answer is sent to. Texts are Markdown; the adapter renders them.

    Each method raises RateLimited if the platform asks to wait, and DeliveryFailed for every other failure.
    """

    @property
    def limit(self) -> int:
        """Maximum length of one message, as measure() counts."""
        ...

    @property
    def pace(self) -> float:
        """Minimum seconds between two edits that the platform allows."""
        ...

    @property
    def gathers(self) -> float:
        """Seconds for which the first words of an answer are collected before they are sent."""
        ...

    def measure(self, text: str) -> int:
        """Return the length of a text as the platform counts it."""
        ...

    async def send(self, text: str) -> str:
        """Send a message and return its id."""
        ...

    async def edit(self, message: str, text: str) -> None:
        """Edit a message. An edit that changes nothing is not a failure."""
        ...

    async def typing(self) -> None:
        """Show for a few seconds that an answer is being written."""
        ...


class Button(NamedTuple):
    """A button below a message: its label, and the data that the platform returns on a press (at most 64 bytes)."""

    label: str
    data: str


@runtime_checkable
class ButtonOutlet(Protocol):
    """An outlet of a platform with buttons."""

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons below it, and return its id."""
        ...

    async def settle(self, message: str, text: str) -> None:
        """Edit a message and remove its buttons."""
        ...


@runtime_checkable
class ReadableOutlet(Protocol):
    """An outlet of a platform that lets a bot read its own messages."""

    async def read(self, message: str) -> str | None:
        """Return the current text of a message; None if it was deleted."""
        ...


T = TypeVar("T")
OnSent = Callable[[list[str]], Awaitable[None]]
CONTINUATION_MARK = " \u2026"
"""The end of the visible text while an answer is still streaming."""

TYPING_INTERVAL = 4.0
"""Seconds between two typing notifications: Telegram shows one for 5 seconds, Discord for 10."""

DELIVERY_TIMEOUT = 300.0
"""Seconds for which the delivery of an answer's end is retried."""

_FIRST_PAUSE, _MAX_PAUSE = 0.5, 20.0  # seconds between two tries, doubled each time


class Delivery:
    """One answer. `write()` adds text while it streams, `finish()` delivers all of it."""

    def __init__(self, outlet: Outlet, on_sent: OnSent | None = None, *, patience: float = DELIVERY_TIMEOUT) -> None:
        self.ids: list[str] = []
        self._outlet = outlet
        self._on_sent = on_sent
        self._patience = patience
        self._unsent = ""  # the text of the last message, which may still change, and all text after it
        self._visible_text: str | None = None
        self._current: str | None = None  # the id of the last message
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._push_lock = asyncio.Lock()
        self.text = ""

    def begin(self) -> None:
        """Start the typing notifications and the streaming of the answer."""
        self._tasks = [asyncio.create_task(self._show_typing()), asyncio.create_task(self._stream())]

    def write(self, text: str) -> None:
        """Append a piece of the answer."""
        self.text += text
        self._unsent += text
        self._wake.set()

    async def _show_typing(self) -> None:
        while self._current is None:
            with contextlib.suppress(RateLimited, DeliveryFailed):
                await self._outlet.typing()
            await asyncio.sleep(TYPING_INTERVAL)

    async def _stream(self) -> None:
        await self._wake.wait()
        await asyncio.sleep(self._outlet.gathers)
        while True:
            await self._wake.wait()
            self._wake.clear()
            pause = self._outlet.pace
            try:
                async with self._push_lock:
                    await self._push(CONTINUATION_MARK)
            except RateLimited as error:
                pause = max(error.seconds, pause)
                self._wake.set()
            except DeliveryFailed as error:
                pause = max(pause, _FIRST_PAUSE)
                if error.retryable:
                    self._wake.set()
            await asyncio.sleep(pause)

    async def _push(self, suffix: str) -> None:
        """Update the visible messages: split a text that is too long, then send or edit the last message."""
        while self._size(suffix) > self._outlet.limit and self._unsent.strip():
            pending = self._unsent
            piece, remaining = cut_first_piece(pending, self._outlet.limit, self._outlet.measure)
            if piece.strip():
                await self._show(piece)
            remaining += self._unsent[len(pending) :]  # text that arrived during the send
            self._unsent, self._current, self._visible_text = remaining, None, None
        if self._unsent.strip():
            await self._show(close_code_block(self._unsent) + suffix)

    def _size(self, suffix: str) -> int:
        return self._outlet.measure(close_code_block(self._unsent) + suffix)

    async def _show(self, text: str) -> None:
        if text == self._visible_text:
            return
        if self._current is not None:
            await self._outlet.edit(self._current, text)
        else:
            self._current = await self._outlet.send(text)
            self.ids.append(self._current)
            if self._on_sent is not None:
                await self._on_sent(self.ids)
        self._visible_text = text

    async def finish(self, note: str = "", *, patience: float | None = None) -> None:
        """Deliver the complete answer and a note after it, with retries. Raises DeliveryFailed if that fails."""
        await self._end_tasks()
        if note:
            self.write(("\n\n" if self.text.strip() else "") + note)
        async with self._push_lock:
            await deliver_with_retry(lambda: self._push(""), self._patience if patience is None else patience)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        async with self._push_lock:  # a send in progress must finish: its message id would be lost
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def drop(self) -> None:
        """Stop the background tasks without delivering anything more."""
        await self._end_tasks()


async def deliver_with_retry(deliver: Callable[[], Awaitable[T]], patience: float = DELIVERY_TIMEOUT) -> T:
    """Call `deliver` until it succeeds, for at most `patience` seconds. Back off after RateLimited and failures."""
    deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
    while True:
        try:
            return await deliver()
        except RateLimited as error:
            if time.monotonic() + error.seconds > deadline:
                raise DeliveryFailed(reason=str(error), retryable=False) from error
            await asyncio.sleep(error.seconds)
        except DeliveryFailed as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)
