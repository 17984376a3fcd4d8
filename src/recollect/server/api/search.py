"""Search across everything that was said."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import QueryParameter

from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import After, told
from recollect.server.api.sessions import EITHER, Either

Names = Annotated[list[str] | None, QueryParameter(description="One of these; may be given more than once.")]


@get("/search", tags=["search"], operation_id="search")
async def search(
    account: Account,
    q: Annotated[str, QueryParameter(description='Words, "phrases", prefix*, -without, filters such as role:user.')],
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 20,
    after: After = None,
    session: Annotated[str | None, QueryParameter(description="Only in this session.")] = None,
    role: Names = None,
    tool: Names = None,
    channel: Names = None,
    model: Names = None,
    status: Names = None,
    since: Annotated[str | None, QueryParameter(description="ISO 8601.")] = None,
    until: Annotated[str | None, QueryParameter(description="ISO 8601.")] = None,
    archived: Either = "any",
    pinned: Either = "any",
    deleted: Annotated[bool, QueryParameter(description="Search the trash.")] = False,
    delegates: Annotated[bool, QueryParameter(description="Search sub-agents' sessions too.")] = False,
) -> Response[shapes.Hits]:
    """Search titles and messages, the best hits first. It sees everything that was stored before."""
    hits = await account.store.search(
        q, limit, after=after, session=session, role=role, tool=tool, channel=channel, model=model, status=status,
        since=since, until=until, archived=EITHER[archived], pinned=EITHER[pinned], deleted=deleted,
        delegates=delegates,
    )  # fmt: skip
    return told({"hits": [hit.to_dict() for hit in hits], "next": hits.next, "hindered": hits.hindered})


ROUTES: list[Any] = [search]
