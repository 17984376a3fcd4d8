"""Points in time and stretches of it, as callers give them: milliseconds inside, whatever is handy outside."""

from __future__ import annotations

import datetime
import re
from typing import Any

from recollect.errors import InvalidValue
from recollect.model.value import milliseconds

Moment = int | str | datetime.datetime | datetime.date
Duration = float | str | datetime.timedelta

DAY = 86_400_000
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
_LATEST = 1 << 52
_MINUTES = 24 * 60


def moment(value: Any, name: str = "A time") -> int:
    """Read a time: milliseconds since 1970, a datetime or a date, or ISO 8601. Without a zone it is UTC."""
    try:
        found = _moment(value)
    except (ValueError, OverflowError):
        found = None
    if found is not None and 0 <= found <= _LATEST:
        return found
    raise InvalidValue(
        f"{name} is a number of milliseconds, a datetime or ISO 8601 such as '2025-11-16T10:00Z'; got {value!r}."
    )


def _moment(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, datetime.date):
        return milliseconds(value.isoformat())
    return milliseconds(value) if isinstance(value, str) else None


def duration(value: Any, name: str = "A duration") -> int:
    """Read a stretch of time as milliseconds: a number of seconds, a timedelta, or a text such as '30d' or '1d 12h'."""
    found: float | None = None
    if isinstance(value, datetime.timedelta):
        found = value / datetime.timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = value * 1_000
    elif isinstance(value, str):
        found = _worded(value)
    if found is not None and 0 <= found <= _LATEST:
        return int(found)
    raise InvalidValue(
        f"{name} is a number of seconds, a timedelta or a text such as '30d', '12h' or '2w'; got {value!r}."
    )


def _worded(text: str) -> int | None:
    words = text.lower().split()
    found = [re.fullmatch(r"(\d{1,12})([smhdwy])", word, re.ASCII) for word in words]
    if not found or None in found:
        return None
    return sum(int(match[1]) * _UNITS[match[2]] for match in found if match is not None)


def offset(value: Any) -> int:
    """Read how far local time is ahead of UTC, in minutes, as milliseconds."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MINUTES:
        return value * 60_000
    raise InvalidValue(f"utc_offset is a number of minutes, such as 60 or -480; got {value!r}.")
