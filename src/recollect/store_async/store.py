"""AsyncStore: one method per operation, run by an engine.

No SQL and no rules about data belong here: operations in recollect.storage hold them.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from recollect import storage
from recollect.engine.closed_engine import ClosedEngine
from recollect.engine.url import check_owner
from recollect.errors import IndexDamaged, NotSupported, RecollectError
from recollect.model import session_ids, validation
from recollect.model.search import Hit, Page
from recollect.model.session import NewSessionFields
from recollect.storage.operation import Operation, Plan, Scope
from recollect.store_async.records import AsyncRecords
from recollect.store_async.session import AsyncSession
from recollect.store_async.waiting import close_anywhere, maintain, open_if_sync

if TYPE_CHECKING:
    from recollect.engine.engine import AsyncEngine, Maintenance
    from recollect.model.message import Message
    from recollect.model.reports import Findings, OptimizeReport, Owners, Period, PruneReport, Space, Stats, ToolStats
    from recollect.model.session import Relation, SessionInfo
    from recollect.model.times import DurationLike, TimeLike
    from recollect.storage.integrity import CheckProgress
    from recollect.store_async.watch import AsyncWatch

T = TypeVar("T")


class AsyncStore:
    """The conversations of one owner. Tasks may share a store, and several processes may open the same database.

    Writes are on disk when an awaited method returns. As a context manager, the store is closed at the end of the
    block.
    """

    def __init__(self, engine: AsyncEngine, owner: str = "", root: AsyncStore | None = None) -> None:
        self._engine = engine
        self._owner = owner
        self._root = root  # the store that was opened, if as_owner() made this one
        self._views: weakref.WeakSet[AsyncStore] = weakref.WeakSet()
        self._watches: weakref.WeakSet[AsyncWatch] = weakref.WeakSet()

    @property
    def path(self) -> str:
        """The location of the database: an absolute path, `:memory:`, or a URL without its password."""
        return self._engine.path

    @property
    def records(self) -> AsyncRecords:
        """The records of this store: state of a program that is not a message and belongs to no session."""
        return AsyncRecords(self)

    def as_owner(self, name: str) -> AsyncStore:
        """Return a store for another owner that shares the connections and threads of this one.

        It costs no connection and no round trip, so a program can have one for each of its users. `name` is as `owner`
        of recollect.open(). Closing it ends its own watches, and later calls on it raise StoreClosed; closing the store
        that was opened closes all of them.

        On PostgreSQL, the first call for a named owner raises StoreUnavailable if the role bypasses row-level security.
        """
        check_owner(name)
        root = self if self._root is None else self._root
        view = AsyncStore(self._engine.as_owner(name), name, root)
        root._views.add(view)  # noqa: SLF001  the same class
        return view

    def scope(self) -> Scope:
        """Return the owner, the process and the current time, the first argument of every operation."""
        engine = self._engine
        return Scope(self._owner, engine.holder(), time.time_ns() // 1_000_000, engine.is_gone, engine.search_dialect)

    def run(self, op: Operation[T]) -> Coroutine[Any, Any, T]:
        """Run one operation of recollect.storage in one transaction, and return its result."""
        # Not a coroutine around that of the engine, which would cost time on every call.
        return self._run_unindexing(op) if op.removes_from_index else self._engine.run(op)

    async def _run_unindexing(self, op: Operation[T]) -> T:
        """Run an operation that removes words from the search index.

        If the index is damaged, clear it and run the operation again. The next search builds the index from the
        messages.
        """
        try:
            return await self._engine.run(op)
        except IndexDamaged:
            await self._engine.run(storage.search.clear(self.scope()))
            return await self._engine.run(op)

    async def follow(self, plan: Plan[T]) -> T:
        """Run a plan: a sequence of operations, each in its own transaction. Return the result of the plan."""
        try:
            op = next(plan)
            while True:
                try:
                    result = await self.run(op)
                except RecollectError as error:
                    op = plan.throw(error)  # a plan may handle the error and continue
                else:
                    op = plan.send(result)
        except StopIteration as stop:
            return stop.value

    async def session(
        self, id: str | None = None, create: bool = True, **fields: Unpack[NewSessionFields]
    ) -> AsyncSession:
        """Return a session. If it does not exist, create it with `fields`; without an `id`, create one with a new id.

        Opening an existing session only reads, unless one of its open turns must be marked as interrupted because its
        process has ended; `fields` are then ignored. With `create=False`, a missing session raises SessionNotFound, and
        one in the trash SessionInTrash. An invalid id or field raises InvalidValue.
        """
        scope = self.scope()
        if id is None:
            return AsyncSession(
                self, await self.run(storage.sessions.create(scope, session_ids.new_id(scope.now), fields))
            )
        may_create = validation.check_flag("create", create)
        plan = storage.sessions.open_session(scope, id, fields if may_create else None)
        return AsyncSession(self, await self.follow(plan))

    async def create_session(self, id: str | None = None, **fields: Unpack[NewSessionFields]) -> AsyncSession:
        """Create a session with `fields` and return it. Raise SessionExists if `id` is in use.

        Without an `id`, the session gets a new one: a UUID that sorts by time.
        """
        scope = self.scope()
        return AsyncSession(
            self,
            await self.run(storage.sessions.create(scope, session_ids.new_id(scope.now) if id is None else id, fields)),
        )

    async def get_session(self, id: str) -> AsyncSession | None:
        """Return the session with this id, or None if it does not exist or is in the trash.

        Unlike session(), this never writes: abandoned turns stay open.
        """
        info = await self.run(storage.sessions.get(self.scope(), id))
        return None if info is None else AsyncSession(self, info)

    async def find_session(self, name: str) -> AsyncSession:
        """Return the session with this name.

        It is an id, an external id, a title, a prefix of an id, or a title without case and accents. They are tried in
        this order. Raise SessionNotFound if none matches, and AmbiguousName if several do.
        """
        return AsyncSession(self, await self.run(storage.sessions.resolve(self.scope(), name)))

    async def list_sessions(
        self,
        limit: int = 50,
        *,
        after: str | None = None,
        order: storage.listing.Order = "activity",
        oldest_first: bool = False,
        deleted: bool = False,
        archived: bool | None = False,
        pinned: bool | None = None,
        pinned_first: bool = False,
        channel: str | None = None,
        model: str | None = None,
        status: str | None = None,
        label: storage.search.FilterValues | None = None,
        external_id: str | None = None,
        id_prefix: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: TimeLike | None = None,
        until: TimeLike | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        delegates: bool | None = False,
    ) -> Page[AsyncSession]:
        """Return a page of sessions, newest activity first. Pass its `next` as `after` to get the next page.

        - `order`: "activity" or "created", newest first, or "title", A to Z. `oldest_first` reverses it.
        - `deleted`: list the trash instead, the most recently deleted first.
        - `archived`, `pinned`: True, False, or None for either.
        - `label`: only sessions with this label, or with all of several.
        - `external_id`, `id_prefix`: only sessions with this external id, or whose id begins with this text.
        - `metadata`: only sessions whose metadata has these fields with these values, at its top level.
        - `role`, `tool`: only sessions with a message of this role or a call of this tool, on any branch.
        - `since`, `until`: only sessions active at or after `since` and before `until`.
        - `parent`: only the forks of this session; with `delegates=True` its sub-agents, with `delegates=None` both.
          If the parent does not exist, the page is empty.
        - `relation`: only "fork" or "delegate" sessions; `delegates` is ignored.

        Message bodies are not read. While the list changes, a session that did not move is neither skipped nor
        repeated. A `limit` below 1 or a malformed `after` raises InvalidValue.
        """
        filters = {
            "archived": archived, "pinned": pinned, "channel": channel, "model": model, "status": status, "role": role,
            "tool": tool, "parent": parent, "relation": relation, "delegates": delegates, "label": label,
            "external_id": external_id, "id_prefix": id_prefix, "metadata": metadata,
        }  # fmt: skip
        op = storage.listing.read_page(
            self.scope(), limit=limit, after=after, order=order, deleted=deleted, oldest_first=oldest_first,
            pinned_first=pinned_first, since=since, until=until, filters=filters,
        )  # fmt: skip
        page = await self.run(op)
        return Page([AsyncSession(self, info) for info in page.sessions], page.next)

    async def message(self, *, key: str) -> tuple[AsyncSession, Message]:
        """Return the message with this key in any session, and its session.

        If forks share it, its session is the one that has written it, or else the oldest one that shares it. Sessions
        in the trash are not searched. Raise MessageNotFound if there is none, and AmbiguousName if sessions have
        different messages with the key.
        """
        info, message = await self.run(storage.message_keys.find(self.scope(), key))
        return AsyncSession(self, info), message

    async def shown_counts(self, sessions: Sequence[AsyncSession | SessionInfo | str]) -> list[int]:
        """Return how many messages each session shows to people, in the order of `sessions`.

        These are the messages of the active path without deleted ones and tool steps; `message_count` counts all stored
        messages of the path. A missing session counts 0. The numbers are computed from the message rows, not stored, so
        request one page of sessions at a time.
        """
        return await self.follow(storage.messages.count_shown_of_sessions(self.scope(), sessions))

    async def search(
        self,
        query: str,
        limit: int = 20,
        *,
        after: str | None = None,
        session: str | None = None,
        role: storage.search.FilterValues | None = None,
        tool: storage.search.FilterValues | None = None,
        channel: storage.search.FilterValues | None = None,
        model: storage.search.FilterValues | None = None,
        status: storage.search.FilterValues | None = None,
        label: storage.search.FilterValues | None = None,
        external_id: str | None = None,
        id_prefix: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: TimeLike | None = None,
        until: TimeLike | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        deleted: bool = False,
        delegates: bool = False,
    ) -> Page[Hit]:
        """Search titles and messages, and return a page of hits, best first. Pass its `next` as `after` to continue.

        - `limit`: 1 to 1,000 hits.
        - `session`: search one session only, with the path that it shares.
        - `role`, `tool`, `channel`, `model`, `status`: one value, or several of which one must match.
        - `label`, `external_id`, `id_prefix`, `metadata`: only in sessions that list_sessions() lists with them.
        - `since`, `until`: only messages at or after `since` and before `until`.
        - `archived`, `pinned`: True, False, or None for either.
        - `deleted`: search the trash instead.
        - `delegates`: also search the sessions of sub-agents.

        Every query is valid. Messages that are not in the index yet are added first, so the search sees everything
        committed before the call. If the index could not be updated, `hindered` on the page is the reason.
        """
        plan = storage.search.search(
            self.scope(), query, limit=limit, after=after, session=session, role=role, tool=tool, channel=channel,
            model=model, status=status, label=label, external_id=external_id, id_prefix=id_prefix, metadata=metadata,
            since=since, until=until, archived=archived, pinned=pinned, deleted=deleted, delegates=delegates,
        )  # fmt: skip
        page = await self.follow(plan)
        return Page(page.hits, page.next, page.warning)

    async def index(self) -> int:
        """Add the messages that the search index lacks, and return how many were added.

        A search does this first; call it while idle to keep searches fast.
        """
        return await self.follow(storage.search.catch_up(self.scope()))

    async def reindex(self) -> int:
        """Build the search index again from the messages, and return how many messages it holds."""
        return await self.follow(storage.search.rebuild(self.scope()))

    async def delete_session(self, id: str, *, expected: int | None = None) -> None:
        """Move a session to the trash. Its messages stay stored, and its id can be used again.

        Raise SessionNotFound if it does not exist, and StaleRevision if `expected` is not its current revision. Forks
        are not affected.
        """
        await self.run(storage.sessions.trash(self.scope(), id, expected))

    async def restore_session(self, id: str, *, expected: int | None = None) -> AsyncSession:
        """Restore a session from the trash, with its messages and its activity time, and return it.

        If several sessions in the trash have this id, the one deleted last is restored. Raise SessionExists while
        another session uses the id, and StaleRevision if `expected` is not the current revision of the session.
        """
        return AsyncSession(self, await self.run(storage.sessions.restore(self.scope(), id, expected)))

    async def recover(self, session: str | None = None) -> list[str]:
        """Mark the open turns whose process has ended as interrupted, in one session or in all.

        Return the ids of the changed sessions, in order. Activity times do not change. session() does the same for the
        session that it opens.
        """
        return await self.follow(storage.sessions.recover(self.scope(), session))

    async def erase_session(
        self, id: str, *, forks: str = "refuse", deleted: bool | None = None, expected: int | None = None
    ) -> list[str]:
        """Erase a session permanently, whether it is in the trash or not, and return the ids of the erased sessions.

        - `forks`: what to do if forks share its messages. "refuse" raises SessionHasForks, "keep" erases the session
          but not the shared messages, "erase" erases the forks too.
        - `deleted`: the same id can belong to a session in the trash and to another one. True erases the one in the
          trash, False the other one, None the one outside the trash if it exists.
        - `expected`: the revision that the session must have, otherwise StaleRevision is raised.

        The content is overwritten in the file, so this takes longer than delete_session().
        """
        op = storage.retention.erase_session(self.scope(), id, forks=forks, deleted=deleted, expected=expected)
        return (await self.run(op)).sessions

    async def empty_trash(self, *, older_than: DurationLike | None = None, dry_run: bool = False) -> PruneReport:
        """Erase the sessions in the trash permanently, and return a report.

        Only sessions deleted longer ago than `older_than` are erased, if it is set. Messages that forks share stay.
        With `dry_run`, nothing changes and the report states what would be erased.
        """
        return await self.follow(storage.retention.empty_trash(self.scope(), older_than=older_than, dry_run=dry_run))

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
        """Delete sessions and content by age, number and size, and return a report. Without a rule, nothing is deleted.

        - `older_than`: sessions whose last activity or change is longer ago: "90d", a timedelta, or seconds.
        - `keep`: all sessions except this number of the newest.
        - `max_bytes`: the oldest sessions, until the others have at most this number of bytes.
        - `max_messages`: the oldest turns of sessions with more messages on their active path, marked as deleted.
        - `tool_output_over`: tool outputs of more bytes, permanently replaced by a sentence.
        - `dry_run`: change nothing, and report what would be deleted.
        - `erase`: erase sessions permanently instead of moving them to the trash.

        Pinned sessions and sessions with an open turn do not change.
        """
        plan = storage.retention.prune(
            self.scope(), older_than=older_than, keep=keep, max_bytes=max_bytes, max_messages=max_messages,
            tool_output_over=tool_output_over, dry_run=dry_run, erase=erase,
        )  # fmt: skip
        return await self.follow(plan)

    async def last_session(self) -> AsyncSession | None:
        """Return the session of set_last_session() if it exists, else the one with the newest activity, or None."""
        info = await self.run(storage.last_session.read(self.scope()))
        return None if info is None else AsyncSession(self, info)

    async def set_last_session(self, id: str) -> None:
        """Store the id of the current session, for last_session(). A missing session raises SessionNotFound."""
        await self.run(storage.last_session.store(self.scope(), id))

    def watch(self, session: str | None = None, *, timeout: float | None = None) -> AsyncWatch:
        """Open a watch: an iterator over the changes that any process commits, in one session or in all.

        It yields (session id, revision) in the order of the commits; several changes of a session may arrive as one.
        The iteration ends after `timeout` seconds without a change (None: never), or when the watch is closed. After
        the store is closed, it raises StoreClosed. Enter it with `async with`, or await it: changes from then on are
        reported.
        """
        from recollect.store_async.watch import AsyncWatch  # noqa: PLC0415  few programs watch

        watch = open_if_sync(AsyncWatch(self, self._engine.change_notifier, session, timeout))
        self._watches.add(watch)
        return watch

    async def stats(
        self,
        *,
        since: TimeLike | None = None,
        until: TimeLike | None = None,
        channel: str | None = None,
        model: str | None = None,
        utc_offset: int = 0,
    ) -> Stats:
        """Return the totals of sessions, messages, tokens and tool calls, overall and by model, channel and day.

        Only messages at or after `since` and before `until` count, of sessions with this `channel` and `model`.
        `utc_offset` is the number of minutes by which the days are ahead of UTC. Each message counts once; deleted
        messages and the trash do not count. All messages are read, one page at a time: about 6 seconds for 1,000,000
        messages.
        """
        plan = storage.statistics.stats(
            self.scope(), since=since, until=until, channel=channel, model=model, utc_offset=utc_offset
        )
        return await self.follow(plan)

    async def tool_stats(
        self,
        *,
        since: TimeLike | None = None,
        until: TimeLike | None = None,
        tool: str | None = None,
        period: Period | None = None,
        utc_offset: int = 0,
    ) -> list[ToolStats]:
        """Return the number, outcomes and durations of tool calls, by tool, and by `period` ("day", "week" or "month").

        `since`, `until` and `utc_offset` as in stats(). A call that several forks answer counts once for each answer.
        """
        op = storage.statistics.tool_stats(
            self.scope(), since=since, until=until, tool=tool, period=period, utc_offset=utc_offset
        )
        return await self.run(op)

    async def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: CheckProgress | None = None
    ) -> str:
        """Copy the database to a file while it is in use, and return the absolute path of the copy.

        The copy holds everything committed before the call, is verified, and appears complete or not at all. An
        existing file raises FileExists unless `overwrite` is set. `progress` is called with the pages done and the
        total. SQLite only: PostgreSQL raises NotSupported.
        """
        target, overwrite = validation.check_path("path", path), validation.check_flag("overwrite", overwrite)
        validation.check_callable("progress", progress)
        return await self._maintain(
            "Backing up",
            lambda maintenance, report: maintenance.backup(target, overwrite=overwrite, progress=report),
            progress,
        )

    async def owners(self) -> Owners:
        """Return the owners that have data in this database, not only the owner of this store."""
        return await self.run(storage.listing.list_owners())

    async def check(
        self, *, deep: bool = True, repair: bool = False, file: bool = True, progress: CheckProgress | None = None
    ) -> Findings:
        """Check the data of this owner, and the database file, for damage, and return the findings.

        - `deep`: also verify the checksum of every page and read every message and attachment. The cost grows with the
          size.
        - `repair`: repair values that can be derived from the messages, such as counters, titles and abandoned turns.
        - `file`: also check the SQLite file itself, for all owners.
        - `progress`: a function that is called with the sessions done and the total.
        """
        from recollect.history.repair import find_problems  # noqa: PLC0415
        from recollect.model.reports import Finding, Findings  # noqa: PLC0415

        validation.check_callable("progress", progress)
        deep, repair = validation.check_flag("deep", deep), validation.check_flag("repair", repair)
        file = validation.check_flag("file", file)
        findings, areas = list[Finding](), storage.integrity.CHECKED_AREAS
        if file and self._engine.maintenance is not None:
            result = await self._maintain("Checking the file", lambda maintenance, _: maintenance.check(deep=deep))
            findings += result.findings
            areas = (*result.areas, *areas)
        findings += await self.follow(
            storage.integrity.check_store(
                self.scope(), deep=deep, repair=repair, histories=find_problems, progress=progress
            )
        )
        return Findings(checked=areas, found=tuple(findings))

    async def space(self) -> Space:
        """Return the disk usage by kind: text, tool output, attachments, indexes, free pages.

        SQLite only: PostgreSQL raises NotSupported.
        """
        return await self._maintain("Measuring disk usage", lambda maintenance, _: maintenance.space())

    async def optimize(self) -> OptimizeReport:
        """Return free pages to the disk, rewrite the file, truncate the WAL, and return a report.

        The rewrite takes about 10 seconds per gigabyte, during which other writers wait, and needs free disk space of
        twice the size of the file. SQLite only: PostgreSQL raises NotSupported.
        """
        return await self._maintain("Optimizing the file", lambda maintenance, _: maintenance.optimize())

    async def _maintain(
        self,
        feature: str,
        task: Callable[[Maintenance, CheckProgress | None], T],
        progress: CheckProgress | None = None,
    ) -> T:
        """Run maintenance of the database files. Raise NotSupported if the engine has none."""
        maintenance = self._engine.maintenance
        if maintenance is None:
            raise NotSupported(what=feature)
        return await maintain(self._engine, lambda report: task(maintenance, report), progress)

    def close(self) -> Coroutine[Any, Any, None]:
        """Close the store and end its watches. Every acknowledged write is already on disk.

        The current write is completed first. Every later call raises StoreClosed, except close(); also on the stores
        that as_owner() returned. Closing one of those closes only it. Await it, in any
        event loop. Without a running event loop, the call itself closes the store, and awaiting it does nothing.
        """
        return close_anywhere(self._close())

    async def _close(self) -> None:
        if self._root is not None:
            self._engine = cast("AsyncEngine", ClosedEngine(self.path))
        for store in (self, *self._views):
            for watch in list(store._watches):  # noqa: SLF001  the same class
                await watch.end_with_store()
        if self._root is None:
            await self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path!r}>"
