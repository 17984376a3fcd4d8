"""What can be done with a store, each operation once, as a generator over named statements.

Ordering, atomicity, idempotency and conflict rules live here and nowhere else. An operation knows no engine and no
file; it imports values and op.py only. Each public function checks its arguments and gives an Op, ready to run.
A module is loaded when it is first used: a command that lists sessions needs one of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.ops import (
        appends,
        arrivals,
        bodies,
        branches,
        changes,
        check,
        compactions,
        comparison,
        fields,
        leases,
        lists,
        messages,
        paths,
        pins,
        presence,
        pruning,
        record,
        results,
        retention,
        search,
        sessions,
        settings,
        snapshots,
        statistics,
        streams,
        thinning,
        tools,
        transfer,
        turns,
        views,
    )

__all__ = [
    "appends", "arrivals", "bodies", "branches", "changes", "check", "compactions", "comparison", "fields", "leases",
    "lists", "messages", "paths", "pins", "presence", "pruning", "record", "results", "retention", "search", "sessions",
    "settings", "snapshots", "statistics", "streams", "thinning", "tools", "transfer", "turns", "views",
]  # fmt: skip


if not TYPE_CHECKING:  # to a type checker that sees it, every name of the module exists

    def __getattr__(name: str) -> Any:
        """Load a module of this room; from then on it is found without this."""
        if name in __all__:
            return __import__(f"recollect.ops.{name}", fromlist=[name])
        raise AttributeError(f"module 'recollect.ops' has no attribute {name!r}")


def _load_all() -> None:
    """Load the rest. A child could never use a module that another thread was about to load when it was forked."""
    for name in __all__:
        __import__(f"recollect.ops.{name}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_load_all)
