"""The turns that run in this server, and who follows them.

A turn goes on whether or not anyone looks. What happened in it is kept for a while, so that whoever comes late, or
comes back after a lost connection, misses nothing: events are counted, and a follower says how many it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from recollect.agent import Agent, Conversation, approvals
from recollect.agent.events import Event, Notice, ReasoningDelta, TextDelta, TurnEnded
from recollect.agent.models import talkable
from recollect.errors import ModelError, RecollectError
from recollect.store_async import AsyncSession

_log = logging.getLogger("recollect.server")

PACE = 0.04
"""Seconds between two deliveries to one who follows a turn: pieces that come faster are put together."""

KEPT = 120.0
"""Seconds that an ended turn can still be followed."""

_HALT = 10.0
"""Seconds that are waited at most for a turn that is stopped."""


class Run:
    """One turn as it happens: its events so far, and those to come."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.turn: str | None = None
        self.ended = False
        self.error: BaseException | None = None
        self.stored = asyncio.Event()
        self._events: list[Event] = []
        self._pulse = asyncio.Event()
        self.watchers: set[asyncio.Event] = set()

    def add(self, event: Event) -> None:
        """Take an event, and wake whoever follows."""
        self._events.append(event)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Let everyone go who follows, after the last event."""
        self.ended, self.error = True, error
        self.stored.set()
        self._wake()

    def _wake(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()
        for watcher in self.watchers:
            watcher.set()

    @property
    def count(self) -> int:
        """How many events there are so far."""
        return len(self._events)

    def events(self, after: int = 0) -> list[Event]:
        """Give the events after the first so many, adjoining pieces of text put together."""
        return [event for _, event in self.numbered(after)]

    def numbered(self, after: int = 0) -> list[tuple[int, Event]]:
        """Give the events after the first so many, each with how many there are up to it; pieces put together."""
        pieces: list[str] = []
        found: list[tuple[int, Event]] = []
        for number, event in enumerate(self._events[after:], after + 1):
            if found and type(event) is type(found[-1][1]) and isinstance(event, TextDelta | ReasoningDelta):
                pieces.append(event.text)
                found[-1] = (number, event)
                continue
            _put_together(found, pieces)
            found.append((number, event))
            pieces = [event.text] if isinstance(event, TextDelta | ReasoningDelta) else []
        _put_together(found, pieces)
        return found

    async def changed(self, after: int) -> None:
        """Wait until there are more than so many events, or no more come."""
        while len(self._events) <= after and not self.ended:
            await self._pulse.wait()


def _put_together(found: list[tuple[int, Event]], pieces: list[str]) -> None:
    """Give the last event the text of all the pieces that it stands for."""
    if len(pieces) > 1:
        number, event = found[-1]
        found[-1] = (number, msgspec.structs.replace(event, text="".join(pieces)))


class Talks:
    """The talks of one agent in this server: at most one turn at a time in each session.

    `moved` is called with the session of a turn that begins or ends.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.begun = asyncio.Event()
        """Set, and replaced by another, when a turn begins."""
        self._runs: dict[str, Run] = {}
        self._talks: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.moved: Callable[[str], None] = lambda _: None

    def beginning(self, session: str) -> asyncio.Lock:
        """Give the lock of a session under which a turn begins: what another one begins with is looked at after it."""
        return self._beginning.setdefault(session, asyncio.Lock())

    async def talk(self, session: AsyncSession, model: str | None = None) -> Conversation:
        """Give a conversation in a session, with the model that was chosen for it."""
        return await self.agent.talk(session, model=model or talkable(session.model))

    async def say(
        self,
        session: AsyncSession,
        said: Any,
        *,
        model: str | None = None,
        take_over: bool = False,
        key: str | None = None,
        asks: bool = False,
    ) -> Run:
        """Begin a turn with what a person said. It is stored when this returns; where it can not be, that is raised.

        With `asks`, tools that need approval wait until somebody answers through approvals.answer().
        """
        talk = await self.talk(session, model)
        if asks:
            talk.approvals.approver = approvals.forever
        run = Run(session.id)
        task = asyncio.create_task(self._drive(talk, run, said, take_over=take_over, key=key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await run.stored.wait()
        if run.error is not None and run.turn is None:
            raise run.error
        return run

    async def _drive(self, talk: Conversation, run: Run, said: Any, *, take_over: bool, key: str | None) -> None:
        """Run a turn to its end, whoever listens."""
        error: BaseException | None = None
        try:
            async with contextlib.aclosing(talk.send(said, take_over=take_over, key=key, hold=False)) as events:
                async for event in events:
                    if not run.stored.is_set() and not isinstance(event, Notice):
                        self._begin(talk, run, getattr(event, "turn", None))
                    if isinstance(event, TurnEnded) and event.status == "failed":
                        _log.warning("A turn in session %r failed with model %s", run.session, talk.model.name)
                    run.add(event)
        except RecollectError as failed:
            error = failed
            if run.turn is not None:
                _log.warning("A turn in session %r failed", run.session, exc_info=failed)
                run.add(TurnEnded(session=run.session, status="failed", error=str(failed)))
        except Exception as failed:  # noqa: BLE001  whatever a model's library raises, the server goes on
            _log.warning("A turn in session %r failed", run.session, exc_info=failed)
            error = ModelError(model=talk.model.name, reason=f"{type(failed).__name__}: {failed}")
        finally:
            if self._talks.get(run.session) is talk:  # not that of a turn beside which this one was refused
                del self._talks[run.session]
            run.end(error)
            self._forget_later(run)
            self.moved(run.session)

    def _begin(self, talk: Conversation, run: Run, turn: str | None) -> None:
        run.turn = turn or ""
        self._runs[run.session] = run
        self._talks[run.session] = talk
        run.stored.set()
        begun, self.begun = self.begun, asyncio.Event()
        begun.set()
        self.moved(run.session)

    def _forget_later(self, run: Run) -> None:
        def forget() -> None:
            if self._runs.get(run.session) is run:
                del self._runs[run.session]

        asyncio.get_running_loop().call_later(KEPT, forget)

    def run(self, session: str) -> Run | None:
        """Give the turn that runs in a session, or the one that ended a short while ago."""
        return self._runs.get(session)

    def running(self, session: str) -> bool:
        """Whether a turn runs here in a session."""
        run = self._runs.get(session)
        return run is not None and not run.ended

    def sessions(self) -> list[str]:
        """Name the sessions in which a turn runs here."""
        return [name for name, run in self._runs.items() if not run.ended]

    def current(self, session: str) -> Conversation | None:
        """Give the talk whose turn runs in a session."""
        return self._talks.get(session)

    def stop(self, session: str) -> bool:
        """End the turn that runs in a session; what came is kept. Say whether there was one."""
        talk = self._talks.get(session)
        return talk is not None and talk.stop()

    async def halt(self, session: str) -> None:
        """End the turn that runs in a session, and wait until what came is stored: then the session may go."""
        run = self._runs.get(session)
        if run is None or run.ended:
            return
        self.stop(session)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HALT):
                while not run.ended:
                    await run.changed(run.count)

    async def close(self) -> None:
        """Stop every turn, and wait until what came is stored."""
        for talk in list(self._talks.values()):
            talk.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_HALT)
