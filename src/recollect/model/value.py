"""The base class of all values: immutable, with JSON conversion.

Times are milliseconds in memory and ISO 8601 in JSON.
"""

from __future__ import annotations

import datetime
import functools
from typing import Any, Self

import msgspec

from recollect.model import json

_UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def format_iso(milliseconds: int) -> str:
    """Return a time as ISO 8601: 1763287200123 is 2025-11-16T10:00:00.123Z."""
    seconds, remainder = divmod(milliseconds, 1000)
    return f"{_format_second(seconds)}.{remainder:03d}Z"


@functools.lru_cache(4096)
def _format_second(seconds: int) -> str:
    """Return a whole second as ISO 8601. It is cached, because the messages of one answer often share theirs."""
    return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()[:19]


def parse_iso(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds. Without a zone, it is UTC."""
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=_UTC)
    return (time - _EPOCH) // _MILLISECOND


def _is_time_field(name: str) -> bool:
    return name.endswith("_at") and name != "fork_at"


@functools.cache
def _time_fields(kind: type[Value]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if _is_time_field(name))


class Value(msgspec.Struct, frozen=True, gc=False):
    """An immutable record. Fields whose names end in `_at` are times, except `fork_at`, which is a position."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, times as ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name in _time_fields(type(self)):
            value = plain[name]
            if isinstance(value, int):
                plain[name] = format_iso(value)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Convert the result of to_dict() back."""
        fields = {
            name: parse_iso(value) if _is_time_field(name) and isinstance(value, str) else value
            for name, value in plain.items()
        }
        return msgspec.convert(fields, cls)

    def to_json(self) -> bytes:
        """Return to_dict() as JSON text."""
        return json.encode(self.to_dict()).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Convert the result of to_json() back."""
        return cls.from_dict(json.decode(text))
