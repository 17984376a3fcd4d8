"""An open turn, and an answer that streams in it, as their user holds them."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from recollect import ops
from recollect.context.drafts import answer, drafts
from recollect.errors import InvalidValue, RecollectError
from recollect.model.message import Draft, Format, Messages
from recollect.model.stream import Gathering, Kind
from recollect.model.turn import EndStatus, failure
from recollect.model.turn import Turn as TurnInfo

if TYPE_CHECKING:
    from recollect.store.session import Session


class Turn:
    """An open turn. As a context manager it completes at the end, and is kept as failed or cancelled on an error."""

    def __init__(self, session: Session, held: ops.turns.Held, lease: float, *, reopened: bool = False) -> None:
        self.session = session
        self.held = held
        self.info: TurnInfo | None = None
        self.lease = int(lease * 1000)
        self._untouched = reopened  # nothing was added since it was reopened
        self._streams: list[Stream] = []  # those that are open

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self.held.number}.{self.held.position}"

    def add(self, message: Messages, format: Format | None = None, *, key: str | None = None) -> ops.appends.Appended:
        """Add a step: a message, many, or a provider's response, on disk when this returns. A `key` adds it once."""
        store = self.session.store
        given = drafts(message, format)
        op = ops.turns.add(store.scope(), self.session.id, self.held, given, lease=self.lease, key=key)
        step = store.run(op)
        self._untouched = False
        self.session.saw(step.counts)
        return step.appended

    def renew(self) -> None:
        """Hold the turn for another lease without adding anything, and notify whoever watches the session."""
        store = self.session.store
        self.session.saw(store.run(ops.turns.hold(store.scope(), self.session.id, self.held, lease=self.lease)))

    def stream(self) -> Stream:
        """Open an answer that is given text as it arrives."""
        store, gathering = self.session.store, Gathering(time.monotonic())
        draft = gathering.draft("streaming")
        flow, counts = store.run(ops.streams.begin(store.scope(), self.session.id, self.held, draft, lease=self.lease))
        self._untouched = False
        self.session.saw(counts)
        return Stream(self, flow, gathering, self._streams)

    def complete(
        self,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> TurnInfo:
        """End the turn well, with what the run used where that is known."""
        return self._end("completed", ops.turns.Usage(model, input_tokens, output_tokens, latency_ms))

    def fail(self, error: Any = None) -> TurnInfo:
        """End the turn as failed, with the error."""
        told = failure(error) if isinstance(error, BaseException) else error
        return self._end("failed", ops.turns.Usage(error=told))

    def cancel(self) -> TurnInfo:
        """End the turn as cancelled."""
        return self._end("cancelled", ops.turns.Usage())

    def interrupt(self, error: Any = None) -> TurnInfo:
        """End the turn as interrupted: its answer is not whole. resume_turn() reopens it."""
        told = failure(error) if isinstance(error, BaseException) else error
        return self._end("interrupted", ops.turns.Usage(error=told))

    def _end(self, status: EndStatus | Literal["interrupted"], usage: ops.turns.Usage) -> TurnInfo:
        store = self.session.store
        for stream in self._streams:  # nobody closed them: what arrived last is not stored yet
            try:
                stream.flush()
            except RecollectError:
                if status == "completed":
                    raise
        self.info, counts = store.run(ops.turns.end(store.scope(), self.session.id, self.held, status, usage))
        self.session.saw(counts)
        return self.info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.info is not None:
            return
        if error is None:
            self.interrupt() if self._untouched else self.complete()
            return
        try:
            self.fail(error) if isinstance(error, Exception) else self.cancel()
        except RecollectError as trouble:
            error.add_note(f"The turn could not be marked as ended: {trouble}")


class Stream:
    """An answer in progress. Its text is stored about once a second, and when it is closed."""

    def __init__(self, turn: Turn, flow: ops.streams.Flow, gathering: Gathering, streams: list[Stream]) -> None:
        self.turn = turn
        self.id = flow.id
        self._flow = flow
        self._gathering = gathering
        self._open = True
        self._streams = streams
        streams.append(self)

    def write(self, text: str, kind: Kind = "text") -> None:
        """Take a chunk of text, or of reasoning."""
        self._check_open()
        if self._gathering.add(text, kind, time.monotonic()):
            self.flush()

    def flush(self) -> None:
        """Store what has arrived so far, now."""
        self._check_open()
        session = self.turn.session
        draft = self._gathering.draft("streaming")
        op = ops.streams.write(session.store.scope(), session.id, self._flow, draft, lease=self.turn.lease)
        session.saw(session.store.run(op))
        self._gathering.stored(time.monotonic())

    def close(self, message: Messages | None = None, format: Format | None = None) -> None:
        """Complete the answer; `message` is the whole of it in the provider's form, where there is one."""
        self._check_open()
        given = self._gathering.draft("completed") if message is None else answer(message, format)
        self._end(given)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidValue("This answer is closed. Open another one with turn.stream().")

    def _end(self, draft: Draft) -> None:
        session = self.turn.session
        op = ops.streams.close(session.store.scope(), session.id, self._flow, draft, lease=self.turn.lease)
        session.saw(session.store.run(op))
        self._open = False
        self._streams.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._open:
            return
        if error is None:
            self.close()
            return
        try:
            self._end(self._gathering.cut_off(error))
        except RecollectError as trouble:
            error.add_note(f"The answer could not be marked as cut off: {trouble}")
