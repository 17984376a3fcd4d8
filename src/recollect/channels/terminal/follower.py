"""What others say in the same session, shown above the prompt while the person is at it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from recollect.agent import approvals
from recollect.agent.attendance import told
from recollect.agent.conversation import Conversation
from recollect.agent.events import Event, TurnStarted
from recollect.errors import NotFound, StoreClosed, StoreError
from recollect.model.message import Message

if TYPE_CHECKING:
    from recollect.channels.terminal.entry import Entry
    from recollect.channels.terminal.screen import Screen

_MOST = 50
_AGAIN = 2.0


class Follower:
    """Watches the session of a talk. It is quiet while the person's own answer, or a picker, has the screen."""

    def __init__(self, talk: Conversation, screen: Screen, entry: Entry) -> None:
        self._talk = talk
        self._screen = screen
        self._entry = entry
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._silent = 0
        self._own: set[str] = set()
        self._session, self._branch, self._seen = "", 0, 0
        self._heard: tuple[int, int | None] = (0, None)
        self._told = False
        self._approval = ""

    async def begin(self) -> None:
        """Watch the session that the talk is in now, from its end on."""
        session = self._talk.session
        await self.settle()
        if self._task is None or self._session != session.id:
            await self.end()
            self._session, self._told = session.id, False
            self._task = asyncio.create_task(self._follow(session.id))

    async def settle(self) -> None:
        """Take what is there now for known."""
        session = self._talk.session
        with contextlib.suppress(StoreError, NotFound):
            await session.refresh()
            self._branch = session.branch
            self._seen = max((message.position for message in await session.messages(1)), default=0)

    def note(self, event: Event) -> None:
        """Know the turns of one's own."""
        if isinstance(event, TurnStarted) and event.turn is not None:
            self._own.add(event.turn)

    @contextlib.contextmanager
    def quiet(self) -> Generator[None]:
        """Show nothing for a while."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    async def _follow(self, session: str) -> None:
        while True:
            try:
                async with self._talk.session.store.watch(session) as changes:
                    async for _ in changes:
                        await self.look()
            except StoreClosed:
                return
            except (StoreError, NotFound):
                await asyncio.sleep(_AGAIN)  # the talk tells that the store fails; here it is only tried again

    async def look(self) -> None:
        """Show what is new, unless the screen is taken; whoever takes it looks afterwards."""
        if self._silent or self._session != self._talk.session.id:
            return
        async with self._looking:
            try:
                new, moved = await self._news()
                await self._taken()
                await self._asked()
            except StoreError:
                return
            except NotFound as error:
                if not self._told:
                    self._told = True
                    await self._warn(str(error))
                return
            if new or moved:
                await self._entry.above(lambda: self._show(new, moved=moved))

    async def _news(self) -> tuple[list[Message], bool]:
        session = self._talk.session
        await session.refresh()
        moved = session.branch != self._branch
        self._branch = session.branch
        last = await session.messages(_MOST)
        begun = [message for message in last if message.state in ("streaming", "pending")]
        others = any(not self._is_own(message) for message in begun)
        self._entry.status("Another window is answering here." if others else "")
        if begun:
            last = last[: last.index(begun[0])]
        if moved:
            last = last[-2:]
        new = [message for message in last if moved or message.position > self._seen]
        self._seen = max((message.position for message in last), default=0 if moved else self._seen)
        return [message for message in new if not self._is_own(message)], moved

    def _is_own(self, message: Message) -> bool:
        return f"{message.branch}.{message.turn}" in self._own

    def _show(self, new: list[Message], *, moved: bool) -> None:
        if moved:
            self._screen.notice("Another window went back in this conversation.")
        for message in new:
            if message.turn is None or (message.branch, message.turn) != self._heard:
                self._screen.notice("From another window:")
            self._heard = (message.branch, message.turn)
            self._screen.message(message)

    async def _asked(self) -> None:
        """Tell that a tool waits for approval in another window, which can be given here."""
        session = self._talk.session
        approval = await approvals.waiting(session)
        if approval is None or approval.id == self._approval or approval.holder == session.store.scope().holder:
            return
        self._approval = approval.id
        await self._warn(f"{approvals.question(approval)} /approve once, session, always or deny answers.")

    async def _taken(self) -> None:
        place = self._talk.attendance.id
        there = await self._talk.session.present()
        gone = place is not None and all(one.id != place for one in there)
        if gone and not self._told:
            who = ", ".join(told(one) for one in there) or "Another window"
            await self._warn(f"This session was taken over by {who}. You can still read it.")
        self._told = gone

    async def _warn(self, text: str) -> None:
        await self._entry.above(lambda: self._screen.notice(text, warning=True))

    async def end(self) -> None:
        """Watch no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
