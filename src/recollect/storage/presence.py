"""Presence: who is attached to a session.

Each attachment is a record of the store, written on arrival and deleted on departure. Messages and turns do not
depend on it, so it costs them nothing. A process of this machine that died is detected by its process id; one of
another machine by its silence for TIMEOUT seconds.
"""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.model import json, validation
from recollect.model.record import check_new_key
from recollect.model.session import ArriveResult, Presence
from recollect.storage import leases, records, sessions
from recollect.storage.operation import Operation, Scope, Steps, fetch_all

TIMEOUT = 15 * 60
"""Seconds without stay() after which a presence of another machine counts as gone: its process cannot be checked."""

_MAX_SURFACE_LENGTH = 40  # characters, so that it fits into a line of a list


def arrive(scope: Scope, session: str, id: str, surface: str, *, take_over: bool = False) -> Operation[ArriveResult]:
    """Record a presence in a session, and return the others there; `take_over` removes them and ends their turns."""
    if (
        type(surface) is not str
        or not surface.strip()
        or len(surface) > _MAX_SURFACE_LENGTH
        or not surface.isprintable()
    ):
        raise InvalidValue(
            f"surface must be a word such as terminal or web, with at most {_MAX_SURFACE_LENGTH} characters, "
            f"got {format_value(surface)}."
        )
    check_new_key("id", id)
    return Operation(_arrive, scope, session, id, surface, validation.check_flag("take_over", take_over))


def _arrive(scope: Scope, session: str, id: str, surface: str, take_over: bool) -> Steps[ArriveResult]:
    current = yield from sessions.find(scope, session)
    presences = yield from _read_all(scope)
    alive = [other for other in presences if not _is_gone(scope, other)]
    for dead in presences:
        if dead not in alive:
            yield from records.delete_own(scope, records.PRESENCE_KIND, dead.id)
    others = [other for other in alive if other.session == session and other.id != id]
    since = next((other.since_at_ms for other in alive if other.session == session and other.id == id), scope.now)
    plain = {"session": session, "surface": surface, "holder": scope.holder, "since": since}
    yield from records.put_own(scope, records.PRESENCE_KIND, id, json.encode(plain))
    others += yield from _turn_holders(
        scope, session, current.session, {scope.holder, *(other.holder for other in others)}
    )
    if take_over:
        yield from _remove_others(scope, current.session, others)
    return ArriveResult(id, others)


def _remove_others(scope: Scope, session: int, others: list[Presence]) -> Steps[None]:
    for other in others:
        yield from records.delete_own(scope, records.PRESENCE_KIND, other.id)
    for branch in (yield from fetch_all(leases.BRANCHES_OPEN, session=session)):
        yield from leases.take_over_turn(scope, session, branch.key, branch.open_turn)
    # Watchers then read the session again, and find that their presence was removed.
    yield from leases.raise_revision(scope, session)


def present(scope: Scope, session: str) -> Operation[list[Presence]]:
    """Return the presences in a session, earliest first."""
    return Operation(_present, scope, session, writes=False)


def _present(scope: Scope, session: str) -> Steps[list[Presence]]:
    current = yield from sessions.find(scope, session)
    presences = yield from _read_all(scope)
    present = [other for other in presences if other.session == session and not _is_gone(scope, other)]
    present += yield from _turn_holders(scope, session, current.session, {other.holder for other in present})
    return sorted(present, key=lambda other: other.since_at_ms)


def stay(scope: Scope, id: str) -> Operation[bool]:
    """Refresh a presence; return False if it was removed."""
    validation.check_text("id", id)
    return Operation(_stay, scope, id)


def _stay(scope: Scope, id: str) -> Steps[bool]:
    return (yield from records.touch_own(scope, records.PRESENCE_KIND, id))


def leave(scope: Scope, id: str) -> Operation[None]:
    """Remove a presence."""
    validation.check_text("id", id)
    return Operation(_leave, scope, id)


def _leave(scope: Scope, id: str) -> Steps[None]:
    yield from records.delete_own(scope, records.PRESENCE_KIND, id)


def delete_for_sessions(scope: Scope, ids: list[str]) -> Steps[None]:
    """Delete the presences in erased sessions."""
    for entry in (yield from _read_all(scope)):
        if entry.session in ids:
            yield from records.delete_own(scope, records.PRESENCE_KIND, entry.id)


def _read_all(scope: Scope) -> Steps[list[Presence]]:
    rows = yield from records.list_own(scope, records.PRESENCE_KIND)
    presences = [_presence_from_row(row) for row in rows]
    return [entry for entry in presences if entry is not None]


def _presence_from_row(row: records.KeyedRecordRow) -> Presence | None:
    """Return a presence, or None: in older versions, a program could store another value under its key."""
    plain: Any = None if row.value is None else json.decode(row.value)
    match plain:
        case {"session": str(session), "surface": str(surface), "holder": str(holder), "since": int(since)}:
            return Presence(
                id=row.key.decode(),
                session=session,
                surface=surface,
                holder=holder,
                since_at_ms=since,
                seen_at_ms=max(since, row.updated_at),
            )
        case _:
            return None


def _is_gone(scope: Scope, presence: Presence) -> bool:
    if scope.is_gone(presence.holder):
        return True
    machine, *process = presence.holder.rsplit(":", 2)
    # is_gone() has tested the processes of this machine. For all others, only the time since their last stay() counts.
    is_local = all(process) and machine == scope.holder.rsplit(":", 2)[0]
    return not is_local and presence.seen_at_ms + TIMEOUT * 1000 <= scope.now


def _turn_holders(scope: Scope, session: str, key: int, holders: set[str]) -> Steps[list[Presence]]:
    """Return the holders of live turns that recorded no presence, such as programs."""
    presences: list[Presence] = []
    for branch in (yield from fetch_all(leases.BRANCHES_OPEN, session=key)):
        live = yield from leases.live_holder(scope, branch.key, branch.open_turn)
        if live is not None and live.name not in holders:
            id = f"turn {branch.number}.{branch.open_turn}"
            since = live.since
            presences.append(
                Presence(
                    id=id, session=session, surface="program", holder=live.name, since_at_ms=since, seen_at_ms=scope.now
                )
            )
    return presences
