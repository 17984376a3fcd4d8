"""What callers give that is no number and no message, refused with a sentence before an engine or a file sees it."""

from __future__ import annotations

import os
from typing import Any

from recollect.errors import InvalidValue
from recollect.model.json import storable


def text(what: str, value: Any) -> None:
    """Refuse what is no text, or one that no database and no file name can hold."""
    if type(value) is not str or value != storable(value):
        raise InvalidValue(f"{what} is a text; got {value!r}. Give a str, without halves of surrogate pairs.")


def path(what: str, value: Any) -> str:
    """Give the path of a file as text."""
    found = os.fspath(value) if hasattr(value, "__fspath__") else value
    if type(found) is not str or not found or "\0" in found or found != storable(found):
        raise InvalidValue(f"{what} is named by a path, a text or a Path; got {value!r}.")
    return found


def function(name: str, value: Any) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise InvalidValue(f"{name} is a function, or None; got {value!r}.")


def either(value: Any) -> bool | None:
    """Give a flag that may be left open: True, False or None."""
    return None if value is None else bool(value)
