"""Search: what a person types (query), what is indexed and when (index, document, words), and finding it again (find).

An operation here knows full-text search only by the names of its statements; which words a text has is decided in
words.py, the same for every engine.
"""

from __future__ import annotations

from collections.abc import Iterable

from recollect.errors import InvalidValue
from recollect.model import argument
from recollect.model.moment import Moment
from recollect.op import Plan, Scope
from recollect.ops.search import find, query
from recollect.ops.search.checking import check
from recollect.ops.search.find import Found
from recollect.ops.search.index import catch_up, changes, clear, cut, forget, rebuild, untitle

__all__ = [
    "Found",
    "Names",
    "catch_up",
    "changes",
    "check",
    "clear",
    "cut",
    "forget",
    "rebuild",
    "search",
    "untitle",
]

Names = str | Iterable[str]


def search(
    scope: Scope,
    text: str,
    *,
    limit: int,
    after: str | None = None,
    session: str | None = None,
    role: Names | None = None,
    tool: Names | None = None,
    channel: Names | None = None,
    model: Names | None = None,
    status: Names | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    archived: bool | None = None,
    pinned: bool | None = None,
    deleted: bool = False,
    delegates: bool = False,
) -> Plan[Found]:
    """Search everything that is committed by now."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"A search is for a text; got {type(text).__name__}.")
    sets = {"role": role, "tool": tool, "channel": channel, "model": model, "status": status}
    session = None if session is None else argument.plain_text("session", session)
    asked = query.narrowed(
        query.parse(text, scope.now),
        session=session,
        sets={name: query.values(given) for name, given in sets.items()},
        since=query.moment(since, "since", scope.now),
        until=query.moment(until, "until", scope.now),
        archived=argument.either(archived),
        pinned=argument.either(pinned),
    )
    ask = find.Ask(
        asked,
        argument.flag("deleted", deleted),
        argument.flag("delegates", delegates),
        typed=asked.filters.session != session,
    )
    return find.search(scope, ask, limit=limit, after=after)
