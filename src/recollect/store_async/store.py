"""AsyncStore: one method per operation, run by an engine.

No SQL and no rules about data belong here: operations in recollect.storage hold them.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from recollect import storage
from recollect.engine.closed_engine import ClosedEngine
from recollect.engine.url import check_owner
from recollect.errors import IndexDamaged, InvalidValue, RecollectError
from recollect.model import session_ids, validation
from recollect.model.search import Hit, Page
from recollect.model.session import NewSessionFields
from recollect.storage.operation import Operation, Plan, Scope
from recollect.store_async.records import AsyncRecords
from recollect.store_async.session import AsyncSession
from recollect.store_async.waiting import close_anywhere, open_if_sync

if TYPE_CHECKING:
    from recollect.engine.engine import AsyncEngine
    from recollect.model.message import Message
    from recollect.model.reports import Stats
    from recollect.model.session import Relation, SessionInfo
    from recollect.model.times import TimeLike
    from recollect.store_async.maintenance import AsyncStoreMaintenance
    from recollect.store_async.tools import AsyncStoreTools
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
    def owner(self) -> str:
        """The user whose sessions the store has; empty for the default owner."""
        return self._owner

    @property
    def holder(self) -> str:
        """The name of this process as the holder of turns and presences.

        `presence.holder` and [SessionBusy] name it.
        """
        return self._engine.holder()

    @property
    def records(self) -> AsyncRecords:
        """The [records] of the store: state of your program that is not a message and belongs to no session.

        For example settings, caches and shared counters. They are not part of an export.
        """
        return AsyncRecords(self)

    @property
    def maintenance(self) -> AsyncStoreMaintenance:
        """Backups, checks, disk space, the search index, retention and the list of owners."""
        from recollect.store_async.maintenance import AsyncStoreMaintenance  # noqa: PLC0415  few programs use it

        return AsyncStoreMaintenance(self)

    @property
    def tools(self) -> AsyncStoreTools:
        """The tool calls of all sessions: their statistics."""
        from recollect.store_async.tools import AsyncStoreTools  # noqa: PLC0415  few programs use it

        return AsyncStoreTools(self)

    def as_owner(self, name: str) -> AsyncStore:
        """Return a store for another owner, a `Store` that shares the connections and threads of this one.

        It costs no connection and no round trip, so a server can have one for each of its users.

        - `name`: as `owner` of `recollect.open()`.

        Closing the returned store ends its own watches, and later calls on it raise `StoreClosed`; this store stays
        open. Closing the store that was opened closes every store that `as_owner()` returned. On PostgreSQL, the
        watches of all owners share one connection, and the first call for a named owner raises `StoreUnavailable` if
        the role bypasses row-level security.

        ```python
        store.session("notes").append({"role": "user", "content": "not for Ann"})
        ann = store.as_owner("ann")
        ann.get_session("notes") is None                                          # -> True
        ann.close()
        store.session("notes").message_count                                      # -> 1
        ```
        """
        check_owner(name)
        root = self if self._root is None else self._root
        view = AsyncStore(self._engine.as_owner(name), name, root)
        root._views.add(view)
        return view

    def _scope(self) -> Scope:
        """Return the owner, the process and the current time, the first argument of every operation."""
        engine = self._engine
        return Scope(self._owner, engine.holder(), time.time_ns() // 1_000_000, engine.is_gone, engine.search_dialect)

    def _run(self, op: Operation[T]) -> Coroutine[Any, Any, T]:
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
            await self._engine.run(storage.search.clear(self._scope()))
            return await self._engine.run(op)

    async def _follow(self, plan: Plan[T]) -> T:
        """Run a plan: a sequence of operations, each in its own transaction. Return the result of the plan."""
        try:
            op = next(plan)
            while True:
                try:
                    result = await self._run(op)
                except RecollectError as error:
                    op = plan.throw(error)  # a plan may handle the error and continue
                else:
                    op = plan.send(result)
        except StopIteration as stop:
            return stop.value

    async def session(
        self, id: str | None = None, *, create: bool = True, exist_ok: bool = True, **fields: Unpack[NewSessionFields]
    ) -> AsyncSession:
        r"""Open a session and return a `Session`.

        Opening an existing session only reads: it waits for no lock, and the session stays where it is in lists until
        the next write. If an open turn of the session must be marked as `interrupted`, because its process has ended,
        that is written.

        - `id`: the session id. `None` creates a session with a new id (a UUID that sorts by time).
        - `create`: whether to create a missing session. With `False`, a missing session raises `SessionNotFound`, and
          one in the trash `SessionInTrash`.
        - `exist_ok`: whether the session may exist. With `False`, an `id` in use raises `SessionExists`.
        - `fields`: values for a new session, as in [session.update()], without `add_labels` and `remove_labels`. An
          existing session does not change.

        An id is a text of 1 to 1,024 bytes in UTF-8. Every character is allowed, also NUL, line breaks and other
        control characters. Only lone surrogates are refused, because UTF-8 has no form of them. An id that is empty,
        too long or contains a lone surrogate raises `InvalidValue`; `get_session()` and other lookups find nothing
        under such an id. Ids are compared exactly: `é` as one character and as `e` with an accent are two ids, and
        spaces are not removed. A session of an earlier version, which accepted 512 characters of any size, keeps a
        longer id.

        `session.id`, JSON exports and all JSON output contain the exact id. Where a person reads it (the command line,
        the chat, Markdown and HTML exports, the web app, the server log, messages of errors), every character that is
        not printable is escaped, such as `\n`, `\x1b` or `\u202e`. A backslash stays as it is, so the escaped form is
        only for reading.

        An id with a colon is a stable key, `channel:rest`: it sets the session's `channel` and `channel_id`, unless the
        channel is not printable or has more than 512 characters, or the rest contains NUL. [channels.md] lists the keys
        of each channel.

        For a session of a sub-agent, set its parent when you create it: `parent="cli:main"`. Its `relation` is then
        `"delegate"`, unless you pass `relation="fork"`, and lists omit it by default. A missing parent raises
        `SessionNotFound`. If a sub-agent may begin before its parent exists, create its session without a parent and
        set it later with [session.update()]. The id does not set the parent, not even an id that contains `:delegate:`.

        ```python
        session = store.session("discord:dm:42", title="Plans", model="some-model")
        (session.channel, session.channel_id, session.title)    # -> ('discord', 'dm:42', 'Plans')

        helper = store.session("discord:dm:42:delegate:search", parent="discord:dm:42")
        (helper.parent, helper.relation)                        # -> ('discord:dm:42', 'delegate')
        ```
        """
        scope = self._scope()
        may_create, may_exist = validation.check_flag("create", create), validation.check_flag("exist_ok", exist_ok)
        if not may_create and (id is None or not may_exist):
            raise InvalidValue("create must be True without an id, and with exist_ok=False.")
        if id is None or not may_exist:
            new_id = session_ids.new_id(scope.now) if id is None else id
            return AsyncSession(self, await self._run(storage.sessions.create(scope, new_id, fields)))
        plan = storage.sessions.open_session(scope, id, fields if may_create else None)
        return AsyncSession(self, await self._follow(plan))

    async def get_session(self, id: str) -> AsyncSession | None:
        """Return the `Session` with this `id`, or `None` if it does not exist or is in the trash.

        Unlike [store.session()], it never writes: it marks no turn.
        """
        info = await self._run(storage.sessions.get(self._scope(), id))
        return None if info is None else AsyncSession(self, info)

    async def find_session(self, name: str) -> AsyncSession:
        """Find a session by `name` and return a `Session`.

        It tries in this order: the id, the external id, the title, a prefix of the id, the title without case and
        accents. Raise `SessionNotFound` for no match and `AmbiguousName` for several.
        """
        return AsyncSession(self, await self._run(storage.sessions.resolve(self._scope(), name)))

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
        open_turn: bool | None = None,
    ) -> Page[AsyncSession]:
        """List sessions and return a [Page] of `Session`.

        It does not read message bodies.

        - `limit`: maximum number of sessions, 1 to 1,000,000.
        - `after`: the `next` of the previous page, in the same order. Paging uses keys: while the list changes, a
          session that did not move is neither skipped nor listed twice. A session that becomes active in between moves
          before the remaining pages. With the order `"title"`, a renamed session moves to the position of its new
          title.
        - `order`: `"activity"` or `"created"`, newest first; or `"title"`, A to Z, untitled sessions last. Titles sort
          without case and accents: Éclair is between ebb and edge, and ß sorts as ss. Ties are broken in a stable
          order, which may differ between SQLite and PostgreSQL.
        - `oldest_first`: whether to reverse the order: least recent activity first, oldest first, Z to A after the
          untitled sessions, or for the trash the first deleted first. With `pinned_first`, pinned sessions still come
          first. A cursor belongs to its direction.
        - `deleted`: list the trash instead, most recently deleted first.
        - `archived`, `pinned`: `True`, `False`, or `None` for either. Archived sessions are omitted by default.
        - `pinned_first`: whether pinned sessions come first, across all pages.
        - `channel`, `model`, `status`: only sessions with this value.
        - `label`: only sessions with this label, or with all of several.
        - `external_id`: only sessions with this external id.
        - `id_prefix`: only sessions whose id begins with this text, such as `"app:"`.
        - `metadata`: only sessions whose metadata has all of these fields, each with this value. Only the top level of
          the metadata is compared, and only with a text, a number, `True`, `False` or `None`; `None` matches a field
          that is `None`, not a missing one. A number has its type: 1 does not match 1.0. The name of a field cannot
          contain NUL or a lone surrogate. No index covers metadata, so combine this filter with another one in a large
          store.
        - `role`, `tool`: only sessions with a message of this role, or with a call of this tool, on any branch. A
          message that a fork shares counts for the session that wrote it. If few sessions match, this takes longer than
          other lists.
        - `since`, `until`: only sessions whose time is at or after `since`, and before `until`. The time is the
          deletion time for the trash, the creation time for the order `"created"`, and otherwise the activity time.
        - `parent`: the id of a session. Lists only its forks; with `delegates=True` only the sessions of its
          sub-agents; with `delegates=None` both. If the session does not exist, the page is empty.
        - `relation`: only sessions with this relation to a parent, `"fork"` or `"delegate"`. `delegates` is then
          ignored.
        - `delegates`: whether to include the sessions of sub-agents. By default only their parent is listed, and its
          `delegate_count` is their number. If you pass `parent`, see that argument.
        - `open_turn`: only sessions in which a turn is open, of any process; `False` only the others, `None` either.

        ```python
        for number in range(3):
            store.session(f"cli:{number}")

        page = store.list_sessions(2)
        [item.id for item in page]                                     # -> ['cli:2', 'cli:1']
        [item.id for item in store.list_sessions(2, after=page.next)]  # -> ['cli:0', 'discord:dm:42']

        store.session("shop:1", labels=["billing", "urgent"], metadata={"customer": 7})
        store.session("shop:2", labels=["billing"], metadata={"customer": 8})
        [item.id for item in store.list_sessions(label="billing", oldest_first=True)]  # -> ['shop:1', 'shop:2']
        [item.id for item in store.list_sessions(label=["billing", "urgent"])]                  # -> ['shop:1']
        [item.id for item in store.list_sessions(id_prefix="shop:", metadata={"customer": 8})]  # -> ['shop:2']
        ```
        """
        filters = {
            "archived": archived, "pinned": pinned, "channel": channel, "model": model, "status": status, "role": role,
            "tool": tool, "parent": parent, "relation": relation, "delegates": delegates, "label": label,
            "external_id": external_id, "id_prefix": id_prefix, "metadata": metadata, "open_turn": open_turn,
        }  # fmt: skip
        op = storage.listing.read_page(
            self._scope(), limit=limit, after=after, order=order, deleted=deleted, oldest_first=oldest_first,
            pinned_first=pinned_first, since=since, until=until, filters=filters,
        )  # fmt: skip
        page = await self._run(op)
        return Page([AsyncSession(self, info) for info in page.sessions], page.next)

    async def message(self, *, key: str) -> tuple[AsyncSession, Message]:
        """Return the session and the [Message] that has this `key`, as a tuple.

        See [Message keys]. If forks share the message, its session is the one that has written it, or else the oldest
        one that shares it. A message on an active path is preferred to one on another branch, and a deleted message is
        returned only if there is no other. Sessions in the trash are not searched. Raise `MessageNotFound` if there is
        none, and `AmbiguousName` if sessions have different messages with the key: call `session.message(key=...)` on
        one of them.
        """
        info, message = await self._run(storage.message_keys.find(self._scope(), key))
        return AsyncSession(self, info), message

    async def shown_counts(self, sessions: Sequence[AsyncSession | SessionInfo | str]) -> list[int]:
        """Return a list with the number of messages to show to people for each session, in the order of `sessions`.

        It counts the messages on the active path, including the path that a fork shares, without deleted messages and
        without tool steps. `message_count` also counts tool steps.

        A *tool step* is a message that belongs only to tool use: an assistant message with a tool call, with or without
        text, or a message with the role `tool`, which holds only tool results. An assistant message that contains its
        calls and all of their results, such as a provider's own search, is an answer and not a tool step. A message
        with a tool result and text of the user is not a tool step.

        - `sessions`: handles, values (`session.info`) or ids of sessions that are not in the trash. A missing session
          counts 0.

        The counts are computed, not stored: the store reads the message rows of the active paths, without the bodies. A
        page of 50 sessions with 1,000 messages takes less than 1 ms on SQLite. Request one page at a time.

        ```python
        tools = store.session("cli:tools")
        call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t0", "name": "grep", "input": {}}]}
        tools.append([{"role": "user", "content": "Is it there?"}, call])
        tools.tools.record_result("t0", "3 lines")
        tools.append({"role": "assistant", "content": "Yes, three times."})
        (tools.refresh().message_count, store.shown_counts([tools]))    # -> (4, [2])
        store.erase_session("cli:tools")                                # -> ['cli:tools']
        ```
        """
        return await self._follow(storage.messages.count_shown_of_sessions(self._scope(), sessions))

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
        """Search titles, message texts, tool names, tool arguments and tool results.

        Return a [Page] of [Hit], best first; pass its `next` as `after` for the next page. A search sees everything
        committed before the call. [search.md] describes the query language and the order of hits.

        - `query`: the text to search for. Every text is a valid query.
        - `limit`: maximum number of hits, 1 to 1,000.
        - `session`: search one session only, including the path that it shares.
        - `role`, `tool`, `channel`, `model`, `status`: one text, or several of which one must match. `model` is the
          model of the message, or of its session if the message has none.
        - `label`: only in sessions with this label, or with all of several.
        - `external_id`, `id_prefix`, `metadata`: the same filters as in `store.list_sessions()`.
        - `since`, `until`: only messages at or after `since`, and before `until`. Text may have the forms that the
          filter `after:` of a query accepts, such as `"2025-03"`, `"yesterday"` or `"7d"`.
        - `archived`, `pinned`: `True`, `False`, or `None` for either.
        - `after`: the `next` of the previous page.
        - `deleted`: search the trash instead.
        - `delegates`: also search the sessions of sub-agents.

        ```python
        walks = store.session("cli:walks", title="Bakery")
        walks.append({"role": "user", "content": "Where is the Café in the Hauptstraße?"})

        hit = store.search("cafe strasse")[0]
        (hit.session, hit.message)    # -> ('cli:walks', '1.1')
        hit.snippet                   # -> 'Where is the <mark>Café</mark> in the <mark>Hauptstraße</mark>?'
        ```
        """
        plan = storage.search.search(
            self._scope(), query, limit=limit, after=after, session=session, role=role, tool=tool, channel=channel,
            model=model, status=status, label=label, external_id=external_id, id_prefix=id_prefix, metadata=metadata,
            since=since, until=until, archived=archived, pinned=pinned, deleted=deleted, delegates=delegates,
        )  # fmt: skip
        page = await self._follow(plan)
        return Page(page.hits, page.next, page.warning)

    async def delete_session(self, id: str, *, expected: int | None = None) -> None:
        """Move the session with this `id` to the trash.

        Its messages stay stored. Opening it or writing to it then raises `SessionInTrash`. A new session may use the
        id. Forks are not affected.

        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].

        Raise `SessionNotFound` if it does not exist.
        """
        await self._run(storage.sessions.trash(self._scope(), id, expected))

    async def restore_session(self, id: str, *, expected: int | None = None) -> AsyncSession:
        """Restore the session with this `id` from the trash, complete, and return a `Session`.

        If several sessions in the trash have the id, it restores the one deleted last. Raise `SessionExists` while
        another session uses the id. The activity time, and so the position in lists, stays the same.

        - `expected`: the revision that the session must have in the trash, as `store.list_sessions(deleted=True)`
          returns it.
        """
        return AsyncSession(self, await self._run(storage.sessions.restore(self._scope(), id, expected)))

    async def erase_session(
        self, id: str, *, forks: str = "refuse", deleted: bool | None = None, expected: int | None = None
    ) -> list[str]:
        """Erase the session with this `id` permanently, in the trash or not, and return a list of the erased ids.

        The content is overwritten in the file and in the WAL, as soon as no reader holds the WAL; see [Deleting and
        erasing].

        - `forks`: what to do if forks share its messages. `"refuse"` raises `SessionHasForks`, which names the forks.
          `"keep"` erases the session but not the messages that forks share. `"erase"` erases the forks too.
        - `deleted`: an id can belong to a session in the trash and to another one outside it. `True` erases the one in
          the trash, `False` the other. `None` erases the one outside the trash if it exists, otherwise the one in the
          trash.
        - `expected`: the revision that this session must have, otherwise `StaleRevision` is raised; see [Revisions].

        ```python
        store.session("cli:gone")
        store.delete_session("cli:gone")
        store.get_session("cli:gone") is None    # -> True
        store.restore_session("cli:gone").id     # -> 'cli:gone'
        store.erase_session("cli:gone")          # -> ['cli:gone']
        ```
        """
        op = storage.retention.erase_session(self._scope(), id, forks=forks, deleted=deleted, expected=expected)
        return (await self._run(op)).sessions

    def watch(self, session: str | None = None, *, timeout: float | None = None) -> AsyncWatch:
        """Return a [Watch], an iterator over committed changes.

        It yields a [Change], in the order of the commits, for each session that changed. The writer may be this store,
        another store, another process or another machine.

        - `session`: the id of one session to watch; `None` watches all.
        - `timeout`: seconds without a change after which the iteration ends; `None` means never.

        A change names the session and its current [revision][Revisions]. Read the new content yourself
        (`session.refresh()`, `session.messages(...)`). Several changes in a row may arrive as one, with the latest
        revision. A watch does not report changes from before it began. It reports a session in the trash as changed,
        and an erased session with the revision `None`. If another file replaces the watched one, the watch reports all
        sessions of the new file as changed, and sessions that the new file lacks as erased. After you close the store,
        a watch raises `StoreClosed`.

        ```python
        with store.watch("cli:watched", timeout=5) as changes:
            store.session("cli:watched").append({"role": "user", "content": "Is anyone there?"})
            for change in changes:
                print(change.session, change.revision)
                break
        ```

        Enter it with `async with`, or await it: changes from then on are reported.
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
        """Return the totals of sessions, messages, tokens and tool calls, as a [Stats].

        A message counts once, for the session that wrote it, on any branch. Deleted messages and the trash do not
        count; the sessions of sub-agents do.

        - `since`, `until`: only messages at or after `since`, and before `until`. Sessions without such messages do not
          count.
        - `channel`, `model`: only sessions with this value.
        - `utc_offset`: minutes by which the days are ahead of UTC: 60 in Berlin in winter, -480 in California.

        It reads all messages in pages, which takes about 6 seconds for 1,000,000 messages.
        """
        plan = storage.statistics.stats(
            self._scope(), since=since, until=until, channel=channel, model=model, utc_offset=utc_offset
        )
        return await self._follow(plan)

    def close(self) -> Coroutine[Any, Any, None]:
        """Wait for the current write, end the watches, and close the store.

        Every acknowledged write is already on disk. Closing twice is allowed. Afterwards every method raises
        `StoreClosed`, also of the stores that [store.as_owner()] returned. Closing one of those closes only it. As a
        context manager, a store closes at the end of the block.

        Await it, in any event loop. Without a running event loop, the call itself closes the store.
        """
        return close_anywhere(self._close())

    async def _close(self) -> None:
        if self._root is not None:
            self._engine = cast("AsyncEngine", ClosedEngine(self.path))
        for store in (self, *self._views):
            for watch in list(store._watches):
                await watch._end_with_store()
        if self._root is None:
            await self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path!r}>"
