"""Full-text search: the query language, the index and the retrieval of hits.

Operations know full-text search only by the names of their statements. analysis.py decides which tokens a text has,
the same for every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import InvalidValue
from recollect.model import validation
from recollect.model.times import TimeLike
from recollect.storage.operation import Plan, Scope
from recollect.storage.search import query, retrieval
from recollect.storage.search.index import (
    catch_up,
    check_index,
    clear,
    invalidate_message,
    rebuild,
    remove_messages,
    remove_title,
    truncate_branch,
)
from recollect.storage.search.retrieval import HitPage
from recollect.storage.session_filters import FilterValues, filter_values, session_filters

__all__ = [
    "FilterValues",
    "HitPage",
    "catch_up",
    "check_index",
    "clear",
    "invalidate_message",
    "rebuild",
    "remove_messages",
    "remove_title",
    "search",
    "truncate_branch",
]


def search(
    scope: Scope,
    text: str,
    *,
    limit: int,
    after: str | None = None,
    session: str | None = None,
    role: FilterValues | None = None,
    tool: FilterValues | None = None,
    channel: FilterValues | None = None,
    model: FilterValues | None = None,
    status: FilterValues | None = None,
    label: FilterValues | None = None,
    external_id: str | None = None,
    id_prefix: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    archived: bool | None = None,
    pinned: bool | None = None,
    deleted: bool = False,
    delegates: bool = False,
) -> Plan[HitPage]:
    """Search everything that is committed when the search begins."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"text must be a string, got {type(text).__name__}.")
    sets = {"role": role, "tool": tool, "channel": channel, "model": model, "status": status}
    session = None if session is None else validation.check_plain_text("session", session)
    parsed = query.combine_filters(
        query.parse_query(text, scope.now),
        session=session,
        sets={name: filter_values(values) for name, values in sets.items()},
        since=query.parse_time_argument(since, "since", scope.now),
        until=query.parse_time_argument(until, "until", scope.now),
        archived=validation.check_optional_flag(archived),
        pinned=validation.check_optional_flag(pinned),
        shared=session_filters(label=label, external_id=external_id, id_prefix=id_prefix, metadata=metadata),
    )
    request = retrieval.SearchRequest(
        parsed,
        validation.check_flag("deleted", deleted),
        validation.check_flag("delegates", delegates),
        typed=parsed.filters.session != session,
    )
    return retrieval.search_pages(scope, request, limit=limit, after=after)
