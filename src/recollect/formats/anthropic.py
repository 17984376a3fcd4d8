"""Anthropic's Messages API format.

A block is read into the common fields, and the rest is stored as its remainder; an unknown block is stored whole.
Messages that were read in this format are written back unaltered, valid or not: repairs belong to recollect.history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recollect.formats import attachments, boundaries, common
from recollect.formats.alternation import BlockWriters, write_alternating
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BlockPath,
    extract_text,
    is_dict,
    is_list,
    message_remainder,
    original_block,
    overlay,
    read_content,
    read_role,
    read_text_block,
    reader_by_type,
    remaining_fields,
    stored_response,
    sum_usage,
    write_blocks,
)
from recollect.model.json import UNSET, to_json_data
from recollect.model.message import (
    AttachmentPart,
    Content,
    DataPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "anthropic"
RULES = ProviderRules(
    NAME,
    alternates=True,
    user_first=True,
    no_blanks=True,
    no_trailing_space=True,
    objects=True,
    call_id=re.compile(r"[a-zA-Z0-9_-]+"),
    parsed_blocks=frozenset({"text", "thinking", "tool_use", "tool_result"}),
    length_stop=((("stop_reason",),), frozenset({"max_tokens", "model_context_window_exceeded"})),
    hidden_keys=frozenset({"cache_control", "signature", "media_type", "title", "file_id", "is_error"}),
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_PDF = "application/pdf"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_is_valid_call_id = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_replace_invalid = re.compile(r"[^a-zA-Z0-9_-]").sub


def read_fast(message: dict[str, Any]) -> Draft | None:
    """Read a message of plain tool calls, with or without text, or of plain results; None if it is another message."""
    role, blocks = message.get("role"), message.get("content")
    if len(message) != len(common.MESSAGE_FIELDS) or not is_list(blocks) or role not in _BARE_READERS:
        return None
    parts: list[Part] = []
    for block in blocks:
        part = _BARE_READERS[role](block) if is_dict(block) else None
        if part is None:
            return None
        parts.append(part)
    if all(type(part) is TextPart for part in parts):
        return None  # equal in every format
    return Draft(role="assistant" if role == "assistant" else "tool", parts=tuple(parts), format=NAME)


def _read_bare_call(block: dict[str, Any]) -> Part | None:
    kind = block.get("type")
    if kind == "text" and len(block) == len(("type", "text")) and type(block.get("text")) is str:
        return TextPart(text=block["text"])
    if kind != "tool_use" or len(block) != len(("type", "id", "name", "input")) or "input" not in block:
        return None
    call_id, tool = block.get("id"), block.get("name")
    if type(call_id) is not str or type(tool) is not str:
        return None
    return ToolCallPart(call_id=call_id, tool=tool, arguments=to_json_data(block["input"]))


def _read_bare_result(block: dict[str, Any]) -> Part | None:
    call_id, text = block.get("tool_use_id"), block.get("content")
    if block.get("type") != "tool_result" or len(block) != len(("type", "tool_use_id", "content")):
        return None
    if type(call_id) is not str or type(text) is not str:
        return None
    return ToolResultPart(call_id=call_id, text=text)


_BARE_READERS: dict[Any, Callable[[dict[str, Any]], Part | None]] = {
    "assistant": _read_bare_call,
    "user": _read_bare_result,
}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a complete response of the Messages API."""
    role = read_role(message, _ROLES, "Anthropic")
    parts, shape = read_content(message, _read_block)
    if message.get("type") == "message" and role == "assistant" and shape == "blocks":
        return [_read_response(message, parts)]
    if role == "user" and parts and all(type(part) is ToolResultPart for part in parts):
        role = "tool"
    native = message_remainder(parts, shape, "blocks", remaining_fields(message, "role", "content"))
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for the Messages API: those of this format unchanged, others translated."""
    return write_alternating(messages, NAME, put, _BLOCKS)


is_boundary = boundaries.make_boundary_test(write)


def _put_common(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write text without a format. System messages are skipped: the API has a separate parameter for them."""
    return role == "system" or common.put_common(output, role, parts, native)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message."""
    response_fields = stored_response(message.native or {})
    return (
        None
        if response_fields is None
        else {**response_fields, "role": "assistant", "content": write_blocks(message.parts, _write_block)}
    )


def _read_response(message: dict[str, Any], parts: tuple[Part, ...]) -> Draft:
    usage = message.get("usage")
    model = message.get("model")
    output = sum_usage(usage, "output_tokens")
    response_fields = remaining_fields(message, "role", "content")
    return Draft(
        role="assistant",
        parts=parts,
        format=NAME,
        native=message_remainder(parts, "blocks", "blocks", None, response=response_fields),
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        output_tokens=output,
    )


def _read_file(block: dict[str, Any]) -> Content:
    """Read an image or a document of any source."""
    source, name = block.get("source"), block.get("title")
    if not is_dict(source):
        return DataPart(native=block)
    image = attachments.IMAGE if block["type"] == "image" else None
    match source.get("type"):
        case "base64":
            mime_type = source.get("media_type", image)
            return attachments.read_attachment(
                block, ("source", "data"), mime_type=mime_type, name=name, holds="base64"
            )
        case "url":
            return attachments.read_attachment(block, ("source", "url"), mime_type=image or _PDF, name=name)
        case "text":
            mime_type = source.get("media_type")
            return attachments.read_attachment(block, ("source", "data"), mime_type=mime_type, name=name, holds="text")
        case "content":
            return _read_texts(block, ("source", "content"), name)
        case "file":
            return attachments.read_provider_file(block, mime_type=image, name=name)
        case _:
            return DataPart(native=block)


def _read_search_result(block: dict[str, Any]) -> Content:
    return _read_texts(block, ("content",), block.get("title"))


def _read_texts(block: dict[str, Any], at: BlockPath, name: Any) -> Content:
    """Read a file whose content is a text, or blocks of which some are texts."""
    content: Any = block
    for step in at:
        content = content.get(step)
    if not is_list(content):
        return attachments.read_attachment(block, at, mime_type=attachments.TEXT, name=name, holds="text")
    texts = [index for index, piece in enumerate(content) if is_dict(piece) and piece.get("type") == "text"]
    extraction = extract_text(block, *[(*at, index, "text") for index in texts])
    if extraction is None or not texts:
        return DataPart(native=block)
    text, native = extraction
    return AttachmentPart(
        mime_type=attachments.TEXT, name=name if type(name) is str else None, text=text, native=native
    )


def _read_thinking(block: dict[str, Any]) -> Part:
    text = block.get("thinking")
    if type(text) is not str:
        return DataPart(native=block)
    return ReasoningPart(text=text, native=remaining_fields(block, "type", "thinking"))


def _read_call(block: dict[str, Any]) -> Part:
    call_id, tool = block.get("id"), block.get("name")
    if type(call_id) is not str or type(tool) is not str:
        return DataPart(native=block)
    native = remaining_fields(block, "type", "id", "name", "input")
    return ToolCallPart(call_id=call_id, tool=tool, arguments=block.get("input", UNSET), native=native)


def _read_result(block: dict[str, Any]) -> Part:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if type(call_id) is not str:
        return DataPart(native=block)
    common_fields = ["type", "tool_use_id"]
    text: str | None = None
    pieces: tuple[Content, ...] | None = None
    if type(content) is str:
        text = content
        common_fields.append("content")
    elif is_list(content) and all(is_dict(piece) for piece in content):
        pieces = tuple([_read_piece(piece) for piece in content])
        common_fields.append("content")
    failed = block.get("is_error") is True
    if failed:
        common_fields.append("is_error")
    status = "error" if failed else "success"
    return ToolResultPart(
        call_id=call_id, status=status, text=text, content=pieces, native=remaining_fields(block, *common_fields)
    )


_CONTENT_READERS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": read_text_block,
    "image": _read_file,
    "document": _read_file,
    "search_result": _read_search_result,
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **_CONTENT_READERS,
    "thinking": _read_thinking,
    "tool_use": _read_call,
    "tool_result": _read_result,
}


_read_piece = reader_by_type(_CONTENT_READERS)
_read_block = reader_by_type(_READERS)


def _write_block(part: Part) -> dict[str, Any] | None:
    """Return the original block of a part; None if the part was not read from a block."""
    if part.native is None:  # the most common parts of agents
        if type(part) is ToolCallPart and part.arguments is not UNSET:
            return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": part.arguments}
        if type(part) is ToolResultPart and part.text is not None and part.status != "error":
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": part.text}
    match part:
        case TextPart():
            return overlay({"type": "text", "text": part.text}, part.native)
        case ToolCallPart():
            block = {"type": "tool_use", "id": part.call_id, "name": part.tool}
            if part.arguments is not UNSET:
                block["input"] = part.arguments
            return overlay(block, part.native)
        case ToolResultPart():
            return _write_result(part)
        case ReasoningPart():
            return overlay({"type": "thinking", "thinking": part.text}, part.native)
        case _:
            return original_block(part)


# A message of a complete response is written with the fields that the API accepts as input.
put = common.make_put(NAME, common.make_own_put(_write_block, read, tool="user"), _put_common, separate_role="system")


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.text is not None:
        block["content"] = part.text
    elif part.content is not None:
        block["content"] = write_blocks(part.content, _write_block)
    if part.status == "error":
        block["is_error"] = True
    return overlay(block, part.native)


def _translate_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and tool calls, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is ToolCallPart:
            call_id = _call_id(part.call_id)
            blocks.append(
                {"type": "tool_use", "id": call_id, "name": part.tool, "input": common.arguments_object(part)}
            )
        elif type(part) is TextPart:
            blocks.extend(common.text_blocks((part,)))
    return blocks


def _translate_content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and the files that the API accepts, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is TextPart:
            blocks.extend(common.text_blocks((part,)))
        elif type(part) is AttachmentPart:
            block = _translate_file(attachments.content_of_attachment(part))
            if block is not None:
                blocks.append(block)
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    if content.is_image:
        if content.data is not None and content.mime_type in _IMAGES:
            source = {"type": "base64", "media_type": content.mime_type, "data": content.data}
            return {"type": "image", "source": source}
        return (
            {"type": "image", "source": {"type": "url", "url": content.url}}
            if attachments.is_web_url(content.url)
            else None
        )
    if content.text is not None:
        source = {"type": "text", "media_type": attachments.TEXT, "data": content.text}
        if not common.is_not_blank(content.text):
            return None
    elif content.mime_type == _PDF and content.data is not None:
        source = {"type": "base64", "media_type": _PDF, "data": content.data}
    elif content.mime_type == _PDF and attachments.is_web_url(content.url):
        source = {"type": "url", "url": content.url}
    else:
        return None
    block: dict[str, Any] = {"type": "document", "source": source}
    return {**block, "title": content.name} if content.name else block


def _translate_result(part: ToolResultPart, _call: ToolCallPart | None) -> dict[str, Any]:
    content = (
        common.result_content(part)
        if part.content is None
        else _translate_content(part.content) or part.error_message or ""
    )
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(part.call_id), "content": content}
    if part.status != "success":
        block["is_error"] = True
    return block


def _translate_message(role: Role, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "content": common.collapse_blocks(blocks) if blocks else blocks}


def _call_id(call_id: str) -> str:
    """Return a call id in the characters that the API accepts, the same for a call and its result."""
    return call_id if _is_valid_call_id(call_id) else _replace_invalid("_", call_id) or "_"


_BLOCKS = BlockWriters(
    message=_translate_message, answer=_translate_parts, content=_translate_content, result=_translate_result
)
