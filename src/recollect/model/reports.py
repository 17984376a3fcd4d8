"""Reports of a store: statistics, check findings, pruning, disk space, backups, copies and owners."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Literal, Self

import msgspec

from recollect.model.value import TimeProperty, Value, format_iso

Period = Literal["day", "week", "month"]
"""The period of the statistics of tools."""

PERIODS: tuple[Period, ...] = ("day", "week", "month")


class Tally(Value, frozen=True, kw_only=True, gc=False):
    """The numbers of one model, channel or day. A name of None means that the sessions or messages have none.

    - `name`: the model, the channel, or the day as `2025-11-16`; `None` for messages without a model or channel. A
      message without a model counts for the model of its session.
    - `sessions`, `messages`, `turns`: numbers.
    - `tool_steps`, `shown_messages`: numbers of messages that are [tool steps][store.shown_counts()], and that are not.
    - `failures`: number of failed turns.
    - `input_tokens`, `output_tokens`: tokens reported by providers.
    """

    name: str | None
    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
    turns: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def shown_messages(self) -> int:
        """The messages without tool steps, as the user interfaces count them."""
        return self.messages - self.tool_steps


class Stats(Value, frozen=True, kw_only=True, gc=False):
    """The numbers of a store or a session. Token counts are those that providers reported.

    - `sessions`, `messages`: numbers of sessions and of all stored messages.
    - `tool_steps`, `shown_messages`: numbers of messages that are [tool steps][store.shown_counts()], and that are not.
    - `turns`: number of turns, of which `failures`, `cancelled` and `interrupted` have that status.
    - `tokens`: total size of the messages.
    - `input_tokens`, `output_tokens`: tokens reported by providers: of each turn, and of each message outside a turn.
    - `tool_calls`, `tool_failures`: numbers of tool calls, and of those that failed.
    - `by_model`, `by_channel`: tuples of [Tally], most messages first.
    - `by_day`: a tuple of `Tally`, oldest first; a session counts on each day on which it has messages.
    """

    sessions: int = 0
    messages: int = 0
    tool_steps: int = 0
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
    """The calls of a tool, in total or in one period. Latencies are milliseconds by nearest rank, of answered calls.

    - `tool`: name of the tool.
    - `period`: a day (`2025-11-16`), the Monday of a week, or a month (`2025-11`); `None` without a period.
    - `calls`: number of calls.
    - `failures`, `cancelled`: numbers of calls with the status `"error"` and `"cancelled"`.
    - `unanswered`: number of calls that are still pending or running.
    - `p50_ms`, `p95_ms`: 50th and 95th percentile of the latency of answered calls in milliseconds: the smallest
      latency that at least 50% or 95% of them did not exceed. `None` if no call was answered.
    """

    tool: str
    period: str | None = None
    calls: int
    failures: int
    cancelled: int
    unanswered: int
    p50_ms: int | None = None
    p95_ms: int | None = None


FindingLevel = Literal["problem", "notice"]


class Finding(Value, frozen=True, kw_only=True, gc=False):
    """One finding of a check. A problem needs attention; a notice is information.

    - `kind`: `"structure"`, `"checksum"`, `"reference"`, `"counter"`, `"branch"`, `"message"`, `"turn"`, `"tool call"`,
      `"unanswered"`, `"message key"`, `"idempotency key"`, `"title"`, `"label"` or `"payload"`.
    - `level`: `"problem"` or `"notice"`.
    - `message`, `advice`: a description, and the next step.
    - `session`: id of the session, or `None`.
    - `repaired`: whether it was repaired.
    """

    kind: str
    message: str
    advice: str
    level: FindingLevel = "problem"
    session: str | None = None
    repaired: bool = False


class Findings(Value, frozen=True, kw_only=True, gc=False):
    """The findings of a check, and the areas that it checked.

    - `checks`: a tuple with the names of the areas.
    - `findings`: a tuple of [Finding].
    - `problems`, `notices`, `repairs`: the findings that are damage which was not repaired, information, and repaired
      damage.
    - `ok`: `True` if there is no problem.
    """

    checks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The problems that were not repaired."""
        return tuple(finding for finding in self.findings if finding.level == "problem" and not finding.repaired)

    @property
    def notices(self) -> tuple[Finding, ...]:
        """The notices."""
        return tuple(finding for finding in self.findings if finding.level == "notice")

    @property
    def repairs(self) -> tuple[Finding, ...]:
        """The findings that were repaired."""
        return tuple(finding for finding in self.findings if finding.repaired)

    @property
    def ok(self) -> bool:
        """True if there are no problems."""
        return not self.problems


PruneReason = Literal["age", "count", "size", "parent", "trash"]


class PrunedSession(Value, frozen=True, kw_only=True, gc=False):
    """A session that is pruned, and the reason: its age, the count, the size, its parent, or the trash.

    - `id`, `title`, `active_at`: fields of the session.
    - `messages`, `bytes`: number and bytes of its own messages, on all branches, with attachments.
    - `tool_steps`: number of messages that are tool steps.
    - `reason`: `"age"`, `"count"`, `"size"`, `"trash"`, or `"parent"` for a sub-agent's session whose parent is
      deleted.
    """

    id: str
    title: str | None = None
    active_at_ms: int
    messages: int
    bytes: int
    reason: PruneReason
    tool_steps: int = 0

    active_at = TimeProperty[datetime]()


class PruneReport(Value, frozen=True, kw_only=True, gc=False):
    """The result of a prune, or of its dry run. Bytes count the messages and their attachments.

    - `dry_run`: whether nothing was changed.
    - `erased`: whether sessions are erased permanently.
    - `sessions`: a tuple of [PrunedSession], oldest first.
    - `count`: number of sessions.
    - `messages`, `shown_messages`: numbers of all stored messages of these sessions, and of those that are not [tool
      steps][store.shown_counts()].
    - `bytes`: size of these sessions in bytes.
    - `oldest_at`, `newest_at`: oldest and newest activity time among them, or `None`.
    - `outputs`, `output_bytes`: number and bytes of dropped tool outputs.
    - `trimmed`: number of messages deleted because of `max_messages`.
    """

    dry_run: bool
    erased: bool
    sessions: tuple[PrunedSession, ...] = ()
    outputs: int = 0
    output_bytes: int = 0
    trimmed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the sums, times as ISO 8601."""
        times = {"oldest_at": self.oldest_at_ms, "newest_at": self.newest_at_ms}
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
    def oldest_at_ms(self) -> int | None:
        """The time of last activity of the session that has been inactive longest, in milliseconds since 1970."""
        return min((session.active_at_ms for session in self.sessions), default=None)

    @property
    def newest_at_ms(self) -> int | None:
        """The time of last activity of the most recently active session, in milliseconds since 1970."""
        return max((session.active_at_ms for session in self.sessions), default=None)

    oldest_at = TimeProperty[datetime | None]()
    newest_at = TimeProperty[datetime | None]()

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
    """The disk space by content. The parts add up to `total`, the size of the file; `log` is the WAL next to it.

    All numbers are bytes. `total` is the sum of `text`, `tool_output`, `attachments`, `index`, `free` and `other`.

    - `total`: size of the file.
    - `text`: messages without tool results.
    - `tool_output`: messages with tool results.
    - `attachments`: attachments.
    - `index`: indexes, including the search index.
    - `free`: free pages, which `store.maintenance.optimize()` returns to the disk.
    - `other`: everything else.
    - `log`: size of the WAL, in addition to `total`.
    - `tables`: the bytes of each table and index.
    """

    total: int
    text: int
    tool_output: int
    attachments: int
    index: int
    free: int
    other: int
    log: int
    tables: dict[str, int]


class OptimizeReport(Value, frozen=True, kw_only=True, gc=False):
    """The size of the file and its WAL before and after optimizing.

    - `before`, `after`: the size in bytes.
    - `freed`: the difference.
    """

    before: int
    after: int

    @property
    def freed(self) -> int:
        """The number of bytes that were freed."""
        return max(self.before - self.after, 0)


class Backup(Value, frozen=True, kw_only=True, gc=False):
    """The content of a backup, of all owners and including the trash.

    - `path`, `bytes`: path and size of the file.
    - `schema`: schema version.
    - `sessions`, `messages`: numbers.
    - `active_at`: newest activity time, or `None`.
    """

    path: str
    bytes: int
    schema: int
    sessions: int
    messages: int
    active_at_ms: int | None = None

    active_at = TimeProperty[datetime | None]()


class Difference(Value, frozen=True, kw_only=True, gc=False):
    """An item of the source that is missing or different in the target.

    - `owner`: the owner of the item.
    - `kind`: `"session"`, `"payload"` or `"record"`.
    - `name`: the session's id, the payload's hash, or the kind, a slash and the key of a record of the store.
    - `missing`: whether the target lacks the item; otherwise it is different.
    """

    owner: str
    kind: Literal["session", "payload", "record"]
    name: str
    missing: bool


class CopyReport(Value, frozen=True, kw_only=True, gc=False):
    """The comparison of a copied database with its source.

    - `source`, `target`: the locations of the two databases.
    - `owners`: the copied owners.
    - `everyone`: whether all owners of the source were copied, or all that the caller named. `False` if the caller
      named none and row-level security policies that you added may hide owners from the role.
    - `counts`: a dict with the number of compared items of each kind.
    - `differences`: a tuple with the first 1,000 items that differ, each a [Difference].
    - `complete`: `True` if there is no difference and `everyone` is `True`.
    """

    source: str
    target: str
    owners: tuple[str, ...]
    everyone: bool
    counts: dict[str, int]
    differences: tuple[Difference, ...] = ()

    @property
    def complete(self) -> bool:
        """True if the target has everything of the source, unchanged."""
        return self.everyone and not self.differences


class Owners(Value, frozen=True, kw_only=True, gc=False):
    """The owners that have data in a database, ordered by name. The default owner is the empty text.

    - `names`: a tuple of the names.
    - `everyone`: whether the list is complete: `False` if row-level security policies that you added may hide owners
      from this role.
    """

    names: tuple[str, ...]
    everyone: bool
