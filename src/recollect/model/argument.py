"""What callers give that is no number and no message, refused with a sentence before an engine or a file sees it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from recollect.errors import InvalidValue, displayed
from recollect.model.json import storable


def text(what: str, value: Any) -> None:
    """Refuse what is no text, or one that no database and no file name can hold."""
    if type(value) is not str or value != storable(value):
        raise InvalidValue(f"{what} is a text; got {displayed(value)}. Give a str, without halves of surrogate pairs.")


def path(what: str, value: Any) -> str:
    """Give the path of a file as text."""
    found = fspath(value)
    if type(found) is not str or not found or "\0" in found or found != storable(found):
        raise InvalidValue(f"{what} is named by a path, a text or a Path; got {displayed(value)}.")
    return found


def function(name: str, value: Any) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise InvalidValue(f"{name} is a function, or None; got {displayed(value)}.")


def either(value: Any) -> bool | None:
    """Give a flag that may be left open: True, False or None."""
    return None if value is None else flag("A flag", value)


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """Return a text that is one of those known. An object of another type is refused before it is compared."""
    if isinstance(value, str) and str.__str__(value) in known:
        return str.__str__(value)
    raise InvalidValue(f"{name} is one of {', '.join(known)}; got {displayed(value)}.")


def string(name: str, value: Any) -> str:
    """Return any text as a plain str, also one of a subclass, such as an enum's."""
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a str, got {displayed(value)}.")
    return str.__str__(value)


def plain_text(name: str, value: Any) -> str:
    """Return a text that a database can hold, also of a subclass of str, such as an enum's."""
    found = string(name, value)
    if found != storable(found):
        raise InvalidValue(f"{name} is a text; got {displayed(value)}. Give a str, without surrogates.")
    return found


def flag(name: str, value: Any) -> bool:
    """Return whether a flag is set. The truth of an object may be an error of its own."""
    try:
        return bool(value)
    except Exception as error:
        raise InvalidValue(f"{name} is True or False; got {displayed(value)}.") from error


def fspath(value: Any) -> Any:
    """Return the text of a path object as a plain str, and anything that is no path as it is."""
    try:
        found = os.fspath(value) if hasattr(value, "__fspath__") else value
        return str.__str__(found) if isinstance(found, str) else found
    except Exception as error:
        raise InvalidValue(f"A path could not be read: {displayed(value)} raised {type(error).__name__}.") from error
