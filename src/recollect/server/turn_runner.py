"""Turn runner: runs turns in the background, at most one for each session; clients can follow them.

A turn continues whether or not a client follows it. Its events are numbered and kept for a while after its end, so
that a client that connects late, or reconnects, misses nothing. Requests with the same idempotency key run once; the
store remembers keys permanently, the cache here is faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from recollect.agent import Agent, Conversation, approvals
from recollect.agent.events import Event, Notice, ReasoningDelta, TextDelta, TurnEnded
from recollect.agent.models import callable_model
from recollect.errors import KeyReused, ModelError, RecollectError
from recollect.store_async import AsyncSession

T = TypeVar("T")


class IdempotencyCache(Generic[T]):
    """Recent actions by idempotency key, so that a repeated request runs once."""

    MAX_ENTRIES = 500  # recent keys. The store has all of them; the cache only saves a read.

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], tuple[Any, asyncio.Task[T]]] = {}

    async def run(self, key: tuple[str, str], content: Any, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work, or return the result of an earlier run with this key. Raise KeyReused for other content."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry[0] != content:
                raise KeyReused(session=key[0], key=key[1])
            return await asyncio.shield(entry[1])
        task = asyncio.ensure_future(_call(work))
        self._entries[key] = (content, task)
        task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(task)

    def _settle(self, key: tuple[str, str], task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._entries.pop(key, None)  # it failed, so it may be tried again
        while len(self._entries) > self.MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]


async def _call(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


_log = logging.getLogger("recollect.server")

DELIVERY_INTERVAL = 0.04
"""Seconds between two deliveries to a client. Text that arrives faster is merged; 25 updates per second look smooth."""

ENDED_TURN_RETENTION = 120.0
"""Seconds for which an ended turn can still be followed, so that a client that reconnects sees its end."""

_STOP_TIMEOUT = 10.0
"""Maximum seconds to wait for a stopped turn. Storing its last messages takes milliseconds unless the disk hangs."""


class TurnRun:
    """A running turn: its events so far, and a signal for new ones."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.turn: str | None = None
        self.ended = False
        self.error: BaseException | None = None
        self.started = asyncio.Event()
        self._events: list[Event] = []
        self._wakeup = asyncio.Event()
        self.watchers: set[asyncio.Event] = set()

    def add(self, event: Event) -> None:
        """Add an event and wake the followers."""
        self._events.append(event)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the turn as ended and wake the followers."""
        self.ended, self.error = True, error
        self.started.set()
        self._wake()

    def _wake(self) -> None:
        wakeup, self._wakeup = self._wakeup, asyncio.Event()
        wakeup.set()
        for watcher in self.watchers:
            watcher.set()

    @property
    def count(self) -> int:
        """The number of events so far."""
        return len(self._events)

    def events(self, after: int = 0) -> list[Event]:
        """Return the events after the first `after`, with adjacent text deltas merged."""
        return [event for _, event in self.numbered_events(after)]

    def numbered_events(self, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events after the first `after` with their numbers. Adjacent text deltas are merged."""
        pieces: list[str] = []
        numbered_events: list[tuple[int, Event]] = []
        for number, event in enumerate(self._events[after:], after + 1):
            if (
                numbered_events
                and type(event) is type(numbered_events[-1][1])
                and isinstance(event, TextDelta | ReasoningDelta)
            ):
                pieces.append(event.text)
                numbered_events[-1] = (number, event)
                continue
            _merge_text_deltas(numbered_events, pieces)
            numbered_events.append((number, event))
            pieces = [event.text] if isinstance(event, TextDelta | ReasoningDelta) else []
        _merge_text_deltas(numbered_events, pieces)
        return numbered_events

    async def changed(self, after: int) -> None:
        """Wait until there are more than `after` events, or the turn has ended."""
        while len(self._events) <= after and not self.ended:
            await self._wakeup.wait()


def _merge_text_deltas(numbered_events: list[tuple[int, Event]], pieces: list[str]) -> None:
    """Replace the text of the last event by the joined pieces."""
    if len(pieces) > 1:
        number, event = numbered_events[-1]
        numbered_events[-1] = (number, msgspec.structs.replace(event, text="".join(pieces)))


class TurnRunner:
    """Runs the turns of one agent, at most one at a time in each session.

    `on_change` is called with the session of a turn that starts or ends.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.start_event = asyncio.Event()
        """Set and replaced by a new event when a turn starts."""
        self._runs: dict[str, TurnRun] = {}
        self._conversations: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._start_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.on_change: Callable[[str], None] = lambda _: None

    def start_lock(self, session: str) -> asyncio.Lock:
        """Return the lock under which a turn of a session starts, so that a second one sees the first."""
        return self._start_locks.setdefault(session, asyncio.Lock())

    async def conversation(self, session: AsyncSession, model: str | None = None) -> Conversation:
        """Return a conversation in a session, with the session's model."""
        return await self.agent.conversation(session, model=model or callable_model(session.model))

    async def start_turn(
        self,
        session: AsyncSession,
        drafts: Any,
        *,
        model: str | None = None,
        take_over: bool = False,
        key: str | None = None,
        wait_for_approval: bool = False,
    ) -> TurnRun:
        """Start a turn with a user message. The message is stored when this returns; otherwise the error is raised.

        With `wait_for_approval`, tools that need approval wait for approvals.answer().
        """
        conversation = await self.conversation(session, model)
        if wait_for_approval:
            conversation.approvals.approver = approvals.remote_approver
        run = TurnRun(session.id)
        task = asyncio.create_task(self._run_turn(conversation, run, drafts, take_over=take_over, key=key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await run.started.wait()
        if run.error is not None and run.turn is None:
            raise run.error
        return run

    async def _run_turn(
        self, conversation: Conversation, run: TurnRun, drafts: Any, *, take_over: bool, key: str | None
    ) -> None:
        """Run a turn to its end, with or without followers."""
        error: BaseException | None = None
        try:
            async with contextlib.aclosing(
                conversation.send(drafts, take_over=take_over, key=key, hold=False)
            ) as events:
                async for event in events:
                    if not run.started.is_set() and not isinstance(event, Notice):
                        self._mark_started(conversation, run, getattr(event, "turn", None))
                    if isinstance(event, TurnEnded) and event.status == "failed":
                        _log.warning("A turn in session %r failed with model %s", run.session, conversation.model.name)
                    run.add(event)
        except RecollectError as failed:
            error = failed
            if run.turn is not None:
                _log.warning("A turn in session %r failed", run.session, exc_info=failed)
                run.add(TurnEnded(session=run.session, status="failed", error=str(failed)))
        except Exception as failed:  # noqa: BLE001  a model's library may raise anything; the server continues
            _log.warning("A turn in session %r failed", run.session, exc_info=failed)
            error = ModelError(model=conversation.model.name, reason=f"{type(failed).__name__}: {failed}")
        finally:
            if (
                self._conversations.get(run.session) is conversation
            ):  # not if this turn was refused because of a running one
                del self._conversations[run.session]
            run.end(error)
            self._forget_later(run)
            self.on_change(run.session)

    def _mark_started(self, conversation: Conversation, run: TurnRun, turn: str | None) -> None:
        run.turn = turn or ""
        self._runs[run.session] = run
        self._conversations[run.session] = conversation
        run.started.set()
        event, self.start_event = self.start_event, asyncio.Event()
        event.set()
        self.on_change(run.session)

    def _forget_later(self, run: TurnRun) -> None:
        def forget() -> None:
            if self._runs.get(run.session) is run:
                del self._runs[run.session]

        asyncio.get_running_loop().call_later(ENDED_TURN_RETENTION, forget)

    def run(self, session: str) -> TurnRun | None:
        """Return the running turn of a session, or one that ended recently."""
        return self._runs.get(session)

    def running(self, session: str) -> bool:
        """Return whether a turn runs in a session on this server."""
        run = self._runs.get(session)
        return run is not None and not run.ended

    def sessions(self) -> list[str]:
        """Return the sessions in which a turn runs on this server."""
        return [name for name, run in self._runs.items() if not run.ended]

    def current(self, session: str) -> Conversation | None:
        """Return the conversation whose turn runs in a session, or None."""
        return self._conversations.get(session)

    def stop(self, session: str) -> bool:
        """Stop the running turn of a session and keep its messages. Return whether one was running."""
        conversation = self._conversations.get(session)
        return conversation is not None and conversation.stop()

    async def stop_and_wait(self, session: str) -> None:
        """Stop the running turn of a session, and wait until its messages are stored."""
        run = self._runs.get(session)
        if run is None or run.ended:
            return
        self.stop(session)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                while not run.ended:
                    await run.changed(run.count)

    async def close(self) -> None:
        """Stop all turns, and wait until their messages are stored."""
        for conversation in list(self._conversations.values()):
            conversation.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_STOP_TIMEOUT)
