"""Parsing of the caller's arguments into drafts: messages, a question, an answer, a tool result."""

from __future__ import annotations

from typing import Any

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model import json, validation
from recollect.model.message import Draft, ResultStatus, TextPart, ToolResultPart, check_draft


def read_drafts(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one message or several as drafts. The format is detected if it is None."""
    return formats.read(messages, format)


def read_batch(messages: Any, format: str | None, keys: Any) -> list[Draft]:
    """Read the messages of an append: with keys, one draft for each."""
    return formats.read(messages, format) if keys is None else formats.read_with_keys(messages, keys, format)


def read_answer(message: Any, format: str | None = None) -> Draft:
    """Read the message that completes a stream. Raise InvalidValue if it is not exactly one."""
    drafts = read_drafts(message, format)
    if len(drafts) == 1:
        return drafts[0]
    raise InvalidValue(f"The answer must be one message, got {len(drafts)}.")


def read_replacement(message: Any, format: str | None = None) -> Draft:
    """Read the new content of a message. Raise InvalidValue if it is not exactly one message."""
    drafts = read_drafts(message, format)
    if len(drafts) == 1:
        return drafts[0]
    raise InvalidValue(f"The new content must be one message, got {len(drafts)}.")


def read_question(question: Any, format: str | None = None) -> list[Draft]:
    """Read the messages that open a turn; a str is a user message."""
    if isinstance(question, str):
        return [Draft(role="user", parts=(TextPart(text=str.__str__(question)),))]
    return read_drafts(question, format)


def tool_result_draft(
    call_id: str,
    output: Any,
    *,
    status: ResultStatus,
    error_code: str | None,
    error_message: str | None,
    latency_ms: float | None,
    metadata: dict[str, Any] | None,
) -> Draft:
    """Return the tool message with the result of a call."""
    validation.check_choice("status", status, ("success", "error", "cancelled"))
    if error_message is not None:
        error_message = validation.check_string("error_message", error_message)
    if metadata is not None and not isinstance(metadata, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"metadata must be a dict or None, got {type(metadata).__name__}.")
    result_metadata = dict(json.to_json_data(metadata, "metadata")) if metadata else {}
    latency = validation.check_milliseconds("latency_ms", latency_ms)
    if latency is not None:
        result_metadata["latency_ms"] = latency
    part = ToolResultPart(
        call_id=call_id,
        status=status,
        text=output if isinstance(output, str) else (error_message or "" if output is None else None),
        data=json.UNSET if output is None or isinstance(output, str) else json.to_json_data(output, "output"),
        error_code=error_code,
        error_message=error_message,
        metadata=result_metadata or None,
    )
    return check_draft(Draft(role="tool", parts=(part,)))
