"""AsyncStoreMaintenance: backups, checks, disk space, the search index and retention of a store."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from recollect import storage
from recollect.errors import NotSupported
from recollect.model import validation
from recollect.store_async.waiting import maintain

if TYPE_CHECKING:
    from recollect.engine.engine import Maintenance
    from recollect.model.reports import Findings, OptimizeReport, Owners, PruneReport, Space
    from recollect.model.times import DurationLike
    from recollect.storage.integrity import CheckProgress
    from recollect.store_async.store import AsyncStore

T = TypeVar("T")


class AsyncStoreMaintenance:
    """Maintenance of a store: backups, checks, disk space, the search index and retention."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: CheckProgress | None = None
    ) -> str:
        """Copy the store to a file and return its absolute path.

        The store may be in use, also by other processes: the copy contains everything acknowledged before the backup
        began. A database in memory can be copied too. The copy is one file with mode 0600, which appears at `path` only
        when it is complete and verified. Each of its pages has a valid [checksum][file-format.md#checksums], even if
        the page in the store does not. The next backup to the same file removes the temporary file
        (`<file>.<process>.part`) of a killed process.

        - `path`: the file to write.
        - `overwrite`: whether to replace an existing file. Raises `FileExists` if the file exists and `overwrite` is
          `False`, or if it is a database in use.
        - `progress`: a function that receives the number of pages copied.

        SQLite only: PostgreSQL raises `NotSupported`.
        """
        target, overwrite = validation.check_path("path", path), validation.check_flag("overwrite", overwrite)
        validation.check_callable("progress", progress)
        return await self._maintain(
            "Backing up",
            lambda maintenance, report: maintenance.backup(target, overwrite=overwrite, progress=report),
            progress,
        )

    async def check(
        self, *, deep: bool = True, repair: bool = False, file: bool = True, progress: CheckProgress | None = None
    ) -> Findings:
        """Check the data of this owner for damage and return [Findings].

        To check a whole database, open a store for each of `store.maintenance.owners()`, as [recollect db
        check][command-line.md#recollect-db-check] does.

        - `deep`: also run SQLite's integrity check, verify the checksum of every page, and read every message,
          attachment and record. With `False`, the check covers references between rows, counters, branches, message
          keys, turns, tool calls, idempotency keys, titles, labels, and the reference counts of attachments.
        - `repair`: repair values that can be derived from the messages: counters, titles, abandoned turns. Message
          content does not change.
        - `file`: also check the SQLite file itself, for all owners.
        - `progress`: a function that receives the number of sessions checked.
        """
        from recollect.history.repair import find_problems  # noqa: PLC0415
        from recollect.model.reports import Finding, Findings  # noqa: PLC0415

        validation.check_callable("progress", progress)
        deep, repair = validation.check_flag("deep", deep), validation.check_flag("repair", repair)
        file = validation.check_flag("file", file)
        findings, areas = list[Finding](), storage.integrity.CHECKED_AREAS
        if file and self._store._engine.maintenance is not None:
            result = await self._maintain("Checking the file", lambda maintenance, _: maintenance.check(deep=deep))
            findings += result.findings
            areas = (*result.areas, *areas)
        findings += await self._store._follow(
            storage.integrity.check_store(
                self._store._scope(), deep=deep, repair=repair, histories=find_problems, progress=progress
            )
        )
        return Findings(checks=areas, findings=tuple(findings))

    async def space(self) -> Space:
        """Return the disk usage as a [Space].

        SQLite only: PostgreSQL raises `NotSupported`.
        """
        return await self._maintain("Measuring disk usage", lambda maintenance, _: maintenance.space())

    async def optimize(self) -> OptimizeReport:
        """Rewrite the file (`VACUUM`), which returns free pages to the disk, and truncate the WAL.

        Return an [OptimizeReport]. It also finishes an interrupted erasure and writes a new checksum to every page. It
        takes about 10 seconds per gigabyte, during which other writers wait, and needs free disk space of twice the
        size of the file.

        ```python
        import pathlib

        store.maintenance.backup("backup.db") == str(pathlib.Path("backup.db").absolute())    # -> True
        store.maintenance.check().ok                                                          # -> True
        store.maintenance.space().total > 0                                                   # -> True
        store.maintenance.optimize().freed >= 0                                               # -> True
        ```

        SQLite only: PostgreSQL raises `NotSupported`.
        """
        return await self._maintain("Optimizing the file", lambda maintenance, _: maintenance.optimize())

    async def index(self) -> int:
        """Add new messages to the search index and return their number.

        Every search does this first; a long-running program can call it while idle, so that the next search is fast.
        """
        return await self._store._follow(storage.search.catch_up(self._store._scope()))

    async def reindex(self) -> int:
        """Rebuild the search index from the messages.

        Return the number of messages in it.
        """
        return await self._store._follow(storage.search.rebuild(self._store._scope()))

    async def recover(self, session: str | None = None) -> list[str]:
        """Mark the open turns whose process has ended as interrupted, in one `session` or in all.

        Return the ids of the changed sessions, sorted. Activity times do not change. `store.session()` does the same
        for the session that it opens; a server does it when it starts.
        """
        return await self._store._follow(storage.sessions.recover(self._store._scope(), session))

    async def prune(
        self,
        *,
        older_than: DurationLike | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
        tool_output_over: int | None = None,
        dry_run: bool = False,
        erase: bool = False,
    ) -> PruneReport:
        """Delete everything that matches at least one of the rules that you pass, and return a [PruneReport].

        Without a rule it deletes nothing.

        - `older_than`: sessions whose last activity or change is longer ago. Renaming, pinning and restoring are
          changes, so a restored session is not pruned again immediately.
        - `keep`: all sessions except this number of the newest ones.
        - `max_bytes`: the oldest sessions, until the messages and attachments of the remaining sessions, with earlier
          versions, have at most this number of bytes.
        - `max_messages`: in a session with more messages on its active path, the method marks the oldest whole turns as
          deleted until this number of messages is left. The newest turn and system messages always stay.
          `session.restore_messages()` restores a message. A session whose oldest messages a fork shares does not
          change.
        - `tool_output_over`: permanently replaces tool outputs of more than this number of bytes with a sentence that
          states the size of the removed output and the time of the removal (also in the part's `metadata`, under
          `dropped`), also in earlier versions. The calls, their status and the text stay.
        - `dry_run`: change nothing, and report what would be deleted.
        - `erase`: erase sessions permanently instead of moving them to the trash. Messages that forks share stay.

        Pinned sessions and sessions with an open turn do not change. The session of a sub-agent is deleted together
        with its parent, never alone. A session that is used, pinned or restored during the call stays.

        ```python
        plan = store.maintenance.prune(older_than="90d", keep=1000, dry_run=True)
        (plan.count, plan.messages, plan.oldest_at)    # -> (0, 0, None)
        ```
        """
        plan = storage.retention.prune(
            self._store._scope(), older_than=older_than, keep=keep, max_bytes=max_bytes, max_messages=max_messages,
            tool_output_over=tool_output_over, dry_run=dry_run, erase=erase,
        )  # fmt: skip
        return await self._store._follow(plan)

    async def empty_trash(self, *, older_than: DurationLike | None = None, dry_run: bool = False) -> PruneReport:
        """Erase the sessions in the trash permanently and return a [PruneReport].

        Messages that forks share stay.

        - `older_than`: only sessions that have been in the trash for longer.
        - `dry_run`: change nothing, and report what would be erased.
        """
        return await self._store._follow(
            storage.retention.empty_trash(self._store._scope(), older_than=older_than, dry_run=dry_run)
        )

    async def owners(self) -> Owners:
        """Return the owners that have data in this database, as [Owners].

        The result contains names only: a store reads only the conversations of its own owner.

        ```python
        store.maintenance.owners().names    # -> ('',)
        ```
        """
        return await self._store._run(storage.listing.list_owners())

    async def _maintain(
        self,
        feature: str,
        task: Callable[[Maintenance, CheckProgress | None], T],
        progress: CheckProgress | None = None,
    ) -> T:
        """Run maintenance of the database files. Raise NotSupported if the engine has none."""
        maintenance = self._store._engine.maintenance
        if maintenance is None:
            raise NotSupported(what=feature)
        return await maintain(self._store._engine, lambda report: task(maintenance, report), progress)
