"""Transcripts of the Claude Agent SDK in a Recollect store: RecollectSessionStore.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from recollect.integrations.claude_agent_sdk import RecollectSessionStore

    options = ClaudeAgentOptions(session_store=RecollectSessionStore.from_url("conversations.db"))
    async for message in query(prompt="Hello", options=options):
        print(message)

Each conversation is a session with the id that `recollect import` uses for the same transcript, and with the same typed
messages. The entries of the transcript are stored next to them, and load() returns them for a resume.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any, Self, cast

import anyio
from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

import recollect
from recollect.sync import EntryLog, LogName, erase_log, list_logs

_MAX_LOGS = 64  # in memory, of transcripts in use; each remembers some hundred bytes per entry


class RecollectSessionStore(SessionStore):
    """A session store of the Claude Agent SDK that stores transcripts in Recollect. It needs asyncio or trio.

    Pass it to `ClaudeAgentOptions(session_store=...)`. It implements every method of the protocol `SessionStore`.

    - `store`: an open store. Or the result of `recollect.open_async()` before it is awaited: the store then opens with
      the first call, and `aclose()` closes it.
    """

    def __init__(self, store: recollect.AsyncStore | Awaitable[recollect.AsyncStore]) -> None:
        self._store = store if isinstance(store, recollect.AsyncStore) else None
        self._opener = None if isinstance(store, recollect.AsyncStore) else store
        self._is_closed = False
        self._open_lock = anyio.Lock()
        self._logs: OrderedDict[LogName, _SharedLog] = OrderedDict()

    @classmethod
    def from_url(cls, url: str | None, *, owner: str = "") -> Self:
        """Return a session store with a store of its own, which opens with the first call.

        - `url`: the path of a file or the URL of a database, as in `recollect.open_async()`; `None`: the default file.
        - `owner`: as in `recollect.open_async()`.
        """
        return cls(recollect.open_async(url, owner=owner))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store if this object has opened it. An open store that was passed to the constructor stays open."""
        self._is_closed = True
        if self._opener is not None and self._store is not None:
            await self._store.close()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store a batch of entries at the end of a transcript, all or none. They are on disk when the method returns.

        An entry whose `uuid` the transcript has already is left out. The entries of two writers of one transcript, in
        any processes, never mix inside of a batch. The messages of the entries are written in the same transaction.

        Raise `SessionInTrash` if the conversation is in the trash, and `NotFound` if content of it was erased.
        """
        if not entries:
            return
        name = _name_of(key)
        shared = await self._find_log(name)

        def fold(summary: Any, new: list[dict[str, Any]]) -> Any:
            return fold_session_summary(summary, key, cast("list[SessionStoreEntry]", new))

        async with shared.lock:
            await shared.log.append(cast("list[dict[str, Any]]", entries), fold if name.path is None else None)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript in the order of their appends.

        Return `None` if it has none, or if its conversation is in the trash. Raise `NotFound` if content of the
        conversation was erased: the entries were erased with it.
        """
        log = EntryLog(await self._open(), _name_of(key))
        return cast("list[SessionStoreEntry] | None", await log.load())

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the transcripts of a project, and the time of the last append to each."""
        logs = await list_logs(await self._open(), project_key)
        return [{"session_id": log.name.session, "mtime": log.updated_at} for log in logs]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of the transcripts of a project, which every append keeps up to date."""
        logs = await list_logs(await self._open(), project_key)
        return [
            cast("SessionSummaryEntry", {**log.summary, "mtime": log.updated_at})
            for log in logs
            if log.summary is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Erase a transcript and its conversation permanently; without a `subpath`, also those of its sub-agents.

        To be able to restore a conversation, move it to the trash with `store.delete_session()` instead.
        """
        name = _name_of(key)
        for other in list(self._logs):
            if other == name or (name.path is None and other[:2] == name[:2]):
                self._logs.pop(other)
        await erase_log(await self._open(), name)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of the sub-agents of a transcript."""
        logs = await list_logs(await self._open(), key["project_key"], key["session_id"])
        return [log.name.path for log in logs if log.name.path is not None]

    async def _open(self) -> recollect.AsyncStore:
        """Return the store; open it if it is not open yet."""
        if self._store is None and self._opener is not None:
            async with self._open_lock:  # several first calls may come at the same time
                if self._is_closed:
                    raise recollect.StoreClosed
                if self._store is None:  # pyright: ignore[reportUnnecessaryComparison]  another task may set it meanwhile
                    self._store = await self._opener
        assert self._store is not None
        return self._store

    async def _find_log(self, name: LogName) -> _SharedLog:
        """Return the log with this name that is in memory, or a new one."""
        store = await self._open()
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = _SharedLog(EntryLog(store, name))
            if len(self._logs) > _MAX_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(name)
        return log


class _SharedLog:
    """A log that the tasks of a program use one after another."""

    def __init__(self, log: EntryLog) -> None:
        self.log, self.lock = log, anyio.Lock()


def _name_of(key: SessionKey) -> LogName:
    return LogName(key["project_key"], key["session_id"], key.get("subpath"))
