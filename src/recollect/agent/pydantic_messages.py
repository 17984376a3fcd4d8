"""Our messages as Pydantic AI's, and back, with nothing lost.

What our fields do not hold of a response (ids, signatures, usage, the provider's details) is kept beside them in
`native`, under the format `pydantic-ai`, and laid over them on the way back. Messages of other formats are translated.
This file, provider.py and mcp.py are the only ones that know Pydantic AI.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    UserContent,
    UserPromptPart,
)

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
    """Write what was said as the history that a model is sent: every call has its result, nothing is empty."""
    plain: list[dict[str, Any]] = []
    written: list[ModelMessage] = []
    for message in answered(spoken):
        if message.role == "assistant":
            made = _response(message)
            plain += [made] if made["parts"] else []
        elif message.role == "tool":
            plain.append({"kind": "request", "parts": [_return(p, message) for p in _results(message)]})
        else:
            plain.append(_dumped(_request(message)))
    written += ModelMessagesTypeAdapter.validate_python(plain)
    return written


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


def _response(message: Draft | Message) -> dict[str, Any]:
    ours = message.format == FORMAT
    parts = [made for part in message.parts if (made := _response_part(part, message)) is not None]
    return {"kind": "response", "model_name": message.model, **((message.native or {}) if ours else {}), "parts": parts}


def _response_part(part: Part, message: Draft | Message) -> dict[str, Any] | None:
    ours = message.format == FORMAT
    native: dict[str, Any] = part.native if ours and isinstance(part.native, dict) else {}
    match part:
        case TextPart():
            return {"part_kind": "text", "content": part.text, **native} if part.text.strip() or native else None
        case ReasoningPart():
            return {"part_kind": "thinking", "content": part.text, **native} if ours else _signed(part, message)
        case ToolCallPart():
            arguments = part.arguments_text
            if arguments is None:
                arguments = None if part.arguments is UNSET else part.arguments
            if arguments is not None and not isinstance(arguments, str | dict):
                arguments = str(arguments)
            call = {"part_kind": "tool-call", "tool_name": part.tool, "args": arguments, "tool_call_id": part.call_id}
            return {**call, **native}
        case DataPart() if native:
            return native
        case _:
            return None


def _signed(part: ReasoningPart, message: Draft | Message) -> dict[str, Any] | None:
    """Give Anthropic's own thinking back with its signature; without one no provider takes it."""
    signature = part.native.get("signature") if isinstance(part.native, dict) else None
    if message.format != "anthropic" or not isinstance(signature, str):
        return None
    return {"part_kind": "thinking", "content": part.text, "signature": signature, "provider_name": "anthropic"}


def _return(part: ToolResultPart, message: Draft | Message) -> dict[str, Any]:
    native: dict[str, Any] = part.native if message.format == FORMAT and isinstance(part.native, dict) else {}
    plain = {
        "part_kind": "tool-return",
        "tool_name": part.tool or "tool",
        "content": part.data if part.text is None and part.data is not UNSET else part.output,
        "tool_call_id": part.call_id,
        "outcome": _OUTCOME[part.status],
    }
    return {**plain, **native, "part_kind": "tool-return"}


def _request(message: Draft | Message) -> ModelRequest:
    texts = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    if message.role == "system":
        return ModelRequest(parts=[SystemPromptPart(content=texts)])
    files = [made for part in message.parts if isinstance(part, AttachmentPart) and (made := _file(part)) is not None]
    if not files:
        return ModelRequest(parts=[UserPromptPart(content=texts)])
    return ModelRequest(parts=[UserPromptPart(content=[texts, *files] if texts else files)])


def _file(part: AttachmentPart) -> UserContent | None:
    kind = part.mime_type or "application/octet-stream"
    if part.url is not None:
        return ImageUrl(url=part.url) if kind.startswith("image/") else DocumentUrl(url=part.url)
    if part.data is None:
        return None
    try:
        return BinaryContent(data=base64.b64decode(part.data), media_type=kind)
    except binascii.Error:
        return None
