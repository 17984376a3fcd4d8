"""A tool call: one invocation and how it went. Its arguments and its result are read from the parts."""

from __future__ import annotations

from recollect.model.part import CallStatus
from recollect.model.value import Value


class ToolCall(Value, frozen=True, kw_only=True, gc=False):
    """The life of one invocation: pending, running, then success, error or canceled."""

    message: str
    part: int
    call_id: str
    tool: str
    status: CallStatus
    result_message: str | None = None
    result_part: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    latency_ms: int | None = None
