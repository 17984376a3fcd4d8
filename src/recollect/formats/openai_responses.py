"""OpenAI's Responses API format: items and complete Response objects.

A message item is a message. Every other item is one part: a call that the caller runs is a tool call, its output is
a tool result, reasoning is reasoning, and calls that OpenAI ran itself (searches, code, MCP) contain their result
and are stored whole. The output of a complete response is one message, and so are adjacent items of an answer in a
list. `items` in its remainder then has the number of parts of each message item. Items are written back unaltered,
valid or not: repairs belong to recollect.history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachments, boundaries, common
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import (
    AT,
    BLOCK,
    MALFORMED,
    extract_text,
    has_remainder,
    is_dict,
    is_extracted,
    is_list,
    is_well_formed,
    matches_common_fields,
    message_remainder,
    original_block,
    overlay,
    read_content,
    read_role,
    remaining_fields,
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
    ReasoningPart,
    ResultStatus,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NAME = "openai-responses"
RULES = ProviderRules(
    NAME,
    results_apart=False,
    call_id=re.compile(r".{1,64}", re.DOTALL),
    own_outputs=True,
    reasoning_alone=True,
    typed_blocks=True,
    length_stop=((("incomplete_details", "reason"),), frozenset({"max_output_tokens"})),
    hidden_keys=frozenset({"encrypted_content", "phase", "logprobs", "role", "output_format"}),
)
_ITEMS, _COUNT, _FIELDS, _SHAPE = "items", "count", "fields", "content"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_ITEM_PARTS = (ToolCallPart, ToolResultPart, ReasoningPart)  # parts that are always an item each


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one item, or a complete response."""
    if message.get("object") == "response" or ("output" in message and "type" not in message):
        return [_read_response(message)]
    if _is_message(message):
        return [_read_message(message)]
    if "type" not in message and message.keys() != {"id"}:  # an id alone is a reference to an item
        raise InvalidValue(
            "An item of the Responses API must have a type or a role. Pass an item or a complete response, or write "
            '{"role": "user", "content": ...}.'
        )
    part = read_item(message)
    return [
        Draft(
            role=_item_role(message, part),
            parts=(part,),
            format=NAME,
            native=_items_remainder([part], _part_entry(part)),
        )
    ]


def read_fast(item: dict[str, Any]) -> Draft | None:
    """Read a function call or its output with only texts, the most common items of agents; None if it is another item.

    Its values need no further check: texts are JSON data.
    """
    kind, call_id = item.get("type"), item.get("call_id")
    if type(kind) is not str or call_id is None or kind not in _FAST_FIELDS or "object" in item:
        return None
    native: dict[str, Any] = {}
    common_fields = _FAST_FIELDS[kind]
    for name, value in item.items():
        if type(value) is not str or type(name) is not str:
            return None
        if name not in common_fields:
            native[name] = value
    if len(item) - len(native) < len(common_fields):
        return None
    if kind == _FUNCTION:
        part = ToolCallPart(call_id=call_id, tool=item["name"], arguments_text=item["arguments"], native=native or None)
        return Draft(role="assistant", parts=(part,), format=NAME)
    status: ResultStatus = "error" if item.get("status") == "failed" else "success"
    result = ToolResultPart(call_id=call_id, status=status, text=item["output"], native=native or None)
    return Draft(role="tool", parts=(result,), format=NAME)


def merge_items(drafts: Sequence[Draft]) -> list[Draft]:
    """Merge adjacent items of an answer into one message."""
    merged_drafts: list[Draft] = []
    for draft in drafts:
        previous = merged_drafts[-1] if merged_drafts else None
        if previous is not None and _is_model_output(draft) and _is_model_output(previous):
            entries = [*_draft_entries(previous), *_draft_entries(draft)]
            parts = (*previous.parts, *draft.parts)
            merged_drafts[-1] = Draft(
                role="assistant", parts=parts, format=NAME, native=_items_remainder(parts, entries)
            )
        else:
            merged_drafts.append(draft)
    return merged_drafts


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as items: those of this format unchanged, others translated."""
    output: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}  # the type of each call by id; it determines the type of the output
    for message in messages:
        _record_call_types(message, kinds)
        if not put(output, message.role, message.format, message.parts, message.native):
            output += _translate(message, kinds)
    return output


is_boundary = boundaries.every_message


def _put_own(output: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message of this format as its items, unchanged."""
    if native is None and len(parts) == 1 and type(parts[0]) in _ITEM_PARTS and parts[0].native is None:
        item = write_item(parts[0])
        if item is not None:
            output.append(item)
        return True
    item = _write_text_message(role, parts, native) or _write_agent_item(role, parts, native)
    if item is not None:
        output.append(item)
        return True
    try:
        items = list(_write_own(role, parts, native or {}))
        if has_remainder(parts, native) and not (
            is_well_formed(native) and matches_common_fields(_reread(items, role, native or {}), role, parts)
        ):
            return False
    except MALFORMED:
        return False
    output += items
    return True


def _write_text_message(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a message with one text, as most answers are, if its remainder cannot change what is read from it.

    Such a message need not be read again, which takes longer than writing it. None for any other message.
    """
    if native is None or native.keys() != {_FIELDS} or len(parts) != 1 or type(parts[0]) is not TextPart:
        return None
    fields, text, block = native[_FIELDS], parts[0].text, parts[0].native
    # Fields never replace the role and the content, but decide whether the item is a message.
    if not is_dict(fields) or fields.get("type") != "message" or "object" in fields:
        return None
    content: Any = text
    if block is not None:
        if not is_dict(block) or "type" in block or BLOCK in block:
            return None
        content = [overlay({"type": "output_text" if role == "assistant" else "input_text", "text": text}, block)]
    return overlay({"role": role, "content": content}, fields)


def _write_agent_item(role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return reasoning, a function call or its output as _write_text_message() does; None for any other message."""
    part = parts[0] if len(parts) == 1 and native is None else None
    block = None if part is None else part.native
    if not is_dict(block) or not _REREAD_FIELDS.isdisjoint(block):
        return None
    if type(part) is ReasoningPart:
        return _write_summary(part.text, block) if role == "assistant" else None
    if type(part) is ToolCallPart and role == "assistant" and part.arguments_text is not None:
        item = {"type": _FUNCTION, "call_id": part.call_id, "name": part.tool, "arguments": part.arguments_text}
        return overlay(item, block) if part.arguments is UNSET else None
    if type(part) is ToolResultPart and role == "tool" and part.text is not None and "status" not in block:
        item = {"type": _FUNCTION_OUTPUT, "call_id": part.call_id, "output": part.text}
        has_only_text = part.data is UNSET and part.content is None and part.status == "success"
        return overlay(item, block) if has_only_text else None
    return None


def _write_summary(text: str, native: dict[str, Any]) -> dict[str, Any] | None:
    """Return a reasoning item whose summary is one text."""
    item = native.get(BLOCK)
    if native.keys() != {BLOCK, AT} or native[AT] != _SUMMARY_TEXT or not is_dict(item):
        return None
    summary = item.get("summary")
    if item.get("type") != "reasoning" or "object" in item or "role" in item or not is_list(summary):
        return None
    return {**item, "summary": [{**summary[0], "text": text}]} if len(summary) == 1 and is_dict(summary[0]) else None


def _reread(items: list[dict[str, Any]], role: Role, native: dict[str, Any]) -> list[Draft]:
    """Read the items of a message again, as items of an answer if it was one."""
    if "response" not in native and _ITEMS not in native:
        return [draft for item in items for draft in read(item)]
    drafts: list[Draft] = []
    for item in items:
        parts, _ = _read_response_item(item)
        item_role = item.get("role")
        draft_role = _ROLES.get(item_role, role) if _is_message(item) and type(item_role) is str else role
        drafts.append(Draft(role=draft_role, parts=tuple(parts)))
    return drafts


put = common.make_put(NAME, _put_own, common.put_nothing)


def _record_call_types(message: Message, kinds: dict[str, str]) -> None:
    """Record the calls of a message that are not function calls."""
    for part in message.parts:
        if type(part) is not ToolCallPart:
            continue
        if part.native is not None and message.format == NAME:
            kinds[part.call_id] = call_type(part)
        elif part.native is not None and common.custom_input(part) is not None:
            kinds[part.call_id] = CUSTOM_CALL
        elif kinds:
            kinds.pop(part.call_id, None)


def without_parts(message: Message, indexes: Collection[int]) -> Message:
    """Return a message of this format without some parts that are an item each, and without their entries."""
    native, parts = message.native or {}, message.parts
    if _ITEMS not in native:
        remaining = tuple(part for index, part in enumerate(parts) if index not in indexes)
        return msgspec.structs.replace(message, parts=remaining)
    entries = iter(native[_ITEMS])
    remaining_parts: list[Part] = []
    remaining_entries: list[Any] = []
    start = 0
    while start < len(parts):
        is_item = type(parts[start]) in _ITEM_PARTS
        entry = None if is_item else next(entries, None)
        end = start + (1 if entry is None else _part_count(entry))
        if start not in indexes:
            remaining_parts += parts[start:end]
            remaining_entries += [] if is_item else [entry]
        start = end
    return msgspec.structs.replace(message, parts=tuple(remaining_parts), native={**native, _ITEMS: remaining_entries})


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message."""
    native = message.native or {}
    response_fields = stored_response(native)
    return (
        None
        if response_fields is None
        else {**response_fields, "output": list(_write_own(message.role, message.parts, native))}
    )


def _is_message(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" or ("type" not in item and "role" in item)


def _item_role(item: dict[str, Any], part: Part) -> Role:
    kind = str(item.get("type"))
    if type(part) is ToolResultPart or kind.endswith("_output"):
        return "tool"
    if kind == "mcp_approval_response":
        return "user"
    return "system" if item.get("role") == "developer" else "assistant"


def _read_message(item: dict[str, Any]) -> Draft:
    name, role = item.get("role"), read_role(item, _ROLES, "OpenAI")
    original_role = {} if name == role else {"role": name}
    parts, shape = read_content(item, block_reader(role))
    native = message_remainder(parts, shape, "blocks", remaining_fields(item, "role", "content"), **original_role)
    return Draft(role=role, parts=parts, format=NAME, native=native)


def _read_response(response: dict[str, Any]) -> Draft:
    output = response.get("output")
    if not is_list(output) or not all(is_dict(item) for item in output):
        raise InvalidValue("The output of a response must be a list of items. Pass the complete response, or an item.")
    usage, model = response.get("usage"), response.get("model")
    parts: list[Part] = []
    entries: list[Any] = []
    for item in output:
        item_parts, entry = _read_response_item(item)
        parts += item_parts
        entries += entry
    output_tokens = sum_usage(usage, "output_tokens")
    native = _items_remainder(parts, entries) or {}
    return Draft(
        role="assistant",
        parts=tuple(parts),
        format=NAME,
        native={**native, "response": remaining_fields(response, "output") or {}},
        model=model if type(model) is str else None,
        tokens=output_tokens,
        input_tokens=sum_usage(usage, "input_tokens"),
        output_tokens=output_tokens,
    )


def _read_response_item(item: dict[str, Any]) -> tuple[Sequence[Part], list[Any]]:
    """Read an item of a response. Return its parts, and their remainder entries."""
    content = item.get("content")
    if not _is_message(item):
        part = read_item(item) if "type" in item else keep_whole(item)
    elif type(content) is str or (content and is_list(content) and all(is_dict(block) for block in content)):
        parts, shape = read_content(item, block_reader("assistant"))
        return parts, [_message_entry(parts, shape, remaining_fields(item, "content"))]
    else:
        part = keep_whole(item)
    return (part,), _part_entry(part)


def _part_entry(part: Part) -> list[Any]:
    return [] if type(part) in _ITEM_PARTS else [None]


def _message_entry(parts: Sequence[Part], shape: Any, fields: dict[str, Any] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {_COUNT: len(parts), _FIELDS: fields or {}}
    if shape == "string":
        entry[_SHAPE] = shape
    return entry


def _part_count(entry: dict[str, Any]) -> int:
    """Return how many parts make up an item. A count below 1 in an untrusted file would loop forever."""
    number = entry[_COUNT]
    if type(number) is not int or number < 1:
        raise InvalidValue(f"items.count must be a positive integer, got {number!r}.")
    return number


def _draft_entries(draft: Draft) -> list[Any]:
    """Return the remainder entries that assign the parts of a draft to items."""
    native, parts = draft.native or {}, draft.parts
    if _ITEMS in native or type(parts[0]) in _ITEM_PARTS:
        return native.get(_ITEMS, [])
    bare = len(parts) == 1 and type(parts[0]) is TextPart and parts[0].native is None
    shape = native.get(_SHAPE) or ("string" if bare else "blocks")
    return [_message_entry(parts, shape, {"role": "assistant", **native.get("fields", {})})]


def _items_remainder(parts: Sequence[Part], entries: list[Any]) -> dict[str, Any] | None:
    return None if not entries and parts else {_ITEMS: entries}


def _is_model_output(draft: Draft) -> bool:
    """Return whether a model wrote this item. Messages that a caller writes have no id."""
    native = draft.native or {}
    if draft.format != NAME or draft.role != "assistant" or not draft.parts or "response" in native:
        return False
    return _ITEMS in native or type(draft.parts[0]) in _ITEM_PARTS or "id" in native.get("fields", ())


def _write_own(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the items of a message of this format, unchanged."""
    if "response" not in native and _ITEMS not in native and (not parts or type(parts[0]) not in _ITEM_PARTS):
        yield _message_item(role, parts, native)
        return
    entries = iter(native.get(_ITEMS, ()))
    start = 0
    while start < len(parts):
        part = parts[start]
        entry = None if type(part) in _ITEM_PARTS else next(entries, None)
        if entry is None:
            item = write_item(part)
            if item is not None:
                yield item
            start += 1
            continue
        item_parts = parts[start : start + _part_count(entry)]
        item_fields: dict[str, Any] = {}
        set_content(item_fields, item_parts, entry.get(_SHAPE, "blocks"), "blocks", block_writer("assistant"))
        yield overlay(item_fields, entry[_FIELDS])
        start += len(item_parts)


def _message_item(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = {"role": native.get("role", role)}
    set_content(item, parts, native.get(_SHAPE), "blocks", block_writer(role))
    return overlay(item, native.get("fields"))


def _translate(message: Message, kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a message of another format: texts as messages, each tool call and each result as an item."""
    if message.role == "assistant":
        yield from _translate_answer(message.parts, kinds)
        return
    for part in message.parts:
        if type(part) is ToolResultPart:
            yield from _translate_result(part, kinds)
    blocks = _translate_content(message.parts)
    if blocks:
        bare = len(blocks) == 1 and blocks[0]["type"] == "input_text"
        role = "system" if message.role == "system" else "user"
        yield {"role": role, "content": blocks[0]["text"] if bare else blocks}


def _translate_answer(parts: Sequence[Part], kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    text = ""
    for part in parts:
        if type(part) is TextPart:
            text += part.text
        elif type(part) in (ToolCallPart, ToolResultPart):
            if common.is_not_blank(text):
                yield {"role": "assistant", "content": text}
            text = ""
            if type(part) is ToolCallPart:
                yield _translate_call(part)
            elif type(part) is ToolResultPart:
                yield from _translate_result(part, kinds)
    if common.is_not_blank(text):
        yield {"role": "assistant", "content": text}


def _translate_call(part: ToolCallPart) -> dict[str, Any]:
    custom = common.custom_input(part)
    if custom is not None:
        return {"type": CUSTOM_CALL, "call_id": part.call_id, "name": part.tool, "input": custom}
    arguments = common.arguments_json(part)
    return {"type": "function_call", "call_id": part.call_id, "name": part.tool, "arguments": arguments}


def _translate_result(part: ToolResultPart, kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a result as the output of its call; nothing if the call requires a screenshot and there is none."""
    blocks = None if part.content is None else _translate_content(part.content)
    output = (common.result_content(part) if blocks is None else blocks) or part.error_message or ""
    item = output_item(part, kinds.get(part.call_id), output)
    if item is not None:
        yield item


def _translate_content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return texts that are not blank, and the files that the API accepts, as blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _translate_file(attachments.content_of_attachment(part)) if type(part) is AttachmentPart else None
        if block is not None:
            blocks.append(block)
        else:
            blocks += [
                {"type": "input_text", "text": text_block["text"]} for text_block in common.readable_blocks((part,))
            ]
    return blocks


def _translate_file(content: attachments.AttachmentContent) -> dict[str, Any] | None:
    """Return a file as a block; None if the API does not accept it, or if it is sent as text."""
    usable = content.data is not None or attachments.is_web_url(content.url)
    if content.is_image:
        return {"type": "input_image", "detail": "auto", "image_url": content.link} if usable else None
    if content.text is not None or not usable or (content.mime_type or "").startswith("audio/"):
        return None
    if content.data is None:
        return {"type": "input_file", "file_url": content.url}
    return {"type": "input_file", "file_data": content.link, "filename": content.name or "file"}


_FUNCTION, _FUNCTION_OUTPUT = "function_call", "function_call_output"
CUSTOM_CALL = "custom_tool_call"
_COMPUTER = "computer_call"
_LOCAL_SHELL, _SHELL, _PATCH = "local_shell_call", "shell_call", "apply_patch_call"
_SCREENSHOT = "computer_call_output"
# The field with the arguments of a call, and the tool if the item does not name it.
_CALLS: dict[str, tuple[str, str | None]] = {
    _FUNCTION: ("arguments", None),
    CUSTOM_CALL: ("input", None),
    _COMPUTER: ("action", "computer"),
    _LOCAL_SHELL: ("action", "local_shell"),
    _SHELL: ("action", "shell"),
    _PATCH: ("operation", "apply_patch"),
}
# The field with the id of the call that an output answers.
_OUTPUTS: dict[str, str] = {
    _FUNCTION_OUTPUT: "call_id",
    "custom_tool_call_output": "call_id",
    _SCREENSHOT: "call_id",
    "local_shell_call_output": "id",
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
}
_SUMMARY_TEXT = [["summary", 0, "text"]]
_REREAD_FIELDS = frozenset({"type", "object", "role"})  # they decide as what an item is read
# The common fields of the items that read_fast() reads.
_FAST_FIELDS: dict[str, frozenset[str]] = {
    _FUNCTION: frozenset({"type", "call_id", "name", "arguments"}),
    _FUNCTION_OUTPUT: frozenset({"type", "call_id", "output"}),
}
_TEXT_TYPES = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_SHELL_OUTPUT_KEYS = frozenset({"stdout", "stderr", "outcome"})
_MIME_TYPES = {
    "png": "image/png",
    "webp": "image/webp",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
}


def read_item(item: dict[str, Any]) -> Part:
    """Read an item other than a message."""
    kind = item.get("type")
    if type(kind) is not str:
        return keep_whole(item)
    if kind in _CALLS:
        return _read_call(item, kind)
    if kind in _OUTPUTS:
        return _read_result(item, kind)
    if kind == "reasoning":
        return _read_reasoning(item)
    if kind == "image_generation_call":
        mime_type = _MIME_TYPES.get(str(item.get("output_format", "png")), attachments.IMAGE)
        return attachments.read_attachment(item, ("result",), mime_type=mime_type, holds="base64")
    return keep_whole(item)


def keep_whole(item: dict[str, Any]) -> Part:
    """Return an item as data, unchanged."""
    return DataPart(native=item)


def write_item(part: Part) -> dict[str, Any] | None:
    """Return the original item of a part; None if the part was not read from an item."""
    if part.native is None:  # the most common parts of agents
        if type(part) is ToolResultPart and part.text is not None:
            return {"type": _FUNCTION_OUTPUT, "call_id": part.call_id, "output": part.text}
        if type(part) is ToolCallPart and part.arguments_text is not None:
            arguments = part.arguments_text
            return {"type": _FUNCTION, "call_id": part.call_id, "name": part.tool, "arguments": arguments}
    if type(part) is ToolCallPart:
        return _write_call(part)
    if type(part) is ToolResultPart:
        return _write_result(part)
    if type(part) is ReasoningPart:
        return restore_block(part.native, part.text) if is_extracted(part.native) else None
    return original_block(part)


def call_type(part: ToolCallPart) -> str:
    """Return the type of the item of a call."""
    kind = part.native.get("type") if is_dict(part.native) else None
    return kind if type(kind) is str and kind in _CALLS else _FUNCTION


def is_computer_call(part: Part) -> bool:
    """Return whether this is a computer call, which only a screenshot answers."""
    return type(part) is ToolCallPart and call_type(part) == _COMPUTER


def output_item(part: ToolResultPart, kind: str | None, output: str | list[dict[str, Any]]) -> dict[str, Any] | None:
    """Build the output item that a call of type `kind` requires, from a result of another format; None if it cannot."""
    call_id, failed = part.call_id, part.status != "success"
    interrupted = part.error_code == "interrupted"
    text = output if isinstance(output, str) else "\n".join(block["text"] for block in output if "text" in block)
    match kind:
        case "custom_tool_call":
            return {"type": "custom_tool_call_output", "call_id": call_id, "output": output}
        case "local_shell_call":
            item = {"type": "local_shell_call_output", "id": call_id, "output": text}
            return {**item, "status": "incomplete"} if interrupted else item
        case "shell_call":
            item = {"type": "shell_call_output", "call_id": call_id, "output": _shell_output(part, text)}
            return {**item, "status": "incomplete"} if interrupted else item
        case "apply_patch_call":
            status = "failed" if failed else "completed"
            return {"type": "apply_patch_call_output", "call_id": call_id, "status": status, "output": text}
        case "computer_call":
            screenshot = screenshot_output(part)
            return None if screenshot is None else {"type": _SCREENSHOT, "call_id": call_id, "output": screenshot}
        case _:
            return {"type": _FUNCTION_OUTPUT, "call_id": call_id, "output": output}


def _shell_output(part: ToolResultPart, text: str) -> list[dict[str, Any]]:
    """Return the output of commands. A command that never ran has no output and no exit code."""
    if part.error_code == "interrupted":
        return []
    if is_list(part.data) and all(is_dict(piece) and piece.keys() >= _SHELL_OUTPUT_KEYS for piece in part.data):
        return part.data
    failed = part.status != "success"
    outcome = {"type": "exit", "exit_code": 1 if failed else 0}
    return [{"stdout": "" if failed else text, "stderr": text if failed else "", "outcome": outcome}]


def screenshot_output(part: ToolResultPart) -> dict[str, Any] | None:
    """Return the image in a result as the output of a computer call; None if there is none."""
    for piece in part.content or ():
        content = attachments.content_of_attachment(piece) if type(piece) is AttachmentPart else None
        if (
            content is not None
            and content.is_image
            and (content.data is not None or attachments.is_web_url(content.url))
        ):
            return {"type": "computer_screenshot", "image_url": content.link}
    return None


def block_reader(role: Role) -> Callable[[dict[str, Any]], Content]:
    """Return the function that reads the blocks of a message with this role."""
    return _read_output_block if role == "assistant" else _read_input_block


def block_writer(role: Role) -> Callable[[Part], dict[str, Any] | None]:
    """Return the function that writes the blocks of a message with this role."""
    return _write_output_block if role == "assistant" else _write_input_block


def _read_call(item: dict[str, Any], kind: str) -> Part:
    field, tool = _CALLS[kind]
    common_fields = ["call_id"]
    if kind == _FUNCTION:
        common_fields.append("type")
    if tool is None:
        tool = item.get("name")
        common_fields.append("name")
    if kind == _COMPUTER and "action" not in item and is_list(item.get("actions")):
        field = "actions"
    call_id, arguments = item.get("call_id"), item.get(field, UNSET)
    if type(call_id) is not str or type(tool) is not str or (kind == _COMPUTER and not _is_action(field, arguments)):
        return keep_whole(item)
    is_text = kind == _FUNCTION and type(arguments) is str
    return ToolCallPart(
        call_id=call_id,
        tool=tool,
        arguments=UNSET if is_text else arguments,
        arguments_text=arguments if is_text else None,
        native=remaining_fields(item, *common_fields, field),
    )


def _is_action(field: str, arguments: Any) -> bool:
    """Return whether writing can infer the field from the value: one action is a dict, several are a list."""
    return is_dict(arguments) if field == "action" else is_list(arguments)


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    native = part.native if is_dict(part.native) else {}
    kind = native.get("type", _FUNCTION)
    field, tool = _CALLS[kind]
    item: dict[str, Any] = {"type": kind, "call_id": part.call_id}
    if tool is None:
        item["name"] = part.tool
    if kind == _COMPUTER and is_list(part.arguments):
        field = "actions"
    if part.arguments_text is not None:
        item[field] = part.arguments_text
    elif part.arguments is not UNSET:
        item[field] = part.arguments
    return overlay(item, native)


def _read_result(item: dict[str, Any], kind: str) -> Part:
    field = _OUTPUTS[kind]
    call_id, output = item.get(field), item.get("output")
    if type(call_id) is not str:
        return keep_whole(item)
    common_fields = [field] if kind != _FUNCTION_OUTPUT else [field, "type"]
    text: str | None = None
    data: Any = UNSET
    content: tuple[Content, ...] | None = None
    if type(output) is str:
        text = output
    elif kind == _SCREENSHOT and is_dict(output):
        content = (_read_screenshot(output),)
    elif kind == "shell_call_output" and is_list(output):
        data = output
    elif kind != _SCREENSHOT and is_list(output) and all(is_dict(piece) for piece in output):
        content = tuple([_read_input_block(piece) for piece in output])
    if text is not None or data is not UNSET or content is not None:
        common_fields.append("output")
    status: ResultStatus = "error" if item.get("status") == "failed" else "success"
    native = remaining_fields(item, *common_fields)
    return ToolResultPart(call_id=call_id, status=status, text=text, data=data, content=content, native=native)


def _read_screenshot(output: dict[str, Any]) -> Content:
    if type(output.get("image_url")) is str:
        return attachments.read_attachment(output, ("image_url",), mime_type=attachments.IMAGE)
    return attachments.read_provider_file(output, mime_type=attachments.IMAGE)


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    native = part.native if is_dict(part.native) else {}
    kind = native.get("type", _FUNCTION_OUTPUT)
    item: dict[str, Any] = {"type": kind, _OUTPUTS[kind]: part.call_id}
    if part.text is not None:
        item["output"] = part.text
    elif part.data is not UNSET:
        item["output"] = part.data
    elif part.content is not None:
        blocks = write_blocks(part.content, _write_input_block)
        item["output"] = blocks[0] if kind == _SCREENSHOT else blocks
    return overlay(item, native)


def _read_reasoning(item: dict[str, Any]) -> Part:
    """Read the summary of the reasoning, or the reasoning itself if there is no summary."""
    for field in ("summary", "content"):
        pieces = item.get(field)
        if is_list(pieces) and pieces:
            extraction = extract_text(item, *[(field, index, "text") for index in range(len(pieces))])
            if extraction is not None:
                return ReasoningPart(text=extraction[0], native=extraction[1])
    return ReasoningPart(native={BLOCK: item})


def _read_output_block(block: dict[str, Any]) -> Content:
    return _read_block(block, "output_text")


def _read_input_block(block: dict[str, Any]) -> Content:
    return _read_block(block, "input_text")


def _read_block(block: dict[str, Any], default_type: str) -> Content:
    match block.get("type"):
        case str(kind) if kind in _TEXT_TYPES:
            text = block.get("text")
            native = (
                remaining_fields(block, "text", "type") if kind == default_type else remaining_fields(block, "text")
            )
            if type(text) is not str or (native is not None and BLOCK in native):
                return DataPart(native=block)
            return TextPart(text=text, native=native)
        case "refusal":
            extraction = extract_text(block, ("refusal",))
            return DataPart(native=block) if extraction is None else TextPart(text=extraction[0], native=extraction[1])
        case "input_image":
            if type(block.get("image_url")) is str:
                return attachments.read_attachment(block, ("image_url",), mime_type=attachments.IMAGE)
            return attachments.read_provider_file(block, mime_type=attachments.IMAGE)
        case "input_file":
            return _read_file(block)
        case _:
            return DataPart(native=block)


def _read_file(block: dict[str, Any]) -> Content:
    name = block.get("filename")
    if type(block.get("file_data")) is str:
        return attachments.read_attachment(block, ("file_data",), name=name, holds="either")
    if type(block.get("file_url")) is str:
        return attachments.read_attachment(block, ("file_url",), name=name)
    return attachments.read_provider_file(block, name=name)


def _write_output_block(part: Part) -> dict[str, Any] | None:
    return _write_block(part, "output_text")


def _write_input_block(part: Part) -> dict[str, Any] | None:
    return _write_block(part, "input_text")


def _write_block(part: Part, default_type: str) -> dict[str, Any] | None:
    match part:
        case TextPart():
            if is_extracted(part.native):
                return restore_block(part.native, part.text)
            kind = part.native.get("type") if is_dict(part.native) else default_type
            return overlay({"type": kind if kind in _TEXT_TYPES else default_type, "text": part.text}, part.native)
        case _:
            return original_block(part)
