"""Sessions: list, create, read, change, delete and bring back."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import QueryParameter
from msgspec import UNSET, UnsetType

from recollect.errors import SessionExists
from recollect.model.message import Role
from recollect.model.session import Session as Info
from recollect.model.session import Status
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import (
    After,
    IfMatch,
    IfNoneMatch,
    Key,
    Limit,
    SessionPath,
    expected,
    found,
    has,
    matching,
    session_plain,
    told,
    unchanged,
)
from recollect.server.names import session_id

TAGS = ["sessions"]
Either = Literal["true", "false", "any"]
EITHER: dict[str, bool | None] = {"true": True, "false": False, "any": None}


class Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be set on a session; what is left out stays as it is."""

    title: str | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    color: str | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    provider_config: str | UnsetType | None = UNSET
    working_dir: str | UnsetType | None = UNSET
    system_prompt: str | UnsetType | None = UNSET
    external_id: str | UnsetType | None = UNSET
    channel: str | UnsetType | None = UNSET
    channel_id: str | UnsetType | None = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET

    def given(self) -> dict[str, Any]:
        """Give what was sent."""
        sent = {name: getattr(self, name, UNSET) for name in NewFields.__struct_fields__}
        return {name: value for name, value in sent.items() if value is not UNSET}


class NewFields(Fields, kw_only=True, forbid_unknown_fields=True):
    """The fields of a session that is created. `parent` is the session that a sub-agent's session belongs to."""

    parent: str | UnsetType | None = UNSET


class NewSession(NewFields, kw_only=True, forbid_unknown_fields=True):
    """A session to be made; without an id it gets one."""

    id: str | None = None


class Named(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A session, by its id."""

    session: str


class Erased(msgspec.Struct, frozen=True):
    """The ids of what was erased."""

    erased: list[str]


class Emptied(msgspec.Struct, frozen=True):
    """How many sessions were erased."""

    count: int


class Last(msgspec.Struct, frozen=True):
    """The session that was last active, if there is one."""

    session: shapes.Session | None


def _answer(account: Account, info: Info, status: int = 200) -> Response[Any]:
    return told(session_plain(account, info), status, revision=info.revision)


@get("/sessions", tags=TAGS, operation_id="list_sessions")
async def list_sessions(
    account: Account,
    limit: Limit = 50,
    after: After = None,
    order: Literal["activity", "created", "title"] = "activity",
    archived: Either = "false",
    pinned: Either = "any",
    pinned_first: bool = False,
    delegates: Either = "false",
    channel: str | None = None,
    model: str | None = None,
    status: Status | None = None,
    role: Annotated[Role | None, QueryParameter(description="Those with a message of this role.")] = None,
    tool: Annotated[str | None, QueryParameter(description="Those in which this tool was called.")] = None,
    since: Annotated[str | None, QueryParameter(description="Active since: ISO 8601.")] = None,
    until: Annotated[str | None, QueryParameter(description="Active before: ISO 8601.")] = None,
    parent: Annotated[str | None, QueryParameter(description="The forks of a session, or its sub-agents.")] = None,
) -> Response[shapes.Sessions]:
    """List sessions, the newest first. Sub-agents' sessions and archived ones are left out unless asked for."""
    listed = await account.store.list_sessions(
        limit, after=after, order=order, archived=EITHER[archived], pinned=EITHER[pinned], pinned_first=pinned_first,
        delegates=EITHER[delegates], channel=channel, model=model, status=status, role=role, tool=tool, since=since,
        until=until, parent=parent,
    )  # fmt: skip
    return told({"sessions": [session_plain(account, item.info) for item in listed], "next": listed.next})


@get("/trash", tags=TAGS, operation_id="list_trash")
async def list_trash(account: Account, limit: Limit = 50, after: After = None) -> Response[shapes.Sessions]:
    """List the sessions in the trash, what was deleted last first."""
    listed = await account.store.list_sessions(limit, after=after, deleted=True, archived=None, delegates=None)
    return told({"sessions": [session_plain(account, item.info) for item in listed], "next": listed.next})


@delete("/trash", tags=TAGS, operation_id="empty_trash", status_code=200)
async def empty_trash(account: Account) -> Emptied:
    """Erase what is in the trash, for good. Forks keep the past that they share."""
    return Emptied((await account.store.empty_trash()).count)


@post("/sessions", tags=TAGS, operation_id="create_session")
async def create_session(account: Account, data: NewSession | None = None, key: Key = None) -> Response[shapes.Session]:
    """Make a session. Without an id it gets one; the same Idempotency-Key gives the same session."""
    wanted = data or NewSession()
    name = wanted.id
    if name is None and key is not None:
        name = _named_by(account, key)
    try:
        made = await account.store.create_session(name, **wanted.given())
    except SessionExists:
        if name is None or wanted.id is not None or key is None:
            raise
        return _answer(account, (await found(account, name)).info)
    return _answer(account, made.info, 201)


def _named_by(account: Account, key: str) -> str:
    """Make an id of a key: a UUID of version 8, which is for what an application computes by itself."""
    text = hashlib.sha256(f"{account.owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{'89ab'[int(text[16], 16) % 4]}{text[17:20]}-{text[20:32]}"


@put("/sessions/{session:str}", tags=TAGS, operation_id="ensure_session")
async def ensure_session(
    account: Account, session: SessionPath, data: NewFields | None = None
) -> Response[shapes.Session]:
    """Open a session, or make it where there is none, with these fields. Either way it counts as active now."""
    name = session_id(session)
    made = await account.store.session(name, **(data or NewFields()).given())
    return _answer(account, made.info)


@get("/sessions/{session:str}", tags=TAGS, operation_id="get_session")
async def get_session(
    account: Account, session: SessionPath, if_none_match: IfNoneMatch = None
) -> Response[shapes.Session]:
    """Read a session."""
    info = (await found(account, session)).info
    return unchanged(info.revision) if has(if_none_match, info.revision) else _answer(account, info)


@patch("/sessions/{session:str}", tags=TAGS, operation_id="update_session")
async def update_session(
    account: Account, session: SessionPath, data: Fields, if_match: IfMatch = None
) -> Response[shapes.Session]:
    """Change what is known about a session: title, model, pinned, archived, color, metadata, ..."""
    handle = await found(account, session)
    changed = await handle.update(expected=expected(if_match), **data.given())
    return _answer(account, changed.info)


@delete("/sessions/{session:str}", tags=TAGS, operation_id="delete_session")
async def delete_session(account: Account, session: SessionPath, if_match: IfMatch = None) -> None:
    """Put a session in the trash. What runs in it is stopped."""
    opened = await matching(account, session, if_match)
    await account.talks.halt(opened.id)
    await account.store.delete_session(opened.id)


@post("/sessions/{session:str}/restore", tags=TAGS, operation_id="restore_session", status_code=200)
async def restore_session(account: Account, session: SessionPath) -> Response[shapes.Session]:
    """Take a session out of the trash, whole."""
    return _answer(account, (await account.store.restore_session(session_id(session))).info)


@post("/sessions/{session:str}/erase", tags=TAGS, operation_id="erase_session", status_code=200)
async def erase_session(
    account: Account,
    session: SessionPath,
    forks: Literal["refuse", "keep", "erase"] = "refuse",
    deleted: bool | None = None,
) -> Erased:
    """Erase a session for good. Forks that share its past: refuse, keep theirs, or erase too.

    A living session and one in the trash can have one id: `deleted` says which, a living one if it is not given.
    """
    name = session_id(session)
    if not deleted:
        await account.talks.halt(name)
    return Erased(await account.store.erase_session(name, forks=forks, deleted=deleted))


@get("/resolve", tags=TAGS, operation_id="resolve_session")
async def resolve_session(
    account: Account,
    name: Annotated[str, QueryParameter(description="An id, a title, or the beginning of an id.")],
) -> Response[shapes.Session]:
    """Find one session by its id, its title or the beginning of its id."""
    return _answer(account, (await account.store.find_session(name)).info)


@get("/last-session", tags=TAGS, operation_id="get_last_session")
async def get_last_session(account: Account) -> Response[Last]:
    """Read which session was last active; null where there is none at all."""
    last = await account.store.last_session()
    return told({"session": None if last is None else session_plain(account, last.info)})


@put("/last-session", tags=TAGS, operation_id="set_last_session", status_code=204)
async def set_last_session(account: Account, data: Named) -> None:
    """Remember which session is active now."""
    await account.store.set_last_session(data.session)


ROUTES: list[Any] = [
    list_sessions, list_trash, empty_trash, create_session, ensure_session, get_session, update_session, delete_session,
    restore_session, erase_session, resolve_session, get_last_session, set_last_session,
]  # fmt: skip
