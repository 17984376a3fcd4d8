"""Settings of an owner: any JSON value by key. The last active session is one of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from recollect.errors import InvalidValue
from recollect.model import json, validation
from recollect.model.session import SessionInfo
from recollect.storage import listing, sessions
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, fetch_one

_LAST_SESSION = "last_session"
_MAX_KEY_LENGTH = 512  # characters. PostgreSQL limits index entries to about 2,700 bytes.


class SettingValueRow(NamedTuple):
    """The value of a setting, as JSON."""

    value: str


SETTING_GET = Query("setting_get", SettingValueRow)


def last_session(scope: Scope) -> Operation[SessionInfo | None]:
    """Read the last session: the one that was set, or else the most recently active one."""
    return Operation(_last_session, scope, writes=False)


def _last_session(scope: Scope) -> Steps[SessionInfo | None]:
    row = yield from fetch_one(SETTING_GET, owner=scope.owner, key=_LAST_SESSION)
    if row is not None:
        session_row = yield from sessions.find_live_row(scope, json.decode(row.value))
        if session_row is not None:
            return sessions.stored_from_row(session_row).value
    return (yield from listing.read_newest(scope))


def set_last_session(scope: Scope, session: str) -> Operation[None]:
    """Store which session was active last."""
    return Operation(_set_last_session, scope, session)


def _set_last_session(scope: Scope, session: str) -> Steps[None]:
    current = yield from sessions.find(scope, session)
    id = json.encode(current.value.id)
    yield from execute("setting_set", owner=scope.owner, key=_LAST_SESSION, value=id, now=scope.now)


def get_setting(scope: Scope, key: str, default: Any = None) -> Operation[Any]:
    """Read a setting."""
    _check_key(key)
    return Operation(_get_setting, scope, key, default, writes=False)


def _check_key(key: str) -> None:
    """Raise InvalidValue for an invalid setting key; PostgreSQL cannot index longer texts."""
    validation.check_text("key", key)
    if len(key) > _MAX_KEY_LENGTH:
        raise InvalidValue(f"key must have at most {_MAX_KEY_LENGTH} characters, got {len(key):,}.")


def _get_setting(scope: Scope, key: str, default: Any) -> Steps[Any]:
    row = yield from fetch_one(SETTING_GET, owner=scope.owner, key=key)
    return default if row is None else json.decode(row.value)


def set_setting(scope: Scope, key: str, value: Any) -> Operation[None]:
    """Write a setting; None deletes it."""
    _check_key(key)
    return Operation(_set_setting, scope, key, None if value is None else json.encode(json.to_json_data(value)))


def _set_setting(scope: Scope, key: str, text: str | None) -> Steps[None]:
    if text is None:
        yield from execute("setting_delete", owner=scope.owner, key=key)
    else:
        yield from execute("setting_set", owner=scope.owner, key=key, value=text, now=scope.now)
