"""The base class of all values: immutable, with JSON conversion.

A time has one field and one property. The field `created_at_ms` holds the stored integer: milliseconds since 1970, UTC.
The property `created_at` computes an aware datetime in UTC from it on every access, so that reading a row builds none.
In JSON, the name is `created_at` and the value ISO 8601. The calendar of datetime ends with the year 9999: a stored
time beyond it reads as the last millisecond of that year, and the field still holds the exact integer.
"""

from __future__ import annotations

import datetime
import functools
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

from recollect.model import json

_UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EARLIEST_TIME = -62_135_596_800_000  # milliseconds since 1970: the first one of the year 1
LATEST_TIME = 253_402_300_799_999  # milliseconds since 1970: the last one of the year 9999


def to_datetime(milliseconds: int) -> datetime.datetime:
    """Return a time as an aware datetime in UTC. One outside the calendar becomes the nearest in it."""
    return _EPOCH + datetime.timedelta(milliseconds=min(max(milliseconds, _EARLIEST_TIME), LATEST_TIME))


def format_iso(milliseconds: int) -> str:
    """Return a time as ISO 8601: 1763287200123 is 2025-11-16T10:00:00.123Z. See to_datetime() for its limits."""
    seconds, remainder = divmod(min(max(milliseconds, _EARLIEST_TIME), LATEST_TIME), 1000)
    return f"{_format_second(seconds)}.{remainder:03d}Z"


@functools.lru_cache(4096)
def _format_second(seconds: int) -> str:
    """Return a whole second as ISO 8601. It is cached, because the messages of one answer often share theirs."""
    return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()[:19]


def from_datetime(time: datetime.datetime) -> int:
    """Return a datetime as milliseconds, rounded down. Without a zone, it is UTC."""
    return ((time.replace(tzinfo=_UTC) if time.tzinfo is None else time) - _EPOCH) // _MILLISECOND


def parse_iso(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds. Without a zone, it is UTC."""
    return from_datetime(datetime.datetime.fromisoformat(text))


_TIME_SUFFIX = "_at_ms"  # durations end in `_ms` alone
T_co = TypeVar("T_co", datetime.datetime, datetime.datetime | None, covariant=True)


class TimeProperty(Generic[T_co]):
    """The datetime of a field of milliseconds: `created_at = TimeProperty[datetime]()` reads `created_at_ms`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._field = f"{name}_ms"

    @overload
    def __get__(self, value: None, owner: type) -> Self: ...
    @overload
    def __get__(self, value: msgspec.Struct, owner: type) -> T_co: ...
    def __get__(self, value: msgspec.Struct | None, owner: type) -> Self | datetime.datetime | None:
        if value is None:
            return self
        milliseconds: int | None = getattr(value, self._field)
        return None if milliseconds is None else to_datetime(milliseconds)


def _json_name(field: str) -> str | None:
    """Return the name of a field in JSON if it differs: that of a time is the name of its property."""
    return field.removesuffix("_ms") if field.endswith(_TIME_SUFFIX) else None


@functools.cache
def _time_names(kind: type[Value]) -> frozenset[str]:
    """Return the names of the times of a value in JSON."""
    return frozenset(
        json_name
        for field, json_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        if field != json_name
    )


def json_fields(value: Value) -> dict[str, Any]:
    """Return the fields of a value under their names in JSON, as they are: times are integers."""
    return dict(zip(value.__struct_encode_fields__, msgspec.structs.astuple(value), strict=True))


class Value(msgspec.Struct, frozen=True, gc=False, rename=_json_name):
    """An immutable record. Fields whose names end in `_at_ms` are times, and each has a property without `_ms`."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, times as ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name in _time_names(type(self)):
            value = plain[name]
            if isinstance(value, int):
                plain[name] = format_iso(value)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Convert the result of to_dict() back."""
        names = _time_names(cls)
        fields = {
            name: parse_iso(value) if name in names and isinstance(value, str) else value
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
