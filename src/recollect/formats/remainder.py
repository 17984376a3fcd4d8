"""The provider-specific remainder of a message: the fields of its dict besides the common ones.

Reading takes the common fields out of a dict and stores the rest; writing adds the rest again. So the dict round-trips
by construction, and no text is stored twice. A stored remainder may come from an untrusted file, so the written
message is read again before it is used (matches_common_fields): if its common fields differ from the stored ones, which
people see, the message is written from the common fields alone.

A remainder is sent to the provider with the message, so people must be able to see it (display.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeGuard, TypeVar

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.model.json import UNSET
from recollect.model.message import AttachmentPart, DataPart, Draft, Part, Role, TextPart, ToolResultPart

Shape = Literal["string", "blocks", "null", "missing"]
WriteBlock = Callable[[Any], dict[str, Any] | None]

# A remainder of {"whole": block} is the block itself and is not merged with common fields.
WHOLE = "whole"
# A remainder of {"block": block, "at": [path, ...]} is a block whose text was moved to a common field. If there were
# several texts, "cut" has their lengths.
BLOCK, AT, CUT = "block", "at", "cut"
_TEXT_SEPARATOR = "\n\n"
_MAX_COUNT = 1 << 53  # tokens; every JSON reader reads integers up to here exactly
_MISSING = object()

# Common fields that a format may lack: the result of a call need not name its tool.
_OPTIONAL = frozenset({"mime_type", "size", "name", "tool", "status", "error_code", "error_message"})
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, InvalidValue)
"""The errors that a malformed remainder, for example from an imported file, may cause when it is merged."""

BlockPath = tuple[str | int, ...]
P = TypeVar("P", bound=Part)


def is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether this is a JSON object; to_json_data() leaves no other mapping types."""
    return type(value) is dict


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return whether this is a JSON array."""
    return type(value) is list


def remaining_fields(block: dict[str, Any], *common_fields: str) -> dict[str, Any] | None:
    """Return the fields of a block that the common fields do not hold; None if there are none."""
    return {name: value for name, value in block.items() if name not in common_fields} or None


def overlay(block: dict[str, Any], native: Any) -> dict[str, Any]:
    """Return a block with the remaining fields of the provider, which never replace the common ones."""
    return block | native | block if is_dict(native) else block


def extract_text(block: dict[str, Any], *paths: BlockPath) -> tuple[str, dict[str, Any]] | None:
    """Move texts out of a block. Return them as one text, and the remainder; None if one is not a str."""
    values = [value_at(block, path) for path in paths]
    if not all(type(value) is str for value in values):
        return None
    for path in paths:
        block = replace_at(block, path, None)
    native: dict[str, Any] = {BLOCK: block}
    if paths:
        native[AT] = [list(path) for path in paths]
    if len(paths) > 1:
        native[CUT] = [len(value) for value in values]
    return _TEXT_SEPARATOR.join(values), native


def is_extracted(native: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether this remainder was made by extract_text()."""
    return type(native) is dict and BLOCK in native


def restore_block(native: dict[str, Any], text: str | None) -> dict[str, Any]:
    """Return the block from which extract_text() moved a text."""
    block: dict[str, Any] = dict(native[BLOCK])
    start = 0
    text = text or ""
    paths = native.get(AT, ())
    lengths = native.get(CUT) or [len(text)] * len(paths)
    for path, length in zip(paths, lengths, strict=True):
        block = replace_at(block, path, text[start : start + length])
        start += length + len(_TEXT_SEPARATOR)
    return block


def has_remainder(parts: Sequence[Part], native: Any) -> bool:
    """Return whether a message has anything beyond its common fields."""
    return native is not None or any(
        part.native is not None or (type(part) is ToolResultPart and part.content is not None) for part in parts
    )


def matches_common_fields(reread: Sequence[Draft], role: Role, parts: Sequence[Part]) -> bool:
    """Return whether a message, written with its remainder and read again, has the common fields that are stored."""
    output_parts = [part for draft in reread for part in draft.parts]
    output_parts.reverse()
    for part in parts:
        if output_parts and is_same_part(output_parts[-1], part):
            output_parts.pop()
        elif part.native is not None:  # without a remainder, the format may have no block for the part
            return False
    return not output_parts and all(draft.role == role or {draft.role, role} == {"user", "tool"} for draft in reread)


def is_well_formed(native: Any) -> bool:
    """Return whether the further fields of a message, if its remainder has any, are an object."""
    return native is None or is_dict(native.get("fields", {}))


def is_same_part(output_part: Part, stored_part: Part) -> bool:
    """Return whether a part that would be sent has the same common fields as the stored one."""
    if type(output_part) is not type(stored_part):
        return False
    if type(output_part) is DataPart and type(stored_part) is DataPart:
        return output_part.native == stored_part.native and stored_part.data is UNSET
    for name in stored_part.__struct_fields__:
        if name in ("native", "metadata"):
            continue
        output_value, stored_value = getattr(output_part, name), getattr(stored_part, name)
        if name == "content" and output_value is not None and stored_value is not None:
            if len(output_value) != len(stored_value) or not all(
                is_same_part(*pair) for pair in zip(output_value, stored_value, strict=True)
            ):
                return False
        elif output_value != stored_value and not (name in _OPTIONAL and output_value in (None, "success")):
            return False
    return True


def without_remainder(part: P) -> P:
    """Return a part without its remainder. A DataPart is returned unchanged: it consists of its remainder alone."""
    if type(part) is DataPart:
        return part
    if type(part) is ToolResultPart and part.content is not None:
        return msgspec.structs.replace(
            part, native=None, content=tuple([without_remainder(piece) for piece in part.content])
        )
    return msgspec.structs.replace(part, native=None)


def attachment_payload(part: AttachmentPart) -> str | None:
    """Return the payload that was moved out of the block of a file."""
    if part.data is not None:
        return part.data
    return part.text if part.url is None else part.url


def original_block(part: Part) -> dict[str, Any] | None:
    """Return the original block of a file or of unknown data; None if the part was not read from a block."""
    native = part.native
    if type(part) is AttachmentPart:
        return restore_block(native, attachment_payload(part)) if is_extracted(native) else None
    return dict(native) if is_dict(native) else None


def value_at(value: Any, path: BlockPath) -> Any:
    """Return the value at a path, or a sentinel if there is none."""
    for step in path:
        if is_dict(value):
            value = value.get(step, _MISSING) if type(step) is str else _MISSING
        elif is_list(value) and type(step) is int and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def replace_at(value: Any, path: Sequence[str | int], item: Any) -> Any:
    """Return a copy of a value with another item at a path."""
    if not path:
        return item
    root: Any = list(value) if is_list(value) else dict(value)
    copy = root
    for step in path[:-1]:
        inner = copy[step]
        copy[step] = list(inner) if is_list(inner) else dict(inner)
        copy = copy[step]
    copy[path[-1]] = item
    return root


def read_role(message: dict[str, Any], roles: dict[str, Role], format: str) -> Role:
    """Return the role for a provider's role, or raise InvalidValue with the known ones."""
    name = message.get("role")
    role = roles.get(name) if type(name) is str else None
    if role is not None:
        return role
    choices = ", ".join(roles)
    if "role" not in message:
        raise InvalidValue(
            f'The message has no role. Write {{"role": "user", "content": ...}}; the roles are: {choices}.'
        )
    raise InvalidValue(f"{format} has no role {format_value(name)}. Use one of: {choices}.")


def read_content(
    message: dict[str, Any], read_block: Callable[[dict[str, Any]], Part]
) -> tuple[tuple[Part, ...], Shape]:
    """Read the content of a message. Return its parts and its shape."""
    content = message.get("content")
    if type(content) is str:
        return (TextPart(text=content),), "string"
    if is_list(content):
        return read_blocks(content, read_block), "blocks"
    if content is None:
        return (), "null" if "content" in message else "missing"
    raise InvalidValue(f"The content must be a string or a list of blocks, got {_type_name(content)}.")


def reader_by_type(readers: Mapping[str, Callable[[dict[str, Any]], P]]) -> Callable[[dict[str, Any]], P | DataPart]:
    """Return a function that reads a block by its type; a block of unknown type is stored whole."""

    def read(block: dict[str, Any]) -> P | DataPart:
        kind = block.get("type")
        reader = readers.get(kind) if type(kind) is str else None
        return DataPart(native=block) if reader is None else reader(block)

    return read


def read_text_block(block: dict[str, Any]) -> TextPart | DataPart:
    """Read a block of text, as most providers write it."""
    text = block.get("text")
    if type(text) is not str:
        return DataPart(native=block)
    return TextPart(text=text, native=remaining_fields(block, "type", "text"))


def read_blocks(blocks: list[Any], read_block: Callable[[dict[str, Any]], Part]) -> tuple[Part, ...]:
    """Read each block of a list."""
    for index, block in enumerate(blocks):
        if type(block) is not dict:
            raise InvalidValue(
                f"content[{index}] must be a dict, got {_type_name(block)}. Write text as "
                '{"type": "text", "text": ...}.'
            )
    return tuple([read_block(block) for block in blocks])


def message_remainder(
    parts: Sequence[Part], shape: Shape, empty: Shape, fields: dict[str, Any] | None, **extra: Any
) -> dict[str, Any] | None:
    """Return the remainder that set_content() cannot derive, and the remaining fields; None if there is none."""
    native = dict(extra)
    if fields:
        native["fields"] = fields
    if shape != (_default_shape(parts) if parts else empty):
        native["content"] = shape
    return native or None


def set_content(
    message: dict[str, Any], parts: Sequence[Part], shape: Any, empty: Shape, write_block: WriteBlock
) -> None:
    """Set the content of a message in its original shape; by default, a single plain text is a string."""
    if parts:
        first = parts[0]
        if shape != "blocks" and len(parts) == 1 and type(first) is TextPart and first.native is None:
            message["content"] = first.text
        else:
            message["content"] = write_blocks(parts, write_block)
        return
    shape = shape or empty
    if shape == "blocks":
        message["content"] = []
    elif shape != "missing":
        message["content"] = None


def write_blocks(parts: Sequence[Part], write_block: WriteBlock) -> list[dict[str, Any]]:
    """Return the block of each part that has one in this format."""
    return [block for part in parts if (block := write_block(part)) is not None]


def stored_response(native: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the stored fields of the response that contained a message."""
    response = native.get("response")
    return response if is_dict(response) else None


def sum_usage(usage: Any, *names: str) -> int | None:
    """Return the sum of the named counts of a usage record; None if it has none of them."""
    if not is_dict(usage):
        return None
    counts = [usage[name] for name in names if type(usage.get(name)) is int and 0 <= usage[name] <= _MAX_COUNT]
    return sum(counts) if counts else None


def _default_shape(parts: Sequence[Part]) -> Shape:
    first = parts[0]
    return "string" if len(parts) == 1 and type(first) is TextPart and first.native is None else "blocks"


def _type_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__
