"""Settings of an owner: any JSON value by its key. Which session is active now is one of them."""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidValue
from recollect.model import argument, json
from recollect.model.session import Session
from recollect.op import Op, Scope, Steps, do, one
from recollect.ops import lists, sessions

_LAST_SESSION = "last_session"
_LONGEST = 512


def last(scope: Scope) -> Op[Session | None]:
    """Read which session was last active: the one that was set, or else the one with the newest activity."""
    return Op(_last, scope, writes=False)


def _last(scope: Scope) -> Steps[Session | None]:
    row = yield from one("setting_get", owner=scope.owner, key=_LAST_SESSION)
    if row is not None:
        found = yield from one("session_get", owner=scope.owner, id=json.decode(row[0]))
        if found is not None:
            return sessions.here(found).value
    return (yield from lists.newest(scope))


def set_last(scope: Scope, session: str) -> Op[None]:
    """Remember which session is active now."""
    return Op(_set_last, scope, session)


def _set_last(scope: Scope, session: str) -> Steps[None]:
    found = yield from sessions.find(scope, session)
    id = json.encode(found.value.id)
    yield from do("setting_set", owner=scope.owner, key=_LAST_SESSION, value=id, now=scope.now)


def setting(scope: Scope, key: str, default: Any = None) -> Op[Any]:
    """Read a setting."""
    _check(key)
    return Op(_setting, scope, key, default, writes=False)


def _check(key: str) -> None:
    """Refuse what can not be the key of a setting; a longer text would fit into no index of PostgreSQL's."""
    argument.text("The key of a setting", key)
    if len(key) > _LONGEST:
        raise InvalidValue(f"The key of a setting has at most {_LONGEST} characters; this one has {len(key):,}.")


def _setting(scope: Scope, key: str, default: Any) -> Steps[Any]:
    row = yield from one("setting_get", owner=scope.owner, key=key)
    return default if row is None else json.decode(row[0])


def set_setting(scope: Scope, key: str, value: Any) -> Op[None]:
    """Write a setting; None removes it."""
    _check(key)
    return Op(_set_setting, scope, key, None if value is None else json.encode(json.exact(value)))


def _set_setting(scope: Scope, key: str, text: str | None) -> Steps[None]:
    if text is None:
        yield from do("setting_delete", owner=scope.owner, key=key)
    else:
        yield from do("setting_set", owner=scope.owner, key=key, value=text, now=scope.now)
