"""What can be done with a store, each operation once, as a generator over named statements.

Ordering, atomicity, idempotency and conflict rules live here and nowhere else. An operation knows no engine and no
file; it imports values and op.py only. Each public function checks its arguments and gives an Op, ready to run.
"""

from recollect.ops import branches, messages, paths, results, retention, sessions, settings, streams, tools, turns

__all__ = [
    "branches", "messages", "paths", "results", "retention", "sessions", "settings", "streams", "tools", "turns",
]  # fmt: skip
