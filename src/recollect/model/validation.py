"""Argument validation: each function raises InvalidValue with the argument, the rule and the received value.

Arguments are checked before an engine or a file receives them, because each engine converts invalid values differently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.model.json import escape_surrogates

MAX_INTEGER = (1 << 53) - 1
"""The largest integer that every engine stores and every JSON reader reads exactly."""
MAX_MESSAGE_KEY = 1024  # bytes; an index entry of PostgreSQL holds it twice as long, with an escape for each character
_MAX_LEASE = 10 * 365 * 24 * 3600  # seconds, ten years; a longer lease is a mistake in the unit


def check_integer(name: str, value: Any) -> None:
    """Raise InvalidValue unless the value is a non-negative integer or None."""
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_INTEGER):
        raise InvalidValue(f"{name} must be a non-negative integer or None, got {format_value(value)}.")


def check_milliseconds(name: str, value: Any) -> int | None:
    """Return a duration in integer milliseconds; a float, as clocks return it, is rounded."""
    if value is None or (type(value) is int and 0 <= value <= MAX_INTEGER):
        return value
    if type(value) is float and 0 <= value <= MAX_INTEGER:
        return round(value)
    raise InvalidValue(f"{name} must be a non-negative number of milliseconds or None, got {format_value(value)}.")


def check_lease(lease: Any, wait: Any = 0) -> None:
    """Raise InvalidValue unless lease and wait are numbers of seconds. `wait` may be math.inf."""
    if type(lease) not in (int, float) or not 0 <= lease <= _MAX_LEASE:
        raise InvalidValue(f"lease must be between 0 and {_MAX_LEASE} seconds, got {format_value(lease)}.")
    if type(wait) not in (int, float) or not wait >= 0 or (type(wait) is int and wait > MAX_INTEGER):
        raise InvalidValue(f"wait must be a non-negative number of seconds or math.inf, got {format_value(wait)}.")


def check_text(name: str, value: Any) -> None:
    """Raise InvalidValue unless the value is a str that databases and file names can hold."""
    if type(value) is not str or value != escape_surrogates(value):
        raise InvalidValue(f"{name} must be a str without lone surrogates, got {format_value(value)}.")


def check_path(name: str, value: Any) -> str:
    """Return the path of a file as a str."""
    path = convert_path(value)
    if type(path) is not str or not path or "\0" in path or path != escape_surrogates(path):
        raise InvalidValue(f"{name} must be a path as a str or a Path, got {format_value(value)}.")
    return path


def check_callable(name: str, value: Any) -> None:
    """Raise InvalidValue unless the value is callable or None."""
    if value is not None and not callable(value):
        raise InvalidValue(f"{name} must be callable or None, got {format_value(value)}.")


def check_optional_flag(value: Any) -> bool | None:
    """Return True, False or None."""
    return None if value is None else check_flag("A flag", value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return a str that is one of the choices. Other types are rejected before they are compared."""
    if isinstance(value, str) and str.__str__(value) in choices:
        return str.__str__(value)
    raise InvalidValue(f"{name} must be one of {', '.join(choices)}, got {format_value(value)}.")


def check_string(name: str, value: Any) -> str:
    """Return a str as a plain str, also one of a subclass such as an enum."""
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a str, got {format_value(value)}.")
    return str.__str__(value)


def check_plain_text(name: str, value: Any) -> str:
    """Return a str that a database can hold as a plain str, also one of a subclass such as an enum."""
    text = check_string(name, value)
    if text != escape_surrogates(text):
        raise InvalidValue(f"{name} must be a str without lone surrogates, got {format_value(value)}.")
    return text


def check_message_key(value: Any) -> str:
    """Return the caller's key of a message as a plain str."""
    key = check_plain_text("key", value)
    if 0 < len(key.encode()) <= MAX_MESSAGE_KEY:
        return key
    raise InvalidValue(
        f"The key of a message must have 1 to {MAX_MESSAGE_KEY:,} bytes in UTF-8, got {len(key.encode()):,}."
    )


def check_items(name: str, value: Any) -> list[Any]:
    """Return the items of an iterable. A str is refused: it would be read as a list of letters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidValue(f"{name} must be a list, got {format_value(value)}.")
    try:
        return list(value)
    except Exception as error:
        raise InvalidValue(f"{name} must be a list, but reading it raised {type(error).__name__}.") from error


def check_flag(name: str, value: Any) -> bool:
    """Return the truth value of a flag. The __bool__() of an object may raise any error."""
    try:
        return bool(value)
    except Exception as error:
        raise InvalidValue(f"{name} must be True or False, got {format_value(value)}.") from error


def convert_path(value: Any) -> Any:
    """Return a path object as a plain str, and any other value unchanged."""
    try:
        path = os.fspath(value) if hasattr(value, "__fspath__") else value
        return str.__str__(path) if isinstance(path, str) else path
    except Exception as error:
        raise InvalidValue(
            f"A path must be readable, but {format_value(value)} raised {type(error).__name__}."
        ) from error
