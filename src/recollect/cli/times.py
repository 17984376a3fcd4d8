"""Times on the command line: formatting, and options that take a time or a duration.

JSON uses ISO 8601, the store milliseconds.
"""

from __future__ import annotations

import time
from typing import Any

import click

from recollect.config.settings import parse_positive_duration
from recollect.model.times import parse_time_text, to_local


def now() -> int:
    """Return the current time in milliseconds."""
    return time.time_ns() // 1_000_000


def format_minute(milliseconds: int) -> str:
    """Return the date and time in the local time zone."""
    return f"{to_local(milliseconds):%Y-%m-%d %H:%M}"


def utc_offset() -> int:
    """Return the local offset from UTC in minutes."""
    return (time.localtime().tm_gmtoff or 0) // 60


def format_short(milliseconds: int) -> str:
    """Return a short unambiguous time: the time if today, with the day this year, or with the full date."""
    local_time, today = to_local(milliseconds), to_local(now())
    if local_time.date() == today.date():
        return f"{local_time:%H:%M}"
    return f"{local_time:%d %b %H:%M}".lstrip("0") if local_time.year == today.year else format_minute(milliseconds)


class TimeParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A time option: a date, a local date and time, one with a zone, or a duration before now such as 7d."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the time in milliseconds."""
        if isinstance(value, int):
            return value
        time_ms = parse_time_text(value, now(), zone=None)
        if time_ms is not None:
            return time_ms
        try:
            return now() - parse_positive_duration(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a valid date or time. Use 2026-01-31, 2026-01-31T12:00, yesterday or 7d.", param, ctx
            )


class DurationParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A duration option, such as 90d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the duration in milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_positive_duration(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a valid duration. Use a number with a unit, such as 90d, 12h or 2w.", param, ctx
            )
