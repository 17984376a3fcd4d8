"""Sizes and counts as a person reads and writes them."""

from __future__ import annotations

from typing import Any

import click

from recollect.config.values import size

_STEP = 1000
_SMALL = 10
_MOST = 1_000_000


def count(number: int) -> str:
    """Write a count short: 940, 3.4k, 12k, 1.2M."""
    return _short(number, ("", "k", "M", "G"), "")


def bytes_(number: int) -> str:
    """Write a size short: 940 B, 3.4 kB, 12 MB."""
    return _short(number, ("B", "kB", "MB", "GB", "TB"), " ")


def _short(number: float, units: tuple[str, ...], gap: str) -> str:
    left = float(number)
    for unit in units:
        if round(left) < _STEP or unit == units[-1]:
            exact = unit == units[0] or round(left, 1) >= _SMALL
            return f"{left:.0f}{gap}{unit}" if exact else f"{left:.1f}{gap}{unit}"
        left /= _STEP
    return str(number)


def many(number: int, one: str, more: str | None = None) -> str:
    """Write a count with its noun: "1 conversation", "3 conversations"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


class Number(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A whole number as an option, from 1 on (or from 0)."""

    name = "number"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number."""
        if isinstance(value, int):
            return value
        if not value.isascii() or not value.isdecimal() or not self.least <= int(value[:20]) <= _MOST:
            self.fail(f"{value!r} is no number from {self.least} to {_MOST:,}.", param, ctx)
        return int(value)


class Size(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """A size as an option, such as 2GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a size, in bytes."""
        if isinstance(value, int):
            return value
        try:
            return size(value)
        except ValueError:
            self.fail(f"{value!r} is no size: write it as 2GB, 500MB or 64KiB.", param, ctx)
