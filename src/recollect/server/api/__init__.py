"""The HTTP API under /api/v1: the operations of the store and the agent as JSON. One module for each resource."""

from __future__ import annotations

from typing import Any

from litestar import Router

from recollect.server.api import (
    chat,
    compactions,
    event_stream,
    health,
    messages,
    records,
    search,
    sessions,
    statistics,
    transfer,
    turns,
)

PATH = "/api/v1"
_HANDLERS: list[Any] = [
    *health.ROUTES, *sessions.SESSION_ROUTES, *sessions.BRANCH_ROUTES, *messages.MESSAGE_ROUTES, *messages.FILE_ROUTES,
    *turns.TURN_ROUTES, *turns.TOOL_CALL_ROUTES, *chat.CHAT_ROUTES, *chat.APPROVAL_ROUTES, *search.ROUTES,
    *compactions.COMPACTION_ROUTES, *compactions.SNAPSHOT_ROUTES, *records.ROUTES, *transfer.ROUTES,
    *statistics.ROUTES, *event_stream.ROUTES,
]  # fmt: skip
ROUTES: list[Any] = [Router(PATH, route_handlers=_HANDLERS)]
