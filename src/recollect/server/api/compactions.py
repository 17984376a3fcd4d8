"""Compactions: a summary in the place of what is old, by the caller or by the model; nothing is deleted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.errors import InvalidValue
from recollect.model.compaction import KEEP_TURNS
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import After, Limit, SessionPath, found, message_id, page, told
from recollect.server.api.turns import Count

TAGS = ["compaction"]


class NewCompaction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to compact. Without a summary the session's model writes one, of all but the newest turns."""

    summary: str | None = None
    before: Annotated[str | None, msgspec.Meta(description="All before this message; with a summary only.")] = None
    tokens: Annotated[Count | None, msgspec.Meta(description="The size of the summary, where it is known.")] = None
    keep_turns: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = KEEP_TURNS


class Undo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which compaction to undo; the last one where none is named."""

    round: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None = None


@get("/sessions/{session:str}/compactions", tags=TAGS, operation_id="list_compactions")
async def list_compactions(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[shapes.Compactions]:
    """List the compactions of the active path, the oldest first, undone ones too."""
    opened = await found(account, session)
    some, more = page(await opened.compactions(), lambda item: str(item.id), limit, after)
    return told({"compactions": [item.to_dict() for item in some], "next": more}, revision=opened.revision)


@post("/sessions/{session:str}/compactions", tags=TAGS, operation_id="compact_session")
async def compact_session(
    account: Account, session: SessionPath, data: NewCompaction | None = None
) -> Response[shapes.Compaction]:
    """Put a summary in the place of what is old when history is sent. Everything stays stored."""
    opened, wanted = await found(account, session), data or NewCompaction()
    if wanted.summary is not None:
        before = None if wanted.before is None else message_id(wanted.before)
        made = await opened.compact(before, summary=wanted.summary, tokens=wanted.tokens, keep_turns=wanted.keep_turns)
        return told(made.to_dict(), 201, revision=opened.revision)
    if wanted.before is not None or wanted.tokens is not None:
        raise InvalidValue("before and tokens go with a summary. Without one the model writes it, and chooses.")
    talk = await account.talks.talk(opened)
    made = await talk.compact()
    return told(made.to_dict(), 201, revision=opened.revision)


@post("/sessions/{session:str}/compactions/undo", tags=TAGS, operation_id="undo_compaction", status_code=200)
async def undo_compaction(
    account: Account, session: SessionPath, data: Undo | None = None
) -> Response[shapes.Compaction]:
    """Undo the last compaction, or the one of a round: its messages are sent on again."""
    opened = await found(account, session)
    undone = await opened.undo_compaction((data or Undo()).round)
    return told(undone.to_dict(), revision=opened.revision)


ROUTES: list[Any] = [list_compactions, compact_session, undo_compaction]
