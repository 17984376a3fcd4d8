"""Sessions and branches: list, create, read, change, delete, restore, rewind, switch and fork."""

from __future__ import annotations

import hashlib
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.openapi.spec import Example
from litestar.params import QueryParameter
from msgspec import UNSET, UnsetType

from recollect.agent.last_session import read_last_session, store_last_session
from recollect.errors import InvalidValue, SessionExists, format_value
from recollect.model import json
from recollect.model.message import Role
from recollect.model.session import NewSessionFields, Relation, SessionStatus, SessionUpdates
from recollect.model.session import SessionInfo as Info
from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.responses import (
    After,
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Limit,
    SessionPath,
    expected_revision,
    has_revision,
    json_response,
    not_modified,
    open_matching_session,
    open_session,
    paginate,
    parse_message_id,
    parse_path_end,
    session_to_dict,
)
from recollect.server.path_segments import decode_path_segment

SESSION_TAGS = ["sessions"]
TriState = Literal["true", "false", "any"]
TRI_STATE: dict[str, bool | None] = {"true": True, "false": False, "any": None}
Labels = Annotated[
    list[str] | None, QueryParameter(description="Only sessions with this label; with all of them, if repeated.")
]
ExternalId = Annotated[str | None, QueryParameter(description="Only sessions that have this id in another program.")]
IdPrefix = Annotated[str | None, QueryParameter(description="Only sessions whose id begins with this text.")]
MetadataFields = Annotated[
    str | None,
    QueryParameter(
        description="A JSON object. Only sessions whose metadata has these fields with these values, at its top level.",
        examples=[Example(value='{"project": "alpha"}')],
    ),
]


class _SettableFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base class of requests that set fields of a session."""

    def set_fields(self) -> dict[str, Any]:
        """Return the fields that were sent, by name."""
        names = [name for name in self.__struct_fields__ if name in SessionUpdates.__annotations__]
        return {name: value for name in names if (value := getattr(self, name)) is not UNSET}


if TYPE_CHECKING:

    class FieldsSchema(_SettableFields, kw_only=True, forbid_unknown_fields=True):
        """Fields of a session that can be set. Fields that are not sent do not change."""

    class NewFieldsSchema(_SettableFields, kw_only=True, forbid_unknown_fields=True):
        """The fields of a new session. `parent` is the session that a sub-agent's session belongs to."""

else:

    def _make_schema(name: str, fields: type, description: str) -> type:
        """Return the struct of a request with the fields of a TypedDict."""
        return msgspec.defstruct(
            name,
            [(field, kind | UnsetType, UNSET) for field, kind in typing.get_type_hints(fields).items()],
            bases=(_SettableFields,), module=__name__, kw_only=True, forbid_unknown_fields=True,
            namespace={"__doc__": description},
        )  # fmt: skip

    FieldsSchema = _make_schema(
        "FieldsSchema", SessionUpdates, "Fields of a session that can be set. Fields that are not sent do not change."
    )
    NewFieldsSchema = _make_schema(
        "NewFieldsSchema",
        NewSessionFields,
        "The fields of a new session. `parent` is the session that a sub-agent's session belongs to.",
    )


class NewSession(NewFieldsSchema, kw_only=True, forbid_unknown_fields=True):
    """A session to create. Without an id, the server generates one."""

    id: str | None = None


class SessionReference(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A session, by its id."""

    session: str


class EraseResult(msgspec.Struct, frozen=True):
    """The ids of the erased sessions."""

    erased: list[str]


class EmptyTrashResult(msgspec.Struct, frozen=True):
    """The number of erased sessions."""

    count: int


class LastSession(msgspec.Struct, frozen=True):
    """The last active session, or null."""

    session: schemas.SessionSchema | None


def _session_response(account: Account, info: Info, status: int = 200) -> Response[Any]:
    return json_response(session_to_dict(account, info), status, revision=info.revision)


@get("/sessions", tags=SESSION_TAGS, operation_id="list_sessions")
async def list_sessions(
    account: Account,
    limit: Limit = 50,
    after: After = None,
    order: Literal["activity", "created", "title"] = "activity",
    oldest_first: Annotated[bool, QueryParameter(description="Reverse the order.")] = False,
    archived: TriState = "false",
    pinned: TriState = "any",
    pinned_first: bool = False,
    delegates: TriState = "false",
    channel: str | None = None,
    model: str | None = None,
    status: SessionStatus | None = None,
    label: Labels = None,
    external_id: ExternalId = None,
    id_prefix: IdPrefix = None,
    metadata: MetadataFields = None,
    role: Annotated[Role | None, QueryParameter(description="Only sessions with a message of this role.")] = None,
    tool: Annotated[str | None, QueryParameter(description="Only sessions in which this tool was called.")] = None,
    since: Annotated[
        str | None, QueryParameter(description="Only sessions active at or after this time, ISO 8601.")
    ] = None,
    until: Annotated[str | None, QueryParameter(description="Only sessions active before this time, ISO 8601.")] = None,
    parent: Annotated[str | None, QueryParameter(description="Only forks and sub-agents of this session.")] = None,
    relation: Annotated[
        Relation | None, QueryParameter(description="Only sessions with this relation to their parent.")
    ] = None,
) -> Response[schemas.SessionsSchema]:
    """List sessions, latest activity first. Archived sessions and sub-agents' sessions are excluded by default."""
    page = await account.store.list_sessions(
        limit, after=after, order=order, oldest_first=oldest_first, archived=TRI_STATE[archived],
        pinned=TRI_STATE[pinned], pinned_first=pinned_first, delegates=TRI_STATE[delegates], channel=channel,
        model=model, status=status, label=label, external_id=external_id, id_prefix=id_prefix,
        metadata=parse_fields(metadata), role=role, tool=tool, since=since, until=until, parent=parent,
        relation=relation,
    )  # fmt: skip
    return json_response({"sessions": [session_to_dict(account, item.info) for item in page], "next": page.next})


def parse_fields(text: str | None) -> dict[str, Any] | None:
    """Return the metadata fields of a query parameter."""
    if text is None:
        return None
    try:
        fields = json.decode(text)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        return fields  # pyright: ignore[reportUnknownVariableType]
    raise InvalidValue(f'metadata must be a JSON object, such as {{"project": "alpha"}}, got {format_value(text)}.')


@get("/trash", tags=SESSION_TAGS, operation_id="list_trash")
async def list_trash(account: Account, limit: Limit = 50, after: After = None) -> Response[schemas.SessionsSchema]:
    """List the sessions in the trash, last deleted first."""
    page = await account.store.list_sessions(limit, after=after, deleted=True, archived=None, delegates=None)
    return json_response({"sessions": [session_to_dict(account, item.info) for item in page], "next": page.next})


@delete("/trash", tags=SESSION_TAGS, operation_id="empty_trash", status_code=200)
async def empty_trash(account: Account) -> EmptyTrashResult:
    """Erase all sessions in the trash permanently. Forks keep the messages they share."""
    return EmptyTrashResult((await account.store.maintenance.empty_trash()).count)


@post("/sessions", tags=SESSION_TAGS, operation_id="create_session")
async def create_session(
    account: Account, data: NewSession | None = None, key: IdempotencyKey = None
) -> Response[schemas.SessionSchema]:
    """Create a session. Without an id, the server generates one; the same Idempotency-Key returns the same session."""
    options = data or NewSession()
    id_ = options.id
    if id_ is None and key is not None:
        id_ = _id_from_key(account, key)
    try:
        handle = await account.store.session(id_, exist_ok=False, **options.set_fields())
    except SessionExists:
        if id_ is None or options.id is not None or key is None:
            raise
        return _session_response(account, (await open_session(account, id_)).info)
    return _session_response(account, handle.info, 201)


def _id_from_key(account: Account, key: str) -> str:
    """Return a session id derived from a key: a UUID of version 8, the version for ids that an application computes."""
    text = hashlib.sha256(f"{account.owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{'89ab'[int(text[16], 16) % 4]}{text[17:20]}-{text[20:32]}"


@put("/sessions/{session:str}", tags=SESSION_TAGS, operation_id="ensure_session")
async def ensure_session(
    account: Account, session: SessionPath, data: NewFieldsSchema | None = None
) -> Response[schemas.SessionSchema]:
    """Open a session, or create it with these fields if it does not exist. It becomes the last active session."""
    name = decode_path_segment(session)
    handle = await account.store.session(name, **(data or NewFieldsSchema()).set_fields())
    return _session_response(account, handle.info)


@get("/sessions/{session:str}", tags=SESSION_TAGS, operation_id="get_session")
async def get_session(
    account: Account, session: SessionPath, if_none_match: IfNoneMatch = None
) -> Response[schemas.SessionSchema]:
    """Read a session."""
    info = (await open_session(account, session)).info
    return (
        not_modified(info.revision) if has_revision(if_none_match, info.revision) else _session_response(account, info)
    )


@patch("/sessions/{session:str}", tags=SESSION_TAGS, operation_id="update_session")
async def update_session(
    account: Account, session: SessionPath, data: FieldsSchema, if_match: IfMatch = None
) -> Response[schemas.SessionSchema]:
    """Change fields of a session: title, model, labels, pinned, archived, metadata, parent, ..."""
    handle = await open_session(account, session)
    updated = await handle.update(expected=expected_revision(if_match), **data.set_fields())
    return _session_response(account, updated.info)


@delete("/sessions/{session:str}", tags=SESSION_TAGS, operation_id="delete_session")
async def delete_session(account: Account, session: SessionPath, if_match: IfMatch = None) -> None:
    """Move a session to the trash. A running turn is stopped."""
    name = decode_path_segment(session)
    expected = await _stop_turn(account, session, if_match)
    await account.store.delete_session(name, expected=expected)


async def _stop_turn(account: Account, session: str, tag: str | None) -> int | None:
    """Stop the running turn of a session, and return the revision that the session must have for the next change.

    The end of a turn changes the revision. So if a turn is running, the revision is checked before the turn is stopped.
    """
    name = decode_path_segment(session)
    if not account.runner.running(name):
        return expected_revision(tag)
    await open_matching_session(account, session, tag)
    await account.runner.stop_and_wait(name)
    return None


@post("/sessions/{session:str}/restore", tags=SESSION_TAGS, operation_id="restore_session", status_code=200)
async def restore_session(
    account: Account, session: SessionPath, if_match: IfMatch = None
) -> Response[schemas.SessionSchema]:
    """Restore a session from the trash."""
    handle = await account.store.restore_session(decode_path_segment(session), expected=expected_revision(if_match))
    return _session_response(account, handle.info)


@post("/sessions/{session:str}/erase", tags=SESSION_TAGS, operation_id="erase_session", status_code=200)
async def erase_session(
    account: Account,
    session: SessionPath,
    forks: Literal["refuse", "keep", "erase"] = "refuse",
    deleted: bool | None = None,
    if_match: IfMatch = None,
) -> EraseResult:
    """Erase a session permanently. If forks share its messages: refuse, keep the forks, or erase them too.

    A session and one in the trash can have the same id. `deleted` selects the one in the trash; without it, the other
    one is erased.
    """
    name = decode_path_segment(session)
    expected = expected_revision(if_match) if deleted else await _stop_turn(account, session, if_match)
    return EraseResult(await account.store.erase_session(name, forks=forks, deleted=deleted, expected=expected))


@get("/resolve", tags=SESSION_TAGS, operation_id="resolve_session")
async def resolve_session(
    account: Account,
    name: Annotated[str, QueryParameter(description="An id, an external id, a title, or a prefix of an id.")],
) -> Response[schemas.SessionSchema]:
    """Find one session by its id, its external id, its title or a prefix of its id."""
    return _session_response(account, (await account.store.find_session(name)).info)


@get("/last-session", tags=SESSION_TAGS, operation_id="get_last_session")
async def get_last_session(account: Account) -> Response[LastSession]:
    """Read the last active session; null if there is none."""
    last = await read_last_session(account.store)
    return json_response({"session": None if last is None else session_to_dict(account, last.info)})


@put("/last-session", tags=SESSION_TAGS, operation_id="set_last_session", status_code=204)
async def set_last_session(account: Account, data: SessionReference) -> None:
    """Set the last active session."""
    await store_last_session(await account.store.session(data.session, create=False))


SESSION_ROUTES: list[Any] = [
    list_sessions, list_trash, empty_trash, create_session, ensure_session, get_session, update_session, delete_session,
    restore_session, erase_session, resolve_session, get_last_session, set_last_session,
]  # fmt: skip


BRANCH_TAGS = ["branches"]


class Rewind(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The message to rewind to: its id, or 0 for before the first message."""

    to: Annotated[str, msgspec.Meta(examples=["1.17", "0"])]


class Switch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The branch to switch to."""

    branch: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class Fork(NewSession, kw_only=True, forbid_unknown_fields=True):
    """The session to create, and the last message that it shares; without one, all messages."""

    at: str | None = None


@get("/sessions/{session:str}/branches", tags=BRANCH_TAGS, operation_id="list_branches")
async def list_branches(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[schemas.BranchesSchema]:
    """List the branches of a session."""
    handle = await open_session(account, session)
    page, next_cursor = paginate(await handle.branches.list(), lambda branch: str(branch.id), limit, after)
    return json_response(
        {"branches": [branch.to_dict() for branch in page], "next": next_cursor}, revision=handle.revision
    )


@post("/sessions/{session:str}/rewind", tags=BRANCH_TAGS, operation_id="rewind_session", status_code=200)
async def rewind_session(
    account: Account, session: SessionPath, data: Rewind, if_match: IfMatch = None
) -> Response[schemas.SessionSchema]:
    """Rewind to a message. The messages after it stay on their own branch."""
    handle = await open_session(account, session)
    await handle.rewind(parse_path_end(data.to), expected=expected_revision(if_match))
    return json_response(session_to_dict(account, handle.info), revision=handle.revision)


@post("/sessions/{session:str}/switch", tags=BRANCH_TAGS, operation_id="switch_branch", status_code=200)
async def switch_branch(
    account: Account, session: SessionPath, data: Switch, if_match: IfMatch = None
) -> Response[schemas.SessionSchema]:
    """Switch the session to another branch."""
    handle = await open_session(account, session)
    await handle.branches.switch(data.branch, expected=expected_revision(if_match))
    return json_response(session_to_dict(account, handle.info), revision=handle.revision)


@post("/sessions/{session:str}/fork", tags=BRANCH_TAGS, operation_id="fork_session")
async def fork_session(
    account: Account, session: SessionPath, data: Fork | None = None, if_match: IfMatch = None
) -> Response[schemas.SessionSchema]:
    """Create a session that shares the messages of this one up to a message. Nothing is copied."""
    options = data or Fork()
    at = None if options.at is None else parse_message_id(options.at)
    handle = await open_session(account, session)
    fork = await handle.fork(at, id=options.id, expected=expected_revision(if_match), **options.set_fields())
    return json_response(session_to_dict(account, fork.info), 201, revision=fork.revision)


BRANCH_ROUTES: list[Any] = [list_branches, rewind_session, switch_branch, fork_session]
