"""Pruning: letting sessions go by age, count and size, and emptying the trash. Nothing goes unless it is asked for.

Pinned sessions stay, and so do those in which a turn is open. A sub-agent's session goes with its parent. Each step is
a short transaction of its own, and looks again before it lets go: a session that was used, pinned or restored meanwhile
stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue
from recollect.model import argument, figure, moment
from recollect.model.moment import Duration
from recollect.model.pruning import Pruned, PruneReport, Reason
from recollect.op import Op, Plan, Row, Scope, Steps, do, one, rows
from recollect.ops import leases, retention, sessions, thinning

_FOREVER = 1 << 62
_PAGE = 200
_BATCH = 50
_ERASED = 10
"""Sessions in one transaction: erasing overwrites what they held."""


class _Resting(NamedTuple):
    """A session that could go: its row, and what it weighs where that was asked for.

    `touched_at` is the time of the last activity or change. The rules go by it: a session that was restored, renamed or
    unpinned has the activity that it had before, and must not be taken again at once.
    """

    key: int
    id: str
    title: str | None
    active_at: int
    listed_at: int
    touched_at: int
    exempt: bool
    messages: int = 0
    bytes: int = 0
    tool_steps: int = 0


class _Rules(NamedTuple):
    before: int | None
    keep: int | None
    max_bytes: int | None


def prune(
    scope: Scope,
    *,
    older_than: Duration | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    max_messages: int | None = None,
    tool_output_over: int | None = None,
    dry_run: bool = False,
    erase: bool = False,
) -> Plan[PruneReport]:
    """Let go of what one of these rules names, and say what it was."""
    numbers = {
        "keep": keep, "max_bytes": max_bytes, "max_messages": max_messages, "tool_output_over": tool_output_over,
    }  # fmt: skip
    for name, value in numbers.items():
        figure.whole(name, value)
    if max_messages == 0:
        raise InvalidValue("max_messages is a number from 1 on: a session keeps its newest turn.")
    before = None if older_than is None else scope.now - moment.duration(older_than, "older_than")
    rules = _Rules(before, keep, max_bytes)
    dry_run, erase = argument.flag("dry_run", dry_run), argument.flag("erase", erase)
    return _prune(scope, rules, max_messages, tool_output_over, dry_run=dry_run, erase=erase)


def _prune(
    scope: Scope, rules: _Rules, most: int | None, over: int | None, *, dry_run: bool, erase: bool
) -> Plan[PruneReport]:
    chosen: list[tuple[_Resting, Reason]] = []
    if any(rule is not None for rule in rules):
        chosen = _chosen((yield from _resting(scope, rules)), rules)
    gone = yield from _let_go(scope, chosen, dry_run=dry_run, erase=erase)
    trimmed = 0 if most is None else (yield from thinning.trim(scope, most, dry_run=dry_run))
    dropped = thinning.Dropped(0, 0)
    if over is not None:
        dropped = yield from thinning.drop(scope, over, dry_run=dry_run)
    if erase and gone and not dry_run:
        yield Op(_nothing, scrubs=True)
    return PruneReport(
        dry_run=dry_run, erased=erase, sessions=tuple(gone), outputs=dropped.outputs, output_bytes=dropped.bytes,
        trimmed=trimmed,
    )  # fmt: skip


def _nothing() -> Steps[None]:
    """Do nothing, in a transaction after which what was erased before is overwritten."""
    yield from ()


def _resting(scope: Scope, rules: _Rules) -> Plan[list[_Resting]]:
    """Read the sessions that the rules are about, the newest first."""
    everything = rules.keep is not None or rules.max_bytes is not None
    place = (_FOREVER, _FOREVER) if everything or rules.before is None else (rules.before, -1)
    found: list[_Resting] = []
    while True:
        page: list[_Resting] = yield Op(_page, scope, place, rules.max_bytes is not None, writes=False)
        found += page
        if len(page) < _PAGE:
            return found
        place = (page[-1].listed_at, page[-1].key)


def _page(scope: Scope, place: tuple[int, int], weigh: bool) -> Steps[list[_Resting]]:
    found: list[_Resting] = []
    for row in (yield from rows("sessions_resting", owner=scope.owner, at=place[0], key=place[1], limit=_PAGE)):
        item = yield from _read(scope, row)
        found.append((yield from _weighed(scope, item)) if weigh else item)
    return found


def _read(scope: Scope, row: Row) -> Steps[_Resting]:
    key, id, title, active, listed, pinned, turns, touched = row
    exempt = pinned is not None or (bool(turns) and (yield from leases.busy(scope, key)))
    return _Resting(key, id, title, active, listed, touched, exempt)


def _weighed(scope: Scope, item: _Resting) -> Steps[_Resting]:
    said = yield from one("messages_weight", session=item.key)
    payloads = yield from one("blobs_weight", owner=scope.owner, session=item.key)
    assert said is not None
    assert payloads is not None
    return item._replace(messages=said[0], bytes=said[1] + payloads[0], tool_steps=said[2])


def _chosen(found: Sequence[_Resting], rules: _Rules) -> list[tuple[_Resting, Reason]]:
    """Choose what goes: what was touched longest ago goes first."""
    chosen: dict[int, tuple[_Resting, Reason]] = {}
    loose = sorted((item for item in found if not item.exempt), key=lambda item: item.touched_at, reverse=True)
    if rules.before is not None:
        chosen |= {item.key: (item, "age") for item in loose if item.touched_at < rules.before}
    if rules.keep is not None:
        chosen = {**{item.key: (item, "count") for item in loose[rules.keep :]}, **chosen}
    if rules.max_bytes is not None:
        left = sum(item.bytes for item in found if item.key not in chosen)
        for item in reversed(loose):
            if left <= rules.max_bytes:
                break
            if item.key not in chosen and item.bytes:
                chosen[item.key] = (item, "size")
                left -= item.bytes
    return sorted(chosen.values(), key=lambda pair: (pair[0].active_at, pair[0].key))


def _let_go(
    scope: Scope, chosen: Sequence[tuple[_Resting, Reason]], *, dry_run: bool, erase: bool
) -> Plan[list[Pruned]]:
    gone: list[Pruned] = []
    size = _ERASED if erase else _BATCH
    for start in range(0, len(chosen), size):
        some = chosen[start : start + size]
        gone += yield Op(_batch, scope, some, dry_run, erase, writes=not dry_run, unindexes=erase, frees=True)
    return gone


def _batch(scope: Scope, some: Sequence[tuple[_Resting, Reason]], dry_run: bool, erase: bool) -> Steps[list[Pruned]]:
    gone: list[Pruned] = []
    for item, reason in some:
        family = yield from _family(scope, item)
        for place, here in enumerate(family):
            known = _Resting(here.session, here.value.id, here.value.title, _active(here), 0, 0, exempt=False)
            weighed = yield from _weighed(scope, known)
            gone.append(_pruned(weighed, "parent" if place else reason))
            if not dry_run:
                yield from _release(scope, here, erase=erase)
    return gone


def _pruned(item: _Resting, reason: Reason) -> Pruned:
    return Pruned(
        id=item.id, title=item.title, active_at=item.active_at, messages=item.messages, bytes=item.bytes, reason=reason,
        tool_steps=item.tool_steps,
    )  # fmt: skip


def _active(here: sessions.Here) -> int:
    return max(here.value.active_at, here.value.last_message_at or 0)


def _family(scope: Scope, item: _Resting) -> Steps[list[sessions.Here]]:
    """Look again at a session that was chosen, and find its sub-agents' sessions. Nothing where it is to stay."""
    found: list[sessions.Here] = []
    keys = [item.key]
    for key in keys:  # it grows: sub-agents have sub-agents
        row = yield from one("session_by_key", session=key)
        if row is None:
            return []
        here = sessions.here(row)
        value = here.value
        if value.deleted_at is not None or value.pinned_at is not None:
            return []
        if here.open_turns and (yield from leases.busy(scope, key)):
            return []
        found.append(here)
        keys += [row[0] for row in (yield from rows("sessions_delegated", session=key))]
    return found if max(_active(found[0]), found[0].value.updated_at) == item.touched_at else []


def _release(scope: Scope, here: sessions.Here, *, erase: bool) -> Steps[None]:
    if erase:
        yield from retention.remove(scope, here)
    else:
        yield from do("session_trash", owner=scope.owner, id=here.value.id, now=scope.now)


def empty_trash(scope: Scope, *, older_than: Duration | None = None, dry_run: bool = False) -> Plan[PruneReport]:
    """Erase what is in the trash, or what has been there for so long. Forks keep the past that they share."""
    until = scope.now if older_than is None else scope.now - moment.duration(older_than, "older_than")
    return _empty(scope, until, dry_run=argument.flag("dry_run", dry_run))


def _empty(scope: Scope, until: int, *, dry_run: bool) -> Plan[PruneReport]:
    gone: list[Pruned] = []
    after = 0
    while True:
        page: tuple[list[Pruned], int | None] = yield Op(
            _emptied, scope, until, after, dry_run, writes=not dry_run, unindexes=True, frees=True
        )
        gone += page[0]
        if page[1] is None:
            break
        after = page[1]
    if gone and not dry_run:
        yield Op(_nothing, scrubs=True)
    return PruneReport(dry_run=dry_run, erased=True, sessions=tuple(gone))


def _emptied(scope: Scope, until: int, after: int, dry_run: bool) -> Steps[tuple[list[Pruned], int | None]]:
    found = yield from rows("sessions_trashed", owner=scope.owner, until=until, after=after, limit=_ERASED)
    gone: list[Pruned] = []
    for row in found:
        key, id, title, active, listed, _, _, touched = row
        weighed: Any = yield from _weighed(scope, _Resting(key, id, title, active, listed, touched, exempt=False))
        gone.append(_pruned(weighed, "trash"))
        if not dry_run:
            yield from retention.remove(scope, (yield from sessions.stored(key)))
    return gone, found[-1][0] if len(found) == _ERASED else None
