"""The last session of an owner: the one that was set, or else the most recently active one."""

from __future__ import annotations

from recollect.model import json
from recollect.model.session import SessionInfo
from recollect.storage import listing, records, sessions
from recollect.storage.operation import Operation, Scope, Steps

_KEY = "last_session"


def read(scope: Scope) -> Operation[SessionInfo | None]:
    """Read the last session: the one that was set, or else the most recently active one."""
    return Operation(_read, scope, writes=False)


def _read(scope: Scope) -> Steps[SessionInfo | None]:
    text = yield from records.get_own(scope, records.SETTING_KIND, _KEY)
    if text is not None:
        session_row = yield from sessions.find_live_row(scope, json.decode(text))
        if session_row is not None:
            return sessions.stored_from_row(session_row).value
    return (yield from listing.read_newest(scope))


def store(scope: Scope, session: str) -> Operation[None]:
    """Store which session was active last."""
    return Operation(_store, scope, session)


def _store(scope: Scope, session: str) -> Steps[None]:
    current = yield from sessions.find(scope, session)
    yield from records.put_own(scope, records.SETTING_KIND, _KEY, json.encode(current.value.id))
