"""Times in the browser's time zone, which the browser sends in a cookie."""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Mapping
from urllib.parse import unquote

from recollect.model import times as moments
from recollect.model.humanize import format_relative

ZONE_COOKIE = "recollect-zone"
"""Cookie with the name of the browser's zone and its offset from UTC in minutes: `Europe/Berlin|60`."""

_WEEK_DAYS = 7  # days
_MAX_ZONE_LENGTH = 80  # characters. The longest zone names have about 40.
_MAX_OFFSET_MINUTES = 24 * 60  # minutes. datetime.timezone accepts less than a day.
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


class Clock:
    """The current time and calendar days in one zone. `zone` is "" if the server's zone is used."""

    def __init__(self, zone: str = "", now: int | None = None, *, offset: int | None = None) -> None:
        self.now = time.time_ns() // 1_000_000 if now is None else now
        self.tzinfo = _find_zone(zone)
        self.zone = zone if self.tzinfo is not None else ""
        if self.tzinfo is None and offset is not None and abs(offset) < _MAX_OFFSET_MINUTES:
            self.zone = zone
            self.tzinfo = datetime.timezone(datetime.timedelta(minutes=offset))
        self.today = self.local(self.now).date()

    def local(self, time_ms: int) -> datetime.datetime:
        """Return a time in this zone. A time outside the calendar becomes its last one."""
        return moments.to_local(time_ms, self.tzinfo)

    @property
    def utc_offset(self) -> int:
        """The current offset from UTC in minutes."""
        offset = self.local(self.now).utcoffset()
        return 0 if offset is None else int(offset.total_seconds() // 60)

    def midnight(self, days_ago: int) -> int:
        """Return the start of a day, in milliseconds since 1970."""
        day = self.today - datetime.timedelta(days=days_ago)
        start = datetime.datetime.combine(day, datetime.time(), self.tzinfo)
        return int((start if self.tzinfo is not None else start.astimezone()).timestamp() * 1000)

    def ago(self, time_ms: int) -> str:
        """Return a short relative time: "now", "5 min ago", "3 h ago", "Tue", "12 Mar", "12 Mar 2024"."""
        return format_relative(time_ms, self.now, self.tzinfo)

    def hour(self, time_ms: int) -> str:
        """Return the time of day: "14:05"."""
        return f"{self.local(time_ms):%H:%M}"

    def exact(self, time_ms: int) -> str:
        """Return a complete date and time: "Tuesday, 3 March 2026, 14:05"."""
        day = self.local(time_ms)
        return f"{day:%A}, {day.day} {_MONTHS[day.month - 1]} {day.year}, {day:%H:%M}"

    def group(self, time_ms: int) -> tuple[str, str]:
        """Return the group of a time in the list: a stable key and its heading."""
        day = self.local(time_ms).date()
        days = (self.today - day).days
        if days <= 0:
            return "today", "Today"
        if days == 1:
            return "yesterday", "Yesterday"
        if days <= _WEEK_DAYS:
            return "week", "Last 7 days"
        year = "" if day.year == self.today.year else f" {day.year}"
        return f"{day.year:04}-{day.month:02}", f"{_MONTHS[day.month - 1]}{year}"


def clock_of(cookies: Mapping[str, str], now: int | None = None) -> Clock:
    """Return the clock for the zone in the cookies. An unknown zone is ignored."""
    zone, _, minutes = unquote(cookies.get(ZONE_COOKIE, "")).partition("|")
    sign = -1 if minutes.startswith("-") else 1
    digits = minutes.removeprefix("-")
    offset = sign * int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 4 else None  # noqa: PLR2004
    return Clock(zone if zone.isprintable() and len(zone) <= _MAX_ZONE_LENGTH else "", now, offset=offset)


def _find_zone(zone: str) -> datetime.tzinfo | None:
    """Return a zone by its name; None if it is unknown or the machine has no zone database."""
    if not zone:
        return None
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
