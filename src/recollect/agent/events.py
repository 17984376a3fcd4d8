"""The events of a turn, which a channel shows and the recorder stores.

A model yields the events of an answer; the conversation adds those of the turn around it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recollect.model.message import Draft, ResultStatus
from recollect.model.turn import TurnStatus
from recollect.model.value import format_iso

Level = Literal["info", "warning"]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="event"):
    """The base of all events. The key `event` of its dict names the kind."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data, with times as ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        draft: Draft | None = getattr(self, "message", None)
        if draft is not None and draft.created_at_ms is not None:
            plain["message"]["created_at"] = format_iso(draft.created_at_ms)
        return plain


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started", gc=False):
    """The question is stored (or held in memory while the store fails), and the model is called next."""

    session: str
    turn: str | None = None


class TextDelta(Event, frozen=True, kw_only=True, tag="text", gc=False):
    """A piece of the answer."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning", gc=False):
    """A piece of the model's reasoning."""

    text: str


class Responded(Event, frozen=True, kw_only=True, tag="response", gc=False):
    """One response of the model is complete: its text and its tool calls."""

    message: Draft


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started", gc=False):
    """A tool runs."""

    call_id: str
    tool: str
    arguments: Any = None


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished", gc=False):
    """A tool has returned a result, or failed."""

    call_id: str
    tool: str
    status: ResultStatus
    output: str
    latency_ms: int
    message: Draft


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested", gc=False):
    """A tool of an MCP server waits for approval. `session` is the conversation in which to answer."""

    id: str
    session: str
    call_id: str
    server: str
    tool: str
    arguments: Any = None


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval_answered", gc=False):
    """An approval was answered (`once`, `session`, `always` or `deny`), here or in another window."""

    id: str
    call_id: str
    decision: str


class Delegated(Event, frozen=True, kw_only=True, tag="delegated", gc=False):
    """The progress of a sub-agent: its session, the tool it runs, the last line of its text; `ended` at the end."""

    agent: str
    session: str
    tool: str | None = None
    line: str = ""
    ended: bool = False


class Notice(Event, frozen=True, kw_only=True, tag="notice", gc=False):
    """A text for the person that is not part of the answer."""

    text: str
    level: Level = "info"


class Titled(Event, frozen=True, kw_only=True, tag="titled", gc=False):
    """The session has a new title."""

    title: str


class TurnEnded(Event, frozen=True, kw_only=True, tag="turn_ended", gc=False):
    """The turn is over: completed, failed (with its error), cancelled, or interrupted.

    It is interrupted if another process takes the session over, or if the model's stream ends early.
    """

    session: str
    status: TurnStatus
    text: str = ""
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    error: str | None = None
    truncated: bool = False
    """Whether the answer ended because it reached its length limit."""
