"""What was let go, or would be: which sessions, how old and how large they are, and what else."""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from recollect.model.value import Value, iso

Reason = Literal["age", "count", "size", "parent", "trash"]


class Pruned(Value, frozen=True, kw_only=True, gc=False):
    """A session that goes, and why: its age, the count, the size, its parent goes, or it was in the trash."""

    id: str
    title: str | None = None
    active_at: int
    messages: int
    bytes: int
    reason: Reason
    tool_steps: int = 0
    """How many of the messages are tool steps."""


class PruneReport(Value, frozen=True, kw_only=True, gc=False):
    """What a prune did, or would do. Bytes are those of what was said, with its attachments."""

    dry_run: bool
    erased: bool
    """Whether it goes for good, and not to the trash."""

    sessions: tuple[Pruned, ...] = ()
    outputs: int = 0
    """Tool outputs that were dropped."""

    output_bytes: int = 0
    trimmed: int = 0
    """Messages that were taken out of sessions that are too long."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, with the sums, times as ISO 8601."""
        times = {"oldest_at": self.oldest_at, "newest_at": self.newest_at}
        return {
            **super().to_dict(),
            "sessions": [session.to_dict() for session in self.sessions],
            "count": self.count, "messages": self.messages, "bytes": self.bytes,
            **{name: None if time is None else iso(time) for name, time in times.items()},
        }  # fmt: skip

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Read what to_dict() gave."""
        sessions = [msgspec.to_builtins(Pruned.from_dict(session)) for session in plain.get("sessions", ())]
        return super().from_dict({**plain, "sessions": sessions})

    @property
    def count(self) -> int:
        """How many sessions."""
        return len(self.sessions)

    @property
    def oldest_at(self) -> int | None:
        """When the one that rested longest was last active."""
        return min((session.active_at for session in self.sessions), default=None)

    @property
    def newest_at(self) -> int | None:
        """When the one that rested shortest was last active."""
        return max((session.active_at for session in self.sessions), default=None)

    @property
    def messages(self) -> int:
        """How many messages the sessions have."""
        return sum(session.messages for session in self.sessions)

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as people count them."""
        return self.messages - sum(session.tool_steps for session in self.sessions)

    @property
    def bytes(self) -> int:
        """How many bytes the sessions have."""
        return sum(session.bytes for session in self.sessions)
