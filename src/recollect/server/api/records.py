"""Keyed records of the store and of sessions: state of a program that is not a message, with a revision."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, put
from litestar.params import HeaderParameter, PathParameter, QueryParameter
from msgspec import UNSET, UnsetType

from recollect.errors import InvalidValue, NotFound
from recollect.model.record import Record
from recollect.model.validation import MAX_INTEGER
from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.responses import (
    IfNoneMatch,
    Limit,
    SessionPath,
    expected_revision,
    has_revision,
    json_response,
    not_modified,
    open_session,
)
from recollect.server.path_segments import decode_path_segment
from recollect.store_async import AsyncRecords

TAGS = ["records"]

_Kind = Annotated[
    str, PathParameter(description="The kind of the record, percent-encoded like a session's id.", min_length=1)
]
_Key = Annotated[
    str, PathParameter(description="The key of the record, percent-encoded like a session's id.", min_length=1)
]
_Prefix = Annotated[str, QueryParameter(description="Only keys that begin with this text.")]
_AfterKey = Annotated[str | None, QueryParameter(description="The `next` value of the previous page, or any key.")]
_IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match", description="The revision (ETag) that the record must have; otherwise the response is 412."
    ),
]
_Revision = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_Expected = Annotated[
    int | None,
    QueryParameter(ge=0, le=MAX_INTEGER, description="The revision that the record must have, in place of If-Match."),
]


class NewRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The value of a record: JSON in `value`, or bytes as base64 in `data`.

    With `expected`, the record must have this revision; 0: it must not exist.
    """

    value: Any | UnsetType = UNSET
    data: str | UnsetType = UNSET
    expected: _Revision | None = None

    def decode(self) -> Any:
        """Return the value to store. Raise InvalidValue unless exactly one of `value` and `data` was sent."""
        if (self.value is UNSET) == (self.data is UNSET):
            raise InvalidValue("Exactly one of value and data must be sent.")
        if isinstance(self.data, UnsetType):
            return self.value
        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError as error:
            raise InvalidValue(f"data must be base64: {error}.") from error


class DeleteResult(msgspec.Struct, frozen=True):
    """Whether the record existed."""

    deleted: bool


def _expected(expected: int | None, if_match: str | None) -> int | None:
    """Return the expected revision of a request, from its body or query, or from If-Match."""
    revision = expected_revision(if_match)
    if None not in (expected, revision) and expected != revision:
        raise InvalidValue(f"expected and If-Match must be the same revision, got {expected} and {revision}.")
    return revision if expected is None else expected


async def _list(records: AsyncRecords, kind: str, prefix: str, after: str | None, limit: int) -> Response[Any]:
    page = await records.list(decode_path_segment(kind), prefix=prefix, after=after, limit=limit)
    return json_response({"records": [record.to_dict() for record in page], "next": page.next})


async def _get(records: AsyncRecords, kind: str, key: str, if_none_match: str | None) -> Response[Any]:
    kind, key = decode_path_segment(kind), decode_path_segment(key)
    record = await records.get(kind, key)
    if record is None:
        raise NotFound(f"There is no record {key!r} of kind {kind!r}. PUT creates it.", kind=kind, key=key)
    if has_revision(if_none_match, record.revision):
        return not_modified(record.revision)
    return _record_response(record)


async def _put(records: AsyncRecords, kind: str, key: str, data: NewRecord, if_match: str | None) -> Response[Any]:
    record = await records.put(
        decode_path_segment(kind), decode_path_segment(key), data.decode(), expected=_expected(data.expected, if_match)
    )
    return _record_response(record)


async def _delete(
    records: AsyncRecords, kind: str, key: str, expected: int | None, if_match: str | None
) -> DeleteResult:
    deleted = await records.delete(
        decode_path_segment(kind), decode_path_segment(key), expected=_expected(expected, if_match)
    )
    return DeleteResult(deleted)


def _record_response(record: Record) -> Response[Any]:
    return json_response(record.to_dict(), revision=record.revision)


@get("/records/{kind:str}", tags=TAGS, operation_id="list_records")
async def list_records(
    account: Account, kind: _Kind, prefix: _Prefix = "", after: _AfterKey = None, limit: Limit = 100
) -> Response[schemas.RecordsSchema]:
    """List the store's records of a kind, ordered by key."""
    return await _list(account.store.records, kind, prefix, after, limit)


@get("/records/{kind:str}/{key:str}", tags=TAGS, operation_id="get_record")
async def get_record(
    account: Account, kind: _Kind, key: _Key, if_none_match: IfNoneMatch = None
) -> Response[schemas.RecordSchema]:
    """Read a record of the store."""
    return await _get(account.store.records, kind, key, if_none_match)


@put("/records/{kind:str}/{key:str}", tags=TAGS, operation_id="put_record")
async def put_record(
    account: Account, kind: _Kind, key: _Key, data: NewRecord, if_match: _IfMatch = None
) -> Response[schemas.RecordSchema]:
    """Create or replace a record of the store: any JSON value, or bytes."""
    return await _put(account.store.records, kind, key, data, if_match)


@delete("/records/{kind:str}/{key:str}", tags=TAGS, operation_id="delete_record", status_code=200)
async def delete_record(
    account: Account, kind: _Kind, key: _Key, expected: _Expected = None, if_match: _IfMatch = None
) -> DeleteResult:
    """Delete a record of the store."""
    return await _delete(account.store.records, kind, key, expected, if_match)


@get("/sessions/{session:str}/records/{kind:str}", tags=TAGS, operation_id="list_session_records")
async def list_session_records(
    account: Account,
    session: SessionPath,
    kind: _Kind,
    prefix: _Prefix = "",
    after: _AfterKey = None,
    limit: Limit = 100,
) -> Response[schemas.RecordsSchema]:
    """List a session's records of a kind, ordered by key."""
    return await _list((await open_session(account, session)).records, kind, prefix, after, limit)


@get("/sessions/{session:str}/records/{kind:str}/{key:str}", tags=TAGS, operation_id="get_session_record")
async def get_session_record(
    account: Account, session: SessionPath, kind: _Kind, key: _Key, if_none_match: IfNoneMatch = None
) -> Response[schemas.RecordSchema]:
    """Read a record of a session."""
    return await _get((await open_session(account, session)).records, kind, key, if_none_match)


@put("/sessions/{session:str}/records/{kind:str}/{key:str}", tags=TAGS, operation_id="put_session_record")
async def put_session_record(
    account: Account, session: SessionPath, kind: _Kind, key: _Key, data: NewRecord, if_match: _IfMatch = None
) -> Response[schemas.RecordSchema]:
    """Create or replace a record of a session: any JSON value, or bytes. The session's revision does not change."""
    return await _put((await open_session(account, session)).records, kind, key, data, if_match)


@delete(
    "/sessions/{session:str}/records/{kind:str}/{key:str}",
    tags=TAGS,
    operation_id="delete_session_record",
    status_code=200,
)
async def delete_session_record(
    account: Account,
    session: SessionPath,
    kind: _Kind,
    key: _Key,
    expected: _Expected = None,
    if_match: _IfMatch = None,
) -> DeleteResult:
    """Delete a record of a session."""
    return await _delete((await open_session(account, session)).records, kind, key, expected, if_match)


ROUTES: list[Any] = [
    list_records, get_record, put_record, delete_record, list_session_records, get_session_record, put_session_record,
    delete_session_record,
]  # fmt: skip
