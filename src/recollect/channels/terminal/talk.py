"""The talk itself: read a line, run a command or ask the agent, show what happens, until the person leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from recollect import ops
from recollect.agent import commands
from recollect.agent.conversation import Conversation
from recollect.agent.events import Event, TurnEnded
from recollect.agent.session_commands import resume_hint
from recollect.channels.terminal.approving import Approving
from recollect.channels.terminal.busy import Busy
from recollect.channels.terminal.follower import Follower
from recollect.channels.terminal.safe import line
from recollect.channels.terminal.typed import Typed
from recollect.errors import RecollectError, SessionBusy, StoreError
from recollect.model.message import Message
from recollect.model.presence import Presence

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
        self._typed = Typed()
        self._busy = Busy(talk, screen, entry, self, self._typed)
        self._follower = Follower(talk, screen, entry)
        self._approving = Approving(screen, entry, self._typed, talk.stop)
        talk.approvals.approver = self._approving.approve
        self._met = ""

    async def run(self) -> None:
        """Talk until the person leaves."""
        with contextlib.suppress(StoreError):  # a talk goes on without a place, and without a store
            await self.talk.arrive("terminal")
        goes_on = await self._arrive()
        while goes_on:
            await self._follower.look()
            for event in self.talk.notices():
                self._screen.event(event)
            said = await self._read()
            if said is None:
                return
            with self._follower.quiet():
                goes_on = await self._done(said)

    async def _done(self, said: str) -> bool:
        """Do what was said; say whether the talk goes on."""
        if commands.is_command(said):
            return await self._command(said)
        await self._say(said)
        return True

    async def _read(self) -> str | None:
        """Read an input; None where the person leaves."""
        if self._typed.entered:
            entered = self._typed.entered.popleft().strip()
            self._screen.entered(entered)
            return entered
        begin, self._typed.line = self._typed.line, ""
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
            await say(self.talk, said, self)
        except SessionBusy as error:
            before = self.talk.session.id
            await self._busy.choose(said, error)
            if self.talk.session.id != before:
                await self._follower.begin()
        except RecollectError as error:
            self._typed.put_back(said)
            self._screen.notice(str(error), warning=True)

    def event(self, event: Event) -> None:
        """Show what happens in a turn of one's own."""
        self._follower.note(event)
        if not self._approving.holds(event):
            self._screen.event(event)

    def outcome(self, outcome: commands.Outcome) -> None:
        """Show what a command did."""
        self._screen.outcome(outcome)

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
        if outcome.action in ("moved", "edit") and not outcome.failed and not await self._arrive():
            return False
        await self._follower.settle()
        if outcome.action == "edit":
            self._typed.put_back(str(outcome.data))
        return outcome.action != "quit"

    async def _arrive(self) -> bool:
        """Show where one is, the end of what was said before, and who else is there; say whether the talk goes on."""
        await self._shown()
        await self._follower.begin()
        if self._met == self.talk.session.id:
            return True
        others: list[Presence] = []
        with contextlib.suppress(StoreError):
            others = await self.talk.attendance.others()
        before = self._met = self.talk.session.id
        if others and not await self._busy.meet(others):
            return False
        if self.talk.session.id != before:
            self._met = self.talk.session.id
            await self._follower.begin()
        return True

    async def _shown(self) -> None:
        session = self.talk.session
        title = session.title or ("New conversation" if not session.message_count else session.id)
        self._screen.welcome(title, f"{self.talk.model.name} \u00b7 {session.id} \u00b7 /help lists the commands")
        if session.title:
            self._screen.titled(session.title)
        past = await session.messages(_REMEMBERED)
        self._screen.past(past[-_PAST:], await self._earlier(past[-_PAST:]))
        self._entry.remember([message.text for message in past if message.role == "user" and message.text])
        found = await session.store.list_sessions(_NAMES)
        self._entry.names.sessions = [(other.id, other.title or "") for other in found if other.id != session.id]

    async def _earlier(self, shown: Sequence[Message]) -> int:
        """Count the messages before those that are shown, without tool steps."""
        store, session = self.talk.session.store, self.talk.session
        if not shown:
            return 0
        before = ops.messages.Stretch(session.id, until=shown[0].position - 1)
        [earlier] = await store.run(ops.messages.count_shown(store.scope(), [before]))
        return earlier

    async def leave(self) -> None:
        """Close the talk; what could not be stored is put into a file."""
        await self._follower.end()
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
