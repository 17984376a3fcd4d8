"""The AI SDK's model messages (ModelMessage, before that CoreMessage), in and out.

Older field names are read too: `args` and `result` for `input` and `output`, `mimeType` for `mediaType`. What a
provider ran itself is kept as it is. Messages that came in this format go out unaltered, right or wrong; UI messages
are converted by the AI SDK's own rules, everything else is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.formats import ai_sdk_conversion, ai_sdk_ui, attachment, neutral
from recollect.formats.native import (
    WHOLE,
    as_it_came,
    by_kind,
    content_of,
    is_dict,
    is_list,
    noted,
    overlay,
    read_text,
    rest,
    role_of,
    write_blocks,
)
from recollect.model.json import UNSET
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

NAME = "ai-sdk"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_TYPES = {
    ("success", "text"): "text",
    ("success", "data"): "json",
    ("success", "content"): "content",
    ("error", "text"): "error-text",
    ("error", "data"): "error-json",
}
_HELD = {name: held for held, name in _TYPES.items()}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message."""
    role = role_of(message, _ROLES, "The AI SDK")
    parts, shape = content_of(message, _read_asked if role == "assistant" else _read_part)
    native = noted(parts, shape, "blocks", rest(message, "role", "content"))
    return [Draft(role=role, parts=parts, format=NAME, native=native)]


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for the AI SDK: what came in this format as it came, the rest translated."""
    written: list[dict[str, Any]] = []
    tools: dict[str, str] = {}  # a result names its tool, which most other formats only say in the call
    answers: list[dict[str, Any]] | None = None
    own: list[dict[str, Any]] = []
    for message in neutral.joined(messages, "openai-responses"):
        for part in message.parts:
            if type(part) is ToolCallPart:
                tools[part.call_id] = part.tool
        if put(written, message.role, message.format, message.parts, message.native):
            answers = None
        elif message.format == ai_sdk_ui.NAME and not ai_sdk_ui.is_older(message) and ai_sdk_ui.put_own(own, message):
            written += ai_sdk_conversion.model_messages(own.pop())
            answers = None
        else:
            answers = _translate(message, written, answers, tools)
    return written


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Give None: a response of the AI SDK has no form of its own outside a program."""
    return None


def _read_asked(part: dict[str, Any]) -> Part:
    """Read a part of an assistant's message, where a result is one that the provider made."""
    return DataPart(native=part) if part.get("type") == "tool-result" else _read_part(part)


def _read_reasoning(part: dict[str, Any]) -> Part:
    text = part.get("text")
    return ReasoningPart(text=text, native=rest(part, "type", "text")) if type(text) is str else DataPart(native=part)


def _read_image(part: dict[str, Any]) -> Content:
    mime_type = _mime_type(part) or attachment.IMAGE
    return attachment.read(part, ("image",), mime_type=mime_type, holds="either")


def _read_file(part: dict[str, Any]) -> Content:
    return attachment.read(part, ("data",), mime_type=_mime_type(part), name=part.get("filename"), holds="either")


def _read_data(part: dict[str, Any]) -> Content:
    return attachment.read(part, ("data",), mime_type=_mime_type(part), name=part.get("filename"), holds="base64")


def _read_link(part: dict[str, Any]) -> Content:
    return attachment.read(part, ("url",), mime_type=_mime_type(part))


def _read_image_link(part: dict[str, Any]) -> Content:
    return attachment.read(part, ("url",), mime_type=attachment.IMAGE)


def _mime_type(part: dict[str, Any]) -> Any:
    return part.get("mediaType", part.get("mimeType"))


def _read_call(part: dict[str, Any]) -> Part:
    call_id, tool = part.get("toolCallId"), part.get("toolName")
    if type(call_id) is not str or type(tool) is not str or part.get("providerExecuted") is True:
        return DataPart(native=part)
    if "input" not in part and "args" in part:
        return ToolCallPart(call_id=call_id, tool=tool, arguments=part["args"], native={WHOLE: part})
    native = rest(part, "type", "toolCallId", "toolName", "input")
    if native is not None and WHOLE in native:
        native = {WHOLE: part}
    return ToolCallPart(call_id=call_id, tool=tool, arguments=part.get("input", UNSET), native=native)


def _read_result(part: dict[str, Any]) -> Part:
    call_id, tool, output = part.get("toolCallId"), part.get("toolName"), part.get("output")
    if type(call_id) is not str or type(tool) is not str:
        return DataPart(native=part)
    native = rest(part, "type", "toolCallId", "toolName", "output") or {}
    if not is_dict(output) or WHOLE in native:
        return _read_older_result(part, call_id, tool)
    status, held = _HELD.get(str(output.get("type")), ("", ""))
    value = output.get("value", UNSET)
    if held == "content" and is_list(value) and all(is_dict(piece) for piece in value):
        told: dict[str, Any] = {"content": tuple([_read_piece(piece) for piece in value])}
    elif (held == "text" and type(value) is str) or (held == "data" and value is not UNSET):
        told = {held: value}
    else:
        denied = output.get("type") == "execution-denied"
        reason = output.get("reason")
        native["output"] = output
        return ToolResultPart(
            call_id=call_id,
            tool=tool,
            status="canceled" if denied else "success",
            error_message=reason if type(reason) is str else "The tool was not run." if denied else None,
            native=native,
        )
    more = rest(output, "type", "value")
    if more:
        native["output"] = more
    status = "error" if status == "error" else "success"
    return ToolResultPart(call_id=call_id, tool=tool, status=status, native=native or None, **told)


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


_PIECES: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": read_text,
    "media": _read_data,
    "file-data": _read_data,
    "image-data": _read_data,
    "file-url": _read_link,
    "image-url": _read_image_link,
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": read_text,
    "reasoning": _read_reasoning,
    "image": _read_image,
    "file": _read_file,
    "tool-call": _read_call,
    "tool-result": _read_result,
}


_read_piece = by_kind(_PIECES)
_read_part = by_kind(_READERS)


def _block(part: Part) -> dict[str, Any] | None:
    """Give the part that a part of ours came in; None for one that never was one."""
    native = part.native
    if type(part) is ToolResultPart:  # most of what agents write
        return _result_block(part)
    if type(part) is ToolCallPart:
        return _call_block(part)
    match part:
        case TextPart():
            return overlay({"type": "text", "text": part.text}, native)
        case ReasoningPart():
            return overlay({"type": "reasoning", "text": part.text}, native)
        case _:
            return as_it_came(part)


put = neutral.putter(NAME, neutral.own_putter(_block, read, tool="tool"), neutral.put_nothing)


def _call_block(part: ToolCallPart) -> dict[str, Any]:
    native = part.native
    if native is not None and is_dict(native) and WHOLE in native:
        return dict(native[WHOLE])
    call = {"type": "tool-call", "toolCallId": part.call_id, "toolName": part.tool}
    if part.arguments is not UNSET:
        call["input"] = part.arguments
    return call if native is None else overlay(call, native)


def _result_block(part: ToolResultPart) -> dict[str, Any]:
    if part.native is None and part.text is not None:  # nearly always
        kind = "text" if part.status == "success" else _TYPES[part.status, "text"]
        output: dict[str, Any] = {"type": kind, "value": part.text}
        return {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.tool, "output": output}
    native = part.native if is_dict(part.native) else {}
    if WHOLE in native:
        return dict(native[WHOLE])
    result: dict[str, Any] = {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.tool}
    output = {}
    if part.text is not None:
        output = {"type": _TYPES[part.status, "text"], "value": part.text}
    elif part.data is not UNSET:
        output = {"type": _TYPES[part.status, "data"], "value": part.data}
    elif part.content is not None:
        output = {"type": "content", "value": write_blocks(part.content, _block)}
    overlay(result, native)
    result["output"] = overlay(output, native.get("output"))
    return result


def _translate(
    message: Message, written: list[dict[str, Any]], answers: list[dict[str, Any]] | None, tools: dict[str, str]
) -> list[dict[str, Any]] | None:
    """Write a message of another format; give the content that takes the results of the next tool message."""
    if message.role == "assistant":
        for told, results in neutral.steps(message.parts):
            blocks = _content(told)
            if blocks:
                written.append({"role": "assistant", "content": neutral.content(blocks)})
                answers = None
            if results:
                answers = _answered(results, written, answers, tools)
        return answers
    results = [part for part in message.parts if type(part) is ToolResultPart]
    if results:
        answers = _answered(results, written, answers, tools)
    blocks = _content([part for part in message.parts if type(part) in (TextPart, AttachmentPart)])
    if not blocks:
        return answers
    if message.role == "system":
        said = "\n\n".join(block["text"] for block in neutral.words(message.parts))
        if said:
            written.append({"role": "system", "content": said})
    else:
        written.append({"role": "user", "content": neutral.content(blocks)})
    return None


def _answered(
    results: Sequence[ToolResultPart],
    written: list[dict[str, Any]],
    answers: list[dict[str, Any]] | None,
    tools: dict[str, str],
) -> list[dict[str, Any]]:
    if answers is None:
        answers = []
        written.append({"role": "tool", "content": answers})
    for part in results:
        tool = part.tool or tools.get(part.call_id, "")
        call = {"type": "tool-result", "toolCallId": part.call_id, "toolName": tool}
        answers.append({**call, "output": _output(part)})
    return answers


def _output(part: ToolResultPart) -> dict[str, Any]:
    failed = part.status != "success"
    if part.data is not UNSET and part.text is None:
        return {"type": "error-json" if failed else "json", "value": part.data}
    content = [] if part.content is None else _pieces(part.content)
    if content and not failed:
        return {"type": "content", "value": content}
    answer = neutral.answer(part)
    said = answer if type(answer) is str else "\n".join(block["text"] for block in neutral.words(part.content or ()))
    return {"type": "error-text" if failed else "text", "value": said}


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write what has a place in a message: texts that are not blank, reasoning, tool calls and files."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart():
                blocks += neutral.said((part,))
            case ReasoningPart() if neutral.is_said(part.text):
                blocks.append({"type": "reasoning", "text": part.text})
            case ToolCallPart():
                call = {"type": "tool-call", "toolCallId": part.call_id, "toolName": part.tool}
                blocks.append({**call, "input": neutral.input(part)})
            case AttachmentPart():
                block = _file_block(attachment.file(part))
                if block is not None:
                    blocks.append(block)
            case _:
                pass
    return blocks


def _file_block(found: attachment.File) -> dict[str, Any] | None:
    data = found.data
    if data is None and found.text is not None:
        data = attachment.encoded(found.text)
    if data is None:
        data = found.url if attachment.is_web(found.url) else None
    if data is None:
        return None
    block = {"type": "file", "mediaType": found.mime_type or attachment.BYTES, "data": data}
    return {**block, "filename": found.name} if found.name else block


def _pieces(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write the pieces of a tool's answer."""
    pieces: list[dict[str, Any]] = []
    for part in parts:
        found = attachment.file(part) if type(part) is AttachmentPart else None
        if found is None or found.text is not None:
            pieces += neutral.words((part,))
        elif found.data is not None:
            kind = "image-data" if found.is_image else "file-data"
            pieces.append({"type": kind, "data": found.data, "mediaType": found.mime_type or attachment.BYTES})
        elif attachment.is_web(found.url):
            pieces.append({"type": "image-url" if found.is_image else "file-url", "url": found.url})
    return pieces
