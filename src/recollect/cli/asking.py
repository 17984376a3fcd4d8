"""Asking before something is done that can not be undone."""

from __future__ import annotations

import sys

import click

from recollect.cli.ending import Refused
from recollect.cli.screen import safe


def must_agree(question: str, *, yes: bool) -> None:
    """Ask, unless the answer was given with -y. Nobody there to ask, or a no: it is refused and nothing is done."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{question} Nothing was done: there is no terminal to ask on. Add -y if you mean it.")
    if not click.confirm(safe(question), default=False, err=True):
        raise Refused("Nothing was done.")
