"""Where the bytes of a store are, what was given back, and what a backup holds."""

from __future__ import annotations

from recollect.model.value import Value


class Space(Value, frozen=True, kw_only=True, gc=False):
    """Where the bytes are. The parts add up to `total`, the size of the file; `log` is beside it."""

    total: int
    text: int
    tool_output: int
    attachments: int
    index: int
    free: int
    other: int
    log: int
    tables: dict[str, int]
    """The bytes of each table and index."""


class Optimized(Value, frozen=True, kw_only=True, gc=False):
    """The size of the file and its log before and after it was put in order."""

    before: int
    after: int

    @property
    def freed(self) -> int:
        """How many bytes were given back."""
        return max(self.before - self.after, 0)


class Backup(Value, frozen=True, kw_only=True, gc=False):
    """What a backup holds, of every owner and with what is in the trash."""

    path: str
    bytes: int
    schema: int
    sessions: int
    messages: int
    active_at: int | None = None
    """When a session in it was last active."""
