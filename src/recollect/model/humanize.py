"""Counts, sizes, durations and times as short text, truncated and escaped text: the same on every surface."""

from __future__ import annotations

import datetime

from recollect.model.times import DAY, to_local

_UNIT_STEP = 1000  # decimal units: 1 kB is 1,000 bytes
_DECIMAL_BELOW = 10  # numbers below get one decimal: two significant digits in all
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000  # milliseconds
_WEEK_DAYS = 7  # days; a weekday names one day only within a week
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # strftime is localized


def format_count(number: float) -> str:
    """Return a count as short text: 940, 3.4k, 12k, 1.2M."""
    return _format_scaled(number, ("", "k", "M", "G"), "")


def format_size(number: float) -> str:
    """Return a number of bytes as short text: 940 B, 3.4 kB, 12 MB."""
    return _format_scaled(number, ("B", "kB", "MB", "GB", "TB"), " ")


def pluralize(number: int, one: str, more: str | None = None) -> str:
    """Return a count with its noun: "1 message", "3 messages"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def format_duration(milliseconds: float | None) -> str:
    """Return a duration as short text: "340 ms", "2.1 s", "3 min"; "" for None."""
    if milliseconds is None:
        return ""
    if milliseconds < _SECOND:
        return f"{milliseconds:.0f} ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.1f} s"
    return f"{milliseconds / _MINUTE:.1f}".removesuffix(".0") + " min"


def _format_scaled(number: float, units: tuple[str, ...], gap: str) -> str:
    scaled_number, unit = float(number), 0
    while round(scaled_number) >= _UNIT_STEP and unit < len(units) - 1:
        scaled_number, unit = scaled_number / _UNIT_STEP, unit + 1
    no_decimal = unit == 0 or round(scaled_number, 1) >= _DECIMAL_BELOW
    return f"{scaled_number:.0f}{gap}{units[unit]}" if no_decimal else f"{scaled_number:.1f}{gap}{units[unit]}"


def format_relative(time_ms: int, now: int, zone: datetime.tzinfo | None = None) -> str:
    """Return a time as seen from `now`: "now", "5 min ago", "3 h ago", "yesterday", "Tue", "12 Mar", "12 Mar 2024".

    Days are those of the zone, or of the local zone if it is None. Times in the future are shown as dates.
    """
    elapsed_ms = now - time_ms
    if -_MINUTE < elapsed_ms < _MINUTE:
        return "now"
    if 0 < elapsed_ms < _HOUR:
        return f"{elapsed_ms // _MINUTE} min ago"
    day, today = to_local(time_ms, zone), to_local(now, zone).date()
    days = (today - day.date()).days
    if days == 0 and 0 < elapsed_ms < DAY:
        return f"{elapsed_ms // _HOUR} h ago"
    if 0 < days < _WEEK_DAYS:
        return "yesterday" if days == 1 else f"{day:%a}"
    date_text = f"{day.day} {_MONTHS[day.month - 1]}"
    return date_text if day.year == today.year else f"{date_text} {day.year}"


def truncate(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; the last one is an ellipsis if the text was longer."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "\u2026"


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters: each run of whitespace becomes a space."""
    return truncate(" ".join(text.split()), limit)


def clause(text: str, limit: int) -> str:
    """Return a text as one line without its final period, for use inside a sentence."""
    return one_line(text.rstrip(". \t\r\n"), limit)


def escape_unprintable(text: str) -> str:
    """Return a text with all non-printable characters escaped, so that it stays on one line and changes no other text.

    Such characters are control characters, line breaks, and marks that change the reading direction. A backslash stays
    as it is: escaped, most ids that contain one could not be copied from a screen. So the result is only for reading;
    programs read the exact text from JSON.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def quote_for_shell(word: str) -> str | None:
    """Return a word as a person can paste it into a shell, without control characters; None if it contains NUL.

    A word with non-printable characters is in the form $'...', which bash, zsh, ksh and POSIX shells since 2024 read.
    """
    if "\0" in word:  # no argument of a program can contain it
        return None
    if word and all(character.isalnum() or character in "-_.:/@+" for character in word):
        return word
    if word.isprintable():
        return "'" + word.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_escape_for_shell, word)) + "'"


def restore_command(session: str) -> str:
    """Return the shell command that restores a session from the trash.

    If the id contains NUL, it is the command that starts the web app, whose trash shows the session.
    """
    word = quote_for_shell(session)
    if word is None:
        return "recollect serve"
    dashes = "-- " if word[0] == "-" else ""  # without them, the id would be taken for an option
    return f"recollect sessions restore {dashes}{word}"


def _escape_for_shell(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    # Three octal digits end by themselves; \\x could take a following digit for its own.
    return f"\\{code:03o}" if code < 0x80 else f"\\U{code:08x}"  # noqa: PLR2004  ASCII
