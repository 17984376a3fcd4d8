"""Figures: what is stored and used, how tools did, where the bytes are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from recollect.model.space import Space
from recollect.model.statistics import Stats, ToolStats
from recollect.server.account import Account
from recollect.server.api.answer import SessionPath, found, told

TAGS = ["statistics"]
Offset = Annotated[int, QueryParameter(ge=-1440, le=1440, description="Minutes east of UTC, for where a day begins.")]
Time = Annotated[str | None, QueryParameter(description="ISO 8601.")]


class Tools(msgspec.Struct, frozen=True):
    """How each tool did."""

    tools: list[ToolStats]


@get("/stats", tags=TAGS, operation_id="get_stats")
async def get_stats(
    account: Account,
    since: Time = None,
    until: Time = None,
    channel: str | None = None,
    model: str | None = None,
    utc_offset: Offset = 0,
) -> Response[Stats]:
    """Add up what is stored, in all and by model, channel and day."""
    made = await account.store.stats(since=since, until=until, channel=channel, model=model, utc_offset=utc_offset)
    return told(made.to_dict())


@get("/sessions/{session:str}/stats", tags=TAGS, operation_id="get_session_stats")
async def get_session_stats(account: Account, session: SessionPath, utc_offset: Offset = 0) -> Response[Stats]:
    """Add up what was said in one session, on all its branches."""
    return told((await (await found(account, session)).stats(utc_offset=utc_offset)).to_dict())


@get("/tool-stats", tags=TAGS, operation_id="get_tool_stats")
async def get_tool_stats(
    account: Account,
    since: Time = None,
    until: Time = None,
    tool: str | None = None,
    period: Literal["day", "week", "month"] | None = None,
    utc_offset: Offset = 0,
) -> Response[Tools]:
    """Add up the tool calls: how many, how they ended, how long they took, by tool and period."""
    made = await account.store.tool_stats(since=since, until=until, tool=tool, period=period, utc_offset=utc_offset)
    return told({"tools": [item.to_dict() for item in made]})


@get("/space", tags=TAGS, operation_id="get_space")
async def get_space(account: Account) -> Response[Space]:
    """Say where the bytes of the database file are. PostgreSQL has tools of its own for it: 501."""
    return told((await account.store.space()).to_dict())


ROUTES: list[Any] = [get_stats, get_session_stats, get_tool_stats, get_space]
