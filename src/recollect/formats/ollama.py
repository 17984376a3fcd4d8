"""Ollama's chat format, which is close to OpenAI's.

Calls may have no id, and their arguments are objects; a result names its tool; reasoning is the field `thinking`, and
images are a list of base64 next to the text. Messages that were read in this format are written back unaltered, valid
or not: repairs belong to recollect.history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.byte_values import BYTES, from_tagged_json, to_tagged_json
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    is_dict,
    is_list,
    overlay,
    read_role,
    remaining_fields,
    stored_response,
    sum_usage,
    without_remainder,
)
from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    Draft,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "ollama"
RULES = ProviderRules(
    NAME,
    objects=True,
    unique=None,
    call_id=re.compile(r".+", re.DOTALL),  # an empty id is none
    calls_field="tool_calls",
    content_fields=("images",),
    length_stop=((("done_reason",),), frozenset({"length"})),
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_MISSING = "missing"
_NO_ID, _AS_BYTES = "no_id", "bytes"
_IMAGE_TYPES = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""The first characters of an image in base64, and its type, which the format does not state."""
_ORDER: tuple[type[Part], ...] = (ReasoningPart, TextPart, AttachmentPart, ToolCallPart, ToolResultPart)

to_json = to_tagged_json


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a complete chat response."""
    if "role" not in message and is_dict(message.get("message")):
        return [_read_response(message)]
    role = read_role(message, _ROLES, "Ollama")
    content = message.get("content")
    if content is not None and type(content) is not str:
        raise InvalidValue('The content of an Ollama message must be a string. Write {"role": "user", "content": ...}.')
    fields = remaining_fields(message, "role", "content") or {}
    native: dict[str, Any] = {} if content is not None else {"content": "null" if "content" in message else _MISSING}
    parts: list[Part] = [] if content is None else [TextPart(text=content)]
    if role == "tool" and (result := _read_result(content, fields)) is not None:
        parts = [result]
    elif role != "tool":
        parts += _read_images(fields)
    if role == "assistant":
        if type(fields.get("thinking")) is str:
            parts.insert(0, ReasoningPart(text=fields.pop("thinking")))
        parts += _read_calls(fields)
    if fields:
        native["fields"] = fields
    return [Draft(role=role, parts=tuple(parts), format=NAME, native=native or None)]


def _read_result(content: str | None, fields: dict[str, Any]) -> ToolResultPart | None:
    """Read a result, and remove its fields; None if it names neither its call nor its tool."""
    tool, call_id = fields.get("tool_name", fields.get("name")), fields.get("tool_call_id")
    tool = tool if type(tool) is str and tool else None
    call_id = call_id if type(call_id) is str else ""
    if content is None or not (call_id or tool):
        return None
    if call_id:
        del fields["tool_call_id"]
    is_own_name = tool is not None and "tool_name" in fields
    if is_own_name:
        del fields["tool_name"]
    native = {**({} if call_id else {_NO_ID: True}), **({} if is_own_name or tool is None else {"name": True})}
    return ToolResultPart(call_id=call_id or tool or "", tool=tool, text=content, native=native or None)


def _read_images(fields: dict[str, Any]) -> list[AttachmentPart]:
    """Read the images, and remove them from the fields, unless one is neither base64 nor bytes."""
    images = fields.get("images")
    if not is_list(images) or not images:
        return []
    parts: list[AttachmentPart] = []
    for image in images:
        is_bytes = is_dict(image) and len(image) == 1
        data = image.get(BYTES) if is_bytes else image
        if type(data) is not str:
            return []
        mime_type = next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), "image/png")
        parts.append(AttachmentPart(mime_type=mime_type, data=data, native={_AS_BYTES: True} if is_bytes else None))
    del fields["images"]
    return parts


def _read_calls(fields: dict[str, Any]) -> list[ToolCallPart]:
    """Read the tool calls, and remove them from the fields, unless one is malformed."""
    calls = fields.get("tool_calls")
    if not is_list(calls) or not calls:
        return []
    parts: list[ToolCallPart] = []
    for call in calls:
        function = call.get("function") if is_dict(call) else None
        if not is_dict(function) or type(function.get("name")) is not str:
            return []
        call_id = call["id"] if type(call.get("id")) is str else ""
        native = remaining_fields(call, "function", *(("id",) if call_id else ())) or {}
        more = remaining_fields(function, "name", "arguments")
        if more:
            native["function"] = more
        if not call_id:
            native[_NO_ID] = True
        parts.append(
            ToolCallPart(
                # Calls of one tool get the same id: results without ids have the order of their calls.
                call_id=call_id or function["name"] or "call",
                tool=function["name"],
                arguments=function.get("arguments", UNSET),
                native=native or None,
            )
        )
    del fields["tool_calls"]
    return parts


def _read_response(message: dict[str, Any]) -> Draft:
    (draft,) = read({"role": "assistant", **message["message"]})
    model, output = message.get("model"), sum_usage(message, "eval_count")
    return draft.replace(
        native={**(draft.native or {}), "response": {**message, "message": {}}},
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(message, "prompt_eval_count"),
        output_tokens=output,
    )


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message."""
    fields = stored_response(message.native or {})
    if fields is None:
        return None
    answer = _write_message(message.role, message.parts, message.native)
    return from_tagged_json({**fields, "message": answer})


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for Ollama: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    calls: dict[str, ToolCallPart] = {}
    files: list[str] = []  # images from results, which only a user message may contain
    for message in common.join_items(messages, "openai-responses"):
        for part in message.parts:
            if type(part) is ToolCallPart:
                calls[part.call_id] = part if message.format == NAME else without_remainder(part)
        if files and not any(type(part) is ToolResultPart for part in message.parts):
            _flush_files(output, files)
        if not put(output, message.role, message.format, message.parts, message.native):
            _translate(message, output, calls, files)
    _flush_files(output, files)
    return output


is_boundary = boundaries.make_boundary_test(write)


def _write_message(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format, with tagged bytes."""
    native = native or {}
    message: dict[str, Any] = {"role": role}
    first = parts[0] if parts else None
    if type(first) is ToolResultPart:
        return overlay({**message, **_write_result(first)}, native.get("fields"))
    texts = [part.text for part in parts if type(part) is TextPart]
    if texts:
        message["content"] = texts[0]
    elif native.get("content") != _MISSING:
        message["content"] = None if native.get("content") == "null" else ""
    images = [part for part in parts if type(part) is AttachmentPart and part.data is not None]
    if images:
        message["images"] = [
            {BYTES: image.data} if is_dict(image.native) and image.native.get(_AS_BYTES) is True else image.data
            for image in images
        ]
    reasoning = [part.text for part in parts if type(part) is ReasoningPart]
    if reasoning:
        message["thinking"] = reasoning[0]
    calls = [_write_call(part) for part in parts if type(part) is ToolCallPart]
    if calls:
        message["tool_calls"] = calls
    return overlay(message, native.get("fields"))


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    native = dict(part.native or {})
    function: dict[str, Any] = {"name": part.tool}
    if part.arguments is not UNSET:
        function["arguments"] = part.arguments
    call: dict[str, Any] = {"function": overlay(function, native.pop("function", None))}
    if native.pop(_NO_ID, False) is not True:
        call["id"] = part.call_id
    return overlay(call, native)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    native = part.native or {}
    result: dict[str, Any] = {"content": part.text}
    if part.tool is not None and native.get("name") is not True:
        result["tool_name"] = part.tool
    if native.get(_NO_ID) is not True:
        result["tool_call_id"] = part.call_id
    return result


def _write_tagged(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [_write_message(role, parts, native)]


_put_tagged = common.make_verified_put(_write_tagged, read)


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message of this format unchanged, unless its parts are in another order or of another kind."""
    if [*map(_rank, parts)] != sorted(map(_rank, parts)) or not _is_writable(role, parts):
        return False
    if not _put_tagged(output, role, parts, native):
        return False
    output[-1] = from_tagged_json(output[-1])
    return True


def _rank(part: Part) -> int:
    """Return the position of a part in a message of this format."""
    return _ORDER.index(type(part)) if type(part) in _ORDER else len(_ORDER)


def _is_writable(role: Role, parts: Sequence[Part]) -> bool:
    """Return whether a message of this format can have these parts."""
    counts = [sum(type(part) is kind for part in parts) for kind in (ReasoningPart, TextPart)]
    if max(counts) > 1 or any(type(part) not in _ORDER for part in parts):
        return False
    if role == "tool":
        return all(type(part) is TextPart for part in parts) or (
            len(parts) == 1 and type(parts[0]) is ToolResultPart and parts[0].text is not None
        )
    return not any(type(part) is ToolResultPart for part in parts)


put = common.make_put(NAME, _put_own, common.put_nothing)


def _flush_files(output: list[dict[str, Any]], files: list[str]) -> None:
    """Write the images of tools as a user message, because a tool message may not contain them."""
    if files:
        output.append({"role": "user", "content": "", "images": list(files)})
        files.clear()


def _translate(
    message: Message, output: list[dict[str, Any]], calls: dict[str, ToolCallPart], files: list[str]
) -> None:
    """Write a message of another format, its tool results as separate messages."""
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            _flush_files(output, files)
            output += _translate_answer(step_parts)
            _translate_results(results, output, calls, files)
        return
    _translate_results([part for part in message.parts if type(part) is ToolResultPart], output, calls, files)
    text = "\n\n".join(_texts(message.parts))
    images = [] if message.role == "system" else [*files, *_images(message.parts)]
    if text or images:
        role = "system" if message.role == "system" else "user"
        output.append({"role": role, "content": text, **({"images": images} if images else {})})
        files.clear()


def _translate_answer(parts: Sequence[Part]) -> list[dict[str, Any]]:
    texts = [block["text"] for block in common.text_blocks(parts)]
    reasoning = [part.text for part in parts if type(part) is ReasoningPart and common.is_not_blank(part.text)]
    calls = [
        {"id": part.call_id, "function": {"name": part.tool, "arguments": common.arguments_object(part)}}
        for part in parts
        if type(part) is ToolCallPart
    ]
    if not texts and not calls:
        return []
    message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts)}
    if reasoning:
        message["thinking"] = "\n\n".join(reasoning)
    return [{**message, "tool_calls": calls} if calls else message]


def _translate_results(
    results: Sequence[ToolResultPart], output: list[dict[str, Any]], calls: dict[str, ToolCallPart], files: list[str]
) -> None:
    for part in results:
        content, call = common.result_content(part), calls.get(part.call_id)
        text = content if type(content) is str else "\n\n".join(block["text"] for block in content if is_dict(block))
        result: dict[str, Any] = {"role": "tool", "content": text}
        tool = part.tool or (call.tool if call is not None else None)
        if tool:
            result["tool_name"] = tool
        if not tool or call is None or not is_dict(call.native) or call.native.get(_NO_ID) is not True:
            result["tool_call_id"] = part.call_id
        output.append(result)
        files += _images(part.content or ())


def _texts(parts: Sequence[Part]) -> list[str]:
    """Return texts, files that are text, and the addresses of other files, which the API does not fetch."""
    texts: list[str] = []
    for part in parts:
        content = attachments.content_of_attachment(part) if type(part) is AttachmentPart else None
        if content is not None and content.text is None and attachments.is_web_url(content.url):
            texts.append(f"{content.name or 'File'}: {content.url}")
        texts += [block["text"] for block in common.readable_blocks((part,))]
    return texts


def _images(parts: Sequence[Part]) -> list[str]:
    """Return the images among the parts as base64; the API accepts neither addresses nor other files."""
    contents = [attachments.content_of_attachment(part) for part in parts if type(part) is AttachmentPart]
    return [content.data for content in contents if content.is_image and content.data]
