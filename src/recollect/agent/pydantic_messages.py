"""Our messages as Pydantic AI's, and back.

The common fields of a message make the request: role, text, reasoning, tool names, arguments, ids and results. Only
these are shown to a person, so only these may decide what a model reads. The provider-specific remainder (`native`,
under the format `pydantic-ai`) adds the keys listed below and never replaces a common field: an imported file may hold
any remainder. No history makes this machine fetch an address. Messages of other formats are translated.
This file, provider.py and mcp.py are the only ones that know Pydantic AI.
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

from recollect.formats import attachment
from recollect.model.json import UNSET
from recollect.model.message import Draft, Message
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    ResultStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = "pydantic-ai"
NO_RESULT = "There is no result: the run was interrupted before the tool had answered."
_STATUS: dict[str, ResultStatus] = {"success": "success", "interrupted": "canceled", "denied": "canceled"}
_OUTCOME = {"success": "success", "error": "failed", "canceled": "interrupted"}
# What belongs to one run of the library and says nothing about the message.
_PASSING = ("run_id", "conversation_id", "workspace_ref", "history_digest")

# The keys of a remainder that are sent back. None of them holds anything that a model reads as conversation.
# `state` and `model_id` are left out: the library continues or routes a request by them.
_OF_RESPONSE = frozenset(
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
_OF_PART = frozenset({"id", "provider_name", "provider_details"})
_OF_THINKING = _OF_PART | {"signature"}
_OF_RESULT = frozenset({"timestamp", "metadata"})
# Not `raw_content` and `citations`, which are text beside the text that is shown.
_DETAILS = frozenset(
    {"finish_reason", "timestamp", "container_id", "phase", "namespace", "extra_content", "thought_signature", "caller"}
)
# OpenAI's chat completions take the id of a thought for the name of the field that it is sent in: `role` is none.
_THINKING_IDS = re.compile(r"(?:reasoning|thinking|redacted)[a-z_]*|content|.*\d.*", re.DOTALL)
# Parts of a response that have no common field. They are shown as the data that they are.
_DATA_KINDS = frozenset({"builtin-tool-call", "builtin-tool-return", "file"})


def read_response(response: ModelResponse) -> Draft:
    """Read a model's response."""
    plain = _dumped(response)
    parts = tuple(_read_part(part) for part in plain.pop("parts"))
    usage = {name: value for name, value in plain.pop("usage", {}).items() if value}
    native = {name: value for name, value in plain.items() if value is not None and name not in _PASSING}
    return Draft(
        role="assistant",
        parts=parts,
        format=FORMAT,
        native={**native, "usage": usage},
        model=response.model_name,
        input_tokens=response.usage.input_tokens or None,
        output_tokens=response.usage.output_tokens or None,
    )


def read_result(part: Any, latency_ms: int) -> Draft:
    """Read what a tool gave back: a result, or what the model is told to do better."""
    plain = _dumped(ModelRequest(parts=[part]))["parts"][0]
    content = plain.pop("content", None)
    status = _STATUS.get(plain.get("outcome") or "success", "error")
    if plain.get("part_kind") != "tool-return":
        status, content = "error", _as_text(part, content)
    text = content if isinstance(content, str) else None
    known = ("tool_call_id", "tool_name", "content")
    result = ToolResultPart(
        call_id=plain.get("tool_call_id") or "",
        tool=plain.get("tool_name"),
        status=status,
        text=text,
        data=UNSET if text is not None else content,
        error_message=text if status == "error" else None,
        native={name: value for name, value in plain.items() if value is not None and name not in known},
        metadata={"latency_ms": latency_ms},
    )
    return Draft(role="tool", parts=(result,), format=FORMAT)


def _as_text(part: Any, content: Any) -> str:
    told = getattr(part, "model_response", None)
    return str(told()) if callable(told) else str(content)


def _dumped(message: ModelMessage) -> dict[str, Any]:
    return ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]


def _rest(part: dict[str, Any], *known: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None and name not in known}


def _read_part(part: dict[str, Any]) -> Part:
    match part["part_kind"]:
        case "text":
            return TextPart(text=part["content"], native=_rest(part, "content", "part_kind") or None)
        case "thinking":
            return ReasoningPart(text=part["content"], native=_rest(part, "content", "part_kind") or None)
        case "tool-call":
            arguments = part["args"]
            return ToolCallPart(
                call_id=part["tool_call_id"],
                tool=part["tool_name"],
                arguments=UNSET if isinstance(arguments, str) else arguments,
                arguments_text=arguments if isinstance(arguments, str) else None,
                native=_rest(part, "args", "tool_call_id", "tool_name", "part_kind") or None,
            )
        case _:
            return DataPart(native=part)


def write(spoken: Sequence[Draft | Message]) -> list[ModelMessage]:
    """Write messages as the history that a model is sent: every call has its result, nothing is empty."""
    written: list[ModelMessage] = []
    for message in answered(spoken):
        if message.role == "assistant":
            response = _response(message)
            written += [_validated(response, message)] if response["parts"] else []
        elif message.role == "tool":
            written.append(_validated(_returns(message), message))
        else:
            written.append(_request(message))
    return written


def _validated(plain: dict[str, Any], message: Draft | Message) -> ModelMessage:
    """Build the library's message; without its remainder if the library refuses that."""
    try:
        made = ModelMessagesTypeAdapter.validate_python([plain])[0]
    except ValidationError:
        bare = _returns(message, bare=True) if message.role == "tool" else _response(message, bare=True)
        made = ModelMessagesTypeAdapter.validate_python([bare])[0]
    for part in made.parts:
        if isinstance(part, ToolReturnPart | NativeToolReturnPart):
            part.content = _offline(part.content)
    return made


def _offline(content: Any) -> Any:
    """Replace addresses of files by their text: the library would fetch them, or have a provider fetch them."""
    if isinstance(content, FileUrl):
        return content.url
    if isinstance(content, UploadedFile):
        return content.file_id
    if isinstance(content, Mapping):
        return {name: _offline(value) for name, value in content.items()}
    return [_offline(value) for value in content] if isinstance(content, list | tuple) else content


def answered(spoken: Sequence[Draft | Message]) -> list[Draft | Message]:
    """Give each call a result where it has none, and leave out results of calls that are not there.

    A provider refuses a history with a call that nobody answered, and would refuse it for good.
    """
    kept: list[Draft | Message] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in spoken:
        results = _results(message)
        if results and not all(part.call_id in open_calls for part in results):
            continue
        for part in results:
            del open_calls[part.call_id]
        if not results and open_calls:
            kept += _without_result(open_calls.values())
            open_calls = {}
        kept.append(message)
        open_calls |= {part.call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
    return [*kept, *_without_result(open_calls.values())]


def _without_result(calls: Iterable[ToolCallPart]) -> list[Draft]:
    return [
        Draft(
            role="tool",
            parts=(ToolResultPart(call_id=call.call_id, tool=call.tool, status="canceled", text=NO_RESULT),),
        )
        for call in calls
    ]


def _results(message: Draft | Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def _listed(native: Any, names: frozenset[str]) -> dict[str, Any]:
    """Return the listed keys of a remainder."""
    kept = {name: value for name, value in native.items() if name in names} if isinstance(native, dict) else {}
    details = kept.pop("provider_details", None)
    if isinstance(details, dict):
        kept["provider_details"] = {name: value for name, value in details.items() if name in _DETAILS}
    return kept


def _response(message: Draft | Message, *, bare: bool = False) -> dict[str, Any]:
    ours = message.format == FORMAT and not bare
    parts = [made for part in message.parts if (made := _response_part(part, message, ours=ours)) is not None]
    kept = _listed(message.native, _OF_RESPONSE) if ours else {}
    return {**kept, "kind": "response", "model_name": message.model, "parts": parts}


def _response_part(part: Part, message: Draft | Message, *, ours: bool) -> dict[str, Any] | None:
    match part:
        case TextPart():
            native = _listed(part.native, _OF_PART) if ours else {}
            return {**native, "part_kind": "text", "content": part.text} if part.text.strip() or native else None
        case ReasoningPart():
            thought = {"part_kind": "thinking", "content": part.text}
            return {**_thinking(part), **thought} if ours else _signed(part, message)
        case ToolCallPart():
            arguments = part.arguments_text
            if arguments is None:
                arguments = None if part.arguments is UNSET else part.arguments
            if arguments is not None and not isinstance(arguments, str | dict):
                arguments = str(arguments)
            call = {"part_kind": "tool-call", "tool_name": part.tool, "args": arguments, "tool_call_id": part.call_id}
            return {**(_listed(part.native, _OF_PART) if ours else {}), **call}
        case DataPart(native=dict(native), data=data) if ours and data is UNSET:
            return native if native.get("part_kind") in _DATA_KINDS else None
        case _:
            return None


def _thinking(part: ReasoningPart) -> dict[str, Any]:
    native = _listed(part.native, _OF_THINKING)
    if not _THINKING_IDS.fullmatch(str(native.get("id", "0"))):
        del native["id"]
    return native


def _signed(part: ReasoningPart, message: Draft | Message) -> dict[str, Any] | None:
    """Give Anthropic's own thinking back with its signature; without one no provider takes it."""
    signature = part.native.get("signature") if isinstance(part.native, dict) else None
    if message.format != "anthropic" or not isinstance(signature, str):
        return None
    return {"part_kind": "thinking", "content": part.text, "signature": signature, "provider_name": "anthropic"}


def _returns(message: Draft | Message, *, bare: bool = False) -> dict[str, Any]:
    ours = message.format == FORMAT and not bare
    return {"kind": "request", "parts": [_return(part, ours=ours) for part in _results(message)]}


def _return(part: ToolResultPart, *, ours: bool) -> dict[str, Any]:
    native: dict[str, Any] = part.native if ours and isinstance(part.native, dict) else {}
    outcome = native.get("outcome")
    same = isinstance(outcome, str) and _STATUS.get(outcome, "error") == part.status
    return {
        **_listed(native, _OF_RESULT),
        "part_kind": "tool-return",
        "tool_name": part.tool or "tool",
        "content": part.data if part.text is None and part.data is not UNSET else part.output,
        "tool_call_id": part.call_id,
        "outcome": outcome if same else _OUTCOME[part.status],
    }


def _request(message: Draft | Message) -> ModelRequest:
    texts = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    if message.role == "system":
        return ModelRequest(parts=[SystemPromptPart(content=texts)])
    files = [made for part in message.parts if isinstance(part, AttachmentPart) and (made := _file(part)) is not None]
    if not files:
        return ModelRequest(parts=[UserPromptPart(content=texts)])
    return ModelRequest(parts=[UserPromptPart(content=[texts, *files] if texts else files)])


def _file(part: AttachmentPart) -> UserContent | None:
    """Write a file: its bytes, its text, or the address where it is, as text.

    An address is never handed over as a file. Several of the library's adapters would fetch it on this machine, and a
    provider that cannot reach it refuses this turn and every later one.
    """
    found = attachment.file(part)
    if found.data is not None:
        try:
            data = base64.b64decode(found.data)
        except binascii.Error:
            return None
        return BinaryContent(data=data, media_type=found.mime_type or attachment.BYTES)
    if found.url is not None:
        return f"[{found.name or ('image' if found.is_image else 'file')}: {found.url}]"
    return attachment.named(found) if found.text else None
