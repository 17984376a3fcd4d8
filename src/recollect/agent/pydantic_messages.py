"""Conversion of messages to Pydantic AI's messages and back.

The common fields of a message make the request: role, text, reasoning, tool names, arguments, ids and results. Only
these are shown to a person, so only these may decide what a model reads. The provider-specific remainder (`native`,
under the format `pydantic-ai`) adds the keys listed below and never replaces a common field: an imported file may hold
any remainder. Converting a history never fetches a URL. Messages of other formats are translated.
Only this module, provider.py and mcp.py import Pydantic AI.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    FileUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolReturnPart,
    SystemPromptPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)

from recollect.formats import attachments, pydantic_ai
from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    ResultStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = pydantic_ai.NAME
NO_RESULT = "No result: the run was interrupted before the tool returned one."
_STATUS: dict[str, ResultStatus] = {"success": "success", "interrupted": "cancelled", "denied": "cancelled"}
_OUTCOME = {"success": "success", "error": "failed", "cancelled": "interrupted"}
# Keys that belong to one run of the library and do not describe the message.
_RUN_KEYS = ("run_id", "conversation_id", "workspace_ref", "history_digest")

# The keys of a remainder that are sent back. A model reads none of them as part of the conversation.
# `state` and `model_id` are left out: the library continues or routes a request by them.
_RESPONSE_KEYS = frozenset(
    {
        "usage",
        "timestamp",
        "provider_name",
        "provider_url",
        "canonical_system",
        "provider_details",
        "provider_response_id",
        "finish_reason",
    }
)
_PART_KEYS = frozenset({"id", "provider_name", "provider_details"})
_THINKING_KEYS = _PART_KEYS | {"signature"}
_RESULT_KEYS = frozenset({"timestamp", "metadata"})
# `raw_content` and `citations` are left out: they contain text that no person sees.
_DETAIL_KEYS = frozenset(
    {"finish_reason", "timestamp", "container_id", "phase", "namespace", "extra_content", "thought_signature", "caller"}
)
# The library's adapter for OpenAI's chat completions uses the id of a thinking part as the name of the field that it
# sends. An id such as `role` would overwrite another field.
_THINKING_IDS = re.compile(r"(?:reasoning|thinking|redacted)[a-z_]*|content|.*\d.*", re.DOTALL)
# Parts of a response without a common field. They are stored and shown as data.
_DATA_KINDS = frozenset({"builtin-tool-call", "builtin-tool-return", "file"})


def read_response(response: ModelResponse) -> Draft:
    """Return a model's response as a draft."""
    plain = pydantic_ai.dump(response)
    message = {name: value for name, value in plain.items() if name not in _RUN_KEYS}
    return pydantic_ai.read(message)[0].replace(created_at=None)


def read_result(part: Any, latency_ms: int) -> Draft:
    """Return a tool's result, or the library's retry request, as a draft."""
    plain = ModelMessagesTypeAdapter.dump_python([ModelRequest(parts=[part])], mode="json")[0]["parts"][0]
    content = plain.pop("content", None)
    status = _STATUS.get(plain.get("outcome") or "success", "error")
    if plain.get("part_kind") != "tool-return":
        status, content = "error", _as_text(part, content)
    text = content if isinstance(content, str) else None
    common_keys = ("tool_call_id", "tool_name", "content")
    result = ToolResultPart(
        call_id=plain.get("tool_call_id") or "",
        tool=plain.get("tool_name"),
        status=status,
        text=text,
        data=UNSET if text is not None else content,
        error_message=text if status == "error" else None,
        native={name: value for name, value in plain.items() if value is not None and name not in common_keys},
        metadata={"latency_ms": latency_ms},
    )
    return Draft(role="tool", parts=(result,), format=FORMAT)


def _as_text(part: Any, content: Any) -> str:
    to_text = getattr(part, "model_response", None)
    return str(to_text()) if callable(to_text) else str(content)


def to_model_messages(messages: Sequence[Draft | Message]) -> list[ModelMessage]:
    """Return messages as the library's history: every call has a result, and no message is empty."""
    model_messages: list[ModelMessage] = []
    for message in complete_tool_calls(messages):
        if message.role == "assistant":
            response = _response(message)
            model_messages += [_build_message(response, message)] if response["parts"] else []
        elif message.role == "tool":
            model_messages.append(_build_message(_tool_returns(message), message))
        else:
            model_messages.append(_request(message))
    return model_messages


def _build_message(plain: dict[str, Any], message: Draft | Message) -> ModelMessage:
    """Return the library's message; without the remainder if the library rejects it."""
    try:
        model_message = ModelMessagesTypeAdapter.validate_python([plain])[0]
    except ValidationError:
        bare = _tool_returns(message, bare=True) if message.role == "tool" else _response(message, bare=True)
        model_message = ModelMessagesTypeAdapter.validate_python([bare])[0]
    for part in model_message.parts:
        if isinstance(part, ToolReturnPart | NativeToolReturnPart):
            part.content = _without_file_urls(part.content)
    return model_message


def _without_file_urls(content: Any) -> Any:
    """Replace file URLs by text: the library would fetch them, or ask a provider to fetch them."""
    if isinstance(content, FileUrl):
        return content.url
    if isinstance(content, UploadedFile):
        return content.file_id
    if isinstance(content, Mapping):
        return {name: _without_file_urls(value) for name, value in content.items()}
    return [_without_file_urls(value) for value in content] if isinstance(content, list | tuple) else content


def complete_tool_calls(messages: Sequence[Draft | Message]) -> list[Draft | Message]:
    """Add a result for every call without one, and drop results of unknown calls.

    Providers reject a history with an unanswered call, and would reject every later turn too.
    """
    completed: list[Draft | Message] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in messages:
        results = _results(message)
        if results and not all(part.call_id in open_calls for part in results):
            continue
        for part in results:
            del open_calls[part.call_id]
        if not results and open_calls:
            completed += _missing_results(open_calls.values())
            open_calls = {}
        completed.append(message)
        open_calls |= {part.call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
    return [*completed, *_missing_results(open_calls.values())]


def _missing_results(calls: Iterable[ToolCallPart]) -> list[Draft]:
    return [
        Draft(
            role="tool",
            parts=(ToolResultPart(call_id=call.call_id, tool=call.tool, status="cancelled", text=NO_RESULT),),
        )
        for call in calls
    ]


def _results(message: Draft | Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def _allowed_keys(native: Any, names: frozenset[str]) -> dict[str, Any]:
    """Return the listed keys of a remainder."""
    result = {name: value for name, value in native.items() if name in names} if isinstance(native, dict) else {}
    details = result.pop("provider_details", None)
    if isinstance(details, dict):
        result["provider_details"] = {name: value for name, value in details.items() if name in _DETAIL_KEYS}
    return result


def _response(message: Draft | Message, *, bare: bool = False) -> dict[str, Any]:
    own_format = message.format == FORMAT and not bare
    parts = [
        plain for part in message.parts if (plain := _response_part(part, message, own_format=own_format)) is not None
    ]
    native: dict[str, Any] = message.native or {}
    # Messages of earlier versions have the keys without "fields".
    remainder = _allowed_keys(native.get("fields", native), _RESPONSE_KEYS) if own_format else {}
    return {**remainder, "kind": "response", "model_name": message.model, "parts": parts}


def _response_part(part: Part, message: Draft | Message, *, own_format: bool) -> dict[str, Any] | None:
    match part:
        case TextPart():
            native = _allowed_keys(part.native, _PART_KEYS) if own_format else {}
            return {**native, "part_kind": "text", "content": part.text} if part.text.strip() or native else None
        case ReasoningPart():
            thinking = {"part_kind": "thinking", "content": part.text}
            return {**_thinking(part), **thinking} if own_format else _signed_thinking(part, message)
        case ToolCallPart():
            arguments = part.arguments_text
            if arguments is None:
                arguments = None if part.arguments is UNSET else part.arguments
            if arguments is not None and not isinstance(arguments, str | dict):
                arguments = str(arguments)
            call = {"part_kind": "tool-call", "tool_name": part.tool, "args": arguments, "tool_call_id": part.call_id}
            return {**(_allowed_keys(part.native, _PART_KEYS) if own_format else {}), **call}
        case DataPart(native=dict(native), data=data) if own_format and data is UNSET:
            return native if native.get("part_kind") in _DATA_KINDS else None
        case AttachmentPart(data=str(data), native=dict(native)) if own_format:
            content = {"kind": "binary", "data": data, "media_type": part.mime_type or attachments.BYTES}
            return {**_allowed_keys(native.get("block"), _PART_KEYS), "part_kind": "file", "content": content}
        case _:
            return None


def _thinking(part: ReasoningPart) -> dict[str, Any]:
    native = _allowed_keys(part.native, _THINKING_KEYS)
    if not _THINKING_IDS.fullmatch(str(native.get("id", "0"))):
        del native["id"]
    return native


def _signed_thinking(part: ReasoningPart, message: Draft | Message) -> dict[str, Any] | None:
    """Return a signed thinking part of the format `anthropic`, else None: providers reject unsigned ones."""
    signature = part.native.get("signature") if isinstance(part.native, dict) else None
    if message.format != "anthropic" or not isinstance(signature, str):
        return None
    return {"part_kind": "thinking", "content": part.text, "signature": signature, "provider_name": "anthropic"}


def _tool_returns(message: Draft | Message, *, bare: bool = False) -> dict[str, Any]:
    own_format = message.format == FORMAT and not bare
    return {"kind": "request", "parts": [_tool_return(part, own_format=own_format) for part in _results(message)]}


def _tool_return(part: ToolResultPart, *, own_format: bool) -> dict[str, Any]:
    native: dict[str, Any] = part.native if own_format and isinstance(part.native, dict) else {}
    outcome = native.get("outcome")
    is_same_status = isinstance(outcome, str) and _STATUS.get(outcome, "error") == part.status
    return {
        **_allowed_keys(native, _RESULT_KEYS),
        "part_kind": "tool-return",
        "tool_name": part.tool or "tool",
        "content": part.data if part.text is None and part.data is not UNSET else part.output,
        "tool_call_id": part.call_id,
        "outcome": outcome if is_same_status else _OUTCOME[part.status],
    }


def _request(message: Draft | Message) -> ModelRequest:
    texts = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    if message.role == "system":
        return ModelRequest(parts=[SystemPromptPart(content=texts)])
    files = [file for part in message.parts if isinstance(part, AttachmentPart) and (file := _file(part)) is not None]
    if not files:
        return ModelRequest(parts=[UserPromptPart(content=texts)])
    return ModelRequest(parts=[UserPromptPart(content=[texts, *files] if texts else files)])


def _file(part: AttachmentPart) -> UserContent | None:
    """Return a file as bytes, as text, or its URL as text.

    A URL is never passed as a file: several of the library's adapters would fetch it on this machine, and a provider
    that cannot reach it rejects this turn and every later one.
    """
    content = attachments.content_of_attachment(part)
    if content.data is not None:
        try:
            data = base64.b64decode(content.data)
        except binascii.Error:
            return None
        return BinaryContent(data=data, media_type=content.mime_type or attachments.BYTES)
    if content.url is not None:
        return f"[{content.name or ('image' if content.is_image else 'file')}: {content.url}]"
    return attachments.text_with_name(content) if content.text else None
