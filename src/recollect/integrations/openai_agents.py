"""Sessions of the OpenAI Agents SDK in a Recollect store: RecollectSession, and import_sqlite() for the SDK's files.

    from agents import Agent, Runner
    from recollect.integrations.openai_agents import RecollectSession

    session = RecollectSession.from_url("conversations.db", "user-42")
    await Runner.run(Agent(name="Assistant"), "Hello", session=session)

Each item is one message in the format "openai-responses", so it is typed, and comes back equal. Its id is the key of
the message, so an append that is repeated after an unknown outcome is stored once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import urllib.parse
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, Unpack

import agents
from agents.memory import OpenAIResponsesCompactionArgs, SessionSettings

import recollect
from recollect import formats
from recollect.errors import CompactionConflict
from recollect.types import Appended, CompactionPolicy, NewSessionFields, Summarize, SummaryMessage

_FORMAT = "openai-responses"
_OPAQUE = "recollect.opaque"  # the only key of a stored item that wraps one without a type or with an unknown role
_PLACEHOLDER_ID = "__fake_id__"  # the SDK's id of items from providers that assign none
_MAX_KEY_LENGTH = 1_000  # of an item id as a message key; a store accepts 1,024 bytes, and neighbors add a distance
_MAX_ITEMS = 1_000_000  # the largest number that history(last=...) accepts
_IMPORT_KIND = "openai-agents.import"  # of the record that has the last imported row of each branch
_IMPORT_BATCH = 500  # rows per transaction; more would keep other writers waiting longer
_MAIN_BRANCH = "main"  # of an AdvancedSQLiteSession
_USAGE_DISTANCE = 50  # messages. A run ends with an answer, so one of the last messages is the model's
_TOKEN_FIELDS = frozenset({"input_tokens", "output_tokens"})
_BUDGET = 100_000  # tokens. Compaction begins at 80% of it, which fits the context windows of current models

[_WRAPPED] = formats.parse({"type": _OPAQUE}, _FORMAT)


class RecollectSession:
    """A session of the OpenAI Agents SDK that stores its items in Recollect.

    Pass it to `Runner.run(..., session=...)`. It implements the protocols `Session` and
    `OpenAIResponsesCompactionAwareSession` of `agents.memory`. The Recollect session with the same id has the items as
    messages; it is created with the first item.

    - `store`: an open store, which any number of sessions may share. Or the result of `recollect.open_async()` before
      it is awaited: the store then opens with the first call and closes with the session.
    - `session_id`: the id of the session, any text of 1 to 1,024 bytes.
    - `session_settings`: as in the SDK's sessions; `limit` is the number of items that `get_items()` returns.
    - `summarize`: a function for compaction, as in [session.compact()]. `None` never compacts.
    - `budget`: with `summarize`, the number of tokens of which a conversation may use 80% before it is compacted.
    - `fields`: values for a new session, as in [store.session()], such as `title`, `labels` and `model`.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        store: recollect.AsyncStore | Awaitable[recollect.AsyncStore],
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        summarize: Summarize | None = None,
        budget: int = _BUDGET,
        **fields: Unpack[NewSessionFields],
    ) -> None:
        self.session_id = session_id
        if isinstance(session_settings, dict):
            session_settings = SessionSettings(**session_settings)
        self.session_settings = SessionSettings() if session_settings is None else session_settings
        self._store = _StoreSource(store)
        self._summarize, self._budget, self._fields = summarize, budget, fields
        self._session: recollect.AsyncSession | None = None
        self._usage = _RecordedUsage()
        # Whether the next batch may be stored already: of a new object, and after an error or a cancellation. The same
        # items that come again later are new ones, from a provider that does not assign unique ids.
        self._may_repeat = True
        self._last_keys: list[str | None] = []
        self._keys: set[str | None] = set()  # of this object's items

    @classmethod
    def from_url(
        cls,
        url: str | None,
        session_id: str,
        *,
        owner: str = "",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        summarize: Summarize | None = None,
        budget: int = _BUDGET,
        **fields: Unpack[NewSessionFields],
    ) -> Self:
        """Return a session with a store of its own, which opens with the first call and closes with the session.

        In a program with many sessions, open one store and pass it to each of them instead.

        - `url`: the path of a file or the URL of a database, as in `recollect.open_async()`; `None`: the default file.
        - `session_id`: the id of the session.
        - `owner`: as in `recollect.open_async()`.
        - `session_settings`, `summarize`, `budget`, `fields`: as in the constructor.
        """
        return cls(
            recollect.open_async(url, owner=owner), session_id,
            session_settings=session_settings, summarize=summarize, budget=budget, **fields,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store if the session has opened it. An open store that was passed to the constructor stays open."""
        await self._store.close()

    def close(self) -> None:
        """Do the same where no event loop runs, for example after `asyncio.run()`. In a coroutine, await `aclose()`."""
        self._store.close_now()

    async def get_items(
        self, limit: int | None = None, *, wrapper: agents.RunContextWrapper[Any] | None = None
    ) -> list[agents.TResponseInputItem]:
        """Return the last items, oldest first.

        Messages that another program wrote in another format are translated into items. The summary of a compaction
        replaces the items that it covers.

        - `limit`: the maximum number of items; `None` takes it from `session_settings`, and without it returns all. As
          in the SDK's sessions, a negative number returns all.
        - `wrapper`: the context of the run, which the SDK passes.
        """
        self._usage.begin(wrapper)
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        session = None if limit == 0 else await self._find()
        if session is None:
            return []
        last = None if limit is None or not 0 <= limit <= _MAX_ITEMS else limit
        try:
            items = await session.history(_FORMAT, last=last, repair=False)
        except recollect.SessionNotFound:  # it was deleted since
            return []
        return [item[_OPAQUE] if len(item) == 1 and _OPAQUE in item else item for item in items]

    async def add_items(
        self, items: list[agents.TResponseInputItem], *, wrapper: agents.RunContextWrapper[Any] | None = None
    ) -> None:
        """Store items at the end, all or none. They are on disk when the method returns.

        - `items`: any items of the Responses API, or other JSON objects, such as the envelopes of `EncryptedSession`.
        - `wrapper`: the context of the run, which the SDK passes. The tokens that the run has used since the last call
          become the usage of the last message of the model among the items.
        """
        if not items:
            return
        messages, counts = self._usage.add_to(items, wrapper)
        keys = _keys_of(items)
        may_repeat = self._may_repeat or keys == self._last_keys
        if not (may_repeat or self._keys.isdisjoint(keys)):
            keys = [None] * len(items)  # another item has the same id
        self._may_repeat = True  # until the outcome is known
        self._may_repeat = await self._store_batch(messages, keys, may_repeat=may_repeat)
        self._last_keys = keys
        self._keys.update(key for key in keys if key is not None)
        self._usage.commit(wrapper, counts)

    async def _store_batch(self, messages: list[Any], keys: list[str | None], *, may_repeat: bool) -> bool:
        """Append a batch. Return whether it was stored before."""
        try:
            appended = await self._append(messages, keys)
        except recollect.KeyReused:  # another item has the same id
            appended = None
        if appended is None or (appended.repeated and not may_repeat):
            await self._append(messages, [None] * len(keys))
            return False
        return appended.repeated

    async def _append(self, messages: list[Any], keys: list[str | None]) -> Appended:
        """Append messages; create the session if it does not exist."""
        session = await self._open()
        try:
            return await session.append(messages, _FORMAT, keys=keys)
        except recollect.SessionInTrash:
            raise
        except recollect.SessionNotFound:  # it was erased since; the SDK's sessions begin again, too
            self._session = None
            return await (await self._open()).append(messages, _FORMAT, keys=keys)
        except recollect.InvalidValue:  # an item that the format does not know
            return await session.append([_read_item(message) for message in messages], keys=keys)

    async def pop_item(
        self, *, wrapper: agents.RunContextWrapper[Any] | None = None
    ) -> agents.TResponseInputItem | None:
        """Remove the last item and return it, or return `None` if there is none.

        Of several callers at the same time, in any process, each gets another item. The message stays stored as a
        deleted one; [session.restore_messages()] restores it.

        - `wrapper`: not used; a session must accept it in every method so that the SDK passes it to `add_items()`.
        """
        del wrapper
        session = await self._find()
        while session is not None:
            with contextlib.suppress(recollect.StaleRevision):  # another writer was first: read again
                return await _pop(session)
        return None

    async def clear_session(self, *, wrapper: agents.RunContextWrapper[Any] | None = None) -> None:
        """Remove all items. The session stays, and so do its messages, on an earlier branch.

        `await store.erase_session(session_id)` erases them.

        - `wrapper`: not used; see `pop_item()`.
        """
        del wrapper
        session = await self._find()
        if session is not None and await session.messages(last=1):
            await session.append([], after=0)

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Compact the conversation with `summarize` if it uses more than 80% of `budget`. The SDK calls it.

        `get_items()` then returns a summary in place of the oldest turns. Their messages stay stored, and
        `session.compactions.undo()` undoes it. To compact with OpenAI's endpoint instead, wrap the session in
        `OpenAIResponsesCompactionSession`.

        - `args`: as in the SDK; with `force`, the conversation is compacted regardless of its size.
        """
        session = None if self._summarize is None else await self._find()
        if session is None or self._summarize is None:
            return
        is_forced = args is not None and args.get("force", False)
        if not is_forced and not CompactionPolicy().due(await session.active_tokens(), self._budget):
            return
        summarize, is_called = self._summarize, False

        def summarize_messages(messages: list[recollect.Message]) -> Any:
            nonlocal is_called
            is_called = True
            return summarize(messages)

        try:
            await session.compact(summarize=summarize_messages)
        except CompactionConflict:  # another process has compacted it meanwhile
            return
        except recollect.InvalidValue:
            if is_called:
                raise  # the summary is not a text; otherwise there was nothing to compact

    async def store_run_usage(self, result: agents.RunResult | agents.RunResultStreaming) -> None:
        """Record the tokens of a run that `add_items()` could not record, as the SDK's `AdvancedSQLiteSession` does.

        Call it after a run with a session that wraps this one and does not pass the context on, such as
        `OpenAIResponsesCompactionSession`. After other runs it changes nothing.

        - `result`: the result of the run.
        """
        wrapper = result.context_wrapper
        counts = self._usage.outstanding(wrapper)
        session = await self._find()
        if session is None or not counts:
            return
        for message in reversed(await session.messages(last=_USAGE_DISTANCE)):
            if message.role == "assistant":
                details, input_tokens, output_tokens = _split_usage(counts)
                await session.mark_message(
                    message.id, details or {}, input_tokens=input_tokens, output_tokens=output_tokens
                )
                self._usage.commit(wrapper, counts)
                return

    async def _atomic_replace_items(self, items: list[agents.TResponseInputItem]) -> bool:
        """Replace all items in one transaction. OpenAIResponsesCompactionSession calls it if a session has it."""
        await (await self._open()).append([_read_item(item) for item in items], after=0)
        return True

    async def _get_compaction_snapshot(self, limit: int, *, prune_prefix: object = None) -> _SuffixSnapshot | None:
        """Return the last items, and a function that replaces some of them if the session has not changed since.

        OpenAIResponsesCompactionSession calls it if a session has it, and EncryptedSession with `prune_prefix`, which
        selects expired envelopes to delete: nothing is deleted here.
        """
        del prune_prefix
        session = await self._find()
        if session is None:
            return None
        await session.refresh()
        revision, messages = session.revision, await session.messages(last=limit + 1, active=True)
        rendered = [formats.render(message, _FORMAT) for message in messages]
        if any(isinstance(message, SummaryMessage) for message in messages) or any(len(i) != 1 for i in rendered):
            return None
        complete = len(messages) <= limit
        before = None if complete else messages[0].id
        messages, items = messages[-limit:], [_unwrap(item) for [item] in rendered[-limit:]]

        async def replace_suffix(start: int, output: list[agents.TResponseInputItem]) -> bool:
            after = messages[start - 1].id if start else before or 0
            try:
                await session.append([_read_item(item) for item in output], after=after, expected=revision)
            except recollect.StaleRevision:
                return False
            return True

        return _SuffixSnapshot(items, complete, replace_suffix)

    async def _find(self) -> recollect.AsyncSession | None:
        """Return the Recollect session, or None if it does not exist yet."""
        if self._session is None:
            self._session = await (await self._store.open()).get_session(self.session_id)
        return self._session

    async def _open(self) -> recollect.AsyncSession:
        """Return the Recollect session; create it if it does not exist."""
        if self._session is None:
            self._session = await (await self._store.open()).session(self.session_id, **self._fields)
        return self._session


class _StoreSource:
    """A store that is open, or one that opens when it is first used and is closed with its session."""

    def __init__(self, store: recollect.AsyncStore | Awaitable[recollect.AsyncStore]) -> None:
        self._store = store if isinstance(store, recollect.AsyncStore) else None
        self._opener = None if isinstance(store, recollect.AsyncStore) else store
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> recollect.AsyncStore:
        """Return the store; open it if it is not open yet."""
        if self._store is None and self._opener is not None:
            async with self._lock:  # several first calls may come at the same time
                if self._is_closed:
                    raise recollect.StoreClosed
                if self._store is None:  # pyright: ignore[reportUnnecessaryComparison]  another task may set it meanwhile
                    self._store = await self._opener
        assert self._store is not None
        return self._store

    async def close(self) -> None:
        """Close the store if this object has opened it."""
        self._is_closed = True
        if self._opener is not None and self._store is not None:
            await self._store.close()

    def close_now(self) -> None:
        """Do the same on a thread without an event loop."""
        self._is_closed = True
        if self._opener is not None and self._store is not None:
            self._store.close()  # pyright: ignore[reportUnusedCoroutine]  without a loop, it closes before it returns


class _SuffixSnapshot(NamedTuple):
    """The last items of a session, as OpenAIResponsesCompactionSession expects them."""

    items: list[agents.TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[agents.TResponseInputItem]], Awaitable[bool]]


class _RecordedUsage:
    """The tokens of each run that are recorded in messages. A run is known by its context."""

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[agents.RunContextWrapper[Any], dict[str, int]] = (
            weakref.WeakKeyDictionary()
        )

    def begin(self, wrapper: agents.RunContextWrapper[Any] | None) -> None:
        """Take what a run has used when it is first seen as recorded: by the run whose state it continues."""
        if wrapper is not None and wrapper not in self._counts:
            self._counts[wrapper] = _count_tokens(wrapper)

    def outstanding(self, wrapper: agents.RunContextWrapper[Any]) -> dict[str, int]:
        """Return the tokens of a run that are not recorded."""
        earlier = self._counts.get(wrapper, {})
        counts = {name: number - earlier.get(name, 0) for name, number in _count_tokens(wrapper).items()}
        return {name: number for name, number in counts.items() if number > 0}

    def add_to(
        self, items: Sequence[Any], wrapper: agents.RunContextWrapper[Any] | None
    ) -> tuple[list[Any], dict[str, int]]:
        """Return items as messages, and the outstanding tokens of a run, which the last one of the model has."""
        messages = [_to_message(item) for item in items]
        self.begin(wrapper)
        counts = {} if wrapper is None else self.outstanding(wrapper)
        for index in reversed(range(len(items) if counts else 0)):
            draft = _read_item(items[index])
            if draft.role == "assistant":
                messages[index] = _with_usage(draft, counts)
                return messages, counts
        return messages, {}

    def commit(self, wrapper: agents.RunContextWrapper[Any] | None, counts: Mapping[str, int]) -> None:
        """Take tokens of a run as recorded."""
        if wrapper is not None and counts:
            earlier = self._counts.setdefault(wrapper, {})
            for name, number in counts.items():
                earlier[name] = earlier.get(name, 0) + number


def _count_tokens(wrapper: agents.RunContextWrapper[Any]) -> dict[str, int]:
    usage = wrapper.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "requests": usage.requests,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
    }


def _with_usage(draft: recollect.Draft, counts: Mapping[str, int]) -> recollect.Draft:
    """Return a draft with its usage."""
    metadata, input_tokens, output_tokens = _split_usage(counts)
    return draft.replace(input_tokens=input_tokens, output_tokens=output_tokens, metadata=metadata)


def _split_usage(counts: Mapping[str, int]) -> tuple[dict[str, Any] | None, int, int]:
    """Return the metadata of a message with a usage, and its input and output tokens."""
    details = {name: number for name, number in counts.items() if number and name not in _TOKEN_FIELDS}
    return {"usage": details} if details else None, counts.get("input_tokens", 0), counts.get("output_tokens", 0)


def _to_message(item: Any) -> Any:
    """Return an item as a message: wrapped if the format would read something else."""
    return item if type(item) is not dict or _has_item_form(item) else _read_item(item)


def _has_item_form(item: Mapping[str, Any]) -> bool:
    """Return whether an object is read as an item: it has a type or a role, and is not a whole response."""
    return "object" not in item and ("type" in item or ("role" in item and "output" not in item))


def _read_item(item: Any) -> recollect.Draft:
    """Return an item as one draft. An item that the format does not know is wrapped, so that it comes back equal."""
    if isinstance(item, recollect.Draft):
        return item
    if isinstance(item, Mapping) and _has_item_form(item):
        with contextlib.suppress(recollect.InvalidValue, ValueError):
            [draft] = formats.parse(item, _FORMAT)
            return draft
    return _WRAPPED.replace(parts=(recollect.DataPart(native={_OPAQUE: item}),))


def _unwrap(item: dict[str, Any]) -> Any:
    """Return an item as the caller added it."""
    return item[_OPAQUE] if len(item) == 1 and _OPAQUE in item else item


def _keys_of(items: Iterable[Any]) -> list[str | None]:
    """Return a message key for each item: its id, or its distance from the first item with an id; None without ids."""
    ids = [_id_of(item) for item in items]
    anchor = next((index for index, item_id in enumerate(ids) if item_id is not None), None)
    if anchor is not None:
        keys: list[str | None] = [item_id or f"{ids[anchor]}{n - anchor:+d}" for n, item_id in enumerate(ids)]
        if len(set(keys)) == len(keys):
            return keys
    return [None] * len(ids)


def _id_of(item: Any) -> str | None:
    """Return the id that the provider assigned to an item."""
    item_id = item.get("id") if type(item) is dict else getattr(item, "id", None)
    if not isinstance(item_id, str) or not item_id or item_id == _PLACEHOLDER_ID:
        return None
    return item_id if item_id.isascii() and len(item_id) <= _MAX_KEY_LENGTH else None


async def _pop(session: recollect.AsyncSession) -> Any:
    """Remove and return the last item. Raise StaleRevision if another writer changes the session meanwhile."""
    await session.refresh()
    before: str | None = None
    hidden: list[recollect.Message] = []  # messages after the item that have no form in the format
    while page := await session.messages(before=before, limit=1) if before else await session.messages(last=1):
        [message] = page
        items = formats.render(message, _FORMAT)
        if len(items) == 1:
            await session.delete_messages([message.id], expected=session.revision)
            return _unwrap(items[0])
        if items:  # a message of another format: the items before the last one stay
            earlier = await session.messages(before=message.id, limit=1)
            remaining = [*map(_read_item, items[:-1]), *hidden]
            await session.append(remaining, after=earlier[-1].id if earlier else 0, expected=session.revision)
            return items[-1]
        hidden.insert(0, message)
        before = message.id
    return None


class SqliteImport(NamedTuple):
    """The result of import_sqlite().

    - `new_items`: the number of items that were imported, by session id; 0 if nothing was new.
    - `conflicts`: the ids of sessions that the store had already, and not from an import. They were left out.
    - `unreadable`: the row ids of items that are not JSON. The SDK's sessions skip them, too.
    """

    new_items: dict[str, int]
    conflicts: list[str]
    unreadable: list[int]


async def import_sqlite(
    path: str | os.PathLike[str],
    store: recollect.AsyncStore,
    *,
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
) -> SqliteImport:
    """Import the sessions of a file of the SDK's `SQLiteSession`, `AsyncSQLiteSession` or `AdvancedSQLiteSession`.

    Each session keeps its id, its items and their times. Branches of an `AdvancedSQLiteSession` become branches, and
    the usage of its turns that of their answers. The file is only read. Repeat the import at any time: only items that
    were added to the file since are imported.

    - `path`: the file.
    - `store`: the store.
    - `sessions_table`, `messages_table`: the names of the tables, if the sessions had others.
    """
    file = _SqliteFile(os.fspath(path), sessions_table, messages_table)
    result = SqliteImport({}, [], [])
    for session_id in await asyncio.to_thread(file.session_ids):
        branches = await asyncio.to_thread(file.read_branches, session_id)
        session = await store.session(session_id)
        record = await session.records.get(_IMPORT_KIND, messages_table)
        if record is None and session.message_count:
            result.conflicts.append(session_id)
            continue
        last_rows: dict[str, int] = {} if record is None else record.value
        await session.records.put(_IMPORT_KIND, messages_table, last_rows)  # marks the session as imported
        result.new_items[session_id] = 0
        for branch in branches:
            new = [row for row in branch.rows if row.id > last_rows.get(branch.name, 0)]
            if new:
                await _import_rows(session, messages_table, branch, new)
                last_rows[branch.name] = new[-1].id
                await session.records.put(_IMPORT_KIND, messages_table, last_rows)
                result.new_items[session_id] += len(new)
    result.unreadable.extend(sorted(file.unreadable))
    return result


async def _import_rows(
    session: recollect.AsyncSession, table: str, branch: _ImportedBranch, rows: Sequence[_ImportedRow]
) -> None:
    """Append rows to their branch; each has a key, so that an interrupted import can be repeated."""
    active, after = session.branch, None
    if branch.name != _MAIN_BRANCH:
        try:
            await session.branches.switch((await session.message(key=f"{table}:{branch.rows[0].id}")).branch)
        except recollect.MessageNotFound:
            shared = branch.last_shared
            after = 0 if shared is None else (await session.message(key=f"{table}:{shared}")).id
    for start in range(0, len(rows), _IMPORT_BATCH):
        drafts = [_imported_draft(row, f"{table}:{row.id}") for row in rows[start : start + _IMPORT_BATCH]]
        await session.append(drafts, after=after)
        after = None
    if session.branch != active:
        await session.branches.switch(active)


def _imported_draft(row: _ImportedRow, key: str) -> recollect.Draft:
    draft = _read_item(row.item).replace(key=key)
    if row.usage:
        draft = _with_usage(draft, row.usage)
    with contextlib.suppress(recollect.InvalidValue):  # a time that another program wrote in its own form
        return draft.replace(created_at=row.created_at)
    return draft


class _ImportedRow(NamedTuple):
    """A row of the table of messages."""

    id: int
    item: Any
    created_at: str | None
    usage: dict[str, int]


class _ImportedBranch(NamedTuple):
    """The rows of a branch after those that it shares with an earlier one."""

    name: str
    last_shared: int | None
    rows: list[_ImportedRow]


class _SqliteFile:
    """A file of the SDK's SQLite sessions, which is only read."""

    def __init__(self, path: str, sessions_table: str, messages_table: str) -> None:
        self.unreadable: set[int] = set()
        self._path = path
        self._sessions, self._messages = (
            '"' + name.replace('"', '""') + '"' for name in (sessions_table, messages_table)
        )
        tables = {name for (name,) in self._query("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = sorted({sessions_table, messages_table} - tables)
        if missing:
            raise recollect.InvalidValue(
                f"path must be a file of the SDK's SQLiteSession, but {path!r} has no table {missing[0]!r}. Pass "
                f"sessions_table and messages_table if your sessions have other tables."
            )
        self._has_branches = {"message_structure", "turn_usage"} <= tables

    def _query(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        uri = f"file:{urllib.parse.quote(os.path.abspath(self._path))}?mode=ro"  # never creates a missing file
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                return connection.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            raise recollect.InvalidValue(
                f"path must be a readable SQLite file, got {self._path!r}: {error}. Pass the file of your sessions."
            ) from error

    def session_ids(self) -> list[str]:
        """Return the ids of the sessions, the oldest first."""
        rows = self._query(
            f"SELECT session_id, max(time) FROM (SELECT session_id, updated_at AS time FROM {self._sessions} "
            f"UNION ALL SELECT session_id, created_at FROM {self._messages}) GROUP BY session_id ORDER BY 2"
        )
        return [session_id for session_id, _ in rows]

    def read_branches(self, session_id: str) -> list[_ImportedBranch]:
        """Return the branches of a session, the main one first."""
        rows = self._query(
            f"SELECT id, message_data, created_at FROM {self._messages} WHERE session_id = ? ORDER BY id", session_id
        )
        items = {row_id: (self._decode(row_id, text), created_at) for row_id, text, created_at in rows}
        paths = self._read_paths(session_id) or {_MAIN_BRANCH: list(items)}
        usage = self._read_usage(session_id)
        branches: list[_ImportedBranch] = []
        for index, (name, path) in enumerate(paths.items()):
            shared = max((_common_length(path, other) for other in list(paths.values())[:index]), default=0)
            branch_rows = [
                _ImportedRow(row_id, *items[row_id], usage.get(row_id, {}))
                for row_id in path[shared:]
                if row_id in items and row_id not in self.unreadable
            ]
            readable = [row_id for row_id in path[:shared] if row_id in items and row_id not in self.unreadable]
            branches.append(_ImportedBranch(name, readable[-1] if readable else None, branch_rows))
        return branches

    def _decode(self, row_id: int, text: Any) -> Any:
        try:
            return json.loads(text)
        except (TypeError, ValueError):
            self.unreadable.add(row_id)
            return None

    def _read_paths(self, session_id: str) -> dict[str, list[int]]:
        """Return the row ids of each branch of an AdvancedSQLiteSession, the main one first; none of other sessions."""
        paths: dict[str, list[int]] = {}
        if self._has_branches:
            rows = self._query(
                "SELECT branch_id, message_id FROM message_structure WHERE session_id = ? "
                "ORDER BY branch_id <> ?, sequence_number",
                session_id, _MAIN_BRANCH,
            )  # fmt: skip
            for branch, row_id in rows:
                paths.setdefault(branch, []).append(row_id)
        return paths

    def _read_usage(self, session_id: str) -> dict[int, dict[str, int]]:
        """Return the usage of each turn, by the row of its last message of the model."""
        if not self._has_branches:
            return {}
        rows = self._query(
            "SELECT max(s.message_id), u.input_tokens, u.output_tokens, u.requests, u.input_tokens_details, "
            "u.output_tokens_details FROM turn_usage AS u JOIN message_structure AS s USING (session_id, branch_id, "
            "user_turn_number) WHERE u.session_id = ? AND s.message_type NOT IN ('user', 'function_call_output') "
            "GROUP BY u.id",
            session_id,
        )
        return {
            row_id: {"input_tokens": tokens_in, "output_tokens": tokens_out, "requests": requests}
            | _numbers_in(details_in)
            | _numbers_in(details_out)
            for row_id, tokens_in, tokens_out, requests, details_in, details_out in rows
        }


def _common_length(path: Sequence[int], other: Sequence[int]) -> int:
    """Return how many of their first items two paths have in common."""
    return next((n for n, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), min(len(path), len(other)))


def _numbers_in(text: str | None) -> dict[str, int]:
    """Return the numbers of a JSON object."""
    with contextlib.suppress(TypeError, ValueError):
        return {name: number for name, number in json.loads(text or "{}").items() if type(number) is int}
    return {}
