"""Times as a person at a terminal reads and writes them. In JSON they are ISO 8601, in the store milliseconds."""

from __future__ import annotations

import time
from typing import Any

import click

from recollect.config.values import duration
from recollect.model.moment import DAY, local, written

_MINUTE, _HOUR = 60_000, 3_600_000
_WEEK, _YEAR = 7 * DAY, 365 * DAY


def now() -> int:
    """Give this moment in milliseconds."""
    return time.time_ns() // 1_000_000


def ago(milliseconds: int, at: int | None = None) -> str:
    """Say how long ago a moment was: "5m ago", "yesterday", "12 Mar", "2024-12-31"."""
    passed = (now() if at is None else at) - milliseconds
    if passed < _MINUTE:
        return "just now" if passed > -_MINUTE else day(milliseconds)
    if passed < _HOUR:
        return f"{passed // _MINUTE}m ago"
    if passed < DAY:
        return f"{passed // _HOUR}h ago"
    if passed < _WEEK:
        return f"{passed // DAY}d ago"
    if passed < _YEAR:
        return f"{local(milliseconds):%d %b}".lstrip("0")
    return day(milliseconds)


def day(milliseconds: int) -> str:
    """Write a moment as a day, here."""
    return f"{local(milliseconds):%Y-%m-%d}"


def minute(milliseconds: int) -> str:
    """Write a moment as day and time, here."""
    return f"{local(milliseconds):%Y-%m-%d %H:%M}"


def utc_offset() -> int:
    """Say how many minutes the clock here is ahead of UTC."""
    return (time.localtime().tm_gmtoff or 0) // 60


def clock(milliseconds: int) -> str:
    """Write a moment as short as it is clear: a time today, a day and a time this year, or all of it."""
    moment, today = local(milliseconds), local(now())
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%d %b %H:%M}".lstrip("0") if moment.year == today.year else minute(milliseconds)


class Moment(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A moment as an option: a day, a time of a day (here, unless it names a zone), or a span before now such as 7d."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a moment, in milliseconds."""
        if isinstance(value, int):
            return value
        found = written(value, now(), zone=None)
        if found is not None:
            return found
        try:
            return now() - duration(value)
        except ValueError:
            self.fail(f"{value!r} is no moment: write 2026-01-31, 2026-01-31T12:00, yesterday, or 7d.", param, ctx)


class Span(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A span of time as an option, such as 90d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a span, in milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return duration(value)
        except ValueError:
            self.fail(f"{value!r} is no duration: write it as 90d, 12h or 2w.", param, ctx)
