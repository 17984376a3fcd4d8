"""Whether an answer ended because it reached its length limit, as its provider reported."""

from __future__ import annotations

from typing import Any

from recollect.formats.native import is_dict, is_list, kept_response
from recollect.model.message import Draft, Message

SENTENCE = "The answer reached its length limit and is not complete."
_STOP_REASONS = ("max_tokens", "model_context_window_exceeded")


def is_truncated(message: Draft | Message) -> bool:
    """Return whether the provider cut this answer at its length limit."""
    native = message.native
    if native is None or message.role != "assistant":
        return False
    if message.format == "pydantic-ai":
        return native.get("finish_reason") == "length"
    response = kept_response(native) or {}
    if message.format == "anthropic":
        return response.get("stop_reason") in _STOP_REASONS
    if message.format == "openai":
        choices = response.get("choices")
        first: Any = choices[0] if is_list(choices) and choices else None
        return is_dict(first) and first.get("finish_reason") == "length"
    details = response.get("incomplete_details")
    return is_dict(details) and details.get("reason") == "max_output_tokens"
