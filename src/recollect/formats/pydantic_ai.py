"""Pydantic AI's messages: ModelRequest and ModelResponse, as objects or as ModelMessagesTypeAdapter dumps them.

A response is one message. A request may hold system prompts, user prompts and tool returns at once: its system prompts
become a message with the role `system`, and the parts before and after them a message of their own. All messages after
the first one are marked as parts of the same request, and are written into it again.

Pydantic writes bytes as URL-safe base64, which other formats do not accept. It is stored as standard base64, so that
equal bytes are one blob, and written back unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachments, common
from recollect.formats.boundaries import is_separate
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    WHOLE,
    BlockPath,
    attachment_payload,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    overlay,
    remaining_fields,
    restore_block,
    sum_usage,
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
    ResultStatus,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "pydantic-ai"
RULES = ProviderRules(
    NAME,
    length_stop=((("finish_reason",),), frozenset({"length"})),
    hidden_keys=frozenset(
        {"kind", "part_kind", "tool_kind", "timestamp", "outcome", "state", "scope", "dynamic_ref", "context_id"}
        | {"usage", "model_name", "model_id", "provider_name", "provider_url", "provider_response_id"}
        | {"canonical_system", "finish_reason", "run_id", "conversation_id", "workspace_ref", "history_digest"}
        | {"failed_attempts", "metadata", "retry", "signature", "identifier", "media_type", "force_download"}
        | {"content_file_digests", "container_id", "phase", "namespace", "extra_content", "thought_signature"}
        | {"caller", "interrupted_at_ms", "timestamps", "speaker"}
    ),
)
PACKAGE = "pydantic_ai"

# Keys of a remainder. Fields of a prompt, and of a prompt whose content is a list; None if an item continues the list.
_PROMPT, _LIST = "prompt", "list"
_ITEM = "item"  # an item of a list without a common field
_CONTINUES = "continues"  # of a message: the number of parts that its request has before it
_SINGLE = "single"  # the file is the content of a tool return, not an item of a list
_URL_SAFE = "url_safe"  # the payload was URL-safe base64
_TRANSCRIPT = {"transcript": True}  # the remainder of the transcript of the recording that follows it
_STATUS: dict[str, ResultStatus] = {"success": "success", "denied": "cancelled", "interrupted": "cancelled"}
_OUTCOMES = {"error": "failed", "cancelled": "interrupted"}
_FILE_KINDS = {"image-url": attachments.IMAGE, "audio-url": "audio/*", "video-url": "video/*", "document-url": None}
_TEXT_KINDS = frozenset({"text-content", "structured-content"})
_TO_STANDARD, _TO_URL_SAFE = str.maketrans("-_", "+/"), str.maketrans("+/", "-_")
_UNKNOWN_TOOL = "tool"  # Pydantic AI requires the name of the tool, which a result without a call may lack
_MAX_REASON_LENGTH = 200  # characters of the framework's message, which contains the value
# The parts whose fields may be left out if they are null, apart from the content.
_COMPACT_PARTS = frozenset({"system-prompt", "user-prompt", "tool-return", "text", "thinking", "tool-call", "file"})


def dump(value: Any) -> Any:
    """Return a message object of Pydantic AI as JSON data, without null fields and zero counts."""
    messages = sys.modules[f"{PACKAGE}.messages"]  # the program that made the object has imported it
    try:
        message = messages.ModelMessagesTypeAdapter.dump_python([value], mode="json", warnings=False)[0]
    except Exception as error:
        raise InvalidValue(
            f"Pydantic AI cannot dump this {type(value).__name__}: {str(error)[:_MAX_REASON_LENGTH]}"
        ) from error
    if not is_list(message.get("parts")):
        raise InvalidValue(f"A message must be a ModelRequest or a ModelResponse, got {type(value).__name__}.")
    parts = [
        {name: item for name, item in part.items() if item is not None or name == "content"}
        if part.get("part_kind") in _COMPACT_PARTS
        else part
        for part in message["parts"]
    ]
    if "usage" in message:
        message["usage"] = {name: count for name, count in message["usage"].items() if count}
    return {**{name: item for name, item in message.items() if item is not None}, "parts": parts}


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message. A request with system prompts becomes several drafts."""
    kind, blocks = message.get("kind"), message.get("parts")
    if "kind" not in message and type(message.get("content")) is str:
        return common.read_common(message)
    if kind not in ("request", "response") or not is_list(blocks) or not all(map(is_dict, blocks)):
        raise InvalidValue(
            'A message of Pydantic AI must have the kind "request" or "response", and a list of parts. Write '
            '{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ...}]}.'
        )
    fields = remaining_fields(message, "kind", "parts") or {}
    if kind == "response":
        return [_read_response(blocks, fields)]
    drafts: list[Draft] = []
    count = 0
    for run in _split_request(blocks):
        native: dict[str, Any] = {_CONTINUES: count} if count else {"fields": fields} if fields else {}
        parts = tuple([part for block in run for part in _read_request_part(block)])
        drafts.append(
            Draft(
                role=_request_role(run, parts),
                parts=parts,
                format=NAME,
                native=native or None,
                created_at=_read_time(fields.get("timestamp"), *[block.get("timestamp") for block in run]),
            )
        )
        count += len(run)
    return drafts


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for Pydantic AI: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    tools: dict[str, str] = {}  # tool names by call id; a return needs one, and other formats only have it in the call
    for message in common.join_items(messages, "openai-responses"):
        for part in message.parts:
            if type(part) is ToolCallPart:
                tools[part.call_id] = part.tool
        if not put(output, message.role, message.format, message.parts, message.native):
            output += _translate(message, tools)
    return output


def put(
    output: list[dict[str, Any]],
    role: Role,
    source_format: str | None,
    parts: Sequence[Part],
    native: dict[str, Any] | None,
) -> bool:
    """Write a message of this format unchanged, or a text without a format. Return whether it was written."""
    if source_format is None:
        if role == "tool" or len(parts) != 1 or type(parts[0]) is not TextPart or parts[0].native is not None:
            return False
        output.append(_write_own(role, parts, None))
        return True
    if source_format != NAME:
        return False
    messages: list[dict[str, Any]] = []
    if not _put_verified(messages, role, parts, native):
        return False
    count = None if native is None else native.get(_CONTINUES)
    previous = output[-1] if count and output else {}
    if role != "assistant" and previous.get("kind") == "request" and len(previous["parts"]) == count:
        previous["parts"] += messages[0]["parts"]
    else:
        output += messages
    return True


def response(_message: Draft | Message) -> dict[str, Any] | None:
    """Return None: a response of Pydantic AI is itself a message of the history."""
    return None


def is_boundary(previous: Message | None, message: Message) -> bool:
    """Return whether a message and those after it are written without regard to the messages before it."""
    is_continued = message.format == NAME and message.native is not None and _CONTINUES in message.native
    return not is_continued and is_separate(previous, message)


def _split_request(blocks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the runs of system prompts and of other parts."""
    runs: list[list[dict[str, Any]]] = [[]]
    for block in blocks:
        if runs[-1] and _is_system_prompt(runs[-1][-1]) != _is_system_prompt(block):
            runs.append([])
        runs[-1].append(block)
    return runs


def _is_system_prompt(block: dict[str, Any]) -> bool:
    return block.get("part_kind") == "system-prompt" and type(block.get("content")) is str


def _request_role(run: list[dict[str, Any]], parts: Sequence[Part]) -> Role:
    if run and _is_system_prompt(run[0]):
        return "system"
    kinds = {type(part) for part in parts}
    return "tool" if ToolResultPart in kinds and kinds <= {ToolResultPart, DataPart} else "user"


def _read_response(blocks: list[dict[str, Any]], fields: dict[str, Any]) -> Draft:
    usage, model = fields.get("usage"), fields.get("model_name")
    output = sum_usage(usage, "output_tokens") or sum_usage(usage, "response_tokens") or None
    return Draft(
        role="assistant",
        parts=tuple([part for block in blocks for part in _read_response_part(block)]),
        format=NAME,
        native={"fields": fields} if fields else None,
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(usage, "input_tokens") or sum_usage(usage, "request_tokens") or None,
        output_tokens=output,
        created_at=_read_time(fields.get("timestamp")),
    )


def _read_time(*values: Any) -> int | None:
    """Return the first of these times in milliseconds, or None if there is none."""
    times = [time for value in values if (time := common.read_time(value)) is not None]
    return times[0] if times else None


def _kind(block: dict[str, Any], key: str) -> str:
    kind = block.get(key)
    return kind if type(kind) is str else ""


def _read_response_part(block: dict[str, Any]) -> list[Part]:
    kind, content = _kind(block, "part_kind"), block.get("content")
    if kind in ("text", "thinking") and type(content) is str:
        native = remaining_fields(block, "part_kind", "content")
        is_text = kind == "text"
        return [TextPart(text=content, native=native) if is_text else ReasoningPart(text=content, native=native)]
    if kind == "file":
        return [_read_binary(block, content, ("content", "data"))]
    return _read_speech(block) if kind == "speech" else [_read_call(block) if kind == "tool-call" else _data(block)]


def _read_request_part(block: dict[str, Any]) -> list[Part]:
    kind = _kind(block, "part_kind")
    if kind in ("user-prompt", "system-prompt"):
        return _read_prompt(block, kind)
    if kind == "speech":
        return _read_speech(block)
    has_ids = type(block.get("tool_name")) is str and type(block.get("tool_call_id")) is str
    if kind in ("tool-return", "retry-prompt") and has_ids:
        return [_read_result(block, kind)]
    if kind in ("retry-feedback", "retry-prompt", "compaction"):
        return [_read_feedback(block)]
    return [_data(block)]


def _data(block: dict[str, Any]) -> DataPart:
    return DataPart(native=block)


def _read_prompt(block: dict[str, Any], kind: str) -> list[Part]:
    content, fields = block.get("content"), remaining_fields(block, "part_kind", "content")
    if type(content) is str:
        return [TextPart(text=content, native={_PROMPT: fields} if fields else None)]
    if kind == "system-prompt" or not is_list(content) or not content:
        return [_data(block)]
    if not all(type(item) is str or is_dict(item) for item in content):
        return [_data(block)]
    return [_mark_item(_read_item(item), None if index else fields or {}) for index, item in enumerate(content)]


def _mark_item(part: Content, fields: dict[str, Any] | None) -> Part:
    """Return an item of a list with the fields of its prompt; None if it is not the first item."""
    native: dict[str, Any] = {_ITEM: part.native} if type(part) is DataPart else part.native or {}
    return msgspec.structs.replace(part, native={**native, _LIST: fields})


def _read_item(item: Any) -> Content:
    """Read an item of the content of a prompt or a tool return."""
    if type(item) is str:
        return TextPart(text=item)
    kind = _kind(item, "kind")
    if kind in _TEXT_KINDS:
        extraction = extract_text(item, ("content",))
        return _data(item) if extraction is None else TextPart(text=extraction[0], native=extraction[1])
    return _read_file(item, kind) if _is_file(item) else _data(item)


def _is_file(item: Any) -> bool:
    """Return whether an item of a content is a file."""
    if not is_dict(item):
        return False
    kind = _kind(item, "kind")
    return kind in ("binary", "uploaded-file") or (kind in _FILE_KINDS and type(item.get("url")) is str)


def _read_file(item: dict[str, Any], kind: str) -> AttachmentPart | DataPart:
    if kind == "binary":
        return _read_binary(item, item, ("data",))
    mime_type = item.get("media_type")
    mime_type = mime_type if type(mime_type) is str else None
    if kind == "uploaded-file":
        return attachments.read_provider_file(item, mime_type=mime_type)
    return attachments.read_attachment(item, ("url",), mime_type=mime_type or _FILE_KINDS[kind])


def _read_binary(block: dict[str, Any], content: Any, at: BlockPath) -> AttachmentPart | DataPart:
    """Read the bytes of a file, at a path in a block."""
    if not is_dict(content):
        return _data(block)
    part = attachments.read_attachment(block, at, mime_type=content.get("media_type"), holds="base64")
    data = part.data if type(part) is AttachmentPart else None
    if data is None or "+" in data or "/" in data or not ("-" in data or "_" in data):
        return part
    return msgspec.structs.replace(part, data=data.translate(_TO_STANDARD), native={**part.native, _URL_SAFE: True})


def _read_speech(block: dict[str, Any]) -> list[Part]:
    """Read spoken audio: its recording, if there is one, after its transcript."""
    transcript, audio = block.get("transcript"), block.get("audio")
    if not is_dict(audio):
        extraction = extract_text(block, ("transcript",))
        return [_data(block) if extraction is None else TextPart(text=extraction[0], native=extraction[1])]
    if type(transcript) is not str:
        return [_read_binary(block, audio, ("audio", "data"))]
    recording = _read_binary({**block, "transcript": None}, audio, ("audio", "data"))
    return [TextPart(text=transcript, native=dict(_TRANSCRIPT)), recording]


def _read_call(block: dict[str, Any]) -> Part:
    call_id, tool, arguments = block.get("tool_call_id"), block.get("tool_name"), block.get("args")
    if type(call_id) is not str or type(tool) is not str:
        return _data(block)
    common_fields = ["part_kind", "tool_call_id", "tool_name"]
    if arguments is not None:
        common_fields.append("args")
    return ToolCallPart(
        call_id=call_id,
        tool=tool,
        arguments=UNSET if arguments is None or type(arguments) is str else arguments,
        arguments_text=arguments if type(arguments) is str else None,
        native=remaining_fields(block, *common_fields),
    )


def _read_result(block: dict[str, Any], kind: str) -> ToolResultPart:
    content, outcome = block.get("content", UNSET), block.get("outcome", "success")
    common_fields = ("tool_name", "tool_call_id", "content")
    if kind == "tool-return":
        common_fields = (*common_fields, "part_kind")
    pieces = _read_pieces(content)
    return ToolResultPart(
        call_id=block["tool_call_id"],
        tool=block["tool_name"],
        status="error" if kind == "retry-prompt" else _STATUS.get(str(outcome), "error"),
        text=content if type(content) is str else None,
        data=UNSET if type(content) is str or pieces is not None else content,
        content=pieces,
        native=remaining_fields(block, *common_fields),
    )


def _read_pieces(content: Any) -> tuple[Content, ...] | None:
    """Read the content of a tool return that is a file, or a list with a file; None for any other content.

    The other items of the list are text for other formats.
    """
    if _is_readable(content):
        file = _read_item(content)
        return (msgspec.structs.replace(file, native={**file.native, _SINGLE: True}),)
    if not is_list(content) or not any(map(_is_readable, content)):
        return None
    return tuple([
        _read_item(item)
        if type(item) is str or _is_readable(item)
        else TextPart(text=common.compact_json(item), native={WHOLE: item})
        for item in content
    ])  # fmt: skip


def _is_readable(item: Any) -> bool:
    return _is_file(item) and type(_read_item(item)) is AttachmentPart


def _read_feedback(block: dict[str, Any]) -> Part:
    """Read a request to try again, or a summary. Error details are text for other formats."""
    content = block.get("content")
    if type(content) is str:
        extraction = extract_text(block, ("content",))
        if extraction is not None:
            return TextPart(text=extraction[0], native=extraction[1])
    if is_list(content) and block["part_kind"] != "compaction":
        return TextPart(text=common.compact_json(content), native={WHOLE: block})
    return _data(block)


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format unchanged."""
    if role == "assistant":
        message: dict[str, Any] = {"kind": "response", "parts": _write_parts(parts, _write_response_part)}
    else:
        prompt = "system-prompt" if role == "system" else "user-prompt"
        message = {"kind": "request", "parts": _write_request(parts, prompt)}
    return message if native is None else overlay(message, native.get("fields"))


_put_verified = common.make_verified_put(lambda role, parts, native: [_write_own(role, parts, native)], read)


def _write_parts(parts: Iterable[Part], write_part: Callable[[Any], dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return the block of each part. A transcript is written into the block of its recording, which follows it."""
    blocks: list[dict[str, Any]] = []
    transcript: str | None = None
    for part in parts:
        if type(part) is TextPart and part.native == _TRANSCRIPT:
            transcript = part.text
            continue
        block = write_part(part)
        if block is not None:
            blocks.append(block if transcript is None else {**block, "transcript": transcript})
            transcript = None
    return blocks


def _write_response_part(part: Part) -> dict[str, Any] | None:
    native = part.native
    match part:
        case TextPart() if is_extracted(native):
            return restore_block(native, part.text)
        case TextPart():
            return overlay({"part_kind": "text", "content": part.text}, native)
        case ReasoningPart():
            return overlay({"part_kind": "thinking", "content": part.text}, native)
        case ToolCallPart():
            call: dict[str, Any] = {"part_kind": "tool-call", "tool_call_id": part.call_id, "tool_name": part.tool}
            if part.arguments_text is not None:
                call["args"] = part.arguments_text
            elif part.arguments is not UNSET:
                call["args"] = part.arguments
            return overlay(call, native)
        case _:
            return _original_block(part)


def _original_block(part: Part) -> dict[str, Any] | None:
    """Return the block of a file or of unknown data; None if the part was not read from one."""
    native = part.native
    if type(part) is DataPart and is_dict(native):
        return dict(native)
    if type(part) is not AttachmentPart or not is_extracted(native):
        return None
    payload = attachment_payload(part)
    if payload is not None and native.get(_URL_SAFE) is True:
        payload = payload.translate(_TO_URL_SAFE)
    return restore_block(native, payload)


def _write_request(parts: Sequence[Part], prompt: str) -> list[dict[str, Any]]:
    """Return the parts of a request. Consecutive items of a list are the content of one prompt."""
    output: list[Part] = []
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if not is_dict(part.native) or _LIST not in part.native:
            output.append(part)
            continue
        blocks += _write_parts(output, lambda item: _write_request_part(item, prompt))
        output = []
        fields = part.native[_LIST]
        if fields is not None or not blocks or not is_list(blocks[-1].get("content")):
            blocks.append(overlay({"part_kind": "user-prompt", "content": []}, fields))
        item = _write_item(part)
        if item is not None:
            blocks[-1]["content"].append(item)
    return blocks + _write_parts(output, lambda item: _write_request_part(item, prompt))


def _write_request_part(part: Part, prompt: str) -> dict[str, Any] | None:
    match part:
        case ToolResultPart():
            return _write_result(part)
        case TextPart() if is_extracted(part.native):
            return restore_block(part.native, part.text)
        case TextPart() if is_dict(part.native) and WHOLE in part.native:
            return dict(part.native[WHOLE])
        case TextPart():
            fields = part.native.get(_PROMPT) if is_dict(part.native) else None
            return overlay({"part_kind": prompt, "content": part.text}, fields)
        case _:
            return _original_block(part)


def _write_item(part: Part) -> Any:
    """Return an item of the content of a prompt or a tool return."""
    native = part.native
    if type(part) is TextPart:
        if is_extracted(native):
            return restore_block(native, part.text)
        return native[WHOLE] if is_dict(native) and WHOLE in native else part.text
    return native[_ITEM] if type(part) is DataPart and _ITEM in native else _original_block(part)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    result: dict[str, Any] = {"tool_name": part.tool, "tool_call_id": part.call_id}
    if part.text is not None:
        result["content"] = part.text
    elif part.content is not None:
        items = [item for piece in part.content if (item := _write_item(piece)) is not None]
        first = part.content[0].native if len(part.content) == 1 else None
        result["content"] = items[0] if is_dict(first) and _SINGLE in first else items
    elif part.data is not UNSET:
        result["content"] = part.data
    overlay(result, part.native)
    result.setdefault("part_kind", "tool-return")
    if part.status != "success" and result["part_kind"] == "tool-return":
        result.setdefault("outcome", _OUTCOMES[part.status])
    return result


def _translate(message: Message, tools: dict[str, str]) -> list[dict[str, Any]]:
    """Return the messages for a message of another format, its tool results as separate requests."""
    output: list[dict[str, Any]] = []
    if message.role == "assistant":
        for step_parts, results in common.split_steps(message.parts):
            blocks = _translate_answer(step_parts, message.format)
            output += [{"kind": "response", "parts": blocks}] if blocks else []
            output += [_request(_translate_result(part, tools)) for part in results]
        return output
    output += [_request(_translate_result(part, tools)) for part in message.parts if type(part) is ToolResultPart]
    if message.role == "system":
        prompts = [
            {"part_kind": "system-prompt", "content": block["text"]} for block in common.readable_blocks(message.parts)
        ]
        return [*output, _request(*prompts)] if prompts else output
    items = _translate_items(message.parts)
    if items:
        content = items[0] if len(items) == 1 and type(items[0]) is str else items
        output.append(_request({"part_kind": "user-prompt", "content": content}))
    return output


def _request(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts)}


def _translate_answer(parts: Iterable[Part], source_format: str | None) -> list[dict[str, Any]]:
    """Return texts that are not blank, reasoning, tool calls and files as parts."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart() if common.is_not_blank(part.text):
                blocks.append({"part_kind": "text", "content": part.text})
            case ReasoningPart() if common.is_not_blank(part.text):
                blocks.append({"part_kind": "thinking", "content": part.text, **_signature(part, source_format)})
            case ToolCallPart():
                call = {"part_kind": "tool-call", "tool_name": part.tool, "tool_call_id": part.call_id}
                text = part.arguments_text
                blocks.append({**call, "args": common.arguments_object(part) if text is None else text})
            case AttachmentPart():
                file = _translate_file(attachments.content_of_attachment(part))
                if is_dict(file) and file["kind"] == "binary":
                    blocks.append({"part_kind": "file", "content": file})
            case _:
                pass
    return blocks


def _signature(part: ReasoningPart, source_format: str | None) -> dict[str, Any]:
    """Return the signature of Anthropic, which it requires of reasoning before a tool call."""
    signature = part.native.get("signature") if is_dict(part.native) and source_format == "anthropic" else None
    return {"signature": signature, "provider_name": "anthropic"} if type(signature) is str else {}


def _translate_result(part: ToolResultPart, tools: dict[str, str]) -> dict[str, Any]:
    tool = part.tool or tools.get(part.call_id) or _UNKNOWN_TOOL
    result: dict[str, Any] = {"part_kind": "tool-return", "tool_name": tool, "tool_call_id": part.call_id}
    if part.data is not UNSET and part.text is None:
        result["content"] = part.data
    else:
        items = [] if part.content is None or part.text is not None else _translate_items(part.content)
        has_file = any(is_dict(item) for item in items)
        result["content"] = items if has_file else "\n".join(items) if items else part.output
    if part.status != "success":
        result["outcome"] = _OUTCOMES[part.status]
    return result


def _translate_items(parts: Iterable[Part]) -> list[Any]:
    """Return texts that are not blank, and files, as the items of a content."""
    items: list[Any] = []
    for part in parts:
        if type(part) is TextPart and common.is_not_blank(part.text):
            items.append(part.text)
        elif type(part) is AttachmentPart:
            item = _translate_file(attachments.content_of_attachment(part))
            items += [] if item is None else [item]
    return items


def _translate_file(content: attachments.AttachmentContent) -> Any:
    """Return a file as its text, its bytes or its URL; None if only its provider has it."""
    if content.text is not None:
        return attachments.text_with_name(content) if common.is_not_blank(content.text) else None
    if content.data is not None and attachments.is_base64(content.data):
        return {"kind": "binary", "data": content.data, "media_type": content.mime_type or attachments.BYTES}
    if not attachments.is_web_url(content.url):
        return None
    family = (content.mime_type or "").partition("/")[0]
    kind = f"{family}-url" if f"{family}-url" in _FILE_KINDS else "document-url"
    mime_type = content.mime_type if content.mime_type and "*" not in content.mime_type else None
    return {"kind": kind, "url": content.url, "media_type": mime_type}
