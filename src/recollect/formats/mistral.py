"""Mistral's chat format, which is OpenAI's with further chunks and stricter rules.

Messages are read and written by openai_chat.py. Here are its differences: reasoning is a chunk with a list of chunks,
documents have addresses, an address may be a string, and the ids of calls have nine letters or digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from recollect.formats import attachments, boundaries, common, openai_chat
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BlockPath,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    restore_block,
    stored_response,
)
from recollect.model.message import (
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    Role,
    ToolResultPart,
)

NAME = "mistral"
_CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
RULES = ProviderRules(
    NAME,
    call_id=_CALL_ID,
    answered_results=True,
    calls_field="tool_calls",
    length_stop=((("choices", 0, "finish_reason"),), frozenset({"length", "model_length"})),
    hidden_keys=frozenset({"signature", "closed", "prefix", "index", "document_name"}),
)
_PDF = "application/pdf"
D = TypeVar("D", bound=Draft | Message)


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a complete response."""
    return [
        draft.replace(format=NAME, parts=tuple(map(_from_openai, draft.parts))) for draft in openai_chat.read(message)
    ]


def _from_openai(part: Part) -> Part:
    """Return the part of a chunk that only Mistral has."""
    block = part.native if type(part) is DataPart else None
    if type(part) is ToolResultPart and part.content is not None:
        return msgspec.structs.replace(part, content=tuple([_from_openai(piece) for piece in part.content]))  # pyright: ignore[reportArgumentType]
    if not is_dict(block):
        return part
    match block.get("type"):
        case "thinking":
            return _read_thinking(block)
        case "document_url":
            name = block.get("document_name")
            return attachments.read_attachment(block, ("document_url",), mime_type=_PDF, name=name)
        case "image_url":
            return attachments.read_attachment(block, ("image_url",), mime_type=attachments.IMAGE)
        case "input_audio":
            return attachments.read_attachment(block, ("input_audio",), mime_type="audio/mpeg", holds="either")
        case _:
            return part


def _read_thinking(block: dict[str, Any]) -> Part:
    chunks = block.get("thinking")
    if not is_list(chunks):
        return DataPart(native=block)
    paths: list[BlockPath] = [
        ("thinking", index, "text") for index, chunk in enumerate(chunks) if is_dict(chunk) and "text" in chunk
    ]
    extraction = extract_text(block, *paths)
    if extraction is None or not paths:
        return DataPart(native=block)
    return ReasoningPart(text=extraction[0], native=extraction[1])


def _to_openai(part: Part) -> Part:
    """Return a part that openai_chat.py writes as its chunk."""
    if type(part) is ReasoningPart:
        block = {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}
        return DataPart(native=restore_block(part.native, part.text) if is_extracted(part.native) else block)
    return part


def _with_openai_parts(message: D) -> D:
    return msgspec.structs.replace(message, parts=tuple(map(_to_openai, message.parts)))


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message."""
    return openai_chat.response(_with_openai_parts(message))


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for Mistral: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    for message in common.join_items(messages, "openai-responses"):
        if not put(output, message.role, message.format, message.parts, message.native):
            translation: list[dict[str, Any]] = []
            openai_chat.translate(message, translation, None)
            output += map(_adapt, translation)
    return output


is_boundary = boundaries.make_boundary_test(write)


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [openai_chat.write_own(role, [_to_openai(part) for part in parts], native)]


_put_verified = common.make_verified_put(_write_own, read)


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message of this format unchanged; of a complete response, only the fields that the API accepts."""
    if not _put_verified(output, role, parts, native):
        return False
    if native is not None and stored_response(native) is not None:
        output[-1] = openai_chat.input_fields(output[-1])
    return True


put = common.make_put(NAME, _put_own, common.put_common)


def _adapt(message: dict[str, Any]) -> dict[str, Any]:
    """Return a translated message with the call ids and the chunks that Mistral accepts."""
    if "tool_calls" in message:
        message["tool_calls"] = [_adapt_call(call) for call in message["tool_calls"]]
    if "tool_call_id" in message:
        message["tool_call_id"] = call_id(message["tool_call_id"])
    if is_list(message.get("content")):
        message["content"] = [_adapt_chunk(chunk) for chunk in message["content"]]
    return message


def _adapt_call(call: dict[str, Any]) -> dict[str, Any]:
    custom = call.get("custom")
    if custom is not None:  # a tool of OpenAI whose input is text
        arguments = common.compact_json({"arguments": custom["input"]})
        call = {"id": call["id"], "type": "function", "function": {"name": custom["name"], "arguments": arguments}}
    return {**call, "id": call_id(call["id"])}


def _adapt_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    if chunk.get("type") == "file":
        file = chunk["file"]
        return {"type": "document_url", "document_url": file["file_data"], "document_name": file["filename"]}
    if chunk.get("type") == "input_audio":
        return {"type": "input_audio", "input_audio": chunk["input_audio"]["data"]}
    return chunk


def call_id(id: str) -> str:
    """Return an id that Mistral accepts, the same for a call and its result."""
    return id if _CALL_ID.fullmatch(id) else hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]
