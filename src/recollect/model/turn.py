"""A turn: one run, from the person's message to the end of the agent's answer."""

from __future__ import annotations

from typing import Any, Literal

from recollect.model.value import Value

TurnStatus = Literal["open", "completed", "failed", "cancelled", "interrupted"]
LEASE = 300.0
"""Seconds that an open turn is held for after each of its writes, where the caller does not say."""

POLL = 0.05
"""Seconds between two looks at a busy branch."""

EndStatus = Literal["completed", "failed", "cancelled"]
"""How a caller ends a turn; Turn.interrupt() ends one whose answer is not whole."""


class Turn(Value, frozen=True, kw_only=True, gc=False):
    """What is known about a run. It is named after its first message, which opened it."""

    branch: int
    position: int
    status: TurnStatus
    holder: str | None = None
    lease_until_at: int | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    error: Any = None
    started_at: int
    ended_at: int | None = None

    @property
    def id(self) -> str:
        """The id of the message that opened the turn."""
        return f"{self.branch}.{self.position}"

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, with the id, times as ISO 8601."""
        return {"id": self.id, **super().to_dict()}


def failure(error: BaseException) -> dict[str, str]:
    """Describe an exception as it is kept with a turn or a message."""
    return {"name": type(error).__name__, "message": str(error)}
