"""Numbers as callers give them, refused with a sentence before they reach an engine: each would take them its way."""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidValue, displayed

LARGEST = (1 << 53) - 1
"""What every engine stores, and every reader of JSON reads exactly."""
_LONGEST = 10 * 365 * 24 * 3600


def whole(name: str, value: Any) -> None:
    """Refuse what is neither None nor a whole number from 0 on."""
    if value is not None and (type(value) is not int or not 0 <= value <= LARGEST):
        raise InvalidValue(f"{name} is a whole number from 0 on, or None; got {displayed(value)}.")


def milliseconds(name: str, value: Any) -> int | None:
    """Give a span in whole milliseconds. A clock gives a float."""
    if value is None or (type(value) is int and 0 <= value <= LARGEST):
        return value
    if type(value) is float and 0 <= value <= LARGEST:
        return round(value)
    raise InvalidValue(f"{name} is a number of milliseconds from 0 on, or None; got {displayed(value)}.")


def seconds(lease: Any, wait: Any = 0) -> None:
    """Refuse for how long a turn is held, or waited for, where it is no number. One may wait without end."""
    if type(lease) not in (int, float) or not 0 <= lease <= _LONGEST:
        raise InvalidValue(f"lease is a number of seconds, from 0 to those of ten years; got {displayed(lease)}.")
    if type(wait) not in (int, float) or not wait >= 0 or (type(wait) is int and wait > LARGEST):
        raise InvalidValue(f"wait is a number of seconds from 0 on, math.inf for ever; got {displayed(wait)}.")
