"""JSON for what people and providers send: exact, or refused.

msgspec does nearly all of it. What it can not carry (lone surrogates, integers over 64 bits) goes through the
standard json module, and the text then begins with a space, so that the reader takes the same way back. What JSON
itself can not carry is refused with a sentence: NaN, keys that are not text, objects, nesting beyond DEPTH.

JSON has no way to write a high surrogate followed by a low one without meaning the character that they encode. encode()
puts a noncharacter between the two, and begins the text with two spaces; decode() removes it. standard() writes JSON
for other readers, to whom the two are that character.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec

from recollect.errors import InvalidValue, displayed

DEPTH = 500
UNSET = msgspec.UNSET

_PLAIN: tuple[Any, ...] = (int, float, dict, list, tuple)
_DISCRIMINATORS = ("role", "type")
_ATOMS = frozenset({str, int, bool, type(None)})

# A high surrogate that a low one follows, and what encode() writes for it. Text that looks like that already gets one
# more noncharacter, so that removing one always restores it.
_BETWEEN = "\uffff"
_ADJACENT = rf"([\ud800-\udbff])({_BETWEEN}*)(?=[\udc00-\udfff])"
_SEPARATED = rf"([\ud800-\udbff]){_BETWEEN}({_BETWEEN}*)(?=[\udc00-\udfff])"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class NotJson(msgspec.DecodeError, ValueError):
    """Text that neither msgspec nor the standard module can read."""


def encode(value: Any) -> str:
    """Write a value, a struct or a sequence of structs, as JSON text."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):  # a UnicodeEncodeError is a ValueError
        import re  # noqa: PLC0415

        text = _carefully(value)
        if not re.search(_ADJACENT, text):
            return " " + _escaped(text)
        return "  " + _escaped(re.sub(_ADJACENT, rf"\1\2{_BETWEEN}", text))
    except RecursionError as error:
        raise _too_deep() from error


def standard(value: Any) -> str:
    """Write JSON text that any reader understands. Adjacent surrogates become the character that they encode."""
    try:
        return _encoder.encode(value).decode()
    except (ValueError, OverflowError):
        return _escaped(_carefully(value))
    except RecursionError as error:
        raise _too_deep() from error


def _carefully(value: Any) -> str:
    """Write what msgspec cannot, with surrogates as they are."""
    import json  # noqa: PLC0415  needed for what is rare, and 2 ms of starting

    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an integer of more than 4,300 digits
        raise InvalidValue(f"This value can not be written as JSON: {error}.") from error


def _escaped(text: str) -> str:
    """Escape what is not ASCII in JSON text, where it can only be part of a string."""
    import json  # noqa: PLC0415
    import re  # noqa: PLC0415

    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)


def _parted(value: Any) -> Any:
    """Remove what encode() put between adjacent surrogates."""
    import re  # noqa: PLC0415

    if isinstance(value, str):
        return re.sub(_SEPARATED, r"\1\2", value)
    if isinstance(value, list):
        return list(map(_parted, value))
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():  # a loop: a comprehension would be a second frame for each level
            found[_parted(key)] = _parted(item)
        return found
    return value


def decode(text: str | bytes) -> Any:
    """Read JSON text into plain data."""
    try:
        if text[:1] in (" ", b" "):
            return _read_carefully(text)
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _read_carefully(text)
    except TypeError as error:  # a damaged file may have a number there, or nothing
        raise _no_text(text) from error


def _read_carefully(text: str | bytes) -> Any:
    """Read what msgspec can not."""
    import json  # noqa: PLC0415

    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from error
    return _parted(plain) if text[:2] in ("  ", b"  ") else plain


def _no_text(text: object) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"there is no text, but {displayed(text)}")


@functools.cache
def decoder(kind: Any) -> Callable[[str | bytes], Any]:
    """Give what reads text that msgspec wrote, which does not begin with a space, into a type."""
    return msgspec.json.Decoder(kind).decode


def decode_as(kind: Any, text: str | bytes) -> Any:
    """Read JSON text that encode() wrote into the type it had."""
    try:
        if text[:1] in (" ", b" "):
            return msgspec.convert(_read_carefully(text), kind)
    except TypeError as error:
        raise _no_text(text) from error
    return decoder(kind)(text)


def exact(value: Any) -> Any:
    """Give the value back as plain JSON data if JSON can carry it exactly; refuse it otherwise.

    Objects of the providers' SDKs become the dicts they were made from.
    """
    if _is_plain(value):
        return value
    try:
        return _unwrapped(value, 0)
    except RecursionError as error:
        raise _too_deep() from error
    except InvalidValue:
        raise
    except Exception as error:  # of an object's own code: a property, model_dump(), an iterator
        raise InvalidValue(f"{displayed(value)} could not be read as JSON: {type(error).__name__}.") from error


def _is_plain(value: Any) -> bool:
    """Whether a value is plain JSON data already. It looks with a stack of its own, which no nesting overflows."""
    levels = [iter((value,))]
    while levels:
        for item in levels[-1]:
            kind = type(item)
            if kind in _ATOMS or (kind is float and math.isfinite(item)):
                continue
            if kind is dict:
                _check_keys(item)
                item = item.values()  # noqa: PLW2901
            elif kind is not list:
                return False
            if len(levels) > DEPTH:
                raise _too_deep()
            levels.append(iter(item))
            break
        else:
            levels.pop()
    return True


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) is not str:
            raise InvalidValue(f"A key of a JSON object must be text, not {displayed(key)}. Write it as a string.")


def _unwrapped(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if depth > DEPTH:
        raise _too_deep()
    if kind is dict:
        _check_keys(value)
        return {key: _unwrapped(item, depth + 1) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_unwrapped(item, depth + 1) for item in value]
    if kind is float:
        return _finite(value)
    return _unwrapped_object(value, depth)


def _finite(value: float) -> float:
    if math.isfinite(value):
        return value
    raise InvalidValue(f"JSON has no {value}. Send null or a string instead.")


def _unwrapped_object(value: Any, depth: int) -> Any:
    """Unwrap a provider's object, a subclass of a plain type or a mapping; refuse the rest."""
    if hasattr(value, "model_dump"):  # pydantic: both official SDKs
        return _unwrapped(_dumped(value), depth)
    if isinstance(value, msgspec.Struct):
        return _unwrapped(fields_of(value), depth)
    if isinstance(value, str):
        return str.__str__(value)
    for plain in _PLAIN:
        if isinstance(value, plain):
            return _unwrapped(plain(value), depth)
    if hasattr(value, "__dataclass_fields__"):
        return _unwrapped({name: getattr(value, name) for name in value.__dataclass_fields__}, depth)
    raise InvalidValue(
        f"{type(value).__name__} can not be stored as JSON. Send text, numbers, lists and dicts; bytes as base64."
    )


def fields_of(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a struct as msgspec would write them, and their values as they are: bytes stay bytes."""
    fields = msgspec.structs.asdict(struct)
    tag = struct.__struct_config__.tag
    plain = {name: value for name, value in fields.items() if value is not UNSET}
    return plain if tag is None else {str(struct.__struct_config__.tag_field): tag, **plain}


def _dumped(model: Any) -> Any:
    """Return a pydantic object as its provider sent it: what was set, under the names of the wire, and what it is.

    Fields that were not set are the SDK's own and would come back different. But an object that a program builds may
    have its `role` and `type` by default, and without them it is no message.
    """
    options: dict[str, Any] = {"mode": "json", "by_alias": True, "warnings": False}
    whole = model.model_dump(**options)
    return _discriminated(model.model_dump(**options, exclude_unset=True), whole)


def _discriminated(sent: Any, whole: Any) -> Any:
    """Add the `role` and `type` of each object, where they were not set, from a dump that has every field."""
    if isinstance(sent, dict) and isinstance(whole, dict):
        named = {name: whole[name] for name in _DISCRIMINATORS if isinstance(whole.get(name), str)}
        found: dict[str, Any] = {**named, **sent}
        for name, value in sent.items():
            if name in whole:
                found[name] = _discriminated(value, whole[name])
        return found
    if isinstance(sent, list) and isinstance(whole, list) and len(sent) == len(whole):
        return list(map(_discriminated, sent, whole))
    return sent


def storable(text: str) -> str:
    """Give a text that a database column can hold: half of a surrogate pair is written out as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _too_deep() -> InvalidValue:
    return InvalidValue(f"This value is nested more than {DEPTH} levels deep. Flatten it, or store it as text.")
