"""The talk itself: read a line, run a command or ask the agent, show what happens, until the person leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from recollect.agent import commands
from recollect.agent.conversation import Conversation
from recollect.agent.events import Event, TurnEnded
from recollect.agent.session_commands import resume_hint
from recollect.channels.terminal.busy import Busy
from recollect.channels.terminal.safe import line
from recollect.errors import SessionBusy

if TYPE_CHECKING:
    from recollect.channels.terminal.entry import Entry
    from recollect.channels.terminal.screen import Screen

_PAST = 6
_REMEMBERED = 200
_NAMES = 200


class Shows(Protocol):
    """What shows a talk: a screen, plain text, or JSON lines."""

    def event(self, event: Event) -> None:
        """Show what happens."""
        ...

    def outcome(self, outcome: commands.Outcome) -> None:
        """Show what a command did."""
        ...


@contextlib.contextmanager
def stopping(stop: Callable[[], object]):  # noqa: ANN201  the type of a context manager says less than its name
    """Have Ctrl-C stop the answer, and not the program, while one is in progress."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        yield  # not on this platform, or not in the main thread
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def say(
    talk: Conversation, said: str, shows: Shows, *, wait: float = 0.0, take_over: bool = False
) -> TurnEnded | None:
    """Ask once and show the answer."""
    ended: TurnEnded | None = None
    with stopping(talk.stop):
        async for event in talk.send(said, wait=wait, take_over=take_over):
            shows.event(event)
            if isinstance(event, TurnEnded):
                ended = event
    return ended


async def once(talk: Conversation, said: str, shows: Shows) -> int:
    """Have one exchange without a terminal; give the exit status."""
    if commands.is_command(said):
        outcome = await commands.run(talk, said)
        shows.outcome(outcome)
        return int(outcome.failed)
    ended = await say(talk, said, shows)
    for event in talk.notices():
        shows.event(event)
    return 0 if ended is not None and ended.status == "completed" else 1


class TerminalTalk:
    """A talk with a person at a terminal."""

    def __init__(self, talk: Conversation, screen: Screen, entry: Entry) -> None:
        self.talk = talk
        self._screen = screen
        self._entry = entry
        self._begin = ""

    async def run(self) -> None:
        """Talk until the person leaves."""
        await self._arrive()
        while True:
            for event in self.talk.notices():
                self._screen.event(event)
            said = await self._read()
            if said is None:
                return
            if not commands.is_command(said):
                await self._say(said)
            elif not await self._command(said):
                return

    async def _read(self) -> str | None:
        """Read an input; None where the person leaves."""
        begin, self._begin = self._begin, ""
        while True:
            try:
                said = (await self._entry.read(begin)).strip()
            except KeyboardInterrupt:
                begin = ""
                self._screen.notice("Ctrl-D leaves.")
                continue
            except EOFError:
                return None
            if said:
                return said

    async def _say(self, said: str) -> None:
        try:
            await say(self.talk, said, self._screen)
        except SessionBusy as error:
            self._begin = await Busy(self.talk, self._screen, self._entry).choose(said, error)

    async def _command(self, written: str) -> bool:
        """Run a command; say whether the talk goes on."""
        outcome = await commands.run(self.talk, written)
        if outcome.action == "pick":
            from recollect.channels.terminal.picker import Picker  # noqa: PLC0415  it is rarely needed

            chosen = await Picker(self.talk.session.store).run()
            if chosen is None:
                return True
            outcome = await commands.run(self.talk, f"/resume {chosen}")
        self._screen.outcome(outcome)
        if outcome.action in ("moved", "edit") and not outcome.failed:
            await self._arrive()
        if outcome.action == "edit":
            self._begin = str(outcome.data)
        return outcome.action != "quit"

    async def _arrive(self) -> None:
        """Show where one is, and the end of what was said before."""
        session = self.talk.session
        title = session.title or ("New conversation" if not session.message_count else session.id)
        self._screen.welcome(title, f"{self.talk.model.name} \u00b7 {session.id} \u00b7 /help lists the commands")
        if session.title:
            self._screen.titled(session.title)
        past = await session.messages(_REMEMBERED)
        self._screen.past(past[-_PAST:], max(session.message_count - _PAST, 0))
        self._entry.remember([message.text for message in past if message.role == "user" and message.text])
        found = await session.store.list_sessions(_NAMES)
        self._entry.names.sessions = [(other.id, other.title or "") for other in found if other.id != session.id]

    async def leave(self) -> None:
        """Close the talk; what could not be stored is put into a file."""
        if not await self.talk.close():
            self._screen.notice(rescued(self.talk), warning=True)


def rescued(talk: Conversation) -> str:
    """Put what could not be stored into a file of its own, and say where it is."""
    unsaved = talk.unsaved()
    told = f"{len(unsaved)} messages could not be stored: the store did not come back."
    try:
        number, path = tempfile.mkstemp(prefix="recollect-unsaved-", suffix=".jsonl")
        with os.fdopen(number, "wb") as file:
            file.writelines(msgspec.json.encode(draft) + b"\n" for draft in unsaved)
    except (OSError, ValueError) as error:
        return f"{told} They could not be put into a file either: {error}"
    return f"{told} They are in {path}, one on each line."


def goodbye(talk: Conversation) -> str:
    """Say how a talk is resumed."""
    return f"Resume it with: {line(resume_hint(talk.session))}"


def interactive() -> bool:
    """Say whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()
