"""The AI SDK's model messages (ModelMessage, formerly CoreMessage).

Older field names are read too: `args` and `result` for `input` and `output`, `mimeType` for `mediaType`. Calls that
a provider ran itself are stored whole. Messages that were read in this format are written back unaltered, valid or
not; UI messages are converted by the AI SDK's own rules, all others are translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.formats import ai_sdk_ui, attachments, boundaries, common
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    WHOLE,
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
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "ai-sdk"
RULES = ProviderRules(
    NAME,
    marked_steps=ai_sdk_ui.NAME,
    hidden_keys=frozenset({"providerOptions", "providerMetadata", "mediaType", "mimeType"}),
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_OUTPUT_TYPES = {
    ("success", "text"): "text",
    ("success", "data"): "json",
    ("success", "content"): "content",
    ("error", "text"): "error-text",
    ("error", "data"): "error-json",
}
_OUTPUT_FIELDS = {name: key for key, name in _OUTPUT_TYPES.items()}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    role = read_role(message, _ROLES, "The AI SDK")
    parts, shape = read_content(message, _read_assistant_part if role == "assistant" else _read_part)
    native = message_remainder(parts, shape, "blocks", remaining_fields(message, "role", "content"))
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for the AI SDK: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    tools: dict[
        str, str
    ] = {}  # tool names by call id; a result needs one, and most other formats only have it in the call
    answers: list[dict[str, Any]] | None = None
    ui_messages: list[dict[str, Any]] = []
    for message in common.join_items(messages, "openai-responses"):
        for part in message.parts:
            if type(part) is ToolCallPart:
                tools[part.call_id] = part.tool
        if put(output, message.role, message.format, message.parts, message.native):
            answers = None
        elif (
            message.format == ai_sdk_ui.NAME
            and not ai_sdk_ui.has_no_parts(message)
            and ai_sdk_ui.put_own(ui_messages, message)
        ):
            output += ai_sdk_ui.to_model_messages(ui_messages.pop())
            answers = None
        else:
            answers = _translate(message, output, answers, tools)
    return output


is_boundary = boundaries.make_boundary_test(write)


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: the AI SDK has no serialized form of a response."""
    return None


def _read_assistant_part(part: dict[str, Any]) -> Part:
    """Read a part of an assistant message, in which a result comes from the provider."""
    return DataPart(native=part) if part.get("type") == "tool-result" else _read_part(part)


def _read_reasoning(part: dict[str, Any]) -> Part:
    text = part.get("text")
    return (
        ReasoningPart(text=text, native=remaining_fields(part, "type", "text"))
        if type(text) is str
        else DataPart(native=part)
    )


def _read_image(part: dict[str, Any]) -> Content:
    mime_type = _mime_type(part) or attachments.IMAGE
    return attachments.read_attachment(part, ("image",), mime_type=mime_type, holds="either")


def _read_file(part: dict[str, Any]) -> Content:
    return attachments.read_attachment(
        part, ("data",), mime_type=_mime_type(part), name=part.get("filename"), holds="either"
    )


def _read_data(part: dict[str, Any]) -> Content:
    return attachments.read_attachment(
        part, ("data",), mime_type=_mime_type(part), name=part.get("filename"), holds="base64"
    )


def _read_link(part: dict[str, Any]) -> Content:
    return attachments.read_attachment(part, ("url",), mime_type=_mime_type(part))


def _read_image_link(part: dict[str, Any]) -> Content:
    return attachments.read_attachment(part, ("url",), mime_type=attachments.IMAGE)


def _mime_type(part: dict[str, Any]) -> Any:
    return part.get("mediaType", part.get("mimeType"))


def _read_call(part: dict[str, Any]) -> Part:
    call_id, tool = part.get("toolCallId"), part.get("toolName")
    if type(call_id) is not str or type(tool) is not str or part.get("providerExecuted") is True:
        return DataPart(native=part)
    if "input" not in part and "args" in part:
        return ToolCallPart(call_id=call_id, tool=tool, arguments=part["args"], native={WHOLE: part})
    native = remaining_fields(part, "type", "toolCallId", "toolName", "input")
    if native is not None and WHOLE in native:
        native = {WHOLE: part}
    return ToolCallPart(call_id=call_id, tool=tool, arguments=part.get("input", UNSET), native=native)


def _read_result(part: dict[str, Any]) -> Part:
    call_id, tool, output = part.get("toolCallId"), part.get("toolName"), part.get("output")
    if type(call_id) is not str or type(tool) is not str:
        return DataPart(native=part)
    native = remaining_fields(part, "type", "toolCallId", "toolName", "output") or {}
    if not is_dict(output) or WHOLE in native:
        return _read_older_result(part, call_id, tool)
    status, field = _OUTPUT_FIELDS.get(str(output.get("type")), ("", ""))
    value = output.get("value", UNSET)
    if field == "content" and is_list(value) and all(is_dict(piece) for piece in value):
        fields: dict[str, Any] = {"content": tuple([_read_piece(piece) for piece in value])}
    elif (field == "text" and type(value) is str) or (field == "data" and value is not UNSET):
        fields = {field: value}
    else:
        denied = output.get("type") == "execution-denied"
        reason = output.get("reason")
        native["output"] = output
        return ToolResultPart(
            call_id=call_id,
            tool=tool,
            status="cancelled" if denied else "success",
            error_message=reason if type(reason) is str else "The tool was not run." if denied else None,
            native=native,
        )
    more = remaining_fields(output, "type", "value")
    if more:
        native["output"] = more
    status = "error" if status == "error" else "success"
    return ToolResultPart(call_id=call_id, tool=tool, status=status, native=native or None, **fields)


def _read_older_result(part: dict[str, Any], call_id: str, tool: str) -> Part:
    result = part.get("result", UNSET)
    return ToolResultPart(
        call_id=call_id,
        tool=tool,
        status="error" if part.get("isError") is True else "success",
        text=result if type(result) is str else None,
        data=UNSET if type(result) is str else result,
        native={WHOLE: part},
    )


_PIECE_READERS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": read_text_block,
    "media": _read_data,
    "file-data": _read_data,
    "image-data": _read_data,
    "file-url": _read_link,
    "image-url": _read_image_link,
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": read_text_block,
    "reasoning": _read_reasoning,
    "image": _read_image,
    "file": _read_file,
    "tool-call": _read_call,
    "tool-result": _read_result,
}


_read_piece = reader_by_type(_PIECE_READERS)
_read_part = reader_by_type(_READERS)


def _write_block(part: Part) -> dict[str, Any] | None:
    """Return the original part of the AI SDK; None if the part was not read from one."""
    native = part.native
    if type(part) is ToolResultPart:  # the most common parts of agents
        return _write_result(part)
    if type(part) is ToolCallPart:
        return _write_call(part)
    match part:
        case TextPart():
            return overlay({"type": "text", "text": part.text}, native)
        case ReasoningPart():
            return overlay({"type": "reasoning", "text": part.text}, native)
        case _:
            return original_block(part)


put = common.make_put(NAME, common.make_own_put(_write_block, read, tool="tool"), common.put_nothing)


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    native = part.native
    if native is not None and is_dict(native) and WHOLE in native:
        return dict(native[WHOLE])
    call = {"type": "tool-call", "toolCallId": part.call_id, "toolName": part.tool}
    if part.arguments is not UNSET:
        call["input"] = part.arguments
    return call if native is None else overlay(call, native)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    if part.native is None and part.text is not None:  # the usual case
        kind = "text" if part.status == "success" else _OUTPUT_TYPES[part.status, "text"]
        output: dict[str, Any] = {"type": kind, "value": part.text}
        return {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.tool, "output": output}
    native = part.native if is_dict(part.native) else {}
    if WHOLE in native:
        return dict(native[WHOLE])
    result: dict[str, Any] = {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.tool}
    output = {}
    if part.text is not None:
        output = {"type": _OUTPUT_TYPES[part.status, "text"], "value": part.text}
    elif part.data is not UNSET:
        output = {"type": _OUTPUT_TYPES[part.status, "data"], "value": part.data}
    elif part.content is not None:
        output = {"type": "content", "value": write_blocks(part.content, _write_block)}
    result = overlay(result, native)
    result["output"] = overlay(output, native.get("output"))
    return result


def _translate(
    message: Message, output: list[dict[str, Any]], answers: list[dict[str, Any]] | None, tools: dict[str, str]
) -> list[dict[str, Any]] | None:
    """Write a message of another format. Return the content list for the results of the next tool message."""
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            blocks = _translate_content(step_parts)
            if blocks:
                output.append({"role": "assistant", "content": common.collapse_blocks(blocks)})
                answers = None
            if results:
                answers = _add_results(results, output, answers, tools)
        return answers
    results = [part for part in message.parts if type(part) is ToolResultPart]
    if results:
        answers = _add_results(results, output, answers, tools)
    blocks = _translate_content([part for part in message.parts if type(part) in (TextPart, AttachmentPart)])
    if not blocks:
        return answers
    if message.role == "system":
        text = "\n\n".join(block["text"] for block in common.readable_blocks(message.parts))
        if text:
            output.append({"role": "system", "content": text})
    else:
        output.append({"role": "user", "content": common.collapse_blocks(blocks)})
    return None


def _add_results(
    results: Sequence[ToolResultPart],
    output: list[dict[str, Any]],
    answers: list[dict[str, Any]] | None,
    tools: dict[str, str],
) -> list[dict[str, Any]]:
    if answers is None:
        answers = []
        output.append({"role": "tool", "content": answers})
    for part in results:
        tool = part.tool or tools.get(part.call_id, "")
        call = {"type": "tool-result", "toolCallId": part.call_id, "toolName": tool}
        answers.append({**call, "output": _translate_output(part)})
    return answers


def _translate_output(part: ToolResultPart) -> dict[str, Any]:
    failed = part.status != "success"
    if part.data is not UNSET and part.text is None:
        return {"type": "error-json" if failed else "json", "value": part.data}
    content = [] if part.content is None else _translate_pieces(part.content)
    if content and not failed:
        return {"type": "content", "value": content}
    answer = common.result_content(part)
    text = (
        answer
        if type(answer) is str
        else "\n".join(block["text"] for block in common.readable_blocks(part.content or ()))
    )
    return {"type": "error-text" if failed else "text", "value": text}


def _translate_content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, reasoning, tool calls and files as parts."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart():
                blocks += common.text_blocks((part,))
            case ReasoningPart() if common.is_not_blank(part.text):
                blocks.append({"type": "reasoning", "text": part.text})
            case ToolCallPart():
                call = {"type": "tool-call", "toolCallId": part.call_id, "toolName": part.tool}
                blocks.append({**call, "input": common.arguments_object(part)})
            case AttachmentPart():
                block = _translate_file(attachments.content_of_attachment(part))
                if block is not None:
                    blocks.append(block)
            case _:
                pass
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    data = content.data
    if data is None and content.text is not None:
        data = attachments.encode_base64(content.text)
    if data is None:
        data = content.url if attachments.is_web_url(content.url) else None
    if data is None:
        return None
    block = {"type": "file", "mediaType": content.mime_type or attachments.BYTES, "data": data}
    return {**block, "filename": content.name} if content.name else block


def _translate_pieces(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the content of a tool result as pieces."""
    pieces: list[dict[str, Any]] = []
    for part in parts:
        content = attachments.content_of_attachment(part) if type(part) is AttachmentPart else None
        if content is None or content.text is not None:
            pieces += common.readable_blocks((part,))
        elif content.data is not None:
            kind = "image-data" if content.is_image else "file-data"
            pieces.append({"type": kind, "data": content.data, "mediaType": content.mime_type or attachments.BYTES})
        elif attachments.is_web_url(content.url):
            pieces.append({"type": "image-url" if content.is_image else "file-url", "url": content.url})
    return pieces
