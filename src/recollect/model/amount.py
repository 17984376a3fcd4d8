"""Counts, sizes and spans of time as a person reads them: short, and the same in the terminal and on the page."""

from __future__ import annotations

_STEP = 1000
_SMALL = 10
_SECOND, _MINUTE = 1_000, 60_000


def count(number: float) -> str:
    """Write a count short: 940, 3.4k, 12k, 1.2M."""
    return _short(number, ("", "k", "M", "G"), "")


def size(number: float) -> str:
    """Write a number of bytes short: 940 B, 3.4 kB, 12 MB."""
    return _short(number, ("B", "kB", "MB", "GB", "TB"), " ")


def many(number: int, one: str, more: str | None = None) -> str:
    """Write a count with its noun: "1 message", "3 messages"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def lasting(milliseconds: float | None) -> str:
    """Write a span of time: "340 ms", "2.1 s", "3.0 min"; nothing where there is none."""
    if milliseconds is None:
        return ""
    if milliseconds < _SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / _SECOND:.1f} s" if milliseconds < _MINUTE else f"{milliseconds / _MINUTE:.1f} min"


def _short(number: float, units: tuple[str, ...], gap: str) -> str:
    left, step = float(number), 0
    while round(left) >= _STEP and step < len(units) - 1:
        left, step = left / _STEP, step + 1
    exact = step == 0 or round(left, 1) >= _SMALL
    return f"{left:.0f}{gap}{units[step]}" if exact else f"{left:.1f}{gap}{units[step]}"
