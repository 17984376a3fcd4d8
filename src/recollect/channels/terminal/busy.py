"""When another process talks in the same session: attach, wait and watch, go on in a fork, or take it over."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.agent import commands
from recollect.agent.attendance import told
from recollect.agent.conversation import Conversation
from recollect.errors import SessionBusy, SessionTaken
from recollect.model.presence import Presence

if TYPE_CHECKING:
    from recollect.channels.terminal.entry import Entry
    from recollect.channels.terminal.screen import Screen
    from recollect.channels.terminal.talk import Shows

_LOOK = 0.25


def since(presence: Presence) -> str:
    """Say who talks in a session, and since when."""
    begun = datetime.datetime.fromtimestamp(presence.since_at / 1000).astimezone()
    today = begun.date() == datetime.datetime.now().astimezone().date()
    who = told(presence)
    return f"{who[:1].upper()}{who[1:]} talks in this session since {begun:{'%H:%M' if today else '%Y-%m-%d %H:%M'}}."


class Busy:
    """Asks the person what to do, and does it."""

    def __init__(self, talk: Conversation, screen: Screen, entry: Entry, shows: Shows) -> None:
        self._talk = talk
        self._shows = shows
        self._screen = screen
        self._entry = entry

    async def meet(self, others: Sequence[Presence]) -> bool:
        """Tell who else is in the session, and let the person choose; say whether the talk goes on."""
        for other in others:
            self._screen.notice(since(other), warning=True)
        self._screen.notice(
            "a: attach, see what is said and take turns \u00b7 f: go on in a fork \u00b7 t: take it over "
            "\u00b7 Ctrl-D: leave"
        )
        try:
            answer = (await self._entry.read()).strip().lower()[:1]
        except (EOFError, KeyboardInterrupt):
            return False
        if answer == "f":
            self._screen.outcome(await commands.run(self._talk, "/fork"))
        elif answer == "t":
            await self._talk.arrive("terminal", take_over=True)
            self._screen.notice("The session is yours. The others were told.")
        else:
            self._screen.notice("Attached. What is said there appears here.")
        return True

    async def choose(self, said: str, error: SessionBusy) -> str:
        """Let the person choose; give what to put into the input line afterwards."""
        holder = error.fields.get("holder", "another process")
        if isinstance(error, SessionTaken):
            return await self._taken(said, holder)
        self._screen.notice(f"Another window is in the middle of a turn in this session ({holder}).", warning=True)
        self._screen.notice(
            "w: watch it and wait \u00b7 f: go on in a fork \u00b7 t: take it over \u00b7 Enter: leave it"
        )
        answer = await self._answer()
        if answer == "w":
            await self._watch()
            return said
        return await self._go_on(answer, said)

    async def _taken(self, said: str, holder: str) -> str:
        self._screen.notice(f"This session was taken over by {holder}.", warning=True)
        self._screen.notice("a: attach again \u00b7 f: go on in a fork \u00b7 t: take it back \u00b7 Enter: leave it")
        answer = await self._answer()
        if answer == "a":
            await self._talk.arrive("terminal")
            return await self._say(said)
        return await self._go_on(answer, said)

    async def _go_on(self, answer: str, said: str) -> str:
        """Say it in a fork, or in a session that is taken over for it; give it back where neither was chosen."""
        if answer == "f":
            self._screen.outcome(await commands.run(self._talk, "/fork"))
            return await self._say(said)
        return await self._say(said, take_over=True) if answer == "t" else said

    async def _say(self, said: str, *, take_over: bool = False) -> str:
        from recollect.channels.terminal.talk import say  # noqa: PLC0415  it imports this file

        await say(self._talk, said, self._shows, take_over=take_over)
        return ""

    async def _answer(self) -> str:
        try:
            return (await self._entry.read()).strip().lower()[:1]
        except (EOFError, KeyboardInterrupt):
            return ""

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
