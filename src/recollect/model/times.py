"""Parsing of times and durations as callers pass them and people write them. Results are milliseconds."""

from __future__ import annotations

import datetime
import re
from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.model.value import parse_iso

TimeLike = int | str | datetime.datetime | datetime.date
"""A time from 1970 on: an `int` of milliseconds, a `datetime`, a `date`, or ISO 8601 text; UTC if it has no zone."""

DurationLike = float | str | datetime.timedelta
"""A duration: text such as `"30d"`, `"1d 12h"` or `"2 weeks"`, a `timedelta`, or a number of seconds."""

DAY = 86_400_000  # milliseconds
_MAX_TIME = 1 << 52  # milliseconds. A float represents every integer up to here, so JSON readers do not round it.
_MINUTES_PER_DAY = 24 * 60  # minutes; a UTC offset is shorter than a day


def parse_time(value: Any, name: str = "A time") -> int:
    """Return a time in milliseconds since 1970, from an int, a datetime, a date or ISO 8601; UTC if it has no zone."""
    try:
        milliseconds = parse_iso(value) if isinstance(value, str) else to_milliseconds(value)
    except (ValueError, OverflowError):
        milliseconds = None
    if milliseconds is not None and 0 <= milliseconds <= _MAX_TIME:
        return milliseconds
    if milliseconds is not None and milliseconds < 0:
        time = value.isoformat() if isinstance(value, datetime.date) else value
        raise InvalidValue(f"{name} must be 1970 or later, got {format_value(time)}.")
    raise InvalidValue(
        f"{name} must be an int of milliseconds, a datetime or ISO 8601 such as '2025-11-16T10:00Z', got "
        f"{format_value(value)}."
    )


def has_microseconds(value: str | datetime.date) -> bool:
    """Return whether a time that parse_time() accepts is between two milliseconds."""
    time = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
    return isinstance(time, datetime.datetime) and time.microsecond % 1000 != 0


def to_milliseconds(value: Any) -> int | None:
    """Convert an int, a date or a datetime to milliseconds since 1970. Return None for other types."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if type(value) is int else int.__index__(value)
    return parse_iso(value.isoformat()) if isinstance(value, datetime.date) else None


def parse_time_text(text: str, now: int, zone: datetime.tzinfo | None = datetime.UTC) -> int | None:
    """Parse a time as people write it: 2025, 2025-03, 2025-03-07, 2025-03-07T12:00, today, yesterday or now.

    A time without a zone is in `zone`, or in the local zone if that is None. Return None if the text is not a time.
    """
    word = text.strip()
    try:
        if word.lower() in ("today", "yesterday"):
            day = to_local(now, zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
            day -= datetime.timedelta(days=word.lower() == "yesterday")
        elif word.lower() == "now":
            return now
        else:
            # fromisoformat() needs a full date: 2025 becomes 2025-01-01, 2025-03 becomes 2025-03-01.
            iso_text = (
                word + "-01-01"[3 * word.count("-") :] if re.fullmatch(r"\d{4}(-\d\d)?", word, re.ASCII) else word
            )
            day = datetime.datetime.fromisoformat(iso_text)
        if day.tzinfo is None:
            day = day.astimezone() if zone is None else day.replace(tzinfo=zone)
        return to_milliseconds(day)
    except (ValueError, OverflowError, OSError):
        return None


def to_local(milliseconds: int, zone: datetime.tzinfo | None = None) -> datetime.datetime:
    """Return a time in a zone, or in the local zone. A time beyond the calendar becomes the last representable one."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone(zone)
    except (OverflowError, OSError, ValueError):
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


def parse_duration(value: Any, name: str = "A duration") -> int:
    """Return a duration in milliseconds, from seconds, a timedelta, or a text such as '30d' or '1d 12h'."""
    milliseconds: float | None = None
    if isinstance(value, datetime.timedelta):
        milliseconds = value / datetime.timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        milliseconds = value * 1_000
    elif isinstance(value, str):
        from recollect.config.settings import parse_duration_text  # noqa: PLC0415  only needed for a text

        milliseconds = parse_duration_text(value)
    if milliseconds is not None and 0 <= milliseconds <= _MAX_TIME:
        return int(milliseconds)
    raise InvalidValue(
        f"{name} must be a number of seconds, a timedelta or a str such as '30d', '12h' or '2w', got "
        f"{format_value(value)}."
    )


def parse_utc_offset(value: Any) -> int:
    """Return an offset from UTC in milliseconds, from minutes."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MINUTES_PER_DAY:
        return value * 60_000
    raise InvalidValue(f"utc_offset must be an int of minutes, such as 60 or -480, got {format_value(value)}.")
