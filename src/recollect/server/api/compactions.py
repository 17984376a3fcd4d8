"""Compactions (summaries in place of old messages) and snapshots (stored titles, summaries and memories)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.errors import InvalidValue
from recollect.model.compaction import KEEP_TURNS
from recollect.model.session import SnapshotKind
from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.responses import (
    After,
    Limit,
    SessionPath,
    json_response,
    open_session,
    paginate,
    parse_message_id,
)
from recollect.server.api.turns import NonNegativeInt

COMPACTION_TAGS = ["compaction"]


class NewCompaction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A compaction to create. Without a summary, the session's model writes one of all but the newest turns."""

    summary: str | None = None
    before: Annotated[
        str | None, msgspec.Meta(description="Compact the messages before this one. Only with a summary.")
    ] = None
    tokens: Annotated[
        NonNegativeInt | None, msgspec.Meta(description="The size of the summary in tokens, if known.")
    ] = None
    keep_turns: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = KEEP_TURNS


class Undo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The compaction to undo; without a round, the last one."""

    round: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None = None


@get("/sessions/{session:str}/compactions", tags=COMPACTION_TAGS, operation_id="list_compactions")
async def list_compactions(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[schemas.CompactionsSchema]:
    """List the compactions of the active path, oldest first, including undone ones."""
    handle = await open_session(account, session)
    page, next_cursor = paginate(await handle.compactions.list(), lambda item: str(item.id), limit, after)
    return json_response(
        {"compactions": [item.to_dict() for item in page], "next": next_cursor}, revision=handle.revision
    )


@post("/sessions/{session:str}/compactions", tags=COMPACTION_TAGS, operation_id="compact_session")
async def compact_session(
    account: Account, session: SessionPath, data: NewCompaction | None = None
) -> Response[schemas.CompactionSchema]:
    """Replace older messages by a summary in the history. The messages stay stored."""
    handle, options = await open_session(account, session), data or NewCompaction()
    if options.summary is not None:
        before = None if options.before is None else parse_message_id(options.before)
        compaction = await handle.compact(
            before, summary=options.summary, tokens=options.tokens, keep_turns=options.keep_turns
        )
        return json_response(compaction.to_dict(), 201, revision=handle.revision)
    if options.before is not None or options.tokens is not None:
        raise InvalidValue(
            "before and tokens need a summary. Without a summary, the model writes one and chooses the range."
        )
    conversation = await account.runner.conversation(handle)
    compaction = await conversation.compact()
    return json_response(compaction.to_dict(), 201, revision=handle.revision)


@post("/sessions/{session:str}/compactions/undo", tags=COMPACTION_TAGS, operation_id="undo_compaction", status_code=200)
async def undo_compaction(
    account: Account, session: SessionPath, data: Undo | None = None
) -> Response[schemas.CompactionSchema]:
    """Undo the last compaction, or that of a round. Its messages are in the history again."""
    handle = await open_session(account, session)
    compaction = await handle.compactions.undo((data or Undo()).round)
    return json_response(compaction.to_dict(), revision=handle.revision)


COMPACTION_ROUTES: list[Any] = [list_compactions, compact_session, undo_compaction]


SNAPSHOT_TAGS = ["snapshots"]


class NewSnapshot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A snapshot to store, with the message up to which it holds; by default the last message."""

    kind: SnapshotKind
    content: Annotated[Any, msgspec.Meta(description="Text, or any JSON value.")]
    at: str | None = None
    tokens: NonNegativeInt | None = None


@get("/sessions/{session:str}/snapshots", tags=SNAPSHOT_TAGS, operation_id="list_snapshots")
async def list_snapshots(
    account: Account,
    session: SessionPath,
    kind: SnapshotKind | None = None,
    limit: Limit = 100,
    after: After = None,
) -> Response[schemas.SnapshotsSchema]:
    """List the snapshots of a session, oldest first."""
    handle = await open_session(account, session)
    page, next_cursor = paginate(await handle.snapshots.list(kind), lambda item: str(item.id), limit, after)
    return json_response(
        {"snapshots": [item.to_dict() for item in page], "next": next_cursor}, revision=handle.revision
    )


@post("/sessions/{session:str}/snapshots", tags=SNAPSHOT_TAGS, operation_id="keep_snapshot")
async def keep_snapshot(account: Account, session: SessionPath, data: NewSnapshot) -> Response[schemas.SnapshotSchema]:
    """Store a title, summary or memory of a session. A snapshot of the same kind and message is replaced."""
    handle = await open_session(account, session)
    at = None if data.at is None else parse_message_id(data.at)
    snapshot = await handle.snapshots.add(data.kind, data.content, at=at, tokens=data.tokens)
    return json_response(snapshot.to_dict(), 201, revision=handle.revision)


SNAPSHOT_ROUTES: list[Any] = [list_snapshots, keep_snapshot]
