"""A snapshot: a title, summary or memory made from a session up to one of its messages."""

from __future__ import annotations

from typing import Any, Literal

from recollect.model.value import Value

SnapshotKind = Literal["title", "summary", "memory"]
KINDS: tuple[SnapshotKind, ...] = ("title", "summary", "memory")


class Snapshot(Value, frozen=True, kw_only=True, gc=False):
    """What was made, and the message it reaches; None where the session had none yet."""

    id: int
    kind: SnapshotKind
    content: Any
    message: str | None
    tokens: int
    created_at: int
    updated_at: int
