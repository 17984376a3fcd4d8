"""Amazon Bedrock's Converse format, which Strands uses too.

A block is an object with one field for its kind, such as `text` or `toolUse`. Files and redacted reasoning are bytes,
and base64 in JSON. Messages that were read in this format are written back unaltered, valid or not: repairs belong to
recollect.history.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.alternation import BlockWriters, write_alternating
from recollect.formats.byte_values import BYTES, from_tagged_json, tag_base64, to_tagged_json
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    BlockPath,
    extract_text,
    is_dict,
    is_extracted,
    is_list,
    original_block,
    overlay,
    read_role,
    remaining_fields,
    replace_at,
    restore_block,
    stored_response,
    sum_usage,
    value_at,
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

NAME = "bedrock"
_CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
RULES = ProviderRules(
    NAME,
    alternates=True,
    user_first=True,
    no_blanks=True,
    no_trailing_space=True,
    objects=True,
    call_id=_CALL_ID,
    bare_fields=frozenset(),
    length_stop=((("stopReason",),), frozenset({"max_tokens", "model_context_window_exceeded"})),
    hidden_keys=frozenset({"signature", "name", "toolUseId", "cachePoint"}),
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MISSING = "missing"
_replace_invalid = re.compile(r"[^a-zA-Z0-9_.:-]").sub
_replace_invalid_in_name = re.compile(r"[^\w()\[\]-]+", re.ASCII).sub
_MAX_NAME = 200  # characters of the name of a document
_NO_OUTPUT = "(no output)"  # Bedrock refuses a blank text

_IMAGES = {name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp")}
_DOCUMENTS = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
_VIDEOS = {
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "flv": "video/x-flv",
    "wmv": "video/x-ms-wmv",
    "three_gp": "video/3gpp",
    "mpg": "video/mpeg",
} | {name: f"video/{name}" for name in ("mp4", "webm", "mpeg")}
_AUDIOS = {"mp3": "audio/mpeg", "m4a": "audio/mp4", "mka": "audio/x-matroska", "mpga": "audio/mpeg"} | {
    name: f"audio/{name}"
    for name in ("wav", "aac", "flac", "ogg", "opus", "webm", "pcm", "x-aac", "mp4", "mkv", "mpeg")
}
_MIME_TYPES: dict[str, Mapping[str, str]] = {
    "image": _IMAGES,
    "document": _DOCUMENTS,
    "video": _VIDEOS,
    "audio": _AUDIOS,
}
_FORMATS = {
    mime_type: (kind, name) for kind, table in _MIME_TYPES.items() for name, mime_type in reversed(list(table.items()))
}
"""The kind of block and the name of the format for each media type; the first name of several."""
_BLOBS: tuple[BlockPath, ...] = (
    *[(kind, "source", "bytes") for kind in _MIME_TYPES],
    ("guardContent", "image", "source", "bytes"),
    ("reasoningContent", "redactedContent"),
)

to_json = to_tagged_json


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one message, or a complete response of Converse."""
    if "role" not in message and "output" in message:
        return [_read_response(message)]
    draft = common.read_fast(message)  # equal in every format
    return [_read_message(message) if draft is None else draft]


def _read_message(message: dict[str, Any]) -> Draft:
    role, blocks = read_role(message, _ROLES, "Bedrock"), message.get("content")
    if not is_list(blocks) and blocks is not None:
        raise InvalidValue('The content of a Converse message must be a list of blocks. Write [{"text": ...}].')
    for index, block in enumerate(blocks or ()):
        if not is_dict(block):
            raise InvalidValue(
                f'content[{index}] must be a dict, got {type(block).__name__}. Write text as {{"text": ...}}.'
            )
    parts = tuple([_read_block(_tag_blobs(block)) for block in blocks or ()])
    if role == "user" and parts and all(type(part) is ToolResultPart for part in parts):
        role = "tool"
    native: dict[str, Any] = {}
    if not is_list(blocks):
        native["content"] = "null" if "content" in message else _MISSING
    fields = remaining_fields(message, "role", "content")
    if fields:
        native["fields"] = fields
    return Draft(role=role, parts=parts, format=NAME, native=native or None)


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages for Converse: those of this format unchanged, others translated."""
    return write_alternating(messages, NAME, put, _BLOCKS)


is_boundary = boundaries.make_boundary_test(write)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message."""
    fields = stored_response(message.native or {})
    if fields is None:
        return None
    output = fields.get("output")
    if is_dict(output) and is_dict(output.get("message")):
        answer = _write_message(message.role, message.parts, message.native)
        fields = {**fields, "output": {**output, "message": answer}}
    return from_tagged_json(fields)


def _read_response(message: dict[str, Any]) -> Draft:
    output, usage = message["output"], message.get("usage")
    draft, fields = Draft(role="assistant", format=NAME), message
    answer = output.get("message") if is_dict(output) else None
    if is_dict(answer):
        draft = _read_message(answer)
        fields = {**message, "output": {**output, "message": {}}}
    model = value_at(message, ("trace", "promptRouter", "invokedModelId"))  # the only model that a response names
    output_tokens = sum_usage(usage, "outputTokens")
    return draft.replace(
        native={**(draft.native or {}), "response": fields},
        model=model if type(model) is str else None,
        tokens=output_tokens,
        input_tokens=sum_usage(usage, "inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
        output_tokens=output_tokens,
    )


def _tag_blobs(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block in which base64 text from JSON is tagged as bytes, which the SDK requires."""
    for path in _BLOBS:
        text = value_at(block, path)
        tagged_text = tag_base64(text) if type(text) is str else None
        if tagged_text is not None:
            return replace_at(block, path, tagged_text)
    pieces = value_at(block, ("toolResult", "content"))
    if is_list(pieces):
        pieces = [_tag_blobs(piece) if is_dict(piece) else piece for piece in pieces]
        return replace_at(block, ("toolResult", "content"), pieces)
    return block


def _read_block(block: dict[str, Any]) -> Part:
    """Read a block with one kind; any other block, such as a cache point, is stored whole."""
    kind = next(iter(block)) if len(block) == 1 else None
    reader = _READERS.get(kind) if kind is not None else None
    return DataPart(native=block) if reader is None else reader(block)


def _read_piece(block: dict[str, Any]) -> Content:
    kind = next(iter(block)) if len(block) == 1 else None
    reader = _CONTENT_READERS.get(kind) if kind is not None else None
    return DataPart(native=block) if reader is None else reader(block)


def _read_text(block: dict[str, Any]) -> Content:
    text = block["text"]
    return TextPart(text=text) if type(text) is str else DataPart(native=block)


def _read_file(block: dict[str, Any]) -> Content:
    """Read an image, a document, a video or audio of any source."""
    (kind,) = block
    file = block[kind]
    source = file.get("source") if is_dict(file) else None
    if not is_dict(source) or len(source) != 1:
        return DataPart(native=block)
    (origin,) = source
    format_name = file.get("format")
    mime_type = _MIME_TYPES[kind].get(format_name) if type(format_name) is str else None
    name = file.get("name")
    if origin == "bytes":
        at: BlockPath = (kind, "source", "bytes", BYTES)
        return attachments.read_attachment(block, at, mime_type=mime_type, name=name, holds="base64")
    if origin == "s3Location":
        return attachments.read_attachment(block, (kind, "source", "s3Location", "uri"), mime_type=mime_type, name=name)
    if origin in ("text", "content"):
        return _read_texts(block, (kind, "source", origin), name)
    return DataPart(native=block)


def _read_search_result(block: dict[str, Any]) -> Content:
    return _read_texts(block, ("searchResult", "content"), value_at(block, ("searchResult", "title")))


def _read_texts(block: dict[str, Any], at: BlockPath, name: Any) -> Content:
    """Read a file whose content is a text, or a list of texts."""
    extraction = extract_text(block, *_text_paths(block, at))
    if extraction is None or not extraction[1].get("at"):
        return DataPart(native=block)
    text, native = extraction
    name = name if type(name) is str else None
    return AttachmentPart(mime_type=attachments.TEXT, name=name, text=text, native=native)


def _text_paths(block: dict[str, Any], at: BlockPath) -> list[BlockPath]:
    """Return the paths of a text, or of each text in a list."""
    content = value_at(block, at)
    if not is_list(content):
        return [at]
    return [(*at, index, "text") for index, piece in enumerate(content) if is_dict(piece) and "text" in piece]


def _read_guard_content(block: dict[str, Any]) -> Content:
    """Read content that a guardrail assesses: a text or an image."""
    if value_at(block, ("guardContent", "text", "text")) is not None and is_dict(
        value_at(block, ("guardContent", "text"))
    ):
        return _extract_text_part(block, [("guardContent", "text", "text")])
    name = value_at(block, ("guardContent", "image", "format"))
    mime_type = _IMAGES.get(name) if type(name) is str else None
    at: BlockPath = ("guardContent", "image", "source", "bytes", BYTES)
    return attachments.read_attachment(block, at, mime_type=mime_type, holds="base64")


def _read_citations(block: dict[str, Any]) -> Content:
    return _extract_text_part(block, _text_paths(block, ("citationsContent", "content")))


def _extract_text_part(block: dict[str, Any], paths: list[BlockPath]) -> Content:
    extraction = extract_text(block, *paths)
    return (
        DataPart(native=block)
        if extraction is None or not paths
        else TextPart(text=extraction[0], native=extraction[1])
    )


def _read_reasoning(block: dict[str, Any]) -> Part:
    reasoning = block["reasoningContent"]
    content = reasoning.get("reasoningText") if is_dict(reasoning) and len(reasoning) == 1 else None
    if not is_dict(content) or type(content.get("text")) is not str:
        return DataPart(native=block)
    return ReasoningPart(text=content["text"], native=remaining_fields(content, "text"))


def _read_call(block: dict[str, Any]) -> Part:
    call = block["toolUse"]
    if not is_dict(call) or "type" in call:  # with a type, the provider executes it
        return DataPart(native=block)
    call_id, tool = call.get("toolUseId"), call.get("name")
    if type(call_id) is not str or type(tool) is not str:
        return DataPart(native=block)
    native = remaining_fields(call, "toolUseId", "name", "input")
    return ToolCallPart(call_id=call_id, tool=tool, arguments=call.get("input", UNSET), native=native)


def _read_result(block: dict[str, Any]) -> Part:
    result = block["toolResult"]
    if not is_dict(result) or "type" in result or type(result.get("toolUseId")) is not str:
        return DataPart(native=block)
    pieces = result.get("content")
    text: str | None = None
    data: Any = UNSET
    content: tuple[Content, ...] | None = None
    common_fields = ["toolUseId"]
    if is_list(pieces) and all(is_dict(piece) for piece in pieces):
        common_fields.append("content")
        only = pieces[0] if len(pieces) == 1 and len(pieces[0]) == 1 else {}
        if type(only.get("text")) is str:
            text = only["text"]
        elif "json" in only:
            data = only["json"]
        else:
            content = tuple([_read_piece(piece) for piece in pieces])
    failed = result.get("status") == "error"
    if failed:
        common_fields.append("status")
    return ToolResultPart(
        call_id=result["toolUseId"],
        status="error" if failed else "success",
        text=text,
        data=data,
        content=content,
        native=remaining_fields(result, *common_fields),
    )


_CONTENT_READERS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "text": _read_text,
    **dict.fromkeys(_MIME_TYPES, _read_file),
    "searchResult": _read_search_result,
    "guardContent": _read_guard_content,
    "citationsContent": _read_citations,
}
_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **_CONTENT_READERS,
    "reasoningContent": _read_reasoning,
    "toolUse": _read_call,
    "toolResult": _read_result,
}


def _write_message(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message of this format, with tagged bytes."""
    native = native or {}
    message: dict[str, Any] = {"role": "user" if role == "tool" else role}
    shape = None if parts else native.get("content")
    if shape == "null":
        message["content"] = None
    elif shape != _MISSING:
        message["content"] = write_blocks(parts, _write_block)
    return overlay(message, native.get("fields"))


def _write_block(part: Part) -> dict[str, Any] | None:
    """Return the original block of a part; None if the part was not read from a block."""
    native = part.native
    match part:
        case TextPart():
            return restore_block(native, part.text) if is_extracted(native) else {"text": part.text}
        case ReasoningPart():
            return {"reasoningContent": {"reasoningText": overlay({"text": part.text}, native)}}
        case ToolCallPart():
            call: dict[str, Any] = {"toolUseId": part.call_id, "name": part.tool}
            if part.arguments is not UNSET:
                call["input"] = part.arguments
            return {"toolUse": overlay(call, native)}
        case ToolResultPart():
            return _write_result(part)
        case _:
            return original_block(part)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    result: dict[str, Any] = {"toolUseId": part.call_id}
    if part.text is not None:
        result["content"] = [{"text": part.text}]
    elif part.data is not UNSET:
        result["content"] = [{"json": part.data}]
    elif part.content is not None:
        result["content"] = write_blocks(part.content, _write_block)
    if part.status == "error":
        result["status"] = "error"
    return {"toolResult": overlay(result, part.native)}


def _write_tagged(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [_write_message(role, parts, native)]


_put_tagged = common.make_verified_put(_write_tagged, read)


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message of this format unchanged."""
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
    output.append(_write_message(role, parts, None))
    return True


put = common.make_put(
    NAME,
    _put_own,
    _put_common,
    separate_role="system",
    text_message=lambda role, text: {"role": role, "content": [{"text": text}]},
)


def _translate_message(role: Role, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "content": blocks}


def _translate_answer(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and tool calls, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is ToolCallPart:
            call = {"toolUseId": _call_id(part.call_id), "name": part.tool, "input": common.arguments_object(part)}
            blocks.append({"toolUse": call})
        elif type(part) is TextPart and common.is_not_blank(part.text):
            blocks.append({"text": part.text})
    return blocks


def _translate_content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and the files that the API accepts, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is TextPart and common.is_not_blank(part.text):
            blocks.append({"text": part.text})
        elif type(part) is AttachmentPart:
            block = _translate_file(attachments.content_of_attachment(part))
            if block is not None:
                blocks.append(block)
    documents = [block["document"]["name"] for block in blocks if "document" in block]
    if documents and not any("text" in block for block in blocks):
        blocks.append({"text": ", ".join(documents)})  # Bedrock refuses a document without a text
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a block, or its address as text, because Bedrock fetches none; None if it has no content."""
    kind, name = _FORMATS.get(content.mime_type or "", ("", ""))
    if content.text is not None:
        data = content.text.encode("utf-8", "replace")
        kind, name = (kind, name) if kind == "document" else ("document", "txt")
    elif content.data is not None:
        data = _decode(content.data)
    elif attachments.is_web_url(content.url):
        return {"text": f"{content.name or 'File'}: {content.url}"}
    else:
        return None
    if not kind or not data or not data.strip():
        return None
    file: dict[str, Any] = {"format": name, "source": {"bytes": data}}
    if kind == "document":
        file["name"] = _document_name(content.name)
    return {kind: file}


def _document_name(name: str | None) -> str:
    """Return a name in the characters that Bedrock accepts, which do not include a dot."""
    return _replace_invalid_in_name(" ", name or "").strip()[:_MAX_NAME].strip() or "document"


def _decode(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _translate_result(part: ToolResultPart, _call: ToolCallPart | None) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if part.text is None and part.content is not None:
        content = _translate_content(part.content)
        content = [block for block in content if "audio" not in block]  # a result has no audio
    elif part.text is None and is_dict(part.data):
        content = [{"json": part.data}]
    if not content:
        text = common.result_content(part) if part.content is None else part.error_message or ""
        content = [{"text": text if type(text) is str and common.is_not_blank(text) else _NO_OUTPUT}]
    result: dict[str, Any] = {"toolUseId": _call_id(part.call_id), "content": content}
    if part.status != "success":
        result["status"] = "error"
    return {"toolResult": result}


def _call_id(call_id: str) -> str:
    """Return a call id in the characters that the API accepts, the same for a call and its result."""
    return call_id if _CALL_ID.fullmatch(call_id) else _replace_invalid("_", call_id)[:64] or "_"


_BLOCKS = BlockWriters(
    message=_translate_message, answer=_translate_answer, content=_translate_content, result=_translate_result
)
