"""OpenAI's chat completion messages, in and out.

The arguments of a tool call stay the text that the model wrote. What our fields do not hold stays beside them, and
messages that came in this format go out unaltered, right or wrong: mending a history is not this room's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from recollect.errors import InvalidValue
from recollect.formats import attachment, neutral, openai_translation
from recollect.formats.native import (
    BLOCK,
    WHOLE,
    Path,
    Shape,
    as_it_came,
    content_of,
    count,
    is_dict,
    is_list,
    is_taken,
    kept_response,
    noted,
    overlay,
    place_content,
    placed,
    rest,
    restored,
    role_of,
    taken,
    write_blocks,
)
from recollect.model.json import UNSET
from recollect.model.message import Draft, Message, Role
from recollect.model.part import Content, DataPart, Part, TextPart, ToolCallPart, ToolResultPart

NAME = "openai"
_FIELD = "field"  # a text that a message says beside its content: where
_SAID_ASIDE: tuple[Path, ...] = (("refusal",), ("audio", "transcript"))
_TAKEN = frozenset({_FIELD, BLOCK})
_BARE = 3  # a role, content and tool_calls or tool_call_id; an id, type and function
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


def read_at_once(message: dict[str, Any]) -> Draft | None:
    """Read a bare tool call or a bare result, which are most of what agents write, with nothing left to look at."""
    if len(message) != _BARE:
        return None
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if type(call_id) is str and type(content) is str:
            return Draft(role="tool", parts=(ToolResultPart(call_id=call_id, text=content),), format=NAME)
    elif role == "assistant" and "content" in message:
        calls = _bare_calls(message.get("tool_calls"))
        if calls and content is None:
            return Draft(role="assistant", parts=calls, format=NAME)
        if calls and type(content) is str:
            return Draft(role="assistant", parts=(TextPart(text=content), *calls), format=NAME)
    return None


def _bare_calls(calls: Any) -> tuple[ToolCallPart, ...] | None:
    """Read calls that have their usual fields and no others; None where one has not."""
    if not is_list(calls):
        return None
    parts: list[ToolCallPart] = []
    for call in calls:
        function = call.get("function") if is_dict(call) and len(call) == _BARE else None
        if not is_dict(function) or len(function) != len(("name", "arguments")) or call.get("type") != "function":
            return None
        call_id, tool, arguments = call.get("id"), function.get("name"), function.get("arguments")
        if type(call_id) is not str or type(tool) is not str or type(arguments) is not str:
            return None
        parts.append(ToolCallPart(call_id=call_id, tool=tool, arguments_text=arguments))
    return tuple(parts)


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a whole chat completion."""
    if "role" not in message and "choices" in message:
        return [_read_response(message)]
    name, role = message.get("role"), role_of(message, _ROLES, "OpenAI")
    renamed = {} if name == role else {"role": name}
    parts, shape = content_of(message, _read_block)
    call_id = message.get("tool_call_id")
    if name == "tool" and type(call_id) is str:
        return [_read_result(message, call_id, parts, shape)]
    said, fields = parts, rest(message, "role", "content") or {}
    if role == "assistant":
        for path in _SAID_ASIDE:
            aside = taken(fields, path)
            if aside is not None:
                fields = aside[1][BLOCK]
                parts += (TextPart(text=aside[0], native={_FIELD: list(path)}),)
        calls = _read_calls(fields.get("tool_calls"))
        if calls:
            del fields["tool_calls"]
            parts += calls
    native = noted(said, shape, "null", fields, **renamed)
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for chat completions: what came in this format as it came, the rest translated."""
    written: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []  # what tools showed: a person's message may hold it, a tool's may not
    for message in neutral.joined(messages, "openai-responses"):
        if shown and not any(type(part) is ToolResultPart for part in message.parts):
            openai_translation.show(written, shown)
        if not put(written, message.role, message.format, message.parts, message.native):
            openai_translation.translate(message, written, shown)
    openai_translation.show(written, shown)
    return written


_put_faithful = neutral.faithful_putter(lambda role, parts, native: [_own(role, parts, native)], read)


def _put_own(written: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message that came in this format as it came; of a whole response, what the API takes as input."""
    if not _put_faithful(written, role, parts, native):
        return False
    if native is not None and kept_response(native) is not None:
        written[-1] = _accepted(written[-1])
    return True


put = neutral.putter(NAME, _put_own, neutral.put)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the whole chat completion that a message came in."""
    native = message.native or {}
    kept = kept_response(native)
    if kept is None or not kept.get("choices"):
        return kept
    first, *others = kept["choices"]
    return {**kept, "choices": [{**first, "message": _own(message.role, message.parts, native)}, *others]}


def _read_response(completion: dict[str, Any]) -> Draft:
    choices = completion["choices"]
    if not is_list(choices):
        raise InvalidValue("The choices of this chat completion are not a list. Give the whole response, or a message.")
    usage, model = completion.get("usage"), completion.get("model")
    kept = dict(completion)
    draft = Draft(role="assistant", format=NAME)
    if choices:
        draft = _first_choice(choices[0])
        kept["choices"] = [rest(choices[0], "message") or {}, *choices[1:]]
    output = count(usage, "completion_tokens")
    return Draft(
        role=draft.role,
        parts=draft.parts,
        format=NAME,
        native={**(draft.native or {}), "response": kept},
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=output,
    )


def _first_choice(choice: Any) -> Draft:
    message = choice.get("message") if is_dict(choice) else None
    if not is_dict(message) or "role" not in message:
        raise InvalidValue("choices[0] has no message. Give a whole chat completion: a stream's chunks are not one.")
    return read(message)[0]


def _read_result(message: dict[str, Any], call_id: str, parts: tuple[Part, ...], shape: Shape) -> Draft:
    content: tuple[Any, ...] | None = parts if shape == "blocks" else None
    part = ToolResultPart(call_id=call_id, text=message["content"] if shape == "string" else None, content=content)
    native = noted((), shape, "null" if shape == "missing" else shape, rest(message, "role", "content", "tool_call_id"))
    return Draft(role="tool", parts=(part,), format=NAME, native=native)


def _read_block(block: dict[str, Any]) -> Content:
    match block.get("type"):
        case "text":
            return _read_text(block)
        case "refusal":
            found = taken(block, ("refusal",))
            return DataPart(native=block) if found is None else TextPart(text=found[0], native=found[1])
        case "image_url":
            return attachment.read(block, ("image_url", "url"), mime_type=attachment.IMAGE)
        case "input_audio":
            sound = block.get("input_audio")
            mime_type = f"audio/{sound.get('format')}" if is_dict(sound) else None
            return attachment.read(block, ("input_audio", "data"), mime_type=mime_type, holds="base64")
        case "file":
            return _read_file(block)
        case _:
            return DataPart(native=block)


def _read_text(block: dict[str, Any]) -> Content:
    text, native = block.get("text"), rest(block, "type", "text")
    if type(text) is not str or (native is not None and not native.keys().isdisjoint(_TAKEN)):
        return DataPart(native=block)
    return TextPart(text=text, native=native)


def _read_file(block: dict[str, Any]) -> Content:
    file = block.get("file")
    if not is_dict(file):
        return DataPart(native=block)
    if "file_data" in file:
        return attachment.read(block, ("file", "file_data"), name=file.get("filename"), holds="either")
    return attachment.elsewhere(block, name=file.get("filename"))


def _read_calls(calls: Any) -> tuple[ToolCallPart, ...] | None:
    """Read the tool calls; None where one of them is none, and all stay with the message's further fields."""
    if not is_list(calls):
        return None
    parts = [_read_call(call) for call in calls]
    return None if None in parts else tuple(part for part in parts if part is not None)


def _read_call(call: Any) -> ToolCallPart | None:
    if not is_dict(call):
        return None
    custom = call.get("type") == "custom"
    function = call.get("custom" if custom else "function")
    call_id = call.get("id")
    if not is_dict(function) or type(call_id) is not str or type(function.get("name")) is not str:
        return None
    given = function.get("input" if custom else "arguments", UNSET)
    in_words = not custom and type(given) is str
    return ToolCallPart(
        call_id=call_id,
        tool=function["name"],
        arguments=UNSET if in_words else given,
        arguments_text=given if in_words else None,
        native=_call_native(call, function, custom=custom),
    )


def _call_native(call: dict[str, Any], function: dict[str, Any], *, custom: bool) -> dict[str, Any] | None:
    """Keep what the id, the name and the arguments do not say."""
    key = "custom" if custom else "function"
    native = rest(call, "id", key) or {}
    if "type" not in native or WHOLE in native:
        return {WHOLE: call}
    if native["type"] == "function":
        del native["type"]
    more = rest(function, "name", "input" if custom else "arguments")
    if more:
        native[key] = more
    return native or None


def _own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Give a message that came in this format back as it came."""
    first = parts[0] if parts and role == "tool" else None
    if type(first) is ToolResultPart:
        if native is None and first.text is not None:
            return {"role": "tool", "tool_call_id": first.call_id, "content": first.text}
        return _result(first, native or {})
    calls = [_call(part) for part in parts if type(part) is ToolCallPart]
    if native is None:
        written: dict[str, Any] = {"role": role, "content": None}
        if len(calls) < len(parts):
            place_content(written, parts[: len(parts) - len(calls)], None, "null", _block)
    else:
        written = _told(role, parts, native)
    if calls:
        written["tool_calls"] = calls
    if native is None:
        return written
    overlay(written, native.get("fields"))
    for part in parts:
        if _is_aside(part):
            written = placed(written, part.native[_FIELD], part.text)
    return written


def _told(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> dict[str, Any]:
    """Write the content of a message in the shape that it had."""
    said = [part for part in parts if type(part) is not ToolCallPart and not _is_aside(part)]
    written: dict[str, Any] = {"role": native.get("role", role)}
    place_content(written, said, native.get("content"), "null", _block)
    return written


def _is_aside(part: Part) -> TypeGuard[TextPart]:
    return type(part) is TextPart and is_dict(part.native) and _FIELD in part.native


def _result(part: ToolResultPart, native: dict[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {"role": native.get("role", "tool"), "tool_call_id": part.call_id}
    if part.text is not None:
        written["content"] = part.text
    elif part.content is not None:
        written["content"] = write_blocks(part.content, _block)
    elif native.get("content") != "missing":
        written["content"] = None
    return overlay(written, native.get("fields"))


def _accepted(message: dict[str, Any]) -> dict[str, Any]:
    """Leave of a response's message what the API takes as input."""
    written = {"role": message["role"], "content": message.get("content")}
    for name in ("tool_calls", "refusal", "function_call"):
        if message.get(name):
            written[name] = message[name]
    audio = message.get("audio")
    if is_dict(audio) and "id" in audio:
        written["audio"] = {"id": audio["id"]}
    return written


def _block(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            if is_taken(part.native):
                return restored(part.native, part.text)
            return overlay({"type": "text", "text": part.text}, part.native)
        case _:
            return as_it_came(part)


def _call(part: ToolCallPart) -> dict[str, Any]:
    if part.native is None and part.arguments_text is not None:
        function = {"name": part.tool, "arguments": part.arguments_text}
        return {"id": part.call_id, "type": "function", "function": function}
    native = part.native if is_dict(part.native) else {}
    if WHOLE in native:
        return dict(native[WHOLE])
    custom = native.get("type") == "custom"
    key = "custom" if custom else "function"
    function: dict[str, Any] = {"name": part.tool}
    if part.arguments_text is not None:
        function["arguments"] = part.arguments_text
    elif part.arguments is not UNSET:
        function["input" if custom else "arguments"] = part.arguments
    kind = native.get("type", "function")
    call = {"id": part.call_id, "type": kind, key: overlay(function, native.get(key))}
    return overlay(call, native)
