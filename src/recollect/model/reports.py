"""Reports of a store: statistics, check findings, pruning, disk space, backups, copies and owners."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, Self

import msgspec

from recollect.model.value import Value, format_iso

Period = Literal["day", "week", "month"]
PERIODS: tuple[Period, ...] = ("day", "week", "month")


class Tally(Value, frozen=True, kw_only=True, gc=False):
    """The numbers of one model, channel or day. A name of None means that the sessions or messages have none."""

    name: str | None
    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
    """The messages that are tool steps."""

    turns: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as the user interfaces count them."""
        return self.messages - self.tool_steps


class Stats(Value, frozen=True, kw_only=True, gc=False):
    """The numbers of a store or a session. Token counts are those that providers reported."""

    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
    """The messages that are tool steps."""

    turns: int = 0
    failures: int = 0
    cancelled: int = 0
    interrupted: int = 0
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    by_model: tuple[Tally, ...] = ()
    by_channel: tuple[Tally, ...] = ()
    by_day: tuple[Tally, ...] = ()

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as the user interfaces count them."""
        return self.messages - self.tool_steps


def sum_stats(stats: Sequence[Stats]) -> Stats:
    """Return the sums over several owners."""
    if len(stats) == 1:
        return stats[0]
    # All fields are counts, except the last three: by_model, by_channel and by_day.
    sums = {name: sum(getattr(each, name) for each in stats) for name in Stats.__struct_fields__[:-3]}
    return Stats(
        **sums,
        by_model=sort_tallies(_sum_by_name([each.by_model for each in stats])),
        by_channel=sort_tallies(_sum_by_name([each.by_channel for each in stats])),
        by_day=tuple(sorted(_sum_by_name([each.by_day for each in stats]), key=lambda tally: tally.name or "")),
    )


def _sum_by_name(groups: Sequence[Sequence[Tally]]) -> list[Tally]:
    """Return the tallies of several owners, added up by name."""
    tallies_by_name: dict[str | None, list[Tally]] = {}
    for tally in chain.from_iterable(groups):
        tallies_by_name.setdefault(tally.name, []).append(tally)
    names = Tally.__struct_fields__[1:]  # the counts, without the name
    return [
        Tally(name=key, **{name: sum(getattr(each, name) for each in tallies) for name in names})
        for key, tallies in tallies_by_name.items()
    ]


def sort_tallies(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """Return tallies in display order: those with the most messages first."""
    return tuple(sorted(tallies, key=lambda tally: (-tally.messages, tally.name is None, tally.name or "")))


class ToolStats(Value, frozen=True, kw_only=True, gc=False):
    """The calls of a tool, in total or in one period. Latencies are milliseconds by nearest rank, of answered calls."""

    tool: str
    period: str | None = None
    calls: int
    failures: int
    canceled: int
    unanswered: int
    p50_ms: int | None = None
    p95_ms: int | None = None


FindingLevel = Literal["problem", "notice"]


class Finding(Value, frozen=True, kw_only=True, gc=False):
    """One finding of a check. A problem needs attention; a notice is information."""

    kind: str
    message: str
    advice: str
    level: FindingLevel = "problem"
    session: str | None = None
    repaired: bool = False


class Findings(Value, frozen=True, kw_only=True, gc=False):
    """The findings of a check, and the areas that it checked."""

    checked: tuple[str, ...]
    found: tuple[Finding, ...] = ()

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The problems that were not repaired."""
        return tuple(finding for finding in self.found if finding.level == "problem" and not finding.repaired)

    @property
    def notices(self) -> tuple[Finding, ...]:
        """The notices."""
        return tuple(finding for finding in self.found if finding.level == "notice")

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """The findings that were repaired."""
        return tuple(finding for finding in self.found if finding.repaired)

    @property
    def sound(self) -> bool:
        """True if there are no problems."""
        return not self.problems


PruneReason = Literal["age", "count", "size", "parent", "trash"]


class PrunedSession(Value, frozen=True, kw_only=True, gc=False):
    """A session that is pruned, and the reason: its age, the count, the size, its parent, or the trash."""

    id: str
    title: str | None = None
    active_at: int
    messages: int
    bytes: int
    reason: PruneReason
    tool_steps: int = 0
    """The messages that are tool steps."""


class PruneReport(Value, frozen=True, kw_only=True, gc=False):
    """The result of a prune, or of its dry run. Bytes count the messages and their attachments."""

    dry_run: bool
    erased: bool
    """Whether the sessions were erased rather than moved to the trash."""

    sessions: tuple[PrunedSession, ...] = ()
    outputs: int = 0
    """The tool outputs that were removed."""

    output_bytes: int = 0
    trimmed: int = 0
    """The messages that were removed from sessions with too many."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the sums, times as ISO 8601."""
        times = {"oldest_at": self.oldest_at, "newest_at": self.newest_at}
        return {
            **super().to_dict(),
            "sessions": [session.to_dict() for session in self.sessions],
            "count": self.count, "messages": self.messages, "bytes": self.bytes,
            **{name: None if time is None else format_iso(time) for name, time in times.items()},
        }  # fmt: skip

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Convert the result of to_dict() back."""
        sessions = [msgspec.to_builtins(PrunedSession.from_dict(session)) for session in plain.get("sessions", ())]
        return super().from_dict({**plain, "sessions": sessions})

    @property
    def count(self) -> int:
        """The number of sessions."""
        return len(self.sessions)

    @property
    def oldest_at(self) -> int | None:
        """The time of last activity of the session that has been inactive longest."""
        return min((session.active_at for session in self.sessions), default=None)

    @property
    def newest_at(self) -> int | None:
        """The time of last activity of the most recently active session."""
        return max((session.active_at for session in self.sessions), default=None)

    @property
    def messages(self) -> int:
        """The number of messages in the sessions."""
        return sum(session.messages for session in self.sessions)

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as the user interfaces count them."""
        return self.messages - sum(session.tool_steps for session in self.sessions)

    @property
    def bytes(self) -> int:
        """The number of bytes in the sessions."""
        return sum(session.bytes for session in self.sessions)


class Space(Value, frozen=True, kw_only=True, gc=False):
    """The disk space by content. The parts add up to `total`, the size of the file; `log` is the WAL next to it."""

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


class OptimizeReport(Value, frozen=True, kw_only=True, gc=False):
    """The size of the file and its WAL before and after optimizing."""

    before: int
    after: int

    @property
    def freed(self) -> int:
        """The number of bytes that were freed."""
        return max(self.before - self.after, 0)


class Backup(Value, frozen=True, kw_only=True, gc=False):
    """The content of a backup, of all owners and including the trash."""

    path: str
    bytes: int
    schema: int
    sessions: int
    messages: int
    active_at: int | None = None
    """The latest activity of its sessions."""


class Difference(Value, frozen=True, kw_only=True, gc=False):
    """An item of the source that is missing or different in the target."""

    owner: str
    kind: Literal["session", "payload", "record"]
    name: str
    """The session's id, the payload's hash, or the kind, a slash and the key of a record of the store."""

    missing: bool
    """Whether the target lacks it; otherwise it is different."""


class CopyReport(Value, frozen=True, kw_only=True, gc=False):
    """The comparison of a copied store with its source."""

    source: str
    target: str
    owners: tuple[str, ...]
    everyone: bool
    """Whether all owners of the source were copied, or all that the caller named.

    False if the caller named none and row-level security of the server may hide some from this role.
    """

    counts: dict[str, int]
    """The number of compared items by kind."""

    differences: tuple[Difference, ...] = ()
    """The first 1,000 differences."""

    @property
    def whole(self) -> bool:
        """True if the target has everything of the source, unchanged."""
        return self.everyone and not self.differences


class Owners(Value, frozen=True, kw_only=True, gc=False):
    """The owners that have data in a database, ordered by name. The default owner is the empty str."""

    names: tuple[str, ...]
    everyone: bool
    """Whether the list is complete: False if row-level security of the server may hide owners from this role."""
