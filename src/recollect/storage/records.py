"""Keyed records of the store and of its sessions: put, get, list and delete, with revisions to compare and swap.

A revision is never used twice for a key: a record that is created again begins after the highest revision that a
deleted record of its kind had. Without this, a writer that read the deleted record would replace the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, StaleRecord, format_value
from recollect.model import json, session_ids, validation
from recollect.model.record import Record, check_kind, check_new_key, check_writable_kind, encode_key
from recollect.model.search import Page
from recollect.storage import sessions
from recollect.storage.fast_paths import encode_keys
from recollect.storage.operation import Deletion, Operation, Query, Scope, Steps, execute, fetch_all, fetch_one

STORE = 0
"""The session key of the records of the store."""

PRESENCE_KIND = "recollect.presence"
COPY_KIND = "recollect.copy"

_MAX_LIMIT = 1_000  # records per page; each may have megabytes
_ALL_KEYS = b"", b"\xff"  # 0xff occurs in no UTF-8 text
NO_LIMIT = 1 << 62  # rows, more than any table has


class RecordRow(NamedTuple):
    """The columns of a record without its name; either `value` or `data` is set."""

    revision: int
    created_at: int
    updated_at: int
    value: str | None
    data: bytes | None


class KeyedRecordRow(NamedTuple):
    """A record of a kind."""

    key: bytes
    revision: int
    created_at: int
    updated_at: int
    value: str | None
    data: bytes | None


class SessionRecordRow(NamedTuple):
    """A record of a session; without key and value if the session has none of the kind."""

    id: str
    key: bytes | None
    value: str | None


class RecordStateRow(NamedTuple):
    """The columns of a record that a write changes."""

    revision: int
    created_at: int
    updated_at: int


class RecordRevisionRow(NamedTuple):
    """The revision of a record."""

    revision: int


class _RecordName(NamedTuple):
    """The name of a record: the id of its session (None: the store), its kind and its key in UTF-8."""

    session: str | None
    kind: str
    key: bytes

    def params(self, scope: Scope, session: int) -> dict[str, Any]:
        """Return the parameters of a query for the record; `session` is the key of the session."""
        return {"owner": scope.owner, "session": session, "kind": self.kind, "key": self.key}


class StoredValue(NamedTuple):
    """The value of a record as columns: JSON text or bytes."""

    value: str | None
    data: bytes | None

    @classmethod
    def encode(cls, value: Any) -> StoredValue:
        """Encode a value: bytes are stored as they are, anything else as JSON."""
        if not isinstance(value, bytes | bytearray | memoryview):
            return cls(json.encode(json.to_json_data(value)), None)
        try:
            return cls(None, memoryview(value).tobytes())
        except (ValueError, BufferError) as error:  # a memoryview that was released
            raise InvalidValue(f"value must be readable bytes, got {format_value(value)}.") from error

    def decode(self) -> Any:
        """Return the value."""
        return self.data if self.value is None else json.decode(self.value)


_RECORD_GET = Query("record_get", RecordRow)
RECORD_REVISION = Query("record_revision", RecordRevisionRow)
_RECORD_PUT = Query("record_put", RecordStateRow)
_RECORD_REPLACE = Query("record_replace", RecordStateRow)
_RECORD_RAISE = Query("record_raise", RecordStateRow)
_RECORD_TOUCH = Query("record_touch", RecordRevisionRow)
_RECORD_DELETE = Query("record_delete", RecordRevisionRow)
_RECORDS_PAGE = Query("records_page", KeyedRecordRow)
_RECORDS_DELETE = Query("records_delete", RecordRevisionRow)
_RECORDS_OF_SESSIONS = Query("records_of_sessions", SessionRecordRow)
_SESSION_HOLD = Query("session_hold", sessions.SessionKeyRow)


def put(
    scope: Scope, session: str | None, kind: str, key: str, value: Any, *, expected: int | None = None
) -> Operation[Record]:
    """Create or replace a record; raise StaleRecord if its revision is not `expected` (0: it does not exist)."""
    validation.check_integer("expected", expected)
    name = _RecordName(session, check_writable_kind(kind), check_new_key("key", key))
    return Operation(_put, scope, name, StoredValue.encode(value), expected)


def _put(scope: Scope, name: _RecordName, content: StoredValue, expected: int | None) -> Steps[Record]:
    params = name.params(scope, (yield from _hold_session(scope, name.session)))
    query = _RECORD_REPLACE if expected else _RECORD_PUT
    columns = {**params, **content._asdict(), "now": scope.now, "expected": expected}
    while (state := (yield from fetch_one(query, **columns))) is None:
        yield from _check_revision(name, params, expected)
    if state.revision == 1:  # a new record
        state = (yield from fetch_one(_RECORD_RAISE, **params, mark=mark_key(name.kind))) or state
    return _record(name, RecordRow(*state, *content))


def _check_revision(name: _RecordName, params: dict[str, Any], expected: int | None) -> Steps[None]:
    """Raise StaleRecord after a statement that matched no row.

    Return if the record has the expected revision again, because another process created or deleted it meanwhile.
    """
    row = yield from fetch_one(RECORD_REVISION, **params)
    revision = 0 if row is None else row.revision
    if revision != expected:
        raise StaleRecord(
            session=name.session, kind=name.kind, key=name.key.decode(), revision=revision, expected=expected
        )


def _session_key(scope: Scope, session: str | None) -> Steps[int]:
    """Return the key of a session that is not in the trash, or 0 for the store."""
    return STORE if session is None else (yield from sessions.find(scope, session)).session


def _hold_session(scope: Scope, session: str | None) -> Steps[int]:
    """Return the key of a session for a write: nobody erases it before the transaction ends. 0 is the store."""
    if session is None:
        return STORE
    while True:
        row = yield from fetch_one(_SESSION_HOLD, owner=scope.owner, id=session)
        if row is not None:
            return row.session
        yield from sessions.find(scope, session)  # raises the reason, or another process has created it meanwhile


def mark_key(kind: str) -> bytes:
    """Return the key of the record that stores the highest revision of a deleted record of a kind."""
    return kind.encode()


def _record(name: _RecordName, row: RecordRow | KeyedRecordRow) -> Record:
    return Record(
        kind=name.kind, key=name.key.decode(), revision=row.revision, value=StoredValue(row.value, row.data).decode(),
        created_at_ms=row.created_at, updated_at_ms=row.updated_at, session=name.session,
    )  # fmt: skip


def get(scope: Scope, session: str | None, kind: str, key: str) -> Operation[Record | None]:
    """Read a record, or None."""
    name = _RecordName(session, check_kind(kind), encode_key("key", key))
    return Operation(_get, scope, name, writes=False)


def _get(scope: Scope, name: _RecordName) -> Steps[Record | None]:
    row = yield from fetch_one(_RECORD_GET, **name.params(scope, (yield from _session_key(scope, name.session))))
    return None if row is None else _record(name, row)


def delete(scope: Scope, session: str | None, kind: str, key: str, *, expected: int | None = None) -> Operation[bool]:
    """Delete a record, and return whether it existed; raise StaleRecord if its revision is not `expected`."""
    validation.check_integer("expected", expected)
    name = _RecordName(session, check_writable_kind(kind), encode_key("key", key))
    return Operation(_delete, scope, name, expected, deletion=Deletion.ROWS)


def _delete(scope: Scope, name: _RecordName, expected: int | None) -> Steps[bool]:
    params = name.params(scope, (yield from _hold_session(scope, name.session)))
    while (row := (yield from fetch_one(_RECORD_DELETE, **params, expected=expected))) is None:
        if expected is None:
            return False
        yield from _check_revision(name, params, expected)
        if expected == 0:
            return False
    yield from execute(
        "record_mark_deleted", owner=scope.owner, session=params["session"], mark=mark_key(name.kind),
        revision=row.revision, now=scope.now,
    )  # fmt: skip
    return True


def list_records(
    scope: Scope, session: str | None, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
) -> Operation[Page[Record]]:
    """Read a page of the records of a kind, in the order of their keys."""
    if type(limit) is not int or not 1 <= limit <= _MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"limit must be between 1 and {_MAX_LIMIT:,}, got {format_value(limit)}.")
    low, high = _key_range(encode_key("prefix", prefix), None if after is None else encode_key("after", after))
    return Operation(_list_records, scope, session, check_kind(kind), low, high, limit, writes=False)


def _key_range(prefix: bytes, after: bytes | None) -> tuple[bytes, bytes]:
    """Return the first key of a page and the end of the prefix. In UTF-8, byte order is the order of code points."""
    low, high = _ALL_KEYS
    if prefix:
        low, high = prefix, prefix[:-1] + bytes((prefix[-1] + 1,))
    # The smallest key after another one is that key with one more NUL.
    return low if after is None else max(low, after + b"\0"), high


def _list_records(
    scope: Scope, session: str | None, kind: str, low: bytes, high: bytes, limit: int
) -> Steps[Page[Record]]:
    session_key = yield from _session_key(scope, session)
    rows = yield from _read_range(scope, session_key, kind, low, high, limit + 1)
    records = [_record(_RecordName(session, kind, row.key), row) for row in rows[:limit]]
    return Page(records, records[-1].key if len(rows) > limit else None)


def _read_range(
    scope: Scope, session: int, kind: str, low: bytes, high: bytes, limit: int
) -> Steps[list[KeyedRecordRow]]:
    return (
        yield from fetch_all(
            _RECORDS_PAGE, owner=scope.owner, session=session, kind=kind, low=low, high=high, limit=limit
        )
    )


# Recollect's own records. `session` is the key of the session, or STORE. Nothing compares their revisions.


def put_own(
    scope: Scope, kind: str, key: str, text: str | None, data: bytes | None = None, *, session: int = STORE
) -> Steps[None]:
    """Store JSON text, or bytes, as a record of Recollect."""
    params = _own_params(scope, kind, key, session)
    yield from execute("record_put", **params, value=text, data=data, now=scope.now, expected=None)


def get_own(scope: Scope, kind: str, key: str, *, session: int = STORE) -> Steps[str | None]:
    """Return the JSON text of a record of Recollect, or None."""
    row = yield from fetch_one(_RECORD_GET, **_own_params(scope, kind, key, session))
    return None if row is None else row.value


def list_own(scope: Scope, kind: str, *, session: int = STORE) -> Steps[list[KeyedRecordRow]]:
    """Return all records of a kind of Recollect."""
    return (yield from _read_range(scope, session, kind, *_ALL_KEYS, NO_LIMIT))


def list_own_page(
    scope: Scope, kind: str, prefix: str, after: str, limit: int, *, session: int = STORE
) -> Steps[list[KeyedRecordRow]]:
    """Return records of a kind of Recollect whose keys begin with a prefix and come after a key."""
    low, high = _key_range(prefix.encode(), after.encode() or None)
    return (yield from _read_range(scope, session, kind, low, high, limit))


def list_own_of_sessions(scope: Scope, kind: str, ids: Sequence[str]) -> Steps[dict[str, dict[str, str]]]:
    """Return the JSON text of the records of a kind of Recollect by session id and key.

    A session without one has an empty dict. One that does not exist or is in the trash is missing.
    """
    texts = encode_keys([id for id in ids if session_ids.is_possible_id(id)])
    records: dict[str, dict[str, str]] = {}
    for row in (yield from fetch_all(_RECORDS_OF_SESSIONS, owner=scope.owner, kind=kind, ids=texts)):
        values = records.setdefault(row.id, {})
        if row.key is not None:
            values[row.key.decode()] = row.value or "null"
    return records


def touch_own(scope: Scope, kind: str, key: str) -> Steps[bool]:
    """Set the time of a record of Recollect to now, and return whether it exists. Locks the record."""
    return (yield from fetch_one(_RECORD_TOUCH, **_own_params(scope, kind, key), now=scope.now)) is not None


def hold_own(scope: Scope, kind: str, key: str, text: str) -> Steps[None]:
    """Create a record of Recollect unless it exists, and lock it until the end of the transaction."""
    params = {**_own_params(scope, kind, key), "value": text, "data": None, "now": scope.now, "expected": 0}
    while not (yield from touch_own(scope, kind, key)):
        if (yield from fetch_one(_RECORD_PUT, **params)) is not None:
            return


def delete_own(scope: Scope, kind: str, key: str, *, session: int = STORE) -> Steps[None]:
    """Delete a record of Recollect."""
    yield from execute("record_delete", **_own_params(scope, kind, key, session), expected=None)


def delete_kind(scope: Scope, kind: str, prefix: str = "", *, session: int) -> Steps[bool]:
    """Delete the records of a kind of Recollect whose keys begin with a prefix; return whether there were any."""
    low, high = _key_range(prefix.encode(), None)
    params = {"owner": scope.owner, "session": session, "kind": kind, "low": low, "high": high}
    return bool((yield from fetch_all(_RECORDS_DELETE, **params)))


def _own_params(scope: Scope, kind: str, key: str, session: int = STORE) -> dict[str, Any]:
    return _RecordName(None, kind, key.encode()).params(scope, session)
