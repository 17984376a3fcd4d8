"""Who is in a session. A row among the settings for each arrival: written when a talk begins, removed when it ends.

Messages and turns know nothing of it, so that it costs them nothing. A process that died is told by its id; one of
another machine, where that can not be told, by having said nothing for a while.
"""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidValue
from recollect.model import argument, json
from recollect.model.presence import Arrived, Presence
from recollect.op import Op, Scope, Steps, do, one, rows
from recollect.ops import leases, sessions

STAYS = 15 * 60
"""Seconds after which one who did not say stay() is taken for gone, where it can not be told otherwise."""

_KEY, _AFTER = "presence:", "presence;"
_LONGEST = 40


def arrive(scope: Scope, session: str, id: str, surface: str, *, take_over: bool = False) -> Op[Arrived]:
    """Say that someone talks in a session from now on, and give who else does; `take_over` sends them away."""
    if type(surface) is not str or not surface.strip() or len(surface) > _LONGEST or not surface.isprintable():
        raise InvalidValue(f"A surface is a word such as terminal or web, of at most {_LONGEST} characters.")
    argument.text("The id of a place", id)
    return Op(_arrive, scope, session, id, surface, argument.flag("take_over", take_over))


def _arrive(scope: Scope, session: str, id: str, surface: str, take_over: bool) -> Steps[Arrived]:
    here = yield from sessions.find(scope, session)
    everyone = yield from _everyone(scope)
    living = [one for one in everyone if not _gone(scope, one)]
    for dead in everyone:
        if dead not in living:
            yield from do("setting_delete", owner=scope.owner, key=_KEY + dead.id)
    others = [one for one in living if one.session == session and one.id != id]
    since = next((one.since_at for one in living if one.session == session and one.id == id), scope.now)
    plain = {"session": session, "surface": surface, "holder": scope.holder, "since": since}
    yield from do("setting_set", owner=scope.owner, key=f"{_KEY}{id}", value=json.encode(plain), now=scope.now)
    others += yield from _turning(scope, session, here.session, {scope.holder, *(one.holder for one in others)})
    if take_over:
        yield from _send_away(scope, here.session, others)
    return Arrived(id, others)


def _send_away(scope: Scope, session: int, others: list[Presence]) -> Steps[None]:
    for other in others:
        yield from do("setting_delete", owner=scope.owner, key=_KEY + other.id)
    for branch, _, position in (yield from rows("branches_open", session=session)):
        yield from leases.seize(scope, session, branch, position)
    yield from leases.changed(scope, session)  # who watches looks, and finds that the place is gone


def present(scope: Scope, session: str) -> Op[list[Presence]]:
    """Give who is in a session, whoever came first before the others."""
    return Op(_present, scope, session, writes=False)


def _present(scope: Scope, session: str) -> Steps[list[Presence]]:
    here = yield from sessions.find(scope, session)
    everyone = yield from _everyone(scope)
    found = [one for one in everyone if one.session == session and not _gone(scope, one)]
    found += yield from _turning(scope, session, here.session, {one.holder for one in found})
    return sorted(found, key=lambda one: one.since_at)


def stay(scope: Scope, id: str) -> Op[bool]:
    """Say that one is still there; False where one was sent away."""
    argument.text("The id of a place", id)
    return Op(_stay, scope, id)


def _stay(scope: Scope, id: str) -> Steps[bool]:
    return (yield from one("setting_touch", owner=scope.owner, key=f"{_KEY}{id}", now=scope.now)) is not None


def leave(scope: Scope, id: str) -> Op[None]:
    """Say that one is there no more."""
    argument.text("The id of a place", id)
    return Op(_leave, scope, id)


def _leave(scope: Scope, id: str) -> Steps[None]:
    yield from do("setting_delete", owner=scope.owner, key=f"{_KEY}{id}")


def forget(scope: Scope, erased: list[str]) -> Steps[None]:
    """Drop what is known of sessions that are erased."""
    for here in (yield from _everyone(scope)):
        if here.session in erased:
            yield from do("setting_delete", owner=scope.owner, key=_KEY + here.id)


def _everyone(scope: Scope) -> Steps[list[Presence]]:
    found = yield from rows("settings_between", owner=scope.owner, low=_KEY, high=_AFTER)
    read = [_read(key, json.decode(text), seen) for key, text, seen in found]
    return [one for one in read if one is not None]


def _read(key: str, plain: Any, seen: int) -> Presence | None:
    """Read a row; anyone may have written another value under such a key."""
    match plain:
        case {"session": str(session), "surface": str(surface), "holder": str(holder), "since": int(since)}:
            id = key.removeprefix(_KEY)
            return Presence(
                id=id, session=session, surface=surface, holder=holder, since_at=since, seen_at=max(since, seen)
            )
        case _:
            return None


def _gone(scope: Scope, presence: Presence) -> bool:
    if scope.gone(presence.holder):
        return True
    machine, *process = presence.holder.rsplit(":", 2)
    certain = all(process) and machine == scope.holder.rsplit(":", 2)[0]  # a living process of this machine
    return not certain and presence.seen_at + STAYS * 1000 <= scope.now


def _turning(scope: Scope, session: str, key: int, known: set[str]) -> Steps[list[Presence]]:
    """Find who is in the middle of a turn without having said that they are there, such as a program."""
    found: list[Presence] = []
    for branch, number, position in (yield from rows("branches_open", session=key)):
        live = yield from leases.holder(scope, branch, position)
        if live is not None and live.name not in known:
            id = f"turn {number}.{position}"
            since = live.since
            found.append(
                Presence(id=id, session=session, surface="program", holder=live.name, since_at=since, seen_at=scope.now)
            )
    return found
