"""OpenAI's Chat Completions format, and the translation of other formats into it.

The arguments of a tool call remain the text that the model wrote. Messages that were read in this format are written
back unaltered, valid or not: repairs belong to recollect.history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeGuard

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BLOCK,
    WHOLE,
    BlockPath,
    Shape,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    message_remainder,
    original_block,
    overlay,
    read_content,
    read_role,
    remaining_fields,
    replace_at,
    restore_block,
    set_content,
    stored_response,
    sum_usage,
    write_blocks,
)
from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    Content,
    DataPart,
    Draft,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "openai"
RULES = ProviderRules(
    NAME,
    unique="message",
    call_id=re.compile(r".{1,40}", re.DOTALL),
    calls_field="tool_calls",
    content_fields=("refusal", "audio", "function_call"),
    length_stop=((("choices", 0, "finish_reason"),), frozenset({"length"})),
    hidden_keys=frozenset({"cache_control", "encrypted_content"}),
)
_FIELD = "field"  # the path of a text outside the content, such as a refusal
_TEXT_FIELDS: tuple[BlockPath, ...] = (("refusal",), ("audio", "transcript"))
_RESERVED_KEYS = frozenset({_FIELD, BLOCK})
_BARE_LENGTH = 3  # fields: role, content and tool_calls or tool_call_id; id, type and function
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


def read_fast(message: dict[str, Any]) -> Draft | None:
    """Read a plain tool call or a plain result, the most common messages of agents; None if it is another message."""
    if len(message) != _BARE_LENGTH:
        return None
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if type(call_id) is str and type(content) is str:
            return Draft(role="tool", parts=(ToolResultPart(call_id=call_id, text=content),), format=NAME)
    elif role == "assistant" and "content" in message:
        calls = _read_bare_calls(message.get("tool_calls"))
        if calls and content is None:
            return Draft(role="assistant", parts=calls, format=NAME)
        if calls and type(content) is str:
            return Draft(role="assistant", parts=(TextPart(text=content), *calls), format=NAME)
    return None


def _read_bare_calls(calls: Any) -> tuple[ToolCallPart, ...] | None:
    """Read calls that have exactly the usual fields; None if one has others."""
    if not is_list(calls):
        return None
    parts: list[ToolCallPart] = []
    for call in calls:
        function = call.get("function") if is_dict(call) and len(call) == _BARE_LENGTH else None
        if not is_dict(function) or len(function) != len(("name", "arguments")) or call.get("type") != "function":
            return None
        call_id, tool, arguments = call.get("id"), function.get("name"), function.get("arguments")
        if type(call_id) is not str or type(tool) is not str or type(arguments) is not str:
            return None
        parts.append(ToolCallPart(call_id=call_id, tool=tool, arguments_text=arguments))
    return tuple(parts)


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a complete chat completion."""
    if "role" not in message and "choices" in message:
        return [_read_response(message)]
    name, role = message.get("role"), read_role(message, _ROLES, "OpenAI")
    original_role = {} if name == role else {"role": name}
    parts, shape = read_content(message, _read_block)
    call_id = message.get("tool_call_id")
    if name == "tool" and type(call_id) is str:
        return [_read_result(message, call_id, parts, shape)]
    content_parts, fields = parts, remaining_fields(message, "role", "content") or {}
    if role == "assistant":
        for path in _TEXT_FIELDS:
            extraction = extract_text(fields, path)
            if extraction is not None:
                fields = extraction[1][BLOCK]
                parts += (TextPart(text=extraction[0], native={_FIELD: list(path)}),)
        calls = _read_calls(fields.get("tool_calls"))
        if calls:
            del fields["tool_calls"]
            parts += calls
    native = message_remainder(content_parts, shape, "null", fields, **original_role)
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for Chat Completions: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    tool_files: list[dict[str, Any]] = []  # files from tool results: only a user message may contain them
    for message in common.join_items(messages, "openai-responses"):
        if tool_files and not any(type(part) is ToolResultPart for part in message.parts):
            _flush_tool_files(output, tool_files)
        if not put(output, message.role, message.format, message.parts, message.native):
            translate(message, output, tool_files)
    _flush_tool_files(output, tool_files)
    return output


is_boundary = boundaries.make_boundary_test(write)


_put_verified = common.make_verified_put(lambda role, parts, native: [write_own(role, parts, native)], read)


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message of this format unchanged; of a complete response, only the fields that the API accepts."""
    if not _put_verified(output, role, parts, native):
        return False
    if native is not None and stored_response(native) is not None:
        output[-1] = input_fields(output[-1])
    return True


put = common.make_put(NAME, _put_own, common.put_common)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete chat completion that contained a message."""
    native = message.native or {}
    response_fields = stored_response(native)
    if response_fields is None or not response_fields.get("choices"):
        return response_fields
    first, *others = response_fields["choices"]
    return {
        **response_fields,
        "choices": [{**first, "message": write_own(message.role, message.parts, native)}, *others],
    }


def _read_response(completion: dict[str, Any]) -> Draft:
    choices = completion["choices"]
    if not is_list(choices):
        raise InvalidValue("choices must be a list. Pass the complete response, or a message.")
    usage, model = completion.get("usage"), completion.get("model")
    response_fields = dict(completion)
    draft = Draft(role="assistant", format=NAME)
    if choices:
        draft = _read_first_choice(choices[0])
        response_fields["choices"] = [remaining_fields(choices[0], "message") or {}, *choices[1:]]
    output = sum_usage(usage, "completion_tokens")
    return Draft(
        role=draft.role,
        parts=draft.parts,
        format=NAME,
        native={**(draft.native or {}), "response": response_fields},
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(usage, "prompt_tokens"),
        output_tokens=output,
    )


def _read_first_choice(choice: Any) -> Draft:
    message = choice.get("message") if is_dict(choice) else None
    if not is_dict(message) or "role" not in message:
        raise InvalidValue(
            "choices[0] must have a message. Pass a complete chat completion, not the chunks of a stream."
        )
    return read(message)[0]


def _read_result(message: dict[str, Any], call_id: str, parts: tuple[Part, ...], shape: Shape) -> Draft:
    content: tuple[Any, ...] | None = parts if shape == "blocks" else None
    part = ToolResultPart(call_id=call_id, text=message["content"] if shape == "string" else None, content=content)
    native = message_remainder(
        (), shape, "null" if shape == "missing" else shape, remaining_fields(message, "role", "content", "tool_call_id")
    )
    return Draft(role="tool", parts=(part,), format=NAME, native=native)


def _read_block(block: dict[str, Any]) -> Content:
    match block.get("type"):
        case "text":
            return _read_text(block)
        case "refusal":
            extraction = extract_text(block, ("refusal",))
            return DataPart(native=block) if extraction is None else TextPart(text=extraction[0], native=extraction[1])
        case "image_url":
            return attachments.read_attachment(block, ("image_url", "url"), mime_type=attachments.IMAGE)
        case "input_audio":
            audio = block.get("input_audio")
            mime_type = f"audio/{audio.get('format')}" if is_dict(audio) else None
            return attachments.read_attachment(block, ("input_audio", "data"), mime_type=mime_type, holds="base64")
        case "file":
            return _read_file(block)
        case _:
            return DataPart(native=block)


def _read_text(block: dict[str, Any]) -> Content:
    text, native = block.get("text"), remaining_fields(block, "type", "text")
    if type(text) is not str or (native is not None and not native.keys().isdisjoint(_RESERVED_KEYS)):
        return DataPart(native=block)
    return TextPart(text=text, native=native)


def _read_file(block: dict[str, Any]) -> Content:
    file = block.get("file")
    if not is_dict(file):
        return DataPart(native=block)
    if "file_data" in file:
        return attachments.read_attachment(block, ("file", "file_data"), name=file.get("filename"), holds="either")
    return attachments.read_provider_file(block, name=file.get("filename"))


def _read_calls(calls: Any) -> tuple[ToolCallPart, ...] | None:
    """Read the tool calls; None if one is malformed, and then all stay in the remaining fields."""
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
    arguments = function.get("input" if custom else "arguments", UNSET)
    is_text = not custom and type(arguments) is str
    return ToolCallPart(
        call_id=call_id,
        tool=function["name"],
        arguments=UNSET if is_text else arguments,
        arguments_text=arguments if is_text else None,
        native=_call_remainder(call, function, custom=custom),
    )


def _call_remainder(call: dict[str, Any], function: dict[str, Any], *, custom: bool) -> dict[str, Any] | None:
    """Return the fields of a call besides its id, name and arguments."""
    key = "custom" if custom else "function"
    native = remaining_fields(call, "id", key) or {}
    if "type" not in native or WHOLE in native:
        return {WHOLE: call}
    if native["type"] == "function":
        del native["type"]
    more = remaining_fields(function, "name", "input" if custom else "arguments")
    if more:
        native[key] = more
    return native or None


def write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format unchanged."""
    first = parts[0] if parts and role == "tool" else None
    if type(first) is ToolResultPart:
        if native is None and first.text is not None:
            return {"role": "tool", "tool_call_id": first.call_id, "content": first.text}
        return _write_result(first, native or {})
    calls = [_write_call(part) for part in parts if type(part) is ToolCallPart]
    if native is None:
        output: dict[str, Any] = {"role": role, "content": None}
        if len(calls) < len(parts):
            set_content(output, parts[: len(parts) - len(calls)], None, "null", _write_block)
    else:
        output = _write_message(role, parts, native)
    if calls:
        output["tool_calls"] = calls
    if native is None:
        return output
    output = overlay(output, native.get("fields"))
    for part in parts:
        if _is_field_text(part):
            output = replace_at(output, part.native[_FIELD], part.text)
    return output


def _write_message(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its content in its original shape."""
    content_parts = [part for part in parts if type(part) is not ToolCallPart and not _is_field_text(part)]
    output: dict[str, Any] = {"role": native.get("role", role)}
    set_content(output, content_parts, native.get("content"), "null", _write_block)
    return output


def _is_field_text(part: Part) -> TypeGuard[TextPart]:
    return type(part) is TextPart and is_dict(part.native) and _FIELD in part.native


def _write_result(part: ToolResultPart, native: dict[str, Any]) -> dict[str, Any]:
    output: dict[str, Any] = {"role": native.get("role", "tool"), "tool_call_id": part.call_id}
    if part.text is not None:
        output["content"] = part.text
    elif part.content is not None:
        output["content"] = write_blocks(part.content, _write_block)
    elif native.get("content") != "missing":
        output["content"] = None
    return overlay(output, native.get("fields"))


def input_fields(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a response's message that the API accepts as input."""
    output = {"role": message["role"], "content": message.get("content")}
    for name in ("tool_calls", "refusal", "function_call"):
        if message.get(name):
            output[name] = message[name]
    audio = message.get("audio")
    if is_dict(audio) and "id" in audio:
        output["audio"] = {"id": audio["id"]}
    return output


def _write_block(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            if is_extracted(part.native):
                return restore_block(part.native, part.text)
            return overlay({"type": "text", "text": part.text}, part.native)
        case _:
            return original_block(part)


def _write_call(part: ToolCallPart) -> dict[str, Any]:
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


_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def _flush_tool_files(output: list[dict[str, Any]], tool_files: list[dict[str, Any]] | None) -> None:
    """Write the files of tools as a user message, because a tool message may not contain them."""
    if tool_files:
        output.append({"role": "user", "content": list(tool_files)})
        tool_files.clear()


def translate(message: Message, output: list[dict[str, Any]], tool_files: list[dict[str, Any]] | None) -> None:
    """Write a message of another format, its tool results as separate messages.

    Files of results are added to `tool_files`; if it is None, the results contain them.
    """
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            _flush_tool_files(output, tool_files)
            calls = [_translate_call(part) for part in step_parts if type(part) is ToolCallPart]
            output += _assistant_message(common.text_blocks(step_parts), calls)
            _translate_results(results, output, tool_files)
        return
    _translate_results([part for part in message.parts if type(part) is ToolResultPart], output, tool_files)
    content = common.readable_blocks(message.parts) if message.role == "system" else _translate_content(message.parts)
    if content:
        role = "system" if message.role == "system" else "user"
        output.append({"role": role, "content": common.collapse_blocks([*(tool_files or ()), *content])})
        if tool_files:
            tool_files.clear()


def _translate_results(
    results: list[ToolResultPart], output: list[dict[str, Any]], tool_files: list[dict[str, Any]] | None
) -> None:
    for part in results:
        content = common.result_content(part)
        pieces = [] if part.content is None else [_translate_attachment(piece) for piece in part.content]
        files = [block for block in pieces if block is not None]
        if tool_files is not None:
            tool_files += files
        elif files:
            content = [*(content if type(content) is list else []), *files]
        output.append({"role": "tool", "tool_call_id": part.call_id, "content": content})


def _assistant_message(content: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not content and not calls:
        return []
    output: dict[str, Any] = {"role": "assistant", "content": common.collapse_blocks(content) if content else None}
    if calls:
        output["tool_calls"] = calls
    return [output]


def _translate_content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and the files that the API accepts, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _translate_attachment(part)
        if block is not None:
            blocks.append(block)
        else:
            blocks += common.readable_blocks((part,))
    return blocks


def _translate_attachment(part: Part) -> dict[str, Any] | None:
    return _translate_file(attachments.content_of_attachment(part)) if type(part) is AttachmentPart else None


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a block; None if the API does not accept it, or if it is sent as text."""
    if content.is_image:
        is_usable = content.data is not None or attachments.is_web_url(content.url)
        return {"type": "image_url", "image_url": {"url": content.link}} if is_usable else None
    if content.text is not None or content.data is None:
        return None
    if content.mime_type in _AUDIO_FORMATS:
        return {
            "type": "input_audio",
            "input_audio": {"data": content.data, "format": _AUDIO_FORMATS[content.mime_type]},
        }
    return {"type": "file", "file": {"file_data": content.link, "filename": content.name or "file"}}


def _translate_call(part: ToolCallPart) -> dict[str, Any]:
    custom = common.custom_input(part)
    if custom is not None:
        return {"id": part.call_id, "type": "custom", "custom": {"name": part.tool, "input": custom}}
    function = {"name": part.tool, "arguments": common.arguments_json(part)}
    return {"id": part.call_id, "type": "function", "function": function}
