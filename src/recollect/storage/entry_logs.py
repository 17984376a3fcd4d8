"""Entry logs: the lines of a transcript as a program passes them on, in the order in which they were stored.

A log belongs to one session, whose messages were read from its entries. Each append writes the entries as one chunk of
original bytes, the messages, and the state of the log, in one transaction. A writer names the state that it has read,
so the entries of two writers never mix: the second one reads what the first one stored, and repeats its append.

A record of the store maps the key of a log to its session. Writers lock it, and lists of logs read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from recollect.errors import NotFound, SessionInTrash, format_value
from recollect.model import json
from recollect.storage import imports, messages, originals, records, sessions
from recollect.storage.imports import ImportBatch
from recollect.storage.operation import Operation, Scope, Steps
from recollect.storage.originals import ENTRIES_KEY, LOG_KIND, ORIGINAL_KIND

STATE_KEY = "state"
"""The key of the record of the session that holds the state of its log."""


class LogAddress(NamedTuple):
    """The key of a log, and the ids that its session may have: the first one that no other log has."""

    key: str
    ids: Sequence[str]
    main: LogAddress | None = None
    """The log of the conversation that started this one as a sub-agent. `ids` are then what follows its session id."""


class LogState(msgspec.Struct, omit_defaults=True):
    """The state of a log: the JSON text of a record of its session."""

    log: str
    """The key of the log."""
    id: str
    """Differs from that of an earlier log with the same key, which was deleted."""
    name: tuple[str, ...]
    """The name of the log in the program that writes it."""
    chunks: int = 0
    updated_at: int = 0
    """The time of the last append in milliseconds since 1970, later than that of the append before."""
    summary: Any = None

    def to_json(self) -> str:
        """Return the text of the record."""
        return json.encode(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, text: str) -> LogState:
        """Return the state of a record."""
        return msgspec.convert(json.decode(text), cls)


class StoredLog(NamedTuple):
    """A log with its session id; without a state if nothing is stored. With the chunks that were read."""

    session: str
    state: LogState | None
    parent: str | None = None
    """The session id of the conversation that started it as a sub-agent."""
    is_in_trash: bool = False
    chunks: Sequence[bytes] = ()


class LogChanged(Exception):
    """Internal: another writer appended to the log. EntryLog.append() reads on and repeats its append."""


class LogAppend(NamedTuple):
    """An append: the log as the writer has read it, and the batches. The last one has the records of the log."""

    address: LogAddress
    log: StoredLog
    batches: Sequence[ImportBatch]
    links: Mapping[str, str]
    """The session ids of sub-agents, and those of their parents."""


def read(scope: Scope, address: LogAddress, position: LogState | None = None) -> Operation[StoredLog]:
    """Return a log with its chunks, or those that follow a state which the caller knows."""
    return Operation(_read, scope, address, position, writes=False, latest=True)


def _read(scope: Scope, address: LogAddress, position: LogState | None) -> Steps[StoredLog]:
    log = yield from _find(scope, address)
    if log.state is None:
        return log
    row = yield from sessions.find_live_row(scope, log.session)
    if row is None:  # deleted since
        return log._replace(state=None)
    yield from _check_not_erased(scope, row.session, log.session)
    first = position.chunks if position is not None and position.id == log.state.id else 0
    prefix = f"{ENTRIES_KEY}\n"
    after = prefix if not first else f"{prefix}{first - 1:08d}"
    rows = yield from records.list_own_page(
        scope, ORIGINAL_KIND, prefix, after, log.state.chunks - first, session=row.session
    )
    return log._replace(chunks=[item.data or b"" for item in rows])


def _find(scope: Scope, address: LogAddress) -> Steps[StoredLog]:
    """Return a log without its chunks; for a new one, with the id that its session gets."""
    parent, ids = None, address.ids
    if address.main is not None:
        parent = (yield from _find(scope, address.main)).session
        ids = [f"{parent}{id}" for id in ids]
    text = yield from records.get_own(scope, LOG_KIND, address.key)
    for id in [*ids] if text is None else [json.decode(text)]:
        row = yield from sessions.find_live_row(scope, id)
        if row is None:
            is_in_trash = (yield from sessions.find_trashed_row(scope, id)) is not None
            return StoredLog(id, None, parent, is_in_trash)
        state = yield from _read_state(scope, row.session)
        if state is None or state.log == address.key:
            return StoredLog(id, state, parent)
    raise AssertionError(f"sessions of other logs have all ids of {address.key}")


def _read_state(scope: Scope, session: int) -> Steps[LogState | None]:
    text = yield from records.get_own(scope, LOG_KIND, STATE_KEY, session=session)
    return None if text is None else LogState.from_json(text)


def read_state(scope: Scope, session: str) -> Operation[LogState | None]:
    """Return the state of the log of a session; None if it has none or is in the trash."""
    return Operation(_read_state_of, scope, session, writes=False)


def _read_state_of(scope: Scope, session: str) -> Steps[LogState | None]:
    row = yield from sessions.find_live_row(scope, session)
    return None if row is None else (yield from _read_state(scope, row.session))


def _check_not_erased(scope: Scope, session: int, id: str) -> Steps[None]:
    if (yield from originals.are_erased(scope, session)):
        raise NotFound(
            f"The original of session {format_value(id)} was erased, because content of its messages was erased. "
            f"Continue it with its messages, or start another session."
        )


def append(scope: Scope, item: LogAppend) -> Operation[None]:
    """Append to a log. Raise LogChanged if its stored state is not the one that the writer has read."""
    encoded = [
        {message.draft.key or "": messages.encode_draft(message.draft, scope.now) for message in batch.messages}
        for batch in item.batches
    ]
    return Operation(_append, scope, item, encoded, removes_from_index=True)


def _append(scope: Scope, item: LogAppend, encoded: Sequence[dict[str, messages.EncodedDraft]]) -> Steps[None]:
    session, old = item.log.session, item.log.state
    yield from records.hold_own(scope, LOG_KIND, item.address.key, json.encode(session))
    log = yield from _find(scope, item.address)
    if log.is_in_trash:
        raise SessionInTrash(session=log.session)
    current = None if log.state is None else (log.state.id, log.state.chunks)
    if log.session != session or current != (None if old is None else (old.id, old.chunks)):
        raise LogChanged
    created: set[str] = set()
    for batch, drafts in zip(item.batches, encoded, strict=True):
        counts = yield from imports.import_in_steps(scope, batch, drafts)
        if counts.outcome == "new":
            created.add(batch.session)
    row = yield from sessions.find(scope, session)
    yield from _check_not_erased(scope, row.session, session)
    if created or old is None:
        yield from imports.link_delegates(scope, item.links, {*created, session})


def list_logs(scope: Scope, prefix: str) -> Operation[list[StoredLog]]:
    """Return the logs whose keys begin with a prefix and whose sessions are not in the trash, without chunks."""
    return Operation(_list_logs, scope, prefix, writes=False)


_MAX_IDS = 500  # of sessions whose records one query returns


def _list_logs(scope: Scope, prefix: str) -> Steps[list[StoredLog]]:
    ids = yield from _list_sessions(scope, prefix)
    logs: list[StoredLog] = []
    for start in range(0, len(ids), _MAX_IDS):
        texts = yield from records.list_own_of_sessions(scope, LOG_KIND, ids[start : start + _MAX_IDS])
        for id, values in texts.items():
            if STATE_KEY in values:
                logs.append(StoredLog(id, LogState.from_json(values[STATE_KEY])))
    return logs


def list_sessions(scope: Scope, prefix: str) -> Operation[list[str]]:
    """Return the ids of the sessions of logs whose keys begin with a prefix, also of those in the trash."""
    return Operation(_list_sessions, scope, prefix, writes=False)


def _list_sessions(scope: Scope, prefix: str) -> Steps[list[str]]:
    rows = yield from records.list_own_page(scope, LOG_KIND, prefix, "", records.NO_LIMIT)
    return [json.decode(row.value or "null") for row in rows]
