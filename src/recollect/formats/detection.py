"""Format detection, by the fields that only one format has.

A format is detected only if it is certain. A message that is equal in every format has none, and a message that several
formats would read differently raises AmbiguousFormat. Nothing is read or changed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from recollect.errors import AmbiguousFormat, format_value
from recollect.formats.byte_values import BYTES
from recollect.formats.common import MESSAGE_FIELDS, TEXT_FIELDS
from recollect.formats.remainder import is_dict, is_list
from recollect.model.message import BuiltInFormat

FORMATS: tuple[str, ...] = get_args(BuiltInFormat)

_ANTHROPIC, _OPENAI, _RESPONSES, _RECOLLECT = "anthropic", "openai", "openai-responses", "recollect"
_AI_SDK, _AI_SDK_UI = "ai-sdk", "ai-sdk-ui"
_PYDANTIC_AI = "pydantic-ai"
_LANGCHAIN = "langchain"
_AG_UI = "ag-ui"
_GEMINI, _BEDROCK, _OLLAMA = "gemini", "bedrock", "ollama"
_MISTRAL = "mistral"
_OPENAI_ROLES = frozenset({"developer", "tool", "function"})
_OPENAI_FIELDS = frozenset(
    {"tool_calls", "tool_call_id", "refusal", "function_call", "annotations", "audio", "name"}
    | {"reasoning", "reasoning_content", "reasoning_details"}  # other servers with this format
)
_RESPONSE_FIELDS = ("usage", "stop_reason", "model")
_RECOLLECT_FIELDS = frozenset(
    {"metadata", "tokens", "input_tokens", "output_tokens", "model", "error", "state", "created_at"}
)
_COMMON_FIELDS = frozenset(MESSAGE_FIELDS)
_AG_UI_ROLES = frozenset({"activity", "reasoning"})
_AG_UI_FIELDS = frozenset({"toolCalls", "toolCallId", "encryptedValue", "subagentRunId"})
# The types of LangChain's messages. Programs also call other things "system" or "tool", with other fields.
_LANGCHAIN_TYPES = frozenset(
    {"human", "ai", "AIMessageChunk", "HumanMessageChunk", "SystemMessageChunk", "ToolMessageChunk"}
    | {"FunctionMessageChunk", "chat", "ChatMessageChunk"}
)
_LANGCHAIN_CHATS = frozenset({"chat", "ChatMessageChunk"})  # which have a role
_LANGCHAIN_FIELDS = frozenset(
    {"type", "content", "id", "name", "additional_kwargs", "response_metadata", "tool_call_id", "artifact", "status"}
)
_ITEM_TYPES = frozenset(
    {"reasoning", "item_reference", "compaction", "compaction_trigger", "program", "program_output"}
    | {"configuration_update"}
    | {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "additional_tools", "tool_search_output"}
    | {"function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output"}
    | {"shell_call_output", "apply_patch_call_output", "function_call", "custom_tool_call", "computer_call", "mcp_call"}
    | {"local_shell_call", "shell_call", "apply_patch_call", "web_search_call", "file_search_call", "tool_search_call"}
    | {"code_interpreter_call", "image_generation_call"}
)

# The formats of a block type, each with a field that the block must have; None if the type alone is certain.
_BLOCK_TYPES: dict[str, tuple[tuple[str, str | None], ...]] = {
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
    "reference": ((_MISTRAL, "reference_ids"),),
    "document_url": ((_MISTRAL, "document_url"),),
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
GEMINI_RESPONSE_FIELDS = frozenset(
    {"candidates", "usageMetadata", "usage_metadata", "promptFeedback", "prompt_feedback"}
)
GEMINI_PARTS = frozenset(
    {"text", "inlineData", "inline_data", "fileData", "file_data", "functionCall", "function_call"}
    | {"functionResponse", "function_response", "executableCode", "executable_code", "codeExecutionResult"}
    | {"code_execution_result", "toolCall", "tool_call", "toolResponse", "tool_response"}
)
_BEDROCK_BLOCKS = frozenset(
    {"text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "cachePoint"}
    | {"reasoningContent", "citationsContent", "searchResult", "toolAddition", "toolRemoval"}
)
_MESSAGE_FIELDS = {"providerOptions": _AI_SDK, "toolInvocations": _AI_SDK_UI, "experimental_attachments": _AI_SDK_UI}


def detect_format(message: dict[str, Any]) -> str | None:
    """Return the format of a message; None if it is the same in every format, or is not a message."""
    content, role, kind = message.get("content"), message.get("role"), message.get("type")
    if role is None and (message.get("object") == "chat.completion" or "choices" in message):
        return _OPENAI
    if (name := _detect_untyped(message)) is not None:
        return name
    if (type(kind) is str and kind in _ITEM_TYPES) or message.get("object") == "response":
        return _RESPONSES
    framework = _detect_framework(message)
    if framework is not None:
        return framework
    if type(role) is not str:
        if "role" not in message and type(kind) is str and kind != "message":
            raise _unknown_type_error(kind)
        return None
    if type(content) is str and len(message) == len(_COMMON_FIELDS):
        return _OPENAI if role in _OPENAI_ROLES else None
    if kind == "message":
        return _detect_message_item(message)
    if "parts" in message:
        return _detect_by_parts(message["parts"], has_position="branch" in message)
    return _detect_by_fields(message, content)


def _detect_framework(message: dict[str, Any]) -> str | None:
    """Return the framework that a message certainly belongs to, or None."""
    if message.get("kind") in ("request", "response") and is_list(message.get("parts")):
        return None if "role" in message else _PYDANTIC_AI
    if "id" in message and _is_ag_ui(message):
        return _AG_UI
    return _LANGCHAIN if _is_langchain(message) else None


def _is_langchain(message: dict[str, Any]) -> bool:
    """Return whether this is a message of LangChain: its fields, or a dict around them."""
    kind = message.get("type")
    if kind == "constructor":
        return message.get("lc") == 1
    fields = message.get("data") if "content" not in message else message
    if type(kind) is not str or not is_dict(fields) or "content" not in fields:
        return False
    if kind in _LANGCHAIN_TYPES:
        return "role" not in message or kind in _LANGCHAIN_CHATS
    return kind in ("system", "tool", "function", "remove") and fields.keys() <= _LANGCHAIN_FIELDS


def _is_ag_ui(message: dict[str, Any]) -> bool:
    """Return whether a message with an id has a role, a field or a file that only AG-UI has."""
    role, content = message.get("role"), message.get("content")
    if type(role) is not str:
        return False
    if role in _AG_UI_ROLES or not _AG_UI_FIELDS.isdisjoint(message):
        return True
    sources = [block.get("source") for block in content if is_dict(block)] if is_list(content) else []
    return any(is_dict(source) and "value" in source for source in sources)


def _detect_untyped(message: dict[str, Any]) -> str | None:
    """Return the format of a message or a response that has no field `type` and is not OpenAI's."""
    if _is_gemini(message):
        return _GEMINI
    output = message.get("output")
    if "role" not in message and "type" not in message and is_dict(output) and "message" in output:
        return _BEDROCK
    if _is_ollama(message):
        return _OLLAMA
    return _MISTRAL if type(message.get("prefix")) is bool and "role" in message else None


def _is_gemini(message: dict[str, Any]) -> bool:
    """Return whether this is a content with parts of Google, or a complete response."""
    role, parts = message.get("role"), message.get("parts")
    if "parts" not in message:
        return role is None and "type" not in message and not GEMINI_RESPONSE_FIELDS.isdisjoint(message)
    if not is_list(parts):
        return role == "model" and parts is None
    if not all(is_dict(part) and part.keys().isdisjoint(("type", "kind")) for part in parts):
        return False
    return role == "model" or any(not GEMINI_PARTS.isdisjoint(part) for part in parts)


def _is_ollama(message: dict[str, Any]) -> bool:
    """Return whether this is a message with fields of Ollama, or a complete response."""
    if "role" not in message:
        return is_dict(message.get("message")) and "done" in message
    images, calls = message.get("images"), message.get("tool_calls")
    if type(message.get("thinking")) is str or "tool_name" in message:
        return type(message.get("content")) is str or "content" not in message
    if (
        is_list(images)
        and images
        and all(type(image) is str or (is_dict(image) and BYTES in image) for image in images)
    ):
        return True
    return is_list(calls) and any(
        is_dict(call) and "type" not in call and is_dict(function := call.get("function"))
        and is_dict(function.get("arguments"))
        for call in calls
    )  # fmt: skip


def has_response_items(messages: Iterable[Any]) -> bool:
    """Return whether a list contains an item that only the Responses API has, as a dict or an SDK object."""
    for message in messages:
        if not is_dict(message):
            if getattr(message, "type", None) in _ITEM_TYPES:
                return True
            continue
        try:
            if detect_format(message) == _RESPONSES:
                return True
        except AmbiguousFormat:
            continue
    return False


def _detect_message_item(message: dict[str, Any]) -> str:
    """Return the format of a `message` object: a complete response of Anthropic, or an item of OpenAI."""
    content = message.get("content")
    if any(field in message for field in _RESPONSE_FIELDS):
        return _ANTHROPIC
    if type(content) is str or "status" in message or (is_list(content) and _RESPONSES in _block_formats(content)):
        return _RESPONSES
    raise _ambiguous_error()


def _detect_by_parts(parts: Any, *, has_position: bool) -> str:
    if is_list(parts) and (parts or has_position) and all(is_dict(part) for part in parts):
        if all("kind" in part for part in parts):
            return _RECOLLECT
        if all(type(part.get("type")) is str for part in parts):
            return _AI_SDK_UI
    raise _ambiguous_error()


def _detect_by_fields(message: dict[str, Any], content: Any) -> str | None:
    extra = message.keys() - _COMMON_FIELDS
    votes: set[str | None] = set(_block_formats(content)) if is_list(content) else set()
    votes |= {_MESSAGE_FIELDS[field] for field in extra if field in _MESSAGE_FIELDS}
    shared = not votes.isdisjoint({_RESPONSES, _AI_SDK})  # these formats share some roles and blocks
    if not extra.isdisjoint(_OPENAI_FIELDS) or (
        not shared and (message["role"] in _OPENAI_ROLES or (content is None and not votes))
    ):
        votes.add(_OPENAI)
    elif _RESPONSES in votes:
        votes.discard(_OPENAI)
    certain = votes - {None}
    if len(certain) == 1:
        return certain.pop()
    if not votes and not extra:
        return None
    if not votes and type(content) is str and extra <= _RECOLLECT_FIELDS:
        return _RECOLLECT
    raise _ambiguous_error()


def _block_formats(blocks: list[Any]) -> list[str | None]:
    """Return the format of each block that is more than text; None for an ambiguous block."""
    votes: list[str | None] = []
    for block in blocks:
        if not is_dict(block):
            continue
        kind = block.get("type")
        if "type" not in block and not _BEDROCK_BLOCKS.isdisjoint(block):
            votes.append(_BEDROCK)
        elif kind != "text":
            votes.append(_block_format(kind, block))
        elif len(block) > len(TEXT_FIELDS):
            votes.append(next((_TEXT_FIELDS[field] for field in block if field in _TEXT_FIELDS), None))
    return votes


def _block_format(kind: Any, block: dict[str, Any]) -> str | None:
    if type(kind) is not str:
        return None
    if kind == "thinking" and is_list(block.get("thinking")):
        return _MISTRAL
    if kind not in _BLOCK_TYPES:
        return _ANTHROPIC if kind.endswith("_tool_result") else None
    return next((name for name, field in _BLOCK_TYPES[kind] if field is None or field in block), None)


def _unknown_type_error(kind: str) -> AmbiguousFormat:
    reason = (
        f"The message has no role, and its type {format_value(kind)} is unknown. Pass "
        f'format="{_RESPONSES}" for an item of OpenAI\'s Responses API; otherwise write '
        '{"role": "user", "content": ...}.'
    )
    return AmbiguousFormat(reason, known=FORMATS, type=kind)


def _ambiguous_error() -> AmbiguousFormat:
    return AmbiguousFormat(known=FORMATS)
