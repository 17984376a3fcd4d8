"""What all values share: immutability, JSON in and out, times as milliseconds inside and ISO 8601 outside."""

from __future__ import annotations

import datetime
import functools
from typing import Any, Self

import msgspec

from recollect.model import json

_UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def iso(milliseconds: int) -> str:
    """Write a time as ISO 8601: 1763287200123 is 2025-11-16T10:00:00.123Z."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@functools.lru_cache(4096)
def _second(seconds: int) -> str:
    """Write a whole second; messages of one answer share theirs."""
    return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()[:19]


def milliseconds(text: str) -> int:
    """Read a time written as ISO 8601; one without a zone is taken as UTC."""
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_UTC)
    return (moment - _EPOCH) // _MILLISECOND


def _is_time(name: str) -> bool:
    return name.endswith("_at") and name != "fork_at"


@functools.cache
def _times(kind: type[Value]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if _is_time(name))


class Value(msgspec.Struct, frozen=True, gc=False):
    """An immutable record. Fields whose name ends in `_at` are times (but `fork_at` is a position)."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, times as ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name in _times(type(self)):
            value = plain[name]
            if isinstance(value, int):
                plain[name] = iso(value)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Read what to_dict() gave."""
        fields = {
            name: milliseconds(value) if _is_time(name) and isinstance(value, str) else value
            for name, value in plain.items()
        }
        return msgspec.convert(fields, cls)

    def to_json(self) -> bytes:
        """Give to_dict() as JSON text."""
        return json.encode(self.to_dict()).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Read what to_json() gave."""
        return cls.from_dict(json.decode(text))
