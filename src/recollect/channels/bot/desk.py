"""The desk of a bot: it takes messages in, keeps each place's talk apart, and sees to it that each is answered once.

Each place has one line. Messages of a place are answered in the order they came, and any number of places at once. What
goes wrong with one message is told there in words and touches nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping

from recollect.agent import Agent
from recollect.agent.conversation import Conversation
from recollect.agent.events import Notice, Responded, TextDelta, TurnEnded
from recollect.channels.bot import command, recovery
from recollect.channels.bot.access import Access
from recollect.channels.bot.approving import Questions
from recollect.channels.bot.delivery import PATIENCE, Delivery, insist
from recollect.channels.bot.incoming import Incoming
from recollect.channels.bot.ledger import Ledger
from recollect.channels.bot.outlet import Outlet, SlowDown, Undelivered
from recollect.channels.bot.presenting import presented
from recollect.channels.bot.splitting import split
from recollect.errors import AlreadySaid, KeyReused, RecollectError, SessionBusy
from recollect.formats import truncation
from recollect.model import amount, keys
from recollect.store_async import AsyncSession

_log = logging.getLogger(__name__)
_WAIT = 30.0
_REMEMBERED = 10_000
_LEAVING = 10.0
STRANGER = (
    "I talk only to people who were let in, and I do not know you. Who runs me can let you in: your id is `{id}`."
)
UNREADABLE = "I can read texts, pictures and other files, and this was none of them."
STOPPED = "_(Stopped.)_"
CUT_OFF = (
    "\u26a0\ufe0f _This answer was cut off, because I am being stopped. What there is of it is kept: ask me to go on._"
)
Job = Callable[[], Awaitable[None]]


class _Line:
    """What waits in one place, and the talk there."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.task: asyncio.Task[None] | None = None
        self.talk: Conversation | None = None


class Desk:
    """One bot's desk over an agent. `reach` gives the outlet for a message, also for one that came before a restart.

    `everything` lets searches find what was said in other places; `inherit` has a new thread begin with the history of
    its parent, as a fork. `refetch` fetches the files again of a message that a restart left unread.
    """

    def __init__(
        self,
        agent: Agent,
        bot: str,
        reach: Callable[[Incoming], Outlet],
        access: Access,
        *,
        everything: bool = False,
        inherit: bool = False,
        patience: float = PATIENCE,
        refetch: Callable[[Incoming], Awaitable[Incoming | None]] | None = None,
    ) -> None:
        self.agent = agent
        self.ledger = Ledger(agent.store, bot)
        self.access = access
        self.reach, self.refetch = reach, refetch
        self._everything, self._inherit, self._patience = everything, inherit, patience
        self.questions = Questions(self.tell, patience)
        """Tools that wait for approval: an adapter hands over the press of a button with press()."""
        self._platform = bot.partition(":")[0]
        self._lines: dict[str, _Line] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._strangers: set[str] = set()
        self.orphans: set[str] = set()
        """Sessions in which the last process of this bot left a turn open: it is this one's to end."""
        self._closing = False

    @property
    def marks(self) -> Mapping[str, str]:
        """How far the adapter had read when it last called take() or mark()."""
        return self.ledger.marks

    async def open(self) -> None:
        """Take up what a crash or a restart left: tell who waits, once, and answer what was never read."""
        await self.ledger.load()
        for entry in self.ledger.entries:
            self._remember(entry.incoming)
            self._put(entry.incoming.session, recovery.job(self, entry))

    async def admit(self, incoming: Incoming) -> bool:
        """Say whether a message is for the bot, new, and from somebody who may talk; files are fetched only then.

        A stranger who writes to the bot directly is told so once, with the id to let in. In a group there is silence.
        """
        if not incoming.addressed or self.knows(incoming):
            return False
        if self.access.allows(incoming):
            return True
        if incoming.direct and incoming.author.id not in self._strangers and len(self._strangers) < _REMEMBERED:
            self._strangers.add(incoming.author.id)
            with contextlib.suppress(SlowDown, Undelivered):
                await self.reach(incoming).send(STRANGER.format(id=incoming.author.id))
        return False

    def knows(self, incoming: Incoming) -> bool:
        """Say whether a message was taken before, as far as memory and the ledger go; the store knows the rest."""
        return incoming.name in self._seen or self.ledger.has(incoming)

    async def take(self, incoming: Incoming, mark: tuple[str, str] | None = None) -> bool:
        """Take a message that was admitted. When this returns it is on disk, and the platform may forget it.

        False where it was taken before. `mark` notes how far the adapter has read, in the same write.
        """
        if self._closing or self.knows(incoming):
            return False
        self._remember(incoming)
        if command.parsed(incoming.text) == (command.STOP, "") and self.stop(incoming.session):
            await self.ledger.mark(mark)
            return True
        await self.ledger.take(incoming, mark)
        if not self._closing:  # it may have begun meanwhile; then it is answered after the next start
            self._put(incoming.session, lambda: self.answer(incoming))
        return True

    async def mark(self, name: str, value: str) -> None:
        """Note how far the adapter has read where there was nothing to take."""
        await self.ledger.mark((name, value))

    def stop(self, session: str) -> bool:
        """Stop the answer that is being written in a place; say whether there was one."""
        line = self._lines.get(session)
        return line is not None and line.talk is not None and line.talk.stop()

    def _remember(self, incoming: Incoming) -> None:
        self._seen[incoming.name] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def _line(self, session: str) -> _Line:
        return self._lines.setdefault(session, _Line())

    def _put(self, session: str, job: Job) -> None:
        line = self._line(session)
        line.jobs.append(job)
        if line.task is None or line.task.done():
            line.task = asyncio.create_task(self._work(session, line), name=f"place {session}")

    async def _work(self, session: str, line: _Line) -> None:
        """Do what waits in one place, one after another, until nothing does."""
        while line.jobs:
            job = line.jobs.popleft()
            try:
                await job()
            except Exception:  # noqa: BLE001  the bot outlives every message
                _log.exception("A message in %s could not be answered", session)
        if line.talk is None or not line.talk.held:  # what the store did not take yet is held by the talk
            self._lines.pop(session, None)

    async def settle(self) -> None:
        """Wait until nothing waits any more."""
        while tasks := [line.task for line in self._lines.values() if line.task is not None and not line.task.done()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop: answers that are being written end here, and say so; what waits is answered after the next start."""
        self._closing = True
        tasks: list[asyncio.Task[None]] = []
        for line in self._lines.values():
            line.jobs.clear()
            if line.task is not None and not line.task.done():
                tasks.append(line.task)
                if line.talk is not None:
                    line.talk.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVING)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def answer(self, incoming: Incoming) -> None:
        """Answer one message, and let go of it when the answer stands there."""
        outlet = self.reach(incoming)
        try:
            order = command.parsed(incoming.text)
            if order is None:
                await self._say(incoming, outlet)
            else:
                await self.tell(outlet, await self._command(incoming, *order))
        except RecollectError as error:
            _log.warning("A message in %s could not be answered: %s", incoming.session, error)
            with contextlib.suppress(Undelivered):
                await self.tell(outlet, f"\u26a0\ufe0f {error}")
        except Exception as error:
            await self.ledger.done(incoming)
            with contextlib.suppress(Undelivered):
                await self.tell(outlet, f"\u26a0\ufe0f This could not be answered: {type(error).__name__}.")
            raise
        await self.ledger.done(incoming)

    async def tell(self, outlet: Outlet, text: str) -> None:
        """Send a text, in as many messages as it needs."""
        for piece in await asyncio.to_thread(split, text, outlet.limit, outlet.measure):  # hundreds of ms if it is long
            await insist(lambda piece=piece: outlet.send(piece), self.patience)

    @property
    def patience(self) -> float:
        """How many seconds a delivery is tried for."""
        return min(self._patience, _LEAVING / 2) if self._closing else self._patience

    async def _command(self, incoming: Incoming, name: str, argument: str) -> str:
        if name == "fork" and argument.lower() in ("channel", "parent", "group"):
            return await self._begin_with_parent(incoming)
        talk = await self.talk(incoming)
        return (await command.run(talk, name, argument)).text

    async def _begin_with_parent(self, incoming: Incoming) -> str:
        """Begin a thread with the history of what it belongs to, as a fork."""
        store, session = self.agent.store, incoming.session
        parent = None if incoming.parent is None else await store.get_session(keys.key(incoming.parent))
        if parent is None or not parent.message_count:
            return "There is no history to begin with: this place belongs to none in which something was said."
        here = await store.get_session(session)
        if here is not None:
            if here.message_count or len(await here.branches()) > 1:
                return "Something was said here already. A new thread can begin with the history of its channel."
            await store.erase_session(session)
        await _forked(parent, incoming.session)
        [messages] = await store.shown_counts([parent])
        shared = amount.many(messages, "message")
        return f"This begins with the {shared} of `{parent.id}`, as a fork: they stay there too."

    async def follow(self, place: keys.Place, before: keys.Place) -> None:
        """Have a place go on with what was said in another: the platform gave it a new id."""
        store, session = self.agent.store, keys.key(place)
        old = await store.get_session(keys.key(before))
        if old is not None and old.message_count and await store.get_session(session) is None:
            await _forked(old, session, title=old.title)

    async def talk(self, incoming: Incoming) -> Conversation:
        """Give the talk of a place."""
        line = self._line(incoming.session)
        if line.talk is None:
            session = await self._session(incoming)
            line.talk = await self.agent.talk(session)
            line.talk.stays, line.talk.presents = True, presented
            line.talk.within = None if self._everything else session.id
            if session.model is None:
                await session.update(model=line.talk.model.name)
        return line.talk

    async def _session(self, incoming: Incoming) -> AsyncSession:
        store = self.agent.store
        if self._inherit and incoming.parent is not None and await store.get_session(incoming.session) is None:
            parent = await store.get_session(keys.key(incoming.parent))
            if parent is not None and parent.message_count:
                return await _forked(parent, incoming.session)
        return await store.session(incoming.session)

    async def _say(self, incoming: Incoming, outlet: Outlet) -> None:
        """Put a message to the agent and show the answer as it comes."""
        draft = incoming.draft()
        if not draft.parts:
            await self.tell(outlet, UNREADABLE)
            return
        for note in incoming.notes:
            with contextlib.suppress(Undelivered):
                await self.tell(outlet, f"\u26a0\ufe0f {note}")
        talk = await self.talk(incoming)
        talk.approvals.who = f"{self._platform}:{incoming.author.id}"
        talk.approvals.approver = self.questions.approver(incoming, outlet)
        delivery = Delivery(outlet, lambda ids: self.ledger.sent(incoming, ids), patience=self.patience)
        delivery.begin()
        take_over = incoming.session in self.orphans
        self.orphans.discard(incoming.session)
        ended: TurnEnded | None = None
        try:
            pause = ""
            async for event in talk.send(draft, key=incoming.key(), wait=_WAIT, take_over=take_over):
                match event:
                    case TextDelta():
                        delivery.write(pause + event.text)
                        pause = ""
                    case Responded():
                        pause = "\n\n" if delivery.text.strip() else ""
                    case Notice() if event.level == "warning":
                        _log.warning("%s: %s", incoming.session, event.text)
                    case TurnEnded():
                        ended = event
                    case _:
                        pass
        except (AlreadySaid, KeyReused):
            return  # the platform sent it again: it has its answer
        except SessionBusy:
            await self.tell(outlet, "Another program is talking in this conversation. Say it again when it is done.")
            return
        finally:
            await delivery.drop()
        await self._finish(delivery, ended)

    async def _finish(self, delivery: Delivery, ended: TurnEnded | None) -> None:
        """Show the end of an answer, and say so where it is none."""
        note = ""
        if ended is not None and not delivery.text.strip():
            delivery.write(ended.text)
        if ended is None or ended.status == "cancelled":
            note = CUT_OFF if self._closing else STOPPED
        elif ended.status != "completed":
            note = f"\u26a0\ufe0f {ended.error or 'The answer was cut off.'}"
        elif not delivery.text.strip():
            note = "_(The model gave no answer.)_"
        elif ended.truncated:
            note = f"\u26a0\ufe0f {truncation.SENTENCE}"
        try:
            await delivery.finish(note, patience=self.patience)
        except Undelivered as error:
            _log.warning("An answer was stored, and could not be delivered: %s", error)


async def _forked(parent: AsyncSession, session: str, title: str | None = None) -> AsyncSession:
    """Begin a place's session with the past of another."""
    channel, channel_id = keys.place(session)
    return await parent.fork(id=session, title=title, channel=channel, channel_id=channel_id, metadata=None)
