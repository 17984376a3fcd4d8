"""LangChain's messages: objects, their dumps, the dicts of messages_to_dict(), and the envelopes of dumpd().

A message object is written as the dict of its fields: {"type": "human", "content": ...}. Dicts are written in the form
in which they were read. The content is a string, or a list of strings and blocks: LangChain's own blocks of versions 0
and 1, and those of providers, which it passes on.

The calls of an answer are in `tool_calls`. Some providers repeat them as blocks of the content: such a call is one
part, in the place of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.formats import attachments, common
from recollect.formats.boundaries import is_separate
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BlockPath,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    message_remainder,
    original_block,
    overlay,
    read_text_block,
    reader_by_type,
    remaining_fields,
    restore_block,
    set_content,
    sum_usage,
    value_at,
    write_blocks,
)
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

NAME = "langchain"
RULES = ProviderRules(
    NAME,
    calls_field="tool_calls",
    length_stop=((("response_metadata", "finish_reason"),), frozenset({"length", "MAX_TOKENS"})),
    hidden_keys=frozenset(
        {"response_metadata", "usage_metadata", "artifact", "example", "chunk_position", "index", "mime_type"}
        | {"source_type", "signature", "string", "entry", "invalid"}
    ),
)
_CLASSES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
    "RemoveMessage": "remove",
}
_TYPES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "user",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "tool",
    "ChatMessageChunk": "user",
    "user": "user",  # this and the following are roles, which LangChain accepts in place of a type
    "assistant": "assistant",
    "developer": "system",
}
_CHAT_ROLES: dict[str, Role] = {"assistant": "assistant", "ai": "assistant", "system": "system"}
_TYPE_OF_ROLE = {"user": "human", "assistant": "ai", "system": "system", "tool": "tool"}
_REMOVE = "remove"
_WRAPPER = "wrapper"  # of a message: the key of its fields, and the other fields of the dict around them
_EMPTY = "empty_lists"  # of a message: its lists of calls that are empty
_STRING = {"string": True}  # the remainder of a text that is a string in a list
# Keys of the remainder of a call: the fields of its entry in `tool_calls` or `invalid_tool_calls`, and of its block.
_ENTRY, _INVALID, _CONTENT = "entry", "invalid", "content"
_DEFAULT_ENTRY = {"type": "tool_call"}
_INPUT_FIELDS = {"tool_use": "input", "tool_call": "args"}  # of the blocks that repeat a call
_CALL_LISTS = ("tool_calls", "invalid_tool_calls")
_PATHS: tuple[tuple[BlockPath, str], ...] = (
    (("base64",), "base64"),
    (("data",), "base64"),
    (("url",), "link"),
    (("image_url", "url"), "link"),
    (("image_url",), "link"),
    (("source", "data"), "base64"),
    (("source", "url"), "link"),
    (("file", "file_data"), "either"),
    (("input_audio", "data"), "base64"),
)
"""The places of the payload of a file: in LangChain's blocks of versions 1 and 0, OpenAI's, and Anthropic's."""


def dump(value: Any) -> Any:
    """Return a message object of LangChain as JSON data: its type, and the fields that are not defaults."""
    try:
        fields = value.model_dump(mode="json", exclude_defaults=True)
    except Exception as error:
        raise InvalidValue(
            f"LangChain cannot dump this {type(value).__name__} as JSON: {str(error)[:_MAX_REASON_LENGTH]}"
        ) from error
    return {"type": getattr(value, "type", None), **fields}


_MAX_REASON_LENGTH = 200  # characters of the framework's message, which contains the value


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    fields, wrapper = _unwrap(message)
    key = "type" if "type" in fields else "role" if wrapper is None else "none"
    if key == "role" and type(fields.get("content")) is str and len(fields) == len(common.MESSAGE_FIELDS):
        return common.read_common(message)
    name = fields.get(key) if wrapper is None else _type_of_wrapper(wrapper)
    if key == "type" and fields["type"] != name:
        raise InvalidValue(f"The message has two types: {format_value(fields['type'])} and {format_value(name)}.")
    role = _read_role(name, fields)
    native: dict[str, Any] = {} if name == _TYPE_OF_ROLE[role] else {"type": name}
    if key != "type":
        native["key"] = key
    if wrapper is not None:
        native[_WRAPPER] = wrapper
    rest = remaining_fields(fields, "content", key) or {}
    if role == "tool" and type(fields.get("tool_call_id")) is str:
        return [_read_result(fields, rest, native)]
    return [_read_message(role, fields, rest, native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for LangChain: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    for message in common.join_items(messages, "openai-responses"):
        if not put(output, message.role, message.format, message.parts, message.native):
            output += _translate(message)
    return output


def put(
    output: list[dict[str, Any]],
    role: Role,
    source_format: str | None,
    parts: Sequence[Part],
    native: dict[str, Any] | None,
) -> bool:
    """Write a message of this format unchanged, or a text without a format. Return whether it was written."""
    if source_format is None and role != "tool" and len(parts) == 1:
        part = parts[0]
        if type(part) is TextPart and part.native is None:
            output.append({"type": _TYPE_OF_ROLE[role], "content": part.text})
            return True
    return source_format == NAME and _put_verified(output, role, parts, native)


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: an answer of LangChain is itself a message of the history."""
    return None


is_boundary = is_separate


def _unwrap(message: dict[str, Any]) -> tuple[dict[str, Any], list[Any] | None]:
    """Return the fields of a message, and the dict around them, if there is one, as a key and the other fields."""
    for key, is_wrapper in (("kwargs", message.get("lc") == 1), ("data", "content" not in message)):
        if is_wrapper and is_dict(message.get(key)):
            return message[key], [key, remaining_fields(message, key) or {}]
    return message, None


def _type_of_wrapper(wrapper: list[Any]) -> Any:
    """Return the type that the dict around a message states: its name, or the path of its class."""
    key, fields = wrapper
    if key == "data":
        return fields.get("type")
    path = fields.get("id")
    name = path[-1] if is_list(path) and path else None
    return _CLASSES.get(name, name) if type(name) is str else None


def _read_role(name: Any, fields: dict[str, Any]) -> Role:
    if name == _REMOVE:
        raise InvalidValue(
            "Recollect cannot store a RemoveMessage, which tells LangGraph to delete a message. Call "
            "session.delete_messages() instead."
        )
    role = _TYPES.get(name) if type(name) is str else None
    if role is None:
        raise InvalidValue(
            f"A message of LangChain must have a known type, got {format_value(name)}. Write "
            '{"type": "human", "content": ...}; the types are: human, ai, system, tool, function, chat.'
        )
    chat_role = fields.get("role") if name in ("chat", "ChatMessageChunk") else None
    return _CHAT_ROLES.get(chat_role, role) if type(chat_role) is str else role


def _read_message(role: Role, fields: dict[str, Any], rest: dict[str, Any], native: dict[str, Any]) -> Draft:
    content = fields.get("content")
    calls = _read_calls(rest, native) if role == "assistant" else []
    parts: tuple[Part, ...]
    if is_list(content):
        parts, shape = _read_content(content, calls), "blocks"
    elif type(content) is str:
        parts, shape = (TextPart(text=content),), "string"
    elif content is None:
        parts, shape = (), "null" if "content" in fields else "missing"
    else:
        raise _content_error(content)
    remainder = message_remainder(parts, shape, "blocks", rest, **native)
    parts += tuple(calls)
    usage, metadata = fields.get("usage_metadata"), fields.get("response_metadata")
    model = metadata.get("model_name", metadata.get("model")) if is_dict(metadata) else None
    output = sum_usage(usage, "output_tokens")
    return Draft(
        role=role,
        parts=parts,
        format=NAME,
        native=remainder,
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(usage, "input_tokens"),
        output_tokens=output,
    )


def _content_error(content: Any) -> InvalidValue:
    return InvalidValue(f"The content must be a string or a list, got {type(content).__name__}.")


def _read_calls(rest: dict[str, Any], native: dict[str, Any]) -> list[ToolCallPart]:
    """Move the calls out of the fields of an answer, and return them. A list with a malformed call stays there."""
    calls: list[ToolCallPart] = []
    for field in _CALL_LISTS:
        entries = rest.get(field)
        if not is_list(entries):
            continue
        parts = [part for entry in entries if (part := _read_call(entry, invalid=field != "tool_calls")) is not None]
        if len(parts) < len(entries):
            continue
        calls += parts
        del rest[field]
        if not entries:
            native.setdefault(_EMPTY, []).append(field)
    return calls


def _read_call(entry: Any, *, invalid: bool) -> ToolCallPart | None:
    if not is_dict(entry):
        return None
    arguments: Any = entry.get("args")
    call_id, tool = entry.get("id"), entry.get("name")
    if type(call_id) is not str or type(tool) is not str or type(arguments) is not (str if invalid else dict):
        return None
    rest = remaining_fields(entry, "id", "name", "args") or {}
    native = {_INVALID: rest} if invalid else {_ENTRY: rest} if rest != _DEFAULT_ENTRY else None
    if invalid:
        return ToolCallPart(call_id=call_id, tool=tool, arguments_text=str(arguments), native=native)
    return ToolCallPart(call_id=call_id, tool=tool, arguments=arguments, native=native)


def _read_content(content: list[Any], calls: list[ToolCallPart]) -> tuple[Part, ...]:
    """Read the items of a content. Remove the first calls from `calls` that it repeats in the same order."""
    parts: list[Part] = []
    for item in content:
        if calls and _repeats_call(item, calls[0]):
            call = calls.pop(0)
            rest = remaining_fields(item, "id", "name", _INPUT_FIELDS[item["type"]])
            native = {**(call.native or {}), _CONTENT: rest}
            parts.append(ToolCallPart(call_id=call.call_id, tool=call.tool, arguments=call.arguments, native=native))
        else:
            parts.append(_read_item(item, _read_block))
    return tuple(parts)


def _repeats_call(item: Any, call: ToolCallPart) -> bool:
    """Return whether a block of a content is equal to a call in the list of calls."""
    field = _INPUT_FIELDS.get(item["type"]) if is_dict(item) and type(item.get("type")) is str else None
    if field is None or (item.get("id"), item.get("name")) != (call.call_id, call.tool):
        return False
    arguments = item.get(field)
    return (
        is_dict(arguments)
        and is_dict(call.arguments)
        and common.compact_json(arguments) == common.compact_json(call.arguments)
    )


def _read_item(item: Any, read_block: Callable[[dict[str, Any]], Any]) -> Any:
    if type(item) is str:
        return TextPart(text=item, native=dict(_STRING))
    if is_dict(item):
        return read_block(item)
    raise InvalidValue(f"An item of the content must be a string or a dict, got {type(item).__name__}.")


def _read_result(fields: dict[str, Any], rest: dict[str, Any], native: dict[str, Any]) -> Draft:
    content: Any = fields.get("content")
    tool = fields.get("name")
    names = ["tool_call_id"]
    if type(tool) is str:
        names.append("name")
    if fields.get("status") == "error":
        names.append("status")
    text, pieces = content if type(content) is str else None, None
    if is_list(content):
        pieces = tuple([_read_item(item, _read_piece) for item in content])
    elif text is None and content is not None:
        raise _content_error(content)
    part = ToolResultPart(
        call_id=fields["tool_call_id"],
        tool=tool if type(tool) is str else None,
        status="error" if fields.get("status") == "error" else "success",
        text=text,
        content=pieces,
    )
    if text is None and pieces is None:
        native["content"] = "null" if "content" in fields else "missing"
    more = remaining_fields(rest, *names)
    if more:
        native["fields"] = more
    return Draft(role="tool", parts=(part,), format=NAME, native=native or None)


def _read_reasoning(block: dict[str, Any]) -> Part:
    extraction = extract_text(block, (block["type"],))  # {"type": "reasoning", "reasoning": text}
    return DataPart(native=block) if extraction is None else ReasoningPart(text=extraction[0], native=extraction[1])


def _read_refusal(block: dict[str, Any]) -> TextPart | DataPart:
    extraction = extract_text(block, ("refusal",))
    return DataPart(native=block) if extraction is None else TextPart(text=extraction[0], native=extraction[1])


def _read_file(block: dict[str, Any]) -> Content:
    """Read a file, in LangChain's own block or in one of a provider."""
    mime_type = next((value for at in _MIME_TYPES if type(value := value_at(block, at)) is str), None)
    if mime_type is None and type(audio := value_at(block, ("input_audio", "format"))) is str:
        mime_type = f"audio/{audio}"
    if mime_type is None and block["type"] in ("image", "image_url"):
        mime_type = attachments.IMAGE
    name = next((value for at in _NAMES if type(value := value_at(block, at)) is str), None)
    if type(block.get("text")) is str:
        return attachments.read_attachment(block, ("text",), mime_type=mime_type, name=name, holds="text")
    if value_at(block, ("source", "type")) == "text":
        return attachments.read_attachment(block, ("source", "data"), mime_type=mime_type, name=name, holds="text")
    for at, holds in _PATHS:
        if type(value_at(block, at)) is str:
            return attachments.read_attachment(block, at, mime_type=mime_type, name=name, holds=holds)
    if any(type(value_at(block, at)) is str for at in _FILE_IDS):
        return attachments.read_provider_file(block, mime_type=mime_type, name=name)
    return DataPart(native=block)


_MIME_TYPES: tuple[BlockPath, ...] = (("mime_type",), ("source", "media_type"))
_FILE_IDS: tuple[BlockPath, ...] = (("file_id",), ("source", "file_id"), ("file", "file_id"), ("id",))
_NAMES: tuple[BlockPath, ...] = (
    ("filename",),
    ("extras", "filename"),
    ("metadata", "filename"),
    ("file", "filename"),
    ("title",),
    ("name",),
)
_PIECE_READERS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": read_text_block,
    "refusal": _read_refusal,
    **dict.fromkeys(
        ("image", "audio", "video", "file", "text-plain", "image_url", "input_audio", "document", "media"), _read_file
    ),
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **_PIECE_READERS,
    "reasoning": _read_reasoning,
    "thinking": _read_reasoning,
}
_read_piece = reader_by_type(_PIECE_READERS)
_read_block = reader_by_type(_READERS)


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format unchanged."""
    native = native or {}
    name, key = native.get("type", _TYPE_OF_ROLE[role]), native.get("key", "type")
    message: dict[str, Any] = {} if key == "none" else {key: name}
    first = parts[0] if parts and role == "tool" else None
    if type(first) is ToolResultPart:
        _set_result(message, first, native)
    else:
        content = [part for part in parts if type(part) is not ToolCallPart or _is_in_content(part)]
        set_content(message, content, native.get("content"), "blocks", _write_block)
        calls = [part for part in parts if type(part) is ToolCallPart]
        for field, is_invalid in zip(_CALL_LISTS, (False, True), strict=True):
            entries = [_write_call(part) for part in calls if _is_invalid(part) == is_invalid]
            if entries or field in native.get(_EMPTY, ()):
                message[field] = entries
    overlay(message, native.get("fields"))
    wrapper = native.get(_WRAPPER)
    return message if wrapper is None else {**wrapper[1], wrapper[0]: message}


_put_verified = common.make_verified_put(lambda role, parts, native: [_write_own(role, parts, native)], read)


def _is_in_content(part: ToolCallPart) -> bool:
    return is_dict(part.native) and _CONTENT in part.native


def _is_invalid(part: ToolCallPart) -> bool:
    return is_dict(part.native) and _INVALID in part.native


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    """Return the entry of a call in the list of calls."""
    native: dict[str, Any] = part.native if is_dict(part.native) else {}
    call = {"name": part.tool, "args": _arguments(part), "id": part.call_id}
    return overlay(call, native.get(_INVALID, native.get(_ENTRY, _DEFAULT_ENTRY)))


def _arguments(part: ToolCallPart) -> Any:
    return part.arguments_text if part.arguments_text is not None else part.arguments


def _write_block(part: Part) -> Any:
    """Return an item of a content; None if the part was not read from one."""
    native = part.native
    match part:
        case ToolCallPart():
            rest = native[_CONTENT]
            return overlay({"id": part.call_id, "name": part.tool, _INPUT_FIELDS[rest["type"]]: part.arguments}, rest)
        case TextPart() if native == _STRING:
            return part.text
        case TextPart() | ReasoningPart() if is_extracted(native):
            return restore_block(native, part.text)
        case TextPart():
            return overlay({"type": "text", "text": part.text}, native)
        case _:
            return original_block(part)


def _set_result(message: dict[str, Any], part: ToolResultPart, native: dict[str, Any]) -> None:
    """Add the content of a tool result, its call and its status to a message."""
    if part.text is not None:
        message["content"] = part.text
    elif part.content is not None:
        message["content"] = write_blocks(part.content, _write_block)
    elif native.get("content") != "missing":
        message["content"] = None
    message["tool_call_id"] = part.call_id
    if part.tool is not None:
        message["name"] = part.tool
    if part.status != "success":
        message["status"] = "error"


def _translate(message: Message) -> list[dict[str, Any]]:
    """Return the messages for a message of another format, its tool results as separate messages."""
    output: list[dict[str, Any]] = []
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            output += _translate_answer(step_parts)
            output += [_translate_result(part) for part in results]
        return output
    output += [_translate_result(part) for part in message.parts if type(part) is ToolResultPart]
    blocks = common.readable_blocks(message.parts) if message.role == "system" else _translate_content(message.parts)
    if blocks:
        name = "system" if message.role == "system" else "human"
        output.append({"type": name, "content": common.collapse_blocks(blocks)})
    return output


def _translate_answer(parts: Iterable[Part]) -> list[dict[str, Any]]:
    blocks = common.text_blocks(parts := list(parts))
    calls = [
        {"name": part.tool, "args": common.arguments_object(part), "id": part.call_id, **_DEFAULT_ENTRY}
        for part in parts
        if type(part) is ToolCallPart
    ]
    if not blocks and not calls:
        return []
    answer: dict[str, Any] = {"type": "ai", "content": common.collapse_blocks(blocks) if blocks else ""}
    return [{**answer, "tool_calls": calls} if calls else answer]


def _translate_result(part: ToolResultPart) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool", "content": common.result_content(part), "tool_call_id": part.call_id}
    if part.content is not None and part.text is None:
        result["content"] = common.collapse_blocks(_translate_content(part.content)) or result["content"]
    if part.tool is not None:
        result["name"] = part.tool
    return result if part.status == "success" else {**result, "status": "error"}


def _translate_content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and files, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _translate_file(attachments.content_of_attachment(part)) if type(part) is AttachmentPart else None
        blocks += common.readable_blocks((part,)) if block is None else [block]
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a block; None if it is text, or if only its provider has it."""
    if content.text is not None or (content.data is None and not attachments.is_web_url(content.url)):
        return None
    family = (content.mime_type or "").partition("/")[0]
    block: dict[str, Any] = {"type": family if family in ("image", "audio", "video") else "file"}
    if content.data is not None:
        block |= {"base64": content.data, "mime_type": content.mime_type or attachments.BYTES}
    else:
        block["url"] = content.url
        if content.mime_type and "*" not in content.mime_type:
            block["mime_type"] = content.mime_type
    return {**block, "extras": {"filename": content.name}} if content.name else block
