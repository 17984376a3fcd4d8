"""Large payloads inside parts: taken out to be stored once by content hash, and put back.

A string that is moved leaves `{"$blob": hash, ...}` in its place. Base64 is moved as the bytes it stands for, so an
image sent as a base64 block and as a data: URL is the same blob. What people and agents said stays in the part,
where search and SQL find it.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from recollect.model.part import Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

BASE64_FROM = 2_048
TEXT_FROM = 65_536

_SAID = (TextPart, ReasoningPart)
_MARK = "$blob"
_URL = ";base64,"
_LONGEST_PREFIX = 256


def detach(parts: Sequence[Part]) -> tuple[Sequence[Any], dict[str, bytes] | None]:
    """Take large payloads out of the parts: the parts as they are stored, and the payloads by hash.

    None where nothing was changed, which is nearly always.
    """
    found: dict[str, bytes] = {}
    stored: list[Any] = []
    changed = False
    for part in parts:
        if is_plain(part):
            stored.append(part)
            continue
        plain = msgspec.to_builtins(part)
        thinned = {name: value if name == "text" else _thin(value, found) for name, value in plain.items()}
        if found or _MARK in str(thinned):
            stored.append(thinned)
            changed = True
        else:
            stored.append(part)
    return (stored, found) if changed else (parts, None)


def attach(plain: Any, payloads: Mapping[str, bytes]) -> Any:
    """Put the payloads back where detach() took them out."""
    if isinstance(plain, dict):
        if _MARK in plain:
            return _restored(plain, payloads)
        found: dict[str, Any] = {}
        for name, value in plain.items():  # a loop: a comprehension would be a second frame for each level
            found[name] = attach(value, payloads)
        return found
    if isinstance(plain, list):
        return list(map(attach, plain, itertools.repeat(payloads)))
    return plain


def texts(plain: Any) -> set[str]:
    """Name the payloads that are text, in parts as they are stored."""
    found: set[str] = set()
    stack: list[Any] = [plain]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get(_MARK) is not None and item.get("as") == "text":
                found.add(item[_MARK])
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return found


def worth_a_look(text: str) -> bool:
    """Whether parts, written as JSON, could hold a payload or a mark of ours."""
    return len(text) >= BASE64_FROM or _MARK in text


def is_plain(part: Part) -> bool:
    """Whether a part has nothing that could be moved, so that looking into it can be spared."""
    if part.native is not None or part.metadata is not None:
        return False
    if isinstance(part, _SAID):
        return True
    if isinstance(part, ToolCallPart):
        return part.arguments is msgspec.UNSET and len(part.arguments_text or "") < BASE64_FROM
    return isinstance(part, ToolResultPart) and part.content is None and part.data is msgspec.UNSET


def _thin(value: Any, found: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        return value if len(value) < BASE64_FROM else _moved(value, found)
    if isinstance(value, dict):
        thin: dict[str, Any] = {}
        for name, item in value.items():  # a loop: a comprehension would be a second frame for each level
            thin[name] = _thin(item, found)
        # A caller's own "$blob" is wrapped, so that it can not be taken for one of ours.
        return {_MARK: None, "is": thin} if _MARK in value else thin
    if isinstance(value, list | tuple):
        return list(map(_thin, value, itertools.repeat(found)))
    return value


def _moved(text: str, found: dict[str, bytes]) -> Any:
    before, mark, rest = text.partition(_URL) if text.startswith("data:") else ("", "", text)
    if len(before) <= _LONGEST_PREFIX:
        payload = _bytes_of(rest)
        if payload is not None:
            prefix = {"before": before + mark} if mark else {}
            return {_MARK: _keep(payload, found), "as": "base64", **prefix}
    if len(text) < TEXT_FROM:
        return text
    return {_MARK: _keep(text.encode("utf-8", "surrogatepass"), found), "as": "text"}


def _bytes_of(text: str) -> bytes | None:
    """Decode base64, if the text is exactly what encoding the bytes gives back."""
    if len(text) % 4 or not text.isascii():
        return None
    try:
        payload = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return payload if base64.b64encode(payload).decode() == text else None


def _keep(payload: bytes, found: dict[str, bytes]) -> str:
    import hashlib  # noqa: PLC0415  only where there is a payload

    name = hashlib.sha256(payload).hexdigest()
    found[name] = payload
    return name


def _restored(plain: dict[str, Any], payloads: Mapping[str, bytes]) -> Any:
    name = plain[_MARK]
    if name is None:
        found: dict[str, Any] = {}
        for key, value in plain["is"].items():
            found[key] = attach(value, payloads)
        return found
    if plain["as"] == "base64":
        return plain.get("before", "") + base64.b64encode(payloads[name]).decode()
    return payloads[name].decode("utf-8", "surrogatepass")
