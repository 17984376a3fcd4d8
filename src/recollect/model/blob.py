"""Blobs: large payloads that are moved out of parts, stored once by content hash, and put back.

A moved string leaves `{"$blob": hash, ...}` in its position. Base64 is moved as the decoded bytes, so an image sent as
a base64 block and as a data: URL is the same blob. Message text stays in the part, where search and SQL find it.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from recollect.model.message import Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

MIN_BASE64_LENGTH = 2_048  # characters. A shorter payload costs less in its row than as a row of its own.
MIN_TEXT_LENGTH = 65_536  # characters. Shorter text stays in the row, where SQL can read it.

_TEXT_PARTS = (TextPart, ReasoningPart)
_BLOB_KEY = "$blob"
_DATA_URL_MARK = ";base64,"
_MAX_PREFIX = 256  # characters before `;base64,` in a data: URL; a media type is shorter, other text is not a URL


def detach_payloads(parts: Sequence[Part]) -> tuple[Sequence[Any], dict[str, bytes] | None]:
    """Move large payloads out of the parts. Return the parts as they are stored, and the payloads by hash.

    The second value is None if no payload was moved, which is the usual case.
    """
    payloads: dict[str, bytes] = {}
    stored_parts: list[Any] = []
    changed = False
    for part in parts:
        if has_no_payload(part):
            stored_parts.append(part)
            continue
        plain = msgspec.to_builtins(part)
        reduced_fields = {
            name: value if name == "text" else _detach_value(value, payloads) for name, value in plain.items()
        }
        if payloads or _BLOB_KEY in str(reduced_fields):  # the latter: a "$blob" key of the caller, which is wrapped
            stored_parts.append(reduced_fields)
            changed = True
        else:
            stored_parts.append(part)
    return (stored_parts, payloads) if changed else (parts, None)


def attach_payloads(plain: Any, payloads: Mapping[str, bytes]) -> Any:
    """Return stored parts with their payloads, the inverse of detach_payloads()."""
    if isinstance(plain, dict):
        if _BLOB_KEY in plain:
            return _restore(plain, payloads)
        result: dict[str, Any] = {}
        for name, value in plain.items():  # a loop, because a comprehension adds a second frame per nesting level
            result[name] = attach_payloads(value, payloads)
        return result
    if isinstance(plain, list):
        return list(map(attach_payloads, plain, itertools.repeat(payloads)))
    return plain


def text_payload_hashes(plain: Any) -> set[str]:
    """Return the hashes of the payloads that are text, in parts as they are stored."""
    hashes: set[str] = set()
    stack: list[Any] = [plain]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get(_BLOB_KEY) is not None and item.get("as") == "text":
                hashes.add(item[_BLOB_KEY])
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return hashes


def may_hold_payloads(text: str) -> bool:
    """Return whether parts, written as JSON, could contain a payload or a blob reference."""
    return len(text) >= MIN_BASE64_LENGTH or _BLOB_KEY in text


def has_no_payload(part: Part) -> bool:
    """Return whether a part has nothing that could be moved, so that it need not be converted and searched."""
    if part.native is not None or part.metadata is not None:
        return False
    if isinstance(part, _TEXT_PARTS):
        return True
    if isinstance(part, ToolCallPart):
        return part.arguments is msgspec.UNSET and len(part.arguments_text or "") < MIN_BASE64_LENGTH
    return isinstance(part, ToolResultPart) and part.content is None and part.data is msgspec.UNSET


def _detach_value(value: Any, payloads: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        return value if len(value) < MIN_BASE64_LENGTH else _detach_text(value, payloads)
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        for name, item in value.items():  # a loop, because a comprehension adds a second frame per nesting level
            fields[name] = _detach_value(item, payloads)
        # A "$blob" key of the caller is wrapped, so that it cannot be mistaken for a reference.
        return {_BLOB_KEY: None, "is": fields} if _BLOB_KEY in value else fields
    if isinstance(value, list | tuple):
        return list(map(_detach_value, value, itertools.repeat(payloads)))
    return value


def _detach_text(text: str, payloads: dict[str, bytes]) -> Any:
    prefix, separator, encoded_text = text.partition(_DATA_URL_MARK) if text.startswith("data:") else ("", "", text)
    if len(prefix) <= _MAX_PREFIX:
        payload = _decode_base64(encoded_text)
        if payload is not None:
            extra = {"before": prefix + separator} if separator else {}
            return {_BLOB_KEY: _add_payload(payload, payloads), "as": "base64", **extra}
    if len(text) < MIN_TEXT_LENGTH:
        return text
    return {_BLOB_KEY: _add_payload(text.encode("utf-8", "surrogatepass"), payloads), "as": "text"}


def _decode_base64(text: str) -> bytes | None:
    """Decode base64, or return None if encoding the bytes again would not yield exactly this text."""
    if len(text) % 4 or not text.isascii():
        return None
    try:
        payload = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return payload if base64.b64encode(payload).decode() == text else None


def _add_payload(payload: bytes, payloads: dict[str, bytes]) -> str:
    import hashlib  # noqa: PLC0415  only needed for a payload

    hash = hashlib.sha256(payload).hexdigest()
    payloads[hash] = payload
    return hash


def _restore(plain: dict[str, Any], payloads: Mapping[str, bytes]) -> Any:
    hash = plain[_BLOB_KEY]
    if hash is None:
        fields: dict[str, Any] = {}
        for key, value in plain["is"].items():
            fields[key] = attach_payloads(value, payloads)
        return fields
    if plain["as"] == "base64":
        return plain.get("before", "") + base64.b64encode(payloads[hash]).decode()
    return payloads[hash].decode("utf-8", "surrogatepass")
