"""Lists of sessions: one page at a time, in a sort order and through filters. No message body is read.

A page begins after a cursor in the order and not after a number of rows, so that sessions that move in the list
meanwhile shift nothing. If a filter leaves few sessions, an index names them and they are sorted; if it leaves many,
the list is read in its order and the filter skips the others. Either way the cost is that of one page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import InvalidValue, SessionNotFound, format_value
from recollect.model import json, validation
from recollect.model.message import ROLES
from recollect.model.reports import Owners
from recollect.model.session import SESSION_STATUSES, SessionInfo
from recollect.model.times import TimeLike, parse_time
from recollect.model.title import title_sort_key
from recollect.storage import sessions
from recollect.storage.operation import Operation, Row, Scope, Steps, fetch_all, fetch_one

END_OF_TIME = 1 << 62  # milliseconds, later than any stored time
_MAX_LIMIT = 1_000_000  # sessions per page
_SORT_LIMIT = 500
"""Sessions. Up to this many matches of a filter are sorted; with more, a walk through the list soon fills a page."""

Order = Literal["activity", "created", "title"]
_ORDERED_QUERIES = {
    "activity": "sessions_by_activity",
    "created": "sessions_by_creation",
    "deleted": "sessions_by_deletion",
    "title": "sessions_by_folded_title",
}
_INDEXED_QUERIES = {
    "activity": "sessions_through_activity",
    "created": "sessions_through_creation",
    "title": "sessions_through_title",
}
_TIME_FIELDS = {"activity": "active_at", "created": "created_at", "deleted": "deleted_at"}
_FLAGS = ("archived", "pinned", "delegates")
_TEXTS = ("channel", "model", "tool", "parent")

# The index for each filter, most selective first.
_FILTER_INDEXES: tuple[tuple[str, Any, str], ...] = (
    ("parent", ..., "of_parent"),
    ("pinned", True, "of_pin"),
    ("titled", False, "of_untitled"),
    ("channel", ..., "of_channel"),
    ("model", ..., "of_model"),
    ("status", ..., "of_status"),
    ("archived", True, "of_archive"),
)
_NO_FILTERS: dict[str, Any] = dict.fromkeys(
    ("archived", "pinned", "titled", "channel", "model", "status", "parent", "delegates", "shown_keys", "tool", "role")
)
_ALL_TIME = (0, END_OF_TIME)
# The default list has its own statement: the others evaluate ten filters for each row.
_DEFAULT_FILTERS = {**_NO_FILTERS, "archived": False, "delegates": False}


class SessionPage(NamedTuple):
    """A page of sessions, and the cursor of the next one."""

    sessions: list[SessionInfo]
    next: str | None


class _ListCursor(NamedTuple):
    """A position in a list: the stage, the sort value and key of the last session, and the pinned sessions shown."""

    stage: int
    value: int | str
    key: int
    pins: list[int]


def read_page(
    scope: Scope,
    *,
    limit: int,
    after: str | None = None,
    order: str = "activity",
    deleted: bool = False,
    pinned_first: bool = False,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    filters: dict[str, Any],
) -> Operation[SessionPage]:
    """Read a page of sessions."""
    validation.check_choice("order", order, ("activity", "created", "title"))
    if type(limit) is not int or not 1 <= limit <= _MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit must be between 1 and {_MAX_LIMIT:,}, got {format_value(limit)}.")
    _check_filters(filters)
    by = "deleted" if validation.check_flag("deleted", deleted) else order
    stages = _stages(by, pinned_first=validation.check_flag("pinned_first", pinned_first), pinned=filters["pinned"])
    cursor = None if after is None else _decode_cursor(validation.check_plain_text("after", after), by, len(stages))
    bounds = (
        0 if since is None else parse_time(since, "since"),
        END_OF_TIME if until is None else parse_time(until, "until"),
    )
    return Operation(_read_page, scope, by, stages, cursor, limit, bounds, filters, writes=False)


def _check_filters(filters: dict[str, Any]) -> None:
    for name in _FLAGS:
        if filters[name] is not None and type(filters[name]) is not bool:
            raise InvalidValue(f"{name} must be True, False or None, got {format_value(filters[name])}.")
    for name in _TEXTS:
        value = filters[name]
        if value is not None:
            filters[name] = validation.check_plain_text(name, value)
    for name, choices in (("status", SESSION_STATUSES), ("role", ROLES)):
        if filters[name] is not None:
            validation.check_choice(name, filters[name], choices)


def _stages(by: str, *, pinned_first: bool, pinned: bool | None) -> list[dict[str, Any]]:
    """Return the stages of a list: pinned before the others, titled before untitled."""
    pins: list[dict[str, Any]] = [{"pinned": True}, {"pinned": False}] if pinned_first and pinned is None else [{}]
    titles: list[dict[str, Any]] = [{"titled": True}, {"titled": False}] if by == "title" else [{}]
    return [{**pin, **title} for pin in pins for title in titles]


def _read_page(
    scope: Scope,
    by: str,
    stages: list[dict[str, Any]],
    cursor: _ListCursor | None,
    limit: int,
    bounds: tuple[int, int],
    filters: dict[str, Any],
) -> Steps[SessionPage]:
    filter_values = {**_NO_FILTERS, **(yield from _resolve_parent(scope, filters))}
    if (
        cursor is None
        and by == "activity"
        and len(stages) > 1
        and filter_values == _DEFAULT_FILTERS
        and bounds == _ALL_TIME
    ):
        page = yield from _read_first_page(scope, limit)
        if page is not None:
            return page
    stage, pins = (0, list[int]()) if cursor is None else (cursor.stage, list(cursor.pins))
    entries: list[tuple[int, int, SessionInfo]] = []
    for index in range(stage, len(stages)):
        if len(entries) > limit:
            break
        start = cursor if index == stage else None
        stage_filters = {**filter_values, **stages[index]}
        if stage_filters["pinned"] is False and pins:
            # A session that was unpinned after it was shown is not shown again.
            stage_filters["shown_keys"] = json.encode(pins)
        if stages[index].get("pinned") and index + 1 < len(stages):
            # The engine must not commit with this statement: pinned sessions rarely fill a page, so another follows.
            stage_filters["continues"] = True
        rows = yield from _read_stage(scope, by, start, limit + 1 - len(entries), bounds, stage_filters)
        entries += [(index, row[0], sessions.session_from_row(row, 1)) for row in rows]
        if stages[index].get("pinned"):
            pins += [row[0] for row in rows[: limit - len(entries) + len(rows)]]
    return _make_page(by, entries, limit, pins)


def _make_page(
    by: str, entries: Sequence[tuple[int, int, SessionInfo]], limit: int, pins: Sequence[int]
) -> SessionPage:
    """Return a page of entries (stage, key, session); one entry more than the limit means that there is a next page."""
    more = _encode_cursor(by, *entries[limit - 1], pins) if len(entries) > limit else None
    return SessionPage([value for _, _, value in entries[:limit]], more)


def _read_first_page(scope: Scope, limit: int) -> Steps[SessionPage | None]:
    """Read the first default page in one statement; None if the engine has none or too many are pinned."""
    rows = yield from fetch_all("sessions_pinned_first", owner=scope.owner, limit=limit + 1, sort_limit=_SORT_LIMIT)
    if not rows:
        return None
    values = [(row[0], sessions.session_from_row(row, 1)) for row in rows]
    entries = [(int(value.pinned_at is None), key, value) for key, value in values]
    entries.sort(key=lambda each: (each[0], -each[2].active_at, -each[1]))
    return _make_page("activity", entries, limit, [key for stage, key, _ in entries[:limit] if not stage])


def _resolve_parent(scope: Scope, filters: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Replace the id of the parent by its key, also if it is in the trash."""
    parent = filters["parent"]
    if parent is None:
        return {**filters, "delegates": None if filters["delegates"] in (True, None) else False}
    row = (yield from sessions.find_live_row(scope, parent)) or (yield from sessions.find_trashed_row(scope, parent))
    if row is None:
        raise SessionNotFound(session=parent)
    return {**filters, "parent": row[0]}


def _read_stage(
    scope: Scope, by: str, cursor: _ListCursor | None, limit: int, bounds: tuple[int, int], filters: dict[str, Any]
) -> Steps[list[Row]]:
    """Read the next rows of one stage of a list."""
    since, until = bounds
    params: dict[str, Any] = {"owner": scope.owner, "since": since, "limit": limit}
    if by == "title" and filters["titled"]:
        sort_title, key = ("", 0) if cursor is None else (cursor.value, cursor.key)
        params |= {"until": until, "folded": sort_title, "key": key}
        params |= {"has_cursor": cursor is not None or None, "has_bounds": bounds != _ALL_TIME or None}
    else:
        by = "activity" if by == "title" else by
        at, key = _upper_bound(cursor, until)
        params |= {"at": at, "key": key, "has_cursor": at < END_OF_TIME or None, "has_bounds": since > 0 or None}
        if by == "activity" and filters == _DEFAULT_FILTERS:
            return (yield "sessions_default_list", params, False)
    params |= filters
    indexes = {} if by == "deleted" else _usable_indexes(filters)
    if not indexes:
        return (yield _ORDERED_QUERIES[by], params, False)
    params.update(indexes, sort_limit=_SORT_LIMIT, indexes=list(indexes))
    return (yield _INDEXED_QUERIES[by], params, False)


def _upper_bound(cursor: _ListCursor | None, until: int) -> tuple[int, int]:
    """Return the exclusive upper bound (time, key) of the next sessions."""
    return min((until, -1), (END_OF_TIME, END_OF_TIME) if cursor is None else (cursor.value, cursor.key))  # type: ignore[type-var]


def _usable_indexes(filters: dict[str, Any]) -> dict[str, Any]:
    """Return the indexes that the filters can use, with their values."""
    indexes: dict[str, Any] = {}
    for name, required, index in _FILTER_INDEXES:
        value = filters[name]
        if value is not None and (required is ... or value is required) and (name != "status" or value != "active"):
            indexes[index] = value if required is ... else True
    return indexes


def _encode_cursor(by: str, stage: int, key: int, last: SessionInfo, pins: Sequence[int]) -> str:
    """Return the cursor after a session."""
    import base64  # noqa: PLC0415  only if there is a next page

    value = _sort_value(by, last)
    text = json.encode([by[0], stage, value, key, *pins])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _sort_value(by: str, session: SessionInfo) -> int | str:
    if by == "title":
        return session.active_at if session.title is None else title_sort_key(session.title)
    return getattr(session, _TIME_FIELDS[by])


def _decode_cursor(text: str, by: str, stages: int) -> _ListCursor:
    """Return the cursor of a text from _encode_cursor(), for a list of the same order."""
    import base64  # noqa: PLC0415

    try:
        encoded = text + "=" * (-len(text) % 4)
        letter, stage, value, key, *pins = json.decode(base64.urlsafe_b64decode(encoded.encode("ascii")))
        is_time = isinstance(value, int) and 0 <= value <= END_OF_TIME
        is_title = isinstance(value, str) and by == "title" and stage % 2 == 0
        numbers = all(type(number) is int and 0 <= number <= END_OF_TIME for number in (stage, key, *pins))
        if letter == by[0] and numbers and stage < stages and (is_title or (is_time and (by != "title" or stage % 2))):
            return _ListCursor(stage, value, key, pins)
    except (ValueError, TypeError, AttributeError):
        pass
    raise InvalidValue(
        f"{format_value(text)} is not a cursor of this list. Use `next` of the previous page, with the same order."
    )


def read_newest(scope: Scope) -> Steps[SessionInfo | None]:
    """Read the most recently active session, archived or not."""
    params = {**_NO_FILTERS, "delegates": False, "owner": scope.owner, "since": 0, "limit": 1}
    row = yield from fetch_one("sessions_by_activity", at=END_OF_TIME, key=END_OF_TIME, **params)
    return None if row is None else sessions.session_from_row(row, 1)


def list_owners() -> Operation[Owners]:
    """List all owners that have data, not only the owner of the store."""
    return Operation(_list_owners, writes=False)


def _list_owners() -> Steps[Owners]:
    rows = yield from fetch_all("owners_all")
    visible = yield from fetch_one("owners_visible")
    return Owners(names=tuple(row[0] for row in rows), everyone=visible is not None and bool(visible[0]))
