"""Statistics: messages, tokens, tool calls and disk space."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from recollect.model.reports import Space, Stats, ToolStats
from recollect.server.account import Account
from recollect.server.api.responses import SessionPath, json_response, open_session

TAGS = ["statistics"]
UtcOffset = Annotated[
    int, QueryParameter(ge=-1440, le=1440, description="Minutes east of UTC; decides when a day starts.")
]
IsoTime = Annotated[str | None, QueryParameter(description="ISO 8601 time.")]


class Tools(msgspec.Struct, frozen=True):
    """Statistics of each tool."""

    tools: list[ToolStats]


@get("/stats", tags=TAGS, operation_id="get_stats")
async def get_stats(
    account: Account,
    since: IsoTime = None,
    until: IsoTime = None,
    channel: str | None = None,
    model: str | None = None,
    utc_offset: UtcOffset = 0,
) -> Response[Stats]:
    """Return totals of sessions, messages, turns and tokens, also by model, channel and day."""
    stats = await account.store.stats(since=since, until=until, channel=channel, model=model, utc_offset=utc_offset)
    return json_response(stats.to_dict())


@get("/sessions/{session:str}/stats", tags=TAGS, operation_id="get_session_stats")
async def get_session_stats(account: Account, session: SessionPath, utc_offset: UtcOffset = 0) -> Response[Stats]:
    """Return the totals of one session, over all its branches."""
    return json_response((await (await open_session(account, session)).stats(utc_offset=utc_offset)).to_dict())


@get("/tool-stats", tags=TAGS, operation_id="get_tool_stats")
async def get_tool_stats(
    account: Account,
    since: IsoTime = None,
    until: IsoTime = None,
    tool: str | None = None,
    period: Literal["day", "week", "month"] | None = None,
    utc_offset: UtcOffset = 0,
) -> Response[Tools]:
    """Return tool call counts, outcomes and durations, by tool and period."""
    tool_stats = await account.store.tools.stats(
        since=since, until=until, tool=tool, period=period, utc_offset=utc_offset
    )
    return json_response({"tools": [item.to_dict() for item in tool_stats]})


@get("/space", tags=TAGS, operation_id="get_space")
async def get_space(account: Account) -> Response[Space]:
    """Return the space that each kind of data takes in the SQLite file. On PostgreSQL, the response is 501."""
    return json_response((await account.store.maintenance.space()).to_dict())


ROUTES: list[Any] = [get_stats, get_session_stats, get_tool_stats, get_space]
