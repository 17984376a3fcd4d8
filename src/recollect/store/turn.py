"""Turn and Stream: an open turn, and an answer that is stored while it arrives.

store_async.turn has the same methods, awaited, with the same docstrings. Keep the two in step.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from recollect import storage
from recollect.errors import InvalidValue, RecollectError
from recollect.history.drafts import read_answer, read_drafts
from recollect.model.message import Draft, Format, Messages
from recollect.model.turn import ChunkKind, EndStatus, StreamBuffer, TurnInfo, describe_error

if TYPE_CHECKING:
    from recollect.store.session import Session


class Turn:
    """An open turn, from the user's message to the end of the answer.

    As a context manager, it is completed at the end of the block. An exception ends it as failed, a KeyboardInterrupt
    and other BaseExceptions as cancelled; the exception propagates.
    """

    def __init__(
        self, session: Session, handle: storage.turns.HeldTurn, lease: float, *, is_reopened: bool = False
    ) -> None:
        self.session = session
        self.handle = handle
        self.info: TurnInfo | None = None
        self.lease = int(lease * 1000)
        self._unchanged = is_reopened  # True until something is added to a reopened turn
        self._streams: list[Stream] = []  # the open ones

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self.handle.number}.{self.handle.position}"

    def add(
        self, message: Messages, format: Format | None = None, *, key: str | None = None
    ) -> storage.appends.Appended:
        """Add a step: a message, several, or a provider's response. It is on disk when this returns.

        `key` is an idempotency key, as in session.append(). The lease is renewed. Raise TurnClosed if the turn has
        ended.
        """
        store = self.session.store
        drafts = read_drafts(message, format)
        op = storage.turns.add_messages(store.scope(), self.session.id, self.handle, drafts, lease=self.lease, key=key)
        step = store.run(op)
        self._unchanged = False
        self.session.saw(step.counts)
        return step.appended

    def renew(self) -> None:
        """Renew the lease without adding a step, and notify watchers of the session.

        Call it while the turn waits for longer than its lease. Raise TurnClosed if the turn has ended.
        """
        store = self.session.store
        self.session.saw(
            store.run(storage.turns.extend_lease(store.scope(), self.session.id, self.handle, lease=self.lease))
        )

    def stream(self) -> Stream:
        """Open an answer to which you write text as it arrives. Raise TurnClosed if the turn has ended."""
        store, buffer = self.session.store, StreamBuffer(time.monotonic())
        draft = buffer.draft("streaming")
        handle, counts = store.run(
            storage.turns.begin_stream(store.scope(), self.session.id, self.handle, draft, lease=self.lease)
        )
        self._unchanged = False
        self.session.saw(counts)
        return Stream(self, handle, buffer, self._streams)

    def complete(
        self,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> TurnInfo:
        """End the turn as completed, with the usage of the run, and return its TurnInfo.

        Without these arguments, the model and the tokens are those of the steps, and the latency is measured. Raise
        TurnClosed if the turn has ended.
        """
        return self._end("completed", storage.turns.TurnUsage(model, input_tokens, output_tokens, latency_ms))

    def fail(self, error: Any = None) -> TurnInfo:
        """End the turn as failed, and return its TurnInfo. `error` is an exception or any JSON value."""
        details = describe_error(error) if isinstance(error, BaseException) else error
        return self._end("failed", storage.turns.TurnUsage(error=details))

    def cancel(self) -> TurnInfo:
        """End the turn as cancelled, and return its TurnInfo."""
        return self._end("cancelled", storage.turns.TurnUsage())

    def interrupt(self, error: Any = None) -> TurnInfo:
        """End the turn as interrupted, because its answer is incomplete, and return its TurnInfo.

        `error` is an exception or any JSON value. session.resume_turn() reopens the turn.
        """
        details = describe_error(error) if isinstance(error, BaseException) else error
        return self._end("interrupted", storage.turns.TurnUsage(error=details))

    def _end(self, status: EndStatus | Literal["interrupted"], usage: storage.turns.TurnUsage) -> TurnInfo:
        store = self.session.store
        for stream in self._streams:  # the caller did not close them: their last text is not stored yet
            try:
                stream.flush()
            except RecollectError:
                if status == "completed":
                    raise
        self.info, counts = store.run(
            storage.turns.end_turn(store.scope(), self.session.id, self.handle, status, usage)
        )
        self.session.saw(counts)
        return self.info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.info is not None:
            return
        if error is None:
            self.interrupt() if self._unchanged else self.complete()
            return
        try:
            self.fail(error) if isinstance(error, Exception) else self.cancel()
        except RecollectError as failure:
            error.add_note(f"The end of the turn could not be stored: {failure}")


class Stream:
    """An answer in progress: one assistant message. Its text is stored about once a second, and when it is closed.

    As a context manager, it is closed at the end of the block. An exception stores the received text with the state
    "error", a cancellation with "interrupted".
    """

    def __init__(
        self, turn: Turn, handle: storage.turns.OpenStream, buffer: StreamBuffer, streams: list[Stream]
    ) -> None:
        self.turn = turn
        self.id = handle.id
        self._handle = handle
        self._buffer = buffer
        self._open = True
        self._streams = streams
        streams.append(self)

    def write(self, text: str, kind: ChunkKind = "text") -> None:
        """Add a chunk of text, or of reasoning. It is stored with the next flush, about once a second."""
        self._check_open()
        if self._buffer.add(text, kind, time.monotonic()):
            self.flush()

    def flush(self) -> None:
        """Store the received text now. It is on disk when this returns."""
        self._check_open()
        session = self.turn.session
        draft = self._buffer.draft("streaming")
        op = storage.turns.write_stream(session.store.scope(), session.id, self._handle, draft, lease=self.turn.lease)
        session.saw(session.store.run(op))
        self._buffer.mark_stored(time.monotonic())

    def close(self, message: Messages | None = None, format: Format | None = None) -> None:
        """Complete the answer. `message` is the provider's final message, which replaces the collected text.

        Raise InvalidValue if `message` is not one assistant message; the stream then stays open.
        """
        self._check_open()
        draft = self._buffer.draft("completed") if message is None else read_answer(message, format)
        self._end(draft)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidValue("This stream is closed. Open another one with turn.stream().")

    def _end(self, draft: Draft) -> None:
        session = self.turn.session
        op = storage.turns.close_stream(session.store.scope(), session.id, self._handle, draft, lease=self.turn.lease)
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
            self._end(self._buffer.cut_off(error))
        except RecollectError as failure:
            error.add_note(f"The end of the answer could not be stored: {failure}")
