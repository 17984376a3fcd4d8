"""The messages of AG-UI, the Agent User Interaction Protocol, as objects of its SDK or as JSON with camelCase names.

Reasoning is a message of its own in AG-UI. It is stored with the role `assistant`, as are activities, which hold
progress for people and no content of the conversation. Every message needs an id: one of another format gets its id in
the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import attachments, common
from recollect.formats.boundaries import is_separate
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
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
    set_content,
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

NAME = "ag-ui"
RULES = ProviderRules(
    NAME,
    free_reasoning=True,
    calls_field="toolCalls",
    hidden_keys=frozenset({"encryptedValue", "metadata", "mimeType", "subagentRunId", "activityType", "filename"}),
)
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "reasoning": "assistant",
    "activity": "assistant",
}
_FAMILIES = ("image", "audio", "video")


def dump(value: Any) -> Any:
    """Return a message object of AG-UI as JSON data, with the names of the protocol."""
    return value.model_dump(mode="json", by_alias=True)


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    if message.keys() == set(common.MESSAGE_FIELDS) and message["role"] in ("user", "assistant", "system"):
        draft = common.read_fast(message)
        if draft is not None:
            return [draft]
    name, role = message.get("role"), read_role(message, _ROLES, "AG-UI")
    native: dict[str, Any] = {} if name == role else {"role": name}
    rest = remaining_fields(message, "role", "content") or {}
    if name in ("reasoning", "activity"):
        return [_read_single(message, rest, native)]
    parts, shape = read_content(message, _read_block)
    call_id = message.get("toolCallId")
    if role == "tool" and type(call_id) is str:
        return [_read_result(call_id, message, rest, parts)]
    content_parts = parts
    if role == "assistant":
        calls = _read_calls(rest.get("toolCalls"))
        if calls:
            del rest["toolCalls"]
            parts += calls
    native = message_remainder(content_parts, shape, "missing", rest, **native) or {}
    return [Draft(role=role, parts=parts, format=NAME, native=native or None)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for AG-UI: those of this format unchanged, others translated."""
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
    """Write a message of this format unchanged. Return whether it was written: others need an id."""
    return source_format == NAME and _put_verified(output, role, parts, native)


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: an agent answers with events, of which the messages are the result."""
    return None


is_boundary = is_separate


def _read_single(message: dict[str, Any], rest: dict[str, Any], native: dict[str, Any]) -> Draft:
    """Read reasoning or an activity, which have one part."""
    content: Any = message.get("content")
    if rest:
        native["fields"] = rest
    if message["role"] == "reasoning" and type(content) is str:
        part: Part = ReasoningPart(text=content)
    elif message["role"] == "activity" and is_dict(content):
        part = DataPart(native=content)
    else:
        raise InvalidValue(
            f"The content of {message['role']} must be {'a string' if message['role'] == 'reasoning' else 'a dict'}, "
            f"got {type(content).__name__}."
        )
    return Draft(role="assistant", parts=(part,), format=NAME, native=native)


def _read_result(call_id: str, message: dict[str, Any], rest: dict[str, Any], parts: tuple[Any, ...]) -> Draft:
    content, error = message.get("content"), rest.get("error")
    names = ["toolCallId", "error"] if type(error) is str else ["toolCallId"]
    part = ToolResultPart(
        call_id=call_id,
        status="error" if type(error) is str else "success",
        text=content if type(content) is str else None,
        content=parts if is_list(content) else None,
        error_message=error if type(error) is str else None,
    )
    shape = "missing" if "content" not in message else "null" if content is None else "blocks"
    return Draft(
        role="tool",
        parts=(part,),
        format=NAME,
        native=message_remainder((), shape, "blocks", remaining_fields(rest, *names)),
    )


def _read_calls(calls: Any) -> tuple[ToolCallPart, ...] | None:
    """Read the tool calls; None if one is malformed, and then all stay in the remaining fields."""
    if not is_list(calls):
        return None
    parts = [part for call in calls if (part := _read_call(call)) is not None]
    return tuple(parts) if len(parts) == len(calls) else None


def _read_call(call: Any) -> ToolCallPart | None:
    function = call.get("function") if is_dict(call) else None
    if not is_dict(function) or not all(type(value) is str for value in (call.get("id"), function.get("name"))):
        return None
    if type(function.get("arguments")) is not str or call.get("type") != "function":
        return None
    native = remaining_fields(call, "id", "type", "function") or {}
    more = remaining_fields(function, "name", "arguments")
    if "function" in native:
        return None
    if more:
        native["function"] = more
    return ToolCallPart(
        call_id=call["id"], tool=function["name"], arguments_text=function["arguments"], native=native or None
    )


def _read_file(block: dict[str, Any]) -> Content:
    mime_type = value_at(block, ("source", "mimeType"))
    if type(mime_type) is not str:
        mime_type = f"{block['type']}/*" if block["type"] in _FAMILIES else None
    name = value_at(block, ("metadata", "filename"))
    match value_at(block, ("source", "type")):
        case "data":
            return attachments.read_attachment(
                block, ("source", "value"), mime_type=mime_type, name=name, holds="base64"
            )
        case "url":
            return attachments.read_attachment(block, ("source", "value"), mime_type=mime_type, name=name)
        case "file":
            return attachments.read_provider_file(block, mime_type=mime_type, name=name)
        case _:
            return DataPart(native=block)


def _read_binary(block: dict[str, Any]) -> Content:
    """Read a file of versions before 1.0."""
    mime_type, name = block.get("mimeType"), block.get("filename")
    if type(block.get("data")) is str:
        return attachments.read_attachment(block, ("data",), mime_type=mime_type, name=name, holds="base64")
    if type(block.get("url")) is str:
        return attachments.read_attachment(block, ("url",), mime_type=mime_type, name=name)
    return attachments.read_provider_file(block, mime_type=mime_type if type(mime_type) is str else None, name=name)


_read_block = reader_by_type(
    {
        "text": read_text_block,
        "image": _read_file,
        "audio": _read_file,
        "video": _read_file,
        "document": _read_file,
        "binary": _read_binary,
    }
)


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format unchanged."""
    native = native or {}
    message: dict[str, Any] = {"role": native.get("role", role)}
    first = parts[0] if parts else None
    if type(first) is ToolResultPart and role == "tool":
        _set_result(message, first, native)
    elif type(first) is ReasoningPart and message["role"] == "reasoning":
        message["content"] = first.text
    elif type(first) is DataPart and message["role"] == "activity":
        message["content"] = first.native
    else:
        calls = [_write_call(part) for part in parts if type(part) is ToolCallPart]
        content = [part for part in parts if type(part) is not ToolCallPart]
        set_content(message, content, native.get("content"), "missing", _write_block)
        if calls:
            message["toolCalls"] = calls
    return overlay(message, native.get("fields"))


_put_verified = common.make_verified_put(lambda role, parts, native: [_write_own(role, parts, native)], read)


def _set_result(message: dict[str, Any], part: ToolResultPart, native: dict[str, Any]) -> None:
    """Add the content of a tool result, its call and its error to a message."""
    message["toolCallId"] = part.call_id
    if part.text is not None:
        message["content"] = part.text
    elif part.content is not None:
        message["content"] = write_blocks(part.content, _write_block)
    elif native.get("content") == "null":
        message["content"] = None
    if part.error_message is not None:
        message["error"] = part.error_message


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    native: dict[str, Any] = part.native if is_dict(part.native) else {}
    function: dict[str, Any] = {"name": part.tool, "arguments": common.arguments_json(part)}
    call = {"id": part.call_id, "type": "function", "function": overlay(function, native.get("function"))}
    return overlay(call, native)


def _write_block(part: Part) -> dict[str, Any] | None:
    if type(part) is TextPart:
        return overlay({"type": "text", "text": part.text}, part.native)
    return original_block(part)


def _translate(message: Message) -> list[dict[str, Any]]:
    """Return the messages for a message of another format: reasoning and tool results are separate messages."""
    output: list[dict[str, Any]] = []
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            output += _translate_answer(step_parts)
            output += [_translate_result(part) for part in results]
    else:
        output += [_translate_result(part) for part in message.parts if type(part) is ToolResultPart]
        if message.role == "system":
            text = "\n\n".join(block["text"] for block in common.readable_blocks(message.parts))
            output += [{"role": "system", "content": text}] if text else []
        elif blocks := _translate_content(message.parts):
            output.append({"role": "user", "content": common.collapse_blocks(blocks)})
    for index, item in enumerate(output):
        item.setdefault("id", f"{message.id}-{index}" if index else message.id)
    return output


def _translate_answer(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the reasoning of a step, and its text with its calls."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is ReasoningPart and common.is_not_blank(part.text):
            output.append({"role": "reasoning", "content": part.text})
        elif type(part) is TextPart and common.is_not_blank(part.text):
            texts.append(part.text)
        elif type(part) is ToolCallPart:
            function = {"name": part.tool, "arguments": common.arguments_json(part)}
            calls.append({"id": part.call_id, "type": "function", "function": function})
    if texts or calls:
        answer: dict[str, Any] = {"role": "assistant"}
        output.append(answer)
        if texts:
            answer["content"] = "".join(texts)
        if calls:
            answer["toolCalls"] = calls
    return output


def _translate_result(part: ToolResultPart) -> dict[str, Any]:
    """Return a tool message. Its id is that of the call, which has one result."""
    blocks = [] if part.content is None or part.text is not None else _translate_content(part.content)
    content = common.collapse_blocks(blocks) if blocks else part.output
    result: dict[str, Any] = {
        "id": f"{part.call_id}-result",
        "role": "tool",
        "toolCallId": part.call_id,
        "content": content,
    }
    if part.status == "success":
        return result
    return {**result, "error": part.error_message or (content if type(content) is str else part.output) or part.status}


def _translate_content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and files, as parts of a content."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _translate_file(attachments.content_of_attachment(part)) if type(part) is AttachmentPart else None
        blocks += common.readable_blocks((part,)) if block is None else [block]
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a part; None if it is text, or if only its provider has it."""
    if content.text is not None or (content.data is None and not attachments.is_web_url(content.url)):
        return None
    mime_type = content.mime_type or attachments.BYTES
    if content.data is not None:
        source: dict[str, Any] = {"type": "data", "value": content.data, "mimeType": mime_type}
    else:
        source = {"type": "url", "value": content.url}
        if content.mime_type and "*" not in content.mime_type:
            source["mimeType"] = content.mime_type
    family = mime_type.partition("/")[0]
    block: dict[str, Any] = {"type": family if family in _FAMILIES else "document", "source": source}
    return {**block, "metadata": {"filename": content.name}} if content.name else block
