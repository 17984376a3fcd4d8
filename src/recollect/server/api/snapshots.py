"""Snapshots: titles, summaries and memories made from a session."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.model.snapshot import SnapshotKind
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import After, Limit, SessionPath, found, message_id, page, told
from recollect.server.api.turns import Count

TAGS = ["snapshots"]


class NewSnapshot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was made, of which kind, and the message that it reaches; without one, the last."""

    kind: SnapshotKind
    content: Annotated[Any, msgspec.Meta(description="Text, or any JSON value.")]
    at: str | None = None
    tokens: Count | None = None


@get("/sessions/{session:str}/snapshots", tags=TAGS, operation_id="list_snapshots")
async def list_snapshots(
    account: Account,
    session: SessionPath,
    kind: SnapshotKind | None = None,
    limit: Limit = 100,
    after: After = None,
) -> Response[shapes.Snapshots]:
    """List the snapshots of a session, the oldest first."""
    opened = await found(account, session)
    some, more = page(await opened.snapshots(kind), lambda item: str(item.id), limit, after)
    return told({"snapshots": [item.to_dict() for item in some], "next": more}, revision=opened.revision)


@post("/sessions/{session:str}/snapshots", tags=TAGS, operation_id="keep_snapshot")
async def keep_snapshot(account: Account, session: SessionPath, data: NewSnapshot) -> Response[shapes.Snapshot]:
    """Store a title, summary or memory made from a session. One of the same kind and place is replaced."""
    opened = await found(account, session)
    at = None if data.at is None else message_id(data.at)
    made = await opened.snapshot(data.kind, data.content, at=at, tokens=data.tokens)
    return told(made.to_dict(), 201, revision=opened.revision)


ROUTES: list[Any] = [list_snapshots, keep_snapshot]
