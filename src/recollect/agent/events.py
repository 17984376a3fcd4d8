"""What happens in a talk, as it happens: small values that a surface shows and the recorder stores.

Models yield the events of an answer; the conversation adds those of the turn around it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recollect.model.message import Draft
from recollect.model.part import ResultStatus
from recollect.model.turn import TurnStatus
from recollect.model.value import iso

Level = Literal["info", "warning"]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="event"):
    """Something that happened. The `event` of its dict says what."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, times as ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        message = plain.get("message")
        if message and message["created_at"] is not None:
            message["created_at"] = iso(message["created_at"])
        return plain


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started", gc=False):
    """The question is stored (or held, where the store can not be written), and the model is asked now."""

    session: str
    turn: str | None = None


class TextDelta(Event, frozen=True, kw_only=True, tag="text", gc=False):
    """A piece of the answer."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning", gc=False):
    """A piece of what the model thinks."""

    text: str


class Responded(Event, frozen=True, kw_only=True, tag="response", gc=False):
    """One response of the model is complete: its text, and the tools that it asks for."""

    message: Draft


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started", gc=False):
    """A tool runs."""

    call_id: str
    tool: str
    arguments: Any = None


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished", gc=False):
    """A tool has answered, or failed."""

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
    """A tool was allowed (`once`, `session` or `always`) or not (`deny`), here or in another window."""

    id: str
    call_id: str
    decision: str


class Delegated(Event, frozen=True, kw_only=True, tag="delegated", gc=False):
    """How far a sub-agent is: the session it talks in, the tool it runs, the last line it said; `ended` at the end."""

    agent: str
    session: str
    tool: str | None = None
    line: str = ""
    ended: bool = False


class Notice(Event, frozen=True, kw_only=True, tag="notice", gc=False):
    """Something that the person should know and that is no part of the answer."""

    text: str
    level: Level = "info"


class Titled(Event, frozen=True, kw_only=True, tag="titled", gc=False):
    """The session has got a title."""

    title: str


class TurnEnded(Event, frozen=True, kw_only=True, tag="turn_ended", gc=False):
    """The turn is over: completed, failed (with its error), cancelled, or interrupted.

    It is interrupted by another process that took the session over, or by a model whose stream ended early.
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
