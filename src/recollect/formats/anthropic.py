"""Anthropic's messages, in and out.

A block is read into our fields and what they do not hold stays beside them; a block without words of ours is kept as
it is. Messages that came in this format go out unaltered, right or wrong: mending a history is not this room's work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import neutral
from recollect.formats.native import (
    content_of,
    count,
    is_dict,
    is_list,
    kept_response,
    noted,
    overlay,
    place_content,
    rest,
    role_of,
    write_blocks,
)
from recollect.model.json import UNSET, decode, exact
from recollect.model.message import Draft, Message, Role
from recollect.model.part import Content, DataPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

NAME = "anthropic"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


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
    for message in messages:
        if message.format == NAME:
            written.append(_own(message))
            answers = None
        elif message.role != "system":
            answers = _translate(message, written, answers)
    return written


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the whole response that a message came in."""
    kept = kept_response(message)
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


def _read_block(block: dict[str, Any]) -> Part:
    kind = block.get("type")
    reader = _READERS.get(kind) if type(kind) is str else None
    return DataPart(native=block) if reader is None else reader(block)


def _read_text(block: dict[str, Any]) -> Content:
    text = block.get("text")
    if type(text) is not str:
        return DataPart(native=block)
    return TextPart(text=text, native=rest(block, "type", "text"))


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


def _read_piece(block: dict[str, Any]) -> Content:
    return _read_text(block) if block.get("type") == "text" else DataPart(native=block)


_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "tool_use": _read_call,
    "tool_result": _read_result,
}


def _own(message: Message) -> dict[str, Any]:
    """Give a message that came in this format back as it came; of a whole response, what the API takes as input."""
    native = message.native or {}
    written: dict[str, Any] = {"role": "user" if message.role == "tool" else message.role}
    place_content(written, message.parts, native.get("content"), "blocks", _block)
    return overlay(written, native.get("fields"))


def _block(part: Part) -> dict[str, Any] | None:
    """Give the block that a part came in; None for a part that never was one."""
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
            return dict(part.native) if is_dict(part.native) else None


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
    as_is = neutral.write(message)
    if as_is is not None:
        written.append(as_is)
        return None
    results = [_translated_result(part) for part in message.parts if type(part) is ToolResultPart]
    if message.role == "assistant":
        said = _translated(message.parts)
        if said:
            written.append({"role": "assistant", "content": neutral.content(said)})
            answers = None
        return _answered(results, written, None) if results else answers
    said = neutral.said(message.parts)
    if message.role == "tool" and results:
        answers = _answered(results, written, answers)
        answers.extend(said)
        return None if said else answers
    if results or said:
        written.append({"role": "user", "content": neutral.content([*results, *said])})
        return None
    return answers


def _answered(results: list[Any], written: list[dict[str, Any]], answers: list[Any] | None) -> list[Any]:
    if answers is None:
        answers = []
        written.append({"role": "user", "content": answers})
    answers.extend(results)
    return answers


def _translated(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write what has words in every format: texts that are not blank, and tool calls."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is ToolCallPart:
            blocks.append({"type": "tool_use", "id": part.call_id, "name": part.tool, "input": _input(part)})
        elif type(part) is TextPart:
            blocks.extend(neutral.said((part,)))
    return blocks


def _translated_result(part: ToolResultPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id, "content": neutral.answer(part)}
    if part.status != "success":
        block["is_error"] = True
    return block


def _input(part: ToolCallPart) -> dict[str, Any]:
    """Give the arguments as the object that the API asks for."""
    value = part.arguments if part.arguments_text is None else _parsed(part.arguments_text)
    if value is UNSET:
        return {}
    return value if is_dict(value) else {"arguments": value}


def _parsed(text: str) -> Any:
    """Read the arguments that a model wrote; the text itself if it is not JSON, nothing if it is blank."""
    if not text or text.isspace():
        return UNSET
    try:
        return exact(decode(text))
    except (ValueError, RecursionError, InvalidValue):  # cut off, too deep, or NaN, which Python reads and JSON lacks
        return text
