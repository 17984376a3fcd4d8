"""One talk in one session: the loop that asks a model and records itself.

The question is stored before the model is asked; each response, tool call and tool result as it completes; the text of
an answer as it streams. Whatever ends the run, what was there is kept and marked, and the next question just works.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from recollect import ops
from recollect.agent import recorder, titles, tools
from recollect.agent.approvals import Approvals
from recollect.agent.attendance import Attendance
from recollect.agent.events import (
    Event,
    Notice,
    ReasoningDelta,
    Responded,
    TextDelta,
    Titled,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from recollect.agent.following import Following
from recollect.agent.models import DEMO, Model
from recollect.agent.naming import Naming
from recollect.agent.progress import Progress
from recollect.agent.recorder import Ending, Recorder, Recording
from recollect.context.compaction import CompactionPolicy
from recollect.context.drafts import question
from recollect.context.window import Window
from recollect.errors import InvalidValue, ModelError, RecollectError, SessionBusy, StoreError
from recollect.model import keys
from recollect.model.compaction import Compaction
from recollect.model.message import Draft, Message
from recollect.model.part import TextPart
from recollect.model.presence import Presence
from recollect.model.tokens import estimate
from recollect.store_async.session import AsyncSession

if TYPE_CHECKING:
    from recollect.agent.agent import Agent

_RESERVED = 0.25
"""The part of the window that is left for the answer, the tools and errors of estimation."""

_WHEN_FULL = CompactionPolicy()
UNFINISHED = "The model's stream ended without a finish reason. The answer may not be complete; what came is kept."


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer: its text, how the turn ended, and what it used."""

    text: str
    status: str
    session: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    truncated: bool = False


class Conversation:
    """A talk. `send()` gives what happens as it happens, `ask()` the whole answer, `stop()` ends an answer early."""

    def __init__(self, agent: Agent, session: AsyncSession, model: Model) -> None:
        self.agent = agent
        self.session = session
        self.model = model
        self.attendance = Attendance()
        self.stays = False
        """Whether the talk keeps its session, as a place has one: what begins anew begins in it."""
        self.within: str | None = None
        """The session that searches are limited to; None searches everything."""
        self.presents: Callable[[Draft | Message], Draft | Message] | None = None
        """How a message is put to the model: who said it, and what the model can read of its files."""
        self.approvals = Approvals(self, self._emit)
        self.approvals.approver = agent.approve
        self._recorder = Recorder(self._emit)
        self._naming = Naming(self._titled)
        self._queue: asyncio.Queue[Event | None] | None = None
        self._notices: list[Event] = []
        self._run: asyncio.Task[None] | None = None
        self._taken: RecollectError | None = None
        self._closing = self._loaded = False
        self._memory: list[Draft | Message] = []

    @property
    def budget(self) -> int:
        """How many tokens may be sent to the model, the instructions included."""
        return max(int(self.model.window * (1 - _RESERVED)), 1)

    @property
    def busy(self) -> bool:
        """Whether an answer is in progress here."""
        return self._run is not None and not self._run.done()

    @property
    def held(self) -> int:
        """How many messages wait in memory for a store that fails."""
        return self._recorder.held

    def _emit(self, event: Event) -> None:
        if self._queue is None:
            self._notices.append(event)
        else:
            self._queue.put_nowait(event)

    def unsaved(self) -> list[Draft]:
        """Give the messages that wait in memory for a store that fails."""
        return self._recorder.unsaved()

    def notices(self) -> list[Event]:
        """Take what happened between two turns: the store came back, the session got its title."""
        taken, self._notices = self._notices, []
        return taken

    async def send(
        self, said: Any, *, wait: float = 0.0, take_over: bool = False, key: str | None = None, hold: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Say something, and give what happens as it happens. The last event is TurnEnded.

        A session takes one turn at a time: `wait` says for how many seconds to wait for another, here or in another
        process, before SessionBusy; `take_over` ends the other one. What was said under the same `key` before is
        AlreadySaid, and not answered again. Where the store fails, what is said is held in memory and the talk goes on;
        with `hold=False` it is refused with the store's error instead, for who promises that it is stored.
        """
        async with self._alone(wait):
            await self.attendance.check(take_over=take_over)
            queue = self._queue = asyncio.Queue[Event | None]()
            for event in self.notices():
                queue.put_nowait(event)
            run = self._run = asyncio.create_task(self._turn(question(said), wait, take_over, key, hold=hold))
            run.add_done_callback(lambda _: queue.put_nowait(None))
            try:
                while (event := await queue.get()) is not None:
                    yield event
                if run.cancelled():  # while it waited for its turn: nothing was said
                    yield TurnEnded(session=self.session.id, status="cancelled")
                else:
                    run.result()
            finally:
                self._queue = None
                await self._ended(run)

    async def _ended(self, run: asyncio.Task[None]) -> None:
        """See to it that a run has come to its end, also where nobody listens any more."""
        if not run.done() and not self._closing:
            run.cancel()
        while not run.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([run])

    @contextlib.asynccontextmanager
    async def _alone(self, wait: float) -> AsyncGenerator[None]:
        lock = self.agent.lock(self.session.id)
        try:
            await asyncio.wait_for(lock.acquire(), wait if lock.locked() else None)
        except TimeoutError as error:
            raise SessionBusy(session=self.session.id, holder="this process", until="its answer is complete") from error
        try:
            yield
        finally:
            lock.release()

    async def ask(
        self, said: Any, *, wait: float = 0.0, take_over: bool = False, tell: Callable[[Event], None] | None = None
    ) -> Answer:
        """Say something and give the whole answer. A model that fails is a ModelError.

        `tell` is called with each event as it happens.
        """
        ended: TurnEnded | None = None
        async with contextlib.aclosing(self.send(said, wait=wait, take_over=take_over)) as events:
            async for event in events:
                if tell is not None:
                    tell(event)
                if isinstance(event, TurnEnded):
                    ended = event
        assert ended is not None
        if ended.status == "failed":
            raise ModelError(ended.error, model=self.model.name, reason=ended.error)
        fields = {name: getattr(ended, name) for name in Answer.__struct_fields__}
        return Answer(**fields)

    def stop(self) -> bool:
        """End the answer that is in progress; what came is kept. Say whether there was one."""
        return self._run is not None and not self._closing and not self._run.done() and self._run.cancel()

    async def _turn(self, said: Sequence[Draft], wait: float, take_over: bool, key: str | None, *, hold: bool) -> None:
        """Run one turn: store the question, ask, store what comes, end."""
        self._taken, self._closing = None, False
        started = time.monotonic()
        recording = Recording(self._recorder, self.session, self._lost)
        said = [self._counted(draft) for draft in said]
        await recording.open(said, wait=wait, take_over=take_over, key=key, hold=hold)
        self._memory += said
        self.approvals.begin(recording)
        self._emit(TurnStarted(session=self.session.id, turn=recording.id))
        progress = Progress(recording)
        status: Ending = "completed"
        error: BaseException | None = None
        try:
            await self._answer(progress)
            if progress.unfinished:
                status, error = "interrupted", ModelError(UNFINISHED, model=self.model.name, reason=UNFINISHED)
        except asyncio.CancelledError as stopped:
            status, error = "cancelled", stopped
        except Exception as failed:  # noqa: BLE001  whatever a model raises, the turn ends and the person is told
            status, error = "failed", failed
        self._closing = True  # from here on it is not cancelled any more: what came must be marked
        if error is not None and status != "interrupted":
            self._keep(progress.cut_off(error))
        await self._close(recording, progress, status, error, int((time.monotonic() - started) * 1000))

    async def _close(
        self, recording: Recording, progress: Progress, status: Ending, error: BaseException | None, latency: int
    ) -> None:
        await recording.end(status, latency, error)
        if status == "completed":
            await self._make_title()
        told = None if error is None or status == "cancelled" else _sentence(error)
        shown: Any = "interrupted" if self._taken is not None else status
        if self._taken is not None:
            told = f"Another process took this session over, and this answer ends here. {self._taken}"
        usage = recording.usage() or progress.usage()
        ended = TurnEnded(
            session=self.session.id,
            status=shown,
            text=progress.text,
            latency_ms=latency,
            error=told,
            truncated=progress.truncated,
            **usage,
        )
        self._emit(ended)

    async def _answer(self, progress: Progress) -> None:
        instructions = self.agent.instructions()
        spoken = await self._spoken(self.budget - estimate([TextPart(text=instructions)]))
        if self.presents is not None:
            spoken = [self.presents(draft) for draft in spoken]
        known = [
            *tools.built_in(self.session.store, self.session.id, self.within),
            *self.agent.tools,
            *[self._delegate_tool(agent) for agent in self.agent.delegates],
        ]
        given = [] if self.model.name == DEMO else await self.agent.given_tools(self._emit, self.approvals)
        events = self.model.run(spoken, instructions=instructions, tools=known, toolsets=given)
        async with contextlib.aclosing(events):
            while (event := await self._next(events, progress)) is not None:
                match event:
                    case TextDelta():
                        progress.piece(event.text, "text")
                    case ReasoningDelta():
                        progress.piece(event.text, "reasoning")
                    case Responded():
                        kept = progress.responded(self._counted(event.message))
                        self._keep(kept)
                        event = Responded(message=kept[0])
                    case ToolStarted():
                        progress.tool_started(event)
                    case ToolFinished():
                        self._keep(progress.tool_finished(event, self._counted(event.message)))
                    case _:
                        pass
                self._emit(event)
                if isinstance(event, ToolStarted):
                    await progress.noted()

    async def _next(self, events: AsyncGenerator[Event, None], progress: Progress) -> Event | None:
        """Wait for the next event; a model that is silent for too long has failed. A tool may take its time."""
        try:
            async with asyncio.timeout(None if progress.tools_running else self.agent.timeout):
                return await anext(events, None)
        except TimeoutError as error:
            reason = f"it was silent for {self.agent.timeout:g} seconds"
            raise ModelError(model=self.model.name, reason=reason) from error

    async def _spoken(self, budget: int) -> list[Draft | Message]:
        """Give what the model is to read: from the store, and from memory what the store does not have yet."""
        settled = self._recorder.settled
        if settled or not self._loaded:
            with contextlib.suppress(StoreError, TimeoutError):
                if settled and self.agent.compact:
                    await self._compact_if_full()
                reading = self._read(max(budget, 1))
                stored = await asyncio.wait_for(reading, None if settled else recorder.PATIENCE)
                self._memory = stored if settled else stored + self._memory
                self._loaded = True
        return list(self._memory)

    async def _read(self, budget: int) -> list[Draft | Message]:
        """Read what is sent on, as history() does, without writing it as dicts and reading those again."""
        store, window = self.session.store, Window(budget)
        view = await store.follow(ops.views.active(store.scope(), self.session.id, enough=window.enough))
        return list(window.fit(view.messages))

    def _keep(self, drafts: Sequence[Draft]) -> None:
        self._memory += drafts

    def _counted(self, draft: Draft) -> Draft:
        """Give a message its time, which is now and not when the store is back, and its size where a hook counts it."""
        tokens, count = draft.tokens, self.agent.count_tokens
        if count is not None and tokens is None:
            tokens = max(int(count(titles.said(draft))), 0)
        created = draft.created_at or time.time_ns() // 1_000_000
        return msgspec.structs.replace(draft, tokens=tokens, created_at=created)

    def _lost(self, error: RecollectError) -> None:
        """Another process has the session, or it is gone: this run must not go on writing."""
        self._taken = error
        self.stop()

    async def _make_title(self) -> None:
        if self._recorder.settled:
            asks = self.agent.title is not None or self.model.name != DEMO
            await self._naming.name(self.session, self._memory, partial(self._written, "title") if asks else None)

    def _titled(self, session: AsyncSession, title: str) -> None:
        if session.id == self.session.id:  # the talk may have moved on while the title was made
            self._emit(Titled(title=title))

    async def _written(self, task: str, spoken: Sequence[Any]) -> str:
        hook = self.agent.title if task == "title" else self.agent.summary
        if hook is None:
            return await self.model.write(task, spoken)
        made: Any = hook(spoken)
        return (await made if inspect.isawaitable(made) else made) or ""

    async def summarize(self) -> str:
        """Have the conversation so far summed up, by the hook or by the model."""
        return await self._written("summary", await self._read(self.budget))

    async def compact(self) -> Compaction:
        """Put a summary in the place of all but the newest turns; nothing is deleted, and it can be undone."""

        async def summed_up(messages: Sequence[Any]) -> str:
            return await self._written("summary", messages)

        return await self.session.compact(summarize=summed_up, keep_turns=_WHEN_FULL.keep_turns)

    async def _compact_if_full(self) -> None:
        if not _WHEN_FULL.due(await self.session.active_tokens(), self.budget):
            return
        try:
            await self.compact()
        except InvalidValue:
            return  # one long turn: there is nothing older to sum up
        except RecollectError as error:
            self._emit(Notice(text=f"The conversation could not be compacted: {error}", level="warning"))
            return
        self._emit(Notice(text="What is old was summed up for the model. All of it is kept."))

    async def delegate(self, name: str, task: str, agent: Agent | None = None) -> Answer:
        """Give a task to a sub-agent, which talks in its own session `{this session}:delegate:{name}`."""
        from recollect.agent.agent import Agent as Delegate  # noqa: PLC0415  agent.py imports this module

        helper = agent or Delegate(self.model, store=self.session.store, name=name)
        helper.adopt(self.session.store)
        place = keys.key(keys.Delegate(self.session.id, name))
        talk = await helper.talk(place, title=f"{name}: {titles.shortened(task)}", parent=self.session.id)
        talk.approvals.ask_in(self.approvals)
        following = Following(name, talk.session.id, self._emit)
        try:
            return await talk.ask(task, wait=self.agent.timeout, tell=following.tell)
        finally:
            following.end()

    def _delegate_tool(self, agent: Agent) -> tools.Tool:
        async def ask(task: str) -> str:
            return (await self.delegate(agent.name, task, agent)).text

        ask.__name__ = f"ask_{agent.name}"
        ask.__doc__ = f"Give a task to the sub-agent {agent.name!r} and get its answer."
        return ask

    async def arrive(self, surface: str, *, take_over: bool = False) -> list[Presence]:
        """Take a place in the session, so that others are told, and give who else is there.

        It is kept until the talk is closed or moves. `take_over` sends the others away and ends what they have begun.
        """
        return await self.attendance.begin(self.session, surface, take_over=take_over)

    async def move(self, session: AsyncSession) -> None:
        """Go on in another session: what waits for this one is written first."""
        await self._recorder.drain()
        await self.attendance.move(session)
        self.session, self._memory, self._loaded = session, [], False
        await session.store.set_last_session(session.id)

    async def close(self) -> bool:
        """End what runs and write what waits; say whether everything is stored."""
        if self._run is not None:
            await self._ended(self._run)
        await self.attendance.end()
        await self._naming.end()
        return await self._recorder.close()


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"
