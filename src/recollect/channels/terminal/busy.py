"""When another process talks in the same session: attach, wait and watch, go on in a fork, or take it over."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.agent import commands
from recollect.agent.attendance import told
from recollect.agent.conversation import Conversation
from recollect.channels.terminal.typed import Option, Typed
from recollect.errors import SessionBusy, SessionTaken
from recollect.model.presence import Presence

if TYPE_CHECKING:
    from recollect.channels.terminal.entry import Entry
    from recollect.channels.terminal.screen import Screen
    from recollect.channels.terminal.talk import Shows

_LOOK = 0.25
_FORK = Option("fork", "Continue in a fork", "c-f")
_MEETING = (
    Option("attach", "Attach: see what the others say, and take turns"),
    _FORK,
    Option("take", "Take the conversation over", "c-t"),
)
_IN_TURN = (
    Option("watch", "Watch it and wait"),
    _FORK,
    Option("take", "Take the conversation over, and send", "c-t"),
    Option("leave", "Do not send; keep it in the input line"),
)
_TAKEN = (
    Option("attach", "Attach again, and send"),
    _FORK,
    Option("take", "Take the conversation back, and send", "c-t"),
    Option("leave", "Do not send; keep it in the input line"),
)


def since(presence: Presence) -> str:
    """Say who talks in a session, and since when."""
    begun = datetime.datetime.fromtimestamp(presence.since_at / 1000).astimezone()
    today = begun.date() == datetime.datetime.now().astimezone().date()
    who = told(presence)
    return f"{who[:1].upper()}{who[1:]} talks in this session since {begun:{'%H:%M' if today else '%Y-%m-%d %H:%M'}}."


class Busy:
    """Asks the person what to do, and does it. Text typed meanwhile is never lost: it is sent, or put into the line."""

    def __init__(self, talk: Conversation, screen: Screen, entry: Entry, shows: Shows, typed: Typed) -> None:
        self._talk = talk
        self._shows = shows
        self._screen = screen
        self._entry = entry
        self._typed = typed

    async def meet(self, others: Sequence[Presence]) -> bool:
        """Tell who else is in the session, and let the person choose; say whether the talk goes on.

        A message that is entered instead of a choice attaches, and is sent.
        """
        for other in others:
            self._screen.notice(since(other), warning=True)
        try:
            chosen = await self._entry.choose(_MEETING, begin=self._typed.line, entered="Enter attaches and sends it.")
        except (EOFError, KeyboardInterrupt):
            return False
        self._typed.take(chosen)
        if chosen.name == "fork":
            self._screen.outcome(await commands.run(self._talk, "/fork"))
        elif chosen.name == "take":
            await self._talk.arrive("terminal", take_over=True)
            self._screen.notice("The session is yours. The others were told.")
        else:
            self._screen.notice("Attached. What is said there appears here.")
        return True

    async def choose(self, said: str, error: SessionBusy) -> None:
        """Let the person choose what becomes of a message that could not be sent."""
        holder = error.fields.get("holder", "another process")
        if isinstance(error, SessionTaken):
            await self._taken(said, holder)
            return
        self._screen.notice(f"Another window is in the middle of a turn in this session ({holder}).", warning=True)
        name = await self._answer(_IN_TURN)
        if name == "watch":
            await self._watch()
        await self._go_on(name, said)

    async def _taken(self, said: str, holder: str) -> None:
        self._screen.notice(f"This session was taken over by {holder}.", warning=True)
        name = await self._answer(_TAKEN)
        if name == "attach":
            await self._talk.arrive("terminal")
            await self._say(said)
        else:
            await self._go_on(name, said)

    async def _go_on(self, name: str | None, said: str) -> None:
        """Say it in a fork, or in a session that is taken over for it; else put it back into the input line."""
        if name == "fork":
            self._screen.outcome(await commands.run(self._talk, "/fork"))
            await self._say(said)
        elif name == "take":
            await self._say(said, take_over=True)
        else:
            self._typed.put_back(said)

    async def _say(self, said: str, *, take_over: bool = False) -> None:
        from recollect.channels.terminal.talk import say  # noqa: PLC0415  it imports this file

        await say(self._talk, said, self._shows, take_over=take_over)

    async def _answer(self, options: Sequence[Option]) -> str | None:
        """Return the choice; None if there was none. A message that is entered instead waits in the input line."""
        try:
            chosen = await self._entry.choose(options, entered="Enter keeps it in the input line.")
        except (EOFError, KeyboardInterrupt):
            return None
        self._typed.line = chosen.text
        return chosen.name

    async def _watch(self) -> None:
        """Show what the other one stores, until its turn is over. Ctrl-C stops watching."""
        from recollect.channels.terminal.talk import stopping  # noqa: PLC0415  it imports this file

        session = self._talk.session
        seen = max((message.position for message in await session.messages(1)), default=0)
        self._screen.notice("Watching. Ctrl-C stops that.")
        stopped = asyncio.Event()
        with stopping(stopped.set):
            while not stopped.is_set():
                for message in await session.messages(50):
                    if message.position > seen and message.state != "streaming":
                        self._screen.message(message)
                        seen = message.position
                if not any(turn.status == "open" for turn in (await session.turns())[-1:]):
                    break
                await asyncio.sleep(_LOOK)
        self._screen.notice("The other turn is over." if not stopped.is_set() else "No longer watching.")
