"""Google's Gemini format: contents with parts, as google-genai, Vertex AI and the Agent Development Kit use them.

A part is an object with one field for its kind, such as `text` or `functionCall`. Field names are read in camelCase and
in snake_case, and written back in the same spelling. A call without an id gets the name of its tool as its id, made
unique within its message. Contents that were read in this format are written back unaltered, valid or not: repairs
belong to recollect.history.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.alternation import BlockWriters, write_alternating
from recollect.formats.byte_values import BYTES, from_tagged_json, to_tagged_json
from recollect.formats.detection import GEMINI_PARTS, GEMINI_RESPONSE_FIELDS
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BLOCK,
    is_dict,
    is_list,
    original_block,
    overlay,
    read_role,
    remaining_fields,
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
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "gemini"
RULES = ProviderRules(
    NAME,
    alternates=True,
    user_first=True,
    no_blanks=True,
    system_apart=True,
    unique="message",
    call_id=re.compile(r".+", re.DOTALL),  # an empty id is none
    bare_fields=frozenset(
        {"thought", "videoMetadata", "video_metadata", "mediaResolution", "media_resolution"}
        | {"partMetadata", "part_metadata", "mediaProcessing", "media_processing", "speechMetadata", "speech_metadata"}
    ),
    length_stop=((("candidates", 0, "finishReason"), ("candidates", 0, "finish_reason")), frozenset({"MAX_TOKENS"})),
    hidden_keys=frozenset(
        {"thought", "thoughtSignature", "thought_signature", "mimeType", "mime_type", "displayName", "display_name"}
        | {"willContinue", "will_continue", "role", "result"}
    ),
)
_ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "system": "system",  # the API has a parameter for it; some programs keep it with the contents
    "function": "user",  # earlier names for contents with results
    "tool": "user",
}
_ROLE_NAMES: dict[Role, str] = {"user": "user", "tool": "user", "assistant": "model", "system": "system"}
_MISSING = "missing"
_NO_ID = "no_id"
_URL_SAFE = "url_safe"
_SIGNATURES = frozenset({"thoughtSignature", "thought_signature"})
_TEXT_FIELDS = (
    "output",
    "error",
    "result",
)  # of a response with one text; the SDK's own function calling uses the last
_FILES_OF_GOOGLE = ("https://generativelanguage.googleapis.com/", "gs://", "files/")
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_PDF = "application/pdf"

# Google refuses the first call of an answer without a signature. For the calls of others, it documents this value.
_FOREIGN_SIGNATURE = "skip_thought_signature_validator"

to_json = to_tagged_json


def read(message: dict[str, Any]) -> list[Draft]:
    """Read a content, or a complete response."""
    if "role" not in message and not GEMINI_RESPONSE_FIELDS.isdisjoint(message):
        return [_read_response(message)]
    if "parts" not in message and "content" in message:
        draft = common.read_fast(message)  # equal in every format
        if draft is None:
            raise InvalidValue('A content of Gemini has parts. Write {"role": "user", "parts": [{"text": ...}]}.')
        return [draft]
    return [_read_content(message)]


def _read_content(message: dict[str, Any], default_role: Role = "user") -> Draft:
    blocks = message.get("parts")
    if not is_list(blocks) and blocks is not None:
        raise InvalidValue('The parts of a content must be a list. Write [{"text": ...}].')
    parts = _with_call_ids([_read_part(block) for block in _check_blocks(blocks or [])])
    name = message.get("role")
    if name is not None:
        role = read_role(message, _ROLES, "Gemini")
    elif any(type(part) is ToolCallPart for part in parts):
        role = "assistant"
    else:
        role = default_role
    if role == "user" and parts and all(type(part) is ToolResultPart for part in parts):
        role = "tool"
    native: dict[str, Any] = {}
    if name != _ROLE_NAMES[role]:
        native["role"] = name if "role" in message else _MISSING
    if not is_list(blocks):
        native["content"] = "null" if "parts" in message else _MISSING
    fields = remaining_fields(message, "role", "parts")
    if fields:
        native["fields"] = fields
    return Draft(role=role, parts=parts, format=NAME, native=native or None)


def _check_blocks(blocks: list[Any]) -> list[dict[str, Any]]:
    for index, block in enumerate(blocks):
        if not is_dict(block):
            raise InvalidValue(
                f'parts[{index}] must be a dict, got {type(block).__name__}. Write text as {{"text": ...}}.'
            )
    return blocks


def _with_call_ids(parts: list[Part]) -> tuple[Part, ...]:
    """Return the parts with an id for each call and result that has none: the name of its tool, and its number."""
    counts: dict[tuple[type, str | None], int] = {}
    for index, part in enumerate(parts):
        if (type(part) is ToolCallPart or type(part) is ToolResultPart) and not part.call_id:
            number = counts[type(part), part.tool] = counts.get((type(part), part.tool), 0) + 1
            call_id = part.tool if number == 1 else f"{part.tool}_{number}"
            parts[index] = msgspec.structs.replace(part, call_id=call_id or "call")
    return tuple(parts)


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write contents: those of this format unchanged, others translated."""
    return write_alternating(messages, NAME, put, _BLOCKS)


is_boundary = boundaries.make_boundary_test(write)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a content."""
    fields = stored_response(message.native or {})
    if fields is None:
        return None
    candidates: Any = fields.get("candidates")
    if is_list(candidates) and candidates and is_dict(candidates[0]) and is_dict(candidates[0].get("content")):
        content = _write_content(message.role, message.parts, message.native)
        fields = {**fields, "candidates": [{**candidates[0], "content": content}, *candidates[1:]]}
    return from_tagged_json(fields)


def _read_response(message: dict[str, Any]) -> Draft:
    candidates = message.get("candidates")
    draft, fields = Draft(role="assistant", format=NAME), message
    content = candidates[0].get("content") if is_list(candidates) and candidates and is_dict(candidates[0]) else None
    if is_list(candidates) and is_dict(content):
        draft = _read_content(content, "assistant")
        fields = {**message, "candidates": [{**candidates[0], "content": {}}, *candidates[1:]]}
    usage = _field(message, "usageMetadata", "usage_metadata")
    model = _field(message, "modelVersion", "model_version")
    output = sum_usage(
        usage, "candidatesTokenCount", "candidates_token_count", "thoughtsTokenCount", "thoughts_token_count"
    )
    return draft.replace(
        native={**(draft.native or {}), "response": fields},
        model=model if type(model) is str else None,
        tokens=output,
        input_tokens=sum_usage(
            usage, "promptTokenCount", "prompt_token_count", "toolUsePromptTokenCount", "tool_use_prompt_token_count"
        ),
        output_tokens=output,
    )


def _field(block: dict[str, Any], *names: str) -> Any:
    """Return a field in either spelling."""
    return next((block[name] for name in names if block.get(name) is not None), None)


def _read_part(block: dict[str, Any]) -> Part:
    """Read a part with one kind; any other part, such as code that Google executed, is stored whole."""
    kinds = [name for name in block if name in GEMINI_PARTS and block[name] is not None]
    reader = _READERS.get(kinds[0]) if len(kinds) == 1 else None
    return DataPart(native=block) if reader is None else reader(block, kinds[0])


def _read_text(block: dict[str, Any], _key: str) -> Part:
    text = block["text"]
    if type(text) is not str:
        return DataPart(native=block)
    if not common.is_not_blank(text) and not _SIGNATURES.isdisjoint(block):
        return DataPart(native=block)  # carries a signature, and no text that repair may omit
    if block.get("thought") is True:
        return ReasoningPart(text=text, native=remaining_fields(block, "text", "thought"))
    return TextPart(text=text, native=remaining_fields(block, "text"))


def _read_inline_data(block: dict[str, Any], key: str) -> Content:
    blob = block[key]
    data = blob.get("data") if is_dict(blob) else None
    at: tuple[str, ...] = (key, "data")
    if is_dict(data) and type(data.get(BYTES)) is str and len(data) == 1:
        at = (*at, BYTES)
    elif type(data) is not str:
        return DataPart(native=block)
    mime_type, name = _field(blob, "mimeType", "mime_type"), _field(blob, "displayName", "display_name")
    part = attachments.read_attachment(block, at, mime_type=mime_type, name=name, holds="base64")
    if type(part) is AttachmentPart and type(data) is str and ("-" in data or "_" in data):
        # The SDK's own JSON is URL-safe base64; the payload is stored in the usual alphabet, which other formats read.
        plain = data.replace("-", "+").replace("_", "/")
        if plain.replace("+", "-").replace("/", "_") == data:
            return msgspec.structs.replace(part, data=plain, native={**part.native, _URL_SAFE: True})
    return part


def _read_file_data(block: dict[str, Any], key: str) -> Content:
    file = block[key]
    uri = _field(file, "fileUri", "file_uri") if is_dict(file) else None
    if type(uri) is not str:
        return DataPart(native=block)
    mime_type, name = _field(file, "mimeType", "mime_type"), _field(file, "displayName", "display_name")
    if uri.startswith(_FILES_OF_GOOGLE):
        mime_type = mime_type if type(mime_type) is str else None
        return attachments.read_provider_file(block, mime_type=mime_type, name=name)
    field = "fileUri" if file.get("fileUri") is not None else "file_uri"
    return attachments.read_attachment(block, (key, field), mime_type=mime_type, name=name)


def _read_call(block: dict[str, Any], key: str) -> Part:
    call = block[key]
    if not is_dict(call) or type(call.get("name")) is not str:
        return DataPart(native=block)
    call_id = _call_id(call)
    native = _template(block, key, remaining_fields(call, "name", "args", *(("id",) if call_id else ())))
    if not call_id:
        native = {**(native or {BLOCK: {key: {}}}), _NO_ID: True}
    return ToolCallPart(call_id=call_id, tool=call["name"], arguments=call.get("args", UNSET), native=native)


def _call_id(call: dict[str, Any]) -> str:
    call_id = call.get("id")
    return call_id if type(call_id) is str else ""


def _template(block: dict[str, Any], key: str, fields: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the remainder of a call or a result; None if it has only common fields, under the usual names."""
    if fields is None and len(block) == 1 and key in ("functionCall", "functionResponse"):
        return None
    return {BLOCK: {**block, key: fields or {}}}


def _read_result(block: dict[str, Any], key: str) -> Part:
    result = block[key]
    if not is_dict(result) or type(result.get("name")) is not str:
        return DataPart(native=block)
    call_id, answer, pieces = _call_id(result), result.get("response", UNSET), result.get("parts")
    common_fields = ["name", "response", *(["id"] if call_id else [])]
    text_field = next(iter(answer)) if is_dict(answer) and len(answer) == 1 else None
    status = "error" if text_field == "error" else "success"
    text: str | None = None
    if text_field in _TEXT_FIELDS and type(answer[text_field]) is str:
        text = answer[text_field]
    content: tuple[Content, ...] | None = None
    if is_list(pieces) and pieces and all(is_dict(piece) for piece in pieces):
        content = (*_response_pieces(answer, text, text_field), *map(_read_piece, pieces))
        common_fields.append("parts")
    native = _template(block, key, remaining_fields(result, *common_fields))
    if not call_id:
        native = {**(native or {BLOCK: {key: {}}}), _NO_ID: True}
    if text is not None and content is None and text_field == "result":
        native = {**(native or {BLOCK: {key: {}}}), "text": text_field}
    return ToolResultPart(
        call_id=call_id,
        tool=result["name"],
        status=status,
        text=text if content is None else None,
        data=answer if text is None and content is None else UNSET,
        content=content,
        native=native,
    )


def _response_pieces(answer: Any, text: str | None, text_field: str | None) -> list[Content]:
    """Return the response of a result with files as a piece of its content."""
    if text is not None:
        return [TextPart(text=text, native={"response": text_field})]
    return [] if answer is UNSET else [DataPart(native={"response": answer})]


def _read_piece(block: dict[str, Any]) -> Content:
    kinds = [name for name in block if name in _FILE_READERS and block[name] is not None]
    return _FILE_READERS[kinds[0]](block, kinds[0]) if len(kinds) == 1 else DataPart(native=block)


_FILE_READERS: dict[str, Callable[[dict[str, Any], str], Content]] = {
    "inlineData": _read_inline_data,
    "inline_data": _read_inline_data,
    "fileData": _read_file_data,
    "file_data": _read_file_data,
}
_READERS: dict[str, Callable[[dict[str, Any], str], Part]] = {
    **_FILE_READERS,
    "text": _read_text,
    "functionCall": _read_call,
    "function_call": _read_call,
    "functionResponse": _read_result,
    "function_response": _read_result,
}


def _write_content(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a content of this format, with tagged bytes."""
    native = native or {}
    name = native.get("role", _ROLE_NAMES[role])
    message: dict[str, Any] = {} if name == _MISSING else {"role": name}
    shape = None if parts else native.get("content")
    if shape == "null":
        message["parts"] = None
    elif shape != _MISSING:
        message["parts"] = write_blocks(parts, _write_part)
    return overlay(message, native.get("fields"))


def _write_part(part: Part) -> dict[str, Any] | None:
    """Return the original part of the API; None if the part was not read from one."""
    native = part.native
    match part:
        case TextPart():
            return overlay({"text": part.text}, native)
        case ReasoningPart():
            return overlay({"text": part.text, "thought": True}, native)
        case ToolCallPart():
            call = {"name": part.tool}
            if part.arguments is not UNSET:
                call["args"] = part.arguments
            return _fill_template(part.call_id, call, native, "functionCall")
        case ToolResultPart():
            return _write_result(part)
        case AttachmentPart() if is_dict(native) and native.get(_URL_SAFE) is True and part.data is not None:
            data = part.data.replace("+", "-").replace("/", "_")
            return original_block(msgspec.structs.replace(part, data=data))
        case _:
            return original_block(part)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    native = part.native or {}
    result: dict[str, Any] = {"name": part.tool}
    if part.text is not None:
        result["response"] = {native.get("text", "error" if part.status == "error" else "output"): part.text}
    elif part.data is not UNSET:
        result["response"] = part.data
    elif part.content is not None:
        pieces = part.content
        first = pieces[0] if pieces else None
        if first is not None and is_dict(first.native) and "response" in first.native:
            answer = first.native["response"]
            result["response"] = {answer: first.text} if type(first) is TextPart else answer
            pieces = pieces[1:]
        result["parts"] = write_blocks(pieces, _write_part)
    return _fill_template(part.call_id, result, part.native, "functionResponse")


def _fill_template(call_id: str, fields: dict[str, Any], native: Any, default_key: str) -> dict[str, Any]:
    """Return the part of a call or a result from its common fields and its remainder."""
    if native is None:
        return {default_key: {"id": call_id, **fields}}
    if native.get(_NO_ID) is not True:
        fields["id"] = call_id
    block: dict[str, Any] = dict(native.get(BLOCK) or {default_key: {}})
    key = next((name for name in block if name in _READERS and block[name] is not None), default_key)
    block[key] = overlay(fields, block[key])
    return block


def _write_tagged(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
    if native is not None and stored_response(native) is not None:
        native = remaining_fields(native, "role")  # a response need not name its role, but a request must
    return [_write_content(role, parts, native)]


_put_tagged = common.make_verified_put(_write_tagged, read)


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a content of this format unchanged; a result needs the name of its tool."""
    if any(type(part) is ToolResultPart and part.tool is None for part in parts):
        return False
    if not _put_tagged(output, role, parts, native):
        return False
    output[-1] = from_tagged_json(output[-1])
    return True


def _put_common(
    output: list[dict[str, Any]], role: Role, parts: Sequence[Part], _native: dict[str, Any] | None
) -> bool:
    """Write text without a format. System messages are skipped: the API has a parameter for them."""
    if role == "system":
        return True
    if role == "tool" or not parts or not all(type(part) is TextPart for part in parts):
        return False
    output.append(_write_content(role, parts, None))
    return True


put = common.make_put(
    NAME,
    _put_own,
    _put_common,
    separate_role="system",
    text_message=lambda role, text: {"role": _ROLE_NAMES[role], "parts": [{"text": text}]},
)


def _translate_message(role: Role, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": _ROLE_NAMES[role], "parts": blocks}


def _translate_answer(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and tool calls, as parts."""
    blocks: list[dict[str, Any]] = []
    is_signed = False
    for part in parts:
        if type(part) is ToolCallPart:
            call = {"id": part.call_id, "name": part.tool, "args": common.arguments_object(part)}
            block: dict[str, Any] = {"functionCall": call}
            if not is_signed:
                block["thoughtSignature"] = _FOREIGN_SIGNATURE
                is_signed = True
            blocks.append(block)
        elif type(part) is TextPart and common.is_not_blank(part.text):
            blocks.append({"text": part.text})
    return blocks


def _translate_content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and the files that the API accepts, as parts."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = None
        if type(part) is AttachmentPart:
            block = _translate_file(attachments.content_of_attachment(part))
        if block is None:
            blocks += [{"text": piece["text"]} for piece in common.readable_blocks((part,))]
        else:
            blocks.append(block)
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a part; None if the API does not accept it, or if it is sent as text."""
    if content.text is not None:
        return None
    mime_type = content.mime_type or ""
    if content.url is not None and mime_type in ("", attachments.IMAGE):
        mime_type = mimetypes.guess_type(content.url)[0] or ""
    if mime_type not in _IMAGES and mime_type != _PDF and not mime_type.startswith(("audio/", "video/")):
        return None
    if content.data is not None:
        return {"inlineData": {"mimeType": mime_type, "data": content.data}}
    if not attachments.is_web_url(content.url):
        return None
    return {"fileData": {"mimeType": mime_type, "fileUri": content.url}}


def _translate_result(part: ToolResultPart, call: ToolCallPart | None) -> dict[str, Any]:
    answer = part.data if part.data is not UNSET and part.text is None else _result_text(part)
    if part.status != "success":
        answer = {"error": answer}
    elif not is_dict(answer):
        answer = {"output": answer}
    result: dict[str, Any] = {"name": part.tool or (call.tool if call else ""), "response": answer}
    if call is None or not is_dict(call.native) or call.native.get(_NO_ID) is not True:
        result = {"id": part.call_id, **result}
    return {"functionResponse": result}


def _result_text(part: ToolResultPart) -> str:
    answer = common.result_content(part)
    return answer if type(answer) is str else "\n\n".join(block["text"] for block in answer if is_dict(block))


def _translate_result_files(part: ToolResultPart) -> list[dict[str, Any]]:
    """Return the files of a result, which follow the results: not every model accepts them inside."""
    files = [piece for piece in part.content or () if type(piece) is AttachmentPart]
    blocks = [_translate_file(attachments.content_of_attachment(file)) for file in files]
    return [block for block in blocks if block is not None]


_BLOCKS = BlockWriters(
    message=_translate_message,
    answer=_translate_answer,
    content=_translate_content,
    result=_translate_result,
    result_files=_translate_result_files,
)
