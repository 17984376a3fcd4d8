"""What a command needs beyond the base install, looked for before it says that it has begun."""

from __future__ import annotations

import importlib.util

import click

from recollect.errors import InvalidValue


def need(extra: str, *modules: str) -> None:
    """Refuse, with the command that installs them, where one of the modules of an extra is not there."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise refusal(extra, missing[0])


def refusal(extra: str, module: str | None) -> InvalidValue:
    """Say which extra a command lacks."""
    command = click.get_current_context().command_path
    return InvalidValue(f"`{command}` needs the {extra} extra: pip install 'recollect[{extra}]' (missing: {module}).")
