"""Points in time and stretches of it, as callers give them and people write them: milliseconds inside."""

from __future__ import annotations

import datetime
import re
from typing import Any

from recollect.errors import InvalidValue, displayed
from recollect.model.value import milliseconds

Moment = int | str | datetime.datetime | datetime.date
Duration = float | str | datetime.timedelta

DAY = 86_400_000
_LATEST = 1 << 52
_MINUTES = 24 * 60


def moment(value: Any, name: str = "A time") -> int:
    """Read a time: milliseconds since 1970, a datetime or a date, or ISO 8601. Without a zone it is UTC."""
    try:
        found = milliseconds(value) if isinstance(value, str) else instant(value)
    except (ValueError, OverflowError):
        found = None
    if found is not None and 0 <= found <= _LATEST:
        return found
    raise InvalidValue(
        f"{name} is a number of milliseconds, a datetime or ISO 8601 such as '2025-11-16T10:00Z'; got "
        f"{displayed(value)}."
    )


def instant(value: Any) -> int | None:
    """Read what is a time without being a text; None where it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if type(value) is int else int.__index__(value)
    return milliseconds(value.isoformat()) if isinstance(value, datetime.date) else None


def written(text: str, now: int, zone: datetime.tzinfo | None = datetime.UTC) -> int | None:
    """Read a time as a person writes it: 2025, 2025-03, 2025-03-07, 2025-03-07T12:00, today, yesterday or now.

    What names no zone is meant in `zone`, or in the one of this machine where that is None. None where it is no time.
    """
    word = text.strip()
    try:
        if word.lower() in ("today", "yesterday"):
            day = local(now, zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
            day -= datetime.timedelta(days=word.lower() == "yesterday")
        elif word.lower() == "now":
            return now
        else:
            padded = word + "-01-01"[3 * word.count("-") :] if re.fullmatch(r"\d{4}(-\d\d)?", word, re.ASCII) else word
            day = datetime.datetime.fromisoformat(padded)
        if day.tzinfo is None:
            day = day.astimezone() if zone is None else day.replace(tzinfo=zone)
        return instant(day)
    except (ValueError, OverflowError, OSError):
        return None


def local(milliseconds: int, zone: datetime.tzinfo | None = None) -> datetime.datetime:
    """Give a time in a zone, or in the one of this machine; one that no calendar has is the last that there is."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone(zone)
    except (OverflowError, OSError, ValueError):
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


def duration(value: Any, name: str = "A duration") -> int:
    """Read a stretch of time as milliseconds: a number of seconds, a timedelta, or a text such as '30d' or '1d 12h'."""
    found: float | None = None
    if isinstance(value, datetime.timedelta):
        found = value / datetime.timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = value * 1_000
    elif isinstance(value, str):
        from recollect.config.values import stretch  # noqa: PLC0415  only where one is given as a text

        found = stretch(value)
    if found is not None and 0 <= found <= _LATEST:
        return int(found)
    raise InvalidValue(
        f"{name} is a number of seconds, a timedelta or a text such as '30d', '12h' or '2w'; got {displayed(value)}."
    )


def offset(value: Any) -> int:
    """Read how far local time is ahead of UTC, in minutes, as milliseconds."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MINUTES:
        return value * 60_000
    raise InvalidValue(f"utc_offset is a number of minutes, such as 60 or -480; got {displayed(value)}.")
