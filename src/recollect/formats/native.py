"""The provider-specific remainder of a message: what its dict holds beyond the common fields.

Reading takes the common fields out of a dict and keeps the rest; writing puts the rest back. So the dict comes back
equal by construction, and no text is kept twice. A stored remainder may come from a file of a stranger, so what it
makes is read again before it is used (is_faithful): if the common fields of that differ from the stored ones, which
are the ones that people see, the message is written from the common fields alone. This file knows no provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeGuard, TypeVar

import msgspec

from recollect.errors import InvalidValue, displayed
from recollect.model.json import UNSET
from recollect.model.message import Draft, Role
from recollect.model.part import AttachmentPart, DataPart, Part, TextPart, ToolResultPart

Shape = Literal["string", "blocks", "null", "missing"]
WriteBlock = Callable[[Any], dict[str, Any] | None]

# A native of {"whole": block} stands for the block itself and is not laid over anything.
WHOLE = "whole"
# A native of {"block": block, "at": [path, ...]} is a block out of which our field was taken. If it was made of several
# texts, "cut" has their lengths.
BLOCK, AT, CUT = "block", "at", "cut"
_BETWEEN = "\n\n"
_MOST = 1 << 53
_MISSING = object()

# Common fields that a format may leave to others: the result of a call need not name its tool.
_OPTIONAL = frozenset({"mime_type", "size", "name", "tool", "status", "error_code", "error_message"})
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, InvalidValue)
"""What a remainder that no reader made may raise when it is put back."""

Path = tuple[str | int, ...]
P = TypeVar("P", bound=Part)


def is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    """Say whether this is a JSON object; exact() has left no other kind of mapping."""
    return type(value) is dict


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Say whether this is a JSON array."""
    return type(value) is list


def rest(block: dict[str, Any], *known: str) -> dict[str, Any] | None:
    """Give the fields of a block that our own fields do not hold."""
    return {name: value for name, value in block.items() if name not in known} or None


def overlay(block: dict[str, Any], native: Any) -> dict[str, Any]:
    """Add the provider's remaining fields to the common ones, which they never replace."""
    if is_dict(native):
        for name, value in native.items():
            block.setdefault(name, value)
    return block


def taken(block: dict[str, Any], *paths: Path) -> tuple[str, dict[str, Any]] | None:
    """Take texts out of a block: as one text, and what gives the block back with it; None if one is no text."""
    values = [_found(block, path) for path in paths]
    if not all(type(value) is str for value in values):
        return None
    for path in paths:
        block = placed(block, path, None)
    native: dict[str, Any] = {BLOCK: block}
    if paths:
        native[AT] = [list(path) for path in paths]
    if len(paths) > 1:
        native[CUT] = [len(value) for value in values]
    return _BETWEEN.join(values), native


def is_taken(native: Any) -> TypeGuard[dict[str, Any]]:
    """Say whether this was made by taken()."""
    return type(native) is dict and BLOCK in native


def restored(native: dict[str, Any], text: str | None) -> dict[str, Any]:
    """Give a block back out of which taken() took a text."""
    block: dict[str, Any] = dict(native[BLOCK])
    start = 0
    text = text or ""
    places = native.get(AT, ())
    lengths = native.get(CUT) or [len(text)] * len(places)
    for path, length in zip(places, lengths, strict=True):
        block = placed(block, path, text[start : start + length])
        start += length + len(_BETWEEN)
    return block


def has_remainder(parts: Sequence[Part], native: Any) -> bool:
    """Return whether a message has anything beyond its common fields."""
    return native is not None or any(
        part.native is not None or (type(part) is ToolResultPart and part.content is not None) for part in parts
    )


def is_faithful(reread: Sequence[Draft], role: Role, parts: Sequence[Part]) -> bool:
    """Return whether a message, written with its remainder and read again, has the common fields that are stored."""
    sent = [part for draft in reread for part in draft.parts]
    sent.reverse()
    for part in parts:
        if sent and is_same(sent[-1], part):
            sent.pop()
        elif part.native is not None:  # without one it may be a part that the format has no block for
            return False
    return not sent and all(draft.role == role or {draft.role, role} == {"user", "tool"} for draft in reread)


def is_wellformed(native: Any) -> bool:
    """Return whether the further fields of a message, if its remainder has any, are an object."""
    return native is None or is_dict(native.get("fields", {}))


def is_same(sent: Part, stored: Part) -> bool:
    """Return whether a part that would be sent says what the stored one says, remainders aside."""
    if type(sent) is not type(stored):
        return False
    if type(sent) is DataPart and type(stored) is DataPart:
        return sent.native == stored.native and stored.data is UNSET
    for name in stored.__struct_fields__:
        if name in ("native", "metadata"):
            continue
        mine, other = getattr(sent, name), getattr(stored, name)
        if name == "content" and mine is not None and other is not None:
            if len(mine) != len(other) or not all(is_same(*pair) for pair in zip(mine, other, strict=True)):
                return False
        elif mine != other and not (name in _OPTIONAL and mine in (None, "success")):
            return False
    return True


def bare(part: P) -> P:
    """Return a part without its remainder. Data has nothing else."""
    if type(part) is DataPart:
        return part
    if type(part) is ToolResultPart and part.content is not None:
        return msgspec.structs.replace(part, native=None, content=tuple([bare(piece) for piece in part.content]))
    return msgspec.structs.replace(part, native=None)


def payload(part: AttachmentPart) -> str | None:
    """Give what was taken out of the block of a file."""
    if part.data is not None:
        return part.data
    return part.text if part.url is None else part.url


def as_it_came(part: Part) -> dict[str, Any] | None:
    """Give the block of a file, or of what our fields do not hold at all; None for a part that never was one."""
    native = part.native
    if type(part) is AttachmentPart:
        return restored(native, payload(part)) if is_taken(native) else None
    return dict(native) if is_dict(native) else None


def _found(value: Any, path: Path) -> Any:
    for step in path:
        if is_dict(value):
            value = value.get(step, _MISSING) if type(step) is str else _MISSING
        elif is_list(value) and type(step) is int and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def placed(value: Any, path: Sequence[str | int], item: Any) -> Any:
    """Copy a value with another item at a place."""
    if not path:
        return item
    copy: Any = list(value) if is_list(value) else dict(value)
    copy[path[0]] = placed(copy[path[0]], path[1:], item)
    return copy


def role_of(message: dict[str, Any], roles: dict[str, Role], format: str) -> Role:
    """Give our role for the provider's, or say which ones there are."""
    name = message.get("role")
    role = roles.get(name) if type(name) is str else None
    if role is not None:
        return role
    choice = ", ".join(roles)
    if "role" not in message:
        raise InvalidValue(f'There is no role. Write {{"role": "user", "content": ...}}; the roles are: {choice}.')
    raise InvalidValue(f"{format} has no role {displayed(name)}. Use one of: {choice}.")


def content_of(message: dict[str, Any], read_block: Callable[[dict[str, Any]], Part]) -> tuple[tuple[Part, ...], Shape]:
    """Read the content of a message, and say in which shape it was."""
    content = message.get("content")
    if type(content) is str:
        return (TextPart(text=content),), "string"
    if is_list(content):
        return read_blocks(content, read_block), "blocks"
    if content is None:
        return (), "null" if "content" in message else "missing"
    raise InvalidValue(f"The content is {_named(content)}. Give a string or a list of blocks.")


def by_kind(readers: Mapping[str, Callable[[dict[str, Any]], P]]) -> Callable[[dict[str, Any]], P | DataPart]:
    """Give what reads a block of any kind: those without a reader of their own are kept as they are."""

    def read(block: dict[str, Any]) -> P | DataPart:
        kind = block.get("type")
        reader = readers.get(kind) if type(kind) is str else None
        return DataPart(native=block) if reader is None else reader(block)

    return read


def read_text(block: dict[str, Any]) -> TextPart | DataPart:
    """Read a block of text, as most providers write it."""
    text = block.get("text")
    if type(text) is not str:
        return DataPart(native=block)
    return TextPart(text=text, native=rest(block, "type", "text"))


def read_blocks(blocks: list[Any], read_block: Callable[[dict[str, Any]], Part]) -> tuple[Part, ...]:
    """Read each block of a list."""
    for place, block in enumerate(blocks):
        if type(block) is not dict:
            raise InvalidValue(
                f'content[{place}] is {_named(block)}, not a dict. Write text as {{"type": "text", "text": ...}}.'
            )
    return tuple([read_block(block) for block in blocks])


def noted(
    parts: Sequence[Part], shape: Shape, empty: Shape, fields: dict[str, Any] | None, **more: Any
) -> dict[str, Any] | None:
    """Note what place_content() would not do by itself, with the message's further fields; None where nothing is."""
    native = dict(more)
    if fields:
        native["fields"] = fields
    if shape != (_usual(parts) if parts else empty):
        native["content"] = shape
    return native or None


def place_content(
    message: dict[str, Any], parts: Sequence[Part], shape: Any, empty: Shape, write_block: WriteBlock
) -> None:
    """Put the content into a message in the shape it had: one bare text is a string unless it was noted otherwise."""
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
    """Write each part that has a block in this format."""
    return [block for part in parts if (block := write_block(part)) is not None]


def kept_response(native: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what was kept of the whole response that a message came in."""
    kept = native.get("response")
    return kept if is_dict(kept) else None


def count(usage: Any, *names: str) -> int | None:
    """Add up the named counts of a usage record; None where it has none of them."""
    if not is_dict(usage):
        return None
    counts = [usage[name] for name in names if type(usage.get(name)) is int and 0 <= usage[name] <= _MOST]
    return sum(counts) if counts else None


def _usual(parts: Sequence[Part]) -> Shape:
    first = parts[0]
    return "string" if len(parts) == 1 and type(first) is TextPart and first.native is None else "blocks"


def _named(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"
