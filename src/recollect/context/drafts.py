"""What a caller hands over, as drafts."""

from __future__ import annotations

from typing import Any

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model import argument, figure, json
from recollect.model.message import Draft, checked
from recollect.model.part import ResultStatus, TextPart, ToolResultPart


def drafts(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one message or many."""
    return formats.read(messages, format)


def answer(message: Any, format: str | None = None) -> Draft:
    """Read what completes a stream: one message."""
    found = drafts(message, format)
    if len(found) == 1:
        return found[0]
    raise InvalidValue(f"An answer is one message; got {len(found)}.")


def question(said: Any, format: str | None = None) -> list[Draft]:
    """Read what opens a turn: a text is what the person said."""
    if isinstance(said, str):
        return [Draft(role="user", parts=(TextPart(text=str.__str__(said)),))]
    return drafts(said, format)


def tool_result(
    call_id: str,
    output: Any,
    *,
    status: ResultStatus,
    error_code: str | None,
    error_message: str | None,
    latency_ms: float | None,
    metadata: dict[str, Any] | None,
) -> Draft:
    """Make the message that carries a tool's result."""
    argument.choice("status", status, ("success", "error", "canceled"))
    if error_message is not None:
        error_message = argument.string("error_message", error_message)
    if metadata is not None and not isinstance(metadata, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"metadata is a dict or None; got {type(metadata).__name__}.")
    told = dict(json.exact(metadata)) if metadata else {}
    taken = figure.milliseconds("latency_ms", latency_ms)
    if taken is not None:
        told["latency_ms"] = taken
    part = ToolResultPart(
        call_id=call_id,
        status=status,
        text=output if isinstance(output, str) else (error_message or "" if output is None else None),
        data=json.UNSET if output is None or isinstance(output, str) else json.exact(output),
        error_code=error_code,
        error_message=error_message,
        metadata=told or None,
    )
    return checked(Draft(role="tool", parts=(part,)))
