"""Numbers and sizes as options."""

from __future__ import annotations

from typing import Any

import click

from recollect.config.values import size

_MOST = 1_000_000


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
