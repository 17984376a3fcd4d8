"""Turns, and the buffer that collects a streamed answer and decides when to store it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from recollect.errors import InvalidValue, format_value
from recollect.model.message import Draft, MessageState, Part, ReasoningPart, TextPart
from recollect.model.value import TimeProperty, Value

TurnStatus = Literal["open", "completed", "failed", "cancelled", "interrupted"]
DEFAULT_LEASE = 300.0
"""Seconds of the lease by default: how long an open turn blocks others after each of its writes."""

POLL_INTERVAL = 0.05
"""Seconds between two polls of a busy branch."""

EndStatus = Literal["completed", "failed", "cancelled"]
"""The statuses with which a caller ends a turn; Turn.interrupt() ends one with an incomplete answer."""

FinalStatus = EndStatus | Literal["interrupted"]
"""The statuses of a turn that has ended."""


class TurnInfo(Value, frozen=True, kw_only=True, gc=False):
    """The stored fields of a turn. Its id is the id of the message that opened it.

    - `id`: id of the message that opened the turn.
    - `branch`, `position`: branch and position of that message.
    - `status`: `"open"`, `"completed"`, `"failed"`, `"cancelled"` or `"interrupted"`.
    - `holder`, `lease_until_at`: the process that holds the turn, and the end of its lease; `None` after the turn has
      ended.
    - `model`: the model, or `None`.
    - `input_tokens`, `output_tokens`: usage, or `None`.
    - `latency_ms`: duration in milliseconds, or `None`.
    - `error`: any JSON value, or `None`.
    - `started_at`, `ended_at`: times.
    """

    branch: int
    position: int
    status: TurnStatus
    holder: str | None = None
    lease_until_at_ms: int | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    error: Any = None
    started_at_ms: int
    ended_at_ms: int | None = None

    lease_until_at = TimeProperty[datetime | None]()
    started_at = TimeProperty[datetime]()
    ended_at = TimeProperty[datetime | None]()

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self.branch}.{self.position}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the id, times as ISO 8601."""
        return {"id": self.id, **super().to_dict()}


def describe_error(error: BaseException) -> dict[str, str]:
    """Return the name and message of an exception, as stored with a turn or a message."""
    return {"name": type(error).__name__, "message": str(error)}


FLUSH_INTERVAL = 1.0
"""Seconds between two writes of an answer in progress: a write per chunk would cost one commit each."""

ChunkKind = Literal["text", "reasoning"]
"""The kind of a text that is written to a [Stream]."""

_CHUNK_PARTS: dict[str, Any] = {"text": TextPart, "reasoning": ReasoningPart}


class StreamBuffer:
    """The chunks of text and reasoning of an answer, in order of arrival.

    One thread adds chunks. Another one may call draft() meanwhile: a run of chunks is never empty.
    """

    def __init__(self, now: float) -> None:
        self._runs: list[tuple[ChunkKind, list[str]]] = []
        self._stored_at = now

    def add(self, text: str, kind: ChunkKind, now: float) -> bool:
        """Add a chunk. Return whether it is time to store the answer."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"text must be a str, got {type(text).__name__}.")
        if type(kind) is not str or kind not in _CHUNK_PARTS:
            raise InvalidValue(f"kind must be 'text' or 'reasoning', got {format_value(kind)}.")
        if not self._runs or self._runs[-1][0] != kind:
            self._runs.append((kind, [text]))
        else:
            self._runs[-1][1].append(text)
        return now - self._stored_at >= FLUSH_INTERVAL

    def mark_stored(self, now: float) -> None:
        """Record that the answer was stored."""
        self._stored_at = now

    def draft(self, state: MessageState, error: Any = None) -> Draft:
        """Return the chunks so far as a message."""
        parts: tuple[Part, ...] = tuple(_CHUNK_PARTS[kind](text="".join(chunks)) for kind, chunks in self._runs)
        return Draft(role="assistant", parts=parts, state=state, error=error)

    def cut_off(self, error: BaseException) -> Draft:
        """Return the chunks so far as a message that an error or a cancellation ended."""
        if isinstance(error, Exception):
            return self.draft("error", describe_error(error))
        return self.draft("interrupted")
