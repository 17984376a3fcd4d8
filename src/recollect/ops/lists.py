"""Lists of sessions: a page at a time, by key, in an order and through filters. No message body is read.

A page begins after a place in the order and not after a number of rows, so that what moves in the list meanwhile
shifts nothing. Where a filter leaves few sessions, an index names them and they are put in order; where it leaves many,
the list is walked in its order and the filter passes over the others. Either way the cost is that of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import InvalidValue, SessionNotFound, displayed
from recollect.model import argument, json
from recollect.model.message import ROLES
from recollect.model.moment import Moment, moment
from recollect.model.owners import Owners
from recollect.model.session import STATUSES, Session
from recollect.model.title import folded
from recollect.op import Op, Row, Scope, Steps, one, rows
from recollect.ops import sessions

NEVER = 1 << 62
_MOST = 1_000_000
_FEW = 500
"""Up to so many sessions are put in order by themselves; where there are more, one in so many fits soon enough."""

Order = Literal["activity", "created", "title"]
_WALKS = {
    "activity": "sessions_by_activity",
    "created": "sessions_by_creation",
    "deleted": "sessions_by_deletion",
    "title": "sessions_by_folded_title",
}
_THROUGH = {
    "activity": "sessions_through_activity",
    "created": "sessions_through_creation",
    "title": "sessions_through_title",
}
_TIMES = {"activity": "active_at", "created": "created_at", "deleted": "deleted_at"}
_FLAGS = ("archived", "pinned", "delegates")
_TEXTS = ("channel", "model", "tool", "parent")

# Which index names the sessions that a filter leaves. The fewest are to be expected from the first.
_INDEXED: tuple[tuple[str, Any, str], ...] = (
    ("parent", ..., "of_parent"),
    ("pinned", True, "of_pin"),
    ("titled", False, "of_untitled"),
    ("channel", ..., "of_channel"),
    ("model", ..., "of_model"),
    ("status", ..., "of_status"),
    ("archived", True, "of_archive"),
)
_NO_FILTERS: dict[str, Any] = dict.fromkeys(
    ("archived", "pinned", "titled", "channel", "model", "status", "parent", "delegates", "shown", "tool", "role")
)
_EVER = (0, NEVER)
# The list as it is mostly asked for has a statement of its own: the others look at each of ten filters for each row.
_USUAL = {**_NO_FILTERS, "archived": False, "delegates": False}


class Listed(NamedTuple):
    """A page of sessions, and where the next one begins."""

    sessions: list[Session]
    next: str | None


class _Place(NamedTuple):
    """A place in a list: which stretch of it, after which value and key, and which pinned sessions were shown."""

    stage: int
    value: int | str
    key: int
    pins: list[int]


def page(
    scope: Scope,
    *,
    limit: int,
    after: str | None = None,
    order: str = "activity",
    deleted: bool = False,
    pinned_first: bool = False,
    since: Moment | None = None,
    until: Moment | None = None,
    filters: dict[str, Any],
) -> Op[Listed]:
    """Read a page of sessions."""
    argument.choice("order", order, ("activity", "created", "title"))
    if type(limit) is not int or not 1 <= limit <= _MOST:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit is a number from 1 to {_MOST:,}; got {displayed(limit)}.")
    _check(filters)
    by = "deleted" if argument.flag("deleted", deleted) else order
    stages = _stages(by, pinned_first=argument.flag("pinned_first", pinned_first), pinned=filters["pinned"])
    place = None if after is None else _read(argument.plain_text("after", after), by, len(stages))
    between = (0 if since is None else moment(since, "since"), NEVER if until is None else moment(until, "until"))
    return Op(_page, scope, by, stages, place, limit, between, filters, writes=False)


def _check(filters: dict[str, Any]) -> None:
    for name in _FLAGS:
        if filters[name] is not None and type(filters[name]) is not bool:
            raise InvalidValue(f"{name} is True, False or None for either; got {displayed(filters[name])}.")
    for name in _TEXTS:
        value = filters[name]
        if value is not None:
            filters[name] = argument.plain_text(name, value)
    for name, known in (("status", STATUSES), ("role", ROLES)):
        if filters[name] is not None:
            argument.choice(name, filters[name], known)


def _stages(by: str, *, pinned_first: bool, pinned: bool | None) -> list[dict[str, Any]]:
    """Split a list into its stretches: pinned before the others, titled before untitled."""
    pins: list[dict[str, Any]] = [{"pinned": True}, {"pinned": False}] if pinned_first and pinned is None else [{}]
    titles: list[dict[str, Any]] = [{"titled": True}, {"titled": False}] if by == "title" else [{}]
    return [{**pin, **title} for pin in pins for title in titles]


def _page(
    scope: Scope,
    by: str,
    stages: list[dict[str, Any]],
    place: _Place | None,
    limit: int,
    between: tuple[int, int],
    filters: dict[str, Any],
) -> Steps[Listed]:
    chosen = {**_NO_FILTERS, **(yield from _related(scope, filters))}
    if place is None and by == "activity" and len(stages) > 1 and chosen == _USUAL and between == _EVER:
        shown = yield from _first_with_pins(scope, limit)
        if shown is not None:
            return shown
    stage, pins = (0, list[int]()) if place is None else (place.stage, list(place.pins))
    found: list[tuple[int, int, Session]] = []
    for index in range(stage, len(stages)):
        if len(found) > limit:
            break
        begun = place if index == stage else None
        narrowed = {**chosen, **stages[index]}
        if narrowed["pinned"] is False and pins:
            narrowed["shown"] = json.encode(pins)  # one that was unpinned since it was shown is not shown again
        if stages[index].get("pinned") and index + 1 < len(stages):
            narrowed["goes_on"] = True  # the pinned ones are mostly fewer than a page
        some = yield from _stretch(scope, by, begun, limit + 1 - len(found), between, narrowed)
        found += [(index, row[0], sessions.value_of(row, 1)) for row in some]
        if stages[index].get("pinned"):
            pins += [row[0] for row in some[: limit - len(found) + len(some)]]
    return _listed(by, found, limit, pins)


def _listed(by: str, found: Sequence[tuple[int, int, Session]], limit: int, pins: Sequence[int]) -> Listed:
    """Make a page of what was found, each in its stretch and by its key; one more than fit says that there is more."""
    more = _written(by, *found[limit - 1], pins) if len(found) > limit else None
    return Listed([value for _, _, value in found[:limit]], more)


def _first_with_pins(scope: Scope, limit: int) -> Steps[Listed | None]:
    """Read the page that a window shows first, in one statement; None where the engine has none, or many are pinned."""
    some = yield from rows("sessions_pinned_first", owner=scope.owner, limit=limit + 1, few=_FEW)
    if not some:
        return None
    values = [(row[0], sessions.value_of(row, 1)) for row in some]
    found = [(int(value.pinned_at is None), key, value) for key, value in values]
    found.sort(key=lambda each: (each[0], -each[2].active_at, -each[1]))
    return _listed("activity", found, limit, [key for unpinned, key, _ in found[:limit] if not unpinned])


def _related(scope: Scope, filters: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Find the parent whose forks or sub-agents are asked for, living or in the trash."""
    parent = filters["parent"]
    if parent is None:
        return {**filters, "delegates": None if filters["delegates"] in (True, None) else False}
    row = (yield from sessions.living(scope, parent)) or (yield from sessions.in_trash(scope, parent))
    if row is None:
        raise SessionNotFound(session=parent)
    return {**filters, "parent": row[0]}


def _stretch(
    scope: Scope, by: str, place: _Place | None, limit: int, between: tuple[int, int], chosen: dict[str, Any]
) -> Steps[list[Row]]:
    """Read on in one stretch of a list."""
    since, until = between
    params: dict[str, Any] = {"owner": scope.owner, "since": since, "limit": limit}
    if by == "title" and chosen["titled"]:
        folded, key = ("", 0) if place is None else (place.value, place.key)
        params |= {"until": until, "folded": folded, "key": key}
        params |= {"beyond": place is not None or None, "bounded": between != _EVER or None}
    else:
        by = "activity" if by == "title" else by
        at, key = _before(place, until)
        params |= {"at": at, "key": key, "beyond": at < NEVER or None, "bounded": since > 0 or None}
        if by == "activity" and chosen == _USUAL:
            return (yield "sessions_usual", params, False)
    params |= chosen
    given = {} if by == "deleted" else _indexed(chosen)
    if not given:
        return (yield _WALKS[by], params, False)
    params.update(given, few=_FEW, indexes=list(given))
    return (yield _THROUGH[by], params, False)


def _before(place: _Place | None, until: int) -> tuple[int, int]:
    """Give the moment and the key that what follows a place lies before."""
    return min((until, -1), (NEVER, NEVER) if place is None else (place.value, place.key))  # type: ignore[type-var]


def _indexed(chosen: dict[str, Any]) -> dict[str, Any]:
    """Say which indexes name the sessions that a filter leaves, and by what."""
    given: dict[str, Any] = {}
    for name, wanted, index in _INDEXED:
        value = chosen[name]
        if value is not None and (wanted is ... or value is wanted) and (name != "status" or value != "active"):
            given[index] = value if wanted is ... else True
    return given


def _written(by: str, stage: int, key: int, last: Session, pins: Sequence[int]) -> str:
    """Write down the place after a session."""
    import base64  # noqa: PLC0415  only where a list goes on

    value = _sorted_by(by, last)
    text = json.encode([by[0], stage, value, key, *pins])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _sorted_by(by: str, session: Session) -> int | str:
    if by == "title":
        return session.active_at if session.title is None else folded(session.title)
    return getattr(session, _TIMES[by])


def _read(text: str, by: str, stages: int) -> _Place:
    """Read a place that _written() wrote, for a list of the same order."""
    import base64  # noqa: PLC0415

    try:
        padded = text + "=" * (-len(text) % 4)
        letter, stage, value, key, *pins = json.decode(base64.urlsafe_b64decode(padded.encode("ascii")))
        timed = isinstance(value, int) and 0 <= value <= NEVER
        worded = isinstance(value, str) and by == "title" and stage % 2 == 0
        numbers = all(type(number) is int and 0 <= number <= NEVER for number in (stage, key, *pins))
        if letter == by[0] and numbers and stage < stages and (worded or (timed and (by != "title" or stage % 2))):
            return _Place(stage, value, key, pins)
    except (ValueError, TypeError, AttributeError):
        pass
    raise InvalidValue(
        f"{displayed(text)} is no place in this list. Use the `next` of the page before, in the same order."
    )


def newest(scope: Scope) -> Steps[Session | None]:
    """Read the session with the newest activity, archived or not."""
    params = {**_NO_FILTERS, "delegates": False, "owner": scope.owner, "since": 0, "limit": 1}
    row = yield from one("sessions_by_activity", at=NEVER, key=NEVER, **params)
    return None if row is None else sessions.value_of(row, 1)


def owners() -> Op[Owners]:
    """List the owners that have anything, whoever asks."""
    return Op(_owners, writes=False)


def _owners() -> Steps[Owners]:
    found = yield from rows("owners_all")
    seen = yield from one("owners_seen")
    return Owners(names=tuple(row[0] for row in found), everyone=seen is not None and bool(seen[0]))
