"""Which format a message is in, told from what only that format has.

A guess is made only where it is certain. Where a message says the same in every format there is none to guess, and
where it could be of several and would be read differently the caller is asked. Nothing is read or changed here.
"""

from __future__ import annotations

from typing import Any

from recollect.errors import FormatUnclear
from recollect.formats.native import is_dict, is_list
from recollect.formats.neutral import MESSAGE_FIELDS, TEXT_FIELDS

FORMATS: tuple[str, ...] = ("anthropic", "openai", "recollect")

_OPENAI_ROLES = frozenset({"developer", "tool", "function"})
_OPENAI_FIELDS = frozenset(
    {"tool_calls", "tool_call_id", "refusal", "function_call", "annotations", "audio", "name"}
    | {"reasoning", "reasoning_content", "reasoning_details"}  # other servers that speak this format
)
_RESPONSE_FIELDS = ("usage", "stop_reason", "model")
_PLAIN_FIELDS = frozenset(
    {"metadata", "tokens", "input_tokens", "output_tokens", "model", "error", "state", "created_at"}
)
_COMMON = frozenset(MESSAGE_FIELDS)

# What else must be in a block of this type for it to be clear; None where the type says enough.
_BLOCKS: dict[str, tuple[str, str | None]] = {
    "tool_use": ("anthropic", None),
    "tool_result": ("anthropic", "tool_use_id"),
    "thinking": ("anthropic", None),
    "redacted_thinking": ("anthropic", None),
    "server_tool_use": ("anthropic", None),
    "mcp_tool_use": ("anthropic", None),
    "search_result": ("anthropic", None),
    "container_upload": ("anthropic", None),
    "tool_reference": ("anthropic", None),
    "image": ("anthropic", "source"),
    "document": ("anthropic", "source"),
    "image_url": ("openai", "image_url"),
    "input_audio": ("openai", "input_audio"),
    "file": ("openai", "file"),
    "refusal": ("openai", "refusal"),
}
_TEXT_FIELDS = {"cache_control": "anthropic", "citations": "anthropic", "prompt_cache_breakpoint": "openai"}


def guess(message: dict[str, Any]) -> str | None:
    """Name the format of a message; None if it is the same in every one, or no message at all."""
    content, role = message.get("content"), message.get("role")
    if role is None and (message.get("object") == "chat.completion" or "choices" in message):
        return "openai"
    if type(role) is not str:
        return None
    if type(content) is str and len(message) == len(_COMMON):
        return "openai" if role in _OPENAI_ROLES else None
    if message.get("type") == "message":
        return _of_response(message)
    if "parts" in message:
        return _of_parts(message["parts"], placed="branch" in message)
    return _of_fields(message, content)


def _of_response(message: dict[str, Any]) -> str:
    if any(field in message for field in _RESPONSE_FIELDS):
        return "anthropic"
    raise _unclear()


def _of_parts(parts: Any, *, placed: bool) -> str:
    if is_list(parts) and (parts or placed) and all(is_dict(part) and "kind" in part for part in parts):
        return "recollect"
    raise _unclear()


def _of_fields(message: dict[str, Any], content: Any) -> str | None:
    extra = message.keys() - _COMMON
    votes: set[str | None] = set(_of_blocks(content)) if is_list(content) else set()
    if message["role"] in _OPENAI_ROLES or content is None or not extra.isdisjoint(_OPENAI_FIELDS):
        votes.add("openai")
    clear = votes - {None}
    if len(clear) == 1:
        return clear.pop()
    if not votes and not extra:
        return None
    if not votes and type(content) is str and extra <= _PLAIN_FIELDS:
        return "recollect"
    raise _unclear()


def _of_blocks(blocks: list[Any]) -> list[str | None]:
    """Name the format of each block that is more than text; None for one that says nothing."""
    votes: list[str | None] = []
    for block in blocks:
        if not is_dict(block):
            continue
        kind = block.get("type")
        if kind != "text":
            votes.append(_of_block(kind, block))
        elif len(block) > len(TEXT_FIELDS):
            votes.append(next((_TEXT_FIELDS[field] for field in block if field in _TEXT_FIELDS), None))
    return votes


def _of_block(kind: Any, block: dict[str, Any]) -> str | None:
    if type(kind) is not str:
        return None
    if kind not in _BLOCKS:
        return "anthropic" if kind.endswith("_tool_result") else None
    name, needed = _BLOCKS[kind]
    return name if needed is None or needed in block else None


def _unclear() -> FormatUnclear:
    return FormatUnclear(known=", ".join(FORMATS))
