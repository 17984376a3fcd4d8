"""Which format a message is in, told from what only that format has.

A guess is made only where it is certain. Where a message says the same in every format there is none to guess, and
where it could be of several and would be read differently the caller is asked. Nothing is read or changed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recollect.errors import FormatUnclear, displayed
from recollect.formats.native import is_dict, is_list
from recollect.formats.neutral import MESSAGE_FIELDS, TEXT_FIELDS

FORMATS: tuple[str, ...] = ("anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui", "recollect")
RESERVED = ("gemini",)

_ANTHROPIC, _OPENAI, _RESPONSES, _AI_SDK, _AI_SDK_UI, _PLAIN = FORMATS
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
_ITEMS = frozenset(
    {"reasoning", "item_reference", "compaction", "compaction_trigger", "program", "program_output"}
    | {"configuration_update"}
    | {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "additional_tools", "tool_search_output"}
    | {"function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output"}
    | {"shell_call_output", "apply_patch_call_output", "function_call", "custom_tool_call", "computer_call", "mcp_call"}
    | {"local_shell_call", "shell_call", "apply_patch_call", "web_search_call", "file_search_call", "tool_search_call"}
    | {"code_interpreter_call", "image_generation_call"}
)

# What else must be in a block of this type for it to be clear; None where the type says enough.
_BLOCKS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "tool_use": ((_ANTHROPIC, None),),
    "tool_result": ((_ANTHROPIC, "tool_use_id"),),
    "thinking": ((_ANTHROPIC, None),),
    "redacted_thinking": ((_ANTHROPIC, None),),
    "server_tool_use": ((_ANTHROPIC, None),),
    "mcp_tool_use": ((_ANTHROPIC, None),),
    "search_result": ((_ANTHROPIC, None),),
    "container_upload": ((_ANTHROPIC, None),),
    "tool_reference": ((_ANTHROPIC, None),),
    "image": ((_ANTHROPIC, "source"), (_AI_SDK, "image")),
    "document": ((_ANTHROPIC, "source"),),
    "image_url": ((_OPENAI, "image_url"),),
    "input_audio": ((_OPENAI, "input_audio"),),
    "file": ((_OPENAI, "file"), (_AI_SDK, "data")),
    "refusal": ((_OPENAI, "refusal"),),
    "input_text": ((_RESPONSES, None),),
    "input_image": ((_RESPONSES, None),),
    "input_file": ((_RESPONSES, None),),
    "output_text": ((_RESPONSES, None),),
    "tool-call": ((_AI_SDK, None),),
    "tool-result": ((_AI_SDK, None),),
    "tool-approval-request": ((_AI_SDK, None),),
    "tool-approval-response": ((_AI_SDK, None),),
    "reasoning": ((_AI_SDK, "text"),),
}
_TEXT_FIELDS = {
    "cache_control": _ANTHROPIC,
    "citations": _ANTHROPIC,
    "prompt_cache_breakpoint": _OPENAI,
    "providerOptions": _AI_SDK,
}
_MESSAGE_FIELDS = {"providerOptions": _AI_SDK, "toolInvocations": _AI_SDK_UI, "experimental_attachments": _AI_SDK_UI}


def guess(message: dict[str, Any]) -> str | None:
    """Name the format of a message; None if it is the same in every one, or no message at all."""
    content, role, kind = message.get("content"), message.get("role"), message.get("type")
    if role is None and (message.get("object") == "chat.completion" or "choices" in message):
        return _OPENAI
    if (type(kind) is str and kind in _ITEMS) or message.get("object") == "response":
        return _RESPONSES
    if type(role) is not str:
        if "role" not in message and type(kind) is str and kind != "message":
            raise _unknown(kind)
        return None
    if type(content) is str and len(message) == len(_COMMON):
        return _OPENAI if role in _OPENAI_ROLES else None
    if kind == "message":
        return _of_message(message)
    if "parts" in message:
        return _of_parts(message["parts"], placed="branch" in message)
    return _of_fields(message, content)


def has_items(messages: Iterable[Any]) -> bool:
    """Say whether something in a list is clearly an item of the Responses API, a dict or an object of its SDK."""
    for message in messages:
        if not is_dict(message):
            if getattr(message, "type", None) in _ITEMS:
                return True
            continue
        try:
            if guess(message) == _RESPONSES:
                return True
        except FormatUnclear:
            continue
    return False


def _of_message(message: dict[str, Any]) -> str:
    """Tell a whole response of Anthropic's from a message item of OpenAI's."""
    content = message.get("content")
    if any(field in message for field in _RESPONSE_FIELDS):
        return _ANTHROPIC
    if type(content) is str or "status" in message or (is_list(content) and _RESPONSES in _of_blocks(content)):
        return _RESPONSES
    raise _unclear()


def _of_parts(parts: Any, *, placed: bool) -> str:
    if is_list(parts) and (parts or placed) and all(is_dict(part) for part in parts):
        if all("kind" in part for part in parts):
            return _PLAIN
        if all(type(part.get("type")) is str for part in parts):
            return _AI_SDK_UI
    raise _unclear()


def _of_fields(message: dict[str, Any], content: Any) -> str | None:
    extra = message.keys() - _COMMON
    votes: set[str | None] = set(_of_blocks(content)) if is_list(content) else set()
    votes |= {_MESSAGE_FIELDS[field] for field in extra if field in _MESSAGE_FIELDS}
    shared = not votes.isdisjoint({_RESPONSES, _AI_SDK})  # they have some of these roles and blocks too
    if not extra.isdisjoint(_OPENAI_FIELDS) or (
        not shared and (message["role"] in _OPENAI_ROLES or (content is None and not votes))
    ):
        votes.add(_OPENAI)
    elif _RESPONSES in votes:
        votes.discard(_OPENAI)
    clear = votes - {None}
    if len(clear) == 1:
        return clear.pop()
    if not votes and not extra:
        return None
    if not votes and type(content) is str and extra <= _PLAIN_FIELDS:
        return _PLAIN
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
        return _ANTHROPIC if kind.endswith("_tool_result") else None
    return next((name for name, needed in _BLOCKS[kind] if needed is None or needed in block), None)


def _unknown(kind: str) -> FormatUnclear:
    told = (
        f"There is no role, and nothing is known of the type {displayed(kind)}. If it is an item of OpenAI's "
        "Responses API, say "
        f'format="{_RESPONSES}"; else write {{"role": "user", "content": ...}}.'
    )
    return FormatUnclear(told, known=FORMATS, type=kind)


def _unclear() -> FormatUnclear:
    return FormatUnclear(known=FORMATS)
