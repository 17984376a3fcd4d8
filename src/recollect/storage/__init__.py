"""Operations: everything that can be done with a store, each written once as a generator over named statements.

The rules for ordering, atomicity, idempotency and conflicts are here and nowhere else. An operation knows neither
engine nor file; it imports values and storage/operation.py. Each public function validates its arguments and returns
an Operation that is ready to run. A module is loaded on first use: a command that lists sessions needs one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.lazy_imports import import_before_fork

if TYPE_CHECKING:
    from recollect.storage import (
        appends,
        branches,
        call_edits,
        combined_appends,
        edits,
        integrity,
        labels,
        leases,
        listing,
        message_keys,
        messages,
        pages,
        paths,
        presence,
        records,
        relations,
        retention,
        row_stream,
        search,
        sessions,
        statistics,
        tools,
        transfer,
        turns,
        view_pages,
        views,
    )

__all__ = [
    "appends", "branches", "call_edits", "combined_appends", "edits", "integrity", "labels", "leases",
    "listing", "message_keys", "messages", "pages", "paths", "presence", "records", "relations", "retention",
    "row_stream", "search", "sessions", "statistics", "tools", "transfer", "turns", "view_pages", "views",
]  # fmt: skip


if not TYPE_CHECKING:  # otherwise a type checker believes that the module has every name

    def __getattr__(name: str) -> Any:
        """Import a module of this package; later lookups find it without this function."""
        if name in __all__:
            return __import__(f"recollect.storage.{name}", fromlist=[name])
        raise AttributeError(f"module 'recollect.storage' has no attribute {name!r}")


def _load_all() -> None:
    """Import the other modules: a child cannot import a module whose lock another thread held at the fork."""
    for name in __all__:
        __import__(f"recollect.storage.{name}")


import_before_fork(_load_all)
