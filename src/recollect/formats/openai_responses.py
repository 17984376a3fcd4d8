"""Items of OpenAI's Responses API and whole Response objects, in and out.

A message item is a message. Any other item is one part: a call that the caller runs is a tool call, its output a tool
result, reasoning is reasoning, and what OpenAI ran itself is kept as it is. The output of a whole response is one
message, and so are the items of an answer that stand side by side in a list. `items` in its native then says of the
parts that are no item by their kind how many make up a message. Items go out as they came, right or wrong: mending a
history is not this room's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from recollect.errors import InvalidValue
from recollect.formats import attachment, neutral, openai_items
from recollect.formats.native import (
    MALFORMED,
    content_of,
    count,
    has_remainder,
    is_dict,
    is_faithful,
    is_list,
    is_wellformed,
    kept_response,
    noted,
    overlay,
    place_content,
    rest,
    role_of,
)
from recollect.model.message import Draft, Message, Role
from recollect.model.part import AttachmentPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

NAME = "openai-responses"
_ITEMS, _COUNT, _FIELDS, _SHAPE = "items", "count", "fields", "content"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_ALONE = (ToolCallPart, ToolResultPart, ReasoningPart)  # parts that are an item each, whatever is noted


def read(message: dict[str, Any]) -> list[Draft]:
    """Read one item, or a whole response."""
    if message.get("object") == "response" or ("output" in message and "type" not in message):
        return [_read_response(message)]
    if _is_message(message):
        return [_read_message(message)]
    if "type" not in message and message.keys() != {"id"}:  # an id alone refers to an item
        raise InvalidValue(
            "An item of the Responses API has a type or a role. Give an item or a whole response as it came, or write "
            '{"role": "user", "content": ...}.'
        )
    part = openai_items.read(message)
    return [Draft(role=_role(message, part), parts=(part,), format=NAME, native=_noted([part], _entry_of(part)))]


def gather(drafts: Sequence[Draft]) -> list[Draft]:
    """Make one message of the items of an answer that stand side by side in a list."""
    gathered: list[Draft] = []
    for draft in drafts:
        before = gathered[-1] if gathered else None
        if before is not None and _is_output(draft) and _is_output(before):
            entries = [*_entries(before), *_entries(draft)]
            parts = (*before.parts, *draft.parts)
            gathered[-1] = Draft(role="assistant", parts=parts, format=NAME, native=_noted(parts, entries))
        else:
            gathered.append(draft)
    return gathered


def write(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as items: what came in this format as it came, the rest translated."""
    written: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}  # an output is of the type of its call, which only the call says
    for message in messages:
        _note_kinds(message, kinds)
        if not put(written, message.role, message.format, message.parts, message.native):
            written += _translated(message, kinds)
    return written


def _put_own(written: list[dict[str, Any]], role: Role, parts: Sequence[Part], native: dict[str, Any] | None) -> bool:
    """Write a message that came as items of this format as it came."""
    if native is None and len(parts) == 1 and type(parts[0]) in _ALONE:
        item = openai_items.write(parts[0])
        if item is not None:
            written.append(item)
        return True
    try:
        items = list(_own(role, parts, native or {}))
        if has_remainder(parts, native) and not (
            is_wellformed(native) and is_faithful(_reread(items, role, native or {}), role, parts)
        ):
            return False
    except MALFORMED:
        return False
    written += items
    return True


def _reread(items: list[dict[str, Any]], role: Role, native: dict[str, Any]) -> list[Draft]:
    """Read the items of a message again, as the items of an answer if it was one."""
    if "response" not in native and _ITEMS not in native:
        return [draft for item in items for draft in read(item)]
    drafts: list[Draft] = []
    for item in items:
        parts, _ = _read_output(item)
        named = item.get("role")
        spoken = _ROLES.get(named, role) if _is_message(item) and type(named) is str else role
        drafts.append(Draft(role=spoken, parts=tuple(parts)))
    return drafts


put = neutral.putter(NAME, _put_own, neutral.put_nothing)


def _note_kinds(message: Message, kinds: dict[str, str]) -> None:
    """Note which calls of a message are no calls of functions."""
    for part in message.parts:
        if type(part) is not ToolCallPart:
            continue
        if part.native is not None and message.format == NAME:
            kinds[part.call_id] = openai_items.kind_of(part)
        elif part.native is not None and neutral.custom_input(part) is not None:
            kinds[part.call_id] = openai_items.CUSTOM
        elif kinds:
            kinds.pop(part.call_id, None)


def without(message: Message, places: Collection[int]) -> Message:
    """Leave parts that are an item each out of a message of this format, with what is noted of them."""
    native, parts = message.native or {}, message.parts
    if _ITEMS not in native:
        left = tuple(part for index, part in enumerate(parts) if index not in places)
        return msgspec.structs.replace(message, parts=left)
    entries = iter(native[_ITEMS])
    kept: list[Part] = []
    noted: list[Any] = []
    start = 0
    while start < len(parts):
        alone = type(parts[start]) in _ALONE
        entry = None if alone else next(entries, None)
        end = start + (1 if entry is None else _counted(entry))
        if start not in places:
            kept += parts[start:end]
            noted += [] if alone else [entry]
        start = end
    return msgspec.structs.replace(message, parts=tuple(kept), native={**native, _ITEMS: noted})


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the whole response that a message came in."""
    native = message.native or {}
    kept = kept_response(native)
    return None if kept is None else {**kept, "output": list(_own(message.role, message.parts, native))}


def _is_message(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" or ("type" not in item and "role" in item)


def _role(item: dict[str, Any], part: Part) -> Role:
    kind = str(item.get("type"))
    if type(part) is ToolResultPart or kind.endswith("_output"):
        return "tool"
    if kind == "mcp_approval_response":
        return "user"
    return "system" if item.get("role") == "developer" else "assistant"


def _read_message(item: dict[str, Any]) -> Draft:
    name, role = item.get("role"), role_of(item, _ROLES, "OpenAI")
    renamed = {} if name == role else {"role": name}
    parts, shape = content_of(item, openai_items.reader(role))
    native = noted(parts, shape, "blocks", rest(item, "role", "content"), **renamed)
    return Draft(role=role, parts=parts, format=NAME, native=native)


def _read_response(response: dict[str, Any]) -> Draft:
    output = response.get("output")
    if not is_list(output) or not all(is_dict(item) for item in output):
        raise InvalidValue("The output of this response is not a list of items. Give the whole response, or an item.")
    usage, model = response.get("usage"), response.get("model")
    parts: list[Part] = []
    entries: list[Any] = []
    for item in output:
        found, entry = _read_output(item)
        parts += found
        entries += entry
    given = count(usage, "output_tokens")
    native = _noted(parts, entries) or {}
    return Draft(
        role="assistant",
        parts=tuple(parts),
        format=NAME,
        native={**native, "response": rest(response, "output") or {}},
        model=model if type(model) is str else None,
        tokens=given,
        input_tokens=count(usage, "input_tokens"),
        output_tokens=given,
    )


def _read_output(item: dict[str, Any]) -> tuple[Sequence[Part], list[Any]]:
    """Read an item of a response: its parts, and what they do not say."""
    content = item.get("content")
    if "type" not in item:
        part = openai_items.kept(item)
    elif item["type"] != "message":
        part = openai_items.read(item)
    elif content and (type(content) is str or (is_list(content) and all(is_dict(block) for block in content))):
        parts, shape = content_of(item, openai_items.reader("assistant"))
        return parts, [_entry(parts, shape, rest(item, "content"))]
    else:
        part = openai_items.kept(item)
    return (part,), _entry_of(part)


def _entry_of(part: Part) -> list[Any]:
    return [] if type(part) in _ALONE else [None]


def _entry(parts: Sequence[Part], shape: Any, fields: dict[str, Any] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {_COUNT: len(parts), _FIELDS: fields or {}}
    if shape == "string":
        entry[_SHAPE] = shape
    return entry


def _counted(entry: dict[str, Any]) -> int:
    """Return how many parts make up an item. A count that no reader noted would never get to the end of the parts."""
    number = entry[_COUNT]
    if type(number) is not int or number < 1:
        raise InvalidValue(f"items.count must be a positive integer, got {number!r}.")
    return number


def _entries(draft: Draft) -> list[Any]:
    """Say which parts of a draft are which item."""
    native, parts = draft.native or {}, draft.parts
    if _ITEMS in native or type(parts[0]) in _ALONE:
        return native.get(_ITEMS, [])
    bare = len(parts) == 1 and type(parts[0]) is TextPart and parts[0].native is None
    shape = native.get(_SHAPE) or ("string" if bare else "blocks")
    return [_entry(parts, shape, {"role": "assistant", **native.get("fields", {})})]


def _noted(parts: Sequence[Part], entries: list[Any]) -> dict[str, Any] | None:
    return None if not entries and parts else {_ITEMS: entries}


def _is_output(draft: Draft) -> bool:
    """Whether this is an item that a model made: all but messages in the short form, which callers write."""
    native = draft.native or {}
    if draft.format != NAME or draft.role != "assistant" or not draft.parts or "response" in native:
        return False
    return _ITEMS in native or type(draft.parts[0]) in _ALONE or "id" in native.get("fields", ())


def _own(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the items of a message that came in this format back as they came."""
    if "response" not in native and _ITEMS not in native and (not parts or type(parts[0]) not in _ALONE):
        yield _message_item(role, parts, native)
        return
    entries = iter(native.get(_ITEMS, ()))
    start = 0
    while start < len(parts):
        part = parts[start]
        entry = None if type(part) in _ALONE else next(entries, None)
        if entry is None:
            item = openai_items.write(part)
            if item is not None:
                yield item
            start += 1
            continue
        some = parts[start : start + _counted(entry)]
        written: dict[str, Any] = {}
        place_content(written, some, entry.get(_SHAPE, "blocks"), "blocks", openai_items.writer("assistant"))
        yield overlay(written, entry[_FIELDS])
        start += len(some)


def _message_item(role: Role, parts: Sequence[Part], native: dict[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {"role": native.get("role", role)}
    place_content(written, parts, native.get(_SHAPE), "blocks", openai_items.writer(role))
    return overlay(written, native.get("fields"))


def _translated(message: Message, kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Write a message of another format: texts as messages, each tool call and each result as an item."""
    if message.role == "assistant":
        yield from _answer(message.parts, kinds)
        return
    for part in message.parts:
        if type(part) is ToolResultPart:
            yield from _result(part, kinds)
    blocks = _content(message.parts)
    if blocks:
        bare = len(blocks) == 1 and blocks[0]["type"] == "input_text"
        role = "system" if message.role == "system" else "user"
        yield {"role": role, "content": blocks[0]["text"] if bare else blocks}


def _answer(parts: Sequence[Part], kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    said = ""
    for part in parts:
        if type(part) is TextPart:
            said += part.text
        elif type(part) in (ToolCallPart, ToolResultPart):
            if neutral.is_said(said):
                yield {"role": "assistant", "content": said}
            said = ""
            if type(part) is ToolCallPart:
                yield _call(part)
            elif type(part) is ToolResultPart:
                yield from _result(part, kinds)
    if neutral.is_said(said):
        yield {"role": "assistant", "content": said}


def _call(part: ToolCallPart) -> dict[str, Any]:
    custom = neutral.custom_input(part)
    if custom is not None:
        return {"type": openai_items.CUSTOM, "call_id": part.call_id, "name": part.tool, "input": custom}
    arguments = neutral.arguments(part)
    return {"type": "function_call", "call_id": part.call_id, "name": part.tool, "arguments": arguments}


def _result(part: ToolResultPart, kinds: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Write a result as the output of its call; nothing where the call is one that only a picture answers."""
    blocks = None if part.content is None else _content(part.content)
    output = (neutral.answer(part) if blocks is None else blocks) or part.error_message or ""
    item = openai_items.output(part, kinds.get(part.call_id), output)
    if item is not None:
        yield item


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write texts that are not blank, and the files that the API takes."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _file_block(attachment.file(part)) if type(part) is AttachmentPart else None
        if block is not None:
            blocks.append(block)
        else:
            blocks += [{"type": "input_text", "text": said["text"]} for said in neutral.words((part,))]
    return blocks


def _file_block(found: attachment.File) -> dict[str, Any] | None:
    """Write a file; None where the API has no place for it, or where it is text and goes as such."""
    usable = found.data is not None or attachment.is_web(found.url)
    if found.is_image:
        return {"type": "input_image", "detail": "auto", "image_url": found.link} if usable else None
    if found.text is not None or not usable or (found.mime_type or "").startswith("audio/"):
        return None
    if found.data is None:
        return {"type": "input_file", "file_url": found.url}
    return {"type": "input_file", "file_data": found.link, "filename": found.name or "file"}
