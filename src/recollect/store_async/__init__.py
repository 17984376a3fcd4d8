"""The store for asyncio: the names of recollect.store, awaited. What waits together is committed together."""

from __future__ import annotations

import asyncio
import functools
import os
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from recollect import ops
from recollect.engine.process import gone, holder
from recollect.engine.sqlite.concurrent import AsyncSqliteEngine
from recollect.engine.url import Target, target
from recollect.engine.url import check as check_given
from recollect.errors import IndexDamaged, NotSupported, RecollectError
from recollect.model import argument, keys
from recollect.model.hit import Hit
from recollect.model.page import Page
from recollect.model.session import NewSessionFields
from recollect.op import Op, Plan, Scope
from recollect.store_async.session import AsyncSession
from recollect.store_async.turn import AsyncStream, AsyncTurn

__all__ = ["AsyncSession", "AsyncStore", "AsyncStream", "AsyncTurn", "open_async"]

if TYPE_CHECKING:
    from recollect.engine.postgres.concurrent import AsyncPostgresEngine
    from recollect.model.finding import Findings
    from recollect.model.moment import Duration, Moment
    from recollect.model.owners import Owners
    from recollect.model.pruning import PruneReport
    from recollect.model.session import Session as SessionValue
    from recollect.model.space import Optimized, Space
    from recollect.model.statistics import Period, Stats, ToolStats
    from recollect.store_async.watch import AsyncWatch

T = TypeVar("T")
Progress = Callable[[int, int], object]


def open_async(path_or_url: str | os.PathLike[str] | None = None, *, owner: str = "", timeout: float = 30.0) -> Opening:
    """Open a store as recollect.open() does; the result is awaited, or entered with `async with`."""
    check_given(owner, timeout)
    return Opening(target(path_or_url), owner, timeout)


def _engine(place: Target, owner: str, timeout: float) -> AsyncSqliteEngine | AsyncPostgresEngine:
    if place.engine == "postgres":
        from recollect.engine.postgres.concurrent import AsyncPostgresEngine  # noqa: PLC0415  an extra, and 60 ms

        return AsyncPostgresEngine(place.path, owner=owner, timeout=timeout)
    return AsyncSqliteEngine(place.path, timeout=timeout)


class Opening:
    """A store that is about to be opened: awaited, or entered."""

    def __init__(self, place: Target, owner: str, timeout: float) -> None:
        self._make = functools.partial(_engine, place, owner, timeout)
        self._owner = owner
        self._store: AsyncStore | None = None

    async def _open(self) -> AsyncStore:
        loop = asyncio.get_running_loop()
        return AsyncStore(await loop.run_in_executor(None, self._make), self._owner)

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


class AsyncStore:
    """Every conversation, in one place. Safe to use from many tasks, and in many processes at once."""

    def __init__(self, engine: AsyncSqliteEngine | AsyncPostgresEngine, owner: str = "") -> None:
        self._engine = engine
        self._owner = owner
        local = isinstance(engine, AsyncSqliteEngine)  # its holders are processes of this machine
        self._holder, self._gone = (engine.holder, engine.gone) if local else (holder, gone)
        self._watches: weakref.WeakSet[AsyncWatch] = weakref.WeakSet()

    @property
    def path(self) -> str:
        """Where the data is."""
        return self._engine.path

    def scope(self) -> Scope:
        """Say who asks, and when."""
        return Scope(self._owner, self._holder(), time.time_ns() // 1_000_000, self._gone)

    def run(self, op: Op[T]) -> Coroutine[Any, Any, T]:
        """Run an operation of recollect.ops. The engine's own coroutine is given, not one more around it."""
        return self._unindexing(op) if op.unindexes else self._engine.run(op)

    async def _unindexing(self, op: Op[T]) -> T:
        """Run an operation that takes words out of the search index; what it can not take out goes with all of it."""
        try:
            return await self._engine.run(op)
        except IndexDamaged:
            await self._engine.run(ops.search.clear())
            return await self._engine.run(op)

    async def follow(self, plan: Plan[T]) -> T:
        """Run several operations in a row."""
        try:
            op = next(plan)
            while True:
                try:
                    result = await self.run(op)
                except RecollectError as error:
                    op = plan.throw(error)  # the plan may know what to do instead
                else:
                    op = plan.send(result)
        except StopIteration as done:
            return done.value

    async def session(
        self, id: str | None = None, create: bool = True, **fields: Unpack[NewSessionFields]
    ) -> AsyncSession:
        """Open a session, or create it (with `fields`) where there is none. Without an id it is a new one."""
        scope = self.scope()
        if id is None:
            return AsyncSession(self, await self.run(ops.sessions.create(scope, keys.new_id(scope.now), fields)))
        wanted = argument.flag("create", create)
        op = ops.sessions.ensure(scope, id, fields) if wanted else ops.sessions.opened(scope, id)
        return AsyncSession(self, await self.run(op))

    async def create_session(self, id: str | None = None, **fields: Unpack[NewSessionFields]) -> AsyncSession:
        """Create a session; an id that is taken is an error."""
        scope = self.scope()
        return AsyncSession(
            self, await self.run(ops.sessions.create(scope, keys.new_id(scope.now) if id is None else id, fields))
        )

    async def get_session(self, id: str) -> AsyncSession | None:
        """Give a session, or None where there is none. Its activity is not touched."""
        found = await self.run(ops.sessions.get(self.scope(), id))
        return None if found is None else AsyncSession(self, found)

    async def find_session(self, name: str) -> AsyncSession:
        """Find a session by its id, its title or the beginning of its id."""
        return AsyncSession(self, await self.run(ops.sessions.resolve(self.scope(), name)))

    async def list_sessions(
        self,
        limit: int = 50,
        *,
        after: str | None = None,
        order: ops.lists.Order = "activity",
        deleted: bool = False,
        archived: bool | None = False,
        pinned: bool | None = None,
        pinned_first: bool = False,
        channel: str | None = None,
        model: str | None = None,
        status: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        parent: str | None = None,
        delegates: bool | None = False,
    ) -> Page[AsyncSession]:
        """List sessions, newest first, a page at a time: pass a page's `next` as `after`.

        `deleted` lists the trash. `archived` and `pinned` take True, False or None for either. Sub-agents' sessions
        are left out unless `delegates` is set; with `parent` they alone are listed, or the forks where it is not set.
        """
        filters = {
            "archived": archived, "pinned": pinned, "channel": channel, "model": model, "status": status, "role": role,
            "tool": tool, "parent": parent, "delegates": delegates,
        }  # fmt: skip
        op = ops.lists.page(
            self.scope(), limit=limit, after=after, order=order, deleted=deleted, pinned_first=pinned_first,
            since=since, until=until, filters=filters,
        )  # fmt: skip
        found = await self.run(op)
        return Page([AsyncSession(self, info) for info in found.sessions], found.next)

    async def shown_counts(self, sessions: Sequence[AsyncSession | SessionValue | str]) -> list[int]:
        """Count the messages of each session's active path that are no tool steps, in the order of `sessions`.

        This is the number to show to people; `message_count` is the number of stored messages. It is computed from
        the stored messages, so ask for a page of sessions at a time. A session that is not there counts 0.
        """
        return await self.follow(ops.messages.shown_counts(self.scope(), sessions))

    async def search(
        self,
        query: str,
        limit: int = 20,
        *,
        after: str | None = None,
        session: str | None = None,
        role: ops.search.Names | None = None,
        tool: ops.search.Names | None = None,
        channel: ops.search.Names | None = None,
        model: ops.search.Names | None = None,
        status: ops.search.Names | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        deleted: bool = False,
        delegates: bool = False,
    ) -> Page[Hit]:
        """Search titles and messages, the best hits first, a page at a time: pass a page's `next` as `after`.

        It sees everything that was committed before. `deleted` searches the trash, `delegates` also sub-agents.
        """
        plan = ops.search.search(
            self.scope(), query, limit=limit, after=after, session=session, role=role, tool=tool, channel=channel,
            model=model, status=status, since=since, until=until, archived=archived, pinned=pinned, deleted=deleted,
            delegates=delegates,
        )  # fmt: skip
        found = await self.follow(plan)
        return Page(found.hits, found.next, found.hindered)

    async def index(self) -> int:
        """Bring the search index up to date, as a search does before it answers: how many messages were added."""
        return await self.follow(ops.search.catch_up(self.scope()))

    async def reindex(self) -> int:
        """Make the search index anew: how many messages are in it."""
        return await self.follow(ops.search.rebuild(self.scope()))

    async def delete_session(self, id: str) -> None:
        """Put a session in the trash."""
        await self.run(ops.sessions.trash(self.scope(), id))

    async def restore_session(self, id: str) -> AsyncSession:
        """Take a session out of the trash, whole."""
        return AsyncSession(self, await self.run(ops.sessions.restore(self.scope(), id)))

    async def recover(self, session: str | None = None) -> list[str]:
        """Mark the turns whose process is gone as interrupted, in one session or in all: the ids of what changed.

        Opening a session does this for that session. Here its activity is not touched.
        """
        return await self.follow(ops.sessions.recover(self.scope(), session))

    async def erase_session(self, id: str, *, forks: str = "refuse", deleted: bool | None = None) -> list[str]:
        """Erase a session for good, and give the ids of what was erased.

        Where forks share its past: `refuse` names them, `keep` leaves them the shared past, `erase` erases them too.
        An id can be that of a living session and of one in the trash: `deleted` says which; None takes a living one.
        """
        return (await self.run(ops.retention.erase(self.scope(), id, forks=forks, deleted=deleted))).sessions

    async def empty_trash(self, *, older_than: Duration | None = None, dry_run: bool = False) -> PruneReport:
        """Erase what is in the trash, or what has been there for so long. Forks keep the past that they share."""
        return await self.follow(ops.pruning.empty_trash(self.scope(), older_than=older_than, dry_run=dry_run))

    async def prune(
        self,
        *,
        older_than: Duration | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
        tool_output_over: int | None = None,
        dry_run: bool = False,
        erase: bool = False,
    ) -> PruneReport:
        """Let sessions go by age, count and size, to the trash unless `erase` is set; pinned ones stay.

        `max_messages` takes the oldest turns out of longer sessions, `tool_output_over` drops larger tool outputs.
        """
        plan = ops.pruning.prune(
            self.scope(), older_than=older_than, keep=keep, max_bytes=max_bytes, max_messages=max_messages,
            tool_output_over=tool_output_over, dry_run=dry_run, erase=erase,
        )  # fmt: skip
        return await self.follow(plan)

    async def last_session(self) -> AsyncSession | None:
        """Give the session that was last active: the one that was set, or the one with the newest activity."""
        found = await self.run(ops.settings.last(self.scope()))
        return None if found is None else AsyncSession(self, found)

    async def set_last_session(self, id: str) -> None:
        """Remember which session is active now."""
        await self.run(ops.settings.set_last(self.scope(), id))

    async def setting(self, key: str, default: Any = None) -> Any:
        """Read a setting."""
        return await self.run(ops.settings.setting(self.scope(), key, default))

    async def set_setting(self, key: str, value: Any) -> None:
        """Write a setting, any JSON value; None removes it."""
        await self.run(ops.settings.set_setting(self.scope(), key, value))

    def watch(self, session: str | None = None, *, timeout: float | None = None) -> AsyncWatch:
        """Go through changes as anyone commits them, here or elsewhere: (session id, revision), of one session or all.

        Enter it with `async with`, or `await` it: from there on nothing is missed. It ends after `timeout` seconds
        without a change (None: never), or when it is closed. When the store is closed it raises StoreClosed.
        """
        from recollect.store_async.watch import AsyncWatch  # noqa: PLC0415  most do not watch

        watch = AsyncWatch(self, self._engine.bell, session, timeout)
        self._watches.add(watch)
        return watch

    async def stats(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        channel: str | None = None,
        model: str | None = None,
        utc_offset: int = 0,
    ) -> Stats:
        """Add up what is stored, in all and by model, channel and day. `utc_offset` is in minutes."""
        plan = ops.statistics.stats(
            self.scope(), since=since, until=until, channel=channel, model=model, utc_offset=utc_offset
        )
        return await self.follow(plan)

    async def tool_stats(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        tool: str | None = None,
        period: Period | None = None,
        utc_offset: int = 0,
    ) -> list[ToolStats]:
        """Add up the tool calls: how many, how they ended, how long they took, by tool and period."""
        op = ops.statistics.tools(
            self.scope(), since=since, until=until, tool=tool, period=period, utc_offset=utc_offset
        )
        return await self.run(op)

    async def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> str:
        """Copy the store to a file while it is in use, and give the path. The copy is whole and checked."""
        from recollect.engine.sqlite import backup  # noqa: PLC0415

        to, overwrite = argument.path("A backup", path), argument.flag("overwrite", overwrite)
        argument.function("progress", progress)
        told = _on_loop(progress)
        return await self._maintain(
            "A backup", lambda file: backup.backup(file, to, overwrite=overwrite, progress=told)
        )

    async def owners(self) -> Owners:
        """List the owners that have anything in this database, not only the owner of this store."""
        return await self.run(ops.lists.owners())

    async def check(
        self, *, deep: bool = True, repair: bool = False, file: bool = True, progress: Progress | None = None
    ) -> Findings:
        """Check the file and what is kept beside the messages of this owner, and say in words what is wrong.

        `repair` puts right what can be derived from the messages. Without `deep` only what is quickly found is looked
        at, without `file` not the file itself. `progress` is told how many sessions of how many are done.
        """
        from recollect.context.repair import problems  # noqa: PLC0415
        from recollect.engine.sqlite import check  # noqa: PLC0415
        from recollect.model.finding import Finding, Findings  # noqa: PLC0415

        argument.function("progress", progress)
        deep, repair = argument.flag("deep", deep), argument.flag("repair", repair)
        file = argument.flag("file", file)
        found, checked = list[Finding](), ops.check.CHECKED
        if file and hasattr(self._engine, "maintain"):
            found += await self._maintain("A check of the file", lambda file: check.check(file, deep=deep))
            checked = (*check.checked(deep), *checked)
        found += await self.follow(
            ops.check.check(self.scope(), deep=deep, repair=repair, histories=problems, progress=progress)
        )
        return Findings(checked=checked, found=tuple(found))

    async def space(self) -> Space:
        """Say where the bytes are: text, tool output, attachments, indexes, free pages."""
        from recollect.engine.sqlite import space  # noqa: PLC0415

        return await self._maintain("A measurement of the file", space.measure)

    async def optimize(self) -> Optimized:
        """Put the file in order: the planner's figures, free pages given back, the log emptied."""
        from recollect.engine.sqlite import space  # noqa: PLC0415

        return await self._maintain("Optimizing", space.optimize)

    async def _maintain(self, what: str, work: Callable[[Any], T]) -> T:
        """Have the engine do something with its file; an engine without one can not."""
        maintain = getattr(self._engine, "maintain", None)
        if maintain is None:
            raise NotSupported(what=what)
        return await maintain(work)

    async def close(self) -> None:
        """Close the store, and end its watches. Everything acknowledged is on disk."""
        for watch in list(self._watches):
            await watch.orphan()
        await self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path!r}>"


def _on_loop(progress: Progress | None) -> Progress | None:
    """Have the running loop call a function that another thread calls."""
    if progress is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda done, total: loop.call_soon_threadsafe(progress, done, total)
