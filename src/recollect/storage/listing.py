"""Lists of sessions: one page at a time, in a sort order and through filters. No message body is read.

A page begins after a cursor in the order and not after a number of rows, so that sessions that move in the list
meanwhile shift nothing. If a filter leaves few sessions, an index names them and they are sorted; if it leaves many,
the list is read in its order and the filter skips the others. Either way the cost is that of one page.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.model import json, validation
from recollect.model.message import ROLES
from recollect.model.reports import Owners
from recollect.model.session import RELATIONS, SESSION_STATUSES, SessionInfo
from recollect.model.times import TimeLike, parse_time
from recollect.model.title import title_sort_key
from recollect.storage import sessions
from recollect.storage.fast_paths import ListedSessionRow, ListSessionsRequest
from recollect.storage.operation import Operation, Query, Row, Scope, Steps, fetch_all, fetch_one, fetch_tuples
from recollect.storage.session_filters import SessionFilters, session_filters
from recollect.storage.sessions import session_from_columns

END_OF_TIME = 1 << 62  # milliseconds, later than any stored time
_MAX_LIMIT = 1_000_000  # sessions per page
_MAX_LABEL_LOOKUPS = 8
"""Labels of a filter that are looked up until one has few sessions; more lookups would cost more than they save."""
_SORT_LIMIT = 500
"""Sessions. Up to this many matches of a filter are sorted; with more, a walk through the list soon fills a page."""

Order = Literal["activity", "created", "title"]
"""The order of a list of sessions. See [store.list_sessions()]."""


class SessionKeysRow(NamedTuple):
    """The keys of the sessions that match a filter, as a JSON array."""

    keys: str


# By the order, and whether it is reversed.
_ORDERED_QUERIES = {
    ("activity", False): Query("sessions_by_activity", ListedSessionRow),
    ("activity", True): Query("sessions_by_activity_reversed", ListedSessionRow),
    ("created", False): Query("sessions_by_creation", ListedSessionRow),
    ("created", True): Query("sessions_by_creation_reversed", ListedSessionRow),
    ("deleted", False): Query("sessions_by_deletion", ListedSessionRow),
    ("deleted", True): Query("sessions_by_deletion_reversed", ListedSessionRow),
    ("title", False): Query("sessions_by_folded_title", ListedSessionRow),
    ("title", True): Query("sessions_by_folded_title_reversed", ListedSessionRow),
}
_INDEXED_QUERIES = {
    ("activity", False): Query("sessions_through_activity", ListedSessionRow),
    ("activity", True): Query("sessions_through_activity_reversed", ListedSessionRow),
    ("created", False): Query("sessions_through_creation", ListedSessionRow),
    ("created", True): Query("sessions_through_creation_reversed", ListedSessionRow),
    ("title", False): Query("sessions_through_title", ListedSessionRow),
    ("title", True): Query("sessions_through_title_reversed", ListedSessionRow),
}
_DEFAULT_LIST = Query("sessions_default_list", ListedSessionRow)
_TIME_FIELDS = {"activity": "active_at_ms", "created": "created_at_ms", "deleted": "deleted_at_ms"}
_FLAGS = ("archived", "pinned", "delegates", "open_turn")
_TEXTS = ("channel", "model", "tool", "parent")
_CHOICES = (("status", SESSION_STATUSES), ("role", ROLES), ("relation", RELATIONS))

# For each filter, most selective first: the value that its index can look up (... for any), and the query that returns
# the matches.
_FILTER_INDEXES: tuple[tuple[str, Any, Query[SessionKeysRow]], ...] = (
    ("parent", ..., Query("sessions_of_parent", SessionKeysRow)),
    ("external_id", ..., Query("sessions_of_external_id", SessionKeysRow)),
    ("labels", ..., Query("labels_sessions", SessionKeysRow)),
    ("id_prefix", ..., Query("sessions_of_id_prefix", SessionKeysRow)),
    ("pinned", True, Query("sessions_of_pin", SessionKeysRow)),
    ("titled", False, Query("sessions_of_untitled", SessionKeysRow)),
    ("channel", ..., Query("sessions_of_channel", SessionKeysRow)),
    ("model", ..., Query("sessions_of_model", SessionKeysRow)),
    ("status", ..., Query("sessions_of_status", SessionKeysRow)),
    ("archived", True, Query("sessions_of_archive", SessionKeysRow)),
)
_NO_FILTERS: dict[str, Any] = dict.fromkeys((
    "archived", "pinned", "titled", "channel", "model", "status", "parent", "delegates", "relation", "shown_keys",
    "tool", "role", "open_turn", *SessionFilters._fields,
))  # fmt: skip
_ALL_TIME = (None, None)
# The default list has its own statement: the others evaluate every filter for each row.
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
    oldest_first: bool = False,
    pinned_first: bool = False,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    filters: dict[str, Any],
) -> Operation[SessionPage]:
    """Read a page of sessions. `filters` has the arguments of session_filters() too."""
    validation.check_choice("order", order, ("activity", "created", "title"))
    if type(limit) is not int or not 1 <= limit <= _MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit must be between 1 and {_MAX_LIMIT:,}, got {format_value(limit)}.")
    filter_values = _check_filters(filters)
    by = _ListOrder(
        "deleted" if validation.check_flag("deleted", deleted) else order,
        validation.check_flag("oldest_first", oldest_first),
    )
    pins_first = validation.check_flag("pinned_first", pinned_first) and filter_values["pinned"] is None
    stages = _stages(by, pinned_first=pins_first)
    cursor = None if after is None else _decode_cursor(validation.check_plain_text("after", after), by, stages)
    bounds = (
        None if since is None else parse_time(since, "since"),
        None if until is None else parse_time(until, "until"),
    )
    page = _PageRequest(by, stages, cursor, limit, bounds)
    request = _fast_request(scope, page, filter_values)
    finish = functools.partial(_finish_page, page) if request is not None else None
    return Operation(_read_page, scope, page, filter_values, writes=False, fast=request, finish=finish)


class _ListOrder(NamedTuple):
    """The field by which a list is sorted, and whether the order is reversed: oldest first, or Z to A."""

    field: str
    is_reversed: bool

    @property
    def mark(self) -> str:
        """The mark of a cursor of this order."""
        return self.field[0].upper() if self.is_reversed else self.field[0]


def _check_filters(filters: dict[str, Any]) -> dict[str, Any]:
    """Return the validated filters as parameters of the queries."""
    values = {**_NO_FILTERS, **filters}
    for name in _FLAGS:
        if values[name] is not None and type(values[name]) is not bool:
            raise InvalidValue(f"{name} must be True, False or None, got {format_value(values[name])}.")
    for name in _TEXTS:
        if values[name] is not None:
            values[name] = validation.check_plain_text(name, values[name])
    for name, choices in _CHOICES:
        if values[name] is not None:
            values[name] = validation.check_choice(name, values[name], choices)
    if values["relation"] is not None:
        values["delegates"] = None
    label, external_id, id_prefix, metadata = (
        values.pop("label", None), values["external_id"], values["id_prefix"], values["metadata"],
    )  # fmt: skip
    if not (label is external_id is id_prefix is metadata is None):
        shared = session_filters(label=label, external_id=external_id, id_prefix=id_prefix, metadata=metadata)
        values |= shared._asdict()
    return values


def _stages(order: _ListOrder, *, pinned_first: bool) -> list[dict[str, Any]]:
    """Return the stages of a list: pinned before the others, titled before untitled."""
    pins: list[dict[str, Any]] = [{"pinned": True}, {"pinned": False}] if pinned_first else [{}]
    titles: list[dict[str, Any]] = [{"titled": not order.is_reversed}, {"titled": order.is_reversed}]
    return [{**pin, **title} for pin in pins for title in (titles if order.field == "title" else [{}])]


_BY_ACTIVITY = _ListOrder("activity", is_reversed=False)


class _PageRequest(NamedTuple):
    """A page of a list: its order and stages, the cursor, the number of sessions, and the bounds of the time."""

    order: _ListOrder
    stages: list[dict[str, Any]]
    cursor: _ListCursor | None
    limit: int
    bounds: tuple[int | None, int | None]

    @property
    def is_pinned_default(self) -> bool:
        """Whether this is the first page of the list with pinned sessions first."""
        return self.cursor is None and self.order == _BY_ACTIVITY and len(self.stages) > 1 and self.bounds == _ALL_TIME


def _fast_request(scope: Scope, page: _PageRequest, filters: dict[str, Any]) -> ListSessionsRequest | None:
    """Return the request for the fast path of a page; None if it takes several statements."""
    if filters["parent"] is not None:
        return None
    filters = _without_parent(filters)
    if page.is_pinned_default and filters == _DEFAULT_FILTERS:
        params = {"owner": scope.owner, "limit": page.limit + 1, "sort_limit": _SORT_LIMIT}
        return ListSessionsRequest(scope.owner, None, params)
    is_default = page.order == _BY_ACTIVITY and filters == _DEFAULT_FILTERS
    if len(page.stages) > 1 or (not is_default and page.order.field != "deleted" and _usable_indexes(filters)):
        return None
    params = _stage_params(scope, page, page.cursor, page.limit + 1, filters)
    query = _DEFAULT_LIST if is_default else _ORDERED_QUERIES[page.order]
    return ListSessionsRequest(scope.owner, query.name, params)


def _finish_page(page: _PageRequest, request: ListSessionsRequest, rows: list[Row]) -> SessionPage:
    """Return the page that a fast path has read."""
    entries = _entries(0, rows)
    if request.query is not None:
        return _make_page(page, entries, [])
    entries = [(int(value.pinned_at_ms is None), key, value) for _, key, value in entries]
    entries.sort(key=lambda entry: (entry[0], -entry[2].active_at_ms, -entry[1]))
    return _make_page(page, entries, [key for stage, key, _ in entries[: page.limit] if not stage])


_ListEntry = tuple[int, int, SessionInfo]
"""The stage, the key and the value of a session in a list."""


def _entries(stage: int, rows: list[Row]) -> list[_ListEntry]:
    """Return the entries of rows, each a ListedSessionRow as a tuple."""
    return [
        (stage, session, SessionInfo(*columns) if rare is None else session_from_columns(columns, rare))
        for session, *columns, rare in rows
    ]


def _read_page(scope: Scope, page: _PageRequest, filters: dict[str, Any]) -> Steps[SessionPage]:
    parent_filters = yield from _resolve_parent(scope, filters)
    if parent_filters is None:
        return SessionPage([], None)
    filters = parent_filters
    cursor, stages, limit = page.cursor, page.stages, page.limit
    first_stage, pins = (0, list[int]()) if cursor is None else (cursor.stage, list(cursor.pins))
    entries: list[_ListEntry] = []
    for stage in range(first_stage, len(stages)):
        if len(entries) > limit:
            break
        stage_filters = {**filters, **stages[stage]}
        if stage_filters["pinned"] is False and pins:
            # A session that was unpinned after it was shown is not shown again.
            stage_filters["shown_keys"] = json.encode(pins)
        start = cursor if stage == first_stage else None
        rows = yield from _read_stage(scope, page, start, limit + 1 - len(entries), stage_filters)
        entries += _entries(stage, rows)
        if stages[stage].get("pinned"):
            pins += [session for session, *_ in rows[: limit - len(entries) + len(rows)]]
    return _make_page(page, entries, pins)


def _make_page(page: _PageRequest, entries: Sequence[_ListEntry], pins: Sequence[int]) -> SessionPage:
    """Return a page of entries; one entry more than the limit means that there is a next page."""
    more = _encode_cursor(page.order, *entries[page.limit - 1], pins) if len(entries) > page.limit else None
    return SessionPage([value for _, _, value in entries[: page.limit]], more)


def _without_parent(filters: dict[str, Any]) -> dict[str, Any]:
    return {**filters, "delegates": None if filters["delegates"] in (True, None) else False}


def _resolve_parent(scope: Scope, filters: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Replace the id of the parent by its key, also if it is in the trash; return None if it does not exist."""
    parent = filters["parent"]
    if parent is None:
        return _without_parent(filters)
    row = (yield from sessions.find_live_row(scope, parent)) or (yield from sessions.find_trashed_row(scope, parent))
    return None if row is None else {**filters, "parent": row.session}


def _read_stage(
    scope: Scope, page: _PageRequest, cursor: _ListCursor | None, limit: int, filters: dict[str, Any]
) -> Steps[list[Row]]:
    """Read the next rows of one stage of a list.

    If a filter has few matches, they are sorted; otherwise the list is walked in its order. In a single statement,
    SQLite would prepare both plans on each run.
    """
    params = _stage_params(scope, page, cursor, limit, filters)
    if page.order == _BY_ACTIVITY and filters == _DEFAULT_FILTERS:
        return (yield from fetch_tuples(_DEFAULT_LIST, **params))
    order = page.order
    if order.field == "title" and not filters["titled"]:
        order = order._replace(field="activity")
    for query, value in _usable_indexes(filters) if order.field != "deleted" else ():
        row = yield from fetch_one(
            query, owner=scope.owner, value=value, id_limit=filters["id_limit"], sort_limit=_SORT_LIMIT
        )
        if row is not None:
            indexed_list = _INDEXED_QUERIES[order]
            return [] if row.keys == "[]" else (yield from fetch_tuples(indexed_list, **params, keys=row.keys))
    return (yield from fetch_tuples(_ORDERED_QUERIES[order], **params))


def _stage_params(
    scope: Scope, page: _PageRequest, cursor: _ListCursor | None, limit: int, filters: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the query of one stage."""
    since, until = page.bounds
    value, key = (None, None) if cursor is None else (cursor.value, cursor.key)
    params: dict[str, Any] = {"owner": scope.owner, "since": since, "until": until, "limit": limit, **filters}
    if page.order.field == "title" and filters["titled"]:
        return params | {"folded": value, "key": key}
    if page.order.is_reversed:
        if since is not None and (value is None or since > value):  # type: ignore[operator]
            value, key = since, -1  # the exclusive lower bound of the time and the key
        return params | {"at": value, "key": key}
    if until is not None and (value is None or until <= value):  # type: ignore[operator]
        value, key = until, -1  # the exclusive upper bound of the time and the key
    return params | {"at": value, "key": key}


def _usable_indexes(filters: dict[str, Any]) -> list[tuple[Query[SessionKeysRow], Any]]:
    """Return the queries of the indexes that the filters can use, with their values. The labels are tried in turn."""
    return [
        (query, value)
        for name, required, query in _FILTER_INDEXES
        if filters[name] is not None
        and (required is ... or filters[name] is required)
        and (name != "status" or filters[name] != "active")
        for value in (json.decode(filters[name])[:_MAX_LABEL_LOOKUPS] if name == "labels" else (filters[name],))
    ]


def _encode_cursor(order: _ListOrder, stage: int, key: int, last: SessionInfo, pins: Sequence[int]) -> str:
    """Return the cursor after a session."""
    import base64  # noqa: PLC0415  only if there is a next page

    value = _sort_value(order.field, last)
    text = json.encode([order.mark, stage, value, key, *pins])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _sort_value(by: str, session: SessionInfo) -> int | str:
    if by == "title":
        return session.active_at_ms if session.title is None else title_sort_key(session.title)
    return getattr(session, _TIME_FIELDS[by])


def _decode_cursor(text: str, order: _ListOrder, stages: Sequence[dict[str, Any]]) -> _ListCursor:
    """Return the cursor of a text from _encode_cursor(), for a list of the same order."""
    import base64  # noqa: PLC0415

    try:
        encoded = text + "=" * (-len(text) % 4)
        mark, stage, value, key, *pins = json.decode(base64.urlsafe_b64decode(encoded.encode("ascii")))
        numbers = all(type(number) is int and 0 <= number <= END_OF_TIME for number in (stage, key, *pins))
        if mark == order.mark and numbers and stage < len(stages):
            is_title = isinstance(value, str) and stages[stage].get("titled") is True
            is_time = isinstance(value, int) and 0 <= value <= END_OF_TIME and not stages[stage].get("titled")
            if is_title or is_time:
                return _ListCursor(stage, value, key, pins)
    except (ValueError, TypeError, AttributeError):
        pass
    raise InvalidValue(
        f"{format_value(text)} is not a cursor of this list. Use `next` of the previous page, with the same order."
    )


class OwnerRow(NamedTuple):
    """An owner that has data."""

    owner: str


class OwnersVisibleRow(NamedTuple):
    """Whether the list of owners is complete."""

    everyone: bool


OWNERS_ALL = Query("owners_all", OwnerRow)
OWNERS_VISIBLE = Query("owners_visible", OwnersVisibleRow)


def list_owners() -> Operation[Owners]:
    """List all owners that have data, not only the owner of the store."""
    return Operation(_list_owners, writes=False)


def _list_owners() -> Steps[Owners]:
    rows = yield from fetch_all(OWNERS_ALL)
    visible = yield from fetch_one(OWNERS_VISIBLE)
    return Owners(names=tuple(row.owner for row in rows), everyone=visible is not None and bool(visible.everyone))
