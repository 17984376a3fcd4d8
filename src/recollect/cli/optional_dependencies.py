"""Optional dependencies of a command, checked before it starts."""

from __future__ import annotations

import importlib.util

import click

from recollect.errors import InvalidValue


def require_extra(extra: str, *modules: str) -> None:
    """Raise InvalidValue with the install command if a module of the extra is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise missing_extra(extra, missing[0])


def missing_extra(extra: str, module: str | None) -> InvalidValue:
    """Return the error for a command whose extra is not installed."""
    command = click.get_current_context().command_path
    return InvalidValue(f"`{command}` needs the {extra} extra: pip install 'recollect[{extra}]' (missing: {module}).")
