"""Exact JSON for user and provider data: a value round-trips unchanged, or InvalidValue is raised.

msgspec encodes nearly everything. Lone surrogates and integers over 64 bits go through the standard json module; such a
text begins with a space, so that decode() uses the same module. Every value of a caller passes through to_json_data(),
which refuses in one sentence what JSON cannot represent: NaN, keys that are not strings, arbitrary objects, nesting
deeper than MAX_DEPTH, integers of more than MAX_DIGITS digits.

In JSON, a high surrogate followed by a low one always means the character that they encode. encode() puts a
noncharacter between the two and begins the text with two spaces; decode() removes it. encode_standard() writes JSON for
other readers, which decode the pair as that character.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from recollect.errors import InvalidValue, format_value

MAX_DEPTH = 500  # levels of nesting; recursive readers stay below Python's recursion limit of 1,000
MAX_DIGITS = 4_300  # of an integer: Python parses no more by default, so other programs could not read the text
UNSET = msgspec.UNSET

_PLAIN_TYPES: tuple[Any, ...] = (int, float, dict, list, tuple)
_DISCRIMINATORS = ("role", "type")
_ATOMIC_TYPES = frozenset({str, bool, type(None)})
_UPPER_LIMIT = 10**MAX_DIGITS  # of integers, exclusive: the first one with one digit more
_LOWER_LIMIT = -_UPPER_LIMIT  # computed once, because the negation of such an integer copies it

# A high surrogate followed by a low one, and the form that encode() writes. Text that has this form already gets one
# more noncharacter, so that removing one always restores it.
_SEPARATOR = "\uffff"
_ADJACENT_SURROGATES = rf"([\ud800-\udbff])({_SEPARATOR}*)(?=[\udc00-\udfff])"
_SEPARATED_SURROGATES = rf"([\ud800-\udbff]){_SEPARATOR}({_SEPARATOR}*)(?=[\udc00-\udfff])"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class _NotJson(msgspec.DecodeError, ValueError):
    """Text that neither msgspec nor the standard json module can parse."""


class _NotRepresentable(Exception):
    """Internal: JSON cannot represent a value, for the reason in the text; to_json_data() raises InvalidValue."""


def encode(value: Any) -> str:
    """Encode a value, a struct or a sequence of structs as JSON text that decode() restores exactly."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):  # a UnicodeEncodeError is a ValueError
        text, has_separators = _encode_rare(value)
        return ("  " if has_separators else " ") + text
    except RecursionError as error:
        raise _refusal("value", _TOO_DEEP) from error


def encode_standard(value: Any) -> str:
    """Encode JSON text for any reader. Adjacent surrogates become the character that they encode."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):
        return _escape_non_ascii(_encode_with_stdlib(value))
    except RecursionError as error:
        raise _refusal("value", _TOO_DEEP) from error


def encode_forms(value: Any) -> tuple[str, str]:
    """Return both texts that a value has inside those of encode(): the usual one, and the one after a leading space."""
    return encode(value).lstrip(" "), _encode_rare(value)[0]


def _encode_rare(value: Any) -> tuple[str, bool]:
    """Encode a value that msgspec rejects as ASCII, and return whether separators were added."""
    import re  # noqa: PLC0415

    text, count = re.subn(_ADJACENT_SURROGATES, rf"\1\2{_SEPARATOR}", _encode_with_stdlib(value))
    return _escape_non_ascii(text), bool(count)


def _encode_with_stdlib(value: Any) -> str:
    """Encode a value that msgspec rejects: a lone surrogate, or an integer over 64 bits. Surrogates stay unescaped."""
    import json  # noqa: PLC0415  rarely needed, and costs 2 ms at start

    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an integer with more digits than this process allows
        raise _refusal("value", _TOO_MANY_DIGITS) from error


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


_RULE = (
    "JSON data is str, int, finite float, bool, None, lists, and dicts with str keys, nested at most "
    f"{MAX_DEPTH} levels. Encode bytes as base64, and times as ISO 8601."
)
_TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"
_TOO_MANY_DIGITS = f"an integer of more than {MAX_DIGITS:,} digits"
_MAX_PATH_LENGTH = 200  # characters of the path to a value in an error, about two lines


def to_json_data(value: Any, name: str = "value") -> Any:
    """Return the value as plain JSON data. Raise InvalidValue if JSON cannot represent it exactly.

    The error names the argument `name` and the path to the item. An object of a provider's SDK becomes the dict that it
    was parsed from.
    """
    try:
        return value if _is_plain(value) else _unwrap(value, 0)
    except _NotRepresentable as error:
        problem = str(error)
        path = "" if problem == _TOO_DEEP else _find_problem(value)[0]
        raise _refusal(name + path, problem) from None
    except RecursionError as error:
        raise _refusal(name, _TOO_DEEP) from error
    except Exception as error:  # raised by code of an object: a property, model_dump(), an iterator
        path, item = _find_problem(value)
        raise _refusal(name + path, f"{format_value(item)} that raised {type(error).__name__}") from error


def copy_json_data(value: Any) -> Any:
    """Return a copy of plain JSON data that shares no dict or list with it."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json_data(item) for key, item in value.items()}
    return list(map(copy_json_data, value)) if kind is list else value


def _refusal(subject: str, problem: str) -> InvalidValue:
    return InvalidValue(f"{subject} must be JSON data, got {problem}. {_RULE}")


def _find_problem(value: Any) -> tuple[str, Any]:
    """Return the path to the first item that JSON cannot represent, such as `['a'][0]`, and the item.

    The path to the value itself is empty.
    """
    path = ""
    while len(path) <= _MAX_PATH_LENGTH:
        items: Iterable[tuple[Any, Any]] = ()
        if type(value) is dict and all(isinstance(key, str) for key in value):
            items = value.items()
        elif type(value) is list or type(value) is tuple:
            items = enumerate(value)
        problem = next((item for item in items if not _is_representable(item[1])), None)
        if problem is None:
            return path, value
        path += f"[{format_value(problem[0])}]"
        value = problem[1]
    return f"{path[:_MAX_PATH_LENGTH]}...", value


def _is_representable(value: Any) -> bool:
    try:
        _unwrap(value, 0)
    except Exception:  # noqa: BLE001  code of a caller's object may raise any error
        return False
    return True


def _is_plain(value: Any) -> bool:
    """Return whether a value is plain JSON data already. An explicit stack avoids a recursion error on deep nesting."""
    levels = [iter((value,))]
    while levels:
        for item in levels[-1]:
            kind = type(item)
            if kind in _ATOMIC_TYPES or (kind is int and item < _UPPER_LIMIT and item > _LOWER_LIMIT):
                continue
            if kind is float and math.isfinite(item):
                continue
            if kind is int:
                raise _NotRepresentable(_TOO_MANY_DIGITS)
            if kind is dict:
                if not _has_plain_keys(item):
                    return False
                item = item.values()  # noqa: PLW2901
            elif kind is not list:
                return False
            if len(levels) > MAX_DEPTH:
                raise _NotRepresentable(_TOO_DEEP)
            levels.append(iter(item))
            break
        else:
            levels.pop()
    return True


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    """Return whether all keys are plain strings; False if some are of a subclass, such as a string enum."""
    is_plain = True
    for key in value:
        if type(key) is not str:
            if not isinstance(key, str):
                raise _NotRepresentable(f"the key {format_value(key)}")
            is_plain = False
    return is_plain


def _unwrap(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMIC_TYPES:
        return value
    if kind is int:
        if _LOWER_LIMIT < value < _UPPER_LIMIT:
            return value
        raise _NotRepresentable(_TOO_MANY_DIGITS)
    if depth > MAX_DEPTH:
        raise _NotRepresentable(_TOO_DEEP)
    if kind is dict:
        if _has_plain_keys(value):
            return {key: _unwrap(item, depth + 1) for key, item in value.items()}
        return _unwrap(_with_plain_keys(value), depth)
    if kind is list or kind is tuple:
        return [_unwrap(item, depth + 1) for item in value]
    if kind is float:
        return _check_finite(value)
    return _unwrap_object(value, depth)


def _with_plain_keys(value: dict[str, Any]) -> dict[str, Any]:
    plain = {str.__str__(key): item for key, item in value.items()}
    if len(plain) < len(value):
        raise _NotRepresentable("a dict in which two keys are the same text")
    return plain


def _check_finite(value: float) -> float:
    if math.isfinite(value):
        return value
    raise _NotRepresentable(format_value(value))


def _unwrap_object(value: Any, depth: int) -> Any:
    """Convert a provider's object, a mapping, a subclass of a plain type or a dataclass. Raise an error for others."""
    if hasattr(value, "model_dump"):  # pydantic: both official SDKs
        return _unwrap(_dump_model(value), depth)
    if isinstance(value, msgspec.Struct):
        return _unwrap(fields_of(value), depth)
    if isinstance(value, str):
        return str.__str__(value)
    for plain in _PLAIN_TYPES:
        if isinstance(value, plain):
            return _unwrap(plain(value), depth)
    if isinstance(value, Mapping):
        return _unwrap(dict(value), depth)
    if hasattr(value, "__dataclass_fields__"):
        return _unwrap({name: getattr(value, name) for name in value.__dataclass_fields__}, depth)
    raise _NotRepresentable(format_value(value))


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
        # Some SDKs report a role that was not set as set to None.
        fields: dict[str, Any] = {**discriminators, **data}
        for name, value in data.items():
            if name in full_data:
                fields[name] = _add_discriminators(value, full_data[name])
        return {**fields, **discriminators}
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
