"""Branches: list them, go back, go to another, and fork a session at a message."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import (
    After,
    IfMatch,
    Limit,
    SessionPath,
    found,
    matching,
    message_id,
    page,
    session_plain,
    told,
)
from recollect.server.api.sessions import NewSession

TAGS = ["branches"]


class Rewind(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to go back to: a message's id, or 0 for before the first."""

    to: Annotated[str, msgspec.Meta(examples=["1.17", "0"])]


class Switch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The branch to go to."""

    branch: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class Fork(NewSession, kw_only=True, forbid_unknown_fields=True):
    """The session to be made, and the last message that it shares; without one, all of it."""

    at: str | None = None


@get("/sessions/{session:str}/branches", tags=TAGS, operation_id="list_branches")
async def list_branches(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[shapes.Branches]:
    """List the branches of a session."""
    opened = await found(account, session)
    some, more = page(await opened.branches(), lambda branch: str(branch.id), limit, after)
    return told({"branches": [branch.to_dict() for branch in some], "next": more}, revision=opened.revision)


@post("/sessions/{session:str}/rewind", tags=TAGS, operation_id="rewind_session", status_code=200)
async def rewind_session(
    account: Account, session: SessionPath, data: Rewind, if_match: IfMatch = None
) -> Response[shapes.Session]:
    """Go back to a message. What followed stays, on its own branch."""
    opened = await matching(account, session, if_match)
    await opened.rewind(0 if data.to == "0" else message_id(data.to))
    return told(session_plain(account, opened.info), revision=opened.revision)


@post("/sessions/{session:str}/switch", tags=TAGS, operation_id="switch_branch", status_code=200)
async def switch_branch(
    account: Account, session: SessionPath, data: Switch, if_match: IfMatch = None
) -> Response[shapes.Session]:
    """Make another branch the active path."""
    opened = await matching(account, session, if_match)
    await opened.switch(data.branch)
    return told(session_plain(account, opened.info), revision=opened.revision)


@post("/sessions/{session:str}/fork", tags=TAGS, operation_id="fork_session")
async def fork_session(account: Account, session: SessionPath, data: Fork | None = None) -> Response[shapes.Session]:
    """Make a session that shares the past of this one up to a message. Nothing is copied."""
    wanted = data or Fork()
    at = None if wanted.at is None else message_id(wanted.at)
    made = await (await found(account, session)).fork(at, id=wanted.id, **wanted.given())
    return told(session_plain(account, made.info), 201, revision=made.revision)


ROUTES: list[Any] = [list_branches, rewind_session, switch_branch, fork_session]
