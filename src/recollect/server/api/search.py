"""Search over titles and messages."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import QueryParameter

from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.responses import After, json_response
from recollect.server.api.sessions import (
    TRI_STATE,
    ExternalId,
    IdPrefix,
    Labels,
    MetadataFields,
    TriState,
    parse_fields,
)

MultipleNames = Annotated[list[str] | None, QueryParameter(description="Any of these values; may be repeated.")]


@get("/search", tags=["search"], operation_id="search")
async def search(
    account: Account,
    q: Annotated[str, QueryParameter(description='Words, "phrases", prefix*, -excluded, filters such as role:user.')],
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 20,
    after: After = None,
    session: Annotated[str | None, QueryParameter(description="Only in this session.")] = None,
    role: MultipleNames = None,
    tool: MultipleNames = None,
    channel: MultipleNames = None,
    model: MultipleNames = None,
    status: MultipleNames = None,
    label: Labels = None,
    external_id: ExternalId = None,
    id_prefix: IdPrefix = None,
    metadata: MetadataFields = None,
    since: Annotated[str | None, QueryParameter(description="ISO 8601 time.")] = None,
    until: Annotated[str | None, QueryParameter(description="ISO 8601 time.")] = None,
    archived: TriState = "any",
    pinned: TriState = "any",
    deleted: Annotated[bool, QueryParameter(description="Search the trash.")] = False,
    delegates: Annotated[bool, QueryParameter(description="Search sub-agents' sessions too.")] = False,
) -> Response[schemas.HitsSchema]:
    """Search titles and messages, best hits first. Everything stored before the request is searched."""
    hits = await account.store.search(
        q, limit, after=after, session=session, role=role, tool=tool, channel=channel, model=model, status=status,
        label=label, external_id=external_id, id_prefix=id_prefix, metadata=parse_fields(metadata),
        since=since, until=until, archived=TRI_STATE[archived], pinned=TRI_STATE[pinned], deleted=deleted,
        delegates=delegates,
    )  # fmt: skip
    return json_response({"hits": [hit.to_dict() for hit in hits], "next": hits.next, "index_error": hits.index_error})


ROUTES: list[Any] = [search]
