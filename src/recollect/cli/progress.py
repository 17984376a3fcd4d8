"""Progress of long work: one line on standard error, on a terminal only, gone when the work is done."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

_EVERY = 0.1
_BAR = 24


class Progress:
    """Called with how much is done and how much there is: `with Progress("Copying") as progress: work(progress)`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._last = 0.0
        self._written = False

    def __call__(self, done: int, total: int | None = None) -> None:
        """Say how far the work is; at most ten times a second."""
        moment = time.monotonic()
        if not self._shown or moment - self._last < _EVERY:
            return
        self._last, self._written = moment, True
        click.echo(f"\r\x1b[2K{self._what} {_bar(done, total)}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._written:
            click.echo("\r\x1b[2K", err=True, nl=False)


def _bar(done: int, total: int | None) -> str:
    if not total:
        return f"{done:,}"
    part = min(done / total, 1.0)
    return f"[{'#' * int(part * _BAR):<{_BAR}}] {part:4.0%}"
