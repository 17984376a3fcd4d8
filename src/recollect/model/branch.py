"""A branch: one path through the tree of a session and its forks."""

from __future__ import annotations

from recollect.model.value import Value


class Branch(Value, frozen=True, kw_only=True, gc=False):
    """A path that leaves its parent after position `fork_at` (0: it starts from nothing).

    `last` is the newest position that was given out on it, `current` whether the session stands on it.
    """

    id: int
    parent: int | None = None
    fork_at: int = 0
    last: int = 0
    current: bool = False
    created_at: int
