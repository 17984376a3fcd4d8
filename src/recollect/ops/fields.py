"""What a caller sets on a session, checked and as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import InvalidValue, displayed
from recollect.model import argument, json, keys
from recollect.model.session import FLAG_FIELDS, SETTABLE, STATUSES, TEXT_FIELDS

_FOUND_BY = ("channel", "model")


def for_new(given: Mapping[str, Any], now: int) -> tuple[dict[str, Any], str | None]:
    """Check the fields of a session that is about to be created; return its columns and the id of its parent."""
    parent = given.get("parent")
    if parent is not None:
        argument.text("parent", parent)
    return checked({name: value for name, value in given.items() if name != "parent"}, now), parent


def checked(given: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Check what a caller wants to set, and give it as columns."""
    columns: dict[str, Any] = {}
    for name, value in given.items():
        if name in FLAG_FIELDS:
            columns[FLAG_FIELDS[name]] = now if _flag(name, value) else None
        elif name == "metadata":
            columns[name] = None if value is None else json.encode(_mapping(name, value))
        elif name in TEXT_FIELDS:
            columns[name] = _text(name, value)
        elif name == "parent":
            raise InvalidValue("parent can be set only when a session is created, and never on a fork.")
        else:
            raise InvalidValue(f"A session has no field {displayed(name)} to set. Those are: {', '.join(SETTABLE)}.")
    return columns


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidValue(f"{name} is True or False; got {displayed(value)}.")


def _mapping(name: str, value: Any) -> Any:
    plain = json.exact(value)
    if isinstance(plain, dict):
        return plain
    raise InvalidValue(f"{name} is a dict; got {type(value).__name__}.")


def _text(name: str, value: Any) -> str | None:
    if name == "status":
        return argument.choice("status", value, STATUSES)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is a text or None; got {type(value).__name__}.")
    value = str.__str__(value)
    check_storable(name, value)
    if name in _FOUND_BY and len(value) > keys.LONGEST:  # PostgreSQL has no index of long texts
        raise InvalidValue(f"{name} has at most {keys.LONGEST} characters; this one has {len(value):,}.")
    return value


def check_storable(name: str, text: str) -> None:
    """Refuse a text that is stored as it is and that no column can hold."""
    if "\0" in text or text != json.storable(text):
        raise InvalidValue(f"{name} has characters that can not be stored (NUL or half of a surrogate pair).")
