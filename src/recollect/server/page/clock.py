"""Times as the person in front of the browser reads them: the browser says in a cookie which zone it is in."""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Mapping
from urllib.parse import unquote

from recollect.model import moment as moments

ZONE_COOKIE = "recollect-zone"
"""The name of the browser's zone and the minutes that it is ahead of UTC: `Europe/Berlin|60`."""

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_WEEK_DAYS = 7
_LONGEST = 80
_FARTHEST = 24 * 60
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


class Clock:
    """What time it is, and which day another time was, in one zone. `zone` is "" where the server's own is used."""

    def __init__(self, zone: str = "", now: int | None = None, *, offset: int | None = None) -> None:
        self.now = time.time_ns() // 1_000_000 if now is None else now
        self.tzinfo = _named(zone)
        self.zone = zone if self.tzinfo is not None else ""
        if self.tzinfo is None and offset is not None and abs(offset) < _FARTHEST:
            self.zone = zone
            self.tzinfo = datetime.timezone(datetime.timedelta(minutes=offset))
        self.today = self.local(self.now).date()

    def local(self, moment: int) -> datetime.datetime:
        """Give a moment in this zone; one that no calendar has is the last that there is."""
        return moments.local(moment, self.tzinfo)

    @property
    def utc_offset(self) -> int:
        """How many minutes this zone is ahead of UTC now."""
        ahead = self.local(self.now).utcoffset()
        return 0 if ahead is None else int(ahead.total_seconds() // 60)

    def midnight(self, days_ago: int) -> int:
        """Give the beginning of a day, as milliseconds."""
        day = self.today - datetime.timedelta(days=days_ago)
        begun = datetime.datetime.combine(day, datetime.time(), self.tzinfo)
        return int((begun if self.tzinfo is not None else begun.astimezone()).timestamp() * 1000)

    def ago(self, moment: int) -> str:
        """Say shortly when something was: "now", "5 min", "3 h", "Tue", "12 Mar", "12 Mar 2024"."""
        passed = self.now - moment
        if -_MINUTE < passed < _MINUTE:
            return "now"
        if 0 < passed < _HOUR:
            return f"{passed // _MINUTE} min"
        day = self.local(moment)
        days = (self.today - day.date()).days
        if days == 0 and 0 < passed < _DAY:
            return f"{passed // _HOUR} h"
        if 0 < days < _WEEK_DAYS:
            return "yesterday" if days == 1 else f"{day:%a}"
        month = f"{day.day} {_MONTHS[day.month - 1][:3]}"
        return month if day.year == self.today.year else f"{month} {day.year}"

    def hour(self, moment: int) -> str:
        """Give the time of a day: "14:05"."""
        return f"{self.local(moment):%H:%M}"

    def exact(self, moment: int) -> str:
        """Write a moment out: "Tuesday, 3 March 2026, 14:05"."""
        day = self.local(moment)
        return f"{day:%A}, {day.day} {_MONTHS[day.month - 1]} {day.year}, {day:%H:%M}"

    def group(self, moment: int) -> tuple[str, str]:
        """Name the stretch of a list that a moment belongs to: a key that stays, and how it is headed."""
        day = self.local(moment).date()
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
    """Read the browser's zone from its cookies; what is no zone is passed over."""
    zone, _, minutes = unquote(cookies.get(ZONE_COOKIE, "")).partition("|")
    sign = -1 if minutes.startswith("-") else 1
    digits = minutes.removeprefix("-")
    offset = sign * int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 4 else None  # noqa: PLR2004
    return Clock(zone if zone.isprintable() and len(zone) <= _LONGEST else "", now, offset=offset)


def _named(zone: str) -> datetime.tzinfo | None:
    """Find a zone by its name; a machine without a table of zones knows none."""
    if not zone:
        return None
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
