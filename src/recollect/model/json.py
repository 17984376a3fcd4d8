"""JSON for what people and providers send: exact, or refused.

msgspec does nearly all of it. What it can not carry (lone surrogates, integers over 64 bits) goes through the
standard json module, and the text then begins with a space, so that the reader takes the same way back. What JSON
itself can not carry is refused with a sentence: NaN, keys that are not text, objects, nesting beyond DEPTH.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import msgspec

from recollect.errors import InvalidValue

DEPTH = 500
UNSET = msgspec.UNSET
_INT64 = 1 << 63

_PLAIN: tuple[Any, ...] = (int, float, dict, list, tuple)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> str:
    """Write a value, a struct or a sequence of structs, as JSON text."""
    try:
        return _encoder.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return " " + json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise _too_deep() from error


def decode(text: str | bytes) -> Any:
    """Read JSON text into plain data."""
    try:
        if text[:1] in (" ", b" "):
            return json.loads(text)
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(text)


@functools.cache
def _typed(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_as(kind: Any, text: str | bytes) -> Any:
    """Read JSON text that encode() wrote into the type it had."""
    if text[:1] in (" ", b" "):
        return msgspec.convert(json.loads(text), kind)
    return _typed(kind).decode(text)


def exact(value: Any, depth: int = 0) -> Any:
    """Give the value back as plain JSON data if JSON can carry it exactly; refuse it otherwise.

    Objects of the providers' SDKs become the dicts they were made from.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is int:
        return value
    if depth > DEPTH:
        raise _too_deep()
    if kind is dict:
        return _exact_dict(value, depth)
    if kind is list or kind is tuple:
        return [exact(item, depth + 1) for item in value]
    if kind is float:
        return _exact_float(value)
    return _exact_object(value, depth)


def _exact_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    for key in value:
        if type(key) is not str:
            raise InvalidValue(f"A key of a JSON object must be text, not {key!r}. Write it as a string.")
    return {key: exact(item, depth + 1) for key, item in value.items()}


def _exact_float(value: float) -> float:
    if math.isfinite(value):
        return value
    raise InvalidValue(f"JSON has no {value}. Send null or a string instead.")


def _exact_object(value: Any, depth: int) -> Any:
    """Unwrap a provider's object, a subclass of a plain type or a mapping; refuse the rest."""
    if hasattr(value, "model_dump"):  # pydantic: both official SDKs; only what was set, under the wire's names
        return exact(value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False), depth)
    if isinstance(value, msgspec.Struct):
        return exact(msgspec.to_builtins(value), depth)
    if isinstance(value, str):
        return str.__str__(value)
    for plain in _PLAIN:
        if isinstance(value, plain):
            return exact(plain(value), depth)
    if hasattr(value, "__dataclass_fields__"):
        return exact({name: getattr(value, name) for name in value.__dataclass_fields__}, depth)
    raise InvalidValue(
        f"{type(value).__name__} can not be stored as JSON. Send text, numbers, lists and dicts; bytes as base64."
    )


def _too_deep() -> InvalidValue:
    return InvalidValue(f"This value is nested more than {DEPTH} levels deep. Flatten it, or store it as text.")
