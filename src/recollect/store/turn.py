# Generated from store_async/turn.py. Change that file, then run: python tools/generate_sync_store.py
"""Turn and Stream: an open turn, and an answer that is stored while it arrives."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recollect import storage
from recollect.errors import InvalidValue, RecollectError, SessionBusy
from recollect.history.drafts import read_answer, read_drafts
from recollect.model.message import Draft, Format, Messages
from recollect.model.session import SessionCounts
from recollect.model.turn import POLL_INTERVAL, ChunkKind, FinalStatus, StreamBuffer, TurnInfo, describe_error
from recollect.storage.operation import Operation
from recollect.store.waiting import (
    Openable,
    open_if_sync,
    pause_flusher,
    require_open,
    run_to_end,
    run_to_end_or_undo,
    sleep,
)

if TYPE_CHECKING:
    from recollect.store.session import Session


class Turn(Openable):
    """An open turn, from the user's message to the end of the answer.

    As a context manager, a turn is completed at the end of the block. An exception ends it as `failed` and is stored as
    its error; `KeyboardInterrupt`, a cancelled task and similar exceptions end it as `cancelled`. The exception
    propagates.

    ```python
    with session.turn("Hi") as turn:
        turn.add({"role": "assistant", "content": "Hello."})

    turn.info.status    # -> 'completed'
    ```
    """

    session: Session
    """The session to which the turn belongs."""

    info: TurnInfo | None
    """The [TurnInfo] of a turn that has ended; `None` while the turn is open."""

    def __init__(
        self,
        session: Session,
        make_op: Callable[[], Operation[storage.turns.TurnWrite]],
        lease: float,
        wait: float,
    ) -> None:
        self.session = session
        self.info = None
        self._lease = int(lease * 1000)
        self._make_op = make_op
        self._wait = wait
        self._handle: storage.turns.HeldTurn | None = None
        self._unchanged = False  # True until something is added to a reopened turn
        self._streams: list[Stream] = []  # the open ones

    def _open(self) -> Self:
        deadline = time.monotonic() + self._wait
        while self._handle is None:
            try:
                step = run_to_end_or_undo(self.session.store._run(self._make_op()), self._undo_open)
            except SessionBusy:
                if time.monotonic() >= deadline:
                    raise
                sleep(POLL_INTERVAL)
            else:
                self._handle, self._unchanged = step.held, step.resumed
                self.session._set_counts(step.counts)
        return self

    def _undo_open(self, step: storage.turns.TurnWrite) -> None:
        """Cancel the turn: the task was cancelled while it opened, so nobody else would end it."""
        self._handle = step.held
        self.cancel()

    @property
    def _open_handle(self) -> storage.turns.HeldTurn:
        return require_open(self._handle, "turn")

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self._open_handle.number}.{self._open_handle.position}"

    def add(
        self, message: Messages, format: Format | None = None, *, key: str | None = None
    ) -> storage.appends.Appended:
        """Add a step, renew the lease, and return an [Appended].

        The step is on disk when the method returns. Raise `TurnClosed` if the turn has ended. If the session was
        rewound or switched in the meantime, the step is added to the branch on which the turn began.

        - `message`: one or more messages, or a provider's response.
        - `format`: as in `append()`.
        - `key`: an [idempotency key][Idempotency keys].
        """
        store = self.session.store
        drafts = read_drafts(message, format)
        op = storage.turns.add_messages(
            store._scope(), self.session.id, self._open_handle, drafts, lease=self._lease, key=key
        )
        step = store._run(op)
        self._unchanged = False
        self.session._set_counts(step.counts)
        return step.appended

    def renew(self) -> None:
        """Renew the lease without adding a step.

        It also increases the session's revision, so that watchers are notified. Call it while the turn waits for longer
        than its lease, for example for a person. Raise `TurnClosed` if the turn has ended.
        """
        store = self.session.store
        self.session._set_counts(
            store._run(
                storage.turns.extend_lease(store._scope(), self.session.id, self._open_handle, lease=self._lease)
            )
        )

    def stream(self) -> Stream:
        """Open an answer to which you write text as it arrives: `with turn.stream() as answer`.

        Return a [Stream]. Raise `TurnClosed` if the turn has ended.
        """
        stream = open_if_sync(Stream(self, self._streams))
        self._unchanged = False
        return stream

    def complete(
        self,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> TurnInfo:
        """End the turn as completed and return its [TurnInfo].

        By default Recollect takes `model`, `input_tokens` and `output_tokens` from the steps, and measures
        `latency_ms`, in milliseconds.

        Raise `TurnClosed` if the turn has ended.
        """
        return self._end("completed", storage.turns.TurnUsage(model, input_tokens, output_tokens, latency_ms))

    def fail(self, error: Any = None) -> TurnInfo:
        """End the turn as failed and return its [TurnInfo].

        `error` is an exception, which is stored as its name and message, or any JSON value.
        """
        details = describe_error(error) if isinstance(error, BaseException) else error
        return self._end("failed", storage.turns.TurnUsage(error=details))

    def cancel(self) -> TurnInfo:
        """End the turn as cancelled and return its [TurnInfo]."""
        return self._end("cancelled", storage.turns.TurnUsage())

    def interrupt(self, error: Any = None) -> TurnInfo:
        """End the turn as interrupted and return its [TurnInfo].

        Use it if the answer is incomplete, for example because the model's stream ended early. A streaming answer is
        stored and marked, and tool calls without a result get the status `cancelled`. `error` is an exception or any
        JSON value. `session.turns.resume()` reopens the turn.
        """
        details = describe_error(error) if isinstance(error, BaseException) else error
        return self._end("interrupted", storage.turns.TurnUsage(error=details))

    def _end(self, status: FinalStatus, usage: storage.turns.TurnUsage) -> TurnInfo:
        return run_to_end(self._store_end(status, usage))

    def _store_end(self, status: FinalStatus, usage: storage.turns.TurnUsage) -> TurnInfo:
        store = self.session.store
        for stream in self._streams:  # the caller did not close them: their last text is not stored yet
            try:
                stream.flush()
            except RecollectError:
                if status == "completed":
                    raise
        op = storage.turns.end_turn(store._scope(), self.session.id, self._open_handle, status, usage)
        self.info, counts = store._run(op)
        self.session._set_counts(counts)
        return self.info

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.info is not None:
            return
        if error is None:
            (self.interrupt() if self._unchanged else self.complete())
            return
        try:
            (self.fail(error) if isinstance(error, Exception) else self.cancel())
        except RecollectError as failure:
            error.add_note(f"The end of the turn could not be stored: {failure}")


class Stream(Openable):
    """An answer in progress: one assistant message, to which you write text as it arrives.

    Recollect stores received text about once per second, and at the end. As a context manager, a stream is closed at
    the end of the block. An exception closes it with the state `error`, a cancellation with `interrupted`; received
    text is stored in both cases. A stream that is open when its turn ends becomes `interrupted`, with all received
    text. So does a stream whose process has ended, with the text stored so far.

    ```python
    with session.turn("Count") as turn:
        with turn.stream() as answer:
            answer.write("First I think.", kind="reasoning")
            answer.write("One, ")
            answer.write("two.")

    message = session.messages(last=1)[0]
    (message.reasoning, message.text, message.state)    # -> ('First I think.', 'One, two.', 'completed')
    ```
    """

    turn: Turn
    """The turn to which the stream belongs."""

    def __init__(self, turn: Turn, streams: list[Stream]) -> None:
        self.turn = turn
        self._streams = streams
        self._handle: storage.turns.OpenStream | None = None
        self._buffer = StreamBuffer(time.monotonic())
        self._flusher = pause_flusher(turn.session.store)
        self._is_open = False

    def _open(self) -> Self:
        if self._handle is None:
            session, draft = self.turn.session, self._buffer.draft("streaming")
            op = storage.turns.begin_stream(
                session.store._scope(), session.id, self.turn._open_handle, draft, lease=self.turn._lease
            )
            self._handle, counts = session.store._run(op)
            self._is_open = True
            self._streams.append(self)
            session._set_counts(counts)
        return self

    @property
    def _open_handle(self) -> storage.turns.OpenStream:
        return require_open(self._handle, "stream")

    @property
    def id(self) -> str:
        """The id of the message."""
        return self._open_handle.id

    def write(self, text: str, kind: ChunkKind = "text") -> None:
        """Add a chunk of `text`.

        `kind` is `"text"` or `"reasoning"`.
        """
        self._check_open()
        if self._buffer.add(text, kind, time.monotonic()):
            self.flush()
        else:
            self._flusher.schedule(self._store_text)

    def flush(self) -> None:
        """Store the received text immediately.

        It is on disk when the method returns.
        """
        self._check_open()
        self._flusher.settle(self._store_text)
        # To its end: after a cancellation, it could overtake the end of the stream on another connection.
        self.turn.session._set_counts(run_to_end(self._store_text()))

    def _store_text(self) -> SessionCounts:
        session, draft = self.turn.session, self._buffer.draft("streaming")
        op = storage.turns.write_stream(
            session.store._scope(), session.id, self._open_handle, draft, lease=self.turn._lease
        )
        counts = session.store._run(op)
        self._buffer.mark_stored(time.monotonic())
        return counts

    def close(self, message: Messages | None = None, format: Format | None = None) -> None:
        """Complete the answer.

        - `message`: the provider's final message. It replaces the collected text, so that no field of the provider's
          message is lost. A role other than `assistant` raises `InvalidValue`, and the stream stays open.
        - `format`: as in `append()`.
        """
        self._check_open()
        draft = self._buffer.draft("completed") if message is None else read_answer(message, format)
        self._end(draft)

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidValue(storage.turns.STREAM_CLOSED)

    def _end(self, draft: Draft) -> None:
        run_to_end(self._store_end(draft))

    def _store_end(self, draft: Draft) -> None:
        session = self.turn.session
        self._flusher.settle(self._store_text)
        op = storage.turns.close_stream(
            session.store._scope(), session.id, self._open_handle, draft, lease=self.turn._lease
        )
        session._set_counts(session.store._run(op))
        self._is_open = False
        self._streams.remove(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._is_open:
            return
        if error is None:
            self.close()
            return
        try:
            self._end(self._buffer.cut_off(error))
        except RecollectError as failure:
            error.add_note(f"The end of the answer could not be stored: {failure}")
