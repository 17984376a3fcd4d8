"""Anthropic's messages, in and out.

A block is read into our fields and what they do not hold stays beside them; a block without words of ours is kept as
it is. Messages that came in this format go out unaltered, right or wrong: mending a history is not this room's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from recollect.formats import attachment, neutral
from recollect.formats.native import (
    Path,
    as_it_came,
    by_kind,
    content_of,
    count,
    is_dict,
    is_list,
    kept_response,
    noted,
    overlay,
    read_text,
    rest,
    role_of,
    taken,
    write_blocks,
)
from recollect.model.json import UNSET, exact
from recollect.model.message import Draft, Message, Role
from recollect.model.part import (
    AttachmentPart,
    Content,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "anthropic"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_PDF = "application/pdf"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_IDS = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]").sub


def read_at_once(message: dict[str, Any]) -> Draft | None:
    """Read a message of bare tool calls or bare results, and text beside calls, with nothing left to look at."""
    role, blocks = message.get("role"), message.get("content")
    if len(message) != len(neutral.MESSAGE_FIELDS) or not is_list(blocks) or role not in _BARE:
        return None
    parts: list[Part] = []
    for block in blocks:
        part = _BARE[role](block) if is_dict(block) else None
        if part is None:
            return None
        parts.append(part)
    if all(type(part) is TextPart for part in parts):
        return None  # the same in every format
    return Draft(role="assistant" if role == "assistant" else "tool", parts=tuple(parts), format=NAME)


def _bare_call(block: dict[str, Any]) -> Part | None:
    kind = block.get("type")
    if kind == "text" and len(block) == len(("type", "text")) and type(block.get("text")) is str:
        return TextPart(text=block["text"])
    if kind != "tool_use" or len(block) != len(("type", "id", "name", "input")) or "input" not in block:
        return None
    call_id, tool = block.get("id"), block.get("name")
    if type(call_id) is not str or type(tool) is not str:
        return None
    return ToolCallPart(call_id=call_id, tool=tool, arguments=exact(block["input"]))


def _bare_result(block: dict[str, Any]) -> Part | None:
    call_id, text = block.get("tool_use_id"), block.get("content")
    if block.get("type") != "tool_result" or len(block) != len(("type", "tool_use_id", "content")):
        return None
    if type(call_id) is not str or type(text) is not str:
        return None
    return ToolResultPart(call_id=call_id, text=text)


_BARE: dict[Any, Callable[[dict[str, Any]], Part | None]] = {"assistant": _bare_call, "user": _bare_result}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a whole response of the Messages API."""
    role = role_of(message, _ROLES, "Anthropic")
    parts, shape = content_of(message, _read_block)
    if message.get("type") == "message" and role == "assistant" and shape == "blocks":
        return [_read_response(message, parts)]
    if role == "user" and parts and all(type(part) is ToolResultPart for part in parts):
        role = "tool"
    native = noted(parts, shape, "blocks", rest(message, "role", "content"))
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for the Messages API: what came in this format as it came, the rest translated."""
    written: list[dict[str, Any]] = []
    answers: list[Any] | None = None  # the API wants all results of one assistant message in the next message
    for message in neutral.joined(messages, "openai-responses"):
        if message.role == "system" and message.format != NAME:
            continue
        if put(written, message.role, message.format, message.parts, message.native):
            answers = None
        elif message.role != "system":  # the API takes instructions beside the messages
            answers = _translate(message, written, answers)
    return written


def _put_neutral(
    written: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None
) -> bool:
    """Write text that came in no format, instructions aside: the API takes those beside the messages."""
    return role == "system" or neutral.put(written, role, parts, native)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the whole response that a message came in."""
    kept = kept_response(message.native or {})
    return None if kept is None else {**kept, "role": "assistant", "content": write_blocks(message.parts, _block)}


def _read_response(message: dict[str, Any], parts: tuple[Part, ...]) -> Draft:
    usage = message.get("usage")
    model = message.get("model")
    output = count(usage, "output_tokens")
    kept = rest(message, "role", "content")
    return Draft(
        role="assistant",
        parts=parts,
        format=NAME,
        native=noted(parts, "blocks", "blocks", None, response=kept),
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=count(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        output_tokens=output,
    )


def _read_file(block: dict[str, Any]) -> Content:
    """Read an image or a document, whatever its source."""
    source, name = block.get("source"), block.get("title")
    if not is_dict(source):
        return DataPart(native=block)
    image = attachment.IMAGE if block["type"] == "image" else None
    match source.get("type"):
        case "base64":
            mime_type = source.get("media_type", image)
            return attachment.read(block, ("source", "data"), mime_type=mime_type, name=name, holds="base64")
        case "url":
            return attachment.read(block, ("source", "url"), mime_type=image or _PDF, name=name)
        case "text":
            mime_type = source.get("media_type")
            return attachment.read(block, ("source", "data"), mime_type=mime_type, name=name, holds="text")
        case "content":
            return _read_texts(block, ("source", "content"), name)
        case "file":
            return attachment.elsewhere(block, mime_type=image, name=name)
        case _:
            return DataPart(native=block)


def _read_search_result(block: dict[str, Any]) -> Content:
    return _read_texts(block, ("content",), block.get("title"))


def _read_texts(block: dict[str, Any], at: Path, name: Any) -> Content:
    """Read a file whose content is a text, or blocks of which some are texts."""
    content: Any = block
    for step in at:
        content = content.get(step)
    if not is_list(content):
        return attachment.read(block, at, mime_type=attachment.TEXT, name=name, holds="text")
    texts = [index for index, piece in enumerate(content) if is_dict(piece) and piece.get("type") == "text"]
    found = taken(block, *[(*at, index, "text") for index in texts])
    if found is None or not texts:
        return DataPart(native=block)
    text, native = found
    return AttachmentPart(mime_type=attachment.TEXT, name=name if type(name) is str else None, text=text, native=native)


def _read_thinking(block: dict[str, Any]) -> Part:
    text = block.get("thinking")
    if type(text) is not str:
        return DataPart(native=block)
    return ReasoningPart(text=text, native=rest(block, "type", "thinking"))


def _read_call(block: dict[str, Any]) -> Part:
    call_id, tool = block.get("id"), block.get("name")
    if type(call_id) is not str or type(tool) is not str:
        return DataPart(native=block)
    native = rest(block, "type", "id", "name", "input")
    return ToolCallPart(call_id=call_id, tool=tool, arguments=block.get("input", UNSET), native=native)


def _read_result(block: dict[str, Any]) -> Part:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if type(call_id) is not str:
        return DataPart(native=block)
    held = ["type", "tool_use_id"]
    text: str | None = None
    pieces: tuple[Content, ...] | None = None
    if type(content) is str:
        text = content
        held.append("content")
    elif is_list(content) and all(is_dict(piece) for piece in content):
        pieces = tuple([_read_piece(piece) for piece in content])
        held.append("content")
    failed = block.get("is_error") is True
    if failed:
        held.append("is_error")
    status = "error" if failed else "success"
    return ToolResultPart(call_id=call_id, status=status, text=text, content=pieces, native=rest(block, *held))


_CONTENT: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": read_text,
    "image": _read_file,
    "document": _read_file,
    "search_result": _read_search_result,
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **_CONTENT,
    "thinking": _read_thinking,
    "tool_use": _read_call,
    "tool_result": _read_result,
}


_read_piece = by_kind(_CONTENT)
_read_block = by_kind(_READERS)


def _block(part: Part) -> dict[str, Any] | None:
    """Give the block that a part came in; None for a part that never was one."""
    if part.native is None:  # most of what agents write
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
            return _result_block(part)
        case ReasoningPart():
            return overlay({"type": "thinking", "thinking": part.text}, part.native)
        case _:
            return as_it_came(part)


# Of a whole response, what the API takes as input.
put = neutral.putter(NAME, neutral.own_putter(_block, read, tool="user"), _put_neutral, apart="system")


def _result_block(part: ToolResultPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.text is not None:
        block["content"] = part.text
    elif part.content is not None:
        block["content"] = write_blocks(part.content, _block)
    if part.status == "error":
        block["is_error"] = True
    return overlay(block, part.native)


def _translate(message: Message, written: list[dict[str, Any]], answers: list[Any] | None) -> list[Any] | None:
    """Write a message of another format; give the content that takes the results of the next tool message."""
    if message.role == "assistant":
        return _translate_answer(message, written, answers)
    results = [part for part in message.parts if type(part) is ToolResultPart]
    said = _content(message.parts)
    if message.role == "tool" and results:
        answers = _answered(results, written, answers)
        answers.extend(said)
        return None if said else answers
    if results or said:
        blocks = [*map(_translated_result, results), *said]
        written.append({"role": "user", "content": neutral.content(blocks)})
        return None
    return answers


def _translate_answer(message: Message, written: list[dict[str, Any]], answers: list[Any] | None) -> list[Any] | None:
    """Write an agent's message, and the results in it; steps with no results between them are one message."""
    blocks: list[dict[str, Any]] = []
    for told, results in neutral.steps(message.parts):
        blocks += _translated(told)
        if not results:
            continue
        if blocks:
            written.append({"role": "assistant", "content": neutral.content(blocks)})
            blocks, answers = [], None
        answers = _answered(results, written, answers)
    if not blocks:
        return answers
    written.append({"role": "assistant", "content": neutral.content(blocks)})
    return None


def _answered(results: list[ToolResultPart], written: list[dict[str, Any]], answers: list[Any] | None) -> list[Any]:
    if answers is None:
        answers = []
        written.append({"role": "user", "content": answers})
    answers.extend(map(_translated_result, results))
    return answers


def _translated(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write what an agent may have said: texts that are not blank, and tool calls."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is ToolCallPart:
            call_id = _call_id(part.call_id)
            blocks.append({"type": "tool_use", "id": call_id, "name": part.tool, "input": neutral.input(part)})
        elif type(part) is TextPart:
            blocks.extend(neutral.said((part,)))
    return blocks


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write texts that are not blank, and the files that the API takes."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is TextPart:
            blocks.extend(neutral.said((part,)))
        elif type(part) is AttachmentPart:
            block = _file_block(attachment.file(part))
            if block is not None:
                blocks.append(block)
    return blocks


def _file_block(found: attachment.File) -> dict[str, Any] | None:
    if found.is_image:
        if found.data is not None and found.mime_type in _IMAGES:
            source = {"type": "base64", "media_type": found.mime_type, "data": found.data}
            return {"type": "image", "source": source}
        return {"type": "image", "source": {"type": "url", "url": found.url}} if attachment.is_web(found.url) else None
    if found.text is not None:
        source = {"type": "text", "media_type": attachment.TEXT, "data": found.text}
        if not neutral.is_said(found.text):
            return None
    elif found.mime_type == _PDF and found.data is not None:
        source = {"type": "base64", "media_type": _PDF, "data": found.data}
    elif found.mime_type == _PDF and attachment.is_web(found.url):
        source = {"type": "url", "url": found.url}
    else:
        return None
    block: dict[str, Any] = {"type": "document", "source": source}
    return {**block, "title": found.name} if found.name else block


def _translated_result(part: ToolResultPart) -> dict[str, Any]:
    content = neutral.answer(part) if part.content is None else _content(part.content) or part.error_message or ""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(part.call_id), "content": content}
    if part.status != "success":
        block["is_error"] = True
    return block


def _call_id(call_id: str) -> str:
    """Give an id of another provider in the letters that the API takes, the same for a call and its result."""
    return call_id if _IDS(call_id) else _FOREIGN("_", call_id) or "_"
