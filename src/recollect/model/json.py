"""Exact JSON for user and provider data: a value round-trips unchanged, or InvalidValue is raised.

msgspec encodes nearly everything. Lone surrogates and integers over 64 bits go through the standard json module; such a
text begins with a space, so that decode() uses the same module. Values that JSON cannot represent are rejected: NaN,
keys that are not strings, arbitrary objects, nesting deeper than MAX_DEPTH.

In JSON, a high surrogate followed by a low one always means the character that they encode. encode() puts a
noncharacter between the two and begins the text with two spaces; decode() removes it. encode_standard() writes JSON for
other readers, which decode the pair as that character.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec

from recollect.errors import InvalidValue, format_value

MAX_DEPTH = 500  # levels of nesting; recursive readers stay below Python's recursion limit of 1,000
UNSET = msgspec.UNSET

_PLAIN_TYPES: tuple[Any, ...] = (int, float, dict, list, tuple)
_DISCRIMINATORS = ("role", "type")
_ATOMIC_TYPES = frozenset({str, int, bool, type(None)})

# A high surrogate followed by a low one, and the form that encode() writes. Text that has this form already gets one
# more noncharacter, so that removing one always restores it.
_SEPARATOR = "\uffff"
_ADJACENT_SURROGATES = rf"([\ud800-\udbff])({_SEPARATOR}*)(?=[\udc00-\udfff])"
_SEPARATED_SURROGATES = rf"([\ud800-\udbff]){_SEPARATOR}({_SEPARATOR}*)(?=[\udc00-\udfff])"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class _NotJson(msgspec.DecodeError, ValueError):
    """Text that neither msgspec nor the standard json module can parse."""


def encode(value: Any) -> str:
    """Encode a value, a struct or a sequence of structs as JSON text that decode() restores exactly."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):  # a UnicodeEncodeError is a ValueError
        import re  # noqa: PLC0415

        text = _encode_with_stdlib(value)
        if not re.search(_ADJACENT_SURROGATES, text):
            return " " + _escape_non_ascii(text)
        return "  " + _escape_non_ascii(re.sub(_ADJACENT_SURROGATES, rf"\1\2{_SEPARATOR}", text))
    except RecursionError as error:
        raise _too_deep_error() from error


def encode_standard(value: Any) -> str:
    """Encode JSON text for any reader. Adjacent surrogates become the character that they encode."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):
        return _escape_non_ascii(_encode_with_stdlib(value))
    except RecursionError as error:
        raise _too_deep_error() from error


def _encode_with_stdlib(value: Any) -> str:
    """Encode a value that msgspec rejects: a lone surrogate, or an integer over 64 bits. Surrogates stay unescaped."""
    import json  # noqa: PLC0415  rarely needed, and costs 2 ms at start

    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an integer of more than 4,300 digits
        raise InvalidValue(f"The value cannot be written as JSON: {error}.") from error


def _escape_non_ascii(text: str) -> str:
    """Escape all non-ASCII characters in JSON text, where they only occur in strings."""
    import json  # noqa: PLC0415
    import re  # noqa: PLC0415

    return re.sub(r"[^\x00-\x7f]+", lambda match: json.dumps(match[0])[1:-1], text)


def _remove_separators(value: Any) -> Any:
    """Remove the noncharacters that encode() put between adjacent surrogates."""
    import re  # noqa: PLC0415

    if isinstance(value, str):
        return re.sub(_SEPARATED_SURROGATES, r"\1\2", value)
    if isinstance(value, list):
        return list(map(_remove_separators, value))
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        for key, item in value.items():  # a loop, because a comprehension adds a second frame per nesting level
            fields[_remove_separators(key)] = _remove_separators(item)
        return fields
    return value


def decode(text: str | bytes) -> Any:
    """Decode JSON text into plain data."""
    try:
        if text[:1] in (" ", b" "):
            return _decode_with_stdlib(text)
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _decode_with_stdlib(text)
    except TypeError as error:  # a damaged file may contain a number or NULL
        raise _not_text_error(text) from error


def _decode_with_stdlib(text: str | bytes) -> Any:
    """Decode text that msgspec rejects, or that encode() marked with a leading space."""
    import json  # noqa: PLC0415

    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise _NotJson(str(error)) from error
    return _remove_separators(plain) if text[:2] in ("  ", b"  ") else plain


def _not_text_error(text: object) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"JSON text must be a str or bytes, got {format_value(text)}")


@functools.cache
def decoder(kind: Any) -> Callable[[str | bytes], Any]:
    """Return a function that decodes text that msgspec wrote (it does not begin with a space) into a type."""
    return msgspec.json.Decoder(kind).decode


def decode_as(kind: Any, text: str | bytes) -> Any:
    """Decode JSON text that encode() wrote into a type."""
    try:
        if text[:1] in (" ", b" "):
            return msgspec.convert(_decode_with_stdlib(text), kind)
    except TypeError as error:
        raise _not_text_error(text) from error
    return decoder(kind)(text)


def to_json_data(value: Any) -> Any:
    """Return the value as plain JSON data. Raise InvalidValue if JSON cannot represent it exactly.

    An object of a provider's SDK becomes the dict that it was parsed from.
    """
    if _is_plain(value):
        return value
    try:
        return _unwrap(value, 0)
    except RecursionError as error:
        raise _too_deep_error() from error
    except InvalidValue:
        raise
    except Exception as error:  # raised by code of the object: a property, model_dump(), an iterator
        raise InvalidValue(
            f"The value cannot be read as JSON: {format_value(value)} raised {type(error).__name__}."
        ) from error


def _is_plain(value: Any) -> bool:
    """Return whether a value is plain JSON data already. An explicit stack avoids a recursion error on deep nesting."""
    levels = [iter((value,))]
    while levels:
        for item in levels[-1]:
            kind = type(item)
            if kind in _ATOMIC_TYPES or (kind is float and math.isfinite(item)):
                continue
            if kind is dict:
                _check_keys(item)
                item = item.values()  # noqa: PLW2901
            elif kind is not list:
                return False
            if len(levels) > MAX_DEPTH:
                raise _too_deep_error()
            levels.append(iter(item))
            break
        else:
            levels.pop()
    return True


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) is not str:
            raise InvalidValue(f"A key of a JSON object must be a str, got {format_value(key)}.")


def _unwrap(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMIC_TYPES:
        return value
    if depth > MAX_DEPTH:
        raise _too_deep_error()
    if kind is dict:
        _check_keys(value)
        return {key: _unwrap(item, depth + 1) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_unwrap(item, depth + 1) for item in value]
    if kind is float:
        return _check_finite(value)
    return _unwrap_object(value, depth)


def _check_finite(value: float) -> float:
    if math.isfinite(value):
        return value
    raise InvalidValue(f"A number must be finite, got {value}. Use null or a string instead.")


def _unwrap_object(value: Any, depth: int) -> Any:
    """Convert a provider's object, a subclass of a plain type or a dataclass. Raise InvalidValue for others."""
    if hasattr(value, "model_dump"):  # pydantic: both official SDKs
        return _unwrap(_dump_model(value), depth)
    if isinstance(value, msgspec.Struct):
        return _unwrap(fields_of(value), depth)
    if isinstance(value, str):
        return str.__str__(value)
    for plain in _PLAIN_TYPES:
        if isinstance(value, plain):
            return _unwrap(plain(value), depth)
    if hasattr(value, "__dataclass_fields__"):
        return _unwrap({name: getattr(value, name) for name in value.__dataclass_fields__}, depth)
    raise InvalidValue(
        f"A value must be plain JSON data, got {type(value).__name__}. Use str, int, float, list and dict; for bytes, "
        "base64."
    )


def fields_of(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a struct under the names that msgspec writes, with unconverted values: bytes stay bytes."""
    fields = msgspec.structs.asdict(struct)
    tag = struct.__struct_config__.tag
    plain = {name: value for name, value in fields.items() if value is not UNSET}
    return plain if tag is None else {str(struct.__struct_config__.tag_field): tag, **plain}


def _dump_model(model: Any) -> Any:
    """Return a pydantic object as its provider sent it: the fields that were set, under their wire names.

    Unset fields hold defaults of the SDK and would not round-trip. But a program that builds an object may leave `role`
    and `type` at their defaults, and without them the object is not a message.
    """
    options: dict[str, Any] = {"mode": "json", "by_alias": True, "warnings": False}
    full_data = model.model_dump(**options)
    return _add_discriminators(model.model_dump(**options, exclude_unset=True), full_data)


def _add_discriminators(data: Any, full_data: Any) -> Any:
    """Add `role` and `type` to each object that lacks them, from a dump with all fields."""
    if isinstance(data, dict) and isinstance(full_data, dict):
        discriminators = {name: full_data[name] for name in _DISCRIMINATORS if isinstance(full_data.get(name), str)}
        fields: dict[str, Any] = {**discriminators, **data}
        for name, value in data.items():
            if name in full_data:
                fields[name] = _add_discriminators(value, full_data[name])
        return fields
    if isinstance(data, list) and isinstance(full_data, list) and len(data) == len(full_data):
        return list(map(_add_discriminators, data, full_data))
    return data


def escape_surrogates(text: str) -> str:
    """Return a text that a database column can hold: a lone surrogate is replaced by its escape sequence."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def escape_nul(text: str) -> str:
    """Return a text without NUL, which PostgreSQL cannot hold, and at which the JSON functions of SQLite end a text.

    NUL is written as U+0010 and `0`, and U+0010 itself, which hardly any text contains, as U+0010 and `p`.
    """
    # The escape character first: afterwards it would be escaped again where it marks a NUL.
    return text.replace("\x10", "\x10p").replace("\0", "\x100")


def _too_deep_error() -> InvalidValue:
    return InvalidValue(f"A value must be nested at most {MAX_DEPTH} levels deep. Flatten it, or store it as a str.")
